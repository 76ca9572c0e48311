//! The effect that each workload of the catalogue demonstrates, in a line.
//!
//! Invariant: every workload has a line (checked by a test in `catalogue.rs`).

/// The line of a workload; empty for an unknown name.
pub(super) fn shows(name: &str) -> &'static str {
    match name {
        "W1" => {
            "time first: one partition takes all that is new; user first or a hash: each takes its part"
        }
        "W1:ordered" => {
            "skew in order: user first, the first partition bears most until load cuts it; a hash spreads the same users"
        }
        "W2" => {
            "a coarse prefix before a fine one: balloons still spread, though locations are few"
        }
        "W2:week" => {
            "a time that hardly moves in front: whatever comes this week lies together, told apart by balloon"
        }
        "W3" => {
            "skew over few values: the largest application is more than its partition's part, and no cut between applications helps"
        }
        "W3:metrics" => "many equal hosts: the host first in the key spreads by itself",
        "W4" => "a leading column with fewer values than nodes: some nodes have nothing to do",
        "W4:home" => "two values: two partitions work at most, unless more of the key is hashed",
        "W5" => {
            "a sweep: each moment is one place of the key space, though over ten seconds all is even"
        }
        "W5:minute" => "the same, too slow for a window of some seconds to see it come around",
        "W6" => "skew without order: popular keys lie anywhere, and so does the load",
        "W6:ordered" => {
            "skew in order: the first partition bears most, and cuts help until one key is left"
        }
        "W6:uniform" => "reads only, everywhere alike: nothing to be done",
        "W6:hotspot" => "a hot range that stays: cuts by load even it out",
        "W6:latest" => {
            "reads follow the end at which rows are inserted: cuts come too late for them"
        }
        "W6:scans" => "long reads over every partition's keys beside a growing end",
        "W6:sequential" => {
            "a key that only grows: one partition takes every insert, wherever it is cut"
        }
        "W7" => "one hot key: no cut divides it, and it is said to be so",
        "W7:two" => "two hot keys: a cut between them helps once, and no more",
        "W7:range" => "a narrow hot range: few good cuts spread it",
        "W8" => "a counted-down time first: the first partition takes all that is new",
        "W9" => {
            "an hour in front: load is even within the hour, and moves to another place as it turns"
        }
        "W10" => {
            "load that comes and goes: what was cut by noon is not merged and cut again each day"
        }
        "W10:flash" => "how long it takes until cuts help, once a crowd is there",
        "W11" => {
            "an empty table of one partition, and a load in order: cuts behind the end are in vain"
        }
        "W12" => "reads that find nothing load a partition all the same, which no row of it says",
        "W13" => "no partition is hot, and one node is: leaders have to move",
        "W14" => "an index by time is hot although the table itself is not",
        "W15" => {
            "reads of what is new lie where writes do, under time first; under the user they spread"
        }
        _ => "",
    }
}
