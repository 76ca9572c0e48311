//! Has a copy that is in step take the place of its source.
//!
//! ```text
//!   all partitions of the source answer, and little is left to ship ── no ─▶ later
//!     │ yes
//!   meta: Switching ─▶ each source partition: close ─▶ its last changes ─▶ meta: exchange
//!                              │ not within SWITCH_WAIT, or never
//!                              └─▶ meta: Reopening ─▶ each source partition: reopen ─▶ meta: lost
//! ```
//!
//! Between the close of the first partition and the exchange, writes and scans of the table wait: their routers look for a
//! newer catalog, and find the new partitions in it. Nothing that takes long happens in this time: the changes of each
//! partition were shipped before.
//!
//! Any frontend may do this, also several at once: each step has the effect of one.

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use partita_proto::catalog::Table;
use partita_proto::id::{PartitionId, TableId};
use partita_proto::materialized::{Capture, CopyChange, CopyState};
use partita_proto::service::Ddl;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::Copies;
use super::leader::SourcePartition;
use super::ship::NotShipped;

/// Time within which all partitions must have shipped what is left, for the switch to begin, for one look after the
/// other: writes wait for about as long then. A good moment is waited for, but not for ever.
const CLOSE_WITHIN: [Duration; 6] = [
    Duration::from_millis(15),
    Duration::from_millis(15),
    Duration::from_millis(30),
    Duration::from_millis(60),
    Duration::from_millis(120),
    Duration::from_millis(250),
];
/// Pause between these looks.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// Maximum time of a switch; then it is given up, and the table goes on as before.
const SWITCH_WAIT: Duration = Duration::from_secs(5);
/// Pause before meta is asked again to exchange the tables.
const EXCHANGE_PAUSE: Duration = Duration::from_millis(10);

impl Copies {
    /// Switches a table to a copy that is in step, or goes on with a switch that another frontend has begun.
    pub(super) async fn switch(self: Arc<Self>, copy: Arc<Table>) {
        let began = Instant::now();
        match self.try_switch(&copy).await {
            Ok(true) => {
                let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                info!(copy = %copy.name, id = %copy.id, ms, "a table was switched to its new key");
            }
            Ok(false) => {}
            Err(reason) => {
                match self.lose(copy.id, reason).await {
                    Ok(()) => self.reopen(copy).await,
                    // Without meta's word, another frontend goes on.
                    Err(error) => {
                        warn!(copy = %copy.name, id = %copy.id, %error, "could not give up a switch");
                    }
                }
            }
        }
    }

    /// Opens the partitions of a table again whose switch was given up, if meta says so: it goes on as before.
    pub(super) async fn reopen(self: Arc<Self>, copy: Arc<Table>) {
        let Some(source) = copy.copy.as_ref().map(|state| state.source) else { return };
        if self.state_of(copy.id) != Some(CopyState::Reopening) {
            return;
        }
        let partitions = self.partitions_of(source);
        let reopened =
            partitions.iter().map(|source| self.capture(*source, copy.id, Capture::Reopen));
        if let Err(error) = try_join_all(reopened).await {
            warn!(copy = %copy.name, id = %copy.id, %error, "a table is not open again yet");
            return;
        }
        let partitions = partitions.iter().map(|source| source.partition).collect();
        let reopened = Ddl::Copy(CopyChange::Reopened { copy: copy.id, partitions });
        if let Err(error) = self.meta.change(reopened).await {
            warn!(copy = %copy.name, id = %copy.id, %error, "a table is not open again yet");
        }
    }

    /// Returns false if it is too early, or the copy is in another state; an error if the switch cannot be completed.
    async fn try_switch(self: &Arc<Self>, copy: &Arc<Table>) -> Result<bool, String> {
        let Some(source) = copy.copy.as_ref().map(|state| state.source) else { return Ok(false) };
        if self.state_of(copy.id) == Some(CopyState::InStep) {
            match self.may_close(copy.id, source).await {
                Ok(true) => {}
                Ok(false) => {
                    debug!(copy = %copy.name, "partitions do not answer soon enough for a switch");
                    return Ok(false);
                }
                // The copy lacks changes for ever.
                Err(NotShipped::Never(reason)) => return Err(reason),
                Err(failure) => {
                    let reason = failure.reason();
                    debug!(copy = %copy.name, reason, "a table is not switched yet");
                    return Ok(false);
                }
            }
            match self.meta.change(Ddl::Copy(CopyChange::Switch { copy: copy.id })).await {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => {
                    debug!(copy = %copy.name, %error, "a table is not switched yet");
                    return Ok(false);
                }
            }
        }
        self.close_and_exchange(copy.id, source).await
    }

    /// Waits until all partitions of the source answer and have little left to ship; false if that takes too long.
    async fn may_close(
        self: &Arc<Self>,
        copy: TableId,
        source: TableId,
    ) -> Result<bool, NotShipped> {
        for limit in CLOSE_WITHIN {
            let began = Instant::now();
            let partitions = self.partitions_of(source);
            let rest = partitions.iter().map(|source| self.catch_up(copy, *source));
            try_join_all(rest).await?;
            if began.elapsed() <= limit {
                return Ok(true);
            }
            sleep(LOOK_PAUSE).await;
        }
        Ok(false)
    }

    /// The source partitions of a table by the newest catalog.
    pub(super) fn partitions_of(&self, table: TableId) -> Vec<SourcePartition> {
        let catalog = self.view.catalog();
        let routes = catalog.table_by_id(table).map(|table| Arc::clone(&table.partitions));
        let partitions = routes.iter().flat_map(|map| map.routes());
        partitions.map(|route| SourcePartition { table, partition: route.partition }).collect()
    }

    async fn close_and_exchange(
        self: &Arc<Self>,
        copy: TableId,
        source: TableId,
    ) -> Result<bool, String> {
        let deadline = Instant::now() + SWITCH_WAIT;
        loop {
            let version = self.view.catalog().version;
            if self.state_of(copy) != Some(CopyState::Switching) {
                return Ok(false);
            }
            let partitions = self.partitions_of(source);
            let closed = partitions.iter().map(|source| self.close(copy, *source, deadline));
            let failure = match try_join_all(closed).await {
                Ok(partitions) => match self.exchange(copy, partitions).await {
                    Ok(true) => return Ok(true),
                    // The catalog here was older than meta's, or another frontend was faster.
                    Ok(false) => "its partitions changed meanwhile".to_owned(),
                    Err(reason) => reason,
                },
                Err(failure) => {
                    let is_final = matches!(failure, NotShipped::Never(_));
                    if is_final && self.is_switching_by_meta(copy).await {
                        return Err(failure.reason());
                    }
                    failure.reason()
                }
            };
            if Instant::now() + EXCHANGE_PAUSE >= deadline {
                return Err(format!("the switch was not completed in time: {failure}"));
            }
            sleep(EXCHANGE_PAUSE).await;
            if self.view.catalog().version == version {
                self.view.newer_catalog(version, Instant::now() + EXCHANGE_PAUSE).await;
            }
        }
    }

    pub(super) async fn exchange(
        &self,
        copy: TableId,
        partitions: Vec<PartitionId>,
    ) -> Result<bool, String> {
        let exchange = Ddl::Copy(CopyChange::Exchange { copy, partitions });
        self.meta.change(exchange).await.map_err(|error| error.to_string())
    }

    /// True if meta has the copy switching. A source partition that is missing here may have left its table since.
    async fn is_switching_by_meta(&self, copy: TableId) -> bool {
        let states = self.confirmations.states(&[copy]).await;
        states.is_ok_and(|states| states.get(&copy) == Some(&CopyState::Switching))
    }

    /// Closes a source partition, and ships its last changes.
    async fn close(
        self: &Arc<Self>,
        copy: TableId,
        source: SourcePartition,
        deadline: Instant,
    ) -> Result<PartitionId, NotShipped> {
        let index = self.capture(source, copy, Capture::Close).await?;
        self.drain(source, copy, index, deadline).await?;
        Ok(source.partition)
    }

    /// Drops the former partitions of a table that was switched: by now no write is on its way to them any more.
    pub(super) async fn discard(self: Arc<Self>, copy: Arc<Table>) {
        let Some(source) = copy.copy.as_ref().map(|state| state.source) else { return };
        let partitions = self.partitions_of(source);
        let detached =
            partitions.iter().map(|target| self.capture(*target, copy.id, Capture::Detach));
        if let Err(error) = try_join_all(detached).await {
            debug!(copy = %copy.name, %error, "former partitions are kept for now");
            return;
        }
        // A partition that was split off before its parent knew does not know either: all are told at the next look.
        if self.partitions_of(source) != partitions {
            return;
        }
        match self.meta.change(Ddl::Copy(CopyChange::Discard { copy: copy.id })).await {
            Ok(true) => debug!(copy = %copy.name, id = %copy.id, "dropping former partitions"),
            // Another frontend was faster.
            Ok(false) => {}
            Err(error) => {
                warn!(copy = %copy.name, id = %copy.id, %error, "could not drop former partitions");
            }
        }
    }
}
