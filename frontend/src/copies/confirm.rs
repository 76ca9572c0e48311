//! Confirmation of the states of copies by meta.
//!
//! One request is in flight at a time. Statements that ask meanwhile share the next request, which is sent after all of
//! them asked, so its answer is not older than they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use partita_proto::Error;
use partita_proto::id::TableId;
use partita_proto::materialized::CopyState;
use partita_proto::service::MetaService;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// Maximum time for meta's answer.
const CONFIRM_WAIT: Duration = Duration::from_secs(2);
/// Time that a statement waits for an answer before it reads the source.
const READ_WAIT: Duration = Duration::from_secs(1);
/// Time for which statements read the source without asking, after meta did not answer.
const SILENCE: Duration = Duration::from_secs(1);

/// States by copy; copies that are gone are missing.
type States = BTreeMap<TableId, CopyState>;

/// A question of one caller.
struct Question {
    copies: Vec<TableId>,
    answer: oneshot::Sender<Result<States, Error>>,
}

#[derive(Default)]
struct Waiting {
    questions: Vec<Question>,
    /// True while a question is on its way.
    is_asking: bool,
    /// Time until which statements do not ask.
    silent_until: Option<Instant>,
}

/// Questions to meta about the states of copies.
pub(crate) struct Confirmations {
    meta: Arc<dyn MetaService>,
    home: Handle,
    waiting: Mutex<Waiting>,
}

impl Confirmations {
    pub(super) fn new(meta: Arc<dyn MetaService>, home: Handle) -> Arc<Self> {
        Arc::new(Self { meta, home, waiting: Mutex::default() })
    }

    /// States of copies; every change that was recorded before the call is seen. A copy that is missing is gone.
    ///
    /// # Errors
    /// When meta does not answer.
    pub(super) async fn states(self: &Arc<Self>, copies: &[TableId]) -> Result<States, Error> {
        let (answer, answered) = oneshot::channel();
        let begins = {
            let mut waiting = self.waiting.lock();
            waiting.questions.push(Question { copies: copies.to_vec(), answer });
            !std::mem::replace(&mut waiting.is_asking, true)
        };
        if begins {
            self.home.spawn(Arc::clone(self).ask());
        }
        let stopped = || Error::Unavailable("the frontend is shutting down".to_owned());
        answered.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Those of the copies that are in step, by meta's word; none if it does not answer soon.
    pub(crate) async fn in_step(self: &Arc<Self>, copies: &[TableId]) -> BTreeSet<TableId> {
        let silent_until = self.waiting.lock().silent_until;
        if silent_until.is_some_and(|end| Instant::now() < end) {
            return BTreeSet::new();
        }
        match timeout(READ_WAIT, self.states(copies)).await {
            Ok(Ok(states)) => {
                let in_step = |(copy, state): (TableId, CopyState)| {
                    (state == CopyState::InStep).then_some(copy)
                };
                states.into_iter().filter_map(in_step).collect()
            }
            Ok(Err(_)) | Err(_) => {
                self.waiting.lock().silent_until = Some(Instant::now() + SILENCE);
                BTreeSet::new()
            }
        }
    }

    /// Asks meta for all that wait, until none does.
    async fn ask(self: Arc<Self>) {
        loop {
            let questions = {
                let mut waiting = self.waiting.lock();
                if waiting.questions.is_empty() {
                    waiting.is_asking = false;
                    return;
                }
                std::mem::take(&mut waiting.questions)
            };
            let copies: BTreeSet<TableId> =
                questions.iter().flat_map(|question| question.copies.iter().copied()).collect();
            let states = self.ask_once(copies.into_iter().collect()).await;
            for Question { copies, answer } in questions {
                let mut states = states.clone();
                if let Ok(states) = &mut states {
                    states.retain(|copy, _| copies.contains(copy));
                }
                // A statement that was cancelled no longer receives its answer.
                answer.send(states).ok();
            }
        }
    }

    async fn ask_once(&self, copies: Vec<TableId>) -> Result<States, Error> {
        let answer = timeout(CONFIRM_WAIT, self.meta.confirm(copies.clone())).await;
        let states = match answer {
            Ok(states) => states?,
            Err(_) => return Err(Error::Timeout("no answer from meta".to_owned())),
        };
        // A copy without an answer would be taken for one that is gone.
        if states.len() != copies.len() {
            let message = format!("{} states of {} copies", states.len(), copies.len());
            return Err(Error::Internal(message));
        }
        let pairs = copies.into_iter().zip(states);
        Ok(pairs.filter_map(|(copy, state)| Some((copy, state?))).collect())
    }
}
