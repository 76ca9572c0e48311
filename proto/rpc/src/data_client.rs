//! Client of a remote node's service.
//!
//! It has three connections, so that small messages do not wait behind large ones in a socket's buffer: one for small
//! writes and orders, one for scans, one for large writes. Each is opened at its first use.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use partita_proto::Error;
use partita_proto::catalog_history::CatalogHistory;
use partita_proto::id::{Epoch, NodeId, PartitionId, ReplicaId, TableId};
use partita_proto::materialized::{CaptureOrder, Changes, ChangesRequest};
use partita_proto::range::Bound;
use partita_proto::reshape::{Reshape, Reshaped};
use partita_proto::schema::TableSchema;
use partita_proto::service::{
    DataService, FragmentRequest, FragmentService, KeyOrder, PartitionSpec, ReplicaStatus,
    RequestId, RowStream, ScanReply, ScanRequest, ScanStats, WriteReply, WriteRequest,
};
use partita_proto::wire::pb::data_client::DataClient as Generated;
use partita_proto::wire::{Wire, pb};
use partita_tls::{Links, Role};
use tokio_util::task::AbortOnDropHandle;
use tonic::metadata::{Ascii, Binary, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use crate::channel::channel;
use crate::frames::{Rows, Source};
use crate::status::{Peer, from_status};
use crate::{CATALOG_KEY, MESSAGE_BYTES_MAX, NODE_KEY};

/// Bytes of rows above which a write is large. Smaller ones before another small one cost only microseconds.
const LARGE_BYTES: usize = 128 << 10;
/// Maximum bytes of rows in a message, with room for the rest of a write.
const ROWS_BYTES_MAX: usize = MESSAGE_BYTES_MAX - (1 << 10);
/// Maximum streams of a scan. A request cannot name more.
const STREAMS_MAX: u32 = 1024;

/// Client of one node at one address.
#[derive(Clone)]
pub struct DataClient {
    peer: Arc<Peer>,
    node: MetadataValue<Ascii>,
    small: Generated<Channel>,
    scans: Generated<Channel>,
    large: Generated<Channel>,
    /// History of the catalog on which orders are based, if they carry it.
    catalog: Option<MetadataValue<Binary>>,
}

impl DataClient {
    /// A client of a node that listens at `host:port`. Connects at its first use. Must be called in a tokio runtime.
    #[must_use]
    pub fn new(links: &Links, node: NodeId, address: &str) -> Self {
        let client = || {
            Generated::new(channel(links, Role::Datanode, address))
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX)
        };
        Self {
            peer: Arc::new(Peer { node: Some(node), address: address.to_owned() }),
            node: node.0.into(),
            small: client(),
            scans: client(),
            large: client(),
            catalog: None,
        }
    }

    /// The same client, whose orders carry the history of their catalog.
    #[must_use]
    pub fn ordering(&self, catalog: &CatalogHistory) -> Self {
        let catalog = MetadataValue::from_bytes(&catalog.encode_wire());
        Self { catalog: Some(catalog), ..self.clone() }
    }

    /// Address to which it connects.
    pub(crate) fn address(&self) -> &str {
        &self.peer.address
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert(NODE_KEY, self.node.clone());
        request
    }

    /// A request that changes the node's state.
    fn order<T>(&self, message: T) -> Request<T> {
        let mut request = self.request(message);
        if let Some(catalog) = &self.catalog {
            request.metadata_mut().insert_bin(CATALOG_KEY, catalog.clone());
        }
        request
    }

    async fn statuses(&self, series: bool, measures: bool) -> Result<Vec<ReplicaStatus>, Error> {
        let request = self.request(pb::StatusRequest { series, measures });
        let reply = self.small.clone().status(request).await;
        self.answer(reply)?.replicas.into_iter().map(ReplicaStatus::from_wire).collect()
    }

    fn answer<T>(&self, result: Result<Response<T>, Status>) -> Result<T, Error> {
        result.map(Response::into_inner).map_err(|status| from_status(&self.peer, status))
    }

    /// Requests a stream at once, even if it is read later: it waits on the other side for a short time only.
    fn fetch(&self, scan: u64, stream: u32) -> Source {
        let request = self.request(pb::FetchRequest { scan, stream });
        let mut client = self.scans.clone();
        let response = async move { client.fetch(request).await.map(Response::into_inner) };
        Source::Asked(AbortOnDropHandle::new(tokio::spawn(response)))
    }

    /// Builds a scan's reply from the frames of the answer.
    async fn reply(&self, mut frames: Streaming<pb::ScanFrame>) -> Result<ScanReply, Error> {
        let header = self.header(&mut frames).await?;
        let stats = Arc::new(ScanStats::default());
        let remaining = (1..header.streams).map(|stream| self.fetch(header.scan, stream));
        let streams = std::iter::once(Source::Open(Box::new(frames)))
            .take(header.streams as usize)
            .chain(remaining)
            .map(|source| -> RowStream {
                Rows::new(source, Arc::clone(&stats), Arc::clone(&self.peer)).boxed()
            })
            .collect();
        let (descending, nulls_apart) = (header.descending, header.nulls_apart);
        let order = header.sorted.then_some(KeyOrder { descending, nulls_apart });
        Ok(ScanReply { streams, order, stats, index: header.index })
    }

    async fn header(&self, frames: &mut Streaming<pb::ScanFrame>) -> Result<pb::ScanHeader, Error> {
        let first = frames.message().await.map_err(|status| from_status(&self.peer, status))?;
        match first.and_then(|frame| frame.header) {
            Some(header) if header.streams <= STREAMS_MAX => Ok(header),
            Some(header) => {
                Err(Error::Corrupted(format!("{} sent {} streams", self.peer, header.streams)))
            }
            None => Err(Error::Corrupted(format!("{} sent a scan without header", self.peer))),
        }
    }
}

#[async_trait]
impl FragmentService for DataClient {
    async fn run(&self, request: FragmentRequest) -> Result<ScanReply, Error> {
        let frames = self.scans.clone().run(self.request(request.to_wire()?)).await;
        self.reply(self.answer(frames)?).await
    }
}

#[async_trait]
impl DataService for DataClient {
    async fn write(&self, request: WriteRequest) -> Result<WriteReply, Error> {
        let message = request.to_wire()?;
        // The message contains the rows now.
        drop(request);
        let bytes = message.rows.len();
        if bytes > ROWS_BYTES_MAX {
            return Err(Error::InvalidInput(format!(
                "a write has {bytes} bytes of rows, more than {ROWS_BYTES_MAX}"
            )));
        }
        let client = if bytes > LARGE_BYTES { &self.large } else { &self.small };
        let reply = client.clone().write(self.request(message)).await;
        self.answer(reply).and_then(WriteReply::from_wire)
    }

    async fn scan(&self, request: ScanRequest) -> Result<ScanReply, Error> {
        let frames = self.scans.clone().scan(self.request(request.to_wire()?)).await;
        self.reply(self.answer(frames)?).await
    }

    async fn open_partition(&self, spec: PartitionSpec) -> Result<(), Error> {
        let reply = self.small.clone().open_partition(self.order(spec.to_wire())).await;
        self.answer(reply).map(drop)
    }

    async fn drop_partition(
        &self,
        partition: PartitionId,
        replica: ReplicaId,
    ) -> Result<(), Error> {
        let order = pb::DropOrder { partition: partition.0, replica: replica.0 };
        let reply = self.small.clone().drop_partition(self.order(order)).await;
        self.answer(reply).map(drop)
    }

    async fn reconfigure(
        &self,
        partition: PartitionId,
        voters: BTreeMap<ReplicaId, NodeId>,
    ) -> Result<(), Error> {
        let voters = voters
            .into_iter()
            .map(|(replica, node)| pb::Replica { replica: replica.0, node: node.0 })
            .collect();
        let order = pb::ReconfigureOrder { partition: partition.0, voters };
        let reply = self.small.clone().reconfigure(self.order(order)).await;
        self.answer(reply).map(drop)
    }

    async fn transfer_leader(&self, partition: PartitionId, node: NodeId) -> Result<(), Error> {
        let order = pb::TransferLeader { partition: partition.0, to: node.0 };
        let reply = self.small.clone().transfer_leader(self.order(order)).await;
        self.answer(reply).map(drop)
    }

    async fn reshape(&self, order: Reshape) -> Result<Reshaped, Error> {
        let reply = self.small.clone().reshape(self.order(order.to_wire())).await;
        Reshaped::from_wire(self.answer(reply)?)
    }

    async fn middle_key(&self, partition: PartitionId) -> Result<Option<Bound>, Error> {
        let order = pb::PartitionOrder { partition: partition.0 };
        let reply = self.small.clone().middle_key(self.request(order)).await;
        self.answer(reply)?.key.map(Bound::from_wire).transpose()
    }

    async fn capture(
        &self,
        partition: PartitionId,
        epoch: Epoch,
        order: CaptureOrder,
    ) -> Result<u64, Error> {
        let message = pb::CaptureRequest {
            partition: partition.0,
            epoch: epoch.0,
            capture: Some(order.to_wire()),
        };
        let reply = self.small.clone().capture(self.request(message)).await;
        Ok(self.answer(reply)?.index)
    }

    async fn changes(&self, request: ChangesRequest) -> Result<Changes, Error> {
        let reply = self.scans.clone().changes(self.request(request.to_wire())).await;
        Changes::from_wire(self.answer(reply)?)
    }

    async fn fill(&self, copy: TableId, scan: ScanRequest) -> Result<(u64, ScanReply), Error> {
        let message = pb::FillRequest { copy: copy.0, scan: Some(scan.to_wire()?) };
        let frames = self.scans.clone().fill(self.request(message)).await;
        let reply = self.reply(self.answer(frames)?).await?;
        Ok((reply.index, reply))
    }

    async fn truncate_partition(&self, partition: PartitionId, id: RequestId) -> Result<(), Error> {
        let order = pb::TruncateOrder { partition: partition.0, id: Some(id.to_wire()) };
        let reply = self.small.clone().truncate_partition(self.order(order)).await;
        self.answer(reply).map(drop)
    }

    async fn alter_partition(
        &self,
        partition: PartitionId,
        schema: Arc<TableSchema>,
    ) -> Result<(), Error> {
        let order = pb::AlterOrder { partition: partition.0, schema: Some(schema.to_wire()) };
        let reply = self.small.clone().alter_partition(self.order(order)).await;
        self.answer(reply).map(drop)
    }

    async fn flush_partition(&self, partition: PartitionId) -> Result<(), Error> {
        let order = pb::PartitionOrder { partition: partition.0 };
        let reply = self.small.clone().flush_partition(self.request(order)).await;
        self.answer(reply).map(drop)
    }

    async fn compact_partition(&self, partition: PartitionId) -> Result<(), Error> {
        let order = pb::PartitionOrder { partition: partition.0 };
        let reply = self.small.clone().compact_partition(self.request(order)).await;
        self.answer(reply).map(drop)
    }

    async fn status(&self) -> Result<Vec<ReplicaStatus>, Error> {
        self.statuses(false, false).await
    }

    async fn series_status(&self) -> Result<Vec<ReplicaStatus>, Error> {
        self.statuses(true, false).await
    }

    async fn measured_status(&self) -> Result<Vec<ReplicaStatus>, Error> {
        self.statuses(false, true).await
    }
}
