//! Views: the rights of their owners, and the rows of tokens.

use super::Db;
use super::access_world::{Who, session_of, world};

/// A world in which `acme_boss` has views of `acme_t`, which `acme_staff` may read but not the table itself.
async fn world_with_views() -> Db {
    let db = world().await;
    let boss = session_of(&db, Who::Whole, "acme");
    for sql in [
        "CREATE VIEW shown AS SELECT k, v FROM acme_t",
        "CREATE VIEW above AS SELECT k FROM shown WHERE v >= 10",
        "GRANT SELECT ON shown TO acme_staff",
        "GRANT SELECT ON above TO acme_staff",
        "REVOKE SELECT ON acme_t FROM acme_staff",
    ] {
        boss.tag(sql).await;
    }
    db
}

#[tokio::test]
async fn a_view_is_read_by_the_rights_of_its_owner() {
    let db = world_with_views().await;
    let member = session_of(&db, Who::Member, "acme");
    assert_eq!(member.error("SELECT * FROM acme_t").await.sqlstate, "42P01");
    assert_eq!(member.lines("SELECT k, v FROM shown ORDER BY k").await, ["1|10", "2|20"]);
    assert_eq!(member.lines("SELECT k FROM above ORDER BY k").await, ["1", "2"]);
    // A view that the reader may read, over one that its owner may not read any more.
    db.tag("ALTER TABLE acme.above OWNER TO acme_member").await;
    let boss = session_of(&db, Who::Whole, "acme");
    boss.tag("REVOKE SELECT ON shown FROM acme_staff").await;
    let error = member.error("SELECT k FROM above").await;
    assert_eq!(error.sqlstate, "42501", "{error:?}");
    assert!(error.message.contains("shown"), "{error:?}");
}

#[tokio::test]
async fn a_view_over_a_table_that_its_owner_lost_is_refused() {
    let db = world_with_views().await;
    let member = session_of(&db, Who::Member, "acme");
    db.tag("ALTER TABLE acme.acme_t OWNER TO partita").await;
    db.tag("ALTER DATABASE acme OWNER TO partita").await;
    db.tag("GRANT SELECT ON acme.shown TO acme_staff").await;
    let error = member.error("SELECT k FROM shown").await;
    assert_eq!(error.sqlstate, "42501", "{error:?}");
    assert!(error.message.contains("acme_t"), "{error:?}");
}

#[tokio::test]
async fn a_token_for_rows_reads_no_other_row_through_a_view() {
    let db = world_with_views().await;
    let rows = session_of(&db, Who::Rows, "acme");
    for sql in [
        "SELECT k, v FROM shown",
        "SELECT max(k), max(v) FROM shown",
        "SELECT above.k, shown.v FROM above JOIN shown USING (k)",
        "SELECT k, v FROM shown WHERE k IN (SELECT k FROM above)",
    ] {
        assert_eq!(rows.lines(sql).await, ["1|10"], "{sql}");
    }
    assert_eq!(rows.one("SELECT count(*) FROM above WHERE k = 2").await, "0");
    // A token of one database reads nothing of another one, whatever the view's owner may read.
    db.tag("CREATE TABLE public.hidden (k INT PRIMARY KEY)").await;
    db.tag("CREATE VIEW acme.through AS SELECT k FROM public.hidden").await;
    assert_eq!(db.one("SELECT count(*) FROM acme.through").await, "0");
    for who in [Who::Rows, Who::Read] {
        let reader = session_of(&db, who, "acme");
        let error = reader.error("SELECT * FROM through").await;
        assert!(["42501", "42P01"].contains(&error.sqlstate.as_str()), "{error:?}");
    }
}

#[tokio::test]
async fn cursors_and_prepared_statements_follow_the_rights_on_views() {
    let db = world_with_views().await;
    let member = session_of(&db, Who::Member, "acme");
    let boss = session_of(&db, Who::Whole, "acme");
    member.tag("PREPARE q AS SELECT k FROM shown ORDER BY k").await;
    member.tag("BEGIN").await;
    member.tag("DECLARE c CURSOR FOR SELECT k FROM shown").await;
    assert_eq!(member.lines("EXECUTE q").await, ["1", "2"]);
    assert_eq!(member.lines("FETCH 1 FROM c").await.len(), 1);
    boss.tag("REVOKE SELECT ON shown FROM acme_staff").await;
    for sql in ["EXECUTE q", "FETCH 1 FROM c"] {
        let error = member.error(sql).await;
        assert!(["42501", "42P01"].contains(&error.sqlstate.as_str()), "{sql}: {error:?}");
    }
}

#[tokio::test]
async fn views_read_each_other_to_a_bounded_depth() {
    let db = Db::new();
    db.tag("CREATE VIEW v0 AS SELECT 1 AS a").await;
    for level in 1..16 {
        let below = level - 1;
        db.tag(&format!("CREATE VIEW v{level} AS SELECT a FROM v{below}")).await;
    }
    assert_eq!(db.one("SELECT a FROM v15").await, "1");
    db.tag("CREATE VIEW v16 AS SELECT a FROM v15").await;
    assert_eq!(db.error("SELECT a FROM v16").await.sqlstate, "54001");
}

#[tokio::test]
async fn a_view_of_many_tables_is_refused() {
    let db = Db::new();
    db.tag("CREATE TABLE t (k INT PRIMARY KEY)").await;
    db.tag("CREATE VIEW v0 AS SELECT k FROM t").await;
    // Each reads twice as many tables as the one below.
    for level in 1..=8 {
        let below = level - 1;
        let query = format!("SELECT k FROM v{below} UNION ALL SELECT k FROM v{below}");
        db.tag(&format!("CREATE VIEW v{level} AS {query}")).await;
    }
    let error = db.error("CREATE VIEW v9 AS SELECT k FROM v8 UNION ALL SELECT k FROM v8").await;
    assert_eq!(error.sqlstate, "54001", "{error:?}");
}
