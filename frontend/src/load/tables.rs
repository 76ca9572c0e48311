//! The load tables of `sys`: partitions, nodes, keys, causes, and splits, merges and moves.
//!
//! Invariants: values that meta does not know are NULL; rows of dropped tables are left out, those of former
//! partitions stay as they were. A partition is listed as a problem by its standing alone, whatever its verdict.

use arrow::record_batch::RecordBatch;
use partita_load::ReadShape;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::id::PartitionId;
use partita_proto::load::{LoadReport, PartitionLoad, Rates, Verdict};

use super::Names;
use crate::bound_text::bound_text;
use crate::error::SqlError;
use crate::hotspot::class::explain;
use crate::hotspot::{advice, cause_text, evidence_json, unless_rekeyed};
use crate::virtual_table::{Cell, Kind, batch, schema};

/// Columns of `sys.partition_load`.
pub(crate) const PARTITION_LOAD: &[(&str, Kind)] = &[
    ("database", Kind::Text),
    ("table", Kind::Text),
    ("partition", Kind::Count),
    ("start_key", Kind::Text),
    ("end_key", Kind::Text),
    ("leader", Kind::Count),
    ("epoch", Kind::Count),
    ("age_s", Kind::Float),
    ("rho_10s", Kind::Float),
    ("rho_60s", Kind::Float),
    ("rho_600s", Kind::Float),
    ("rho_max", Kind::Float),
    ("write_rows_per_s", Kind::Float),
    ("write_bytes_per_s", Kind::Float),
    ("read_rows_per_s", Kind::Float),
    ("point_reads_per_s", Kind::Float),
    ("scans_per_s", Kind::Float),
    ("rejected_per_s", Kind::Float),
    ("queue", Kind::Count),
    ("bytes", Kind::Count),
    ("rows", Kind::Count),
    ("write_p50_us", Kind::Count),
    ("write_p99_us", Kind::Count),
    ("write_p999_us", Kind::Count),
    ("write_max_us", Kind::Count),
    ("share", Kind::Float),
    ("verdict", Kind::Text),
    ("since", Kind::Time),
    ("p_out", Kind::Float),
    ("auc", Kind::Float),
    ("append_high", Kind::Float),
    ("append_low", Kind::Float),
    ("top_key", Kind::Float),
    ("standing", Kind::Text),
    ("reads_rho", Kind::Float),
    ("read_share", Kind::Float),
    ("offered_rows_per_s", Kind::Float),
    ("lead", Kind::Float),
    ("front", Kind::Float),
    ("concentration", Kind::Float),
];

/// Columns of `sys.partition_load_history`.
pub(crate) const PARTITION_LOAD_HISTORY: &[(&str, Kind)] = &[
    ("at", Kind::Time),
    ("span_s", Kind::Float),
    ("database", Kind::Text),
    ("table", Kind::Text),
    ("partition", Kind::Count),
    ("leader", Kind::Count),
    ("rho", Kind::Float),
    ("rho_max", Kind::Float),
    ("write_rows_per_s", Kind::Float),
    ("write_bytes_per_s", Kind::Float),
    ("read_rows_per_s", Kind::Float),
    ("point_reads_per_s", Kind::Float),
    ("scans_per_s", Kind::Float),
    ("rejected_per_s", Kind::Float),
    ("bytes", Kind::Count),
    ("verdict", Kind::Text),
];

/// Columns of `sys.hot_partitions`.
pub(crate) const HOT_PARTITIONS: &[(&str, Kind)] = &[
    ("database", Kind::Text),
    ("table", Kind::Text),
    ("partition", Kind::Count),
    ("start_key", Kind::Text),
    ("end_key", Kind::Text),
    ("leader", Kind::Count),
    ("rho_10s", Kind::Float),
    ("share", Kind::Float),
    ("verdict", Kind::Text),
    ("meaning", Kind::Text),
    ("since", Kind::Time),
    ("cut_key", Kind::Text),
    ("predicted_share", Kind::Float),
    ("hot_key", Kind::Text),
    ("evidence", Kind::Text),
    ("advice", Kind::Text),
    ("reads_rho", Kind::Float),
    ("read_share", Kind::Float),
    ("offered_rows_per_s", Kind::Float),
    ("causes", Kind::Text),
];

/// Columns of `sys.split_events`.
pub(crate) const SPLIT_EVENTS: &[(&str, Kind)] = &[
    ("at", Kind::Time),
    ("database", Kind::Text),
    ("table", Kind::Text),
    ("kind", Kind::Text),
    ("partition", Kind::Count),
    ("children", Kind::Text),
    ("key", Kind::Text),
    ("why", Kind::Text),
    ("predicted_share", Kind::Float),
    ("actual_share", Kind::Float),
    ("in_vain", Kind::Flag),
    ("stall_ms", Kind::Float),
    ("took_ms", Kind::Float),
    ("relief_ms", Kind::Float),
    ("outcome", Kind::Text),
];

/// Columns of `sys.forecasts`.
pub(crate) const FORECASTS: &[(&str, Kind)] = &[
    ("at", Kind::Time),
    ("database", Kind::Text),
    ("table", Kind::Text),
    ("start_key", Kind::Text),
    ("end_key", Kind::Text),
    ("expected_from", Kind::Time),
    ("expected_until", Kind::Time),
    ("expected_load", Kind::Float),
    ("confidence", Kind::Float),
    ("days", Kind::Count),
    ("action", Kind::Text),
    ("cuts", Kind::Count),
    ("actual_load", Kind::Float),
    ("useful", Kind::Flag),
];

/// Columns of `sys.balance_events`.
pub(crate) const BALANCE_EVENTS: &[(&str, Kind)] = &[
    ("at", Kind::Time),
    ("database", Kind::Text),
    ("table", Kind::Text),
    ("partition", Kind::Count),
    ("kind", Kind::Text),
    ("from_node", Kind::Count),
    ("to_node", Kind::Count),
    ("why", Kind::Text),
];

/// Columns of `sys.hot_keys`.
pub(crate) const HOT_KEYS: &[(&str, Kind)] = &[
    ("database", Kind::Text),
    ("table", Kind::Text),
    ("partition", Kind::Count),
    ("kind", Kind::Text),
    ("key", Kind::Text),
    ("share", Kind::Float),
    ("per_s", Kind::Float),
];

/// Columns of `sys.hot_causes`.
pub(crate) const HOT_CAUSES: &[(&str, Kind)] = &[
    ("database", Kind::Text),
    ("table", Kind::Text),
    ("partition", Kind::Count),
    ("kind", Kind::Text),
    ("key", Kind::Text),
    ("statement", Kind::Text),
    ("statement_kind", Kind::Text),
    ("user", Kind::Text),
    ("application", Kind::Text),
    ("client", Kind::Text),
    ("share", Kind::Float),
    ("samples", Kind::Count),
];

/// Columns of `sys.node_load`.
pub(crate) const NODE_LOAD: &[(&str, Kind)] = &[
    ("node", Kind::Count),
    ("leaders", Kind::Count),
    ("replicas", Kind::Count),
    ("rho", Kind::Float),
    ("write_rows_per_s", Kind::Float),
    ("write_bytes_per_s", Kind::Float),
    ("read_rows_per_s", Kind::Float),
    ("point_reads_per_s", Kind::Float),
    ("scans_per_s", Kind::Float),
    ("rejected_per_s", Kind::Float),
    ("cpu_cores", Kind::Float),
];

fn rates(rates: &Rates) -> [Cell; 6] {
    [
        rates.write_rows,
        rates.write_bytes,
        rates.read_rows,
        rates.point_reads,
        rates.scans,
        rates.rejected,
    ]
    .map(Cell::from)
}

fn named(table: &Table, partition: PartitionId) -> [Cell; 3] {
    [table.database.as_str().into(), table.name.as_str().into(), partition.0.into()]
}

/// Rows of `sys.partition_load`.
pub(crate) fn partition_load(
    report: &LoadReport,
    catalog: &Catalog,
) -> Result<RecordBatch, SqlError> {
    let names = Names::new(catalog);
    let mut rows = Vec::new();
    for load in &report.partitions {
        let Some(table) = names.table(load.table) else { continue };
        let latency = |read: fn(&partita_proto::load::Latency) -> u64| {
            Cell::Count(load.write_latency.as_ref().map(read))
        };
        // A partition without a verdict has no evidence.
        let evidence = load.verdict.as_ref().map(|verdict| &verdict.evidence);
        let judged =
            |read: fn(&partita_proto::load::Evidence) -> f64| Cell::Float(evidence.map(read));
        let mut row = Vec::from(named(table, load.partition));
        row.extend([
            bound_text(table, &load.range.start).into(),
            bound_text(table, &load.range.end).into(),
            load.leader.map(|node| node.0).into(),
            load.epoch.0.into(),
            load.age.as_secs_f64().into(),
            load.busy.s10.into(),
            load.busy.s60.into(),
            load.busy.s600.into(),
            load.busy.max.into(),
        ]);
        row.extend(rates(&load.rates));
        row.extend([
            load.queue.into(),
            load.size_bytes.into(),
            load.rows.into(),
            latency(|figures| figures.p50),
            latency(|figures| figures.p99),
            latency(|figures| figures.p999),
            latency(|figures| figures.max),
            load.share.into(),
            load.verdict.as_ref().map(|verdict| verdict.class.to_string()).into(),
            load.verdict.as_ref().map_or(Cell::Time(None), |verdict| verdict.since.into()),
            judged(|evidence| evidence.p_out),
            judged(|evidence| evidence.auc),
            judged(|evidence| evidence.append_high),
            judged(|evidence| evidence.append_low),
            judged(|evidence| evidence.top_key),
            load.standing.name().into(),
            load.reads_busy.into(),
            load.read_share.into(),
            load.offered.rows_per_s.into(),
            judged(|evidence| evidence.lead),
            judged(|evidence| evidence.front),
            judged(|evidence| evidence.concentration),
        ]);
        rows.push(row);
    }
    batch(&schema(PARTITION_LOAD), rows)
}

/// Rows of `sys.partition_load_history`.
pub(crate) fn partition_load_history(
    report: &LoadReport,
    catalog: &Catalog,
) -> Result<RecordBatch, SqlError> {
    let names = Names::new(catalog);
    let mut rows = Vec::new();
    for span in &report.history {
        let Some(table) = names.table(span.table) else { continue };
        let mut row = vec![span.at.into(), span.span.as_secs_f64().into()];
        row.extend(named(table, span.partition));
        row.extend([span.leader.map(|node| node.0).into(), span.busy.into(), span.busy_max.into()]);
        row.extend(rates(&span.rates));
        let class = span.class.map(|class| class.to_string());
        row.extend([span.size_bytes.into(), class.into()]);
        rows.push(row);
    }
    batch(&schema(PARTITION_LOAD_HISTORY), rows)
}

/// Hot partitions of a catalog's tables about which there is a finding, the busiest first.
pub(crate) fn hot<'r>(
    report: &'r LoadReport,
    catalog: &'r Catalog,
) -> Vec<(&'r Table, &'r PartitionLoad, &'r Verdict)> {
    let names = Names::new(catalog);
    let finding = |load: &'r PartitionLoad| {
        let table = names.table(load.table).filter(|_| load.is_hot())?;
        let verdict = load.verdict.as_ref().filter(|verdict| verdict.class.is_finding())?;
        Some((table.as_ref(), load, verdict))
    };
    let mut findings: Vec<_> = report.partitions.iter().filter_map(finding).collect();
    findings.sort_by(|(_, a, _), (_, b, _)| {
        b.busiest().total_cmp(&a.busiest()).then(a.partition.cmp(&b.partition))
    });
    findings
}

/// Rows of `sys.hot_partitions`; `shapes` returns the reads of a table.
pub(crate) fn hot_partitions(
    report: &LoadReport,
    catalog: &Catalog,
    shapes: impl Fn(&Table) -> Vec<ReadShape>,
) -> Result<RecordBatch, SqlError> {
    let mut rows = Vec::new();
    for (table, load, verdict) in hot(report, catalog) {
        let cut = verdict.cut.as_ref();
        let statements = advice(table, report, load, verdict, &shapes(table));
        let statements = unless_rekeyed(catalog, table, verdict.class, statements);
        let mut row = Vec::from(named(table, load.partition));
        row.extend([
            bound_text(table, &load.range.start).into(),
            bound_text(table, &load.range.end).into(),
            load.leader.map(|node| node.0).into(),
            load.busy.s10.into(),
            load.share.into(),
            verdict.class.name().into(),
            explain(verdict.class).map(str::to_owned).into(),
            verdict.since.into(),
            cut.and_then(|(key, _)| bound_text(table, key)).into(),
            cut.map(|(_, share)| *share).into(),
            verdict.hot_key.as_ref().and_then(|key| bound_text(table, key)).into(),
            evidence_json(&verdict.evidence).to_string().into(),
            statements.into(),
            load.reads_busy.into(),
            load.read_share.into(),
            load.offered.rows_per_s.into(),
            cause_text(report, load).into(),
        ]);
        rows.push(row);
    }
    batch(&schema(HOT_PARTITIONS), rows)
}

/// Rows of `sys.split_events`.
pub(crate) fn split_events(
    report: &LoadReport,
    catalog: &Catalog,
) -> Result<RecordBatch, SqlError> {
    let names = Names::new(catalog);
    let mut rows = Vec::new();
    for event in &report.splits {
        let Some(table) = names.table(event.table) else { continue };
        let children: Vec<_> = event.children.iter().map(ToString::to_string).collect();
        let milliseconds = |time: Option<std::time::Duration>| {
            Cell::Float(time.map(|time| time.as_secs_f64() * 1e3))
        };
        rows.push(vec![
            event.at.into(),
            table.database.as_str().into(),
            table.name.as_str().into(),
            if event.merge { "merge" } else { "split" }.into(),
            event.partition.0.into(),
            children.join(", ").into(),
            event.key.as_ref().and_then(|key| bound_text(table, key)).into(),
            event.why.to_string().into(),
            event.predicted_share.into(),
            event.actual_share.into(),
            event.in_vain.into(),
            milliseconds(event.stall),
            milliseconds(event.took),
            milliseconds(event.relief),
            event.outcome.as_ref().map(ToString::to_string).into(),
        ]);
    }
    batch(&schema(SPLIT_EVENTS), rows)
}

/// Rows of `sys.forecasts`.
pub(crate) fn forecasts(report: &LoadReport, catalog: &Catalog) -> Result<RecordBatch, SqlError> {
    let names = Names::new(catalog);
    let mut rows = Vec::new();
    for forecast in &report.forecasts {
        let Some(table) = names.table(forecast.table) else { continue };
        rows.push(vec![
            forecast.at.into(),
            table.database.as_str().into(),
            table.name.as_str().into(),
            bound_text(table, &forecast.range.start).into(),
            bound_text(table, &forecast.range.end).into(),
            forecast.from.into(),
            forecast.until.into(),
            forecast.expected.into(),
            forecast.confidence.into(),
            u64::from(forecast.days).into(),
            forecast.action.as_str().into(),
            u64::from(forecast.cuts).into(),
            forecast.actual.into(),
            forecast.useful.into(),
        ]);
    }
    batch(&schema(FORECASTS), rows)
}

/// Rows of `sys.balance_events`.
pub(crate) fn balance_events(
    report: &LoadReport,
    catalog: &Catalog,
) -> Result<RecordBatch, SqlError> {
    let names = Names::new(catalog);
    let rows = report.balances.iter().map(|event| {
        let table = names.table_of(event.partition);
        vec![
            event.at.into(),
            table.map(|table| table.database.clone()).into(),
            table.map(|table| table.name.clone()).into(),
            event.partition.0.into(),
            event.kind.as_str().into(),
            event.from.0.into(),
            event.to.0.into(),
            event.why.as_str().into(),
        ]
    });
    batch(&schema(BALANCE_EVENTS), rows.collect())
}

/// Rows of `sys.hot_keys`.
pub(crate) fn hot_keys(report: &LoadReport, catalog: &Catalog) -> Result<RecordBatch, SqlError> {
    let names = Names::new(catalog);
    let mut rows = Vec::new();
    for hot in &report.hot_keys {
        let Some(table) = names.table(hot.table) else { continue };
        let mut row = Vec::from(named(table, hot.partition));
        row.extend([
            if hot.read { "read" } else { "write" }.into(),
            bound_text(table, &hot.key).into(),
            hot.share.into(),
            hot.per_second.into(),
        ]);
        rows.push(row);
    }
    batch(&schema(HOT_KEYS), rows)
}

/// Rows of `sys.hot_causes`.
pub(crate) fn hot_causes(report: &LoadReport, catalog: &Catalog) -> Result<RecordBatch, SqlError> {
    let names = Names::new(catalog);
    let text = |text: &str| Cell::Text((!text.is_empty()).then(|| text.to_owned()));
    let mut rows = Vec::new();
    for hot in &report.hot_causes {
        let Some(table) = names.table(hot.table) else { continue };
        let mut row = Vec::from(named(table, hot.partition));
        row.extend([
            if hot.read { "read" } else { "write" }.into(),
            hot.key.as_ref().and_then(|key| bound_text(table, key)).into(),
            text(&hot.cause.statement),
            text(&hot.cause.kind),
            text(&hot.cause.user),
            text(&hot.cause.application),
            text(&hot.cause.client),
            hot.share.into(),
            hot.samples.into(),
        ]);
        rows.push(row);
    }
    batch(&schema(HOT_CAUSES), rows)
}

/// Rows of `sys.node_load`.
pub(crate) fn node_load(report: &LoadReport) -> Result<RecordBatch, SqlError> {
    let rows = report.nodes.iter().map(|load| {
        let mut row =
            vec![load.node.0.into(), load.leaders.into(), load.replicas.into(), load.busy.into()];
        row.extend(rates(&load.rates));
        row.push(load.cpu_cores.into());
        row
    });
    batch(&schema(NODE_LOAD), rows.collect())
}
