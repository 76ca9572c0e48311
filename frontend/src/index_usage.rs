//! Use of indexes by the statements of this frontend: `sys.index_usage`.
//!
//! A statement counts once for each table that it reads, however often it scans it. The statements since the last use
//! of an index begin to count when a statement first meets the index, so that a new one is not taken for an unused one.
//! Scans that are restricted to some rows are left out.

use std::collections::{BTreeMap, HashMap, HashSet};

use arrow::record_batch::RecordBatch;
use parking_lot::Mutex;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::id::{ColumnId, TableId};
use partita_proto::index::IndexKind;
use partita_proto::service::IndexKey;

use crate::error::SqlError;
use crate::plan_scans::ScanNote;
use crate::virtual_table::{Cell, Kind, batch, schema};

/// Columns of `sys.index_usage`.
pub(crate) const INDEX_USAGE: &[(&str, Kind)] = &[
    ("database", Kind::Text),
    ("table", Kind::Text),
    ("column", Kind::Text),
    ("index", Kind::Text),
    ("kind", Kind::Text),
    ("scans", Kind::Count),
    ("rows_examined", Kind::Count),
    ("rows_skipped", Kind::Count),
    ("queries_since", Kind::Count),
    ("last_used", Kind::Time),
    ("bytes", Kind::Count),
];

/// Use of one index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    /// Storage name of the column.
    pub(crate) column: String,
    pub(crate) kind: IndexKind,
    pub(crate) scans: u64,
    pub(crate) rows_examined: u64,
    pub(crate) rows_skipped: u64,
    /// Statements on the table since the last use, or since the index was first met.
    pub(crate) queries_since: u64,
    pub(crate) last_used_ms: Option<i64>,
}

#[derive(Debug, Default)]
struct Counts {
    scans: u64,
    rows_examined: u64,
    rows_skipped: u64,
    /// Number of the statement that used the index last.
    query: u64,
    last_used_ms: Option<i64>,
}

#[derive(Debug, Default)]
struct TableUsage {
    /// Statements on the table.
    queries: u64,
    indexes: BTreeMap<IndexKey, Counts>,
}

/// Use of all indexes; see the head of the file.
#[derive(Debug, Default)]
pub(crate) struct IndexUsage {
    tables: Mutex<HashMap<TableId, TableUsage>>,
}

impl IndexUsage {
    /// Adds the scans of a statement.
    pub(crate) fn note(&self, scans: &[ScanNote], now_ms: i64) {
        let mut tables = self.tables.lock();
        let mut counted = HashSet::new();
        for scan in scans.iter().filter(|scan| scan.is_measured) {
            let usage = tables.entry(scan.table.id).or_default();
            if counted.insert(scan.table.id) {
                usage.count(&scan.table);
            }
            let number = usage.queries;
            for (key, used) in &scan.indexes {
                // An index that was dropped while the statement ran is not counted.
                if let Some(counts) = usage.indexes.get_mut(key) {
                    counts.scans += 1;
                    counts.rows_examined += used.examined;
                    counts.rows_skipped += used.skipped;
                    counts.query = number;
                    counts.last_used_ms = Some(now_ms);
                }
            }
        }
    }

    /// Use of the indexes of a table that statements have met.
    pub(crate) fn of(&self, table: TableId) -> Vec<Used> {
        self.tables.lock().get(&table).map(TableUsage::used).unwrap_or_default()
    }

    /// Forgets tables that are not in the newest catalog.
    pub(crate) fn retain(&self, newest: &Catalog) {
        let tables = newest.tables.values().flat_map(BTreeMap::values);
        let ids: HashSet<TableId> = tables.map(|table| table.id).collect();
        self.tables.lock().retain(|table, _| ids.contains(table));
    }

    /// Rows of `sys.index_usage`: the indexes of the tables of a catalog. `bytes` are those of an index in files.
    pub(crate) fn batch(
        &self,
        catalog: &Catalog,
        bytes: impl Fn(&Table, ColumnId, IndexKind) -> Option<u64>,
    ) -> Result<RecordBatch, SqlError> {
        let mut rows = Vec::new();
        for table in catalog.tables.values().flat_map(BTreeMap::values) {
            let uses = self.of(table.id);
            for column in &table.schema.columns {
                for index in &column.indexes {
                    let kind = index.options.kind();
                    let used = uses
                        .iter()
                        .find(|used| used.column == column.storage_name && used.kind == kind);
                    let count = |read: fn(&Used) -> u64| Cell::Count(Some(used.map_or(0, read)));
                    rows.push(vec![
                        table.database.as_str().into(),
                        table.name.as_str().into(),
                        column.name.as_str().into(),
                        index.name.as_str().into(),
                        kind.method().into(),
                        count(|used| used.scans),
                        count(|used| used.rows_examined),
                        count(|used| used.rows_skipped),
                        count(|used| used.queries_since),
                        Cell::Time(used.and_then(|used| used.last_used_ms)),
                        bytes(table, column.id, kind).into(),
                    ]);
                }
            }
        }
        batch(&schema(INDEX_USAGE), rows)
    }
}

impl TableUsage {
    /// Counts a statement on a table, and brings the indexes up to date.
    fn count(&mut self, table: &Table) {
        let earlier_queries = self.queries;
        self.queries += 1;
        let columns = table.schema.columns.iter();
        let declared: HashSet<IndexKey> = columns
            .flat_map(|column| {
                let kinds = column.indexes.iter().map(|index| index.options.kind());
                kinds.map(|kind| (column.storage_name.clone(), kind))
            })
            .collect();
        self.indexes.retain(|key, _| declared.contains(key));
        for key in declared {
            let new = || Counts { query: earlier_queries, ..Counts::default() };
            self.indexes.entry(key).or_insert_with(new);
        }
    }

    fn used(&self) -> Vec<Used> {
        let used = |((column, kind), counts): (&IndexKey, &Counts)| Used {
            column: column.clone(),
            kind: *kind,
            scans: counts.scans,
            rows_examined: counts.rows_examined,
            rows_skipped: counts.rows_skipped,
            queries_since: self.queries - counts.query,
            last_used_ms: counts.last_used_ms,
        };
        self.indexes.iter().map(used).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use partita_proto::index::{Index, IndexOptions};
    use partita_proto::service::IndexUse;

    use super::*;

    fn table(kinds: &[IndexOptions]) -> Arc<Table> {
        let sql = "CREATE TABLE t (k INT PRIMARY KEY, msg STRING)";
        let statement = partita_sql::parse(sql).unwrap().remove(0);
        let partita_sql::Statement::CreateTable(create) = statement else { panic!("{sql}") };
        let (new, _) = create.to_new_table("public").unwrap();
        let mut schema = new.schema;
        for options in kinds {
            let name = format!("msg_{}", options.kind().method());
            schema.columns[1].indexes.push(Index { name, options: *options });
        }
        let codec = partita_proto::key::KeyCodec::new(&schema, &new.placement).unwrap();
        let ids = (1..).map(partita_proto::id::PartitionId);
        let epoch = partita_proto::id::Epoch(1);
        let partitions =
            partita_proto::route::PartitionMap::from_cuts(&codec, &new.cuts, ids, epoch).unwrap();
        Arc::new(Table {
            id: TableId(1),
            database: new.database,
            name: new.name,
            schema: Arc::new(schema),
            placement: new.placement,
            partitions: Arc::new(partitions),
            former: None,
            succeeded_by: None,
            copy: None,
            owner: partita_proto::id::BOOTSTRAP_ROLE,
        })
    }

    fn scan(table: &Arc<Table>, kinds: &[IndexKind]) -> ScanNote {
        let name = &table.schema.columns[1].storage_name;
        let used = IndexUse { examined: 100, skipped: 90 };
        ScanNote {
            table: Arc::clone(table),
            is_measured: true,
            filters: Vec::new(),
            columns: Vec::new(),
            sorts: Vec::new(),
            joins: Vec::new(),
            oldest_ms: None,
            rows_returned: 10,
            indexes: kinds.iter().map(|kind| ((name.clone(), *kind), used)).collect(),
        }
    }

    fn since(usage: &IndexUsage) -> Vec<(IndexKind, u64, u64)> {
        let uses = usage.of(TableId(1)).into_iter();
        uses.map(|used| (used.kind, used.scans, used.queries_since)).collect()
    }

    #[test]
    fn statements_since_the_last_use_are_counted_from_the_first_sight() {
        let usage = IndexUsage::default();
        let bare = table(&[]);
        usage.note(&[scan(&bare, &[])], 1);
        assert!(since(&usage).is_empty());
        let inverted = IndexOptions::Inverted;
        let skipping = IndexOptions::Skipping(partita_proto::index::Blooms::default());
        let indexed = table(&[inverted, skipping]);
        // Two scans of one statement.
        let kinds = [IndexKind::Inverted];
        usage.note(&[scan(&indexed, &kinds), scan(&indexed, &kinds)], 2);
        assert_eq!(since(&usage), [(IndexKind::Inverted, 2, 0), (IndexKind::Skipping, 0, 1)]);
        usage.note(&[scan(&indexed, &[])], 3);
        assert_eq!(since(&usage), [(IndexKind::Inverted, 2, 1), (IndexKind::Skipping, 0, 2)]);
        let used = usage.of(TableId(1)).remove(0);
        assert_eq!((used.rows_examined, used.rows_skipped), (200, 180));
        assert_eq!(used.last_used_ms, Some(2));
        // An index that was dropped is forgotten.
        usage.note(&[scan(&table(&[inverted]), &[IndexKind::Skipping])], 4);
        assert_eq!(since(&usage), [(IndexKind::Inverted, 2, 2)]);
    }

    #[test]
    fn scans_of_some_rows_are_left_out_and_dropped_tables_forgotten() {
        let usage = IndexUsage::default();
        let indexed = table(&[IndexOptions::Inverted]);
        let restricted = ScanNote { is_measured: false, ..scan(&indexed, &[]) };
        usage.note(&[restricted], 1);
        assert!(since(&usage).is_empty());
        usage.note(&[scan(&indexed, &[])], 1);
        assert_eq!(since(&usage), [(IndexKind::Inverted, 0, 1)]);
        usage.retain(&Catalog::default());
        assert!(since(&usage).is_empty());
    }

    #[test]
    fn every_index_of_a_catalog_has_a_row() {
        let mut catalog = Catalog::default();
        let indexed = table(&[IndexOptions::Inverted]);
        let tables = BTreeMap::from([(indexed.name.clone(), Arc::clone(&indexed))]);
        catalog.tables.insert(indexed.database.clone(), tables);
        let usage = IndexUsage::default();
        let rows = usage.batch(&catalog, |_, _, _| Some(7)).unwrap();
        assert_eq!(rows.num_rows(), 1);
        usage.note(&[scan(&indexed, &[IndexKind::Inverted])], 1);
        assert_eq!(usage.batch(&catalog, |_, _, _| None).unwrap().num_rows(), 1);
    }
}
