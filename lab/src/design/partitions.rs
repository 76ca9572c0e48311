//! A small table in 1 to 64 partitions: GreptimeDB's guide advises not to partition unless one machine is not enough.
//!
//! The records are 10 MB: 150,000 rows of 70 bytes.

use super::figures::Measured;
use super::model::{
    Advice, Cell, Data, Demonstration, Design, MILLI_NS, Question, Row, START_NS, Table, moment,
};
use crate::claim::Claim;

const DEVICES: u64 = 500;
/// Time between two records of a device.
const STEP_MS: i64 = 10_000;
/// Numbers of partitions, and their tables.
const SIZES: [(u32, &str, &str); 4] = [
    (1, "1 partition", "readings_1"),
    (4, "4 partitions", "readings_4"),
    (16, "16 partitions", "readings_16"),
    (64, "64 partitions", "readings_64"),
];
const COLUMNS: [&str; 7] = ["device", "time", "v1", "v2", "v3", "v4", "status"];
const ALL: &str = "each device";
const LAST: &str = "last minutes of all";
const POINT: &str = "one device";

pub(super) const DEMONSTRATION: Demonstration = Demonstration {
    name: "partitions",
    title: "10 MB in 1, 4, 16 and 64 partitions",
    document: "GreptimeDB, Design Your Table Schema",
    says: &[
        "There is no need to partition a table unless a single machine is not enough for it.",
        "A distributed plan is not always as efficient as a local one.",
        "A table can use all resources of a machine, especially in queries.",
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
    let step = (number / DEVICES).cast_signed();
    let mut cells = vec![
        Cell::Text(format!("device-{:03}", number % DEVICES)),
        Cell::Time(START_NS + step * STEP_MS * MILLI_NS),
    ];
    cells.extend((0..4).map(|_| Cell::hundredths(random.below(1_000_000))));
    cells.push(Cell::text(*random.choose(&["ok", "ok", "ok", "late", "broken"])));
    cells
}

fn designs() -> Vec<Design> {
    let design = |(partitions, name, table): (u32, &str, &str)| {
        let create = format!(
            "CREATE TABLE {{}} (device STRING, time TIMESTAMP(3) TIME INDEX, v1 DOUBLE, v2 DOUBLE, v3 DOUBLE, v4 DOUBLE, status STRING, PRIMARY KEY (device)) PARTITION BY HASH (device) PARTITIONS {partitions}"
        );
        Design {
            name: name.to_owned(),
            description: "partitions by hash of the device",
            advice: match partitions {
                1 => Advice::For,
                64 => Advice::Against,
                _ => Advice::Neutral,
            },
            tables: vec![Table::new(table, &create, &COLUMNS)],
            rows: Row::only,
            facts: Vec::new(),
        }
    };
    SIZES.map(design).into()
}

fn questions(data: &Data) -> Vec<Question> {
    let steps = (data.rows / DEVICES).cast_signed();
    let late = moment(START_NS + (steps - 12).max(0) * STEP_MS * MILLI_NS);
    let tables = SIZES.map(|(_, _, table)| table);
    let of_tables = |name: &str, sql: &str| Question::of_tables(name, &tables, sql);
    vec![
        of_tables(
            POINT,
            "SELECT count(*), max(v1), min(v2) FROM {} WHERE device = 'device-007' AND v3 >= 0",
        ),
        of_tables(
            LAST,
            &format!(
                "SELECT device, count(*), max(v1) FROM {{}} WHERE time >= '{late}' GROUP BY device"
            ),
        ),
        of_tables(ALL, "SELECT device, count(*), max(v1), min(v4) FROM {} GROUP BY device"),
        of_tables("by status", "SELECT status, count(*), max(v2), max(v3) FROM {} GROUP BY status"),
        of_tables(
            "highest ten",
            "SELECT device, time, v1 FROM {} ORDER BY v1 DESC, device, time LIMIT 10",
        ),
    ]
}

fn judge(_: &Data, measured: &Measured) -> Vec<Claim> {
    let designs = ["64 partitions", "1 partition"];
    let mut claims = Vec::new();
    for question in [LAST, ALL, "by status", "highest ten", POINT] {
        let claim = format!("one partition is faster than 64: {question}");
        claims.push(measured.faster(&claim, question, designs));
    }
    claims.extend([
        measured.faster(
            "one partition is faster than four: each device",
            ALL,
            ["4 partitions", "1 partition"],
        ),
        measured.loads_faster("one partition is loaded faster than 64", designs),
        measured.smaller("one partition needs less disk space than 64", designs),
        measured.leaner("one partition needs less memory than 64", designs),
    ]);
    claims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_ten_megabytes() {
        let data = Data { rows: DEMONSTRATION.rows, seed: 1 };
        let mut lines = String::new();
        for number in 0..1_000 {
            Row { table: 0, cells: record(&data, number) }.append(&mut lines);
        }
        let bytes = lines.len() as u64 * data.rows / 1_000;
        assert!((9_000_000..11_500_000).contains(&bytes), "{bytes}");
    }
}
