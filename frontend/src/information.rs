//! `information_schema`: the views of the SQL standard, with the semantic type of columns and the partitions added.

use std::collections::BTreeMap;
use std::sync::Arc;

use partita_proto::access::{Action, Sight};
use partita_proto::catalog::{Catalog, Table};
use partita_proto::id::{BOOTSTRAP_ROLE, RoleId};
use partita_proto::schema::{Column, ColumnType, Element, Semantic, TextLength};
use partita_proto::sequence::{Identity, Sequence, SequenceType};

use crate::access::viewer::Viewer;
use crate::bound_text::bound_text;
use crate::error::CATALOG;
use crate::privileges::{
    current_role, privileges_of, role_closure, role_name, shown_role_name, shown_sequences,
    shows_role,
};
use crate::sequences::{has_counter, identity_of};
use crate::sources::Sources;
use crate::system::SYSTEM;
use crate::virtual_table::{Cell, Kind, VirtualTable, batch, schema};

/// Schema of the SQL standard's views of the catalog.
pub const INFORMATION: &str = "information_schema";

const SCHEMATA: &[(&str, Kind)] = &[
    ("catalog_name", Kind::Text),
    ("schema_name", Kind::Text),
    ("schema_owner", Kind::Text),
    ("default_character_set_name", Kind::Text),
];

const TABLES: &[(&str, Kind)] = &[
    ("table_catalog", Kind::Text),
    ("table_schema", Kind::Text),
    ("table_name", Kind::Text),
    ("table_type", Kind::Text),
    ("table_id", Kind::Count),
    ("table_comment", Kind::Text),
];

const VIEWS: &[(&str, Kind)] = &[
    ("table_catalog", Kind::Text),
    ("table_schema", Kind::Text),
    ("table_name", Kind::Text),
    ("view_definition", Kind::Text),
    ("check_option", Kind::Text),
    ("is_updatable", Kind::Text),
    ("is_insertable_into", Kind::Text),
    ("is_trigger_updatable", Kind::Text),
    ("is_trigger_deletable", Kind::Text),
    ("is_trigger_insertable_into", Kind::Text),
    ("table_id", Kind::Count),
    ("table_comment", Kind::Text),
];

const COLUMNS: &[(&str, Kind)] = &[
    ("table_catalog", Kind::Text),
    ("table_schema", Kind::Text),
    ("table_name", Kind::Text),
    ("column_name", Kind::Text),
    ("ordinal_position", Kind::Number),
    ("column_default", Kind::Text),
    ("is_nullable", Kind::Text),
    ("data_type", Kind::Text),
    ("character_maximum_length", Kind::Number),
    ("numeric_precision", Kind::Number),
    ("numeric_precision_radix", Kind::Number),
    ("numeric_scale", Kind::Number),
    ("datetime_precision", Kind::Number),
    ("udt_catalog", Kind::Text),
    ("udt_schema", Kind::Text),
    ("udt_name", Kind::Text),
    ("column_type", Kind::Text),
    ("arrow_type", Kind::Text),
    ("semantic_type", Kind::Text),
    ("is_generated", Kind::Text),
    ("generation_expression", Kind::Text),
    ("column_comment", Kind::Text),
    ("is_identity", Kind::Text),
    ("identity_generation", Kind::Text),
];

const KEY_COLUMN_USAGE: &[(&str, Kind)] = &[
    ("constraint_catalog", Kind::Text),
    ("constraint_schema", Kind::Text),
    ("constraint_name", Kind::Text),
    ("table_catalog", Kind::Text),
    ("table_schema", Kind::Text),
    ("table_name", Kind::Text),
    ("column_name", Kind::Text),
    ("ordinal_position", Kind::Number),
    ("position_in_unique_constraint", Kind::Number),
];

const TABLE_CONSTRAINTS: &[(&str, Kind)] = &[
    ("constraint_catalog", Kind::Text),
    ("constraint_schema", Kind::Text),
    ("constraint_name", Kind::Text),
    ("table_catalog", Kind::Text),
    ("table_schema", Kind::Text),
    ("table_name", Kind::Text),
    ("constraint_type", Kind::Text),
    ("is_deferrable", Kind::Text),
    ("initially_deferred", Kind::Text),
    ("enforced", Kind::Text),
    ("nulls_distinct", Kind::Text),
];

const CHECK_CONSTRAINTS: &[(&str, Kind)] = &[
    ("constraint_catalog", Kind::Text),
    ("constraint_schema", Kind::Text),
    ("constraint_name", Kind::Text),
    ("check_clause", Kind::Text),
];

const CONSTRAINT_TABLE_USAGE: &[(&str, Kind)] = &[
    ("table_catalog", Kind::Text),
    ("table_schema", Kind::Text),
    ("table_name", Kind::Text),
    ("constraint_catalog", Kind::Text),
    ("constraint_schema", Kind::Text),
    ("constraint_name", Kind::Text),
];

const CONSTRAINT_COLUMN_USAGE: &[(&str, Kind)] = &[
    ("table_catalog", Kind::Text),
    ("table_schema", Kind::Text),
    ("table_name", Kind::Text),
    ("column_name", Kind::Text),
    ("constraint_catalog", Kind::Text),
    ("constraint_schema", Kind::Text),
    ("constraint_name", Kind::Text),
];

const REFERENTIAL_CONSTRAINTS: &[(&str, Kind)] = &[
    ("constraint_catalog", Kind::Text),
    ("constraint_schema", Kind::Text),
    ("constraint_name", Kind::Text),
    ("unique_constraint_catalog", Kind::Text),
    ("unique_constraint_schema", Kind::Text),
    ("unique_constraint_name", Kind::Text),
    ("match_option", Kind::Text),
    ("update_rule", Kind::Text),
    ("delete_rule", Kind::Text),
];

const SEQUENCES: &[(&str, Kind)] = &[
    ("sequence_catalog", Kind::Text),
    ("sequence_schema", Kind::Text),
    ("sequence_name", Kind::Text),
    ("data_type", Kind::Text),
    ("numeric_precision", Kind::Number),
    ("numeric_precision_radix", Kind::Number),
    ("numeric_scale", Kind::Number),
    ("start_value", Kind::Text),
    ("minimum_value", Kind::Text),
    ("maximum_value", Kind::Text),
    ("increment", Kind::Text),
    ("cycle_option", Kind::Text),
];

const PARTITIONS: &[(&str, Kind)] = &[
    ("table_catalog", Kind::Text),
    ("table_schema", Kind::Text),
    ("table_name", Kind::Text),
    ("partition_name", Kind::Text),
    ("partition_ordinal_position", Kind::Number),
    ("partition_method", Kind::Text),
    ("partition_expression", Kind::Text),
    ("partition_description", Kind::Text),
    ("partition_id", Kind::Count),
];

const TABLE_PRIVILEGES: &[(&str, Kind)] = &[
    ("grantor", Kind::Text),
    ("grantee", Kind::Text),
    ("table_catalog", Kind::Text),
    ("table_schema", Kind::Text),
    ("table_name", Kind::Text),
    ("privilege_type", Kind::Text),
    ("is_grantable", Kind::Text),
    ("with_hierarchy", Kind::Text),
];

const ENABLED_ROLES: &[(&str, Kind)] = &[("role_name", Kind::Text)];

const APPLICABLE_ROLES: &[(&str, Kind)] =
    &[("grantee", Kind::Text), ("role_name", Kind::Text), ("is_grantable", Kind::Text)];

/// Constraint name of a table's key, as in PostgreSQL.
pub(crate) fn key_name(table: &Table) -> String {
    format!("{}_pkey", table.name)
}

/// Semantic type of a column as `DESCRIBE` shows it.
pub(crate) fn semantic(column: &Column) -> &'static str {
    match column.semantic {
        Semantic::Tag => "TAG",
        Semantic::Field => "FIELD",
        Semantic::TimeIndex => "TIMESTAMP",
    }
}

/// Tables of `information_schema`.
pub(crate) fn tables(_: &Sources) -> BTreeMap<&'static str, Arc<VirtualTable>> {
    let table = |columns: &'static [(&'static str, Kind)],
                 rows: fn(&Viewer) -> Vec<Vec<Cell>>|
     -> Arc<VirtualTable> {
        let table_schema = schema(columns);
        VirtualTable::new(schema(columns), move |viewer: Arc<Viewer>| {
            let table_schema = Arc::clone(&table_schema);
            async move { batch(&table_schema, rows(&viewer)) }
        })
    };
    BTreeMap::from([
        ("schemata", table(SCHEMATA, schemata)),
        ("tables", table(TABLES, table_rows)),
        ("views", table(VIEWS, views)),
        ("columns", table(COLUMNS, columns)),
        ("key_column_usage", table(KEY_COLUMN_USAGE, key_column_usage)),
        ("table_constraints", table(TABLE_CONSTRAINTS, table_constraints)),
        ("check_constraints", table(CHECK_CONSTRAINTS, check_constraints)),
        ("constraint_table_usage", table(CONSTRAINT_TABLE_USAGE, constraint_table_usage)),
        ("constraint_column_usage", table(CONSTRAINT_COLUMN_USAGE, constraint_column_usage)),
        // Foreign keys do not exist.
        ("referential_constraints", table(REFERENTIAL_CONSTRAINTS, |_| Vec::new())),
        ("partitions", table(PARTITIONS, partitions)),
        ("sequences", table(SEQUENCES, sequences)),
        ("table_privileges", table(TABLE_PRIVILEGES, table_privileges)),
        ("role_table_grants", table(TABLE_PRIVILEGES, role_table_grants)),
        ("enabled_roles", table(ENABLED_ROLES, enabled_roles)),
        ("applicable_roles", table(APPLICABLE_ROLES, applicable_roles)),
    ])
}

fn all_tables(catalog: &Catalog) -> impl Iterator<Item = &Arc<Table>> {
    catalog.tables.values().flat_map(BTreeMap::values)
}

/// First cells of most rows: catalog, database and table.
fn names(table: &Table) -> Vec<Cell> {
    vec![CATALOG.into(), table.database.as_str().into(), table.name.as_str().into()]
}

fn schemata(viewer: &Viewer) -> Vec<Vec<Cell>> {
    let catalog = viewer.catalog();
    let databases =
        catalog.databases.values().map(|database| (database.name.as_str(), database.owner));
    let fixed = [INFORMATION, SYSTEM].map(|name| (name, BOOTSTRAP_ROLE));
    let row = |(name, owner): (&str, RoleId)| {
        vec![CATALOG.into(), name.into(), shown_role_name(viewer, owner).into(), "UTF8".into()]
    };
    databases.chain(fixed).map(row).collect()
}

fn table_rows(viewer: &Viewer) -> Vec<Vec<Cell>> {
    let catalog = viewer.catalog();
    let row = |table: &Arc<Table>| {
        let mut row = names(table);
        let kind = if table.schema.view.is_some() { "VIEW" } else { "BASE TABLE" };
        row.push(kind.into());
        row.push(u64::from(table.id.0).into());
        row.push(table.schema.options.comment.clone().into());
        row
    };
    all_tables(&catalog).map(row).collect()
}

fn views(viewer: &Viewer) -> Vec<Vec<Cell>> {
    let catalog = viewer.catalog();
    let mut rows = Vec::new();
    for table in all_tables(&catalog) {
        let Some(view) = &table.schema.view else { continue };
        let mut row = names(table);
        row.extend([view.query.as_str().into(), "NONE".into()]);
        // Rows are written to tables only.
        row.extend(std::iter::repeat_with(|| Cell::from(yes_or_no(false))).take(5));
        row.push(u64::from(table.id.0).into());
        row.push(table.schema.options.comment.clone().into());
        rows.push(row);
    }
    rows
}

fn columns(viewer: &Viewer) -> Vec<Vec<Cell>> {
    let catalog = viewer.catalog();
    let mut rows = Vec::new();
    for table in all_tables(&catalog) {
        let columns = (1_i64..).zip(&table.schema.columns);
        for (position, column) in columns.filter(|(_, column)| !column.is_hidden()) {
            let (precision, radix, scale) = number_digits(column.column_type);
            let digits = match column.column_type {
                ColumnType::Timestamp(unit, _) => Some(i64::from(unit.digits())),
                ColumnType::Time | ColumnType::Interval => Some(6),
                _ => None,
            };
            let (data_type, udt_name) = match (column.length, column.json) {
                (Some(TextLength { fixed: true, .. }), _) => ("character", "bpchar"),
                (Some(_), _) => ("character varying", "varchar"),
                (None, Some(json)) => (json.postgres(), json.postgres()),
                (None, None) => postgres_type(column.column_type),
            };
            let identity = match has_counter(column) {
                true => identity_of(&catalog, table, column.id),
                false => None,
            };
            // As in PostgreSQL, an identity is no default.
            let default = column.default.clone().filter(|_| identity.is_none());
            let mut row = names(table);
            row.extend([
                column.name.as_str().into(),
                position.into(),
                default.into(),
                yes_or_no(column.nullable).into(),
                data_type.into(),
                column.length.map(|length| i64::from(length.characters)).into(),
                precision.into(),
                radix.into(),
                scale.into(),
                digits.into(),
                CATALOG.into(),
                "pg_catalog".into(),
                udt_name.into(),
                column.type_sql().into(),
                column.column_type.arrow().to_string().into(),
                semantic(column).into(),
                (if column.generated.is_some() { "ALWAYS" } else { "NEVER" }).into(),
                column.generated.clone().into(),
                column.comment.clone().into(),
                yes_or_no(identity.is_some()).into(),
                identity.map(|kind| identity_text(kind).to_owned()).into(),
            ]);
            rows.push(row);
        }
    }
    rows
}

fn identity_text(identity: Identity) -> &'static str {
    match identity {
        Identity::Always => "ALWAYS",
        Identity::ByDefault => "BY DEFAULT",
    }
}

fn sequences(viewer: &Viewer) -> Vec<Vec<Cell>> {
    let row = |(database, sequence): (String, Arc<Sequence>)| {
        let options = sequence.options;
        let bits: i64 = match options.data_type {
            SequenceType::Small => 16,
            SequenceType::Integer => 32,
            SequenceType::Big => 64,
        };
        vec![
            CATALOG.into(),
            database.into(),
            sequence.name.as_str().into(),
            options.data_type.name().into(),
            bits.into(),
            2_i64.into(),
            0_i64.into(),
            options.start.to_string().into(),
            options.min_value.to_string().into(),
            options.max_value.to_string().into(),
            options.increment.to_string().into(),
            yes_or_no(options.cycle).into(),
        ]
    };
    // As in PostgreSQL, without those of identity columns.
    let is_identity = |sequence: &Sequence| sequence.column.is_some_and(|c| c.identity.is_some());
    let mut sequences = shown_sequences(viewer);
    sequences.retain(|(_, sequence)| !is_identity(sequence));
    sequences.into_iter().map(row).collect()
}

/// The type as PostgreSQL's clients know it: its name in the standard and in `pg_type`. Clients use it to choose
/// columns for times and for values. Unsigned integers map to the next larger signed type.
fn postgres_type(column_type: ColumnType) -> (&'static str, &'static str) {
    match column_type {
        ColumnType::Bool => ("boolean", "bool"),
        ColumnType::Int8 | ColumnType::UInt8 | ColumnType::Int16 => ("smallint", "int2"),
        ColumnType::Int32 | ColumnType::UInt16 => ("integer", "int4"),
        ColumnType::Int64 | ColumnType::UInt32 => ("bigint", "int8"),
        ColumnType::UInt64 | ColumnType::Decimal(..) => ("numeric", "numeric"),
        ColumnType::Float32 => ("real", "float4"),
        ColumnType::Float64 => ("double precision", "float8"),
        ColumnType::String => ("text", "text"),
        ColumnType::Binary => ("bytea", "bytea"),
        ColumnType::Date => ("date", "date"),
        ColumnType::Uuid => ("uuid", "uuid"),
        ColumnType::Time => ("time without time zone", "time"),
        ColumnType::Timestamp(_, false) => ("timestamp without time zone", "timestamp"),
        ColumnType::Timestamp(_, true) => ("timestamp with time zone", "timestamptz"),
        ColumnType::Interval => ("interval", "interval"),
        ColumnType::Array(element) => ("ARRAY", array_type(element)),
    }
}

/// Name of an array in `pg_type`.
fn array_type(element: Element) -> &'static str {
    match element {
        Element::Bool => "_bool",
        Element::Int16 => "_int2",
        Element::Int32 => "_int4",
        Element::Int64 => "_int8",
        Element::Float32 => "_float4",
        Element::Float64 => "_float8",
        Element::Decimal(..) => "_numeric",
        Element::String => "_text",
        Element::Date => "_date",
        Element::Timestamp(_, false) => "_timestamp",
        Element::Timestamp(_, true) => "_timestamptz",
        Element::Uuid => "_uuid",
    }
}

/// Digits of a number: how many, their base, and how many of them follow the point.
fn number_digits(column_type: ColumnType) -> (Option<i64>, Option<i64>, Option<i64>) {
    let bits = |bits| (Some(bits), Some(2), Some(0));
    match column_type {
        ColumnType::Int8 | ColumnType::UInt8 | ColumnType::Int16 => bits(16),
        ColumnType::Int32 | ColumnType::UInt16 => bits(32),
        ColumnType::Int64 | ColumnType::UInt32 => bits(64),
        // The digits of the largest number.
        ColumnType::UInt64 => (Some(20), Some(10), Some(0)),
        ColumnType::Decimal(precision, scale) => {
            (Some(i64::from(precision)), Some(10), Some(i64::from(scale)))
        }
        ColumnType::Float32 => (Some(24), Some(2), None),
        ColumnType::Float64 => (Some(53), Some(2), None),
        ColumnType::Bool
        | ColumnType::String
        | ColumnType::Binary
        | ColumnType::Date
        | ColumnType::Uuid
        | ColumnType::Time
        | ColumnType::Timestamp(..)
        | ColumnType::Interval
        | ColumnType::Array(_) => (None, None, None),
    }
}

fn yes_or_no(yes: bool) -> &'static str {
    if yes { "YES" } else { "NO" }
}

/// Cells that name the constraint of a table's key: catalog, database and constraint.
fn constraint(table: &Table) -> Vec<Cell> {
    named_constraint(table, &key_name(table))
}

/// Cells that name a constraint of a table: catalog, database and constraint.
fn named_constraint(table: &Table, name: &str) -> Vec<Cell> {
    vec![CATALOG.into(), table.database.as_str().into(), name.into()]
}

fn key_column_usage(viewer: &Viewer) -> Vec<Vec<Cell>> {
    let catalog = viewer.catalog();
    let mut rows = Vec::new();
    for table in all_tables(&catalog).filter(|table| has_key(table)) {
        for (position, column) in (1_i64..).zip(table.schema.key_columns()) {
            let mut row = constraint(table);
            row.extend(names(table));
            // The last one is of foreign keys.
            row.extend([column.name.as_str().into(), position.into(), None::<i64>.into()]);
            rows.push(row);
        }
    }
    rows
}

fn table_constraints(viewer: &Viewer) -> Vec<Vec<Cell>> {
    let catalog = viewer.catalog();
    let row = |table: &Table, name: &str, kind: &str| {
        let mut row = named_constraint(table, name);
        row.extend(names(table));
        row.extend([
            kind.into(),
            yes_or_no(false).into(),
            yes_or_no(false).into(),
            yes_or_no(true).into(),
            // Only of unique constraints.
            None::<String>.into(),
        ]);
        row
    };
    let mut rows = Vec::new();
    for table in all_tables(&catalog) {
        if has_key(table) {
            rows.push(row(table, &key_name(table), "PRIMARY KEY"));
        }
        rows.extend(table.schema.checks.iter().map(|check| row(table, &check.name, "CHECK")));
    }
    rows
}

fn check_constraints(viewer: &Viewer) -> Vec<Vec<Cell>> {
    let catalog = viewer.catalog();
    let mut rows = Vec::new();
    for table in all_tables(&catalog) {
        rows.extend(table.schema.checks.iter().map(|check| {
            let mut row = named_constraint(table, &check.name);
            row.push(format!("({})", check.expression).into());
            row
        }));
    }
    rows
}

fn constraint_table_usage(viewer: &Viewer) -> Vec<Vec<Cell>> {
    let catalog = viewer.catalog();
    let row = |table: &Arc<Table>| {
        let mut row = names(table);
        row.extend(constraint(table));
        row
    };
    all_tables(&catalog).filter(|table| has_key(table)).map(row).collect()
}

fn constraint_column_usage(viewer: &Viewer) -> Vec<Vec<Cell>> {
    let catalog = viewer.catalog();
    let mut rows = Vec::new();
    for table in all_tables(&catalog).filter(|table| has_key(table)) {
        for column in table.schema.key_columns() {
            let mut row = names(table);
            row.push(column.name.as_str().into());
            row.extend(constraint(table));
            rows.push(row);
        }
    }
    rows
}

/// Rows in append mode may share a key, so their key is not a constraint; nor is a hidden one.
pub(crate) fn has_key(table: &Table) -> bool {
    let schema = &table.schema;
    !schema.options.append_mode && !schema.key.is_empty() && !schema.is_keyless()
}

fn partitions(viewer: &Viewer) -> Vec<Vec<Cell>> {
    let catalog = viewer.catalog();
    use partita_proto::placement::Placement;
    let mut rows = Vec::new();
    // The bounds of partitions are keys of rows.
    let is_whole = |table: &&Arc<Table>| viewer.sight_of(table.id) == Sight::All;
    for table in all_tables(&catalog).filter(is_whole) {
        // Only rules have expressions; ranges and buckets are in the description.
        let (method, expressions): (&str, Vec<String>) = match &table.placement {
            Placement::Range => ("RANGE", Vec::new()),
            Placement::Hash { .. } => ("HASH", Vec::new()),
            Placement::Rules { rules, .. } => {
                ("EXPRESSION", rules.iter().map(|rule| rule.to_sql(&table.schema)).collect())
            }
        };
        for (position, route) in (1_i64..).zip(table.partitions.routes()) {
            let rule = route.range.start.placement.map_or(0, usize::from);
            let start = bound_text(table, &route.range.start);
            let end = bound_text(table, &route.range.end);
            let range = format!(
                "[{}, {})",
                start.as_deref().unwrap_or("-inf"),
                end.as_deref().unwrap_or("+inf")
            );
            let mut row = names(table);
            row.extend([
                format!("p{}", position - 1).into(),
                position.into(),
                method.into(),
                expressions.get(rule).cloned().into(),
                range.into(),
                route.partition.0.into(),
            ]);
            rows.push(row);
        }
    }
    rows
}

/// Rights on visible tables that a role of the viewer granted or has; those granted to PUBLIC only if `public`.
fn granted(viewer: &Viewer, public: bool) -> Vec<Vec<Cell>> {
    let (catalog, access) = (viewer.catalog(), viewer.access());
    let enabled = role_closure(&access, current_role(viewer), true);
    let mut rows = Vec::new();
    for table in all_tables(&catalog) {
        for privilege in privileges_of(viewer, table) {
            let is_named = enabled.contains(&privilege.grantor)
                || privilege.grantee.map_or(public, |grantee| enabled.contains(&grantee));
            if !is_named {
                continue;
            }
            let grantee = privilege.grantee.map(|grantee| role_name(&access, grantee));
            for action in privilege.actions.iter() {
                let mut row: Vec<Cell> = vec![
                    role_name(&access, privilege.grantor).into(),
                    grantee.clone().unwrap_or_else(|| "PUBLIC".to_owned()).into(),
                ];
                row.extend(names(table));
                row.extend([
                    action.name().into(),
                    yes_or_no(privilege.grantable.contains(action)).into(),
                    yes_or_no(action == Action::Select).into(),
                ]);
                rows.push(row);
            }
        }
    }
    rows
}

fn table_privileges(viewer: &Viewer) -> Vec<Vec<Cell>> {
    granted(viewer, true)
}

fn role_table_grants(viewer: &Viewer) -> Vec<Vec<Cell>> {
    granted(viewer, false)
}

fn enabled_roles(viewer: &Viewer) -> Vec<Vec<Cell>> {
    let (access, current) = (viewer.access(), current_role(viewer));
    let is_shown = |role: &RoleId| {
        *role == current || access.role(*role).is_some_and(|role| shows_role(viewer, role))
    };
    let roles = role_closure(&access, current, true).into_iter().filter(is_shown);
    roles.map(|role| vec![role_name(&access, role).into()]).collect()
}

fn applicable_roles(viewer: &Viewer) -> Vec<Vec<Cell>> {
    let access = viewer.access();
    let mut rows = Vec::new();
    for member in role_closure(&access, current_role(viewer), false) {
        let Some(member) = access.role(member) else { continue };
        for membership in &member.member_of {
            let Some(group) = access.role(membership.role) else { continue };
            if shows_role(viewer, group) {
                rows.push(vec![
                    member.name.as_str().into(),
                    group.name.as_str().into(),
                    yes_or_no(membership.admin_option).into(),
                ]);
            }
        }
    }
    rows
}
