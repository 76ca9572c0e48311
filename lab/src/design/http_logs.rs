//! HTTP logs by time, by application, and with indexes: the tables `http_logs` to `http_logs_v4` of GreptimeDB's guide.
//!
//! The guide's queries select `message`, which its tables do not have, and put values into back quotes; here they
//! select `request` and have single quotes. The last five minutes are those of the data, which span one hour.

use super::figures::{Measured, judged_if};
use super::model::{
    Advice, Cell, Data, Demonstration, Design, MILLI_NS, Question, Row, START_NS, Table, float,
    moment, skewed, uuid,
};
use crate::claim::Claim;

/// Span of the data: one hour.
const SPAN_MS: u64 = 3_600_000;
/// Times after which there are five minutes, and one minute.
const LAST_FIVE_MS: u64 = SPAN_MS - 300_000;
const LAST_ONE_MS: u64 = SPAN_MS - 60_000;
const APPLICATIONS: u64 = 20;
/// Methods with their frequencies, in thousandths: rare ones are what an index is for.
const METHODS: [(&str, u64); 6] =
    [("GET", 700), ("POST", 281), ("HEAD", 9), ("PUT", 5), ("PATCH", 3), ("DELETE", 2)];
const STATUSES: [&str; 8] = ["200", "200", "200", "204", "301", "404", "429", "500"];
const AGENTS: [&str; 4] = [
    "Mozilla/5.0 (X11; Linux x86_64)",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X)",
    "curl/8.5.0",
    "okhttp/4.12.0",
];
/// Operators of an inverted index, and conditions that few rows pass.
const OPERATORS: [(&str, &str); 8] = [
    ("=", "http_method = 'DELETE'"),
    ("<", "http_method < 'GET'"),
    ("<=", "http_method <= 'DELETE'"),
    (">", "http_method > 'POST'"),
    (">=", "http_method >= 'PUT'"),
    ("IN", "http_method IN ('DELETE', 'PUT')"),
    ("BETWEEN", "http_method BETWEEN 'HEAD' AND 'PATCH'"),
    ("~", "http_method ~ '^PA'"),
];
const TABLES: [&str; 4] = ["http_logs", "http_logs_v2", "http_logs_v3", "http_logs_v4"];
const COLUMNS: [&str; 9] = [
    "access_time",
    "application",
    "remote_addr",
    "http_status",
    "http_method",
    "http_refer",
    "user_agent",
    "request_id",
    "request",
];

pub(super) const DEMONSTRATION: Demonstration = Demonstration {
    name: "http-logs",
    title: "HTTP logs by time, by application, with an inverted and with a skipping index",
    document: "GreptimeDB, Design Your Table Schema",
    says: &[
        "A table without a key is sorted by time, so that searches by time are efficient.",
        "With the application as the key, a query of one application scans few rows.",
        "Tags may also reduce disk space.",
        "An inverted index may speed up filters on columns of low cardinality: =, <, <=, >, >=, IN, BETWEEN and ~.",
        "A skipping index finds values of columns of high cardinality, by = only.",
        "Indexes cost ingestion and disk space.",
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
    let millis = (number * SPAN_MS / data.rows.max(1)).cast_signed();
    let application = match random.below(APPLICATIONS) {
        0 => "greptimedb".to_owned(),
        number => format!("application-{number:02}"),
    };
    let host = random.below(100_000);
    let (mut share, mut method) = (random.below(1_000), METHODS[0].0);
    for (name, thousandths) in METHODS {
        if share < thousandths {
            method = name;
            break;
        }
        share -= thousandths;
    }
    vec![
        Cell::Time(START_NS + millis * MILLI_NS),
        Cell::Text(application),
        Cell::Text(format!("10.{}.{}.{}", host / 65_536, host / 256 % 256, host % 256)),
        Cell::text(*random.choose(&STATUSES)),
        Cell::text(method),
        Cell::Text(format!("https://www.example.com/pages/{}", skewed(&mut random, 500))),
        Cell::text(*random.choose(&AGENTS)),
        Cell::Text(uuid(&mut random)),
        Cell::Text(format!("/api/v1/items/{}", skewed(&mut random, 10_000))),
    ]
}

fn designs() -> Vec<Design> {
    let table = |name: &str, method: &str, id: &str, key: &str| {
        let create = format!(
            "CREATE TABLE {{}} (access_time TIMESTAMP TIME INDEX, application STRING, remote_addr STRING, http_status STRING, http_method STRING{method}, http_refer STRING, user_agent STRING, request_id STRING{id}, request STRING,{key}) WITH ('append_mode' = 'true')"
        );
        vec![Table::new(name, &create, &COLUMNS)]
    };
    let (key, inverted, skipping) =
        (" PRIMARY KEY(application),", " INVERTED INDEX", " SKIPPING INDEX");
    let design = |name: &str, description, advice, tables| Design {
        name: name.to_owned(),
        description,
        advice,
        tables,
        rows: Row::only,
        facts: Vec::new(),
    };
    vec![
        design("v1", "sorted by time", Advice::Neutral, table(TABLES[0], "", "", "")),
        design("v2", "key (application)", Advice::For, table(TABLES[1], "", "", key)),
        design(
            "v3",
            "key (application), inverted index on http_method",
            Advice::For,
            table(TABLES[2], inverted, "", key),
        ),
        design(
            "v4",
            "the same, and a skipping index on request_id",
            Advice::For,
            table(TABLES[3], inverted, skipping, key),
        ),
    ]
}

fn after(millis: u64) -> String {
    moment(START_NS + millis.cast_signed() * MILLI_NS)
}

/// Id of a request to greptimedb in the last five minutes, or of the last request if there is none.
fn some_request(data: &Data) -> String {
    let five = after(LAST_FIVE_MS);
    let start = data.rows / 60 * 58;
    let mut candidates = (start..data.rows).map(|number| record(data, number));
    let request = candidates.find(|cells| {
        cells[1] == Cell::text("greptimedb")
            && matches!(&cells[0], Cell::Time(nanos) if moment(*nanos) > five)
    });
    let cells = request.unwrap_or_else(|| record(data, data.rows.saturating_sub(1)));
    match cells.into_iter().nth(7) {
        Some(Cell::Text(id)) => id,
        _ => String::new(),
    }
}

fn questions(data: &Data) -> Vec<Question> {
    let (five, one_minute, id) = (after(LAST_FIVE_MS), after(LAST_ONE_MS), some_request(data));
    let of_app = format!("application = 'greptimedb' AND access_time > '{five}'");
    let of_tables = |name: &str, sql: &str| Question::of_tables(name, &TABLES, sql);
    let mut questions = vec![
        of_tables(
            "all, last minute",
            &format!(
                "SELECT application, count(*), max(request_id) FROM {{}} WHERE access_time > '{one_minute}' GROUP BY application"
            ),
        ),
        of_tables(
            "application",
            "SELECT http_status, count(*), max(request_id) FROM {} WHERE application = 'greptimedb' GROUP BY http_status",
        ),
        of_tables("application, 5 min", &format!("SELECT request FROM {{}} WHERE {of_app}")),
        of_tables(
            "application, method, 5 min",
            &format!("SELECT request FROM {{}} WHERE http_method = 'GET' AND {of_app}"),
        ),
        of_tables(
            "application, id, 5 min",
            &format!("SELECT request FROM {{}} WHERE request_id = '{id}' AND {of_app}"),
        ),
        of_tables("id", &format!("SELECT request FROM {{}} WHERE request_id = '{id}'")),
    ];
    questions.extend(OPERATORS.iter().map(|(operator, condition)| {
        of_tables(
            &format!("method {operator}"),
            &format!("SELECT count(*), max(request_id), max(request) FROM {{}} WHERE {condition}"),
        )
    }));
    questions
}

fn judge(_: &Data, measured: &Measured) -> Vec<Claim> {
    let mut claims = vec![
        measured.fewer_rows(
            "sorted by time, the last minute of all applications needs fewer rows than sorted by application",
            "all, last minute",
            ["v2", "v1"],
            1.0,
        ),
        measured.fewer_rows(
            "with the key (application), a query of one application of 20 reads at most a fifth of the rows",
            "application",
            ["v1", "v2"],
            5.0,
        ),
        measured.faster("one application is found faster with the key", "application", ["v1", "v2"]),
        measured.fewer_rows(
            "the last five minutes of one application need fewer rows, too",
            "application, 5 min",
            ["v1", "v2"],
            1.0,
        ),
        measured.smaller("the key reduces disk space", ["v1", "v2"]),
    ];
    for (operator, _) in OPERATORS {
        let claim =
            format!("an inverted index finds few rows by {operator} without reading others");
        let question = format!("method {operator}");
        let used = measured.asked(&question, "v3").and_then(|reply| reply.index_used.as_deref());
        let mut judged = measured.fewer_rows(&claim, &question, ["v2", "v3"], 2.0);
        judged.measured = format!("{}; index used: {}", judged.measured, used.unwrap_or("none"));
        claims.push(judged);
    }
    claims.extend([
        measured.fewer_rows(
            "a skipping index finds an id in at most a fifth of the rows",
            "id",
            ["v3", "v4"],
            5.0,
        ),
        measured.faster("an id is found faster with a skipping index", "id", ["v3", "v4"]),
        measured.smaller("indexes need disk space", ["v4", "v2"]),
        measured.loads_faster("indexes slow ingestion down", ["v4", "v2"]),
        unaffected(measured),
    ]);
    claims
}

/// Claims that an index is no burden for a query that it does not help.
fn unaffected(measured: &Measured) -> Claim {
    let claim = "indexes that a query does not use leave its rows as they are";
    let figure = |design| measured.asked("application", design).map(|reply| float(reply.rows_read));
    judged_if(claim, [figure("v2"), figure("v4")], |[plain, indexed]| {
        (format!("v2 {plain:.0} rows, v4 {indexed:.0} rows"), plain == indexed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_methods_are_rare_and_times_fill_the_hour() {
        let data = Data { rows: 20_000, seed: 1 };
        let records: Vec<Vec<Cell>> = (0..data.rows).map(|number| record(&data, number)).collect();
        let count = |column: usize, text: &str| {
            records.iter().filter(|cells| cells[column] == Cell::text(text)).count()
        };
        assert!((13_500..14_500).contains(&count(4, "GET")));
        for (method, most) in [("DELETE", 80), ("PATCH", 100), ("PUT", 150), ("HEAD", 270)] {
            let rare = count(4, method);
            assert!(rare > 0 && rare <= most, "{method}: {rare}");
        }
        assert!((850..1_150).contains(&count(1, "greptimedb")));
        assert_eq!(records[0][0], Cell::Time(START_NS));
        let Cell::Time(last) = records[19_999][0] else { panic!("the first cell is the time") };
        assert!(last > START_NS + 3_599 * 1_000 * MILLI_NS, "{last}");
    }

    #[test]
    fn the_id_that_is_asked_for_is_that_of_a_request_in_the_last_minutes() {
        let data = Data { rows: 20_000, seed: 1 };
        let id = some_request(&data);
        let found = (0..data.rows).map(|number| record(&data, number));
        let found: Vec<Vec<Cell>> = found.filter(|cells| cells[7] == Cell::text(&id)).collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0][1], Cell::text("greptimedb"));
        assert_eq!(some_request(&Data { rows: 1, seed: 1 }).len(), 36);
    }
}
