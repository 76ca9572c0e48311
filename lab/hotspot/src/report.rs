//! Report of a run: a table in the terminal, `report.json`, `seconds.jsonl`, `seconds.csv`, one HTML page, and a
//! guide through the heatmaps as Markdown.
//!
//! Invariants: the page loads nothing from elsewhere; text is escaped, never taken as markup; latencies are
//! labelled as measured or estimated.

mod advice;
mod chart;
mod figure;
mod guide;
mod html;
mod shown;

use std::fmt::Write as _;

use partita_load::Class;

use crate::metrics::{QUERIES, Summary};

pub use advice::advice;
pub use chart::{Bar, Bars, bars};
pub use guide::{Guide, Guided, Written, guide};
pub use html::{Page, Section, document, page, plain, table};
pub use shown::{Advised, Shown, pictures};

/// Aligns the cells of columns: the first column to the left, the others to the right.
#[must_use]
pub fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines {
        for (column, cell) in line.iter().enumerate() {
            let width = widths[column];
            // Writing to a string cannot fail.
            let _ok = if column == 0 {
                write!(text, "{cell:<width$}")
            } else {
                write!(text, "  {cell:>width$}")
            };
        }
        text.push('\n');
    }
    text
}

/// A latency; `~` marks an estimate.
fn latency(summary: &Summary, ms: f64) -> String {
    let sign = if summary.latency == "measured" { "" } else { "~" };
    format!("{sign}{ms:.0} ms")
}

fn time(second: Option<u64>) -> String {
    second.map_or_else(|| "never".to_owned(), |second| format!("{second} s"))
}

/// Compares runs: a header line, and a line for each run.
#[must_use]
pub fn lines(rows: &[(String, &Summary)]) -> Vec<Vec<String>> {
    // The columns, in the order of the cells below.
    let head = [
        "run",
        "served",
        "rows/s",
        "N_eff part.",
        "busiest",
        "leaders",
        "p50",
        "p99",
        "verdict",
        "after",
        "re-keyed",
        "by user",
        "by time",
        "partitions",
        "load splits",
        "in vain",
        "size splits",
        "merges",
        "flaps",
        "transfers",
        "moves",
        "node max/mean",
        "t95",
        "t_bal",
    ];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for (name, summary) in rows {
        let last = &summary.last;
        let fan_out = |query: usize| {
            summary
                .fan_out
                .as_ref()
                .map_or_else(|| "-".to_owned(), |values| format!("{:.1}", values.mean[query]))
        };
        lines.push(vec![
            name.clone(),
            format!("{:.1} %", summary.served_share * 100.0),
            format!("{:.0}", summary.served_rows),
            format!("{:.2}", summary.n_eff),
            format!("{:.0} %", summary.max_share * 100.0),
            format!("{:.1}", summary.n_eff_leaders),
            latency(summary, summary.p50_ms),
            latency(summary, summary.p99_ms),
            summary.verdict().map_or("-", Class::name).to_owned(),
            time(summary.t_verdict_s),
            summary.rekeyed.map_or_else(|| "-".to_owned(), |(second, _)| format!("{second} s")),
            fan_out(0),
            fan_out(1),
            summary.partitions.to_string(),
            (last.splits_load + last.splits_isolate).to_string(),
            last.splits_in_vain.to_string(),
            last.splits_size.to_string(),
            last.merges.to_string(),
            last.flaps.to_string(),
            last.transfers.to_string(),
            last.moves.to_string(),
            format!("{:.2}", summary.node_max_over_mean),
            time(summary.t95_s),
            time(summary.t_bal_s),
        ]);
    }
    lines
}

/// Partitions touched by queries: mean and 99th percentile.
#[must_use]
pub fn fan_out_lines(rows: &[(String, &Summary)]) -> Vec<Vec<String>> {
    let head = std::iter::once("partitions touched").chain(QUERIES).map(str::to_owned);
    let mut lines = vec![head.collect::<Vec<_>>()];
    for (name, summary) in rows {
        if let Some(fan_out) = &summary.fan_out {
            let cells = fan_out
                .mean
                .iter()
                .zip(fan_out.p99)
                .map(|(mean, p99)| format!("{mean:.1} / {p99:.0}"));
            lines.push(std::iter::once(name.clone()).chain(cells).collect());
        }
    }
    lines
}
