//! Attributes of a sensor in one tag, and in a tag each: the measurement `home` of InfluxDB's guide.

use super::figures::Measured;
use super::model::{
    Advice, Cell, Data, Demonstration, Design, MILLI_NS, Question, Row, START_NS, Table,
};
use crate::claim::Claim;

const SENSORS: u64 = 1_000;
/// Time between two records of a sensor.
const STEP_MS: i64 = 10_000;
/// The two lines of the guide: location, model, id and tenths of a degree.
const FIRST: [(&str, &str, &str, u64); 2] =
    [("kitchen", "A612", "1726ZA", 721), ("bath", "A612", "2635YB", 718)];
const LOCATIONS: [&str; 8] =
    ["kitchen", "bath", "hall", "cellar", "attic", "garage", "office", "bedroom"];
const EMBEDDED_COLUMNS: [&str; 3] = ["time", "sensor", "temp"];
const COLUMNS: [&str; 5] = ["time", "location", "sensor_model", "sensor_id", "temp"];

pub(super) const DEMONSTRATION: Demonstration = Demonstration {
    name: "home",
    title: "location, model and id of a sensor in one tag, or in a tag each",
    document: "InfluxDB 3, schema design recommendations",
    says: &[
        "One tag or field for each attribute; several in one need pattern matching or regular expressions.",
        "These complicate queries and perform worse than a test for equality.",
    ],
    rows: 300_000,
    parts: 1,
    compacts: true,
    record,
    designs,
    questions,
    judge,
};

/// Location, model and id of a sensor.
fn sensor(number: u64) -> (&'static str, String, String) {
    let position = usize::try_from(number).unwrap_or(usize::MAX);
    match FIRST.get(position) {
        Some((location, model, id, _)) => (*location, (*model).to_owned(), (*id).to_owned()),
        None => {
            let location = LOCATIONS[position % LOCATIONS.len()];
            (location, format!("A{}", 612 + number % 10), format!("{:04}QX", 3_000 + number))
        }
    }
}

fn record(data: &Data, number: u64) -> Vec<Cell> {
    let (round, sensor_number) = (number / SENSORS, number % SENSORS);
    let (location, model, id) = sensor(sensor_number);
    let first = FIRST.get(usize::try_from(number).unwrap_or(usize::MAX));
    let tenths = first.map_or_else(|| 650 + data.random(number).below(150), |line| line.3);
    vec![
        Cell::Time(START_NS + round.cast_signed() * STEP_MS * MILLI_NS),
        Cell::text(location),
        Cell::Text(model),
        Cell::Text(id),
        Cell::tenths(tenths),
    ]
}

/// The record with its attributes in one text.
fn embedded(cells: Vec<Cell>) -> Vec<Row> {
    match &cells[..] {
        [time, Cell::Text(location), Cell::Text(model), Cell::Text(id), temp] => {
            let sensor = format!("loc-{location}.model-{model}.id-{id}");
            Row::only(vec![time.clone(), Cell::Text(sensor), temp.clone()])
        }
        _ => Vec::new(),
    }
}

fn designs() -> Vec<Design> {
    let one_tag = "CREATE TABLE {} (time TIMESTAMP(3) TIME INDEX, sensor STRING, temp DOUBLE, PRIMARY KEY (sensor))";
    let tags = "CREATE TABLE {} (time TIMESTAMP(3) TIME INDEX, location STRING, sensor_model STRING, sensor_id STRING, temp DOUBLE, PRIMARY KEY (location, sensor_model, sensor_id))";
    vec![
        Design {
            name: "one tag".to_owned(),
            description: "all attributes in one tag",
            advice: Advice::Against,
            tables: vec![Table::new("home_embedded", one_tag, &EMBEDDED_COLUMNS)],
            rows: embedded,
            facts: Vec::new(),
        },
        Design {
            name: "three tags".to_owned(),
            description: "a tag for each attribute",
            advice: Advice::For,
            tables: vec![Table::new("home", tags, &COLUMNS)],
            rows: Row::only,
            facts: Vec::new(),
        },
    ]
}

fn questions(_: &Data) -> Vec<Question> {
    let question = |name: &str, select: &str, pattern: &str, equality: &str| {
        Question::alike(
            name,
            [
                format!("SELECT {select} FROM home_embedded WHERE {pattern}"),
                format!("SELECT {select} FROM home WHERE {equality}"),
            ],
        )
    };
    let figures = "count(*), min(temp), max(temp)";
    vec![
        question(
            "one sensor, LIKE",
            "time, temp",
            "sensor LIKE '%id-1726ZA%'",
            "sensor_id = '1726ZA'",
        ),
        question("one sensor, ~", "time, temp", "sensor ~ 'id-1726ZA'", "sensor_id = '1726ZA'"),
        question("one room", figures, "sensor LIKE 'loc-kitchen.%'", "location = 'kitchen'"),
        question("one model", figures, "sensor LIKE '%.model-A615.%'", "sensor_model = 'A615'"),
        Question::alike(
            "each room",
            [
                format!(
                    "SELECT split_part(split_part(sensor, '.', 1), '-', 2), {figures} FROM home_embedded GROUP BY 1"
                ),
                format!("SELECT location, {figures} FROM home GROUP BY location"),
            ],
        ),
    ]
}

fn judge(_: &Data, measured: &Measured) -> Vec<Claim> {
    let designs = ["one tag", "three tags"];
    vec![
        measured.faster("equality is faster than LIKE", "one sensor, LIKE", designs),
        measured.faster("equality is faster than a regular expression", "one sensor, ~", designs),
        measured.fewer_rows(
            "equality reads fewer rows than LIKE",
            "one sensor, LIKE",
            designs,
            1.0,
        ),
        measured.faster("a room is found faster by a tag of its own", "one room", designs),
        measured.faster("a model is found faster by a tag of its own", "one model", designs),
        measured.faster("rooms are grouped faster by a tag of their own", "each room", designs),
        measured.smaller("a tag for each attribute needs less disk space", designs),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_two_records_are_those_of_the_guide() {
        let data = Data { rows: 10, seed: 5 };
        let row = |number| embedded(record(&data, number)).remove(0).cells;
        assert_eq!(
            row(0)[1..],
            [Cell::text("loc-kitchen.model-A612.id-1726ZA"), Cell::Float(72.1)]
        );
        assert_eq!(row(1)[1..], [Cell::text("loc-bath.model-A612.id-2635YB"), Cell::Float(71.8)]);
        assert_eq!(row(0)[0], row(1)[0]);
        assert_ne!(record(&data, SENSORS)[0], record(&data, 0)[0]);
        assert_eq!(record(&data, SENSORS)[3], Cell::text("1726ZA"));
    }

    #[test]
    fn ids_of_sensors_are_not_repeated() {
        let ids: std::collections::BTreeSet<String> =
            (0..SENSORS).map(|number| sensor(number).2).collect();
        assert_eq!(ids.len(), 1_000);
    }
}
