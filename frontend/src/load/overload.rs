//! Explains errors of overload: the busy partition and its table, the cause, and the remedy.
//!
//! Invariant: an explanation only adds detail and hint; SQLSTATE, message and retryability stay the same.

use partita_proto::catalog::Table;
use partita_proto::id::PartitionId;
use partita_proto::load::{LoadReport, PartitionLoad};
use partita_sql::identifier::quote;

use crate::bound_text::bound_text;
use crate::error::SqlError;
use crate::hotspot::class::{explain, remedy};

/// Adds the state of the partition, or without one that of the table's busiest partition.
pub(crate) fn explained(
    mut error: SqlError,
    table: &Table,
    partition: Option<PartitionId>,
    report: &LoadReport,
) -> SqlError {
    let mut of_table = report.partitions.iter().filter(|load| load.table == table.id);
    let busiest = match partition {
        Some(partition) => of_table.find(|load| load.partition == partition),
        None => of_table.max_by(|a, b| a.busiest().total_cmp(&b.busiest())),
    };
    let Some(load) = busiest else { return error };
    let state = describe(table, load);
    error.detail = Some(match error.detail {
        Some(detail) => format!("{detail}; {state}"),
        None => state,
    });
    if let Some(verdict) = &load.verdict
        && let Some(remedy) = remedy(verdict.class)
    {
        let advice = format!("{remedy}; see EXPLAIN HOTSPOT {}", quote(&table.name));
        error.hint = Some(match error.hint {
            Some(hint) => format!("{hint}; {advice}"),
            None => advice,
        });
    }
    error
}

fn describe(table: &Table, load: &PartitionLoad) -> String {
    let edge = |bound, end: &str| bound_text(table, bound).unwrap_or_else(|| end.to_owned());
    // The load that makes it busy.
    let (with, share, of_table) = if load.reads_busy > load.busy.s10 {
        (" with reads", load.read_share, "reads")
    } else {
        ("", load.share, "writes")
    };
    let mut text = format!(
        "partition {} of table \"{}\" (keys from {} to {}) is {:.0} % busy{with} and takes {:.0} % of the table's {of_table}",
        load.partition,
        table.name,
        edge(&load.range.start, "the beginning"),
        edge(&load.range.end, "the end"),
        load.busiest() * 100.0,
        share * 100.0,
    );
    if let Some(verdict) = &load.verdict {
        text.push_str(": ");
        text.push_str(verdict.class.name());
        if let Some(why) = explain(verdict.class) {
            text.push_str(", ");
            text.push_str(why);
        }
    }
    text
}
