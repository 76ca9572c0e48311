//! `GET /v1/tables.json`: the tables that have load, the balance of their partitions, and their verdicts.
//!
//! Invariant: tables with the most rows written and read come first; beyond the limit the quietest are left out.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use partita_heatmap::{Balance, TableList, TableSummary};
use partita_proto::catalog::Catalog;
use partita_proto::id::TableId;
use partita_proto::load::{LoadReport, PartitionLoad};

use crate::heatmap::shown_name;

/// Maximum number of listed tables.
const TABLES_MAX: usize = 256;

/// The listed tables: those whose figures `is_shown` allows.
pub(crate) fn tables(
    report: &LoadReport,
    catalog: &Catalog,
    is_shown: impl Fn(TableId) -> bool,
) -> TableList {
    let mut by_table: BTreeMap<TableId, Vec<&PartitionLoad>> = BTreeMap::new();
    for load in &report.partitions {
        by_table.entry(load.table).or_default().push(load);
    }
    let mut rated = Vec::with_capacity(by_table.len());
    for (id, loads) in by_table {
        let Some(table) = catalog.table_by_id(id).filter(|_| is_shown(id)) else { continue };
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
    rated.sort_by(|(a, summary), (b, other_summary)| {
        Reverse(a).cmp(&Reverse(b)).then_with(|| summary.name.cmp(&other_summary.name))
    });
    rated.truncate(TABLES_MAX);
    TableList { tables: rated.into_iter().map(|(_, summary)| summary).collect() }
}

/// The verdict on the busiest hot partition.
fn worst(loads: &[&PartitionLoad]) -> Option<String> {
    let judged = loads.iter().filter(|load| load.is_hot()).filter_map(|load| {
        let class = load.verdict.as_ref()?.class;
        class.is_finding().then_some((load.busiest(), class))
    });
    judged.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, class)| class.to_string())
}

#[expect(clippy::cast_possible_truncation, reason = "a summary needs three digits")]
fn narrow(rate: f64) -> f32 {
    rate as f32
}

/// Rows a second as an integer to sort by.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
fn whole(rate: f64) -> u64 {
    rate.clamp(0.0, 1e15) as u64
}
