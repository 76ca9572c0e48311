//! Single-row INSERT through a prepared statement; each is a durable statement of its own.

use std::error::Error;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use postgres_types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Statement};

use super::Failure;
use super::postgres::failure;
use crate::cpu::Rows;
use crate::encode::{EPOCH_2000_US, columns};

/// Tags of each host.
pub(crate) type Tags = Arc<Vec<[Box<str>; 10]>>;

/// A time in nanoseconds since 1970, sent as PostgreSQL's microseconds since 2000.
#[derive(Debug)]
struct Time(i64);

impl ToSql for Time {
    fn to_sql(
        &self,
        _: &Type,
        buffer: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        buffer.put_i64(self.0.div_euclid(1_000) - EPOCH_2000_US);
        Ok(IsNull::No)
    }

    fn accepts(column_type: &Type) -> bool {
        matches!(*column_type, Type::TIMESTAMP | Type::TIMESTAMPTZ)
    }

    to_sql_checked!();
}

/// A connection that inserts into one table.
pub(crate) struct InsertDoor {
    client: Client,
    statement: Statement,
    tags: Tags,
}

impl InsertDoor {
    /// Prepares an INSERT into a table; the name must be quoted as needed.
    ///
    /// # Errors
    /// If the server refuses the statement.
    pub(crate) async fn new(client: Client, table: &str, tags: Tags) -> Result<Self, Failure> {
        let names: Vec<_> = columns().collect();
        let values: Vec<_> = (1..=names.len()).map(|number| format!("${number}")).collect();
        let text =
            format!("INSERT INTO {table} ({}) VALUES ({})", names.join(", "), values.join(", "));
        let statement = client.prepare(&text).await.map_err(|error| failure(&error))?;
        Ok(Self { client, statement, tags })
    }

    /// Inserts rows one after another; returns their number.
    ///
    /// # Errors
    /// If the server refuses one or is gone; earlier ones are stored.
    pub(crate) async fn send(&self, rows: &Rows) -> Result<u64, Failure> {
        let mut inserted = 0;
        for row in 0..rows.len() {
            let time = Time(rows.times[row]);
            let tags = self.tags[rows.hosts[row] as usize].each_ref().map(|tag| &**tag);
            let mut values: Vec<&(dyn ToSql + Sync)> = Vec::with_capacity(21);
            values.extend(tags.iter().map(|tag| tag as &(dyn ToSql + Sync)));
            values.push(&time);
            values.extend(rows.fields.iter().map(|field| &field[row] as &(dyn ToSql + Sync)));
            let outcome = self.client.execute(&self.statement, &values).await;
            inserted += outcome.map_err(|error| failure(&error))?;
        }
        Ok(inserted)
    }
}
