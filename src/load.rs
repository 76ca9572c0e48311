//! `partita load`: loads a file into a table, or the directory of a dump, with a progress bar and a final rate.
//!
//! | file | way |
//! |---|---|
//! | line protocol (`.lp`, `.line`, `.influx`, `.txt`) | `POST /api/v2/write`, whole lines, several requests in flight |
//! | CSV (`.csv`, `.tsv`) | `COPY ... FROM STDIN`, so the server reads types and defaults |
//! | NDJSON (`.ndjson`, `.jsonl`) | the same; the keys of the first line are the columns |
//! | Parquet (`.parquet`) | Arrow Flight DoPut, column by column |
//!
//! Rows are acknowledged durably; a failure reports the line of the file, or how many rows are stored. Loading a file again into a table with a key is
//! harmless: rows with equal keys replace each other.
//!
//! A directory is one that `partita dump` (`dump.rs`) wrote: first its definitions are run, then the files of rows are
//! loaded, each into the table of its name, then the numbers of sequences are set.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use arrow_flight::FlightDescriptor;
use arrow_flight::client::FlightClient;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use bytes::Bytes;
use futures::{SinkExt, StreamExt, TryStreamExt};
use http_body_util::{BodyExt, Full};
use hyper::header::AUTHORIZATION;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use indicatif::{ProgressBar, ProgressStyle};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tokio::task::JoinSet;

use crate::client::{self, Connector};
use crate::sql;

/// Bytes of line protocol in one request.
const REQUEST_BYTES: usize = 1 << 20;
/// Maximum requests in flight.
const REQUESTS_MAX: usize = 4;
/// Bytes of CSV in one message.
const COPY_BYTES: usize = 256 << 10;
/// Definitions in the directory of a dump.
pub(crate) const SCHEMA_FILE: &str = "schema.sql";
/// Files of rows in the directory of a dump.
pub(crate) const DATA_DIRECTORY: &str = "data";
/// Statements that follow the rows of a dump.
pub(crate) const AFTER_FILE: &str = "after.sql";
/// Rows of Parquet in one message.
const BATCH_ROWS: usize = 8_192;

/// Options of `partita load`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// File to load, or the directory of a dump.
    file: PathBuf,
    /// Table; line protocol names its own.
    #[arg(short, long)]
    table: Option<String>,
    /// Database to load into.
    #[arg(short, long, default_value = "public")]
    database: String,
    /// Format of the file; by default taken from its extension.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Load the rows of a dump into tables that are there.
    #[arg(long)]
    data_only: bool,
    /// Unit of line protocol's timestamps: ns, us, ms or s.
    #[arg(long, default_value = "ns")]
    precision: String,
    /// HTTP address of the server.
    #[arg(long, env = "PARTITA_HTTP", default_value = "127.0.0.1:4000")]
    http: String,
    /// PostgreSQL address of the server.
    #[arg(long, env = "PARTITA_POSTGRES", default_value = "127.0.0.1:4003")]
    postgres: String,
    #[command(flatten)]
    client: client::Options,
}

/// Format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// InfluxDB's line protocol.
    Lp,
    /// Comma-separated values with a header line that names columns.
    Csv,
    /// Tab-separated values with a header line that names columns.
    Tsv,
    /// A JSON object on each line.
    Ndjson,
    /// Apache Parquet.
    Parquet,
}

impl Format {
    fn of(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        Some(match ending.as_str() {
            "lp" | "line" | "influx" | "txt" => Self::Lp,
            "csv" => Self::Csv,
            "tsv" => Self::Tsv,
            "ndjson" | "jsonl" => Self::Ndjson,
            "parquet" | "pq" => Self::Parquet,
            _ => return None,
        })
    }
}

/// Loads the file.
///
/// # Errors
/// If the file cannot be read, or the server cannot be reached or refuses rows.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    if options.file.is_dir() {
        return Box::pin(load_directory(&options)).await;
    }
    Box::pin(load_file(&options, &options.file, options.table.as_deref())).await
}

/// Loads the directory of a dump.
async fn load_directory(options: &Options) -> anyhow::Result<()> {
    if options.table.is_some() || options.format.is_some() {
        bail!("--table and --format are for files, and {} is a directory", options.file.display());
    }
    let directory = &options.file;
    if !options.data_only {
        run_statements(options, &directory.join(SCHEMA_FILE)).await?;
    }
    let data = directory.join(DATA_DIRECTORY);
    let mut paths = Vec::new();
    // A dump of definitions has no rows.
    if data.exists() {
        for entry in std::fs::read_dir(&data)? {
            paths.push(entry?.path());
        }
    }
    paths.sort();
    for path in &paths {
        let Some(table) = table_of(path) else {
            bail!("{} is not named after a table", path.display());
        };
        let loaded = Box::pin(load_file(options, path, Some(&table))).await;
        loaded.with_context(|| format!("cannot load {}", path.display()))?;
    }
    let numbers = directory.join(AFTER_FILE);
    if numbers.exists() {
        run_statements(options, &numbers).await?;
    }
    Ok(())
}

/// The name of a file with the rows of a table.
pub(crate) fn file_name(table: &str, ending: &str) -> String {
    format!("{}.{ending}", urlencode(table))
}

/// The table of a file that [`file_name`] named.
fn table_of(path: &Path) -> Option<String> {
    let stem = path.file_stem()?.to_str()?;
    let (name, _) = form_urlencoded::parse(stem.as_bytes()).next()?;
    Some(name.into_owned())
}

/// Runs the statements of a file.
async fn run_statements(options: &Options, path: &Path) -> anyhow::Result<()> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let client = sql::connect(&options.client, &options.postgres, &options.database).await?;
    let result = client.batch_execute(&text).await;
    result.map_err(|error| {
        anyhow!("{}", sql::describe(&error)).context(format!("cannot run {}", path.display()))
    })
}

async fn load_file(options: &Options, path: &Path, table: Option<&str>) -> anyhow::Result<()> {
    let Some(format) = options.format.or_else(|| Format::of(path)) else {
        bail!("cannot tell the format of {}; use --format", path.display());
    };
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let bytes = file.metadata()?.len();
    let bar = ProgressBar::new(bytes);
    bar.set_style(ProgressStyle::with_template(
        "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {msg} eta {eta}",
    )?);
    let started = Instant::now();
    let rows = match format {
        Format::Lp => load_lines(options, file, &bar).await,
        Format::Csv => load_csv(options, named(table)?, file, ',', &bar).await,
        Format::Tsv => load_csv(options, named(table)?, file, '\t', &bar).await,
        Format::Ndjson => load_ndjson(options, named(table)?, file, &bar).await,
        Format::Parquet => load_parquet(options, named(table)?, file, &bar).await,
    };
    bar.finish_and_clear();
    let rows = rows?;
    report(rows, bytes, started.elapsed().as_secs_f64());
    Ok(())
}

#[expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "the command's result, rounded"
)]
fn report(rows: u64, bytes: u64, seconds: f64) {
    println!(
        "{rows} rows in {seconds:.2} s: {:.0} rows/s, {:.1} MB/s",
        rows as f64 / seconds,
        bytes as f64 / 1e6 / seconds
    );
}

fn named(table: Option<&str>) -> anyhow::Result<&str> {
    table.context("no table to load into; use --table")
}

type Http = Client<Connector, Full<Bytes>>;

/// Line protocol: chunks of whole lines, several requests in flight.
async fn load_lines(options: &Options, file: File, bar: &ProgressBar) -> anyhow::Result<u64> {
    let tls = options.client.tls();
    let client: Http = Client::builder(TokioExecutor::new()).build(tls.connector(b"http/1.1")?);
    let path = format!(
        "/api/v2/write?bucket={}&precision={}",
        urlencode(&options.database),
        urlencode(&options.precision)
    );
    let target = Target {
        uri: tls.url(&options.http, &path)?,
        authorization: options.client.authorization()?,
    };
    let mut reader = BufReader::with_capacity(REQUEST_BYTES, file);
    let mut requests: JoinSet<anyhow::Result<(u64, u64)>> = JoinSet::new();
    let (mut rows, mut first_line) = (0, 1u64);
    loop {
        // Wait for a request if all are in flight, or if the file has ended.
        let chunk = whole_lines(&mut reader)?;
        if chunk.is_empty() || requests.len() == REQUESTS_MAX {
            let Some(finished) = requests.join_next().await else { break };
            let (lines, bytes) = finished??;
            rows += lines;
            bar.inc(bytes);
            bar.set_message(format!("{rows} rows"));
        }
        if chunk.is_empty() {
            continue;
        }
        // An error names the first line of its chunk.
        let newlines = chunk.iter().filter(|byte| **byte == b'\n').count() as u64;
        let (client, target, chunk_line) = (client.clone(), target.clone(), first_line);
        first_line += newlines;
        requests.spawn(async move { post_lines(&client, &target, chunk_line, chunk).await });
    }
    Ok(rows)
}

/// The next chunk, extended to the end of a line (or of the file).
fn whole_lines(reader: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let mut chunk = Vec::with_capacity(REQUEST_BYTES + 1024);
    reader.by_ref().take(REQUEST_BYTES as u64).read_to_end(&mut chunk)?;
    if chunk.last().is_some_and(|last| *last != b'\n') {
        reader.read_until(b'\n', &mut chunk)?;
    }
    Ok(chunk)
}

/// Address for line protocol, and the value of the header `Authorization`.
#[derive(Clone)]
struct Target {
    uri: String,
    authorization: Option<String>,
}

async fn post_lines(
    client: &Http,
    target: &Target,
    first_line: u64,
    chunk: Vec<u8>,
) -> anyhow::Result<(u64, u64)> {
    let bytes = chunk.len() as u64;
    let rows = chunk
        .split(|byte| *byte == b'\n')
        .filter(|line| line.iter().any(|byte| !byte.is_ascii_whitespace()) && line[0] != b'#')
        .count() as u64;
    let uri = &target.uri;
    let mut request = hyper::Request::post(uri);
    if let Some(value) = &target.authorization {
        request = request.header(AUTHORIZATION, value);
    }
    let request = request.body(Full::new(Bytes::from(chunk)))?;
    let response = client
        .request(request)
        .await
        .with_context(|| format!("cannot reach {uri}; is the server running?"))?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    if !status.is_success() {
        bail!(
            "the server refused lines of the chunk that starts at line {first_line}: {status} {}",
            String::from_utf8_lossy(&body)
        );
    }
    Ok((rows, bytes))
}

/// Encodes text for a query string; a space becomes `+`.
pub(crate) fn urlencode(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// CSV: the header names the columns, COPY takes the rest.
async fn load_csv(
    options: &Options,
    table: &str,
    file: File,
    delimiter: char,
    bar: &ProgressBar,
) -> anyhow::Result<u64> {
    // The header line gives the columns, without a byte order mark.
    let mut reader = BufReader::with_capacity(COPY_BYTES, file);
    let mut header = String::new();
    reader.read_line(&mut header).context("the header line is not UTF-8")?;
    let header = header.trim_start_matches('\u{feff}');
    let names = header_names(header.trim_end_matches(['\r', '\n']), delimiter);
    let columns: Vec<String> = names.iter().map(|name| sql::quote(name)).collect();
    // Everything goes to COPY unchanged, with the header, so that errors have the lines of the file.
    let delimiter = if delimiter == '\t' { "E'\\t'" } else { "','" };
    let statement = format!(
        "COPY {} ({}) FROM STDIN WITH (FORMAT csv, HEADER, DELIMITER {delimiter})",
        sql::quote(table),
        columns.join(", ")
    );
    send_copy(options, &statement, header.as_bytes(), reader, bar).await
}

/// NDJSON: the keys of the first object name the columns, so that others get their defaults.
async fn load_ndjson(
    options: &Options,
    table: &str,
    file: File,
    bar: &ProgressBar,
) -> anyhow::Result<u64> {
    let mut reader = BufReader::with_capacity(COPY_BYTES, file);
    // Lines before the first object count too.
    let mut begin = String::new();
    let first = loop {
        let length = begin.len();
        if reader.read_line(&mut begin).context("the first line is not UTF-8")? == 0 {
            return Ok(0);
        }
        if !begin[length..].trim().is_empty() {
            break &begin[length..];
        }
    };
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(first).context("the first line is not a JSON object")?;
    let columns: Vec<String> = object.keys().map(|name| sql::quote(name)).collect();
    let statement = format!(
        "COPY {} ({}) FROM STDIN WITH (FORMAT ndjson)",
        sql::quote(table),
        columns.join(", ")
    );
    send_copy(options, &statement, begin.as_bytes(), reader, bar).await
}

/// The names in the header line of a CSV file.
fn header_names(line: &str, delimiter: char) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut is_quoted = false;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        let Some(name) = names.last_mut() else { break };
        match letter {
            '"' if is_quoted && letters.next_if_eq(&'"').is_some() => name.push('"'),
            '"' => is_quoted = !is_quoted,
            letter if letter == delimiter && !is_quoted => names.push(String::new()),
            letter => name.push(letter),
        }
    }
    names.iter().map(|name| name.trim().to_owned()).collect()
}

/// Sends the begin of a file and the rest of it to a COPY.
async fn send_copy(
    options: &Options,
    statement: &str,
    begin: &[u8],
    mut reader: BufReader<File>,
    bar: &ProgressBar,
) -> anyhow::Result<u64> {
    let client = sql::connect(&options.client, &options.postgres, &options.database).await?;
    let failed = |error: tokio_postgres::Error| anyhow!("{}", sql::describe(&error));
    let sink = client.copy_in::<_, Bytes>(statement).await.map_err(failed)?;
    let mut sink = std::pin::pin!(sink);
    sink.send(Bytes::copy_from_slice(begin)).await.map_err(failed)?;
    bar.set_position(begin.len() as u64);
    loop {
        let mut chunk = vec![0; COPY_BYTES];
        let read = reader.read(&mut chunk)?;
        if read == 0 {
            break;
        }
        chunk.truncate(read);
        sink.send(Bytes::from(chunk)).await.map_err(failed)?;
        bar.inc(read as u64);
    }
    sink.as_mut().finish().await.map_err(failed)
}

/// Parquet: batches by Flight DoPut.
async fn load_parquet(
    options: &Options,
    table: &str,
    file: File,
    bar: &ProgressBar,
) -> anyhow::Result<u64> {
    let bytes = file.metadata()?.len();
    // Batches are read as the server takes them.
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)
        .context("the file is not readable as Parquet")?;
    let total = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0).max(1);
    let schema = std::sync::Arc::clone(builder.schema());
    let reader = builder.with_batch_size(BATCH_ROWS).build()?;
    let batches = futures::stream::iter(reader).map_err(FlightError::Arrow).boxed();
    let descriptor = FlightDescriptor::new_path(vec![options.database.clone(), table.to_owned()]);
    let encoded = FlightDataEncoderBuilder::new()
        .with_schema(schema)
        .with_flight_descriptor(Some(descriptor))
        .build(batches);
    let tls = options.client.tls();
    // The scheme of the requests is that of the connection; tonic itself does not know about its TLS.
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", options.http))?
        .origin(tls.url(&options.http, "/")?.parse()?)
        .connect_with_connector(tls.connector(b"h2")?)
        .await
        .with_context(|| format!("cannot reach {}; is the server running?", options.http))?;
    let mut client = FlightClient::new(channel);
    if let Some(value) = options.client.authorization()? {
        client.add_header("authorization", &value)?;
    }
    // The server acknowledges each batch with its number of rows.
    let mut results = client.do_put(encoded).await.context("the server refused the rows")?;
    let mut rows = 0u64;
    while let Some(result) = results.try_next().await.with_context(|| {
        format!("the server refused rows after the first {rows}, which are stored")
    })? {
        let count: u64 = String::from_utf8_lossy(&result.app_metadata).parse().unwrap_or(0);
        rows += count;
        bar.set_position(bytes.saturating_mul(rows) / total);
        bar.set_message(format!("{rows} rows"));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_end_with_whole_lines() {
        let line = format!("m v={}\n", "1".repeat(100));
        let text = line.repeat(2 * REQUEST_BYTES / line.len());
        let mut reader = BufReader::new(text.as_bytes());
        let mut joined = Vec::new();
        loop {
            let chunk = whole_lines(&mut reader).unwrap();
            if chunk.is_empty() {
                break;
            }
            assert_eq!(chunk.last(), Some(&b'\n'));
            joined.extend_from_slice(&chunk);
        }
        assert_eq!(joined, text.as_bytes());
    }

    #[test]
    fn endings_tell_formats() {
        assert_eq!(Format::of(Path::new("a/b.CSV")), Some(Format::Csv));
        assert_eq!(Format::of(Path::new("b.parquet")), Some(Format::Parquet));
        assert_eq!(Format::of(Path::new("b")), None);
    }

    #[test]
    fn files_of_a_dump_are_named_after_their_tables() {
        for table in ["cpu", "a b", "Über/x.y", "..", "a=b&c", "50%"] {
            let path = Path::new("data").join(file_name(table, "csv"));
            assert_eq!(path.parent(), Some(Path::new("data")), "{table}");
            assert_eq!(table_of(&path).as_deref(), Some(table));
            assert_eq!(Format::of(&path), Some(Format::Csv));
        }
    }

    #[test]
    fn headers_may_have_quotes() {
        assert_eq!(header_names("a, b,\"c,d\",\"e\"\"f\"", ','), ["a", "b", "c,d", "e\"f"]);
        assert_eq!(header_names("a\tb", '\t'), ["a", "b"]);
        assert_eq!(header_names("", ','), [""]);
    }

    #[test]
    fn names_are_encoded_for_the_query_string() {
        assert_eq!(urlencode("a b&c/d"), "a+b%26c%2Fd");
    }
}
