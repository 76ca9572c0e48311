//! What each statement is read as, and where errors point.

use std::time::Duration;

use partita_proto::id::{NodeId, PartitionId};
use partita_proto::schema::{ColumnType, HotspotRemedy, TableOptions};
use partita_proto::service::{AdminOrder, TableChange};

use super::{made, one};
use crate::parse;
use crate::statement::{
    Admin, AlterChange, AlterTable, Comment, CommentObject, CopyColumns, CopyFormat, CopyHeader,
    Direction, Fetch, InsertSource, SeriesCardinality, Set, SetValue, Show, Statement, TableName,
    Transaction,
};

#[track_caller]
fn refused(sql: &str, sqlstate: &str, says: &str) {
    let error = parse(sql).expect_err(sql);
    assert_eq!(error.sqlstate, sqlstate, "{sql}: {}", error.message);
    assert!(error.message.contains(says), "{sql}: {}", error.message);
}

fn alter(sql: &str) -> AlterTable {
    match one(sql).unwrap() {
        Statement::AlterTable(alter) => alter,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_statement_has_its_tag() {
    for (sql, tag) in [
        ("SELECT 1", "SELECT"),
        ("/* x */ select 1 -- y", "SELECT"),
        ("(SELECT 1)", "SELECT"),
        ("WITH a AS (SELECT 1) SELECT * FROM a", "SELECT"),
        ("VALUES (1), (2)", "SELECT"),
        ("TABLE t", "SELECT"),
        ("EXPLAIN TABLE t", "EXPLAIN"),
        ("EXPLAIN (TABLE d.t UNION TABLE u)", "EXPLAIN"),
        ("INSERT INTO t TABLE u", "INSERT"),
        ("COPY (TABLE t) TO STDOUT", "COPY"),
        ("PREPARE p AS TABLE t", "PREPARE"),
        ("EXPLAIN SELECT 1", "EXPLAIN"),
        ("EXPLAIN ANALYZE VERBOSE SELECT 1", "EXPLAIN"),
        ("EXPLAIN (ANALYZE, FORMAT tree) SELECT 1", "EXPLAIN"),
        ("EXPLAIN INSERT INTO t SELECT 1", "EXPLAIN"),
        ("EXPLAIN DELETE FROM t", "EXPLAIN"),
        ("INSERT INTO t VALUES (1)", "INSERT"),
        ("REPLACE INTO t VALUES (1)", "INSERT"),
        ("UPSERT INTO t VALUES (1)", "INSERT"),
        ("DELETE FROM t WHERE a = 1", "DELETE"),
        ("COPY t FROM STDIN", "COPY"),
        ("VACUUM", "VACUUM"),
        ("vacuum analyze d.t, u", "VACUUM"),
        ("VACUUM (FULL, ANALYZE) t", "VACUUM"),
        ("ANALYZE VERBOSE t", "ANALYZE"),
        ("ANALYZE", "ANALYZE"),
        ("COPY (SELECT 1) TO STDOUT", "COPY"),
        ("CREATE DATABASE IF NOT EXISTS d WITH (ttl = '7d')", "CREATE DATABASE"),
        ("CREATE SCHEMA d", "CREATE DATABASE"),
        ("ALTER DATABASE d SET 'ttl' = '1d'", "ALTER DATABASE"),
        ("ALTER DATABASE d UNSET 'ttl'", "ALTER DATABASE"),
        ("DROP SCHEMA IF EXISTS d CASCADE", "DROP DATABASE"),
        ("DROP TABLE IF EXISTS a, b.c", "DROP TABLE"),
        (
            "UPDATE ONLY d.t AS a SET v = a.v + 1, (w, x) = (1, DEFAULT) FROM u WHERE a.k = u.k",
            "UPDATE",
        ),
        ("UPDATE t SET a = 1 WHERE b = 2 RETURNING *, a + 1 AS next", "UPDATE"),
        ("DELETE FROM t AS x WHERE a = 1 RETURNING x.a", "DELETE"),
        ("INSERT INTO t SELECT 1 RETURNING a", "INSERT"),
        ("INSERT INTO t SELECT a FROM u ON CONFLICT DO NOTHING", "INSERT"),
        ("INSERT INTO t DEFAULT VALUES ON CONFLICT ON CONSTRAINT t_pkey DO NOTHING", "INSERT"),
        (
            "INSERT INTO t AS x (k, v) VALUES (1, 2) ON CONFLICT (k) \
             DO UPDATE SET v = x.v + excluded.v WHERE x.v < 9 RETURNING v",
            "INSERT",
        ),
        ("INSERT INTO t DEFAULT VALUES RETURNING a", "INSERT"),
        ("EXPLAIN UPDATE t SET a = 1", "EXPLAIN"),
        ("PREPARE p AS UPDATE t SET a = $1", "PREPARE"),
        ("DROP TABLE a CASCADE", "DROP TABLE"),
        ("CREATE MATERIALIZED COPY c OF t PRIMARY KEY (b, a)", "CREATE MATERIALIZED COPY"),
        ("DROP MATERIALIZED COPY IF EXISTS c, d.e", "DROP MATERIALIZED COPY"),
        ("CREATE INDEX i ON t USING inverted (a)", "CREATE INDEX"),
        ("DROP INDEX IF EXISTS i", "DROP INDEX"),
        ("TRUNCATE TABLE t", "TRUNCATE TABLE"),
        ("TRUNCATE t", "TRUNCATE TABLE"),
        ("ALTER VIEW IF EXISTS d.v RENAME TO w", "ALTER VIEW"),
        ("ALTER TABLE v RENAME TO w", "ALTER TABLE"),
        ("TRUNCATE t, d.u RESTART IDENTITY CASCADE", "TRUNCATE TABLE"),
        ("TRUNCATE t CONTINUE IDENTITY", "TRUNCATE TABLE"),
        ("USE d", "USE"),
        ("SHOW DATABASES", "SHOW"),
        ("DESC t", "DESCRIBE"),
        ("DESCRIBE TABLE t", "DESCRIBE"),
        ("SET a.b = 1", "SET"),
        ("SET a TO DEFAULT", "RESET"),
        ("RESET a", "RESET"),
        ("RESET ALL", "RESET"),
        ("BEGIN", "BEGIN"),
        ("BEGIN ISOLATION LEVEL READ COMMITTED, READ ONLY", "BEGIN"),
        ("START TRANSACTION READ WRITE", "BEGIN"),
        ("COMMIT WORK", "COMMIT"),
        ("END", "COMMIT"),
        ("ROLLBACK", "ROLLBACK"),
        ("ABORT", "ROLLBACK"),
        ("SAVEPOINT a", "SAVEPOINT"),
        ("RELEASE SAVEPOINT a", "RELEASE"),
        ("ROLLBACK TO SAVEPOINT a", "ROLLBACK"),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "SET"),
        ("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SET"),
        ("PREPARE p (int, text) AS SELECT $1, $2", "PREPARE"),
        ("EXECUTE p (1, 'a')", "EXECUTE"),
        ("DEALLOCATE PREPARE p", "DEALLOCATE"),
        ("DEALLOCATE ALL", "DEALLOCATE ALL"),
        ("DECLARE c NO SCROLL CURSOR WITH HOLD FOR SELECT 1", "DECLARE CURSOR"),
        ("FETCH FORWARD 5 FROM c", "FETCH"),
        ("MOVE ALL IN c", "MOVE"),
        ("CLOSE c", "CLOSE CURSOR"),
        ("DISCARD ALL", "DISCARD ALL"),
        ("LISTEN \"My channel\"", "LISTEN"),
        ("NOTIFY jobs", "NOTIFY"),
        ("NOTIFY jobs, 'payload'", "NOTIFY"),
        ("ADMIN flush_table('t')", "ADMIN"),
        ("", ""),
        ("-- nothing", ""),
    ] {
        assert_eq!(one(sql).unwrap().tag(), tag, "{sql}");
    }
}

#[test]
fn the_zone_of_mysql_is_east_of_greenwich() {
    for (text, zone) in [
        ("SET time_zone = '+08:00'", SetValue::Values(vec!["8".to_owned()])),
        ("SET SESSION time_zone = '-05:30'", SetValue::Values(vec!["-5.5".to_owned()])),
        ("SET time_zone = 'Asia/Shanghai'", SetValue::Values(vec!["Asia/Shanghai".to_owned()])),
        ("SET time_zone = SYSTEM", SetValue::Default),
        ("RESET time_zone", SetValue::Default),
    ] {
        let Statement::Set(set) = one(text).unwrap() else { panic!("{text}") };
        assert_eq!((set.name.as_str(), set.value), ("timezone", zone), "{text}");
    }
}

#[test]
fn a_changed_type_has_no_other_values_than_those_of_the_column() {
    for sql in [
        "ALTER TABLE t ALTER v SET DATA TYPE BIGINT USING v + 1",
        "ALTER TABLE t ALTER v TYPE BIGINT USING v::int",
        "ALTER TABLE t ALTER v TYPE BIGINT USING w",
        "ALTER TABLE t ALTER v TYPE BIGINT USING length(v)",
        "ALTER TABLE t ALTER v TYPE BIGINT USING 1",
    ] {
        let error = one(sql).unwrap_err();
        assert_eq!(error.sqlstate, "0A000", "{sql}");
        assert!(error.message.contains("USING"), "{sql}");
        assert!(error.hint.is_some_and(|hint| hint.contains("CAST(column AS type)")), "{sql}");
    }
    for (sql, nullable) in [
        ("ALTER TABLE t ALTER COLUMN v TYPE BIGINT", None),
        ("ALTER TABLE t ALTER v SET DATA TYPE int8 USING v", None),
        ("ALTER TABLE t ALTER v TYPE BIGINT USING v::bigint", None),
        ("ALTER TABLE t ALTER v TYPE BIGINT USING CAST(v AS int8)", None),
        ("ALTER TABLE t MODIFY COLUMN v BIGINT", None),
        ("ALTER TABLE t MODIFY v BIGINT NOT NULL", Some(false)),
        ("ALTER TABLE t MODIFY v BIGINT NULL", Some(true)),
    ] {
        let alter = alter(sql);
        let [AlterChange::SetType(change)] = alter.changes.as_slice() else { panic!("{sql}") };
        assert_eq!((change.column.as_str(), change.column_type), ("v", ColumnType::Int64), "{sql}");
        assert_eq!((change.length, change.json, change.nullable), (None, None, nullable), "{sql}");
    }
    let alter =
        alter("ALTER TABLE t ALTER a TYPE VARCHAR(9), ALTER b DROP NOT NULL, MODIFY b TEXT");
    let [AlterChange::SetType(_), AlterChange::DropNotNull(name), AlterChange::SetType(_)] =
        alter.changes.as_slice()
    else {
        panic!("{alter:?}")
    };
    assert_eq!(name, "b");
    refused("ALTER TABLE t ALTER a SET NOT NULL", "0A000", "SET NOT NULL");
}

#[test]
fn options_without_effect_are_told() {
    let alter = alter("ALTER TABLE t SET 'compaction.type' = 'twcs'");
    assert!(alter.changes.is_empty());
    assert_eq!(alter.notices[0].message, "table option without effect: 'compaction.type'");
}

#[test]
fn several_statements_come_in_order() {
    let statements = parse("BEGIN; INSERT INTO t VALUES ('a;b'), (';'); ; COMMIT;").unwrap();
    let tags: Vec<_> = statements.iter().map(Statement::tag).collect();
    assert_eq!(tags, ["BEGIN", "INSERT", "COMMIT"]);
    assert!(parse(";").unwrap().iter().all(|s| matches!(s, Statement::Empty)));
}

#[test]
fn texts_on_several_lines_are_one_text() {
    let Some(Statement::Query(query)) = parse("SELECT 'one'\n  'two'").unwrap().pop() else {
        panic!()
    };
    assert_eq!(query.statement.to_string(), "SELECT 'onetwo'");
    for text in ["SELECT 'one' 'two'", "SELECT 'one' AS 'two'", "SELECT 1 WHERE 'a' = 'b' 'c'"] {
        assert_eq!(parse(text).unwrap_err().sqlstate, "42601", "{text}");
    }
}

#[test]
fn what_is_not_done_is_refused_by_name() {
    for (sql, says) in [
        ("UPDATE t SET (a, b) = (SELECT 1, 2)", "UPDATE ... SET (...) = (SELECT ...)"),
        ("UPDATE t SET a = 1 WHERE CURRENT OF c", "WHERE CURRENT OF"),
        ("UPDATE t SET a = 1 ORDER BY a LIMIT 1", "UPDATE ... ORDER BY"),
        ("MERGE INTO t USING u ON a = b WHEN MATCHED THEN DELETE", "MERGE"),
        ("GRANT SELECT (a) ON t TO u", "a privilege on columns"),
        ("GRANT EXECUTE ON FUNCTION f TO u", "a privilege on a FUNCTION"),
        ("VACUUM (INDEX_CLEANUP) t", "option INDEX_CLEANUP of VACUUM"),
        ("CREATE VIEW v AS SELECT 1 WITH CHECK OPTION", "WITH CHECK OPTION"),
        ("CREATE RECURSIVE VIEW v (a) AS SELECT 1", "CREATE RECURSIVE VIEW"),
        ("CREATE VIEW v WITH (security_barrier) AS SELECT 1", "CREATE VIEW ... WITH"),
        ("COMMENT ON ROLE d IS 'x'", "COMMENT ON ROLE"),
        ("CREATE INDEX i ON t (a)", "CREATE INDEX without USING"),
        ("ALTER INDEX i RENAME TO j", "ALTER INDEX"),
        ("CREATE EXTERNAL TABLE t (a INT) STORED AS CSV LOCATION '/etc'", "CREATE EXTERNAL TABLE"),
        ("CREATE TEMPORARY VIEW t AS SELECT 1", "TEMPORARY of anything but a table"),
        ("CREATE TEMP TABLE t (a INT) ON COMMIT DROP", "ON COMMIT DROP"),
        ("CREATE OR REPLACE TABLE t (a INT)", "CREATE OR REPLACE"),
        ("CREATE FUNCTION f() RETURNS INT AS 'x'", "CREATE FUNCTION"),
        ("ALTER VIEW v SET (security_barrier)", "ALTER VIEW ... SET"),
        ("ALTER VIEW v OWNER TO a", "ALTER VIEW ... OWNER"),
        ("COPY t TO PROGRAM 'cat'", "COPY TO PROGRAM"),
        ("COPY t FROM PROGRAM 'ls'", "COPY FROM PROGRAM"),
        ("INSERT INTO t SELECT 1 INTO u", "SELECT ... INTO"),
        ("SELECT * FROM t FOR UPDATE", "FOR UPDATE"),
        ("SELECT * FROM t AS a TABLESAMPLE SYSTEM (1)", "TABLESAMPLE"),
        ("INSERT INTO t SELECT a FROM u FETCH FIRST 3 ROWS WITH TIES", "WITH TIES"),
        ("SELECT a FROM u FETCH FIRST 3 PERCENT ROWS ONLY", "PERCENT"),
        ("DELETE FROM t WHERE a IN (SELECT b FROM u TABLESAMPLE SYSTEM (1))", "TABLESAMPLE"),
        ("WITH a AS (DELETE FROM t) SELECT 1", "writes inside"),
        ("INSERT INTO t SELECT 1 ON DUPLICATE KEY UPDATE a = 1", "ON DUPLICATE KEY"),
        ("INSERT INTO t VALUES (1) ON CONFLICT (a) WHERE b DO NOTHING", "ON CONFLICT (...) WHERE"),
        ("EXPLAIN CREATE TABLE t (a INT PRIMARY KEY)", "EXPLAIN CREATE TABLE"),
        ("SET SESSION AUTHORIZATION x", "SET SESSION AUTHORIZATION"),
        ("DECLARE c BINARY CURSOR FOR SELECT 1", "a BINARY cursor"),
        ("SHOW PROCESSLIST", "SHOW PROCESSLIST"),
        ("ADMIN reboot('t')", "ADMIN reboot"),
        ("SELECT * FROM t; MERGE INTO t USING u ON a = b", "MERGE"),
    ] {
        refused(sql, "0A000", says);
    }
    let merge = parse("MERGE INTO t USING u ON a = b").unwrap_err();
    assert!(merge.hint.unwrap().contains("INSERT"));
}

#[test]
fn views_and_comments_are_read() {
    let Statement::CreateView(view) =
        one("CREATE OR REPLACE VIEW d.v (a, \"B\") AS SELECT 1, 2;").unwrap()
    else {
        panic!()
    };
    assert!(view.or_replace && !view.if_not_exists);
    assert_eq!(view.name, TableName { database: Some("d".to_owned()), name: "v".to_owned() });
    assert_eq!((view.columns.join(" "), &*view.query.text), ("a B".to_owned(), "SELECT 1, 2"));
    let Statement::DropView(drop) = one("DROP VIEW IF EXISTS v, d.w CASCADE").unwrap() else {
        panic!()
    };
    assert!(drop.if_exists && drop.cascade && drop.names.len() == 2);
    let comment = |sql: &str| match one(sql).unwrap() {
        Statement::Comment(comment) => comment,
        other => panic!("{other:?}"),
    };
    let of_column = comment("COMMENT ON COLUMN d.t.c IS 'x'");
    let table = TableName { database: Some("d".to_owned()), name: "t".to_owned() };
    let object = CommentObject::Column { table, column: "c".to_owned() };
    assert_eq!(of_column, Comment { object, text: Some("x".to_owned()) });
    assert_eq!(comment("COMMENT ON TABLE t IS ''").text, None);
    assert_eq!(comment("COMMENT ON VIEW t IS NULL").text, None);
    let of_database = comment("COMMENT ON SCHEMA d IS 'x'").object;
    assert_eq!(of_database, CommentObject::Database("d".to_owned()));
    refused("COMMENT ON COLUMN c IS 'x'", "42601", "qualified");
    refused("COMMENT ON COLUMN other.d.t.c IS 'x'", "0A000", "another catalog");
    assert_eq!(comment("COMMENT ON COLUMN partita.d.t.c IS 'x'"), of_column);
    refused("CREATE OR REPLACE VIEW IF NOT EXISTS v AS SELECT 1", "42601", "exclude");
    refused("CREATE VIEW v AS DELETE FROM t", "0A000", "writes inside");
}

#[test]
fn syntax_errors_point_at_what_is_wrong() {
    for (sql, position) in [
        ("SELEC 1", 1),
        ("SELECT 1 FROM", 14),
        ("SELECT (1", 10),
        ("SELECT 1;\n  FOO", 13),
        ("é; FOO", 1),
        ("SELECT 'é'; FOO", 13),
        ("CREATE TABLE t (a INT PRIMARY KEY) x", 36),
        ("INSERT t VALUES (1)", 8),
        ("INSERT INTO t FOO", 15),
        ("DROP TABLE", 11),
        ("UPDATE t SET", 13),
        ("UPDATE t SET a = 1, a = 2", 21),
        ("UPDATE t SET (a, b) = (1, 2, 3)", 14),
        ("UPDATE t SET a.b = 1", 15),
        ("USE", 4),
    ] {
        let error = parse(sql).expect_err(sql);
        assert_eq!(error.sqlstate, "42601", "{sql}: {}", error.message);
        assert_eq!(error.position, Some(position), "{sql}: {}", error.message);
    }
    refused("SELECT 'a", "42601", "nterminated");
}

#[test]
fn inserts_keep_their_rows_as_text() {
    let Statement::Insert(insert) =
        one("INSERT INTO d.\"T x\" (A, \"B\", `c`) VALUES (1, 'x'), (2)").unwrap()
    else {
        panic!()
    };
    assert_eq!(insert.table, TableName { database: Some("d".into()), name: "T x".into() });
    assert_eq!(insert.columns.unwrap(), ["a", "B", "c"]);
    let InsertSource::Values(range) = insert.source else { panic!() };
    assert_eq!(&insert.text[range], "(1, 'x'), (2)");
    for sql in [
        "INSERT INTO t SELECT 1",
        "INSERT INTO t (SELECT 1)",
        "INSERT INTO t (a) (SELECT 1)",
        "INSERT INTO t WITH x AS (SELECT 1) SELECT * FROM x",
        "INSERT INTO t ((SELECT 1) UNION (SELECT 2))",
        "INSERT INTO t AS u (a) TABLE x",
    ] {
        let Statement::Insert(insert) = one(sql).unwrap() else { panic!() };
        assert!(matches!(insert.source, InsertSource::Query(_)), "{sql}");
    }
}

#[test]
fn rows_end_where_returning_begins_and_not_at_that_word_in_a_text() {
    for (sql, rows, returns) in [
        ("INSERT INTO t VALUES (1) RETURNING a", "(1) ", true),
        ("INSERT INTO t VALUES ('returning'), (\"x\")", "('returning'), (\"x\")", false),
        ("INSERT INTO t VALUES (E'it\\'s returning') returning *", "(E'it\\'s returning') ", true),
        ("INSERT INTO t VALUES ('a''b') /* returning */", "('a''b') /* returning */", false),
        ("INSERT INTO t VALUES (f(returning)), (2)\nRETURNING a, b", "(f(returning)), (2)\n", true),
        ("INSERT INTO t VALUES ('ä'), ('é') RETURNING a", "('ä'), ('é') ", true),
    ] {
        let Statement::Insert(insert) = one(sql).unwrap() else { panic!() };
        let InsertSource::Values(range) = insert.source else { panic!() };
        assert_eq!((&insert.text[range], insert.returning.is_some()), (rows, returns), "{sql}");
    }
    let error = parse("INSERT INTO t VALUES (1) RETURNING a FOO BAR").unwrap_err();
    assert_eq!((error.sqlstate.as_str(), error.position), ("42601", Some(42)));
}

#[test]
fn settings_are_read_as_postgresql_reads_them() {
    let set = |sql: &str| match one(sql).unwrap() {
        Statement::Set(set) => set,
        other => panic!("{other:?}"),
    };
    let values = |values: &[&str]| {
        SetValue::Values(values.iter().map(|value| (*value).to_owned()).collect())
    };
    for (sql, name, value) in [
        ("SET DateStyle TO ISO, MDY", "datestyle", values(&["ISO", "MDY"])),
        ("SET SESSION x = -3", "x", values(&["-3"])),
        ("SET search_path = \"Public\", B", "search_path", values(&["Public", "b"])),
        ("SET TIME ZONE 'UTC'", "timezone", values(&["UTC"])),
        ("SET TIME ZONE LOCAL", "timezone", SetValue::Default),
        ("SET NAMES 'utf8'", "client_encoding", values(&["utf8"])),
        ("SET a.b.c = on", "a.b.c", values(&["on"])),
        ("RESET statement_timeout", "statement_timeout", SetValue::Default),
    ] {
        assert_eq!(set(sql), Set { name: name.into(), value, local: false }, "{sql}");
    }
    assert!(set("SET LOCAL x = 1").local);
    let rollback = Transaction::RollbackTo("a".into());
    assert!(matches!(one("ROLLBACK TO a").unwrap(), Statement::Transaction(t) if t == rollback));
}

#[test]
fn show_shows_many_things() {
    let show = |sql: &str| match one(sql).unwrap() {
        Statement::Show(show) => show,
        other => panic!("{other:?}"),
    };
    let t = || TableName::bare("t");
    let d = || Some("d".to_owned());
    for (sql, expected) in [
        ("SHOW SCHEMAS LIKE 'a%'", Show::Databases { like: Some("a%".into()) }),
        ("SHOW TABLES", Show::Tables { database: None, like: None, full: false }),
        (
            "SHOW FULL TABLES IN d LIKE 'x'",
            Show::Tables { database: d(), like: Some("x".into()), full: true },
        ),
        ("SHOW CREATE TABLE t", Show::CreateTable(t())),
        ("SHOW CREATE VIEW t", Show::CreateView(t())),
        ("SHOW COLUMNS FROM t", Show::Columns(t())),
        (
            "SHOW COLUMNS FROM t FROM d",
            Show::Columns(TableName { database: d(), name: "t".into() }),
        ),
        ("SHOW PARTITIONS FROM t", Show::Partitions(t())),
        ("SHOW INDEX FROM t", Show::Indexes(t())),
        ("SHOW INDEXES IN t", Show::Indexes(t())),
        ("SHOW KEYS FROM t FROM d", Show::Indexes(TableName { database: d(), name: "t".into() })),
        ("SHOW TAG KEYS FROM t", Show::TagKeys(Some(t()))),
        ("SHOW FIELD KEYS", Show::FieldKeys(None)),
        ("SHOW MEASUREMENTS ON d", Show::Measurements { database: d() }),
        ("SHOW TimeZone", Show::Variable("timezone".into())),
        ("SHOW TIME ZONE", Show::Variable("timezone".into())),
        ("SHOW TRANSACTION ISOLATION LEVEL", Show::Variable("transaction_isolation".into())),
        ("SHOW ALL", Show::All),
    ] {
        assert_eq!(show(sql), expected, "{sql}");
    }
}

#[test]
fn the_cardinality_of_series_is_shown_for_a_database_or_a_table() {
    let parsed = |sql: &str| match one(sql).unwrap() {
        Statement::SeriesCardinality(shown) => shown,
        other => panic!("{other:?}"),
    };
    let expected = |exact, database: Option<&str>, table: Option<TableName>| SeriesCardinality {
        exact,
        database: database.map(str::to_owned),
        table,
    };
    let t = |database: Option<&str>| TableName {
        database: database.map(str::to_owned),
        name: "t".to_owned(),
    };
    for (sql, expected) in [
        ("SHOW SERIES CARDINALITY", expected(false, None, None)),
        ("show series cardinality exact", expected(true, None, None)),
        ("SHOW SERIES EXACT CARDINALITY ON d", expected(true, Some("d"), None)),
        ("SHOW SERIES CARDINALITY FROM t", expected(false, None, Some(t(None)))),
        ("SHOW SERIES CARDINALITY ON d FROM t", expected(false, Some("d"), Some(t(Some("d"))))),
        ("SHOW SERIES CARDINALITY FROM d.t", expected(false, None, Some(t(Some("d"))))),
    ] {
        assert_eq!(parsed(sql), expected, "{sql}");
        assert_eq!(one(sql).unwrap().tag(), "SHOW");
    }
    refused("SHOW SERIES CARDINALITY LIMIT 1", "42601", "LIMIT");
    refused("SHOW SERIES", "0A000", "SHOW SERIES");
}

#[test]
fn cursors_are_fetched_in_a_direction() {
    use Direction::{Absolute, Backward, Forward, Relative};

    for (sql, direction) in [
        ("FETCH c", Forward(Some(1))),
        ("FETCH NEXT FROM c", Forward(Some(1))),
        ("FETCH 10 c", Forward(Some(10))),
        ("FETCH ALL FROM c", Forward(None)),
        ("FETCH FORWARD ALL IN c", Forward(None)),
        ("FETCH FORWARD c", Forward(Some(1))),
        ("FETCH FORWARD 7 FROM c", Forward(Some(7))),
        ("FETCH PRIOR FROM c", Backward(Some(1))),
        ("FETCH BACKWARD c", Backward(Some(1))),
        ("FETCH BACKWARD ALL FROM c", Backward(None)),
        ("FETCH BACKWARD -2 FROM c", Forward(Some(2))),
        ("FETCH -3 c", Backward(Some(3))),
        ("FETCH FIRST c", Absolute(1)),
        ("FETCH LAST FROM c", Absolute(-1)),
        ("FETCH ABSOLUTE -2 FROM c", Absolute(-2)),
        ("FETCH RELATIVE 0 FROM c", Relative(0)),
    ] {
        let Statement::Fetch(fetch) = one(sql).unwrap() else { panic!() };
        assert_eq!(fetch, Fetch { name: "c".into(), direction, only_move: false }, "{sql}");
    }
    for name in ["prior", "first", "backward", "all"] {
        let Statement::Fetch(fetch) = one(&format!("FETCH {name}")).unwrap() else { panic!() };
        assert_eq!((fetch.name.as_str(), fetch.direction), (name, Forward(Some(1))));
    }
    for (sql, scrolls) in [
        ("DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT 1", true),
        ("DECLARE c NO SCROLL CURSOR FOR SELECT 1", false),
    ] {
        let Statement::Declare(declare) = one(sql).unwrap() else { panic!() };
        assert_eq!(declare.scroll, scrolls, "{sql}");
    }
}

#[test]
fn admin_names_a_table() {
    let Statement::Admin(admin) = one("ADMIN compact_table('d.\"T\"')").unwrap() else { panic!() };
    let table = TableName { database: Some("d".into()), name: "T".into() };
    assert_eq!(admin, Admin::CompactTable(table));
}

#[test]
fn admin_takes_partitions_and_nodes_by_number() {
    let Statement::Admin(admin) = one("ADMIN move_replica(7, 1, 3)").unwrap() else { panic!() };
    let (partition, from, to) = (PartitionId(7), NodeId(1), NodeId(3));
    assert_eq!(admin, Admin::Order(AdminOrder::MoveReplica { partition, from, to }));
    let Statement::Admin(admin) = one("ADMIN undrain_node(2)").unwrap() else { panic!() };
    assert_eq!(admin, Admin::Order(AdminOrder::Drain { node: NodeId(2), on: false }));
    let Statement::Admin(admin) = one("ADMIN remove_node(2)").unwrap() else { panic!() };
    assert_eq!(admin, Admin::Order(AdminOrder::RemoveNode { node: NodeId(2) }));
    for (wrong, why) in [
        ("ADMIN drain_node('two')", "the arguments of drain_node are drain_node(node)"),
        ("ADMIN drain_node(1, 2)", "drain_node(node)"),
        ("ADMIN remove_node()", "remove_node(node)"),
        ("ADMIN move_replica(7)", "move_replica(partition, from_node, to_node)"),
        ("ADMIN flush_table(t, u)", "flush_table('table')"),
        ("ADMIN explode()", "ADMIN explode is not supported"),
    ] {
        let error = one(wrong).unwrap_err();
        assert!(error.message.contains(why), "{wrong}: {}", error.message);
    }
}

#[test]
fn alter_table_takes_several_changes() {
    let alter = alter(
        "ALTER TABLE t ADD COLUMN a INT, ADD IF NOT EXISTS b STRING DEFAULT 'x', DROP COLUMN c, \
         RENAME COLUMN d TO e, ALTER COLUMN f SET DEFAULT 5, ALTER g DROP DEFAULT, \
         SET ('ttl' = '1d', 'comment' = 'x'), UNSET 'time_window', RENAME TO u",
    );
    assert_eq!(alter.changes.len(), 10);
    assert_eq!(alter.notices.len(), 0);
    refused("ALTER TABLE t ADD COLUMN a INT NOT NULL", "0A000", "NOT NULL");
    let key = "ALTER TABLE t ADD COLUMN a INT NOT NULL DEFAULT 1 PRIMARY KEY";
    refused(key, "0A000", "NOT NULL key column");
    refused("ALTER TABLE t ADD COLUMN a INT TIME INDEX", "0A000", "TIME INDEX");
    refused("ALTER TABLE t ADD CONSTRAINT x UNIQUE (a)", "0A000", "ADD CONSTRAINT");
    refused("ALTER TABLE t ADD PRIMARY (a)", "42601", "KEY");
    refused("ALTER TABLE t ADD PRIMARY KEY a", "42601", "(");
    refused("ALTER TABLE t ADD COLUMN a INT CHECK (a > 1)", "0A000", "CHECK");
    refused("ALTER TABLE t ALTER COLUMN a TYPE TIMETZ", "0A000", "TIMETZ");
    refused("ALTER TABLE t ALTER COLUMN a BIGINT", "0A000", "type");
    refused("ALTER TABLE t ADD INDEX (a)", "0A000", "ADD INDEX");
    refused("ALTER TABLE t DROP INDEX a", "0A000", "DROP INDEX");
    refused("ALTER TABLE t SET ('frob' = 1)", "22023", "'frob'");
    refused("ALTER TABLE t SET ('partitions' = 4)", "0A000", "'partitions'");
    refused("ALTER TABLE t SET ('hash_buckets' = 0)", "22023", "number of buckets");
    refused("ALTER TABLE t UNSET ('hash_buckets')", "0A000", "'hash_buckets'");
    refused("ALTER TABLE t SET ('uniform_partitions' = 16)", "0A000", "'uniform_partitions'");
    refused("ALTER TABLE t PARTITION BY HASH (a)", "42601", "PARTITIONS");
    refused("ALTER TABLE t PARTITION BY LIST (a)", "0A000", "LIST");
    refused("ALTER TABLE t PARTITION ON COLUMNS (a) (a < 1, a >= 1)", "0A000", "PARTITION ON");
    refused("ALTER TABLE t REPARTITION", "0A000", "REPARTITION");
    refused("ALTER TABLE t DROP COLUMN a, SPLIT AT (1)", "42601", "only action");
    refused("ALTER TABLE t FROB", "42601", "at or near \"FROB\"");
}

#[test]
fn changes_of_a_table_are_checked_against_it() {
    let table = made(
        "CREATE TABLE t (h BIGINT UNSIGNED GENERATED ALWAYS AS (hash64(u)) STORED, u INT, v INT, \
         ts TIMESTAMP TIME INDEX, PRIMARY KEY (h, u)) WITH ('ttl' = '7d', comment = 'c')",
    );
    let changes = |sql: &str| alter(sql).to_changes(&table);
    let state = |sql: &str| changes(sql).unwrap_err().sqlstate;
    assert_eq!(state("ALTER TABLE t DROP COLUMN nope"), "42703");
    assert_eq!(state("ALTER TABLE t RENAME COLUMN u TO w"), "2BP01");
    assert_eq!(state("ALTER TABLE t DROP COLUMN u"), "2BP01");
    assert_eq!(state("ALTER TABLE t ALTER COLUMN v SET DEFAULT 'x'"), "42804");
    assert_eq!(state("ALTER TABLE t ALTER COLUMN h SET DEFAULT 1"), "42601");
    let (none, notices) = changes("ALTER TABLE t DROP COLUMN IF EXISTS nope").unwrap();
    assert!(none.is_empty());
    assert_eq!(notices.len(), 1);
    // Options that are not named stay, and neighbours are one change.
    let (changes, _) = changes(
        "ALTER TABLE t SET ('ttl' = '1d'), SET ('time_window' = '1h'), ADD a INT, ADD b INT",
    )
    .unwrap();
    let [
        TableChange::ChangeOptions { base, next: options },
        TableChange::AddColumns { columns, .. },
    ] = changes.as_slice()
    else {
        panic!("{changes:?}")
    };
    let present = &table.schema.options;
    assert_eq!(present.merged(base, options), **options);
    // Another client has set the same option, and one more.
    let mut concurrent = present.clone();
    concurrent.time_window = Some(Duration::from_secs(7));
    concurrent.replication_factor = Some(2);
    let mut expected = (**options).clone();
    expected.replication_factor = Some(2);
    assert_eq!(concurrent.merged(base, options), expected);
    assert_eq!(options.ttl, Some(Duration::from_secs(86_400)));
    assert_eq!(options.time_window, Some(Duration::from_secs(3600)));
    assert_eq!(options.comment.as_deref(), Some("c"));
    assert_eq!(columns.len(), 2);
    // An option that is named is set, even to what the catalog shows: the catalog may be old.
    for (named, mut other) in [
        ("'ttl' = '7d'", TableOptions { ttl: None, ..present.clone() }),
        ("comment = 'c'", TableOptions { comment: Some("d".to_owned()), ..present.clone() }),
        ("'append_mode' = false", TableOptions { append_mode: true, ..present.clone() }),
        ("'hotspot_remedy' = 'advise'", present.clone()),
    ] {
        other.partitioning.hotspot_remedy = HotspotRemedy::Off;
        let sql = format!("ALTER TABLE t SET ({named}), SET ('hotspot_remedy' = 'advise')");
        let changes = alter(&sql).to_changes(&table).unwrap().0;
        let [TableChange::ChangeOptions { base, next }] = changes.as_slice() else {
            panic!("{changes:?}")
        };
        assert_eq!(other.merged(base, next), *present, "{named}");
    }
    let parsed = alter("ALTER TABLE t ADD COLUMN tag STRING PRIMARY KEY");
    assert!(matches!(parsed.changes[0], AlterChange::AddColumn { tag: true, .. }));
    // Keys of rows that exist have NULL in it, whatever the default.
    let parsed = alter("ALTER TABLE t ADD COLUMN tag STRING DEFAULT 'x' PRIMARY KEY");
    assert_eq!(parsed.notices.len(), 1);
}

#[test]
fn copy_takes_both_spellings_of_its_options() {
    let from = |sql: &str| match one(sql).unwrap() {
        Statement::CopyFrom(copy) => copy,
        other => panic!("{other:?}"),
    };
    let new = from(
        "COPY d.t (a, \"B\") FROM STDIN WITH (FORMAT csv, DELIMITER ';', NULL 'nil', HEADER true, \
         QUOTE '''', ESCAPE '\\', FORCE_NULL (a), FORCE_NOT_NULL *, ENCODING 'utf8')",
    );
    assert_eq!(new.format, CopyFormat::Csv);
    assert_eq!(
        (new.options.delimiter, new.options.quote, new.options.escape),
        (b';', b'\'', b'\\')
    );
    assert_eq!(new.options.header, CopyHeader::Skip);
    assert_eq!(new.options.null, "nil");
    assert_eq!(new.options.force_not_null, CopyColumns::All);
    let old = from("COPY t FROM STDIN WITH DELIMITER AS '|' NULL AS '' CSV HEADER QUOTE AS '\"'");
    assert_eq!((old.format, old.options.delimiter), (CopyFormat::Csv, b'|'));
    assert_eq!(from("copy t from stdin binary").format, CopyFormat::Binary);
    assert_eq!(from("COPY BINARY t FROM STDIN").format, CopyFormat::Binary);
    let text = from("COPY t FROM STDIN");
    assert_eq!((text.options.delimiter, text.options.null.as_str()), (b'\t', "\\N"));
    let Statement::CopyTo(out) = one("COPY d.t (a, \"B\") TO STDOUT (FORMAT csv, HEADER)").unwrap()
    else {
        panic!()
    };
    assert_eq!(&*out.query.text, "SELECT a, \"B\" FROM d.t");
    let Statement::CopyTo(out) = one("COPY (SELECT 1 AS x) TO STDOUT").unwrap() else { panic!() };
    assert_eq!(&*out.query.text, "SELECT 1 AS x");
    assert_eq!((text.file.as_deref(), out.file.as_deref()), (None, None));
    refused("COPY t FROM STDIN (FORMAT avro)", "22023", "\"avro\"");
    refused("COPY t FROM STDIN (DELIMITER '||')", "0A000", "one-byte");
    refused("COPY t FROM STDIN (DELIMITER 'a')", "22023", "delimiter");
    refused("COPY t FROM STDIN (QUOTE '\"')", "0A000", "requires CSV");
    refused("COPY t FROM STDIN (FORMAT binary, NULL 'x')", "42601", "BINARY");
    assert_eq!(from("COPY t FROM STDIN WITH (FREEZE on)").format, CopyFormat::Text);
    assert_eq!(from("COPY t FROM STDIN FREEZE").format, CopyFormat::Text);
    refused("COPY t FROM STDIN (FREEZE maybe)", "42601", "FREEZE");
    refused("COPY t TO STDOUT (FREEZE)", "0A000", "FREEZE");
    refused("COPY t FROM STDIN (NULL 'a', NULL 'b')", "42601", "redundant");
    refused("COPY t FROM STDIN (ENCODING 'latin1')", "0A000", "latin1");
    refused("COPY t FROM STDIN (FROB 1)", "42601", "\"frob\"");
}

#[test]
fn copy_takes_files_and_their_formats() {
    let Statement::CopyFrom(copy) = one("COPY t (a) FROM '/d/f' (FORMAT parquet)").unwrap() else {
        panic!()
    };
    assert_eq!((copy.file.as_deref(), copy.format), (Some("/d/f"), CopyFormat::Parquet));
    let text = "COPY (SELECT 1 AS x) TO 'f' WITH (FORMAT ndjson)";
    let Statement::CopyTo(copy) = one(text).unwrap() else { panic!() };
    assert_eq!((copy.file.as_deref(), copy.format), (Some("f"), CopyFormat::Ndjson));
    refused("COPY t FROM f", "42601", "string");
    refused("COPY t TO 'f' (FORMAT parquet, DELIMITER ';')", "42601", "PARQUET mode");
    refused("COPY t TO 'f' (FORMAT ndjson, HEADER)", "42601", "NDJSON mode");
}

/// Statements of this depth must parse, be checked and be dropped on the stack of a worker.
fn on_a_workers_stack(work: impl FnOnce() + Send + 'static) {
    // The smallest stack that a statement is parsed on is that of the server's doors.
    std::thread::Builder::new().stack_size(16 << 20).spawn(work).unwrap().join().unwrap();
}

fn chain(links: usize) -> String {
    vec!["a = 1"; links].join(" OR ")
}

#[test]
fn chains_up_to_the_limit_fit_the_stack() {
    on_a_workers_stack(|| {
        assert!(parse(&format!("SELECT {}", chain(1000))).is_ok());
        assert!(parse(&format!("SELECT {}", vec!["1"; 250].join(" + "))).is_ok());
        assert!(parse(&format!("SELECT 1{}", " UNION SELECT 1".repeat(250))).is_ok());
    });
}

#[test]
fn rules_up_to_the_limit_fit_the_stack() {
    on_a_workers_stack(|| {
        let sql = format!(
            "CREATE TABLE t (a INT PRIMARY KEY) PARTITION ON COLUMNS (a) ({0}, NOT {0})",
            chain(1000)
        );
        assert!(super::new_table(&sql).is_err());
    });
}

#[test]
fn longer_chains_are_refused_before_they_overflow_the_stack() {
    on_a_workers_stack(|| {
        refused(&format!("SELECT {}", chain(100_000)), "54001", "by AND or OR");
        // The planner's work grows with the square of these.
        refused(&format!("SELECT {}", vec!["1"; 300].join(" + ")), "54001", "operators");
        refused(&format!("SELECT 1{}", " UNION SELECT 1".repeat(300)), "54001", "set operations");
        refused(&format!("SELECT 1{}", "::int".repeat(100_000)), "54001", "operators");
        refused(&format!("SELECT {}1", "- ".repeat(100_000)), "54001", "");
        refused(&format!("SELECT {}1", "(".repeat(100_000)), "54001", "nested too deeply");
        refused(&format!("SELECT {}1", "NOT ".repeat(100_000)), "54001", "");
        // These are lists, not trees: they may be long.
        for long in [".b", "[1]"] {
            drop(parse(&format!("SELECT a{}", long.repeat(10_000))));
        }
    });
}

#[test]
fn what_nests_too_deeply_is_read_once() {
    // Each of these has more than one reading at each level; none of them may take the budget to find that out.
    let kinds = [
        ("abs(", ")"),
        ("SUBSTRING(", " FROM 1)"),
        ("SUBSTRING(", ")"),
        ("OVERLAY(", " PLACING 'a' FROM 1)"),
        ("TRIM(", ")"),
        ("POSITION(", " IN 'a')"),
        ("EXTRACT(year FROM ", ")"),
        ("CEIL(", " TO day)"),
        ("CAST(", " AS INT)"),
        ("ARRAY[", "]"),
        ("CASE WHEN ", " THEN 1 END"),
        ("EXISTS (SELECT ", ")"),
        ("(SELECT ", ")"),
        ("ROW(", ")"),
        ("coalesce(1, ", ")"),
        ("DATE(", ")"),
        ("INTERVAL(", ")"),
        ("1 IN (", ")"),
        ("a.b(", ")"),
    ];
    on_a_workers_stack(move || {
        for (open, close) in kinds {
            for depth in [70, 150] {
                for end in [close.repeat(depth), String::new()] {
                    let sql = format!("SELECT {}1{end}", open.repeat(depth));
                    refused(&sql, "54001", "nested too deeply");
                }
            }
        }
    });
}

#[test]
fn long_lists_are_no_chains() {
    let list = vec!["-1"; 100_000].join(", ");
    assert!(parse(&format!("SELECT * FROM t WHERE a IN ({list})")).is_ok());
    let rows = vec!["(a.b = 1, -2)"; 5_000].join(", ");
    assert!(parse(&format!("VALUES {rows}")).is_ok());
}
