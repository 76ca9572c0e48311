//! Wide tables for Bigtable's clients: tables, rows and rights over services in memory.

use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use partita_bigtable::filter::{ByteRange, Narrowing};
use partita_bigtable::rows::KeySpan;
use partita_bigtable::{Check, FamilyChange, Scan, TableName, WideStore};
use partita_frontend::fake::Fake;
use partita_frontend::{FrontendOptions, SessionOptions};
use partita_proto::access::{Action, Door as DoorKind, Identity};
use partita_proto::id::BOOTSTRAP_ROLE;
use partita_proto::service::{Ddl, TableChange};
use partita_proto::wide::{CellMutation, Family, GcRule, ReadModify, ReadModifyRule, RowMutation};
use tonic::{Code, Status};

use crate::HttpOptions;
use crate::bigtable::store;
use crate::door::Door;
use crate::write_rights::need_of;

/// A store over a fresh cluster, and its superuser.
struct World {
    door: Arc<Door>,
    store: Arc<dyn WideStore>,
    root: Identity,
    _fake: Arc<Fake>,
}

impl World {
    /// A cluster with the table `t` of the families `f` and `g`.
    async fn new() -> Self {
        Self::with(FrontendOptions::default()).await
    }

    async fn with(options: FrontendOptions) -> Self {
        let fake = Fake::new(2);
        let frontend = fake.frontend(options).unwrap();
        let door = Door::new(frontend, HttpOptions::default());
        let role = door.frontend.access().role(BOOTSTRAP_ROLE).cloned().unwrap();
        let root = Identity::of_role(&role, DoorKind::Flight);
        let world = Self { store: store(&door), door, root, _fake: fake };
        world.create("t", &["m"]).await.unwrap();
        world
    }

    async fn create(&self, table: &str, cuts: &[&'static str]) -> Result<(), Status> {
        let families =
            ["f", "g"].map(|family| Family { name: family.to_owned(), gc: None, aggregate: None });
        let cuts = cuts.iter().map(|cut| Bytes::from_static(cut.as_bytes())).collect();
        self.store.create(self.root, &name(table), families.to_vec(), cuts).await
    }

    async fn mutate(&self, rows: Vec<RowMutation>) -> Vec<Option<Code>> {
        let results = self.store.mutate(self.root, &name("t"), rows).await.unwrap();
        results.into_iter().map(|result| result.err().map(|status| status.code())).collect()
    }

    async fn scan(&self, table: &str, scan: Scan) -> Result<Vec<String>, Status> {
        let rows = self.store.scan(self.root, &name(table), scan).await?;
        let rows = rows.try_concat().await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut lines = Vec::new();
        for row in rows {
            let key = text(&row.key);
            for cell in row.cells {
                let (qualifier, value) = (text(&cell.qualifier), text(&cell.value));
                let (family, time) = (cell.family, cell.timestamp_us);
                lines.push(format!("{key}/{family}:{qualifier}@{time}={value}"));
            }
        }
        Ok(lines)
    }

    async fn all(&self) -> Vec<String> {
        self.scan("t", scan(vec![KeySpan::all()])).await.unwrap()
    }
}

fn name(table: &str) -> TableName {
    TableName { project: "p".to_owned(), instance: "i".to_owned(), table: table.to_owned() }
}

fn scan(spans: Vec<KeySpan>) -> Scan {
    Scan { spans, narrowing: Narrowing::none(), is_reversed: false, rows_max: None }
}

fn set(family: &str, qualifier: &str, timestamp: i64, value: &str) -> CellMutation {
    CellMutation::SetCell {
        family: family.to_owned(),
        qualifier: qualifier.as_bytes().to_vec(),
        timestamp: Some(timestamp),
        value: value.as_bytes().to_vec(),
    }
}

fn row(key: &str, mutations: Vec<CellMutation>) -> RowMutation {
    RowMutation { row_key: key.as_bytes().to_vec(), mutations }
}

#[tokio::test]
async fn rows_are_read_in_order_whatever_partition_they_lie_in() {
    let world = World::new().await;
    let rows = vec![
        row("z", vec![set("f", "q", 1_000, "1")]),
        row(
            "a",
            vec![set("g", "q", 1_000, "2"), set("f", "q", 1_000, "3"), set("f", "q", 2_000, "4")],
        ),
        row("k", vec![set("f", "p", 1_000, "5")]),
    ];
    assert_eq!(world.mutate(rows).await, [None, None, None]);
    let lines = ["a/f:q@2000=4", "a/f:q@1000=3", "a/g:q@1000=2", "k/f:p@1000=5", "z/f:q@1000=1"];
    assert_eq!(world.all().await, lines);
    let spans = vec![KeySpan::key(b"a"), KeySpan { start: Bytes::from_static(b"n"), end: None }];
    let read = world.scan("t", scan(spans)).await.unwrap();
    assert_eq!(read, [lines[0], lines[1], lines[2], lines[4]]);
    let reversed = Scan { is_reversed: true, ..scan(vec![KeySpan::all()]) };
    let read = world.scan("t", reversed).await.unwrap();
    assert_eq!(read, [lines[4], lines[3], lines[0], lines[1], lines[2]]);
    let point = std::ops::Bound::Included(Bytes::from_static(b"q"));
    let narrowing = Narrowing {
        family: Some("f".to_owned()),
        qualifiers: ByteRange { start: point.clone(), end: point },
        ..Narrowing::none()
    };
    let narrowed = Scan { narrowing, ..scan(vec![KeySpan::all()]) };
    assert_eq!(world.scan("t", narrowed).await.unwrap(), [lines[0], lines[1], lines[4]]);
}

#[tokio::test]
async fn a_row_that_is_refused_does_not_keep_others_from_being_stored() {
    let world = World::new().await;
    let rows = vec![
        row("a", vec![set("f", "q", 1_000, "1")]),
        row("b", vec![set("nothing", "q", 1_000, "2")]),
        row(
            "c",
            vec![set("f", "q", 1_000, "3"), CellMutation::DeleteFromRow, set("g", "q", 0, "4")],
        ),
    ];
    assert_eq!(world.mutate(rows).await, [None, Some(Code::NotFound), None]);
    assert_eq!(world.all().await, ["a/f:q@1000=1", "c/g:q@0=4"]);
}

#[tokio::test]
async fn rows_are_checked_and_changed_at_once() {
    let world = World::new().await;
    let count = |amount| ReadModify {
        row_key: b"r".to_vec(),
        rules: vec![ReadModifyRule::Increment {
            family: "f".to_owned(),
            qualifier: b"n".to_vec(),
            amount,
        }],
    };
    for _ in 0..3 {
        world.store.read_modify(world.root, &name("t"), count(2)).await.unwrap();
    }
    let written = world.store.read_modify(world.root, &name("t"), count(1)).await.unwrap();
    assert_eq!(written.into_values().next(), Some(7_i64.to_be_bytes().to_vec()));
    let check = |value: &str| Check {
        filter: None,
        matched: Some(row("r", vec![CellMutation::DeleteFromRow])),
        unmatched: Some(row("r", vec![set("g", "q", 1_000, value)])),
    };
    let (table, key) = (name("t"), || Bytes::from_static(b"r"));
    let mut outcomes = Vec::new();
    for value in ["1", "2", "3"] {
        let matched = world.store.check_and_mutate(world.root, &table, key(), check(value));
        outcomes.push(matched.await.unwrap());
    }
    assert_eq!(outcomes, [true, false, true]);
    assert!(world.all().await.is_empty());
}

#[tokio::test]
async fn families_change_and_rows_are_dropped() {
    let world = World::new().await;
    let cells = || vec![set("f", "q", 1_000, "1"), set("g", "q", 1_000, "2")];
    let rows = ["a#1", "a#2", "b#1"].map(|key| row(key, cells())).to_vec();
    assert_eq!(world.mutate(rows).await, [None, None, None]);
    let (root, table) = (world.root, name("t"));
    let samples = world.store.samples(root, &table).await.unwrap();
    let keys: Vec<&[u8]> = samples.iter().map(|sample| &sample.key[..]).collect();
    assert_eq!(keys, [&b"m"[..], &b""[..]]);
    world.store.drop_rows(root, &table, KeySpan::prefix(b"a#")).await.unwrap();
    assert_eq!(world.all().await, ["b#1/f:q@1000=1", "b#1/g:q@1000=2"]);
    let rule = Some(GcRule::MaxVersions(2));
    let changes = vec![
        FamilyChange::Drop("g".to_owned()),
        FamilyChange::Update(Family { name: "f".to_owned(), gc: rule.clone(), aggregate: None }),
        FamilyChange::Create(Family { name: "h".to_owned(), gc: None, aggregate: None }),
    ];
    world.store.alter(root, &table, changes).await.unwrap();
    let families = world.store.table(root, &table).await.unwrap().wide.families;
    let expected = [("f", rule), ("h", None)].map(|(name, gc)| Family {
        name: name.to_owned(),
        gc,
        aggregate: None,
    });
    assert_eq!(families, expected);
    assert_eq!(world.all().await, ["b#1/f:q@1000=1"]);
    world.store.drop_rows(root, &table, KeySpan::all()).await.unwrap();
    assert!(world.all().await.is_empty());
    world.store.drop_table(root, &table).await.unwrap();
    let gone = world.store.table(root, &table).await.unwrap_err();
    assert_eq!(gone.code(), Code::NotFound);
}

#[tokio::test]
async fn a_row_that_is_larger_than_the_memory_of_queries_is_refused() {
    let options = FrontendOptions { query_memory_bytes: 4 << 20, ..FrontendOptions::default() };
    let world = World::with(options).await;
    let value = "v".repeat(1 << 20);
    for time in 0..8 {
        let large = row("a", vec![set("f", "q", time * 1_000, &value)]);
        assert_eq!(world.mutate(vec![large]).await, [None]);
    }
    assert_eq!(world.mutate(vec![row("b", vec![set("f", "q", 1_000, "v")])]).await, [None]);
    let refused = world.scan("t", scan(vec![KeySpan::key(b"a")])).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let check = Check { filter: None, matched: None, unmatched: None };
    let key = Bytes::from_static(b"a");
    let refused = world.store.check_and_mutate(world.root, &name("t"), key, check).await;
    assert_eq!(refused.unwrap_err().code(), Code::ResourceExhausted);
    let read = world.scan("t", scan(vec![KeySpan::key(b"b")])).await.unwrap();
    assert_eq!(read, ["b/f:q@1000=v"]);
}

#[tokio::test]
async fn computations_run_on_threads_of_statements() {
    let world = World::new().await;
    let (sender, receiver) = std::sync::mpsc::channel();
    let work = move || {
        let name = std::thread::current().name().map(str::to_owned);
        sender.send(name).unwrap();
    };
    world.store.compute(Box::new(work)).await.unwrap();
    assert_eq!(receiver.recv().unwrap().as_deref(), Some("lane"));
    let bug = || assert!(std::thread::current().name().is_none(), "a bug");
    let failed = world.store.compute(Box::new(bug)).await.unwrap_err();
    assert_eq!(failed.code(), Code::Internal);
}

#[tokio::test]
async fn a_family_that_is_created_again_has_no_cells_of_the_former_one() {
    let world = World::new().await;
    let cells = vec![set("f", "q", 1_000, "1"), set("g", "q", 1_000, "2")];
    assert_eq!(world.mutate(vec![row("a", cells)]).await, [None]);
    // A request that ended before it removed the cells.
    let frontend = &world.door.frontend;
    let stored = Arc::clone(frontend.catalog().table("i", "t").unwrap());
    let need = need_of(frontend, Action::Own, &stored).unwrap();
    let permit = frontend.authorize(&world.root, &[need]).unwrap();
    let family = || Family { name: "g".to_owned(), gc: None, aggregate: None };
    let change = |change| Ddl::AlterTable {
        database: "i".to_owned(),
        name: "t".to_owned(),
        change: TableChange::ChangeFamilies(vec![change]),
    };
    frontend.change(&permit, change(FamilyChange::Drop("g".to_owned()))).await.unwrap();
    let refused = frontend.change(&permit, change(FamilyChange::Create(family()))).await;
    assert_eq!(refused.unwrap_err().sqlstate, "55006");
    let create = vec![FamilyChange::Create(family())];
    world.store.alter(world.root, &name("t"), create).await.unwrap();
    assert_eq!(world.all().await, ["a/f:q@1000=1"]);
    let wide = world.store.table(world.root, &name("t")).await.unwrap().wide;
    assert_eq!((wide.families.last(), wide.dropped.len()), (Some(&family()), 0));
}

#[tokio::test]
async fn tables_of_sql_are_served_if_they_are_wide() {
    let world = World::new().await;
    let session = world.door.frontend.session(SessionOptions::default());
    for sql in [
        "CREATE TABLE i.words WIDE (ROW KEY STRING) FAMILIES (f)",
        "CREATE TABLE i.plain (k STRING PRIMARY KEY)",
        "INSERT INTO i.words (row_key, family, qualifier, cell_ts, value) \
         VALUES ('é', 'f', 'q', '1970-01-01 00:00:01', 'v')",
    ] {
        session.execute(sql).await.unwrap();
    }
    let listed = world.store.tables(world.root, "i").await.unwrap();
    let names: Vec<&str> = listed.iter().map(|table| table.table.as_str()).collect();
    assert_eq!(names, ["t", "words"]);
    // A bound that is no text.
    let span =
        KeySpan { start: Bytes::from_static(b"\xc3"), end: Some(Bytes::from_static(b"\xff")) };
    let read = world.scan("words", scan(vec![span])).await.unwrap();
    assert_eq!(read, ["é/f:q@1000000=v"]);
    let plain = world.scan("plain", scan(vec![KeySpan::all()])).await.unwrap_err();
    assert_eq!(plain.code(), Code::InvalidArgument);
    let missing = world.store.tables(world.root, "nothing").await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
}
