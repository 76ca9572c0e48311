//! Probes: tests of rows that indexes can answer, beside the domains of a scan.
//!
//! A [`Domain`] is a set of values of one column. A probe says what a domain cannot: a pattern, the words of a text, a
//! disjunction over several columns. Every wanted row passes it; rows that fail it need not be returned, and rows that
//! pass it may still be unwanted. So whoever does not understand a probe may ignore it.

use std::collections::BTreeSet;

use crate::domain::Domain;

/// Maximum depth of a probe in a request.
pub const PROBE_DEPTH_MAX: usize = 16;
/// Maximum number of tests and operators of all probes of a request together.
pub const PROBE_NODES_MAX: usize = 10_000;

/// A test that every wanted row passes, for indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Passed by rows that pass all parts.
    All(Vec<Probe>),
    /// Passed by rows that pass at least one part.
    Any(Vec<Probe>),
    /// A test of one column.
    Column {
        /// Storage name.
        column: String,
        /// Test of the value.
        test: ColumnTest,
    },
}

/// A test of a column's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnTest {
    /// The value lies in the domain.
    Within(Domain),
    /// SQL's LIKE, with `\` as the escape.
    Like(String),
    /// A regular expression finds a match, in the syntax of the crate `regex`.
    Regex {
        /// The expression.
        pattern: String,
        /// True if letters of either case match each other.
        case_insensitive: bool,
    },
    /// The text contains all terms, as [`crate::text::contains_term`] says.
    Terms {
        /// Terms to be contained.
        terms: Vec<String>,
        /// True if the text in lower case contains them.
        folded: bool,
    },
}

impl Probe {
    /// Storage names of the columns that it tests.
    pub fn columns(&self) -> BTreeSet<&str> {
        let mut columns = BTreeSet::new();
        self.add_columns(&mut columns);
        columns
    }

    fn add_columns<'a>(&'a self, columns: &mut BTreeSet<&'a str>) {
        match self {
            Self::All(parts) | Self::Any(parts) => {
                parts.iter().for_each(|part| part.add_columns(columns));
            }
            Self::Column { column, .. } => {
                columns.insert(column);
            }
        }
    }

    /// True if no `All` in it tests two columns, so that each way of passing it depends on one column.
    pub fn is_per_column(&self) -> bool {
        match self {
            Self::All(_) => self.columns().len() <= 1,
            Self::Any(parts) => parts.iter().all(Self::is_per_column),
            Self::Column { .. } => true,
        }
    }

    /// Number of tests and operators, and depth: 1 for a test of a column.
    pub(crate) fn size(&self) -> (usize, usize) {
        match self {
            Self::All(parts) | Self::Any(parts) => {
                let sizes = parts.iter().map(Self::size);
                let (nodes, depth) = sizes
                    .fold((0_usize, 0_usize), |(nodes, depth), (count, height)| {
                        (nodes + count, depth.max(height))
                    });
                (nodes + 1, depth + 1)
            }
            Self::Column { .. } => (1, 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn like(column: &str) -> Probe {
        Probe::Column { column: column.to_owned(), test: ColumnTest::Like("%x%".to_owned()) }
    }

    #[test]
    fn columns_are_those_of_all_parts() {
        let probe = Probe::Any(vec![like("b"), Probe::All(vec![like("a"), like("b")])]);
        assert_eq!(probe.columns(), BTreeSet::from(["a", "b"]));
        assert_eq!(Probe::All(Vec::new()).columns(), BTreeSet::new());
    }

    #[test]
    fn a_conjunction_over_two_columns_is_not_per_column_wherever_it_is() {
        let two = Probe::All(vec![like("a"), Probe::Any(vec![like("b")])]);
        let one = Probe::All(vec![like("a"), Probe::Any(vec![like("a"), like("a")])]);
        assert!(like("a").is_per_column());
        assert!(one.is_per_column());
        assert!(!two.is_per_column());
        assert!(Probe::Any(vec![like("a"), like("b"), one]).is_per_column());
        assert!(!Probe::Any(vec![like("a"), Probe::Any(vec![two])]).is_per_column());
        // An alternative over two columns within a conjunction depends on both.
        let either = Probe::Any(vec![like("a"), like("b")]);
        assert!(!Probe::All(vec![either]).is_per_column());
    }

    #[test]
    fn nodes_and_depth_are_counted() {
        assert_eq!(like("a").size(), (1, 1));
        assert_eq!(Probe::All(Vec::new()).size(), (1, 1));
        let probe = Probe::Any(vec![like("a"), Probe::All(vec![like("b"), like("c")])]);
        assert_eq!(probe.size(), (5, 3));
    }
}
