//! Resource usage of processes: CPU, memory, bytes written; and size of a folder on disk. Linux only, from `/proc`.
//!
//! A server may be several processes (PostgreSQL: one per connection). With descendants, CPU and bytes written
//! include those of descendants that have ended and been waited for, and memory is the proportional share (PSS), so
//! that shared pages count once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;

/// Ticks of `/proc/PID/stat` per second: USER_HZ, which Linux fixes at 100 for all its usual
/// architectures.
const TICKS_PER_SECOND: f64 = 100.0;
/// Unit of `st_blocks`, in bytes.
const BLOCK_BYTES: u64 = 512;

/// Resources that processes have used since their start, and hold now.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Usage {
    /// CPU seconds, user and system.
    pub(crate) cpu_s: f64,
    /// Bytes in memory now.
    pub(crate) memory_bytes: u64,
    /// Peak of bytes in memory: since the start for one process; with descendants, among the samples taken.
    pub(crate) memory_peak_bytes: u64,
    /// Bytes written to disk.
    pub(crate) written_bytes: u64,
}

/// The processes of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    pids: Vec<u32>,
    descendants: bool,
    peak_bytes: u64,
}

impl Meter {
    /// Meters these processes, and their descendants if requested.
    pub(crate) fn new(pids: Vec<u32>, descendants: bool) -> Self {
        Self { pids, descendants, peak_bytes: 0 }
    }

    /// True if no processes are metered.
    pub(crate) fn is_idle(&self) -> bool {
        self.pids.is_empty()
    }

    /// Present usage.
    ///
    /// # Errors
    /// If one of the processes is gone.
    pub(crate) fn read(&mut self) -> anyhow::Result<Usage> {
        let mut usage = Usage::default();
        for pid in &self.pids {
            let stat = Stat::of(*pid).with_context(|| format!("process {pid} is gone"))?;
            usage.cpu_s += stat.cpu_s(self.descendants);
            usage.written_bytes += written_bytes(*pid);
            if self.descendants {
                usage.memory_bytes += proportional_bytes(*pid);
            } else {
                usage.memory_bytes += status_bytes(*pid, "VmRSS:");
                usage.memory_peak_bytes += status_bytes(*pid, "VmHWM:");
            }
        }
        if self.descendants {
            for pid in descendants(&self.pids) {
                // A process that ends meanwhile is counted by its parent the next time.
                if let Some(stat) = Stat::of(pid) {
                    usage.cpu_s += stat.cpu_s(true);
                    usage.written_bytes += written_bytes(pid);
                    usage.memory_bytes += proportional_bytes(pid);
                }
            }
            self.peak_bytes = self.peak_bytes.max(usage.memory_bytes);
            usage.memory_peak_bytes = self.peak_bytes;
        }
        Ok(usage)
    }
}

/// CPU seconds of this process so far.
pub(crate) fn own_cpu_s() -> f64 {
    Stat::of(std::process::id()).map_or(0.0, |stat| stat.cpu_s(false))
}

/// CPU seconds of this thread so far.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds of a run fit 53 bits")]
pub(crate) fn thread_cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos: u64 = text.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0);
    nanos as f64 / 1e9
}

/// The needed fields of `/proc/PID/stat`.
struct Stat {
    parent: u32,
    own_ticks: u64,
    waited_ticks: u64,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The name in parentheses may contain anything; fields are counted after it.
        let fields: Vec<&str> = text[text.rfind(')')? + 2..].split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            parent: u32::try_from(number(1)?).ok()?,
            own_ticks: number(11)? + number(12)?,
            waited_ticks: number(13)? + number(14)?,
        })
    }

    #[expect(clippy::cast_precision_loss, reason = "ticks of a run fit 53 bits")]
    fn cpu_s(&self, with_ended_children: bool) -> f64 {
        let waited = if with_ended_children { self.waited_ticks } else { 0 };
        (self.own_ticks + waited) as f64 / TICKS_PER_SECOND
    }
}

/// All descendants of processes, without the processes themselves.
fn descendants(roots: &[u32]) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid
            && let Some(stat) = Stat::of(pid)
        {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    let (mut pids, mut next) = (Vec::new(), roots.to_vec());
    while let Some(pid) = next.pop() {
        let child_pids = children.remove(&pid).unwrap_or_default();
        next.extend(&child_pids);
        pids.extend(child_pids);
    }
    pids.retain(|pid| !roots.contains(pid));
    pids
}

/// A value in kB of `/proc/PID/<file>`, in bytes; 0 if it is not there.
fn kilobytes(pid: u32, file: &str, label: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(label));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) << 10
}

fn status_bytes(pid: u32, label: &str) -> u64 {
    kilobytes(pid, "status", label)
}

fn proportional_bytes(pid: u32) -> u64 {
    kilobytes(pid, "smaps_rollup", "Pss:")
}

fn written_bytes(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|line| line.parse().ok()).unwrap_or(0)
}

/// Size of a folder on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Disk {
    /// Allocated bytes.
    pub(crate) bytes: u64,
    /// Allocated bytes of each entry of the folder: so a preallocated log is shown apart from rows.
    pub(crate) entries: BTreeMap<String, u64>,
}

/// Adds up folders. Files that disappear meanwhile are not counted.
pub(crate) fn disk(folders: &[PathBuf]) -> Disk {
    let mut disk = Disk::default();
    for folder in folders {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let bytes = allocated(&entry.path());
            disk.bytes += bytes;
            let name = entry.file_name().to_string_lossy().into_owned();
            *disk.entries.entry(name).or_default() += bytes;
        }
    }
    disk
}

fn allocated(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(metadata) = path.symlink_metadata() else { return 0 };
    let bytes = metadata.blocks() * BLOCK_BYTES;
    if !metadata.is_dir() {
        return bytes;
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    bytes + entries.map(|entry| allocated(&entry.path())).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_may_hold_anything() {
        let text = "7 (a) b (c) S 3 7 7 0 -1 4194560 1 2 0 0 150 50 20 30 20 0 1 0";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.parent, stat.own_ticks, stat.waited_ticks), (3, 200, 50));
        assert!((stat.cpu_s(true) - 2.5).abs() < 1e-9);
    }

    #[test]
    fn this_process_can_be_metered() {
        let mut sum = 0_u64;
        while own_cpu_s() < 0.02 {
            sum = std::hint::black_box(sum.wrapping_mul(3).wrapping_add(1));
        }
        let mut meter = Meter::new(vec![std::process::id()], false);
        let usage = meter.read().unwrap();
        assert!(usage.cpu_s >= 0.02);
        assert!(usage.memory_bytes > 0 && usage.memory_peak_bytes >= usage.memory_bytes);
        assert!(Meter::new(vec![u32::MAX], false).read().is_err());
    }

    #[test]
    fn descendants_count() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pids = descendants(&[std::process::id()]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(pids.contains(&child.id()));
    }

    #[test]
    fn a_folder_is_added_up_by_entry() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("log/deep")).unwrap();
        std::fs::write(folder.path().join("log/deep/a"), vec![1; 100_000]).unwrap();
        std::fs::write(folder.path().join("rows"), vec![1; 10_000]).unwrap();
        let disk = disk(&[folder.path().to_owned()]);
        assert!(disk.entries["log"] >= 100_000 && disk.entries["rows"] >= 10_000);
        assert_eq!(disk.bytes, disk.entries.values().sum::<u64>());
    }
}
