//! InfluxDB's API of organisations, buckets, tokens and schemas, over the catalog's roles and databases.
//!
//! ```text
//!   bucket                      database; its organisation is that of the role that owns it
//!   authorization               token
//!   measurement of a schema     table with exactly these columns
//!   user                        role
//! ```
//!
//! Each request is turned into needs, which are checked, and changes for meta, as the SQL statements on the same objects
//! are. Lists have what the caller may see; what it may not see is reported as missing.
//!
//! Invariants:
//! - no change is sent to meta without a permit for it;
//! - the text of a token is in the response that creates it, and nowhere else;
//! - bodies and lists are bounded.

mod authorizations;
mod buckets;
mod client;
mod configure;
mod deletion;
mod failure;
mod ids;
mod new_token;
mod orgs;
mod page;
mod predicate;
mod schemas;
mod setup;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;

use self::client::Client;
use self::failure::{Answer, AnswerV3};
use crate::caller::Caller;
use crate::door::Door;
use crate::parameters::Parameters;

pub(crate) use self::ids::bucket_named;

type Shared = State<Arc<Door>>;
type Known = Extension<Caller>;

/// `GET /api/v2/setup`.
pub(crate) async fn setup_allowed(State(door): Shared) -> Response {
    setup::allowed(&door)
}

/// `POST /api/v2/setup`.
pub(crate) async fn set_up(State(door): Shared, headers: HeaderMap, body: Body) -> Answer {
    setup::run(&door, &headers, body).await
}

/// `GET /api/v2/orgs`.
pub(crate) async fn orgs(State(door): Shared, Extension(caller): Known, uri: Uri) -> Answer {
    orgs::list(&Client::new(&door, caller.identity), &Parameters::of(&uri))
}

/// `POST /api/v2/orgs`.
pub(crate) async fn create_org(
    State(door): Shared,
    Extension(caller): Known,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    orgs::create(&Client::new(&door, caller.identity), &headers, body).await
}

/// `GET /api/v2/orgs/{id}`.
pub(crate) async fn org(
    State(door): Shared,
    Extension(caller): Known,
    Path(id): Path<String>,
) -> Answer {
    orgs::show(&Client::new(&door, caller.identity), &id)
}

/// `PATCH /api/v2/orgs/{id}`.
pub(crate) async fn change_org(
    State(door): Shared,
    Extension(caller): Known,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    orgs::change(&Client::new(&door, caller.identity), &id, &headers, body).await
}

/// `DELETE /api/v2/orgs/{id}`.
pub(crate) async fn drop_org(
    State(door): Shared,
    Extension(caller): Known,
    Path(id): Path<String>,
) -> Answer {
    orgs::remove(&Client::new(&door, caller.identity), &id).await
}

/// `GET /api/v2/buckets`.
pub(crate) async fn buckets(State(door): Shared, Extension(caller): Known, uri: Uri) -> Answer {
    buckets::list(&Client::new(&door, caller.identity), &Parameters::of(&uri))
}

/// `POST /api/v2/buckets`.
pub(crate) async fn create_bucket(
    State(door): Shared,
    Extension(caller): Known,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    buckets::create(&Client::new(&door, caller.identity), &headers, body).await
}

/// `GET /api/v2/buckets/{id}`.
pub(crate) async fn bucket(
    State(door): Shared,
    Extension(caller): Known,
    Path(id): Path<String>,
) -> Answer {
    buckets::show(&Client::new(&door, caller.identity), &id)
}

/// `PATCH /api/v2/buckets/{id}`.
pub(crate) async fn change_bucket(
    State(door): Shared,
    Extension(caller): Known,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    buckets::change(&Client::new(&door, caller.identity), &id, &headers, body).await
}

/// `DELETE /api/v2/buckets/{id}`.
pub(crate) async fn drop_bucket(
    State(door): Shared,
    Extension(caller): Known,
    Path(id): Path<String>,
) -> Answer {
    buckets::remove(&Client::new(&door, caller.identity), &id).await
}

/// `GET /api/v2/buckets/{id}/schema/measurements`.
pub(crate) async fn schemas(
    State(door): Shared,
    Extension(caller): Known,
    Path(bucket): Path<String>,
    uri: Uri,
) -> Answer {
    schemas::list(&Client::new(&door, caller.identity), &bucket, &Parameters::of(&uri))
}

/// `POST /api/v2/buckets/{id}/schema/measurements`.
pub(crate) async fn create_schema(
    State(door): Shared,
    Extension(caller): Known,
    Path(bucket): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    schemas::create(&Client::new(&door, caller.identity), &bucket, &headers, body).await
}

/// `GET /api/v2/buckets/{id}/schema/measurements/{measurement}`.
pub(crate) async fn schema(
    State(door): Shared,
    Extension(caller): Known,
    Path((bucket, measurement)): Path<(String, String)>,
) -> Answer {
    schemas::show(&Client::new(&door, caller.identity), &bucket, &measurement)
}

/// `PATCH /api/v2/buckets/{id}/schema/measurements/{measurement}`.
pub(crate) async fn change_schema(
    State(door): Shared,
    Extension(caller): Known,
    Path((bucket, measurement)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let client = Client::new(&door, caller.identity);
    schemas::change(&client, (&bucket, &measurement), &headers, body).await
}

/// `GET /api/v2/authorizations`.
pub(crate) async fn authorizations(
    State(door): Shared,
    Extension(caller): Known,
    uri: Uri,
) -> Answer {
    authorizations::list(&Client::new(&door, caller.identity), &Parameters::of(&uri))
}

/// `POST /api/v2/authorizations`.
pub(crate) async fn create_authorization(
    State(door): Shared,
    Extension(caller): Known,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    authorizations::create(&Client::new(&door, caller.identity), &headers, body).await
}

/// `GET /api/v2/authorizations/{id}`.
pub(crate) async fn authorization(
    State(door): Shared,
    Extension(caller): Known,
    Path(id): Path<String>,
) -> Answer {
    authorizations::show(&Client::new(&door, caller.identity), &id)
}

/// `PATCH /api/v2/authorizations/{id}`.
pub(crate) async fn change_authorization(
    State(door): Shared,
    Extension(caller): Known,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    authorizations::change(&Client::new(&door, caller.identity), &id, &headers, body).await
}

/// `DELETE /api/v2/authorizations/{id}`.
pub(crate) async fn drop_authorization(
    State(door): Shared,
    Extension(caller): Known,
    Path(id): Path<String>,
) -> Answer {
    authorizations::remove(&Client::new(&door, caller.identity), &id).await
}

/// `POST /api/v2/delete`.
pub(crate) async fn delete(
    State(door): Shared,
    Extension(caller): Known,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let client = Client::new(&door, caller.identity);
    deletion::run(&client, &Parameters::of(&uri), &headers, body).await
}

/// `GET /api/v3/configure/database`.
pub(crate) async fn databases(State(door): Shared, Extension(caller): Known, uri: Uri) -> AnswerV3 {
    configure::databases(&Client::new(&door, caller.identity), &Parameters::of(&uri))
}

/// `POST /api/v3/configure/database`.
pub(crate) async fn create_database(
    State(door): Shared,
    Extension(caller): Known,
    headers: HeaderMap,
    body: Body,
) -> AnswerV3 {
    configure::create_database(&Client::new(&door, caller.identity), &headers, body).await
}

/// `PUT /api/v3/configure/database`.
pub(crate) async fn change_database(
    State(door): Shared,
    Extension(caller): Known,
    headers: HeaderMap,
    body: Body,
) -> AnswerV3 {
    configure::change_database(&Client::new(&door, caller.identity), &headers, body).await
}

/// `DELETE /api/v3/configure/database`.
pub(crate) async fn drop_database(
    State(door): Shared,
    Extension(caller): Known,
    uri: Uri,
) -> AnswerV3 {
    let client = Client::new(&door, caller.identity);
    configure::drop_database(&client, &Parameters::of(&uri)).await
}

/// `POST /api/v3/configure/table`.
pub(crate) async fn create_table(
    State(door): Shared,
    Extension(caller): Known,
    headers: HeaderMap,
    body: Body,
) -> AnswerV3 {
    configure::create_table(&Client::new(&door, caller.identity), &headers, body).await
}

/// `DELETE /api/v3/configure/table`.
pub(crate) async fn drop_table(
    State(door): Shared,
    Extension(caller): Known,
    uri: Uri,
) -> AnswerV3 {
    let client = Client::new(&door, caller.identity);
    configure::drop_table(&client, &Parameters::of(&uri)).await
}

/// `POST /api/v3/configure/token`, for a token that is restricted to databases.
pub(crate) async fn create_token(
    State(door): Shared,
    Extension(caller): Known,
    headers: HeaderMap,
    body: Body,
) -> AnswerV3 {
    configure::create_token(&Client::new(&door, caller.identity), &headers, body).await
}

/// `POST /api/v3/configure/token/admin`, for a token with all rights of the caller.
pub(crate) async fn create_admin_token(
    State(door): Shared,
    Extension(caller): Known,
    headers: HeaderMap,
    body: Body,
) -> AnswerV3 {
    configure::create_admin_token(&Client::new(&door, caller.identity), &headers, body).await
}

/// `DELETE /api/v3/configure/token`.
pub(crate) async fn drop_token(
    State(door): Shared,
    Extension(caller): Known,
    uri: Uri,
) -> AnswerV3 {
    let client = Client::new(&door, caller.identity);
    configure::drop_token(&client, &Parameters::of(&uri)).await
}
