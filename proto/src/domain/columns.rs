//! Domains of several columns at once.

use std::collections::BTreeMap;

use arrow::array::BooleanArray;
use arrow::buffer::BooleanBuffer;
use arrow::record_batch::RecordBatch;

use super::Domain;
use crate::error::Error;
use crate::schema::TableSchema;

/// A conjunction: each named column's value lies in its domain. A column without an entry may have any value. Names are
/// storage names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domains(BTreeMap<String, Domain>);

impl Domains {
    /// Intersects a column's domain with another. Bounds of the column's own type are safest: see [`crate::domain`].
    pub fn restrict(&mut self, column: &str, domain: Domain) {
        let domain = match self.0.get(column) {
            Some(current) => current.intersect(&domain),
            None => domain,
        };
        if domain.is_all() {
            self.0.remove(column);
        } else {
            self.0.insert(column.to_owned(), domain);
        }
    }

    /// The domain of a column; `None`: every value.
    pub fn get(&self, column: &str) -> Option<&Domain> {
        self.0.get(column)
    }

    /// True if no row can satisfy the domains.
    pub fn is_none(&self) -> bool {
        self.0.values().any(Domain::is_none)
    }

    /// True if every row satisfies the domains.
    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// The restricted columns and their domains, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Domain)> {
        self.0.iter().map(|(column, domain)| (column.as_str(), domain))
    }

    /// The domains of the columns that `filter` accepts.
    #[must_use]
    pub fn only(&self, filter: impl Fn(&str) -> bool) -> Self {
        let selected = self.0.iter().filter(|(column, _)| filter(column));
        Self(selected.map(|(column, domain)| (column.clone(), domain.clone())).collect())
    }

    /// The same domains as values of the columns' types. Bounds that are not comparable with the type, and columns that
    /// the schema does not have, restrict nothing.
    #[must_use]
    pub fn typed(&self, schema: &TableSchema) -> Self {
        let mut typed = Self::default();
        for column in &schema.columns {
            if let Some(domain) = self.0.get(&column.storage_name)
                && let Ok(domain) = domain.typed(column.column_type)
            {
                typed.restrict(&column.storage_name, domain);
            }
        }
        typed
    }

    /// Mask of the rows that satisfy all domains; `None` when every row does because nothing is restricted. A column
    /// that the batch does not have is NULL.
    ///
    /// # Errors
    /// As [`Domain::mask`].
    pub fn mask(&self, rows: &RecordBatch) -> Result<Option<BooleanArray>, Error> {
        let mut selection: Option<BooleanBuffer> = None;
        for (name, domain) in &self.0 {
            let Some(column) = rows.column_by_name(name) else {
                if domain.allows_null() {
                    continue;
                }
                selection = Some(BooleanBuffer::new_unset(rows.num_rows()));
                break;
            };
            let (mask, _) = domain.mask(column.as_ref())?.into_parts();
            let combined = match selection {
                Some(previous) => &previous & &mask,
                None => mask,
            };
            let empty = !combined.has_true();
            selection = Some(combined);
            if empty {
                break;
            }
        }
        Ok(selection.map(|mask| BooleanArray::new(mask, None)))
    }
}
