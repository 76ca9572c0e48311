//! ALTER TABLE ... PRIMARY KEY: what it parses to, and the table that it makes.

use partita_proto::catalog::Table;
use partita_proto::id::TableId;
use partita_proto::materialized::Steering;
use partita_proto::placement::Placement;
use partita_proto::service::NewTable;

use super::{made, one};
use crate::error::SqlError;
use crate::statement::{Statement, TableName};
use crate::{Rekey, RekeyChange};

const EVENTS: &str = "CREATE TABLE events (a INT, b STRING, v DOUBLE, ts TIMESTAMP(3) TIME INDEX, \
    PRIMARY KEY (a, b))";

fn rekey(sql: &str) -> Result<Rekey, SqlError> {
    match one(sql)? {
        Statement::Rekey(rekey) => Ok(rekey),
        other => panic!("{sql} is {other:?}"),
    }
}

/// The table that `ALTER TABLE events` with some clauses makes.
fn new_table(source: &Table, clauses: &str) -> Result<NewTable, SqlError> {
    let sql = format!("ALTER TABLE events {clauses}");
    match one(&sql)? {
        Statement::Rekey(Rekey { change: RekeyChange::Begin(layout), .. }) => {
            layout.to_rekeyed(source, "events$rekeyed")
        }
        Statement::AlterTable(alter) => match alter.moving_placement(source, false)? {
            Some(placement) => placement.to_rekeyed(source, "events$rekeyed"),
            None => panic!("{sql} moves nothing"),
        },
        other => panic!("{sql} is {other:?}"),
    }
}

fn key(new: &NewTable) -> Vec<&str> {
    new.schema.key_columns().map(|column| column.name.as_str()).collect()
}

#[test]
fn a_key_has_the_columns_of_the_present_one_in_another_order() {
    let source = made(EVENTS);
    let new = new_table(&source, "PRIMARY KEY (b, a)").unwrap();
    assert_eq!(key(&new), ["b", "a", "ts"], "the time index ends it");
    assert_eq!((new.copy_of, new.rekeys), (Some(source.id), true));
    assert_eq!((new.name.as_str(), new.cuts.len()), ("events$rekeyed", 0));
    let first = new_table(&source, "PRIMARY KEY (ts, b, a) PARTITION BY HASH (a) PARTITIONS 4");
    assert_eq!(key(first.as_ref().unwrap()), ["ts", "b", "a"]);
    assert_eq!(first.unwrap().cuts.len(), 3);
    let cut = new_table(&source, "PRIMARY KEY (b, a, ts) SPLIT AT (('h'), ('p'))").unwrap();
    assert_eq!((cut.placement, cut.cuts.len()), (Placement::Range, 2));
}

#[test]
fn a_placement_of_one_row_per_key_moves_the_rows() {
    let source = made(EVENTS);
    let new = new_table(&source, "PARTITION BY HASH (b) PARTITIONS 8").unwrap();
    assert_eq!((key(&new), new.cuts.len(), new.rekeys), (vec!["a", "b", "ts"], 7, true));
    // Rows of a table that keeps all of them stay where they are.
    let appended = made(&format!("{EVENTS} WITH ('append_mode' = 'true')"));
    let sql = "ALTER TABLE events PARTITION BY HASH (b) PARTITIONS 8";
    let Statement::AlterTable(alter) = one(sql).unwrap() else { panic!("{sql}") };
    assert!(alter.moving_placement(&appended, false).unwrap().is_none());
    // Its copies follow the partitions that it has.
    assert!(alter.moving_placement(&appended, true).unwrap().is_some());
    let error = new_table(&source, "PARTITION BY HASH (b) PARTITIONS 8, ADD COLUMN x INT");
    assert_eq!(error.unwrap_err().sqlstate, "42601");
}

#[test]
fn a_key_that_would_join_or_divide_rows_is_refused() {
    let source = made(EVENTS);
    let message = "the new key must have the key columns of table \"events\": a, b, ts";
    for columns in ["a", "b", "a, b, v", "a, a, b"] {
        let error = new_table(&source, &format!("PRIMARY KEY ({columns})")).unwrap_err();
        assert_eq!((error.sqlstate.as_str(), error.message.as_str()), ("42P16", message));
        assert!(error.detail.is_some(), "{columns}");
    }
    for clauses in ["PRIMARY KEY (a, b)", "PRIMARY KEY (a, b, ts) SPLIT AT ((3))"] {
        let error = new_table(&source, clauses).unwrap_err();
        assert_eq!(error.message, "the new key is that of table \"events\"", "{clauses}");
        assert!(error.hint.is_some(), "{clauses}");
    }
    let repartitioned = Table { former: Some(TableId(9)), ..made(EVENTS) };
    let error = new_table(&repartitioned, "PRIMARY KEY (b, a)").unwrap_err();
    let message = "re-keying table \"events\", which was repartitioned, is not supported";
    assert_eq!((error.sqlstate.as_str(), error.message.as_str()), ("0A000", message));
}

#[test]
fn orders_about_a_rekeying() {
    let steering = |sql: &str| match rekey(sql).unwrap().change {
        RekeyChange::Steer(steering) => steering,
        RekeyChange::Begin(_) => panic!("{sql}"),
    };
    assert_eq!(steering("ALTER TABLE t PAUSE REKEYING"), Steering::Pause);
    assert_eq!(steering("ALTER TABLE d.t RESUME REKEYING"), Steering::Resume);
    assert_eq!(steering("ALTER TABLE IF EXISTS t CANCEL REKEYING"), Steering::Cancel);
    assert_eq!(steering("ALTER TABLE ONLY t THROTTLE REKEYING 5000"), Steering::Throttle(5000));
    let statement = rekey("ALTER TABLE IF EXISTS ONLY d.t PRIMARY KEY (a)").unwrap();
    let expected = TableName { database: Some("d".to_owned()), name: "t".to_owned() };
    assert_eq!((statement.table, statement.if_exists), (expected, true));
    for sql in [
        "ALTER TABLE t PRIMARY KEY (a), ADD COLUMN b INT",
        "ALTER TABLE t PAUSE REKEYING, RESUME REKEYING",
        "ALTER TABLE t THROTTLE REKEYING",
        "ALTER TABLE t PRIMARY KEY ()",
        "ALTER TABLE t PAUSE",
    ] {
        assert_eq!(one(sql).unwrap_err().sqlstate, "42601", "{sql}");
    }
}
