//! The rules over five hundred tables, which one look at `sys.advice` may take a tenth of a second for.
//!
//! | group | measures |
//! |---|---|
//! | advice | all rules over 500 tables of metrics with statements, and a second look at them; a row is a table |

use std::hint::black_box;

use partita_advice::{
    Filter, FilterClass, Judge, Measurements, StatementShape, Thresholds, advise, declared_tables,
};
use partita_bench::{cpu, stage};

/// Tables that are judged.
const TABLES: usize = 500;

fn main() {
    let mut criterion = cpu();
    let measurements = measurements();
    stage(
        &mut criterion,
        ("advice", "all rules"),
        TABLES,
        || (),
        |()| black_box(advise(&measurements, &Thresholds::default())),
    );
    let mut judge = Judge::default();
    judge.judge(&measurements, &Thresholds::default());
    stage(
        &mut criterion,
        ("advice", "second look"),
        TABLES,
        || (),
        |()| black_box(judge.judge(&measurements, &Thresholds::default())),
    );
    criterion.final_summary();
}

/// Tables with figures, and two statements on each.
fn measurements() -> Measurements {
    let mut measurements = Measurements::default();
    for number in 0..TABLES {
        let letters: String =
            number.to_string().bytes().map(|digit| char::from(digit + 49)).collect();
        let name = format!("cpu_{letters}");
        let sql = format!(
            "CREATE TABLE {name} (host STRING, region STRING, ts TIMESTAMP TIME INDEX, usage_user DOUBLE, \
             usage_system DOUBLE, message STRING, PRIMARY KEY (region, host))"
        );
        let mut facts = declared_tables(&sql).expect("the statement parses").remove(0).facts;
        facts.rows = Some(1_000_000);
        for column in &mut facts.columns {
            (column.values, column.nulls, column.distinct) =
                (Some(1_000_000), Some(0), Some(5_000));
            column.sample = (0..32).map(|value| format!("value {value}")).collect();
        }
        for column in ["host", "message"] {
            let table = format!("public.{name}");
            let filter = Filter {
                table: table.clone(),
                column: column.to_owned(),
                class: FilterClass::Point,
            };
            measurements.statements.push(StatementShape {
                tables: vec![table],
                calls: 100,
                rows_examined: 100_000_000,
                rows_returned: 100,
                filters: vec![filter],
                newest_ms: Some(3_600_000),
                ..StatementShape::default()
            });
        }
        measurements.tables.push(facts);
    }
    measurements
}
