//! `/api/v2/authorizations`: tokens.
//!
//! A permission names a bucket, by `id` or `name`, or all of them. `read` of `orgs` is implied and ignored; `read` and
//! `write` of both `buckets` and `authorizations` as a whole are all rights of the owner. Other types of resources do not
//! exist here and are refused. A permission to read a bucket may be restricted to rows, which InfluxDB has no field for:
//! `"rows": {"customer_id": ["x"]}`.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::temporal_conversions::timestamp_ms_to_datetime;
use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use partita_proto::access::{
    AccessChange, Action, Mode, Need, Object, Permission, RowPredicate, Scope, Term, Token,
    TokenEdit,
};
use partita_proto::catalog::Catalog;
use partita_proto::id::{OrgId, RoleId, TokenId};
use partita_proto::value::Value as Literal;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::client::{Client, object, role_object};
use super::failure::{Answer, Failure};
use super::ids::{database_of, id_text, role_of, user_id};
use super::new_token::{self, NewToken};
use super::page::Page;
use crate::parameters::Parameters;

/// Number of tokens of a list without a limit, and its maximum.
const LISTED: usize = 1_000;
const LISTED_MAX: usize = 10_000;

/// Body of POST.
#[derive(Deserialize)]
struct NewAuthorization {
    #[serde(rename = "orgID")]
    org_id: Option<String>,
    #[serde(rename = "userID")]
    user_id: Option<String>,
    status: Option<Status>,
    description: Option<String>,
    permissions: Vec<PermissionBody>,
}

/// Body of PATCH.
#[derive(Deserialize)]
struct AuthorizationEdit {
    status: Option<Status>,
    description: Option<String>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Status {
    Active,
    Inactive,
}

#[derive(Deserialize)]
struct PermissionBody {
    action: Direction,
    resource: ResourceBody,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Direction {
    Read,
    Write,
}

#[derive(Deserialize)]
struct ResourceBody {
    #[serde(rename = "type")]
    kind: String,
    id: Option<String>,
    name: Option<String>,
    #[serde(rename = "orgID")]
    org_id: Option<String>,
    rows: Option<BTreeMap<String, Literals>>,
}

/// One value, or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum Literals {
    Several(Vec<Value>),
    One(Value),
}

impl PermissionBody {
    /// True for a permission on all objects of a type.
    fn is_of_all(&self, action: Direction, kind: &str) -> bool {
        let resource = &self.resource;
        self.action == action
            && resource.kind == kind
            && resource.id.is_none()
            && resource.name.is_none()
            && resource.rows.is_none()
    }

    fn resolved(&self, catalog: &Catalog) -> Result<Option<Permission>, Failure> {
        let resource = &self.resource;
        let mode = match self.action {
            Direction::Read => Mode::Read,
            Direction::Write => Mode::Write,
        };
        match (resource.kind.as_str(), self.action) {
            ("buckets", _) => {}
            // Every token of an organisation may see the organisation.
            ("orgs", Direction::Read) => return Ok(None),
            (kind, _) => {
                let message = format!("permissions on \"{kind}\" are not supported; name buckets");
                return Err(Failure::unprocessable(message));
            }
        }
        let bucket = match (&resource.id, &resource.name) {
            (Some(id), _) => Some(database_of(catalog, id)),
            (None, Some(name)) => Some(catalog.databases.get(name)),
            (None, None) => None,
        };
        let rows = resource.rows.as_ref().map(row_predicate).transpose()?;
        let scope = match (bucket, rows) {
            (Some(Some(database)), rows) => Scope::Bucket { database: database.id, rows },
            (Some(None), _) => return Err(Failure::missing("bucket not found")),
            (None, None) => Scope::AllBuckets,
            (None, Some(_)) => {
                return Err(Failure::unprocessable("rows are of one bucket, which must be named"));
            }
        };
        Ok(Some(Permission { mode, scope }))
    }
}

fn row_predicate(rows: &BTreeMap<String, Literals>) -> Result<RowPredicate, Failure> {
    let mut terms = Vec::with_capacity(rows.len());
    for (column, literals) in rows {
        let values = match literals {
            Literals::Several(values) => values.iter().map(literal).collect::<Result<_, _>>()?,
            Literals::One(value) => vec![literal(value)?],
        };
        terms.push(Term { column: column.clone(), values });
    }
    RowPredicate::new(terms).map_err(|error| Failure::unprocessable(error.to_string()))
}

fn literal(value: &Value) -> Result<Literal, Failure> {
    let wrong = || Failure::unprocessable("values of rows must be strings, integers or booleans");
    match value {
        Value::String(text) => Ok(Literal::String(text.clone())),
        Value::Bool(value) => Ok(Literal::Bool(*value)),
        Value::Number(number) => number
            .as_i64()
            .map(Literal::Int)
            .or_else(|| number.as_u64().map(Literal::UInt))
            .ok_or_else(wrong),
        _ => Err(wrong()),
    }
}

fn permissions(catalog: &Catalog, bodies: &[PermissionBody]) -> Result<Vec<Permission>, Failure> {
    let has = |action, kind| bodies.iter().any(|body| body.is_of_all(action, kind));
    let is_whole = ["buckets", "authorizations"]
        .into_iter()
        .all(|kind| has(Direction::Read, kind) && has(Direction::Write, kind));
    if is_whole {
        return Ok(vec![Permission { mode: Mode::Both, scope: Scope::Everything }]);
    }
    let mut resolved = Vec::with_capacity(bodies.len());
    for body in bodies {
        resolved.extend(body.resolved(catalog)?);
    }
    Ok(resolved)
}

/// A token as clients see it. `text` is that of a token that was just created.
pub(super) fn shown(client: &Client<'_>, token: &Token, text: Option<&str>) -> Value {
    let id = token.id.to_string();
    let (user, created) = (user_id(token.owner), time_text(token.created_ms));
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
    if let Some(text) = text {
        set("token", json!(text));
    }
    if let Some(org) = token.org {
        set("orgID", json!(org.to_string()));
        set("org", json!(client.access().org(org).map(|org| org.name.clone())));
    }
    if let Some(owner) = client.visible_role(token.owner) {
        set("user", json!(owner.name));
    }
    set("status", json!(if token.enabled { "active" } else { "inactive" }));
    set("description", json!(token.description));
    set("userID", json!(user));
    set("permissions", Value::Array(shown_permissions(client, token)));
    set("createdAt", json!(created));
    set("updatedAt", json!(created));
    set("expiresAt", json!(token.expires_ms.map(time_text)));
    set("links", json!({ "self": format!("/api/v2/authorizations/{id}") }));
    set("id", json!(id));
    Value::Object(fields)
}

fn shown_permissions(client: &Client<'_>, token: &Token) -> Vec<Value> {
    let catalog = client.catalog();
    let org = token.org.map(|org| org.to_string());
    let of_all = |kind: &str| match &org {
        Some(org) => json!({ "type": kind, "orgID": org }),
        None => json!({ "type": kind }),
    };
    let mut list = Vec::new();
    for permission in &token.permissions {
        let resources = match &permission.scope {
            Scope::Everything => vec![of_all("buckets"), of_all("authorizations")],
            Scope::AllBuckets => vec![of_all("buckets")],
            Scope::Bucket { database, rows } => {
                let mut resource = of_all("buckets");
                resource["id"] = json!(id_text(database.0));
                let bucket = catalog.databases.values().find(|bucket| bucket.id == *database);
                if let Some(bucket) = bucket {
                    resource["name"] = json!(bucket.name);
                }
                if let Some(rows) = rows {
                    resource["rows"] = shown_rows(rows);
                }
                vec![resource]
            }
        };
        let actions: &[&str] = match permission.mode {
            Mode::Read => &["read"],
            Mode::Write => &["write"],
            Mode::Both => &["read", "write"],
        };
        for resource in resources {
            let entry = |action: &&str| json!({ "action": action, "resource": resource });
            list.extend(actions.iter().map(entry));
        }
    }
    list
}

/// The terms of a predicate; of two terms with one column, the last.
fn shown_rows(rows: &RowPredicate) -> Value {
    let value = |value: &Literal| match value {
        Literal::String(text) => json!(text),
        Literal::Bool(value) => json!(value),
        Literal::Int(value) => json!(value),
        Literal::UInt(value) => json!(value),
        literal => json!(literal.to_string()),
    };
    let term =
        |term: &Term| (term.column.clone(), Value::Array(term.values.iter().map(value).collect()));
    Value::Object(rows.terms().iter().map(term).collect())
}

/// A time in RFC 3339.
pub(super) fn time_text(millis: i64) -> String {
    timestamp_ms_to_datetime(millis).map(|moment| format!("{moment:?}Z")).unwrap_or_default()
}

pub(super) fn list(client: &Client<'_>, parameters: &Parameters) -> Answer {
    let page = Page::of(parameters, LISTED, LISTED_MAX)?;
    let access = client.access();
    let user = match (parameters.get("userID"), parameters.get("user")) {
        (Some(id), _) => Some(role_of(id)),
        (None, Some(name)) => Some(access.role_by_name(name).map(|role| role.id)),
        (None, None) => None,
    };
    let org = match (parameters.get("orgID"), parameters.get("org")) {
        (Some(id), _) => Some(client.org(id)?.id),
        (None, Some(name)) => Some(client.org_named(name)?.id),
        (None, None) => None,
    };
    let is_wanted = |token: &&Arc<Token>| {
        user.is_none_or(|user| user == Some(token.owner))
            && org.is_none_or(|org| token.org == Some(org))
            && client.may(Action::Select, Object::Token(token.id))
    };
    let tokens: Vec<Arc<Token>> = access.tokens().filter(is_wanted).cloned().collect();
    let (tokens, has_next) = page.of_items(tokens, |token| token.id.get());
    let tokens: Vec<_> = tokens.iter().map(|token| shown(client, token, None)).collect();
    let links = page.links("/api/v2/authorizations", parameters, has_next);
    Ok(Json(json!({ "links": links, "authorizations": tokens })).into_response())
}

/// The token with this id.
///
/// # Errors
/// 404 when there is none that the client may see.
fn token_of(client: &Client<'_>, text: &str) -> Result<Arc<Token>, Failure> {
    let id = text.parse::<TokenId>().ok();
    let token = id.and_then(|id| client.access().token(id).map(Arc::clone));
    let token = token.filter(|token| client.may(Action::Select, Object::Token(token.id)));
    token.ok_or_else(|| Failure::missing("authorization not found"))
}

pub(super) async fn create(client: &Client<'_>, headers: &HeaderMap, body: Body) -> Answer {
    // Clients that may not create any token are refused before the body is read.
    let current = client.role()?;
    let _permit = client.permit(&[Need::new(Action::ManageToken, role_object(&current))])?;
    let body: NewAuthorization = object(client.door, headers, body).await?;
    let owner = match &body.user_id {
        Some(id) => {
            let role = role_of(id).and_then(|id: RoleId| client.visible_role(id));
            role.ok_or_else(|| Failure::missing("user not found"))?
        }
        None => current,
    };
    let permit = client.permit(&[Need::new(Action::ManageToken, role_object(&owner))])?;
    if !owner.login {
        let message = format!("user \"{}\" is not permitted to log in", owner.name);
        return Err(Failure::unprocessable(message));
    }
    let resource_org = body.permissions.iter().find_map(|body| body.resource.org_id.as_deref());
    let org: Option<OrgId> = match body.org_id.as_deref().or(resource_org) {
        Some(id) => Some(client.org(id)?.id),
        None => client.identity.org.or(owner.org),
    };
    let is_other = |id: &str| Some(id.to_ascii_lowercase()) != org.map(|org| org.to_string());
    let mut orgs = body.permissions.iter().filter_map(|body| body.resource.org_id.as_deref());
    if orgs.any(is_other) || owner.org.is_some_and(|theirs| Some(theirs) != org) {
        return Err(Failure::unprocessable("all parts of a token must be of one organization"));
    }
    let new = NewToken {
        description: body.description.unwrap_or_default(),
        owner,
        org,
        expires_ms: None,
        enabled: body.status != Some(Status::Inactive),
        permissions: permissions(&client.catalog(), &body.permissions)?,
        text: None,
    };
    let (token, text) = new_token::create(client, &permit, new).await?;
    Ok((StatusCode::CREATED, Json(shown(client, &token, Some(&text)))).into_response())
}

pub(super) fn show(client: &Client<'_>, id: &str) -> Answer {
    let token = token_of(client, id)?;
    Ok(Json(shown(client, &token, None)).into_response())
}

pub(super) async fn change(
    client: &Client<'_>,
    id: &str,
    headers: &HeaderMap,
    body: Body,
) -> Answer {
    let id = token_of(client, id)?.id;
    let permit = client.permit(&[Need::new(Action::ManageToken, Object::Token(id))])?;
    let body: AuthorizationEdit = object(client.door, headers, body).await?;
    let enabled = body.status.map(|status| status == Status::Active);
    let edit = TokenEdit { description: body.description, enabled, expires_ms: None };
    client.change_access(&permit, AccessChange::AlterToken { id, edit }).await?;
    show(client, &id.to_string())
}

pub(super) async fn remove(client: &Client<'_>, id: &str) -> Answer {
    let id = token_of(client, id)?.id;
    let permit = client.permit(&[Need::new(Action::ManageToken, Object::Token(id))])?;
    client.change_access(&permit, AccessChange::DropToken(id)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[cfg(test)]
mod tests {
    use partita_proto::catalog::Database;
    use partita_proto::id::{BOOTSTRAP_ROLE, DatabaseId};

    use super::*;

    fn catalog() -> Catalog {
        let (id, name) = (DatabaseId(0xab), "b".to_owned());
        let owner = BOOTSTRAP_ROLE;
        let database =
            Database { id, name: name.clone(), ttl: None, owner, explicit: false, comment: None };
        Catalog { databases: [(name, Arc::new(database))].into(), ..Catalog::default() }
    }

    fn resolve(bodies: Value) -> Result<Vec<Permission>, Failure> {
        let bodies: Vec<PermissionBody> = serde_json::from_value(bodies).unwrap();
        permissions(&catalog(), &bodies)
    }

    #[test]
    fn permissions_name_buckets_by_id_or_name() {
        let id = json!({"type": "buckets", "id": "00000000000000ab"});
        let name = json!({"type": "buckets", "name": "b"});
        for resource in [id, name] {
            let list = resolve(json!([{"action": "read", "resource": resource}])).unwrap();
            let scope = Scope::Bucket { database: DatabaseId(0xab), rows: None };
            assert_eq!(list, [Permission { mode: Mode::Read, scope }]);
        }
        let list = resolve(json!([{"action": "write", "resource": {"type": "buckets"}}])).unwrap();
        assert_eq!(list, [Permission { mode: Mode::Write, scope: Scope::AllBuckets }]);
        for (kind, id) in [("buckets", "00000000000000ac"), ("tasks", "00000000000000ab")] {
            let resource = json!({"type": kind, "id": id});
            assert!(resolve(json!([{"action": "read", "resource": resource}])).is_err(), "{kind}");
        }
    }

    #[test]
    fn all_access_is_all_rights_of_the_owner() {
        let mut bodies = vec![json!({"action": "read", "resource": {"type": "orgs"}})];
        for kind in ["buckets", "authorizations"] {
            for action in ["read", "write"] {
                bodies.push(json!({"action": action, "resource": {"type": kind}}));
            }
        }
        let list = resolve(Value::Array(bodies.clone())).unwrap();
        assert_eq!(list, [Permission { mode: Mode::Both, scope: Scope::Everything }]);
        // Without one of them it is no less than what is named, and that is refused.
        bodies.pop();
        assert!(resolve(Value::Array(bodies)).is_err());
    }

    #[test]
    fn rows_restrict_a_permission_to_read() {
        let resource = json!({"type": "buckets", "name": "b", "rows": {"customer_id": "x"}});
        let list = resolve(json!([{"action": "read", "resource": resource}])).unwrap();
        let Scope::Bucket { rows: Some(rows), .. } = &list[0].scope else { panic!("{list:?}") };
        assert_eq!(shown_rows(rows), json!({"customer_id": ["x"]}));
        let resource = json!({"type": "buckets", "rows": {"customer_id": "x"}});
        assert!(resolve(json!([{"action": "read", "resource": resource}])).is_err());
    }

    #[test]
    fn times_are_rfc_3339() {
        assert_eq!(time_text(0), "1970-01-01T00:00:00Z");
    }
}
