//! The effect that each workload of the catalogue demonstrates, in a line.
//!
//! Invariant: every workload has a line (checked by a test in `catalogue.rs`).

/// The line of a workload; empty for an unknown name.
pub(super) fn shows(name: &str) -> &'static str {
    // The pattern of the load, then its consequence.
    match name {
        "W1" => {
            "time first: one partition takes all new rows; user first or a hash: each partition takes its share"
        }
        "W1:ordered" => {
            "skew in key order: with the user first, the first partition has most of the load until splits divide it; a hash spreads the same users"
        }
        "W2" => {
            "a coarse prefix before a fine one: balloons still spread, although there are few locations"
        }
        "W2:week" => {
            "a leading time that hardly moves: all rows of this week lie together, ordered by balloon"
        }
        "W3" => {
            "skew over few values: the largest application exceeds its partition's share, and no split between applications helps"
        }
        "W3:metrics" => "many equal hosts: a key that begins with the host spreads them",
        "W4" => "a leading column with fewer values than nodes: some nodes are idle",
        "W4:home" => "two values: at most two partitions work, unless more of the key is hashed",
        "W5" => {
            "a sweep: each moment is one place of the key space, although the load is even over ten seconds"
        }
        "W5:minute" => "the same, too slow for a window of a few seconds to cover a whole round",
        "W6" => "skew without order: popular keys are anywhere, and so is the load",
        "W6:ordered" => {
            "skew in key order: the first partition has most of the load, and splits help until one key is left"
        }
        "W6:uniform" => "reads only, evenly distributed: nothing to be done",
        "W6:hotspot" => "a hot range that stays: splits by load even it out",
        "W6:latest" => {
            "reads follow the end at which rows are inserted: splits come too late for them"
        }
        "W6:scans" => "long reads over the keys of every partition, beside a growing end",
        "W6:sequential" => {
            "a key that only grows: one partition takes every insert, wherever it is split"
        }
        "W7" => "one hot key: no split divides it, and the verdict says so",
        "W7:two" => "two hot keys: a split between them helps once, and no further one does",
        "W7:range" => "a narrow hot range: a few good splits spread it",
        "W8" => "a descending time first: the first partition takes all new rows",
        "W9" => {
            "an hour first: load is even within the hour, and moves to another place with the next hour"
        }
        "W10" => {
            "load that comes and goes: partitions split at noon are not merged and split again each day"
        }
        "W10:flash" => "the time until splits help, once a crowd has come",
        "W11" => {
            "an empty table of one partition, loaded in order: splits behind the end are in vain"
        }
        "W12" => "reads that find nothing still load a partition, although no row of it shows that",
        "W13" => "no partition is hot, but one node is: leaders have to move",
        "W14" => "an index by time is hot, although the table itself is not",
        "W15" => {
            "reads of new rows: with time first they go where the writes go, with the user first they spread"
        }
        _ => "",
    }
}
