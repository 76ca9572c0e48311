//! `/api/v3/configure`: databases, tables and tokens, as InfluxDB 3 has them.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use partita_frontend::SqlError;
use partita_proto::access::{
    AccessChange, Action, Mode, Need, Object, Permission, Permit, Role, Scope, Token,
};
use partita_proto::catalog::Database;
use partita_proto::schema::{ColumnType, MergeMode, TableOptions};
use partita_proto::service::Ddl;
use serde::Deserialize;
use serde_json::json;

use super::authorizations::time_text;
use super::buckets::{NewDatabase, make};
use super::client::{Client, object, role_object};
use super::failure::{AnswerV3, Failure, FailureV3};
use super::new_token::{self, NewToken, now_ms};
use crate::body;
use crate::error::ApiError;
use crate::parameters::Parameters;
use crate::schema_on_write::{Definition, check_database_name};
use crate::write_rights::need_of;

/// Name of the token of `/token/admin` that a request does not name.
const ADMIN_TOKEN: &str = "_admin";

/// Body of POST and PUT of a database.
#[derive(Deserialize)]
struct DatabaseBody {
    db: String,
    retention_period: Option<String>,
}

/// Body of POST of a table.
#[derive(Deserialize)]
struct TableBody {
    db: String,
    table: String,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    fields: Vec<FieldBody>,
    retention_period: Option<String>,
}

#[derive(Deserialize)]
struct FieldBody {
    name: String,
    #[serde(rename = "type")]
    kind: FieldKind,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FieldKind {
    Utf8,
    Int64,
    Uint64,
    Float64,
    Bool,
}

/// Body of POST of a token.
#[derive(Deserialize)]
struct TokenBody {
    token_name: String,
    permissions: Vec<PermissionBody>,
    expiry_secs: Option<u32>,
}

/// Body of POST of an admin token.
#[derive(Default, Deserialize)]
struct AdminTokenBody {
    token_name: Option<String>,
    expiry_secs: Option<u32>,
}

#[derive(Deserialize)]
struct PermissionBody {
    resource_type: String,
    /// Databases; `*`: all of them.
    resource_names: Vec<String>,
    actions: Vec<Direction>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Direction {
    Read,
    Write,
}

impl FieldKind {
    fn column_type(self) -> ColumnType {
        match self {
            Self::Utf8 => ColumnType::String,
            Self::Int64 => ColumnType::Int64,
            Self::Uint64 => ColumnType::UInt64,
            Self::Float64 => ColumnType::Float64,
            Self::Bool => ColumnType::Bool,
        }
    }
}

/// A period such as `30d` or `1h30m`; `None`: for ever.
fn retention(text: Option<&str>) -> Result<Option<Duration>, ApiError> {
    let text = text.unwrap_or_default().trim();
    if matches!(text, "" | "none" | "0") {
        return Ok(None);
    }
    let seconds = seconds_of(text).filter(|seconds| *seconds > 0);
    let wrong = || ApiError::bad_request(format!("invalid retention period \"{text}\""));
    Ok(Some(Duration::from_secs(seconds.ok_or_else(wrong)?)))
}

fn seconds_of(text: &str) -> Option<u64> {
    const DAY: u64 = 24 * 60 * 60;
    let mut total = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let (digits, tail) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let unit = match unit.trim() {
            "s" => 1,
            "m" => 60,
            "h" => 60 * 60,
            "d" => DAY,
            "w" => 7 * DAY,
            "mo" => 30 * DAY,
            "y" => 365 * DAY,
            _ => return None,
        };
        total = total.checked_add(digits.parse::<u64>().ok()?.checked_mul(unit)?)?;
        rest = tail;
    }
    Some(total)
}

/// The database with this name.
fn database_named(client: &Client<'_>, name: &str) -> Result<Arc<Database>, SqlError> {
    let database = client.catalog().databases.get(name).map(Arc::clone);
    database.ok_or_else(|| SqlError::undefined_database(name))
}

fn required<'p>(parameters: &'p Parameters, name: &str) -> Result<&'p str, ApiError> {
    let missing = || ApiError::bad_request(format!("missing query parameter '{name}'"));
    parameters.get(name).ok_or_else(missing)
}

pub(super) fn databases(client: &Client<'_>, parameters: &Parameters) -> AnswerV3 {
    if parameters.get("format").is_some_and(|format| format != "json") {
        return Err(ApiError::bad_request("format must be json").into());
    }
    let catalog = client.catalog();
    let row = |name: &String| json!({ "iox::database": name });
    let rows: Vec<_> = catalog.databases.keys().map(row).collect();
    Ok(Json(rows).into_response())
}

pub(super) async fn create_database(
    client: &Client<'_>,
    headers: &HeaderMap,
    body: Body,
) -> AnswerV3 {
    let permit = client.permit(&[Need::new(Action::Create, Object::Cluster)])?;
    let body: DatabaseBody = object(client.door, headers, body).await?;
    check_database_name(&body.db).map_err(ApiError::bad_request)?;
    let ttl = retention(body.retention_period.as_deref())?;
    let new = NewDatabase { name: &body.db, ttl, explicit: false, owner: None };
    make(client, &permit, new).await?;
    Ok(StatusCode::OK.into_response())
}

pub(super) async fn change_database(
    client: &Client<'_>,
    headers: &HeaderMap,
    body: Body,
) -> AnswerV3 {
    let body: DatabaseBody = object(client.door, headers, body).await?;
    let database = database_named(client, &body.db)?;
    let permit = client.permit(&[Need::new(Action::Own, Object::Database(database))])?;
    let ttl = retention(body.retention_period.as_deref())?;
    client.change(&permit, Ddl::AlterDatabase { name: body.db, ttl }).await?;
    Ok(StatusCode::OK.into_response())
}

pub(super) async fn drop_database(client: &Client<'_>, parameters: &Parameters) -> AnswerV3 {
    let database = database_named(client, required(parameters, "db")?)?;
    let name = database.name.clone();
    let permit = client.permit(&[Need::new(Action::Own, Object::Database(database))])?;
    client.change(&permit, Ddl::DropDatabase { name, if_exists: false }).await?;
    Ok(StatusCode::OK.into_response())
}

pub(super) async fn create_table(client: &Client<'_>, headers: &HeaderMap, body: Body) -> AnswerV3 {
    let body: TableBody = object(client.door, headers, body).await?;
    let database = database_named(client, &body.db)?;
    let schema_on_write = !database.explicit;
    let permit = client.permit(&[Need::new(Action::Create, Object::Database(database))])?;
    let options = &client.door.options;
    if body.tags.len() + body.fields.len() >= options.line_columns_max {
        let message = format!(
            "Update to schema would exceed number of columns per table limit of {} columns",
            options.line_columns_max
        );
        return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, message).into());
    }
    let mut tags = body.tags;
    tags.sort_unstable();
    let fields: Vec<_> =
        body.fields.into_iter().map(|field| (field.name, field.kind.column_type())).collect();
    let definition = Definition {
        database: &body.db,
        name: &body.table,
        time_column: &options.time_column,
        tags: &tags,
        fields: &fields,
        options: TableOptions {
            merge_mode: MergeMode::LastNonNull,
            ttl: retention(body.retention_period.as_deref())?,
            ..TableOptions::default()
        },
        schema_on_write,
    };
    let table = Box::new(definition.into_table(permit.role()));
    client.change(&permit, Ddl::CreateTable { table, if_not_exists: false }).await?;
    Ok(StatusCode::OK.into_response())
}

pub(super) async fn drop_table(client: &Client<'_>, parameters: &Parameters) -> AnswerV3 {
    let database = required(parameters, "db")?;
    let name = required(parameters, "table")?;
    database_named(client, database)?;
    let table = client.catalog().table(database, name).map(Arc::clone);
    let table = table.ok_or_else(|| SqlError::undefined_table(name))?;
    let permit = client.permit(&[need_of(&client.door.frontend, Action::Own, &table)?])?;
    let (database, name) = (database.to_owned(), name.to_owned());
    client
        .change(&permit, Ddl::DropTable { database, name, if_exists: false, cascade: false })
        .await?;
    Ok(StatusCode::OK.into_response())
}

/// The caller's role, and the permit to create tokens that it owns.
fn owner(client: &Client<'_>) -> Result<(Arc<Role>, Permit), FailureV3> {
    let role = client.role()?;
    let permit = client.permit(&[Need::new(Action::ManageToken, role_object(&role))])?;
    if !role.login {
        let message = format!("role \"{}\" is not permitted to log in", role.name);
        return Err(ApiError::bad_request(message).into());
    }
    Ok((role, permit))
}

/// Tokens with this name that the caller may see.
fn tokens_named(client: &Client<'_>, name: &str) -> Vec<Arc<Token>> {
    let access = client.access();
    let is_wanted = |token: &&Arc<Token>| {
        token.description == name && client.may(Action::Select, Object::Token(token.id))
    };
    access.tokens().filter(is_wanted).cloned().collect()
}

async fn create_named(client: &Client<'_>, permit: &Permit, new: NewToken) -> AnswerV3 {
    let name = new.description.clone();
    if !tokens_named(client, &name).is_empty() {
        return Err(Failure::conflict(format!("token \"{name}\" already exists")).into());
    }
    let (token, text) = new_token::create(client, permit, new).await?;
    let body = json!({
        "id": token.id.to_string(),
        "name": name,
        "token": text,
        "created_at": time_text(token.created_ms),
        "expiry": token.expires_ms.map(time_text),
    });
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

fn expires_ms(seconds: Option<u32>) -> Option<i64> {
    seconds.map(|seconds| now_ms().saturating_add(i64::from(seconds) * 1_000))
}

pub(super) async fn create_token(client: &Client<'_>, headers: &HeaderMap, body: Body) -> AnswerV3 {
    let (role, permit) = owner(client)?;
    let body: TokenBody = object(client.door, headers, body).await?;
    let mut permissions = Vec::new();
    for permission in &body.permissions {
        permissions.extend(resolved(client, permission)?);
    }
    let org = client.identity.org.or(role.org);
    let expires_ms = expires_ms(body.expiry_secs);
    let new = NewToken { permissions, org, expires_ms, ..NewToken::whole(body.token_name, role) };
    create_named(client, &permit, new).await
}

fn resolved(
    client: &Client<'_>,
    permission: &PermissionBody,
) -> Result<Vec<Permission>, FailureV3> {
    if permission.resource_type != "db" {
        return Err(ApiError::bad_request("resource_type must be db").into());
    }
    let has = |action| permission.actions.contains(&action);
    let mode = match (has(Direction::Read), has(Direction::Write)) {
        (true, true) => Mode::Both,
        (true, false) => Mode::Read,
        (false, true) => Mode::Write,
        (false, false) => return Err(ApiError::bad_request("actions must not be empty").into()),
    };
    let mut list = Vec::with_capacity(permission.resource_names.len());
    for name in &permission.resource_names {
        let scope = match name.as_str() {
            "*" => Scope::AllBuckets,
            name => Scope::Bucket { database: database_named(client, name)?.id, rows: None },
        };
        list.push(Permission { mode, scope });
    }
    Ok(list)
}

pub(super) async fn create_admin_token(
    client: &Client<'_>,
    headers: &HeaderMap,
    body: Body,
) -> AnswerV3 {
    let (role, permit) = owner(client)?;
    // Usually there is no body.
    let received = body::take(client.door, headers, body).await?;
    let body = match received.bytes.is_empty() {
        true => AdminTokenBody::default(),
        false => serde_json::from_slice(&received.bytes)
            .map_err(|_| ApiError::bad_request("the body is not the expected JSON object"))?,
    };
    let name = body.token_name.unwrap_or_else(|| ADMIN_TOKEN.to_owned());
    let org = client.identity.org;
    let expires_ms = expires_ms(body.expiry_secs);
    let new = NewToken { org, expires_ms, ..NewToken::whole(name, role) };
    create_named(client, &permit, new).await
}

pub(super) async fn drop_token(client: &Client<'_>, parameters: &Parameters) -> AnswerV3 {
    let name = required(parameters, "token_name")?;
    let tokens = tokens_named(client, name);
    let [token] = tokens.as_slice() else {
        return Err(match tokens.is_empty() {
            true => Failure::missing(format!("token \"{name}\" not found")).into(),
            false => Failure::conflict(format!("several tokens are named \"{name}\"")).into(),
        });
    };
    let permit = client.permit(&[Need::new(Action::ManageToken, Object::Token(token.id))])?;
    client.change_access(&permit, AccessChange::DropToken(token.id)).await?;
    Ok(StatusCode::OK.into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_have_units() {
        let seconds = |text: &str| retention(Some(text)).unwrap().map(|period| period.as_secs());
        assert_eq!(seconds("30d"), Some(2_592_000));
        assert_eq!(seconds("1h30m"), Some(5_400));
        assert_eq!(seconds("1mo"), Some(2_592_000));
        assert_eq!(seconds("none"), None);
        assert_eq!(retention(None).unwrap(), None);
        for wrong in ["30", "d", "-1d", "1x", "0s", "99999999999999999999d", "1dé"] {
            assert!(retention(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
