//! Rules that all demonstrations keep, and their judges.

use std::collections::BTreeSet;

use clap::Parser;

use super::figures::{Asked, Loaded, Measured};
use super::model::{Cell, Data, Demonstration};
use super::{DEMONSTRATIONS, Options, list, show};
use crate::claim::{Claim, Verdict};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

fn options(arguments: &[&str]) -> Options {
    Line::parse_from([&["design"][..], arguments].concat()).options
}

fn named(name: &str) -> &'static Demonstration {
    DEMONSTRATIONS.iter().find(|demonstration| demonstration.name == name).unwrap()
}

/// Figures in which each design has some multiple of a cost, in the order of the designs.
fn costs(demonstration: &Demonstration, data: &Data, costs: &[u64]) -> Measured {
    let designs = (demonstration.designs)();
    let loaded = designs.iter().zip(costs).map(|(design, cost)| Loaded {
        design: design.name.clone(),
        rows: data.rows,
        load_s: *cost as f64,
        disk_bytes: cost << 20,
        memory_peak_bytes: cost << 20,
        facts: design.facts.iter().map(|fact| (fact.name.to_owned(), *cost as f64)).collect(),
        ..Loaded::default()
    });
    let mut asked = Vec::new();
    for question in (demonstration.questions)(data) {
        for ((design, cost), ask) in designs.iter().zip(costs).zip(question.asks) {
            asked.push(Asked {
                question: question.name.clone(),
                design: design.name.clone(),
                sql: ask.sql,
                rounds_ms: vec![*cost as f64; 9],
                median_ms: *cost as f64,
                rows_read: cost * 1_000,
                bytes_read: cost * 10_000,
                ..Asked::default()
            });
        }
    }
    Measured { loaded: loaded.collect(), asked }
}

fn verdict(claims: &[Claim], text: &str) -> Verdict {
    let claim = claims.iter().find(|claim| claim.claim.contains(text));
    claim.unwrap_or_else(|| panic!("{text} in {claims:#?}")).verdict
}

#[test]
fn records_follow_from_the_seed_and_their_number() {
    let (data, other_seed) = (Data { rows: 1_000, seed: 1 }, Data { rows: 1_000, seed: 2 });
    for demonstration in &DEMONSTRATIONS {
        let records = |data: &Data| -> Vec<Vec<Cell>> {
            (0..100).map(|number| (demonstration.record)(data, number)).collect()
        };
        assert_eq!(records(&data), records(&data), "{}", demonstration.name);
        assert_ne!(records(&data), records(&other_seed), "{}", demonstration.name);
        // In another order, too.
        let last = (demonstration.record)(&data, 99);
        assert_eq!(last, records(&data)[99], "{}", demonstration.name);
    }
}

#[test]
fn rows_fit_the_columns_of_their_tables() {
    for demonstration in &DEMONSTRATIONS {
        let data = Data { rows: 1_000, seed: 1 };
        for design in (demonstration.designs)() {
            let mut filled = BTreeSet::new();
            for number in 0..data.rows {
                let rows = (design.rows)((demonstration.record)(&data, number));
                assert!(!rows.is_empty(), "{}, {}", demonstration.name, design.name);
                for row in rows {
                    let table = &design.tables[row.table];
                    assert_eq!(row.cells.len(), table.columns.len(), "{}: {row:?}", table.name);
                    filled.insert(row.table);
                }
            }
            assert_eq!(filled.len(), design.tables.len(), "each table of {} has rows", design.name);
        }
    }
}

#[test]
fn tables_are_declared_with_their_columns_under_names_of_their_own() {
    let mut names = BTreeSet::new();
    for demonstration in &DEMONSTRATIONS {
        for table in (demonstration.designs)().into_iter().flat_map(|design| design.tables) {
            let create = &table.create;
            assert!(create.starts_with(&format!("CREATE TABLE {} (", table.name)), "{create}");
            assert_eq!(create.matches('(').count(), create.matches(')').count(), "{create}");
            assert!(create.contains("TIME INDEX"), "{create}");
            for column in table.columns {
                assert!(create.contains(&format!("{column} ")), "{column} in {create}");
            }
            assert!(names.insert(table.name.clone()), "{} is there twice", table.name);
        }
    }
}

#[test]
fn each_question_is_asked_of_each_design_s_own_tables() {
    for demonstration in &DEMONSTRATIONS {
        let designs = (demonstration.designs)();
        let data = Data { rows: demonstration.rows, seed: 1 };
        let questions = (demonstration.questions)(&data);
        let names: BTreeSet<&String> = questions.iter().map(|question| &question.name).collect();
        assert_eq!(names.len(), questions.len(), "{}", demonstration.name);
        for question in &questions {
            assert_eq!(question.asks.len(), designs.len(), "{}", question.name);
            for (design, ask) in designs.iter().zip(&question.asks) {
                let words: BTreeSet<&str> = ask.sql.split([' ', ',', '(', ')']).collect();
                let is_own = design.tables.iter().any(|table| words.contains(table.name.as_str()));
                assert!(is_own, "{}: {}", design.name, ask.sql);
                assert!(!ask.sql.contains("{}"), "{}", ask.sql);
            }
        }
        let documents = ["InfluxDB 2, ", "InfluxDB 3, ", "GreptimeDB, "];
        assert!(documents.iter().any(|name| demonstration.document.contains(name)));
        assert!(!demonstration.says.is_empty() && demonstration.parts > 0);
    }
}

#[test]
fn claims_about_nothing_are_open() {
    for demonstration in &DEMONSTRATIONS {
        let data = Data { rows: 1_000, seed: 1 };
        let claims = (demonstration.judge)(&data, &Measured::default());
        assert!(claims.len() >= 3, "{}", demonstration.name);
        for claim in claims {
            assert_eq!(claim.verdict, Verdict::Open, "{}: {}", demonstration.name, claim.claim);
        }
    }
}

#[test]
fn judges_name_questions_and_designs_that_exist() {
    for demonstration in &DEMONSTRATIONS {
        let data = Data { rows: 1_000, seed: 1 };
        let count = (demonstration.designs)().len();
        // Designs of equal latency leave claims about it open.
        let figures: Vec<u64> = (1..).take(count).collect();
        let mut measured = costs(demonstration, &data, &figures);
        for asked in &mut measured.asked {
            asked.first = vec![Some("1".to_owned()); 8];
        }
        for claim in (demonstration.judge)(&data, &measured) {
            assert_ne!(claim.verdict, Verdict::Open, "{}: {claim:?}", demonstration.name);
        }
    }
}

#[test]
fn costs_of_the_designs_decide_their_claims() {
    let data = Data { rows: 1_000, seed: 1 };
    for (name, figures, text, expected) in [
        ("http-logs", &[9, 1, 1, 1][..], "a fifth of the rows", Verdict::Holds),
        ("http-logs", &[4, 1, 1, 1][..], "a fifth of the rows", Verdict::Fails),
        ("http-logs", &[1, 9, 2, 2][..], "finds few rows by BETWEEN", Verdict::Holds),
        ("http-logs", &[1, 9, 9, 2][..], "finds few rows by BETWEEN", Verdict::Fails),
        ("http-logs", &[1, 9, 9, 1][..], "finds an id in", Verdict::Holds),
        ("http-logs", &[1, 9, 9, 2][..], "finds an id in", Verdict::Fails),
        ("http-logs", &[1, 2, 2, 3][..], "indexes need disk space", Verdict::Holds),
        ("http-logs", &[1, 2, 2, 2][..], "does not use leave its rows", Verdict::Holds),
        ("http-logs", &[1, 2, 2, 3][..], "does not use leave its rows", Verdict::Fails),
        ("raw-logs", &[9, 3, 1][..], "columns read fewer bytes than the full-text", Verdict::Holds),
        ("raw-logs", &[9, 1, 3][..], "columns read fewer bytes than the full-text", Verdict::Fails),
        ("home", &[2, 1][..], "equality is faster than LIKE", Verdict::Holds),
        ("home", &[1, 2][..], "equality is faster than LIKE", Verdict::Fails),
        ("air-sensors", &[1, 8, 3][..], "a fourth of the rows", Verdict::Holds),
        ("air-sensors", &[1, 3, 3][..], "a fourth of the rows", Verdict::Fails),
        ("crypto", &[2, 1, 3][..], "two tables need less disk space", Verdict::Holds),
        ("crypto", &[2, 1, 3][..], "common names need less disk space", Verdict::Fails),
        ("system-metrics", &[1, 2, 3][..], "last_row is faster than last_non_null", Verdict::Holds),
        ("system-metrics", &[3, 2, 1][..], "last_row is faster than last_non_null", Verdict::Fails),
        ("health", &[1, 2][..], "joins: math", Verdict::Holds),
        ("health", &[2, 1][..], "joins: math", Verdict::Fails),
        ("iot-cardinality", &[1, 2, 3][..], "half the rate at least", Verdict::Holds),
        ("iot-cardinality", &[1, 3, 3][..], "half the rate at least", Verdict::Fails),
        ("iot-cardinality", &[1, 2, 3][..], "slows writes down", Verdict::Holds),
        ("partitions", &[1, 1, 2, 3][..], "faster than 64: each device", Verdict::Holds),
        ("partitions", &[3, 2, 1, 1][..], "faster than 64: each device", Verdict::Fails),
        ("metrics-events", &[1, 3][..], "a third of the bytes", Verdict::Holds),
        ("metrics-events", &[1, 2][..], "a third of the bytes", Verdict::Fails),
    ] {
        let demonstration = named(name);
        let measured = costs(demonstration, &data, figures);
        let claims = (demonstration.judge)(&data, &measured);
        assert_eq!(verdict(&claims, text), expected, "{name}, {figures:?}, {text}");
    }
}

#[test]
fn answers_decide_how_rows_merge() {
    let demonstration = named("system-metrics");
    let data = Data { rows: 1_000, seed: 1 };
    let mut measured = costs(demonstration, &data, &[1, 1, 1]);
    let answers = [["1000", "3"], ["900", "0"], ["900", "1"]];
    for (index, asked) in measured.asked.iter_mut().enumerate() {
        let [count, memory] = answers[index % 3];
        let (count, memory) = (Some(count.to_owned()), Some(memory.to_owned()));
        asked.first = vec![count, None, memory, None];
    }
    let claims = (demonstration.judge)(&data, &measured);
    assert_eq!(verdict(&claims, "keeps every row"), Verdict::Holds);
    assert_eq!(verdict(&claims, "nulls in them"), Verdict::Holds);
    measured.asked[1].first[0] = Some("901".to_owned());
    let claims = (demonstration.judge)(&data, &measured);
    assert_eq!(verdict(&claims, "keeps every row"), Verdict::Fails);
}

#[test]
fn options_select_demonstrations() {
    let names = |arguments: &[&str]| {
        let selected = options(arguments).selected();
        selected.map(|selected| selected.iter().map(|entry| entry.name).collect::<Vec<_>>())
    };
    assert_eq!(names(&["home", "crypto"]).unwrap(), ["home", "crypto"]);
    assert_eq!(names(&["--all"]).unwrap().len(), 10);
    assert!(names(&[]).unwrap().is_empty());
    let error = names(&["homes"]).unwrap_err().to_string();
    assert_eq!(error, "there is no demonstration homes; see --list");
    let options = options(&["home", "--rows", "7", "--seed", "3"]);
    let data = options.data(named("home"));
    assert_eq!((data.rows, data.seed), (7, 3));
}

#[test]
fn the_list_and_the_statements_can_be_printed() {
    let list = list();
    assert_eq!(list.lines().count(), 11);
    assert!(list.contains("http-logs") && list.contains("v1, v2, v3, v4"), "{list}");
    let home = show(&options(&["home"]), &[named("home")]);
    for line in [
        "CREATE TABLE home (time TIMESTAMP(3) TIME INDEX, location STRING, sensor_model STRING, sensor_id STRING, temp DOUBLE, PRIMARY KEY (location, sensor_model, sensor_id));",
        "SELECT time, temp FROM home_embedded WHERE sensor LIKE '%id-1726ZA%';",
        "SELECT time, temp FROM home WHERE sensor_id = '1726ZA';",
    ] {
        assert!(home.lines().any(|text| text == line), "{line} in\n{home}");
    }
}
