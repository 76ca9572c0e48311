//! Functions that look for words in texts.
//!
//! ```text
//!   matches_term(text, term)     the text contains the term, and no word goes on at its ends
//!   matches(text, query)         the text satisfies a query of terms, "phrases", AND, OR, NOT and parentheses
//! ```
//!
//! Both have the rules of `partita_proto::text`, which full-text indexes share. `matches` ignores case, `matches_term`
//! does not; `a @@ b` is `matches_term(a, b)`. A term or query is prepared once for adjacent rows that share it.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;
use partita_proto::text::{TermFinder, TextQuery};

use crate::error::SqlError;
use crate::plain::{Plain, all, is_text};

/// The functions to register.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [&MATCHES_TERM, &MATCHES].into_iter().map(Plain::function)
}

static MATCHES_TERM: Plain = Plain {
    name: "matches_term",
    takes: |types| all(types, 2, is_text, &DataType::Utf8View),
    gives: |_| DataType::Boolean,
    run: |arguments| {
        let (values, terms) = (views(&arguments[0])?, views(&arguments[1])?);
        let mut finder: Option<TermFinder<'_>> = None;
        let results = values.iter().zip(&terms).map(|pair| match pair {
            (Some(value), Some(term)) => {
                // Mostly the term is a literal, the same in all rows.
                if finder.as_ref().is_none_or(|finder| finder.term() != term) {
                    finder = Some(TermFinder::new(term));
                }
                finder.as_ref().map(|finder| finder.is_in(value))
            }
            (None, _) | (_, None) => None,
        });
        Ok(Arc::new(results.collect::<BooleanArray>()))
    },
};

static MATCHES: Plain = Plain {
    name: "matches",
    takes: |types| all(types, 2, is_text, &DataType::Utf8View),
    gives: |_| DataType::Boolean,
    run: |arguments| {
        let (values, queries) = (views(&arguments[0])?, views(&arguments[1])?);
        let mut parsed = Parsed::default();
        let results = values.iter().zip(&queries).map(|pair| match pair {
            (Some(value), Some(query)) => {
                let query = parsed.of(query)?;
                Ok(Some(query.matches(&value.to_lowercase())))
            }
            (None, _) | (_, None) => Ok(None),
        });
        Ok(Arc::new(results.collect::<Result<BooleanArray, SqlError>>()?))
    },
};

/// An argument as views of texts.
fn views(argument: &ArrayRef) -> Result<StringViewArray> {
    Ok(cast(argument, &DataType::Utf8View)?.as_string_view().clone())
}

/// Cache of one parsed query.
#[derive(Default)]
struct Parsed {
    cached: Option<(String, TextQuery)>,
}

impl Parsed {
    fn of(&mut self, text: &str) -> Result<&TextQuery, SqlError> {
        if self.cached.as_ref().is_none_or(|(cached, _)| cached != text) {
            let query = TextQuery::parse(text).map_err(SqlError::syntax)?;
            self.cached = Some((text.to_owned(), query));
        }
        match &self.cached {
            Some((_, query)) => Ok(query),
            None => Err(SqlError::internal("query cache is empty")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(texts: &[Option<&str>]) -> ArrayRef {
        Arc::new(StringViewArray::from(texts.to_vec()))
    }

    fn run(function: &Plain, texts: &[Option<&str>], sought: &[Option<&str>]) -> Vec<Option<bool>> {
        let made = (function.run)(&[column(texts), column(sought)]).unwrap();
        made.as_boolean().iter().collect()
    }

    #[test]
    fn a_term_is_found_where_no_word_goes_on() {
        for (text, term, is_found) in [
            ("error-prone", "error", true),
            ("an error", "error", true),
            ("error", "error", true),
            ("errors", "error", false),
            ("error123", "error", false),
            ("terror", "error", false),
            ("errors, then an error", "error", true),
            ("a system failure!", "system failure", true),
            ("system-failure", "system failure", false),
            ("Error", "error", false),
            ("磁盘已满", "已满", true),
            ("error", "", false),
        ] {
            assert_eq!(
                run(&MATCHES_TERM, &[Some(text)], &[Some(term)]),
                [Some(is_found)],
                "{text}"
            );
        }
    }

    #[test]
    fn a_query_joins_terms_and_phrases_without_regard_to_case() {
        for (query, is_satisfied) in [
            ("disk", true),
            ("DISK full", true),
            ("disk AND empty", false),
            ("empty OR full", true),
            ("disk NOT empty", true),
            ("disk -full", false),
            ("\"disk full\"", true),
            ("\"full disk\"", false),
            ("(empty OR full) AND NOT cpu", true),
            ("dis", false),
        ] {
            let satisfied = run(&MATCHES, &[Some("The Disk full: 3 of 4")], &[Some(query)]);
            assert_eq!(satisfied, [Some(is_satisfied)], "{query}");
        }
    }

    /// Lines of words and punctuation, by a generator with a fixed seed.
    fn lines(count: usize) -> Vec<String> {
        const WORDS: [&str; 12] = [
            "error", "Error", "errors", "error123", "system", "failure", "disk", "Disk", "full",
            "磁盘", "x_error", "3",
        ];
        const BETWEEN: [&str; 6] = [" ", "-", ", ", "_", "/", ""];
        let mut state = 34_u64;
        let mut below = |end: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(state >> 33).unwrap() % end
        };
        let mut line = || -> String {
            let length = below(7);
            (0..length).map(|_| [WORDS[below(12)], BETWEEN[below(6)]].concat()).collect()
        };
        (0..count).map(|_| line()).collect()
    }

    /// The definition of `matches_term`, character by character.
    fn has(text: &str, term: &str) -> bool {
        let is_of_word = |c: char| c.is_alphanumeric() && !('\u{3040}'..='\u{9FFF}').contains(&c);
        let (text, term): (Vec<char>, Vec<char>) = (text.chars().collect(), term.chars().collect());
        (0..text.len()).any(|start| {
            let end = start + term.len();
            let goes_on = |inner: char, outer: Option<&char>| {
                is_of_word(inner) && outer.is_some_and(|outer| is_of_word(*outer))
            };
            text.get(start..end) == Some(&term[..])
                && !goes_on(term[0], start.checked_sub(1).and_then(|before| text.get(before)))
                && !goes_on(term[term.len() - 1], text.get(end))
        })
    }

    #[test]
    fn a_hundred_thousand_lines_are_searched_as_by_the_definitions() {
        let lines = lines(100_000);
        let texts: Vec<Option<&str>> = lines.iter().map(|line| Some(line.as_str())).collect();
        for term in ["error", "system failure", "disk, Disk", "盘", "磁盘", "_", "failure-"] {
            let terms = vec![Some(term); texts.len()];
            let found = run(&MATCHES_TERM, &texts, &terms);
            let differs =
                |(line, found): &(&String, &Option<bool>)| **found != Some(has(line, term));
            let different = lines.iter().zip(&found).find(differs);
            assert_eq!(different, None, "{term}");
            assert!(found.contains(&Some(true)), "{term}");
        }
        let expected: [(&str, fn(&str) -> bool); 6] = [
            ("Error", |text| has(text, "error")),
            ("disk full", |text| has(text, "disk") && has(text, "full")),
            ("\"system failure\" OR 磁盘", |text| {
                has(text, "system failure") || has(text, "磁盘")
            }),
            ("error -disk", |text| has(text, "error") && !has(text, "disk")),
            ("(error OR failure) AND NOT (disk OR 3)", |text| {
                (has(text, "error") || has(text, "failure"))
                    && !(has(text, "disk") || has(text, "3"))
            }),
            ("NOT \"disk/full\" +system", |text| !has(text, "disk/full") && has(text, "system")),
        ];
        for (query, is_satisfied) in expected {
            let queries = vec![Some(query); texts.len()];
            let found = run(&MATCHES, &texts, &queries);
            let differs = |(line, found): &(&String, &Option<bool>)| {
                **found != Some(is_satisfied(&line.to_lowercase()))
            };
            let different = lines.iter().zip(&found).find(differs);
            assert_eq!(different, None, "{query}");
            assert!(found.contains(&Some(true)) && found.contains(&Some(false)), "{query}");
        }
    }

    #[test]
    fn null_is_neither_found_nor_missing() {
        for function in [&MATCHES_TERM, &MATCHES] {
            let values = [Some("a b"), None, Some("a b"), Some("a b")];
            let sought = [Some("b"), Some("b"), None, Some("c")];
            assert_eq!(run(function, &values, &sought), [Some(true), None, None, Some(false)]);
        }
    }

    #[test]
    fn a_query_that_is_none_is_a_syntax_error() {
        for query in ["", "(a", "a)", "\"a", "a AND"] {
            let refused = (MATCHES.run)(&[column(&[Some("a")]), column(&[Some(query)])]);
            assert_eq!(SqlError::from(refused.unwrap_err()).sqlstate, "42601", "{query}");
        }
        // No row, no query.
        assert_eq!(run(&MATCHES, &[None], &[Some("(a")]), [None]);
    }
}
