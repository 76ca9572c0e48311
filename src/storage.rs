//! Options of processes that store rows.

use std::collections::BTreeSet;
use std::time::Duration;

use partita_datanode::EngineOptions;
use partita_proto::id::GroupId;

/// Default memory for rows that are not in files yet, in MiB.
const MEMTABLE_MB: u64 = 192;
/// A memtable takes this fraction of that memory: one fills while another is written, and a third may wait. Below
/// the lower bound there would be too many files; above the upper one a flush delays the next for long, and no gain
/// was measured.
const MEMTABLE_SHARE: u64 = 3;
const MEMTABLE_BYTES_MIN: u64 = 8 << 20;
const MEMTABLE_BYTES_MAX: u64 = 256 << 20;
/// Default size of the log at which memtables are flushed so that it can be reclaimed, in MiB.
const LOG_MB: u64 = 1024;
/// Default time for which dropped files are kept, in seconds.
const TRASH_KEEP_S: u64 = 3600;

/// Memory, log and files of the storage.
#[derive(clap::Args)]
// Flattened into the options of several roles: the groups would have the same name.
#[group(skip)]
pub(crate) struct Options {
    /// MiB of memory for rows that are not in files yet; one memtable takes a third of it, 8 to 256 MiB.
    #[arg(long, env = "PARTITA_MEMTABLE_MB", default_value_t = MEMTABLE_MB)]
    memtable_mb: u64,
    /// MiB of log at which memtables are flushed to reclaim it.
    #[arg(long, env = "PARTITA_LOG_MB", default_value_t = LOG_MB)]
    log_mb: u64,
    /// Seconds for which files of dropped tables and replicas are kept in the directory `trash`; 0: not kept. If
    /// less than a tenth of the disk or 1 GiB is free, they are deleted at once.
    #[arg(long, env = "PARTITA_TRASH_KEEP_S", default_value_t = TRASH_KEEP_S)]
    trash_keep_s: u64,
    /// Maximum rows per second of one partition. For experiments: limits a partition to the same rate on any
    /// machine.
    #[arg(long, env = "PARTITA_PARTITION_RATE", value_parser = rate)]
    partition_rate: Option<f64>,
    /// Number of a partition (0: the catalog) whose damaged log is used as far as it can be read; the rest is lost
    /// for good. The same for a partition whose only replica was restored from an older copy: rows that the copy
    /// lacks are lost. May be repeated; for one start.
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
    rate.ok_or_else(|| format!("{text} is not a number of rows per second above 0"))
}

impl Options {
    /// Maximum bytes of all memtables together.
    pub(crate) fn memtable_bytes(&self) -> u64 {
        self.memtable_mb << 20
    }

    /// Options of each partition's engine.
    pub(crate) fn engine(&self) -> EngineOptions {
        let share = self.memtable_bytes() / MEMTABLE_SHARE;
        let memtable_bytes_max = share.clamp(MEMTABLE_BYTES_MIN, MEMTABLE_BYTES_MAX);
        EngineOptions { memtable_bytes_max, ..EngineOptions::default() }
    }

    /// Time for which dropped files are kept.
    pub(crate) fn trash_keep(&self) -> Duration {
        Duration::from_secs(self.trash_keep_s)
    }

    /// Maximum rows per second of one partition.
    pub(crate) fn partition_rows_per_s(&self) -> Option<f64> {
        self.partition_rate
    }

    /// Groups whose damaged log is used as far as it can be read.
    pub(crate) fn accepted(&self) -> BTreeSet<GroupId> {
        self.accept_damage.iter().map(|number| GroupId(*number)).collect()
    }

    /// Bytes of log at which memtables are flushed.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log_mb << 20
    }
}

/// Advice for groups whose log is damaged and that no other node can replace; `None` if there are none.
pub(crate) fn hint(damaged: &[(GroupId, String)]) -> Option<String> {
    let numbers: Vec<String> = damaged.iter().map(|(group, _)| group.0.to_string()).collect();
    if numbers.is_empty() {
        return None;
    }
    Some(format!(
        "to continue without the unreadable part of the log, start once with --accept-damage {} (0 is the catalog, the \
         others are partitions); the unreadable part is then lost for good",
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
