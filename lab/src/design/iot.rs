//! Customers and devices as tags, at a hundredth of the book's numbers, and the id of each event as a tag, too: the
//! runaway cardinality of InfluxDB's book.
//!
//! The book's 100,000 customers x 10 devices x 5 fields are 5,000,000 series, here 1,000 x 10 x 5 = 50,000. The same
//! records under ten customers only are 500 series.

use super::figures::{Loaded, Measured, judged_if};
use super::model::{
    Advice, Cell, Data, Demonstration, Design, Fact, MILLI_NS, Question, Row, START_NS, Table,
    float, uuid,
};
use crate::claim::Claim;

const CUSTOMERS: u64 = 1_000;
const FEW_CUSTOMERS: u64 = 10;
const DEVICES: u64 = 10;
const FIELDS: u64 = 5;
/// Time between two records, so that no two have the same.
const STEP_MS: i64 = 20;
/// Share by which an estimated number of series may be wrong: three standard errors.
const ESTIMATE: f64 = 0.05;
const SERIES: &str = "series";
const TAG_SETS: &str = "tag sets";
const COLUMNS: [&str; 9] =
    ["time", "customer_id", "device_id", "event_id", "f1", "f2", "f3", "f4", "f5"];

pub(super) const DEMONSTRATION: Demonstration = Demonstration {
    name: "iot-cardinality",
    title: "500 series, 50,000, and one for each event: the same rows under keys of growing cardinality",
    document: "InfluxDB 2, Designing Your Schema; InfluxDB 3, schema design recommendations",
    says: &[
        "Cardinality is customers x devices x fields.",
        "Ids of events as tags make it unbounded; they should be fields.",
        "Too much cardinality slows down writes and queries (InfluxDB 2).",
        "The cardinality of tags does not affect performance (InfluxDB 3).",
    ],
    rows: 150_000,
    parts: 1,
    compacts: true,
    record,
    designs,
    questions,
    judge,
};

/// Time, customer, device, id of the event, fields.
fn record(data: &Data, number: u64) -> Vec<Cell> {
    let mut random = data.random(number);
    let mut cells = vec![
        Cell::Time(START_NS + number.cast_signed() * STEP_MS * MILLI_NS),
        Cell::count(number % CUSTOMERS),
        Cell::Text(format!("device-{}", number / CUSTOMERS % DEVICES)),
        Cell::Text(uuid(&mut random)),
    ];
    cells.extend((0..FIELDS).map(|_| Cell::hundredths(random.below(10_000))));
    cells
}

/// Names the customer, of so many.
fn of_customers(mut cells: Vec<Cell>, customers: u64) -> Vec<Row> {
    if let Some(Cell::Int(number)) = cells.get(1).cloned() {
        cells[1] = Cell::Text(format!("customer-{:04}", number % customers.cast_signed()));
    }
    Row::only(cells)
}

fn many(cells: Vec<Cell>) -> Vec<Row> {
    of_customers(cells, CUSTOMERS)
}

fn few(cells: Vec<Cell>) -> Vec<Row> {
    of_customers(cells, FEW_CUSTOMERS)
}

fn designs() -> Vec<Design> {
    let design = |name: &str, table: &str, description, advice, key: &str, rows| {
        let create = format!(
            "CREATE TABLE {{}} (time TIMESTAMP(3) TIME INDEX, customer_id STRING, device_id STRING, event_id STRING, f1 DOUBLE, f2 DOUBLE, f3 DOUBLE, f4 DOUBLE, f5 DOUBLE, PRIMARY KEY ({key}))"
        );
        let fact = |name, column: &str| Fact {
            name,
            sql: format!("SELECT {column} FROM sys.series WHERE \"table\" = '{table}'"),
        };
        Design {
            name: name.to_owned(),
            description,
            advice,
            tables: vec![Table::new(table, &create, &COLUMNS)],
            rows,
            facts: vec![fact(SERIES, "series"), fact(TAG_SETS, "tag_sets")],
        }
    };
    let scoped = "customer_id, device_id";
    vec![
        design(
            "few",
            "iot_few",
            "ten customers, the id of the event is a field",
            Advice::Neutral,
            scoped,
            few,
        ),
        design(
            "scoped",
            "iot",
            "a thousand customers, the id of the event is a field",
            Advice::For,
            scoped,
            many,
        ),
        design(
            "runaway",
            "iot_events",
            "a thousand customers, the id of the event is a tag",
            Advice::Against,
            "customer_id, device_id, event_id",
            many,
        ),
    ]
}

fn questions(data: &Data) -> Vec<Question> {
    let tables = ["iot_few", "iot", "iot_events"];
    let id = match record(data, data.rows / 2).into_iter().nth(3) {
        Some(Cell::Text(id)) => id,
        _ => String::new(),
    };
    let of_tables = |name: &str, sql: &str| Question::of_tables(name, &tables, sql);
    vec![
        of_tables(
            "all rows",
            "SELECT count(*), min(f1), max(f2), min(f3), max(f4), min(f5) FROM {} WHERE f1 >= 0",
        ),
        // Ten customers have a hundred times as many rows each.
        of_tables(
            "one device",
            "SELECT time, f1, f2 FROM {} WHERE customer_id = 'customer-0007' AND device_id = 'device-3'",
        )
        .except(0),
        of_tables(
            "each customer",
            "SELECT customer_id, max(f1) FROM {} GROUP BY customer_id",
        )
        .except(0),
        of_tables("one event", &format!("SELECT time, f1 FROM {{}} WHERE event_id = '{id}'")),
    ]
}

fn judge(data: &Data, measured: &Measured) -> Vec<Claim> {
    let series = |design| measured.fact(design, SERIES);
    let formula = |customers: u64| float((customers * DEVICES).min(data.rows) * FIELDS);
    let near = |series: f64, expected: f64| (series / expected - 1.0).abs() <= ESTIMATE;
    let rate = |design| measured.loaded(design).map(Loaded::rows_per_s);
    let mut claims = vec![
        judged_if(
            "the number of series is customers x devices x fields",
            [series("few"), series("scoped")],
            |[few, scoped]| {
                let expected = [formula(FEW_CUSTOMERS), formula(CUSTOMERS)];
                let text = format!(
                    "{few:.0} of {:.0}, {scoped:.0} of {:.0} series",
                    expected[0], expected[1]
                );
                (text, near(few, expected[0]) && near(scoped, expected[1]))
            },
        ),
        judged_if(
            "with the id of each event as a tag, each row has series of its own",
            [series("runaway")],
            |[runaway]| {
                let expected = float(data.rows * FIELDS);
                (format!("{runaway:.0} of {expected:.0} series"), near(runaway, expected))
            },
        ),
        judged_if(
            "a hundred times as many series are loaded at half the rate at least (InfluxDB 3)",
            [rate("few"), rate("scoped")],
            |[few, scoped]| {
                (format!("few {few:.0} rows/s, scoped {scoped:.0} rows/s"), scoped >= few / 2.0)
            },
        ),
    ];
    let pair = ["runaway", "scoped"];
    claims.extend([
        measured.loads_faster("runaway cardinality slows writes down (InfluxDB 2)", pair),
        measured.leaner("runaway cardinality needs more memory", pair),
        measured.smaller("runaway cardinality needs more disk space", pair),
    ]);
    for question in ["all rows", "one device", "each customer"] {
        let claim = format!("runaway cardinality slows a query down: {question}");
        claims.push(measured.faster(&claim, question, pair));
    }
    claims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_sets_are_customers_times_devices() {
        let data = Data { rows: 20_000, seed: 1 };
        let tag_sets = |rows: fn(Vec<Cell>) -> Vec<Row>| {
            let sets = (0..data.rows).map(|number| {
                let row = rows(record(&data, number)).remove(0);
                format!("{:?}", &row.cells[1..3])
            });
            sets.collect::<std::collections::BTreeSet<String>>().len()
        };
        assert_eq!((tag_sets(many), tag_sets(few)), (10_000, 100));
        let row = few(record(&data, 1_017)).remove(0);
        assert_eq!(row.cells[1..3], [Cell::text("customer-0007"), Cell::text("device-1")]);
        assert_eq!(row.cells.len(), COLUMNS.len());
    }
}
