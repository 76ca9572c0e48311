//! Turns a parsed CREATE MATERIALIZED COPY into the table that meta creates: the columns of its source, with the key in
//! another order and a placement of its own.
//!
//! The key has exactly the key columns of the source, so that a row is the same row in both.

use partita_proto::catalog::Table;
use partita_proto::id::BOOTSTRAP_ROLE;
use partita_proto::materialized::copy_key_fits;
use partita_proto::schema::{TableSchema, validate_name};
use partita_proto::service::NewTable;

use super::new_table::Division;
use super::statement::CreateCopy;
use super::table_name::TableName;
use crate::error::SqlError;

/// SQLSTATE of a table definition that contradicts itself.
const INVALID_TABLE: &str = "42P16";

impl CreateCopy {
    /// The table for meta to create as a copy of `source`, the table that the statement names.
    ///
    /// # Errors
    /// When the key does not have the key columns of the source, each once, or the copy would be laid out as the source
    /// is; when a partition clause does not fit.
    pub fn to_new_table(&self, source: &Table) -> Result<NewTable, SqlError> {
        validate_name("table", &self.name.name)?;
        let database = self.name.database_or(&source.database);
        if database != source.database {
            let feature = "a materialized copy in another database than its table";
            return Err(SqlError::unsupported(feature));
        }
        if source.copy.is_some() {
            return Err(SqlError::unsupported("a copy of a materialized copy"));
        }
        if source.former.is_some() || source.succeeded_by.is_some() {
            let feature = format!("a copy of table \"{}\", which was repartitioned,", source.name);
            return Err(SqlError::unsupported(feature));
        }
        let schema = self.schema(source)?;
        let division = Division {
            partitioning: &self.partitioning,
            cuts: self.cuts.as_deref(),
            uniform: None,
        };
        // Warnings are for tables: a copy is made to be ordered otherwise, by time for example.
        let placement = division.placement(&schema, &mut Vec::new())?;
        if schema.key == source.schema.key && placement == source.placement {
            let message = format!("the key of the copy is that of table \"{}\"", source.name);
            return Err(SqlError::new(INVALID_TABLE, message));
        }
        let cuts = division.cuts(&schema, &placement)?;
        Ok(NewTable {
            database: database.to_owned(),
            name: self.name.name.clone(),
            schema,
            placement,
            cuts,
            owner: BOOTSTRAP_ROLE,
            copy_of: Some(source.id),
            rekeys: false,
        })
    }

    /// The schema of the source with the key of the copy.
    fn schema(&self, source: &Table) -> Result<TableSchema, SqlError> {
        let mut schema = source.schema.as_ref().clone();
        let mut key = Vec::with_capacity(self.key.len());
        for name in &self.key {
            let column = schema.column(name).ok_or_else(|| {
                SqlError::undefined_column(name, TableName::bare(source.name.as_str()))
            })?;
            key.push(column.id);
        }
        if !copy_key_fits(&source.schema, &key) {
            let columns: Vec<_> =
                source.schema.key_columns().map(|column| column.name.as_str()).collect();
            let message = format!(
                "the key of a copy must have the key columns of table \"{}\": {}",
                source.name,
                columns.join(", ")
            );
            return Err(SqlError::new(INVALID_TABLE, message));
        }
        schema.key = key;
        Ok(schema)
    }
}
