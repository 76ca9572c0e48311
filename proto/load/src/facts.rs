//! What the scheduler is told of tables, nodes and partitions, apart from their load.
//!
//! Invariants: plain values, from whoever keeps the catalog; ids are the catalog's numbers.

/// A table's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

/// A partition's number; never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub u64);

/// A node's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// Which end of its key space a table grows at by its very schema (a leading time index). What the schema does not
/// tell, verdicts do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tail {
    /// Not known to grow at an end.
    #[default]
    None,
    /// At the right end.
    Right,
    /// At the left end (time descending).
    Left,
}

/// What may be done about a hotspot that no split helps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing, and nothing is said.
    Off,
    /// Advice is given.
    #[default]
    Advise,
    /// An append-only table is given hash buckets for its new rows.
    Auto,
}

/// A table's options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFacts {
    /// Whether partitions split (and merge) by load.
    pub by_load: bool,
    /// Whether they split (and merge) by size.
    pub by_size: bool,
    /// The size to split at, bytes.
    pub partition_bytes: u64,
    /// Merges keep at least this many partitions. For a table placed by hash or by rules: as many as it has buckets or
    /// rules, or these would be joined while nothing is written.
    pub partitions_min: usize,
    /// Splits make at most this many.
    pub partitions_max: usize,
    /// Rows are only ever added: the table may be given another placement for what is new.
    pub append_only: bool,
    /// Where it grows.
    pub tail: Tail,
    /// Hash buckets that it has now; 1 when it is not placed by hash.
    pub buckets: u32,
    /// What may be done about hotspots.
    pub remedy: Remedy,
}

/// 512 MiB: a partition that moves in seconds over a gigabit, and few enough of them.
pub const PARTITION_BYTES: u64 = 512 << 20;
/// As many partitions as a table may have unless told otherwise. `YDB`'s 50 is met too soon, by users and by splits in
/// vain; those are held back by other means here.
pub const PARTITIONS_MAX: usize = 4096;

impl Default for TableFacts {
    fn default() -> Self {
        Self {
            by_load: true,
            by_size: true,
            partition_bytes: PARTITION_BYTES,
            partitions_min: 1,
            partitions_max: PARTITIONS_MAX,
            append_only: false,
            tail: Tail::None,
            buckets: 1,
            remedy: Remedy::Advise,
        }
    }
}

/// A node, as far as load goes.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeFacts {
    /// Heard of lately.
    pub up: bool,
    /// Being emptied: nothing new is put there.
    pub draining: bool,
    /// What it can bear, in cores (or whatever unit all nodes share).
    pub capacity: f64,
    /// Nodes of one zone may fail together. `None`: a zone of its own.
    pub zone: Option<u32>,
}

impl Default for NodeFacts {
    fn default() -> Self {
        Self { up: true, draining: false, capacity: 1.0, zone: None }
    }
}

/// A partition, without its load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionFacts {
    /// Its number.
    pub id: PartitionId,
    /// The nodes that have a voting replica. At most seven are looked at.
    pub voters: Vec<NodeId>,
    /// Who leads, if known; reports correct it.
    pub leader: Option<NodeId>,
    /// When it came to be, milliseconds.
    pub born_ms: u64,
    /// Until when it must not be merged (it was cut by hand), milliseconds.
    pub pinned_until_ms: u64,
    /// Whether it was cut at the edge it grew at, and is full: it may be larger than others.
    pub full: bool,
    /// The placement it belongs to: only neighbours of one placement are merged.
    pub key_epoch: u16,
}
