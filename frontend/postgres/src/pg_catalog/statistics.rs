//! The tables of `pg_catalog` that say what the server does: sessions, and figures of databases, tables and indexes.
//!
//! Sessions are those of this frontend, as its viewer may see them. Figures that nothing counts are NULL, where PostgreSQL
//! has 0. Tables of things that do not exist here (locks, prepared transactions, rules, policies) have columns and no rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use partita_frontend::SessionActivity;
use partita_frontend::access::viewer::Viewer;
use partita_frontend::held::{HeldCursor, HeldStatement, ParameterTypes};
use partita_frontend::privileges::sees_all;
use partita_proto::access::Door;
use partita_proto::catalog::Table;

use super::cells::Kind::{Bool, Float8, Int2, Int4, Int8, Oid, Text, Texts, Time};
use super::cells::{Cell, Columns, Row};
use super::objects::{
    Objects, database_oid, has_key, indexes_of, key_name, key_oid, role_oid, table_oid,
};
use crate::types::{of_arrow, type_name};

pub(super) const PG_STAT_ACTIVITY: Columns = &[
    ("datid", Oid),
    ("datname", Text),
    ("pid", Int4),
    ("leader_pid", Int4),
    ("usesysid", Oid),
    ("usename", Text),
    ("application_name", Text),
    ("client_addr", Text),
    ("client_hostname", Text),
    ("client_port", Int4),
    ("backend_start", Time),
    ("xact_start", Time),
    ("query_start", Time),
    ("state_change", Time),
    ("wait_event_type", Text),
    ("wait_event", Text),
    ("state", Text),
    ("backend_xid", Int8),
    ("backend_xmin", Int8),
    ("query_id", Int8),
    ("query", Text),
    ("backend_type", Text),
];

pub(super) const PG_STAT_DATABASE: Columns = &[
    ("datid", Oid),
    ("datname", Text),
    ("numbackends", Int4),
    ("xact_commit", Int8),
    ("xact_rollback", Int8),
    ("blks_read", Int8),
    ("blks_hit", Int8),
    ("tup_returned", Int8),
    ("tup_fetched", Int8),
    ("tup_inserted", Int8),
    ("tup_updated", Int8),
    ("tup_deleted", Int8),
    ("conflicts", Int8),
    ("temp_files", Int8),
    ("temp_bytes", Int8),
    ("deadlocks", Int8),
    ("checksum_failures", Int8),
    ("checksum_last_failure", Time),
    ("blk_read_time", Float8),
    ("blk_write_time", Float8),
    ("session_time", Float8),
    ("active_time", Float8),
    ("idle_in_transaction_time", Float8),
    ("sessions", Int8),
    ("sessions_abandoned", Int8),
    ("sessions_fatal", Int8),
    ("sessions_killed", Int8),
    ("stats_reset", Time),
];

pub(super) const PG_STAT_TABLES: Columns = &[
    ("relid", Oid),
    ("schemaname", Text),
    ("relname", Text),
    ("seq_scan", Int8),
    ("last_seq_scan", Time),
    ("seq_tup_read", Int8),
    ("idx_scan", Int8),
    ("last_idx_scan", Time),
    ("idx_tup_fetch", Int8),
    ("n_tup_ins", Int8),
    ("n_tup_upd", Int8),
    ("n_tup_del", Int8),
    ("n_tup_hot_upd", Int8),
    ("n_tup_newpage_upd", Int8),
    ("n_live_tup", Int8),
    ("n_dead_tup", Int8),
    ("n_mod_since_analyze", Int8),
    ("n_ins_since_vacuum", Int8),
    ("last_vacuum", Time),
    ("last_autovacuum", Time),
    ("last_analyze", Time),
    ("last_autoanalyze", Time),
    ("vacuum_count", Int8),
    ("autovacuum_count", Int8),
    ("analyze_count", Int8),
    ("autoanalyze_count", Int8),
];

pub(super) const PG_STAT_INDEXES: Columns = &[
    ("relid", Oid),
    ("indexrelid", Oid),
    ("schemaname", Text),
    ("relname", Text),
    ("indexrelname", Text),
    ("idx_scan", Int8),
    ("last_idx_scan", Time),
    ("idx_tup_read", Int8),
    ("idx_tup_fetch", Int8),
];

const PG_LOCKS: Columns = &[
    ("locktype", Text),
    ("database", Oid),
    ("relation", Oid),
    ("page", Int4),
    ("tuple", Int2),
    ("virtualxid", Text),
    ("transactionid", Int8),
    ("classid", Oid),
    ("objid", Oid),
    ("objsubid", Int2),
    ("virtualtransaction", Text),
    ("pid", Int4),
    ("mode", Text),
    ("granted", Bool),
    ("fastpath", Bool),
    ("waitstart", Time),
];

const PG_PREPARED_XACTS: Columns = &[
    ("transaction", Int8),
    ("gid", Text),
    ("prepared", Time),
    ("owner", Text),
    ("database", Text),
];

const PG_AVAILABLE_EXTENSIONS: Columns =
    &[("name", Text), ("default_version", Text), ("installed_version", Text), ("comment", Text)];

const PG_RULES: Columns =
    &[("schemaname", Text), ("tablename", Text), ("rulename", Text), ("definition", Text)];

const PG_POLICIES: Columns = &[
    ("schemaname", Text),
    ("tablename", Text),
    ("policyname", Text),
    ("permissive", Text),
    ("roles", Texts),
    ("cmd", Text),
    ("qual", Text),
    ("with_check", Text),
];

pub(super) const PG_PREPARED_STATEMENTS: Columns = &[
    ("name", Text),
    ("statement", Text),
    ("prepare_time", Time),
    ("parameter_types", Texts),
    ("from_sql", Bool),
    ("generic_plans", Int8),
    ("custom_plans", Int8),
];

pub(super) const PG_CURSORS: Columns = &[
    ("name", Text),
    ("statement", Text),
    ("is_holdable", Bool),
    ("is_binary", Bool),
    ("is_scrollable", Bool),
    ("creation_time", Time),
];

/// Rows of `pg_prepared_statements`: those of the session.
pub(super) fn prepared_statements(viewer: &Viewer) -> Vec<Row> {
    let row = |(name, statement): (String, HeldStatement)| -> Row {
        let types = match statement.parameter_types {
            ParameterTypes::Named(names) => names,
            ParameterTypes::Arrow(types) => {
                types.iter().map(|data_type| type_name(&of_arrow(data_type), -1)).collect()
            }
        };
        vec![
            ("name", name.into()),
            ("statement", statement.text.into()),
            ("prepare_time", Cell::Time(statement.since_ms)),
            ("parameter_types", Cell::Texts(types)),
            ("from_sql", statement.is_sql.into()),
        ]
    };
    viewer.held().statements().into_iter().map(row).collect()
}

/// Rows of `pg_cursors`: those of the session that DECLARE opened.
pub(super) fn cursors(viewer: &Viewer) -> Vec<Row> {
    let row = |(name, cursor): (String, HeldCursor)| -> Row {
        vec![
            ("name", name.into()),
            ("statement", cursor.text.into()),
            ("is_holdable", cursor.is_holdable.into()),
            ("is_binary", false.into()),
            ("is_scrollable", cursor.is_scrollable.into()),
            ("creation_time", Cell::Time(cursor.since_ms)),
        ]
    };
    viewer.held().cursors().into_iter().map(row).collect()
}

/// Tables of things that do not exist here, by name.
pub(super) const EMPTY: [(&str, Columns); 5] = [
    ("pg_available_extensions", PG_AVAILABLE_EXTENSIONS),
    ("pg_locks", PG_LOCKS),
    ("pg_policies", PG_POLICIES),
    ("pg_prepared_xacts", PG_PREPARED_XACTS),
    ("pg_rules", PG_RULES),
];

/// The sessions that a viewer sees; none after the end of the frontend.
fn sessions(objects: &Objects, viewer: &Viewer) -> Vec<SessionActivity> {
    objects.frontend().map(|frontend| frontend.activities(viewer)).unwrap_or_default()
}

/// Rows of `pg_stat_activity`.
pub(super) fn activity(objects: &Objects, viewer: &Viewer) -> Vec<Row> {
    let catalog = viewer.catalog();
    let time = |milliseconds: Option<i64>| milliseconds.map_or(Cell::Null, Cell::Time);
    let row = |session: SessionActivity| -> Row {
        let database = catalog.databases.get(&session.database);
        let kind = match session.door {
            Door::Postgres | Door::Http | Door::Flight => "client backend",
            Door::Internal => "background worker",
        };
        vec![
            ("datid", database.map(|database| database_oid(database)).into()),
            ("datname", session.database.into()),
            ("pid", session.pid.into()),
            ("usesysid", role_oid(session.login).into()),
            ("usename", session.user.into()),
            ("application_name", session.application.into()),
            ("client_addr", session.peer.map(|peer| peer.to_string()).into()),
            ("backend_start", Cell::Time(session.since_ms)),
            ("xact_start", time(session.transaction_ms)),
            ("query_start", time(session.query_ms)),
            ("state_change", Cell::Time(session.changed_ms)),
            ("state", session.state.into()),
            ("query", session.query.into()),
            ("backend_type", kind.into()),
        ]
    };
    sessions(objects, viewer).into_iter().map(row).collect()
}

/// Rows of `pg_stat_database`.
pub(super) fn databases(objects: &Objects, viewer: &Viewer) -> Vec<Row> {
    let sessions = sessions(objects, viewer);
    let catalog = viewer.catalog();
    let row = |database: &Arc<partita_proto::catalog::Database>| -> Row {
        let count = sessions.iter().filter(|session| session.database == database.name).count();
        vec![
            ("datid", database_oid(database).into()),
            ("datname", database.name.as_str().into()),
            ("numbackends", i32::try_from(count).unwrap_or(i32::MAX).into()),
        ]
    };
    catalog.databases.values().map(row).collect()
}

/// Rows of `pg_stat_user_tables` and `pg_stat_all_tables`.
pub(super) fn tables(objects: &Objects, viewer: &Viewer) -> Vec<Row> {
    let frontend = objects.frontend();
    let row = |table: &Arc<Table>| -> Row {
        // The estimate counts all rows, so only those who see all of them see it.
        let measured = frontend.as_ref().filter(|_| sees_all(viewer, table.id));
        let rows = measured.and_then(|frontend| frontend.about_rows(table));
        let rows = rows.map(|rows| i64::try_from(rows).unwrap_or(i64::MAX));
        vec![
            ("relid", table_oid(table).into()),
            ("schemaname", table.database.as_str().into()),
            ("relname", table.name.as_str().into()),
            ("n_live_tup", rows.into()),
        ]
    };
    let catalog = viewer.catalog();
    let tables = catalog.tables.values().flat_map(BTreeMap::values);
    tables.filter(|table| table.schema.view.is_none()).map(row).collect()
}

/// Rows of `pg_stat_user_indexes` and `pg_stat_all_indexes`.
pub(super) fn indexes(_: &Objects, viewer: &Viewer) -> Vec<Row> {
    let row = |table: &Table, oid: i32, name: String| -> Row {
        vec![
            ("relid", table_oid(table).into()),
            ("indexrelid", oid.into()),
            ("schemaname", table.database.as_str().into()),
            ("relname", table.name.as_str().into()),
            ("indexrelname", name.into()),
        ]
    };
    let catalog = viewer.catalog();
    let mut rows = Vec::new();
    for table in catalog.tables.values().flat_map(BTreeMap::values) {
        if has_key(table) {
            rows.push(row(table, key_oid(table), key_name(table)));
        }
        let of_columns = indexes_of(table);
        rows.extend(
            of_columns.map(|indexed| row(table, indexed.oid(table), indexed.index.name.clone())),
        );
    }
    rows
}
