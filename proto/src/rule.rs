//! Partition expressions of `PARTITION ON COLUMNS (...)`: each selects the rows of a partition.
//!
//! NULL sorts before every value, as in the key: `a < 1`, `a <= 1` and `a <> 1` are true of NULL, `=`, `>` and `>=` are
//! not. So rules can cover every row, and `a < 1`, `a >= 1` do.
//!
//! A comparison is a [`Domain`] of its column; rows are judged by [`Rule::mask`] only, so that the placement of rows,
//! the check that rules cover every row ([`check_cover`]) and the pruning of partitions cannot disagree.

mod cover;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeSet;

use arrow::array::BooleanArray;
use arrow::buffer::BooleanBuffer;
use arrow::record_batch::RecordBatch;
use serde::{Deserialize, Serialize};

pub use self::cover::check_cover;
use crate::domain::{Domain, Domains};
use crate::error::Error;
use crate::id::ColumnId;
use crate::schema::{Column, TableSchema};
use crate::value::Value;

/// A comparison operator of a partition expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`, `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Comparison {
    /// The operator in SQL.
    pub const fn sql(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "<>",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }

    /// True if the comparison is true of NULL in a partition expression, where NULL sorts first.
    const fn takes_null(self) -> bool {
        matches!(self, Self::Less | Self::LessOrEqual | Self::NotEqual)
    }
}

/// A boolean expression over columns and literals. NULL sorts before every value, as in the key:
/// `a < 1` is true of NULL, `a >= 1` is not, so that rules can cover every row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rule {
    /// `column op literal`; the literal is of the column's type and not NULL.
    Compare {
        /// Column on the left of the operator.
        column: ColumnId,
        /// The operator.
        comparison: Comparison,
        /// The literal.
        value: Value,
    },
    /// Conjunction (an empty one is true).
    And(Vec<Rule>),
    /// Disjunction (an empty one is false).
    Or(Vec<Rule>),
}

impl Rule {
    /// Mask of the rows that satisfy the rule. Columns are named by storage name; one that the batch does not have is
    /// NULL.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when the rule names a column that does not exist or compares one with a literal of
    /// another type.
    pub fn mask(&self, schema: &TableSchema, rows: &RecordBatch) -> Result<BooleanArray, Error> {
        Ok(BooleanArray::new(self.evaluate(schema, rows)?, None))
    }

    fn evaluate(&self, schema: &TableSchema, rows: &RecordBatch) -> Result<BooleanBuffer, Error> {
        let set = BooleanBuffer::new_set;
        let unset = BooleanBuffer::new_unset;
        match self {
            Self::Compare { column, comparison, value } => {
                let column = column_of(schema, *column)?;
                let domain = compared(column, *comparison, value)?;
                match rows.column_by_name(&column.storage_name) {
                    Some(values) => Ok(domain.mask(values.as_ref())?.into_parts().0),
                    None if domain.allows_null() => Ok(set(rows.num_rows())),
                    None => Ok(unset(rows.num_rows())),
                }
            }
            Self::And(rules) => rules.iter().try_fold(set(rows.num_rows()), |mask, rule| {
                if mask.has_true() { Ok(&mask & &rule.evaluate(schema, rows)?) } else { Ok(mask) }
            }),
            Self::Or(rules) => rules.iter().try_fold(unset(rows.num_rows()), |mask, rule| {
                if mask.has_false() { Ok(&mask | &rule.evaluate(schema, rows)?) } else { Ok(mask) }
            }),
        }
    }

    /// True if a row of the domains may satisfy the rule; false only if none can.
    pub fn may_match(&self, schema: &TableSchema, domains: &Domains) -> bool {
        self.may_match_typed(schema, &domains.typed(schema))
    }

    /// As [`Rule::may_match`], for domains that have their columns' types already.
    pub(crate) fn may_match_typed(&self, schema: &TableSchema, domains: &Domains) -> bool {
        let mut remaining = domains.clone();
        let mut choices = Vec::new();
        self.narrow(schema, &mut remaining, &mut choices);
        // Each disjunction on its own: combinations that exclude each other are not detected.
        let possible =
            |rules: &&[Self]| rules.iter().any(|r| r.may_match_typed(schema, &remaining));
        !remaining.is_none() && choices.iter().all(possible)
    }

    /// Restricts domains by the conditions that must hold, and collects the disjunctions.
    fn narrow<'a>(
        &'a self,
        schema: &TableSchema,
        remaining: &mut Domains,
        choices: &mut Vec<&'a [Self]>,
    ) {
        match self {
            Self::Compare { column, comparison, value } => {
                // A comparison that cannot be judged excludes nothing.
                if let Ok(column) = column_of(schema, *column)
                    && let Ok(domain) = compared(column, *comparison, value)
                    && let Ok(domain) = domain.typed(column.column_type)
                {
                    remaining.restrict(&column.storage_name, domain);
                }
            }
            Self::And(rules) => {
                rules.iter().for_each(|rule| rule.narrow(schema, remaining, choices))
            }
            Self::Or(rules) => choices.push(rules),
        }
    }

    /// The columns that the rule names.
    pub fn columns(&self) -> BTreeSet<ColumnId> {
        let mut columns = BTreeSet::new();
        self.collect_columns(&mut columns);
        columns
    }

    fn collect_columns(&self, columns: &mut BTreeSet<ColumnId>) {
        match self {
            Self::Compare { column, .. } => {
                columns.insert(*column);
            }
            Self::And(rules) | Self::Or(rules) => {
                rules.iter().for_each(|rule| rule.collect_columns(columns));
            }
        }
    }

    /// The expression as SQL that parses back to it.
    pub fn to_sql(&self, schema: &TableSchema) -> String {
        match self {
            Self::Compare { column, comparison, value } => {
                let sign = comparison.sql();
                match schema.column_by_id(*column) {
                    Some(column) => format!(
                        "{} {sign} {}",
                        quote(&column.name),
                        value.display(column.column_type)
                    ),
                    None => format!("column_{column} {sign} {value}"),
                }
            }
            Self::And(rules) => join(rules, schema, " AND ", "TRUE"),
            Self::Or(rules) => join(rules, schema, " OR ", "FALSE"),
        }
    }

    /// True if a row satisfies the rule: an independent implementation of [`Rule::mask`] for tests, made from the
    /// definition and not from domains.
    #[cfg(test)]
    pub(crate) fn matches(&self, row: &dyn Fn(ColumnId) -> Value) -> bool {
        match self {
            Self::Compare { column, comparison, value } => {
                let order = match (row(*column), value) {
                    (Value::Null, _) => std::cmp::Ordering::Less,
                    (Value::Float(a), Value::Float(b)) if a == *b => std::cmp::Ordering::Equal,
                    (a, b) => a.cmp(b),
                };
                match comparison {
                    Comparison::Equal => order.is_eq(),
                    Comparison::NotEqual => order.is_ne(),
                    Comparison::Less => order.is_lt(),
                    Comparison::LessOrEqual => order.is_le(),
                    Comparison::Greater => order.is_gt(),
                    Comparison::GreaterOrEqual => order.is_ge(),
                }
            }
            Self::And(rules) => rules.iter().all(|rule| rule.matches(row)),
            Self::Or(rules) => rules.iter().any(|rule| rule.matches(row)),
        }
    }
}

/// Words reserved by PostgreSQL or our own grammar that people use as column names.
const RESERVED: [&str; 39] = [
    "all",
    "and",
    "any",
    "as",
    "asc",
    "between",
    "by",
    "case",
    "check",
    "column",
    "default",
    "desc",
    "distinct",
    "else",
    "end",
    "false",
    "from",
    "group",
    "having",
    "in",
    "interval",
    "is",
    "key",
    "like",
    "limit",
    "not",
    "null",
    "on",
    "or",
    "order",
    "partition",
    "primary",
    "select",
    "table",
    "then",
    "true",
    "user",
    "when",
    "where",
];

/// A name in SQL: bare when it is a plain lower-case word, quoted otherwise.
pub(crate) fn quote(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        && !RESERVED.contains(&name);
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

fn join(rules: &[Rule], schema: &TableSchema, word: &str, empty: &str) -> String {
    if rules.is_empty() {
        return empty.to_owned();
    }
    let part = |rule: &Rule| match rule {
        Rule::And(inner) | Rule::Or(inner) if rules.len() > 1 && inner.len() > 1 => {
            format!("({})", rule.to_sql(schema))
        }
        _ => rule.to_sql(schema),
    };
    rules.iter().map(part).collect::<Vec<_>>().join(word)
}

/// The column that an expression names.
fn column_of(schema: &TableSchema, id: ColumnId) -> Result<&Column, Error> {
    schema.column_by_id(id).ok_or_else(|| {
        Error::InvalidInput(format!(
            "a partition expression names column {id}, which does not exist"
        ))
    })
}

/// The values of a column for which a comparison is true, NULL sorting first.
fn compared(column: &Column, comparison: Comparison, value: &Value) -> Result<Domain, Error> {
    if value.is_null() {
        return Err(Error::InvalidInput(format!(
            "a partition expression compares \"{}\" with NULL",
            column.name
        )));
    }
    let value = value.clone().coerce(column.column_type)?;
    Ok(Domain::compare(comparison, value).with_null(comparison.takes_null()))
}
