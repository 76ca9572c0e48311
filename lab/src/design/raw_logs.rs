//! Lines of logs as texts, as texts with a full-text index, and as columns: the table `raw_logs` of GreptimeDB's guide.

use super::figures::Measured;
use super::model::{
    Advice, Cell, Data, Demonstration, Design, MILLI_NS, Question, Row, START_NS, Table, moment,
    skewed,
};
use crate::claim::Claim;

/// Time between two lines.
const STEP_MS: i64 = 25;
const SERVICES: [&str; 10] = [
    "billing", "catalog", "checkout", "gateway", "identity", "mailer", "payments", "search",
    "shipping", "stock",
];
const EVENTS: [&str; 6] = [
    "request completed",
    "payment declined by the issuer",
    "connection to the database was reset",
    "cache entry expired",
    "message queued for delivery",
    "user signed in",
];
const RAW_COLUMNS: [&str; 2] = ["message", "ts"];
const COLUMNS: [&str; 7] = ["ts", "service", "level", "code", "user_id", "took_ms", "event"];

pub(super) const DEMONSTRATION: Demonstration = Demonstration {
    name: "raw-logs",
    title: "lines of logs as texts, with a full-text index, and as columns",
    document: "GreptimeDB, Design Your Table Schema",
    says: &[
        "A full-text index is for texts that are searched by terms.",
        "Structured logs usually perform better than unstructured ones with a full-text index.",
        "It is recommended to convert logs into structured ones.",
    ],
    rows: 150_000,
    parts: 1,
    compacts: true,
    record,
    designs,
    questions,
    judge,
};

fn record(data: &Data, number: u64) -> Vec<Cell> {
    let mut random = data.random(number);
    let level = match random.below(100) {
        0..2 => "ERROR",
        2..10 => "WARN",
        _ => "INFO",
    };
    vec![
        Cell::Time(START_NS + number.cast_signed() * STEP_MS * MILLI_NS),
        Cell::text(*random.choose(&SERVICES)),
        Cell::text(level),
        Cell::Text(format!("E{}", 1_000 + skewed(&mut random, 1_000))),
        Cell::Text(format!("u{:05}", random.below(20_000))),
        Cell::count(1 + skewed(&mut random, 5_000)),
        Cell::text(*random.choose(&EVENTS)),
    ]
}

/// The line that a service would have written.
fn as_text(cells: Vec<Cell>) -> Vec<Row> {
    let [time, service, level, code, user, took, event] = &cells[..] else { return Vec::new() };
    let part = |cell: &Cell| match cell {
        Cell::Text(text) => text.clone(),
        Cell::Int(number) => number.to_string(),
        Cell::Time(nanos) => moment(*nanos),
        Cell::Null | Cell::Float(_) => String::new(),
    };
    let line = format!(
        "{} {} [{}] {} after {} ms (code={}, user={})",
        part(time),
        part(level),
        part(service),
        part(event),
        part(took),
        part(code),
        part(user)
    );
    Row::only(vec![Cell::Text(line), time.clone()])
}

fn designs() -> Vec<Design> {
    let raw = |name: &str, index: &str| {
        let create = format!(
            "CREATE TABLE {{}} (message STRING NULL{index}, ts TIMESTAMP(9) NOT NULL, TIME INDEX (ts),) WITH ('append_mode' = 'true')"
        );
        vec![Table::new(name, &create, &RAW_COLUMNS)]
    };
    let columns = "CREATE TABLE {} (ts TIMESTAMP(9) TIME INDEX, service STRING, level STRING INVERTED INDEX, code STRING INVERTED INDEX, user_id STRING SKIPPING INDEX, took_ms BIGINT, event STRING, PRIMARY KEY (service)) WITH ('append_mode' = 'true')";
    vec![
        Design {
            name: "text".to_owned(),
            description: "the line in one column",
            advice: Advice::Against,
            tables: raw("plain_logs", ""),
            rows: as_text,
            facts: Vec::new(),
        },
        Design {
            name: "full-text".to_owned(),
            description: "the line in one column, with a full-text index",
            advice: Advice::Neutral,
            tables: raw(
                "raw_logs",
                " FULLTEXT INDEX WITH(analyzer = 'English', case_sensitive = 'false')",
            ),
            rows: as_text,
            facts: Vec::new(),
        },
        Design {
            name: "columns".to_owned(),
            description: "a column for each part of the line, with indexes",
            advice: Advice::For,
            tables: vec![Table::new("structured_logs", columns, &COLUMNS)],
            rows: Row::only,
            facts: Vec::new(),
        },
    ]
}

fn questions(_: &Data) -> Vec<Question> {
    // Without an index texts are searched as one would: by LIKE.
    let search = |name: &str, like: &str, term: &str, condition: &str| {
        Question::alike(
            name,
            [
                format!("SELECT count(*), max(ts) FROM plain_logs WHERE message LIKE '%{like}%'"),
                format!(
                    "SELECT count(*), max(ts) FROM raw_logs WHERE matches_term(message, '{term}')"
                ),
                format!("SELECT count(*), max(ts) FROM structured_logs WHERE {condition}"),
            ],
        )
    };
    let slowest = "max(split_part(split_part(message, ' after ', 2), ' ms', 1)::BIGINT)";
    vec![
        search("errors", " ERROR [", "ERROR", "level = 'ERROR'"),
        search("rare code", "code=E1950,", "E1950", "code = 'E1950'"),
        search("one user", "user=u01234)", "u01234", "user_id = 'u01234'"),
        Question::alike(
            "slowest of a service",
            [
                format!("SELECT {slowest} FROM plain_logs WHERE message LIKE '%[billing]%'"),
                format!("SELECT {slowest} FROM raw_logs WHERE matches_term(message, 'billing')"),
                "SELECT max(took_ms) FROM structured_logs WHERE service = 'billing'".to_owned(),
            ],
        ),
    ]
}

fn judge(_: &Data, measured: &Measured) -> Vec<Claim> {
    let mut claims = vec![
        measured.fewer_rows(
            "a full-text index finds a rare term without reading all rows",
            "rare code",
            ["text", "full-text"],
            1.0,
        ),
        measured.faster(
            "a full-text index finds a rare term faster than LIKE does",
            "rare code",
            ["text", "full-text"],
        ),
    ];
    for question in ["errors", "rare code", "one user", "slowest of a service"] {
        let claim = format!("columns read fewer bytes than the full-text index: {question}");
        claims.push(measured.fewer_bytes(&claim, question, ["full-text", "columns"], 1.0));
        let claim = format!("columns are faster than the full-text index: {question}");
        claims.push(measured.faster(&claim, question, ["full-text", "columns"]));
    }
    claims.extend([
        measured.smaller("columns need less disk space", ["full-text", "columns"]),
        measured.loads_faster("columns are loaded faster", ["full-text", "columns"]),
    ]);
    claims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_all_parts_of_its_record() {
        let cells = vec![
            Cell::Time(START_NS),
            Cell::text("billing"),
            Cell::text("WARN"),
            Cell::text("E1007"),
            Cell::text("u00123"),
            Cell::Int(350),
            Cell::text("cache entry expired"),
        ];
        let line = "2025-01-01 00:00:00.000 WARN [billing] cache entry expired after 350 ms (code=E1007, user=u00123)";
        assert_eq!(as_text(cells), Row::only(vec![Cell::text(line), Cell::Time(START_NS)]));
    }

    #[test]
    fn the_rare_code_is_rare_and_there() {
        let data = Data { rows: 150_000, seed: 1 };
        let mut counts = [0; 3];
        for cells in (0..data.rows).map(|number| record(&data, number)) {
            for (count, (column, text)) in
                counts.iter_mut().zip([(3, "E1950"), (4, "u01234"), (2, "ERROR")])
            {
                *count += u32::from(cells[column] == Cell::text(text));
            }
        }
        let [code, user, errors] = counts;
        assert!((1..60).contains(&code), "{code}");
        assert!((1..40).contains(&user), "{user}");
        assert!((2_500..3_500).contains(&errors), "{errors}");
    }
}
