//! Doors: clients without certificates, and with them.

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::*;
use crate::options::provider;
use crate::{Door, DoorFiles, common_name, files};

const HOST: &str = "db.example.com";

fn roots(dir: &Path) -> RootCertStore {
    files::roots(&files::authorities(&dir.join("ca.pem")).unwrap()).unwrap()
}

/// A client of a door: with the certificate of a directory, or without one.
fn client(roots: RootCertStore, member: Option<&Path>) -> TlsConnector {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(rustls::ALL_VERSIONS)
        .unwrap()
        .with_root_certificates(roots);
    let config = match member {
        Some(member) => {
            let (chain, key) =
                files::pair(&member.join("cert.pem"), &member.join("key.pem")).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    TlsConnector::from(Arc::new(config))
}

/// Connects to a host: the common name that the door sees.
async fn visit(
    door: &Door,
    client: &TlsConnector,
    host: &'static str,
) -> std::io::Result<Option<String>> {
    let config = door.server_config(&TlsOptions::default()).unwrap();
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let visited = async {
        let mut stream = client.connect(ServerName::try_from(host).unwrap(), near).await?;
        ask(&mut stream).await
    };
    let welcomed = async {
        let mut stream = TlsAcceptor::from(config).accept(far).await?;
        let mut word = [0; 5];
        stream.read_exact(&mut word).await?;
        stream.write_all(&word).await?;
        stream.flush().await?;
        let certificates = stream.get_ref().1.peer_certificates();
        Ok::<_, std::io::Error>(certificates.and_then(|chain| chain.first()).and_then(common_name))
    };
    let (visited, welcomed) = tokio::join!(visited, welcomed);
    visited?;
    welcomed
}

/// A door with a certificate for `HOST`, and with client authorities if told so.
fn door(dir: &Path, client_authorities: Option<&Path>) -> Door {
    let request = Request { hosts: vec![HOST.to_owned()], ..request(Role::Frontend, "frontend1") };
    let member = issue(dir, &request).unwrap();
    let files = DoorFiles {
        certificate: member.join("cert.pem"),
        key: member.join("key.pem"),
        client_authorities: client_authorities.map(|dir| dir.join("ca.pem")),
    };
    Door::load(&files).unwrap()
}

#[tokio::test]
async fn a_door_proves_its_host_and_asks_for_nothing() {
    let dir = authority();
    let door = door(dir.path(), None);
    assert!(door.certificate().is_some());
    let client = client(roots(dir.path()), None);
    assert_eq!(visit(&door, &client, HOST).await.unwrap(), None);
    assert!(visit(&door, &client, "other.example.com").await.is_err());
}

#[tokio::test]
async fn a_door_with_client_authorities_learns_names_and_takes_clients_without() {
    let (dir, users, other) = (authority(), authority(), authority());
    let door = door(dir.path(), Some(users.path()));
    let alice = issue(users.path(), &request(Role::Admin, "alice")).unwrap();
    let mallory = issue(other.path(), &request(Role::Admin, "alice")).unwrap();
    let seen = visit(&door, &client(roots(dir.path()), Some(&alice)), HOST).await.unwrap();
    assert_eq!(seen.as_deref(), Some("alice"));
    let seen = visit(&door, &client(roots(dir.path()), None), HOST).await.unwrap();
    assert_eq!(seen, None);
    assert!(visit(&door, &client(roots(dir.path()), Some(&mallory)), HOST).await.is_err());
}
