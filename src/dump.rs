//! `partita dump`: writes the definitions and the rows of a database into a directory, which `partita load` reads.
//!
//! ```text
//!   DIRECTORY/schema.sql      sequences, tables, materialized copies, views, in an order in which they can be created
//!   DIRECTORY/data/NAME.csv   rows of a table, by COPY; or NAME.ndjson, or NAME.parquet by HTTP
//!   DIRECTORY/after.sql       the numbers that sequences have reached
//! ```
//!
//! Invariants:
//! - the directory appears under its name when it is complete; an unfinished one ends with `.partial`;
//! - each table is read by one query. Rows that are written meanwhile may be in one table and not in another.
//!
//! Roles, rights, tokens, tasks and comments of views are not dumped, and identity columns become columns with a default
//! of their sequence.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use futures::TryStreamExt;
use http_body_util::{BodyExt, Full};
use hyper::header::AUTHORIZATION;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::client::{self, Connector};
use crate::load::{AFTER_FILE, DATA_DIRECTORY, SCHEMA_FILE, file_name, urlencode};
use crate::sql;

/// End of the names of tables that hold rows of a former placement, and are read with their tables.
const FORMER: &str = "$former";
/// Begin of the definition of a table whose rows are those of another one.
const COPY_DEFINITION: &str = "CREATE MATERIALIZED COPY";

/// Options of `partita dump`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Directory to write; it must not exist.
    directory: PathBuf,
    /// Table to dump, may be repeated; by default all tables and views, and all sequences.
    #[arg(short, long)]
    table: Vec<String>,
    /// Database to dump.
    #[arg(short, long, default_value = "public")]
    database: String,
    /// Format of the rows.
    #[arg(long, value_enum, default_value_t = Format::Csv)]
    format: Format,
    /// Write definitions only.
    #[arg(long)]
    schema_only: bool,
    /// HTTP address of the server, for Parquet.
    #[arg(long, env = "PARTITA_HTTP", default_value = "127.0.0.1:4000")]
    http: String,
    /// PostgreSQL address of the server.
    #[arg(long, env = "PARTITA_POSTGRES", default_value = "127.0.0.1:4003")]
    postgres: String,
    #[command(flatten)]
    client: client::Options,
}

/// Format of the files of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Comma-separated values with a header line.
    Csv,
    /// A JSON object on each line.
    Ndjson,
    /// Apache Parquet.
    Parquet,
}

impl Format {
    fn ending(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Ndjson => "ndjson",
            Self::Parquet => "parquet",
        }
    }
}

/// Names and definitions of tables or views.
type Definitions = Vec<(String, String)>;

/// Writes the directory.
///
/// # Errors
/// If the directory exists or cannot be written, or the server cannot be reached or refuses.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let directory = &options.directory;
    if directory.exists() {
        bail!("{} exists", directory.display());
    }
    let mut partial = directory.clone().into_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    std::fs::create_dir(&partial)
        .with_context(|| format!("cannot create {}", partial.display()))?;
    let client = sql::connect(&options.client, &options.postgres, &options.database).await?;
    command(&client, "SET timezone = 'UTC'").await?;
    let tables = write_schema(&options, &client, &partial).await?;
    let data = partial.join(DATA_DIRECTORY);
    std::fs::create_dir(&data)?;
    let mut dumped = 0;
    if !options.schema_only {
        for table in &tables {
            let path = data.join(file_name(table, options.format.ending()));
            let written = write_rows(&options, &client, table, &path).await;
            written.with_context(|| format!("cannot dump table {table}"))?;
            dumped += 1;
        }
        if options.table.is_empty() {
            let statements = numbers(&client, &options.database).await?;
            write_file(&partial.join(AFTER_FILE), &statements)?;
        }
    }
    std::fs::rename(&partial, directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let tables = tables.len();
    sql::say(&format!("{tables} tables, the rows of {dumped} of them"))?;
    Ok(())
}

/// Writes the definitions; returns the tables that have rows of their own.
async fn write_schema(
    options: &Options,
    client: &Client,
    directory: &Path,
) -> anyhow::Result<Vec<String>> {
    let named = &options.table;
    let in_database = format!(
        "FROM information_schema.tables WHERE table_schema = {}",
        literal(&options.database)
    );
    let names = |kind: &str| {
        format!("SELECT table_name {in_database} AND table_type = '{kind}' ORDER BY table_name")
    };
    let mut statements = Vec::new();
    if named.is_empty() {
        statements = sequences(client, &options.database).await?;
    }
    // Tables in the order of their names, and copies after their sources.
    let (mut tables, mut copies) = (Vec::new(), Vec::new());
    for name in texts(client, &names("BASE TABLE")).await? {
        if name.ends_with(FORMER) || !named.is_empty() && !named.contains(&name) {
            continue;
        }
        let definition = definition(client, "TABLE", &name).await?;
        if definition.starts_with(COPY_DEFINITION) {
            copies.push(definition);
        } else {
            statements.push(definition);
            tables.push(name);
        }
    }
    if let Some(missing) = named.iter().find(|name| !tables.contains(name)) {
        bail!("there is no table {missing} in database {}", options.database);
    }
    statements.append(&mut copies);
    if named.is_empty() {
        let mut views = Definitions::new();
        for name in texts(client, &names("VIEW")).await? {
            let definition = definition(client, "VIEW", &name).await?;
            views.push((name, definition));
        }
        statements.extend(in_order(views));
    }
    let text: String = statements.iter().map(|statement| format!("{statement};\n\n")).collect();
    write_file(&directory.join(SCHEMA_FILE), &text)?;
    Ok(tables)
}

/// Orders views so that each comes after those whose names it has in its text.
fn in_order(mut views: Definitions) -> Vec<String> {
    let mut ordered = Vec::with_capacity(views.len());
    while !views.is_empty() {
        let reads_no_other = |(name, definition): &(String, String)| {
            let mut others = views.iter().filter(|(other, _)| other != name);
            !others.any(|(other, _)| has_word(definition, other))
        };
        // A name may also stand in a text or be that of a column.
        let next = views.iter().position(reads_no_other).unwrap_or(0);
        ordered.push(views.remove(next).1);
    }
    ordered
}

/// True if a text has a name that is not a part of a longer one.
fn has_word(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    text.match_indices(name).any(|(start, _)| {
        let (before, after) = (&text[..start], &text[start + name.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

/// The statements that create the sequences of the database.
async fn sequences(client: &Client, database: &str) -> anyhow::Result<Vec<String>> {
    let query = format!(
        "SELECT sequencename, data_type, increment_by, min_value, max_value, start_value, cache_size, cycle \
         FROM pg_sequences WHERE schemaname = {} ORDER BY sequencename",
        literal(database)
    );
    let mut statements = Vec::new();
    for row in rows(client, &query).await? {
        let [name, data_type, increment, min, max, start, cache, cycle] = row.as_slice() else {
            bail!("the server describes sequences in another way");
        };
        let cycle = if cycle == "t" { " CYCLE" } else { "" };
        statements.push(format!(
            "CREATE SEQUENCE {} AS {data_type} INCREMENT BY {increment} MINVALUE {min} MAXVALUE {max} \
             START WITH {start} CACHE {cache}{cycle}",
            sql::quote(name)
        ));
    }
    Ok(statements)
}

/// The statements that set sequences to the numbers that they have reached.
async fn numbers(client: &Client, database: &str) -> anyhow::Result<String> {
    let query = format!(
        "SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = {} AND last_value IS NOT NULL \
         ORDER BY sequencename",
        literal(database)
    );
    let mut text = String::new();
    for row in rows(client, &query).await? {
        let [name, last] = row.as_slice() else {
            bail!("the server describes sequences in another way");
        };
        text.push_str(&format!("SELECT setval({}, {last});\n", literal(&sql::quote(name))));
    }
    Ok(text)
}

/// The statement that creates a table or a view.
async fn definition(client: &Client, kind: &str, name: &str) -> anyhow::Result<String> {
    let query = format!("SHOW CREATE {kind} {}", sql::quote(name));
    let found = rows(client, &query).await?.pop();
    let definition = found.and_then(|mut row| row.pop());
    definition.with_context(|| format!("the server does not describe {name}"))
}

/// Writes the rows of a table into a file, without generated columns.
async fn write_rows(
    options: &Options,
    client: &Client,
    table: &str,
    path: &Path,
) -> anyhow::Result<()> {
    let query = format!(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = {} AND table_name = {} \
         AND is_generated = 'NEVER' ORDER BY ordinal_position",
        literal(&options.database),
        literal(table)
    );
    let columns = texts(client, &query).await?;
    let columns: Vec<String> = columns.iter().map(|column| sql::quote(column)).collect();
    let columns = columns.join(", ");
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut file = BufWriter::new(file);
    let copy_options = match options.format {
        Format::Csv => "FORMAT csv, HEADER",
        Format::Ndjson => "FORMAT ndjson",
        Format::Parquet => {
            let query = format!("SELECT {columns} FROM {}", sql::quote(table));
            write_parquet(options, &query, &mut file).await?;
            return close(file);
        }
    };
    let copy = format!("COPY {} ({columns}) TO STDOUT ({copy_options})", sql::quote(table));
    let failed = |error: tokio_postgres::Error| anyhow!("{}", sql::describe(&error));
    let chunks = client.copy_out(&copy).await.map_err(failed)?;
    let mut chunks = std::pin::pin!(chunks);
    while let Some(chunk) = chunks.try_next().await.map_err(failed)? {
        file.write_all(&chunk)?;
    }
    close(file)
}

/// Writes the answer of a query over HTTP as it arrives.
async fn write_parquet(
    options: &Options,
    query: &str,
    file: &mut BufWriter<File>,
) -> anyhow::Result<()> {
    let tls = options.client.tls();
    let client: legacy::Client<Connector, Full<Bytes>> =
        legacy::Client::builder(TokioExecutor::new()).build(tls.connector(b"http/1.1")?);
    let path = format!(
        "/api/v3/query_sql?db={}&format=parquet&q={}",
        urlencode(&options.database),
        urlencode(query)
    );
    let uri = tls.url(&options.http, &path)?;
    let mut request = hyper::Request::get(&uri);
    if let Some(value) = options.client.authorization()? {
        request = request.header(AUTHORIZATION, value);
    }
    let response = client
        .request(request.body(Full::default())?)
        .await
        .with_context(|| format!("cannot reach {}; is the server running?", options.http))?;
    let status = response.status();
    let mut body = response.into_body();
    if !status.is_success() {
        let text = body.collect().await?.to_bytes();
        bail!("the server refused the query: {status} {}", String::from_utf8_lossy(&text));
    }
    while let Some(frame) = body.frame().await {
        // Trailers have no rows.
        if let Ok(data) = frame?.into_data() {
            file.write_all(&data)?;
        }
    }
    Ok(())
}

fn close(file: BufWriter<File>) -> anyhow::Result<()> {
    let file = file.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    file.sync_all()?;
    Ok(())
}

fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

async fn command(client: &Client, text: &str) -> anyhow::Result<()> {
    client.batch_execute(text).await.map_err(|error| anyhow!("{}", sql::describe(&error)))
}

/// The rows of a query as texts; NULL is empty.
async fn rows(client: &Client, query: &str) -> anyhow::Result<Vec<Vec<String>>> {
    let messages = client.simple_query(query).await;
    let messages = messages.map_err(|error| anyhow!("{}", sql::describe(&error)))?;
    let mut rows = Vec::new();
    for message in messages {
        if let SimpleQueryMessage::Row(row) = message {
            let cell = |column: usize| row.get(column).unwrap_or_default().to_owned();
            rows.push((0..row.len()).map(cell).collect());
        }
    }
    Ok(rows)
}

/// The only column of a query's rows.
async fn texts(client: &Client, query: &str) -> anyhow::Result<Vec<String>> {
    Ok(rows(client, query).await?.into_iter().flatten().collect())
}

/// A text as a literal of SQL.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_come_after_those_that_they_read() {
        let views = [("a", "CREATE VIEW a AS SELECT 1 FROM z"), ("z", "CREATE VIEW z AS SELECT 1")];
        let views = views.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec();
        assert!(in_order(views)[0].starts_with("CREATE VIEW z"));
        let views = [("a", "SELECT 1 FROM b, t"), ("b", "SELECT 1 FROM cc"), ("cc", "SELECT 1")];
        let views = views.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec();
        assert_eq!(in_order(views), ["SELECT 1", "SELECT 1 FROM cc", "SELECT 1 FROM b, t"]);
        // Names that meet by chance keep nothing back.
        let views = [("x", "SELECT y"), ("y", "SELECT x")];
        let views = views.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec();
        assert_eq!(in_order(views).len(), 2);
    }

    #[test]
    fn literals_keep_their_quotes() {
        assert_eq!(literal("o'clock"), "'o''clock'");
    }
}
