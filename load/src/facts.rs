//! Facts about tables, nodes and partitions, apart from their load, as input of the scheduler.
//!
//! Invariants: plain values, from the keeper of the catalog; ids are the catalog's numbers, each as wide as there, so
//! that no two become one. They are types of this crate because partita-proto, which has the catalog's, depends on it.

/// Table id in the catalog; never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

/// Partition id; never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub u64);

/// Node id in the catalog; never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// End of the key space at which a table grows by its schema (a leading time index). Growth that the schema does not
/// show is found by verdicts.
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

/// Columns by whose hash new rows are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HashOf {
    /// Those that identify series: the rows of one series stay together.
    Series,
    /// All columns of the key: the rows of one series are spread, too.
    Key,
}

/// Remedy for a hotspot that no split helps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remedy {
    /// No remedy and no advice.
    Off,
    /// Advice is shown.
    #[default]
    Advise,
    /// An append-only table gets hash buckets for its new rows, and another one for all of its rows.
    Auto,
}

/// Options of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFacts {
    /// True if partitions split (and merge) by load.
    pub by_load: bool,
    /// True if partitions split (and merge) by size.
    pub by_size: bool,
    /// Size above which a partition is split, bytes.
    pub partition_bytes: u64,
    /// Minimum number of partitions that merges leave. For a table placed by hash or by rules: the number of its
    /// buckets or rules, or these would be merged while no rows are written.
    pub partitions_min: usize,
    /// Maximum number of partitions that splits make.
    pub partitions_max: usize,
    /// True if rows are only ever added: then new rows may get another placement.
    pub append_only: bool,
    /// True if all rows may get another placement, in the background and while they are written. This costs a copy of the
    /// table.
    pub moves_rows: bool,
    /// End at which the table grows.
    pub tail: Tail,
    /// Present number of hash buckets; 1 when it is not placed by hash.
    pub buckets: u32,
    /// Columns by whose hash its rows are placed; `None` when they are not placed by hash.
    pub hash_of: Option<HashOf>,
    /// True if rows that share the values of some columns must not be separated.
    pub keeps_together: bool,
    /// Remedy for hotspots.
    pub remedy: Remedy,
    /// Time for which two neighbours must have been quiet before they are merged, milliseconds.
    pub merge_after_ms: u64,
}

/// Default partition size, 512 MiB: such a partition moves in seconds over a gigabit link, and there are few enough of
/// them.
pub const PARTITION_BYTES: u64 = 512 << 20;
/// Default maximum number of partitions of a table. `YDB`'s 50 is reached too soon, by users and by splits in vain;
/// those are limited by other means here.
pub const PARTITIONS_MAX: usize = 4096;
/// Default time of quiet before a merge, an hour: a lunch break keeps its partitions.
pub const MERGE_AFTER_MS: u64 = 60 * 60 * 1_000;

impl Default for TableFacts {
    fn default() -> Self {
        Self {
            by_load: true,
            by_size: true,
            partition_bytes: PARTITION_BYTES,
            partitions_min: 1,
            partitions_max: PARTITIONS_MAX,
            append_only: false,
            moves_rows: false,
            tail: Tail::None,
            buckets: 1,
            hash_of: None,
            keeps_together: false,
            remedy: Remedy::Advise,
            merge_after_ms: MERGE_AFTER_MS,
        }
    }
}

/// Facts about a node that concern load.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeFacts {
    /// True if its heartbeats have arrived recently.
    pub up: bool,
    /// True if it is being drained: no new replicas are put there.
    pub draining: bool,
    /// Capacity, in cores (or any unit that all nodes share).
    pub capacity: f64,
    /// Zone: nodes of one zone may fail together. `None`: a zone of its own.
    pub zone: Option<u32>,
}

impl Default for NodeFacts {
    fn default() -> Self {
        Self { up: true, draining: false, capacity: 1.0, zone: None }
    }
}

/// Facts about a partition, without its load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionFacts {
    /// Partition id.
    pub id: PartitionId,
    /// Nodes with a voting replica. At most seven are considered.
    pub voters: Vec<NodeId>,
    /// The leader's node, if known; reports correct it.
    pub leader: Option<NodeId>,
    /// Time of its creation, milliseconds.
    pub born_ms: u64,
    /// Time until which it is not merged with its left neighbour (it was cut off by hand), milliseconds; 0: not pinned.
    pub pinned_until_ms: u64,
    /// True if it was split at the edge at which it grew, and is full: it may be larger than others.
    pub full: bool,
    /// Placement to which it belongs: only neighbours of one placement are merged.
    pub key_epoch: u16,
}
