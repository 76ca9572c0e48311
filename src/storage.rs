//! Options of every process that stores rows.

use std::collections::BTreeSet;
use std::time::Duration;

use partita_datanode::EngineOptions;
use partita_proto::id::GroupId;

/// Memory for rows that are not in files yet, in MiB.
const MEMTABLE_MB: u64 = 192;
/// Of the memory for rows that are not in files yet, one memtable takes a third: one fills while another is written and a
/// third may wait. Below the lower bound files would be too many; above the upper one a flush holds up the next for long,
/// and nothing was seen to gain from it.
const MEMTABLE_SHARE: u64 = 3;
const MEMTABLE_BYTES_MIN: u64 = 8 << 20;
const MEMTABLE_BYTES_MAX: u64 = 256 << 20;
/// Bytes of log after which memtables are flushed so that it can be reclaimed, in MiB.
const LOG_MB: u64 = 1024;
/// How long dropped files are kept, in seconds.
const TRASH_KEEP_S: u64 = 3600;

/// How much of the machine the storage takes.
#[derive(clap::Args)]
// Flattened into the options of a role: their groups would have one name.
#[group(skip)]
pub(crate) struct Options {
    /// MiB of memory for rows that are not in files yet; one memtable takes a third of it, 8 to 256 MiB.
    #[arg(long, env = "PARTITA_MEMTABLE_MB", default_value_t = MEMTABLE_MB)]
    memtable_mb: u64,
    /// MiB of log kept before memtables are flushed to reclaim it.
    #[arg(long, env = "PARTITA_LOG_MB", default_value_t = LOG_MB)]
    log_mb: u64,
    /// Seconds that the files of dropped tables and replicas are kept in the directory `trash`; 0: not at all. Where less
    /// than a tenth of the disk or 1 GiB is free, they go at once.
    #[arg(long, env = "PARTITA_TRASH_KEEP_S", default_value_t = TRASH_KEEP_S)]
    trash_keep_s: u64,
    /// Rows a second that one partition takes at most. For experiments: a partition is then as slow as
    /// this on any machine.
    #[arg(long, env = "PARTITA_PARTITION_RATE", value_parser = rate)]
    partition_rate: Option<f64>,
    /// Number of a partition (0: the catalog) whose damaged log is to be used as far as it can be read; what cannot be
    /// read of it is given up for good. So is, of a partition whose only replica was put back from an older copy, what the
    /// copy lacks. As often as needed, for one start.
    #[arg(
        long = "accept-damage",
        env = "PARTITA_ACCEPT_DAMAGE",
        value_delimiter = ',',
        value_name = "PARTITION"
    )]
    accept_damage: Vec<u64>,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| format!("{text} is no number of rows a second above 0"))
}

impl Options {
    /// Bytes that all memtables together may have.
    pub(crate) fn memtable_bytes(&self) -> u64 {
        self.memtable_mb << 20
    }

    /// Options of every partition.
    pub(crate) fn engine(&self) -> EngineOptions {
        let share = self.memtable_bytes() / MEMTABLE_SHARE;
        let memtable_bytes_max = share.clamp(MEMTABLE_BYTES_MIN, MEMTABLE_BYTES_MAX);
        EngineOptions { memtable_bytes_max, ..EngineOptions::default() }
    }

    /// How long the files of what was dropped are kept.
    pub(crate) fn trash_keep(&self) -> Duration {
        Duration::from_secs(self.trash_keep_s)
    }

    /// Rows a second that one partition takes at most.
    pub(crate) fn partition_rows_per_s(&self) -> Option<f64> {
        self.partition_rate
    }

    /// The groups whose damaged log is used as far as it goes.
    pub(crate) fn accepted(&self) -> BTreeSet<GroupId> {
        self.accept_damage.iter().map(|number| GroupId(*number)).collect()
    }

    /// Bytes of log from which on memtables are flushed.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log_mb << 20
    }
}

/// What to do about groups whose log is damaged and that no other node can replace; `None` when there are none.
pub(crate) fn hint(damaged: &[(GroupId, String)]) -> Option<String> {
    let numbers: Vec<String> = damaged.iter().map(|(group, _)| group.0.to_string()).collect();
    if numbers.is_empty() {
        return None;
    }
    Some(format!(
        "to go on without what cannot be read of them, start once with --accept-damage {} (0 is the catalog, the others are \
         partitions); what cannot be read is then given up for good",
        numbers.join(",")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_names_all_that_is_damaged() {
        assert_eq!(hint(&[]), None);
        let damaged = [0, 4, 17].map(|group| (GroupId(group), "is damaged".to_owned()));
        assert!(hint(&damaged).unwrap().contains("--accept-damage 0,4,17 "));
    }

    #[test]
    fn a_memtable_takes_a_third_of_the_memory_within_bounds() {
        for (memory, memtable) in
            [(0, 8), (12, 8), (30, 10), (MEMTABLE_MB, 64), (384, 128), (4096, 256)]
        {
            let options = Options {
                memtable_mb: memory,
                log_mb: LOG_MB,
                trash_keep_s: TRASH_KEEP_S,
                partition_rate: None,
                accept_damage: Vec::new(),
            };
            assert_eq!(options.engine().memtable_bytes_max, memtable << 20, "of {memory} MiB");
        }
    }
}
