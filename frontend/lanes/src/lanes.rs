//! All lanes of a process: the free ones and those with statements.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::admission::{Class, Places};
use crate::interrupt::Reason;
use crate::lane::{Core, Lane, Shared};

/// Address space for the stack of a lane's thread. Only touched pages take memory. Planning of the deepest statement that
/// the parser lets pass takes about 20 MiB of it in an unoptimised build.
const STACK_BYTES: usize = 128 << 20;
/// Statements of the short class per core that compute at a time.
const SHORT_PER_CORE: usize = 8;
/// Statements of the long class per core.
const LONG_PER_CORE: usize = 16;
/// Time after which a statement is long.
const SHORT_TIME: Duration = Duration::from_millis(500);
/// Maximum number of lanes, including those whose statements wait for their clients.
const LANES_MAX: usize = 512;
/// Maximum number of lanes while memory is short.
const PRESSED_MAX: usize = 4;
/// Maximum number of free lanes kept.
const FREE_MAX: usize = 32;
/// Interval of the housekeeping.
const TICK: Duration = Duration::from_millis(50);
/// Time for the tasks of a former statement to end before their priority is lowered.
const LEAVE_TIME: Duration = Duration::from_millis(100);

/// Sizes and limits of [`Lanes`].
#[derive(Clone, Debug)]
pub struct LaneOptions {
    /// Threads of one lane: the maximum that one statement keeps busy.
    pub threads: usize,
    /// Address space of each thread's stack, in bytes.
    pub stack_bytes: usize,
    /// Statements of the short class that compute at a time; further ones wait.
    pub short_max: usize,
    /// Statements of the long class that compute at a time; further ones stay in the short class.
    pub long_max: usize,
    /// Time after which a statement is long.
    pub short_time: Duration,
    /// Maximum number of lanes; further statements are refused.
    pub lanes_max: usize,
}

impl Default for LaneOptions {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            threads: cores,
            stack_bytes: STACK_BYTES,
            short_max: SHORT_PER_CORE * cores,
            long_max: LONG_PER_CORE * cores,
            short_time: SHORT_TIME,
            lanes_max: LANES_MAX,
        }
    }
}

/// Present numbers of statements and lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStats {
    /// Statements that compute and are short.
    pub short: usize,
    /// Statements that compute and are long.
    pub long: usize,
    /// Statements that wait for a place.
    pub waiting: usize,
    /// Lanes with a statement.
    pub lanes: usize,
    /// Lanes whose statement is over and whose tasks have not ended yet.
    pub leaving: usize,
}

/// The reason why a statement gets no lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The process is short of memory ([`Lanes::refuse`]).
    Memory,
    /// The maximum of [`LaneOptions::lanes_max`] lanes is reached.
    Lanes,
    /// The system cannot create more threads.
    Threads,
}

/// A lane with tasks of a former statement, and the time at which that one ended.
struct Left {
    core: Core,
    since: Instant,
}

/// The lanes of a process.
pub struct Lanes {
    me: Weak<Lanes>,
    options: LaneOptions,
    places: Arc<Places>,
    /// Free lanes, as a stack: the one used last is taken first, because its memory is warm.
    free: Mutex<Vec<Core>>,
    left: Mutex<Vec<Left>>,
    running: Mutex<Vec<Arc<Shared>>>,
    taken: AtomicUsize,
    waiting: AtomicUsize,
    refusing: AtomicBool,
    work: Arc<Notify>,
}

impl Lanes {
    /// Without lanes at first; their housekeeping runs on `home`.
    pub fn new(options: LaneOptions, home: &Handle) -> Arc<Self> {
        let places = Arc::new(Places::new(options.short_max, options.long_max));
        let work = Arc::new(Notify::new());
        let lanes = Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            options,
            places,
            free: Mutex::default(),
            left: Mutex::default(),
            running: Mutex::default(),
            taken: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            refusing: AtomicBool::new(false),
            work: Arc::clone(&work),
        });
        home.spawn(look_after(Arc::downgrade(&lanes), work));
        lanes
    }

    /// Takes a lane. Waits in order of arrival while the maximum of statements computes.
    ///
    /// # Errors
    /// If there is no lane and waiting would not help soon.
    pub async fn enter(&self) -> Result<Lane, Refusal> {
        if self.refuses() && self.taken.load(Ordering::Acquire) >= PRESSED_MAX {
            return Err(Refusal::Memory);
        }
        let waiting = Counted::new(&self.waiting);
        let place = self.places.take(Class::Short).await;
        drop(waiting);
        let (Some(lanes), Some(place)) = (self.me.upgrade(), place) else {
            return Err(Refusal::Threads);
        };
        let core = self.core()?;
        core.shared.begin(place);
        self.running.lock().push(Arc::clone(&core.shared));
        self.work.notify_one();
        Ok(Lane::new(core, lanes))
    }

    fn core(&self) -> Result<Core, Refusal> {
        let free = self.free.lock().pop();
        if let Some(core) = free.or_else(|| self.quiet()) {
            self.taken.fetch_add(1, Ordering::AcqRel);
            return Ok(core);
        }
        let leaving = self.left.lock().len();
        if self.taken.fetch_add(1, Ordering::AcqRel) + leaving >= self.options.lanes_max {
            self.taken.fetch_sub(1, Ordering::AcqRel);
            return Err(Refusal::Lanes);
        }
        let places = Arc::clone(&self.places);
        Core::start(self.options.threads, self.options.stack_bytes, places).map_err(|error| {
            tracing::error!(%error, "cannot start threads for a statement");
            self.taken.fetch_sub(1, Ordering::AcqRel);
            Refusal::Threads
        })
    }

    /// A lane whose leftover tasks have ended by now.
    fn quiet(&self) -> Option<Core> {
        let mut leftovers = self.left.lock();
        let position = leftovers.iter().position(|lane| lane.core.is_quiet())?;
        let core = leftovers.swap_remove(position).core;
        drop(leftovers);
        core.renew().then_some(core)
    }

    /// Takes back a lane whose statement has ended.
    pub(crate) fn leave(&self, core: Core) {
        self.taken.fetch_sub(1, Ordering::AcqRel);
        self.running.lock().retain(|lane| !Arc::ptr_eq(lane, &core.shared));
        if core.is_quiet() {
            self.keep(core);
            return;
        }
        self.left.lock().push(Left { core, since: Instant::now() });
        self.work.notify_one();
    }

    /// Keeps a lane for another statement, unless enough are free or it cannot be used again.
    fn keep(&self, core: Core) {
        if core.renew() {
            let mut free = self.free.lock();
            if free.len() < FREE_MAX {
                free.push(core);
            }
        }
    }

    /// Begins or ends the refusal of new statements. While refusing, a few lanes at a time are still given out:
    /// light statements need little memory, and the memory may be held by a computation that has not ended yet.
    pub fn refuse(&self, refusing: bool) {
        self.refusing.store(refusing, Ordering::Release);
    }

    /// True while new statements are refused.
    pub fn refuses(&self) -> bool {
        self.refusing.load(Ordering::Acquire)
    }

    /// Interrupts one statement that is not interrupted yet, to free memory; false if there is none.
    ///
    /// The youngest of those that have run for `light_time`; without one the oldest of those that have run for `min_age`.
    pub fn interrupt_one(&self, light_time: Duration, min_age: Duration, reason: Reason) -> bool {
        let running = self.running.lock();
        let open: Vec<_> = running
            .iter()
            .filter(|lane| lane.flag.reason().is_none())
            .map(|lane| (lane, lane.age()))
            .collect();
        let ages: Vec<Duration> = open.iter().map(|(_, age)| *age).collect();
        let victim = choose_victim(&ages, light_time, min_age).map(|position| open[position].0);
        if let Some(lane) = victim {
            lane.flag.raise(reason);
        }
        victim.is_some()
    }

    /// Present numbers of statements and lanes.
    pub fn stats(&self) -> LaneStats {
        let (short, long) = self.places.taken();
        LaneStats {
            short,
            long,
            waiting: self.waiting.load(Ordering::Acquire),
            lanes: self.taken.load(Ordering::Acquire),
            leaving: self.left.lock().len(),
        }
    }

    /// Housekeeping of all lanes; true if there may be more to do at the next tick.
    fn tidy(&self) -> bool {
        let running = self.running.lock().clone();
        for lane in running.iter().filter(|lane| lane.age() >= self.options.short_time) {
            lane.prolong();
        }
        let leftovers = std::mem::take(&mut *self.left.lock());
        let (quiet, busy): (Vec<_>, Vec<_>) =
            leftovers.into_iter().partition(|lane| lane.core.is_quiet());
        quiet.into_iter().for_each(|lane| self.keep(lane.core));
        for lane in busy.iter().filter(|lane| lane.since.elapsed() >= LEAVE_TIME) {
            lane.core.shared.lower();
        }
        let mut leftovers = self.left.lock();
        leftovers.extend(busy);
        !leftovers.is_empty() || !running.is_empty()
    }
}

/// Counts a statement while it waits for a place.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(counter: &'a AtomicUsize) -> Self {
        counter.fetch_add(1, Ordering::AcqRel);
        Self(counter)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Runs the housekeeping while there are statements; sleeps otherwise.
async fn look_after(lanes: Weak<Lanes>, work: Arc<Notify>) {
    loop {
        let Some(lanes) = lanes.upgrade() else { return };
        let more = lanes.tidy();
        drop(lanes);
        if more {
            tokio::time::sleep(TICK).await;
        } else if tokio::time::timeout(Duration::from_secs(10), work.notified()).await.is_ok() {
            // A light statement ends before the next tick and needs no housekeeping.
            tokio::time::sleep(TICK).await;
        }
    }
}

/// Position of the statement to interrupt when memory is short, by the ages of the running statements.
///
/// The youngest of those at least `light_time` old: older ones got their memory before it was short. If there is
/// none, the oldest of those at least `min_age` old: younger ones had no time to allocate much.
fn choose_victim(ages: &[Duration], light_time: Duration, min_age: Duration) -> Option<usize> {
    let positions = || ages.iter().enumerate();
    let heavy = positions().filter(|(_, age)| **age >= light_time).min_by_key(|(_, age)| **age);
    let light = || positions().filter(|(_, age)| **age >= min_age).max_by_key(|(_, age)| **age);
    heavy.or_else(light).map(|(position, _)| position)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_youngest_heavy_statement_goes_before_the_oldest_light_one() {
        let choose = |ages: &[u64], min_age: u64| {
            let ages: Vec<_> = ages.iter().map(|ms| Duration::from_millis(*ms)).collect();
            choose_victim(&ages, Duration::from_millis(100), Duration::from_millis(min_age))
        };
        assert_eq!(choose(&[5000, 50, 300, 1], 10), Some(2));
        assert_eq!(choose(&[50, 20, 1], 10), Some(0));
        assert_eq!(choose(&[50, 20, 1], 100), None, "all are light");
        assert_eq!(choose(&[9, 1], 10), None);
        assert_eq!(choose(&[], 0), None);
    }
}
