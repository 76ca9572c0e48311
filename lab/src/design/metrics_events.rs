//! The same values at regular times and at irregular ones: metrics and events of InfluxDB's book.

use super::figures::{Measured, less};
use super::model::{
    Advice, Cell, Data, Demonstration, Design, Fact, MILLI_NS, Question, Row, START_NS, Table,
};
use crate::claim::Claim;
use crate::report::short;

const HOSTS: u64 = 100;
/// Time between two records of a host.
const STEP_MS: i64 = 10_000;
/// An event comes somewhere between a metric and the next one.
const DELAY_NS: u64 = 10_000_000_000;
const TIME_BYTES: &str = "bytes of times";
const VALUE_BYTES: &str = "bytes of values";
const COLUMNS: [&str; 3] = ["time", "host", "value"];

pub(super) const DEMONSTRATION: Demonstration = Demonstration {
    name: "metrics-events",
    title: "the same values at regular times (metrics) and at irregular times (events)",
    document: "InfluxDB 2, Designing Your Schema",
    says: &[
        "Metrics at precisely the same intervals are compressed better than events: less disk space.",
        "That gives a small advantage in reads.",
    ],
    rows: 300_000,
    parts: 1,
    compacts: true,
    record,
    designs,
    questions,
    judge,
};

/// Time, delay of the event, host, value.
fn record(data: &Data, number: u64) -> Vec<Cell> {
    let mut random = data.random(number);
    let step = (number / HOSTS).cast_signed();
    vec![
        Cell::Time(START_NS + step * STEP_MS * MILLI_NS),
        Cell::count(random.below(DELAY_NS)),
        Cell::Text(format!("host-{:03}", number % HOSTS)),
        Cell::tenths(200 + random.below(600)),
    ]
}

fn metric(cells: Vec<Cell>) -> Vec<Row> {
    match <[Cell; 4]>::try_from(cells) {
        Ok([time, _, host, value]) => Row::only(vec![time, host, value]),
        Err(_) => Vec::new(),
    }
}

fn event(cells: Vec<Cell>) -> Vec<Row> {
    match <[Cell; 4]>::try_from(cells) {
        Ok([Cell::Time(nanos), Cell::Int(delay), host, value]) => {
            Row::only(vec![Cell::Time(nanos + delay), host, value])
        }
        _ => Vec::new(),
    }
}

fn designs() -> Vec<Design> {
    let design = |name: &str, description, advice, rows| {
        let create = "CREATE TABLE {} (time TIMESTAMP(9) TIME INDEX, host STRING, value DOUBLE, PRIMARY KEY (host))";
        let fact = |title, column: &str| Fact {
            name: title,
            sql: format!(
                "SELECT stored_bytes FROM sys.columns WHERE \"table\" = '{name}' AND \"column\" = '{column}'"
            ),
        };
        Design {
            name: name.to_owned(),
            description,
            advice,
            tables: vec![Table::new(name, create, &COLUMNS)],
            rows,
            facts: vec![fact(TIME_BYTES, "time"), fact(VALUE_BYTES, "value")],
        }
    };
    vec![
        design("metrics", "every ten seconds", Advice::For, metric),
        design("events", "up to ten seconds later, to the nanosecond", Advice::Against, event),
    ]
}

fn questions(_: &Data) -> Vec<Question> {
    let of_tables = |name: &str, sql: &str| Question::of_tables(name, &["metrics", "events"], sql);
    vec![
        of_tables(
            "one host",
            "SELECT count(*), min(value), max(value) FROM {} WHERE host = 'host-007'",
        ),
        of_tables(
            "hourly maxima",
            "SELECT host, date_trunc('hour', time), max(value) FROM {} GROUP BY host, date_trunc('hour', time)",
        ),
        of_tables(
            "one hour of all",
            "SELECT host, count(*), max(value) FROM {} WHERE time >= '2025-01-01 01:00:00' AND time < '2025-01-01 02:00:00' GROUP BY host",
        ),
    ]
}

fn judge(_: &Data, measured: &Measured) -> Vec<Claim> {
    let designs = ["events", "metrics"];
    let stored = designs.map(|design| measured.fact(design, TIME_BYTES));
    let mut claims = vec![
        less(
            "regular times need at most a third of the bytes of irregular ones",
            designs,
            stored,
            3.0,
            &|bytes| format!("{} KiB", short(bytes / 1_024.0)),
        ),
        measured.smaller("metrics need less disk space", designs),
    ];
    for question in ["one host", "hourly maxima", "one hour of all"] {
        claims.push(measured.faster(
            &format!("metrics are read faster: {question}"),
            question,
            designs,
        ));
    }
    claims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_comes_before_the_next_metric_and_has_its_value() {
        let data = Data { rows: 1_000, seed: 1 };
        for number in 0..data.rows {
            let (metric, event) =
                (metric(record(&data, number)).remove(0), event(record(&data, number)).remove(0));
            assert_eq!(metric.cells[1..], event.cells[1..]);
            let (Cell::Time(exact), Cell::Time(late)) = (&metric.cells[0], &event.cells[0]) else {
                panic!("the first cell is the time")
            };
            assert!((0..STEP_MS * MILLI_NS).contains(&(late - exact)), "{late}");
        }
    }
}
