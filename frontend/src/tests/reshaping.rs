//! ALTER TABLE ... SPLIT and MERGE, and what the catalog shows then.

use partita_proto::error::Error;
use partita_proto::service::AdminOrder;

use super::Db;
use crate::Output;

async fn users() -> Db {
    let db = Db::new();
    db.tag("CREATE TABLE t (a INT, b STRING, PRIMARY KEY (a, b)) SPLIT AT ((50))").await;
    let rows: Vec<_> = (0..100).map(|row| format!("({row}, 'x')")).collect();
    db.tag(&format!("INSERT INTO t VALUES {}", rows.join(", "))).await;
    db
}

impl Db {
    fn partitions(&self) -> Vec<u64> {
        let catalog = self.frontend.catalog();
        let table = catalog.table("public", "t").unwrap();
        table.partitions.routes().iter().map(|route| route.partition.0).collect()
    }
}

#[tokio::test]
async fn splits_and_merges_are_done_when_they_answer() {
    let db = users().await;
    assert_eq!(db.tag("ALTER TABLE t SPLIT AT ((10), (20, 'm'), (70))").await, "ALTER TABLE");
    // Row (20, 'x') is above (20, 'm').
    assert_eq!(db.fake.rows("public", "t"), [10, 10, 30, 20, 30]);
    let orders = db.fake.orders.lock().clone();
    assert_eq!(orders.len(), 3);
    let ids = db.partitions();
    db.tag(&format!("ALTER TABLE t SPLIT PARTITION {}", ids[0])).await;
    assert_eq!(db.fake.rows("public", "t"), [5, 5, 10, 30, 20, 30]);
    let ids = db.partitions();
    db.tag(&format!("ALTER TABLE t MERGE PARTITIONS ({}, {})", ids[2], ids[1])).await;
    assert_eq!(db.fake.rows("public", "t"), [5, 15, 30, 20, 30]);
    assert!(matches!(db.fake.orders.lock().last(), Some(AdminOrder::MergePartitions { .. })));
    db.tag(&format!("ADMIN split_partition({})", db.partitions()[2])).await;
    assert_eq!(db.fake.rows("public", "t"), [5, 15, 15, 15, 20, 30]);
    let ids = db.partitions();
    db.tag(&format!("ADMIN merge_partitions({}, {})", ids[2], ids[3])).await;
    assert_eq!(db.fake.rows("public", "t"), [5, 15, 30, 20, 30]);
    assert_eq!(db.one("SELECT count(*) FROM t").await, "100");
    let shown = db.rows("SHOW CREATE TABLE t").await;
    assert!(shown[0][1].contains("(20, 'm'),"), "{shown:?}");
}

#[tokio::test]
async fn what_is_cut_already_is_noticed_and_what_is_not_there_refused() {
    let db = users().await;
    let Output::Done { notices, .. } = db.try_run("ALTER TABLE t SPLIT AT ((50))").await.unwrap()
    else {
        panic!("rows")
    };
    assert!(notices[0].message.contains("already"), "{notices:?}");
    assert!(db.fake.orders.lock().is_empty());
    let ids = db.partitions();
    let error = db.error(&format!("ALTER TABLE t SPLIT PARTITION {} AT (70)", ids[0])).await;
    assert!(error.message.contains("not inside of partition"), "{}", error.message);
    assert_eq!(db.error("ALTER TABLE t SPLIT PARTITION 999").await.sqlstate, "42704");
    assert_eq!(db.error("ALTER TABLE nothing SPLIT AT ((1))").await.sqlstate, "42P01");
    assert_eq!(db.tag("ALTER TABLE IF EXISTS nothing SPLIT AT ((1))").await, "ALTER TABLE");
    // One row has no middle.
    db.tag("CREATE TABLE one (a INT PRIMARY KEY)").await;
    let only =
        db.frontend.catalog().table("public", "one").unwrap().partitions.routes()[0].partition;
    assert_eq!(
        db.error(&format!("ALTER TABLE one SPLIT PARTITION {only}")).await.sqlstate,
        "22023"
    );
}

#[tokio::test]
async fn options_of_partitioning_are_altered_and_shown() {
    let db = users().await;
    db.tag(
        "ALTER TABLE t SET (AUTO_PARTITIONING_BY_LOAD = DISABLED, PARTITION_SIZE_MB = 64, \
         hotspot_remedy = 'auto', keep_together = 1)",
    )
    .await;
    let shown = db.rows("SHOW CREATE TABLE t").await[0][1].clone();
    for said in [
        "'auto_partitioning_by_load' = 'DISABLED'",
        "'auto_partitioning_partition_size_mb' = '64'",
        "'hotspot_remedy' = 'auto'",
        "'keep_together' = '1'",
    ] {
        assert!(shown.contains(said), "{said} in {shown}");
    }
    db.tag("ALTER TABLE t UNSET hotspot_remedy").await;
    assert!(!db.rows("SHOW CREATE TABLE t").await[0][1].contains("hotspot_remedy"));
}

#[tokio::test]
async fn maintenance_waits_for_replicas_that_are_starting() {
    let db = users().await;
    for statement in ["ADMIN flush_table('t')", "ADMIN compact_table('t')"] {
        db.fake.maintained.lock().clear();
        db.fake.maintenance_errors.lock().extend([
            Error::NotFound { kind: "partition", name: "12".to_owned() },
            Error::Unavailable("starting".to_owned()),
            Error::Overloaded("memtables are full".to_owned()),
        ]);
        assert_eq!(db.tag(statement).await, "ADMIN");
        let mut maintained: Vec<u64> = db.fake.maintained.lock().iter().map(|p| p.0).collect();
        let attempts = maintained.len();
        maintained.sort_unstable();
        maintained.dedup();
        assert_eq!(maintained, db.partitions());
        assert_eq!(attempts, maintained.len(), "each partition was maintained once");
    }
    db.fake.maintenance_errors.lock().push_back(Error::Storage("page 7".to_owned()));
    assert_eq!(db.error("ADMIN flush_table('t')").await.sqlstate, "58030");
}
