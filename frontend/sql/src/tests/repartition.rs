//! ALTER TABLE ... SPLIT and MERGE: which partitions and keys the words mean.

use partita_proto::id::{Epoch, PartitionId};
use partita_proto::range::Bound;
use partita_proto::service::AdminOrder;
use partita_proto::value::Value;

use super::{made, one};
use crate::error::SqlError;
use crate::repartition::Step;
use crate::statement::Statement;

const RANGE: &str =
    "CREATE TABLE t (a INT, b STRING, PRIMARY KEY (a, b)) SPLIT AT ((10), (20), (30))";
const HASH: &str = "CREATE TABLE t (a INT PRIMARY KEY) PARTITION BY HASH (a) PARTITIONS 4";
const RULES: &str =
    "CREATE TABLE t (a INT PRIMARY KEY) PARTITION ON COLUMNS (a) (a < 5, a >= 5 AND a < 9, a >= 9)";

fn steps(table: &str, change: &str) -> Result<Vec<Step>, SqlError> {
    match one(&format!("ALTER TABLE t {change}"))? {
        Statement::Repartition(repartition) => repartition.steps(&made(table)),
        other => panic!("{change} is {other:?}"),
    }
}

fn cut(placement: Option<u16>, key: &[Value], named: Option<u64>) -> Step {
    Step::Cut(Bound { placement, key: key.to_vec() }, named.map(PartitionId))
}

#[track_caller]
fn refused(table: &str, change: &str, sqlstate: &str, says: &str) {
    let error = steps(table, change).expect_err(change);
    assert_eq!(error.sqlstate, sqlstate, "{change}: {}", error.message);
    assert!(error.message.contains(says), "{change}: {}", error.message);
}

#[test]
fn partitions_are_cut_by_number_and_by_key() {
    let int = Value::Int;
    assert_eq!(steps(RANGE, "SPLIT PARTITION 2").unwrap(), [Step::Halve(PartitionId(2), Epoch(1))]);
    assert_eq!(
        steps(RANGE, "SPLIT PARTITION 2 AT (15, 'x')").unwrap(),
        [cut(None, &[int(15), Value::String("x".to_owned())], Some(2))]
    );
    assert_eq!(
        steps(RANGE, "SPLIT AT ((5), (15, 'x'), 25)").unwrap(),
        [
            cut(None, &[int(5)], None),
            cut(None, &[int(15), Value::String("x".to_owned())], None),
            cut(None, &[int(25)], None)
        ]
    );
    assert_eq!(
        steps(HASH, "SPLIT AT ((BUCKET 300, 7))").unwrap(),
        [cut(Some(300), &[int(7)], None)]
    );
    assert_eq!(steps(HASH, "SPLIT AT ((300, 7))").unwrap(), [cut(Some(300), &[int(7)], None)]);
    assert_eq!(steps(HASH, "SPLIT AT ((BUCKET 300))").unwrap(), [cut(Some(300), &[], None)]);
    assert_eq!(steps(RULES, "SPLIT AT ((RULE 1, 7))").unwrap(), [cut(Some(1), &[int(7)], None)]);
    let text = |text: &str| Value::String(text.to_owned());
    assert_eq!(
        steps(RANGE, "SPLIT AT (AFTER (15, 'x'), BEFORE (25), AFTER 27)").unwrap(),
        [
            cut(None, &[int(15), text("x\0")], None),
            cut(None, &[int(25)], None),
            cut(None, &[int(28)], None)
        ]
    );
    assert_eq!(
        steps(RANGE, "SPLIT PARTITION 2 AT (15, U&'x\\0000\\0000')").unwrap(),
        [cut(None, &[int(15), text("x\0\0")], Some(2))]
    );
    assert_eq!(
        steps(HASH, "SPLIT AT (AFTER (BUCKET 300, 7))").unwrap(),
        [cut(Some(300), &[int(8)], None)]
    );
    refused(RANGE, "SPLIT AT (AFTER (2147483647))", "22003", "no value after its greatest one");
    refused(HASH, "SPLIT AT (AFTER (300))", "42P16", "AFTER requires a value");
    refused(RANGE, "SPLIT AT ((BUCKET 3, 7))", "42P16", "is not partitioned by BUCKET");
    refused(HASH, "SPLIT AT ((RULE 3, 7))", "42P16", "is not partitioned by RULE");
    refused(RANGE, "SPLIT PARTITION 99", "42704", "no partition 99");
    refused(RANGE, "SPLIT AT ((1, 'a', 3))", "42P16", "longer than the key");
    refused(RANGE, "SPLIT AT ('x')", "42804", "");
    for wrong in [
        "SPLIT",
        "SPLIT AT ()",
        "SPLIT AT (())",
        "SPLIT PARTITION",
        "MERGE (1, 2)",
        "MERGE PARTITIONS (1)",
    ] {
        let error = one(&format!("ALTER TABLE t {wrong}")).expect_err(wrong);
        assert_eq!(error.sqlstate, "42601", "{wrong}: {}", error.message);
    }
}

#[test]
fn neighbours_are_merged_in_either_order() {
    let merge = [Step::Merge(PartitionId(2), PartitionId(3))];
    assert_eq!(steps(RANGE, "MERGE PARTITIONS (2, 3)").unwrap(), merge);
    assert_eq!(steps(RANGE, "MERGE PARTITIONS 3, 2").unwrap(), merge);
    refused(RANGE, "MERGE PARTITIONS (1, 3)", "22023", "not neighbours");
    refused(RANGE, "MERGE PARTITIONS (2, 2)", "22023", "not neighbours");
}

#[test]
fn expressions_name_partitions_where_they_are_ranges_or_rules() {
    assert_eq!(
        steps(
            RANGE,
            "SPLIT PARTITION (a >= 10 AND a < 20) INTO (a >= 15 AND a < 20, a >= 10 AND a < 12, a < 15 AND a >= 12)"
        )
        .unwrap(),
        [cut(None, &[Value::Int(12)], None), cut(None, &[Value::Int(15)], None)]
    );
    assert_eq!(
        steps(RANGE, "SPLIT PARTITION (a < 10) INTO (a < 5, a >= 5 AND a < 10)").unwrap(),
        [cut(None, &[Value::Int(5)], None)]
    );
    assert_eq!(
        steps(RANGE, "MERGE PARTITION (a >= 30, a >= 20 AND a < 30)").unwrap(),
        [Step::Merge(PartitionId(3), PartitionId(4))]
    );
    assert_eq!(
        steps(RULES, "MERGE PARTITION (a < 5, a >= 5 AND a < 9)").unwrap(),
        [Step::Merge(PartitionId(1), PartitionId(2))]
    );
    let split = |into: &str| format!("SPLIT PARTITION (a < 10) INTO ({into})");
    refused(RANGE, &split("a < 5, a >= 6 AND a < 10"), "42P16", "gap or overlap");
    refused(RANGE, &split("a < 5, a > 5 AND a < 10"), "0A000", "a > 5");
    refused(RANGE, "SPLIT PARTITION (a < 11) INTO (a < 5, a >= 5 AND a < 11)", "42704", "a < 11");
    refused(
        RULES,
        "SPLIT PARTITION (a < 5) INTO (a < 2, a >= 2 AND a < 5)",
        "0A000",
        "not placed by range",
    );
    refused(HASH, "MERGE PARTITION (a < 5, a >= 5)", "0A000", "by hash");
    refused(RULES, "MERGE PARTITION (a < 4, a >= 5 AND a < 9)", "42704", "a < 4");
}

#[test]
fn a_step_that_is_done_asks_for_nothing() {
    let table = made(RANGE);
    let at =
        |key: i32, named: Option<u64>| cut(None, &[Value::Int(key.into())], named).order(&table);
    assert_eq!(at(20, None).unwrap(), None);
    assert!(matches!(
        at(15, Some(2)).unwrap(),
        Some(AdminOrder::SplitPartition { partition: PartitionId(2), at: Some(_) })
    ));
    assert_eq!(at(15, Some(3)).unwrap_err().sqlstate, "22023");
    assert_eq!(Step::Halve(PartitionId(2), Epoch(7)).order(&table).unwrap(), None);
    assert_eq!(Step::Merge(PartitionId(2), PartitionId(9)).order(&table).unwrap(), None);
}
