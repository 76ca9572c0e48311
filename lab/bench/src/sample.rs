//! Rows for benches: batches of the TSBS cpu-only data set, in the formats of the doors, and as the columns that
//! are stored.
//!
//! The table is the one that `partita lab` creates: ten tags and the time in the key, ten integer fields.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use partita_proto::catalog::{Catalog, DEFAULT_DATABASE, Database, Table};
use partita_proto::id::{
    BOOTSTRAP_ROLE, ColumnId, DatabaseId, Epoch, PartitionId, SchemaVersion, TableId,
};
use partita_proto::key::KeyCodec;
use partita_proto::placement::Placement;
use partita_proto::route::{PartitionMap, hash_cuts};
use partita_proto::schema::{Column, ColumnType, Semantic, TableOptions, TableSchema, Unit};
use partita_tsbs::cpu::{FIELDS, Generator, Host, Spec, TABLE, TAGS, TIME, hosts};
use partita_tsbs::encode::arrow::Batches;
use partita_tsbs::encode::{BINARY_END, BINARY_HEAD, Encoder, Format, columns};

/// Rows of a batch: one request of `partita lab ingest`.
pub const BATCH_ROWS: usize = 5_000;
/// Number of hosts in most benches.
pub const HOSTS: u32 = 100;
/// 2016-01-01, in nanoseconds since 1970.
const START_NS: i64 = 1_451_606_400_000_000_000;
/// Interval between two rows of a host.
const INTERVAL: Duration = Duration::from_secs(10);
/// Seed of the data set.
const SEED: u64 = 123;

/// Batches of [`BATCH_ROWS`] rows, in order of time.
pub struct Sample {
    hosts: Vec<Host>,
    generator: Generator,
}

impl Sample {
    /// The data set with this number of hosts, from its first row.
    pub fn new(hosts_count: u32) -> Self {
        let spec = Spec {
            hosts: hosts_count,
            start_ns: START_NS,
            interval: INTERVAL,
            rows: u64::MAX,
            seed: SEED,
        };
        Self { hosts: hosts(&spec), generator: Generator::new(spec) }
    }

    /// The next batch in the format of a door; binary COPY with header and trailer.
    pub fn bytes(&mut self, format: Format) -> Vec<u8> {
        let rows = self.generator.next(BATCH_ROWS).expect("the data set has no end");
        let mut bytes = Vec::new();
        if format == Format::CopyBinary {
            bytes.extend_from_slice(&BINARY_HEAD);
        }
        Encoder::new(format, &self.hosts).append(&rows, &mut bytes);
        if format == Format::CopyBinary {
            bytes.extend_from_slice(&BINARY_END);
        }
        bytes
    }

    /// The next batch as one INSERT.
    pub fn insert(&mut self) -> String {
        let rows = self.bytes(Format::Csv);
        let rows = String::from_utf8(rows).expect("the data set is text");
        let values = rows.lines().map(|line| {
            let cells = line.split(',').enumerate().map(|(index, cell)| {
                // Tags and the time are strings; fields are numbers.
                if index <= TAGS.len() { format!("'{cell}'") } else { cell.to_owned() }
            });
            format!("({})", cells.collect::<Vec<_>>().join(", "))
        });
        let values = values.collect::<Vec<_>>().join(", ");
        let names = columns().collect::<Vec<_>>().join(", ");
        format!("INSERT INTO {TABLE} ({names}) VALUES {values}")
    }

    /// The next batch as an Arrow client sends it: strings are Utf8.
    pub fn sent(&mut self) -> RecordBatch {
        let rows = self.generator.next(BATCH_ROWS).expect("the data set has no end");
        Batches::new(&self.hosts).of(rows).expect("rows of these hosts")
    }

    /// The next batch with the table's stored columns, as a door passes it on and the log returns it.
    pub fn batch(&mut self) -> RecordBatch {
        let batch = self.sent();
        let schema = schema().storage();
        let stored = batch.columns().iter().zip(schema.fields());
        let stored = stored.map(|(column, field)| cast(column, field.data_type()));
        let stored: Vec<ArrayRef> = stored.collect::<Result<_, _>>().expect("these types fit");
        RecordBatch::try_new(schema, stored).expect("as many columns")
    }
}

/// Columns and key of the table.
pub fn schema() -> TableSchema {
    // Tags, then the time, then the fields.
    let time = ColumnType::Timestamp(Unit::Nanosecond, false);
    let tags = TAGS.into_iter().map(|name| (name, ColumnType::String, Semantic::Tag));
    let fields = FIELDS.into_iter().map(|name| (name, ColumnType::Int64, Semantic::Field));
    let definitions = tags.chain([(TIME, time, Semantic::TimeIndex)]).chain(fields);
    let columns: Vec<Column> = (1..)
        .zip(definitions)
        .map(|(id, (name, column_type, semantic))| Column {
            id: ColumnId(id),
            name: name.to_owned(),
            storage_name: name.to_owned(),
            column_type,
            nullable: semantic != Semantic::TimeIndex,
            semantic,
            default: None,
            generated: None,
            missing: None,
            length: None,
            json: None,
            indexes: Vec::new(),
            comment: None,
        })
        .collect();
    // The tags and the time are the key.
    let key = columns[..=TAGS.len()].iter().map(|column| column.id).collect();
    let next_column = ColumnId(columns.last().map_or(1, |column| column.id.0 + 1));
    TableSchema {
        version: SchemaVersion(1),
        columns,
        key,
        options: TableOptions::default(),
        next_column,
        schema_on_write: false,
        checks: Vec::new(),
        view: None,
    }
}

/// The table, in one partition by range or in several by hash of the host.
pub fn table(partitions: u16) -> Table {
    let schema = schema();
    let placement = match partitions {
        0 | 1 => Placement::Range,
        _ => Placement::Hash { columns: vec![schema.columns[0].id] },
    };
    let cuts = match placement {
        Placement::Range => Vec::new(),
        _ => hash_cuts(partitions),
    };
    let codec = KeyCodec::new(&schema, &placement).expect("the key is one");
    let ids = (1..).map(PartitionId);
    let map = PartitionMap::from_cuts(&codec, &cuts, ids, Epoch(1)).expect("the cuts ascend");
    Table {
        id: TableId(1),
        database: DEFAULT_DATABASE.to_owned(),
        name: TABLE.to_owned(),
        schema: Arc::new(schema),
        placement,
        partitions: Arc::new(map),
        former: None,
        succeeded_by: None,
        owner: BOOTSTRAP_ROLE,
        copy: None,
    }
}

/// A catalog with this table only.
pub fn catalog(table: Table) -> Catalog {
    let name = table.database.clone();
    let (id, owner) = (DatabaseId(1), BOOTSTRAP_ROLE);
    let database =
        Database { id, name: name.clone(), ttl: None, owner, explicit: false, comment: None };
    let tables = [(table.name.clone(), Arc::new(table))];
    Catalog {
        version: 1,
        databases: [(name.clone(), Arc::new(database))].into(),
        tables: [(name, tables.into())].into(),
        ..Catalog::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_takes_the_batches() {
        schema().validate().unwrap();
        for partitions in [1, 8] {
            let table = table(partitions);
            assert_eq!(table.partitions.routes().len(), usize::from(partitions));
            assert!(catalog(table).table(DEFAULT_DATABASE, TABLE).is_some());
        }
        let batch = Sample::new(HOSTS).batch();
        assert_eq!(batch.num_rows(), BATCH_ROWS);
        assert_eq!(batch.schema(), schema().storage());
    }

    #[test]
    fn all_forms_bring_as_many_rows() {
        let mut sample = Sample::new(3);
        let lines = String::from_utf8(sample.bytes(Format::LineProtocol)).unwrap();
        assert_eq!(lines.lines().count(), BATCH_ROWS);
        assert!(sample.bytes(Format::CopyBinary).starts_with(&BINARY_HEAD));
        let insert = sample.insert();
        assert_eq!(insert.matches("('host_").count(), BATCH_ROWS);
        assert_eq!(sample.sent().num_rows(), BATCH_ROWS);
    }
}
