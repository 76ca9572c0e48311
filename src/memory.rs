//! Limit on the resident memory of a process that runs statements.
//!
//! Pools and budgets count only the memory that they allocate. The rest (plans, values, pages kept by the
//! allocator) is measured here: while statements run, a separate thread reads the resident memory many times a
//! second. If it exceeds nine tenths of the limit, or will in a moment at its present growth, new statements are refused
//! and a running one is interrupted, before the kernel kills the whole process.
//!
//! ```text
//!   below 85 %    new statements are accepted again
//!   from 90 %     new ones are refused; the youngest that is not light is interrupted, and has some time to end
//!   from 100 %    one after another is interrupted, without waiting
//!   from 105 %    all are interrupted, light ones too
//! ```
//!
//! The distance to the limit is for calls that cannot be interrupted: an interrupted statement computes the values of
//! its batch to the end, up to 128 MiB of them (`frontend/worker/src/bounded.rs`), and so do others beside it. The
//! allocator returns freed pages within a second (`.cargo/config.toml`).

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use partita_frontend::Frontend;
use partita_frontend::lanes::{Lanes, Reason};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Interval between measurements while no statement runs.
const IDLE_INTERVAL: Duration = Duration::from_millis(20);
/// Interval between measurements while statements run.
const INTERVAL: Duration = Duration::from_millis(5);
/// Number of intervals for which memory is expected to grow as in the last one: an interrupted statement runs on
/// until its next check.
const GROWTH_LOOKS: u64 = 6;
/// Percentage of the limit above which statements are interrupted.
const INTERRUPT_PERCENT: u64 = 90;
/// Percentage of the limit below which new statements are accepted again.
const ADMIT_PERCENT: u64 = 85;
/// Time that an interrupted statement has to free its memory before the next is interrupted, below the limit.
const PATIENCE: Duration = Duration::from_millis(50);
/// Age below which a statement counts as light.
const LIGHT_TIME: Duration = Duration::from_millis(100);
/// Percentage of the limit above which all statements are interrupted, light ones too.
const SEVERE_PERCENT: u64 = 105;
/// Age below which a statement cannot have allocated much.
const MIN_AGE: Duration = Duration::from_millis(10);
/// Minimum interval between two lines in the log.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);
/// Default limit, as a percentage of the machine's memory.
const DEFAULT_PERCENT: u64 = 80;
/// Page size in bytes. On kernels with larger pages the true value is larger, so the limit takes effect at a higher
/// real usage.
const PAGE_BYTES: u64 = 4096;

/// Default limit in bytes: a share of the memory of the machine, or of the container.
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

/// Resident memory of this process, in bytes.
fn resident() -> Option<u64> {
    resident_of(&std::fs::read_to_string("/proc/self/statm").ok()?)
}

/// Resident memory, in bytes: the second number of /proc/self/statm, which counts pages.
fn resident_of(text: &str) -> Option<u64> {
    text.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(PAGE_BYTES)
}

/// Action against excessive memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    /// Accept new statements.
    Admit,
    /// Refuse new statements.
    Refuse,
    /// Refuse new statements, and interrupt a running one.
    Interrupt,
}

/// Decides by the resident memory, its growth since the last measurement, the limit, the number of running
/// statements, and whether new ones are being refused. Without running statements there is nothing to interrupt:
/// what is resident then belongs to the process itself. The margin between the two percentages prevents alternating
/// between accepting and refusing.
fn decide(resident: u64, growth: u64, limit: u64, running: usize, refusing: bool) -> Measure {
    let soon = resident.saturating_add(growth.saturating_mul(GROWTH_LOOKS));
    if running == 0 {
        Measure::Admit
    } else if soon > limit / 100 * INTERRUPT_PERCENT {
        Measure::Interrupt
    } else if refusing && resident > limit / 100 * ADMIT_PERCENT {
        Measure::Refuse
    } else {
        Measure::Admit
    }
}

/// Age from which a light statement may be interrupted.
fn min_age(resident: u64, limit: u64) -> Duration {
    if resident > limit / 100 * SEVERE_PERCENT { MIN_AGE } else { LIGHT_TIME }
}

/// Maximum number of statements to interrupt after one measurement. Far beyond the limit several are growing at once,
/// and the next measurement would be too late for the second.
fn most_interrupted(resident: u64, limit: u64) -> usize {
    if resident > limit / 100 * SEVERE_PERCENT { usize::MAX } else { 1 }
}

/// Returns true if the statement interrupted last may still free enough: below the limit there is time for it.
fn is_patient(resident: u64, limit: u64, age: Option<Duration>) -> bool {
    resident <= limit && age.is_some_and(|age| age < PATIENCE)
}

/// Starts a thread that keeps the process's resident memory below a limit, in bytes, until `stop`.
///
/// # Errors
/// If the thread cannot be started.
pub(crate) fn keep_below(
    limit: u64,
    frontend: &Arc<Frontend>,
    stop: CancellationToken,
) -> io::Result<()> {
    let lanes: Arc<Lanes> = Arc::clone(frontend.lanes());
    let look = move || {
        let mut watch = Watch { limit, last: None, interrupted: None, complained: None };
        while !stop.is_cancelled() {
            let busy = watch.look(&lanes);
            std::thread::sleep(if busy { INTERVAL } else { IDLE_INTERVAL });
        }
    };
    std::thread::Builder::new().name("memory".to_owned()).spawn(look).map(drop)
}

/// State kept between measurements.
struct Watch {
    /// Limit in bytes.
    limit: u64,
    /// Resident bytes at the last measurement, if statements ran.
    last: Option<u64>,
    /// Time of the last interruption.
    interrupted: Option<Instant>,
    /// Time of the last line in the log.
    complained: Option<Instant>,
}

impl Watch {
    /// Measures once and acts; true if statements run.
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
        let age = self.interrupted.map(|time| time.elapsed());
        if measure == Measure::Interrupt && !is_patient(resident, self.limit, age) {
            let min_age = min_age(resident, self.limit);
            let mut interrupted = 0;
            while interrupted < most_interrupted(resident, self.limit)
                && lanes.interrupt_one(LIGHT_TIME, min_age, Reason::OutOfMemory)
            {
                interrupted += 1;
            }
            if interrupted > 0 {
                self.interrupted = Some(Instant::now());
                self.complain(resident);
            }
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
    fn statements_are_interrupted_near_the_limit_and_refused_until_there_is_room() {
        assert_eq!(decide(890, 0, 1000, 1, false), Measure::Admit);
        assert_eq!(decide(901, 0, 1000, 1, false), Measure::Interrupt);
        assert_eq!(decide(870, 0, 1000, 1, true), Measure::Refuse);
        assert_eq!(decide(850, 0, 1000, 1, true), Measure::Admit);
        assert_eq!(
            decide(10_000, 0, 1000, 0, true),
            Measure::Admit,
            "nothing runs that could give memory back"
        );
    }

    #[test]
    fn memory_that_grows_fast_is_met_before_it_is_beyond_the_limit() {
        assert_eq!(decide(700, 33, 1000, 1, false), Measure::Admit);
        assert_eq!(decide(700, 34, 1000, 1, false), Measure::Interrupt);
        assert_eq!(decide(700, u64::MAX, 1000, 1, false), Measure::Interrupt);
    }

    #[test]
    fn the_next_statement_is_interrupted_when_the_last_has_had_its_time() {
        assert!(!is_patient(950, 1000, None));
        assert!(is_patient(950, 1000, Some(Duration::from_millis(49))));
        assert!(!is_patient(950, 1000, Some(PATIENCE)));
        assert!(!is_patient(1001, 1000, Some(Duration::ZERO)), "there is no time beyond the limit");
    }

    #[test]
    fn light_statements_are_interrupted_only_far_beyond_the_limit() {
        assert_eq!(min_age(1040, 1000), LIGHT_TIME);
        assert_eq!(min_age(1060, 1000), MIN_AGE);
    }

    #[test]
    fn all_statements_are_interrupted_only_far_beyond_the_limit() {
        assert_eq!(most_interrupted(1040, 1000), 1);
        assert_eq!(most_interrupted(1060, 1000), usize::MAX);
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
