//! Numbers of partitions from rates, and literals of their boundaries.

use partita_sql::identifier::quote_string;

use crate::measurements::{ColumnFacts, TableFacts};

/// Share of a partition's write lane that a rate may use; the rest is for queries and bursts.
const LANE_SHARE: f64 = 0.5;

/// Number of partitions for a rate of rows per second, if one partition takes `rows_per_second`; within the limits of
/// the table.
pub fn partitions_for_rate(facts: &TableFacts, rate: f64, rows_per_second: f64) -> u64 {
    let quotient = (rate / (rows_per_second * LANE_SHARE)).ceil();
    let number = if quotient.is_finite() && quotient >= 1.0 { whole(quotient) } else { 1 };
    match facts.max_partitions {
        0 => number,
        limit => number.min(limit),
    }
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
        let facts = TableFacts::default();
        assert_eq!(partitions_for_rate(&facts, 100_000.0, 20_000.0), 10);
        assert_eq!(partitions_for_rate(&facts, 100_001.0, 20_000.0), 11);
        assert_eq!(partitions_for_rate(&facts, 1.0, 20_000.0), 1);
        assert_eq!(partitions_for_rate(&facts, 0.0, 20_000.0), 1);
        assert_eq!(partitions_for_rate(&facts, 1.0, 0.0), 1, "a rate that is not known");
        let limited = TableFacts { max_partitions: 4, ..TableFacts::default() };
        assert_eq!(partitions_for_rate(&limited, 100_000.0, 20_000.0), 4);
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
