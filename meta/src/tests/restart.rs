//! Restarts: after a stop, after a kill, in the middle of work, over damaged files.

use std::path::Path;
use std::time::{Duration, Instant};

use partita_proto::service::MetaService;

use super::changes::{PATIENCE, Server, host, hurry, until};
use super::nodes::{FakeNodes, Kind};
use super::*;
use crate::catalog::Work;
use crate::core::MetaOptions;
use crate::error::MetaError;
use crate::memory_store::MemoryStore;
use crate::node::Meta;
use crate::opening::until_closed;
use crate::patience::Patience;
use crate::store::StateStore;

fn away() -> Error {
    Error::Unavailable("away".to_owned())
}

async fn fill(server: &Server) {
    let meta = &server.meta;
    meta.change(create_database("d")).await.unwrap();
    for name in ["a", "b", "c"] {
        meta.change(create(new_table(name))).await.unwrap();
    }
    meta.change(create(NewTable { database: "d".to_owned(), ..new_table("t") })).await.unwrap();
    meta.change(alter("a", add(vec![tag("host"), field("x")]))).await.unwrap();
    meta.change(alter("a", TableChange::DropColumn("value".to_owned()))).await.unwrap();
    meta.change(alter("b", TableChange::Rename("z".to_owned()))).await.unwrap();
    meta.change(drop_table("c")).await.unwrap();
}

async fn open_error(dir: &Path) -> MetaError {
    let host = host(dir).await;
    let deadline = Instant::now() + PATIENCE;
    let error = loop {
        let options = MetaOptions::alone(dir.join("meta"), Arc::new(TestClock));
        let opened = Meta::open(options, Arc::clone(&host), FakeNodes::new(1)).await;
        match opened.err().unwrap() {
            // The previous owner closes the store in the background.
            MetaError::Io { source, .. } if source.to_string().contains("lock") => {
                assert!(Instant::now() < deadline, "the catalog stays locked: {source}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            error => break error,
        }
    };
    host.shutdown().await.unwrap();
    error
}

#[tokio::test]
async fn a_stop_keeps_everything() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let server = Server::start(dir.path(), &nodes).await;
    fill(&server).await;
    let (state, catalog) = (server.state(), Arc::clone(&server.meta.catalog().borrow()));
    server.stop().await;
    let server = Server::open(dir.path(), &nodes).await;
    assert_eq!(server.state(), state);
    assert_same(&server.meta.catalog().borrow(), &catalog);
    server.stop().await;
}

#[tokio::test]
async fn a_kill_keeps_everything() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let mut server = Server::start(dir.path(), &nodes).await;
    fill(&server).await;
    for round in 0..5 {
        let state = server.state();
        server.kill().await;
        server = Server::start(dir.path(), &nodes).await;
        assert_eq!(apart_from_leading(&server.state()), apart_from_leading(&state));
        let name = format!("t{round}");
        server.meta.change(create(new_table(&name))).await.unwrap();
    }
    server.kill().await;
}

#[tokio::test]
async fn what_the_store_lost_comes_back_from_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let server = Server::start(dir.path(), &nodes).await;
    fill(&server).await;
    let state = server.state();
    server.kill().await;
    // As soon as the store can be opened, nothing writes to it in the background.
    drop(stores::open(&dir.path().join("meta/state")));
    std::fs::remove_dir_all(dir.path().join("meta")).unwrap();
    let server = Server::open(dir.path(), &nodes).await;
    assert_eq!(server.state(), state);
    server.kill().await;
}

#[tokio::test]
async fn a_damaged_store_is_made_anew_from_a_whole_log() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let server = Server::start(dir.path(), &nodes).await;
    fill(&server).await;
    let state = server.state();
    server.kill().await;
    damage(dir.path());
    let server = Server::open(dir.path(), &nodes).await;
    assert_eq!(server.state(), state);
    assert!(dir.path().join("meta/state.damaged-1").exists());
    server.kill().await;
}

/// Changes a record without the store's knowledge.
fn damage(dir: &Path) {
    let db = stores::raw(&dir.join("meta/state"));
    let (key, value) = db.scan_prefix(b"t").next().unwrap().unwrap();
    let mut value = value.to_vec();
    *value.last_mut().unwrap() ^= 1;
    db.insert(key, value).unwrap();
}

/// Fills a directory whose log lacks the first entries of its catalog; returns the state of the catalog.
async fn given_up(dir: &Path, nodes: &Arc<FakeNodes>) -> State {
    let server = Server::start(dir, nodes).await;
    fill(&server).await;
    server.meta.core.sync().await.unwrap();
    server.meta.change(create(new_table("later"))).await.unwrap();
    let state = server.state();
    // Stopping syncs the store and gives up the log.
    server.stop().await;
    state
}

/// The copies of a catalog, the newest last.
fn copies(dir: &Path) -> Vec<std::path::PathBuf> {
    let found = std::fs::read_dir(dir.join("meta/copies")).unwrap();
    let mut copies: Vec<_> = found.map(|entry| entry.unwrap().path()).collect();
    copies.sort();
    copies
}

/// Changes one bit of a file.
fn flip(path: &Path, bit: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[bit / 8] ^= 1 << (bit % 8);
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn a_damaged_store_is_made_anew_from_a_copy_when_the_log_begins_later() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let state = given_up(dir.path(), &nodes).await;
    for round in 1..4 {
        damage(dir.path());
        let server = Server::open(dir.path(), &nodes).await;
        assert!(server.meta.core.group.status().purged.is_some_and(|index| index > 5));
        assert_eq!(server.state(), state);
        assert!(dir.path().join(format!("meta/state.damaged-{round}")).exists());
        server.stop().await;
    }
}

#[tokio::test]
async fn without_a_whole_store_or_copy_the_error_names_both() {
    let dir = tempfile::tempdir().unwrap();
    given_up(dir.path(), &FakeNodes::new(1)).await;
    damage(dir.path());
    let copies = copies(dir.path());
    assert!((1..=2).contains(&copies.len()), "{copies:?}");
    for copy in &copies {
        flip(copy, 900);
    }
    // The damaged store stays as it is, for a later repair.
    for _ in 0..2 {
        let error = open_error(dir.path()).await;
        let MetaError::Corrupted(message) = &error else { panic!("{error:?}") };
        let named = [dir.path().join("meta/state"), copies[0].clone()];
        assert!(named.iter().all(|path| message.contains(path.to_str().unwrap())), "{message}");
        assert!(message.contains("backup"), "{message}");
    }
}

#[tokio::test]
async fn a_flipped_bit_anywhere_in_the_store_or_a_copy_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let state = given_up(dir.path(), &nodes).await;
    until_closed(&dir.path().join("meta/state"));
    let mut places = vec![(std::path::PathBuf::from("meta/state/db"), 32)];
    for copy in copies(dir.path()) {
        places.push((copy.strip_prefix(dir.path()).unwrap().to_owned(), 8));
    }
    let mut anew = 0;
    for (name, count) in places {
        let whole = std::fs::read(dir.path().join(&name)).unwrap();
        // The file of a store has room behind what was written.
        let end = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        for number in 0..count {
            let again = tempfile::tempdir().unwrap();
            copy_all(dir.path(), again.path());
            flip(&again.path().join(&name), number * end * 8 / count + number % 8);
            let server = Server::open(again.path(), &nodes).await;
            assert_eq!(server.state(), state, "{} {number}", name.display());
            server.kill().await;
            anew += usize::from(again.path().join("meta/state.damaged-1").exists());
        }
    }
    assert!(anew > 0, "no flip concerned what the store had");
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy_all(&path, &to),
            false => drop(std::fs::copy(&path, &to).unwrap()),
        }
    }
}

#[tokio::test]
async fn the_log_stays_for_the_older_of_two_copies() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let server = Server::start(dir.path(), &nodes).await;
    let status = || server.meta.core.group.status();
    let mut synced = Vec::new();
    for name in ["a", "b", "c"] {
        server.meta.change(create(new_table(name))).await.unwrap();
        server.meta.core.sync().await.unwrap();
        synced.push(status().flushed.unwrap());
        let older = synced[synced.len().saturating_sub(2)];
        assert_eq!(status().purged, Some(older - 1), "{synced:?}");
        assert_eq!(copies(dir.path()).len(), synced.len().min(2));
    }
    // With the store, one copy of the same place is enough.
    server.meta.core.sync().await.unwrap();
    assert_eq!((copies(dir.path()).len(), status().purged), (1, Some(synced[2] - 1)));
    let state = server.state();
    server.kill().await;
    until_closed(&dir.path().join("meta/state"));
    std::fs::remove_dir_all(dir.path().join("meta/state")).unwrap();
    let server = Server::open(dir.path(), &nodes).await;
    assert_eq!(server.state(), state);
    server.kill().await;
}

#[tokio::test]
async fn a_catalog_without_its_log_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &FakeNodes::new(1)).await;
    fill(&server).await;
    server.stop().await;
    std::fs::remove_dir_all(dir.path().join("log")).unwrap();
    let error = open_error(dir.path()).await;
    assert!(matches!(&error, MetaError::Corrupted(m) if m.contains("log directory")), "{error:?}");
}

#[tokio::test]
async fn a_store_of_another_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &FakeNodes::new(1)).await;
    server.kill().await;
    let store = stores::open(&dir.path().join("meta/state"));
    let change =
        crate::store::Change { key: b"F".to_vec(), value: Some(2_u32.to_be_bytes().to_vec()) };
    StateStore::commit(&store, &[change], None).unwrap();
    drop(store);
    let error = open_error(dir.path()).await;
    assert!(matches!(error, MetaError::Incompatible(_)), "{error:?}");
}

#[tokio::test]
async fn the_log_is_given_up_as_the_store_is_synced() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let patience = Patience { undurable_max: 4, ..hurry() };
    let mut server = Server::open_patient(dir.path(), &nodes, patience).await;
    server.run();
    fill(&server).await;
    let purged = || server.meta.core.group.status().purged;
    until("the log is purged", || purged().is_some_and(|index| index > 10)).await;
    let state = server.state();
    server.kill().await;
    let server = Server::open(dir.path(), &nodes).await;
    assert_eq!(server.state(), state);
    server.kill().await;
}

#[tokio::test]
async fn a_power_cut_takes_nothing_that_was_answered() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let store = Arc::new(MemoryStore::default());
    // With 3, the log is given up every other change, so that too early shows.
    let patience = Patience { undurable_max: 3, ..hurry() };
    let mut state = None;
    for round in 0..10 {
        let over = Arc::clone(&store) as Arc<dyn StateStore>;
        let mut server = Server::open_over(dir.path(), over, &nodes, patience.clone()).await;
        assert_eq!(*state.get_or_insert_with(|| server.state()), server.state(), "round {round}");
        server.run();
        for number in 0..=round % 4 {
            let table = new_table(&format!("t{round}_{number}"));
            server.meta.change(create(table)).await.unwrap();
        }
        state = Some(server.state());
        server.kill().await;
        store.cut_power();
    }
}

#[tokio::test]
async fn only_a_sync_makes_anything_durable() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &FakeNodes::new(1)).await;
    let status = || server.meta.core.group.status();
    let before = status().flushed;
    server.meta.change(create(new_table("t"))).await.unwrap();
    assert_eq!(status().flushed, before);
    server.meta.core.sync().await.unwrap();
    assert_eq!(status().flushed, status().applied);
    server.stop().await;
}

#[tokio::test]
async fn a_creation_goes_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let server = Server::start(dir.path(), &nodes).await;
    // One of three is made before the kill.
    nodes.one(1).fail(Kind::Open, usize::MAX, away());
    let meta = Arc::clone(&server.meta);
    let change = tokio::spawn(async move { meta.change(create(new_table("t"))).await });
    until("it was ordered", || nodes.count(Kind::Open) >= 3).await;
    change.abort();
    drop(change.await);
    server.kill().await;
    nodes.heal();
    let mut server = Server::open(dir.path(), &nodes).await;
    assert_eq!(server.phase("t"), Some(Phase::Creating));
    assert!(!server.sees("t"));
    assert!(server.meta.partitions_of(NodeId(1)).is_empty());
    server.run();
    until("the table is there", || server.sees("t")).await;
    assert_eq!(nodes.held().len(), 3);
    server.stop().await;
}

#[tokio::test]
async fn a_creation_that_fails_after_a_restart_is_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let server = Server::open(dir.path(), &nodes).await;
    // Here the DDL driver does not run.
    let meta = Arc::clone(&server.meta);
    let change = tokio::spawn(async move { meta.change(create(new_table("t"))).await });
    until("it is recorded", || server.phase("t") == Some(Phase::Creating)).await;
    change.abort();
    drop(change.await);
    server.kill().await;
    nodes.fail(Kind::Open, 1, Error::DiskFull("/data".to_owned()));
    let server = Server::start(dir.path(), &nodes).await;
    until("the table is gone", || server.state().table_count() == 0).await;
    assert!(nodes.held().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn an_alter_and_a_drop_go_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let server = Server::start(dir.path(), &nodes).await;
    for name in ["altered", "dropped", "truncated"] {
        server.meta.change(create(new_table(name))).await.unwrap();
    }
    for kind in [Kind::Alter, Kind::Drop, Kind::Truncate] {
        nodes.fail(kind, usize::MAX, away());
    }
    let truncate =
        Ddl::TruncateTable { database: "public".to_owned(), name: "truncated".to_owned() };
    let ddls = [alter("altered", add(vec![tag("host")])), drop_table("dropped"), truncate];
    let changes = ddls.map(|ddl| {
        let meta = Arc::clone(&server.meta);
        tokio::spawn(async move { meta.change(ddl).await })
    });
    for kind in [Kind::Alter, Kind::Drop, Kind::Truncate] {
        until("it was ordered", || nodes.count(kind) > 0).await;
    }
    for change in changes {
        change.abort();
        drop(change.await);
    }
    server.kill().await;
    let mut server = Server::open(dir.path(), &nodes).await;
    assert!(matches!(server.phase("altered"), Some(Phase::Altering(Work::Schema(_)))));
    assert_eq!(server.phase("truncated"), Some(Phase::Altering(Work::Truncate)));
    assert!(server.sees("altered") && server.sees("truncated") && !server.sees("dropped"));
    assert_eq!(server.meta.partitions_of(NodeId(1)).len(), 6);
    nodes.heal();
    server.run();
    until("all is done", || server.state().pending().next().is_none()).await;
    let held = nodes.held();
    assert_eq!(held.len(), 6);
    let altered: Vec<_> =
        held.values().filter(|held| held.schema.column("host").is_some()).collect();
    assert_eq!(altered.len(), 3);
    // Ordered before and after the restart under one identity, so done once.
    assert_eq!(held.values().filter(|held| held.truncated.len() == 1).count(), 3);
    assert_eq!(server.phase("dropped"), None);
    server.stop().await;
}

#[tokio::test]
async fn everything_that_was_answered_is_there_after_kills_at_any_moment() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let mut answered = 0_usize;
    for round in 0_u64..8 {
        let server = Server::start(dir.path(), &nodes).await;
        for number in 0..answered {
            assert!(server.sees(&format!("t{number}")), "round {round}, table {number}");
        }
        let meta = Arc::clone(&server.meta);
        let next = answered;
        let (tell, told) = tokio::sync::watch::channel(next);
        let writer = tokio::spawn(async move {
            for number in next.. {
                let table = Box::new(new_table(&format!("t{number}")));
                meta.change(Ddl::CreateTable { table, if_not_exists: true }).await.unwrap();
                tell.send_replace(number + 1);
            }
        });
        // Also where nothing is answered as quickly.
        if round % 2 == 1 {
            until("a change is answered", || *told.borrow() > next).await;
        }
        tokio::time::sleep(Duration::from_millis(7 + round * 13)).await;
        writer.abort();
        drop(writer.await);
        answered = *told.borrow();
        server.kill().await;
    }
    assert!(answered > 0);
}
