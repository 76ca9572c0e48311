//! `sys.columns` and `sys.index_builds`: measures of the columns of each table, and the progress of their indexes, by the
//! reports of the partitions' leaders.
//!
//! Nothing here reads a row. A partition whose leader does not report is left out, and counted as unknown. The measures
//! show values of rows, so the catalog must have only tables of which the viewer sees all rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::measure::{ColumnMeasures, IndexBuild, PartitionMeasures, TableMeasures};
use partita_proto::route::Route;
use partita_proto::schema::{Column, ColumnType, Semantic};
use partita_proto::value::Value;
use serde_json::Value as Json;

use crate::error::SqlError;
use crate::statuses::{Statuses, leader, measured_statuses};
use crate::view::ClusterView;
use crate::virtual_table::{Cell, Kind, batch, schema};

/// Columns of `sys.columns`.
pub(crate) const COLUMNS: &[(&str, Kind)] = &[
    ("database", Kind::Text),
    ("table", Kind::Text),
    ("column", Kind::Text),
    ("semantic", Kind::Text),
    ("type", Kind::Text),
    ("rows", Kind::Count),
    ("nulls", Kind::Count),
    ("null_share", Kind::Float),
    ("distinct_values", Kind::Count),
    ("cardinality", Kind::Text),
    ("length_p50", Kind::Count),
    ("length_p95", Kind::Count),
    ("length_max", Kind::Count),
    ("numeric_share", Kind::Float),
    ("min", Kind::Text),
    ("max", Kind::Text),
    ("sample", Kind::Text),
    ("ascending_share", Kind::Float),
    ("bytes", Kind::Count),
    ("stored_bytes", Kind::Count),
    ("byte_share", Kind::Float),
    ("unknown_files", Kind::Count),
    ("unknown_partitions", Kind::Count),
];

/// Columns of `sys.index_builds`.
pub(crate) const INDEX_BUILDS: &[(&str, Kind)] = &[
    ("database", Kind::Text),
    ("table", Kind::Text),
    ("column", Kind::Text),
    ("index", Kind::Text),
    ("kind", Kind::Text),
    ("files", Kind::Count),
    ("files_done", Kind::Count),
    ("bytes", Kind::Count),
    ("state", Kind::Text),
];

/// Maximum number of distinct values of a column of low cardinality.
const LOW_CARDINALITY_MAX: u64 = 10_000;
/// Number of shown values of a sample.
const SAMPLE_SHOWN: usize = 8;

/// Measures of a table, merged from its partitions, and the number of partitions that are missing in them.
pub(crate) fn merged(table: &Table, statuses: &Statuses) -> (Arc<PartitionMeasures>, u64) {
    merge(&reported(table, statuses))
}

/// Measures of the partitions of a table, in their order; `None` of one whose leader does not report.
pub(crate) fn reported(table: &Table, statuses: &Statuses) -> Vec<Option<Arc<PartitionMeasures>>> {
    let measures = |route: &Route| {
        let (_, status) = leader(statuses.get(&route.partition)?)?;
        status.measures.clone()
    };
    table.partitions.routes().iter().map(measures).collect()
}

/// Merged measures of partitions, and the number of those that are missing.
pub(crate) fn merge(
    partitions: &[Option<Arc<PartitionMeasures>>],
) -> (Arc<PartitionMeasures>, u64) {
    let reports: Vec<&Arc<PartitionMeasures>> = partitions.iter().flatten().collect();
    let unknown_partitions = (partitions.len() - reports.len()) as u64;
    // Most tables have one partition, whose measures are not copied.
    let merged = match reports.as_slice() {
        [only] => Arc::clone(only),
        several => {
            let mut merged = PartitionMeasures::default();
            for measures in several {
                merged.merge(measures);
            }
            Arc::new(merged)
        }
    };
    (merged, unknown_partitions)
}

/// Rows of `sys.columns` for the tables of a catalog.
pub(crate) async fn columns(
    view: &ClusterView,
    catalog: &Catalog,
) -> Result<RecordBatch, SqlError> {
    let statuses = measured_statuses(view.nodes().as_ref()).await;
    let mut rows = Vec::new();
    let tables = catalog.tables.values().flat_map(BTreeMap::values);
    for table in tables.filter(|table| table.schema.view.is_none()) {
        let (report, unknown_partitions) = merged(table, &statuses);
        let cells = |column| column_cells(table, column, &report, unknown_partitions);
        rows.extend(table.schema.shown().map(cells));
    }
    batch(&schema(COLUMNS), rows)
}

/// Rows of `sys.index_builds` for the tables of a catalog.
pub(crate) async fn index_builds(
    view: &ClusterView,
    catalog: &Catalog,
) -> Result<RecordBatch, SqlError> {
    let statuses = measured_statuses(view.nodes().as_ref()).await;
    let mut rows = Vec::new();
    for table in catalog.tables.values().flat_map(BTreeMap::values) {
        let (report, unknown_partitions) = merged(table, &statuses);
        rows.extend(build_rows(table, &report, unknown_partitions));
    }
    batch(&schema(INDEX_BUILDS), rows)
}

fn column_cells(
    table: &Table,
    column: &Column,
    report: &PartitionMeasures,
    unknown_partitions: u64,
) -> Vec<Cell> {
    let measures = &report.measures;
    let empty = ColumnMeasures::default();
    let figures = measures
        .columns
        .get(&column.id)
        .or_else(|| is_empty(measures, unknown_partitions).then_some(&empty));
    let count = |read: &dyn Fn(&ColumnMeasures) -> u64| Cell::Count(figures.map(read));
    // Figures of values need values.
    let filled = figures.filter(|figures| figures.values > 0);
    let texts = filled.filter(|figures| !figures.lengths.is_empty());
    let length = |read: &dyn Fn(&ColumnMeasures) -> u64| Cell::Count(texts.map(read));
    let has_rows = figures.filter(|figures| figures.values > 0 || figures.nulls > 0);
    let is_text = column.column_type == ColumnType::String;
    let numeric = filled.filter(|figures| is_text && !figures.sample.is_empty());
    let compared = filled.filter(|figures| figures.compared > 0);
    let ascending = |figures: &ColumnMeasures| figures.ascending as f64 / figures.compared as f64;
    let bound =
        |value: &Option<Value>| value.as_ref().map(|value| plain_text(value, column.column_type));
    let stored = report.column_bytes.get(&column.id).copied();
    let stored_total: u64 =
        report.column_bytes.values().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
    let share = |bytes: u64| (stored_total > 0).then(|| bytes as f64 / stored_total as f64);
    vec![
        table.database.as_str().into(),
        table.name.as_str().into(),
        column.name.as_str().into(),
        semantic(column).into(),
        column.type_sql().into(),
        count(&|figures| figures.values.saturating_add(figures.nulls)),
        count(&|figures| figures.nulls),
        has_rows.map(ColumnMeasures::null_share).into(),
        count(&|figures| figures.distinct.count()),
        filled.map(|figures| cardinality(figures).to_owned()).into(),
        length(&|figures| figures.length_quantile(0.5)),
        length(&|figures| figures.length_quantile(0.95)),
        length(&|figures| figures.length_max),
        numeric.map(ColumnMeasures::numeric_share).into(),
        filled.and_then(|figures| bound(&figures.min)).into(),
        filled.and_then(|figures| bound(&figures.max)).into(),
        filled.map(|figures| sample_text(figures, column.column_type)).into(),
        compared.map(ascending).into(),
        count(&|figures| figures.bytes),
        stored.into(),
        stored.and_then(share).into(),
        measures.unmeasured.into(),
        unknown_partitions.into(),
    ]
}

/// True if it is known that the table has no rows.
fn is_empty(measures: &TableMeasures, unknown_partitions: u64) -> bool {
    measures.rows == 0 && measures.unmeasured == 0 && unknown_partitions == 0
}

/// One row for each index of a table. An index of which no partition reports has no figures.
fn build_rows(
    table: &Table,
    report: &PartitionMeasures,
    unknown_partitions: u64,
) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for column in &table.schema.columns {
        for index in &column.indexes {
            let kind = index.options.kind();
            let is_of = |build: &&IndexBuild| (build.column, build.kind) == (column.id, kind);
            let build = report.indexes.iter().find(is_of);
            let is_ready =
                |build: &IndexBuild| unknown_partitions == 0 && build.files_done >= build.files;
            let state = |build| if is_ready(build) { "ready" } else { "building" };
            rows.push(vec![
                table.database.as_str().into(),
                table.name.as_str().into(),
                column.name.as_str().into(),
                index.name.as_str().into(),
                kind.method().into(),
                build.map(|build| build.files).into(),
                build.map(|build| build.files_done).into(),
                build.map(|build| build.bytes).into(),
                build.map(|build| state(build).to_owned()).into(),
            ]);
        }
    }
    rows
}

fn semantic(column: &Column) -> &'static str {
    match column.semantic {
        Semantic::Tag => "tag",
        Semantic::Field => "field",
        Semantic::TimeIndex => "time",
    }
}

fn cardinality(figures: &ColumnMeasures) -> &'static str {
    if figures.distinct.count() <= LOW_CARDINALITY_MAX { "low" } else { "high" }
}

/// The first values of the sample as a JSON array of texts.
fn sample_text(figures: &ColumnMeasures, column_type: ColumnType) -> String {
    let values = figures.sample.iter().take(SAMPLE_SHOWN);
    let texts = values.map(|sampled| Json::from(plain_text(&sampled.value, column_type)));
    Json::Array(texts.collect()).to_string()
}

/// A value as text, without the quotation marks of a literal.
fn plain_text(value: &Value, column_type: ColumnType) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Binary(_) if column_type == ColumnType::Binary => value.display(column_type),
        _ => value.display(column_type).trim_matches('\'').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, StringViewArray, TimestampMillisecondArray};
    use arrow::util::display::array_value_to_string;
    use partita_proto::index::{Blooms, Index, IndexKind, IndexOptions};
    use partita_proto::schema::{TableSchema, Unit};

    use super::*;
    use crate::fake::Fake;
    use crate::{Frontend, FrontendOptions, SessionOptions};

    /// A frontend with the table `t` of two partitions.
    async fn with_table() -> (Arc<Fake>, Arc<Frontend>) {
        let fake = Fake::new(1);
        let frontend = fake.frontend(FrontendOptions::default()).unwrap();
        let session = frontend.session(SessionOptions::default());
        let create = "CREATE TABLE t (host STRING, ts TIMESTAMP(3) TIME INDEX, v BIGINT, s STRING, \
                      PRIMARY KEY (host)) PARTITION BY RANGE (host) SPLIT AT (('m'))";
        session.execute(create).await.unwrap();
        (fake, frontend)
    }

    fn table(fake: &Fake) -> Table {
        fake.catalog().table("public", "t").map(|table| Table::clone(table)).unwrap()
    }

    /// A column's values of a table, in the order of its rows; NULL is empty.
    fn cells(rows: &RecordBatch, name: &str) -> Vec<String> {
        let column = rows.column_by_name(name).unwrap();
        (0..rows.num_rows())
            .map(|row| array_value_to_string(column.as_ref(), row).unwrap())
            .collect()
    }

    fn described(table: &Table, report: &PartitionMeasures, unknown: u64) -> RecordBatch {
        let rows = table.schema.columns.iter();
        let rows = rows.map(|column| column_cells(table, column, report, unknown));
        batch(&schema(COLUMNS), rows.collect()).unwrap()
    }

    /// A report about four rows, the last one without a text.
    fn report(table: &Table) -> PartitionMeasures {
        let texts = [Some("12"), Some("it's"), Some("12"), None];
        let columns: [ArrayRef; 4] = [
            Arc::new(StringViewArray::from(vec!["a", "a", "b", "b"])),
            Arc::new(TimestampMillisecondArray::from(vec![0, 1_000, 2_000, 3_500])),
            Arc::new(Int64Array::from(vec![4, 3, 2, 1])),
            Arc::new(texts.into_iter().collect::<StringViewArray>()),
        ];
        let names = table.schema.columns.iter().map(|column| column.storage_name.clone());
        let rows = RecordBatch::try_from_iter(names.zip(columns)).unwrap();
        let mut report = PartitionMeasures::default();
        report.measures.add_rows(&table.schema, &rows).unwrap();
        report.column_bytes =
            BTreeMap::from([(table.schema.columns[0].id, 30), (table.schema.columns[2].id, 10)]);
        report
    }

    #[tokio::test]
    async fn columns_are_described_by_their_measures() {
        let (fake, _frontend) = with_table().await;
        let table = table(&fake);
        let rows = described(&table, &report(&table), 0);
        assert_eq!(cells(&rows, "column"), ["host", "ts", "v", "s"]);
        assert_eq!(cells(&rows, "semantic"), ["tag", "time", "field", "field"]);
        assert_eq!(cells(&rows, "rows"), ["4"; 4]);
        assert_eq!(cells(&rows, "nulls"), ["0", "0", "0", "1"]);
        assert_eq!(cells(&rows, "null_share"), ["0.0", "0.0", "0.0", "0.25"]);
        assert_eq!(cells(&rows, "distinct_values"), ["2", "4", "4", "2"]);
        assert_eq!(cells(&rows, "cardinality"), ["low"; 4]);
        assert_eq!(cells(&rows, "length_max"), ["1", "", "", "4"]);
        assert_eq!(cells(&rows, "numeric_share"), ["0.0", "", "", "0.5"]);
        assert_eq!(cells(&rows, "max")[..3], ["b", "1970-01-01 00:00:03.500", "4"]);
        assert_eq!(cells(&rows, "min")[2..], ["1", "12"]);
        let sample: Json = serde_json::from_str(&cells(&rows, "sample")[3]).unwrap();
        let mut sample: Vec<&str> =
            sample.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
        sample.sort_unstable();
        assert_eq!(sample, ["12", "it's"]);
        assert_eq!(cells(&rows, "ascending_share"), ["1.0", "1.0", "0.0", "0.5"]);
        assert_eq!(cells(&rows, "bytes"), ["4", "32", "32", "8"]);
        assert_eq!(cells(&rows, "stored_bytes"), ["30", "", "10", ""]);
        assert_eq!(cells(&rows, "byte_share"), ["0.75", "", "0.25", ""]);
    }

    #[tokio::test]
    async fn an_empty_table_has_no_rows_and_an_unknown_one_no_figures() {
        let (fake, _frontend) = with_table().await;
        let table = table(&fake);
        let rows = described(&table, &PartitionMeasures::default(), 0);
        assert_eq!(cells(&rows, "rows"), ["0"; 4]);
        assert_eq!(cells(&rows, "cardinality"), [""; 4]);
        let rows = described(&table, &PartitionMeasures::default(), 2);
        assert_eq!(cells(&rows, "rows"), [""; 4]);
        assert_eq!(cells(&rows, "null_share"), [""; 4]);
        assert_eq!(cells(&rows, "unknown_partitions"), ["2"; 4]);
        let mut older = PartitionMeasures::default();
        older.measures.add_unmeasured();
        let rows = described(&table, &older, 0);
        assert_eq!(cells(&rows, "rows"), [""; 4]);
        assert_eq!(cells(&rows, "unknown_files"), ["1"; 4]);
    }

    #[tokio::test]
    async fn many_values_are_of_high_cardinality() {
        let (fake, _frontend) = with_table().await;
        let table = table(&fake);
        let numbers = &table.schema.columns[2];
        let class = |count: i64| {
            let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..count));
            let rows = RecordBatch::try_from_iter([(&numbers.storage_name, values)]).unwrap();
            let mut measures = TableMeasures::default();
            measures.add_rows(&table.schema, &rows).unwrap();
            cardinality(&measures.columns[&numbers.id])
        };
        assert_eq!((class(9_000), class(20_000)), ("low", "high"));
    }

    #[test]
    fn values_are_shown_without_quotation_marks() {
        let time = ColumnType::Timestamp(Unit::Second, true);
        assert!(!plain_text(&Value::Timestamp(0), time).contains('\''));
        let text = Value::String("'a'".to_owned());
        assert_eq!(plain_text(&text, ColumnType::String), "'a'");
        assert_eq!(plain_text(&Value::Binary(vec![1, 255]), ColumnType::Binary), "X'01FF'");
        assert_eq!(plain_text(&Value::Float(1.5), ColumnType::Float64), "1.5");
    }

    #[tokio::test]
    async fn an_index_is_ready_when_all_files_of_all_partitions_have_it() {
        let (fake, _frontend) = with_table().await;
        let mut table = table(&fake);
        let mut changed = TableSchema::clone(&table.schema);
        let options = IndexOptions::Skipping(Blooms::default());
        changed.columns[3].indexes.push(Index { name: "words".to_owned(), options });
        table.schema = Arc::new(changed);
        let report = |files_done| PartitionMeasures {
            indexes: vec![IndexBuild {
                column: table.schema.columns[3].id,
                kind: IndexKind::Skipping,
                files: 3,
                files_done,
                bytes: 9,
            }],
            ..PartitionMeasures::default()
        };
        let states = [(report(2), 0), (report(3), 1), (report(3), 0)].map(|(report, unknown)| {
            let rows = build_rows(&table, &report, unknown);
            let rows = batch(&schema(INDEX_BUILDS), rows).unwrap();
            let named: Vec<String> = ["index", "kind", "files", "files_done", "bytes", "state"]
                .iter()
                .map(|name| cells(&rows, name).concat())
                .collect();
            named.join(" ")
        });
        let expected = ["3 2 9 building", "3 3 9 building", "3 3 9 ready"];
        assert_eq!(states, expected.map(|figures| format!("words skipping {figures}")));
        let rows = build_rows(&table, &PartitionMeasures::default(), 2);
        let rows = batch(&schema(INDEX_BUILDS), rows).unwrap();
        assert_eq!(cells(&rows, "index"), ["words"]);
        assert_eq!(cells(&rows, "state"), [""], "no partition reports it");
    }

    #[tokio::test]
    async fn leaders_report_the_rows_of_their_partitions() {
        let (fake, frontend) = with_table().await;
        let session = frontend.session(SessionOptions::default());
        let insert = "INSERT INTO t VALUES ('a', 1, 1, 'x'), ('n', 2, 2, NULL), ('z', 3, 3, 'y')";
        session.execute(insert).await.unwrap();
        let rows = columns(frontend.view(), &fake.catalog()).await.unwrap();
        assert_eq!(cells(&rows, "rows"), ["3"; 4]);
        assert_eq!(cells(&rows, "nulls"), ["0", "0", "0", "1"]);
        assert_eq!(cells(&rows, "distinct_values"), ["3", "3", "3", "2"]);
        assert_eq!((cells(&rows, "min")[0].as_str(), cells(&rows, "max")[0].as_str()), ("a", "z"));
        assert_eq!(cells(&rows, "unknown_partitions"), ["0"; 4]);
        let builds = index_builds(frontend.view(), &fake.catalog()).await.unwrap();
        assert_eq!(builds.num_rows(), 0, "no index is declared");
    }
}
