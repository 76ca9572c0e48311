//! Tests of the dialect as a whole; what one file can prove by itself it proves in that file.

mod access;
mod create_table;
mod fuzz;
mod indexes;
mod materialized;
mod parser;
mod rekey;
mod repartition;
mod round_trip;
mod values;
mod wide;

use std::sync::Arc;

use partita_proto::catalog::Table;
use partita_proto::id::{BOOTSTRAP_ROLE, Epoch, PartitionId, TableId};
use partita_proto::key::KeyCodec;
use partita_proto::route::PartitionMap;
use partita_proto::service::NewTable;

use super::statement::{CreateTable, Statement};
use crate::error::SqlError;
use crate::notice::Notice;

/// The one statement of a text.
pub(super) fn one(sql: &str) -> Result<Statement, SqlError> {
    let mut statements = super::parse(sql)?;
    assert_eq!(statements.len(), 1, "{sql}");
    Ok(statements.remove(0))
}

pub(super) fn create(sql: &str) -> Result<CreateTable, SqlError> {
    match one(sql)? {
        Statement::CreateTable(create) => Ok(*create),
        other => panic!("{sql} is {other:?}"),
    }
}

pub(super) fn new_table(sql: &str) -> Result<(NewTable, Vec<Notice>), SqlError> {
    create(sql)?.to_new_table("public")
}

/// The table as meta would make it.
pub(super) fn table(new: &NewTable) -> Table {
    let codec = KeyCodec::new(&new.schema, &new.placement).unwrap();
    let partitions =
        PartitionMap::from_cuts(&codec, &new.cuts, (1..).map(PartitionId), Epoch(1)).unwrap();
    Table {
        id: TableId(1),
        database: new.database.clone(),
        name: new.name.clone(),
        schema: Arc::new(new.schema.clone()),
        placement: new.placement.clone(),
        partitions: Arc::new(partitions),
        former: None,
        succeeded_by: None,
        owner: BOOTSTRAP_ROLE,
        copy: None,
    }
}

pub(super) fn made(sql: &str) -> Table {
    table(&new_table(sql).unwrap().0)
}
