//! Forty tables with one planted mistake each, and twenty good ones: no mistake is missed, and at most one is found where
//! there is none.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without, it fails by")]

use partita_advice::{
    ClusterFacts, ColumnFacts, Filter, FilterClass, HotKey, IndexFacts, IntervalFacts, Join,
    Measurements, MovingFacts, PartitionFacts, Placed, Rule, StatementShape, TableFacts,
    Thresholds, advise, declared_tables,
};

const MIB: u64 = 1 << 20;

/// Facts of the definition of one table.
fn declared(sql: &str) -> TableFacts {
    declared_tables(sql).unwrap().remove(0).facts
}

fn column<'t>(table: &'t mut TableFacts, name: &str) -> &'t mut ColumnFacts {
    table.columns.iter_mut().find(|column| column.name == name).unwrap()
}

/// Figures of a column without NULLs.
fn measured(table: &mut TableFacts, name: &str, distinct: u64) {
    let rows = table.rows;
    let facts = column(table, name);
    (facts.values, facts.nulls, facts.distinct) = (rows, Some(0), Some(distinct));
    facts.bytes = rows.map(|rows| rows * 8);
    facts.stored_bytes = rows;
}

/// Even partitions with some load.
fn partitioned(table: &mut TableFacts, number: u64) {
    let rows = table.rows.unwrap() / number;
    table.partitions = (1..=number)
        .map(|id| PartitionFacts {
            id,
            rows: rows + id,
            bytes: 300 * MIB,
            writes_per_s: Some(1_000.0),
            busy: Some(0.2),
            hot: false,
            leader: Some(id % 3 + 1),
        })
        .collect();
    table.bytes = Some(number * 300 * MIB);
}

fn filter(table: &str, column: &str, class: FilterClass) -> Filter {
    Filter { table: format!("public.{table}"), column: column.to_owned(), class }
}

/// Statements that read a host and a span of time.
fn reads(table: &TableFacts, tag: &str) -> StatementShape {
    let name = format!("public.{}", table.name);
    let time = table.time_index.clone().unwrap();
    StatementShape {
        fingerprint: 1,
        kind: "SELECT".to_owned(),
        tables: vec![name],
        calls: 1_000,
        rows_examined: 400_000,
        rows_returned: 200_000,
        partitions_touched: 1_000,
        partitions_total: 1_000 * table.partitions.len() as u64,
        filters: vec![
            filter(&table.name, tag, FilterClass::Point),
            filter(&table.name, &time, FilterClass::Range),
        ],
        newest_ms: Some(3_600_000),
        ..StatementShape::default()
    }
}

fn whole(table: TableFacts, statements: Vec<StatementShape>) -> Measurements {
    let settings = ClusterFacts { column_limit: 1_000, cores: Some(12), nodes: Some(3) };
    Measurements { now_ms: 1, tables: vec![table], statements, settings }
}

/// A good table of metrics; `clause` is its placement.
fn metrics(name: &str, number: u64, clause: &str) -> Measurements {
    let mut table = declared(&format!(
        "CREATE TABLE {name} (host STRING NOT NULL, ts TIMESTAMP(3) TIME INDEX, usage_user DOUBLE, \
         usage_system DOUBLE, note STRING, PRIMARY KEY (host)) {clause} WITH ('comment' = 'metrics')"
    ));
    table.rows = Some(200_000 + number * 1_000);
    (table.deletes, table.folded) = (Some(number), Some(100 + number));
    measured(&mut table, "host", 500 + number * 10);
    measured(&mut table, "ts", 100_000);
    measured(&mut table, "usage_user", 9_000);
    measured(&mut table, "usage_system", 9_000);
    measured(&mut table, "note", 50_000);
    let rows = table.rows.unwrap();
    let nulls = rows / 50;
    let note = column(&mut table, "note");
    (note.values, note.nulls) = (Some(rows - nulls), Some(nulls));
    (note.length_p95, note.length_max, note.numeric_share) = (Some(63), Some(90), Some(0.1));
    note.sample =
        (0..16).map(|number| format!("started {}", ["web", "db", "cache"][number % 3])).collect();
    column(&mut table, "host").sample = (0..16).map(|number| format!("host-{number}")).collect();
    table.shapes = vec![
        (["usage_user", "usage_system", "note"].map(str::to_owned).to_vec(), rows - nulls),
        (["usage_user", "usage_system"].map(str::to_owned).to_vec(), nulls),
    ];
    (table.split_rows, table.row_bytes_max) = (Some(10), Some(2_000));
    table.series = Some(1_500 + number);
    table.series_growth_per_hour = Some(3.0);
    table.intervals = Some(IntervalFacts { mean_ms: 10_000.0, deviation_ms: 300.0 });
    table.moving_right = Some(MovingFacts { share_above: 0.01, last_share: 0.3 });
    partitioned(&mut table, 3 + number % 3);
    let statements = vec![reads(&table, "host")];
    whole(table, statements)
}

/// A good table of logs with an index of each kind.
fn logs(name: &str, number: u64) -> Measurements {
    let mut table = declared(&format!(
        "CREATE TABLE {name} (application STRING NOT NULL, access_time TIMESTAMP TIME INDEX, http_status SMALLINT, \
         http_method STRING INVERTED INDEX, request_id STRING SKIPPING INDEX, request STRING FULLTEXT INDEX, \
         PRIMARY KEY (application)) PARTITION BY HASH (application) PARTITIONS 4 WITH ('append_mode' = 'true')"
    ));
    table.rows = Some(5_000_000 + number);
    for (column, distinct) in [
        ("application", 20),
        ("access_time", 4_000_000),
        ("http_status", 8),
        ("http_method", 5),
        ("request_id", 5_000_000),
        ("request", 10_000),
    ] {
        measured(&mut table, column, distinct);
    }
    column(&mut table, "request_id").sample =
        (10..26).map(|number| format!("25b6f3{number}-41cf-4965-aa19-e1c63a88a7a9")).collect();
    column(&mut table, "request").length_p95 = Some(127);
    for facts in &mut table.columns {
        for index in &mut facts.indexes {
            (index.uses, index.queries_since, index.bytes) = (Some(500), Some(3), Some(MIB));
        }
    }
    partitioned(&mut table, 4);
    let mut statement = reads(&table, "application");
    statement.filters.push(filter(name, "request_id", FilterClass::Point));
    (statement.rows_examined, statement.rows_returned) = (200_000_000, 1_000);
    whole(table, vec![statement])
}

/// A good table of line protocol.
fn lines(name: &str, number: u64) -> Measurements {
    let mut table = declared(&format!(
        "CREATE TABLE {name} (room STRING, sensor STRING, time TIMESTAMP(9) TIME INDEX, temperature DOUBLE, \
         humidity DOUBLE, co BIGINT, PRIMARY KEY (room, sensor)) WITH ('merge_mode' = 'last_non_null')"
    ));
    table.rows = Some(100_000 + number);
    (table.deletes, table.folded) = (Some(0), Some(5));
    for (column, distinct) in [
        ("room", 40),
        ("sensor", 400),
        ("time", 90_000),
        ("temperature", 200),
        ("humidity", 90),
        ("co", 30),
    ] {
        measured(&mut table, column, distinct);
    }
    column(&mut table, "co").nulls = Some(50);
    table.series = Some(1_200);
    partitioned(&mut table, 3);
    let statements = vec![reads(&table, "room")];
    whole(table, statements)
}

#[test]
fn good_tables_are_left_alone() {
    let mut found = Vec::new();
    for (number, letter) in (0..).zip(["a", "b", "c", "d", "e"]) {
        let good = [
            metrics(&format!("cpu_{letter}"), number, ""),
            metrics(&format!("mem_{letter}"), number, "PARTITION BY HASH (host) PARTITIONS 4"),
            logs(&format!("http_logs_{letter}"), number),
            lines(&format!("home_{letter}"), number),
        ];
        for measurements in good {
            found.extend(advise(&measurements, &Thresholds::default()));
        }
    }
    assert!(found.len() <= 1, "{found:#?}");
}

/// Plants A01 to A10.
fn plant_first(rule: Rule, table: &mut TableFacts, statements: &mut [StatementShape]) {
    let rows = table.rows;
    match rule {
        Rule::A01 => {
            let field = ColumnFacts { semantic: "field".to_owned(), ..ColumnFacts::default() };
            let more = (0..200)
                .map(|number| ColumnFacts { name: format!("more{number}"), ..field.clone() });
            table.columns.extend(more);
        }
        Rule::A02 => {
            for name in ["area", "rack", "team", "service", "zone"] {
                let tag = ColumnFacts {
                    name: name.to_owned(),
                    semantic: "tag".to_owned(),
                    ..ColumnFacts::default()
                };
                table.columns.push(tag);
                table.key.insert(0, name.to_owned());
            }
        }
        Rule::A03 => {
            let note = column(table, "note");
            (note.values, note.nulls) = (Some(1_000), rows.map(|rows| rows - 1_000));
        }
        Rule::A04 => {
            table.shapes = vec![
                (vec!["usage_user".to_owned()], 100_000),
                (vec!["usage_system".to_owned(), "note".to_owned()], 100_000),
            ];
        }
        Rule::A05 => column(table, "note").numeric_share = Some(1.0),
        Rule::A06 => {
            column(table, "note").length_p95 = Some(4_095);
            statements[0].filters.push(filter(&table.name, "note", FilterClass::Terms));
        }
        Rule::A07 => {
            column(table, "host").sample =
                (0..16).map(|number| format!("loc-room{number}.model-A6.id-{number}")).collect();
        }
        Rule::A08 => "cpu_server_17".clone_into(&mut table.name),
        Rule::A09 => table.split_rows = rows.map(|rows| rows / 2),
        _ => "select".clone_into(&mut column(table, "note").name),
    }
}

/// Plants A11 to A20.
fn plant_second(rule: Rule, measurements: &mut Measurements) {
    let table = &mut measurements.tables[0];
    let rows = table.rows;
    match rule {
        Rule::A11 => column(table, "host").distinct = Some(20_000),
        Rule::A12 => column(table, "host").distinct = rows.map(|rows| rows / 10 * 9),
        Rule::A13 => {
            let mut other = table.clone();
            "gpu".clone_into(&mut other.name);
            let join = Join {
                left: "public.gpu".to_owned(),
                right: format!("public.{}", table.name),
                on: vec!["host".to_owned(), "ts".to_owned()],
            };
            measurements.statements[0].joins.push(join);
            measurements.tables.push(other);
        }
        Rule::A14 => table.moving_right = Some(MovingFacts { share_above: 0.99, last_share: 0.99 }),
        Rule::A15 => column(table, "host").nulls = Some(1),
        Rule::A16 => column(table, "host").length_max = Some(2_151),
        Rule::A17 => "DOUBLE".clone_into(&mut column(table, "host").column_type),
        Rule::A18 => {
            let mut statement = measurements.statements[0].clone();
            statement.filters = vec![filter(&table.name, "note", FilterClass::Point)];
            (statement.rows_examined, statement.rows_returned) = (200_000_000, 1_000);
            measurements.statements.push(statement);
        }
        Rule::A19 => {
            let index = IndexFacts {
                name: "usages".to_owned(),
                queries_since: Some(5_000),
                kind: "inverted".to_owned(),
                ..IndexFacts::default()
            };
            column(table, "usage_user").indexes.push(index);
        }
        _ => {
            let index = IndexFacts {
                name: "by_time".to_owned(),
                kind: "skipping".to_owned(),
                ..IndexFacts::default()
            };
            column(table, "ts").indexes.push(index);
        }
    }
}

/// Plants A21 to A30.
fn plant_third(rule: Rule, table: &mut TableFacts, statements: &mut [StatementShape]) {
    match rule {
        Rule::A21 => {
            let index = IndexFacts {
                name: "notes".to_owned(),
                kind: "inverted".to_owned(),
                ..IndexFacts::default()
            };
            column(table, "note").indexes.push(index);
        }
        Rule::A22 => table.placement = Placed::Rules { columns: vec!["ts".to_owned()] },
        Rule::A23 => {
            partitioned(table, 12);
            for partition in &mut table.partitions {
                (partition.bytes, partition.busy) = (MIB, Some(0.01));
            }
        }
        Rule::A24 => table.partitions[1].busy = Some(0.9),
        Rule::A25 => {
            partitioned(table, 8);
            table.partitions[7].rows *= 10;
        }
        Rule::A26 => {
            statements[0].partitions_touched = statements[0].partitions_total;
            statements[0].filters = vec![filter(&table.name, "note", FilterClass::Point)];
        }
        Rule::A27 => {
            "BINARY".clone_into(&mut column(table, "note").column_type);
            column(table, "note").stored_bytes = Some(100_000_000);
            statements[0].columns.push((format!("public.{}", table.name), "note".to_owned()));
        }
        Rule::A28 => table.versions_per_key = Some(20_000.0),
        Rule::A29 => {
            (table.bucket_seconds, table.versions_per_key) = (Some(86_400), Some(5_000_000.0))
        }
        _ => {
            table
                .columns
                .retain(|column| !["usage_system", "note"].contains(&column.name.as_str()));
        }
    }
}

/// Plants A31 to A40.
fn plant_last(rule: Rule, measurements: &mut Measurements) {
    let table = &mut measurements.tables[0];
    match rule {
        Rule::A31 => table.dependent_tags = vec![("host".to_owned(), "rack".to_owned())],
        Rule::A32 => {
            table.placement = Placed::Hash { columns: vec!["ts".to_owned(), "host".to_owned()] }
        }
        Rule::A33 => column(table, "host").distinct = Some(2),
        Rule::A34 => {
            table.partitions[0].hot = true;
            table.hot_keys = vec![HotKey { key: "('host-1')".to_owned(), share: 0.5 }];
        }
        Rule::A35 => (table.deletes, table.folded) = (Some(0), Some(0)),
        Rule::A36 => {
            table.merge_mode = Some("last_non_null".to_owned());
            column(table, "note").nulls = Some(0);
        }
        Rule::A37 => table.placement = Placed::Hash { columns: vec!["note".to_owned()] },
        Rule::A38 => {
            table.intervals = Some(IntervalFacts { mean_ms: 10_000.0, deviation_ms: 9_000.0 })
        }
        Rule::A39 => {
            let mut other = table.clone();
            "archive".clone_into(&mut other.name);
            let mut statement = reads(&other, "host");
            statement.newest_ms = Some(365 * 86_400_000);
            measurements.statements.push(statement);
            measurements.tables.push(other);
        }
        _ => {
            (table.min_partitions, table.max_partitions) = (1, 100);
            table.split_merge_cycles_per_day = Some(12.0);
        }
    }
}

/// Plants the mistake that a rule finds.
fn plant(number: u64, rule: Rule, measurements: &mut Measurements) {
    match number / 10 {
        1 => return plant_second(rule, measurements),
        3 => return plant_last(rule, measurements),
        _ => {}
    }
    let Measurements { tables, statements, .. } = measurements;
    match number / 10 {
        0 => plant_first(rule, &mut tables[0], statements),
        _ => plant_third(rule, &mut tables[0], statements),
    }
}

#[test]
fn every_planted_mistake_is_found() {
    let mut missed = Vec::new();
    for (number, rule) in (0..).zip(Rule::ALL) {
        let mut measurements = metrics("cpu", number, "");
        let before = advise(&measurements, &Thresholds::default());
        assert!(before.is_empty(), "before {rule:?}: {before:#?}");
        plant(number, rule, &mut measurements);
        let findings = advise(&measurements, &Thresholds::default());
        if !findings.iter().any(|finding| finding.rule == rule) {
            missed.push((rule, findings));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn every_advised_statement_parses() {
    for (number, rule) in (0..).zip(Rule::ALL) {
        let mut measurements = metrics("cpu", number, "");
        plant(number, rule, &mut measurements);
        for finding in advise(&measurements, &Thresholds::default()) {
            if let Some(ddl) = &finding.ddl {
                assert!(partita_sql::parse(ddl).is_ok(), "{}: {ddl}", finding.rule.id());
                assert!(!ddl.contains("DROP TABLE"), "{ddl}");
            }
        }
    }
}
