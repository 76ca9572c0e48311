//! Meta's service, over gRPC.

use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use futures::{Stream, StreamExt, stream};
use partita_proto::Error;
use partita_proto::blame::BlameReport;
use partita_proto::generation::Renewal;
use partita_proto::id::TableId;
use partita_proto::load::{HeatmapRequest, LoadRequest};
use partita_proto::member::{Heartbeat, Registration};
use partita_proto::service::{AdminOrder, ClusterService, Ddl, RequestId};
use partita_proto::wire::pb::meta_server::{Meta, MetaServer as Generated};
use partita_proto::wire::{Wire, pb};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::MESSAGE_BYTES_MAX;
use crate::rights::{self, Caller};
use crate::status::to_status;
use crate::watcher::Watcher;

/// gRPC server of one member of meta's group.
pub struct MetaServer {
    service: Arc<dyn ClusterService>,
    stop: CancellationToken,
}

impl MetaServer {
    /// The tonic service of a meta, for [`serve`](crate::serve). At the stop its watchers are ended, so that they turn
    /// to another meta.
    #[must_use]
    pub fn server(service: Arc<dyn ClusterService>, stop: CancellationToken) -> Generated<Self> {
        Generated::new(Self { service, stop })
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }
}

/// The value of a request.
fn value<T: Wire>(request: Request<T::Message>) -> Result<T, Status> {
    T::from_wire(request.into_inner()).map_err(to_status)
}

/// A mandatory part of a message.
fn required<T: Wire>(field: Option<T::Message>, part: &str) -> Result<T, Status> {
    let missing = || Error::Corrupted(format!("a request has no {part}"));
    field.ok_or_else(missing).and_then(T::from_wire).map_err(to_status)
}

#[async_trait]
impl Meta for MetaServer {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<pb::WatchFrame, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<pb::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let caller = request.extensions().get::<Caller>().copied();
        let mut request = request.into_inner();
        request.access &= rights::needs_access(caller);
        let mut watcher = Watcher::new(self.service.as_ref(), request, self.stop.clone());
        // "Not leader" is returned as the status of the call, not inside the stream.
        let first = watcher.next().await.map_err(to_status)?;
        let frames = stream::unfold(Some(watcher), |watcher| async {
            let mut watcher = watcher?;
            match watcher.next().await {
                Ok(frame) => Some((Ok(frame), Some(watcher))),
                Err(error) => Some((Err(to_status(error)), None)),
            }
        });
        Ok(Response::new(stream::iter([Ok(first)]).chain(frames).boxed()))
    }

    async fn change(
        &self,
        request: Request<pb::ChangeRequest>,
    ) -> Result<Response<pb::ChangeReply>, Status> {
        let request = request.into_inner();
        let id: RequestId = required(request.id, "identity")?;
        let ddl: Ddl = required(request.ddl, "change")?;
        let changed = self.service.change_once(id, ddl).await.map_err(to_status)?;
        let reply = pb::ChangeReply { changed: changed.changed, version: changed.version };
        Ok(Response::new(reply))
    }

    async fn register(
        &self,
        request: Request<pb::Registration>,
    ) -> Result<Response<pb::Registered>, Status> {
        let registration: Registration = value(request)?;
        let node = self.service.register(registration).await.map_err(to_status)?;
        Ok(Response::new(pb::Registered { node: node.0 }))
    }

    async fn beat(&self, request: Request<pb::Heartbeat>) -> Result<Response<pb::Done>, Status> {
        let heartbeat: Heartbeat = value(request)?;
        self.service.heartbeat(heartbeat).await.map_err(to_status)?;
        Ok(Response::new(pb::Done {}))
    }

    async fn renew(&self, request: Request<pb::Renewal>) -> Result<Response<pb::Renewed>, Status> {
        let renewal: Renewal = value(request)?;
        Ok(Response::new(self.service.renew(renewal).await.map_err(to_status)?.to_wire()))
    }

    async fn blame(&self, request: Request<pb::BlameReport>) -> Result<Response<pb::Done>, Status> {
        let report: BlameReport = value(request)?;
        self.service.blame(report).await.map_err(to_status)?;
        Ok(Response::new(pb::Done {}))
    }

    async fn standing(
        &self,
        _: Request<pb::StandingRequest>,
    ) -> Result<Response<pb::MetaStanding>, Status> {
        Ok(Response::new(self.service.standing().map_err(to_status)?.to_wire()))
    }

    async fn administer(
        &self,
        request: Request<pb::AdminOrder>,
    ) -> Result<Response<pb::Done>, Status> {
        let order: AdminOrder = value(request)?;
        self.service.administer(order).await.map_err(to_status)?;
        Ok(Response::new(pb::Done {}))
    }

    async fn load(
        &self,
        request: Request<pb::LoadRequest>,
    ) -> Result<Response<pb::LoadReport>, Status> {
        let request: LoadRequest = value(request)?;
        let report = self.service.load(request).await.map_err(to_status)?;
        Ok(Response::new(report.to_wire()))
    }

    async fn picture(
        &self,
        request: Request<pb::HeatmapRequest>,
    ) -> Result<Response<pb::Heatmap>, Status> {
        let request: HeatmapRequest = value(request)?;
        let json = self.service.heatmap(request).await.map_err(to_status)?;
        Ok(Response::new(pb::Heatmap { json }))
    }

    async fn confirm(
        &self,
        request: Request<pb::ConfirmRequest>,
    ) -> Result<Response<pb::ConfirmReply>, Status> {
        let copies = request.into_inner().copies.into_iter().map(TableId).collect();
        let states = self.service.confirm(copies).await.map_err(to_status)?;
        let states = states.iter().map(|state| state.as_ref().map_or(0, Wire::to_wire)).collect();
        Ok(Response::new(pb::ConfirmReply { states }))
    }
}
