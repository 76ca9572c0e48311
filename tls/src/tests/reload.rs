//! Files that change while connections are open.

use std::time::Duration;

use rustls::pki_types::CertificateDer;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{Reloading, TlsError};

/// A server's configuration that follows the files of a certificate.
fn following(member: &Path) -> Reloading<Arc<ServerConfig>> {
    let member = member.to_owned();
    let read = move || Identity::load(&member);
    let build = |identity: &Identity| -> Result<_, TlsError> {
        identity.server_config(&Role::ALL, &TlsOptions::default())
    };
    Reloading::new(read, build).unwrap()
}

/// Opens a connection to a server that sends back what it gets.
async fn open(config: Arc<ServerConfig>, client: &ClientTls) -> TlsStream<DuplexStream> {
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    tokio::spawn(async move {
        let stream = TlsAcceptor::from(config).accept(far).await.unwrap();
        let (mut reader, mut writer) = tokio::io::split(stream);
        tokio::io::copy(&mut reader, &mut writer).await
    });
    client.connect(near).await.unwrap()
}

fn certificate_of(stream: &TlsStream<DuplexStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0].clone()
}

#[tokio::test]
async fn new_connections_have_the_new_certificate_and_open_ones_stay() {
    let dir = authority();
    let member = issue(dir.path(), &request(Role::Meta, "m1")).unwrap();
    let client = client(&identity(dir.path(), Role::Datanode, "d1"), Role::Meta);
    let reloading = following(&member);
    let mut first = open(reloading.current(), &client).await;
    ask(&mut first).await.unwrap();
    assert!(!reloading.reload().unwrap());

    issue(dir.path(), &request(Role::Meta, "m1")).unwrap();
    assert!(reloading.reload().unwrap());
    assert!(!reloading.reload().unwrap());
    let mut second = open(reloading.current(), &client).await;
    ask(&mut second).await.unwrap();
    ask(&mut first).await.unwrap();
    assert_ne!(certificate_of(&first), certificate_of(&second));
}

#[tokio::test]
async fn files_that_cannot_be_used_change_nothing() {
    let dir = authority();
    let member = issue(dir.path(), &request(Role::Meta, "m1")).unwrap();
    let other = issue(dir.path(), &request(Role::Meta, "m2")).unwrap();
    let reloading = following(&member);
    let before = reloading.current();
    // Halfway through a replacement: the certificate does not belong to the key.
    std::fs::copy(other.join("cert.pem"), member.join("cert.pem")).unwrap();
    assert!(message(reloading.reload()).contains("does not match"));
    assert!(Arc::ptr_eq(&before, &reloading.current()));
    std::fs::copy(other.join("key.pem"), member.join("key.pem")).unwrap();
    assert!(reloading.reload().unwrap());
    assert!(!Arc::ptr_eq(&before, &reloading.current()));
}

#[tokio::test]
async fn a_task_looks_at_the_files_until_it_is_stopped() {
    let dir = authority();
    let member = issue(dir.path(), &request(Role::Meta, "m1")).unwrap();
    let reloading = Arc::new(following(&member));
    let mut changes = reloading.subscribe();
    let stop = CancellationToken::new();
    let ticks = tokio::time::interval(Duration::from_millis(5));
    let task = tokio::spawn(Arc::clone(&reloading).follow(ticks, stop.clone()));
    for _ in 0..3 {
        issue(dir.path(), &request(Role::Meta, "m1")).unwrap();
        tokio::time::timeout(Duration::from_secs(30), changes.changed()).await.unwrap().unwrap();
    }
    stop.cancel();
    task.await.unwrap();
}
