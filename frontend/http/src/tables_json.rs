//! `GET /v1/tables.json`: which tables have load, how evenly it lies, and what is wrong with them.
//!
//! Invariant: tables with the most rows written and read come first; of many the quiet ones are left out.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use partita_heatmap::{Balance, TableList, TableSummary};
use partita_proto::catalog::Catalog;
use partita_proto::id::TableId;
use partita_proto::load::{LoadReport, PartitionLoad};

use crate::heatmap::shown_name;

/// Tables that are listed.
const TABLES_MAX: usize = 256;
/// From this busy share on, what is found of a partition is told.
const HOT_BUSY: f64 = 0.5;

/// The list.
pub(crate) fn tables(report: &LoadReport, catalog: &Catalog) -> TableList {
    let mut by_table: BTreeMap<TableId, Vec<&PartitionLoad>> = BTreeMap::new();
    for load in &report.partitions {
        by_table.entry(load.table).or_default().push(load);
    }
    let mut rated = Vec::with_capacity(by_table.len());
    for (id, loads) in by_table {
        let Some(table) = catalog.table_by_id(id) else { continue };
        let rows: f64 = loads.iter().map(|load| load.rates.write_rows + load.rates.read_rows).sum();
        let rates: Vec<f32> = loads.iter().map(|load| narrow(load.rates.write_rows)).collect();
        rated.push((
            whole(rows),
            TableSummary {
                name: shown_name(table),
                balance: Balance::of(&rates),
                verdict: worst(&loads),
            },
        ));
    }
    rated.sort_by(|(a, one), (b, other)| {
        Reverse(a).cmp(&Reverse(b)).then_with(|| one.name.cmp(&other.name))
    });
    rated.truncate(TABLES_MAX);
    TableList { tables: rated.into_iter().map(|(_, summary)| summary).collect() }
}

/// The class of the busiest hot partition.
fn worst(loads: &[&PartitionLoad]) -> Option<String> {
    let hot = |load: &&&PartitionLoad| load.busy.s10 >= HOT_BUSY || load.rates.rejected > 0.0;
    let judged = loads.iter().filter(hot).filter_map(|load| {
        let class = &load.verdict.as_ref()?.class;
        (class != "UNKNOWN").then_some((load.busy.s10, class))
    });
    judged.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, class)| class.clone())
}

#[expect(clippy::cast_possible_truncation, reason = "a summary needs three digits")]
fn narrow(rate: f64) -> f32 {
    rate as f32
}

/// Rows a second, as something to sort by.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
fn whole(rate: f64) -> u64 {
    rate.clamp(0.0, 1e15) as u64
}
