//! One lane: a runtime and its statement.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::Pid;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::task::AbortOnDropHandle;

use crate::admission::{Class, Place, Places};
use crate::interrupt::{self, Flag, Reason};
use crate::lanes::Lanes;
use crate::priority;

/// Maximum threads of one lane for blocking calls (files).
const BLOCKING_THREADS_MAX: usize = 4;
/// Time after which an idle thread for blocking calls ends.
const BLOCKING_KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The part of a lane's state that its threads share.
pub(crate) struct Shared {
    pub(crate) flag: Flag,
    /// The place of the statement; `None` while it waits for its client.
    place: Mutex<Option<Place>>,
    class: Mutex<Class>,
    places: Arc<Places>,
    /// The time at which the statement entered.
    entered: Mutex<Instant>,
    threads: Mutex<Vec<Pid>>,
    lowered: AtomicBool,
    statement: Mutex<Weak<Statement>>,
}

impl Shared {
    fn new(places: Arc<Places>) -> Self {
        Self {
            flag: Flag::default(),
            place: Mutex::new(None),
            class: Mutex::new(Class::Short),
            places,
            entered: Mutex::new(Instant::now()),
            threads: Mutex::default(),
            lowered: AtomicBool::new(false),
            statement: Mutex::default(),
        }
    }

    /// Begins a statement that holds this place.
    pub(crate) fn begin(&self, place: Place) {
        self.flag.clear();
        *self.class.lock() = place.class;
        *self.place.lock() = Some(place);
        *self.entered.lock() = Instant::now();
    }

    /// Time since the statement entered.
    pub(crate) fn age(&self) -> Duration {
        self.entered.lock().elapsed()
    }

    /// Lowers the priority of the lane's threads.
    pub(crate) fn lower(&self) {
        if !self.lowered.swap(true, Ordering::AcqRel) {
            priority::lower(&self.threads.lock());
        }
    }

    /// Moves the statement to the long class, unless it is there already or has no free place there; lowers its
    /// priority either way.
    pub(crate) fn prolong(&self) {
        self.lower();
        let mut class = self.class.lock();
        if *class == Class::Long {
            return;
        }
        let mut place = self.place.lock();
        if place.is_none() {
            // The statement waits for its client and holds no place: it takes a long one when it continues.
            *class = Class::Long;
        } else if let Some(long) = self.places.try_long() {
            *place = Some(long);
            *class = Class::Long;
        }
    }
}

/// A runtime that serves one statement at a time.
pub(crate) struct Core {
    runtime: Option<Runtime>,
    pub(crate) shared: Arc<Shared>,
}

impl Core {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the system cannot create more threads.
    pub(crate) fn start(
        threads: usize,
        stack_bytes: usize,
        places: Arc<Places>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::new(places));
        let of_thread = Arc::clone(&shared);
        // Sockets belong to the home runtime: a lane has timers only, and takes no file descriptors.
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads.max(1))
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .thread_keep_alive(BLOCKING_KEEP_ALIVE)
            .thread_stack_size(stack_bytes)
            .thread_name("lane")
            .enable_time()
            .on_thread_start(move || {
                of_thread.threads.lock().push(priority::this_thread());
                interrupt::enter_thread(Arc::clone(&of_thread));
            })
            .build()?;
        Ok(Self { runtime: Some(runtime), shared })
    }

    fn handle(&self) -> Option<&Handle> {
        self.runtime.as_ref().map(Runtime::handle)
    }

    /// True if no task of the last statement is left.
    pub(crate) fn is_quiet(&self) -> bool {
        self.handle().is_none_or(|handle| handle.metrics().num_alive_tasks() == 0)
    }

    /// Prepares for the next statement; false if the lane cannot be used again, because its threads keep their low
    /// priority.
    pub(crate) fn renew(&self) -> bool {
        let lowered = self.shared.lowered.load(Ordering::Acquire);
        if lowered && !priority::restore(&self.shared.threads.lock()) {
            return false;
        }
        self.shared.lowered.store(false, Ordering::Release);
        true
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // The threads end when their tasks yield; nothing waits for that.
            runtime.shutdown_background();
        }
    }
}

/// The failure of a task in a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneError {
    /// The task panicked, with this message.
    Panicked(String),
    /// The lane was shut down.
    Closed,
}

impl fmt::Display for LaneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(message) => write!(f, "the statement's task panicked: {message}"),
            Self::Closed => f.write_str("the statement's threads were shut down"),
        }
    }
}

impl std::error::Error for LaneError {}

/// A statement's lane. Dropping the last clone ends the statement: its tasks are interrupted, and the lane serves
/// another statement as soon as they have ended.
#[derive(Clone)]
pub struct Lane(Arc<Statement>);

/// A statement that has a lane.
pub(crate) struct Statement {
    core: Option<Core>,
    lanes: Arc<Lanes>,
}

impl Lane {
    pub(crate) fn new(core: Core, lanes: Arc<Lanes>) -> Self {
        let shared = Arc::clone(&core.shared);
        let statement = Arc::new(Statement { core: Some(core), lanes });
        *shared.statement.lock() = Arc::downgrade(&statement);
        Self(statement)
    }

    fn core(&self) -> Option<&Core> {
        self.0.core.as_ref()
    }

    /// Runs work on the threads of the lane. Dropping the future aborts the work.
    ///
    /// # Errors
    /// If the work panics, or the lane was shut down.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, LaneError> {
        let Some(handle) = self.core().and_then(Core::handle) else {
            return Err(LaneError::Closed);
        };
        let task = AbortOnDropHandle::new(handle.spawn(work));
        task.await.map_err(|error| match error.try_into_panic() {
            Ok(panic) => LaneError::Panicked(message_of(panic.as_ref())),
            Err(_) => LaneError::Closed,
        })
    }

    /// Requests the end of the statement's computations; they notice it in [`interrupt::check`].
    pub fn interrupt(&self, reason: Reason) {
        if let Some(core) = self.core() {
            core.shared.flag.raise(reason);
        }
    }

    /// The reason of the statement's interruption, if it was interrupted.
    pub fn interrupted(&self) -> Option<Reason> {
        self.core().and_then(|core| core.shared.flag.reason())
    }
}

impl Drop for Statement {
    fn drop(&mut self) {
        if let Some(core) = self.core.take() {
            core.shared.flag.raise(Reason::Canceled);
            core.shared.place.lock().take();
            self.lanes.leave(core);
        }
    }
}

/// The lane of this thread's statement; `None` outside of lanes. Holding it keeps the statement alive, for example
/// while a stream of its rows is read elsewhere.
pub fn current() -> Option<Lane> {
    let shared = interrupt::current()?;
    let statement = shared.statement.lock().upgrade();
    statement.map(Lane)
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "no message".to_owned()
    }
}

/// A statement that waits for its client and computes nothing meanwhile.
pub struct Pause {
    lane: Option<Arc<Shared>>,
}

/// Releases the place of this thread's statement until [`Pause::end`], while it waits for its client. Does nothing
/// outside of lanes.
pub fn pause() -> Pause {
    let lane = interrupt::current();
    if let Some(lane) = &lane {
        lane.place.lock().take();
    }
    Pause { lane }
}

impl Pause {
    /// Waits for a place in the statement's class.
    pub async fn end(self) {
        let Some(lane) = self.lane else { return };
        let class = *lane.class.lock();
        let place = lane.places.take(class).await;
        *lane.place.lock() = place;
    }
}
