//! ADVISE, which shows what the advisor finds. Its grammar is in `advise_grammar.rs`.

use super::table_name::TableName;

/// ADVISE of a table.
#[derive(Clone, Debug)]
pub struct Advise {
    /// The table that is looked at.
    pub table: TableName,
    /// The question.
    pub kind: AdviseKind,
    /// Thresholds of the advisor that differ from the defaults, by name; each once.
    pub thresholds: Vec<(String, f64)>,
}

/// The question of an ADVISE.
#[derive(Clone, Debug)]
pub enum AdviseKind {
    /// `ADVISE TABLE t`: findings of all rules.
    Table,
    /// `ADVISE PARTITIONS FOR t RATE n`: the number of partitions.
    Partitions {
        /// Expected rows per second; positive and finite.
        rate: f64,
    },
    /// `ADVISE PARTITION BY (c) FOR t`: boundaries of equal shares.
    PartitionBy {
        /// Name of the column that rows are partitioned by.
        column: String,
    },
}
