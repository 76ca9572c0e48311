//! `has_table_privilege` and its like: rights as PostgreSQL's functions answer for them.
//!
//! An object and a role are given by name or id. Those that the viewer does not see do not exist: a name is an error, an
//! id gives NULL. Of several privileges in a text one is enough.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use partita_frontend::SqlError;
use partita_frontend::privileges::{
    current_role, may, role_closure, sequence_object, shown_sequences,
};
use partita_frontend::sql::identifier::quote;
use partita_frontend::sql::sequence_statement::sequence_name;
use partita_proto::access::{Action, Need, Object as Target, Role};
use partita_proto::catalog::{Catalog, Database, Table};
use partita_proto::id::RoleId;

use super::arguments::{ViewerContext, bool, number, string, text};
use super::objects::{Object, database_oid, sequence_oid};
use super::roles::{role_by_name, role_by_oid};

/// SQLSTATE of a privilege that does not exist.
const INVALID_PARAMETER_VALUE: &str = "22023";
/// SQLSTATE of a role that does not exist.
const UNDEFINED_OBJECT: &str = "42704";

fn null() -> ScalarValue {
    ScalarValue::Boolean(None)
}

fn external(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// The text of a string argument; `None` for numbers.
fn name_of(values: &[ScalarValue], index: usize) -> Option<String> {
    let is_text = values.get(index).is_some_and(|value| value.data_type().is_string());
    string(values, index).filter(|_| is_text)
}

/// The role of an argument; `None` for an id of no role.
fn role_of(
    context: &ViewerContext<'_>,
    values: &[ScalarValue],
    index: usize,
) -> Result<Option<Arc<Role>>> {
    if let Some(name) = name_of(values, index) {
        return role_by_name(context.viewer, &name).map(Some).ok_or_else(|| {
            external(SqlError::new(UNDEFINED_OBJECT, format!("role \"{name}\" does not exist")))
        });
    }
    Ok(number(values, index).and_then(|oid| role_by_oid(context.viewer, oid)))
}

/// `acldefault(kind, owner)`: the access list of an object without grants. What only others' objects have is empty.
pub(super) fn default_acl(
    context: &ViewerContext<'_>,
    values: &[ScalarValue],
) -> Result<ScalarValue> {
    let owner = number(values, 1).and_then(|oid| role_by_oid(context.viewer, oid));
    let (Some(kind), Some(owner)) = (string(values, 0), owner) else {
        return Ok(ScalarValue::new_null_list(DataType::Utf8, true, 1));
    };
    let name = quote(&owner.name);
    let letters = match kind.as_str() {
        "r" => "arwdDm",
        "s" => "rwU",
        "n" => "UC",
        "d" => "CTc",
        _ => "",
    };
    let of_owner = (!letters.is_empty()).then(|| format!("{name}={letters}/{name}"));
    let of_all = (kind == "d").then(|| format!("=Tc/{name}"));
    let entries: Vec<ScalarValue> =
        of_all.into_iter().chain(of_owner).map(|entry| text(Some(entry))).collect();
    Ok(ScalarValue::List(ScalarValue::new_list_nullable(&entries, &DataType::Utf8)))
}

/// Arguments of a function after the optional user.
struct Call<'a> {
    /// Role of the user; `None`: the viewer itself.
    role: Option<RoleId>,
    values: &'a [ScalarValue],
}

/// The arguments of a call with `count` arguments beside the user; `None` when one of them is NULL or has no role.
fn call_of<'a>(
    context: &ViewerContext<'_>,
    values: &'a [ScalarValue],
    count: usize,
) -> Result<Option<Call<'a>>> {
    if values.iter().any(ScalarValue::is_null) {
        return Ok(None);
    }
    if values.len() == count {
        return Ok(Some(Call { role: None, values }));
    }
    if values.len() != count + 1 {
        let message = "wrong number of arguments of a function about privileges";
        return Err(external(SqlError::new("42883", message)));
    }
    let role = role_of(context, values, 0)?;
    Ok(role.map(|role| Call { role: Some(role.id), values: &values[1..] }))
}

/// The privileges of a text such as `SELECT, INSERT WITH GRANT OPTION`, in upper case.
fn named(text: &str) -> Vec<String> {
    text.split(',').map(|part| part.trim().to_ascii_uppercase()).collect()
}

fn unknown(privilege: &str) -> DataFusionError {
    let message = format!("unrecognized privilege type: \"{privilege}\"");
    external(SqlError::new(INVALID_PARAMETER_VALUE, message))
}

/// True if one of the privileges of a text is held. A grant option is held by the owner only, as far as is told here.
fn any_of(
    context: &ViewerContext<'_>,
    role: Option<RoleId>,
    text: &str,
    target: &Target,
    action_of: impl Fn(&str) -> Option<Action>,
) -> Result<ScalarValue> {
    let mut is_held = false;
    for privilege in named(text) {
        let (name, is_option) = match privilege.strip_suffix(" WITH GRANT OPTION") {
            Some(name) => (name, true),
            None => (privilege.as_str(), false),
        };
        let action = action_of(name).ok_or_else(|| unknown(&privilege))?;
        let action = if is_option { Action::Own } else { action };
        is_held |= may(context.viewer, role, Need::new(action, target.clone()));
    }
    Ok(bool(is_held))
}

fn table_of(
    context: &ViewerContext<'_>,
    catalog: &Catalog,
    values: &[ScalarValue],
) -> Result<Option<Object>> {
    let oid = match name_of(values, 0) {
        Some(name) => context
            .objects
            .relation(catalog, &name, context.database)
            .ok_or_else(|| external(SqlError::undefined_table(&name)))?,
        None => match number(values, 0) {
            Some(oid) => oid,
            None => return Ok(None),
        },
    };
    Ok(context.objects.find(catalog, oid))
}

fn table_action(name: &str) -> Option<Action> {
    match name {
        // What does not exist here belongs to the owner.
        "REFERENCES" | "TRIGGER" | "RULE" => Some(Action::Own),
        "SELECT" | "INSERT" | "UPDATE" | "DELETE" | "TRUNCATE" | "MAINTAIN" => Action::named(name),
        _ => None,
    }
}

fn of_table(
    context: &ViewerContext<'_>,
    role: Option<RoleId>,
    values: &[ScalarValue],
    privilege: &str,
) -> Result<ScalarValue> {
    let catalog = context.viewer.catalog();
    let table: Arc<Table> = match table_of(context, &catalog, values)? {
        Some(
            Object::Table(table)
            | Object::Key(table)
            | Object::Index { table, .. }
            | Object::Check { table, .. },
        ) => table,
        // Tables of the system are read-only, and everybody reads them.
        Some(Object::Fixed(_)) => {
            let mut is_held = false;
            for name in named(privilege) {
                let action = table_action(&name).ok_or_else(|| unknown(&name))?;
                is_held |= action == Action::Select;
            }
            return Ok(bool(is_held));
        }
        None => return Ok(null()),
    };
    let Some(database) = catalog.databases.get(&table.database) else { return Ok(null()) };
    let target = Target::Table { database: Arc::clone(database), table };
    any_of(context, role, privilege, &target, table_action)
}

/// `has_table_privilege([user,] table, privilege)`, and the same for any column.
pub(super) fn on_table(context: &ViewerContext<'_>, values: &[ScalarValue]) -> Result<ScalarValue> {
    let Some(call) = call_of(context, values, 2)? else { return Ok(null()) };
    let privilege = string(call.values, 1).unwrap_or_default();
    of_table(context, call.role, call.values, &privilege)
}

/// `has_column_privilege([user,] table, column, privilege)`: the right on the table, because columns have none.
pub(super) fn on_column(
    context: &ViewerContext<'_>,
    values: &[ScalarValue],
) -> Result<ScalarValue> {
    let Some(call) = call_of(context, values, 3)? else { return Ok(null()) };
    let privilege = string(call.values, 2).unwrap_or_default();
    of_table(context, call.role, call.values, &privilege)
}

fn database_of(catalog: &Catalog, values: &[ScalarValue]) -> Result<Option<Arc<Database>>> {
    if let Some(name) = name_of(values, 0) {
        let database = catalog.databases.get(&name).map(Arc::clone);
        return database.map(Some).ok_or_else(|| external(SqlError::undefined_database(&name)));
    }
    let oid = number(values, 0);
    let mut databases = catalog.databases.values();
    Ok(databases.find(|database| Some(database_oid(database)) == oid).map(Arc::clone))
}

/// `has_database_privilege([user,] database, privilege)`.
pub(super) fn on_database(
    context: &ViewerContext<'_>,
    values: &[ScalarValue],
) -> Result<ScalarValue> {
    let Some(call) = call_of(context, values, 2)? else { return Ok(null()) };
    let catalog = context.viewer.catalog();
    let Some(database) = database_of(&catalog, call.values)? else { return Ok(null()) };
    let privilege = string(call.values, 1).unwrap_or_default();
    any_of(context, call.role, &privilege, &Target::Database(database), |name| match name {
        "CREATE" => Some(Action::Create),
        "CONNECT" => Some(Action::Connect),
        // Nothing temporary exists.
        "TEMP" | "TEMPORARY" => Some(Action::Own),
        _ => None,
    })
}

/// `has_schema_privilege([user,] schema, privilege)`: a schema is a database, or one of the system's.
pub(super) fn on_schema(
    context: &ViewerContext<'_>,
    values: &[ScalarValue],
) -> Result<ScalarValue> {
    let Some(call) = call_of(context, values, 2)? else { return Ok(null()) };
    let privilege = string(call.values, 1).unwrap_or_default();
    let catalog = context.viewer.catalog();
    let is_fixed = |schema: &&'static str| match name_of(call.values, 0) {
        Some(name) => name == **schema,
        None => number(call.values, 0) == Some(context.objects.schema_oid(&catalog, schema)),
    };
    let action_of = |name: &str| match name {
        "CREATE" => Some(Action::Create),
        "USAGE" => Some(Action::Connect),
        _ => None,
    };
    if context.objects.fixed_schemas.iter().any(is_fixed) {
        let actions: Option<Vec<Action>> =
            named(&privilege).iter().map(|name| action_of(name)).collect();
        let actions = actions.ok_or_else(|| unknown(&privilege))?;
        return Ok(bool(actions.contains(&Action::Connect)));
    }
    let Some(database) = database_of(&catalog, call.values)? else { return Ok(null()) };
    // A right on a table needs none on its database, so who sees a database may use it.
    if call.role.is_none() && named(&privilege).iter().any(|name| name == "USAGE") {
        return Ok(bool(true));
    }
    any_of(context, call.role, &privilege, &Target::Database(database), action_of)
}

/// `has_sequence_privilege([user,] sequence, privilege)`.
pub(super) fn on_sequence(
    context: &ViewerContext<'_>,
    values: &[ScalarValue],
) -> Result<ScalarValue> {
    let Some(call) = call_of(context, values, 2)? else { return Ok(null()) };
    let sequences = shown_sequences(context.viewer);
    let sequence = match name_of(call.values, 0) {
        Some(text) => {
            let name = sequence_name(&text).map_err(external)?;
            let home = name.database_or(context.database);
            let entry = sequences
                .iter()
                .find(|(database, sequence)| database == home && sequence.name == name.name);
            let undefined = || external(SqlError::undefined_table(&name.name));
            Some(entry.ok_or_else(undefined)?)
        }
        None => {
            let oid = number(call.values, 0);
            sequences.iter().find(|(_, sequence)| Some(sequence_oid(sequence)) == oid)
        }
    };
    let Some((_, sequence)) = sequence else { return Ok(null()) };
    let target = sequence_object(&context.viewer.catalog(), sequence).map_err(external)?;
    let privilege = string(call.values, 1).unwrap_or_default();
    any_of(context, call.role, &privilege, &target, |name| match name {
        "SELECT" | "UPDATE" => Action::named(name),
        "USAGE" => Some(Action::Connect),
        _ => None,
    })
}

/// `pg_has_role([user,] role, privilege)`: MEMBER counts what SET ROLE gives, USAGE what needs no SET ROLE.
pub(super) fn role(context: &ViewerContext<'_>, values: &[ScalarValue]) -> Result<ScalarValue> {
    let Some(call) = call_of(context, values, 2)? else { return Ok(null()) };
    let Some(group) = role_of(context, call.values, 0)? else { return Ok(null()) };
    let access = context.viewer.access();
    let member = call.role.unwrap_or_else(|| current_role(context.viewer));
    let is_superuser = access.role(member).is_some_and(|role| role.superuser);
    let mut is_held = is_superuser;
    for privilege in named(&string(call.values, 1).unwrap_or_default()) {
        is_held |= match privilege.as_str() {
            "USAGE" => role_closure(&access, member, true).contains(&group.id),
            "MEMBER" | "SET" => role_closure(&access, member, false).contains(&group.id),
            name if name.ends_with(" OPTION") => {
                let roles = role_closure(&access, member, true);
                let memberships = roles.iter().filter_map(|role| access.role(*role));
                let mut memberships = memberships.flat_map(|role| &role.member_of);
                memberships.any(|item| item.role == group.id && item.admin_option)
            }
            name => return Err(unknown(name)),
        };
    }
    Ok(bool(is_held))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileges_are_read_from_a_list_in_any_case() {
        assert_eq!(
            named("select, Insert with grant option"),
            ["SELECT", "INSERT WITH GRANT OPTION"]
        );
        assert_eq!(table_action("SELECT"), Some(Action::Select));
        assert_eq!(table_action("TRIGGER"), Some(Action::Own));
        assert_eq!(table_action("CONNECT"), None);
    }
}
