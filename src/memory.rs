//! The bound on the resident memory of a process that runs statements.
//!
//! Pools and budgets count what they know of. What they do not see (a plan, a value, an allocator that keeps pages) is
//! seen here: the resident memory is looked at many times a second while statements run. Beyond the limit new statements
//! are refused and the youngest one is interrupted, before the kernel ends the whole process.

use std::sync::Arc;
use std::time::Duration;

use partita_frontend::Frontend;
use partita_frontend::lanes::{Lanes, Reason};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(20);
/// Time within which a light statement is over.
const LIGHT_TIME: Duration = Duration::from_millis(100);
/// Time between two lines in the log.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);
/// Of the machine's memory, the part that is the limit when none is given, in percent.
const DEFAULT_PERCENT: u64 = 80;
/// The size of a page. Kernels with larger pages exist, and report more memory than there is: the limit then takes
/// effect early, never late.
const PAGE_BYTES: u64 = 4096;

/// The limit that holds when none is given: a part of what the machine, or the container, has.
pub(crate) fn default_limit() -> u64 {
    let machine = std::fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.as_deref().and_then(total_of).unwrap_or(u64::MAX);
    let container = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let container = container.and_then(|text| text.trim().parse().ok()).unwrap_or(u64::MAX);
    machine.min(container) / 100 * DEFAULT_PERCENT
}

/// `MemTotal` of /proc/meminfo, in bytes.
fn total_of(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes << 10)
}

/// The resident memory of this process, in bytes.
fn resident() -> Option<u64> {
    resident_of(&std::fs::read_to_string("/proc/self/statm").ok()?)
}

/// The second number of /proc/self/statm, which counts pages, in bytes.
fn resident_of(text: &str) -> Option<u64> {
    text.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(PAGE_BYTES)
}

/// A measure against too much memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    /// Take new statements.
    Admit,
    /// Refuse new statements.
    Refuse,
    /// Refuse new statements, and interrupt one that runs.
    Interrupt,
}

/// Decides by the resident memory, the limit, the statements that run, and whether new ones are refused now. Without a
/// statement there is nothing to wait for: what is resident then is the process's own. A small step below the limit keeps
/// it from taking and refusing in turns.
fn decide(resident: u64, limit: u64, running: usize, refusing: bool) -> Measure {
    if running == 0 {
        Measure::Admit
    } else if resident > limit {
        Measure::Interrupt
    } else if refusing && resident > limit / 100 * 95 {
        Measure::Refuse
    } else {
        Measure::Admit
    }
}

/// Keeps the resident memory of the process below a limit, in bytes, until `stop`.
pub(crate) async fn keep_below(limit: u64, frontend: Arc<Frontend>, stop: CancellationToken) {
    let lanes: Arc<Lanes> = Arc::clone(frontend.lanes());
    drop(frontend);
    let mut complained: Option<tokio::time::Instant> = None;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
        let running = lanes.stats().lanes;
        if running == 0 && !lanes.refuses() {
            continue;
        }
        let Some(bytes) = resident() else { continue };
        let measure = decide(bytes, limit, running, lanes.refuses());
        lanes.refuse(measure != Measure::Admit);
        if measure == Measure::Interrupt
            && lanes.interrupt_youngest(LIGHT_TIME, Reason::OutOfMemory)
        {
            let quiet = complained.is_some_and(|time| time.elapsed() < COMPLAIN_EVERY);
            if !quiet {
                warn!(
                    resident = bytes,
                    limit, "interrupted a statement: the process is short of memory"
                );
                complained = Some(tokio::time::Instant::now());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_interrupted_beyond_the_limit_and_refused_until_there_is_room() {
        assert_eq!(decide(99, 100, 1, false), Measure::Admit);
        assert_eq!(decide(101, 100, 1, false), Measure::Interrupt);
        assert_eq!(decide(97, 100, 1, true), Measure::Refuse);
        assert_eq!(decide(95, 100, 1, true), Measure::Admit);
        assert_eq!(
            decide(1000, 100, 0, true),
            Measure::Admit,
            "nothing runs that could give memory back"
        );
    }

    #[test]
    fn the_kernels_numbers_are_read() {
        assert_eq!(
            total_of("MemTotal:       24681084 kB\nMemFree: 1 kB\n"),
            Some(24_681_084 << 10)
        );
        assert_eq!(resident_of("1000 250 30 1 0 5 0\n"), Some(250 * 4096));
        assert_eq!((total_of("nothing"), resident_of("1")), (None, None));
        assert!(resident().is_some_and(|bytes| bytes > 1 << 20));
        assert!(default_limit() > 64 << 20);
    }
}
