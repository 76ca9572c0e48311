//! Indexes: the forms of their statements, what they change in a table, and what is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use partita_proto::catalog::{Catalog, Table};
use partita_proto::id::TableId;
use partita_proto::index::{
    Analyzer, Backend, Blooms, Fulltext, Index, IndexKind, IndexOptions, default_name,
};
use partita_proto::schema::NAME_BYTES_MAX;
use partita_proto::service::TableChange;

use super::create_table::LOGS;
use super::{made, new_table, one, table};
use crate::error::SqlError;
use crate::index_statement::index_options_sql;
use crate::notice::{Notice, Severity};
use crate::parse;
use crate::show::create_table_sql;
use crate::statement::{CreateIndex, DropIndex, Statement, TableName};

const SKIPPING: IndexOptions =
    IndexOptions::Skipping(Blooms { granularity: 10_240, false_positives_ppm: 10_000 });
const FULLTEXT: IndexOptions = IndexOptions::Fulltext(Fulltext {
    analyzer: Analyzer::English,
    case_sensitive: false,
    backend: Backend::Bloom(Blooms { granularity: 2048, false_positives_ppm: 10_000 }),
});

/// A table that has an index, whose name is the default one.
fn logs() -> Table {
    made(
        "CREATE TABLE logs (app STRING, status INT INVERTED INDEX, message STRING, request STRING, \
         ts TIMESTAMP(3) TIME INDEX, PRIMARY KEY (app))",
    )
}

fn index(name: &str, options: IndexOptions) -> Index {
    Index { name: name.to_owned(), options }
}

/// The indexes of a table: columns, names and options.
fn indexes(table: &Table) -> Vec<(String, String, IndexOptions)> {
    let mut indexes = Vec::new();
    for column in &table.schema.columns {
        for index in &column.indexes {
            indexes.push((column.name.clone(), index.name.clone(), index.options));
        }
    }
    indexes
}

fn create_index(sql: &str) -> Result<CreateIndex, SqlError> {
    match one(sql)? {
        Statement::CreateIndex(create) => Ok(create),
        other => panic!("{sql} is {other:?}"),
    }
}

fn drop_index(sql: &str) -> Result<DropIndex, SqlError> {
    match one(sql)? {
        Statement::DropIndex(drop) => Ok(drop),
        other => panic!("{sql} is {other:?}"),
    }
}

/// What an ALTER TABLE or a CREATE INDEX changes in a table.
fn changes(table: &Table, sql: &str) -> Result<(Vec<TableChange>, Vec<Notice>), SqlError> {
    match one(sql)? {
        Statement::AlterTable(alter) => alter.to_changes(table),
        Statement::CreateIndex(create) => {
            let (change, notices) = create.to_change(table)?;
            Ok((change.into_iter().collect(), notices))
        }
        other => panic!("{sql} is {other:?}"),
    }
}

#[track_caller]
fn refused(error: &SqlError, sqlstate: &str, says: &str) {
    assert_eq!(error.sqlstate, sqlstate, "{}", error.message);
    assert!(error.message.contains(says), "{}", error.message);
}

#[test]
fn tables_of_log_stores_keep_their_indexes() {
    let expected: [(&str, &[(&str, &str, IndexOptions)]); 6] = [
        ("http_logs", &[]),
        ("http_logs_v2", &[]),
        (
            "http_logs_v3",
            &[("http_method", "http_logs_v3_http_method_inverted", IndexOptions::Inverted)],
        ),
        (
            "http_logs_v4",
            &[
                ("http_method", "http_logs_v4_http_method_inverted", IndexOptions::Inverted),
                ("request_id", "http_logs_v4_request_id_skipping", SKIPPING),
            ],
        ),
        ("raw_logs", &[("message", "raw_logs_message_fulltext", FULLTEXT)]),
        ("system_metrics", &[]),
    ];
    assert_eq!(LOGS.len(), expected.len());
    for ((name, sql), (expected_name, expected)) in LOGS.iter().zip(expected) {
        assert_eq!(*name, expected_name);
        let (new, _) = new_table(sql).unwrap();
        let expected: Vec<_> = expected
            .iter()
            .map(|(column, name, options)| ((*column).to_owned(), (*name).to_owned(), *options))
            .collect();
        assert_eq!(indexes(&table(&new)), expected, "{name}");
        // What is shown makes the same table, and is shown again.
        let shown = create_table_sql(&table(&new));
        let (again, _) = new_table(&shown).unwrap();
        assert_eq!(again.schema, new.schema, "{shown}");
        assert_eq!(create_table_sql(&table(&again)), shown);
    }
}

#[test]
fn indexes_are_shown_with_the_options_that_differ() {
    let shown = create_table_sql(&made(
        "CREATE TABLE t (a INT inverted index skipping index with (granularity = 1024, type = 'BLOOM'), \
         m STRING fulltext index with (analyzer = 'chinese', case_sensitive = true, backend = inverted), \
         n STRING fulltext index with ('false_positive_rate' = '0.05', granularity = null), \
         o INT, p INT, ts TIMESTAMP(3) TIME INDEX, SKIPPING INDEX (o, p), INVERTED INDEX (o) WITH (name = 'Of O'))",
    ));
    let lines: Vec<&str> = shown.lines().map(|line| line.trim().trim_end_matches(',')).collect();
    assert_eq!(
        &lines[1..6],
        [
            "a INT NULL INVERTED INDEX SKIPPING INDEX WITH (granularity = 1024)",
            "m STRING NULL FULLTEXT INDEX WITH (analyzer = 'Chinese', case_sensitive = 'true', \
             backend = 'inverted')",
            "n STRING NULL FULLTEXT INDEX WITH (false_positive_rate = 0.05)",
            "o INT NULL SKIPPING INDEX INVERTED INDEX WITH (name = 'Of O')",
            "p INT NULL SKIPPING INDEX",
        ]
    );
    let named = index("i", SKIPPING);
    assert_eq!(index_options_sql(&named, "i"), "");
    assert_eq!(index_options_sql(&index("i", FULLTEXT), "i"), "");
    assert_eq!(index_options_sql(&named, "j"), " WITH (name = 'i')");
    let rare = Blooms { granularity: 1, false_positives_ppm: 1 };
    assert_eq!(
        index_options_sql(&index("i", IndexOptions::Skipping(rare)), "i"),
        " WITH (granularity = 1, false_positive_rate = 0.000001)"
    );
}

#[test]
fn an_index_is_created_on_one_column() {
    let create = create_index("CREATE INDEX i ON d.t USING inverted (c)").unwrap();
    let table = TableName { database: Some("d".into()), name: "t".into() };
    assert_eq!(
        (create.name.as_deref(), create.table, create.column),
        (Some("i"), table, "c".into())
    );
    assert_eq!((create.options, create.if_not_exists), (IndexOptions::Inverted, false));
    for sql in [
        "create index concurrently if not exists \"I x\" on only t using SKIPPING (c asc)",
        "CREATE INDEX IF NOT EXISTS ON t USING skipping (c) WITH (name = 'I x')",
    ] {
        let create = create_index(sql).unwrap();
        assert_eq!((create.name.as_deref(), create.options), (Some("I x"), SKIPPING), "{sql}");
        assert!(create.if_not_exists, "{sql}");
    }
    assert_eq!(create_index("CREATE INDEX ON t USING fulltext (c)").unwrap().options, FULLTEXT);
    for (sql, sqlstate, says) in [
        ("CREATE INDEX i ON t (c)", "0A000", "CREATE INDEX without USING"),
        ("CREATE INDEX i ON t USING btree (c)", "0A000", "an index USING btree"),
        ("CREATE INDEX i ON t USING inverted (a, b)", "0A000", "several columns"),
        ("CREATE INDEX i ON t USING inverted (lower(a))", "0A000", "an expression"),
        ("CREATE INDEX i ON t USING inverted ((a + 1))", "0A000", "an expression"),
        ("CREATE INDEX i ON t USING inverted (a) INCLUDE (b)", "0A000", "INCLUDE"),
        ("CREATE INDEX i ON t USING inverted (a) WHERE a > 1", "0A000", "WHERE"),
        ("CREATE UNIQUE INDEX i ON t USING inverted (a)", "0A000", "UNIQUE INDEX"),
        ("CREATE INDEX i ON t USING inverted ()", "42601", "needs a column"),
        ("CREATE INDEX i ON t USING inverted (a) x", "42601", "the end of the statement"),
        ("CREATE INDEX i ON t USING skipping (a) WITH (name = 'j')", "42601", "more than once"),
        ("CREATE INDEX i t USING skipping (a)", "42601", "expected ON"),
    ] {
        refused(&parse(sql).expect_err(sql), sqlstate, says);
    }
}

#[test]
fn options_of_indexes_are_checked() {
    for (kind, option, says) in [
        ("SKIPPING", "granularity = 0", "from 1 to 1048576, not '0'"),
        ("SKIPPING", "granularity = 1048577", "from 1 to 1048576"),
        ("SKIPPING", "granularity = -1", "from 1 to 1048576"),
        ("SKIPPING", "false_positive_rate = 0", "from 0.000001 to 0.5"),
        ("SKIPPING", "false_positive_rate = 0.51", "from 0.000001 to 0.5"),
        ("SKIPPING", "false_positive_rate = -0.1", "from 0.000001 to 0.5"),
        ("SKIPPING", "false_positive_rate = 'nan'", "from 0.000001 to 0.5"),
        ("SKIPPING", "false_positive_rate = inf", "from 0.000001 to 0.5"),
        ("SKIPPING", "type = 'cuckoo'", "'BLOOM'"),
        ("SKIPPING", "analyzer = 'English'", "unrecognized index option key: 'analyzer'"),
        ("INVERTED", "granularity = 5", "unrecognized index option key: 'granularity'"),
        ("FULLTEXT", "analyzer = 'Klingon'", "'English' or 'Chinese'"),
        ("FULLTEXT", "case_sensitive = 2", "'true' or 'false'"),
        ("FULLTEXT", "backend = 'tantivy'", "'bloom' or 'inverted'"),
        ("FULLTEXT", "type = 'BLOOM'", "unrecognized index option key: 'type'"),
        ("FULLTEXT", "backend = 'inverted', granularity = 5", "requires the backend 'bloom'"),
    ] {
        let sql =
            format!("CREATE TABLE t (k INT PRIMARY KEY, c STRING {kind} INDEX WITH ({option}))");
        let error = new_table(&sql).expect_err(&sql);
        refused(&error, "22023", says);
        assert!(error.position.is_some(), "{sql}");
    }
}

#[test]
fn new_tables_with_wrong_indexes_are_refused() {
    for (columns, sqlstate, says) in [
        ("c INT FULLTEXT INDEX", "42804", "\"c\" of type INT"),
        ("c INT, FULLTEXT INDEX (c)", "42804", "\"c\" of type INT"),
        ("c INT, INVERTED INDEX (d)", "42703", "\"d\" named in INVERTED INDEX"),
        ("c INT INVERTED INDEX INVERTED INDEX", "42601", "more than once for column \"c\""),
        ("c INT INVERTED INDEX, INVERTED INDEX (c)", "42601", "more than once for column \"c\""),
        (
            "c INT INVERTED INDEX WITH (name = 'i') SKIPPING INDEX WITH (name = 'i')",
            "42P07",
            "relation \"i\" already exists",
        ),
        ("c INT INVERTED INDEX WITH (name = '')", "22023", "may not be empty"),
    ] {
        let sql = format!("CREATE TABLE t (k INT PRIMARY KEY, {columns})");
        refused(&new_table(&sql).expect_err(&sql), sqlstate, says);
    }
}

#[test]
fn names_that_are_made_differ_from_all_others() {
    let made_names = |sql: &str| -> Vec<String> {
        indexes(&made(sql)).into_iter().map(|(_, name, _)| name).collect()
    };
    let names = made_names(
        "CREATE TABLE t (k INT PRIMARY KEY, a INT INVERTED INDEX, \
         b INT INVERTED INDEX WITH (name = 't_a_inverted') SKIPPING INDEX WITH (name = 't_a_inverted1'))",
    );
    assert_eq!(names, ["t_a_inverted2", "t_a_inverted", "t_a_inverted1"]);
    // A name of the greatest length leaves no space for a number.
    let long = "é".repeat(NAME_BYTES_MAX / 2);
    let taken = default_name(&long, "a", IndexKind::Inverted);
    let names = made_names(&format!(
        "CREATE TABLE \"{long}\" (k INT PRIMARY KEY, a INT INVERTED INDEX, \
         b INT INVERTED INDEX WITH (name = '{taken}'))"
    ));
    assert_ne!(names[0], names[1]);
    assert!(names[0].len() <= NAME_BYTES_MAX && names[0].ends_with('1'), "{}", names[0]);
}

#[test]
fn columns_get_indexes_and_lose_them() {
    let logs = logs();
    let set = |column: &str, index: Index| TableChange::SetIndex {
        column: column.to_owned(),
        index,
        if_not_exists: false,
    };
    let blooms = Blooms { granularity: 100, ..Blooms::default() };
    for (sql, expected) in [
        (
            "ALTER TABLE logs MODIFY COLUMN message SET FULLTEXT INDEX",
            set("message", index("logs_message_fulltext", FULLTEXT)),
        ),
        (
            "ALTER TABLE logs ALTER request SET SKIPPING INDEX WITH (granularity = 100, name = 'r')",
            set("request", index("r", IndexOptions::Skipping(blooms))),
        ),
        (
            "CREATE INDEX ON logs USING skipping (status)",
            set("status", index("logs_status_skipping", SKIPPING)),
        ),
        (
            "ALTER TABLE logs MODIFY COLUMN status UNSET INVERTED INDEX",
            TableChange::DropIndex { column: "status".to_owned(), kind: IndexKind::Inverted },
        ),
    ] {
        let (changes, notices) = changes(&logs, sql).unwrap();
        assert_eq!(changes, [expected], "{sql}");
        assert!(notices.is_empty(), "{sql}: {notices:?}");
    }
    // An index with other options keeps its name, unless it gets one.
    let renamed = "ALTER TABLE logs MODIFY COLUMN status SET INVERTED INDEX WITH (name = 'x')";
    for (sql, name) in [
        ("ALTER TABLE logs MODIFY COLUMN status SET INVERTED INDEX", "logs_status_inverted"),
        (renamed, "x"),
    ] {
        let expected = set("status", index(name, IndexOptions::Inverted));
        assert_eq!(changes(&logs, sql).unwrap().0, [expected], "{sql}");
    }
    let added = "ALTER TABLE logs ADD COLUMN user_id STRING NULL SKIPPING INDEX INVERTED INDEX WITH (name = 'u')";
    let (changes, _) = changes(&logs, added).unwrap();
    let [TableChange::AddColumns { columns, .. }] = changes.as_slice() else {
        panic!("{changes:?}")
    };
    let expected = [index("logs_user_id_skipping", SKIPPING), index("u", IndexOptions::Inverted)];
    assert_eq!(columns[0].indexes, expected);
}

#[test]
fn changes_of_indexes_are_checked_against_the_table() {
    let logs = logs();
    for (sql, sqlstate, says) in [
        ("CREATE INDEX i ON logs USING fulltext (status)", "42804", "of type INT"),
        ("ALTER TABLE logs MODIFY COLUMN status SET FULLTEXT INDEX", "42804", "of type INT"),
        ("ALTER TABLE logs ADD COLUMN c INT FULLTEXT INDEX", "42804", "of type INT"),
        ("CREATE INDEX i ON logs USING inverted (nope)", "42703", "\"nope\""),
        ("ALTER TABLE logs MODIFY COLUMN nope SET INVERTED INDEX", "42703", "\"nope\""),
        ("ALTER TABLE logs MODIFY COLUMN nope UNSET INVERTED INDEX", "42703", "\"nope\""),
        (
            "ALTER TABLE logs MODIFY COLUMN message UNSET INVERTED INDEX",
            "42704",
            "column \"message\" of relation \"logs\" has no inverted index",
        ),
        (
            "CREATE INDEX i ON logs USING inverted (status)",
            "42P07",
            "relation \"logs_status_inverted\" already exists",
        ),
        (
            "CREATE INDEX logs_status_inverted ON logs USING skipping (message)",
            "42P07",
            "relation \"logs_status_inverted\" already exists",
        ),
        (
            "ALTER TABLE logs MODIFY COLUMN message SET INVERTED INDEX WITH (name = 'logs_status_inverted')",
            "42P07",
            "already exists",
        ),
        (
            "ALTER TABLE logs MODIFY COLUMN message SET INVERTED INDEX WITH (name = 'i'), \
             MODIFY COLUMN request SET INVERTED INDEX WITH (name = 'i')",
            "42P07",
            "relation \"i\" already exists",
        ),
        (
            "ALTER TABLE logs MODIFY COLUMN message SET BTREE INDEX",
            "42601",
            "expected INVERTED, SKIPPING or FULLTEXT",
        ),
        ("ALTER TABLE logs MODIFY COLUMN message UNSET DEFAULT", "0A000", "UNSET"),
    ] {
        refused(&changes(&logs, sql).expect_err(sql), sqlstate, says);
    }
    for sql in [
        "CREATE INDEX IF NOT EXISTS i ON logs USING inverted (status)",
        "CREATE INDEX IF NOT EXISTS logs_status_inverted ON logs USING skipping (message)",
    ] {
        let (changes, notices) = changes(&logs, sql).unwrap();
        assert!(changes.is_empty(), "{sql}: {changes:?}");
        let message = "relation \"logs_status_inverted\" already exists, skipping";
        assert_eq!(notices, [Notice::notice(message)], "{sql}");
    }
    // A column that may exist keeps its indexes.
    let again = "ALTER TABLE logs ADD COLUMN IF NOT EXISTS status INT INVERTED INDEX";
    let (changes, _) = changes(&logs, again).unwrap();
    let [TableChange::AddColumns { columns, if_not_exists: true }] = changes.as_slice() else {
        panic!("{changes:?}")
    };
    assert_eq!(columns[0].indexes, [index("logs_status_inverted", IndexOptions::Inverted)]);
}

#[test]
fn an_index_that_is_of_no_use_is_noticed() {
    let logs = logs();
    let time = "ALTER TABLE logs MODIFY COLUMN ts SET SKIPPING INDEX";
    let (_, notices) = changes(&logs, time).unwrap();
    assert_eq!(notices[0].severity, Severity::Warning);
    assert!(notices[0].message.contains("\"ts\" is of no use"), "{}", notices[0].message);
    let first_of_key = "CREATE INDEX ON logs USING inverted (app)";
    let (_, notices) = changes(&logs, first_of_key).unwrap();
    assert_eq!(notices[0].severity, Severity::Notice);
    assert!(notices[0].message.ends_with("the key orders rows by it already"));
    let words = "CREATE INDEX ON logs USING fulltext (app)";
    assert!(changes(&logs, words).unwrap().1.is_empty());
    let (_, notices) = new_table(
        "CREATE TABLE t (a INT SKIPPING INDEX, ts TIMESTAMP(3) TIME INDEX INVERTED INDEX, PRIMARY KEY (a))",
    )
    .unwrap();
    let columns = ["SKIPPING INDEX on column \"a\"", "INVERTED INDEX on column \"ts\""];
    assert_eq!(notices.len(), 2, "{notices:?}");
    for (notice, column) in notices.iter().zip(columns) {
        assert!(notice.message.starts_with(column), "{}", notice.message);
    }
}

/// A catalog of one database.
fn catalog(tables: impl IntoIterator<Item = Table>) -> Catalog {
    let tables = tables.into_iter().map(|table| (table.name.clone(), Arc::new(table)));
    let tables = BTreeMap::from([("public".to_owned(), tables.collect())]);
    Catalog { tables, ..Catalog::default() }
}

#[test]
fn an_index_is_dropped_by_name() {
    let other =
        made("CREATE TABLE other (k INT PRIMARY KEY, a INT SKIPPING INDEX WITH (name = 'i'))");
    let other = Table { id: TableId(2), ..other };
    let catalog = catalog([logs(), other]);
    let find = |sql: &str| drop_index(sql).unwrap().find(&catalog, "public");
    for sql in [
        "DROP INDEX i",
        "DROP INDEX CONCURRENTLY IF EXISTS public.i RESTRICT",
        "DROP INDEX i ON other",
        "DROP INDEX public.i ON other CASCADE",
    ] {
        let found = find(sql).unwrap().unwrap();
        let place = (found.table.name.as_str(), found.column.as_str(), found.kind);
        assert_eq!(place, ("other", "a", IndexKind::Skipping), "{sql}");
    }
    for sql in ["DROP INDEX j", "DROP INDEX i ON logs", "DROP INDEX d.i", "DROP INDEX d.i ON other"]
    {
        assert!(find(sql).unwrap().is_none(), "{sql}");
    }
    let undefined = drop_index("DROP INDEX j").unwrap().undefined();
    refused(&undefined, "42704", "index \"j\" does not exist");
    refused(&parse("DROP INDEX i, j").unwrap_err(), "0A000", "several indexes");
}

#[test]
fn a_name_in_several_tables_needs_its_table() {
    let of_name = |id: u32, name: &str| {
        let sql = format!(
            "CREATE TABLE \"{name}\" (k INT PRIMARY KEY, a INT INVERTED INDEX WITH (name = 'i'))"
        );
        Table { id: TableId(id), ..made(&sql) }
    };
    let catalog_of_two = catalog([of_name(1, "a"), of_name(2, "b")]);
    let drop = drop_index("DROP INDEX i").unwrap();
    let error = drop.find(&catalog_of_two, "public").unwrap_err();
    refused(&error, "42P09", "index name \"i\" is ambiguous");
    let found = drop_index("DROP INDEX i ON b").unwrap().find(&catalog_of_two, "public").unwrap();
    assert_eq!(found.unwrap().table.name, "b");
    // A former table has the same indexes, and so does a table that is about to succeed another.
    let former = of_name(1, "a$former");
    let current = Table { former: Some(TableId(1)), ..of_name(2, "a") };
    let found = drop.find(&catalog([former, current]), "public").unwrap();
    assert_eq!(found.unwrap().table.name, "a");
    let current = Table { succeeded_by: Some(TableId(2)), ..of_name(1, "a") };
    let next = of_name(2, "a$next");
    let found = drop.find(&catalog([current, next]), "public").unwrap();
    assert_eq!(found.unwrap().table.name, "a");
}

#[test]
fn rules_of_the_advisor_are_switched_off_by_an_option() {
    let sql = "CREATE TABLE t (k INT PRIMARY KEY) WITH ('advice_off' = 'a20, A05,A20')";
    let options = new_table(sql).unwrap().0.schema.options;
    assert_eq!(options.advice_off, ["A05", "A20"]);
    let table = made(sql);
    assert!(create_table_sql(&table).contains("'advice_off' = 'A05, A20'"));
    for sql in ["ALTER TABLE t SET ('advice_off' = NULL)", "ALTER TABLE t UNSET 'advice_off'"] {
        let (changes, _) = changes(&table, sql).unwrap();
        let [TableChange::ChangeOptions { next: options, .. }] = changes.as_slice() else {
            panic!("{changes:?}")
        };
        assert!(options.advice_off.is_empty(), "{sql}");
    }
    for wrong in ["A5", "B05", "A005", "A05 A20", "all"] {
        let sql = format!("ALTER TABLE t SET ('advice_off' = '{wrong}')");
        refused(&changes(&table, &sql).expect_err(wrong), "22023", "rules of the advisor");
    }
}

#[test]
fn thresholds_of_the_advisor_are_an_option() {
    let sql = "CREATE TABLE t (k INT PRIMARY KEY) WITH ('advice_thresholds' = 'Many_Tags = 8,calls=0.50')";
    let options = new_table(sql).unwrap().0.schema.options;
    assert_eq!(options.advice_thresholds, ["calls=0.5", "many_tags=8"]);
    let table = made(sql);
    assert!(create_table_sql(&table).contains("'advice_thresholds' = 'calls=0.5, many_tags=8'"));
    for sql in [
        "ALTER TABLE t SET ('advice_thresholds' = NULL)",
        "ALTER TABLE t SET ('advice_thresholds' = '')",
        "ALTER TABLE t UNSET 'advice_thresholds'",
    ] {
        let (changes, _) = changes(&table, sql).unwrap();
        let [TableChange::ChangeOptions { next: options, .. }] = changes.as_slice() else {
            panic!("{changes:?}")
        };
        assert!(options.advice_thresholds.is_empty(), "{sql}");
    }
    for wrong in ["calls", "calls=", "=5", "calls=x", "calls=NaN", "a b=1", "calls=1,CALLS=2"] {
        let sql = format!("ALTER TABLE t SET ('advice_thresholds' = '{wrong}')");
        refused(&changes(&table, &sql).expect_err(wrong), "22023", "thresholds of the advisor");
    }
}
