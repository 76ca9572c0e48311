//! Errors of overload, explained: which partition of which table is busy, why, and what would help.
//!
//! Invariant: an explanation adds to an error; SQLSTATE, message and whether it may be sent again stay as they are.

use partita_proto::catalog::Table;
use partita_proto::id::PartitionId;
use partita_proto::load::{LoadReport, PartitionLoad};

use crate::error::SqlError;
use crate::hotspot::class::{explain, remedy};
use crate::sql::identifier::quote;
use crate::system::bound_text;

/// Adds what is known of the partition, or else of the table's busiest one.
pub(crate) fn explained(
    mut error: SqlError,
    table: &Table,
    partition: Option<PartitionId>,
    report: &LoadReport,
) -> SqlError {
    let mut of_table = report.partitions.iter().filter(|load| load.table == table.id);
    let found = match partition {
        Some(partition) => of_table.find(|load| load.partition == partition),
        None => of_table.max_by(|a, b| a.busy.s10.total_cmp(&b.busy.s10)),
    };
    let Some(load) = found else { return error };
    let what = describe(table, load);
    error.detail = Some(match error.detail {
        Some(detail) => format!("{detail}; {what}"),
        None => what,
    });
    if let Some(verdict) = &load.verdict
        && let Some(remedy) = remedy(&verdict.class)
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
    let mut text = format!(
        "partition {} of table \"{}\" (keys from {} to {}) is {:.0} % busy and takes {:.0} % of the rows that the \
         table is written",
        load.partition,
        table.name,
        edge(&load.range.start, "the beginning"),
        edge(&load.range.end, "the end"),
        load.busy.s10 * 100.0,
        load.share * 100.0,
    );
    if let Some(verdict) = &load.verdict {
        text.push_str(": ");
        text.push_str(&verdict.class);
        if let Some(why) = explain(&verdict.class) {
            text.push_str(", ");
            text.push_str(why);
        }
    }
    text
}
