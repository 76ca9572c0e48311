//! The id of a sensor as a tag, as a field, and as a field to join: the data set `airSensors` of InfluxDB's book.
//!
//! Its list of eight sensors has one twice; here they are TLM0100 to TLM0103 and TLM0200 to TLM0203. The sensors report
//! in turn, never at the same time: without the tag, and for the join, the book assumes that.

use super::figures::Measured;
use super::model::{
    Advice, Cell, Data, Demonstration, Design, MILLI_NS, Question, Row, START_NS, Table, moment,
};
use crate::claim::Claim;

const SENSORS: [&str; 8] =
    ["TLM0100", "TLM0101", "TLM0102", "TLM0103", "TLM0200", "TLM0201", "TLM0202", "TLM0203"];
/// Time between two records; a sensor reports every ten seconds.
const STEP_MS: i64 = 1_250;
const HOUR_NS: i64 = 3_600_000 * MILLI_NS;
const COLUMNS: [&str; 5] = ["time", "sensor_id", "co", "humidity", "temperature"];
const VALUE_COLUMNS: [&str; 2] = ["time", "value"];

pub(super) const DEMONSTRATION: Demonstration = Demonstration {
    name: "air-sensors",
    title: "the id of a sensor as a tag, as a field, and as a field to join by time",
    document: "InfluxDB 2, Designing Your Schema",
    says: &[
        "Filters on a tag lead to its series; filters on a field scan all rows in the time range.",
        "With the id as a field, the temperature of a sensor needs a join of two fields by time.",
        "That assumes that one sensor reports at a time.",
    ],
    rows: 300_000,
    parts: 1,
    compacts: true,
    record,
    designs,
    questions,
    judge,
};

fn time(number: u64) -> i64 {
    START_NS + number.cast_signed() * STEP_MS * MILLI_NS
}

fn record(data: &Data, number: u64) -> Vec<Cell> {
    let mut random = data.random(number);
    let position = usize::try_from(number % SENSORS.len() as u64).unwrap_or_default();
    vec![
        Cell::Time(time(number)),
        Cell::text(SENSORS[position]),
        Cell::hundredths(20 + random.below(60)),
        Cell::hundredths(3_450 + random.below(150)),
        Cell::hundredths(7_100 + random.below(300)),
    ]
}

/// A row for each field, in a table of its own.
fn by_field(cells: Vec<Cell>) -> Vec<Row> {
    let mut cells = cells.into_iter();
    let Some(time) = cells.next() else { return Vec::new() };
    let row = |(table, value)| Row { table, cells: vec![time.clone(), value] };
    cells.enumerate().map(row).collect()
}

fn designs() -> Vec<Design> {
    let table = |name: &str, key: &str| {
        let create = format!(
            "CREATE TABLE {{}} (time TIMESTAMP(3) TIME INDEX, sensor_id STRING, co DOUBLE, humidity DOUBLE, temperature DOUBLE{key})"
        );
        vec![Table::new(name, &create, &COLUMNS)]
    };
    let value = |name: &str, kind: &str| {
        let create = format!("CREATE TABLE {{}} (time TIMESTAMP(3) TIME INDEX, value {kind})");
        Table::new(name, &create, &VALUE_COLUMNS)
    };
    vec![
        Design {
            name: "tag".to_owned(),
            description: "sensor_id is the key",
            advice: Advice::For,
            tables: table("air_sensors", ", PRIMARY KEY (sensor_id)"),
            rows: Row::only,
            facts: Vec::new(),
        },
        Design {
            name: "field".to_owned(),
            description: "sensor_id is a field of rows that have only their time as a key",
            advice: Advice::Against,
            tables: table("air_sensors_field", ""),
            rows: Row::only,
            facts: Vec::new(),
        },
        Design {
            name: "join".to_owned(),
            description: "each field has a table by time, sensor_id too",
            advice: Advice::Against,
            tables: vec![
                value("air_sensor_ids", "STRING"),
                value("air_co", "DOUBLE"),
                value("air_humidity", "DOUBLE"),
                value("air_temperature", "DOUBLE"),
            ],
            rows: by_field,
            facts: Vec::new(),
        },
    ]
}

fn questions(data: &Data) -> Vec<Question> {
    let end = time(data.rows);
    let hour = moment(end - HOUR_NS);
    let plain = |name: &str, select: &str, condition: &str, join: String| {
        let of_table = |table: &str| format!("SELECT {select} FROM {table} {condition}");
        Question::alike(name, [of_table("air_sensors"), of_table("air_sensors_field"), join])
    };
    vec![
        plain(
            "temperature of a sensor",
            "count(*), min(temperature), max(temperature)",
            "WHERE sensor_id = 'TLM0100'",
            "SELECT count(*), min(t.value), max(t.value) FROM air_sensor_ids s JOIN air_temperature t ON t.time = s.time WHERE s.value = 'TLM0100'".to_owned(),
        ),
        plain(
            "all fields, last hour",
            "time, co, humidity, temperature",
            &format!("WHERE sensor_id = 'TLM0100' AND time >= '{hour}'"),
            format!(
                "SELECT s.time, c.value, h.value, t.value FROM air_sensor_ids s JOIN air_co c ON c.time = s.time JOIN air_humidity h ON h.time = s.time JOIN air_temperature t ON t.time = s.time WHERE s.value = 'TLM0100' AND s.time >= '{hour}'"
            ),
        ),
        plain(
            "highest of each sensor",
            "sensor_id, max(temperature)",
            "GROUP BY sensor_id",
            "SELECT s.value, max(t.value) FROM air_sensor_ids s JOIN air_temperature t ON t.time = s.time GROUP BY s.value".to_owned(),
        ),
    ]
}

fn judge(_: &Data, measured: &Measured) -> Vec<Claim> {
    let (series, hour) = ("temperature of a sensor", "all fields, last hour");
    vec![
        measured.fewer_rows(
            "a tag reads at most a fourth of the rows that a field reads, for one sensor of eight",
            series,
            ["field", "tag"],
            4.0,
        ),
        measured.faster("a tag is faster than a field", series, ["field", "tag"]),
        measured.faster("a tag is faster than a join by time", series, ["join", "tag"]),
        measured.fewer_rows("a join reads more rows", series, ["join", "tag"], 1.0),
        measured.fewer_rows(
            "a tag reads fewer rows of the last hour, too",
            hour,
            ["field", "tag"],
            1.0,
        ),
        measured.faster("a tag is faster than a join in the last hour", hour, ["join", "tag"]),
        measured
            .smaller("rows with a tag need less disk space than with a field", ["field", "tag"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sensors_report_in_turn_every_ten_seconds() {
        let data = Data { rows: 16, seed: 1 };
        let records: Vec<Vec<Cell>> = (0..16).map(|number| record(&data, number)).collect();
        for (number, cells) in records.iter().enumerate() {
            assert_eq!(cells[1], Cell::text(SENSORS[number % 8]));
        }
        assert_eq!(records[8][0], Cell::Time(START_NS + 10_000 * MILLI_NS));
        let rows = by_field(records[0].clone());
        assert_eq!(rows.iter().map(|row| row.table).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(rows[0].cells, [Cell::Time(START_NS), Cell::text("TLM0100")]);
        assert_eq!(rows[3].cells[1], records[0][4]);
    }
}
