//! CREATE and DROP MATERIALIZED COPY: what they parse to, and the tables that they make.

use partita_proto::catalog::Table;
use partita_proto::id::TableId;
use partita_proto::placement::Placement;
use partita_proto::service::NewTable;
use partita_proto::value::Value;

use super::{made, one, table};
use crate::error::SqlError;
use crate::show::create_copy_sql;
use crate::statement::{CreateCopy, DropCopy, DropTable, Statement, TableName};

const EVENTS: &str = "CREATE TABLE events (a INT, b STRING, v DOUBLE, ts TIMESTAMP(3) TIME INDEX, \
    PRIMARY KEY (a, b)) WITH ('ttl' = '7d')";

fn create(sql: &str) -> Result<CreateCopy, SqlError> {
    match one(sql)? {
        Statement::CreateCopy(create) => Ok(*create),
        other => panic!("{sql} is {other:?}"),
    }
}

fn new_copy(source: &Table, clauses: &str) -> Result<NewTable, SqlError> {
    create(&format!("CREATE MATERIALIZED COPY c OF events {clauses}"))?.to_new_table(source)
}

#[track_caller]
fn refused(source: &Table, clauses: &str, sqlstate: &str, message: &str) {
    let error = new_copy(source, clauses).expect_err(clauses);
    assert_eq!((error.sqlstate.as_str(), error.message.as_str()), (sqlstate, message), "{clauses}");
}

#[test]
fn a_copy_has_the_columns_of_its_source_in_another_order_of_the_key() {
    let source = made(EVENTS);
    let copy = new_copy(&source, "PRIMARY KEY (ts, b, a)").unwrap();
    assert_eq!(copy.copy_of, Some(source.id));
    assert_eq!((copy.database.as_str(), copy.name.as_str()), ("public", "c"));
    let key: Vec<_> = copy.schema.key_columns().map(|column| column.name.as_str()).collect();
    assert_eq!(key, ["ts", "b", "a"]);
    let mut schema = copy.schema.clone();
    schema.key.clone_from(&source.schema.key);
    assert_eq!(schema, *source.schema);
    assert_eq!((copy.placement, copy.cuts.len()), (Placement::Range, 0));
}

#[test]
fn a_copy_is_divided_by_clauses_of_its_own() {
    let source = made(EVENTS);
    let parts = |clauses: &str| new_copy(&source, clauses).unwrap().cuts.len() + 1;
    assert_eq!(parts("PRIMARY KEY (b, a, ts) SPLIT AT (('h'), ('p'))"), 3);
    assert_eq!(parts("PRIMARY KEY (b, a, ts) PARTITION BY RANGE (b) SPLIT AT (('h'))"), 2);
    let above = new_copy(&source, "PRIMARY KEY (b, a, ts) SPLIT AT (AFTER ('h'))").unwrap();
    assert_eq!(above.cuts[0].key, [Value::String("h\0".to_owned())]);
    let empty = create("CREATE MATERIALIZED COPY c OF events PRIMARY KEY (b, a, ts) SPLIT AT (())");
    assert_eq!(empty.unwrap_err().sqlstate, "42601");
    assert_eq!(parts("PRIMARY KEY (a, b, ts) PARTITION BY HASH (b) PARTITIONS 4"), 4);
    assert_eq!(parts("PRIMARY KEY (ts, a, b) PARTITION ON COLUMNS (a) (a < 5, a >= 5)"), 2);
}

#[test]
fn the_key_of_a_copy_has_every_key_column_once() {
    let source = made(EVENTS);
    let message = "the key of a copy must have the key columns of table \"events\": a, b, ts";
    for key in ["b, a", "ts", "a, b, ts, v", "a, a, b, ts", "a, b, v"] {
        refused(&source, &format!("PRIMARY KEY ({key})"), "42P16", message);
    }
    let message = "column \"x\" of relation \"events\" does not exist";
    refused(&source, "PRIMARY KEY (x)", "42703", message);
    let message = "the key of the copy is that of table \"events\"";
    refused(&source, "PRIMARY KEY (a, b, ts)", "42P16", message);
    refused(&source, "PRIMARY KEY (a, b, ts) SPLIT AT ((3))", "42P16", message);
    let message = "partition column \"v\" is not part of the key, so two versions of one row could be in two partitions";
    let by_field = "PRIMARY KEY (b, a, ts) PARTITION BY HASH (v) PARTITIONS 2";
    refused(&source, by_field, "42P16", message);
}

#[test]
fn some_tables_have_no_copies() {
    let repartitioned = Table { former: Some(TableId(9)), ..made(EVENTS) };
    let message = "a copy of table \"events\", which was repartitioned, is not supported";
    refused(&repartitioned, "PRIMARY KEY (b, a, ts)", "0A000", message);
    let elsewhere = create("CREATE MATERIALIZED COPY d.c OF events PRIMARY KEY (b, a, ts)");
    let error = elsewhere.unwrap().to_new_table(&made(EVENTS)).unwrap_err();
    assert_eq!(error.sqlstate, "0A000");
}

#[test]
fn clauses_of_other_statements_are_errors() {
    for sql in [
        "CREATE MATERIALIZED COPY c PRIMARY KEY (a)",
        "CREATE MATERIALIZED COPY c OF t",
        "CREATE MATERIALIZED COPY c OF t ORDER BY (a)",
        "CREATE MATERIALIZED COPY c OF t PRIMARY KEY ()",
        "CREATE MATERIALIZED COPY c OF t PRIMARY KEY (a) PARTITION BY HASH (a)",
        "CREATE MATERIALIZED COPY c OF t PRIMARY KEY (a) PARTITION BY LIST (a)",
        "CREATE MATERIALIZED COPY c OF t PRIMARY KEY (a) SPLIT AT (())",
        "CREATE MATERIALIZED COPY c OF t PRIMARY KEY (a) WITH ('ttl' = '7d')",
    ] {
        assert_eq!(one(sql).unwrap_err().sqlstate, "42601", "{sql}");
    }
    let none = "CREATE MATERIALIZED COPY c OF t PRIMARY KEY (a) PARTITION BY HASH (a) PARTITIONS 0";
    assert_eq!(one(none).unwrap_err().sqlstate, "22023");
    for sql in ["CREATE MATERIALIZED VIEW c AS SELECT 1", "DROP MATERIALIZED VIEW c"] {
        assert_eq!(one(sql).unwrap_err().sqlstate, "0A000", "{sql}");
    }
}

#[test]
fn drops_say_whether_copies_go_too() {
    let tables = |sql: &str| match one(sql).unwrap() {
        Statement::DropTable(DropTable { cascade, .. }) => cascade,
        other => panic!("{sql} is {other:?}"),
    };
    assert!(tables("DROP TABLE t CASCADE") && !tables("DROP TABLE t"));
    assert!(!tables("DROP TABLE IF EXISTS t, u RESTRICT"));
    match one("DROP MATERIALIZED COPY IF EXISTS c, d.e").unwrap() {
        Statement::DropCopy(DropCopy { names, if_exists }) => {
            assert!(if_exists);
            let other = TableName { database: Some("d".to_owned()), name: "e".to_owned() };
            assert_eq!(names, [TableName::bare("c"), other]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_statement_of_a_copy_makes_the_same_copy() {
    let source = made(EVENTS);
    for clauses in [
        "PRIMARY KEY (ts, b, a)",
        "PRIMARY KEY (b, a, ts) SPLIT AT (('h'), ('p', 3))",
        "PRIMARY KEY (ts, a, b) PARTITION BY HASH (a, b) PARTITIONS 3",
        "PRIMARY KEY (ts, a, b) PARTITION BY HASH (a) PARTITIONS 2 SPLIT AT ((100), (40000))",
        "PRIMARY KEY (ts, a, b) PARTITION ON COLUMNS (a) (a < 5, a >= 5)",
    ] {
        let new = new_copy(&source, clauses).unwrap();
        let sql = create_copy_sql(&table(&new), "events", true);
        let again = create(&sql).unwrap().to_new_table(&source).unwrap();
        assert_eq!(again.schema, new.schema, "{sql}");
        assert_eq!((again.placement, again.cuts), (new.placement, new.cuts), "{sql}");
        let unplaced =
            create_copy_sql(&table(&new_copy(&source, clauses).unwrap()), "events", false);
        assert!(!unplaced.contains("PARTITION") && !unplaced.contains("SPLIT"), "{unplaced}");
    }
}
