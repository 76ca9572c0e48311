//! The objects that `pg_catalog` lists, and their ids.
//!
//! An object id is derived from an id that meta assigned (to a table, to a database), so it is the same in every
//! connection and after a restart. Ids below 16384 are PostgreSQL's own.

use std::sync::{Arc, Weak};

use arrow::datatypes::DataType;
use partita_frontend::Frontend;
use partita_proto::catalog::{Catalog, DEFAULT_DATABASE, Database, Table};
use partita_proto::id::{BOOTSTRAP_ROLE, RoleId};
use partita_proto::schema::Column;

/// The first object id that PostgreSQL assigns to user objects.
const FIRST: i64 = 16_384;
/// Object ids for each id of meta: the table, the index of its key, the database, and the role with that id.
const KINDS: i64 = 4;
/// First object id of the tables that are not stored.
const FIRST_FIXED: i32 = 14_000;

/// PostgreSQL's own id of the schema `pg_catalog`.
pub(super) const PG_CATALOG: i32 = 11;
/// PostgreSQL's own id of the schema `public`.
pub(super) const PUBLIC: i32 = 2_200;
/// PostgreSQL's own id of the superuser that exists from the start.
pub(super) const BOOTSTRAP: i32 = 10;
/// PostgreSQL's id of `pg_class`.
pub(super) const PG_CLASS: i32 = 1_259;
/// PostgreSQL's id of the access method of indexes.
pub(super) const BTREE: i32 = 403;

/// PostgreSQL's ids of its own tables, as far as clients compare with them.
const KNOWN: &[(&str, i32)] = &[
    ("pg_attrdef", 2_604),
    ("pg_attribute", 1_249),
    ("pg_auth_members", 1_261),
    ("pg_authid", 1_260),
    ("pg_class", PG_CLASS),
    ("pg_collation", 3_456),
    ("pg_constraint", 2_606),
    ("pg_database", 1_262),
    ("pg_description", 2_609),
    ("pg_extension", 3_079),
    ("pg_index", 2_610),
    ("pg_namespace", 2_615),
    ("pg_operator", 2_617),
    ("pg_proc", 1_255),
    ("pg_tablespace", 1_213),
    ("pg_trigger", 2_620),
    ("pg_type", 1_247),
];

/// A table that is not stored: in `sys`, `information_schema` or `pg_catalog`.
#[derive(Clone, Debug)]
pub(super) struct Fixed {
    pub(super) oid: i32,
    pub(super) schema: &'static str,
    pub(super) name: String,
    pub(super) columns: Vec<(String, DataType)>,
}

/// All objects that have an id.
#[derive(Debug)]
pub(super) struct Objects {
    /// Weak, because the frontend's context owns the tables and functions that refer to this.
    frontend: Weak<Frontend>,
    pub(super) fixed: Vec<Fixed>,
    pub(super) fixed_schemas: Vec<&'static str>,
}

fn numbered(id: u64, kind: i64) -> i32 {
    i64::try_from(id)
        .ok()
        .and_then(|id| id.checked_mul(KINDS))
        .and_then(|number| i32::try_from(number + FIRST + kind).ok())
        .unwrap_or(i32::MAX)
}

/// The object id of a table.
pub(super) fn table_oid(table: &Table) -> i32 {
    numbered(u64::from(table.id.0), 0)
}

/// The object id of a table's key: of its index and its constraint.
pub(super) fn key_oid(table: &Table) -> i32 {
    numbered(u64::from(table.id.0), 1)
}

/// The object id of a database.
pub(super) fn database_oid(database: &Database) -> i32 {
    if database.name == DEFAULT_DATABASE {
        return PUBLIC;
    }
    numbered(u64::from(database.id.0), 2)
}

/// The object id of a role.
pub(super) fn role_oid(role: RoleId) -> i32 {
    if role == BOOTSTRAP_ROLE { BOOTSTRAP } else { numbered(u64::from(role.0), 3) }
}

/// The role with an object id; the role need not exist.
pub(super) fn role_with_oid(oid: i32) -> Option<RoleId> {
    if oid == BOOTSTRAP {
        return Some(BOOTSTRAP_ROLE);
    }
    let id = RoleId(u32::try_from((i64::from(oid) - FIRST) / KINDS).ok()?);
    // Those of other kinds, and of ids that are too large for an object id, are no roles.
    (role_oid(id) == oid).then_some(id)
}

/// The name of a table's key constraint.
pub(super) fn key_name(table: &Table) -> String {
    format!("{}_pkey", table.name)
}

/// Returns true if a table has a key; rows in append mode may share one, so there it is none.
pub(super) fn has_key(table: &Table) -> bool {
    !table.schema.options.append_mode && !table.schema.key.is_empty()
}

/// The number of a column, from 1, for an index from 0.
pub(super) fn attribute(index: usize) -> i32 {
    i32::try_from(index + 1).unwrap_or(i32::MAX)
}

/// The numbers of a table's key columns, in the key's order.
pub(super) fn key_attributes(table: &Table) -> Vec<i32> {
    let attribute_of = |column: &Column| {
        table.schema.columns.iter().position(|candidate| candidate.id == column.id).map(attribute)
    };
    table.schema.key_columns().filter_map(attribute_of).collect()
}

/// The names of a table's key columns, quoted where necessary.
pub(super) fn key_columns(table: &Table) -> String {
    let names = table.schema.key_columns().map(|column| column.name.as_str());
    partita_frontend::sql::identifier::quote_list(names)
}

impl Objects {
    pub(super) fn new(
        frontend: &Arc<Frontend>,
        mut fixed: Vec<Fixed>,
        fixed_schemas: Vec<&'static str>,
    ) -> Self {
        for (number, fixed) in (FIRST_FIXED..).zip(&mut fixed) {
            let entry = KNOWN.iter().find(|(name, _)| fixed.name == *name);
            fixed.oid = entry.map_or(number, |(_, number)| *number);
        }
        Self { frontend: Arc::downgrade(frontend), fixed, fixed_schemas }
    }

    /// The frontend; `None` after it has ended.
    pub(super) fn frontend(&self) -> Option<Arc<Frontend>> {
        self.frontend.upgrade()
    }

    /// The object id of a schema; 0 when it does not exist.
    pub(super) fn schema_oid(&self, catalog: &Catalog, name: &str) -> i32 {
        if name == "pg_catalog" {
            return PG_CATALOG;
        }
        if let Some(index) = self.fixed_schemas.iter().position(|schema| *schema == name) {
            return FIRST_FIXED - attribute(index);
        }
        catalog.databases.get(name).map_or(0, |database| database_oid(database))
    }

    /// The object with an id, in a catalog as its viewer sees it.
    pub(super) fn find(&self, catalog: &Catalog, oid: i32) -> Option<Object> {
        for table in catalog.tables.values().flat_map(|tables| tables.values()) {
            if table_oid(table) == oid {
                return Some(Object::Table(Arc::clone(table)));
            }
            if key_oid(table) == oid && has_key(table) {
                return Some(Object::Key(Arc::clone(table)));
            }
        }
        self.fixed.iter().find(|fixed| fixed.oid == oid).map(|fixed| Object::Fixed(fixed.schema))
    }

    /// The object id of a relation of a catalog, by the name in a user's statement.
    pub(super) fn relation(&self, catalog: &Catalog, name: &str, database: &str) -> Option<i32> {
        let parts: Vec<String> =
            name.split('.').map(|part| part.trim().trim_matches('"').to_owned()).collect();
        let (schema, name) = match parts.as_slice() {
            [name] => (database, name),
            [schema, name] | [_, schema, name] => (schema.as_str(), name),
            _ => return None,
        };
        if let Some(table) = catalog.table(schema, name) {
            return Some(table_oid(table));
        }
        let of_schema = catalog.tables.get(schema).into_iter().flat_map(|tables| tables.values());
        for table in of_schema {
            if has_key(table) && key_name(table) == *name {
                return Some(key_oid(table));
            }
        }
        // As in PostgreSQL, its own tables are found without their schema.
        let bare = parts.len() == 1;
        self.fixed
            .iter()
            .filter(|fixed| fixed.schema == schema || (bare && fixed.schema == "pg_catalog"))
            .find(|fixed| fixed.name == *name)
            .map(|fixed| fixed.oid)
    }
}

/// An object that has an id.
pub(super) enum Object {
    Table(Arc<Table>),
    Key(Arc<Table>),
    Fixed(&'static str),
}

impl Object {
    /// The schema that contains it.
    pub(super) fn schema(&self) -> &str {
        match self {
            Self::Table(table) | Self::Key(table) => &table.database,
            Self::Fixed(schema) => schema,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_found_by_their_object_ids() {
        for role in [0, 1, 7, 1_000_000, 536_866_815].map(RoleId) {
            assert_eq!(role_with_oid(role_oid(role)), Some(role));
        }
        // Ids of a table, a key and a database, those of PostgreSQL's own objects, and of no object.
        for oid in [FIRST + 4, FIRST + 5, FIRST + 6, FIRST + 3, FIRST - 1, 11, 0, -1] {
            assert_eq!(role_with_oid(i32::try_from(oid).unwrap()), None, "{oid}");
        }
        // Roles whose ids are too large for one share the last.
        assert_eq!(role_oid(RoleId(u32::MAX)), i32::MAX);
    }
}
