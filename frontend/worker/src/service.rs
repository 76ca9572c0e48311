//! The service that runs fragments beside the partitions of a node.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use partita_proto::Error;
use partita_proto::service::{DataService, FragmentRequest, FragmentService, ScanReply};

use crate::fragment::Fragment;
use crate::run::service_error;

/// Memory for the fragments that run at a node: groups, first rows in an order. A fragment that needs
/// more gives its groups out early where it can, and otherwise fails. Its scans have their own.
pub const MEMORY_BYTES: usize = 256 << 20;
/// Fragments that an error about memory names.
const CONSUMERS_NAMED: usize = 3;

/// Runs fragments over the rows of one node.
pub struct Worker {
    data: Arc<dyn DataService>,
    runtime: Arc<RuntimeEnv>,
}

impl Worker {
    /// Beside a node's service, with so many bytes of memory.
    ///
    /// # Errors
    /// [`Error::Internal`] when DataFusion's runtime cannot be made.
    pub fn new(data: Arc<dyn DataService>, memory_bytes: usize) -> Result<Arc<Self>, Error> {
        let named = std::num::NonZeroUsize::new(CONSUMERS_NAMED)
            .ok_or_else(|| Error::Internal("no consumer is named".to_owned()))?;
        let pool = TrackConsumersPool::new(FairSpillPool::new(memory_bytes), named);
        // The disk is for rows.
        let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(pool))
            .with_disk_manager_builder(disk)
            .build_arc()
            .map_err(service_error)?;
        Ok(Arc::new(Self { data, runtime }))
    }
}

#[async_trait]
impl FragmentService for Worker {
    async fn run(&self, request: FragmentRequest) -> Result<ScanReply, Error> {
        let fragment = Fragment::decode(&request.fragment, request.scan.parallelism)?;
        let columns = Arc::clone(&request.scan.columns);
        let reply = self.data.scan(request.scan).await?;
        fragment.run(reply, &columns, Arc::clone(&self.runtime))
    }
}
