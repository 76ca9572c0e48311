//! Health of a process: the failures of its parts, the gRPC health check, and its client `partita health`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use hyper_util::rt::TokioIo;
use partita_datanode::Datanode;
use partita_meta::Meta;
use partita_proto::health::{Ailment, Health};
use partita_raft::Host;
use partita_tls::{Links, Role};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::codegen::http::Uri;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::{Health as HealthRpc, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::certificates;
use crate::client::Tls;

/// Timeout of `partita health`.
const WAIT: Duration = Duration::from_secs(3);
/// Metadata key of the answer that names the failed parts and the reasons.
const AILMENTS_KEY: &str = "partita-ailments-bin";
/// Maximum bytes of its value: a peer accepts 16 KiB of metadata.
const AILMENTS_BYTES_MAX: usize = 4096;
/// Maximum bytes that are read of an HTTP answer.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// First bytes of a client of HTTP/2: the preface, and settings without a value.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// First bytes of an alert of TLS.
const ALERT: &[u8] = &[0x15, 0x03];

/// The parts of this process that may fail.
pub(crate) struct Parts {
    pub(crate) host: Arc<Host>,
    pub(crate) meta: Option<Arc<Meta>>,
    pub(crate) datanode: Option<Arc<Datanode>>,
}

impl Health for Parts {
    fn ailments(&self) -> Vec<Ailment> {
        let log = self.host.log_failure().map(|error| Ailment::new("log", error.to_string()));
        let meta = self.meta.as_ref().and_then(|meta| meta.failure());
        let meta = meta.map(|failure| Ailment::new("meta", failure));
        let partitions = self.datanode.iter().flat_map(|datanode| datanode.ailments());
        log.into_iter().chain(meta).chain(partitions).collect()
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Parts")
    }
}

/// The health check for peers: checks the parts at each call.
pub(crate) fn server(health: Arc<dyn Health>) -> HealthServer<impl HealthRpc> {
    HealthServer::new(Checks(health))
}

struct Checks(Arc<dyn Health>);

#[tonic::async_trait]
impl HealthRpc for Checks {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.into_inner().service;
        if !service.is_empty() {
            return Err(Status::not_found(format!("service \"{service}\" does not exist")));
        }
        let ailments = self.0.ailments();
        let status = match ailments.is_empty() {
            true => ServingStatus::Serving,
            false => ServingStatus::NotServing,
        };
        let mut answer = Response::new(HealthCheckResponse { status: status.into() });
        if !ailments.is_empty() {
            let mut text = lines(&ailments).into_bytes();
            text.truncate(AILMENTS_BYTES_MAX);
            answer.metadata_mut().insert_bin(AILMENTS_KEY, MetadataValue::from_bytes(&text));
        }
        Ok(answer)
    }

    type WatchStream = futures::stream::Pending<Result<HealthCheckResponse, Status>>;

    async fn watch(
        &self,
        _request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("watching health is not supported; call Check"))
    }
}

/// One ailment per line.
fn lines(ailments: &[Ailment]) -> String {
    ailments.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Options of `partita health`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Peer port of a meta or a datanode, or with --http the HTTP port of a frontend.
    #[arg(long)]
    connect: String,
    /// Request `/health` over HTTP.
    #[arg(long)]
    http: bool,
    #[command(flatten)]
    certificates: certificates::Options,
    #[command(flatten)]
    tls: Tls,
}

/// Requests the health once.
///
/// # Errors
/// If there is no answer in time, or a part of the process has failed; the error names the part.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let check = async {
        if options.http {
            return ask_http(&options.connect, &options.tls).await;
        }
        let links = options.certificates.links(None)?;
        let outcome = ask_peer(&options.connect, &links).await;
        // To HTTP/2 an alert of TLS is a frame of a wrong size.
        if outcome.is_err() && links.role().is_none() && speaks_tls(&options.connect).await {
            bail!(
                "{} speaks TLS: use --certs, or --cluster-ca, --cluster-cert and --cluster-key",
                options.connect
            );
        }
        outcome
    };
    let outcome = tokio::time::timeout(WAIT, check).await;
    outcome.with_context(|| format!("{} did not answer", options.connect))?
}

/// Returns true if a server answers a client without TLS by an alert of TLS.
async fn speaks_tls(address: &str) -> bool {
    let first_bytes = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(PREFACE).await?;
        let mut bytes = [0; ALERT.len()];
        stream.read_exact(&mut bytes).await?;
        Ok::<_, std::io::Error>(bytes)
    };
    first_bytes.await.is_ok_and(|bytes| bytes == ALERT)
}

/// Asks a server of the caller's own role, or with an operator's certificate one of any role.
async fn ask_peer(address: &str, links: &Links) -> anyhow::Result<()> {
    let roles: &[Role] = match links.role() {
        None | Some(Role::Meta) => &[Role::Meta],
        Some(Role::Datanode) => &[Role::Datanode],
        Some(Role::Frontend | Role::Admin) => &[Role::Meta, Role::Datanode],
    };
    let mut failure = None;
    for role in roles {
        match connect(address, links, *role).await {
            Ok(channel) => return ask_grpc(address, channel).await,
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.map_or_else(|| anyhow!("no role to ask"), anyhow::Error::new))
}

async fn connect(
    address: &str,
    links: &Links,
    role: Role,
) -> Result<Channel, tonic::transport::Error> {
    let (target, links) = (address.to_owned(), links.clone());
    let dialer = tower::service_fn(move |_: Uri| {
        let (target, links) = (target.clone(), links.clone());
        async move {
            let stream = TcpStream::connect(target).await?;
            links.connect(stream, role).await.map(TokioIo::new)
        }
    });
    Endpoint::from_shared(format!("http://{address}"))?.connect_with_connector(dialer).await
}

async fn ask_grpc(address: &str, channel: Channel) -> anyhow::Result<()> {
    let request = HealthCheckRequest { service: String::new() };
    let answer = HealthClient::new(channel).check(request).await?;
    if answer.get_ref().status() != ServingStatus::Serving {
        let ailments = answer.metadata().get_bin(AILMENTS_KEY);
        let ailments = ailments.and_then(|bytes| bytes.to_bytes().ok()).unwrap_or_default();
        bail!("{address} does not serve\n{}", String::from_utf8_lossy(&ailments));
    }
    Ok(())
}

async fn ask_http(address: &str, tls: &Tls) -> anyhow::Result<()> {
    let uri = tls.url(address, "/health")?.parse()?;
    let mut stream = tls.connector(b"http/1.1")?.open(uri).await?;
    let request = format!("GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
    if answer.starts_with(ALERT) {
        bail!("{address} speaks TLS: use --tls-ca with the authorities of its certificate");
    }
    if !answer.starts_with(b"HTTP/1.1 200") {
        let text = String::from_utf8_lossy(&answer);
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        bail!("{address} does not serve\n{body}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// The address of a server that answers one client.
    async fn answering(answer: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_exact(&mut [0; PREFACE.len()]).await.unwrap();
            stream.write_all(answer).await.unwrap();
        });
        address
    }

    #[tokio::test]
    async fn a_server_that_speaks_tls_is_told_from_others() {
        assert!(speaks_tls(&answering(b"\x15\x03\x03\0\x02\x02\x0a").await).await);
        assert!(!speaks_tls(&answering(b"\0\0\x06\x04\0\0\0\0\0\0\x05\0\0\x40\0").await).await);
        assert!(!speaks_tls(&answering(b"").await).await);
    }
}
