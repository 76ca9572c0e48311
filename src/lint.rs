//! `partita lint`: mistakes in a schema, found without a server: by its CREATE TABLE statements, by a sample of its rows, and
//! by a log of its queries.
//!
//! ```text
//!   schema.sql ─▶ tables ───────────┐
//!   sample ─▶ rows ─▶ measures ─────┼─▶ rules of the advisor ─▶ findings, exit code
//!   queries ─▶ shapes of statements ┘
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::{SortColumn, cast, concat_batches, lexsort_to_indices, take_record_batch};
use arrow::csv::ReaderBuilder;
use arrow::csv::reader::Format as CsvFormat;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::util::display::array_value_to_string;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use partita_advice::{
    ClusterFacts, Declared, Finding, Measurements, Thresholds, add_measures, advise,
    check_statements, declared_tables, of_new_table, statement_shapes,
};
use partita_http::line_protocol::{Precision, ReadOptions, read};
use partita_proto::catalog::{Catalog, DEFAULT_DATABASE, Table};
use partita_proto::measure::TableMeasures;
use partita_proto::schema::{COLUMNS_MAX, ColumnType};

use crate::hot::{Level, described};
use crate::sql;

/// Maximum rows of a sample that are measured.
const ROWS_MAX: usize = 1_000_000;
/// Maximum bytes of a text in line protocol.
const STRING_BYTES_MAX: usize = 64 * 1024;

/// Options of `partita lint`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// File with CREATE TABLE and CREATE INDEX statements.
    schema: PathBuf,
    /// Sample of the rows: CSV with a header, Parquet, or line protocol (`.lp`).
    #[arg(long, value_name = "FILE")]
    sample: Option<PathBuf>,
    /// Table of the sample, if the schema has several; line protocol names its own.
    #[arg(short, long)]
    table: Option<String>,
    /// Unit of line protocol's timestamps: ns, us, ms or s.
    #[arg(long, default_value = "ns")]
    precision: String,
    /// File with queries, separated by semicolons.
    #[arg(long, value_name = "FILE")]
    queries: Option<PathBuf>,
    /// Threshold of a rule that differs from the default.
    #[arg(long, value_name = "NAME=VALUE")]
    threshold: Vec<String>,
    /// Print the findings as a JSON array.
    #[arg(long)]
    json: bool,
    /// Exit with code 3 if there is a finding of this severity or a worse one.
    #[arg(long, value_enum, value_name = "SEVERITY")]
    fail_on: Option<Level>,
}

/// Prints the findings.
///
/// # Errors
/// If a file cannot be read, a statement or a value of the sample does not parse, or a threshold does not exist.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let thresholds = thresholds(&options.threshold)?;
    let mut tables = declared_tables(&text_of(&options.schema)?)
        .map_err(|message| anyhow!("{}: {message}", options.schema.display()))?;
    if let Some(path) = &options.sample {
        add_sample(options, path, &mut tables)?;
    }
    let statements = match &options.queries {
        Some(path) => {
            let text = text_of(path)?;
            check_statements(&text).map_err(|message| anyhow!("{}: {message}", path.display()))?;
            statement_shapes(&text, &tables)
        }
        None => Vec::new(),
    };
    let measurements = Measurements {
        now_ms: 0,
        tables: tables.into_iter().map(|table| table.facts).collect(),
        statements,
        settings: ClusterFacts { column_limit: COLUMNS_MAX as u64, ..ClusterFacts::default() },
    };
    let findings = findings(&measurements, &thresholds);
    let worst = findings.iter().filter_map(|finding| Level::of(finding.severity.as_str())).max();
    print(&findings, options.json)?;
    Ok(Level::exit(options.fail_on, worst))
}

fn text_of(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn thresholds(settings: &[String]) -> anyhow::Result<Thresholds> {
    let mut thresholds = Thresholds::default();
    for setting in settings {
        let (name, value) = setting
            .split_once('=')
            .with_context(|| format!("--threshold takes NAME=VALUE, not {setting}"))?;
        let value: f64 =
            value.trim().parse().with_context(|| format!("{value} is not a number"))?;
        thresholds.set(name.trim(), value).map_err(|message| anyhow!("{message}"))?;
    }
    Ok(thresholds)
}

/// Findings by all rules, and those that a definition alone shows; worst first.
fn findings(measurements: &Measurements, thresholds: &Thresholds) -> Vec<Finding> {
    let mut findings = advise(measurements, thresholds);
    for table in &measurements.tables {
        for finding in of_new_table(table, thresholds) {
            let is_same = |candidate: &Finding| {
                (candidate.rule, &candidate.object) == (finding.rule, &finding.object)
            };
            if !findings.iter().any(is_same) {
                findings.push(finding);
            }
        }
    }
    findings.sort_by(|a, b| {
        b.severity.cmp(&a.severity).then_with(|| (&a.object, a.rule).cmp(&(&b.object, b.rule)))
    });
    findings
}

fn print(findings: &[Finding], json: bool) -> anyhow::Result<()> {
    if json {
        sql::say(&serde_json::to_string_pretty(findings)?)?;
        return Ok(());
    }
    for finding in findings {
        sql::say(&described(&serde_json::to_value(finding)?, false))?;
    }
    sql::say(&format!("({} findings)", findings.len()))?;
    Ok(())
}

/// Measures the rows of a sample.
fn add_sample(options: &Options, path: &Path, tables: &mut [Declared]) -> anyhow::Result<()> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let batches = match ending.to_ascii_lowercase().as_str() {
        "lp" | "line" | "influx" => lines(options, path, tables)?,
        "csv" | "tsv" => vec![(only(options, tables)?, csv(path, ending)?)],
        "parquet" | "pq" => vec![(only(options, tables)?, parquet(path)?)],
        _ => bail!("cannot tell the format of {}: use .csv, .parquet or .lp", path.display()),
    };
    for (position, rows) in batches {
        let Some(table) = tables.get_mut(position) else { continue };
        let schema = &table.table.schema;
        let rows = in_key_order(&table.table, &typed(&table.table, &rows)?)?;
        let mut measures = TableMeasures::default();
        measures.add_rows(schema, &rows)?;
        add_measures(&mut table.facts, schema, &measures);
        // Nothing is known of the versions and deletes of a sample.
        table.facts.deletes = None;
    }
    Ok(())
}

/// Position of the table that a sample without a name is of.
fn only(options: &Options, tables: &[Declared]) -> anyhow::Result<usize> {
    match &options.table {
        Some(name) => tables
            .iter()
            .position(|table| table.facts.name == *name)
            .with_context(|| format!("the schema has no table \"{name}\"")),
        None if tables.len() == 1 => Ok(0),
        None => bail!("the schema has {} tables; use --table", tables.len()),
    }
}

/// Rows of a CSV file, as texts.
fn csv(path: &Path, ending: &str) -> anyhow::Result<RecordBatch> {
    let opened = || File::open(path).with_context(|| format!("cannot open {}", path.display()));
    let delimiter = if ending.eq_ignore_ascii_case("tsv") { b'\t' } else { b',' };
    let format = CsvFormat::default().with_header(true).with_delimiter(delimiter);
    let (header, _) = format.infer_schema(opened()?, Some(1))?;
    let fields: Vec<Field> = header
        .fields()
        .iter()
        .map(|field| Field::new(field.name().trim(), DataType::Utf8, true))
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let reader = ReaderBuilder::new(Arc::clone(&schema))
        .with_header(true)
        .with_delimiter(delimiter)
        .build(opened()?)?;
    limited(&schema, reader)
}

/// Rows of a Parquet file.
fn parquet(path: &Path) -> anyhow::Result<RecordBatch> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)
        .context("the file is not readable as Parquet")?;
    let schema = Arc::clone(builder.schema());
    limited(&schema, builder.build()?)
}

/// The first rows of a reader in one batch.
fn limited(
    schema: &Arc<Schema>,
    reader: impl Iterator<Item = Result<RecordBatch, arrow::error::ArrowError>>,
) -> anyhow::Result<RecordBatch> {
    let mut batches = Vec::new();
    let mut remaining = ROWS_MAX;
    for batch in reader {
        let batch = batch?;
        let length = batch.num_rows().min(remaining);
        batches.push(batch.slice(0, length));
        remaining -= length;
        if remaining == 0 {
            break;
        }
    }
    Ok(concat_batches(schema, &batches)?)
}

/// Rows of line protocol, by the position of their table. Measurements that the schema lacks are an error, for nothing would
/// be said of them.
fn lines(
    options: &Options,
    path: &Path,
    tables: &[Declared],
) -> anyhow::Result<Vec<(usize, RecordBatch)>> {
    let precision: Precision = options
        .precision
        .parse()
        .map_err(|_| anyhow!("unknown precision {}", options.precision))?;
    let by_name: BTreeMap<String, Arc<Table>> =
        tables.iter().map(|table| (table.facts.name.clone(), Arc::clone(&table.table))).collect();
    let catalog = Catalog {
        tables: BTreeMap::from([(DEFAULT_DATABASE.to_owned(), by_name)]),
        ..Catalog::default()
    };
    let elapsed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let read_options = ReadOptions {
        catalog: &catalog,
        database: DEFAULT_DATABASE,
        precision,
        now: i64::try_from(elapsed.as_nanos())?,
        time_column: "time",
        columns_max: COLUMNS_MAX,
        string_bytes_max: STRING_BYTES_MAX,
    };
    let text = text_of(path)?;
    let rows = read(&text, &read_options)?;
    if let Some(rejection) = rows.rejections.first() {
        bail!(
            "{}: {} lines are not readable: {}",
            path.display(),
            rows.rejected,
            rejection.message
        );
    }
    let position = |name: &str| {
        let position = tables.iter().position(|table| table.facts.name == name);
        position.with_context(|| format!("the schema has no table \"{name}\""))
    };
    rows.tables.into_iter().map(|rows| Ok((position(&rows.name)?, rows.batch))).collect()
}

/// Rows with the types of the table's columns.
fn typed(table: &Table, rows: &RecordBatch) -> anyhow::Result<RecordBatch> {
    let mut fields = Vec::new();
    let mut arrays: Vec<ArrayRef> = Vec::new();
    for (field, array) in rows.schema().fields().iter().zip(rows.columns()) {
        let Some(column) = table.schema.column(field.name()) else { continue };
        let data_type = column.column_type.arrow();
        let mut values = cast(array, &data_type)?;
        // Timestamps may be numbers of ticks.
        let is_time = matches!(column.column_type, ColumnType::Timestamp(..));
        if is_time && values.null_count() == values.len() {
            values = cast(&cast(array, &DataType::Int64)?, &data_type)?;
        }
        // A cast yields NULL for what does not parse, which would pass for a row without a value.
        let lost = (0..values.len()).find(|row| values.is_null(*row) && !array.is_null(*row));
        if let Some(row) = lost {
            bail!(
                "row {} of the sample: \"{}\" is not a value of column \"{}\" of type {}",
                row + 1,
                array_value_to_string(array, row)?,
                column.name,
                column.column_type.sql()
            );
        }
        fields.push(Field::new(&column.storage_name, data_type, true));
        arrays.push(values);
    }
    if arrays.is_empty() {
        bail!("the sample has no column of table \"{}\"", table.name);
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
}

/// Rows in the order of the table's key, as they are stored.
fn in_key_order(table: &Table, rows: &RecordBatch) -> anyhow::Result<RecordBatch> {
    let columns: Vec<SortColumn> = table
        .schema
        .key_columns()
        .filter_map(|column| rows.column_by_name(&column.storage_name))
        .map(|values| SortColumn { values: Arc::clone(values), options: None })
        .collect();
    if columns.is_empty() {
        return Ok(rows.clone());
    }
    let order = lexsort_to_indices(&columns, None)?;
    Ok(take_record_batch(rows, &order)?)
}

#[cfg(test)]
mod tests {
    use partita_advice::Rule;

    use super::*;

    fn options(folder: &Path, sample: Option<&str>) -> Options {
        Options {
            schema: folder.join("schema.sql"),
            sample: sample.map(|name| folder.join(name)),
            table: None,
            precision: "ns".to_owned(),
            queries: None,
            threshold: Vec::new(),
            json: true,
            fail_on: Some(Level::Warning),
        }
    }

    /// Findings about a schema and a sample in a folder.
    fn rules(folder: &Path, sample: &str) -> Vec<Rule> {
        let options = options(folder, Some(sample));
        let mut tables = declared_tables(&text_of(&options.schema).unwrap()).unwrap();
        add_sample(&options, &folder.join(sample), &mut tables).unwrap();
        let measurements = Measurements {
            tables: tables.into_iter().map(|table| table.facts).collect(),
            ..Measurements::default()
        };
        findings(&measurements, &Thresholds::default()).iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn numbers_kept_as_text_are_found_in_a_sample() {
        let folder = tempfile::tempdir().unwrap();
        let schema = "CREATE TABLE home (room STRING NOT NULL, ts TIMESTAMP TIME INDEX, temp STRING, PRIMARY KEY (room))";
        std::fs::write(folder.path().join("schema.sql"), schema).unwrap();
        let rows = |number: usize| {
            format!("kitchen,{},{}.5\n", 1_600_000_000_000_u64 + number as u64 * 1_000, number % 40)
        };
        let text: String =
            std::iter::once("room,ts,temp\n".to_owned()).chain((0..200).map(rows)).collect();
        std::fs::write(folder.path().join("sample.csv"), text).unwrap();
        assert_eq!(rules(folder.path(), "sample.csv"), [Rule::A05]);
        // The same rows as lines.
        let line = |number: usize| {
            format!(
                "home,room=kitchen temp=\"{}.5\" {}\n",
                number % 40,
                1_600_000_000_000_000_000 + number
            )
        };
        let text: String = (0..200).map(line).collect();
        std::fs::write(folder.path().join("sample.lp"), text).unwrap();
        assert!(rules(folder.path(), "sample.lp").contains(&Rule::A05));
    }

    #[test]
    fn the_exit_code_is_that_of_the_worst_finding() {
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &str| std::fs::write(folder.path().join("schema.sql"), text).unwrap();
        write("CREATE TABLE t (level REAL, ts TIMESTAMP TIME INDEX, PRIMARY KEY (level))");
        let mut options = options(folder.path(), None);
        let code = |options: &Options| format!("{:?}", run(options).unwrap());
        assert_eq!(code(&options), format!("{:?}", ExitCode::from(3)));
        options.fail_on = Some(Level::Error);
        assert_eq!(code(&options), format!("{:?}", ExitCode::SUCCESS));
        options.threshold = vec!["apples=1".to_owned()];
        assert!(run(&options).is_err());
        write("CREATE TABLE t (");
        options.threshold.clear();
        assert!(run(&options).is_err());
    }

    #[test]
    fn what_does_not_parse_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write(
            "schema.sql",
            "CREATE TABLE t (host STRING, ts TIMESTAMP(3) TIME INDEX, v INT, PRIMARY KEY (host))",
        );
        let sampled = options(folder.path(), Some("sample.csv"));
        let message = |options: &Options| run(options).err().map(|error| error.to_string());
        for (rows, refused) in [
            ("a,2026-01-01T00:00:00Z,1\nb,2026-01-01T00:00:01Z,\n", None),
            ("a,1000,1\nb,2000,2\n", None),
            (
                "a,notatime,1\n",
                Some("row 1 of the sample: \"notatime\" is not a value of column \"ts\""),
            ),
            (
                "a,1000,1\nb,2000,x\n",
                Some("row 2 of the sample: \"x\" is not a value of column \"v\" of type INT"),
            ),
        ] {
            write("sample.csv", &format!("host,ts,v\n{rows}"));
            let told = message(&sampled);
            match refused {
                None => assert_eq!(told, None, "{rows}"),
                Some(begin) => {
                    assert!(told.as_ref().is_some_and(|told| told.starts_with(begin)), "{told:?}")
                }
            }
        }
        let asked = Options {
            queries: Some(folder.path().join("queries.sql")),
            ..options(folder.path(), None)
        };
        write("queries.sql", "SELECT v FROM t WHERE host = 'a';");
        assert_eq!(message(&asked), None);
        write("queries.sql", "SELECT * FROM t WHERE; garbage");
        let told = message(&asked).unwrap();
        assert!(told.contains("queries.sql: statement 1: "), "{told}");
    }

    #[test]
    fn a_sample_needs_its_table() {
        let tables = declared_tables(
            "CREATE TABLE a (ts TIMESTAMP TIME INDEX); CREATE TABLE b (ts TIMESTAMP TIME INDEX)",
        );
        let tables = tables.unwrap();
        let mut options = options(Path::new("."), None);
        assert!(only(&options, &tables).is_err());
        options.table = Some("b".to_owned());
        assert_eq!(only(&options, &tables).unwrap(), 1);
        options.table = Some("c".to_owned());
        assert!(only(&options, &tables).is_err());
    }
}
