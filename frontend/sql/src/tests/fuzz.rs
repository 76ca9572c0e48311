//! Whatever comes in, something comes out: statements or an error, never a panic.

use std::sync::LazyLock;

use datafusion::common::ScalarValue;
use partita_proto::catalog::Table;
use partita_worker::Zone;
use proptest::prelude::*;

use super::made;
use crate::statement::Statement;
use crate::{RekeyChange, StatementTime, parse};

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    made(
        "CREATE TABLE t (k INT PRIMARY KEY, s STRING DEFAULT 'x', ts TIMESTAMP(9), d DECIMAL(9, 3), \
         y BYTEA, b BOOLEAN, f REAL, dt DATE, u UINT64)",
    )
});

/// Words and marks that the grammar knows, in any order.
fn soup() -> impl Strategy<Value = String> {
    let words = "SELECT INSERT INTO VALUES DEFAULT t k s ts d y b CREATE TABLE IF NOT EXISTS PRIMARY \
        KEY TIME INDEX PARTITION BY HASH RANGE ON COLUMNS SPLIT AT WITH ALTER ADD COLUMN DROP RENAME \
        TO SET COPY FROM STDIN STDOUT CSV NULL TIMESTAMP INT STRING GENERATED ALWAYS AS STORED SHOW \
        TABLES DELETE WHERE AND OR BETWEEN IN EXPLAIN ANALYZE PREPARE EXECUTE FETCH DECLARE CURSOR FOR \
        BEGIN ROLLBACK CAST now() $1 $0 $99999999999999999999 E'\\' U&'x X'0 'a' 'a ''' \"a\" \"a `b` ` \
        ( ) , ; : :: . .. = < > - -- /* */ + * 1 -1 1.5 1e5 1e 0x1 99999999999999999999 'ü' ü \\ \n \
        $$ $a$ [ ] UNSIGNED DECIMAL(3,2) COMMENT ENGINE = 'ttl' '7d' ADMIN flush_table('t') USE \
        ROLE USER GRANT REVOKE OPTION OWNER OWNED PASSWORD VALID UNTIL TOKEN READ WRITE EXPIRES CLUSTER PUBLIC \
        INVERTED SKIPPING FULLTEXT USING inverted MODIFY UNSET granularity 'bloom' analyzer @@ \
        ADVISE PARTITIONS RATE MATERIALIZED COPY OF CASCADE \
        PAUSE RESUME CANCEL THROTTLE REKEYING";
    let words: Vec<_> = words.split(' ').filter(|word| !word.is_empty()).collect();
    let glue = prop::sample::select(vec![" ", "", " ", "\n"]);
    prop::collection::vec((prop::sample::select(words), glue), 0..30)
        .prop_map(|parts| parts.into_iter().map(|(word, glue)| format!("{word}{glue}")).collect())
}

fn try_all(sql: &str) {
    let Ok(statements) = parse(sql) else { return };
    for statement in statements {
        let _ = statement.tag();
        match statement {
            Statement::Insert(insert) => {
                let Ok(target) = insert.target(&TABLE.schema) else { continue };
                let parameters = [ScalarValue::Utf8(Some("1".into()))];
                drop(insert.scan(
                    &target,
                    StatementTime { now: 0, zone: Zone::UTC },
                    Some(&parameters),
                ));
                drop(insert.parameter_types(&target));
                drop(insert.values_query(&target));
            }
            Statement::CreateTable(create) => {
                drop(create.to_new_table("public"));
            }
            Statement::AlterTable(alter) => {
                drop(alter.to_changes(&TABLE));
                if let Ok(Some(placement)) = alter.moving_placement(&TABLE, false) {
                    drop(placement.to_rekeyed(&TABLE, "t2"));
                }
            }
            Statement::Rekey(rekey) => {
                if let RekeyChange::Begin(layout) = rekey.change {
                    drop(layout.to_rekeyed(&TABLE, "t2"));
                }
            }
            Statement::CreateIndex(create) => {
                drop(create.to_change(&TABLE));
            }
            Statement::CreateCopy(create) => {
                drop(create.to_new_table(&TABLE));
            }
            Statement::Execute(execute) => {
                for parameter in &execute.parameters {
                    drop(crate::literal::scalar(parameter));
                }
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text_is_statements_or_an_error(sql in ".{0,60}") {
        try_all(&sql);
    }

    #[test]
    fn any_words_are_statements_or_an_error(sql in soup()) {
        try_all(&sql);
    }

    #[test]
    fn any_rows_are_a_batch_or_an_error(rows in soup(), more in ".{0,20}") {
        try_all(&format!("INSERT INTO t VALUES {rows}{more}"));
        try_all(&format!("INSERT INTO t (k, s, ts) VALUES (1, 'a', {rows}"));
    }

    #[test]
    fn any_clause_is_a_table_or_an_error(clause in soup()) {
        try_all(&format!("CREATE TABLE t (k INT PRIMARY KEY, ts TIMESTAMP {clause}"));
        try_all(&format!("CREATE TABLE t (k INT PRIMARY KEY) {clause}"));
        try_all(&format!("ALTER TABLE t {clause}"));
        try_all(&format!("CREATE INDEX i ON t {clause}"));
        try_all(&format!("COPY t FROM STDIN {clause}"));
    }

    #[test]
    fn any_text_is_a_value_or_an_error(text in ".{0,40}", column in 0..9_usize) {
        let name = &TABLE.schema.columns[column].name;
        let text = text.replace('\'', "''");
        try_all(&format!("INSERT INTO t ({name}) VALUES ('{text}')"));
        try_all(&format!("INSERT INTO t ({name}) VALUES ('2024-02-29{text}')"));
    }
}
