//! Sends requests to other services from the home runtime.
//!
//! A statement runs in a lane. It may keep the lane's threads busy, and the lane ends with it. A request to a node
//! may spawn tasks and open connections that other statements share, so it is sent from the runtime of the process.
//! Only the rows of a scan are read by the lane itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use partita_proto::Error;
use partita_proto::id::{Epoch, NodeId, PartitionId, ReplicaId, TableId};
use partita_proto::materialized::{CaptureOrder, Changes, ChangesRequest};
use partita_proto::range::Bound;
use partita_proto::reshape::{Reshape, Reshaped};
use partita_proto::schema::TableSchema;
use partita_proto::service::{
    DataNodes, DataService, FragmentRequest, FragmentService, PartitionSpec, ReplicaStatus,
    RequestId, ScanReply, ScanRequest, WriteReply, WriteRequest,
};
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

/// Runs a request in the home runtime: directly if the caller is there, otherwise in a task.
pub(crate) async fn at_home<T: Send + 'static, E: From<Error> + Send + 'static>(
    home: &Handle,
    request: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, E> {
    if Handle::try_current().is_ok_and(|runtime| runtime.id() == home.id()) {
        return request.await;
    }
    match AbortOnDropHandle::new(home.spawn(request)).await {
        Ok(answer) => answer,
        Err(error) if error.is_panic() => {
            Err(Error::Internal("the task of a request panicked".to_owned()).into())
        }
        Err(_) => Err(Error::Cancelled.into()),
    }
}

/// All nodes, reached from the home runtime.
pub(crate) struct HomeNodes {
    nodes: Arc<dyn DataNodes>,
    home: Handle,
}

impl HomeNodes {
    pub(crate) fn new(nodes: Arc<dyn DataNodes>, home: Handle) -> Self {
        Self { nodes, home }
    }

    fn is_home(&self) -> bool {
        Handle::try_current().is_ok_and(|runtime| runtime.id() == self.home.id())
    }
}

impl DataNodes for HomeNodes {
    fn fragments(&self, node: NodeId) -> Result<Arc<dyn FragmentService>, Error> {
        let _entered = self.home.enter();
        let inner = self.nodes.fragments(node)?;
        Ok(Arc::new(HomeNode { inner, home: self.home.clone() }))
    }

    fn remote(&self) -> bool {
        self.nodes.remote()
    }

    fn node(&self, node: NodeId) -> Result<Arc<dyn DataService>, Error> {
        if self.is_home() {
            return self.nodes.node(node);
        }
        // A connection that is opened now belongs to the home runtime.
        let _entered = self.home.enter();
        let inner = self.nodes.node(node)?;
        Ok(Arc::new(HomeNode { inner, home: self.home.clone() }))
    }

    fn all(&self) -> Vec<NodeId> {
        self.nodes.all()
    }
}

/// A service of one node, called from the home runtime.
struct HomeNode<S: ?Sized> {
    home: Handle,
    inner: Arc<S>,
}

#[async_trait]
impl FragmentService for HomeNode<dyn FragmentService> {
    async fn run(&self, request: FragmentRequest) -> Result<ScanReply, Error> {
        let inner = Arc::clone(&self.inner);
        at_home(&self.home, async move { inner.run(request).await }).await
    }
}

/// Writes the methods of a node's service that only forward their arguments.
macro_rules! passed_on {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {
        #[async_trait]
        impl DataService for HomeNode<dyn DataService> {
            $(
                async fn $name(&self, $($argument: $kind),*) -> Result<$answer, Error> {
                    let inner = Arc::clone(&self.inner);
                    at_home(&self.home, async move { inner.$name($($argument),*).await }).await
                }
            )*
        }
    };
}

passed_on! {
    write(request: WriteRequest) -> WriteReply;
    scan(request: ScanRequest) -> ScanReply;
    open_partition(spec: PartitionSpec) -> ();
    drop_partition(partition: PartitionId, replica: ReplicaId) -> ();
    reconfigure(partition: PartitionId, voters: BTreeMap<ReplicaId, NodeId>) -> ();
    transfer_leader(partition: PartitionId, to: NodeId) -> ();
    reshape(order: Reshape) -> Reshaped;
    middle_key(partition: PartitionId) -> Option<Bound>;
    capture(partition: PartitionId, epoch: Epoch, order: CaptureOrder) -> u64;
    changes(request: ChangesRequest) -> Changes;
    fill(copy: TableId, request: ScanRequest) -> (u64, ScanReply);
    truncate_partition(partition: PartitionId, id: RequestId) -> ();
    alter_partition(partition: PartitionId, schema: Arc<TableSchema>) -> ();
    flush_partition(partition: PartitionId) -> ();
    compact_partition(partition: PartitionId) -> ();
    status() -> Vec<ReplicaStatus>;
    series_status() -> Vec<ReplicaStatus>;
    measured_status() -> Vec<ReplicaStatus>;
}
