//! `sys.partition_stats` and `sys.top_partitions_one_minute`: the same as YDB's tables of these names, with YDB's
//! column names, so that queries and dashboards for YDB work.
//!
//! `CPUCores` is the busy share of a partition's serial write lane, which bounds a partition as its core does in YDB.
//! Counters start when the leading replica is opened. YDB's columns without a meaning here are left out.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use arrow::record_batch::RecordBatch;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::id::PartitionId;
use partita_proto::load::{Instant, LoadHistory, LoadReport};
use partita_proto::service::ReplicaStatus;

use super::Names;
use crate::error::SqlError;
use crate::statuses::{Statuses, leader};
use crate::virtual_table::{Cell, Kind, batch, schema};

/// Minimum busy share of a top partition, as in YDB.
const TOP_BUSY: f64 = 0.7;

/// Columns of `sys.partition_stats`.
pub(crate) const PARTITION_STATS: &[(&str, Kind)] = &[
    ("Path", Kind::Text),
    ("PartIdx", Kind::Count),
    ("TabletId", Kind::Count),
    ("NodeId", Kind::Count),
    ("DataSize", Kind::Count),
    ("RowCount", Kind::Count),
    ("CPUCores", Kind::Float),
    ("RowUpdates", Kind::Count),
    ("RangeReads", Kind::Count),
    ("RangeReadRows", Kind::Count),
    ("TxRejectedByOverload", Kind::Count),
];

/// Columns of `sys.top_partitions_one_minute`.
pub(crate) const TOP_PARTITIONS: &[(&str, Kind)] = &[
    ("IntervalEnd", Kind::Time),
    ("Rank", Kind::Count),
    ("Path", Kind::Text),
    ("TabletId", Kind::Count),
    ("NodeId", Kind::Count),
    ("CPUCores", Kind::Float),
    ("DataSize", Kind::Count),
];

/// Rows of `sys.partition_stats`: the partitions of the catalog, with figures of their leaders and of meta.
pub(crate) fn partition_stats(
    report: Option<&LoadReport>,
    catalog: &Catalog,
    statuses: &Statuses,
) -> Result<RecordBatch, SqlError> {
    let loads: HashMap<PartitionId, f64> = report
        .into_iter()
        .flat_map(|report| &report.partitions)
        .map(|load| (load.partition, load.busy.s10))
        .collect();
    // Figures come from the leader, or from any replica that reports.
    let mut rows = Vec::new();
    for table in catalog.tables.values().flat_map(BTreeMap::values) {
        for (position, route) in (0_u64..).zip(table.partitions.routes()) {
            let replicas = statuses.get(&route.partition).map_or(&[][..], Vec::as_slice);
            let replica = leader(replicas).or(replicas.first());
            let figure = |count: fn(&ReplicaStatus) -> u64| {
                Cell::Count(replica.map(|(_, status)| count(status)))
            };
            rows.push(vec![
                format!("{}/{}", table.database, table.name).into(),
                position.into(),
                route.partition.0.into(),
                replica.map(|(node, _)| node.0).or(route.leader.map(|node| node.0)).into(),
                figure(|status| status.file_bytes + status.memtable_bytes),
                figure(|status| status.rows),
                loads.get(&route.partition).copied().into(),
                figure(|status| status.rows_written),
                figure(|status| status.scans),
                figure(|status| status.rows_scanned),
                figure(|status| status.rejected),
            ]);
        }
    }
    batch(&schema(PARTITION_STATS), rows)
}

/// Rows of `sys.top_partitions_one_minute`: the busiest partitions of each minute, ranked.
pub(crate) fn top_partitions(
    report: &LoadReport,
    catalog: &Catalog,
) -> Result<RecordBatch, SqlError> {
    const MINUTE: Duration = Duration::from_secs(60);
    let names = Names::new(catalog);
    let mut minutes: BTreeMap<Instant, Vec<(&Arc<Table>, &LoadHistory)>> = BTreeMap::new();
    for span in &report.history {
        // Ranks are those among the tables of the catalog: gaps would tell about others.
        let Some(table) = names.table(span.table) else { continue };
        if span.span == MINUTE && span.busy > TOP_BUSY {
            minutes.entry(span.at).or_default().push((table, span));
        }
    }
    let mut rows = Vec::new();
    for (begins, mut spans) in minutes {
        spans.sort_by(|(_, a), (_, b)| {
            b.busy.total_cmp(&a.busy).then(a.partition.cmp(&b.partition))
        });
        for (rank, (table, span)) in (1_u64..).zip(spans) {
            rows.push(vec![
                Instant(begins.0 + 60_000).into(),
                rank.into(),
                format!("{}/{}", table.database, table.name).into(),
                span.partition.0.into(),
                span.leader.map(|node| node.0).into(),
                span.busy.into(),
                span.size_bytes.into(),
            ]);
        }
    }
    batch(&schema(TOP_PARTITIONS), rows)
}
