//! Thresholds of the rules, each with its default and its range.
//!
//! A table may have thresholds of its own, in its option `advice_thresholds`. Those that a question names come first.

use std::collections::BTreeSet;

/// Range of a share of a whole.
const SHARE: (f64, f64) = (0.0, 1.0);
/// Range of a ratio of the larger to the smaller.
const RATIO: (f64, f64) = (1.0, 1e15);
/// Range of any other figure.
const NUMBER: (f64, f64) = (0.0, 1e15);

/// Description of a threshold.
#[derive(Clone, Copy, Debug)]
pub struct Threshold {
    /// Name, also of the field of [`Thresholds`].
    pub name: &'static str,
    /// Value unless another one is set.
    pub default: f64,
    /// Least value.
    pub min: f64,
    /// Greatest value.
    pub max: f64,
    /// Rules, a colon, and the meaning.
    text: &'static str,
}

impl Threshold {
    /// Ids of the rules that use it, separated by commas.
    pub fn rules(&self) -> &'static str {
        self.text.split_once(':').map_or("", |(rules, _)| rules.trim())
    }

    /// Meaning, as a sentence.
    pub fn meaning(&self) -> &'static str {
        self.text.split_once(':').map_or(self.text, |(_, meaning)| meaning.trim())
    }
}

macro_rules! thresholds {
    ($($(#[doc = $doc:literal])+ $name:ident = $default:expr, $range:expr;)*) => {
        /// Thresholds of the rules.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Thresholds {
            $(
                $(#[doc = $doc])+
                pub $name: f64,
            )*
            /// Names of those that were set.
            given: BTreeSet<&'static str>,
        }

        impl Default for Thresholds {
            fn default() -> Self {
                Self { $($name: $default,)* given: BTreeSet::new() }
            }
        }

        /// All thresholds, in the order of their rules.
        const ALL: &[Threshold] = &[$(Threshold {
            name: stringify!($name),
            default: $default,
            min: $range.0,
            max: $range.1,
            text: concat!($($doc),+),
        }),*];

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
    wide_columns = 100.0, NUMBER;
    /// A01: share of the column limit from which it is an error.
    wide_limit_share = 0.8, SHARE;
    /// A02: maximum number of tags in the key.
    many_tags = 5.0, NUMBER;
    /// A03, A04, A09: minimum number of rows.
    shape_rows = 100.0, NUMBER;
    /// A03: maximum share of NULL in all cells.
    sparse_table = 0.3, SHARE;
    /// A03: maximum share of NULL in one column.
    sparse_column = 0.8, SHARE;
    /// A04: minimum share of the rows of each shape.
    shape_share = 0.1, SHARE;
    /// A04: similarity (Jaccard) from which sets of fields have one shape.
    shape_similarity = 0.5, SHARE;
    /// A05: minimum share of texts that are numbers.
    numeric_share = 0.99, SHARE;
    /// A05: minimum number of values.
    numeric_values = 100.0, NUMBER;
    /// A05, A12, A31: share of distinct values from which a tag changes with each row.
    changing_share = 0.5, SHARE;
    /// A06: length of a long text, in bytes.
    long_text = 1_024.0, NUMBER;
    /// A07, A12: minimum number of sampled values.
    pattern_sample = 8.0, NUMBER;
    /// A07, A12: minimum share of sampled values with a pattern.
    pattern_share = 0.9, SHARE;
    /// A08: minimum length of a run of digits in a name.
    name_digits = 2.0, NUMBER;
    /// A08: maximum number of tables that differ in a number of their names only.
    alike_tables = 50.0, NUMBER;
    /// A09: maximum share of rows that belong to the row before.
    split_share = 0.2, SHARE;
    /// A10: maximum length of a name, in characters.
    name_length = 63.0, NUMBER;
    /// A02, A11, A18, A21: number of distinct values from which a column has high cardinality.
    high_cardinality = 10_000.0, NUMBER;
    /// A11: maximum number of series.
    many_series = 100_000.0, NUMBER;
    /// A11: maximum growth of the number of series in an hour, as a share of it.
    series_growth = 0.2, NUMBER;
    /// A11: number of series from which growth matters.
    growing_series = 1_000.0, NUMBER;
    /// A12, A31: minimum number of values.
    id_values = 1_000.0, NUMBER;
    /// A13: minimum share of statements that join a table with the same other one.
    joined_share = 0.5, SHARE;
    /// A13, A18, A26, A30, A39: minimum number of calls of statements.
    calls = 20.0, NUMBER;
    /// A14: minimum share of rows above all keys before them.
    rising_share = 0.95, SHARE;
    /// A14: minimum share of the last partition in the table's writes.
    last_share = 0.8, SHARE;
    /// A16: maximum length of a key column, in bytes.
    key_bytes = 2_048.0, NUMBER;
    /// A16: maximum size of a row, in bytes.
    row_bytes = 8_388_608.0, NUMBER;
    /// A16, A29: maximum size of the rows that are kept together, in bytes.
    wide_row_bytes = 100_000_000.0, NUMBER;
    /// A18: minimum share of the calls that filter the column.
    filter_share = 0.2, SHARE;
    /// A18: maximum share of the read rows that are returned.
    selectivity = 0.05, SHARE;
    /// A18: minimum number of rows read for each one that is returned.
    scan_ratio = 100.0, NUMBER;
    /// A19: number of statements without a use after which an index is unused.
    unused_statements = 1_000.0, NUMBER;
    /// A21: number of distinct values below which a column has few.
    few_values = 100.0, NUMBER;
    /// A21: minimum number of rows of which an index is judged.
    index_rows = 1_000.0, NUMBER;
    /// A21: length of a short text, in bytes.
    short_text = 16.0, NUMBER;
    /// A23: maximum share of the target size of a small partition.
    small_partition = 0.1, SHARE;
    /// A23: busy share below which a partition is idle.
    idle_partition = 0.1, SHARE;
    /// A24: busy share above which a partition is overloaded.
    busy_partition = 0.5, SHARE;
    /// A25: minimum number of partitions.
    skew_partitions = 4.0, NUMBER;
    /// A25: maximum ratio of the largest partition to the mean.
    skew_ratio = 3.0, RATIO;
    /// A25: minimum number of rows.
    skew_rows = 10_000.0, NUMBER;
    /// A25: minimum size of a table whose partitions are compared by their rows, in bytes.
    skew_bytes = 67_108_864.0, NUMBER;
    /// A25: minimum number of rows written per second to a table whose partitions are compared by their writes.
    skew_writes = 1_000.0, NUMBER;
    /// A26: minimum share of calls that read all partitions.
    all_partitions_share = 0.5, SHARE;
    /// A27: minimum share of the blob in the stored bytes.
    blob_share = 0.9, SHARE;
    /// A28: maximum number of versions of a key.
    versions = 10_000.0, NUMBER;
    /// A28: maximum ratio of dropped versions to rows.
    folded_ratio = 10.0, NUMBER;
    /// A30: maximum size of the value of a row, in bytes.
    tiny_bytes = 32.0, NUMBER;
    /// A30: minimum number of rows that a call returns.
    tiny_rows = 100.0, NUMBER;
    /// A32: share of distinct values from which a hashed column scatters.
    scatter_share = 0.5, SHARE;
    /// A33: minimum number of distinct values of the first key column for each partition.
    first_key_values = 2.0, NUMBER;
    /// A34: maximum share of one key in the operations of its partition.
    hot_key_share = 0.2, SHARE;
    /// A35: minimum number of rows.
    unique_rows = 100_000.0, NUMBER;
    /// A36: minimum number of rows.
    merged_rows = 1_000.0, NUMBER;
    /// A38: maximum deviation of intervals, as a share of their mean.
    irregular_share = 0.5, NUMBER;
    /// A38: minimum number of rows.
    irregular_rows = 1_000.0, NUMBER;
    /// A39: maximum ratio of the times to which statements look back.
    retention_ratio = 30.0, RATIO;
    /// A40: maximum gap between the limits of partitions, as a share of the maximum.
    limit_gap = 0.2, SHARE;
    /// A40: minimum number of cycles of a split and a merge in a day.
    cycles_per_day = 3.0, NUMBER;
}

/// Name and value of a text `name=value`, as the option of a table has it.
pub(crate) fn setting(text: &str) -> Option<(&str, f64)> {
    let (name, value) = text.split_once('=')?;
    Some((name.trim(), value.trim().parse().ok()?))
}

impl Thresholds {
    /// All thresholds, in the order of their rules.
    pub fn all() -> &'static [Threshold] {
        ALL
    }

    /// Sets one.
    ///
    /// # Errors
    /// A message, when there is no such threshold, or the value is outside its range.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), String> {
        let Some(description) = ALL.iter().find(|threshold| threshold.name == name) else {
            return Err(format!("threshold \"{name}\" does not exist"));
        };
        // No range contains what is no number.
        if !(description.min..=description.max).contains(&value) {
            let Threshold { min, max, .. } = description;
            return Err(format!("threshold \"{name}\" must be between {min} and {max}"));
        }
        if let Some(threshold) = self.find(name) {
            *threshold = value;
            self.given.insert(description.name);
        }
        Ok(())
    }

    /// Checks the thresholds of a table, each a text `name=value`.
    ///
    /// # Errors
    /// As [`set`](Self::set), and when a text is of another form.
    pub fn check(texts: &[String]) -> Result<(), String> {
        let mut thresholds = Self::default();
        texts.iter().try_for_each(|text| {
            let (name, value) =
                setting(text).ok_or_else(|| format!("\"{text}\" is not of the form name=value"))?;
            thresholds.set(name, value)
        })
    }

    /// These thresholds for a table that has some of its own. Those that were set by name stay.
    pub fn of_table(&self, settings: &[(String, f64)]) -> Self {
        let mut thresholds = self.clone();
        let free = settings.iter().filter(|(name, _)| !self.given.contains(name.as_str()));
        for (name, value) in free {
            // One that this version does not know, or has another range for, keeps its default.
            thresholds.set(name, *value).ok();
        }
        thresholds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_threshold_can_be_set_by_its_name_within_its_range() {
        let mut thresholds = Thresholds::default();
        for Threshold { name, default, min, max, .. } in Thresholds::all() {
            assert!((*min..=*max).contains(default), "{name}: {default}");
            for value in [*min, *max, default.mul_add(0.5, 0.5)] {
                thresholds.set(name, value).unwrap();
                assert_eq!(thresholds.find(name).copied(), Some(value));
            }
            for value in [min - 1.0, max * 1.5, f64::NAN, f64::INFINITY] {
                let message = thresholds.set(name, value).unwrap_err();
                assert_eq!(
                    message,
                    format!("threshold \"{name}\" must be between {min} and {max}")
                );
            }
        }
        assert_ne!(thresholds, Thresholds::default());
        let message = thresholds.set("many_apples", 1.0).unwrap_err();
        assert_eq!(message, "threshold \"many_apples\" does not exist");
    }

    #[test]
    fn every_threshold_names_its_rules() {
        let ids: Vec<&str> = crate::Rule::ALL.iter().map(|rule| rule.id()).collect();
        for threshold in Thresholds::all() {
            for rule in threshold.rules().split(", ") {
                assert!(ids.contains(&rule), "{}: {rule}", threshold.name);
            }
            let meaning = threshold.meaning();
            assert!(meaning.ends_with('.') && meaning.len() > 10, "{}: {meaning}", threshold.name);
        }
    }

    #[test]
    fn a_table_has_its_own_thresholds_unless_the_question_names_others() {
        let settings = [("calls", 5.0), ("many_tags", 9.0), ("gone", 1.0), ("sparse_table", 7.0)];
        let settings = settings.map(|(name, value)| (name.to_owned(), value));
        let mut question = Thresholds::default();
        question.set("many_tags", 5.0).unwrap();
        let thresholds = question.of_table(&settings);
        assert_eq!((thresholds.calls, thresholds.many_tags), (5.0, 5.0));
        assert_eq!(thresholds.sparse_table, Thresholds::default().sparse_table);
        assert_eq!(Thresholds::default().of_table(&[]), Thresholds::default());
    }

    #[test]
    fn the_option_of_a_table_is_checked() {
        let check = |texts: &[&str]| {
            Thresholds::check(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(check(&["calls=5", "sparse_table=0.25"]), Ok(()));
        for (text, message) in [
            ("calls", "\"calls\" is not of the form name=value"),
            ("apples=1", "threshold \"apples\" does not exist"),
            ("sparse_table=2", "threshold \"sparse_table\" must be between 0 and 1"),
        ] {
            assert_eq!(check(&["calls=5", text]), Err(message.to_owned()));
        }
    }
}
