//! `sys.table_balance`: the distribution of each table's load over its partitions and over the nodes that lead them,
//! and the number of partitions that its reads touch.

use std::collections::BTreeMap;

use arrow::record_batch::RecordBatch;
use partita_load::Shape;
use partita_proto::catalog::Catalog;
use partita_proto::id::{NodeId, TableId};
use partita_proto::load::{LoadReport, PartitionLoad};

use super::Names;
use crate::error::SqlError;
use crate::query_log::QueryLog;
use crate::virtual_table::{Cell, Kind, batch, schema};

/// Columns of `sys.table_balance`.
pub(crate) const TABLE_BALANCE: &[(&str, Kind)] = &[
    ("database", Kind::Text),
    ("table", Kind::Text),
    ("load", Kind::Text),
    ("per", Kind::Text),
    ("bearers", Kind::Count),
    ("total_per_s", Kind::Float),
    ("max_share", Kind::Float),
    ("max_over_mean", Kind::Float),
    ("cv", Kind::Float),
    ("gini", Kind::Float),
    ("n_eff", Kind::Float),
    ("read_fan_out_p50", Kind::Count),
    ("read_fan_out_p99", Kind::Count),
    ("n_eff_second", Kind::Float),
    ("rotates", Kind::Flag),
];

/// Rows of `sys.table_balance`: four per table, for rows written and rows read, by partition and by node.
pub(crate) fn table_balance(
    report: &LoadReport,
    catalog: &Catalog,
    log: &QueryLog,
) -> Result<RecordBatch, SqlError> {
    let names = Names::new(catalog);
    let fan_out = fan_outs(log);
    let mut by_table: BTreeMap<TableId, Vec<&PartitionLoad>> = BTreeMap::new();
    for partition in &report.partitions {
        by_table.entry(partition.table).or_default().push(partition);
    }
    // A table without load is left out.
    let mut rows = Vec::new();
    for (id, partitions) in by_table {
        let Some(table) = names.table(id) else { continue };
        let touched = fan_out.get(&id);
        let rotation = report.rotations.iter().find(|rotation| rotation.table == id);
        // Nodes without a leader of the table count as zero.
        for (load, rate) in LOADS {
            let mut nodes: BTreeMap<NodeId, f64> =
                report.nodes.iter().map(|node| (node.node, 0.0)).collect();
            for partition in &partitions {
                if let Some(leader) = partition.leader {
                    *nodes.entry(leader).or_default() += rate(partition);
                }
            }
            let by_partition = Shape::of(partitions.iter().map(|partition| rate(partition)));
            for (per, shape) in
                [("partition", by_partition), ("node", Shape::of(nodes.into_values()))]
            {
                rows.push(vec![
                    table.database.as_str().into(),
                    table.name.as_str().into(),
                    load.into(),
                    per.into(),
                    (shape.count as u64).into(),
                    shape.total.into(),
                    shape.max_share.into(),
                    shape.max_over_mean.into(),
                    shape.variation.into(),
                    shape.gini.into(),
                    shape.effective.into(),
                    Cell::Count(touched.map(|touched| quantile(touched, 50))),
                    Cell::Count(touched.map(|touched| quantile(touched, 99))),
                    rotation.map(|rotation| rotation.n_eff_second).into(),
                    rotation.is_some().into(),
                ]);
            }
        }
    }
    batch(&schema(TABLE_BALANCE), rows)
}

/// A kind of load, and its rate at a partition.
type Load = (&'static str, fn(&PartitionLoad) -> f64);

const LOADS: [Load; 2] =
    [("write_rows", |load| load.rates.write_rows), ("read_rows", |load| load.rates.read_rows)];

/// Number of partitions that each scan of the query log touched, ascending, by table.
fn fan_outs(log: &QueryLog) -> BTreeMap<TableId, Vec<u64>> {
    let mut by_table: BTreeMap<TableId, Vec<u64>> = BTreeMap::new();
    for entry in log.entries() {
        for (table, touched) in &entry.fan_out {
            by_table.entry(*table).or_default().push(*touched);
        }
    }
    by_table.values_mut().for_each(|touched| touched.sort_unstable());
    by_table
}

/// Nearest-rank percentile of a non-empty ascending list.
fn quantile(ascending: &[u64], percent: usize) -> u64 {
    let rank = (ascending.len() * percent).div_ceil(100).max(1);
    ascending.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_of_the_list() {
        assert_eq!(quantile(&[7], 50), 7);
        assert_eq!(quantile(&[1, 2, 3, 4], 50), 2);
        assert_eq!(quantile(&[1, 2, 3, 4], 99), 4);
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!((quantile(&hundred, 50), quantile(&hundred, 99)), (50, 99));
    }
}
