//! The bound on the resident memory of a process that runs statements.
//!
//! Pools and budgets count what they know of. What they do not see (a plan, a value, an allocator that keeps pages) is
//! seen here: the resident memory is looked at many times a second while statements run, by a thread of its own that
//! waits for nobody. When it is beyond the limit, or will be in a moment as it grows now, new statements are refused and
//! one that runs is interrupted, before the kernel ends the whole process.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use partita_frontend::Frontend;
use partita_frontend::lanes::{Lanes, Reason};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Time between two looks while nothing runs.
const IDLE_INTERVAL: Duration = Duration::from_millis(20);
/// Time between two looks while statements run.
const INTERVAL: Duration = Duration::from_millis(5);
/// Looks for which the memory is expected to grow on as it grew since the last one: an interrupted statement goes on
/// until it next asks whether it is to stop.
const GROWTH_LOOKS: u64 = 6;
/// Time within which a light statement is over.
const LIGHT_TIME: Duration = Duration::from_millis(100);
/// Of the limit, the part beyond which light statements are interrupted, too, in percent.
const SEVERE_PERCENT: u64 = 105;
/// Time within which a statement cannot have taken much.
const MIN_AGE: Duration = Duration::from_millis(10);
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

/// Decides by the resident memory, its growth since the last look, the limit, the statements that run, and whether new
/// ones are refused now. Without a statement there is nothing to wait for: what is resident then is the process's own. A
/// small step below the limit keeps it from taking and refusing in turns.
fn decide(resident: u64, growth: u64, limit: u64, running: usize, refusing: bool) -> Measure {
    let soon = resident.saturating_add(growth.saturating_mul(GROWTH_LOOKS));
    if running == 0 {
        Measure::Admit
    } else if soon > limit {
        Measure::Interrupt
    } else if refusing && resident > limit / 100 * 95 {
        Measure::Refuse
    } else {
        Measure::Admit
    }
}

/// The age from which on a light statement is interrupted.
fn min_age(resident: u64, limit: u64) -> Duration {
    if resident > limit / 100 * SEVERE_PERCENT { MIN_AGE } else { LIGHT_TIME }
}

/// Keeps the resident memory of the process below a limit, in bytes, until `stop`; on a thread of its own.
///
/// # Errors
/// When the thread cannot be started.
pub(crate) fn keep_below(
    limit: u64,
    frontend: &Arc<Frontend>,
    stop: CancellationToken,
) -> io::Result<()> {
    let lanes: Arc<Lanes> = Arc::clone(frontend.lanes());
    let look = move || {
        let mut watch = Watch { limit, last: None, complained: None };
        while !stop.is_cancelled() {
            let busy = watch.look(&lanes);
            std::thread::sleep(if busy { INTERVAL } else { IDLE_INTERVAL });
        }
    };
    std::thread::Builder::new().name("memory".to_owned()).spawn(look).map(drop)
}

/// What is remembered from look to look.
struct Watch {
    /// Bytes.
    limit: u64,
    /// The resident bytes at the last look, if statements ran.
    last: Option<u64>,
    /// The time of the last line in the log.
    complained: Option<Instant>,
}

impl Watch {
    /// Looks once and acts; whether statements run.
    fn look(&mut self, lanes: &Lanes) -> bool {
        let running = lanes.stats().lanes;
        if running == 0 && !lanes.refuses() {
            self.last = None;
            return false;
        }
        let Some(resident) = resident() else { return false };
        let growth = self.last.map_or(0, |last| resident.saturating_sub(last));
        self.last = Some(resident);
        let measure = decide(resident, growth, self.limit, running, lanes.refuses());
        lanes.refuse(measure != Measure::Admit);
        if measure == Measure::Interrupt
            && lanes.interrupt_one(LIGHT_TIME, min_age(resident, self.limit), Reason::OutOfMemory)
        {
            self.complain(resident);
        }
        running > 0
    }

    fn complain(&mut self, resident: u64) {
        if self.complained.is_some_and(|time| time.elapsed() < COMPLAIN_EVERY) {
            return;
        }
        warn!(
            resident,
            limit = self.limit,
            "interrupted a statement: the process is short of memory"
        );
        self.complained = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_interrupted_beyond_the_limit_and_refused_until_there_is_room() {
        assert_eq!(decide(99, 0, 100, 1, false), Measure::Admit);
        assert_eq!(decide(101, 0, 100, 1, false), Measure::Interrupt);
        assert_eq!(decide(97, 0, 100, 1, true), Measure::Refuse);
        assert_eq!(decide(95, 0, 100, 1, true), Measure::Admit);
        assert_eq!(
            decide(1000, 0, 100, 0, true),
            Measure::Admit,
            "nothing runs that could give memory back"
        );
    }

    #[test]
    fn memory_that_grows_fast_is_met_before_it_is_beyond_the_limit() {
        assert_eq!(decide(80, 3, 100, 1, false), Measure::Admit);
        assert_eq!(decide(80, 4, 100, 1, false), Measure::Interrupt);
        assert_eq!(decide(80, u64::MAX, 100, 1, false), Measure::Interrupt);
    }

    #[test]
    fn light_statements_are_interrupted_only_far_beyond_the_limit() {
        assert_eq!(min_age(1040, 1000), LIGHT_TIME);
        assert_eq!(min_age(1060, 1000), MIN_AGE);
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
