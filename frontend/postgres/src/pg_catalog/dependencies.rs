//! Tables of `pg_catalog` by which `pg_dump` and others find out what depends on what, and what sequences are like.
//!
//! ```text
//!   a view ─────────▶ the tables and views that it reads      n
//!   a default ──────▶ the sequence that it takes numbers of   n
//!   a sequence ─────▶ the column that owns it                 a, i for an identity column
//!   a table of sys ─▶ the extension                           e: comes with the server, and is not dumped
//! ```

use std::sync::Arc;

use partita_frontend::access::viewer::Viewer;
use partita_frontend::catalog::SYSTEM;
use partita_frontend::privileges::shown_sequences;
use partita_frontend::sql::sequence_statement::sequence_of;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::id::{BOOTSTRAP_ROLE, ColumnId};
use partita_proto::sequence::{Sequence, SequenceType};
use pgwire::api::Type;

use super::cells::Kind::{Bool, Char, Int4, Int8, Oid, Text, Texts};
use super::cells::{Columns, Row};
use super::objects::{
    Objects, PG_ATTRDEF, PG_CLASS, PG_EXTENSION, PG_NAMESPACE, attribute, default_oid, role_oid,
    sequence_oid, table_oid,
};

pub(super) const PG_DEPEND: Columns = &[
    ("classid", Oid),
    ("objid", Oid),
    ("objsubid", Int4),
    ("refclassid", Oid),
    ("refobjid", Oid),
    ("refobjsubid", Int4),
    ("deptype", Char),
];

pub(super) const PG_SEQUENCE: Columns = &[
    ("seqrelid", Oid),
    ("seqtypid", Oid),
    ("seqstart", Int8),
    ("seqincrement", Int8),
    ("seqmax", Int8),
    ("seqmin", Int8),
    ("seqcache", Int8),
    ("seqcycle", Bool),
];

const PG_INIT_PRIVS: Columns = &[
    ("objoid", Oid),
    ("classoid", Oid),
    ("objsubid", Int4),
    ("privtype", Char),
    ("initprivs", Texts),
];

const PG_SECLABELS: Columns = &[
    ("objoid", Oid),
    ("classoid", Oid),
    ("objsubid", Int4),
    ("objtype", Text),
    ("objnamespace", Oid),
    ("objname", Text),
    ("provider", Text),
    ("label", Text),
];

/// Tables that never have rows: there are neither initial privileges nor security labels.
pub(super) const EMPTY: [(&str, Columns); 2] =
    [("pg_init_privs", PG_INIT_PRIVS), ("pg_seclabels", PG_SECLABELS)];

/// Object id of the extension; one of PostgreSQL's own numbers, so that the extension is not dumped either.
const EXTENSION: i32 = 13_400;
/// Name of the extension.
const EXTENSION_NAME: &str = "partita";

/// One row of `pg_depend`: an object, what it depends on, and how.
struct Dependency<'a> {
    class: i32,
    object: i32,
    on_class: i32,
    on: i32,
    /// Number of a column; 0 for the whole object.
    on_column: i32,
    kind: &'a str,
}

impl Dependency<'_> {
    fn row(&self) -> Row {
        vec![
            ("classid", self.class.into()),
            ("objid", self.object.into()),
            ("objsubid", 0.into()),
            ("refclassid", self.on_class.into()),
            ("refobjid", self.on.into()),
            ("refobjsubid", self.on_column.into()),
            ("deptype", self.kind.into()),
        ]
    }
}

/// Rows of `pg_depend`.
pub(super) fn dependencies(objects: &Objects, viewer: &Viewer) -> Vec<Row> {
    let catalog = viewer.catalog();
    let on_extension = |class: i32, object: i32| Dependency {
        class,
        object,
        on_class: PG_EXTENSION,
        on: EXTENSION,
        on_column: 0,
        kind: "e",
    };
    let mut rows = vec![on_extension(PG_NAMESPACE, objects.schema_oid(&catalog, SYSTEM)).row()];
    for fixed in objects.fixed.iter().filter(|fixed| fixed.schema == SYSTEM) {
        rows.push(on_extension(PG_CLASS, fixed.oid).row());
    }
    let tables = || catalog.tables.values().flat_map(|tables| tables.values());
    for table in tables() {
        rows.extend(of_view(&catalog, table).map(|dependency| dependency.row()));
        rows.extend(of_defaults(&catalog, table).map(|dependency| dependency.row()));
    }
    for (_, sequence) in shown_sequences(viewer) {
        let Some(owned) = sequence.column else { continue };
        let Some(table) = tables().find(|table| table.id == owned.table) else { continue };
        let Some(number) = number_of(table, owned.column) else { continue };
        let dependency = Dependency {
            class: PG_CLASS,
            object: sequence_oid(&sequence),
            on_class: PG_CLASS,
            on: table_oid(table),
            on_column: number,
            kind: if owned.identity.is_some() { "i" } else { "a" },
        };
        rows.push(dependency.row());
    }
    rows
}

/// The number of a column, by its id.
fn number_of(table: &Table, column: ColumnId) -> Option<i32> {
    table.schema.shown().position(|present| present.id == column).map(attribute)
}

/// The tables and views that a view reads.
fn of_view<'a>(
    catalog: &'a Catalog,
    view: &'a Table,
) -> impl Iterator<Item = Dependency<'static>> + 'a {
    let reads = view.schema.view.iter().flat_map(|definition| &definition.reads);
    reads.filter_map(move |read| {
        let table = catalog.table(&read.database, &read.name)?;
        Some(Dependency {
            class: PG_CLASS,
            object: table_oid(view),
            on_class: PG_CLASS,
            on: table_oid(table),
            on_column: 0,
            kind: "n",
        })
    })
}

/// The sequences of which defaults of columns take numbers.
fn of_defaults<'a>(
    catalog: &'a Catalog,
    table: &'a Table,
) -> impl Iterator<Item = Dependency<'static>> + 'a {
    table.schema.shown().filter_map(move |column| {
        let name = sequence_of(column.default.as_deref()?)?;
        let database = catalog.databases.get(name.database_or(&table.database))?;
        let sequence = catalog.sequence(database.id, &name.name)?;
        Some(Dependency {
            class: PG_ATTRDEF,
            object: default_oid(table, column),
            on_class: PG_CLASS,
            on: sequence_oid(sequence),
            on_column: 0,
            kind: "n",
        })
    })
}

/// Rows of `pg_sequence`.
pub(super) fn sequences(viewer: &Viewer) -> Vec<Row> {
    let row = |(_, sequence): (String, Arc<Sequence>)| -> Row {
        let options = sequence.options;
        let data_type = match options.data_type {
            SequenceType::Small => Type::INT2,
            SequenceType::Integer => Type::INT4,
            SequenceType::Big => Type::INT8,
        };
        vec![
            ("seqrelid", sequence_oid(&sequence).into()),
            ("seqtypid", i32::try_from(data_type.oid()).unwrap_or(0).into()),
            ("seqstart", options.start.into()),
            ("seqincrement", options.increment.into()),
            ("seqmax", options.max_value.into()),
            ("seqmin", options.min_value.into()),
            ("seqcache", i64::try_from(options.cache).unwrap_or(i64::MAX).into()),
            ("seqcycle", options.cycle.into()),
        ]
    };
    shown_sequences(viewer).into_iter().map(row).collect()
}

/// The row of `pg_extension`: the tables of `sys` are its members, so that `pg_dump` leaves them out.
pub(super) fn extensions(objects: &Objects, viewer: &Viewer) -> Vec<Row> {
    vec![vec![
        ("oid", EXTENSION.into()),
        ("extname", EXTENSION_NAME.into()),
        ("extowner", role_oid(BOOTSTRAP_ROLE).into()),
        ("extnamespace", objects.schema_oid(&viewer.catalog(), SYSTEM).into()),
        ("extrelocatable", false.into()),
        ("extversion", env!("CARGO_PKG_VERSION").into()),
    ]]
}
