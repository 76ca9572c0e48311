//! Blood oxygen, heart rate and temperature of a person in one table, and in three: the health app of InfluxDB's book.

use super::figures::{Measured, judged_if};
use super::model::{
    Advice, Cell, Data, Demonstration, Design, MILLI_NS, Question, Row, START_NS, Table, float,
};
use crate::claim::Claim;

const PERSONS: u64 = 100;
/// Time between two measurements of a person.
const STEP_MS: i64 = 60_000;
const COLUMNS: [&str; 5] = ["time", "person", "blood_oxygen", "heart_rate", "temperature"];
const VALUE_COLUMNS: [&str; 3] = ["time", "person", "value"];
const FEVER: &str = "fast heart with fever";
const ONE_PERSON: &str = "all of a person";
const SINGLE: &str = "one metric of all";

pub(super) const DEMONSTRATION: Demonstration = Demonstration {
    name: "health",
    title: "three metrics that are measured together, in one table or in three",
    document: "InfluxDB 2, Designing Your Schema; GreptimeDB, Design Your Table Schema",
    says: &[
        "Related fields belong into one measurement, to avoid queries of several and joins.",
        "Joins to perform math across measurements are computationally more expensive.",
        "Metrics that are collected together belong into one wide table: better throughput and compression.",
    ],
    rows: 200_000,
    parts: 1,
    compacts: true,
    record,
    designs,
    questions,
    judge,
};

fn record(data: &Data, number: u64) -> Vec<Cell> {
    let mut random = data.random(number);
    let step = (number / PERSONS).cast_signed();
    vec![
        Cell::Time(START_NS + step * STEP_MS * MILLI_NS),
        Cell::Text(format!("person-{:03}", number % PERSONS)),
        Cell::tenths(940 + random.below(60)),
        Cell::count(50 + random.below(100)),
        Cell::tenths(360 + random.below(40)),
    ]
}

/// A row for each metric, in a table of its own.
fn by_metric(cells: Vec<Cell>) -> Vec<Row> {
    let mut cells = cells.into_iter();
    let (Some(time), Some(person)) = (cells.next(), cells.next()) else { return Vec::new() };
    let row = |(table, value)| Row { table, cells: vec![time.clone(), person.clone(), value] };
    cells.enumerate().map(row).collect()
}

fn designs() -> Vec<Design> {
    let wide = "CREATE TABLE {} (time TIMESTAMP(3) TIME INDEX, person STRING, blood_oxygen DOUBLE, heart_rate BIGINT, temperature DOUBLE, PRIMARY KEY (person))";
    let narrow = |name: &str, kind: &str| {
        let create = format!(
            "CREATE TABLE {{}} (time TIMESTAMP(3) TIME INDEX, person STRING, value {kind}, PRIMARY KEY (person))"
        );
        Table::new(name, &create, &VALUE_COLUMNS)
    };
    vec![
        Design {
            name: "one table".to_owned(),
            description: "a column for each metric",
            advice: Advice::For,
            tables: vec![Table::new("health", wide, &COLUMNS)],
            rows: Row::only,
            facts: Vec::new(),
        },
        Design {
            name: "three tables".to_owned(),
            description: "a table for each metric",
            advice: Advice::Against,
            tables: vec![
                narrow("blood_oxygen", "DOUBLE"),
                narrow("heart_rate", "BIGINT"),
                narrow("temperature", "DOUBLE"),
            ],
            rows: by_metric,
            facts: Vec::new(),
        },
    ]
}

fn questions(_: &Data) -> Vec<Question> {
    let pair = "heart_rate h JOIN temperature t ON t.time = h.time AND t.person = h.person";
    let question = |name: &str, sql: [String; 2]| Question::alike(name, sql);
    vec![
        question(
            ONE_PERSON,
            [
                "SELECT time, blood_oxygen, heart_rate, temperature FROM health WHERE person = 'person-007'".to_owned(),
                format!(
                    "SELECT h.time, b.value, h.value, t.value FROM {pair} JOIN blood_oxygen b ON b.time = h.time AND b.person = h.person WHERE h.person = 'person-007'"
                ),
            ],
        ),
        question(
            FEVER,
            [
                "SELECT person, count(*) FROM health WHERE heart_rate > 120 AND temperature > 38 GROUP BY person".to_owned(),
                format!(
                    "SELECT h.person, count(*) FROM {pair} WHERE h.value > 120 AND t.value > 38 GROUP BY h.person"
                ),
            ],
        ),
        question(
            "highest ratio of each person",
            [
                "SELECT person, max(heart_rate / temperature) FROM health GROUP BY person".to_owned(),
                format!("SELECT h.person, max(h.value / t.value) FROM {pair} GROUP BY h.person"),
            ],
        ),
        question(
            SINGLE,
            [
                "SELECT person, max(heart_rate) FROM health GROUP BY person".to_owned(),
                "SELECT person, max(value) FROM heart_rate GROUP BY person".to_owned(),
            ],
        ),
    ]
}

fn judge(_: &Data, measured: &Measured) -> Vec<Claim> {
    let designs = ["three tables", "one table"];
    vec![
        measured.faster("one table is faster than joins: all of a person", ONE_PERSON, designs),
        measured.faster(
            "one table is faster than joins: a condition on two metrics",
            FEVER,
            designs,
        ),
        measured.faster(
            "one table is faster than joins: math",
            "highest ratio of each person",
            designs,
        ),
        measured.fewer_rows("joins read more rows", FEVER, designs, 2.0),
        measured.loads_faster("one table is loaded faster", designs),
        measured.smaller("one table needs less disk space", designs),
        judged_if(
            "a query of one metric reads no more bytes of one table than of three",
            designs.map(|design| Some(float(measured.asked(SINGLE, design)?.bytes_read))),
            |[narrow, wide]| {
                let text = format!("three tables {narrow:.0} bytes, one table {wide:.0} bytes");
                // Blocks do not end at the same rows.
                (text, wide <= narrow * 1.01)
            },
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_a_person_have_one_time() {
        let data = Data { rows: 200, seed: 1 };
        let rows = by_metric(record(&data, 107));
        assert_eq!(rows.len(), 3);
        for (position, row) in rows.iter().enumerate() {
            assert_eq!(row.table, position);
            assert_eq!(row.cells[0], Cell::Time(START_NS + STEP_MS * MILLI_NS));
            assert_eq!(row.cells[1], Cell::text("person-007"));
        }
        assert!(matches!(rows[1].cells[2], Cell::Int(50..150)));
    }
}
