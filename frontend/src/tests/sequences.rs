//! Sequences: the numbers that statements get, and what identity columns take.

use std::collections::BTreeSet;

use arrow::array::{ArrayRef, Int32Array, StringArray};

use super::*;

#[tokio::test]
async fn sessions_get_numbers_and_remember_their_last_ones() {
    let db = Db::new();
    assert_eq!(db.tag("CREATE SEQUENCE s START 5 INCREMENT 2").await, "CREATE SEQUENCE");
    assert_eq!(db.error("SELECT currval('s')").await.sqlstate, "55000");
    assert_eq!(db.error("SELECT lastval()").await.sqlstate, "55000");
    assert_eq!(db.one("SELECT nextval('s')").await, "5");
    assert_eq!(
        db.lines("SELECT nextval('public.s') FROM (VALUES (1), (2)) AS v").await,
        ["7", "9"]
    );
    assert_eq!(db.lines("SELECT currval('s'), lastval()").await, ["9|9"]);
    assert_eq!(db.one("SELECT setval('s', 100)").await, "100");
    assert_eq!(db.lines("SELECT currval('s'), nextval('s')").await, ["100|102"]);
    assert_eq!(db.one("SELECT setval('s', 7, false)").await, "7");
    assert_eq!(db.one("SELECT nextval('s')").await, "7");
    assert_eq!(db.error("SELECT setval('s', 0)").await.sqlstate, "22003");
    assert_eq!(db.error("SELECT nextval('none')").await.sqlstate, "42P01");
    db.tag("DISCARD SEQUENCES").await;
    assert_eq!(db.error("SELECT currval('s')").await.sqlstate, "55000");
    db.tag("CREATE TABLE t (k INT PRIMARY KEY)").await;
    assert_eq!(db.error("SELECT nextval('t')").await.sqlstate, "42809");
    assert_eq!(db.error("CREATE SEQUENCE t").await.sqlstate, "42P07");
    assert_eq!(db.error("BEGIN READ ONLY; SELECT nextval('s')").await.sqlstate, "25006");
}

#[tokio::test]
async fn a_sequence_ends_or_begins_anew() {
    let db = Db::new();
    db.tag("CREATE SEQUENCE e MAXVALUE 2").await;
    assert_eq!(db.lines("SELECT nextval('e') FROM (VALUES (1), (2)) AS v").await, ["1", "2"]);
    let error = db.error("SELECT nextval('e')").await;
    assert_eq!(error.sqlstate, "2200H");
    assert_eq!(error.message, "nextval: reached maximum value of sequence \"e\" (2)");
    db.tag("ALTER SEQUENCE e CYCLE").await;
    assert_eq!(db.one("SELECT nextval('e')").await, "1");
    db.tag("ALTER SEQUENCE e RESTART 2").await;
    assert_eq!(db.one("SELECT nextval('e')").await, "2");
    assert_eq!(db.error("ALTER SEQUENCE e MAXVALUE 1").await.sqlstate, "22023");
    db.tag("DROP SEQUENCE e").await;
    assert_eq!(db.error("SELECT nextval('e')").await.sqlstate, "42P01");
}

#[tokio::test]
async fn serial_columns_fill_themselves_at_every_door() {
    let db = Db::new();
    db.tag("CREATE TABLE t (id SERIAL PRIMARY KEY, v TEXT) PARTITION BY HASH (id) PARTITIONS 2")
        .await;
    assert_eq!(db.one("INSERT INTO t (v) VALUES ('a') RETURNING id").await, "1");
    assert_eq!(db.one("SELECT currval('t_id_seq')").await, "1");
    assert_eq!(db.lines("INSERT INTO t VALUES (DEFAULT, 'b') RETURNING id, v").await, ["2|b"]);
    assert_eq!(db.one("INSERT INTO t DEFAULT VALUES RETURNING id").await, "3");
    assert_eq!(
        db.lines("INSERT INTO t (v) SELECT 'c' FROM (VALUES (1), (2)) AS x RETURNING id").await,
        ["4", "5"]
    );
    assert_eq!(
        db.one("INSERT INTO t (v) VALUES ('d') ON CONFLICT DO NOTHING RETURNING id").await,
        "6"
    );
    // A given value is stored as it is, and the sequence does not follow.
    db.tag("INSERT INTO t VALUES (100, 'e')").await;
    let values: ArrayRef = Arc::new(StringArray::from(vec!["f", "g"]));
    let rows = RecordBatch::try_from_iter([("v", values)]).unwrap();
    let table = Arc::clone(db.frontend.catalog().table("public", "t").unwrap());
    assert_eq!(db.frontend.ingest(&db.permit(), &table, rows).await.unwrap(), 2);
    assert_eq!(
        db.lines("SELECT id FROM t ORDER BY id").await,
        ["1", "2", "3", "4", "5", "6", "7", "8", "100"]
    );
    let error = db.error("INSERT INTO t VALUES (DEFAULT, 'x'), (9, 'y')").await;
    assert_eq!(error.sqlstate, "0A000");
    let ids: ArrayRef = Arc::new(Int32Array::from(vec![200]));
    let rows = RecordBatch::try_from_iter([("id", ids)]).unwrap();
    assert_eq!(db.frontend.ingest(&db.permit(), &table, rows).await.unwrap(), 1);
}

#[tokio::test]
async fn a_sequence_goes_with_its_table_and_stays_while_a_default_uses_it() {
    let db = Db::new();
    db.tag("CREATE TABLE t (id BIGSERIAL PRIMARY KEY)").await;
    assert_eq!(db.error("DROP SEQUENCE t_id_seq").await.sqlstate, "2BP01");
    db.tag("DROP TABLE t").await;
    assert_eq!(db.error("DROP SEQUENCE t_id_seq").await.sqlstate, "42P01");
    // Names that are taken get a number.
    db.tag("CREATE SEQUENCE t_id_seq").await;
    db.tag("CREATE TABLE t (id BIGSERIAL PRIMARY KEY)").await;
    assert_eq!(db.one("INSERT INTO t DEFAULT VALUES RETURNING id").await, "1");
    assert_eq!(db.one("SELECT currval('t_id_seq1')").await, "1");
    db.tag("CREATE TABLE u (k BIGINT DEFAULT nextval('t_id_seq') PRIMARY KEY)").await;
    assert_eq!(db.one("INSERT INTO u DEFAULT VALUES RETURNING k").await, "1");
    assert_eq!(db.error("DROP SEQUENCE t_id_seq").await.sqlstate, "2BP01");
    assert_eq!(
        db.error("CREATE TABLE w (k BIGINT DEFAULT nextval('none') PRIMARY KEY)").await.sqlstate,
        "42P01"
    );
}

#[tokio::test]
async fn identity_columns_take_values_as_they_say() {
    let db = Db::new();
    db.tag(
        "CREATE TABLE i (a INT GENERATED ALWAYS AS IDENTITY (START WITH 10) PRIMARY KEY, \
         b INT GENERATED BY DEFAULT AS IDENTITY, v INT)",
    )
    .await;
    assert_eq!(db.lines("INSERT INTO i (v) VALUES (1) RETURNING a, b, v").await, ["10|1|1"]);
    let error = db.error("INSERT INTO i (a, v) VALUES (1, 1)").await;
    assert_eq!(error.sqlstate, "428C9");
    assert_eq!(error.message, "cannot insert a non-DEFAULT value into column \"a\"");
    assert_eq!(db.error("INSERT INTO i (a, v) SELECT 1, 1").await.sqlstate, "428C9");
    assert_eq!(
        db.lines("INSERT INTO i (a, b, v) OVERRIDING SYSTEM VALUE VALUES (1, 7, 2) RETURNING a, b")
            .await,
        ["1|7"]
    );
    assert_eq!(
        db.lines("INSERT INTO i (a, b, v) OVERRIDING USER VALUE VALUES (1, 7, 3) RETURNING a, b")
            .await,
        ["11|2"]
    );
    assert_eq!(db.error("UPDATE i SET a = 5 WHERE v = 1").await.sqlstate, "428C9");
    assert_eq!(db.tag("UPDATE i SET b = 5 WHERE v = 1").await, "UPDATE 1");
    let columns = "SELECT column_name, is_identity, identity_generation \
                   FROM information_schema.columns WHERE table_name = 'i' AND is_identity = 'YES' \
                   ORDER BY ordinal_position";
    assert_eq!(db.lines(columns).await, ["a|YES|ALWAYS", "b|YES|BY DEFAULT"]);
}

#[tokio::test]
async fn truncate_restarts_the_counters_of_its_tables_if_asked() {
    let db = Db::new();
    db.tag("CREATE TABLE t (id SERIAL PRIMARY KEY, n INT GENERATED BY DEFAULT AS IDENTITY (START WITH 7))")
        .await;
    db.tag("CREATE ROLE ann LOGIN").await;
    db.tag("GRANT SELECT, INSERT, TRUNCATE ON t TO ann").await;
    let row = "INSERT INTO t DEFAULT VALUES RETURNING id, n";
    assert_eq!(db.lines(row).await, ["1|7"]);
    for kept in ["TRUNCATE t", "TRUNCATE t CONTINUE IDENTITY"] {
        assert_eq!(db.tag(kept).await, "TRUNCATE TABLE");
    }
    assert_eq!(db.lines(row).await, ["2|8"]);
    // The numbers belong to the owner of the table.
    db.tag("SET ROLE ann").await;
    assert_eq!(db.error("TRUNCATE t RESTART IDENTITY").await.sqlstate, "42501");
    assert_eq!(db.one("SELECT count(*) FROM t").await, "1");
    db.tag("TRUNCATE t").await;
    db.tag("RESET ROLE").await;
    assert_eq!(db.tag("TRUNCATE t RESTART IDENTITY").await, "TRUNCATE TABLE");
    assert_eq!(db.lines(row).await, ["1|7"]);
}

#[tokio::test]
async fn a_key_that_begins_with_a_counter_is_told_to_be_hot() {
    let db = Db::new();
    let output = db.try_run("CREATE TABLE t (id SERIAL PRIMARY KEY, v INT)").await.unwrap();
    let Output::Done { notices, .. } = output else { panic!("rows") };
    let notice = notices.iter().find(|notice| notice.message.contains("counter \"id\"")).unwrap();
    let hint = notice.hint.as_deref().unwrap();
    assert!(hint.contains("PARTITION BY HASH (id)"), "{hint}");
}

#[tokio::test]
async fn frontends_share_a_sequence_and_see_that_it_was_set() {
    let db = Db::new();
    db.tag("CREATE SEQUENCE s CACHE 3").await;
    let other = db.fake.frontend(FrontendOptions::default()).unwrap();
    let session = other.session(SessionOptions::default());
    let there = Db { fake: Arc::clone(&db.fake), frontend: other, session };
    let mut seen = BTreeSet::new();
    for _ in 0..20 {
        assert!(seen.insert(db.one("SELECT nextval('s')").await));
        assert!(seen.insert(there.one("SELECT nextval('s')").await));
    }
    // Blocks from before are worth nothing after that.
    db.one("SELECT setval('s', 1000)").await;
    assert_eq!(there.one("SELECT nextval('s')").await, "1001");
}

#[tokio::test]
async fn rights_on_a_sequence_are_granted_as_in_postgresql() {
    let db = Db::new();
    db.tag("CREATE ROLE ann LOGIN").await;
    db.tag("CREATE SEQUENCE s").await;
    db.tag("CREATE SEQUENCE r").await;
    db.tag("CREATE TABLE u (k BIGINT DEFAULT nextval('s') PRIMARY KEY, v INT)").await;
    db.tag("GRANT INSERT ON u TO ann").await;
    let code = async |sql: &str| {
        db.try_run("SET ROLE ann").await.unwrap();
        let result = match db.try_run(sql).await {
            Ok(output) => collect(output).await.map(drop),
            Err(error) => Err(error),
        };
        db.try_run("RESET ROLE").await.unwrap();
        result.err().map(|error| error.sqlstate)
    };
    let (hidden, refused) = (Some("42P01".to_owned()), Some("42501".to_owned()));
    let (next, current) = ("SELECT nextval('s')", "SELECT currval('s')");
    let (set, row) = ("SELECT setval('s', 9)", "INSERT INTO u (v) VALUES (1)");
    assert_eq!(code(next).await, hidden);
    assert_eq!(code(row).await, refused);
    // Each of the three rights, alone.
    db.tag("GRANT USAGE ON SEQUENCE s TO ann").await;
    let results = [code(next).await, code(current).await, code(set).await, code(row).await];
    assert_eq!(results, [None, None, refused.clone(), None]);
    db.tag("REVOKE USAGE ON SEQUENCE s FROM ann").await;
    db.tag("GRANT SELECT ON SEQUENCE s TO ann").await;
    let results = [code(next).await, code(current).await, code(set).await, code(row).await];
    assert_eq!(results, [refused.clone(), None, refused.clone(), refused.clone()]);
    db.tag("REVOKE SELECT ON SEQUENCE s FROM ann").await;
    db.tag("GRANT UPDATE ON SEQUENCE s TO ann").await;
    let results = [code(next).await, code(current).await, code(set).await, code(row).await];
    assert_eq!(results, [None, refused.clone(), None, None]);
    assert_eq!(code("DROP SEQUENCE s").await, refused);
    assert_eq!(code("GRANT UPDATE ON SEQUENCE s TO PUBLIC").await, None);
    assert_eq!(
        db.lines("SELECT \"table\", privilege FROM sys.grants WHERE object = 'sequence'").await,
        ["s|UPDATE"]
    );
    // All sequences of a database, those that come later not included.
    db.tag("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO ann").await;
    assert_eq!(code("SELECT nextval('r')").await, None);
    db.tag("CREATE SEQUENCE late").await;
    assert_eq!(code("SELECT nextval('late')").await, hidden);
    assert_eq!(
        db.lines("SHOW GRANTS FOR ann").await[1..],
        [
            "sequence|public.s|ann|SELECT, UPDATE, USAGE||partita",
            "sequence|public.r|ann|SELECT, UPDATE, USAGE||partita"
        ]
    );
    db.tag("DROP SEQUENCE r").await;
    assert_eq!(db.error("GRANT INSERT ON SEQUENCE s TO ann").await.sqlstate, "0LP01");
    assert_eq!(db.error("GRANT USAGE ON SEQUENCE u TO ann").await.sqlstate, "42809");
    assert_eq!(db.error("GRANT USAGE ON SEQUENCE nope TO ann").await.sqlstate, "42P01");
}

#[tokio::test]
async fn a_sequence_gets_another_owner_unless_a_column_owns_it() {
    let db = Db::new();
    db.tag("CREATE ROLE ann LOGIN").await;
    db.tag("CREATE SEQUENCE s").await;
    db.tag("CREATE TABLE t (id SERIAL PRIMARY KEY)").await;
    assert_eq!(db.tag("ALTER SEQUENCE s OWNER TO ann").await, "ALTER SEQUENCE");
    let error = db.error("ALTER SEQUENCE t_id_seq OWNER TO ann").await;
    assert_eq!((error.sqlstate.as_str(), error.detail.is_some()), ("0A000", true));
    assert_eq!(db.error("ALTER SEQUENCE none OWNER TO ann").await.sqlstate, "42P01");
    db.tag("ALTER SEQUENCE IF EXISTS none OWNER TO ann").await;
    db.tag("SET ROLE ann").await;
    assert_eq!(db.one("SELECT setval('s', 5)").await, "5");
    assert_eq!(db.tag("DROP SEQUENCE s").await, "DROP SEQUENCE");
}

#[tokio::test]
async fn a_right_on_a_sequence_needs_none_on_its_database() {
    let db = Db::new();
    db.tag("CREATE ROLE ann LOGIN").await;
    db.tag("CREATE DATABASE d").await;
    db.tag("CREATE SEQUENCE d.s").await;
    db.tag("GRANT USAGE ON SEQUENCE d.s TO ann WITH GRANT OPTION").await;
    db.tag("SET ROLE ann").await;
    assert_eq!(db.one("SELECT nextval('d.s')").await, "1");
    db.tag("GRANT USAGE ON SEQUENCE d.s TO PUBLIC").await;
    db.tag("RESET ROLE").await;
    // What was granted by the option depends on it.
    let revocation = "REVOKE USAGE ON SEQUENCE d.s FROM ann";
    assert_eq!(db.error(revocation).await.sqlstate, "2BP01");
    db.tag("REVOKE USAGE ON SEQUENCE d.s FROM ann CASCADE").await;
    db.tag("SET ROLE ann").await;
    assert_eq!(db.error("SELECT nextval('d.s')").await.sqlstate, "42P01");
}

#[tokio::test]
async fn rights_follow_the_table_or_the_database() {
    let db = Db::new();
    db.tag("CREATE ROLE ann LOGIN").await;
    db.tag("CREATE SEQUENCE free").await;
    db.tag("CREATE TABLE t (id SERIAL PRIMARY KEY, v INT)").await;
    let code = async |sql: &str| {
        db.try_run("SET ROLE ann").await.unwrap();
        let result = match db.try_run(sql).await {
            Ok(output) => collect(output).await.map(drop),
            Err(error) => Err(error),
        };
        db.try_run("RESET ROLE").await.unwrap();
        result.err().map(|error| error.sqlstate)
    };
    let hidden = Some("42P01".to_owned());
    assert_eq!(code("SELECT nextval('free')").await, hidden);
    assert_eq!(code("SELECT nextval('t_id_seq')").await, hidden);
    assert_eq!(code("DROP SEQUENCE free").await, hidden);
    db.tag("GRANT INSERT ON t TO ann").await;
    assert_eq!(code("INSERT INTO t (v) VALUES (1)").await, None);
    assert_eq!(code("SELECT nextval('t_id_seq')").await, None);
    let refused = Some("42501".to_owned());
    assert_eq!(code("SELECT setval('t_id_seq', 9)").await, refused);
    assert_eq!(code("ALTER SEQUENCE t_id_seq RESTART").await, refused);
    db.tag("GRANT UPDATE ON t TO ann").await;
    assert_eq!(code("SELECT setval('t_id_seq', 9)").await, None);
    // A default that uses another sequence needs the right to it.
    db.tag("CREATE TABLE u (k BIGINT DEFAULT nextval('free') PRIMARY KEY, v INT)").await;
    db.tag("GRANT INSERT ON u TO ann").await;
    assert_eq!(code("INSERT INTO u (v) VALUES (1)").await, refused);
}
