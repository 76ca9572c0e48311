//! Thresholds of the rules, each with its default.

macro_rules! thresholds {
    ($($(#[$attribute:meta])* $name:ident = $default:expr;)*) => {
        /// Thresholds of the rules.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Thresholds {
            $(
                $(#[$attribute])*
                pub $name: f64,
            )*
        }

        impl Default for Thresholds {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        /// Names and defaults.
        const NAMES: &[(&str, f64)] = &[$((stringify!($name), $default)),*];

        impl Thresholds {
            /// The threshold with a name.
            fn find(&mut self, name: &str) -> Option<&mut f64> {
                $(
                    if name == stringify!($name) {
                        return Some(&mut self.$name);
                    }
                )*
                None
            }
        }
    };
}

thresholds! {
    /// A01: maximum number of columns.
    wide_columns = 100.0;
    /// A01: share of the column limit from which it is an error.
    wide_limit_share = 0.8;
    /// A02: maximum number of tags in the key.
    many_tags = 5.0;
    /// A03, A04, A09: minimum number of rows.
    shape_rows = 100.0;
    /// A03: maximum share of NULL in all cells.
    sparse_table = 0.3;
    /// A03: maximum share of NULL in one column.
    sparse_column = 0.8;
    /// A04: minimum share of the rows of each shape.
    shape_share = 0.1;
    /// A04: similarity (Jaccard) from which sets of fields have one shape.
    shape_similarity = 0.5;
    /// A05: minimum share of texts that are numbers.
    numeric_share = 0.99;
    /// A05: minimum number of values.
    numeric_values = 100.0;
    /// A05, A12: share of distinct values from which a tag changes with each row.
    changing_share = 0.5;
    /// A06: length of a long text, in bytes.
    long_text = 1_024.0;
    /// A07, A12: minimum number of sampled values.
    pattern_sample = 8.0;
    /// A07, A12: minimum share of sampled values with a pattern.
    pattern_share = 0.9;
    /// A08: minimum length of a run of digits in a name.
    name_digits = 2.0;
    /// A08: maximum number of tables that differ in a number of their names only.
    alike_tables = 50.0;
    /// A09: maximum share of rows that belong to the row before.
    split_share = 0.2;
    /// A10: maximum length of a name, in characters.
    name_length = 63.0;
    /// A11, A18, A21: number of distinct values from which a column has high cardinality.
    high_cardinality = 10_000.0;
    /// A11: maximum number of series.
    many_series = 100_000.0;
    /// A11: maximum growth of the number of series in an hour, as a share of it.
    series_growth = 0.2;
    /// A11: number of series from which growth matters.
    growing_series = 1_000.0;
    /// A12: minimum number of values.
    id_values = 1_000.0;
    /// A13: minimum share of statements that join a table with the same other one.
    joined_share = 0.5;
    /// A13, A18, A26, A30, A39: minimum number of calls of statements.
    calls = 20.0;
    /// A14: minimum share of rows above all keys before them.
    rising_share = 0.95;
    /// A14: minimum share of the last partition in the table's writes.
    last_share = 0.8;
    /// A16: maximum length of a key column, in bytes.
    key_bytes = 2_048.0;
    /// A16: maximum size of a row, in bytes.
    row_bytes = 8_388_608.0;
    /// A16, A29: maximum size of the rows that are kept together, in bytes.
    wide_row_bytes = 100_000_000.0;
    /// A18: minimum share of the calls that filter the column.
    filter_share = 0.2;
    /// A18: maximum share of the read rows that are returned.
    selectivity = 0.05;
    /// A18: minimum number of rows read for each one that is returned.
    scan_ratio = 100.0;
    /// A19: number of statements without a use after which an index is unused.
    unused_statements = 1_000.0;
    /// A21: number of distinct values below which a column has few.
    few_values = 100.0;
    /// A21: minimum number of rows of which an index is judged.
    index_rows = 1_000.0;
    /// A21: length of a short text, in bytes.
    short_text = 16.0;
    /// A23: maximum share of the target size of a small partition.
    small_partition = 0.1;
    /// A23: busy share below which a partition is idle.
    idle_partition = 0.1;
    /// A24: busy share above which a partition is overloaded.
    busy_partition = 0.5;
    /// A25: minimum number of partitions.
    skew_partitions = 4.0;
    /// A25: maximum ratio of the largest partition to the mean.
    skew_ratio = 3.0;
    /// A25: minimum number of rows.
    skew_rows = 10_000.0;
    /// A26: minimum share of calls that read all partitions.
    all_partitions_share = 0.5;
    /// A27: minimum share of the blob in the stored bytes.
    blob_share = 0.9;
    /// A28: maximum number of versions of a key.
    versions = 10_000.0;
    /// A28: maximum ratio of dropped versions to rows.
    folded_ratio = 10.0;
    /// A30: maximum size of the value of a row, in bytes.
    tiny_bytes = 32.0;
    /// A30: minimum number of rows that a call returns.
    tiny_rows = 100.0;
    /// A32: share of distinct values from which a hashed column scatters.
    scatter_share = 0.5;
    /// A33: minimum number of distinct values of the first key column for each partition.
    first_key_values = 2.0;
    /// A34: maximum share of one key in the operations of its partition.
    hot_key_share = 0.2;
    /// A35: minimum number of rows.
    unique_rows = 100_000.0;
    /// A36: minimum number of rows.
    merged_rows = 1_000.0;
    /// A38: maximum deviation of intervals, as a share of their mean.
    irregular_share = 0.5;
    /// A38: minimum number of rows.
    irregular_rows = 1_000.0;
    /// A39: maximum ratio of the times to which statements look back.
    retention_ratio = 30.0;
    /// A40: maximum gap between the limits of partitions, as a share of the maximum.
    limit_gap = 0.2;
    /// A40: minimum number of cycles of a split and a merge in a day.
    cycles_per_day = 3.0;
}

impl Thresholds {
    /// Names and defaults of all thresholds.
    pub fn names() -> &'static [(&'static str, f64)] {
        NAMES
    }

    /// Sets one.
    ///
    /// # Errors
    /// A message, when there is no such threshold, or the value is negative or no number.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), String> {
        if !value.is_finite() || value < 0.0 {
            return Err(format!("threshold \"{name}\" must be a number that is not negative"));
        }
        let threshold =
            self.find(name).ok_or_else(|| format!("threshold \"{name}\" does not exist"))?;
        *threshold = value;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_threshold_can_be_set_by_its_name() {
        let mut thresholds = Thresholds::default();
        for (position, (name, _)) in Thresholds::names().iter().enumerate() {
            let value = 1e6 + position as f64;
            thresholds.set(name, value).unwrap();
            assert_eq!(thresholds.find(name).copied(), Some(value));
        }
        assert_ne!(thresholds, Thresholds::default());
    }

    #[test]
    fn wrong_names_and_values_are_refused() {
        let mut thresholds = Thresholds::default();
        assert_eq!(
            thresholds.set("many_apples", 1.0),
            Err("threshold \"many_apples\" does not exist".to_owned())
        );
        for value in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(thresholds.set("calls", value).is_err());
        }
        assert_eq!(thresholds, Thresholds::default());
    }
}
