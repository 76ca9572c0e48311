//! Advice on other keys, by replaying sampled rows through each: with the same code as in the store.
//!
//! Invariant: the statement creates a table with the same columns, and can be run unchanged.

use partita_load::{Choice, Design as Placing, Question, Reads, advise};

use crate::cluster::Cluster;
use crate::streams::Op;
use crate::workload::{Design, Stream, columns_of};

/// Number of replayed rows.
const ROWS: usize = 4_000;

/// Recommended designs for the first table, best first, each with its CREATE TABLE; empty for a table without
/// entity and time.
#[must_use]
pub fn advice(cluster: &Cluster) -> Vec<(String, Choice)> {
    let Some(events) = cluster.load().events.as_ref() else { return Vec::new() };
    let shape = &cluster.load().shape;
    let column_of = |name: &str| shape.names.iter().position(|column| column == name);
    // The key must name both the entity and the time.
    let (Some(entity), Some(time)) = (column_of(events.entity), column_of("ts")) else {
        return Vec::new();
    };
    let mut stream = Stream::new(&cluster.load().sources, cluster.options.seed);
    let mut op = Op::default();
    let mut rows = Vec::with_capacity(ROWS);
    while rows.len() < ROWS && stream.next(&mut op).is_some() {
        let columns = columns_of(&op.key, &shape.widths);
        if let (Some(entity), Some(time)) = (columns.get(entity), columns.get(time)) {
            // Columns in the order of the key, without the bucket: 0 and 1 are the numbers of key columns.
            let pair = if events.design.time_first() { [time, entity] } else { [entity, time] };
            rows.push(pair.map(|column| column.to_be_bytes().to_vec()).to_vec());
        }
    }
    let time_at = usize::from(!events.design.time_first());
    let partitions = cluster.partitions();
    // The present placement, as the advisor describes it.
    let buckets = u32::try_from(partitions).unwrap_or(u32::MAX);
    let today = match events.design {
        Design::TsUid | Design::TsUidAuto | Design::UidTs | Design::Single => {
            Placing::Range { order: vec![0, 1] }
        }
        Design::HashUid => Placing::Hash { of: vec![0], buckets, order: vec![0, 1] },
        Design::HashAll => Placing::Hash { of: vec![0, 1], buckets, order: vec![0, 1] },
    };
    let last = cluster.books().seconds.last();
    let question = Question {
        rows: &rows,
        columns: 2,
        time: Some(time_at),
        today,
        keep_together: 0,
        partitions,
        nodes: cluster.options.nodes,
        rows_per_s: last.map_or(0.0, |second| second.offered),
        capacity_rows_per_s: cluster.options.lane_rows_per_s,
        time_range_share: 0.01,
        reads: Reads::default(),
        shapes: Vec::new(),
        hot: None,
    };
    let names = if time_at == 0 { ["ts", events.entity] } else { [events.entity, "ts"] };
    let ddl = |choice: &Choice| statement(&cluster.load().name, names, &choice.design);
    advise(&question).into_iter().map(|choice| (ddl(&choice), choice)).collect()
}

fn statement(table: &str, names: [&str; 2], design: &Placing) -> String {
    let list = |columns: &[usize]| {
        columns.iter().filter_map(|index| names.get(*index)).copied().collect::<Vec<_>>().join(", ")
    };
    let entity = if names[0] == "ts" { names[1] } else { names[0] };
    let (order, placed) = match design {
        Placing::Range { order } => (order, String::new()),
        Placing::Hash { of: hashed, buckets, order } => {
            (order, format!(" PARTITION BY HASH ({}) PARTITIONS {buckets}", list(hashed)))
        }
    };
    format!(
        "CREATE TABLE {table}_new (ts TIMESTAMP(6) NOT NULL, {entity} BIGINT NOT NULL, event TEXT, TIME INDEX (ts), PRIMARY KEY ({})){placed};",
        list(order)
    )
}
