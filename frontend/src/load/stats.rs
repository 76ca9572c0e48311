//! `sys.partition_stats` and `sys.top_partitions_one_minute`: what YDB's tables of these names show, under YDB's names
//! of the columns, so that queries and dashboards made for it find their figures.
//!
//! `CPUCores` is the busy share of a partition's serial write lane, which is what bounds a partition there and here.
//! Counters count since the replica that leads was opened. Columns of YDB's that mean nothing here are left out.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use arrow::record_batch::RecordBatch;
use partita_proto::catalog::Catalog;
use partita_proto::id::{NodeId, PartitionId};
use partita_proto::load::{Instant, LoadHistory, LoadReport};
use partita_proto::service::ReplicaStatus;

use super::Names;
use crate::error::SqlError;
use crate::system::leader;
use crate::virtual_table::{Cell, Kind, batch, schema};

/// A partition that was busier than this is among the top ones, as in YDB.
const TOP_BUSY: f64 = 0.7;

/// The columns of `sys.partition_stats`.
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

/// The columns of `sys.top_partitions_one_minute`.
pub(crate) const TOP_PARTITIONS: &[(&str, Kind)] = &[
    ("IntervalEnd", Kind::Time),
    ("Rank", Kind::Count),
    ("Path", Kind::Text),
    ("TabletId", Kind::Count),
    ("NodeId", Kind::Count),
    ("CPUCores", Kind::Float),
    ("DataSize", Kind::Count),
];

/// What `sys.partition_stats` shows: the catalog's partitions, with what their leaders and meta say of them.
pub(crate) fn partition_stats(
    report: Option<&LoadReport>,
    catalog: &Catalog,
    statuses: &HashMap<PartitionId, Vec<(NodeId, ReplicaStatus)>>,
) -> Result<RecordBatch, SqlError> {
    let loads: HashMap<PartitionId, f64> = report
        .into_iter()
        .flat_map(|report| &report.partitions)
        .map(|load| (load.partition, load.busy.s10))
        .collect();
    let mut rows = Vec::new();
    for table in catalog.tables.values().flat_map(BTreeMap::values) {
        for (position, route) in (0_u64..).zip(table.partitions.routes()) {
            let replicas = statuses.get(&route.partition).map_or(&[][..], Vec::as_slice);
            let found = leader(replicas).or(replicas.first());
            let of = |count: fn(&ReplicaStatus) -> u64| {
                Cell::Count(found.map(|(_, status)| count(status)))
            };
            rows.push(vec![
                format!("{}/{}", table.database, table.name).into(),
                position.into(),
                route.partition.0.into(),
                found.map(|(node, _)| node.0).or(route.leader.map(|node| node.0)).into(),
                of(|status| status.file_bytes + status.memtable_bytes),
                of(|status| status.rows),
                loads.get(&route.partition).copied().into(),
                of(|status| status.rows_written),
                of(|status| status.scans),
                of(|status| status.rows_scanned),
                of(|status| status.rejected),
            ]);
        }
    }
    batch(&schema(PARTITION_STATS), rows)
}

/// What `sys.top_partitions_one_minute` shows: for each minute, the partitions that were busiest in it, ranked.
pub(crate) fn top_partitions(
    report: &LoadReport,
    catalog: &Catalog,
) -> Result<RecordBatch, SqlError> {
    const MINUTE: Duration = Duration::from_secs(60);
    let names = Names::new(catalog);
    let mut minutes: BTreeMap<Instant, Vec<&LoadHistory>> = BTreeMap::new();
    for span in &report.history {
        if span.span == MINUTE && span.busy > TOP_BUSY {
            minutes.entry(span.at).or_default().push(span);
        }
    }
    let mut rows = Vec::new();
    for (begins, mut spans) in minutes {
        spans.sort_by(|a, b| b.busy.total_cmp(&a.busy).then(a.partition.cmp(&b.partition)));
        for (rank, span) in (1_u64..).zip(spans) {
            let Some(table) = names.table(span.table) else { continue };
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
