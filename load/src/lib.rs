//! Load and its treatment: samples of keys, rates over time, the verdict on a hot partition, and the resulting plans.
//!
//! ```text
//!   rows ──▶ Sampler ──▶ Sketch ──▶ classify ──▶ Verdict ──▶ confirm ──▶ cut, or say why not
//!   (datanode, per partition)        (meta, by what its heartbeats bring)
//! ```
//!
//! `lab/hotspot` has loads that mislead and pickers of split keys like those of other products; `tests/matrix` compares
//! ours with them.
//!
//! Invariants: code here reads no clock, draws no random number that was not seeded from outside, and does no I/O. The
//! same code runs in datanodes, in meta, in the simulation and in the lab. Keys are encoded bytes whose order is the
//! order of values; the callers know their columns.

mod detect;
mod engagement;
mod features;
mod front;
mod heavy;
mod random;
mod reservoir;
mod rows;
mod sample;
mod sampler;
mod span;
mod spots;
mod verdict;

pub use detect::{SHARE_MAX, SHARE_MAX_LOW_GAIN, WINDOW_S, classify, confirm, of_reads};
pub use engagement::Engagement;
pub use features::Options as DetectOptions;
pub use random::{Random, mix};
pub use reservoir::{Reservoir, Slot};
pub use sample::{Sample, Sketch, Tick};
pub use sampler::{Columns, RING_ENGAGED_S, RING_IDLE_S, SAMPLES_PER_SECOND, Sampler};
pub use verdict::{Class, Cut, Division, Evidence, Verdict};

// The scheduler.
mod action;
mod advice;
mod balance;
mod facts;
mod feedback;
mod forecast;
mod merge;
mod offered;
mod plan;
mod rekey;
mod rotation;
mod schedule;
mod shape;
mod split;
mod standing;
mod tokens;
mod window;

pub use action::{
    Action, ActionId, At, Done, Failed, MergeWhy, MoveWhy, SplitOutcome, SplitWhy, Step,
};
pub use advice::{
    Choice, Design, FanOut, Question, ReadShape, Reads, SampledRow, ShapeBound, ShapeCost, Warning,
    advise, buckets_for,
};
pub use facts::{
    HashOf, MERGE_AFTER_MS, NodeFacts, NodeId, PARTITION_BYTES, PARTITIONS_MAX, PartitionFacts,
    PartitionId, Remedy, TableFacts, TableId, Tail,
};
pub use forecast::{
    CELLS_MAX, DAY_SLOTS, DAYS_KEPT, Decided, FORECASTS_MAX, Forecast, Forecaster, Held, LEAD_MS,
    LIKELY, PEAK_MIN, Planned, PlannedCut, SLOT_MS, STEP_MS, SavedCell, TABLES_MAX, demand,
};
pub use offered::{Capacity, Offered, capacity, offered};
pub use rotation::{Rotation, rotating, rotation};
pub use schedule::{
    HotPartition, Judge, MERGES_MAX, NodeUse, Options, REPLICA_MOVES_MAX, ROUND_S, SPLITS_MAX,
    Scheduler, TRANSFERS_MAX, Totals,
};
pub use shape::Shape;
pub use split::NoSplit;
pub use standing::{Standing, standing};
pub use window::{Counters, PartitionReport, Rates};

// The causes of a load.
mod blame;

pub use blame::{BlameBook, Blamed, Cause, Intake, Intaken, IntakenSecond};
