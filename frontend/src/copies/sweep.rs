//! Looks after all copies once a second: fills those that nobody fills, replaces lost ones, ships changes that a frontend
//! left behind when it ended, and ends the captures of copies that are gone.
//!
//! Every frontend does this. What two of them do at once has the effect of one: meta takes a copy for one filler and
//! replaces it once, and partitions take rows by their position.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use partita_proto::Error;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::id::{PartitionId, TableId};
use partita_proto::materialized::{Capture, CopyChange, CopyOf, CopyState};
use partita_proto::service::Ddl;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::Copies;
use super::first_key::{CLOSED_MAX, is_first_key};
use super::leader::SourcePartition;
use super::ship::{COPY_WAIT, NO_CHANGES, NotShipped};
use crate::frontend::Frontend;

/// Interval of the looks. (Unit tests do not wait.)
const LOOK_EVERY: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 1_000 });
/// Time after which a lost copy is replaced, for each time that it was filled.
const REPLACE_AFTER: Duration = Duration::from_secs(10);
/// Maximum time after which a lost copy is replaced.
const REPLACE_AFTER_MAX: Duration = Duration::from_secs(600);
/// Time without a sign of life after which a filler counts as dead.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Time after which a frontend goes on with a switch that another one may have begun. (Unit tests do not wait.)
const SWITCH_AFTER: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 1_500 });
/// Time for which former partitions tell which writes they took: writes are sent again for half as long.
const RETIRE_AFTER: Duration = Duration::from_secs(60);
/// Maximum copies that one frontend fills at a time.
const FILLS_MAX: usize = 2;
/// Maximum copies that one frontend works on at a time.
const WORK_MAX: usize = 32;

/// Action on a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    None,
    Fill,
    /// Ships what is left of its source's changes.
    Drain,
    /// Replaces the source by the copy.
    Switch,
    /// Opens the partitions of its source again, after a switch that was given up.
    Reopen,
    /// Drops the former partitions of a table that was switched.
    Discard,
    /// Gives up the first key of a table, because its statement has ended.
    Cancel,
    /// Replaces the copy by a new table. The value is the last sign of life of a dead filler.
    Replace(Option<u64>),
}

/// The action on a copy whose state and sign of life have been the same for a time.
fn action(copy: &CopyOf, unchanged: Duration) -> Action {
    let is_paused = copy.rekeying.is_some_and(|rekeying| rekeying.is_paused);
    match copy.state {
        CopyState::InStep | CopyState::Switching
            if copy.is_rekeying() && !is_paused && unchanged >= SWITCH_AFTER =>
        {
            Action::Switch
        }
        CopyState::InStep => Action::Drain,
        CopyState::Filling if copy.filler == 0 && is_paused => Action::None,
        CopyState::Filling if copy.filler == 0 => Action::Fill,
        CopyState::Filling if unchanged >= SILENCE_MAX => Action::Replace(Some(copy.beat)),
        CopyState::Lost if unchanged >= replace_after(copy.fills) => Action::Replace(None),
        CopyState::Reopening => Action::Reopen,
        CopyState::Retired if unchanged >= RETIRE_AFTER => Action::Discard,
        CopyState::Filling | CopyState::Lost | CopyState::Switching | CopyState::Retired => {
            Action::None
        }
    }
}

/// The action on a copy that gives a table its first key. Only the frontend of the statement fills and switches such a
/// copy. If nothing changes for longer than the statement would wait, that frontend has ended.
fn action_of_first_key(copy: &CopyOf, unchanged: Duration) -> Action {
    match copy.state {
        CopyState::Filling | CopyState::InStep if unchanged >= SILENCE_MAX => Action::Cancel,
        CopyState::Switching if unchanged >= CLOSED_MAX + SILENCE_MAX => Action::Cancel,
        CopyState::Reopening => Action::Reopen,
        CopyState::Lost => Action::Cancel,
        CopyState::Retired => action(copy, unchanged),
        CopyState::Filling | CopyState::InStep | CopyState::Switching => Action::None,
    }
}

/// Time after which a lost copy is replaced: a copy that is lost again and again must not be filled all the time.
fn replace_after(fills: u32) -> Duration {
    REPLACE_AFTER.saturating_mul(fills.max(1)).min(REPLACE_AFTER_MAX)
}

/// A copy as it was seen last.
struct Sight {
    source: TableId,
    state: CopyState,
    filler: u64,
    beat: u64,
    /// Time since which it is the same.
    since: Instant,
}

/// Partitions of a source where the capture for a copy has ended.
#[derive(Default)]
struct Ending {
    source: TableId,
    partitions: HashSet<PartitionId>,
}

/// Knowledge of one frontend about copies, from look to look.
#[derive(Default)]
struct Sweep {
    sights: HashMap<TableId, Sight>,
    /// Lost and gone copies whose captures end.
    endings: BTreeMap<TableId, Ending>,
    work: JoinSet<()>,
    /// Copies that are worked on, each with true if it is filled.
    busy: HashMap<Id, (TableId, bool)>,
}

impl Sweep {
    /// Notes a copy. Returns the time for which it has been the same.
    fn see(&mut self, id: TableId, copy: &CopyOf, time: Instant) -> Duration {
        let sight = || Sight {
            source: copy.source,
            state: copy.state,
            filler: copy.filler,
            beat: copy.beat,
            since: time,
        };
        let last = self.sights.entry(id).or_insert_with(sight);
        if (last.state, last.filler, last.beat) != (copy.state, copy.filler, copy.beat) {
            *last = sight();
        }
        time.saturating_duration_since(last.since)
    }

    fn is_busy(&self, copy: TableId) -> bool {
        self.busy.values().any(|(busy, _)| *busy == copy)
    }

    /// True if there is room for some work.
    fn has_room(&self, is_fill: bool) -> bool {
        let fills = self.busy.values().filter(|(_, is_fill)| *is_fill).count();
        self.work.len() < WORK_MAX && (!is_fill || fills < FILLS_MAX)
    }

    fn start(&mut self, copy: TableId, is_fill: bool, work: BoxFuture<'static, ()>) {
        let handle = self.work.spawn(work);
        self.busy.insert(handle.id(), (copy, is_fill));
    }

    /// Takes out the work that has ended.
    fn tidy(&mut self) {
        while let Some(result) = self.work.try_join_next_with_id() {
            match result {
                Ok((id, ())) => drop(self.busy.remove(&id)),
                Err(error) => {
                    warn!(%error, "work for a materialized copy was broken off");
                    self.busy.remove(&error.id());
                }
            }
        }
    }
}

impl Frontend {
    /// Looks after the materialized copies of the cluster, until it is stopped. A fill that is broken off then is begun
    /// anew by another frontend.
    pub async fn run_copies(self: Arc<Self>, stop: CancellationToken) {
        let copies = Arc::clone(self.copies());
        let mut sweep = Sweep::default();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(LOOK_EVERY) => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = copies.look(&mut sweep) => {}
            }
        }
    }
}

impl Copies {
    /// Looks after all copies of the newest catalog.
    async fn look(self: &Arc<Self>, sweep: &mut Sweep) {
        sweep.tidy();
        let catalog = self.view.catalog();
        let time = Instant::now();
        for table in catalog.tables.values().flat_map(BTreeMap::values) {
            let Some(copy) = &table.copy else { continue };
            let unchanged = sweep.see(table.id, copy, time);
            if copy.state == CopyState::Lost {
                end(&mut sweep.endings, table.id, copy.source);
            }
            let source = catalog.table_by_id(copy.source);
            let action = match source.is_some_and(|source| is_first_key(source, table)) {
                true => action_of_first_key(copy, unchanged),
                false => action(copy, unchanged),
            };
            let is_fill = action == Action::Fill;
            if sweep.is_busy(table.id) || !sweep.has_room(is_fill) {
                continue;
            }
            let (copies, copy) = (Arc::clone(self), Arc::clone(table));
            let work: BoxFuture<'static, ()> = match action {
                Action::None => continue,
                Action::Fill => Box::pin(copies.fill(copy)),
                Action::Drain => Box::pin(copies.drain_rest(copy)),
                Action::Switch => Box::pin(copies.switch(copy)),
                Action::Reopen => Box::pin(copies.reopen(copy)),
                Action::Discard => Box::pin(copies.discard(copy)),
                Action::Cancel => Box::pin(copies.give_up_first_key(copy)),
                Action::Replace(beat) => Box::pin(copies.replace(copy, beat)),
            };
            sweep.start(table.id, is_fill, work);
        }
        self.look_for_gone(&catalog, sweep).await;
        self.end_captures(&catalog, sweep).await;
        self.drains.retain(|copy| sweep.sights.contains_key(&copy));
    }

    /// Finds the copies that meta no longer has. A catalog that does not show a copy proves nothing: it may be older
    /// than the copy.
    async fn look_for_gone(&self, catalog: &Catalog, sweep: &mut Sweep) {
        for (copy, source) in self.ended.lock().drain() {
            end(&mut sweep.endings, copy, source);
        }
        let missing: Vec<TableId> = sweep
            .sights
            .keys()
            .filter(|copy| catalog.table_by_id(**copy).is_none())
            .copied()
            .collect();
        if missing.is_empty() {
            return;
        }
        let Ok(states) = self.confirmations.states(&missing).await else { return };
        for copy in missing {
            if states.get(&copy).is_none_or(|state| state.is_given_up())
                && let Some(sight) = sweep.sights.remove(&copy)
            {
                end(&mut sweep.endings, copy, sight.source);
            }
        }
    }

    /// Ends the captures for copies that are lost or gone.
    async fn end_captures(&self, catalog: &Catalog, sweep: &mut Sweep) {
        for (copy, ending) in &mut sweep.endings {
            let Some(table) = catalog.table_by_id(ending.source) else { continue };
            for route in table.partitions.routes() {
                if ending.partitions.contains(&route.partition) {
                    continue;
                }
                let partition = route.partition;
                let source = SourcePartition { table: ending.source, partition };
                match self.end_capture(source, *copy).await {
                    Ok(()) => drop(ending.partitions.insert(partition)),
                    Err(error) => {
                        debug!(%copy, %partition, %error, "a capture has not ended yet");
                        break;
                    }
                }
            }
        }
        // A lost copy is kept in mind until it is gone: partitions are still split.
        sweep.endings.retain(|copy, ending| {
            let is_left = |table: &Arc<Table>| {
                let mut routes = table.partitions.routes().iter();
                !routes.all(|route| ending.partitions.contains(&route.partition))
            };
            catalog.table_by_id(*copy).is_some()
                || catalog.table_by_id(ending.source).is_some_and(is_left)
        });
    }

    async fn end_capture(&self, source: SourcePartition, copy: TableId) -> Result<(), Error> {
        let is_none = |error: &Error| matches!(error, Error::NotFound { kind: "capture", .. });
        match self.changes(source, copy, (NO_CHANGES, 0)).await {
            // Another frontend was faster, and the log is spared an entry.
            Err(error) if is_none(&error) => return Ok(()),
            _ => {}
        }
        self.capture(source, copy, Capture::End).await.map(drop)
    }

    /// Ships the changes of a copy's source that no frontend ships, because the one that made them has ended.
    async fn drain_rest(self: Arc<Self>, copy: Arc<Table>) {
        let Some(state) = &copy.copy else { return };
        let catalog = self.view.catalog();
        let Some(table) = catalog.table_by_id(state.source) else { return };
        for route in table.partitions.routes() {
            let source = SourcePartition { table: state.source, partition: route.partition };
            let result = match self.changes(source, copy.id, (NO_CHANGES, 0)).await {
                Ok(changes) if changes.shipped < changes.last => {
                    let deadline = Instant::now() + COPY_WAIT;
                    self.drain(source, copy.id, changes.last, deadline).await
                }
                Ok(_) => Ok(()),
                Err(error) => Err(error.into()),
            };
            match result {
                Ok(()) => {}
                // Nobody waits for these changes.
                Err(failure @ (NotShipped::Late(_) | NotShipped::Missing)) => {
                    let reason = failure.reason();
                    debug!(copy = %copy.name, reason, "changes are left to ship");
                }
                Err(NotShipped::Never(reason)) => {
                    if let Err(error) = self.lose(copy.id, reason).await {
                        warn!(copy = %copy.name, %error, "could not give up a copy");
                    }
                    return;
                }
            }
        }
    }

    async fn replace(self: Arc<Self>, copy: Arc<Table>, beat: Option<u64>) {
        let change = Ddl::Copy(CopyChange::Replace { copy: copy.id, beat });
        match self.meta.change(change).await {
            Ok(true) => debug!(copy = %copy.name, id = %copy.id, "replaced a materialized copy"),
            // Another frontend was faster, or the filler has given a sign of life.
            Ok(false) => {}
            Err(error) => {
                warn!(copy = %copy.name, id = %copy.id, %error, "could not replace a copy");
            }
        }
    }
}

fn end(endings: &mut BTreeMap<TableId, Ending>, copy: TableId, source: TableId) {
    endings.entry(copy).or_insert_with(|| Ending { source, ..Ending::default() });
}

#[cfg(test)]
mod tests {
    use partita_proto::materialized::Rekeying;

    use super::*;

    fn copy(state: CopyState, filler: u64, fills: u32) -> CopyOf {
        CopyOf { state, filler, beat: 7, fills, ..CopyOf::new(TableId(1), None) }
    }

    #[test]
    fn a_filler_is_replaced_when_it_gives_no_sign_of_life() {
        let filling = copy(CopyState::Filling, 5, 1);
        assert_eq!(action(&filling, Duration::from_secs(29)), Action::None);
        assert_eq!(action(&filling, SILENCE_MAX), Action::Replace(Some(7)));
        assert_eq!(action(&copy(CopyState::Filling, 0, 1), Duration::ZERO), Action::Fill);
        assert_eq!(action(&copy(CopyState::InStep, 5, 1), SILENCE_MAX), Action::Drain);
    }

    #[test]
    fn a_rekeying_is_switched_by_whoever_sees_that_nobody_does() {
        let of = |state, is_paused| {
            let rekeying = Some(Rekeying { is_paused, ..Rekeying::default() });
            CopyOf { state, ..CopyOf::new(TableId(1), rekeying) }
        };
        for state in [CopyState::InStep, CopyState::Switching] {
            assert_eq!(action(&of(state, false), SWITCH_AFTER), Action::Switch);
            assert_ne!(action(&of(state, false), Duration::ZERO), Action::Switch);
        }
        assert_eq!(action(&of(CopyState::InStep, true), SILENCE_MAX), Action::Drain);
        assert_eq!(action(&of(CopyState::Filling, true), SILENCE_MAX), Action::None);
        assert_eq!(action(&of(CopyState::Filling, false), Duration::ZERO), Action::Fill);
        assert_eq!(action(&of(CopyState::Reopening, false), Duration::ZERO), Action::Reopen);
        assert_eq!(action(&of(CopyState::Retired, false), SILENCE_MAX), Action::None);
        assert_eq!(action(&of(CopyState::Retired, false), RETIRE_AFTER), Action::Discard);
        assert_eq!(action(&copy(CopyState::InStep, 0, 1), RETIRE_AFTER), Action::Drain);
    }

    #[test]
    fn a_table_whose_first_key_nobody_adds_any_more_is_open_again() {
        let of = |state| CopyOf { state, ..CopyOf::new(TableId(1), Some(Rekeying::default())) };
        let after = |state, unchanged| action_of_first_key(&of(state), unchanged);
        for state in [CopyState::Filling, CopyState::InStep] {
            assert_eq!(after(state, Duration::from_secs(29)), Action::None);
            assert_eq!(after(state, SILENCE_MAX), Action::Cancel);
        }
        assert_eq!(after(CopyState::Switching, CLOSED_MAX), Action::None);
        assert_eq!(after(CopyState::Switching, CLOSED_MAX + SILENCE_MAX), Action::Cancel);
        assert_eq!(after(CopyState::Reopening, Duration::ZERO), Action::Reopen);
        assert_eq!(after(CopyState::Lost, Duration::ZERO), Action::Cancel);
        assert_eq!(after(CopyState::Retired, RETIRE_AFTER), Action::Discard);
    }

    #[test]
    fn a_copy_that_is_lost_often_is_filled_less_often() {
        let wait = |fills| replace_after(fills).as_secs();
        assert_eq!([wait(0), wait(1), wait(3), wait(60), wait(u32::MAX)], [10, 10, 30, 600, 600]);
        let lost = copy(CopyState::Lost, 5, 2);
        assert_eq!(action(&lost, Duration::from_secs(19)), Action::None);
        assert_eq!(action(&lost, Duration::from_secs(20)), Action::Replace(None));
    }

    #[tokio::test]
    async fn the_time_of_a_copy_begins_anew_with_each_sign_of_life() {
        let mut sweep = Sweep::default();
        let (id, start) = (TableId(3), Instant::now());
        let mut filling = copy(CopyState::Filling, 5, 1);
        assert_eq!(sweep.see(id, &filling, start), Duration::ZERO);
        let deadline = start + Duration::from_secs(20);
        assert_eq!(sweep.see(id, &filling, deadline), Duration::from_secs(20));
        filling.beat += 1;
        assert_eq!(sweep.see(id, &filling, deadline), Duration::ZERO);
    }
}
