//! `pg_total_relation_size` and similar functions: the bytes that a table or a database stores, and `pg_size_pretty` to
//! format them.
//!
//! A size counts rows once, whatever the number of replicas, in files and in memtables; logs are not included. A key
//! takes no space: rows are stored in its order. Tables that are not stored, such as those of `sys`, have 0 bytes.
//!
//! Invariants:
//! - nodes are queried at most once a second, and when the catalog has changed, whatever the number of rows of a query;
//! - an object id without an object, and a table that no node reports, have the size NULL; an unknown name is an error;
//! - what the viewer does not see does not exist, and a table of which it does not see all rows has the size NULL.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use parking_lot::Mutex;
use partita_frontend::access::viewer::Viewer;
use partita_frontend::privileges::sees_all;
use partita_frontend::{Frontend, SqlError};
use partita_proto::blocking;
use partita_proto::id::TableId;
use tokio::runtime::Handle;

use super::objects::{Object, Objects, database_oid};

/// Time for which the nodes' report is reused.
const REPORT_LIFETIME: Duration = Duration::from_secs(1);

/// The functions of this file that are the same for every session.
pub(super) fn all() -> Vec<ScalarUDF> {
    vec![ScalarUDF::from(Pretty { signature: takes(1) })]
}

/// The functions of this file that measure what a viewer sees.
pub(super) fn of_viewer(sizes: &Arc<Sizes>, viewer: &Arc<Viewer>) -> Vec<ScalarUDF> {
    [
        ("pg_database_size", Measured::Database),
        ("pg_table_size", Measured::Table),
        ("pg_total_relation_size", Measured::All),
        ("pg_relation_size", Measured::Fork),
        ("pg_indexes_size", Measured::Nothing),
    ]
    .into_iter()
    .map(|(name, kind)| {
        let (sizes, viewer) = (Arc::clone(sizes), Arc::clone(viewer));
        let most = if kind == Measured::Fork { 2 } else { 1 };
        ScalarUDF::from(SizeOf { name, measured: kind, signature: takes(most), sizes, viewer })
    })
    .collect()
}

fn takes(most: usize) -> Signature {
    let counts = (1..=most).map(TypeSignature::Any).collect();
    Signature::one_of(counts, Volatility::Stable)
}

/// The object whose size is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measured {
    Database,
    Table,
    /// A table including its rows under a former placement, which `sys.tables` shows as a table of its own.
    All,
    /// A part of a table's storage by PostgreSQL's name; here there is only the main part.
    Fork,
    /// Something without storage.
    Nothing,
}

/// A report of the nodes.
struct Report {
    time: Instant,
    /// Version of the catalog: no node reports tables that were created later.
    version: u64,
    bytes: Arc<HashMap<TableId, u64>>,
}

/// The report of the nodes, shared by all sessions.
pub(super) struct Sizes {
    objects: Arc<Objects>,
    last: Mutex<Option<Report>>,
}

impl Sizes {
    pub(super) fn new(objects: &Arc<Objects>) -> Arc<Self> {
        Arc::new(Self { objects: Arc::clone(objects), last: Mutex::new(None) })
    }

    fn bytes(&self, frontend: &Frontend) -> Arc<HashMap<TableId, u64>> {
        let version = frontend.catalog().version;
        if let Some(report) = self.last.lock().as_ref()
            && report.version == version
            && report.time.elapsed() < REPORT_LIFETIME
        {
            return Arc::clone(&report.bytes);
        }
        // Functions cannot wait asynchronously, so this one blocks; other tasks of this thread move to other threads.
        let table_bytes = blocking::at_once(|| Handle::current().block_on(frontend.table_bytes()));
        let bytes = Arc::new(table_bytes);
        let report = Report { time: Instant::now(), version, bytes: Arc::clone(&bytes) };
        *self.last.lock() = Some(report);
        bytes
    }

    fn size(
        &self,
        viewer: &Viewer,
        kind: Measured,
        arguments: &[ScalarValue],
        database: &str,
    ) -> Result<Option<i64>> {
        // NULL has no size.
        let Some(first) =
            arguments.first().filter(|_| arguments.iter().all(|value| !value.is_null()))
        else {
            return Ok(None);
        };
        let Some(frontend) = self.objects.frontend() else { return Ok(None) };
        if kind == Measured::Database {
            return self.of_database(&frontend, viewer, first);
        }
        let catalog = viewer.catalog();
        // A table is given by name or object id.
        let oid = match text_of(first)? {
            Some(name) => self
                .objects
                .relation(&catalog, &name, database)
                .ok_or_else(|| external(SqlError::undefined_table(&name)))?,
            None => match first.cast_to(&DataType::Int32)? {
                ScalarValue::Int32(Some(oid)) => oid,
                _ => return Ok(None),
            },
        };
        // Only the main fork has bytes.
        let fork = arguments.get(1).map(text_of).transpose()?.flatten();
        let is_main = match fork.as_deref() {
            None | Some("main") => true,
            Some("fsm" | "vm" | "init") => false,
            Some(_) => {
                let error = SqlError::new("22023", "invalid fork name")
                    .with_hint("Valid fork names are \"main\", \"fsm\", \"vm\", and \"init\".");
                return Err(external(error));
            }
        };
        // A key has no storage of its own.
        match self.objects.find(&catalog, oid) {
            None => Ok(None),
            Some(Object::Table(table)) if is_main && kind != Measured::Nothing => {
                let former = catalog.read_along(&table).filter(|_| kind == Measured::All);
                let tables: Vec<_> = std::iter::once(&table).chain(former).collect();
                if !tables.iter().all(|table| sees_all(viewer, table.id)) {
                    return Ok(None);
                }
                let bytes = self.bytes(&frontend);
                let sizes = tables.iter().filter_map(|table| bytes.get(&table.id).copied());
                Ok(sizes.reduce(u64::saturating_add).map(whole))
            }
            Some(_) => Ok(Some(0)),
        }
    }

    fn of_database(
        &self,
        frontend: &Frontend,
        viewer: &Viewer,
        argument: &ScalarValue,
    ) -> Result<Option<i64>> {
        let catalog = viewer.catalog();
        let database = match text_of(argument)? {
            Some(name) => {
                let database = catalog.databases.get(&name);
                database.ok_or_else(|| external(SqlError::undefined_database(&name)))?
            }
            None => {
                let mut databases = catalog.databases.values();
                let requested_oid = argument.cast_to(&DataType::Int32)?;
                let is = |oid| requested_oid == ScalarValue::Int32(Some(oid));
                let Some(database) = databases.find(|database| is(database_oid(database))) else {
                    return Ok(None);
                };
                database
            }
        };
        let bytes = self.bytes(frontend);
        let tables =
            catalog.tables.get(&database.name).into_iter().flat_map(|tables| tables.values());
        // The tables that the viewer sees; the others may be of somebody else.
        let tables = tables.filter(|table| sees_all(viewer, table.id));
        let of_tables = tables.filter_map(|table| bytes.get(&table.id));
        Ok(Some(whole(of_tables.fold(0, |sum, bytes| bytes.saturating_add(sum)))))
    }
}

fn whole(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn external(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// The text of a string value; `None` for numbers.
fn text_of(value: &ScalarValue) -> Result<Option<String>> {
    match value.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {}
        _ => return Ok(None),
    }
    match value.cast_to(&DataType::Utf8)? {
        ScalarValue::Utf8(text) => Ok(text),
        _ => Ok(None),
    }
}

/// A function that returns a size.
struct SizeOf {
    name: &'static str,
    measured: Measured,
    signature: Signature,
    sizes: Arc<Sizes>,
    viewer: Arc<Viewer>,
}

impl fmt::Debug for SizeOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for SizeOf {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.viewer, &other.viewer)
    }
}

impl Eq for SizeOf {}

impl Hash for SizeOf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for SizeOf {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let database = &args.config_options.catalog.default_schema;
        let of_row = |columns: &[ArrayRef], row| {
            let arguments: Vec<ScalarValue> = columns
                .iter()
                .map(|column| ScalarValue::try_from_array(column, row))
                .collect::<Result<_>>()?;
            self.sizes.size(&self.viewer, self.measured, &arguments, database)
        };
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let columns = ColumnarValue::values_to_arrays(&args.args)?;
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::Int64(of_row(&columns, 0)?)));
        }
        let sizes: Int64Array =
            (0..args.number_rows).map(|row| of_row(&columns, row)).collect::<Result<_>>()?;
        Ok(ColumnarValue::Array(Arc::new(sizes)))
    }
}

/// `pg_size_pretty`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Pretty {
    signature: Signature,
}

impl ScalarUDFImpl for Pretty {
    fn name(&self) -> &'static str {
        "pg_size_pretty"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let texts = |bytes: &ArrayRef| -> Result<Vec<Option<String>>> {
            let bytes = cast(bytes, &DataType::Float64)?;
            Ok(bytes.as_primitive::<Float64Type>().iter().map(|value| value.map(pretty)).collect())
        };
        match args.args.as_slice() {
            [ColumnarValue::Scalar(value)] => {
                let text = texts(&value.to_array()?)?.pop().flatten();
                Ok(ColumnarValue::Scalar(ScalarValue::Utf8(text)))
            }
            [ColumnarValue::Array(bytes)] => {
                let texts = arrow::array::StringArray::from(texts(bytes)?);
                Ok(ColumnarValue::Array(Arc::new(texts)))
            }
            _ => datafusion::common::exec_err!("pg_size_pretty takes one argument"),
        }
    }
}

/// Formats bytes for people: in the smallest unit in which they have at most five digits, rounded.
fn pretty(bytes: f64) -> String {
    const SMALL: u128 = 10 * 1024;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "what is too large is the largest number, and what is no number is 0"
    )]
    let size = bytes.abs() as u128;
    let sign = if bytes < 0.0 { "-" } else { "" };
    if size < SMALL {
        return format!("{sign}{size} bytes");
    }
    // Counted in halves of a unit, so that rounding takes one addition.
    let mut halves = size >> 9;
    let mut unit = "kB";
    for larger in ["MB", "GB", "TB", "PB"] {
        if halves < 2 * SMALL - 1 {
            break;
        }
        halves >>= 10;
        unit = larger;
    }
    format!("{sign}{} {unit}", halves.div_ceil(2))
}

#[cfg(test)]
mod tests {
    use super::pretty;

    #[test]
    fn sizes_are_written_as_postgresql_writes_them() {
        for (bytes, told) in [
            (0.0, "0 bytes"),
            (10_239.0, "10239 bytes"),
            (10_240.0, "10 kB"),
            (-1_536_000.0, "-1500 kB"),
            (10_485_247.0, "10239 kB"),
            (10_485_248.0, "10 MB"),
            (123_456_789.0, "118 MB"),
            (1_099_511_627_776.0, "1024 GB"),
            (9_223_372_036_854_775_807.0, "8192 PB"),
        ] {
            assert_eq!(pretty(bytes), told, "{bytes}");
        }
    }
}
