//! Datanodes as other processes call them, over the simulated network.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt};
use partita_datanode::Datanode;
use partita_proto::catalog_history::CatalogHistory;
use partita_proto::error::Error;
use partita_proto::id::{NodeId, PartitionId, ReplicaId};
use partita_proto::range::Bound;
use partita_proto::reshape::{Reshape, Reshaped};
use partita_proto::schema::TableSchema;
use partita_proto::service::{
    DataNodes, DataService, PartitionSpec, ReplicaStatus, RequestId, ScanReply, ScanRequest,
    WriteReply, WriteRequest,
};

use crate::cluster::Cluster;

/// Time limit for an order of meta to a datanode.
const ORDER_WAIT: Duration = Duration::from_secs(30);

/// The datanodes, as seen by one node.
pub(crate) struct Remotes {
    cluster: Weak<Cluster>,
    from: NodeId,
}

impl Remotes {
    pub(crate) fn new(cluster: &Arc<Cluster>, caller: NodeId) -> Self {
        Self { cluster: Arc::downgrade(cluster), from: caller }
    }
}

impl DataNodes for Remotes {
    fn node(&self, node: NodeId) -> Result<Arc<dyn DataService>, Error> {
        let cluster = self.cluster.upgrade().ok_or_else(over)?;
        Ok(Arc::new(Remote { cluster, from: self.from, to: node, wait: ORDER_WAIT, catalog: None }))
    }

    fn ordering(
        &self,
        node: NodeId,
        catalog: &CatalogHistory,
    ) -> Result<Arc<dyn DataService>, Error> {
        let (cluster, catalog) = (self.cluster.upgrade().ok_or_else(over)?, Some(catalog.clone()));
        cluster.ordering.lock().clone_from(&catalog);
        Ok(Arc::new(Remote { cluster, from: self.from, to: node, wait: ORDER_WAIT, catalog }))
    }

    fn all(&self) -> Vec<NodeId> {
        let cluster = self.cluster.upgrade();
        cluster.map(|cluster| cluster.data.lock().keys().copied().collect()).unwrap_or_default()
    }
}

fn over() -> Error {
    Error::Unavailable("the run is over".to_owned())
}

/// One datanode, as called by one node or client.
pub(crate) struct Remote {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) wait: Duration,
    /// The history of the catalog that orders are based on.
    pub(crate) catalog: Option<CatalogHistory>,
}

impl Remote {
    async fn call<T, F>(
        &self,
        ask: impl FnOnce(Arc<Datanode>) -> F + Send + 'static,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let (cluster, id) = (Arc::clone(&self.cluster), self.to);
        let request = async move {
            let node = cluster.datanode(id);
            ask(node.ok_or_else(|| Error::Unavailable(format!("node {id} is down")))?).await
        };
        self.cluster.net.call(self.from, self.to, self.wait, request).await
    }

    /// Like [`Remote::call`], for requests that only meta may make.
    async fn order<T, F>(
        &self,
        ask: impl FnOnce(Arc<Datanode>) -> F + Send + 'static,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let catalog = self.catalog.clone();
        self.call(|node| async move {
            node.recognize(catalog.as_ref()).await?;
            ask(node).await
        })
        .await
    }

    /// The rows of a scan, collected, and the index of the log up to which they have all writes.
    pub(crate) async fn rows(
        &self,
        request: ScanRequest,
    ) -> Result<(Vec<RecordBatch>, u64), Error> {
        self.call(|node| async move {
            let ScanReply { streams, index, .. } = node.scan(request).await?;
            let mut rows = Vec::new();
            for stream in streams {
                let batches: Vec<RecordBatch> = stream.try_collect().await?;
                rows.extend(batches);
            }
            Ok((rows, index))
        })
        .await
    }
}

#[async_trait]
impl DataService for Remote {
    async fn write(&self, request: WriteRequest) -> Result<WriteReply, Error> {
        self.call(|node| async move { node.write(request).await }).await
    }

    async fn scan(&self, request: ScanRequest) -> Result<ScanReply, Error> {
        let (rows, index) = self.rows(request).await?;
        let stream = futures::stream::iter(rows.into_iter().map(Ok)).boxed();
        let stats = Arc::default();
        Ok(ScanReply { streams: vec![stream], order: None, stats, index })
    }

    async fn open_partition(&self, spec: PartitionSpec) -> Result<(), Error> {
        self.order(|node| async move { node.open_partition(spec).await }).await
    }

    async fn drop_partition(&self, id: PartitionId, replica: ReplicaId) -> Result<(), Error> {
        self.order(move |node| async move { node.drop_partition(id, replica).await }).await
    }

    async fn reconfigure(
        &self,
        partition: PartitionId,
        voters: BTreeMap<ReplicaId, NodeId>,
    ) -> Result<(), Error> {
        self.order(move |node| async move { node.reconfigure(partition, voters).await }).await
    }

    async fn transfer_leader(&self, partition: PartitionId, target: NodeId) -> Result<(), Error> {
        self.order(move |node| async move { node.transfer_leader(partition, target).await }).await
    }

    async fn reshape(&self, order: Reshape) -> Result<Reshaped, Error> {
        self.order(move |node| async move { node.reshape(order).await }).await
    }

    async fn middle_key(&self, partition: PartitionId) -> Result<Option<Bound>, Error> {
        self.call(move |node| async move { node.middle_key(partition).await }).await
    }

    async fn truncate_partition(&self, partition: PartitionId, id: RequestId) -> Result<(), Error> {
        self.order(move |node| async move { node.truncate_partition(partition, id).await }).await
    }

    async fn alter_partition(
        &self,
        partition: PartitionId,
        schema: Arc<TableSchema>,
    ) -> Result<(), Error> {
        self.order(move |node| async move { node.alter_partition(partition, schema).await }).await
    }

    async fn flush_partition(&self, partition: PartitionId) -> Result<(), Error> {
        self.call(move |node| async move { node.flush_partition(partition).await }).await
    }

    async fn compact_partition(&self, partition: PartitionId) -> Result<(), Error> {
        self.call(move |node| async move { node.compact_partition(partition).await }).await
    }

    async fn status(&self) -> Result<Vec<ReplicaStatus>, Error> {
        self.call(|node| async move { node.status().await }).await
    }
}
