//! Load and its treatment: samples of keys, rates over time, the verdict on a hot partition, and the resulting plans.
//!
//! ```text
//!   rows ──▶ Sampler ──▶ Sketch ──▶ classify ──▶ Verdict ──▶ confirm ──▶ cut, or say why not
//!   (datanode, per partition)        (meta, by what its heartbeats bring)
//! ```
//!
//! [`streams`] are loads that mislead, [`baseline`] judges them like other products, and [`Picker`] is the interface of
//! those and ours: `tests/matrix` compares them.
//!
//! Invariants: code here reads no clock, draws no random number that was not seeded from outside, and does no I/O. The
//! same code runs in datanodes, in meta, in the simulation and in the lab. Keys are encoded bytes whose order is the
//! order of values; the callers know their columns.

pub mod baseline;
mod detect;
mod features;
mod heavy;
mod picker;
mod random;
mod reservoir;
mod rows;
mod sample;
mod sampler;
pub mod streams;
mod verdict;
mod zipf;

pub use detect::{SHARE_MAX, SHARE_MAX_LOW_GAIN, classify, confirm};
pub use features::Options as DetectOptions;
pub use picker::{Answer, Detector, Picker, WINDOW_S};
pub use random::{Random, mix};
pub use sample::{Sample, Sketch, Tick};
pub use sampler::{Columns, RING_ENGAGED_S, RING_IDLE_S, SAMPLES_PER_SECOND, Sampler};
pub use verdict::{Class, Cut, Evidence, Verdict};
pub use zipf::{YCSB_THETA, Zipf};

// The scheduler.
mod action;
mod advice;
mod balance;
mod facts;
mod feedback;
mod merge;
mod schedule;
mod shape;
mod split;
mod tokens;
mod window;

pub use action::{
    Action, ActionId, At, Done, Failed, MergeWhy, MoveWhy, SplitOutcome, SplitWhy, Step,
};
pub use advice::{
    Choice, Design, FanOut, Question, Reads, SampledRow, Warning, advise, buckets_for,
};
pub use facts::{
    NodeFacts, NodeId, PARTITION_BYTES, PARTITIONS_MAX, PartitionFacts, PartitionId, Remedy,
    TableFacts, TableId, Tail,
};
pub use schedule::{
    HotPartition, Judge, MERGES_MAX, NodeUse, Options, REPLICA_MOVES_MAX, ROUND_S, SPLITS_MAX,
    Scheduler, TRANSFERS_MAX, Totals,
};
pub use shape::Shape;
pub use split::NoSplit;
pub use window::{Counters, PartitionReport, Rates};
