//! The objects that `pg_catalog` lists, and their ids.
//!
//! An object id is derived from an id that meta assigned (to a table, to a database), so it is the same in every
//! connection and after a restart. Ids below 16384 are PostgreSQL's own. Meta assigns no ids to indexes: theirs are
//! hashes, in the upper half of the positive numbers.

use std::sync::{Arc, Weak};

use arrow::datatypes::DataType;
use partita_frontend::Frontend;
use partita_frontend::sql::sequence_statement::sequence_name;
use partita_proto::catalog::{Catalog, DEFAULT_DATABASE, Database, Table};
use partita_proto::id::{BOOTSTRAP_ROLE, RoleId};
use partita_proto::index::{Index, IndexKind};
use partita_proto::schema::{Check, Column};
use partita_proto::sequence::Sequence;

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
/// PostgreSQL's id of `pg_attrdef`.
pub(super) const PG_ATTRDEF: i32 = 2_604;
/// PostgreSQL's id of `pg_namespace`.
pub(super) const PG_NAMESPACE: i32 = 2_615;
/// PostgreSQL's id of `pg_extension`.
pub(super) const PG_EXTENSION: i32 = 3_079;
/// PostgreSQL's id of the access method of tables.
pub(super) const HEAP: i32 = 2;
/// PostgreSQL's id of the access method of keys.
pub(super) const BTREE: i32 = 403;
/// First object id of the access methods that PostgreSQL does not have.
const FIRST_METHOD: i32 = 13_500;
/// Lowest object id of an index.
const FIRST_INDEX: u32 = 1 << 30;
/// Object id of the first sequence.
const FIRST_SEQUENCE: i32 = 1_000_000_000;

/// PostgreSQL's ids of its own tables, as far as clients compare with them.
const KNOWN: &[(&str, i32)] = &[
    ("pg_am", 2_601),
    ("pg_amop", 2_602),
    ("pg_amproc", 2_603),
    ("pg_attrdef", PG_ATTRDEF),
    ("pg_attribute", 1_249),
    ("pg_auth_members", 1_261),
    ("pg_authid", 1_260),
    ("pg_cast", 2_605),
    ("pg_class", PG_CLASS),
    ("pg_collation", 3_456),
    ("pg_constraint", 2_606),
    ("pg_conversion", 2_607),
    ("pg_database", 1_262),
    ("pg_default_acl", 826),
    ("pg_depend", 2_608),
    ("pg_description", 2_609),
    ("pg_enum", 3_501),
    ("pg_event_trigger", 3_466),
    ("pg_extension", PG_EXTENSION),
    ("pg_foreign_data_wrapper", 2_328),
    ("pg_foreign_server", 1_417),
    ("pg_foreign_table", 3_118),
    ("pg_index", 2_610),
    ("pg_inherits", 2_611),
    ("pg_init_privs", 3_394),
    ("pg_language", 2_612),
    ("pg_largeobject", 2_613),
    ("pg_largeobject_metadata", 2_995),
    ("pg_namespace", PG_NAMESPACE),
    ("pg_opclass", 2_616),
    ("pg_operator", 2_617),
    ("pg_opfamily", 2_753),
    ("pg_policy", 3_256),
    ("pg_proc", 1_255),
    ("pg_publication", 6_104),
    ("pg_publication_namespace", 6_237),
    ("pg_publication_rel", 6_106),
    ("pg_rewrite", 2_618),
    ("pg_sequence", 2_224),
    ("pg_shdescription", 2_396),
    ("pg_statistic_ext", 3_381),
    ("pg_subscription", 6_100),
    ("pg_tablespace", 1_213),
    ("pg_transform", 3_576),
    ("pg_trigger", 2_620),
    ("pg_ts_config", 3_602),
    ("pg_ts_dict", 3_600),
    ("pg_ts_parser", 3_601),
    ("pg_ts_template", 3_764),
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

/// The object id of an index, which is the same until the column or the index is dropped.
fn index_oid(table: &Table, column: &Column, kind: IndexKind) -> i32 {
    hashed_oid([u64::from(table.id.0), u64::from(column.id.0), u64::from(number_of(kind))])
}

/// The object id of a CHECK constraint, which is the same until it is dropped.
pub(super) fn check_oid(table: &Table, check: &Check) -> i32 {
    // The first number is none of a table, whose ids have 32 bits.
    let bytes = check.name.bytes().map(u64::from);
    hashed_oid([1 << 32, u64::from(table.id.0)].into_iter().chain(bytes))
}

/// The object id of a column's default, which is the same until the column is dropped.
pub(super) fn default_oid(table: &Table, column: &Column) -> i32 {
    hashed_oid([1 << 33, u64::from(table.id.0), u64::from(column.id.0)])
}

/// An object id of the upper half, made of numbers that identify the object.
fn hashed_oid(parts: impl IntoIterator<Item = u64>) -> i32 {
    // A multiplier with well-mixed bits, as in Fibonacci hashing.
    let mix = |hash: u64, part: u64| {
        let mixed = (hash ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    };
    let hash = parts.into_iter().fold(0, mix);
    let offset = u32::try_from(hash % u64::from(FIRST_INDEX)).unwrap_or_default();
    i32::try_from(FIRST_INDEX + offset).unwrap_or(i32::MAX)
}

/// The object id of the access method of a kind of index.
pub(super) fn method_oid(kind: IndexKind) -> i32 {
    FIRST_METHOD + i32::from(number_of(kind))
}

fn number_of(kind: IndexKind) -> u8 {
    match kind {
        IndexKind::Inverted => 1,
        IndexKind::Skipping => 2,
        IndexKind::Fulltext => 3,
    }
}

/// A declared index with the column that it covers.
pub(super) struct Indexed<'a> {
    /// Position of the column among those that are shown, from 0.
    pub(super) position: usize,
    pub(super) column: &'a Column,
    pub(super) index: &'a Index,
}

impl Indexed<'_> {
    /// The object id of the index.
    pub(super) fn oid(&self, table: &Table) -> i32 {
        index_oid(table, self.column, self.index.options.kind())
    }
}

/// The declared indexes of a table, in the order of their columns.
pub(super) fn indexes_of(table: &Table) -> impl Iterator<Item = Indexed<'_>> {
    table.schema.shown().enumerate().flat_map(|(position, column)| {
        column.indexes.iter().map(move |index| Indexed { position, column, index })
    })
}

/// The object id of a sequence: above those of tables, below those of indexes.
pub(super) fn sequence_oid(sequence: &Sequence) -> i32 {
    i32::try_from(sequence.id.0)
        .ok()
        .and_then(|id| FIRST_SEQUENCE.checked_add(id))
        .unwrap_or(i32::MAX)
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

/// Returns true if a table has a key; rows in append mode may share one, so there it is none, and a hidden one is none.
pub(super) fn has_key(table: &Table) -> bool {
    let schema = &table.schema;
    !schema.options.append_mode && !schema.key.is_empty() && !schema.is_keyless()
}

/// The number of a column, from 1, for its position among those that are shown, from 0.
pub(super) fn attribute(index: usize) -> i32 {
    i32::try_from(index + 1).unwrap_or(i32::MAX)
}

/// The numbers of a table's key columns, in the key's order.
pub(super) fn key_attributes(table: &Table) -> Vec<i32> {
    let attribute_of = |column: &Column| {
        table.schema.shown().position(|candidate| candidate.id == column.id).map(attribute)
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
            if let Some(check) =
                table.schema.checks.iter().find(|check| check_oid(table, check) == oid)
            {
                return Some(Object::Check { table: Arc::clone(table), check: check.clone() });
            }
            if let Some(indexed) = indexes_of(table).find(|indexed| indexed.oid(table) == oid) {
                let (column, index) = (indexed.column.name.clone(), indexed.index.clone());
                return Some(Object::Index { table: Arc::clone(table), column, index });
            }
        }
        self.fixed.iter().find(|fixed| fixed.oid == oid).map(|fixed| Object::Fixed(fixed.schema))
    }

    /// The object id of a relation of a catalog, by the name in a user's statement, which is folded unless it is quoted.
    pub(super) fn relation(&self, catalog: &Catalog, text: &str, database: &str) -> Option<i32> {
        let name = sequence_name(text).ok()?;
        self.relation_of(catalog, (name.database.as_deref(), &name.name), database)
    }

    /// The object id of a relation of a catalog, by its schema, if that is given, and its name.
    pub(super) fn relation_of(
        &self,
        catalog: &Catalog,
        (given, name): (Option<&str>, &str),
        database: &str,
    ) -> Option<i32> {
        let schema = given.unwrap_or(database);
        if let Some(table) = catalog.table(schema, name) {
            return Some(table_oid(table));
        }
        let of_schema = catalog.tables.get(schema).into_iter().flat_map(|tables| tables.values());
        for table in of_schema {
            if has_key(table) && key_name(table) == name {
                return Some(key_oid(table));
            }
            if let Some(indexed) = indexes_of(table).find(|indexed| indexed.index.name == name) {
                return Some(indexed.oid(table));
            }
        }
        // As in PostgreSQL, its own tables are found without their schema.
        let is_own = given.is_none_or(|schema| schema == "pg_catalog");
        let fixed = self
            .fixed
            .iter()
            .filter(|fixed| fixed.schema == schema || (is_own && fixed.schema == "pg_catalog"))
            .find(|fixed| fixed.name == name)
            .map(|fixed| fixed.oid);
        // Those without a table here have their numbers.
        let known = || KNOWN.iter().find(|(known, _)| is_own && *known == name);
        fixed.or_else(|| known().map(|(_, oid)| *oid))
    }
}

/// The object id of one of PostgreSQL's own tables, by its name.
pub(super) fn own_oid(name: &str) -> Option<i32> {
    KNOWN.iter().find(|(known, _)| *known == name).map(|(_, oid)| *oid)
}

/// The name of one of PostgreSQL's own tables, by its object id.
pub(super) fn known_name(oid: i32) -> Option<&'static str> {
    KNOWN.iter().find(|(_, known)| *known == oid).map(|(name, _)| *name)
}

/// An object that has an id.
pub(super) enum Object {
    Table(Arc<Table>),
    Key(Arc<Table>),
    /// An index with the name of its column.
    Index {
        table: Arc<Table>,
        column: String,
        index: Index,
    },
    /// A CHECK constraint.
    Check {
        table: Arc<Table>,
        check: Check,
    },
    Fixed(&'static str),
}

impl Object {
    /// The schema that contains it.
    pub(super) fn schema(&self) -> &str {
        match self {
            Self::Table(table)
            | Self::Key(table)
            | Self::Index { table, .. }
            | Self::Check { table, .. } => &table.database,
            Self::Fixed(schema) => schema,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use partita_frontend::sql::statement::Statement;
    use partita_proto::id::{Epoch, PartitionId, TableId};
    use partita_proto::key::KeyCodec;
    use partita_proto::route::PartitionMap;

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

    fn table(id: u32, sql: &str) -> Arc<Table> {
        let mut statements = partita_frontend::sql::parse(sql).unwrap();
        let Some(Statement::CreateTable(create)) = statements.pop() else { panic!("{sql}") };
        let (new, _) = create.to_new_table("public").unwrap();
        let codec = KeyCodec::new(&new.schema, &new.placement).unwrap();
        let ids = (1..).map(PartitionId);
        let partitions = PartitionMap::from_cuts(&codec, &new.cuts, ids, Epoch(1)).unwrap();
        Arc::new(Table {
            id: TableId(id),
            database: new.database,
            name: new.name,
            schema: Arc::new(new.schema),
            placement: new.placement,
            partitions: Arc::new(partitions),
            former: None,
            succeeded_by: None,
            copy: None,
            owner: BOOTSTRAP_ROLE,
        })
    }

    #[test]
    fn indexes_are_found_by_id_and_by_name() {
        let logs = table(
            7,
            "CREATE TABLE logs (k INT PRIMARY KEY, a STRING INVERTED INDEX SKIPPING INDEX, b STRING FULLTEXT INDEX)",
        );
        let tables = BTreeMap::from([("logs".to_owned(), Arc::clone(&logs))]);
        let tables = BTreeMap::from([("public".to_owned(), tables)]);
        let catalog = Catalog { tables, ..Catalog::default() };
        let objects =
            Objects { frontend: Weak::new(), fixed: Vec::new(), fixed_schemas: Vec::new() };
        let expected =
            [("a", "logs_a_inverted"), ("a", "logs_a_skipping"), ("b", "logs_b_fulltext")];
        assert_eq!(indexes_of(&logs).count(), expected.len());
        for (indexed, (column_name, name)) in indexes_of(&logs).zip(expected) {
            let oid = indexed.oid(&logs);
            assert_eq!(objects.relation(&catalog, name, "public"), Some(oid));
            let Some(Object::Index { column, index, .. }) = objects.find(&catalog, oid) else {
                panic!("{name}")
            };
            assert_eq!((column.as_str(), index.name.as_str()), (column_name, name));
        }
        assert_eq!(objects.relation(&catalog, "logs_k_inverted", "public"), None);
    }

    #[test]
    fn ids_of_indexes_are_stable_and_differ_from_all_others() {
        let columns: Vec<String> =
            (0..100).map(|n| format!("c{n} STRING INVERTED INDEX")).collect();
        let sql = format!("CREATE TABLE t (k INT PRIMARY KEY, {})", columns.join(", "));
        let mut oids = BTreeSet::new();
        for id in 1..=20 {
            let table = table(id, &sql);
            for indexed in indexes_of(&table) {
                let oid = indexed.oid(&table);
                assert!(oid >= 1 << 30, "{oid}");
                oids.insert(oid);
            }
            assert!(!oids.contains(&table_oid(&table)));
        }
        assert_eq!(oids.len(), 2_000);
        let repetition = table(1, &sql);
        assert!(indexes_of(&repetition).all(|indexed| oids.contains(&indexed.oid(&repetition))));
        let methods: BTreeSet<i32> = IndexKind::ALL.into_iter().map(method_oid).collect();
        assert_eq!(methods, BTreeSet::from([13_501, 13_502, 13_503]));
    }
}
