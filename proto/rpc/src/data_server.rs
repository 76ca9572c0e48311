//! A node's service, over gRPC.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use partita_proto::Error;
use partita_proto::catalog_history::CatalogHistory;
use partita_proto::id::{Epoch, NodeId, PartitionId, ReplicaId, TableId};
use partita_proto::materialized::{CaptureOrder, ChangesRequest};
use partita_proto::reshape::Reshape;
use partita_proto::schema::TableSchema;
use partita_proto::service::{
    DataService, FragmentRequest, FragmentService, KeyOrder, PartitionSpec, RequestId, ScanReply,
    ScanRequest, WriteRequest,
};
use partita_proto::wire::pb::data_server::{Data, DataServer as Generated};
use partita_proto::wire::{Wire, pb};
use tonic::{Request, Response, Status};

use crate::frames::Frames;
use crate::parked::Parked;
use crate::status::to_status;
use crate::{CATALOG_KEY, MESSAGE_BYTES_MAX, NODE_KEY};

/// Time for which streams of a scan wait to be fetched.
const IDLE: Duration = Duration::from_secs(30);

/// gRPC server of a node.
pub struct DataServer {
    node: NodeId,
    service: Arc<dyn DataService>,
    /// `None`: parts of queries are not run here.
    fragments: Option<Arc<dyn FragmentService>>,
    parked: Arc<Parked>,
}

impl DataServer {
    /// The tonic service of a node, for [`serve`](crate::serve). It refuses requests for another node.
    #[must_use]
    pub fn server(node: NodeId, service: Arc<dyn DataService>) -> Generated<Self> {
        Self::with_parked(node, service, None, Parked::new(IDLE))
    }

    /// The same, for a node that also runs parts of queries.
    #[must_use]
    pub fn with_fragments(
        node: NodeId,
        service: Arc<dyn DataService>,
        fragments: Arc<dyn FragmentService>,
    ) -> Generated<Self> {
        Self::with_parked(node, service, Some(fragments), Parked::new(IDLE))
    }

    pub(crate) fn with_parked(
        node: NodeId,
        service: Arc<dyn DataService>,
        fragments: Option<Arc<dyn FragmentService>>,
        parked: Arc<Parked>,
    ) -> Generated<Self> {
        Generated::new(Self { node, service, fragments, parked })
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// The message of a request for this node, or for any node.
    fn open<T>(&self, request: Request<T>) -> Result<T, Status> {
        if let Some(target) = request.metadata().get(NODE_KEY) {
            let number = target.to_str().ok().and_then(|target| target.parse().ok());
            if number != Some(self.node.0) {
                return Err(to_status(Error::Unavailable(format!(
                    "this is node {}, but the request is for node {}",
                    self.node,
                    target.to_str().unwrap_or("?")
                ))));
            }
        }
        Ok(request.into_inner())
    }

    /// The message of an order for this node, from a catalog that the node follows.
    async fn order<T>(&self, request: Request<T>) -> Result<T, Status> {
        let catalog = catalog_history(&request).map_err(to_status)?;
        let order = self.open(request)?;
        self.service.recognize(catalog.as_ref()).await.map_err(to_status)?;
        Ok(order)
    }
}

/// The history of an order's catalog, if the order carries it.
fn catalog_history<T>(request: &Request<T>) -> Result<Option<CatalogHistory>, Error> {
    let Some(value) = request.metadata().get_bin(CATALOG_KEY) else { return Ok(None) };
    let bytes = value.to_bytes().map_err(|error| {
        Error::Corrupted(format!("an order has a malformed catalog history: {error}"))
    })?;
    CatalogHistory::decode_wire(bytes).map(Some)
}

impl DataServer {
    /// The frames that answer a request for rows.
    fn frames(&self, reply: ScanReply) -> Answer<FrameStream> {
        let count = u32::try_from(reply.streams.len()).unwrap_or(u32::MAX);
        let mut streams = reply.streams.into_iter();
        let first = streams.next();
        let waiting = self.parked.park(streams.collect(), &reply.stats).map_err(to_status)?;
        let order = reply.order.unwrap_or(KeyOrder::ASCENDING);
        let header = pb::ScanHeader {
            scan: waiting.scan(),
            streams: count,
            sorted: reply.order.is_some(),
            index: reply.index,
            descending: order.descending,
            nulls_apart: order.nulls_apart,
        };
        Ok(Response::new(Frames::first(header, waiting, first, reply.stats).boxed()))
    }
}

type FrameStream = BoxStream<'static, Result<pb::ScanFrame, Status>>;
type Answer<T> = Result<Response<T>, Status>;

fn done(result: Result<(), Error>) -> Answer<pb::Done> {
    result.map(|()| Response::new(pb::Done {})).map_err(to_status)
}

/// A mandatory part of a message.
fn required<T: Wire>(field: Option<T::Message>, part: &str) -> Result<T, Status> {
    let missing = || Error::Corrupted(format!("a request has no {part}"));
    field.ok_or_else(missing).and_then(T::from_wire).map_err(to_status)
}

#[async_trait]
impl Data for DataServer {
    type ScanStream = FrameStream;
    type RunStream = FrameStream;
    type FetchStream = FrameStream;
    type FillStream = FrameStream;

    async fn write(&self, request: Request<pb::WriteRequest>) -> Answer<pb::WriteReply> {
        let request = WriteRequest::from_wire(self.open(request)?).map_err(to_status)?;
        let reply = self.service.write(request).await.map_err(to_status)?;
        Ok(Response::new(reply.to_wire()))
    }

    async fn scan(&self, request: Request<pb::ScanRequest>) -> Answer<FrameStream> {
        let request = ScanRequest::from_wire(self.open(request)?).map_err(to_status)?;
        self.frames(self.service.scan(request).await.map_err(to_status)?)
    }

    async fn run(&self, request: Request<pb::FragmentRequest>) -> Answer<FrameStream> {
        let request = FragmentRequest::from_wire(self.open(request)?).map_err(to_status)?;
        let Some(fragments) = &self.fragments else {
            let feature = format!("running a part of a query at node {}", self.node);
            return Err(to_status(Error::Unsupported(feature)));
        };
        self.frames(fragments.run(request).await.map_err(to_status)?)
    }

    async fn fetch(&self, request: Request<pb::FetchRequest>) -> Answer<FrameStream> {
        let request = self.open(request)?;
        let fetched = self.parked.fetch(request.scan, request.stream);
        let (rows, stats) = fetched.map_err(to_status)?;
        Ok(Response::new(Frames::other(rows, stats).boxed()))
    }

    async fn open_partition(&self, request: Request<pb::PartitionSpec>) -> Answer<pb::Done> {
        let spec = PartitionSpec::from_wire(self.order(request).await?).map_err(to_status)?;
        done(self.service.open_partition(spec).await)
    }

    async fn drop_partition(&self, request: Request<pb::DropOrder>) -> Answer<pb::Done> {
        let order = self.order(request).await?;
        let (partition, replica) = (PartitionId(order.partition), ReplicaId(order.replica));
        done(self.service.drop_partition(partition, replica).await)
    }

    async fn reconfigure(&self, request: Request<pb::ReconfigureOrder>) -> Answer<pb::Done> {
        let order = self.order(request).await?;
        let count = order.voters.len();
        let voters: std::collections::BTreeMap<_, _> = order
            .voters
            .into_iter()
            .map(|voter| (ReplicaId(voter.replica), NodeId(voter.node)))
            .collect();
        if voters.len() != count {
            let error = Error::Corrupted("a replica is listed twice as voter".to_owned());
            return done(Err(error));
        }
        done(self.service.reconfigure(PartitionId(order.partition), voters).await)
    }

    async fn transfer_leader(&self, request: Request<pb::TransferLeader>) -> Answer<pb::Done> {
        let order = self.order(request).await?;
        let (partition, node) = (PartitionId(order.partition), NodeId(order.to));
        done(self.service.transfer_leader(partition, node).await)
    }

    async fn reshape(&self, request: Request<pb::ReshapeOrder>) -> Answer<pb::Reshaped> {
        let order = Reshape::from_wire(self.order(request).await?).map_err(to_status)?;
        let reshaped = self.service.reshape(order).await.map_err(to_status)?;
        Ok(Response::new(reshaped.to_wire()))
    }

    async fn middle_key(&self, request: Request<pb::PartitionOrder>) -> Answer<pb::MiddleKeyReply> {
        let order = self.open(request)?;
        let key = self.service.middle_key(PartitionId(order.partition)).await.map_err(to_status)?;
        Ok(Response::new(pb::MiddleKeyReply { key: key.map(|key| key.to_wire()) }))
    }

    async fn capture(&self, request: Request<pb::CaptureRequest>) -> Answer<pb::CaptureReply> {
        let request = self.open(request)?;
        let (partition, epoch) = (PartitionId(request.partition), Epoch(request.epoch));
        let order: CaptureOrder = required(request.capture, "change of a capture")?;
        let captured = self.service.capture(partition, epoch, order).await;
        Ok(Response::new(pb::CaptureReply { index: captured.map_err(to_status)? }))
    }

    async fn changes(&self, request: Request<pb::ChangesRequest>) -> Answer<pb::ChangesReply> {
        let request = ChangesRequest::from_wire(self.open(request)?).map_err(to_status)?;
        let changes = self.service.changes(request).await.map_err(to_status)?;
        Ok(Response::new(changes.to_wire().map_err(to_status)?))
    }

    async fn fill(&self, request: Request<pb::FillRequest>) -> Answer<FrameStream> {
        let request = self.open(request)?;
        let missing = || to_status(Error::Corrupted("a request has no scan".to_owned()));
        let scan = ScanRequest::from_wire(request.scan.ok_or_else(missing)?).map_err(to_status)?;
        let filled = self.service.fill(TableId(request.copy), scan).await;
        let (index, reply) = filled.map_err(to_status)?;
        self.frames(ScanReply { index, ..reply })
    }

    async fn truncate_partition(&self, request: Request<pb::TruncateOrder>) -> Answer<pb::Done> {
        let order = self.order(request).await?;
        let id: RequestId = required(order.id, "identity")?;
        done(self.service.truncate_partition(PartitionId(order.partition), id).await)
    }

    async fn alter_partition(&self, request: Request<pb::AlterOrder>) -> Answer<pb::Done> {
        let order = self.order(request).await?;
        let schema: TableSchema = required(order.schema, "schema")?;
        done(self.service.alter_partition(PartitionId(order.partition), Arc::new(schema)).await)
    }

    async fn flush_partition(&self, request: Request<pb::PartitionOrder>) -> Answer<pb::Done> {
        let order = self.open(request)?;
        done(self.service.flush_partition(PartitionId(order.partition)).await)
    }

    async fn compact_partition(&self, request: Request<pb::PartitionOrder>) -> Answer<pb::Done> {
        let order = self.open(request)?;
        done(self.service.compact_partition(PartitionId(order.partition)).await)
    }

    async fn status(&self, request: Request<pb::StatusRequest>) -> Answer<pb::StatusReply> {
        let replicas = match self.open(request)? {
            pb::StatusRequest { series: true, .. } => self.service.series_status().await,
            pb::StatusRequest { measures: true, .. } => self.service.measured_status().await,
            pb::StatusRequest { series: false, measures: false } => self.service.status().await,
        };
        let replicas = replicas.map_err(to_status)?;
        let replicas = replicas.iter().map(Wire::to_wire).collect();
        Ok(Response::new(pb::StatusReply { replicas }))
    }
}
