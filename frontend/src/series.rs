//! `sys.series` and `sys.series_tags`: the number of series of each table, by the sketches of the partitions' leaders.
//!
//! Nothing here reads a row. A partition whose leader does not report is left out, and counted as unknown. The growth of
//! a table is that since this frontend first looked at it, within the last hour.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use arrow::record_batch::RecordBatch;
use parking_lot::Mutex;
use partita_proto::cardinality::{Cardinality, SeriesSketch, TagCardinality};
use partita_proto::catalog::{Catalog, Table};
use partita_proto::id::{ColumnId, TableId};

use crate::error::SqlError;
use crate::statuses::{Statuses, leader, series_statuses};
use crate::view::ClusterView;
use crate::virtual_table::{Cell, Kind, batch, schema};

/// Columns of `sys.series`.
pub(crate) const SERIES: &[(&str, Kind)] = &[
    ("database", Kind::Text),
    ("table", Kind::Text),
    ("series", Kind::Count),
    ("tag_sets", Kind::Count),
    ("fields", Kind::Count),
    ("estimate", Kind::Count),
    ("reduced_estimate", Kind::Count),
    ("dependent_tags", Kind::Text),
    ("exact", Kind::Flag),
    ("growth_per_hour", Kind::Float),
    ("unknown_files", Kind::Count),
    ("unknown_partitions", Kind::Count),
];

/// Columns of `sys.series_tags`.
pub(crate) const SERIES_TAGS: &[(&str, Kind)] = &[
    ("database", Kind::Text),
    ("table", Kind::Text),
    ("tag", Kind::Text),
    ("distinct_values", Kind::Count),
    ("depends_on", Kind::Text),
];

/// Time over which growth is measured.
const GROWTH_SPAN: Duration = Duration::from_secs(3600);
/// Minimum interval between two kept counts of a table, and minimum time over which growth is measured.
const GROWTH_STEP: Duration = Duration::from_secs(60);

/// Counts of a table's series, oldest first.
type Counts = VecDeque<(Instant, u64)>;

/// Counts of series within the last hour, by table.
#[derive(Debug, Default)]
pub(crate) struct SeriesHistory {
    tables: Mutex<HashMap<TableId, Counts>>,
}

impl SeriesHistory {
    /// Notes the number of series of a table, and returns the growth per hour, if the table has been known long enough.
    fn note(&self, table: TableId, now: Instant, series: u64) -> Option<f64> {
        let mut tables = self.tables.lock();
        let counts = tables.entry(table).or_default();
        note(counts, now, series);
        growth(counts, now, series)
    }

    /// Forgets tables that no longer exist.
    fn retain(&self, catalog: &Catalog) {
        let tables = catalog.tables.values().flat_map(BTreeMap::values);
        let ids: HashSet<TableId> = tables.map(|table| table.id).collect();
        self.tables.lock().retain(|table, _| ids.contains(table));
    }
}

/// Adds a count, unless the last one is recent, and forgets those that are not needed any more: all but one of the counts
/// from before the span.
fn note(counts: &mut Counts, now: Instant, series: u64) {
    let age = |(time, _): &(Instant, u64)| now.saturating_duration_since(*time);
    if counts.back().is_none_or(|last| age(last) >= GROWTH_STEP) {
        counts.push_back((now, series));
    }
    while counts.get(1).is_some_and(|second| age(second) >= GROWTH_SPAN) {
        counts.pop_front();
    }
}

/// Growth per hour since the oldest count.
fn growth(counts: &Counts, now: Instant, series: u64) -> Option<f64> {
    let (time, first) = counts.front()?;
    let elapsed = now.saturating_duration_since(*time);
    let hours = elapsed.as_secs_f64() / GROWTH_SPAN.as_secs_f64();
    (elapsed >= GROWTH_STEP).then(|| (series as f64 - *first as f64) / hours)
}

/// Figures about one table, and the number of partitions that are missing in them.
pub(crate) struct Measured {
    pub(crate) figures: Cardinality,
    pub(crate) unknown_partitions: u64,
}

/// Merges the sketches of a table's partitions.
pub(crate) fn measure(table: &Table, statuses: &Statuses) -> Measured {
    let mut sketches = Vec::new();
    let mut unknown_partitions = 0;
    for route in table.partitions.routes() {
        let replicas = statuses.get(&route.partition);
        let status = replicas.and_then(|replicas| leader(replicas)).map(|(_, status)| status);
        match status.and_then(|status| status.series.as_ref()) {
            Some(sketch) => sketches.push(sketch),
            None => unknown_partitions += 1,
        }
    }
    // Most tables have one partition, whose sketch is not copied.
    let figures = match sketches.as_slice() {
        [only] => only.cardinality(),
        several => {
            let mut merged = SeriesSketch::default();
            for sketch in several {
                merged.merge(sketch);
            }
            merged.cardinality()
        }
    };
    Measured { figures, unknown_partitions }
}

/// Number of series of a table, as far as its partitions are reported.
pub(crate) fn count(table: &Table, statuses: &Statuses) -> u64 {
    measure(table, statuses).figures.series
}

/// Tables that have series: those with a time index.
fn tables(catalog: &Catalog) -> impl Iterator<Item = &Table> {
    let tables = catalog.tables.values().flat_map(BTreeMap::values);
    tables.map(|table| &**table).filter(|table| table.schema.time_index().is_some())
}

fn tag_name(table: &Table, column: ColumnId) -> Option<String> {
    table.schema.column_by_id(column).map(|column| column.name.clone())
}

/// Dependent tags as text: `region <- host, zone <- host`; `None` if there are none.
fn dependences(table: &Table, figures: &Cardinality) -> Option<String> {
    let text = |tag: &TagCardinality| {
        let name = tag_name(table, tag.column)?;
        Some(format!("{name} <- {}", tag_name(table, tag.depends_on?)?))
    };
    let texts: Vec<String> = figures.tags.iter().filter_map(text).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// Rows of `sys.series` for the tables of a catalog.
pub(crate) async fn series(
    view: &ClusterView,
    history: &SeriesHistory,
    catalog: &Catalog,
) -> Result<RecordBatch, SqlError> {
    let statuses = series_statuses(view.nodes().as_ref()).await;
    let now = Instant::now();
    let mut rows = Vec::new();
    for table in tables(catalog) {
        let Measured { figures, unknown_partitions } = measure(table, &statuses);
        let is_known = unknown_partitions == 0;
        let growth = is_known.then(|| history.note(table.id, now, figures.series)).flatten();
        rows.push(vec![
            table.database.as_str().into(),
            table.name.as_str().into(),
            figures.series.into(),
            figures.tag_sets.into(),
            figures.fields.into(),
            figures.estimate.into(),
            figures.reduced.into(),
            dependences(table, &figures).into(),
            Cell::Flag(Some(figures.exact && is_known)),
            growth.into(),
            figures.unsketched.into(),
            unknown_partitions.into(),
        ]);
    }
    history.retain(&view.catalog());
    batch(&schema(SERIES), rows)
}

/// Rows of `sys.series_tags` for the tables of a catalog.
pub(crate) async fn series_tags(
    view: &ClusterView,
    catalog: &Catalog,
) -> Result<RecordBatch, SqlError> {
    let statuses = series_statuses(view.nodes().as_ref()).await;
    let mut rows = Vec::new();
    for table in tables(catalog) {
        for tag in measure(table, &statuses).figures.tags {
            let Some(name) = tag_name(table, tag.column) else { continue };
            rows.push(vec![
                table.database.as_str().into(),
                table.name.as_str().into(),
                name.into(),
                tag.values.into(),
                tag.depends_on.and_then(|column| tag_name(table, column)).into(),
            ]);
        }
    }
    batch(&schema(SERIES_TAGS), rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_that_of_the_last_hour() {
        let start = Instant::now();
        let minute = |minutes: u64| start + Duration::from_secs(60 * minutes);
        let mut counts = Counts::new();
        note(&mut counts, minute(0), 100);
        assert_eq!(growth(&counts, minute(0), 100), None, "not known for long enough");
        note(&mut counts, minute(30), 200);
        assert_eq!(growth(&counts, minute(30), 200), Some(200.0));
        note(&mut counts, minute(60), 300);
        assert_eq!(growth(&counts, minute(60), 300), Some(200.0));
        // The first count is older than needed now.
        note(&mut counts, minute(90), 300);
        assert_eq!(counts.len(), 3);
        assert_eq!(growth(&counts, minute(90), 300), Some(100.0));
        assert_eq!(growth(&counts, minute(90), 100), Some(-100.0), "series may end");
    }

    #[test]
    fn few_counts_are_kept_however_often_they_are_noted() {
        let start = Instant::now();
        let mut counts = Counts::new();
        for second in 0..20_000 {
            note(&mut counts, start + Duration::from_secs(second), second);
        }
        assert!(counts.len() <= 62, "{} counts", counts.len());
    }
}
