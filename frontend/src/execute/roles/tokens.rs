//! CREATE, ALTER and DROP TOKEN, and SHOW TOKENS.

use std::sync::Arc;

use arrow::datatypes::TimeUnit;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::BytesMut;
use partita_proto::access::{
    AccessChange, Action, Mode, Object, Permission, Scope, Token, TokenEdit,
};
use partita_proto::id::{OrgId, TokenId};
use partita_sql::access_statement::{
    CreateToken, TokenExpiry, TokenOptions, TokenPermission, TokenScope,
};
use partita_worker::{Zone, civil};
use sha2::{Digest, Sha256};

use super::attributes::{access, new_verifier};
use super::names::{Names, role_object};
use super::plan::{Plan, Rows};
use crate::access::random;
use crate::error::{INVALID_PARAMETER_VALUE, SqlError, UNDEFINED_OBJECT};

/// Columns of CREATE TOKEN.
pub(super) const CREATED: &[&str] = &["id", "token"];
/// Columns of SHOW TOKENS.
pub(super) const SHOWN: &[&str] =
    &["id", "description", "owner", "organisation", "permissions", "created", "expires", "enabled"];

/// Random bytes of a token's text: 64 characters.
const TEXT_BYTES: usize = 48;

pub(super) fn create(
    names: &Names<'_>,
    create: &CreateToken,
    makes_token: bool,
) -> Result<Plan, SqlError> {
    let mut plan = Plan::default();
    let owner = create.owner.as_ref().map(|name| names.role(name)).transpose()?;
    let owner = owner.unwrap_or_else(|| Arc::clone(&names.current));
    plan.need(Action::ManageToken, role_object(&owner));
    if !owner.login {
        let message = format!("role \"{}\" is not permitted to log in", owner.name);
        return Err(SqlError::new(INVALID_PARAMETER_VALUE, message)
            .with_detail("The tokens of such a role are not valid."));
    }
    let org = match &create.org {
        Some(name) => Some(names.org(name)?),
        None => names.identity.org.or(owner.org),
    };
    if let (Some(org), Some(theirs)) = (org, owner.org)
        && org != theirs
    {
        let message = format!("role \"{}\" belongs to another organisation", owner.name);
        return Err(SqlError::new(INVALID_PARAMETER_VALUE, message));
    }
    let mut permissions = Vec::with_capacity(create.permissions.len());
    for permission in &create.permissions {
        permissions.push(resolved(names, permission)?);
    }
    let expires_ms = create.options.expires.map(|expiry| expires_ms(names, expiry)).transpose()?;
    if !makes_token {
        return Ok(plan);
    }
    let (id, text) = (new_id(names)?, URL_SAFE_NO_PAD.encode(random::bytes::<TEXT_BYTES>()?));
    let token = Token {
        id,
        sha256: Sha256::digest(text.as_bytes()).into(),
        verifier: new_verifier(&text)?,
        description: create.options.description.clone().unwrap_or_default(),
        owner: owner.id,
        org,
        created_ms: names.now_ms,
        expires_ms: expires_ms.flatten(),
        enabled: create.options.enabled.unwrap_or(true),
        permissions,
    };
    token.validate()?;
    plan.changes.push(access(AccessChange::CreateToken(Box::new(token))));
    let cells = vec![vec![Some(id.to_string()), Some(text)]];
    plan.rows = Some(Rows { columns: CREATED, cells });
    Ok(plan)
}

/// A random id that no token has.
fn new_id(names: &Names<'_>) -> Result<TokenId, SqlError> {
    loop {
        let id = TokenId::new(u64::from_be_bytes(random::bytes::<8>()?));
        if let Some(id) = id.filter(|id| names.access.token(*id).is_none()) {
            return Ok(id);
        }
    }
}

fn resolved(names: &Names<'_>, permission: &TokenPermission) -> Result<Permission, SqlError> {
    let scope = match &permission.scope {
        TokenScope::Everything => Scope::Everything,
        TokenScope::AllDatabases => Scope::AllBuckets,
        TokenScope::Database { name, rows } => {
            Scope::Bucket { database: names.database(name)?.id, rows: rows.clone() }
        }
    };
    Ok(Permission { mode: permission.mode, scope })
}

/// End of a token in milliseconds since 1970; `None`: never.
fn expires_ms(names: &Names<'_>, expiry: TokenExpiry) -> Result<Option<i64>, SqlError> {
    let end_ms = match expiry {
        TokenExpiry::Never => return Ok(None),
        TokenExpiry::At(end_ms) => end_ms,
        TokenExpiry::After(millis) => names.now_ms.saturating_add(millis),
    };
    if end_ms > names.now_ms {
        return Ok(Some(end_ms));
    }
    Err(SqlError::new(INVALID_PARAMETER_VALUE, "the token would have expired already"))
}

/// A superuser's check does not look for the token.
fn check_known(names: &Names<'_>, id: TokenId) -> Result<(), SqlError> {
    match names.access.token(id) {
        Some(_) => Ok(()),
        None => Err(SqlError::new(UNDEFINED_OBJECT, format!("token \"{id}\" does not exist"))),
    }
}

pub(super) fn alter(
    names: &Names<'_>,
    id: TokenId,
    options: &TokenOptions,
) -> Result<Plan, SqlError> {
    let mut plan = Plan::default();
    check_known(names, id)?;
    plan.need(Action::ManageToken, Object::Token(id));
    let expires_ms = options.expires.map(|expiry| expires_ms(names, expiry)).transpose()?;
    let (description, enabled) = (options.description.clone(), options.enabled);
    let edit = TokenEdit { description, enabled, expires_ms };
    plan.changes.push(access(AccessChange::AlterToken { id, edit }));
    Ok(plan)
}

pub(super) fn drop(names: &Names<'_>, ids: &[TokenId], if_exists: bool) -> Result<Plan, SqlError> {
    let mut plan = Plan::default();
    for id in ids {
        let object = Object::Token(*id);
        let is_known = check_known(names, *id).is_ok() && names.may(Action::Select, object.clone());
        if if_exists && !is_known {
            plan.notice(format!("token \"{id}\" does not exist, skipping"));
            continue;
        }
        check_known(names, *id)?;
        plan.need(Action::ManageToken, object);
        plan.changes.push(access(AccessChange::DropToken(*id)));
    }
    Ok(plan)
}

pub(super) fn show(names: &Names<'_>) -> Plan {
    let mut tokens: Vec<&Token> = names.access.tokens().map(AsRef::as_ref).collect();
    tokens.retain(|token| names.may(Action::Select, Object::Token(token.id)));
    tokens.sort_unstable_by_key(|token| token.id);
    let org_name = |id: OrgId| names.access.org(id).map(|org| org.name.clone());
    let row = |token: &&Token| {
        let permissions = token.permissions.iter().map(|permission| shown(names, permission));
        vec![
            Some(token.id.to_string()),
            Some(token.description.clone()),
            names.shown_role(token.owner),
            token.org.and_then(org_name),
            Some(permissions.collect::<Vec<_>>().join(", ")),
            Some(time_text(token.created_ms)),
            token.expires_ms.map(time_text),
            Some((if token.enabled { "on" } else { "off" }).to_owned()),
        ]
    };
    let cells = tokens.iter().map(row).collect();
    Plan { rows: Some(Rows { columns: SHOWN, cells }), ..Plan::default() }
}

/// A permission as CREATE TOKEN takes it.
fn shown(names: &Names<'_>, permission: &Permission) -> String {
    let mode = match permission.mode {
        Mode::Read => "READ",
        Mode::Write => "WRITE",
        Mode::Both => "READ WRITE",
    };
    match &permission.scope {
        Scope::Everything => "ALL".to_owned(),
        Scope::AllBuckets => format!("{mode} ON ALL DATABASES"),
        Scope::Bucket { database, rows } => {
            let home = names.catalog.databases.values().find(|home| home.id == *database);
            let name = home.map_or_else(
                || "\"?\"".to_owned(),
                |home| partita_sql::identifier::quote(&home.name).into_owned(),
            );
            let rows = rows.as_ref().map(|rows| format!(" WHERE {rows}")).unwrap_or_default();
            format!("{mode} ON DATABASE {name}{rows}")
        }
    }
}

fn time_text(millis: i64) -> String {
    let mut text = BytesMut::new();
    civil::timestamp(&mut text, millis, TimeUnit::Millisecond, Some(Zone::UTC));
    String::from_utf8_lossy(&text).into_owned()
}
