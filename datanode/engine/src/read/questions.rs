//! Tests of rows, made ready for indexes: domains in the types of their columns, patterns compiled.
//!
//! ```text
//!   Probe (of a request) ──┐
//!                          ├── Prepared ──┬── Question, for the segments of an index
//!   Domain (of a scan) ────┘              └── mask, for rows in memory
//! ```
//!
//! Invariant: a row that is wanted passes every test. So a part that cannot be prepared restricts nothing
//! ([`Prepared::Unknown`]), and neither does a disjunction with such a part.

use std::collections::BTreeSet;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::{and_kleene, or_kleene};
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use partita_proto::domain::Domain;
use partita_proto::probe::{ColumnTest, Probe};
use partita_proto::schema::ColumnType;
use partita_proto::text::contains_term;
use regex::{Regex, RegexBuilder};

use crate::error::Result;
use crate::index::Question;
use crate::rows::layout::Layout;

/// Maximum bytes of a compiled pattern. A larger one restricts nothing.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// A probe whose patterns are compiled.
#[derive(Debug)]
pub(crate) enum Prepared {
    /// Passed by rows that pass all parts.
    All(Vec<Self>),
    /// Passed by rows that pass at least one part.
    Any(Vec<Self>),
    /// A test of a column, by storage name.
    Test { column: String, test: PreparedTest },
    /// A test that cannot be evaluated: any row may pass.
    Unknown,
}

/// A test of one column's value.
#[derive(Debug)]
pub(crate) enum PreparedTest {
    /// The domain, in the column's type, contains the value.
    Within(Domain),
    /// The pattern matches the text.
    Pattern(Regex),
    /// The text (in lower case, if `folded`) contains all terms.
    Terms { terms: Vec<String>, folded: bool },
}

impl Prepared {
    /// Prepares a probe. A pattern that does not compile, a domain that does not fit its column's type, and a column
    /// that the table does not have become [`Prepared::Unknown`].
    pub(crate) fn new(probe: &Probe, layout: &Layout) -> Self {
        let prepared = |parts: &[Probe]| -> Vec<Self> {
            parts.iter().map(|part| Self::new(part, layout)).collect()
        };
        match probe {
            Probe::All(parts) => Self::All(prepared(parts)),
            Probe::Any(parts) => Self::Any(prepared(parts)),
            Probe::Column { column, test } => match PreparedTest::new(column, test, layout) {
                Some(test) => Self::Test { column: column.clone(), test },
                None => Self::Unknown,
            },
        }
    }

    /// The test of a domain that is in the type of its column.
    pub(crate) fn of_domain(column: &str, domain: &Domain) -> Self {
        Self::Test { column: column.to_owned(), test: PreparedTest::Within(domain.clone()) }
    }

    /// Column and domain, if the test is no more than that.
    pub(crate) fn domain(&self) -> Option<(&str, &Domain)> {
        match self {
            Self::Test { column, test: PreparedTest::Within(domain) } => {
                Some((column.as_str(), domain))
            }
            Self::Test { test: PreparedTest::Pattern(_) | PreparedTest::Terms { .. }, .. }
            | Self::All(_)
            | Self::Any(_)
            | Self::Unknown => None,
        }
    }

    /// True if it tests columns of the key only, and can be evaluated: all versions of a row pass it, or none does.
    pub(crate) fn is_on_key(&self, layout: &Layout) -> bool {
        match self {
            Self::All(parts) | Self::Any(parts) => {
                !parts.is_empty() && parts.iter().all(|part| part.is_on_key(layout))
            }
            Self::Test { column, .. } => layout.is_key(column),
            Self::Unknown => false,
        }
    }

    /// True if no conjunction in it tests two columns, so that each way of passing it depends on one column.
    pub(crate) fn is_per_column(&self) -> bool {
        match self {
            // Parts that cannot be evaluated are left out of a conjunction.
            Self::All(_) => self.columns().len() <= 1,
            Self::Any(parts) => parts.iter().all(Self::is_per_column),
            Self::Test { .. } | Self::Unknown => true,
        }
    }

    /// Storage names of the columns that it tests.
    pub(crate) fn columns(&self) -> BTreeSet<&str> {
        let mut columns = BTreeSet::new();
        self.add_columns(&mut columns);
        columns
    }

    fn add_columns<'a>(&'a self, columns: &mut BTreeSet<&'a str>) {
        match self {
            Self::All(parts) | Self::Any(parts) => {
                parts.iter().for_each(|part| part.add_columns(columns));
            }
            Self::Test { column, .. } => {
                columns.insert(column);
            }
            Self::Unknown => {}
        }
    }

    /// Mask of the rows that pass, by evaluation; NULL and false: the row does not. `None`: any row may pass, because a
    /// part cannot be evaluated or the rows do not have its column.
    pub(crate) fn mask(&self, rows: &RecordBatch) -> Result<Option<BooleanArray>> {
        match self {
            Self::All(parts) => {
                let masks = parts.iter().filter_map(|part| part.mask(rows).transpose());
                let mut conjunction: Option<BooleanArray> = None;
                for mask in masks {
                    let mask = mask?;
                    conjunction = Some(match conjunction {
                        Some(previous) => and_kleene(&previous, &mask)?,
                        None => mask,
                    });
                }
                Ok(conjunction)
            }
            Self::Any(parts) => {
                let mut disjunction: Option<BooleanArray> = None;
                for part in parts {
                    let Some(mask) = part.mask(rows)? else { return Ok(None) };
                    disjunction = Some(match disjunction {
                        Some(previous) => or_kleene(&previous, &mask)?,
                        None => mask,
                    });
                }
                Ok(disjunction)
            }
            Self::Test { column, test } => match rows.column_by_name(column) {
                Some(column) => test.mask(column),
                None => Ok(None),
            },
            Self::Unknown => Ok(None),
        }
    }
}

impl PreparedTest {
    /// `None` when the test cannot be evaluated.
    fn new(column: &str, test: &ColumnTest, layout: &Layout) -> Option<Self> {
        let mut columns = layout.config.schema.columns.iter();
        let column_type = columns.find(|candidate| candidate.storage_name == column)?.column_type;
        let is_text = column_type == ColumnType::String;
        match test {
            ColumnTest::Within(domain) => domain.typed(column_type).ok().map(Self::Within),
            ColumnTest::Like(pattern) if is_text => {
                compiled(&like_to_regex(pattern)?, false).map(Self::Pattern)
            }
            ColumnTest::Regex { pattern, case_insensitive } if is_text => {
                compiled(pattern, *case_insensitive).map(Self::Pattern)
            }
            ColumnTest::Terms { terms, folded } if is_text => {
                Some(Self::Terms { terms: terms.clone(), folded: *folded })
            }
            ColumnTest::Like(_) | ColumnTest::Regex { .. } | ColumnTest::Terms { .. } => None,
        }
    }

    /// The question for the segments of an index.
    pub(crate) fn question(&self) -> Question<'_> {
        match self {
            Self::Within(domain) => Question::Within(domain),
            Self::Pattern(pattern) => Question::Pattern(pattern),
            Self::Terms { terms, folded } => Question::Terms { terms, folded: *folded },
        }
    }

    /// Mask of the rows that pass; `None` when the column is of another type than the test.
    fn mask(&self, column: &ArrayRef) -> Result<Option<BooleanArray>> {
        match self {
            Self::Within(domain) => Ok(Some(domain.mask(column.as_ref())?)),
            Self::Pattern(pattern) => Ok(text_mask(column, |text| pattern.is_match(text))),
            Self::Terms { terms, folded: false } => {
                Ok(text_mask(column, |text| terms.iter().all(|term| contains_term(text, term))))
            }
            Self::Terms { terms, folded: true } => Ok(text_mask(column, |text| {
                let text = text.to_lowercase();
                terms.iter().all(|term| contains_term(&text, term))
            })),
        }
    }
}

/// Mask of the texts that pass; NULL for NULL. `None` if the column has no texts.
fn text_mask(column: &ArrayRef, passes: impl Fn(&str) -> bool) -> Option<BooleanArray> {
    if *column.data_type() != DataType::Utf8View {
        return None;
    }
    Some(column.as_string_view().iter().map(|text| text.map(&passes)).collect())
}

/// A compiled expression; `None` if it is invalid or too large.
fn compiled(pattern: &str, case_insensitive: bool) -> Option<Regex> {
    RegexBuilder::new(pattern)
        .case_insensitive(case_insensitive)
        .size_limit(PATTERN_BYTES_MAX)
        .build()
        .ok()
}

/// The expression that matches what a pattern of LIKE does; `None` when the pattern ends with an escape character,
/// which databases understand differently.
fn like_to_regex(pattern: &str) -> Option<String> {
    let mut expression = String::from("(?s)^");
    let mut literal = String::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        let wildcard = match character {
            '%' => ".*",
            '_' => ".",
            '\\' => {
                literal.push(characters.next()?);
                continue;
            }
            character => {
                literal.push(character);
                continue;
            }
        };
        expression.push_str(&regex::escape(&literal));
        literal.clear();
        expression.push_str(wildcard);
    }
    expression.push_str(&regex::escape(&literal));
    expression.push('$');
    Some(expression)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringViewArray};
    use partita_proto::rule::Comparison;
    use partita_proto::value::Value;

    use super::*;

    fn pattern(column: &str, expression: &str) -> Prepared {
        let test = PreparedTest::Pattern(Regex::new(expression).unwrap());
        Prepared::Test { column: column.to_owned(), test }
    }

    fn at_least(column: &str, value: i64) -> Prepared {
        let domain = Domain::compare(Comparison::GreaterOrEqual, Value::Int(value));
        Prepared::of_domain(column, &domain)
    }

    fn rows() -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(2), None, Some(4)]));
        let texts = vec![Some("disk full"), None, Some("Disk"), Some("discs")];
        let texts: ArrayRef = Arc::new(StringViewArray::from(texts));
        RecordBatch::try_from_iter_with_nullable([("a", numbers, true), ("b", texts, true)])
            .unwrap()
    }

    /// The rows that pass, in digits; `?` when any row may.
    fn passing(test: &Prepared) -> String {
        let rows = rows();
        let Some(mask) = test.mask(&rows).unwrap() else { return "?".to_owned() };
        assert_eq!(mask.len(), rows.num_rows());
        let passing = (0..mask.len()).filter(|row| mask.is_valid(*row) && mask.value(*row));
        passing.map(|row| row.to_string()).collect()
    }

    fn terms(terms: &[&str], folded: bool) -> Prepared {
        let terms = terms.iter().map(|term| (*term).to_owned()).collect();
        Prepared::Test { column: "b".to_owned(), test: PreparedTest::Terms { terms, folded } }
    }

    #[test]
    fn rows_pass_as_the_tests_say() {
        assert_eq!(passing(&at_least("a", 2)), "13");
        assert_eq!(passing(&Prepared::of_domain("a", &Domain::null_only())), "2");
        assert_eq!(passing(&pattern("b", "^dis[ck]")), "03");
        assert_eq!(passing(&terms(&["disk"], false)), "0");
        assert_eq!(passing(&terms(&["disk"], true)), "02");
        assert_eq!(passing(&terms(&["disk", "full"], true)), "0");
        let both = Prepared::All(vec![at_least("a", 1), pattern("b", "dis")]);
        assert_eq!(passing(&both), "03");
        let either = Prepared::Any(vec![at_least("a", 4), terms(&["disk"], true)]);
        assert_eq!(passing(&either), "023");
    }

    #[test]
    fn parts_that_cannot_be_evaluated_restrict_nothing() {
        assert_eq!(passing(&Prepared::Unknown), "?");
        assert_eq!(passing(&at_least("absent", 1)), "?");
        assert_eq!(passing(&pattern("a", "1")), "?", "a number is no text");
        assert_eq!(passing(&Prepared::All(vec![Prepared::Unknown, at_least("a", 4)])), "3");
        assert_eq!(passing(&Prepared::Any(vec![Prepared::Unknown, at_least("a", 4)])), "?");
        assert_eq!(passing(&Prepared::All(Vec::new())), "?");
        assert_eq!(passing(&Prepared::Any(Vec::new())), "?");
    }

    #[test]
    fn a_conjunction_over_two_columns_depends_on_both() {
        let both = || Prepared::All(vec![at_least("a", 1), pattern("b", "x")]);
        let either = Prepared::Any(vec![at_least("a", 1), pattern("b", "x")]);
        assert_eq!(either.columns(), BTreeSet::from(["a", "b"]));
        assert!(either.is_per_column() && at_least("a", 1).is_per_column());
        assert!(!both().is_per_column());
        assert!(!Prepared::Any(vec![both(), at_least("a", 2)]).is_per_column());
        assert!(Prepared::All(vec![at_least("a", 1), Prepared::Unknown]).is_per_column());
    }

    #[test]
    fn like_becomes_an_expression_that_matches_the_same() {
        let matches = |pattern: &str, text: &str| {
            compiled(&like_to_regex(pattern).unwrap(), false).unwrap().is_match(text)
        };
        for (pattern, text, expected) in [
            ("%", "", true),
            ("%", "two\nlines", true),
            ("a%c", "abc", true),
            ("a%c", "a\nc", true),
            ("a%c", "abcd", false),
            ("_", "é", true),
            ("_", "", false),
            ("a.c", "abc", false),
            ("a.c", "a.c", true),
            ("50\\%", "50%", true),
            ("50\\%", "500", false),
            ("\\_x", "_x", true),
            ("\\_x", "ax", false),
            ("a\\\\b", "a\\b", true),
            ("(?i)A", "a", false),
            ("abc", "ABC", false),
            ("", "", true),
            ("", "a", false),
            ("%磁盘%", "故障磁盘已满", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern:?} and {text:?}");
        }
        assert_eq!(like_to_regex("abc\\"), None);
        assert!(compiled("(", false).is_none(), "it is invalid");
        assert!(compiled("a{1000}{1000}", false).is_none(), "it is too large");
    }
}
