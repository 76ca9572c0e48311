//! `partita health`: whether a process serves; for healthchecks of containers.

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// How long the answer may take.
const WAIT: Duration = Duration::from_secs(3);

/// Options of `partita health`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The port for peers of a meta or a datanode, or with --http the HTTP port of a frontend.
    #[arg(long)]
    connect: String,
    /// Ask for `/health` over HTTP.
    #[arg(long)]
    http: bool,
}

/// Asks once.
///
/// # Errors
/// When there is no answer in time, or not the right one.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let asked = async {
        if options.http {
            ask_http(&options.connect).await
        } else {
            ask_grpc(&options.connect).await
        }
    };
    let asked = tokio::time::timeout(WAIT, asked).await;
    asked.with_context(|| format!("{} did not answer", options.connect))?
}

async fn ask_grpc(address: &str) -> anyhow::Result<()> {
    let channel = Endpoint::from_shared(format!("http://{address}"))?.connect().await?;
    let request = HealthCheckRequest { service: String::new() };
    let answer = HealthClient::new(channel).check(request).await?.into_inner();
    if answer.status() != ServingStatus::Serving {
        bail!("{address} does not serve");
    }
    Ok(())
}

async fn ask_http(address: &str) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = [0_u8; 64];
    let read = stream.read(&mut answer).await?;
    if !answer[..read].starts_with(b"HTTP/1.1 200") {
        bail!("{address} does not serve");
    }
    Ok(())
}
