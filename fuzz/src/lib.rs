//! Parts that several fuzz targets share: a table, and COPY into it.

use std::sync::{Arc, LazyLock};

use partita_proto::catalog::Table;
use partita_proto::id::{BOOTSTRAP_ROLE, Epoch, PartitionId, TableId};
use partita_proto::key::KeyCodec;
use partita_proto::route::PartitionMap;
use partita_sql::Statement;
use partita_sql::copy::CopyDecoder;
use partita_sql::statement::{CopyFormat, CopyOptions};
use partita_worker::Zone;

/// A table with columns of many types.
pub static TABLE: LazyLock<Table> = LazyLock::new(|| {
    create(
        "CREATE TABLE t (k INT PRIMARY KEY, s STRING DEFAULT 'x', ts TIMESTAMP(9), d DECIMAL(9, 3), \
         y BYTEA, b BOOLEAN, f REAL, g DOUBLE, dt DATE, u UINT64)",
    )
});

/// The table of a statement, as meta would create it.
fn create(sql: &str) -> Table {
    let mut statements = partita_sql::parse(sql).expect("the statement is valid");
    let Some(Statement::CreateTable(create)) = statements.pop() else {
        panic!("{sql} creates no table");
    };
    let (new, _) = create.to_new_table("public").expect("the table is valid");
    let codec = KeyCodec::new(&new.schema, &new.placement).expect("the key is valid");
    let ids = (1..).map(PartitionId);
    let partitions =
        PartitionMap::from_cuts(&codec, &new.cuts, ids, Epoch(1)).expect("the cuts are valid");
    Table {
        id: TableId(1),
        database: new.database,
        name: new.name,
        schema: Arc::new(new.schema),
        placement: new.placement,
        partitions: Arc::new(partitions),
        former: None,
        succeeded_by: None,
        owner: BOOTSTRAP_ROLE,
        copy: None,
    }
}

/// Decodes COPY's bytes at once and in pieces of the length that the first byte says: the rows are the same.
pub fn copy(bytes: &[u8], format: CopyFormat) {
    let Some((length, data)) = bytes.split_first() else { return };
    let whole = rows(std::iter::once(data), format);
    let pieces = rows(data.chunks(usize::from(*length).max(1)), format);
    assert_eq!(whole, pieces);
}

/// The number of decoded rows, or the SQLSTATE of the first wrong one.
fn rows<'d>(pieces: impl Iterator<Item = &'d [u8]>, format: CopyFormat) -> Result<u64, String> {
    let names: Vec<_> = TABLE.schema.columns.iter().map(|column| column.name.clone()).collect();
    let options = CopyOptions::new(format);
    let mut decoder = CopyDecoder::new(&TABLE, &names, format, &options, Zone::UTC)
        .expect("the table has its columns");
    for piece in pieces {
        decoder.push(piece).map_err(|error| error.sqlstate)?;
    }
    decoder.finish().map_err(|error| error.sqlstate)?;
    Ok(decoder.rows())
}
