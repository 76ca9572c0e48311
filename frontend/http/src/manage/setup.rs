//! `/api/v2/setup`: the first user, organisation, bucket and token of a cluster.
//!
//! A cluster is set up when its superuser has a password, however it got it. Until then everybody is the superuser, and
//! may do this once: meta takes the first password only. A name other than the superuser's makes a second superuser;
//! both have the password then, so that no door stays open. Neither belongs to the new organisation, as superusers stand
//! above these.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use partita_frontend::SqlError;
use partita_frontend::access::authenticator::verifier_of;
use partita_proto::access::{
    AccessChange, Action, Door as DoorKind, Identity, Need, Object, Org, Profile, Role, RoleEdit,
    Verifier, validate_role_name,
};
use partita_proto::id::BOOTSTRAP_ROLE;
use serde::Deserialize;
use serde_json::json;

use super::buckets::{NewDatabase, make, retention_of};
use super::client::{Client, object};
use super::failure::{Answer, Failure};
use super::ids::user_id;
use super::new_token::{self, NewToken};
use super::{authorizations, buckets, orgs};
use crate::door::Door;
use crate::error::ApiError;

/// Shortest password, and shortest text of a token that a client chooses.
const PASSWORD_BYTES_MIN: usize = 8;
const TOKEN_BYTES_MIN: usize = 16;
const HOUR_SECONDS: u64 = 60 * 60;

/// Body of POST.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Onboarding {
    username: String,
    password: Option<String>,
    token: Option<String>,
    org: String,
    bucket: String,
    #[serde(default)]
    retention_period_seconds: u64,
    /// The same in hours, of earlier clients.
    #[serde(default)]
    retention_period_hrs: u64,
}

/// `GET`: whether the cluster may be set up.
pub(super) fn allowed(door: &Door) -> Response {
    Json(json!({ "allowed": door.frontend.authenticator().is_open() })).into_response()
}

fn completed() -> Failure {
    Failure::conflict("onboarding has already been completed")
}

pub(super) async fn run(door: &Door, headers: &HeaderMap, body: Body) -> Answer {
    let superuser = door.frontend.authenticator().anonymous(DoorKind::Http);
    let client = &Client::new(door, superuser.ok_or_else(completed)?);
    // The password ends the identity, but not its permit.
    let actions = [Action::Create, Action::CreateRole, Action::ManageOrg, Action::ManageToken];
    let permit = client.permit(&actions.map(|action| Need::new(action, Object::Cluster)))?;
    let body: Onboarding = object(door, headers, body).await?;
    let seconds = body.retention_period_hrs.saturating_mul(HOUR_SECONDS);
    let ttl = retention_of(seconds.max(body.retention_period_seconds))?;
    let password = check(client, &body)?;
    let first = verifier(&password).await?;
    let change = AccessChange::SetInitialPassword(first.clone());
    if !client.change_access(&permit, change).await? {
        return Err(completed());
    }
    let id = client.new_org_id()?;
    let org = Org { id, name: body.org, series_max: None, profile: Profile::default() };
    client.change_access(&permit, AccessChange::CreateOrg(org.clone())).await?;
    let bootstrap = client.access().role(BOOTSTRAP_ROLE).map(Arc::clone);
    let is_first = bootstrap.as_ref().is_some_and(|role| role.name == body.username);
    if !is_first {
        let edit = RoleEdit {
            login: Some(true),
            superuser: Some(true),
            create_db: Some(true),
            create_role: Some(true),
            admin: Some(true),
            verifier: Some(Some(first)),
            ..RoleEdit::default()
        };
        let (member_of, members) = (Vec::new(), Vec::new());
        let name = body.username.clone();
        client
            .change_access(&permit, AccessChange::CreateRole { name, edit, member_of, members })
            .await?;
    }
    let user: Option<Arc<Role>> = client.access().role_by_name(&body.username).map(Arc::clone);
    let user = user.ok_or_else(|| SqlError::internal("the first user is missing"))?;
    let client = &Client::new(door, Identity::of_role(&user, DoorKind::Http));
    let owner = client.org_role(&permit, id).await?;
    let new = NewDatabase { name: &body.bucket, ttl, explicit: false, owner: Some(owner) };
    let bucket = make(client, &permit, new).await?;
    let description = format!("{}'s Token", user.name);
    let new = NewToken { text: body.token, ..NewToken::whole(description, Arc::clone(&user)) };
    let (token, text) = new_token::create(client, &permit, new).await?;
    let body = json!({
        "user": { "id": user_id(user.id), "name": user.name, "status": "active" },
        "org": orgs::shown(&org),
        "bucket": buckets::shown(client, &bucket),
        "auth": authorizations::shown(client, &token, Some(&text)),
    });
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

/// Checks everything that can be, before anything is changed. Returns the password.
fn check(client: &Client<'_>, body: &Onboarding) -> Result<String, Failure> {
    let invalid = |message: &str| ApiError::bad_request(message);
    let password = body.password.clone().unwrap_or_default();
    if password.len() < PASSWORD_BYTES_MIN {
        return Err(invalid("passwords must be at least 8 characters long").into());
    }
    if body.token.as_ref().is_some_and(|token| token.len() < TOKEN_BYTES_MIN) {
        return Err(invalid("tokens must be at least 16 characters long").into());
    }
    validate_role_name(&body.username).map_err(|error| invalid(&error.to_string()))?;
    let access = client.access();
    if access.role_by_name(&body.username).is_some_and(|role| role.id != BOOTSTRAP_ROLE) {
        return Err(Failure::conflict(format!("user with name {} already exists", body.username)));
    }
    orgs::check_name(client, &body.org)?;
    buckets::check_name(&body.bucket)?;
    if client.catalog().databases.contains_key(&body.bucket) {
        let message = format!("bucket with name {} already exists", body.bucket);
        return Err(Failure::conflict(message));
    }
    Ok(password)
}

async fn verifier(password: &str) -> Result<Verifier, SqlError> {
    let password = password.to_owned();
    let verifier = tokio::task::spawn_blocking(move || verifier_of(&password)).await;
    verifier.map_err(|_| SqlError::internal("the verifier was not computed"))?
}
