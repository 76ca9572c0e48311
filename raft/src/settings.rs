//! openraft's configuration, and the timeouts on which replication depends.

use openraft::{Config, SnapshotPolicy};
use partita_proto::id::GroupId;

use crate::error::RaftError;

/// Interval of a leader's heartbeats. Groups of one member have no heartbeat, and groups that sleep share one.
pub(crate) const HEARTBEAT_MS: u64 = 250;
/// Bounds of the election timeout: a follower that receives nothing for a time between the two requests votes. A
/// fail-over takes the upper bound (the old leader's lease) plus a time between both: 1.9 to 2.4 s.
pub(crate) const ELECTION_MIN_MS: u64 = 700;
pub(crate) const ELECTION_MAX_MS: u64 = 1200;
/// Maximum proposals that wait for a group's task.
const GROUP_QUEUE_LEN: u64 = 4096;

/// Configuration of a group; `leads`: a replica whose stored vote is committed for itself may lead at once after the
/// start.
pub(crate) fn config(group: GroupId, leads: bool) -> Result<Config, RaftError> {
    let config = Config {
        cluster_name: format!("group {group}"),
        heartbeat_interval: HEARTBEAT_MS,
        election_timeout_min: ELECTION_MIN_MS,
        election_timeout_max: ELECTION_MAX_MS,
        // Ticks are switched on by `pace.rs`.
        enable_tick: false,
        // The machine decides when it flushes; a snapshot only records its mark. The group decides how much of the log
        // is purged then: openraft on its own purges nothing.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        enable_leader_restore: Some(leads),
        enable_pre_vote: Some(true),
        api_channel_size: Some(GROUP_QUEUE_LEN),
        // A follower that has just received entries needs no heartbeat.
        heartbeat_min_interval: Some(HEARTBEAT_MS / 2),
        ..Config::default()
    };
    config
        .validate()
        .map_err(|error| RaftError::InvalidInput(format!("settings of group {group}: {error}")))
}
