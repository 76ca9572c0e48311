//! Turns a parsed CREATE MATERIALIZED COPY, or another key for a table, into the table that meta creates: the columns of
//! its source, with the key in another order and a placement of its own.
//!
//! The key has exactly the key columns of the source, so that a row is the same row in both.

use partita_proto::catalog::Table;
use partita_proto::id::BOOTSTRAP_ROLE;
use partita_proto::materialized::copy_key_fits;
use partita_proto::placement::Placement;
use partita_proto::range::Bound;
use partita_proto::schema::{TableSchema, validate_name};
use partita_proto::service::NewTable;

use super::new_table::Division;
use super::statement::{CreateCopy, KeyLayout};
use super::table_name::TableName;
use crate::error::SqlError;

/// SQLSTATE of a table definition that contradicts itself.
const INVALID_TABLE: &str = "42P16";

/// Purpose of a table with the rows of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It is read beside its source.
    Copy,
    /// It takes the place of its source.
    Rekeying,
}

impl CreateCopy {
    /// The table for meta to create as a copy of `source`, the table that the statement names.
    ///
    /// # Errors
    /// When the key does not have the key columns of the source, each once, or the copy would be laid out as the source
    /// is; when a partition clause does not fit.
    pub fn to_new_table(&self, source: &Table) -> Result<NewTable, SqlError> {
        if self.name.database_or(&source.database) != source.database {
            let feature = "a materialized copy in another database than its table";
            return Err(SqlError::unsupported(feature));
        }
        self.layout.to_new_table(source, &self.name.name, Purpose::Copy)
    }
}

impl KeyLayout {
    /// The table with the rows of `source` under a name.
    pub(super) fn to_new_table(
        &self,
        source: &Table,
        name: &str,
        purpose: Purpose,
    ) -> Result<NewTable, SqlError> {
        purpose.check_source(source)?;
        let schema = self.schema(source, purpose)?;
        let division = Division {
            partitioning: &self.partitioning,
            cuts: self.cuts.as_deref(),
            uniform: None,
        };
        // Warnings are for tables: a copy is made to be ordered otherwise, by time for example.
        let placement = division.placement(&schema, &mut Vec::new())?;
        let cuts = division.cuts(&schema, &placement)?;
        purpose.new_table(source, name, (schema, placement, cuts))
    }

    /// The schema of the source with the key of this layout.
    fn schema(&self, source: &Table, purpose: Purpose) -> Result<TableSchema, SqlError> {
        let mut schema = source.schema.as_ref().clone();
        let mut key = Vec::with_capacity(self.key.len());
        for name in &self.key {
            let column = schema.column(name).ok_or_else(|| {
                SqlError::undefined_column(name, TableName::bare(source.name.as_str()))
            })?;
            key.push(column.id);
        }
        if !copy_key_fits(&source.schema, &key) {
            return Err(purpose.wrong_key(source));
        }
        schema.key = key;
        Ok(schema)
    }
}

impl Purpose {
    /// Checks that a table may have another one with its rows.
    pub(super) fn check_source(self, source: &Table) -> Result<(), SqlError> {
        let action = match self {
            Self::Copy => "a copy of",
            Self::Rekeying => "re-keying",
        };
        if source.copy.is_some() {
            return Err(SqlError::unsupported(format!("{action} a materialized copy")));
        }
        if source.schema.view.is_some() {
            return Err(SqlError::unsupported(format!("{action} a view")));
        }
        if source.schema.options.wide.is_some() {
            return Err(SqlError::unsupported(format!("{action} a wide table"))
                .with_hint("write the cells to a second table with other row keys"));
        }
        if source.schema.is_keyless() {
            return Err(SqlError::unsupported(format!("{action} a table without a key")));
        }
        if source.former.is_some() || source.succeeded_by.is_some() {
            let feature = format!("{action} table \"{}\", which was repartitioned,", source.name);
            return Err(SqlError::unsupported(feature));
        }
        Ok(())
    }

    fn check_layout(
        self,
        source: &Table,
        schema: &TableSchema,
        placement: &Placement,
    ) -> Result<(), SqlError> {
        if schema.key != source.schema.key || *placement != source.placement {
            return Ok(());
        }
        let (whose, hint) = match self {
            Self::Copy => ("key of the copy", None),
            Self::Rekeying => (
                "new key",
                Some("ALTER TABLE ... SPLIT and MERGE change the partitions of a table."),
            ),
        };
        let message = format!("the {whose} is that of table \"{}\"", source.name);
        let error = SqlError::new(INVALID_TABLE, message);
        Err(match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        })
    }

    /// Error for a key that does not have the key columns of the source, each once.
    fn wrong_key(self, source: &Table) -> SqlError {
        let columns: Vec<_> =
            source.schema.key_columns().map(|column| column.name.as_str()).collect();
        let (name, columns) = (&source.name, columns.join(", "));
        match self {
            Self::Copy => {
                let message = format!(
                    "the key of a copy must have the key columns of table \"{name}\": {columns}"
                );
                SqlError::new(INVALID_TABLE, message)
            }
            Self::Rekeying => {
                let message =
                    format!("the new key must have the key columns of table \"{name}\": {columns}");
                SqlError::new(INVALID_TABLE, message).with_detail(
                    "With other columns, several rows could become one, or one several, and nothing tells which is newer.",
                )
            }
        }
    }

    /// The table for meta: that of a checked source, in another order or with another placement.
    pub(super) fn new_table(
        self,
        source: &Table,
        name: &str,
        (schema, placement, cuts): (TableSchema, Placement, Vec<Bound>),
    ) -> Result<NewTable, SqlError> {
        validate_name("table", name)?;
        self.check_layout(source, &schema, &placement)?;
        Ok(NewTable {
            database: source.database.clone(),
            name: name.to_owned(),
            schema,
            placement,
            cuts,
            owner: BOOTSTRAP_ROLE,
            copy_of: Some(source.id),
            rekeys: self == Self::Rekeying,
            sequences: Vec::new(),
        })
    }
}
