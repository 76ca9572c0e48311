//! The authority: limits of requests, and rotation.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::issue::{Rotation, list, rotate};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn keys_are_their_owners_alone() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("certs");
    init(&dir).unwrap();
    let member = issue(&dir, &request(Role::Meta, "m1")).unwrap();
    assert_eq!((mode(&dir), mode(&member)), (0o700, 0o700));
    assert_eq!((mode(&dir.join("ca-key.pem")), mode(&member.join("key.pem"))), (0o600, 0o600));
    rotate(&dir).unwrap();
    assert_eq!(mode(&dir.join("next-ca-key.pem")), 0o600);
    rotate(&dir).unwrap();
    assert_eq!((mode(&dir.join("ca-key.pem")), mode(&member.join("key.pem"))), (0o600, 0o600));
}

#[test]
fn an_authority_is_not_overwritten() {
    let dir = authority();
    assert!(message(init(dir.path())).contains("already exists"));
    std::fs::remove_file(dir.path().join("ca.pem")).unwrap();
    assert!(message(init(dir.path())).contains("ca-key.pem"));
}

#[test]
fn requests_have_limits() {
    let dir = authority();
    let refused = |request: &Request| message(issue(dir.path(), request));
    for name in ["", ".", "..", "../x", "a/b", "-x", "a b", "ä", "x".repeat(65).as_str()] {
        assert!(refused(&request(Role::Meta, name)).contains("invalid name"), "{name}");
    }
    let with_host =
        |host: &str| Request { hosts: vec![host.to_owned()], ..request(Role::Frontend, "f1") };
    for host in [
        "meta.partita.internal",
        "Admin.Partita.Internal",
        "meta.partita.internal.",
        "*.partita.internal",
    ] {
        assert!(refused(&with_host(host)).contains("reserved"), "{host}");
    }
    for host in ["", "db.example.com.", "*.example.com", "a b", "10.0.0.1:4000", "a\nrole meta"] {
        assert!(refused(&with_host(host)).contains("neither"), "{host}");
    }
    for days in [0, 3651, u32::MAX] {
        assert!(refused(&Request { days, ..request(Role::Meta, "m1") }).contains("days"));
    }
    for host in ["10.0.0.1", "::1", "db.example.com", "datanode_1"] {
        issue(dir.path(), &with_host(host)).unwrap();
    }
    assert!(refused(&request(Role::Admin, "f1")).contains("for role frontend"));
    assert!(refused(&request(Role::Meta, "ca.pem")).contains("ca.pem"));
}

#[test]
fn certificates_are_listed_after_their_authorities() {
    let dir = authority();
    let hosts = vec!["10.0.0.9".to_owned(), "db.example.com".to_owned()];
    issue(dir.path(), &Request { hosts: hosts.clone(), ..request(Role::Frontend, "f1") }).unwrap();
    issue(dir.path(), &request(Role::Admin, "alice")).unwrap();
    rotate(dir.path()).unwrap();
    let listed = list(dir.path()).unwrap();
    let [old, next, alice, frontend] = listed.as_slice() else { panic!("{listed:?}") };
    for authority in [old, next] {
        assert!(authority.name.starts_with("Partita cluster CA "), "{}", authority.name);
        assert_eq!(authority.role, None);
    }
    assert_ne!(old.name, next.name);
    assert_eq!((alice.name.as_str(), alice.role), ("alice", Some(Role::Admin)));
    assert_eq!((frontend.role, &frontend.hosts), (Some(Role::Frontend), &hosts));
    assert!(frontend.expires < old.expires);
}

fn members(dir: &Path) -> (Identity, Identity) {
    (Identity::load(&dir.join("m1")).unwrap(), Identity::load(&dir.join("d1")).unwrap())
}

#[tokio::test]
async fn at_each_step_of_a_rotation_old_and_new_files_trust_each_other() {
    let dir = authority();
    identity(dir.path(), Role::Meta, "m1");
    identity(dir.path(), Role::Datanode, "d1");
    let first = members(dir.path());
    let names = vec!["d1".to_owned(), "m1".to_owned()];
    for step in [Rotation::Trusted, Rotation::Issued(names), Rotation::Dropped] {
        let before = members(dir.path());
        assert_eq!(rotate(dir.path()).unwrap(), step);
        let after = members(dir.path());
        assert_ne!(before, after);
        for (meta, datanode) in [(&before.0, &after.1), (&after.0, &before.1), (&after.0, &after.1)]
        {
            talk(&server(meta, &[Role::Datanode]), &client(datanode, Role::Meta)).await;
            talk(&server(datanode, &[Role::Meta]), &client(meta, Role::Datanode)).await;
        }
    }
    let last = members(dir.path());
    let (seen, answered) = meet(&server(&last.0, &Role::ALL), &client(&first.1, Role::Meta)).await;
    assert!(seen.is_err());
    assert!(answered.is_err());
    // Certificates for others are issued by the new authority.
    let other = identity(dir.path(), Role::Frontend, "f1");
    talk(&server(&last.0, &Role::ALL), &client(&other, Role::Meta)).await;
}

#[test]
fn an_interrupted_first_step_is_repeated() {
    let (dir, other) = (authority(), authority());
    identity(dir.path(), Role::Meta, "m1");
    std::fs::copy(other.path().join("ca-key.pem"), dir.path().join("next-ca-key.pem")).unwrap();
    assert_eq!(rotate(dir.path()).unwrap(), Rotation::Trusted);
    assert_eq!(rotate(dir.path()).unwrap(), Rotation::Issued(vec!["m1".to_owned()]));
    assert_eq!(rotate(dir.path()).unwrap(), Rotation::Dropped);
    assert_eq!(list(dir.path()).unwrap().len(), 2);
    Identity::load(&dir.path().join("m1")).unwrap();
}

#[test]
fn an_authority_of_others_is_not_used() {
    let (dir, other) = (authority(), authority());
    std::fs::copy(other.path().join("ca.pem"), dir.path().join("ca.pem")).unwrap();
    let text = message(issue(dir.path(), &request(Role::Meta, "m1")));
    assert!(text.contains("ca.pem"), "{text}");
}
