//! Changes of the catalog: checked, recorded, carried out, published.
//!
//! ```text
//!   change(ddl) ─▶ decide on what is known (a bad wish never gets into the log)
//!               ─▶ propose ─▶ recorded: the change is certain from here on
//!               ─▶ wait until the scheduler has told the nodes ─▶ published
//! ```
//!
//! Changes of one table are serialised by the catalog itself: a table in the middle of one answers
//! "busy", and whoever is next waits for it. A caller that goes away changes nothing: the work is the
//! scheduler's.

use std::sync::Arc;

use async_trait::async_trait;
use partita_proto::catalog::Catalog;
use partita_proto::error::Error;
use partita_proto::id::{NodeId, PartitionId};
use partita_proto::member::{Heartbeat, Members, Registration};
use partita_proto::service::{AdminOrder, Changed, ClusterService, Ddl, MetaService, RequestId};
use partita_raft::RaftError;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::catalog::{PartitionRecord, State};
use crate::create::PARTITIONS_MAX;
use crate::node::{Core, Meta, raft_error};
use crate::plan::{Action, View};
use crate::progress::Job;
use crate::scheduler::is_current;
use crate::transition::{Command, Outcome, Reply, decide, shown_name};

#[async_trait]
impl MetaService for Meta {
    fn catalog(&self) -> watch::Receiver<Arc<Catalog>> {
        self.core.machine.catalog()
    }

    async fn change(&self, ddl: Ddl) -> Result<bool, Error> {
        self.core.change(ddl, None).await
    }

    fn members(&self) -> watch::Receiver<Arc<Members>> {
        self.core.members.subscribe()
    }

    async fn administer(&self, order: AdminOrder) -> Result<(), Error> {
        self.core.group.read_barrier().await.map_err(raft_error)?;
        match order {
            AdminOrder::Drain { node, on } => {
                self.core.propose(&Command::Drain { node, on }).await.map(drop)
            }
            AdminOrder::MoveReplica { partition, from, to } => {
                // Both replicas would be on one node for a while.
                if from == to {
                    return Err(Error::InvalidInput(format!(
                        "partition {partition} cannot move from node {from} to itself"
                    )));
                }
                let record = self.core.partition(partition)?;
                let on = |node| record.replicas.iter().find(|(_, at)| **at == node);
                if on(from).is_none() && on(to).is_some() {
                    // Asked again after it was done.
                    return Ok(());
                }
                let replica = on(from);
                let (replica, _) = replica.ok_or_else(|| {
                    Error::InvalidInput(format!(
                        "partition {partition} has no replica on node {from}"
                    ))
                })?;
                let (add, remove) = (vec![to], vec![*replica]);
                self.core.propose(&Command::Move { partition, add, remove }).await.map(drop)
            }
            AdminOrder::TransferLeader { partition, to } => {
                let record = self.core.partition(partition)?;
                if !record.replicas.values().any(|node| *node == to) {
                    return Err(Error::InvalidInput(format!(
                        "partition {partition} has no replica on node {to}"
                    )));
                }
                self.core.tell_leader(&record, Action::Transfer(to)).await
            }
        }
    }
}

#[async_trait]
impl ClusterService for Meta {
    fn leads(&self) -> watch::Receiver<bool> {
        self.core.leads.subscribe()
    }

    async fn change_once(&self, id: RequestId, ddl: Ddl) -> Result<Changed, Error> {
        let changed = self.core.change(ddl, Some(id)).await?;
        Ok(Changed { changed, version: self.core.machine.catalog().borrow().version })
    }

    async fn register(&self, registration: Registration) -> Result<NodeId, Error> {
        self.core.group.read_barrier().await.map_err(raft_error)?;
        let identity = registration.identity;
        self.core.propose(&Command::Register(registration)).await?;
        let state = self.core.machine.state();
        let node = state.node_of(identity).map(|node| node.id);
        node.ok_or_else(|| Error::Internal("a node that was registered is not there".to_owned()))
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<(), Error> {
        if !*self.core.leads.borrow() {
            return Err(raft_error(RaftError::NotLeader {
                leader: self.core.group.status().leader,
            }));
        }
        let moved = {
            let state = self.core.machine.state();
            let known = state.node(heartbeat.node);
            let moved = known.is_some_and(|known| known.address != heartbeat.address);
            let registration = moved.then(|| Registration {
                identity: heartbeat.identity,
                node: Some(heartbeat.node),
                address: heartbeat.address.clone(),
            });
            self.core.presence.heard(&state, heartbeat)?;
            registration
        };
        if let Some(registration) = moved {
            self.core.propose(&Command::Register(registration)).await?;
        }
        self.core.publish_members();
        Ok(())
    }
}

impl Core {
    async fn change(&self, ddl: Ddl, id: Option<RequestId>) -> Result<bool, Error> {
        let deadline = Instant::now() + self.patience.change;
        loop {
            match self.record(&ddl, id).await? {
                Reply::Unchanged => return Ok(false),
                Reply::Changed { steps } => {
                    self.carried_out(&ddl, steps, deadline).await?;
                    return Ok(true);
                }
                Reply::Busy { table, step } => {
                    // How that change ends is not this one's matter.
                    let job = (table, step);
                    if !self.over(job, deadline, |_| false).await {
                        return Err(self.overdue(&ddl, job));
                    }
                }
            }
        }
    }

    fn partition(&self, partition: PartitionId) -> Result<Arc<PartitionRecord>, Error> {
        let state = self.machine.state();
        let record = state.partition(partition).map(Arc::clone);
        record.ok_or_else(|| Error::NotFound { kind: "partition", name: partition.to_string() })
    }

    /// Decides a change on what is known, and records it if it changes anything.
    async fn record(&self, ddl: &Ddl, id: Option<RequestId>) -> Result<Reply, Error> {
        self.group.read_barrier().await.map_err(raft_error)?;
        let command = {
            let state = self.machine.state();
            let partitions = match ddl {
                Ddl::CreateTable { table, .. } => (table.cuts.len() + 1).min(PARTITIONS_MAX),
                _ => 0,
            };
            let places = vec![vec![NodeId::default()]; partitions];
            let on_trial = Command::Change { ddl: ddl.clone(), places, id };
            let Outcome { edits, reply } = decide(&state, &on_trial)?;
            if edits.is_empty() {
                return Ok(reply);
            }
            let places = match ddl {
                Ddl::CreateTable { table, .. } => {
                    let replicas = self.options.replicas_of(&table.schema.options);
                    View::new(&state, self.takers(&state)).choose_many(partitions, replicas)?
                }
                _ => Vec::new(),
            };
            Command::Change { ddl: ddl.clone(), places, id }
        };
        self.propose(&command).await
    }

    /// Nodes that can be given something.
    fn takers(&self, state: &State) -> Vec<NodeId> {
        let reports = self.presence.reports();
        let takes = state.nodes().filter(|node| !node.draining && reports.is_live(node.id));
        takes.map(|node| node.id).collect()
    }

    /// Returns when the work that follows from a recorded change is done.
    async fn carried_out(&self, ddl: &Ddl, jobs: Vec<Job>, deadline: Instant) -> Result<(), Error> {
        match ddl {
            Ddl::DropTable { .. } | Ddl::DropDatabase { .. } => {
                self.removed(&jobs).await;
                Ok(())
            }
            _ => {
                for job in jobs {
                    if !self.over(job, deadline, |_| false).await {
                        return Err(self.overdue(ddl, job));
                    }
                    self.outcome(ddl, job)?;
                }
                Ok(())
            }
        }
    }

    /// Waits a while for nodes to remove what nobody sees any more. That it goes on afterwards, for
    /// instance because a node is away, is no failure of the change.
    async fn removed(&self, jobs: &[Job]) {
        let until = Instant::now() + self.patience.drop;
        for job in jobs {
            self.over(*job, until, |failed| failed).await;
        }
    }

    /// How a job that is over went, for the change that it was part of.
    fn outcome(&self, ddl: &Ddl, job: Job) -> Result<(), Error> {
        let state = self.machine.state();
        if state.table(job.0).is_some_and(|table| table.is_visible()) {
            return Ok(());
        }
        match ddl {
            Ddl::CreateTable { table, .. } => Err(self
                .progress
                .failure(job)
                .unwrap_or_else(|| gone(&table.database, &table.name))),
            Ddl::AlterTable { database, name, .. } | Ddl::TruncateTable { database, name } => {
                Err(gone(database, name))
            }
            // Its other tables have changed all the same.
            _ => Ok(()),
        }
    }

    /// Waits until a job is over and what it changed is published; false if that takes too long, or
    /// if meta stops, or if `enough` says so when asked whether the job has failed so far.
    async fn over(&self, job: Job, deadline: Instant, enough: impl Fn(bool) -> bool) -> bool {
        let mut applied = self.machine.applied();
        let mut failed = self.progress.watch();
        loop {
            applied.mark_unchanged();
            failed.mark_unchanged();
            let version = {
                let state = self.machine.state();
                (!is_current(&state, job)).then(|| state.version())
            };
            if let Some(version) = version {
                return self.published(version, deadline).await;
            }
            if enough(self.progress.failure(job).is_some()) {
                return false;
            }
            tokio::select! {
                changed = applied.changed() => if changed.is_err() { return false },
                changed = failed.changed() => if changed.is_err() { return false },
                () = self.stopping.cancelled() => return false,
                () = sleep_until(deadline) => return false,
            }
        }
    }

    async fn published(&self, version: u64, deadline: Instant) -> bool {
        let mut catalog = self.machine.catalog();
        let published = catalog.wait_for(|catalog| catalog.version >= version);
        matches!(tokio::time::timeout_at(deadline, published).await, Ok(Ok(_)))
    }

    fn overdue(&self, ddl: &Ddl, job: Job) -> Error {
        let table = self.machine.state().table(job.0).map(|table| table.name.clone());
        let table = table.unwrap_or_else(|| job.0.to_string());
        let cause = match self.progress.failure(job) {
            Some(error) => format!("the last attempt failed: {error}"),
            None => "its nodes have not answered".to_owned(),
        };
        let what = match ddl {
            Ddl::CreateTable { .. } => "is still being created",
            _ => "is still being changed",
        };
        if self.stopping.is_cancelled() {
            return Error::Unavailable(format!(
                "table \"{table}\" {what}; meta stops and goes on with it after its next start"
            ));
        }
        Error::Timeout(format!(
            "table \"{table}\" {what} after {} s and goes on; {cause}",
            self.patience.change.as_secs()
        ))
    }
}

fn gone(database: &str, name: &str) -> Error {
    Error::NotFound { kind: "table", name: shown_name(database, name) }
}
