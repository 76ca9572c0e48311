//! Numbers of partitions from rates, and literals of their boundaries.

use partita_proto::schema::TABLE_PARTITIONS_MAX;
use partita_sql::identifier::quote_string;

use crate::measurements::{ColumnFacts, TableFacts};

/// Share of a partition's write lane that a rate may use; the rest is for queries and bursts.
const LANE_SHARE: f64 = 0.5;

/// Partitions of a table for a rate of rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForRate {
    /// Number of partitions, within the limits of the table.
    pub partitions: u64,
    /// Rows per second that so many partitions take, if the limits leave fewer than the rate needs.
    pub reached: Option<f64>,
}

/// Number of partitions for a rate of rows per second, if one partition takes `rows_per_second`; within the limits of
/// the table.
pub fn partitions_for_rate(facts: &TableFacts, rate: f64, rows_per_second: f64) -> ForRate {
    let of_partition = rows_per_second * LANE_SHARE;
    let quotient = (rate / of_partition).ceil();
    let unlimited = if quotient.is_finite() && quotient >= 1.0 { whole(quotient) } else { 1 };
    let partitions = unlimited.min(partitions_max(facts));
    let reached = (partitions < unlimited).then_some(partitions as f64 * of_partition);
    ForRate { partitions, reached }
}

/// Maximum number of partitions of a table: that of its option, or that of every table.
fn partitions_max(facts: &TableFacts) -> u64 {
    let of_all = TABLE_PARTITIONS_MAX as u64;
    if facts.max_partitions == 0 { of_all } else { facts.max_partitions.min(of_all) }
}

/// A number without a fraction, from 0 on.
pub(crate) fn whole(number: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast of a float saturates, and NaN is 0"
    )]
    let number = number as u64;
    number
}

/// A value of a column, given as text, as a literal.
pub fn literal(column: &ColumnFacts, value: &str) -> String {
    let numeric = ["TINYINT", "SMALLINT", "INT", "BIGINT", "REAL", "DOUBLE", "DECIMAL", "BOOLEAN"];
    if numeric.iter().any(|name| column.column_type.starts_with(name)) {
        value.to_owned()
    } else {
        quote_string(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_follows_from_the_rate() {
        let of = |max_partitions: u64, rate: f64, rows_per_second: f64| {
            let facts = TableFacts { max_partitions, ..TableFacts::default() };
            let ForRate { partitions, reached } =
                partitions_for_rate(&facts, rate, rows_per_second);
            (partitions, reached)
        };
        assert_eq!(of(0, 100_000.0, 20_000.0), (10, None));
        assert_eq!(of(0, 100_001.0, 20_000.0), (11, None));
        assert_eq!(of(0, 1.0, 20_000.0), (1, None));
        assert_eq!(of(0, 0.0, 20_000.0), (1, None));
        assert_eq!(of(0, 1.0, 0.0), (1, None), "a rate that is not known");
        // The option of the table is a limit, and so is that of every table.
        assert_eq!(of(10, 100_000.0, 20_000.0), (10, None));
        assert_eq!(of(4, 100_000.0, 20_000.0), (4, Some(40_000.0)));
        assert_eq!(of(0, 1e9, 50_000.0), (4_096, Some(102_400_000.0)));
        assert_eq!(of(9_999, 1e9, 50_000.0), (4_096, Some(102_400_000.0)));
    }

    #[test]
    fn texts_and_times_are_quoted() {
        let of = |column_type: &str| ColumnFacts {
            column_type: column_type.to_owned(),
            ..ColumnFacts::default()
        };
        assert_eq!(literal(&of("BIGINT UNSIGNED"), "25"), "25");
        assert_eq!(literal(&of("STRING"), "a'b"), "'a''b'");
        assert_eq!(literal(&of("DATE"), "2026-01-01"), "'2026-01-01'");
    }
}
