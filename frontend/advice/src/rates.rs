//! Numbers and boundaries of partitions, from rates and from values.

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

/// Literals of boundaries at equal shares of a column's values: one fewer than partitions, ascending, without repeats.
pub fn boundaries(column: &ColumnFacts, partitions: usize) -> Vec<String> {
    let quantiles = &column.histogram;
    let mut values: Vec<&String> = Vec::new();
    for number in 1..partitions {
        let Some(value) = quantiles.get(number * quantiles.len() / partitions) else { continue };
        let is_least = quantiles.first() == Some(value);
        if !is_least && values.last() != Some(&value) {
            values.push(value);
        }
    }
    values.into_iter().map(|value| literal(column, value)).collect()
}

/// A value of a column as a literal.
fn literal(column: &ColumnFacts, value: &str) -> String {
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
    fn boundaries_divide_the_values_equally() {
        let histogram = (0..100).map(|number| number.to_string()).collect();
        let mut column =
            ColumnFacts { column_type: "BIGINT".to_owned(), histogram, ..ColumnFacts::default() };
        assert_eq!(boundaries(&column, 4), ["25", "50", "75"]);
        assert_eq!(boundaries(&column, 1), Vec::<String>::new());
        "STRING".clone_into(&mut column.column_type);
        column.histogram = ["a", "a", "a'b", "c"].map(str::to_owned).to_vec();
        assert_eq!(boundaries(&column, 4), ["'a''b'", "'c'"]);
        column.histogram.clear();
        assert_eq!(boundaries(&column, 4), Vec::<String>::new());
    }
}
