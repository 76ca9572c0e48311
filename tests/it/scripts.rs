//! SQL scripts: what a user types and sees, in `tests/sql/*.slt`, each against a server of its own.
//!
//! Those in `tests/sql/portable` say nothing that PostgreSQL would not take, and have its answers; their tables have
//! a key. They run twice: as they are written, and with tables cut by hash, whose rows are in files and whose queries run
//! at the data. Those in `tests/sql/requirements` show that what is asked of indexes, the advisor, series, rows, copies and
//! designs is there.
//!
//! To repeat one: `PARTITA_SLT=name cargo test --test it scripts`.

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::server::Server;

/// How a script's tables are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// As the script says.
    AsWritten,
    /// Cut by hash of the first key column, flushed after each INSERT; queries run at the data.
    Cut,
}

impl Layout {
    /// A statement as this layout has it.
    fn statement(self, sql: &str) -> Cow<'_, str> {
        match first_key_column(sql) {
            Some(column) if self == Self::Cut => {
                Cow::Owned(format!("{} PARTITION BY HASH ({column}) PARTITIONS 3", sql.trim_end()))
            }
            _ => Cow::Borrowed(sql),
        }
    }

    /// The table to flush after a statement that succeeded.
    fn flushed(self, sql: &str) -> Option<&str> {
        let table = sql.strip_prefix("INSERT INTO ")?.split_whitespace().next()?;
        (self == Self::Cut).then_some(table)
    }
}

/// The first key column of a table that a statement creates; `None` if it creates none, or a temporary one.
fn first_key_column(sql: &str) -> Option<&str> {
    let definition = sql.strip_prefix("CREATE TABLE ")?;
    if let Some((_, key)) = definition.split_once("PRIMARY KEY (") {
        return key.split([',', ')']).next();
    }
    let (_, columns) = definition.split_once('(')?;
    let mut depth = 0;
    let mut columns = columns.split(|character| {
        depth += i32::from(character == '(') - i32::from(character == ')');
        character == ',' && depth == 0
    });
    columns.find(|column| column.contains(" PRIMARY KEY"))?.split_whitespace().next()
}

/// The table that a statement creates for its session only.
fn temporary_table(sql: &str) -> Option<&str> {
    let name = ["CREATE TEMP TABLE ", "CREATE TEMPORARY TABLE "]
        .iter()
        .find_map(|beginning| sql.strip_prefix(beginning))?;
    name.split([' ', '(']).next()
}

/// A connection that the script runner drives.
struct Door {
    client: Client,
    layout: Layout,
    /// Temporary tables of its session, which are in memory and cannot be flushed.
    temporary: HashSet<String>,
}

impl Door {
    async fn open(server: &Server, layout: Layout) -> Self {
        let client = server.connect().await;
        if layout == Layout::Cut {
            client.batch_execute("SET run_at_data = always").await.unwrap();
        }
        Self { client, layout, temporary: HashSet::new() }
    }

    async fn query(&self, sql: &str) -> Result<Vec<SimpleQueryMessage>, Said> {
        self.client.simple_query(sql).await.map_err(|error| {
            Said(error.as_db_error().map_or(error.to_string(), |said| {
                format!("{} {}", said.code().code(), said.message())
            }))
        })
    }
}

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
        let messages = self.query(&self.layout.statement(sql)).await?;
        self.temporary.extend(temporary_table(sql).map(str::to_owned));
        if let Some(table) = self.layout.flushed(sql)
            && !self.temporary.contains(table)
        {
            self.query(&format!("ADMIN flush_table('{table}')")).await?;
        }
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

async fn run_script(path: &Path, layout: Layout) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"));
    let mut runner = sqllogictest::Runner::new(|| async { Ok(Door::open(&server, layout).await) });
    runner
        .run_file_async(path)
        .await
        .map_err(|error| format!("{layout:?}: {}\n{}", error.display(false), server.log()))
}

/// Folders of scripts, below the package.
const FOLDERS: [&str; 3] = ["tests/sql", "tests/sql/portable", "tests/sql/requirements"];

/// The scripts of a folder, in the order of their names.
fn scripts_in(folder: &str) -> Vec<PathBuf> {
    let mut scripts: Vec<_> = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "slt"))
        .collect();
    scripts.sort();
    assert!(!scripts.is_empty(), "no script in {folder}");
    scripts
}

/// The scripts of a folder that are to be run: all, or the one that `PARTITA_SLT` names.
fn chosen_in(folder: &str) -> Vec<PathBuf> {
    let Ok(only) = std::env::var("PARTITA_SLT") else {
        return scripts_in(folder);
    };
    let is_meant = |path: &PathBuf| path.file_stem().is_some_and(|stem| stem == only.as_str());
    // The name may be one of another folder; a name of none would pass without having run anything.
    assert!(
        FOLDERS.iter().flat_map(|folder| scripts_in(folder)).any(|path| is_meant(&path)),
        "no script is named {only}"
    );
    scripts_in(folder).into_iter().filter(is_meant).collect()
}

async fn run_scripts(folder: &str, layouts: &[Layout]) {
    let mut failures = Vec::new();
    for script in chosen_in(folder) {
        for layout in layouts {
            if let Err(failure) = run_script(&script, *layout).await {
                failures.push(failure);
            }
        }
    }
    assert!(failures.is_empty(), "{} scripts failed:\n{}", failures.len(), failures.join("\n\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_scripts_give_what_they_say() {
    run_scripts(FOLDERS[0], &[Layout::AsWritten]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requirements_are_met_as_they_are_written() {
    run_scripts(FOLDERS[2], &[Layout::AsWritten]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn portable_scripts_give_what_postgresql_does() {
    run_scripts(FOLDERS[1], &[Layout::AsWritten, Layout::Cut]).await;
}
