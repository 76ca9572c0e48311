//! Rows that are sent again, under `append_mode` and both merge modes: `system_metrics` of GreptimeDB's guide.
//!
//! ```text
//!   records, ten by ten:  0 1 2 3 4 5 6 7 8 | 9: record 4 of a quarter of the records before, with cpu_util alone
//! ```
//!
//! Hosts have numbers modulo nine, so that those with a remainder of 4 have rows that are sent again, and others never
//! do. Each quarter of the records is flushed: the versions of a row are in different files, and are not merged before
//! the questions.

use super::figures::{Measured, judged_if};
use super::model::{
    Advice, Cell, Data, Demonstration, Design, MILLI_NS, Question, Row, START_NS, Table, float,
    moment,
};
use crate::claim::Claim;

/// Hosts, a multiple of [`NEW_PER_TEN`].
const HOSTS: u64 = 900;
/// Time between two rows of a host.
const STEP_MS: i64 = 10_000;
const NEW_PER_TEN: u64 = 9;
/// Position of the record of ten that is sent again.
const AGAIN: u64 = 4;
const PARTS: u64 = 4;
const TABLES: [&str; 3] =
    ["system_metrics_append", "system_metrics", "system_metrics_last_non_null"];
const COLUMNS: [&str; 5] = ["host", "cpu_util", "memory_util", "disk_util", "ts"];
const COUNT: &str = "rows";
const ONE_AGAIN: &str = "a row that was sent again";
const ALL_ROWS: &str = "sums over all rows";

pub(super) const DEMONSTRATION: Demonstration = Demonstration {
    name: "system-metrics",
    title: "rows that are sent again, under append_mode, last_row and last_non_null",
    document: "GreptimeDB, Design Your Table Schema",
    says: &[
        "append_mode keeps every row; the others keep one row of each key and time.",
        "last_row returns the newest row, whose fields must all be given; last_non_null the newest value of each field.",
        "last_row is usually faster than last_non_null.",
        "Append-only tables usually have better query performance; deduplication needs more computation.",
    ],
    rows: 200_000,
    parts: PARTS,
    compacts: false,
    record,
    designs,
    questions,
    judge,
};

/// Number of the earlier record that a record sends again, if it does.
fn again(data: &Data, number: u64) -> Option<u64> {
    let (ten, position) = (number / 10, number % 10);
    let distance = data.rows / PARTS / 10;
    (position == NEW_PER_TEN).then(|| ten.saturating_sub(distance) * 10 + AGAIN)
}

/// Host and time of a record that is new.
fn key(number: u64) -> [Cell; 2] {
    let position = number / 10 * NEW_PER_TEN + number % 10;
    let step = (position / HOSTS).cast_signed();
    [
        Cell::Text(format!("host-{:04}", position % HOSTS)),
        Cell::Time(START_NS + step * STEP_MS * MILLI_NS),
    ]
}

fn record(data: &Data, number: u64) -> Vec<Cell> {
    let mut random = data.random(number);
    let mut percent = || Cell::hundredths(random.below(10_000));
    match again(data, number) {
        Some(earlier) => {
            let [host, time] = key(earlier);
            vec![host, percent(), Cell::Null, Cell::Null, time]
        }
        None => {
            let [host, time] = key(number);
            vec![host, percent(), percent(), percent(), time]
        }
    }
}

fn designs() -> Vec<Design> {
    let design = |position: usize, name: &str, description, advice, options: &str| {
        let create = format!(
            "CREATE TABLE {{}} (host STRING, cpu_util DOUBLE, memory_util DOUBLE, disk_util DOUBLE, ts TIMESTAMP DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY(host), TIME INDEX(ts)){options}"
        );
        Design {
            name: name.to_owned(),
            description,
            advice,
            tables: vec![Table::new(TABLES[position], &create, &COLUMNS)],
            rows: Row::only,
            facts: Vec::new(),
        }
    };
    vec![
        design(
            0,
            "append",
            "append_mode: every row stays",
            Advice::Neutral,
            " WITH ('append_mode' = 'true')",
        ),
        design(1, "last_row", "the newest row wins", Advice::Neutral, ""),
        design(
            2,
            "last_non_null",
            "each field keeps its newest value",
            Advice::Neutral,
            " WITH ('merge_mode' = 'last_non_null')",
        ),
    ]
}

/// The last record that sends an earlier one again, by the number of the earlier one.
fn last_again(data: &Data) -> u64 {
    let last = (0..data.rows).rev().find_map(|number| again(data, number));
    last.unwrap_or_default()
}

fn questions(data: &Data) -> Vec<Question> {
    let of_tables = |name: &str, sql: &str| Question::of_tables(name, &TABLES, sql);
    // Answers that depend on how versions merge are not compared.
    let unlike = |name: &str, sql: &str| {
        Question::unlike(name, TABLES.map(|table| sql.replace("{}", table)))
    };
    let [host, time] = match key(last_again(data)) {
        [Cell::Text(host), Cell::Time(nanos)] => [host, moment(nanos)],
        _ => [String::new(), moment(START_NS)],
    };
    vec![
        unlike(COUNT, "SELECT count(*) FROM {}"),
        unlike(
            ONE_AGAIN,
            &format!(
                "SELECT count(*), count(cpu_util), count(memory_util), count(disk_util) FROM {{}} WHERE host = '{host}' AND ts = '{time}'"
            ),
        ),
        of_tables(
            "a host without such rows",
            "SELECT count(*), max(cpu_util), min(disk_util) FROM {} WHERE host = 'host-0001'",
        ),
        unlike(
            ALL_ROWS,
            "SELECT round(sum(cpu_util)), round(sum(memory_util)), round(sum(disk_util)) FROM {}",
        ),
        unlike(
            "averages by host",
            "SELECT host, avg(cpu_util), avg(memory_util) FROM {} GROUP BY host",
        ),
    ]
}

fn judge(data: &Data, measured: &Measured) -> Vec<Claim> {
    let number = |question, design, column| measured.asked(question, design)?.number(column);
    let keys = (0..data.rows).filter(|number| again(data, *number).is_none()).count();
    let keys = float(keys as u64);
    let mut claims = vec![
        judged_if(
            "append_mode keeps every row, the others one of each key and time",
            ["append", "last_row", "last_non_null"].map(|design| number(COUNT, design, 0)),
            |counts| {
                let [append, row, non_null] = counts;
                let measured = format!("{append:.0}, {row:.0}, {non_null:.0} rows");
                (measured, append == float(data.rows) && row == keys && non_null == keys)
            },
        ),
        judged_if(
            "of a row that was sent again without some fields, last_row has nulls in them, last_non_null the former values",
            ["last_row", "last_non_null"].map(|design| number(ONE_AGAIN, design, 2)),
            |[row, non_null]| {
                (format!("{row:.0} and {non_null:.0} of 1 value"), row == 0.0 && non_null == 1.0)
            },
        ),
    ];
    for question in [ALL_ROWS, "averages by host"] {
        claims.push(measured.faster(
            &format!("last_row is faster than last_non_null: {question}"),
            question,
            ["last_non_null", "last_row"],
        ));
        claims.push(measured.faster(
            &format!("append_mode is faster than last_row: {question}"),
            question,
            ["last_row", "append"],
        ));
    }
    claims.push(
        measured.loads_faster("append_mode is loaded faster than last_row", ["last_row", "append"]),
    );
    claims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tenth_record_sends_an_earlier_one_again_with_nulls() {
        let data = Data { rows: 400, seed: 1 };
        let earlier = again(&data, 219).unwrap();
        assert_eq!(earlier, 114, "ten tens before");
        assert_eq!((again(&data, 218), again(&data, 9)), (None, Some(4)));
        let (old, new) = (record(&data, earlier), record(&data, 219));
        assert_eq!((&old[0], &old[4]), (&new[0], &new[4]));
        assert_eq!(new[2..4], [Cell::Null, Cell::Null]);
        assert!(old[1..4].iter().all(|cell| *cell != Cell::Null));
        let keys: std::collections::BTreeSet<String> = (0..400)
            .filter(|number| again(&data, *number).is_none())
            .map(|number| format!("{:?}", key(number)))
            .collect();
        assert_eq!(keys.len(), 360, "new records do not replace each other");
    }

    #[test]
    fn hosts_with_another_remainder_are_never_sent_again() {
        let data = Data { rows: 20_000, seed: 1 };
        for earlier in (0..data.rows).filter_map(|number| again(&data, number)) {
            let Cell::Text(host) = &key(earlier)[0] else { panic!("the first cell is the host") };
            let number: u64 = host[5..].parse().unwrap();
            assert_eq!(number % NEW_PER_TEN, AGAIN, "{host}");
        }
    }
}
