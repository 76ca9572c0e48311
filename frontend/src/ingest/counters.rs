//! Numbers of sequences for the columns that a door leaves out.
//!
//! They are added before rows are completed, so that rows that are sent again keep their numbers.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use arrow::record_batch::RecordBatch;
use partita_proto::access::{Need, Permit};
use partita_proto::catalog::Table;
use partita_proto::id::SequenceId;
use partita_proto::schema::Column;
use partita_sql::sequence_statement::sequence_of;

use crate::error::SqlError;
use crate::frontend::Frontend;
use crate::privileges::sequence_object;
use crate::sequences::{NEXT, has_counter};

/// SQLSTATE of an action that is not permitted.
const INSUFFICIENT_PRIVILEGE: &str = "42501";

impl Frontend {
    /// Adds the columns that rows leave out and sequences fill. Returns the last number of each sequence that was used.
    /// `permit` is the proof that the client may insert into the table; a sequence that is not the table's own needs a
    /// right too.
    ///
    /// # Errors
    /// As `Sequences::draw`, and 42501.
    pub(crate) async fn numbered(
        &self,
        permit: &Permit,
        table: &Table,
        rows: RecordBatch,
    ) -> Result<(RecordBatch, Vec<(SequenceId, i64)>), SqlError> {
        let is_missing =
            |column: &&Column| has_counter(column) && rows.column_by_name(&column.name).is_none();
        let missing: Vec<&Column> = table.schema.columns.iter().filter(is_missing).collect();
        if missing.is_empty() || rows.num_rows() == 0 {
            return Ok((rows, Vec::new()));
        }
        let catalog = self.catalog();
        let schema = rows.schema();
        let mut fields: Vec<FieldRef> = schema.fields().iter().map(Arc::clone).collect();
        let mut arrays: Vec<ArrayRef> = rows.columns().to_vec();
        let mut last_numbers = Vec::new();
        for column in missing {
            let name = column.default.as_deref().and_then(sequence_of);
            let name = name.ok_or_else(|| SqlError::internal("a default without a sequence"))?;
            let database = name.database_or(&table.database);
            let sequence = self.sequences().named(&catalog, database, &name.name)?;
            if sequence.column.is_none_or(|owned| owned.table != table.id) {
                let object = sequence_object(&catalog, &sequence)?;
                let viewer = self.viewer(*permit.identity());
                let may = |action| viewer.check(&[Need::new(action, object.clone())]).is_ok();
                if !NEXT.into_iter().any(may) {
                    let message = format!("permission denied for sequence {}", sequence.name);
                    return Err(SqlError::new(INSUFFICIENT_PRIVILEGE, message));
                }
            }
            let numbers = self.sequences().draw(sequence.id, rows.num_rows() as u64).await?;
            last_numbers.extend(numbers.last().map(|number| (sequence.id, *number)));
            fields.push(Arc::new(Field::new(&column.name, DataType::Int64, true)));
            arrays.push(Arc::new(Int64Array::from(numbers)));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let schema = Arc::new(Schema::new(fields));
        let rows = RecordBatch::try_new_with_options(schema, arrays, &options)?;
        Ok((rows, last_numbers))
    }
}
