//! Facts of tables by their definitions and measures, kept from one look to the next: making texts of sampled values takes
//! the most time of a look.
//!
//! Invariant: kept facts are those of the present definition and measures, which are compared at each look.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use partita_advice::{TableFacts, facts_of_table};
use partita_proto::catalog::Table;
use partita_proto::id::TableId;
use partita_proto::measure::PartitionMeasures;

use crate::columns::merge;

/// Measures of a partition; `None` if its leader does not report.
type Report = Option<Arc<PartitionMeasures>>;

/// Facts of tables. Bounded by the number of tables, see [`KeptFacts::retain`].
#[derive(Debug, Default)]
pub(crate) struct KeptFacts {
    tables: Mutex<HashMap<TableId, Kept>>,
    computed: AtomicU64,
}

#[derive(Debug)]
struct Kept {
    table: Arc<Table>,
    /// Those of the partitions, in their order.
    measures: Vec<Report>,
    facts: TableFacts,
}

impl Kept {
    fn is_of(&self, table: &Arc<Table>, measures: &[Report]) -> bool {
        (Arc::ptr_eq(&self.table, table) || self.table == *table)
            && self.measures.as_slice() == measures
    }
}

impl KeptFacts {
    /// Facts of a table by its definition and the measures of its partitions.
    pub(crate) fn of(&self, table: &Arc<Table>, measures: Vec<Report>) -> TableFacts {
        let mut tables = self.tables.lock();
        if let Some(entry) = tables.get(&table.id)
            && entry.is_of(table, &measures)
        {
            return entry.facts.clone();
        }
        self.computed.fetch_add(1, Ordering::Relaxed);
        let facts = computed(table, &measures);
        let entry = Kept { table: Arc::clone(table), measures, facts: facts.clone() };
        tables.insert(table.id, entry);
        facts
    }

    /// Number of times that the facts of a table were computed.
    #[cfg(test)]
    pub(crate) fn computed(&self) -> u64 {
        self.computed.load(Ordering::Relaxed)
    }

    /// Forgets tables that no longer exist.
    pub(crate) fn retain(&self, exists: impl Fn(TableId) -> bool) {
        self.tables.lock().retain(|table, _| exists(*table));
    }
}

fn computed(table: &Table, measures: &[Report]) -> TableFacts {
    let mut facts = facts_of_table(table);
    let (merged, unknown_partitions) = merge(measures);
    if unknown_partitions < facts.partitions.len() as u64 {
        facts.add_partition_measures(&table.schema, &merged, unknown_partitions == 0);
    }
    facts
}
