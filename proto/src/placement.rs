//! Placement: the function from a row to its place in a table's key space.
//!
//! It is a pure function of the row's own values, so every frontend and every replica agrees on it.
//! [`Placement::place`] places rows; [`Placement::candidates`] returns the placements that can hold matching rows, and
//! never leaves out one that does.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, NullArray, UInt16Array};
use arrow::buffer::BooleanBuffer;
use arrow::record_batch::RecordBatch;
use serde::{Deserialize, Serialize};

use crate::domain::Domains;
use crate::error::Error;
use crate::hash::{bucket, hash_values, hash64};
use crate::id::ColumnId;
use crate::rule::{Rule, quote};
use crate::schema::{Column, Semantic, TableSchema};
use crate::value::Value;

/// Maximum points that are hashed to find candidates: with more buckets than that hardly any partition would be
/// excluded.
const POINTS_MAX: usize = 1024;

/// Placement scheme of a table. The placement is the first part of every key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// No placement: the key space is the primary key's.
    Range,
    /// A u16 bucket: the top 16 bits of [`crate::hash`] over these columns.
    Hash {
        /// The hashed columns, in order.
        columns: Vec<ColumnId>,
    },
    /// A u16: the number of the one rule that the row satisfies.
    Rules {
        /// The columns that the rules may name.
        columns: Vec<ColumnId>,
        /// The rules; together they cover every row exactly once.
        rules: Vec<Rule>,
    },
}

impl Placement {
    /// By hash of the columns that identify series: the key's columns without the time index, or the time index if the
    /// key has no other column. Then the rows of one series lie in one partition, and those of one moment in all. For a
    /// table that keeps rows together by some columns, only these are hashed.
    pub fn by_series(schema: &TableSchema) -> Self {
        let is_time = |column: &&Column| column.semantic == Semantic::TimeIndex;
        let columns_max = schema.options.partitioning.cut_columns_max();
        let tags = schema.key_columns().take(columns_max).filter(|column| !is_time(column));
        let mut columns: Vec<ColumnId> = tags.map(|column| column.id).collect();
        if columns.is_empty() {
            columns.extend(schema.key_columns().take(columns_max).map(|column| column.id));
        }
        Self::Hash { columns }
    }

    /// By hash of all columns of the key, as far as the table does not keep rows together: rows of one series are spread,
    /// and all versions of one row are in one partition.
    pub fn by_key(schema: &TableSchema) -> Self {
        let columns_max = schema.options.partitioning.cut_columns_max();
        Self::Hash {
            columns: schema.key_columns().take(columns_max).map(|column| column.id).collect(),
        }
    }

    /// The columns on which the placement depends.
    pub fn columns(&self) -> &[ColumnId] {
        match self {
            Self::Range => &[],
            Self::Hash { columns } | Self::Rules { columns, .. } => columns,
        }
    }

    /// The placement of each row; `None` for a scheme without. Columns are named by storage name; one that the batch
    /// does not have is NULL.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when a row satisfies no rule (impossible for rules that [`crate::rule::check_cover`] has
    /// passed), [`Error::Internal`] when a column does not exist.
    pub fn place(
        &self,
        schema: &TableSchema,
        rows: &RecordBatch,
    ) -> Result<Option<UInt16Array>, Error> {
        match self {
            Self::Range => Ok(None),
            Self::Hash { columns } => {
                let columns: Vec<ArrayRef> = columns
                    .iter()
                    .map(|id| {
                        let column = column_of(schema, *id)?;
                        Ok(rows.column_by_name(&column.storage_name).map_or_else(
                            || Arc::new(NullArray::new(rows.num_rows())) as _,
                            Arc::clone,
                        ))
                    })
                    .collect::<Result<_, Error>>()?;
                let buckets = hash64(&columns)?.into_iter().map(bucket);
                Ok(Some(UInt16Array::from_iter_values(buckets)))
            }
            Self::Rules { columns, rules } => {
                place_by_rules(columns, rules, schema, rows).map(Some)
            }
        }
    }

    /// The placements that can hold rows of the domains, ascending; `None`: any.
    pub fn candidates(&self, schema: &TableSchema, domains: &Domains) -> Option<Vec<u16>> {
        match self {
            Self::Range => None,
            Self::Hash { columns } => hash_candidates(columns, schema, domains),
            Self::Rules { rules, .. } => {
                let domains = domains.typed(schema);
                let numbered = (0..=u16::MAX).zip(rules);
                let possible = numbered.filter(|(_, rule)| rule.may_match_typed(schema, &domains));
                Some(possible.map(|(number, _)| number).collect())
            }
        }
    }

    /// The clause of CREATE TABLE that creates the placement; `None` for a scheme without. `partitions`: the number of
    /// partitions in the key space, for the schemes that name a number.
    pub fn to_sql(&self, schema: &TableSchema, partitions: usize) -> Option<String> {
        let names = |columns: &[ColumnId]| {
            let name = |id: &ColumnId| {
                schema.column_by_id(*id).map_or_else(|| format!("column_{id}"), |c| quote(&c.name))
            };
            columns.iter().map(name).collect::<Vec<_>>().join(", ")
        };
        match self {
            Self::Range => None,
            Self::Hash { columns } => {
                Some(format!("PARTITION BY HASH ({}) PARTITIONS {partitions}", names(columns)))
            }
            Self::Rules { columns, rules } => {
                let rules: Vec<_> =
                    rules.iter().map(|rule| format!("  {}", rule.to_sql(schema))).collect();
                Some(format!(
                    "PARTITION ON COLUMNS ({}) (\n{}\n)",
                    names(columns),
                    rules.join(",\n")
                ))
            }
        }
    }
}

fn column_of(schema: &TableSchema, id: ColumnId) -> Result<&Column, Error> {
    schema
        .column_by_id(id)
        .ok_or_else(|| Error::Internal(format!("placement by column {id}, which does not exist")))
}

fn place_by_rules(
    columns: &[ColumnId],
    rules: &[Rule],
    schema: &TableSchema,
    rows: &RecordBatch,
) -> Result<UInt16Array, Error> {
    let mut placements = vec![0_u16; rows.num_rows()];
    // Each rule takes its rows out of the remaining ones.
    let mut remaining = BooleanBuffer::new_set(rows.num_rows());
    for (number, rule) in (0..=u16::MAX).zip(rules) {
        if !remaining.has_true() {
            break;
        }
        let (mask, _) = rule.mask(schema, rows)?.into_parts();
        let placed = &remaining & &mask;
        placed.set_indices().for_each(|row| placements[row] = number);
        remaining = &remaining & &!&mask;
    }
    // A remaining row satisfies no rule: name it by the values of the placement's columns.
    let Some(row) = remaining.set_indices().next() else {
        return Ok(UInt16Array::from(placements));
    };
    let mut values = Vec::with_capacity(columns.len());
    for id in columns {
        let column = column_of(schema, *id)?;
        let value = match rows.column_by_name(&column.storage_name) {
            Some(array) => Value::from_array(array.as_ref(), row)?,
            None => Value::Null,
        };
        values.push(format!("{}={}", quote(&column.name), value.display(column.column_type)));
    }
    Err(Error::InvalidInput(format!(
        "row `{}` satisfies no partition expression",
        values.join(", ")
    )))
}

fn hash_candidates(
    columns: &[ColumnId],
    schema: &TableSchema,
    domains: &Domains,
) -> Option<Vec<u16>> {
    let domains = domains.typed(schema);
    if domains.is_none() {
        return Some(Vec::new());
    }
    // All combinations of the columns' points; each round appends one column.
    let mut tuples: Vec<Vec<Value>> = vec![Vec::new()];
    for id in columns {
        let column = schema.column_by_id(*id)?;
        let domain = domains.get(&column.storage_name)?;
        let points = domain.points_of(column.column_type, POINTS_MAX).ok()??;
        if tuples.len() * points.len() > POINTS_MAX {
            return None;
        }
        tuples = tuples
            .iter()
            .flat_map(|tuple| {
                points.iter().map(|point| {
                    let mut longer = tuple.clone();
                    longer.push(point.clone());
                    longer
                })
            })
            .collect();
    }
    let buckets: BTreeSet<u16> = tuples.iter().map(|tuple| bucket(hash_values(tuple))).collect();
    Some(buckets.into_iter().collect())
}
