//! Hotspots that others have filed or published, on a real cluster: four workloads of CockroachDB's issues on hotspots,
//! and YCSB's D and E.
//!
//! Each is a trial against one partition of limited rate. What these issues ask of a store is that it shows the hotspot.
//!
//! An index on a column is to a store of ranges a table whose key begins with that column: so it stands here, too.
//!
//! Invariant: reads ask for rows that exist.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use partita_load::Class;

use super::clients::{Ask, Value, Work};
use super::site::SiteOptions;
use super::told::{ReportOptions, Told};
use super::trial::{LoadOptions, TABLE, Trial, claims, description, measure, table};
use crate::random::Random;

const SOURCE: &str = "github.com/cockroachdb/cockroach/issues/134561, 134563, 134566 and 134576, which give schemas and statements, and \
     no figures; YCSB's core workloads D and E (95 % reads of the latest rows or short scans, 5 % inserts).";
/// Rows that are there before the clients come, where they read. A partition of limited rate is slow to fill.
const ROWS: u64 = 500;
/// First time of existing rows, in the past.
const PAST: Duration = Duration::from_secs(1_600_000_000);
/// Countries of the small table, and the share of the statements that concern the first of them.
const COUNTRIES: u64 = 200;
const FAVOURITE: f64 = 0.8;
/// Users whose messages are read at a time, and seconds until the next of them.
const READ_USERS: u64 = 20;
const READ_FOR_S: u64 = 2;
/// Number of purchases.
const PURCHASES: u64 = 7;
/// Rows that a scan asks for.
const SCAN_ROWS: u64 = 100;
/// Newest rows that are not read: their INSERTs may be under way.
const UNREAD_ROWS: u64 = 200;
/// Share of reads of YCSB's workloads.
const READS: f64 = 0.95;

/// Options of `filed`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    site: SiteOptions,
    #[command(flatten)]
    report: ReportOptions,
    #[command(flatten)]
    load: LoadOptions,
    /// Cases to run; all by default.
    #[arg(long, value_delimiter = ',')]
    cases: Vec<String>,
}

/// A workload that was filed.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    about: &'static str,
    /// Columns and key of the table.
    table: &'static str,
    /// Number of rows before the clients come.
    rows: u64,
    /// Row with this number.
    row: fn(u64) -> String,
    work: fn() -> Work,
    /// Right classes, the usual one first.
    expected: &'static [Class],
}

fn int(value: u64) -> Value {
    Value::Int(value.cast_signed())
}

/// Time of the existing row with this number: one a second, all in the past.
fn past(number: u64) -> Duration {
    PAST + Duration::from_secs(number)
}

/// The country of a statement.
fn country(random: &mut Random) -> Value {
    let number = if random.unit() < FAVOURITE { 0 } else { random.below(COUNTRIES) };
    Value::Text(format!("c{number}"))
}

/// The present user of a load that moves on every few seconds.
fn present_user(random: &mut Random) -> u64 {
    let now_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (now_s.as_secs() / READ_FOR_S * READ_USERS + random.below(READ_USERS)) % ROWS
}

/// A number of an existing row: the newer the likelier, as in YCSB's distribution of the latest.
fn latest(counter: &AtomicU64, random: &mut Random) -> u64 {
    let count = counter.load(Ordering::Relaxed).saturating_sub(UNREAD_ROWS).max(1);
    // A power of a uniform number lies near zero: few of the newest rows get most of the reads.
    let distance = random.unit().powi(4) * count as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between zero and the number of rows"
    )]
    let distance = distance as u64;
    count - 1 - distance.min(count - 1)
}

fn ask(text: &str, draw: impl Fn(&mut Random) -> Vec<Value> + Send + Sync + 'static) -> Ask {
    Ask { text: text.replace("{table}", TABLE), draw: Arc::new(draw) }
}

/// The cases, in the order in which they run.
fn cases() -> Vec<Case> {
    [filed_cases(), published_cases()].concat()
}

/// Workloads of CockroachDB's issues.
fn filed_cases() -> Vec<Case> {
    vec![
        Case {
            name: "crdb-134561",
            about: "an index on a created_at column, under many inserts",
            table: "created_at TIMESTAMP(6) NOT NULL, id BIGINT NOT NULL, message STRING, TIME INDEX (created_at), \
                    PRIMARY KEY (created_at, id)",
            rows: 0,
            row: |_| String::new(),
            work: || {
                Work::writing(ask("INSERT INTO {table} VALUES ($1, $2, 'a message')", |random| {
                    vec![Value::Time(SystemTime::now()), int(random.below(1 << 40))]
                }))
            },
            expected: &[Class::MovingRight],
        },
        Case {
            name: "crdb-134563",
            about: "an index on a last_seen_at column that updates move: an old entry is written, and a new one at the end",
            table: "last_seen_at TIMESTAMP(6) NOT NULL, id BIGINT NOT NULL, seen BOOLEAN, TIME INDEX (last_seen_at), \
                    PRIMARY KEY (last_seen_at, id)",
            rows: 0,
            row: |_| String::new(),
            work: || {
                let text = "INSERT INTO {table} VALUES ($1, $2, false), ($3, $4, true)";
                Work::writing(ask(text, |random| {
                    let number = random.below(ROWS);
                    let old = Value::Time(SystemTime::UNIX_EPOCH + past(number));
                    vec![old, int(number), Value::Time(SystemTime::now()), int(number)]
                }))
            },
            // Half of the load is spread over the old entries.
            expected: &[Class::MovingRight, Class::StaticRange, Class::Unsplittable],
        },
        Case {
            name: "crdb-134566",
            about: "a small table with a counter for each country, most of it for one",
            table: "code STRING NOT NULL, user_count BIGINT, PRIMARY KEY (code)",
            rows: COUNTRIES,
            row: |number| format!("('c{number}', 0)"),
            work: || Work {
                read: Some(ask("SELECT user_count FROM {table} WHERE code = $1", |random| {
                    vec![country(random)]
                })),
                reads: 0.5,
                ..Work::writing(ask("INSERT INTO {table} VALUES ($1, $2)", |random| {
                    vec![country(random), int(random.below(1 << 30))]
                }))
            },
            expected: &[Class::HotKey],
        },
        Case {
            name: "crdb-134576",
            about: "reads of some users' messages, of other users every two seconds",
            table: "path STRING NOT NULL, user_id BIGINT NOT NULL, purchase_id BIGINT NOT NULL, \
                    created_at TIMESTAMP(6) NOT NULL, message STRING, TIME INDEX (created_at), \
                    PRIMARY KEY (path, user_id, purchase_id, created_at)",
            rows: ROWS,
            row: |number| {
                let at_us = past(number).as_micros();
                format!("('/inbox', {number}, {}, {at_us}, 'a message')", number % PURCHASES)
            },
            work: || {
                let text = "SELECT user_id, message FROM {table} WHERE path = '/inbox' AND user_id = $1 \
                            AND purchase_id = $2 ORDER BY created_at LIMIT 10";
                Work::reading(ask(text, |random| {
                    let user = present_user(random);
                    vec![int(user), int(user % PURCHASES)]
                }))
            },
            expected: &[Class::ReadHot, Class::Sweep, Class::Rotating],
        },
    ]
}

/// Workloads of YCSB.
fn published_cases() -> Vec<Case> {
    vec![
        Case {
            name: "ycsb-d",
            about: "95 % reads of the latest rows, 5 % inserts",
            table: "id BIGINT NOT NULL, field0 STRING, PRIMARY KEY (id)",
            rows: ROWS,
            row: |number| format!("({number}, 'a field')"),
            work: || {
                let writer = Arc::new(AtomicU64::new(ROWS));
                let reader = Arc::clone(&writer);
                Work {
                    read: Some(ask("SELECT field0 FROM {table} WHERE id = $1", move |random| {
                        vec![int(latest(&reader, random))]
                    })),
                    reads: READS,
                    ..Work::writing(ask("INSERT INTO {table} VALUES ($1, 'a field')", move |_| {
                        vec![int(writer.fetch_add(1, Ordering::Relaxed))]
                    }))
                }
            },
            expected: &[Class::ReadHot, Class::MovingRight, Class::StaticRange],
        },
        Case {
            name: "ycsb-e",
            about: "95 % scans of up to 100 rows, 5 % inserts at random places",
            table: "id BIGINT NOT NULL, field0 STRING, PRIMARY KEY (id)",
            rows: ROWS,
            row: |number| format!("({}, 'a field')", number << 20),
            work: || {
                let text = format!(
                    "SELECT id, field0 FROM {{table}} WHERE id >= $1 ORDER BY id LIMIT {SCAN_ROWS}"
                );
                Work {
                    read: Some(ask(&text, |random| vec![int(random.below(ROWS) << 20)])),
                    reads: READS,
                    ..Work::writing(ask("INSERT INTO {table} VALUES ($1, 'a field')", |random| {
                        vec![int(random.below(ROWS << 20))]
                    }))
                }
            },
            expected: &[Class::StaticRange, Class::ScanBound, Class::ReadHot],
        },
    ]
}

/// Runs the cases, prints the results, and checks what the store named.
pub(super) async fn run(options: &Options) -> anyhow::Result<()> {
    options.site.check()?;
    let trials = trials(&options.cases)?;
    let outcomes = Box::pin(measure(&options.site, &options.load, trials)).await?;
    let (claims, table) = (claims(&outcomes), table(&outcomes));
    Told::new(
        "filed",
        description(&options.site, &options.load),
        SOURCE,
        &options.site,
        options.site.bound(),
        outcomes,
    )
    .claims(claims)
    .table(table)
    .tell(&options.report)
}

/// The cases of these names, or all if none is named.
///
/// # Errors
/// If there is no such case.
pub(crate) fn trials(names: &[String]) -> anyhow::Result<Vec<Trial>> {
    let cases = cases();
    if let Some(name) = names.iter().find(|name| cases.iter().all(|case| case.name != **name)) {
        let names: Vec<&str> = cases.iter().map(|case| case.name).collect();
        anyhow::bail!("there is no case {name}; there are {}", names.join(", "));
    }
    let chosen = |case: &Case| names.is_empty() || names.iter().any(|name| name == case.name);
    Ok(cases.into_iter().filter(chosen).map(trial).collect())
}

fn trial(case: Case) -> Trial {
    Trial {
        name: case.name,
        about: case.about,
        columns: case.table.to_owned(),
        options: "",
        rows: case.rows,
        row: Box::new(case.row),
        work: (case.work)(),
        offered_per_s: None,
        expected: case.expected,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn cases_have_names_classes_and_statements_with_as_many_parameters_as_are_drawn() {
        let cases = cases();
        let names: BTreeSet<&str> = cases.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), 6);
        for case in &cases {
            assert!(
                !case.expected.is_empty() && case.table.contains("PRIMARY KEY"),
                "{}",
                case.name
            );
            let work = (case.work)();
            for ask in [&work.read, &work.write].into_iter().flatten() {
                assert!(ask.text.contains(TABLE), "{}", ask.text);
                let drawn = (ask.draw)(&mut Random::new(1, 0)).len();
                let highest = (1..=9).filter(|number| ask.text.contains(&format!("${number}")));
                assert_eq!(highest.max().unwrap_or(0), drawn, "{}", ask.text);
            }
        }
    }

    #[test]
    fn only_existing_rows_are_read() {
        let counter = AtomicU64::new(ROWS);
        let mut random = Random::new(1, 0);
        for _ in 0..10_000 {
            assert!(latest(&counter, &mut random) < ROWS - UNREAD_ROWS);
            assert!(present_user(&mut random) < ROWS);
        }
        counter.store(100_000, Ordering::Relaxed);
        let near = (0..1_000).filter(|_| latest(&counter, &mut random) > 90_000).count();
        assert!(near > 400, "{near}");
    }

    #[test]
    fn cases_are_chosen_by_name() {
        let names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            trials(&names).map(|trials| trials.iter().map(|trial| trial.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["ycsb-e", "crdb-134561"]).unwrap(), ["crdb-134561", "ycsb-e"]);
        assert_eq!(names(&[]).unwrap().len(), 6);
        let unknown = names(&["ycsb-z"]).unwrap_err().to_string();
        assert!(
            unknown.starts_with("there is no case ycsb-z; there are crdb-134561, "),
            "{unknown}"
        );
    }
}
