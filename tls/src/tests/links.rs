//! Links with certificates and without.

use super::*;
use crate::{IdentityFiles, LinkStream, Links};

/// Links of a process with a new certificate.
fn links(dir: &Path, role: Role, name: &str) -> Links {
    let member = issue(dir, &request(role, name)).unwrap();
    Links::load(&IdentityFiles::of(&member), Some(role)).unwrap()
}

/// Opens a link and sends a word over it: the role that the server sees, and the client's result.
async fn link(
    server: &Links,
    client: &Links,
    role: Role,
) -> (std::io::Result<Option<Role>>, std::io::Result<()>) {
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let asked = async {
        let mut stream: LinkStream = client.connect(near, role).await?;
        ask(&mut stream).await
    };
    let answered = async {
        let (mut stream, role) = server.accept(far).await?;
        let mut word = [0; 5];
        stream.read_exact(&mut word).await?;
        stream.write_all(&word).await?;
        stream.flush().await?;
        Ok(role)
    };
    tokio::join!(answered, asked)
}

#[tokio::test]
async fn the_server_of_a_link_learns_the_role_of_its_client() {
    let dir = authority();
    let server = links(dir.path(), Role::Meta, "m1");
    for role in Role::ALL {
        let client = links(dir.path(), role, role.as_str());
        assert_eq!(client.role(), Some(role));
        let (seen, asked) = link(&server, &client, Role::Meta).await;
        asked.unwrap();
        assert_eq!(seen.unwrap(), Some(role));
    }
    let (seen, asked) = link(&Links::plain(), &Links::plain(), Role::Meta).await;
    asked.unwrap();
    assert_eq!(seen.unwrap(), None);
}

#[tokio::test]
async fn a_plain_end_and_one_with_a_certificate_do_not_talk() {
    let dir = authority();
    let secured = links(dir.path(), Role::Meta, "m1");
    let (mut near, far) = tokio::io::duplex(PIPE_BYTES);
    near.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    assert!(secured.accept(far).await.is_err());
    // The server without a certificate answers with what it read, which is no handshake.
    let (_, asked) = link(&Links::plain(), &secured, Role::Meta).await;
    assert!(asked.is_err());
}

#[tokio::test]
async fn new_links_have_the_new_certificate() {
    let (dir, other) = (authority(), authority());
    let client = links(dir.path(), Role::Datanode, "d1");
    let server = links(dir.path(), Role::Meta, "m1");
    let foreign = issue(other.path(), &request(Role::Meta, "m1")).unwrap();
    assert!(!server.reload().unwrap());
    for file in ["ca.pem", "cert.pem", "key.pem"] {
        std::fs::copy(foreign.join(file), dir.path().join("m1").join(file)).unwrap();
    }
    let (_, asked) = link(&server, &client, Role::Meta).await;
    asked.unwrap();
    assert!(server.reload().unwrap());
    let (_, asked) = link(&server, &client, Role::Meta).await;
    assert!(message(asked).contains("unknownissuer"));
    issue(dir.path(), &request(Role::Meta, "m1")).unwrap();
    assert!(server.reload().unwrap());
    let (_, asked) = link(&server, &client, Role::Meta).await;
    asked.unwrap();
}

#[test]
fn a_certificate_of_another_role_is_refused_at_the_start_and_later() {
    let dir = authority();
    let member = issue(dir.path(), &request(Role::Datanode, "d1")).unwrap();
    let files = IdentityFiles::of(&member);
    let text = Links::load(&files, Some(Role::Meta)).unwrap_err().to_string();
    assert!(text.ends_with("is for role datanode, but role meta is required"), "{text}");
    let links = Links::load(&files, None).unwrap();
    assert_eq!(links.role(), Some(Role::Datanode));
    let admin = issue(dir.path(), &request(Role::Admin, "alice")).unwrap();
    for file in ["cert.pem", "key.pem"] {
        std::fs::copy(admin.join(file), member.join(file)).unwrap();
    }
    assert!(message(links.reload()).contains("role datanode is required"));
}
