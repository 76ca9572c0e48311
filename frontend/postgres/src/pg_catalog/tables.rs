//! The tables of `pg_catalog` whose rows describe our objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use partita_frontend::access::viewer::Viewer;
use partita_frontend::privileges::{
    database_acl, sees_all, sequence_acl, shown_role_name, shown_sequences, table_acl,
};
use partita_frontend::sequences::identity_of;
use partita_frontend::sql::identifier::quote;
use partita_frontend::sql::index_statement::index_options_sql;
use partita_frontend::sql::sequence_statement::is_counter;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::id::{BOOTSTRAP_ROLE, RoleId};
use partita_proto::index::{Index, IndexKind};
use partita_proto::schema::{Column, JsonType, TextLength};
use partita_proto::sequence::{Identity, Sequence};
use pgwire::api::Type;

use super::cells::Kind::{Bool, Char, Float4, Int2, Int2s, Int4, Int8, Oid, Oids, Text, Texts};
use super::cells::{Cell, Columns, ComputedTable, Row};
use super::objects::{
    BTREE, HEAP, Objects, PG_CATALOG, PG_CLASS, PG_NAMESPACE as PG_NAMESPACE_CLASS, attribute,
    check_oid, database_oid, default_oid, has_key, indexes_of, key_attributes, key_columns,
    key_name, key_oid, method_oid, role_oid, sequence_oid, table_oid,
};
use super::{dependencies, roles, statistics};
use crate::types;

const PG_NAMESPACE: Columns =
    &[("oid", Oid), ("nspname", Text), ("nspowner", Oid), ("nspacl", Texts)];

const PG_CLASS_COLUMNS: Columns = &[
    ("oid", Oid),
    ("relname", Text),
    ("relnamespace", Oid),
    ("reltype", Oid),
    ("reloftype", Oid),
    ("relowner", Oid),
    ("relam", Oid),
    ("relfilenode", Oid),
    ("reltablespace", Oid),
    ("relpages", Int4),
    ("reltuples", Float4),
    ("relallvisible", Int4),
    ("reltoastrelid", Oid),
    ("relhasindex", Bool),
    ("relisshared", Bool),
    ("relpersistence", Char),
    ("relkind", Char),
    ("relnatts", Int2),
    ("relchecks", Int2),
    ("relhasrules", Bool),
    ("relhastriggers", Bool),
    ("relhassubclass", Bool),
    ("relrowsecurity", Bool),
    ("relforcerowsecurity", Bool),
    ("relispopulated", Bool),
    ("relreplident", Char),
    ("relispartition", Bool),
    ("relrewrite", Oid),
    ("relfrozenxid", Int4),
    ("relminmxid", Int4),
    ("relacl", Texts),
    ("reloptions", Texts),
    ("relpartbound", Text),
    ("relhasoids", Bool),
];

const PG_ATTRIBUTE: Columns = &[
    ("attrelid", Oid),
    ("attname", Text),
    ("atttypid", Oid),
    ("attlen", Int2),
    ("attnum", Int2),
    ("attcacheoff", Int4),
    ("atttypmod", Int4),
    ("attndims", Int2),
    ("attbyval", Bool),
    ("attalign", Char),
    ("attstorage", Char),
    ("attcompression", Char),
    ("attnotnull", Bool),
    ("atthasdef", Bool),
    ("atthasmissing", Bool),
    ("attidentity", Char),
    ("attgenerated", Char),
    ("attisdropped", Bool),
    ("attislocal", Bool),
    ("attinhcount", Int2),
    ("attstattarget", Int2),
    ("attcollation", Oid),
    ("attacl", Texts),
    ("attoptions", Texts),
    ("attfdwoptions", Texts),
    ("attmissingval", Text),
];

const PG_ATTRDEF: Columns = &[("oid", Oid), ("adrelid", Oid), ("adnum", Int2), ("adbin", Text)];

const PG_CONSTRAINT: Columns = &[
    ("oid", Oid),
    ("conname", Text),
    ("connamespace", Oid),
    ("contype", Char),
    ("condeferrable", Bool),
    ("condeferred", Bool),
    ("convalidated", Bool),
    ("conrelid", Oid),
    ("contypid", Oid),
    ("conindid", Oid),
    ("conparentid", Oid),
    ("confrelid", Oid),
    ("confupdtype", Char),
    ("confdeltype", Char),
    ("confmatchtype", Char),
    ("conislocal", Bool),
    ("coninhcount", Int2),
    ("connoinherit", Bool),
    ("conkey", Int2s),
    ("confkey", Int2s),
    ("conpfeqop", Oids),
    ("conppeqop", Oids),
    ("conffeqop", Oids),
    ("confdelsetcols", Int2s),
    ("conexclop", Oids),
    ("conbin", Text),
];

const PG_INDEX: Columns = &[
    ("indexrelid", Oid),
    ("indrelid", Oid),
    ("indnatts", Int2),
    ("indnkeyatts", Int2),
    ("indisunique", Bool),
    ("indnullsnotdistinct", Bool),
    ("indisprimary", Bool),
    ("indisexclusion", Bool),
    ("indimmediate", Bool),
    ("indisclustered", Bool),
    ("indisvalid", Bool),
    ("indcheckxmin", Bool),
    ("indisready", Bool),
    ("indislive", Bool),
    ("indisreplident", Bool),
    ("indkey", Int2s),
    ("indcollation", Oids),
    ("indclass", Oids),
    ("indoption", Int2s),
    ("indexprs", Text),
    ("indpred", Text),
];

const PG_DESCRIPTION: Columns =
    &[("objoid", Oid), ("classoid", Oid), ("objsubid", Int4), ("description", Text)];

const PG_DATABASE: Columns = &[
    ("oid", Oid),
    ("datname", Text),
    ("datdba", Oid),
    ("encoding", Int4),
    ("datlocprovider", Char),
    ("datistemplate", Bool),
    ("datallowconn", Bool),
    ("datconnlimit", Int4),
    ("datfrozenxid", Int4),
    ("datminmxid", Int4),
    ("dattablespace", Oid),
    ("datcollate", Text),
    ("datctype", Text),
    ("daticulocale", Text),
    ("daticurules", Text),
    ("datcollversion", Text),
    ("datacl", Texts),
];

const PG_TABLES: Columns = &[
    ("schemaname", Text),
    ("tablename", Text),
    ("tableowner", Text),
    ("tablespace", Text),
    ("hasindexes", Bool),
    ("hasrules", Bool),
    ("hastriggers", Bool),
    ("rowsecurity", Bool),
];

const PG_VIEWS: Columns =
    &[("schemaname", Text), ("viewname", Text), ("viewowner", Text), ("definition", Text)];

const PG_INDEXES: Columns = &[
    ("schemaname", Text),
    ("tablename", Text),
    ("indexname", Text),
    ("tablespace", Text),
    ("indexdef", Text),
];

const PG_SEQUENCES: Columns = &[
    ("schemaname", Text),
    ("sequencename", Text),
    ("sequenceowner", Text),
    ("data_type", Text),
    ("start_value", Int8),
    ("min_value", Int8),
    ("max_value", Int8),
    ("increment_by", Int8),
    ("cycle", Bool),
    ("cache_size", Int8),
    ("last_value", Int8),
];

const PG_AM: Columns = &[("oid", Oid), ("amname", Text), ("amhandler", Text), ("amtype", Char)];

const PG_EXTENSION: Columns = &[
    ("oid", Oid),
    ("extname", Text),
    ("extowner", Oid),
    ("extnamespace", Oid),
    ("extrelocatable", Bool),
    ("extversion", Text),
    ("extconfig", Oids),
    ("extcondition", Texts),
];

/// The tables of this file, by name.
pub(super) fn all(objects: &Arc<Objects>) -> BTreeMap<&'static str, Arc<ComputedTable>> {
    let table = |columns: Columns, rows: fn(&Objects, &Viewer) -> Vec<Row>| {
        let objects = Arc::clone(objects);
        ComputedTable::new(columns, move |viewer| rows(&objects, viewer))
    };
    let empty = |(name, columns)| (name, table(columns, |_, _| Vec::new()));
    let mut tables = BTreeMap::from([
        ("pg_namespace", table(PG_NAMESPACE, namespaces)),
        ("pg_class", table(PG_CLASS_COLUMNS, classes)),
        ("pg_attribute", table(PG_ATTRIBUTE, attributes)),
        ("pg_attrdef", table(PG_ATTRDEF, defaults)),
        ("pg_constraint", table(PG_CONSTRAINT, constraints)),
        ("pg_index", table(PG_INDEX, indexes)),
        ("pg_description", table(PG_DESCRIPTION, descriptions)),
        ("pg_database", table(PG_DATABASE, databases)),
        ("pg_roles", table(roles::PG_ROLES, |_, viewer| roles::roles(viewer))),
        ("pg_authid", table(roles::PG_ROLES, |_, viewer| roles::roles(viewer))),
        ("pg_auth_members", table(roles::PG_AUTH_MEMBERS, |_, viewer| roles::members(viewer))),
        ("pg_user", table(roles::PG_USER, |_, viewer| roles::users(viewer))),
        ("pg_shadow", table(roles::PG_USER, |_, viewer| roles::users(viewer))),
        ("pg_group", table(roles::PG_GROUP, |_, viewer| roles::groups(viewer))),
        (
            "pg_db_role_setting",
            table(roles::PG_DB_ROLE_SETTING, |_, viewer| roles::settings(viewer)),
        ),
        ("pg_tables", table(PG_TABLES, tables)),
        ("pg_views", table(PG_VIEWS, views)),
        ("pg_sequences", table(PG_SEQUENCES, |_, viewer| sequences(viewer))),
        ("pg_extension", table(PG_EXTENSION, dependencies::extensions)),
        ("pg_depend", table(dependencies::PG_DEPEND, dependencies::dependencies)),
        (
            "pg_sequence",
            table(dependencies::PG_SEQUENCE, |_, viewer| dependencies::sequences(viewer)),
        ),
        ("pg_indexes", table(PG_INDEXES, index_definitions)),
        ("pg_am", table(PG_AM, |_, _| access_methods())),
        (
            "pg_prepared_statements",
            table(statistics::PG_PREPARED_STATEMENTS, |_, viewer| {
                statistics::prepared_statements(viewer)
            }),
        ),
        ("pg_cursors", table(statistics::PG_CURSORS, |_, viewer| statistics::cursors(viewer))),
        ("pg_stat_activity", table(statistics::PG_STAT_ACTIVITY, statistics::activity)),
        ("pg_stat_database", table(statistics::PG_STAT_DATABASE, statistics::databases)),
        ("pg_stat_all_tables", table(statistics::PG_STAT_TABLES, statistics::tables)),
        ("pg_stat_user_tables", table(statistics::PG_STAT_TABLES, statistics::tables)),
        ("pg_stat_all_indexes", table(statistics::PG_STAT_INDEXES, statistics::indexes)),
        ("pg_stat_user_indexes", table(statistics::PG_STAT_INDEXES, statistics::indexes)),
    ]);
    tables.extend(statistics::EMPTY.map(empty));
    tables.extend(dependencies::EMPTY.map(empty));
    tables
}

fn stored(catalog: &Catalog) -> impl Iterator<Item = &Arc<Table>> {
    catalog.tables.values().flat_map(BTreeMap::values)
}

fn namespaces(objects: &Objects, viewer: &Viewer) -> Vec<Row> {
    let catalog = viewer.catalog();
    let row = |oid: i32, name: &str, owner: RoleId, acl: Option<Vec<String>>| -> Row {
        vec![
            ("oid", oid.into()),
            ("nspname", name.into()),
            ("nspowner", role_oid(owner).into()),
            ("nspacl", acl.into()),
        ]
    };
    let mut rows = Vec::new();
    for schema in &objects.fixed_schemas {
        rows.push(row(objects.schema_oid(&catalog, schema), schema, BOOTSTRAP_ROLE, None));
    }
    for database in catalog.databases.values() {
        let acl = database_acl(viewer, database);
        rows.push(row(database_oid(database), &database.name, database.owner, acl));
    }
    rows
}

/// PostgreSQL's value of `reltuples` for a table without statistics.
const NOT_COUNTED: f32 = -1.0;

/// Cells of `pg_class` that relations differ in.
struct Class<'a> {
    oid: i32,
    name: String,
    schema: i32,
    kind: &'a str,
    /// Object id of the access method; 0 for none.
    method: i32,
    columns: usize,
    /// Number of CHECK constraints.
    checks: usize,
    indexed: bool,
    tuples: f32,
    owner: RoleId,
    acl: Option<Vec<String>>,
}

fn class(relation: Class<'_>) -> Row {
    let Class { oid, name, schema, kind, method, columns, checks, indexed, tuples, owner, acl } =
        relation;
    vec![
        ("oid", oid.into()),
        ("relname", name.into()),
        ("relnamespace", schema.into()),
        ("reltype", 0.into()),
        ("reloftype", 0.into()),
        ("relowner", role_oid(owner).into()),
        ("relam", method.into()),
        ("relfilenode", oid.into()),
        ("reltablespace", 0.into()),
        ("relpages", 0.into()),
        ("reltuples", Cell::Float(tuples)),
        ("relallvisible", 0.into()),
        ("reltoastrelid", 0.into()),
        ("relhasindex", indexed.into()),
        ("relisshared", false.into()),
        ("relpersistence", "p".into()),
        ("relkind", kind.into()),
        ("relnatts", i32::try_from(columns).unwrap_or(i32::MAX).into()),
        ("relchecks", i32::try_from(checks).unwrap_or(i32::MAX).into()),
        ("relhasrules", false.into()),
        ("relhastriggers", false.into()),
        ("relhassubclass", false.into()),
        ("relrowsecurity", false.into()),
        ("relforcerowsecurity", false.into()),
        ("relispopulated", true.into()),
        ("relreplident", "d".into()),
        ("relispartition", false.into()),
        ("relrewrite", 0.into()),
        ("relfrozenxid", 0.into()),
        ("relminmxid", 0.into()),
        ("relacl", acl.into()),
        ("relhasoids", false.into()),
    ]
}

fn classes(objects: &Objects, viewer: &Viewer) -> Vec<Row> {
    let catalog = viewer.catalog();
    let frontend = objects.frontend();
    let mut rows = Vec::new();
    // Stored tables, each with the index of its key and those of its columns.
    for table in stored(&catalog) {
        let schema = objects.schema_oid(&catalog, &table.database);
        let columns = table.schema.shown().count();
        // The estimate counts all rows, so only those who see all of them see it.
        let measured = frontend.as_ref().filter(|_| sees_all(viewer, table.id));
        let counted = measured.and_then(|frontend| frontend.about_rows(table));
        #[expect(clippy::cast_precision_loss, reason = "PostgreSQL's type for an estimate")]
        let tuples = counted.map_or(NOT_COUNTED, |rows| rows as f32);
        let relation = Class {
            oid: table_oid(table),
            name: table.name.clone(),
            schema,
            kind: if table.schema.view.is_some() { "v" } else { "r" },
            method: if table.schema.view.is_some() { 0 } else { HEAP },
            columns,
            checks: table.schema.checks.len(),
            indexed: is_indexed(table),
            tuples,
            owner: table.owner,
            acl: table_acl(viewer, table),
        };
        let mut row = class(relation);
        if table.schema.is_keyless() {
            row.push(("reloptions", vec!["hidden_key=true".to_owned()].into()));
        }
        rows.push(row);
        let index = |oid: i32, name: String, method: i32, columns: usize| {
            class(Class {
                oid,
                name,
                schema,
                kind: "i",
                method,
                columns,
                checks: 0,
                indexed: false,
                tuples,
                owner: table.owner,
                acl: None,
            })
        };
        if has_key(table) {
            rows.push(index(key_oid(table), key_name(table), BTREE, table.schema.key.len()));
        }
        for indexed in indexes_of(table) {
            let method = method_oid(indexed.index.options.kind());
            rows.push(index(indexed.oid(table), indexed.index.name.clone(), method, 1));
        }
    }
    for (database, sequence) in shown_sequences(viewer) {
        rows.push(class(Class {
            oid: sequence_oid(&sequence),
            name: sequence.name.clone(),
            schema: objects.schema_oid(&catalog, &database),
            kind: "S",
            method: 0,
            columns: 3,
            checks: 0,
            indexed: false,
            tuples: 1.0,
            owner: sequence.owner,
            acl: sequence_acl(viewer, &sequence),
        }));
    }
    // Tables that are computed, which are views outside of `pg_catalog`.
    for fixed in &objects.fixed {
        let schema = objects.schema_oid(&catalog, fixed.schema);
        let kind = if schema == PG_CATALOG { "r" } else { "v" };
        let relation = Class {
            oid: fixed.oid,
            name: fixed.name.clone(),
            schema,
            kind,
            method: if kind == "r" { HEAP } else { 0 },
            columns: fixed.columns.len(),
            checks: 0,
            indexed: false,
            tuples: NOT_COUNTED,
            owner: BOOTSTRAP_ROLE,
            acl: None,
        };
        rows.push(class(relation));
    }
    rows
}

fn sequences(viewer: &Viewer) -> Vec<Row> {
    let row = |(database, sequence): (String, Arc<Sequence>)| -> Row {
        let (options, counter) = (sequence.options, sequence.counter);
        vec![
            ("schemaname", database.into()),
            ("sequencename", sequence.name.as_str().into()),
            ("sequenceowner", shown_role_name(viewer, sequence.owner).into()),
            ("data_type", options.data_type.name().into()),
            ("start_value", options.start.into()),
            ("min_value", options.min_value.into()),
            ("max_value", options.max_value.into()),
            ("increment_by", options.increment.into()),
            ("cycle", options.cycle.into()),
            ("cache_size", i64::try_from(options.cache).unwrap_or(i64::MAX).into()),
            ("last_value", counter.is_called.then_some(counter.last_value).into()),
        ]
    };
    shown_sequences(viewer).into_iter().map(row).collect()
}

/// Returns true if a table has any index that `pg_index` lists.
fn is_indexed(table: &Table) -> bool {
    has_key(table) || indexes_of(table).next().is_some()
}

/// A column of a relation.
struct Attribute<'a> {
    relation: i32,
    name: &'a str,
    number: i32,
    data_type: &'a DataType,
    length: Option<TextLength>,
    json: Option<JsonType>,
    nullable: bool,
    default: bool,
    generated: bool,
    identity: Option<Identity>,
}

impl Attribute<'_> {
    fn row(&self) -> Row {
        // A text with a length has a type and a modifier of its own.
        let (data_type, modifier) = match (self.length, self.json) {
            (Some(length), _) => types::of_text(length),
            (None, Some(json)) => (types::of_json(json), -1),
            (None, None) => (types::of_arrow(self.data_type), types::modifier(self.data_type)),
        };
        let length = types::size(&data_type);
        let text = length < 0;
        // Alignment and storage only distinguish fixed from variable width.
        vec![
            ("attrelid", self.relation.into()),
            ("attname", self.name.into()),
            ("atttypid", i32::try_from(data_type.oid()).unwrap_or(0).into()),
            ("attlen", i32::from(length).into()),
            ("attnum", self.number.into()),
            ("attcacheoff", (-1).into()),
            ("atttypmod", modifier.into()),
            ("attndims", 0.into()),
            ("attbyval", (!text).into()),
            ("attalign", (if length == 8 { "d" } else { "i" }).into()),
            ("attstorage", storage(&data_type, text).into()),
            ("attcompression", "".into()),
            ("attnotnull", (!self.nullable).into()),
            ("atthasdef", (self.default && self.identity.is_none() || self.generated).into()),
            ("atthasmissing", false.into()),
            ("attidentity", attidentity(self.identity).into()),
            ("attgenerated", (if self.generated { "s" } else { "" }).into()),
            ("attisdropped", false.into()),
            ("attislocal", true.into()),
            ("attinhcount", 0.into()),
            ("attstattarget", (-1).into()),
            ("attcollation", (if types::is_text(&data_type) { 100 } else { 0 }).into()),
        ]
    }
}

/// PostgreSQL's letter for where values of a type are kept by default: in the row, or compressed or beside it if they are
/// long.
fn storage(data_type: &Type, has_variable_width: bool) -> &'static str {
    match (*data_type == Type::NUMERIC, has_variable_width) {
        (true, _) => "m",
        (false, true) => "x",
        (false, false) => "p",
    }
}

/// The kind of an identity column.
fn identity(catalog: &Catalog, table: &Table, column: &Column) -> Option<Identity> {
    column.default.as_deref().filter(|default| is_counter(default))?;
    identity_of(catalog, table, column.id)
}

/// PostgreSQL's letter for a kind of identity column.
fn attidentity(identity: Option<Identity>) -> &'static str {
    match identity {
        None => "",
        Some(Identity::Always) => "a",
        Some(Identity::ByDefault) => "d",
    }
}

fn attributes(objects: &Objects, viewer: &Viewer) -> Vec<Row> {
    let catalog = viewer.catalog();
    let mut rows = Vec::new();
    // The columns of stored tables, and those of their indexes.
    for table in stored(&catalog) {
        for (position, column) in table.schema.shown().enumerate() {
            let attribute = Attribute {
                relation: table_oid(table),
                name: &column.name,
                number: attribute(position),
                data_type: &column.column_type.arrow(),
                length: column.length,
                json: column.json,
                nullable: column.nullable,
                default: column.default.is_some(),
                generated: column.generated.is_some(),
                identity: identity(&catalog, table, column),
            };
            rows.push(attribute.row());
        }
        let key_columns = table.schema.key_columns().enumerate().filter(|_| has_key(table));
        let of_key =
            key_columns.map(|(position, column)| (key_oid(table), attribute(position), column));
        let of_indexes = indexes_of(table).map(|indexed| (indexed.oid(table), 1, indexed.column));
        for (relation, number, column) in of_key.chain(of_indexes) {
            let attribute = Attribute {
                relation,
                name: &column.name,
                number,
                data_type: &column.column_type.arrow(),
                length: column.length,
                json: column.json,
                nullable: true,
                default: false,
                generated: false,
                identity: None,
            };
            rows.push(attribute.row());
        }
    }
    // The columns of computed tables.
    for fixed in &objects.fixed {
        let relation = fixed.oid;
        for (position, (name, data_type)) in fixed.columns.iter().enumerate() {
            let attribute = Attribute {
                relation,
                name,
                number: attribute(position),
                data_type,
                length: None,
                json: None,
                nullable: true,
                default: false,
                generated: false,
                identity: None,
            };
            rows.push(attribute.row());
        }
    }
    rows
}

fn defaults(_: &Objects, viewer: &Viewer) -> Vec<Row> {
    let catalog = viewer.catalog();
    let mut rows = Vec::new();
    for table in stored(&catalog) {
        for (position, column) in table.schema.shown().enumerate() {
            let Some(text) = column.generated.as_ref().or(column.default.as_ref()) else {
                continue;
            };
            if identity(&catalog, table, column).is_some() {
                continue;
            }
            rows.push(vec![
                ("oid", default_oid(table, column).into()),
                ("adrelid", table_oid(table).into()),
                ("adnum", attribute(position).into()),
                ("adbin", text.as_str().into()),
            ]);
        }
    }
    rows
}

/// Cells of `pg_constraint` that constraints differ in.
struct Constraint<'a> {
    oid: i32,
    name: String,
    kind: &'a str,
    /// Object id of the index; 0 for none.
    index: i32,
    columns: Option<Vec<i32>>,
    expression: Option<&'a str>,
}

fn constraints(objects: &Objects, viewer: &Viewer) -> Vec<Row> {
    let catalog = viewer.catalog();
    let row = |table: &Table, constraint: Constraint<'_>| -> Row {
        let Constraint { oid, name, kind, index, columns, expression } = constraint;
        vec![
            ("oid", oid.into()),
            ("conname", name.into()),
            ("connamespace", objects.schema_oid(&catalog, &table.database).into()),
            ("contype", kind.into()),
            ("condeferrable", false.into()),
            ("condeferred", false.into()),
            ("convalidated", true.into()),
            ("conrelid", table_oid(table).into()),
            ("contypid", 0.into()),
            ("conindid", index.into()),
            ("conparentid", 0.into()),
            ("confrelid", 0.into()),
            ("confupdtype", " ".into()),
            ("confdeltype", " ".into()),
            ("confmatchtype", " ".into()),
            ("conislocal", true.into()),
            ("coninhcount", 0.into()),
            ("connoinherit", (kind == "p").into()),
            ("conkey", columns.into()),
            ("conbin", expression.into()),
        ]
    };
    let mut rows = Vec::new();
    for table in stored(&catalog) {
        if has_key(table) {
            let (oid, name) = (key_oid(table), key_name(table));
            let columns = Some(key_attributes(table));
            let key = Constraint { oid, name, kind: "p", index: oid, columns, expression: None };
            rows.push(row(table, key));
        }
        for check in &table.schema.checks {
            rows.push(row(
                table,
                Constraint {
                    oid: check_oid(table, check),
                    name: check.name.clone(),
                    kind: "c",
                    index: 0,
                    columns: None,
                    expression: Some(&check.expression),
                },
            ));
        }
    }
    rows
}

fn indexes(_: &Objects, viewer: &Viewer) -> Vec<Row> {
    let catalog = viewer.catalog();
    let row = |oid: i32, table: &Arc<Table>, columns: Vec<i32>, is_key: bool| -> Row {
        let count = i32::try_from(columns.len()).unwrap_or(i32::MAX);
        let zeros = vec![0; columns.len()];
        vec![
            ("indexrelid", oid.into()),
            ("indrelid", table_oid(table).into()),
            ("indnatts", count.into()),
            ("indnkeyatts", count.into()),
            ("indisunique", is_key.into()),
            ("indnullsnotdistinct", false.into()),
            ("indisprimary", is_key.into()),
            ("indisexclusion", false.into()),
            ("indimmediate", true.into()),
            ("indisclustered", false.into()),
            ("indisvalid", true.into()),
            ("indcheckxmin", false.into()),
            ("indisready", true.into()),
            ("indislive", true.into()),
            ("indisreplident", false.into()),
            ("indkey", columns.into()),
            ("indcollation", zeros.clone().into()),
            ("indclass", zeros.clone().into()),
            ("indoption", zeros.into()),
        ]
    };
    let mut rows = Vec::new();
    for table in stored(&catalog) {
        // A key is a unique index over its columns, in order.
        if has_key(table) {
            rows.push(row(key_oid(table), table, key_attributes(table), true));
        }
        rows.extend(indexes_of(table).map(|indexed| {
            row(indexed.oid(table), table, vec![attribute(indexed.position)], false)
        }));
    }
    rows
}

/// PostgreSQL's access methods, and one for each kind of index.
fn access_methods() -> Vec<Row> {
    let row = |oid: i32, name: &str, handler: &str, kind: &str| -> Row {
        vec![
            ("oid", oid.into()),
            ("amname", name.into()),
            ("amhandler", handler.into()),
            ("amtype", kind.into()),
        ]
    };
    let mut rows = vec![row(HEAP, "heap", "heap_tableam_handler", "t")];
    for (oid, name, handler) in [
        (BTREE, "btree", "bthandler"),
        (405, "hash", "hashhandler"),
        (783, "gist", "gisthandler"),
        (2_742, "gin", "ginhandler"),
        (4_000, "spgist", "spghandler"),
        (3_580, "brin", "brinhandler"),
    ] {
        rows.push(row(oid, name, handler, "i"));
    }
    // The absence of a function is shown as `-`.
    rows.extend(IndexKind::ALL.map(|kind| row(method_oid(kind), kind.method(), "-", "i")));
    rows
}

fn descriptions(_: &Objects, viewer: &Viewer) -> Vec<Row> {
    let catalog = viewer.catalog();
    let mut rows = Vec::new();
    let mut add = |(oid, class): (i32, i32), column: i32, text: Option<&String>| {
        let Some(text) = text else { return };
        rows.push(vec![
            ("objoid", oid.into()),
            ("classoid", class.into()),
            ("objsubid", column.into()),
            ("description", text.as_str().into()),
        ]);
    };
    for database in catalog.databases.values() {
        add((database_oid(database), PG_NAMESPACE_CLASS), 0, database.comment.as_ref());
    }
    for table in stored(&catalog) {
        let object = (table_oid(table), PG_CLASS);
        add(object, 0, table.schema.options.comment.as_ref());
        for (position, column) in table.schema.shown().enumerate() {
            add(object, attribute(position), column.comment.as_ref());
        }
    }
    rows
}

fn databases(_: &Objects, viewer: &Viewer) -> Vec<Row> {
    let catalog = viewer.catalog();
    let row = |database: &Arc<partita_proto::catalog::Database>| -> Row {
        vec![
            ("oid", database_oid(database).into()),
            ("datname", database.name.as_str().into()),
            ("datdba", role_oid(database.owner).into()),
            // PostgreSQL's code of UTF8.
            ("encoding", 6.into()),
            ("datlocprovider", "c".into()),
            ("datistemplate", false.into()),
            ("datallowconn", true.into()),
            ("datconnlimit", (-1).into()),
            ("datfrozenxid", 0.into()),
            ("datminmxid", 0.into()),
            // PostgreSQL's id of its default tablespace.
            ("dattablespace", 1_663.into()),
            ("datcollate", "C".into()),
            ("datctype", "C".into()),
            ("datacl", database_acl(viewer, database).into()),
        ]
    };
    catalog.databases.values().map(row).collect()
}

fn tables(_: &Objects, viewer: &Viewer) -> Vec<Row> {
    let row = |table: &Arc<Table>| -> Row {
        vec![
            ("schemaname", table.database.as_str().into()),
            ("tablename", table.name.as_str().into()),
            ("tableowner", shown_role_name(viewer, table.owner).into()),
            ("hasindexes", is_indexed(table).into()),
            ("hasrules", false.into()),
            ("hastriggers", false.into()),
            ("rowsecurity", false.into()),
        ]
    };
    stored(&viewer.catalog()).filter(|table| table.schema.view.is_none()).map(row).collect()
}

fn views(_: &Objects, viewer: &Viewer) -> Vec<Row> {
    let row = |table: &Arc<Table>| -> Option<Row> {
        Some(vec![
            ("schemaname", table.database.as_str().into()),
            ("viewname", table.name.as_str().into()),
            ("viewowner", shown_role_name(viewer, table.owner).into()),
            ("definition", view_definition(table)?.into()),
        ])
    };
    stored(&viewer.catalog()).filter_map(row).collect()
}

/// The query of a view, as PostgreSQL shows it: with a semicolon.
pub(super) fn view_definition(table: &Table) -> Option<String> {
    table.schema.view.as_ref().map(|view| format!("{};", view.query))
}

/// The statement with which PostgreSQL would create the index of a table's key.
pub(super) fn key_definition(table: &Table) -> String {
    format!(
        "CREATE UNIQUE INDEX {} ON {}.{} USING btree ({})",
        quote(&key_name(table)),
        quote(&table.database),
        quote(&table.name),
        key_columns(table)
    )
}

/// The statement that creates an index of a column.
pub(super) fn index_definition(table: &Table, column: &str, index: &Index) -> String {
    format!(
        "CREATE INDEX {} ON {}.{} USING {} ({}){}",
        quote(&index.name),
        quote(&table.database),
        quote(&table.name),
        index.options.kind().method(),
        quote(column),
        index_options_sql(index, &index.name)
    )
}

fn index_definitions(_: &Objects, viewer: &Viewer) -> Vec<Row> {
    let row = |table: &Arc<Table>, name: String, definition: String| -> Row {
        vec![
            ("schemaname", table.database.as_str().into()),
            ("tablename", table.name.as_str().into()),
            ("indexname", name.into()),
            ("indexdef", definition.into()),
        ]
    };
    let mut rows = Vec::new();
    for table in stored(&viewer.catalog()) {
        if has_key(table) {
            rows.push(row(table, key_name(table), key_definition(table)));
        }
        rows.extend(indexes_of(table).map(|indexed| {
            let definition = index_definition(table, &indexed.column.name, indexed.index);
            row(table, indexed.index.name.clone(), definition)
        }));
    }
    rows
}
