//! `sys`: the system tables of the frontend and the nodes.
//!
//! `sys.partitions` joins the catalog's partition map with the reports of the leaders. A partition without a leader
//! shows the report of one of its replicas, or NULL if none of its nodes answers; it never fails the query.
//!
//! Invariants: a table, and all that is known about it, is listed for those who may see it, and figures about its rows
//! only for those who see all of its rows; the nodes, and the work of others, for those who monitor the cluster.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::id::NodeId;
use partita_proto::load::{Instant, LoadReport, LoadRequest};
use partita_proto::route::Route;
use partita_proto::service::ReplicaStatus;

use crate::access::viewer::Viewer;
use crate::advisor::table as advisor;
use crate::advisor::thresholds::{self, ADVICE_THRESHOLDS};
use crate::audit::table as audit_table;
use crate::bound_text::bound_text;
use crate::cluster;
use crate::columns;
use crate::copies::{rekeyings, table as copies};
use crate::error::SqlError;
use crate::index_usage::INDEX_USAGE;
use crate::large_rows::{LARGE_ROWS, large_rows};
use crate::load::{Names, balance, stats, tables as load};
use crate::privileges::{self, sees_all};
use crate::query_log::QueryLog;
use crate::rejected_points::REJECTED_POINTS;
use crate::series::{self, SeriesHistory};
use crate::sources::Sources;
use crate::statements::STATEMENTS;
use crate::statuses::{leader, measured_statuses, statuses};
use crate::tasks::tables as tasks;
use crate::view::ClusterView;
use crate::virtual_table::{Cell, Kind, VirtualTable, batch, schema};

/// Schema of the system tables.
pub const SYSTEM: &str = "sys";

/// Columns of `sys.partitions`.
const PARTITIONS: &[(&str, Kind)] = &[
    ("database", Kind::Text),
    ("table", Kind::Text),
    ("partition", Kind::Count),
    ("node", Kind::Count),
    ("leader", Kind::Flag),
    ("replicas", Kind::Count),
    ("epoch", Kind::Count),
    ("start_key", Kind::Text),
    ("end_key", Kind::Text),
    ("rows", Kind::Count),
    ("bytes", Kind::Count),
    ("memtable_bytes", Kind::Count),
    ("files", Kind::Count),
    ("row_writes", Kind::Count),
    ("write_bytes", Kind::Count),
    ("writes", Kind::Count),
    ("range_reads", Kind::Count),
    ("range_read_rows", Kind::Count),
    ("rejected_overload", Kind::Count),
    ("applied_index", Kind::Count),
    ("flushed_index", Kind::Count),
    ("failure", Kind::Text),
];

/// Columns of `sys.tables`.
const TABLES: &[(&str, Kind)] = &[
    ("database", Kind::Text),
    ("table", Kind::Text),
    ("table_id", Kind::Count),
    ("schema_version", Kind::Count),
    ("partitions", Kind::Count),
    ("placement", Kind::Text),
    ("append_mode", Kind::Flag),
    ("merge_mode", Kind::Text),
    ("rows", Kind::Count),
    ("bytes", Kind::Count),
];

/// Columns of `sys.counters`.
const COUNTERS: &[(&str, Kind)] = &[("name", Kind::Text), ("value", Kind::Count)];

/// The catalog with the tables of which a viewer sees all rows: figures about others are hidden, because they count
/// rows that it may not see.
fn measured(viewer: &Viewer) -> Arc<Catalog> {
    let catalog = viewer.catalog();
    let is_hidden = |table: &Arc<Table>| !sees_all(viewer, table.id);
    if !catalog.tables.values().flat_map(BTreeMap::values).any(is_hidden) {
        return catalog;
    }
    let mut reduced = Catalog::clone(&catalog);
    for tables in reduced.tables.values_mut() {
        tables.retain(|_, table| !is_hidden(table));
    }
    Arc::new(reduced)
}

/// The rows of a table about the cluster as a whole; none unless the viewer monitors it.
fn monitored(
    viewer: &Viewer,
    columns: &[(&str, Kind)],
    rows: impl FnOnce() -> Result<RecordBatch, SqlError>,
) -> Result<RecordBatch, SqlError> {
    if viewer.monitors() { rows() } else { batch(&schema(columns), Vec::new()) }
}

/// Tables of `sys`.
pub(crate) fn tables(sources: &Sources) -> BTreeMap<&'static str, Arc<VirtualTable>> {
    // Each table keeps its own handle to its source.
    let view = Arc::clone(&sources.view);
    let partitions = VirtualTable::new(schema(PARTITIONS), move |viewer| {
        let view = Arc::clone(&view);
        async move { partitions(&view, &measured(&viewer)).await }
    });
    let view = Arc::clone(&sources.view);
    let tables = VirtualTable::new(schema(TABLES), move |viewer| {
        let view = Arc::clone(&view);
        async move { table_rows(&view, &viewer).await }
    });
    let log = Arc::clone(&sources.query_log);
    let query_log = VirtualTable::new(QueryLog::schema(), move |viewer| {
        let log = Arc::clone(&log);
        let owner = if viewer.monitors() { None } else { Some(viewer.identity()) };
        async move { log.batch(owner) }
    });
    let recorder = Arc::clone(&sources.audit);
    let audit = VirtualTable::new(schema(audit_table::AUDIT), move |viewer| {
        let recorder = Arc::clone(&recorder);
        async move { audit_table::rows(&recorder, &viewer) }
    });
    let points = Arc::clone(&sources.rejected_points);
    let rejected_points = VirtualTable::new(schema(REJECTED_POINTS), move |viewer| {
        let points = Arc::clone(&points);
        async move { points.batch(&viewer) }
    });
    let view = Arc::clone(&sources.view);
    let counters = VirtualTable::new(schema(COUNTERS), move |viewer| {
        let view = Arc::clone(&view);
        async move { monitored(&viewer, COUNTERS, || counters(&view)) }
    });
    let view = Arc::clone(&sources.view);
    let replicas = VirtualTable::new(schema(cluster::REPLICAS), move |viewer| {
        let view = Arc::clone(&view);
        async move { cluster::replicas(&view, &measured(&viewer)).await }
    });
    let states = Arc::clone(&sources.copies);
    let copies = VirtualTable::new(schema(copies::COPIES), move |viewer| {
        let states = Arc::clone(&states);
        async move { copies::rows(&states, &viewer) }
    });
    let view = Arc::clone(&sources.view);
    let nodes = VirtualTable::new(schema(cluster::NODES), move |viewer| {
        let members = view.members();
        async move { monitored(&viewer, cluster::NODES, || cluster::nodes(&members)) }
    });
    let meta = Arc::clone(&sources.meta);
    let metas = VirtualTable::new(schema(cluster::METAS), move |viewer| {
        let meta = Arc::clone(&meta);
        async move {
            let members = if viewer.monitors() { meta.metas().await } else { Vec::new() };
            cluster::metas(&members)
        }
    });
    let view = Arc::clone(&sources.view);
    let history = Arc::new(SeriesHistory::default());
    let series = VirtualTable::new(schema(series::SERIES), move |viewer| {
        let (view, history) = (Arc::clone(&view), Arc::clone(&history));
        async move { series::series(&view, &history, &measured(&viewer)).await }
    });
    let view = Arc::clone(&sources.view);
    let series_tags = VirtualTable::new(schema(series::SERIES_TAGS), move |viewer| {
        let view = Arc::clone(&view);
        async move { series::series_tags(&view, &measured(&viewer)).await }
    });
    let mut system_tables = BTreeMap::from([
        ("nodes", nodes),
        ("metas", metas),
        ("replicas", replicas),
        ("partitions", partitions),
        ("tables", tables),
        ("copies", copies),
        ("rekeyings", of_access(rekeyings::REKEYINGS, rekeyings::rows)),
        ("series", series),
        ("series_tags", series_tags),
        ("query_log", query_log),
        ("audit", audit),
        ("rejected_points", rejected_points),
        ("counters", counters),
        ("roles", of_access(privileges::ROLES, privileges::roles)),
        ("grants", of_access(privileges::GRANTS, privileges::grants)),
        ("tokens", of_access(privileges::TOKENS, privileges::tokens)),
        ("tasks", of_access(tasks::TASKS, tasks::tasks)),
        ("task_runs", of_access(tasks::TASK_RUNS, tasks::task_runs)),
    ]);
    system_tables.extend(load_tables(sources));
    system_tables.extend(workload_tables(sources));
    system_tables
}

/// Tables about columns, indexes and statements, and the advice that follows from them.
fn workload_tables(sources: &Sources) -> Vec<(&'static str, Arc<VirtualTable>)> {
    let view = Arc::clone(&sources.view);
    let measures = VirtualTable::new(schema(columns::COLUMNS), move |viewer| {
        let view = Arc::clone(&view);
        async move { columns::columns(&view, &measured(&viewer)).await }
    });
    let view = Arc::clone(&sources.view);
    let builds = VirtualTable::new(schema(columns::INDEX_BUILDS), move |viewer| {
        let view = Arc::clone(&view);
        async move { columns::index_builds(&view, &measured(&viewer)).await }
    });
    let view = Arc::clone(&sources.view);
    let large = VirtualTable::new(schema(LARGE_ROWS), move |viewer| {
        let view = Arc::clone(&view);
        async move { large_rows(&view, &measured(&viewer)).await }
    });
    let shapes = Arc::clone(&sources.statements);
    let statements = VirtualTable::new(schema(STATEMENTS), move |viewer| {
        let shapes = Arc::clone(&shapes);
        async move { shapes.batch(&viewer) }
    });
    let handles = sources.clone();
    let usage = VirtualTable::new(schema(INDEX_USAGE), move |viewer| {
        let handles = handles.clone();
        async move { index_usage(&handles, &measured(&viewer)).await }
    });
    let handles = sources.clone();
    let advice = VirtualTable::new(schema(advisor::ADVICE), move |viewer| {
        let handles = handles.clone();
        async move { advisor::advice(&handles, &viewer, &measured(&viewer)).await }
    });
    let handles = sources.clone();
    let history = VirtualTable::new(schema(advisor::ADVICE_HISTORY), move |viewer| {
        let handles = handles.clone();
        async move { advisor::advice_history(&handles, &viewer, &measured(&viewer)).await }
    });
    vec![
        ("columns", measures),
        ("index_builds", builds),
        ("large_rows", large),
        ("statements", statements),
        ("index_usage", usage),
        ("advice", advice),
        ("advice_history", history),
        ("advice_thresholds", of_access(ADVICE_THRESHOLDS, thresholds::rows)),
    ]
}

async fn index_usage(sources: &Sources, catalog: &Catalog) -> Result<RecordBatch, SqlError> {
    sources.index_usage.retain(&sources.view.catalog());
    let statuses = measured_statuses(sources.view.nodes().as_ref()).await;
    let tables = catalog.tables.values().flat_map(BTreeMap::values);
    let mut sizes = HashMap::new();
    for table in tables {
        let (measures, _) = columns::merged(table, &statuses);
        for build in &measures.indexes {
            let bytes = sizes.entry((table.id, build.column, build.kind)).or_insert(0_u64);
            *bytes = bytes.saturating_add(build.bytes);
        }
    }
    sources
        .index_usage
        .batch(catalog, |table, column, kind| sizes.get(&(table.id, column, kind)).copied())
}

/// A table of roles, rights, tasks, settings or re-keyings, which need no source but the viewer.
fn of_access(
    columns: &'static [(&'static str, Kind)],
    rows: fn(&Viewer) -> Result<RecordBatch, SqlError>,
) -> Arc<VirtualTable> {
    VirtualTable::new(schema(columns), move |viewer| async move { rows(&viewer) })
}

/// A table of a load report: name, columns, rows.
type OfLoad = (
    &'static str,
    &'static [(&'static str, Kind)],
    fn(&LoadReport, &Catalog) -> Result<RecordBatch, SqlError>,
);

/// Tables that need only the present report and the catalog.
const OF_LOAD: [OfLoad; 6] = [
    ("partition_load", load::PARTITION_LOAD, load::partition_load),
    ("split_events", load::SPLIT_EVENTS, load::split_events),
    ("forecasts", load::FORECASTS, load::forecasts),
    ("balance_events", load::BALANCE_EVENTS, load::balance_events),
    ("hot_keys", load::HOT_KEYS, load::hot_keys),
    ("node_load", load::NODE_LOAD, |report, _| load::node_load(report)),
];

/// Tables that need the report with its history.
const OF_HISTORY: [OfLoad; 2] = [
    ("partition_load_history", load::PARTITION_LOAD_HISTORY, load::partition_load_history),
    ("top_partitions_one_minute", stats::TOP_PARTITIONS, stats::top_partitions),
];

/// A load report without what only those who monitor the cluster see: nodes, statements and clients, and events of
/// tables that are not in the catalog.
fn shown(report: Arc<LoadReport>, catalog: &Catalog, viewer: &Viewer) -> Arc<LoadReport> {
    if viewer.monitors() {
        return report;
    }
    let names = Names::new(catalog);
    let mut reduced = LoadReport::clone(&report);
    reduced.nodes.clear();
    reduced.hot_causes.clear();
    reduced.balances.retain(|event| names.table_of(event.partition).is_some());
    Arc::new(reduced)
}

fn load_tables(sources: &Sources) -> Vec<(&'static str, Arc<VirtualTable>)> {
    let present = OF_LOAD.map(|table| (table, LoadRequest::default()));
    let whole_history = LoadRequest { history_since: Some(Instant(0)), ..LoadRequest::default() };
    let historical = OF_HISTORY.map(|table| (table, whole_history));
    let mut tables: Vec<_> = present
        .into_iter()
        .chain(historical)
        .map(|((name, columns, rows), request)| {
            let loads = Arc::clone(&sources.loads);
            let table = VirtualTable::new(schema(columns), move |viewer| {
                let loads = Arc::clone(&loads);
                async move {
                    let catalog = measured(&viewer);
                    let report = shown(loads.ask(request).await?, &catalog, &viewer);
                    rows(&report, &catalog)
                }
            });
            (name, table)
        })
        .collect();
    let handles = sources.clone();
    let hot = VirtualTable::new(schema(load::HOT_PARTITIONS), move |viewer| {
        let handles = handles.clone();
        async move { hot_partitions(&handles, &viewer).await }
    });
    tables.push(("hot_partitions", hot));
    let loads = Arc::clone(&sources.loads);
    let causes = VirtualTable::new(schema(load::HOT_CAUSES), move |viewer| {
        let loads = Arc::clone(&loads);
        async move {
            let catalog = measured(&viewer);
            let report = shown(loads.ask(LoadRequest::default()).await?, &catalog, &viewer);
            load::hot_causes(&report, &catalog)
        }
    });
    tables.push(("hot_causes", causes));
    let handles = sources.clone();
    let balance = VirtualTable::new(schema(balance::TABLE_BALANCE), move |viewer| {
        let handles = handles.clone();
        async move {
            let catalog = measured(&viewer);
            let report = handles.loads.ask(LoadRequest::default()).await?;
            balance::table_balance(&shown(report, &catalog, &viewer), &catalog, &handles.query_log)
        }
    });
    tables.push(("table_balance", balance));
    let handles = sources.clone();
    let stats = VirtualTable::new(schema(stats::PARTITION_STATS), move |viewer| {
        let handles = handles.clone();
        async move {
            // Counters come from the nodes, and do not need meta.
            let report = handles.loads.ask(LoadRequest::default()).await.ok();
            let statuses = statuses(handles.view.nodes().as_ref()).await;
            stats::partition_stats(report.as_deref(), &measured(&viewer), &statuses)
        }
    });
    tables.push(("partition_stats", stats));
    tables
}

async fn hot_partitions(sources: &Sources, viewer: &Viewer) -> Result<RecordBatch, SqlError> {
    let catalog = measured(viewer);
    let report = sources.loads.ask(LoadRequest::default()).await?;
    let tables = load::hot(&report, &catalog).into_iter().map(|(table, ..)| table.id).collect();
    let report = sources.loads.ask_with_samples(report, &tables).await?;
    let report = shown(report, &catalog, viewer);
    load::hot_partitions(&report, &catalog, |table| sources.statements.read_shapes(table))
}

fn partition_row(
    table: &Table,
    route: &Route,
    replica: Option<&(NodeId, ReplicaStatus)>,
) -> Vec<Cell> {
    let count = |read: &dyn Fn(&ReplicaStatus) -> u64| -> Cell {
        Cell::Count(replica.map(|(_, status)| read(status)))
    };
    let node = replica.map(|(node, _)| node.0).or(route.leader.map(|node| node.0));
    // Columns of a partition without a report are NULL.
    vec![
        table.database.as_str().into(),
        table.name.as_str().into(),
        route.partition.0.into(),
        node.into(),
        Cell::Flag(replica.map(|(_, status)| status.leader)),
        (route.replicas.len() as u64).into(),
        route.epoch.0.into(),
        bound_text(table, &route.range.start).into(),
        bound_text(table, &route.range.end).into(),
        count(&|status| status.rows),
        count(&|status| status.file_bytes),
        count(&|status| status.memtable_bytes),
        count(&|status| status.files),
        count(&|status| status.rows_written),
        count(&|status| status.bytes_written),
        count(&|status| status.writes),
        count(&|status| status.scans),
        count(&|status| status.rows_scanned),
        count(&|status| status.rejected),
        count(&|status| status.applied),
        count(&|status| status.flushed),
        replica.and_then(|(_, status)| status.failure.clone()).into(),
    ]
}

async fn partitions(view: &ClusterView, catalog: &Catalog) -> Result<RecordBatch, SqlError> {
    let statuses = statuses(view.nodes().as_ref()).await;
    let mut rows = Vec::new();
    for table in catalog.tables.values().flat_map(BTreeMap::values) {
        for route in table.partitions.routes() {
            let replicas = statuses.get(&route.partition).map_or(&[][..], Vec::as_slice);
            rows.push(partition_row(table, route, leader(replicas).or(replicas.first())));
        }
    }
    batch(&schema(PARTITIONS), rows)
}

async fn table_rows(view: &ClusterView, viewer: &Viewer) -> Result<RecordBatch, SqlError> {
    let statuses = statuses(view.nodes().as_ref()).await;
    let catalog = viewer.catalog();
    let mut rows = Vec::new();
    let tables = catalog.tables.values().flat_map(BTreeMap::values);
    for table in tables.filter(|table| table.schema.view.is_none()) {
        // Partitions follow from rows, so those who do not see all rows see no figure.
        let is_measured = sees_all(viewer, table.id);
        let routes = table.partitions.routes();
        let leaders = || routes.iter().filter_map(|route| leader(statuses.get(&route.partition)?));
        let sum = |read: fn(&ReplicaStatus) -> u64| -> Cell {
            let total = || leaders().map(|(_, status)| read(status)).sum::<u64>();
            Cell::Count(is_measured.then(total))
        };
        let placement = table.placement.to_sql(&table.schema, routes.len());
        let options = &table.schema.options;
        rows.push(vec![
            table.database.as_str().into(),
            table.name.as_str().into(),
            u64::from(table.id.0).into(),
            u64::from(table.schema.version.0).into(),
            Cell::Count(is_measured.then_some(routes.len() as u64)),
            placement.filter(|_| is_measured).into(),
            options.append_mode.into(),
            options.merge_mode.sql().into(),
            sum(|status| status.rows),
            sum(|status| status.file_bytes),
        ]);
    }
    batch(&schema(TABLES), rows)
}

fn counters(view: &ClusterView) -> Result<RecordBatch, SqlError> {
    let rows = view
        .metrics()
        .counters()
        .into_iter()
        .map(|(name, value)| vec![name.into(), value.into()])
        .collect();
    batch(&schema(COUNTERS), rows)
}
