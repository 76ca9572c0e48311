//! Row predicates: the rows of a database that a token may read.
//!
//! A predicate is a conjunction of `column = literal` and `column IN (literals)` on key columns of a table. Key columns
//! only, because a scan can apply these below the merge of versions: no other row leaves the storage.
//!
//! Invariants:
//! - a predicate has at least one term, and a term at least one value, none of them NULL;
//! - a table whose key lacks one of the columns, or whose column cannot have the type of a literal, has no row that the
//!   predicate allows. It is an error, never a wider set.

use std::fmt;
use std::sync::Arc;

use crate::domain::{Domain, Domains};
use crate::error::Error;
use crate::schema::TableSchema;
use crate::value::Value;

/// Maximum terms of a predicate.
const TERMS_MAX: usize = 16;
/// Maximum values of all terms of a predicate.
const VALUES_MAX: usize = 1024;

/// One condition: the column has one of the values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// Name of a key column in SQL.
    pub column: String,
    /// Allowed values, as literals; the column's type is known when the predicate is applied.
    pub values: Vec<Value>,
}

/// Conjunction of terms. A clone costs a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowPredicate(Arc<[Term]>);

impl RowPredicate {
    /// The conjunction of these terms. A column may occur in several of them.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when there is no term, a term has no value or a NULL, or there are too many.
    pub fn new(terms: Vec<Term>) -> Result<Self, Error> {
        let invalid = |message: String| Err(Error::InvalidInput(message));
        if terms.is_empty() || terms.iter().any(|term| term.values.is_empty()) {
            return invalid("a row predicate needs a column and a value".to_owned());
        }
        let values = terms.iter().map(|term| term.values.len()).sum::<usize>();
        if terms.len() > TERMS_MAX || values > VALUES_MAX {
            return invalid(format!(
                "a row predicate has at most {TERMS_MAX} terms and {VALUES_MAX} values"
            ));
        }
        if terms.iter().flat_map(|term| &term.values).any(Value::is_null) {
            return invalid("a row predicate cannot compare with NULL".to_owned());
        }
        Ok(Self(terms.into()))
    }

    /// The terms, at least one.
    #[must_use]
    pub fn terms(&self) -> &[Term] {
        &self.0
    }

    /// The rows that both predicates allow.
    #[must_use]
    pub fn and(&self, predicate: &Self) -> Self {
        Self(self.0.iter().chain(predicate.0.iter()).cloned().collect())
    }

    /// The predicate as domains of a table's columns, which scans apply exactly.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when the table's key lacks a column of the predicate, or the column is not comparable
    /// with a literal. Then no row may be read.
    pub fn domains(&self, schema: &TableSchema) -> Result<Domains, Error> {
        let mut domains = Domains::default();
        for term in self.terms() {
            let column = schema.column(&term.column).filter(|column| schema.is_key(column.id));
            let column = column.ok_or_else(|| {
                Error::InvalidInput(format!("\"{}\" is not a key column", term.column))
            })?;
            // Literals of different kinds have no common domain: each gets the column's type first.
            let mut intervals = Vec::with_capacity(term.values.len());
            for value in &term.values {
                let point = Domain::point(value.clone()).typed(column.column_type)?;
                intervals.extend_from_slice(point.intervals());
            }
            domains.restrict(&column.storage_name, Domain::from_intervals(false, intervals));
        }
        Ok(domains)
    }
}

impl fmt::Display for RowPredicate {
    /// For example `"area" = 'A' AND "id" IN (1, 2)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, term) in self.terms().iter().enumerate() {
            let and = if position > 0 { " AND " } else { "" };
            write!(f, "{and}\"{}\" ", term.column.replace('"', "\"\""))?;
            match term.values.as_slice() {
                [value] => write!(f, "= {value}")?,
                values => {
                    let values: Vec<String> = values.iter().map(Value::to_string).collect();
                    write!(f, "IN ({})", values.join(", "))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use crate::schema::ColumnType;

    fn text(value: &str) -> Value {
        Value::String(value.to_owned())
    }

    fn term(column: &str, values: &[Value]) -> Term {
        Term { column: column.to_owned(), values: values.to_vec() }
    }

    #[test]
    fn a_predicate_is_the_domains_of_the_key_columns_that_it_names() {
        let schema = samples::schema(&[ColumnType::String, ColumnType::Int32]);
        let predicate = RowPredicate::new(vec![
            term("k0", &[text("a"), text("b")]),
            term("k1", &[Value::Int(1), text("2"), Value::UInt(3)]),
            term("k0", &[text("b"), text("c")]),
        ]);
        let predicate = predicate.unwrap();
        assert_eq!(
            predicate.to_string(),
            "\"k0\" IN ('a', 'b') AND \"k1\" IN (1, '2', 3) AND \"k0\" IN ('b', 'c')"
        );
        let domains = predicate.domains(&schema).unwrap();
        let allows = |column: &str, value: Value| domains.get(column).unwrap().contains(&value);
        assert!(allows("k0", text("b")) && !allows("k0", text("a")) && !allows("k0", text("c")));
        assert!((1..=3).all(|number| allows("k1", Value::Int(number))));
        assert!(!allows("k1", Value::Int(4)) && !allows("k1", Value::Null));
        assert!(domains.get("f").is_none());
    }

    #[test]
    fn terms_that_exclude_each_other_allow_no_row() {
        let schema = samples::schema(&[ColumnType::String]);
        let predicate = |value: &str| RowPredicate::new(vec![term("k0", &[text(value)])]).unwrap();
        let both = predicate("a").and(&predicate("b"));
        assert!(both.domains(&schema).unwrap().is_none());
        assert_eq!(both.to_string(), "\"k0\" = 'a' AND \"k0\" = 'b'");
    }

    #[test]
    fn a_table_without_the_column_is_an_error_and_not_all_its_rows() {
        let schema = samples::schema(&[ColumnType::Int32]);
        let refused = |column: &str, value: Value| {
            RowPredicate::new(vec![term(column, &[value])]).unwrap().domains(&schema).is_err()
        };
        // Unknown, a field, and no number.
        assert!(refused("customer", Value::Int(1)));
        assert!(refused("f", Value::Float(1.0)));
        assert!(refused("k0", text("x")));
        assert!(!refused("k0", Value::Int(1)));
        // No INT has this value: no row, and no error.
        let large = RowPredicate::new(vec![term("k0", &[Value::Int(i64::MAX)])]).unwrap();
        assert!(large.domains(&schema).unwrap().is_none());
    }

    #[test]
    fn predicates_without_a_bound_or_a_value_are_refused() {
        let many: Vec<Value> = (0..1025).map(Value::Int).collect();
        let terms = [
            vec![],
            vec![term("k0", &[])],
            vec![term("k0", &[Value::Null])],
            vec![term("k0", &many)],
            vec![term("k0", &[Value::Int(1)]); 17],
        ];
        for terms in terms {
            assert!(RowPredicate::new(terms).is_err());
        }
    }
}
