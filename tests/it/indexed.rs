//! Indexes against plain answers: random tables have the same rows with and without indexes, for every operator; and words in
//! lines of a log are those that a reader of the lines finds.
//!
//! `PARTITA_SEED` repeats a run, `PARTITA_CASES` makes more tables, and `PARTITA_LINES` more lines.

use tokio_postgres::{Client, SimpleQueryMessage};

use crate::kill::Random;
use crate::server::{Server, one};

/// Pairs of tables.
const CASES: u64 = 6;
/// Changes of each pair.
const CHANGES: usize = 10;
/// Questions after each change.
const QUESTIONS: usize = 2;
/// Values of the first key column, and seconds of the second one.
const KEYS: (u64, u64) = (200, 20);
/// Rows of an INSERT, at least: indexes of fewer than 1,024 rows are not asked.
const ROWS: u64 = 2_500;
/// Lines of the log.
const LINES: u64 = 20_000;

const HOSTS: [&str; 6] = ["web", "db", "", "web-1", "Web 1", "ä"];
const NUMBERS: [&str; 5] = ["-1.5", "0", "2.25", "1e300", "-0.0"];
const DAYS: [&str; 4] = ["1969-12-31", "1970-01-01", "1970-01-02", "2026-02-28"];
const TEXTS: [&str; 9] = [
    "",
    "Error: disk full",
    "error123 on disk 7",
    "three errors-in system",
    "error-prone",
    "50% of a_b",
    "two\nlines of an error",
    "DISK",
    "system failure, or a system-failure of the disks of a host, which a long text describes at length",
];
const LIKES: [&str; 8] =
    ["%error%", "error%", "%disk", "_rror%", "%50\\%%", "%a\\_b", "DISK", "%\nlines%"];
const PATTERNS: [&str; 7] = ["^err", "dis[ck]s?", "^$", "r.*r", "error|disk", "web", "[0-9]+$"];
const TERMS: [&str; 6] = ["error", "disk full", "system-failure", "errors", "50%", "web"];
const QUERIES: [&str; 6] =
    ["error", "error OR disk", "error NOT disk", "-error", "\"system failure\"", "(a OR an) error"];
const COLUMNS: [&str; 5] = ["host", "n", "d", "born", "msg"];

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn below(random: &mut Random, bound: usize) -> usize {
    usize::try_from(random.below(bound as u64)).unwrap()
}

fn pick<'t>(random: &mut Random, texts: &[&'t str]) -> &'t str {
    texts[below(random, texts.len())]
}

fn integer(random: &mut Random) -> i64 {
    i64::try_from(random.below(8)).unwrap() - 4
}

async fn run(client: &Client, sql: &str) {
    client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

/// Rows of a query, each as one text, in the order of the texts.
async fn rows(client: &Client, sql: &str) -> Vec<String> {
    let messages =
        client.simple_query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let row = |message: SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => {
            let cells = (0..row.len()).map(|column| row.get(column).unwrap_or("NULL"));
            Some(cells.collect::<Vec<_>>().join("|"))
        }
        _ => None,
    };
    let mut rows: Vec<String> = messages.into_iter().filter_map(row).collect();
    rows.sort_unstable();
    rows
}

/// A test of one column.
fn leaf(random: &mut Random) -> String {
    let comparisons = ["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"];
    let comparison = pick(random, &comparisons);
    let not = pick(random, &["", "NOT "]);
    let number = integer(random);
    match random.below(14) {
        0 => format!("host {comparison} '{}'", pick(random, &HOSTS)),
        1 => format!("n {comparison} {number}"),
        2 => format!("d {comparison} {}", pick(random, &NUMBERS)),
        3 => format!("born {comparison} DATE '{}'", pick(random, &DAYS)),
        4 => format!("n {not}IN ({number}, {})", integer(random)),
        5 => format!("host {not}IN ('web', '{}')", pick(random, &HOSTS)),
        6 => format!("n {not}BETWEEN {number} AND {}", number + 2),
        7 => format!("{} IS {not}NULL", pick(random, &COLUMNS)),
        8 => format!("msg {not}LIKE '{}'", pick(random, &LIKES)),
        9 => format!("msg {not}ILIKE '{}'", pick(random, &LIKES)),
        10 => {
            let column = pick(random, &["host", "msg"]);
            let operator = pick(random, &["~", "~*", "!~", "!~*"]);
            format!("{column} {operator} '{}'", pick(random, &PATTERNS))
        }
        11 => {
            let column = pick(random, &["msg", "lower(msg)", "host"]);
            format!("{column} @@ '{}'", pick(random, &TERMS))
        }
        12 => format!("matches(msg, '{}')", pick(random, &QUERIES)),
        _ => format!("k {comparison} {}", 50 * number.abs()),
    }
}

fn predicate(random: &mut Random, depth: usize) -> String {
    let form = if depth == 0 { 0 } else { random.below(6) };
    match form {
        1 | 2 => {
            format!("(({}) AND ({}))", predicate(random, depth - 1), predicate(random, depth - 1))
        }
        3 | 4 => {
            format!("(({}) OR ({}))", predicate(random, depth - 1), predicate(random, depth - 1))
        }
        5 => format!("(NOT ({}))", predicate(random, depth - 1)),
        _ => leaf(random),
    }
}

/// A table without indexes, and one of the same rows with indexes.
struct Pair {
    plain: String,
    indexed: String,
    /// True if rows of one key replace each other.
    folds: bool,
    /// True if the tables are partitioned by ranges of the key.
    is_by_range: bool,
}

impl Pair {
    async fn create(client: &Client, random: &mut Random, number: u64) -> Self {
        let (plain, indexed) = (format!("plain_{number}"), format!("indexed_{number}"));
        let options = [
            "'append_mode' = 'true'",
            "'merge_mode' = 'last_row'",
            "'merge_mode' = 'last_non_null'",
        ];
        let option = options[usize::try_from(number % 3).unwrap()];
        let is_by_range = random.below(3) > 0;
        let placement = if is_by_range { "" } else { "PARTITION BY HASH (k) PARTITIONS 2" };
        for table in [&plain, &indexed] {
            let sql = format!(
                "CREATE TABLE {table} (k INT, ts TIMESTAMP(3) TIME INDEX, host STRING, n INT, d DOUBLE, born DATE, \
                 msg STRING, PRIMARY KEY (k)) {placement} WITH ({option})"
            );
            run(client, &sql).await;
        }
        let pair = Self { plain, indexed, folds: !number.is_multiple_of(3), is_by_range };
        for _ in 0..4 {
            pair.create_index(client, random).await;
        }
        pair
    }

    async fn create_index(&self, client: &Client, random: &mut Random) {
        let column = pick(random, &COLUMNS);
        let is_text = ["host", "msg"].contains(&column);
        let kinds = ["inverted", "skipping", "fulltext"];
        let kind = pick(random, &kinds[..if is_text { 3 } else { 2 }]);
        let granularity = 1 + random.below(64);
        let options = match kind {
            "skipping" => format!("WITH (granularity = {granularity})"),
            "fulltext" => match random.below(3) {
                0 => "WITH (backend = 'inverted')".to_owned(),
                1 => format!("WITH (granularity = {granularity}, analyzer = 'Chinese')"),
                _ => format!("WITH (granularity = {granularity}, case_sensitive = 'true')"),
            },
            _ => String::new(),
        };
        let table = &self.indexed;
        let name = format!("{table}_{column}_{kind}");
        let sql = format!(
            "CREATE INDEX IF NOT EXISTS {name} ON {table} USING {kind} ({column}) {options}"
        );
        run(client, &sql).await;
    }

    /// The same rows for both tables: all columns or some, with few NULLs or many.
    async fn insert(&self, client: &Client, random: &mut Random) {
        let nulls = [0, 1, 5, 9][below(random, 4)];
        let mut columns = COLUMNS.to_vec();
        if random.below(3) == 0 {
            columns.remove(below(random, COLUMNS.len()));
            columns.remove(below(random, columns.len()));
        }
        let mut tuples = Vec::new();
        for _ in 0..ROWS + random.below(1_000) {
            let (k, second) = (random.below(KEYS.0), random.below(KEYS.1));
            let mut tuple = format!("({k}, '2026-01-01 00:00:{second:02}'");
            for column in &columns {
                let value = match *column {
                    _ if random.below(10) < nulls => "NULL".to_owned(),
                    "host" => format!("'{}'", pick(random, &HOSTS)),
                    "n" => integer(random).to_string(),
                    "d" => pick(random, &NUMBERS).to_owned(),
                    "born" => format!("'{}'", pick(random, &DAYS)),
                    _ => format!("'{}'", pick(random, &TEXTS)),
                };
                tuple.push_str(", ");
                tuple.push_str(&value);
            }
            tuple.push(')');
            tuples.push(tuple);
        }
        let (columns, tuples) = (columns.join(", "), tuples.join(", "));
        for table in [&self.plain, &self.indexed] {
            run(client, &format!("INSERT INTO {table} (k, ts, {columns}) VALUES {tuples}")).await;
        }
    }

    async fn change(&self, client: &Client, random: &mut Random) {
        let table = &self.indexed;
        match random.below(14) {
            0 if self.folds => {
                let (first, second) = (random.below(KEYS.0), random.below(KEYS.0));
                for table in [&self.plain, &self.indexed] {
                    let sql = format!("DELETE FROM {table} WHERE k IN ({first}, {second})");
                    run(client, &sql).await;
                }
            }
            1 | 2 => run(client, &format!("ADMIN compact_table('{table}')")).await,
            3..=6 => run(client, &format!("ADMIN flush_table('{table}')")).await,
            7 if self.is_by_range => {
                let key = 1 + random.below(KEYS.0 - 1);
                run(client, &format!("ALTER TABLE {table} SPLIT AT (({key}))")).await;
            }
            8 => self.create_index(client, random).await,
            9 => {
                let column = pick(random, &COLUMNS);
                let kind = pick(random, &["inverted", "skipping", "fulltext"]);
                run(client, &format!("DROP INDEX IF EXISTS {table}_{column}_{kind}")).await;
            }
            _ => self.insert(client, random).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_tables_have_the_same_rows_with_and_without_indexes() {
    let seed = setting("PARTITA_SEED", 0x1d8e_5eed).max(1);
    eprintln!("repeat with PARTITA_SEED={seed}");
    let mut random = Random(seed);
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(&data.path().join("data"));
    let client = server.connect().await;
    let mut found = 0;
    for number in 0..setting("PARTITA_CASES", CASES) {
        let pair = Pair::create(&client, &mut random, number).await;
        pair.insert(&client, &mut random).await;
        run(&client, &format!("ADMIN flush_table('{}')", pair.indexed)).await;
        for _ in 0..CHANGES {
            pair.change(&client, &mut random).await;
            for _ in 0..QUESTIONS {
                let condition = predicate(&mut random, 2);
                let question = |table: &str| format!("SELECT * FROM {table} WHERE {condition}");
                let plain = rows(&client, &question(&pair.plain)).await;
                let indexed = rows(&client, &question(&pair.indexed)).await;
                assert_eq!(indexed, plain, "{} differs for {condition}", pair.indexed);
                found += plain.len();
            }
        }
    }
    assert!(found > 100, "only {found} rows were found");
    let used =
        "SELECT count(DISTINCT index_used) >= 2 FROM sys.query_log WHERE index_rows_skipped > 0";
    assert_eq!(one(&client, used).await, "t");
    assert!(server.stop());
}

/// A line of a log with a number that no other one has.
fn line(random: &mut Random, number: u64) -> String {
    const WORDS: [&str; 16] = [
        "error", "errors", "Error", "ERROR", "disk", "failure", "system", "timeout", "user",
        "login", "of", "error123", "full", "is", "Störung", "GET",
    ];
    const BETWEEN: [&str; 8] = [" ", " ", " ", " ", "-", ": ", ", ", "/"];
    let mut text = pick(random, &["INFO", "WARN", "ERROR", "debug"]).to_owned();
    for _ in 0..3 + random.below(7) {
        text.push_str(pick(random, &BETWEEN));
        text.push_str(pick(random, &WORDS));
    }
    format!("{text} code={} id{number}", 200 + random.below(300))
}

/// True if a line has a term whose ends, where they are letters or digits, are ends of words: letter by letter.
fn has_term(line: &str, term: &str) -> bool {
    let (line, term): (Vec<char>, Vec<char>) = (line.chars().collect(), term.chars().collect());
    (0..=line.len().saturating_sub(term.len())).any(|start| {
        let end = start + term.len();
        if line.get(start..end) != Some(term.as_slice()) {
            return false;
        }
        let goes_on = |inner: char, outer: Option<&char>| {
            inner.is_alphanumeric() && outer.is_some_and(|letter| letter.is_alphanumeric())
        };
        let earlier = start.checked_sub(1).and_then(|position| line.get(position));
        !goes_on(term[0], earlier) && !goes_on(term[term.len() - 1], line.get(end))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn words_of_a_log_are_those_that_a_reader_finds() {
    let mut random = Random(setting("PARTITA_SEED", 0x10c5_5eed).max(1));
    let lines: Vec<String> =
        (0..setting("PARTITA_LINES", LINES)).map(|number| line(&mut random, number)).collect();
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(&data.path().join("data"));
    let client = server.connect().await;
    let tables = [
        ("unindexed", ""),
        ("by_blooms", "FULLTEXT INDEX WITH (granularity = 256)"),
        ("by_words", "FULLTEXT INDEX WITH (backend = 'inverted')"),
        ("by_case", "FULLTEXT INDEX WITH (backend = 'inverted', case_sensitive = 'true')"),
    ];
    for (table, index) in tables {
        run(&client, &format!("CREATE TABLE {table} (id BIGINT PRIMARY KEY, msg STRING {index})"))
            .await;
    }
    for (part, chunk) in lines.chunks(1_000).enumerate() {
        let tuples: Vec<String> = chunk
            .iter()
            .enumerate()
            .map(|(position, line)| format!("({}, '{line}')", part * 1_000 + position))
            .collect();
        run(&client, &format!("INSERT INTO unindexed VALUES {}", tuples.join(", "))).await;
    }
    for (table, _) in &tables[1..] {
        run(&client, &format!("INSERT INTO {table} SELECT * FROM unindexed")).await;
        run(&client, &format!("ADMIN flush_table('{table}')")).await;
    }
    let lower: Vec<String> = lines.iter().map(|line| line.to_lowercase()).collect();
    let ids = |texts: &[String], is_wanted: &dyn Fn(&str) -> bool| -> Vec<String> {
        let numbered = texts.iter().enumerate();
        let wanted = numbered.filter(|(_, text)| is_wanted(text)).map(|(id, _)| id.to_string());
        let mut wanted: Vec<String> = wanted.collect();
        wanted.sort_unstable();
        wanted
    };
    let rare = format!("id{}", lines.len() / 2);
    let mut questions: Vec<(String, Vec<String>)> = Vec::new();
    for term in [
        "error",
        "ERROR",
        "errors",
        "system failure",
        "system-failure",
        "Störung",
        "code=404",
        "disk/full",
        "nothing",
        rare.as_str(),
    ] {
        let wanted = ids(&lines, &|line| has_term(line, term));
        questions.push((format!("matches_term(msg, '{term}')"), wanted.clone()));
        questions.push((format!("msg @@ '{term}'"), wanted));
        let folded = term.to_lowercase();
        let wanted = ids(&lower, &|line| has_term(line, &folded));
        questions.push((format!("lower(msg) @@ '{folded}'"), wanted.clone()));
        questions.push((format!("matches(msg, '\"{term}\"')"), wanted));
    }
    let wanted = ids(&lower, &|line| has_term(line, "error") && !has_term(line, "disk"));
    questions.push(("matches(msg, 'error NOT disk')".to_owned(), wanted));
    let wanted = ids(&lower, &|line| has_term(line, "störung") || has_term(line, &rare));
    questions.push((format!("matches(msg, 'störung OR {rare}')"), wanted));
    for (condition, wanted) in &questions {
        for (table, _) in tables {
            let sql = format!("SELECT id FROM {table} WHERE {condition}");
            let found = rows(&client, &sql).await;
            assert!(found == *wanted, "{sql}: {} rows, not {}", found.len(), wanted.len());
        }
    }
    // A rare word is looked for in few blocks.
    let used = format!(
        "SELECT count(*) FROM sys.query_log WHERE index_used = 'fulltext' AND text LIKE '%''{rare}''%' \
         AND index_rows_skipped >= 0.9 * index_rows_examined"
    );
    assert_ne!(one(&client, &used).await, "0");
    assert!(server.stop());
}
