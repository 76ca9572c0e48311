//! The limit of series of an organisation: line protocol may not create more, and existing series go on.
//!
//! ```text
//!   tag sets of the rows ── known? ──> written
//!            │ unknown, far below the limit ──> counted, known, written
//!            └ unknown, near it ── stored? ──> known, written
//!                                     └ new ── fits? ──> counted, known, written
//!                                                └──> refused
//! ```
//!
//! The count is that of the sketches of all tables of the organisation, a few seconds old, plus the series that this
//! frontend has created since. So the limit may be exceeded by the error of the sketches, and by what other frontends
//! create within these seconds. New tag sets are refused; a new field of an existing tag set is counted only.
//!
//! An organisation owns the databases whose owners belong to it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::BooleanArray;
use arrow::datatypes::Schema;
use arrow::record_batch::RecordBatch;
use futures::StreamExt;
use parking_lot::Mutex;
use partita_proto::Error;
use partita_proto::cardinality::{TagSetRows, tag_sets};
use partita_proto::catalog::{Database, Table};
use partita_proto::domain::{Domain, Domains};
use partita_proto::id::{OrgId, TableId};
use partita_proto::route::Route;
use partita_proto::schema::{Column, Semantic};
use partita_proto::service::{ReadFrom, ScanReply, ScanRequest};
use partita_proto::value::Value;

use crate::error::SqlError;
use crate::frontend::Frontend;
use crate::series::count;
use crate::statuses::series_statuses;

/// Maximum tag sets that are known to exist; at the bound all are forgotten and looked up again.
const KNOWN_MAX: usize = 1 << 20;
/// Maximum age of a count.
const COUNT_AGE_MAX: Duration = Duration::from_secs(10);
/// Minimum age of a count that is made again because the limit would be exceeded.
const COUNT_AGE_MIN: Duration = Duration::from_secs(1);
/// Maximum tag sets of one request that are looked up; more are taken for new ones.
const LOOKED_UP_MAX: usize = 1_000;
/// Attempts to find the leader of a partition.
const ATTEMPTS_MAX: usize = 5;

/// Rows of which some may not be written, because they would create more series than allowed.
#[derive(Debug)]
pub struct OverLimit {
    /// True for the rows that may be written.
    pub admitted: BooleanArray,
    /// Number of the other rows.
    pub refused: usize,
    /// Reason for the client.
    pub message: String,
}

/// Series that are known to exist, and counts of the organisations with a limit.
#[derive(Debug, Default)]
pub(crate) struct SeriesLimits {
    known: Mutex<HashSet<(TableId, u64)>>,
    /// Held while new series are admitted.
    counts: tokio::sync::Mutex<HashMap<OrgId, Count>>,
}

/// Number of series of an organisation.
#[derive(Clone, Copy, Debug)]
struct Count {
    /// Time of the sketches.
    time: Instant,
    /// Series by the sketches.
    stored: u64,
    /// Series created since.
    created: u64,
}

impl Count {
    fn total(&self) -> u64 {
        self.stored.saturating_add(self.created)
    }
}

/// A tag set that may be new.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NewSet {
    tag_set: u64,
    /// A row that has it.
    row: usize,
    /// Number of series: fields with a value.
    series: u64,
}

impl SeriesLimits {
    /// The tag sets that are not known to exist, each once, in the order of their first rows.
    fn unknown(&self, table: TableId, runs: &[TagSetRows]) -> Vec<NewSet> {
        let existing = self.known.lock();
        let mut sets: Vec<NewSet> = Vec::new();
        let mut positions: HashMap<u64, usize> = HashMap::new();
        for run in runs.iter().filter(|run| !existing.contains(&(table, run.tag_set))) {
            let position = *positions.entry(run.tag_set).or_insert(sets.len());
            match sets.get_mut(position) {
                Some(set) => set.series = set.series.max(run.fields),
                None => sets.push(NewSet {
                    tag_set: run.tag_set,
                    row: run.rows.start,
                    series: run.fields,
                }),
            }
        }
        sets
    }

    fn remember(&self, table: TableId, tag_sets: impl Iterator<Item = u64>) {
        let mut existing = self.known.lock();
        if existing.len() >= KNOWN_MAX {
            existing.clear();
        }
        existing.extend(tag_sets.map(|tag_set| (table, tag_set)));
    }
}

/// Decides, in their order, which of new sets of series can be created without exceeding the limit.
fn fitting(limit: u64, counted: u64, sizes: impl Iterator<Item = u64>) -> Vec<bool> {
    let mut total = counted;
    let fits = |size: u64| {
        let larger = total.saturating_add(size);
        let fits = larger <= limit;
        if fits {
            total = larger;
        }
        fits
    };
    sizes.map(fits).collect()
}

/// True if so many series more are far from the limit, so that it does not matter which of them exist already.
fn is_far(limit: u64, counted: u64, more: u64) -> bool {
    counted.saturating_add(more) <= limit - limit / 4
}

fn total(sets: &[NewSet]) -> u64 {
    sets.iter().map(|set| set.series).fold(0, u64::saturating_add)
}

fn tags(table: &Table) -> impl Iterator<Item = &Column> {
    table.schema.key_columns().filter(|column| column.semantic != Semantic::TimeIndex)
}

fn sql_name(column: &Column) -> &str {
    &column.name
}

fn storage_name(column: &Column) -> &str {
    &column.storage_name
}

impl Frontend {
    /// Decides which rows may be written under the limit of series of the table's organisation; `None`: all of them.
    /// Columns have SQL names.
    ///
    /// # Errors
    /// Fails if the rows do not fit the table, or the nodes with its series do not answer.
    pub async fn admit_series(
        &self,
        table: &Arc<Table>,
        rows: &RecordBatch,
    ) -> Result<Option<OverLimit>, SqlError> {
        let Some((org, limit)) = self.series_limit(table) else { return Ok(None) };
        let limits = self.series_limits();
        let runs = tag_sets(&table.schema, rows, sql_name)?;
        if limits.unknown(table.id, &runs).is_empty() {
            return Ok(None);
        }
        // One at a time: what another request creates meanwhile is known then.
        let mut counts = limits.counts.lock().await;
        let unknown = limits.unknown(table.id, &runs);
        let known_count = counts.get(&org).filter(|count| count.time.elapsed() < COUNT_AGE_MAX);
        let mut count = match known_count {
            Some(count) => *count,
            None => self.count_series(org).await,
        };
        if is_far(limit, count.total(), total(&unknown)) {
            count.created = count.created.saturating_add(total(&unknown));
            counts.insert(org, count);
            limits.remember(table.id, unknown.iter().map(|set| set.tag_set));
            return Ok(None);
        }
        // Near the limit only series that do not exist count.
        let stored = self.stored_tag_sets(table, rows, &unknown).await?;
        let (existing, fresh): (Vec<NewSet>, Vec<NewSet>) =
            unknown.into_iter().partition(|set| stored.contains(&set.tag_set));
        let exceeds = count.total().saturating_add(total(&fresh)) > limit;
        if exceeds && count.time.elapsed() >= COUNT_AGE_MIN {
            count = self.count_series(org).await;
        }
        let fits = fitting(limit, count.total(), fresh.iter().map(|set| set.series));
        let (admitted, refused): (Vec<_>, Vec<_>) =
            fresh.into_iter().zip(fits).partition(|(_, fits)| *fits);
        let created = admitted.iter().map(|(set, _)| set.series).fold(0, u64::saturating_add);
        count.created = count.created.saturating_add(created);
        counts.insert(org, count);
        drop(counts);
        let admitted = admitted.into_iter().map(|(set, _)| set);
        limits.remember(table.id, existing.into_iter().chain(admitted).map(|set| set.tag_set));
        let refused: HashSet<u64> = refused.into_iter().map(|(set, _)| set.tag_set).collect();
        Ok((!refused.is_empty()).then(|| over_limit(limit, rows.num_rows(), &runs, &refused)))
    }

    /// The organisation that owns a table's database, and its limit of series, if it has one.
    fn series_limit(&self, table: &Table) -> Option<(OrgId, u64)> {
        let catalog = self.catalog();
        let database = catalog.databases.get(&table.database)?;
        let org = catalog.access.role(database.owner)?.org?;
        Some((org, catalog.access.org(org)?.series_limit()?))
    }

    /// Counts the series of an organisation by sketches.
    async fn count_series(&self, org: OrgId) -> Count {
        let statuses = series_statuses(self.view().nodes().as_ref()).await;
        let catalog = self.catalog();
        let is_owned = |database: &&Arc<Database>| {
            catalog.access.role(database.owner).and_then(|role| role.org) == Some(org)
        };
        let databases = catalog.databases.values().filter(is_owned);
        let tables = databases.filter_map(|database| catalog.tables.get(&database.name));
        let counts = tables.flat_map(BTreeMap::values).map(|table| count(table, &statuses));
        let stored = counts.fold(0, u64::saturating_add);
        Count { time: Instant::now(), stored, created: 0 }
    }

    /// Those of the tag sets that the table has, among others.
    async fn stored_tag_sets(
        &self,
        table: &Arc<Table>,
        rows: &RecordBatch,
        sets: &[NewSet],
    ) -> Result<HashSet<u64>, SqlError> {
        let table = self.view().newest(table).unwrap_or_else(|| Arc::clone(table));
        let sets = &sets[..sets.len().min(LOOKED_UP_MAX)];
        let mut domains = Domains::default();
        for tag in tags(&table) {
            let array = rows.column_by_name(&tag.name);
            let value = |set: &NewSet| match array {
                Some(array) => Value::from_array(array.as_ref(), set.row),
                None => Ok(Value::Null),
            };
            let values = sets.iter().map(value).collect::<Result<Vec<_>, _>>()?;
            domains.restrict(&tag.storage_name, Domain::points(values));
        }
        // The time index is needed for a table without tags.
        let columns = tags(&table).chain(table.schema.time_index()).map(Column::storage_field);
        let columns = Arc::new(Schema::new(columns.collect::<Vec<_>>()));
        let mut stored = HashSet::new();
        for route in table.partitions.routes() {
            let request = ScanRequest {
                partition: route.partition,
                epoch: route.epoch,
                columns: Arc::clone(&columns),
                domains: domains.clone(),
                limit: None,
                parallelism: 1,
                newest_only: true,
                probes: Vec::new(),
                read_from: ReadFrom::Leader,
                first_by_time: None,
                order: None,
                for_update: false,
                uncollected: false,
            };
            for mut stream in self.scan_leader(route, &request).await?.streams {
                while let Some(batch) = stream.next().await {
                    let runs = tag_sets(&table.schema, &batch?, storage_name)?;
                    stored.extend(runs.into_iter().map(|run| run.tag_set));
                }
            }
        }
        Ok(stored)
    }

    /// Scans a partition at its leader, which is searched for.
    pub(crate) async fn scan_leader(
        &self,
        route: &Route,
        request: &ScanRequest,
    ) -> Result<ScanReply, Error> {
        let (leaders, nodes) = (self.view().leaders(), self.view().nodes());
        let mut node = leaders.first(route);
        let mut attempts = 0;
        loop {
            attempts += 1;
            let Some(id) = node else {
                return Err(Error::Unavailable(format!(
                    "no node is known to hold partition {}",
                    route.partition
                )));
            };
            let reply = match nodes.node(id) {
                Ok(service) => service.scan(request.clone()).await,
                Err(error) => Err(error),
            };
            let error = match reply {
                Ok(reply) => {
                    leaders.answered(route.partition, node);
                    return Ok(reply);
                }
                Err(error) if attempts >= ATTEMPTS_MAX => return Err(error),
                Err(error) => error,
            };
            leaders.failed(route.partition, node);
            node = match &error {
                Error::NotLeader { leader: Some(leader), .. } => Some(*leader),
                _ => leaders.next(route, node, &error),
            };
        }
    }
}

fn over_limit(limit: u64, rows: usize, runs: &[TagSetRows], refused: &HashSet<u64>) -> OverLimit {
    let mut admitted = vec![true; rows];
    for run in runs.iter().filter(|run| refused.contains(&run.tag_set)) {
        if let Some(rows) = admitted.get_mut(run.rows.clone()) {
            rows.fill(false);
        }
    }
    let admitted = BooleanArray::from(admitted);
    OverLimit {
        refused: admitted.false_count(),
        admitted,
        message: format!(
            "{} new tag sets would take the organisation over its limit of {limit} series; existing series can \
             still be written",
            refused.len()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: TableId = TableId(1);

    fn run(rows: std::ops::Range<usize>, tag_set: u64, fields: u64) -> TagSetRows {
        TagSetRows { rows, tag_set, fields }
    }

    #[test]
    fn sets_are_created_in_order_while_they_fit() {
        assert_eq!(fitting(25, 20, [5, 1].into_iter()), [true, false]);
        assert_eq!(fitting(25, 20, [6, 5, 1].into_iter()), [false, true, false]);
        assert_eq!(fitting(25, 30, [0, 1].into_iter()), [false, false]);
        assert_eq!(fitting(u64::MAX, u64::MAX, [1].into_iter()), [true]);
    }

    #[test]
    fn the_last_quarter_before_the_limit_is_near() {
        assert!(is_far(100, 70, 5) && !is_far(100, 70, 6));
        assert!(!is_far(0, 0, 1));
    }

    #[test]
    fn a_tag_set_is_unknown_until_it_is_remembered() {
        let limits = SeriesLimits::default();
        let runs = [run(0..2, 7, 1), run(2..3, 8, 1), run(3..4, 7, 3)];
        let expected =
            [NewSet { tag_set: 7, row: 0, series: 3 }, NewSet { tag_set: 8, row: 2, series: 1 }];
        assert_eq!(limits.unknown(TABLE, &runs), expected);
        limits.remember(TABLE, [7].into_iter());
        assert_eq!(limits.unknown(TABLE, &runs), expected[1..]);
        assert_eq!(limits.unknown(TableId(2), &runs), expected, "of another table");
    }

    #[test]
    fn all_rows_of_a_refused_tag_set_are_left_out() {
        let runs = [run(0..2, 7, 1), run(2..3, 8, 1), run(3..4, 7, 3)];
        let over = over_limit(25, 4, &runs, &HashSet::from([7]));
        assert_eq!(over.admitted, BooleanArray::from(vec![false, false, true, false]));
        assert_eq!(over.refused, 3);
    }
}
