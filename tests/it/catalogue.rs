//! The lab's catalogue of workloads against a real server: what is derived of each is SQL that the server takes, and means
//! there what it means in the catalogue.

use partita_hotspot::workload::{
    Design, Kind, Knobs, Op, Row, SqlTable, Stream, TableLoad, Workload, all,
};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::server::{Server, one};

/// Partitions that tables begin with, as far as they are cut.
const PARTITIONS: u32 = 3;
/// When the tables' runs begin, microseconds since the Unix epoch.
const BEGIN_US: i64 = 1_790_000_000_000_000;
/// Operations of each table that are carried out.
const OPERATIONS: usize = 40;

fn designs(workload: &Workload) -> &'static [Design] {
    if workload.designs { &Design::ALL } else { &[Design::UidTs] }
}

fn loads(workload: &Workload, design: Design) -> Vec<TableLoad> {
    let knobs = Knobs {
        entities: 40,
        records: 300,
        partitions: PARTITIONS,
        hour_s: 30,
        ..Knobs::of(design, 50.0)
    };
    workload.tables(&knobs)
}

/// Runs a statement; how many rows came.
async fn run(client: &Client, sql: &str) -> usize {
    let said = client.simple_query(sql).await.unwrap_or_else(|error| {
        let text = error.as_db_error().map_or(error.to_string(), ToString::to_string);
        panic!("{text}: {}", &sql[..sql.len().min(400)])
    });
    said.iter().filter(|message| matches!(message, SimpleQueryMessage::Row(_))).count()
}

/// The first operations of a table: its rows, and what is read.
fn operations(load: &TableLoad, table: &SqlTable) -> (Vec<Row>, Vec<String>) {
    let (mut stream, mut op) = (Stream::new(&load.sources, 5), Op::default());
    let (mut rows, mut reads) = (Vec::new(), Vec::new());
    for _ in 0..OPERATIONS {
        let (at_us, kind) = stream.next(&mut op).unwrap();
        if kind == Kind::Write {
            rows.push(table.row(at_us, &op).unwrap());
        } else {
            reads.push(table.read(&op).unwrap());
        }
    }
    (rows, reads)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_workload_of_the_catalogue_is_sql_that_a_server_takes() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"));
    let client = server.connect().await;
    let mut read = 0;
    for workload in all() {
        for design in designs(&workload) {
            let loads = loads(&workload, *design);
            let names = ["first", "second"];
            let tables: Vec<SqlTable> = loads
                .iter()
                .zip(names)
                .map(|(load, name)| SqlTable::of(load, &format!("catalogue_{name}"), BEGIN_US))
                .collect();
            assert_eq!(tables.len(), loads.len());
            let of = format!("{} {design:?}", workload.name);
            let (rows, reads) = operations(&loads[0], &tables[0]);
            for (table, load) in tables.iter().zip(&loads) {
                run(&client, &table.create()).await;
                let count = format!(
                    "SELECT count(*) FROM sys.partitions WHERE \"table\" = '{}'",
                    table.name()
                );
                let partitions: usize = one(&client, &count).await.parse().unwrap();
                let most = load.cuts.len() + 1;
                // Cuts of a week that are an hour apart come to one.
                assert!(partitions == most || workload.name == "W2:week", "{of}: {partitions}");
                let prior = SqlTable::prior(load);
                if !prior.is_empty() {
                    run(&client, &table.insert(&prior)).await;
                }
                if !rows.is_empty() {
                    run(&client, &table.insert(&rows)).await;
                }
                let stored = one(&client, &format!("SELECT count(*) FROM {}", table.name())).await;
                // Rows of a key replace each other: records only.
                let events = table.entity().is_some();
                let expected = rows.len() + prior.len();
                let stored: usize = stored.parse().unwrap();
                assert!(stored == expected || (!events && stored <= expected), "{of}: {stored}");
            }
            for sql in &reads {
                let came = run(&client, sql).await;
                // What is there before is found, all of it.
                let found = !SqlTable::prior(&loads[0]).is_empty() && workload.name != "W6:latest";
                assert!(came == 1 || !found, "{of}: {sql}");
                read += came;
            }
            for table in &tables {
                run(&client, &format!("DROP TABLE {}", table.name())).await;
            }
        }
    }
    assert!(read > 200, "{read}");
}
