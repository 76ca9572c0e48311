//! Roles and tokens that are loaded beside the rest of a start.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use partita_proto::access::AccessChange;
use partita_proto::id::DatabaseId;
use partita_proto::service::{ClusterService, MetaService};
use partita_raft::{Committed, Machine, Mark};

use super::access::{access, create_role, role, token, world};
use super::changes::{Server, until};
use super::nodes::FakeNodes;
use super::*;
use crate::identities::{load_beside, load_or_fail};
use crate::machine::CatalogMachine;
use crate::memory_store::MemoryStore;
use crate::record;
use crate::store::{Applied, Change, StateStore};

/// A mark of index 12.
const MARK: &[u8] =
    b"\x0a\x06\x08\x02\x10\x03\x18\x0c\x12\x06\x08\x02\x10\x03\x18\x09\x1a\x11\x0a\x03\x0a\x01\x03\
    \x12\x04\x08\x03\x10\x1e\x12\x04\x08\x04\x10\x28";
const PUBLIC: DatabaseId = DatabaseId(1);
/// Hash of the token with the number 7.
const HASH: [u8; 32] = [7; 32];

/// A catalog with the role ada and her token, and a store that holds it.
fn stored() -> (World, Arc<MemoryStore>) {
    let mut world = world();
    let ada = role(&mut world, "ada");
    let change = AccessChange::CreateToken(Box::new(token(7, ada, PUBLIC)));
    world.change(access(change)).unwrap();
    let store = MemoryStore::default();
    let applied = Applied { index: 12, mark: Bytes::from_static(MARK) };
    store.commit(&record::changes(&world.state.all_edits()), Some(&applied)).unwrap();
    (world, Arc::new(store))
}

fn create_bob() -> Committed {
    let ddl = access(create_role("bob"));
    let command = Command::Change { ddl, places: vec![], id: None, tables_max: None };
    let mark = Mark::from_bytes(MARK).unwrap();
    Committed { index: 13, mark, payload: Some(command.encode()) }
}

#[test]
fn lookups_wait_until_roles_and_tokens_are_loaded_and_others_do_not() {
    let (world, store) = stored();
    let (machine, unloaded) = CatalogMachine::open_unloaded(store, None).unwrap();
    let catalog = Arc::clone(&machine.catalog().borrow());
    assert!(catalog.databases.contains_key("public"));
    assert_eq!(machine.state().version(), world.state.version());
    let looking = std::thread::spawn(move || {
        let access = &catalog.access;
        (access.role_by_name("ada").is_some(), access.token_by_hash(&HASH).is_some())
    });
    std::thread::sleep(Duration::from_millis(50));
    assert!(!looking.is_finished());
    load_or_fail(&machine, unloaded);
    assert_eq!(looking.join().unwrap(), (true, true));
    assert_eq!(*machine.state(), world.state);
    assert_eq!(machine.failure(), None);
}

#[tokio::test]
async fn an_entry_that_concerns_roles_is_decided_when_they_are_loaded() {
    let (_, store) = stored();
    let as_store: Arc<dyn StateStore> = Arc::<MemoryStore>::clone(&store);
    let (machine, unloaded) = CatalogMachine::open_unloaded(as_store, None).unwrap();
    let loaded_later = Arc::clone(&machine);
    let loading = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        load_or_fail(&loaded_later, unloaded);
    });
    machine.apply(vec![create_bob()]).await.unwrap();
    loading.join().unwrap();
    let names: Vec<String> =
        machine.state().access().roles().values().map(|role| role.name.clone()).collect();
    assert_eq!(names, ["partita", "ada", "bob"]);
    // The same as with all of the store.
    let again = CatalogMachine::open(store).unwrap();
    assert_eq!(*again.state(), *machine.state());
}

#[tokio::test]
async fn nothing_is_recorded_without_roles_that_cannot_be_loaded() {
    let (_, store) = stored();
    let superuser = record::changes(&[Edit::RoleGone(BOOTSTRAP_ROLE)]);
    store.commit(&superuser, None).unwrap();
    let as_store: Arc<dyn StateStore> = Arc::<MemoryStore>::clone(&store);
    let (machine, unloaded) = CatalogMachine::open_unloaded(as_store, None).unwrap();
    load_beside(Arc::clone(&machine), unloaded).unwrap();
    machine.apply(vec![create_bob()]).await.unwrap_err();
    let failure = machine.failure().unwrap();
    assert!(failure.starts_with("the catalog is damaged"), "{failure}");
    assert_eq!(store.applied().unwrap().map(|applied| applied.index), Some(12));
    // Nobody may do anything, and no copy is made of that.
    assert!(machine.state().access().roles().is_empty());
    machine.sync().unwrap_err();
}

#[test]
fn damaged_records_of_roles_and_tokens_stop_the_machine() {
    for edit in
        [Edit::RoleGone(BOOTSTRAP_ROLE), Edit::TokenGone(token(7, BOOTSTRAP_ROLE, PUBLIC).id)]
    {
        let (_, store) = stored();
        let mut changes = record::changes(&[edit]);
        changes.iter_mut().for_each(|change: &mut Change| change.value = Some(vec![0xff]));
        store.commit(&changes, None).unwrap();
        let (machine, unloaded) = CatalogMachine::open_unloaded(store, None).unwrap();
        load_or_fail(&machine, unloaded);
        assert!(machine.failure().is_some_and(|failure| failure.contains("record")));
    }
}

/// Changes the record of a role without the store's knowledge.
fn damage_roles(dir: &Path) {
    let db = stores::raw(&dir.join("meta/state"));
    let (key, value) = db.scan_prefix(b"u").next().unwrap().unwrap();
    let mut value = value.to_vec();
    *value.last_mut().unwrap() ^= 1;
    db.insert(key, value).unwrap();
}

/// Path of the newest copy.
fn newest_copy(dir: &Path) -> std::path::PathBuf {
    let entries = std::fs::read_dir(dir.join("meta/copies")).unwrap();
    entries.map(|entry| entry.unwrap().path()).max().unwrap()
}

/// Fills a directory with the role ada and her token, and stops; returns the state.
async fn stopped(dir: &Path, nodes: &Arc<FakeNodes>) -> State {
    let server = Server::start(dir, nodes).await;
    until("it leads", || *server.meta.leads().borrow()).await;
    server.meta.change(access(create_role("ada"))).await.unwrap();
    let ada = server.state().access().role_by_name("ada").unwrap().id;
    let change = AccessChange::CreateToken(Box::new(token(7, ada, PUBLIC)));
    server.meta.change(access(change)).await.unwrap();
    let state = server.state();
    server.stop().await;
    state
}

#[tokio::test]
async fn after_a_stop_roles_and_tokens_come_from_the_copy() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let state = stopped(dir.path(), &nodes).await;
    let is_set_aside = || dir.path().join("meta/state.damaged-1").exists();
    // Only the copy has them undamaged.
    damage_roles(dir.path());
    let server = Server::open(dir.path(), &nodes).await;
    assert_eq!(server.state(), state);
    assert!(!is_set_aside());
    // After a crash the store is ahead of its copy, is read as a whole, and its damage is found.
    server.kill().await;
    let server = Server::open(dir.path(), &nodes).await;
    assert_eq!(apart_from_leading(&server.state()), apart_from_leading(&state));
    assert!(is_set_aside());
    server.stop().await;
}

#[tokio::test]
async fn roles_and_tokens_come_from_the_store_if_the_copy_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let state = stopped(dir.path(), &nodes).await;
    let copy = newest_copy(dir.path());
    let mut bytes = std::fs::read(&copy).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&copy, bytes).unwrap();
    let server = Server::open(dir.path(), &nodes).await;
    assert_eq!(server.state(), state);
    assert_eq!(server.meta.failure(), None);
    server.stop().await;
    // The stop has made a copy again.
    let server = Server::open(dir.path(), &nodes).await;
    assert_eq!(server.state(), state);
    server.stop().await;
}
