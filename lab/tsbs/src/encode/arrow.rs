//! Rows as Arrow record batches.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringBuilder, TimestampNanosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;

use crate::cpu::{FIELDS, Host, Rows, TAGS, TIME};

/// Schema: strings, a time in nanoseconds, integers.
pub fn schema() -> SchemaRef {
    let tags = TAGS.iter().map(|name| Field::new(*name, DataType::Utf8, true));
    let time = Field::new(TIME, DataType::Timestamp(TimeUnit::Nanosecond, None), false);
    let fields = FIELDS.iter().map(|name| Field::new(*name, DataType::Int64, true));
    Arc::new(Schema::new(tags.chain([time]).chain(fields).collect::<Vec<_>>()))
}

/// Makes record batches of rows of given hosts.
pub struct Batches {
    schema: SchemaRef,
    /// Tags of each host.
    tags: Vec<[Box<str>; 10]>,
}

impl Batches {
    /// For rows of these hosts.
    pub fn new(hosts: &[Host]) -> Self {
        let tags =
            hosts.iter().map(|host| host.tags().map(|tag| tag.into_owned().into())).collect();
        Self { schema: schema(), tags }
    }

    /// Rows as a record batch.
    ///
    /// # Errors
    /// Never for rows of these hosts: Arrow checks lengths and types.
    pub fn of(&self, rows: Rows) -> Result<RecordBatch, ArrowError> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(21);
        for tag in 0..TAGS.len() {
            let mut builder = StringBuilder::with_capacity(rows.len(), rows.len() * 10);
            for host in &rows.hosts {
                builder.append_value(&self.tags[*host as usize][tag]);
            }
            columns.push(Arc::new(builder.finish()));
        }
        columns.push(Arc::new(TimestampNanosecondArray::from(rows.times)));
        for field in rows.fields {
            columns.push(Arc::new(Int64Array::from(field)));
        }
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
    }
}
