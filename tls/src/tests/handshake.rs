//! Who may talk to whom.

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::*;
use crate::files;
use crate::issue::issue_between;
use crate::options::provider;

/// A client as the cluster's own are, but of one version, and without a certificate unless a directory has one.
fn foreign_client(
    authorities: &Path,
    member: Option<&Path>,
    version: &'static rustls::SupportedProtocolVersion,
) -> TlsConnector {
    let roots = files::roots(&files::authorities(authorities).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[version])
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

async fn meet_foreign(
    config: &Arc<ServerConfig>,
    client: &TlsConnector,
) -> (std::io::Result<Option<Role>>, std::io::Result<()>) {
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let asked = async {
        let name = ServerName::try_from("meta.partita.internal").unwrap();
        let mut stream = client.connect(name, near).await?;
        ask(&mut stream).await
    };
    tokio::join!(answer(Arc::clone(config), far), asked)
}

#[tokio::test]
async fn each_role_reaches_each_server_that_allows_it_and_is_known_there() {
    let dir = authority();
    for serving in [Role::Meta, Role::Datanode, Role::Frontend] {
        let config = server(&identity(dir.path(), serving, "server"), &Role::ALL);
        for role in Role::ALL {
            let asking = identity(dir.path(), role, role.as_str());
            assert_eq!(asking.role(), Some(role));
            let (seen, answered) = meet(&config, &client(&asking, serving)).await;
            answered.unwrap();
            assert_eq!(seen.unwrap(), Some(role));
        }
        std::fs::remove_dir_all(dir.path().join("server")).unwrap();
    }
}

#[tokio::test]
async fn a_client_of_another_role_is_refused() {
    let dir = authority();
    let config = server(&identity(dir.path(), Role::Meta, "m1"), &[Role::Meta, Role::Datanode]);
    for role in [Role::Frontend, Role::Admin] {
        let asking = identity(dir.path(), role, role.as_str());
        let (seen, answered) = meet(&config, &client(&asking, Role::Meta)).await;
        assert!(seen.is_err());
        assert!(message(answered).contains("accessdenied"));
    }
}

#[tokio::test]
async fn a_server_of_another_role_is_refused() {
    let dir = authority();
    let config = server(&identity(dir.path(), Role::Datanode, "d1"), &Role::ALL);
    let asking = identity(dir.path(), Role::Frontend, "f1");
    let (seen, answered) = meet(&config, &client(&asking, Role::Meta)).await;
    assert!(seen.is_err());
    let text = message(answered);
    assert!(text.contains("meta.partita.internal"), "{text}");
}

#[tokio::test]
async fn an_operator_cannot_pose_as_a_server() {
    let dir = authority();
    let config = server(&identity(dir.path(), Role::Admin, "a1"), &Role::ALL);
    let asking = identity(dir.path(), Role::Frontend, "f1");
    let (seen, answered) = meet(&config, &client(&asking, Role::Admin)).await;
    assert!(seen.is_err());
    assert!(answered.is_err());
}

#[tokio::test]
async fn another_authority_is_trusted_by_neither_end() {
    let (dir, other) = (authority(), authority());
    let config = server(&identity(dir.path(), Role::Meta, "m1"), &Role::ALL);
    let asking = identity(other.path(), Role::Datanode, "d1");
    let (seen, answered) = meet(&config, &client(&asking, Role::Meta)).await;
    assert!(seen.is_err());
    let text = message(answered);
    assert!(text.contains("unknownissuer"), "{text}");

    // A client that trusts the server, and so sends its certificate.
    let member = other.path().join("d1");
    std::fs::copy(dir.path().join("ca.pem"), member.join("ca.pem")).unwrap();
    let asking = Identity::load(&member).unwrap();
    let (seen, answered) = meet(&config, &client(&asking, Role::Meta)).await;
    assert!(message(seen).contains("unknownissuer"));
    assert!(answered.is_err());
}

#[tokio::test]
async fn a_client_without_a_certificate_is_refused() {
    let dir = authority();
    let config = server(&identity(dir.path(), Role::Meta, "m1"), &Role::ALL);
    let client = foreign_client(&dir.path().join("ca.pem"), None, &rustls::version::TLS13);
    let (seen, answered) = meet_foreign(&config, &client).await;
    let text = message(seen);
    assert!(text.contains("no certificates"), "{text}");
    assert!(answered.is_err());
}

#[tokio::test]
async fn an_expired_certificate_is_refused_at_either_end() {
    let dir = authority();
    let asking = request(Role::Datanode, "d1");
    let member = issue_between(dir.path(), &asking, &(1_000_000_000..1_000_086_400)).unwrap();
    let expired = Identity::load(&member).unwrap();
    assert_eq!(expired.expires().unwrap().timestamp(), 1_000_086_400);
    let fresh = identity(dir.path(), Role::Meta, "m1");

    let (seen, answered) = meet(&server(&fresh, &Role::ALL), &client(&expired, Role::Meta)).await;
    assert!(message(seen).contains("expired"));
    assert!(answered.is_err());
    let (seen, answered) =
        meet(&server(&expired, &Role::ALL), &client(&fresh, Role::Datanode)).await;
    assert!(seen.is_err());
    assert!(message(answered).contains("expired"));
}

#[tokio::test]
async fn tls_1_2_needs_its_option_and_checks_roles_too() {
    let dir = authority();
    let serving = identity(dir.path(), Role::Meta, "m1");
    let authorities = dir.path().join("ca.pem");
    identity(dir.path(), Role::Datanode, "d1");
    identity(dir.path(), Role::Frontend, "f1");
    let [datanode, frontend] = ["d1", "f1"].map(|name| {
        foreign_client(&authorities, Some(&dir.path().join(name)), &rustls::version::TLS12)
    });
    let (seen, _) = meet_foreign(&server(&serving, &[Role::Datanode]), &datanode).await;
    assert!(seen.is_err());

    let options = TlsOptions { tls12: true, ..TlsOptions::default() };
    let config = serving.server_config(&[Role::Datanode], &options).unwrap();
    let (seen, answered) = meet_foreign(&config, &datanode).await;
    answered.unwrap();
    assert_eq!(seen.unwrap(), Some(Role::Datanode));
    let (seen, answered) = meet_foreign(&config, &frontend).await;
    assert!(seen.is_err());
    assert!(message(answered).contains("accessdenied"));
    let nobody = foreign_client(&authorities, None, &rustls::version::TLS12);
    assert!(meet_foreign(&config, &nobody).await.0.is_err());
}

#[test]
fn a_certificate_with_several_roles_proves_none() {
    let key = rcgen::KeyPair::generate().unwrap();
    let role_of = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = rcgen::CertificateParams::new(names).unwrap();
        Role::of(params.self_signed(&key).unwrap().der())
    };
    assert_eq!(role_of(&["meta.partita.internal"]), Some(Role::Meta));
    assert_eq!(role_of(&["META.partita.internal", "10.0.0.1"]), Some(Role::Meta));
    assert_eq!(role_of(&["meta.partita.internal", "admin.partita.internal"]), None);
    assert_eq!(role_of(&["*.partita.internal"]), None);
    assert_eq!(role_of(&["x.meta.partita.internal", "meta.example.com"]), None);
    assert_eq!(role_of(&[]), None);
}
