//! `/api/v2/buckets`: databases.
//!
//! A bucket that is made for an organisation which its maker does not belong to is given to a role of that organisation.
//! `description` and `rp` are accepted and not kept; a bucket keeps its name.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use partita_frontend::SqlError;
use partita_proto::access::{AccessChange, Action, Need, Object, Permit, Target};
use partita_proto::catalog::{Catalog, Database};
use partita_proto::id::{DatabaseId, RoleId};
use partita_proto::schema::validate_name;
use partita_proto::service::{Ddl, NamedObject};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::client::{Client, object, org_object};
use super::failure::{Answer, Failure};
use super::ids::{database_of, id_text};
use super::page::Page;
use crate::error::ApiError;
use crate::parameters::Parameters;

/// Number of buckets of a list without a limit, and its maximum.
const LISTED: usize = 20;
const LISTED_MAX: usize = 100;
/// Shortest retention of a bucket.
const RETENTION_SECONDS_MIN: u64 = 60 * 60;

/// Body of POST.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NewBucket {
    name: String,
    #[serde(rename = "orgID")]
    org_id: Option<String>,
    retention_rules: Option<Vec<RetentionRule>>,
    schema_type: Option<SchemaType>,
}

/// Body of PATCH.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BucketEdit {
    name: Option<String>,
    retention_rules: Option<Vec<RetentionRule>>,
    schema_type: Option<SchemaType>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum SchemaType {
    Implicit,
    Explicit,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RetentionRule {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    every_seconds: u64,
}

/// The retention of rules; `None`: for ever.
fn retention(rules: &[RetentionRule]) -> Result<Option<Duration>, Failure> {
    let [rule] = rules else {
        return match rules.is_empty() {
            true => Ok(None),
            false => Err(Failure::unprocessable("a bucket has one retention rule")),
        };
    };
    if rule.kind.as_deref().is_some_and(|kind| kind != "expire") {
        return Err(Failure::unprocessable("the type of a retention rule must be expire"));
    }
    retention_of(rule.every_seconds)
}

/// The retention of a number of seconds; 0: for ever.
///
/// # Errors
/// 422 when it is shorter than an hour.
pub(super) fn retention_of(seconds: u64) -> Result<Option<Duration>, Failure> {
    match seconds {
        0 => Ok(None),
        1..RETENTION_SECONDS_MIN => {
            Err(Failure::unprocessable("retention must be at least one hour, or 0 for ever"))
        }
        seconds => Ok(Some(Duration::from_secs(seconds))),
    }
}

/// A bucket as clients see it.
pub(super) fn shown(client: &Client<'_>, database: &Database) -> Value {
    let id = id_text(database.id.0);
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
    if let Some(org) = client.org_of(database) {
        set("orgID", json!(org.to_string()));
    }
    let rule = |ttl: &Duration| json!({ "type": "expire", "everySeconds": ttl.as_secs() });
    set("retentionRules", Value::Array(database.ttl.iter().map(rule).collect()));
    set("name", json!(database.name));
    set("type", json!("user"));
    set("description", json!(""));
    set("schemaType", json!(if database.explicit { "explicit" } else { "implicit" }));
    set("labels", json!([]));
    let (link, schemas) =
        (format!("/api/v2/buckets/{id}"), format!("/api/v2/buckets/{id}/schema/measurements"));
    set("links", json!({ "self": link, "schema": schemas, "write": "/api/v2/write" }));
    set("id", json!(id));
    Value::Object(fields)
}

pub(super) fn list(client: &Client<'_>, parameters: &Parameters) -> Answer {
    let page = Page::of(parameters, LISTED, LISTED_MAX)?;
    let org = match (parameters.get("orgID"), parameters.get("org")) {
        (Some(id), _) => Some(client.org(id)?.id),
        (None, Some(name)) => Some(client.org_named(name)?.id),
        (None, None) => None,
    };
    let catalog = client.catalog();
    let id = parameters.get("id").map(|id| database_of(&catalog, id).map(|database| database.id));
    let is_wanted = |database: &&Arc<Database>| {
        parameters.get("name").is_none_or(|name| name == database.name)
            && id.is_none_or(|id| id == Some(database.id))
            && org.is_none_or(|org| client.org_of(database) == Some(org))
    };
    let buckets: Vec<_> = catalog.databases.values().filter(is_wanted).cloned().collect();
    let (buckets, has_next) = page.of_items(buckets, |bucket| u64::from(bucket.id.0));
    let buckets: Vec<_> = buckets.iter().map(|bucket| shown(client, bucket)).collect();
    let links = page.links("/api/v2/buckets", parameters, has_next);
    Ok(Json(json!({ "links": links, "buckets": buckets })).into_response())
}

pub(super) async fn create(client: &Client<'_>, headers: &HeaderMap, body: Body) -> Answer {
    let mut needs = vec![Need::new(Action::Create, Object::Cluster)];
    let _permit = client.permit(&needs)?;
    let body: NewBucket = object(client.door, headers, body).await?;
    check_name(&body.name)?;
    let ttl = retention(body.retention_rules.as_deref().unwrap_or_default())?;
    let maker = client.role()?;
    let org = match body.org_id.as_deref().filter(|id| !id.is_empty()) {
        Some(id) => Some(client.org(id)?),
        None => client.identity.org.and_then(|id| client.access().org(id).map(Arc::clone)),
    };
    // The maker owns buckets of its own organisation.
    let foreign = org.filter(|org| maker.org != Some(org.id));
    if let Some(org) = &foreign {
        needs.push(Need::new(Action::ManageOrg, org_object(org)));
    }
    let permit = client.permit(&needs)?;
    let explicit = body.schema_type == Some(SchemaType::Explicit);
    let owner = match &foreign {
        Some(org) => Some(client.org_role(&permit, org.id).await?),
        None => None,
    };
    let bucket =
        make(client, &permit, NewDatabase { name: &body.name, ttl, explicit, owner }).await?;
    Ok((StatusCode::CREATED, Json(shown(client, &bucket))).into_response())
}

/// Checks the name of a new bucket, which may have characters that a write cannot make a database with.
///
/// # Errors
/// 400 for an invalid one.
pub(super) fn check_name(name: &str) -> Result<(), ApiError> {
    validate_name("bucket", name).map_err(|error| ApiError::bad_request(error.to_string()))
}

/// A database to create.
pub(super) struct NewDatabase<'a> {
    pub(super) name: &'a str,
    pub(super) ttl: Option<Duration>,
    pub(super) explicit: bool,
    /// Role that gets it; `None`: the maker.
    pub(super) owner: Option<RoleId>,
}

/// Creates a database.
///
/// # Errors
/// When the name is taken, and those of meta. A database whose properties cannot be set stays.
pub(super) async fn make(
    client: &Client<'_>,
    permit: &Permit,
    new: NewDatabase<'_>,
) -> Result<Arc<Database>, Failure> {
    let name = new.name.to_owned();
    let (ttl, owner) = (new.ttl, permit.role());
    let create = Ddl::CreateDatabase { name: name.clone(), if_not_exists: false, ttl, owner };
    if let Err(error) = client.change(permit, create).await {
        // "database already exists" of meta
        let is_taken = error.sqlstate == "42P06";
        return Err(match is_taken {
            true => Failure::conflict(format!("bucket with name {name} already exists")),
            false => error.into(),
        });
    }
    // From here on the database is known by its id: another client may drop it and make one of the same name.
    let missing = || SqlError::undefined_database(&name);
    let newest = || client.door.frontend.catalog();
    let id = made(&newest(), &name, owner).ok_or_else(missing)?;
    if new.explicit {
        let explicit = Ddl::MakeExplicit { name: name.clone() };
        client.change(permit, explicit.checked(NamedObject::Database(id))).await?;
    }
    if let Some(owner) = new.owner {
        let target = Target::Database(id);
        client.change_access(permit, AccessChange::SetOwner { target, owner }).await?;
    }
    let catalog = newest();
    let database = catalog.databases.values().find(|database| database.id == id);
    database.map(Arc::clone).ok_or_else(|| missing().into())
}

/// The database that its maker has just made under a name. Meta does not return its id, so it is the one that the maker
/// owns: one that another role has made since is not it.
fn made(catalog: &Catalog, name: &str, maker: RoleId) -> Option<DatabaseId> {
    let holder = catalog.databases.get(name).filter(|database| database.owner == maker);
    holder.map(|database| database.id)
}

pub(super) fn show(client: &Client<'_>, id: &str) -> Answer {
    let bucket = client.bucket(id)?;
    Ok(Json(shown(client, &bucket)).into_response())
}

pub(super) async fn change(
    client: &Client<'_>,
    id: &str,
    headers: &HeaderMap,
    body: Body,
) -> Answer {
    let bucket = client.bucket(id)?;
    let need = Need::new(Action::Own, Object::Database(Arc::clone(&bucket)));
    let permit = client.permit(&[need])?;
    let body: BucketEdit = object(client.door, headers, body).await?;
    if body.name.is_some_and(|name| name != bucket.name) {
        return Err(Failure::unprocessable("the name of a bucket cannot be changed"));
    }
    let is_explicit = |kind: SchemaType| kind == SchemaType::Explicit;
    if body.schema_type.is_some_and(|kind| is_explicit(kind) != bucket.explicit) {
        return Err(Failure::unprocessable("the schema type of a bucket cannot be changed"));
    }
    if let Some(rules) = &body.retention_rules {
        let ttl = retention(rules)?;
        let alter = Ddl::AlterDatabase { name: bucket.name.clone(), ttl };
        client.change(&permit, alter).await?;
    }
    show(client, id)
}

pub(super) async fn remove(client: &Client<'_>, id: &str) -> Answer {
    let bucket = client.bucket(id)?;
    let need = Need::new(Action::Own, Object::Database(Arc::clone(&bucket)));
    let permit = client.permit(&[need])?;
    let drop = Ddl::DropDatabase { name: bucket.name.clone(), if_exists: false };
    client.change(&permit, drop).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rules: Value) -> Result<Option<Duration>, Failure> {
        retention(&serde_json::from_value::<Vec<RetentionRule>>(rules).unwrap())
    }

    #[test]
    fn a_bucket_has_one_retention_of_an_hour_at_least() {
        assert_eq!(read(json!([])).unwrap(), None);
        assert_eq!(read(json!([{"type": "expire", "everySeconds": 0}])).unwrap(), None);
        let hour = Some(Duration::from_secs(3_600));
        assert_eq!(read(json!([{"everySeconds": 3600}])).unwrap(), hour);
        let twice = json!([{"everySeconds": 3600}, {"everySeconds": 7200}]);
        let keep = json!([{"type": "keep", "everySeconds": 3600}]);
        for wrong in [json!([{"everySeconds": 3599}]), twice, keep] {
            assert!(read(wrong).is_err());
        }
    }

    #[test]
    fn a_database_that_another_role_has_made_since_is_not_the_one_that_was_made() {
        let database = |id: u32, owner: u32| Database {
            id: DatabaseId(id),
            name: "air".to_owned(),
            ttl: None,
            owner: RoleId(owner),
            explicit: false,
            comment: None,
        };
        let catalog_of = |database: Database| {
            let mut catalog = Catalog::default();
            catalog.databases.insert(database.name.clone(), Arc::new(database));
            catalog
        };
        let maker = RoleId(7);
        assert_eq!(made(&catalog_of(database(3, 7)), "air", maker), Some(DatabaseId(3)));
        assert_eq!(made(&catalog_of(database(4, 8)), "air", maker), None);
        assert_eq!(made(&Catalog::default(), "air", maker), None);
    }
}
