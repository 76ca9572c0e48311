//! Changes of the catalog: checked, recorded, carried out, published.
//!
//! ```text
//!   change(ddl) ─▶ decide on the current state (a refused change never gets into the log)
//!               ─▶ propose ─▶ recorded: the change is certain from here on
//!               ─▶ wait until the nodes have carried the DDL driver's orders out ─▶ published
//! ```
//!
//! The catalog serialises changes of one table: a table with a change under way answers "busy", and the next change
//! waits. A client that disconnects has no effect, because the DDL driver does the work.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use partita_proto::blame::BlameReport;
use partita_proto::catalog::Catalog;
use partita_proto::error::Error;
use partita_proto::generation::{Renewal, Renewed};
use partita_proto::id::{NodeId, TableId};
use partita_proto::load::{HeatmapRequest, LoadReport, LoadRequest};
use partita_proto::materialized::{CopyChange, CopyState};
use partita_proto::member::{Heartbeat, Members, MetaMember, MetaStanding, Registration};
use partita_proto::service::{
    AdminOrder, Changed, ClusterService, Ddl, MetaService, RequestId, TableChange,
};
use partita_raft::RaftError;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::catalog::State;
use crate::core::{Core, MetaOptions, raft_error};
use crate::create::PARTITIONS_MAX;
use crate::ddl_driver::is_current;
use crate::node::Meta;
use crate::plan::View;
use crate::progress::Job;
use crate::transition::{Command, Outcome, Reply, decide, renewed_partitions, shown_name};

/// Maximum length of a node's address: a host name of 253 characters and a port.
const ADDRESS_BYTES_MAX: usize = 263;

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

    /// This member only; the client asks the others, whose addresses it knows.
    async fn metas(&self) -> Vec<MetaMember> {
        vec![MetaMember { address: String::new(), standing: self.standing().ok() }]
    }

    async fn load(&self, request: LoadRequest) -> Result<LoadReport, Error> {
        self.core.group.read_barrier().await.map_err(raft_error)?;
        Ok(self.core.load_report(&request))
    }

    async fn heatmap(&self, request: HeatmapRequest) -> Result<Bytes, Error> {
        self.core.group.read_barrier().await.map_err(raft_error)?;
        self.core.picture(request).await
    }

    async fn administer(&self, order: AdminOrder) -> Result<(), Error> {
        self.core.administer(order).await
    }

    async fn confirm(&self, copies: Vec<TableId>) -> Result<Vec<Option<CopyState>>, Error> {
        self.core.group.read_barrier().await.map_err(raft_error)?;
        let state = self.core.machine.state();
        Ok(copies.into_iter().map(|copy| state.copy_state(copy)).collect())
    }

    async fn blame(&self, report: BlameReport) -> Result<(), Error> {
        // Kept by every member, because it may lead next.
        for stall in &report.stalls {
            if let Some(end) = Instant::now().checked_sub(stall.ago) {
                self.core.reshapes.felt(stall.partition, stall.time, end);
            }
        }
        self.core.load.lock().blamed(report, self.core.now_ms());
        if *self.core.leads.borrow() {
            return Ok(());
        }
        Err(raft_error(RaftError::NotLeader { leader: self.core.group.status().leader }))
    }
}

#[async_trait]
impl ClusterService for Meta {
    fn leads(&self) -> watch::Receiver<bool> {
        self.core.leads.subscribe()
    }

    fn standing(&self) -> Result<MetaStanding, Error> {
        let status = self.core.group.status();
        Ok(MetaStanding {
            node: self.core.host.node(),
            leads: *self.core.leads.borrow(),
            leader: status.leader.map(|(_, node)| node),
            term: status.term,
            applied: status.applied.unwrap_or_default(),
        })
    }

    async fn change_once(&self, id: RequestId, ddl: Ddl) -> Result<Changed, Error> {
        let changed = self.core.change(ddl, Some(id)).await?;
        Ok(Changed { changed, version: self.core.machine.catalog().borrow().version })
    }

    async fn register(&self, registration: Registration) -> Result<NodeId, Error> {
        check_registration(&registration)?;
        self.core.group.read_barrier().await.map_err(raft_error)?;
        let identity = registration.identity;
        self.core.propose(&Command::Register(registration)).await?;
        let state = self.core.machine.state();
        let node = state.node_of(identity).map(|node| node.id);
        node.ok_or_else(|| {
            Error::Internal("the catalog lacks a node that was just registered".to_owned())
        })
    }

    async fn renew(&self, mut renewal: Renewal) -> Result<Renewed, Error> {
        self.core.group.read_barrier().await.map_err(raft_error)?;
        let (node, accepted) = (renewal.node, std::mem::take(&mut renewal.accepted));
        // Proposed even on a nearly full disk: otherwise nodes could not start.
        self.core.propose_anyway(&Command::Renew(renewal)).await?;
        let state = self.core.machine.state();
        let recorded = state.node(node).and_then(|node| node.generation);
        let recorded = recorded.ok_or_else(|| {
            Error::Internal("the catalog lacks a generation that was just recorded".to_owned())
        })?;
        let sole_replicas =
            accepted.into_iter().filter(|partition| state.is_alone(*partition, node));
        Ok(Renewed { recorded, alone: sole_replicas.collect() })
    }

    async fn heartbeat(&self, mut heartbeat: Heartbeat) -> Result<(), Error> {
        if !*self.core.leads.borrow() {
            // Kept because this member may lead next.
            self.core.overhear(&heartbeat);
            return Err(raft_error(RaftError::NotLeader {
                leader: self.core.group.status().leader,
            }));
        }
        check_address(&heartbeat.address)?;
        let registration = {
            let state = self.core.machine.state();
            let record = state.node(heartbeat.node);
            let is_changed = record.is_some_and(|record| {
                record.address != heartbeat.address || record.labels != heartbeat.labels
            });
            let registration = is_changed.then(|| Registration {
                identity: heartbeat.identity,
                node: Some(heartbeat.node),
                address: heartbeat.address.clone(),
                labels: heartbeat.labels.clone(),
            });
            let (node, loads) = (heartbeat.node, std::mem::take(&mut heartbeat.loads));
            let follower_reads = std::mem::take(&mut heartbeat.follower_reads);
            self.core.presence.heard(&state, heartbeat)?;
            let mut load = self.core.load.lock();
            load.heard_followers(node, &follower_reads);
            load.heard(node, &loads, self.core.now_ms());
            registration
        };
        if let Some(registration) = registration {
            self.core.propose(&Command::Register(registration)).await?;
        }
        self.core.publish_members();
        Ok(())
    }
}

/// Refuses a registration that no node would send.
fn check_registration(registration: &Registration) -> Result<(), Error> {
    if registration.identity == 0 {
        return Err(Error::InvalidInput("the node has no identity".to_owned()));
    }
    check_address(&registration.address)
}

/// Refuses an invalid address, since addresses are kept in the catalog and shown to clients. A node in meta's own
/// process has an empty one.
fn check_address(address: &str) -> Result<(), Error> {
    if address.len() > ADDRESS_BYTES_MAX
        || address.chars().any(|c| c.is_control() || c.is_whitespace())
    {
        return Err(Error::Unsupported(format!(
            "an address of {} bytes, or with spaces or control characters,",
            address.len()
        )));
    }
    Ok(())
}

/// A change, decided on one state.
enum Decided {
    /// It changes nothing.
    Answer(Reply),
    /// It is to be recorded.
    Record(Box<Command>),
}

impl Core {
    pub(crate) async fn change(&self, ddl: Ddl, id: Option<RequestId>) -> Result<bool, Error> {
        let deadline = Instant::now() + self.patience.change;
        loop {
            match self.record(&ddl, id, deadline).await? {
                Reply::Unchanged => return Ok(false),
                Reply::Changed { steps } => {
                    self.wait_until_done(&ddl, steps, deadline).await?;
                    return Ok(true);
                }
                Reply::Busy { table, step } => {
                    // The result of the other change does not matter here.
                    let job = (table, step);
                    if !self.over(job, deadline, |_| false).await {
                        return Err(self.timeout_error(&ddl, job));
                    }
                }
            }
        }
    }

    /// Decides a change on the current state, and records it if it changes anything. The answer comes after the state
    /// that it depends on was published, so that a client that is told "it exists already" finds it in the catalog.
    async fn record(
        &self,
        ddl: &Ddl,
        id: Option<RequestId>,
        deadline: Instant,
    ) -> Result<Reply, Error> {
        self.group.read_barrier().await.map_err(raft_error)?;
        let (version, decided) = {
            let state = self.machine.state();
            (state.version(), self.decide_change(&state, ddl, id))
        };
        match decided {
            // Recorded even on a nearly full disk: writes of the source wait for it.
            Ok(Decided::Record(command)) if matches!(ddl, Ddl::Copy(CopyChange::Lose { .. })) => {
                self.propose_anyway(&command).await
            }
            Ok(Decided::Record(command)) => self.propose(&command).await,
            Ok(Decided::Answer(reply)) => {
                self.published(version, deadline).await;
                Ok(reply)
            }
            Err(error) => {
                self.published(version, deadline).await;
                Err(error)
            }
        }
    }

    fn decide_change(
        &self,
        state: &State,
        ddl: &Ddl,
        id: Option<RequestId>,
    ) -> Result<Decided, Error> {
        let (partitions, replicas) = new_partitions(state, ddl, &self.options);
        let places = vec![vec![NodeId::default()]; partitions];
        let tables_max = Some(self.options.tables_per_database);
        let trial = Command::Change { ddl: ddl.clone(), places, id, tables_max };
        let Outcome { edits, reply } = decide(state, &trial)?;
        if edits.is_empty() {
            return Ok(Decided::Answer(reply));
        }
        let places = match partitions {
            0 => Vec::new(),
            _ => View::new(state, self.eligible_nodes(state)).choose_many(partitions, replicas)?,
        };
        Ok(Decided::Record(Box::new(Command::Change { ddl: ddl.clone(), places, id, tables_max })))
    }

    /// Nodes that can take replicas.
    fn eligible_nodes(&self, state: &State) -> Vec<NodeId> {
        let reports = self.presence.reports();
        let eligible = state.nodes().filter(|node| !node.draining && reports.is_live(node.id));
        eligible.map(|node| node.id).collect()
    }

    /// Waits until the work that follows from a recorded change is done.
    async fn wait_until_done(
        &self,
        ddl: &Ddl,
        jobs: Vec<Job>,
        deadline: Instant,
    ) -> Result<(), Error> {
        match ddl.body() {
            Ddl::DropTable { .. } | Ddl::DropDatabase { .. } => {
                self.wait_for_removal(&jobs).await;
                Ok(())
            }
            _ => {
                // A copy that goes meanwhile leaves the change of its source as it is.
                let creates = matches!(ddl.body(), Ddl::CreateTable { .. });
                let copies: Vec<Job> = {
                    let state = self.machine.state();
                    let is_copy = |job: &Job| !creates && state.copy_state(job.0).is_some();
                    jobs.iter().copied().filter(is_copy).collect()
                };
                for job in jobs {
                    if !self.over(job, deadline, |_| false).await {
                        return Err(self.timeout_error(ddl, job));
                    }
                    if !copies.contains(&job) {
                        self.outcome(ddl, job)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Waits a limited time for nodes to remove tables that are not visible any more. If the removal takes longer,
    /// for instance because a node is away, the change still succeeds.
    async fn wait_for_removal(&self, jobs: &[Job]) {
        let deadline = Instant::now() + self.patience.drop;
        for job in jobs {
            self.over(*job, deadline, |failed| failed).await;
        }
    }

    /// Result of a finished job, for the change that it was part of.
    fn outcome(&self, ddl: &Ddl, job: Job) -> Result<(), Error> {
        let state = self.machine.state();
        if state.table(job.0).is_some_and(|table| table.is_visible()) {
            return Ok(());
        }
        match ddl.body() {
            Ddl::CreateTable { table, .. } => Err(self
                .progress
                .failure(job)
                .unwrap_or_else(|| gone(&table.database, &table.name))),
            // The table with the new placement could not be created.
            Ddl::AlterTable { database, name, change: TableChange::Repartition { .. } } => {
                Err(self.progress.failure(job).unwrap_or_else(|| gone(database, name)))
            }
            Ddl::AlterTable { database, name, .. } | Ddl::TruncateTable { database, name } => {
                Err(gone(database, name))
            }
            // A change of a database does not fail because one of its tables was dropped meanwhile.
            _ => Ok(()),
        }
    }

    /// Waits until a job on a table or on its partitions has ended and its effect is published. Returns false at the
    /// deadline, when meta stops, or when `enough` returns true. Its argument is true if the last attempt of the
    /// job failed; it will be tried again.
    pub(crate) async fn over(
        &self,
        job: Job,
        deadline: Instant,
        enough: impl Fn(bool) -> bool,
    ) -> bool {
        let mut applied = self.machine.applied();
        let mut failed = self.progress.watch();
        loop {
            // Marked before the state is read, so that no change between the two is missed.
            applied.mark_unchanged();
            failed.mark_unchanged();
            let version = {
                let state = self.machine.state();
                let current = is_current(&state, job) || state.is_reshaping(job.0, job.1);
                (!current).then(|| state.version())
            };
            if let Some(version) = version {
                return self.published(version, deadline).await;
            }
            // The caller may not want to wait for the retry of a failed job.
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

    /// Error for a change that is not done by its deadline.
    fn timeout_error(&self, ddl: &Ddl, job: Job) -> Error {
        let table = self.machine.state().table(job.0).map(|table| table.name.clone());
        let table = table.unwrap_or_else(|| job.0.to_string());
        let cause = match self.progress.failure(job) {
            Some(error) => format!("the last attempt failed: {error}"),
            None if self.machine.state().is_reshaping(job.0, job.1) => {
                "one of its partitions is being split or merged".to_owned()
            }
            None => "its nodes have not answered".to_owned(),
        };
        let condition = match ddl.body() {
            Ddl::CreateTable { .. } => "is still being created",
            _ => "is still being changed",
        };
        if self.stopping.is_cancelled() {
            return Error::Unavailable(format!(
                "table \"{table}\" {condition}; meta is stopping and continues after its next start"
            ));
        }
        Error::Timeout(format!(
            "table \"{table}\" {condition} in the background after {} s; {cause}",
            self.patience.change.as_secs()
        ))
    }
}

/// Number of partitions that a change creates, and of replicas of each.
fn new_partitions(state: &State, ddl: &Ddl, options: &MetaOptions) -> (usize, usize) {
    let (cuts, table_options) = match ddl.body() {
        Ddl::CreateTable { table, .. } if table.schema.view.is_some() => return (0, 0),
        Ddl::CreateTable { table, .. } => (table.cuts.len(), table.schema.options.clone()),
        Ddl::AlterTable { database, name, change: TableChange::Repartition { cuts, .. } } => {
            let database = state.database_named(database);
            let table = database.and_then(|database| state.table_named(database.id, name));
            (cuts.len(), table.map(|table| table.schema.options.clone()).unwrap_or_default())
        }
        _ => {
            let (partitions, table_options) = renewed_partitions(state, ddl);
            return (partitions, options.replicas_of(&table_options));
        }
    };
    ((cuts + 1).min(PARTITIONS_MAX), options.replicas_of(&table_options))
}

fn gone(database: &str, name: &str) -> Error {
    Error::NotFound { kind: "table", name: shown_name(database, name) }
}
