//! SQL scripts: what a user types and sees, in `tests/sql/*.slt`, each against a server of its own.
//!
//! To repeat one: `PARTITA_SLT=name cargo test --test it sql_scripts`.

use std::path::Path;

use async_trait::async_trait;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::server::Server;

/// A connection that the script runner drives.
struct Door(Client);

/// An error as a script expects it: SQLSTATE, then the message.
#[derive(Debug)]
struct Said(String);

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Said {}

#[async_trait]
impl AsyncDB for Door {
    type Error = Said;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Said> {
        let messages = self.0.simple_query(sql).await.map_err(|error| {
            Said(error.as_db_error().map_or(error.to_string(), |said| {
                format!("{} {}", said.code().code(), said.message())
            }))
        })?;
        let (mut columns, mut rows, mut affected) = (None, Vec::new(), 0);
        for message in messages {
            match message {
                SimpleQueryMessage::RowDescription(description) => {
                    columns = Some(description.len());
                }
                SimpleQueryMessage::Row(row) => rows.push(
                    (0..row.len())
                        .map(|at| match row.get(at) {
                            None => "NULL".to_owned(),
                            Some("") => "(empty)".to_owned(),
                            Some(text) => text.to_owned(),
                        })
                        .collect::<Vec<_>>(),
                ),
                SimpleQueryMessage::CommandComplete(count) => affected = count,
                _ => {}
            }
        }
        Ok(match columns {
            Some(columns) => DBOutput::Rows { types: vec![DefaultColumnType::Any; columns], rows },
            None => DBOutput::StatementComplete(affected),
        })
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &'static str {
        "partita"
    }
}

async fn run_script(path: &Path) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"));
    let mut runner = sqllogictest::Runner::new(|| async { Ok(Door(server.connect().await)) });
    runner
        .run_file_async(path)
        .await
        .map_err(|error| format!("{}\n{}", error.display(false), server.log()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_scripts_give_what_they_say() {
    let only = std::env::var("PARTITA_SLT").ok();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sql");
    let mut scripts: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "slt"))
        .filter(|path| {
            only.as_ref()
                .is_none_or(|only| path.file_stem().is_some_and(|stem| stem == only.as_str()))
        })
        .collect();
    scripts.sort();
    assert!(!scripts.is_empty(), "no script to run");
    let mut failures = Vec::new();
    for script in scripts {
        if let Err(failure) = run_script(&script).await {
            failures.push(failure);
        }
    }
    assert!(failures.is_empty(), "{} scripts failed:\n{}", failures.len(), failures.join("\n\n"));
}
