//! Facts about tables: the catalog, measures of partitions, series, load, statements and use of indexes, brought together.
//!
//! Invariant: figures only of tables of which the viewer sees all rows; statements only if it monitors the cluster, for they
//! are the work of others.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use partita_advice::designs::{
    Found, clauses, mean_cost, placed, qualified_statements, replay, today,
};
use partita_advice::{
    ClusterFacts, DesignFacts, HotKey, Measurements, MovingFacts, PartitionFacts, StatementShape,
    TableFacts,
};
use partita_load::{Class, Design, Shape};
use partita_proto::catalog::{Catalog, Table};
use partita_proto::id::{ColumnId, TableId};
use partita_proto::load::{HotKey as LoadedKey, LoadReport, LoadRequest, PartitionLoad};
use partita_proto::schema::{COLUMNS_MAX, Semantic};

use crate::access::viewer::{Viewer, now_ms};
use crate::advisor::state::{TableState, Totals};
use crate::bound_text::bound_text;
use crate::columns;
use crate::privileges::sees_all;
use crate::series;
use crate::sources::Sources;
use crate::statuses::{Statuses, leader, measured_statuses, series_statuses};

/// Maximum number of designs that are kept of a table: the best ones, and today's.
const DESIGNS_MAX: usize = 8;
/// Milliseconds of a day.
const DAY_MS: f64 = 86_400_000.0;

/// Reports from which facts are made.
struct Reports {
    measured: Statuses,
    series: Statuses,
    load: Option<Arc<LoadReport>>,
    /// Report with sampled keys, if the detector has a finding about a table.
    sampled: Option<Arc<LoadReport>>,
}

/// Tables of a catalog of which a viewer sees all rows, without views, and without those that only keep the rows of another
/// one from before a change of its placement.
fn tables<'c>(viewer: &Viewer, catalog: &'c Catalog) -> Vec<&'c Arc<Table>> {
    let all_tables = || catalog.tables.values().flat_map(BTreeMap::values);
    let former: HashSet<TableId> = all_tables().filter_map(|table| table.former).collect();
    let is_shown = |table: &&Arc<Table>| {
        let is_stored = !former.contains(&table.id) && table.schema.view.is_none();
        is_stored && sees_all(viewer, table.id)
    };
    all_tables().filter(is_shown).collect()
}

/// Names of the materialized copies of tables, in the order of the catalog.
fn copies(catalog: &Catalog) -> HashMap<TableId, Vec<String>> {
    let mut copies: HashMap<TableId, Vec<String>> = HashMap::new();
    for table in catalog.tables.values().flat_map(BTreeMap::values) {
        if let Some(copy) = &table.copy {
            copies.entry(copy.source).or_default().push(table.name.clone());
        }
    }
    copies
}

/// True if the detector has a finding about a partition.
fn has_finding(load: &PartitionLoad) -> bool {
    load.is_hot() || load.verdict.as_ref().is_some_and(|verdict| verdict.class.is_finding())
}

/// The load report, and the one with sampled keys if a table needs it. Absent if no meta answers.
async fn loads(sources: &Sources) -> (Option<Arc<LoadReport>>, Option<Arc<LoadReport>>) {
    let Ok(load) = sources.loads.ask(LoadRequest::default()).await else { return (None, None) };
    let partitions = load.partitions.iter().filter(|load| has_finding(load));
    let tables: BTreeSet<TableId> = partitions.map(|load| load.table).collect();
    if tables.is_empty() {
        return (Some(load), None);
    }
    let sampled = sources.loads.ask_with_samples(Arc::clone(&load), &tables).await;
    (Some(load), sampled.ok())
}

/// All that is known of the tables of a catalog that a viewer may know. What does not report is absent.
pub(crate) async fn measurements(
    sources: &Sources,
    viewer: &Viewer,
    catalog: &Catalog,
) -> Measurements {
    let nodes = sources.view.nodes();
    let (measured, series, (load, sampled)) = tokio::join!(
        measured_statuses(nodes.as_ref()),
        series_statuses(nodes.as_ref()),
        loads(sources),
    );
    let reports = Reports { measured, series, load, sampled };
    let (time, monitors) = (now_ms(), viewer.monitors());
    let mut copies = copies(catalog);
    let mut facts = Vec::new();
    for table in tables(viewer, catalog) {
        let copies = copies.remove(&table.id).unwrap_or_default();
        facts.push(table_facts(sources, (table, copies), &reports, time, monitors));
    }
    // The memory is everybody's: a viewer's catalog may lack tables of others.
    sources.advisor.retain(&sources.view.catalog());
    let members = sources.view.members();
    let live = members.values().filter(|member| member.live && !member.draining).count();
    Measurements {
        now_ms: time,
        tables: facts,
        statements: if monitors { sources.statements.shapes() } else { Vec::new() },
        settings: ClusterFacts {
            column_limit: COLUMNS_MAX as u64,
            cores: None,
            nodes: Some(live as u64).filter(|nodes| *nodes > 0 && monitors),
        },
    }
}

fn table_facts(
    sources: &Sources,
    (table, copies): (&Arc<Table>, Vec<String>),
    reports: &Reports,
    time_ms: i64,
    monitors: bool,
) -> TableFacts {
    let measures = columns::reported(table, &reports.measured);
    let is_complete = measures.iter().all(Option::is_some);
    let mut facts = TableFacts { copies, ..sources.advisor.facts.of(table, measures) };
    if is_complete {
        add_growth(&mut facts, sources, table, time_ms);
    }
    add_partitions(&mut facts, table, reports);
    add_series(&mut facts, sources, table, &reports.series, time_ms);
    if let Some(load) = &reports.load {
        add_load(&mut facts, table, load);
    }
    if let Some(sampled) = &reports.sampled {
        add_designs(&mut facts, sources, table, sampled);
    }
    if monitors {
        add_index_use(&mut facts, sources, table);
    }
    facts
}

/// Sizes of the partitions, by the reports of their leaders.
fn add_partitions(facts: &mut TableFacts, table: &Table, reports: &Reports) {
    let mut bytes: Option<u64> = None;
    for (partition, route) in facts.partitions.iter_mut().zip(table.partitions.routes()) {
        let replicas = reports.measured.get(&route.partition);
        let Some((_, status)) = replicas.and_then(|replicas| leader(replicas)) else { continue };
        partition.rows = status.rows;
        partition.bytes = status.file_bytes + status.memtable_bytes;
        bytes = Some(bytes.unwrap_or_default() + partition.bytes);
    }
    facts.bytes = bytes;
}

/// Growth of the distinct values of the tags; more columns would take too much memory.
fn add_growth(facts: &mut TableFacts, sources: &Sources, table: &Table, time_ms: i64) {
    for (column, figures) in table.schema.columns.iter().zip(&mut facts.columns) {
        if let Some(distinct) = figures.distinct.filter(|_| column.semantic == Semantic::Tag) {
            let tag = (table.id, column.id);
            figures.growth_per_hour = sources.advisor.growth_of_values(tag, time_ms, distinct);
        }
    }
}

fn add_series(
    facts: &mut TableFacts,
    sources: &Sources,
    table: &Table,
    statuses: &Statuses,
    time_ms: i64,
) {
    if table.schema.time_index().is_none() {
        return;
    }
    let series::Measured { figures, unknown_partitions } = series::measure(table, statuses);
    // Fewer series than there are would only hide a finding, but a growth between different partitions would make one.
    facts.series = Some(figures.series);
    facts.series_estimate = Some(figures.reduced);
    if unknown_partitions == 0 {
        facts.series_growth_per_hour = sources.advisor.growth(table.id, time_ms, figures.series);
    }
    let name = |id: ColumnId| table.schema.column_by_id(id).map(|column| column.name.clone());
    facts.dependent_tags = figures
        .tags
        .iter()
        .filter_map(|tag| Some((name(tag.column)?, name(tag.depends_on?)?)))
        .collect();
    // Rows that no split separates: those of one bucket, or of one value of the columns that are kept together.
    let is_wide =
        facts.bucket_seconds.is_some() || table.schema.options.partitioning.keep_together > 0;
    if let Some(rows) = facts.rows.filter(|_| is_wide && figures.tag_sets > 0) {
        facts.versions_per_key = Some(rows as f64 / figures.tag_sets as f64);
    }
}

fn add_load(facts: &mut TableFacts, table: &Table, report: &LoadReport) {
    let loads: Vec<&PartitionLoad> =
        report.partitions.iter().filter(|load| load.table == table.id).collect();
    for partition in &mut facts.partitions {
        let Some(load) = loads.iter().find(|load| load.partition.0 == partition.id) else {
            continue;
        };
        partition.writes_per_s = Some(load.rates.write_rows);
        partition.busy = Some(load.busy.s60);
        partition.hot = load.is_hot();
    }
    // Keys that grow go to the last partition.
    let last = facts.partitions.last().map(|partition: &PartitionFacts| partition.id);
    let last = loads.iter().find(|load| Some(load.partition.0) == last);
    facts.moving_right = last.and_then(|load| {
        // A few samples say nothing yet.
        let verdict = load.verdict.as_ref().filter(|verdict| verdict.class != Class::Unknown)?;
        Some(MovingFacts { share_above: verdict.evidence.append_high, last_share: load.share })
    });
    let mut keys: Vec<&LoadedKey> =
        report.hot_keys.iter().filter(|key| key.table == table.id && !key.read).collect();
    keys.sort_by(|a, b| b.share.total_cmp(&a.share));
    let key_text =
        |key: &&LoadedKey| Some(HotKey { key: bound_text(table, &key.key)?, share: key.share });
    facts.hot_keys = keys.iter().filter_map(key_text).collect();
    facts.split_merge_cycles_per_day = cycles_per_day(table, report);
}

/// Designs of the key by sampled rows, if the detector has a finding about the table. Replays of all other tables would
/// take long, and no rule needs them.
fn add_designs(facts: &mut TableFacts, sources: &Sources, table: &Table, report: &LoadReport) {
    let mut of_table = report.partitions.iter().filter(|load| load.table == table.id);
    if !of_table.any(has_finding) {
        return;
    }
    let shapes = sources.statements.read_shapes(table);
    let Found { choices, cuts, .. } = replay(table, report, &shapes);
    let ranked = choices.iter().zip(&cuts).enumerate();
    let is_kept = |rank: usize, is_today: bool| rank < DESIGNS_MAX || is_today;
    facts.designs = ranked
        .filter(|(rank, (choice, _))| is_kept(*rank, choice.is_today))
        .map(|(_, (choice, cuts))| {
            let statements = (!choice.is_today)
                .then(|| qualified_statements(table, &choice.design, cuts))
                .flatten();
            // Another placement of new rows is refused for a table that copies follow; a split is not, and neither is a
            // re-keying.
            let is_split = matches!(choice.design, Design::Range { .. });
            let statements = statements
                .filter(|script| facts.copies.is_empty() || is_split || script.moves_rows);
            let cost = mean_cost(&shapes, choice).map(|cost| cost.partitions);
            DesignFacts {
                clauses: clauses(table, &choice.design),
                placed: placed(table, &choice.design),
                sql: statements.map(|script| script.sql),
                n_eff: choice.effective_partitions,
                max_share: choice.max_share,
                partitions_per_read: cost.unwrap_or(choice.read_cost),
                carries: choice.carries,
                is_today: choice.is_today,
            }
        })
        .collect();
}

/// Number of equal partitions over which a table's writes would be as concentrated; `None` without writes.
fn effective_partitions(facts: &TableFacts) -> Option<f64> {
    let rates = facts.partitions.iter().map(|partition| partition.writes_per_s.unwrap_or_default());
    let shape = Shape::of(rates);
    (shape.total > 0.0).then_some(shape.effective)
}

/// Cycles of a split and a merge per day; those of less than a day count as if they were all of it.
fn cycles_per_day(table: &Table, report: &LoadReport) -> Option<f64> {
    let events = || report.splits.iter().filter(|event| event.table == table.id);
    let first = events().map(|event| event.at).min()?;
    let days = report.at.since(first).as_secs_f64() * 1_000.0 / DAY_MS;
    let merges = events().filter(|event| event.merge).count();
    let splits = events().count() - merges;
    Some(merges.min(splits) as f64 / days.max(1.0))
}

fn add_index_use(facts: &mut TableFacts, sources: &Sources, table: &Table) {
    for used in sources.index_usage.of(table.id) {
        let column =
            table.schema.columns.iter().position(|column| column.storage_name == used.column);
        let Some(column) = column.and_then(|position| facts.columns.get_mut(position)) else {
            continue;
        };
        let kind = used.kind.method();
        if let Some(index) = column.indexes.iter_mut().find(|index| index.kind == kind) {
            (index.uses, index.queries_since) = (Some(used.scans), Some(used.queries_since));
        }
    }
}

/// Sums over the statements on each table, by its name with the database.
fn totals(statements: &[StatementShape]) -> HashMap<&str, Totals> {
    let mut by_table: HashMap<&str, Totals> = HashMap::new();
    for statement in statements {
        let names: BTreeSet<&str> = statement.tables.iter().map(String::as_str).collect();
        for name in names {
            let totals = by_table.entry(name).or_default();
            totals.calls += statement.calls;
            totals.rows += statement.rows_examined;
            totals.partitions += statement.partitions_touched;
            totals.milliseconds += statement.milliseconds;
        }
    }
    by_table
}

/// The measured tables at this moment, by name, for comparison with a later one.
pub(crate) fn states(
    catalog: &Catalog,
    measurements: &Measurements,
) -> BTreeMap<String, TableState> {
    let totals = totals(&measurements.statements);
    let mut states = BTreeMap::new();
    for facts in &measurements.tables {
        let Some(table) = catalog.table(&facts.database, &facts.name) else { continue };
        let name = format!("{}.{}", facts.database, facts.name);
        let totals = totals.get(name.as_str()).copied().unwrap_or_default();
        let version = (table.id, table.schema.version, table.partitions.routes().len());
        let state = TableState {
            version,
            bytes: facts.bytes,
            totals,
            n_eff: effective_partitions(facts),
            placed: placed(table, &today(table)),
            predictions: facts
                .designs
                .iter()
                .map(|design| (design.placed.clone(), design.n_eff))
                .collect(),
        };
        states.insert(name, state);
    }
    states
}
