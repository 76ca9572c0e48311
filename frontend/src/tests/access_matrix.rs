//! Each kind of statement for each kind of identity.
//!
//! The table is written by hand. A kind of statement that it lacks fails a test, and one that `kind` does not name does
//! not compile.

use std::collections::BTreeSet;

use partita_proto::service::AdminOrder;
use partita_sql::access_statement::AccessStatement;
use partita_sql::parser;
use partita_sql::sequence_statement::SequenceStatement;
use partita_sql::statement::{Admin, Show, Statement};
use partita_sql::task_statement::TaskStatement;

use super::access_world::{WHO, Who, session_of, world};
use super::{Db, collect};
use crate::{Output, SqlError};

/// Sources of the statements, by which a new kind is noticed: prefix of the kind, name of the type, text.
const SOURCES: [(&str, &str, &str); 7] = [
    ("", "Statement", include_str!("../../sql/src/statement.rs")),
    ("Show", "Show", include_str!("../../sql/src/statement.rs")),
    ("Access", "AccessStatement", include_str!("../../sql/src/access_statement.rs")),
    ("Admin", "Admin", include_str!("../../sql/src/statement.rs")),
    ("Task", "TaskStatement", include_str!("../../sql/src/task_statement.rs")),
    ("Sequence", "SequenceStatement", include_str!("../../sql/src/sequence_statement.rs")),
    ("Order", "AdminOrder", include_str!("../../../proto/src/service.rs")),
];
/// Kinds that others divide: each of the latter is in the table.
const DIVIDED: [&str; 5] = ["Show", "Access", "Task", "Sequence", "Admin"];

/// One letter for each of [`WHO`]: superuser, whole token, read token, token for rows, write token, token of another
/// organisation, member, stranger, expired token.
///
/// A: allowed. D: denied. H: as if the object did not exist. E: the session has ended. ?: another error.
///
/// LEFT and RIGHT stand for the ids of the partitions of `acme_t`.
const MATRIX: &[(&str, &str)] = &[
    // Reads.
    ("AAAADHAHE", "SELECT * FROM acme_t"),
    ("AAAADHAHE", "SELECT count(*) FROM acme.acme_t WHERE false"),
    ("AAAADHAHE", "SELECT (SELECT max(v) FROM acme_t)"),
    ("AAAADHAHE", "SELECT 1 WHERE EXISTS (SELECT 1 FROM acme_t)"),
    ("AAAADHAHE", "WITH w AS (SELECT * FROM acme_t) SELECT 1 FROM w"),
    ("AAAADHAHE", "SELECT 1 UNION ALL SELECT k FROM acme.acme_t"),
    ("AAAAAAAAE", "SELECT 1"),
    ("AAAADHAHE", "EXPLAIN SELECT * FROM acme_t"),
    ("AAAADHAHE", "EXPLAIN ANALYZE SELECT * FROM acme_t"),
    ("AADDAHDHE", "EXPLAIN INSERT INTO acme_t VALUES (3, 3)"),
    ("AADDDHDHE", "EXPLAIN INSERT INTO acme_t SELECT * FROM acme_t"),
    ("AADDDHDHE", "EXPLAIN DELETE FROM acme_t"),
    ("AADDDHDHE", "EXPLAIN DELETE FROM acme_t WHERE v = 10"),
    ("AADDDHDHE", "EXPLAIN UPDATE acme_t SET v = 1"),
    ("AAADDHAHE", "EXPLAIN HOTSPOT acme_t"),
    ("AAADDHAHE", "ADVISE TABLE acme_t"),
    ("AAADDHAHE", "ADVISE PARTITIONS FOR acme_t RATE 1000"),
    ("AAAADHAHE", "COPY acme_t TO STDOUT"),
    ("AAAADHAHE", "COPY (SELECT v FROM acme_t) TO STDOUT"),
    ("AAAADHAHE", "BEGIN; DECLARE c CURSOR FOR SELECT * FROM acme_t"),
    ("AAAADHAHE", "BEGIN; DECLARE c CURSOR FOR SELECT * FROM acme_t; FETCH ALL FROM c"),
    ("AAAAAHAHE", "PREPARE q AS SELECT * FROM acme_t"),
    ("AAAADHAHE", "PREPARE q AS SELECT * FROM acme_t; EXECUTE q"),
    // Writes. A token that writes may delete by predicates that name keys.
    ("AADDAHDHE", "INSERT INTO acme_t VALUES (3, 3)"),
    ("AADDAHDHE", "INSERT INTO acme_t VALUES (3, 1 + 1)"),
    ("AADDDHDHE", "INSERT INTO acme_t SELECT k, v FROM acme_t"),
    ("AADDDHDHE", "INSERT INTO acme_t SELECT 3, (SELECT max(v) FROM acme_t)"),
    ("AADDAHDHE", "PREPARE q AS INSERT INTO acme_t VALUES ($1, $2); EXECUTE q(3, 3)"),
    ("AADDAHDHE", "DELETE FROM acme_t"),
    ("AADDAHDHE", "DELETE FROM acme_t WHERE k = 1"),
    ("AADDDHDHE", "DELETE FROM acme_t WHERE v = 10"),
    ("AADDAHDHE", "UPDATE acme_t SET v = 1"),
    ("AADDDHDHE", "UPDATE acme_t SET v = v + 1"),
    ("AADDDHDHE", "UPDATE acme_t SET v = 1 WHERE k = 1"),
    ("AADDDHDHE", "UPDATE acme_t SET v = (SELECT max(v) FROM acme_t)"),
    ("AADDAHDHE", "PREPARE q AS UPDATE acme_t SET v = $1; EXECUTE q(3)"),
    ("AADDDHDHE", "INSERT INTO acme_t VALUES (3, 3) RETURNING v"),
    ("AADDAHDHE", "INSERT INTO acme_t VALUES (1, 3) ON CONFLICT DO NOTHING"),
    ("AADDDHDHE", "INSERT INTO acme_t VALUES (1, 3) ON CONFLICT (k) DO NOTHING"),
    ("AADDDHDHE", "INSERT INTO acme_t VALUES (1, 3) ON CONFLICT (k) DO UPDATE SET v = excluded.v"),
    ("AADDAHDHE", "UPSERT INTO acme_t (k) VALUES (1)"),
    ("AADDDHDHE", "UPDATE acme_t SET v = 1 RETURNING k"),
    ("AADDDHDHE", "DELETE FROM acme_t RETURNING k"),
    ("AADDAHDHE", "COPY acme_t FROM STDIN"),
    // Files are for administrators; this server has none.
    ("?DDDDHDHE", "COPY acme_t FROM 'f'"),
    ("?DDDDDDDE", "COPY acme_t TO 'f'"),
    ("AADDAHDHE", "TRUNCATE acme_t"),
    ("AADDAHDHE", "TRUNCATE acme_t RESTART IDENTITY"),
    // Definitions.
    ("ADDDDDDDE", "CREATE DATABASE fresh"),
    ("AADDDHDHE", "ALTER DATABASE acme SET ('ttl' = '1d')"),
    ("AADDDHDHE", "DROP DATABASE acme"),
    ("AADDAHDHE", "CREATE TABLE fresh (k INT PRIMARY KEY)"),
    ("AADDDHDHE", "CREATE TABLE fresh (LIKE acme_t INCLUDING ALL)"),
    ("AADDDHDHE", "CREATE TABLE fresh LIKE acme_t"),
    ("AADDDHDHE", "CREATE TABLE fresh AS SELECT k, v FROM acme_t"),
    ("AADDDHDHE", "CREATE TABLE fresh AS SELECT k, v FROM acme_t WITH NO DATA"),
    ("AADDAHDHE", "CREATE TABLE fresh AS SELECT 1 AS k"),
    ("AADDDHDHE", "SELECT k, v INTO fresh FROM acme_t"),
    ("AADDDHDHE", "EXPLAIN CREATE TABLE fresh AS SELECT k, v FROM acme_t"),
    ("AADDDHDHE", "ALTER TABLE acme_t ADD COLUMN w INT"),
    ("AADDDADAE", "ALTER TABLE IF EXISTS acme_t RENAME TO fresh"),
    ("AADDDHDHE", "ALTER TABLE acme_t SPLIT AT ((5))"),
    ("AADDDHDHE", "ALTER TABLE acme_t PRIMARY KEY (k) PARTITION BY HASH (k) PARTITIONS 2"),
    ("AADDDHDHE", "ALTER TABLE acme_t PARTITION BY HASH (k) PARTITIONS 2"),
    (
        "AADDDADAE",
        "ALTER TABLE IF EXISTS acme_t PRIMARY KEY (k) PARTITION BY HASH (k) PARTITIONS 2; \
         ALTER TABLE IF EXISTS acme_t CANCEL REKEYING",
    ),
    ("AADDDHDHE", "DROP TABLE acme_t"),
    ("AADDDADAE", "DROP TABLE IF EXISTS acme_t"),
    (
        "AADDDHDHE",
        "CREATE MATERIALIZED COPY c OF acme_t PRIMARY KEY (k) PARTITION BY HASH (k) PARTITIONS 2",
    ),
    (
        "AADDDHDHE",
        "CREATE MATERIALIZED COPY c OF acme_t PRIMARY KEY (k) PARTITION BY HASH (k) PARTITIONS 2; \
         DROP MATERIALIZED COPY c",
    ),
    ("AAAAAAAAE", "DROP MATERIALIZED COPY IF EXISTS c"),
    ("AADDAHDHE", "CREATE VIEW fresh AS SELECT k, v FROM acme_t"),
    (
        "AADDDHDHE",
        "CREATE VIEW IF NOT EXISTS fresh AS SELECT k FROM acme_t; CREATE OR REPLACE VIEW fresh AS SELECT k FROM acme_t",
    ),
    ("AADDDHDHE", "CREATE VIEW IF NOT EXISTS fresh AS SELECT k FROM acme_t; SELECT * FROM fresh"),
    ("AADDDHDHE", "CREATE VIEW IF NOT EXISTS fresh AS SELECT k FROM acme_t; DROP VIEW fresh"),
    (
        "AADDAHDHE",
        "CREATE VIEW IF NOT EXISTS fresh AS SELECT k FROM acme_t; SHOW CREATE VIEW fresh",
    ),
    ("AAAAAAAAE", "ALTER VIEW IF EXISTS fresh RENAME TO fresher"),
    ("AAAAAAAAE", "DROP VIEW IF EXISTS fresh"),
    ("AADDDHDHE", "COMMENT ON TABLE acme_t IS 'x'"),
    ("AADDDHDHE", "COMMENT ON COLUMN acme_t.v IS 'x'"),
    ("AADDDHDHE", "COMMENT ON DATABASE acme IS 'x'"),
    ("AADDDHDHE", "CREATE INDEX ON acme_t USING inverted (v)"),
    ("AADDDHDHE", "CREATE INDEX IF NOT EXISTS acme_i ON acme_t USING skipping (v)"),
    ("AADDDHDHE", "ALTER TABLE acme_t ALTER COLUMN v UNSET SKIPPING INDEX"),
    ("AADDDHDHE", "DROP INDEX acme_i"),
    ("AADDDHDHE", "DROP INDEX acme.acme_i ON acme_t"),
    ("AADDDADAE", "DROP INDEX IF EXISTS acme_i"),
    ("AADDDADAE", "DROP INDEX IF EXISTS acme_i ON acme_t"),
    // Lists and definitions of what is visible.
    ("AAAAAHAHE", "USE acme"),
    ("AAAAAAAAE", "SHOW DATABASES"),
    ("AAAAAHAHE", "SHOW TABLES"),
    ("AAAAAHAHE", "SHOW CREATE TABLE acme_t"),
    ("AAAAAHAHE", "SHOW COLUMNS FROM acme_t"),
    ("AAAAAHAHE", "SHOW INDEX FROM acme_t"),
    ("AAAAAHAHE", "SHOW TAG KEYS FROM acme_t"),
    ("AAAAAHAHE", "SHOW FIELD KEYS FROM acme_t"),
    ("AAAAAHAHE", "SHOW MEASUREMENTS"),
    ("AAAAAHAHE", "DESCRIBE acme_t"),
    ("AAADDHAHE", "SHOW PARTITIONS FROM acme_t"),
    ("AAAAAHAHE", "SHOW SERIES CARDINALITY"),
    ("AAAADHAHE", "SHOW SERIES CARDINALITY FROM acme_t"),
    ("AAAADHAHE", "SHOW SERIES CARDINALITY EXACT FROM acme_t"),
    // State of the session.
    ("AAAAAAAAE", "SHOW application_name"),
    ("AAAAAAAAE", "SHOW ALL"),
    ("AAAAAAAAE", "SET application_name = 'x'"),
    ("AAAAAAAAE", "RESET ALL"),
    ("AAAAAAAAE", "BEGIN"),
    ("AAAAAAAAE", "DEALLOCATE ALL"),
    ("AAAAAAAAE", "CLOSE ALL"),
    ("AAAAAAAAE", "DISCARD ALL"),
    ("AAAAAAAAE", "LISTEN jobs"),
    ("AAAAAAAAE", "NOTIFY jobs, 'x'"),
    ("AAAAAAAAE", "UNLISTEN *"),
    ("AAAAAAAAE", "VACUUM"),
    ("AAAADHAHE", "BEGIN; LOCK TABLE acme_t IN ACCESS SHARE MODE"),
    ("AAAAAAAAE", ""),
    ("AAAAAAAAE", "SELECT pg_cancel_backend(pg_backend_pid() * 0)"),
    ("AAAAAAAAE", "SET ROLE NONE"),
    ("ADHHHHAHE", "SET ROLE acme_staff"),
    // Orders.
    ("AADDDHDHE", "ADMIN flush_table('acme_t')"),
    ("AADDDHDHE", "ADMIN compact_table('acme_t')"),
    ("ADDDDDDDE", "ADMIN drain_node(1)"),
    ("ADDDDDDDE", "ADMIN undrain_node(1)"),
    ("ADDDDDDDE", "ADMIN remove_node(1)"),
    ("ADDDDDDDE", "ADMIN move_replica(LEFT, 1, 2)"),
    ("ADDDDDDDE", "ADMIN transfer_leader(LEFT, 2)"),
    ("ADDDDDDDE", "ADMIN split_partition(LEFT)"),
    ("ADDDDDDDE", "ADMIN merge_partitions(LEFT, RIGHT)"),
    // Roles: a restricted token knows its owner only, and a role without an organisation knows all roles.
    ("ADDDDDDDE", "CREATE ROLE fresh"),
    ("ADHHHHDHE", "ALTER ROLE acme_staff VALID UNTIL 'infinity'"),
    ("ADHHHHDHE", "DROP ROLE acme_staff"),
    ("ADHHHHDHE", "GRANT acme_staff TO acme_member"),
    ("ADHHHHDHE", "REVOKE acme_staff FROM acme_member"),
    // As in PostgreSQL: a grantee without grant options gets a warning, and nothing is changed.
    ("AAHHHHAHE", "GRANT SELECT ON acme_t TO acme_staff"),
    ("AAHHHHAHE", "REVOKE SELECT ON acme_t FROM acme_staff"),
    ("AAHHHHAHE", "GRANT USAGE ON ALL SEQUENCES IN SCHEMA acme TO acme_staff"),
    ("ADHHHHDHE", "ALTER TABLE acme_t OWNER TO acme_staff"),
    ("ADHHHHDHE", "ALTER DATABASE acme OWNER TO acme_staff"),
    ("AAHHHHAHE", "ALTER SEQUENCE IF EXISTS acme_s OWNER TO acme_staff"),
    ("ADHHHHDHE", "REASSIGN OWNED BY acme_staff TO acme_boss"),
    ("ADHHHHAHE", "DROP OWNED BY acme_staff"),
    ("AAAAAAAAE", "SHOW GRANTS"),
    ("AAHHHHAHE", "SHOW GRANTS FOR acme_staff"),
    // Tokens: a restricted one makes and manages none.
    ("AADDDAAAE", "CREATE TOKEN WITH (ALL)"),
    ("AAHHHHHHE", "ALTER TOKEN '0000000000000002' (DISABLED)"),
    ("AAHHHHHHE", "DROP TOKEN '0000000000000002'"),
    ("AAAAAAAAE", "SHOW TOKENS"),
    // Organisations.
    ("ADDDDDDDE", "CREATE ORGANISATION fresh"),
    ("ADDDDHDHE", "ALTER ORGANISATION acme SERIES LIMIT 25"),
    ("ADDDDHDHE", "DROP ORGANISATION acme"),
    // Tasks.
    (
        "AADDDHDHE",
        "CREATE TASK fresh SCHEDULE '@daily' AS INSERT INTO acme_t SELECT k, v FROM acme_t",
    ),
    ("AAHHHHHHE", "ALTER TASK acme_task DISABLE"),
    ("AAHHHHHHE", "DROP TASK acme_task"),
    ("AAAAAAAAE", "DROP TASK IF EXISTS acme_task"),
    ("AAAAAAAAE", "SHOW TASKS"),
    // Sequences: those of columns by the rights on their tables, others by those on their databases.
    ("AADDAHDHE", "CREATE SEQUENCE fresh"),
    ("AAAAAAAAE", "ALTER SEQUENCE IF EXISTS fresh RESTART"),
    ("AAAAAAAAE", "DROP SEQUENCE IF EXISTS fresh"),
];

/// The letter of a result.
fn letter(result: &Result<(), SqlError>) -> char {
    match result.as_ref().map_err(|error| error.sqlstate.as_str()) {
        Ok(()) => 'A',
        Err("42501") => 'D',
        Err("42P01" | "3F000" | "42704") => 'H',
        Err("28000") => 'E',
        Err(_) => '?',
    }
}

/// Runs statements to their last row.
async fn run(db: &Db, sql: &str) -> Result<(), SqlError> {
    match db.try_run(sql).await {
        Ok(output) => collect(output).await.map(drop),
        Err(error) => Err(error),
    }
}

/// A statement with the ids of the partitions.
fn with_ids(db: &Db, sql: &str) -> String {
    let catalog = db.frontend.catalog();
    let routes = catalog.table("acme", "acme_t").unwrap().partitions.routes();
    let [left, right] = [0, 1].map(|position| routes[position].partition.to_string());
    sql.replace("LEFT", &left).replace("RIGHT", &right)
}

/// True if statements change nothing that a later session sees.
fn leaves_no_trace(sql: &str) -> bool {
    let is_of_session = |statement: &Statement| {
        statement.reads()
            || matches!(
                statement,
                Statement::Explain(_)
                    | Statement::CopyTo(_)
                    | Statement::Use(_)
                    | Statement::Set(_)
                    | Statement::ResetAll
                    | Statement::Transaction(_)
                    | Statement::Prepare(_)
                    | Statement::Deallocate(_)
                    | Statement::Declare(_)
                    | Statement::Fetch(_)
                    | Statement::Close(_)
                    | Statement::Discard(_)
                    | Statement::SetRole(_)
                    | Statement::Listen
                    | Statement::Notify
                    | Statement::Unlisten
                    | Statement::Vacuum(_)
                    | Statement::Lock(_)
            )
    };
    parser::parse(sql).unwrap().iter().all(is_of_session)
}

/// The letters of statements for each of [`WHO`], and errors that have none.
async fn outcomes(db: &mut Db, sql: &str) -> (String, Vec<SqlError>) {
    let (mut letters, mut others) = (String::new(), Vec::new());
    for who in WHO {
        let text = with_ids(db, sql);
        let result = run(&session_of(db, who, "acme"), &text).await;
        let outcome = letter(&result);
        letters.push(outcome);
        if outcome == '?' {
            others.extend(result.err());
        } else if outcome == 'A' && !leaves_no_trace(&text) {
            *db = world().await;
        }
    }
    (letters, others)
}

#[tokio::test]
async fn each_statement_is_allowed_exactly_to_those_of_the_table() {
    let mut db = world().await;
    let mut wrong = Vec::new();
    for (expected, sql) in MATRIX {
        let (found, others) = outcomes(&mut db, sql).await;
        if found != *expected {
            wrong.push(format!("{expected} expected, {found} found: {sql} {others:?}"));
        }
    }
    assert!(wrong.is_empty(), "{WHO:?}\n{}", wrong.join("\n"));
}

#[tokio::test]
async fn what_is_hidden_is_told_in_the_words_of_what_is_missing() {
    let db = world().await;
    let missing_name =
        |text: &str| text.replace("acme", "nope").replace("0000000000000002", "0000000000000009");
    for (letters, sql) in MATRIX {
        for (who, letter) in WHO.into_iter().zip(letters.chars()) {
            if letter != 'H' {
                continue;
            }
            let hidden = run(&session_of(&db, who, "acme"), sql).await.unwrap_err();
            let other = missing_name(sql);
            let missing = run(&session_of(&db, who, "nope"), &other).await.unwrap_err();
            let hidden = missing_name(&format!("{hidden:?}"));
            assert_eq!(hidden, format!("{missing:?}"), "{sql} for {who:?}");
        }
    }
}

/// A client of the extended protocol learns of the columns before the statement runs.
#[tokio::test]
async fn prepared_statements_have_rows_exactly_if_they_say_so() {
    for (_, sql) in MATRIX {
        let db = world().await;
        let text = with_ids(&db, sql);
        let [statement] = &parser::parse(&text).unwrap()[..] else { continue };
        let session = session_of(&db, Who::Superuser, "acme").session;
        let prepared = session.prepare(statement.clone(), &[]).await.unwrap();
        let Ok(Output::Rows { schema, .. }) = session.run_prepared(&prepared, Vec::new()).await
        else {
            assert!(prepared.schema.is_none(), "{sql}");
            continue;
        };
        let columns = prepared.schema.as_ref().map(|schema| schema.fields().len());
        assert_eq!(columns, Some(schema.fields().len()), "{sql}");
    }
}

#[tokio::test]
async fn a_token_for_rows_reads_no_other_row() {
    let db = world().await;
    let rows = session_of(&db, Who::Rows, "acme");
    for sql in [
        "SELECT k, v FROM acme_t",
        "SELECT k, v FROM acme.acme_t WHERE k > 0 OR true",
        "SELECT max(k), max(v) FROM acme_t",
        "SELECT a.k, b.v FROM acme_t a JOIN acme_t b ON a.k >= b.k",
        "SELECT k, v FROM acme_t UNION SELECT k, v FROM acme_t",
        "SELECT k, v FROM acme_t WHERE v IN (SELECT v FROM acme_t)",
    ] {
        assert_eq!(rows.lines(sql).await, ["1|10"], "{sql}");
    }
    assert_eq!(rows.one("SELECT count(*) FROM acme_t").await, "1");
    assert_eq!(rows.one("SELECT count(*) FROM acme_t WHERE k = 2").await, "0");
}

fn kind_of_show(show: &Show) -> &'static str {
    match show {
        Show::Databases { .. } => "Show::Databases",
        Show::Tables { .. } => "Show::Tables",
        Show::CreateTable(_) => "Show::CreateTable",
        Show::CreateView(_) => "Show::CreateView",
        Show::Columns(_) => "Show::Columns",
        Show::Partitions(_) => "Show::Partitions",
        Show::Indexes(_) => "Show::Indexes",
        Show::TagKeys(_) => "Show::TagKeys",
        Show::FieldKeys(_) => "Show::FieldKeys",
        Show::Measurements { .. } => "Show::Measurements",
        Show::Variable(_) => "Show::Variable",
        Show::All => "Show::All",
    }
}

fn kind_of_access(statement: &AccessStatement) -> &'static str {
    match statement {
        AccessStatement::CreateRole(_) => "Access::CreateRole",
        AccessStatement::AlterRole { .. } => "Access::AlterRole",
        AccessStatement::DropRole { .. } => "Access::DropRole",
        AccessStatement::GrantRole(_) => "Access::GrantRole",
        AccessStatement::RevokeRole(_) => "Access::RevokeRole",
        AccessStatement::Grant(_) => "Access::Grant",
        AccessStatement::Revoke(_) => "Access::Revoke",
        AccessStatement::SetOwner { .. } => "Access::SetOwner",
        AccessStatement::ReassignOwned { .. } => "Access::ReassignOwned",
        AccessStatement::DropOwned { .. } => "Access::DropOwned",
        AccessStatement::CreateToken(_) => "Access::CreateToken",
        AccessStatement::AlterToken { .. } => "Access::AlterToken",
        AccessStatement::DropToken { .. } => "Access::DropToken",
        AccessStatement::CreateOrg { .. } => "Access::CreateOrg",
        AccessStatement::AlterOrg { .. } => "Access::AlterOrg",
        AccessStatement::DropOrg { .. } => "Access::DropOrg",
        AccessStatement::ShowGrants { .. } => "Access::ShowGrants",
        AccessStatement::ShowTokens => "Access::ShowTokens",
    }
}

fn kind_of_task(statement: &TaskStatement) -> &'static str {
    match statement {
        TaskStatement::Create(_) => "Task::Create",
        TaskStatement::Alter { .. } => "Task::Alter",
        TaskStatement::Drop { .. } => "Task::Drop",
        TaskStatement::Show => "Task::Show",
    }
}

fn kind_of_sequence(statement: &SequenceStatement) -> &'static str {
    match statement {
        SequenceStatement::Create { .. } => "Sequence::Create",
        SequenceStatement::Alter { .. } => "Sequence::Alter",
        SequenceStatement::Drop { .. } => "Sequence::Drop",
    }
}

fn kind_of_admin(admin: &Admin) -> &'static str {
    match admin {
        Admin::FlushTable(_) => "Admin::FlushTable",
        Admin::CompactTable(_) => "Admin::CompactTable",
        Admin::Order(order) => match order {
            AdminOrder::Drain { .. } => "Order::Drain",
            AdminOrder::MoveReplica { .. } => "Order::MoveReplica",
            AdminOrder::TransferLeader { .. } => "Order::TransferLeader",
            AdminOrder::SplitPartition { .. } => "Order::SplitPartition",
            AdminOrder::MergePartitions { .. } => "Order::MergePartitions",
            AdminOrder::RemoveNode { .. } => "Order::RemoveNode",
        },
    }
}

/// Name of a statement's kind.
fn kind(statement: &Statement) -> &'static str {
    match statement {
        Statement::Query(_) => "Query",
        Statement::Explain(_) => "Explain",
        Statement::ExplainHotspot(_) => "ExplainHotspot",
        Statement::Insert(_) => "Insert",
        Statement::Delete(_) => "Delete",
        Statement::Update(_) => "Update",
        Statement::CopyFrom(_) => "CopyFrom",
        Statement::CopyTo(_) => "CopyTo",
        Statement::CreateDatabase(_) => "CreateDatabase",
        Statement::AlterDatabase(_) => "AlterDatabase",
        Statement::DropDatabase(_) => "DropDatabase",
        Statement::CreateTable(_) => "CreateTable",
        Statement::CreateTableAs(_) => "CreateTableAs",
        Statement::AlterTable(_) => "AlterTable",
        Statement::Repartition(_) => "Repartition",
        Statement::Rekey(_) => "Rekey",
        Statement::DropTable(_) => "DropTable",
        Statement::CreateCopy(_) => "CreateCopy",
        Statement::DropCopy(_) => "DropCopy",
        Statement::CreateView(_) => "CreateView",
        Statement::DropView(_) => "DropView",
        Statement::Comment(_) => "Comment",
        Statement::CreateIndex(_) => "CreateIndex",
        Statement::DropIndex(_) => "DropIndex",
        Statement::Truncate(_) => "Truncate",
        Statement::Use(_) => "Use",
        Statement::Show(show) => kind_of_show(show),
        Statement::SeriesCardinality(_) => "SeriesCardinality",
        Statement::Describe(_) => "Describe",
        Statement::Set(_) => "Set",
        Statement::ResetAll => "ResetAll",
        Statement::Transaction(_) => "Transaction",
        Statement::Prepare(_) => "Prepare",
        Statement::Execute(_) => "Execute",
        Statement::Deallocate(_) => "Deallocate",
        Statement::Declare(_) => "Declare",
        Statement::Fetch(_) => "Fetch",
        Statement::Close(_) => "Close",
        Statement::Discard(_) => "Discard",
        Statement::Admin(admin) => kind_of_admin(admin),
        Statement::Access(statement) => kind_of_access(statement),
        Statement::SetRole(_) => "SetRole",
        Statement::Task(statement) => kind_of_task(statement),
        Statement::Sequence(statement) => kind_of_sequence(statement),
        Statement::Listen => "Listen",
        Statement::Notify => "Notify",
        Statement::Unlisten => "Unlisten",
        Statement::Vacuum(_) => "Vacuum",
        Statement::Lock(_) => "Lock",
        Statement::Advise(_) => "Advise",
        Statement::Empty => "Empty",
    }
}

/// Names of the variants of a type, from its source.
fn variants(name: &str, source: &str) -> BTreeSet<String> {
    let (_, rest) = source.split_once(&format!("pub enum {name} {{\n")).unwrap();
    let (body, _) = rest.split_once("\n}").unwrap();
    let names = body.lines().filter_map(|line| {
        let variant = line.strip_prefix("    ")?.split(['(', ',', ' ']).next()?;
        variant.starts_with(|c: char| c.is_ascii_uppercase()).then(|| variant.to_owned())
    });
    names.collect()
}

#[test]
fn every_kind_of_statement_is_in_the_table() {
    let mut expected = BTreeSet::new();
    for (prefix, name, source) in SOURCES {
        for variant in variants(name, source) {
            match prefix {
                "" if DIVIDED.contains(&variant.as_str()) => {}
                "Admin" if variant == "Order" => {}
                "" => drop(expected.insert(variant)),
                prefix => drop(expected.insert(format!("{prefix}::{variant}"))),
            }
        }
    }
    let mut covered = BTreeSet::new();
    for (letters, sql) in MATRIX {
        assert_eq!(letters.len(), WHO.len(), "{sql}");
        let text = sql.replace("LEFT", "1").replace("RIGHT", "2");
        covered.extend(parser::parse(&text).unwrap().iter().map(|parsed| kind(parsed).to_owned()));
    }
    assert!(expected.len() > 60, "{expected:?}");
    assert_eq!(covered, expected);
}

/// A session of another role or token does not exist for those who may not monitor.
#[tokio::test]
async fn sessions_are_signalled_by_their_own_identity_and_by_the_superuser() {
    let db = world().await;
    for (who, expected) in [
        (Who::Superuser, "true"),
        (Who::Whole, "false"),
        (Who::Read, "false"),
        (Who::Foreign, "false"),
        (Who::Member, "true"),
        (Who::Stranger, "false"),
    ] {
        let target = session_of(&db, Who::Member, "acme").session;
        let caller = session_of(&db, who, "acme");
        let is_shown = |session: &Db| {
            let rows = session.frontend.activities(session.session.viewer());
            rows.iter().any(|row| row.pid == target.pid()).to_string()
        };
        assert_eq!(is_shown(&caller), expected, "{who:?}");
        let call = format!("SELECT pg_terminate_backend({})", target.pid());
        assert_eq!(caller.one(&call).await, expected, "{who:?}");
        assert_eq!(target.terminated().is_some().to_string(), expected, "{who:?}");
    }
}
