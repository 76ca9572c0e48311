//! Service that runs fragments beside the partitions of a node.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use partita_lanes::Lanes;
use partita_proto::Error;
use partita_proto::service::{DataService, FragmentRequest, FragmentService, ScanReply};

use crate::error::SqlError;
use crate::fragment::Fragment;
use crate::run::service_error;

/// Memory of all fragments that run at a node, for groups and sorted rows. A fragment that needs more emits its groups
/// early if it can, and otherwise fails. Scans have their own memory.
pub const MEMORY_BYTES: usize = 256 << 20;
/// Fragments named in an error about memory.
const CONSUMERS_NAMED: usize = 3;

/// Runs fragments over the rows of one node.
pub struct Worker {
    data: Arc<dyn DataService>,
    runtime: Arc<RuntimeEnv>,
    lanes: Arc<Lanes>,
}

impl Worker {
    /// Creates the service beside a node's data service, with a memory pool of `memory_bytes`. Fragments compute in
    /// lanes, apart from the threads that serve the node.
    ///
    /// # Errors
    /// [`Error::Internal`] when DataFusion's runtime cannot be created.
    pub fn new(
        data: Arc<dyn DataService>,
        memory_bytes: usize,
        lanes: Arc<Lanes>,
    ) -> Result<Arc<Self>, Error> {
        let consumers = std::num::NonZeroUsize::new(CONSUMERS_NAMED)
            .ok_or_else(|| Error::Internal("CONSUMERS_NAMED is zero".to_owned()))?;
        let pool = TrackConsumersPool::new(FairSpillPool::new(memory_bytes), consumers);
        // Fragments do not spill: the disk is for rows.
        let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(pool))
            .with_disk_manager_builder(disk)
            .build_arc()
            .map_err(service_error)?;
        Ok(Arc::new(Self { data, runtime, lanes }))
    }
}

/// Converts the error of a fragment that cannot run at all.
fn refused(error: SqlError) -> Error {
    Error::Query { sqlstate: error.sqlstate, message: error.message, hint: error.hint }
}

#[async_trait]
impl FragmentService for Worker {
    async fn run(&self, request: FragmentRequest) -> Result<ScanReply, Error> {
        let FragmentRequest { scan, fragment } = request;
        let lane = self.lanes.enter().await.map_err(|refusal| refused(refusal.into()))?;
        let parallelism = scan.parallelism;
        let decoded = lane.run(async move { Fragment::decode(&fragment, parallelism) }).await;
        let fragment = decoded.map_err(|error| refused(error.into()))??;
        let columns = Arc::clone(&scan.columns);
        // The scan is the node's own work; only its streams are read in the lane.
        let reply = self.data.scan(scan).await?;
        let runtime = Arc::clone(&self.runtime);
        let running = lane.run(async move { fragment.run(reply, &columns, runtime) }).await;
        running.map_err(|error| refused(error.into()))?
    }
}
