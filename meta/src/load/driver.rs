//! Carries out the load scheduler's proposals, and reports the results to it.
//!
//! Invariants: a split, a merge and a move of a replica are recorded in meta's log before any order to a node; a
//! proposal made from samples is checked again by the catalog when it is recorded; each proposal is answered, as
//! done or failed.

use std::sync::Arc;
use std::time::Duration;

use partita_load::{
    Action, At, Class, Done, Failed, HashOf, SplitOutcome, SplitWhy, Step, Verdict,
};
use partita_proto::error::Error;
use partita_proto::history::{Cause, PerMille, Reason, ReshapeOutcome};
use partita_proto::id::{NodeId, PartitionId, TableId};
use partita_proto::key::KeyCodec;
use partita_proto::range::Bound;
use partita_proto::value::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

use super::balances::{Balance, BalanceKind};
use super::facts::{node_of, partition_of, table_of};
use super::spreading;
use crate::core::Core;
use crate::plan::Action as Order;
use crate::transition::Command;

/// Maximum wait for a moved replica; the scheduler has given the move up by then.
const MOVE_WAIT: Duration = Duration::from_secs(3_600);
/// Interval at which the driver checks whether a move is done.
const MOVE_POLL: Duration = Duration::from_millis(500);
/// Attempts to transfer the leadership of a new partition, and the pause between them: its leader has only just
/// started.
const HAND_OVER_TRIES: usize = 5;
const HAND_OVER_PAUSE: Duration = Duration::from_millis(100);

/// Tasks that carry out proposals.
pub(crate) struct Driver {
    core: Arc<Core>,
    tasks: JoinSet<()>,
}

impl Driver {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, tasks: JoinSet::new() }
    }

    /// Gets proposals from the scheduler and begins them.
    pub(crate) fn tick(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        let now_ms = self.core.now_ms();
        let (actions, outcomes) = {
            let reports = self.core.presence.reports();
            let state = self.core.machine.state();
            let mut keeper = self.core.load.lock();
            let events = self.core.reshapes.all();
            keeper.learn(&state, |node| reports.is_live(node), now_ms);
            keeper.note_failed(reports.failed().into_keys());
            keeper.note_splits(&events, now_ms);
            (keeper.tick(now_ms), keeper.take_outcomes())
        };
        for outcome in outcomes {
            self.core.note_outcome(&outcome);
        }
        for action in actions {
            info!(?action, "the load scheduler proposed an action");
            let core = Arc::clone(&self.core);
            self.tasks.spawn(async move { core.carry_out(action).await });
        }
    }

    /// Aborts all tasks; the next leader of meta's group carries out what is recorded.
    pub(crate) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

impl Core {
    /// Milliseconds since the Unix epoch.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.options.clock.now_ms()).unwrap_or(0)
    }

    async fn carry_out(&self, action: Action) {
        let Action { id, step } = action;
        // Turn the proposal into a change of the catalog, with its reason in words.
        let carried = match &step {
            Step::Split { partition, at: cut, why, verdict, predicted_share, right_leader } => {
                let reason = Reason {
                    cause: match why {
                        SplitWhy::Load | SplitWhy::IsolateKey => Cause::Load,
                        SplitWhy::Forecast => Cause::Forecast,
                        SplitWhy::Size | SplitWhy::RightEdge | SplitWhy::LeftEdge => Cause::Size,
                    },
                    predicted_larger: predicted_share.map(per_mille),
                    note: match why {
                        SplitWhy::Forecast => self.forecast_note(*why, *partition),
                        _ => note(*why, verdict.as_deref()),
                    },
                    at_ms: Some(self.options.clock.now_ms()),
                };
                let (id, leader) = (partition_of(*partition), right_leader.map(node_of));
                let split = self.split_at(id, cut, reason, leader).await;
                if split.is_ok() && *cut == At::HighWater {
                    self.load.lock().rolled(id);
                }
                split
            }
            Step::Merge { left: owner, right, why } => {
                let reason = Reason {
                    cause: Cause::Idle,
                    predicted_larger: None,
                    note: format!(
                        "together at most {:.0} % busy in 5 minutes, {} MiB",
                        why.rho_max * 100.0,
                        why.size_bytes >> 20
                    ),
                    at_ms: Some(self.options.clock.now_ms()),
                };
                let (owner, right) = (partition_of(*owner), partition_of(*right));
                let merged =
                    self.reshape_and_wait(&Command::Merge { left: owner, right, reason }).await;
                merged.map(|_| Done::AsProposed)
            }
            Step::TransferLeader { partition, to: destination, why } => {
                let (partition, destination) = (partition_of(*partition), node_of(*destination));
                let noted = self.balance(BalanceKind::Leader, partition, None, destination, why);
                self.balanced(noted, self.hand_leader_over(partition, destination).await)
            }
            Step::MoveReplica { partition, from: source, to: destination, why } => {
                let (partition, source, destination) =
                    (partition_of(*partition), node_of(*source), node_of(*destination));
                let noted =
                    self.balance(BalanceKind::Replica, partition, Some(source), destination, why);
                self.balanced(noted, self.move_and_wait(partition, source, destination).await)
            }
            Step::Rekey { table, buckets, hash, class } => {
                info!(table = table.0, buckets, ?hash, ?class, "placing rows of a table by hash");
                let placed = self.place_by_hash(table_of(*table), *buckets, *hash).await;
                placed.map(|()| Done::AsProposed)
            }
        };
        // Report the result; a cut at the edge of the keys is a failure of its own kind.
        let now_ms = self.now_ms();
        let mut keeper = self.load.lock();
        match carried {
            Ok(outcome) => keeper.done(id, outcome, now_ms),
            Err(error) => {
                warn!(?step, %error, "an action of the load scheduler failed");
                let at_edge = matches!(error, Error::InvalidInput(_));
                keeper.failed(id, if at_edge { Failed::AtEdge } else { Failed::Other }, now_ms);
            }
        }
    }

    /// Reason of a cut ahead of a peak, with the forecast.
    fn forecast_note(&self, why: SplitWhy, partition: partita_load::PartitionId) -> String {
        format!("{why}; {}", self.load.lock().forecast_text(partition_of(partition)))
    }

    /// Places rows of a table by hash: those written from now on, or all.
    async fn place_by_hash(&self, table: TableId, buckets: u32, hash: HashOf) -> Result<(), Error> {
        let ddl = spreading(&self.machine.state(), table, (buckets, hash))?;
        self.change(ddl, None).await.map(drop)
    }

    async fn split_at(
        &self,
        partition: PartitionId,
        cut: &At,
        reason: Reason,
        leader: Option<NodeId>,
    ) -> Result<Done, Error> {
        let cut_key = self.cut_of(partition, cut).await?;
        let first_leader = leader.filter(|node| self.may_lead_first(partition, *node));
        let split = Command::Split { partition, at: cut_key, reason, leader: first_leader };
        let step = self.reshape_and_wait(&split).await?;
        // The split has a new partition on the right, if it was carried out.
        let event = self.reshapes.event(step).filter(|event| event.outcome == ReshapeOutcome::Done);
        let right = event.map(|event| event.other).ok_or_else(|| {
            Error::Unavailable(format!(
                "the outcome of the split of partition {partition} is unknown"
            ))
        })?;
        // The proposal may name the leader of the right side, which leads it already unless its replica was late. A failed
        // transfer does not undo the split.
        if let Some(destination) = leader {
            for _ in 0..HAND_OVER_TRIES {
                match self.hand_leader_over(right, destination).await {
                    Ok(_) => {
                        self.reshapes.relieved(step);
                        break;
                    }
                    Err(error) => {
                        warn!(partition = %right, to = %destination, %error, "transferring leadership failed")
                    }
                }
                tokio::time::sleep(HAND_OVER_PAUSE).await;
            }
        }
        Ok(Done::Split { right: partita_load::PartitionId(right.0) })
    }

    /// True if a split of the partition may name this node as the first leader of its right side.
    fn may_lead_first(&self, partition: PartitionId, node: NodeId) -> bool {
        let Ok(record) = self.partition(partition) else { return false };
        let reports = self.presence.reports();
        reports.is_live(node) && reports.may_name_leader(record.replicas.values().copied())
    }

    /// Resolves a proposed cut to a typed bound.
    async fn cut_of(&self, partition: PartitionId, cut: &At) -> Result<Bound, Error> {
        let at_edge = || Error::InvalidInput("one side of the cut would be empty".to_owned());
        let missing = || Error::NotFound { kind: "partition", name: partition.to_string() };
        let (codec, highest) = {
            let keeper = self.load.lock();
            let watched = keeper.watched(partition);
            let codec = watched.and_then(|watched| keeper.codec(watched.table)).cloned();
            (codec, watched.and_then(|watched| watched.highest.clone()))
        };
        let codec = codec.ok_or_else(missing)?;
        let columns_max = {
            let state = self.machine.state();
            let table = state.partition(partition).and_then(|record| state.table(record.table));
            table.ok_or_else(missing)?.schema.options.partitioning.cut_columns_max()
        };
        match cut {
            At::Key(key) => bound_at(&codec, key).ok_or_else(at_edge),
            At::HighWater => {
                let highest = highest.ok_or_else(at_edge)?;
                let mut highest = codec.decode(&highest)?;
                highest.key.truncate(columns_max);
                after(highest).ok_or_else(at_edge)
            }
            At::Middle | At::LowWater => self.middle_of(partition).await,
        }
    }

    async fn hand_leader_over(
        &self,
        partition: PartitionId,
        destination: NodeId,
    ) -> Result<Done, Error> {
        let record = self.partition(partition)?;
        self.tell_leader(&record, Order::Transfer(destination)).await?;
        Ok(Done::AsProposed)
    }

    async fn move_and_wait(
        &self,
        partition: PartitionId,
        source: NodeId,
        destination: NodeId,
    ) -> Result<Done, Error> {
        self.move_replica(partition, source, destination).await?;
        let deadline = Instant::now() + MOVE_WAIT;
        while Instant::now() < deadline {
            tokio::time::sleep(MOVE_POLL).await;
            let record = self.partition(partition)?;
            if record.target.is_none() {
                return match record.replicas.values().any(|node| *node == destination) {
                    true => Ok(Done::AsProposed),
                    false => Err(Error::Unavailable(
                        "the move was replaced by another change".to_owned(),
                    )),
                };
            }
        }
        Err(Error::Timeout(format!("moving partition {partition} takes too long")))
    }

    /// Records the measured effect of a split.
    fn note_outcome(&self, outcome: &SplitOutcome) {
        let (parent, child) = (partition_of(outcome.left), partition_of(outcome.right));
        let shares = outcome.actual_share.map(per_mille);
        if outcome.in_vain {
            warn!(%parent, %child, ?shares, "a split did not divide the load");
        }
        if let Some(step) = self.reshapes.of_split(parent, child) {
            self.reshapes.judged(step, shares, outcome.in_vain);
        }
    }

    /// Records a move with its result, and returns the result.
    fn balanced(&self, balance: Balance, result: Result<Done, Error>) -> Result<Done, Error> {
        let error = result.as_ref().err().map(ToString::to_string);
        self.load.lock().balanced(Balance { error, ..balance });
        result
    }

    fn balance(
        &self,
        kind: BalanceKind,
        partition: PartitionId,
        source: Option<NodeId>,
        destination: NodeId,
        why: &partita_load::MoveWhy,
    ) -> Balance {
        let leads = |keeper: &super::Keeper| keeper.leader(partition);
        let source = source.or_else(|| leads(&self.load.lock()));
        let note = format!(
            "load {:.2} at the source, {:.2} at the destination, {:.2} on average; {:.2} cores move",
            why.from_load, why.to_load, why.mean_load, why.moved
        );
        Balance {
            at_ms: self.now_ms(),
            kind,
            partition,
            from: source,
            to: destination,
            note,
            error: None,
        }
    }
}

/// A key, or a prefix of one, as a bound. A key that ends within a value (the least bytes above all keys that begin
/// with some value) becomes the bound just above that value.
fn bound_at(codec: &KeyCodec, key: &[u8]) -> Option<Bound> {
    if let Ok(bound) = codec.decode(key) {
        return Some(bound);
    }
    let mut lower = key.to_vec();
    let last = lower.last_mut()?;
    *last = last.checked_sub(1)?;
    after(codec.decode(&lower).ok()?)
}

/// The least bound above all keys that begin with these values; `None` if the last value has no known successor.
fn after(mut bound: Bound) -> Option<Bound> {
    let last = bound.key.last_mut()?;
    *last = match &*last {
        Value::Int(value) => Value::Int(value.checked_add(1)?),
        Value::UInt(value) => Value::UInt(value.checked_add(1)?),
        Value::Timestamp(value) => Value::Timestamp(value.checked_add(1)?),
        Value::String(text) => Value::String(format!("{text}\0")),
        _ => return None,
    };
    Some(bound)
}

fn per_mille(share: f64) -> PerMille {
    let thousandths = (share.clamp(0.0, 1.0) * 1000.0).round();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to the range before"
    )]
    PerMille::new(thousandths as u16)
}

/// Reason and evidence, in words.
fn note(why: SplitWhy, verdict: Option<&Verdict>) -> String {
    match verdict {
        Some(verdict) if verdict.class != Class::Unknown => {
            let evidence = &verdict.evidence;
            format!(
                "{why}; {}: p_out {:.2}, auc {:.2}, append {:.2}/{:.2}, top key {:.2}, {} s",
                verdict.class,
                evidence.p_out,
                evidence.auc,
                evidence.append_high,
                evidence.append_low,
                evidence.top_key,
                evidence.window_s
            )
        }
        _ => why.to_string(),
    }
}
