//! Prometheus series of load: how unevenly tables are loaded, their verdicts, splits and merges.
//!
//! Invariants: all series come from one report, which is at most some seconds old; their number is bounded, whatever
//! the number of tables and partitions: [`TABLES_MAX`] tables, one series for each class of verdict on their hot
//! partitions, and [`TOP`] partitions, which have numbered slots; those of them that are hot have their names, too, and
//! their keys only for those who may read them. Splits are counted when they first appear in a report, so the
//! counters of this process only grow, although meta remembers only the last splits, and another meta none of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use partita_frontend::Frontend;
use partita_load::{Class, Shape, Standing};
use partita_proto::history::{Cause, ReshapeOutcome};
use partita_proto::id::{PartitionId, TableId};
use partita_proto::load::{LoadReport, PartitionLoad};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::heatmap::shown_name;

/// Maximum number of tables with series: those with the most load.
const TABLES_MAX: usize = 50;
/// Number of partitions with series: the busiest.
const TOP: usize = 20;
/// Maximum length of a key in a label, characters.
const KEY_MAX: usize = 120;
/// Number of splits remembered as counted; meta still reports few older ones.
const COUNTED_MAX: usize = 10_000;

/// Label of splits and merges whose cause only a newer version knows.
const UNKNOWN_CAUSE: &str = "unknown";

/// A split or merge, identified by both partitions.
type Event = (bool, PartitionId, Option<PartitionId>);

/// Names that a text may have, by the rights of its reader.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// True for those of tables.
    pub(crate) tables: bool,
    /// Tables of which keys may be shown.
    pub(crate) keys_of: BTreeSet<TableId>,
}

/// The last report, and counters over all reports.
#[derive(Debug, Default)]
struct State {
    report: Option<Arc<LoadReport>>,
    /// Names that the next text may have.
    names: Names,
    counted: BTreeSet<Event>,
    in_vain_counted: BTreeSet<Event>,
    splits: BTreeMap<&'static str, u64>,
    merges: BTreeMap<&'static str, u64>,
    in_vain: u64,
}

impl State {
    fn take(&mut self, report: Option<Arc<LoadReport>>) {
        for event in report.iter().flat_map(|report| &report.splits) {
            let id = (event.merge, event.partition, event.children.first().copied());
            if event.outcome == Some(ReshapeOutcome::Done) && self.counted.insert(id) {
                let reason = event.why.cause.map_or(UNKNOWN_CAUSE, Cause::name);
                let sums = if event.merge { &mut self.merges } else { &mut self.splits };
                *sums.entry(reason).or_default() += 1;
            }
            if event.in_vain == Some(true) && self.in_vain_counted.insert(id) {
                self.in_vain += 1;
            }
        }
        for counted in [&mut self.counted, &mut self.in_vain_counted] {
            while counted.len() > COUNTED_MAX {
                counted.pop_first();
            }
        }
        self.report = report;
    }
}

/// The collector of load series.
pub(crate) struct LoadMetrics {
    frontend: Arc<Frontend>,
    state: Arc<Mutex<State>>,
}

impl std::fmt::Debug for LoadMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LoadMetrics")
    }
}

/// The input for reports.
pub(crate) struct LoadIntake(Arc<Mutex<State>>);

impl LoadIntake {
    /// Stores meta's current report, and the names that the next text may have; without a report, only counters are
    /// exported.
    pub(crate) fn take(&self, report: Option<Arc<LoadReport>>, names: Names) {
        let mut state = self.0.lock();
        state.take(report);
        state.names = names;
    }
}

impl LoadMetrics {
    pub(crate) fn new(frontend: Arc<Frontend>) -> (Self, LoadIntake) {
        let state = Arc::new(Mutex::new(State::default()));
        (Self { frontend, state: Arc::clone(&state) }, LoadIntake(state))
    }
}

/// A table with series.
struct OfTable<'r> {
    name: String,
    writes: Shape,
    loads: Vec<&'r PartitionLoad>,
}

fn loudest<'r>(
    report: &'r LoadReport,
    name: impl Fn(TableId) -> Option<String>,
) -> Vec<OfTable<'r>> {
    let mut by_table: BTreeMap<TableId, Vec<&PartitionLoad>> = BTreeMap::new();
    for load in &report.partitions {
        by_table.entry(load.table).or_default().push(load);
    }
    let sum = |loads: &[&PartitionLoad]| -> f64 {
        loads.iter().map(|load| load.rates.write_rows + load.rates.read_rows).sum()
    };
    let mut tables: Vec<_> =
        by_table.into_iter().map(|(id, loads)| (sum(&loads), id, loads)).collect();
    tables.retain(|(sum, _, _)| *sum > 0.0);
    tables.sort_by(|(a, id, _), (b, other_id, _)| b.total_cmp(a).then(id.cmp(other_id)));
    tables.truncate(TABLES_MAX);
    let with_series = |(_, id, loads): (f64, TableId, Vec<&'r PartitionLoad>)| {
        let writes = Shape::of(loads.iter().map(|load| load.rates.write_rows));
        Some(OfTable { name: name(id)?, writes, loads })
    };
    tables.into_iter().filter_map(with_series).collect()
}

impl Collector for LoadMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        let sums = [
            ("splits", "Splits, by reason", &state.splits),
            ("merges", "Merges, by reason", &state.merges),
        ];
        for (name, help, sums) in sums {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (reason, count) in sums {
                let labels = [("reason", *reason)];
                ConstCounter::new(*count).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Splits that did not divide the load";
        let vain = encoder.encode_descriptor("splits_in_vain", help, None, MetricType::Counter)?;
        ConstCounter::new(state.in_vain).encode(vain)?;
        let Some(report) = &state.report else { return Ok(()) };
        if state.names.tables {
            let catalog = self.frontend.catalog();
            let name = |id| catalog.table_by_id(id).map(|table| shown_name(table));
            let tables = loudest(report, name);
            encode_tables(&mut encoder, &tables)?;
            encode_verdicts(&mut encoder, &tables)?;
            self.encode_hot(&mut encoder, report, &state.names)?;
        }
        encode_standings(&mut encoder, report)?;
        encode_top(&mut encoder, report)
    }
}

impl LoadMetrics {
    /// The hot partitions with a finding, by name: what an alarm is about.
    fn encode_hot(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        report: &LoadReport,
        names: &Names,
    ) -> std::fmt::Result {
        let help =
            "Load of hot partitions in cores: of the write lane, or of reads where these are more";
        let mut family =
            encoder.encode_descriptor("hot_partition", help, None, MetricType::Gauge)?;
        let catalog = self.frontend.catalog();
        let mut hot: Vec<&PartitionLoad> =
            report.partitions.iter().filter(|load| load.is_hot()).collect();
        hot.sort_by(|a, b| b.busiest().total_cmp(&a.busiest()).then(a.partition.cmp(&b.partition)));
        for load in hot.into_iter().take(TOP) {
            let class = load.verdict.as_ref().map(|verdict| verdict.class);
            let Some(class) = class.filter(|class| class.is_finding()) else { continue };
            let Some(table) = catalog.table_by_id(load.table) else { continue };
            let may_name = names.keys_of.contains(&load.table);
            let key = may_name.then(|| self.frontend.hot_key_text(table, load)).flatten();
            let key: String = key.unwrap_or_default().chars().take(KEY_MAX).collect();
            let (name, partition) = (shown_name(table), load.partition.to_string());
            let labels = [
                ("table", name.as_str()),
                ("partition", partition.as_str()),
                ("class", class.name()),
                ("key", key.as_str()),
            ];
            ConstGauge::new(load.busiest()).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn encode_tables(encoder: &mut DescriptorEncoder<'_>, tables: &[OfTable<'_>]) -> std::fmt::Result {
    type Figure = fn(&Shape) -> f64;
    let figures: [(&str, &str, Figure); 4] = [
        ("table_neff", "Equal partitions that would be as unevenly written", |shape| {
            shape.effective
        }),
        ("table_max_over_mean", "Rows written to the busiest partition over the mean", |shape| {
            shape.max_over_mean
        }),
        ("table_gini", "Gini coefficient of rows written to partitions", |shape| shape.gini),
        ("table_write_rows_per_second", "Rows written, as nodes report them", |shape| shape.total),
    ];
    for (name, help, figure) in figures {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for table in tables {
            let labels = [("table", table.name.as_str())];
            ConstGauge::new(figure(&table.writes)).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn encode_verdicts(
    encoder: &mut DescriptorEncoder<'_>,
    tables: &[OfTable<'_>],
) -> std::fmt::Result {
    let help = "Hot partitions by verdict of the hotspot detector";
    let mut family =
        encoder.encode_descriptor("detector_verdict", help, None, MetricType::Gauge)?;
    for table in tables {
        let mut classes: BTreeMap<Class, i64> = BTreeMap::new();
        // A verdict on a partition that carries its load is no finding.
        let hot = table.loads.iter().filter(|load| load.is_hot());
        for verdict in hot.filter_map(|load| load.verdict.as_ref()) {
            *classes.entry(verdict.class).or_default() += 1;
        }
        for (class, count) in classes {
            let labels = [("table", table.name.as_str()), ("class", class.name())];
            ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// Numbers of partitions without names of tables; a standing without partitions is zero, so that an alarm ends.
fn encode_standings(encoder: &mut DescriptorEncoder<'_>, report: &LoadReport) -> std::fmt::Result {
    let help = "Partitions by the state of their load";
    let mut family =
        encoder.encode_descriptor("partitions_by_standing", help, None, MetricType::Gauge)?;
    for standing in [Standing::Idle, Standing::Healthy, Standing::Busy, Standing::Hot] {
        let with_standing = report.partitions.iter().filter(|load| load.standing == standing);
        let count = i64::try_from(with_standing.count()).unwrap_or(i64::MAX);
        let labels = [("standing", standing.name())];
        ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// The busiest partitions have numbered slots, so that those that come and go leave no series behind.
fn encode_top(encoder: &mut DescriptorEncoder<'_>, report: &LoadReport) -> std::fmt::Result {
    let mut busiest: Vec<&PartitionLoad> = report.partitions.iter().collect();
    busiest.sort_by(|a, b| b.busiest().total_cmp(&a.busiest()).then(a.partition.cmp(&b.partition)));
    busiest.truncate(TOP);
    type Figure = fn(&PartitionLoad) -> f64;
    #[expect(clippy::cast_precision_loss, reason = "numbers of partitions and nodes are small")]
    let figures: [(&str, &str, Figure); 5] = [
        ("top_partition_rho", "Busy share of the busiest partitions", |load| load.busy.s10),
        ("top_partition_reads_rho", "Cores that read the busiest partitions", |load| {
            load.reads_busy
        }),
        (
            "top_partition_write_rows_per_second",
            "Rows written a second to the busiest partitions",
            |load| load.rates.write_rows,
        ),
        ("top_partition_number", "Ids of the busiest partitions", |load| load.partition.0 as f64),
        ("top_partition_leader", "Leader nodes of the busiest partitions; 0: unknown", |load| {
            load.leader.map_or(0.0, |node| node.0 as f64)
        }),
    ];
    for (name, help, figure) in figures {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (slot, load) in (1_u64..).zip(&busiest) {
            let slot = slot.to_string();
            let labels = [("slot", slot.as_str())];
            ConstGauge::new(figure(load)).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use partita_proto::load::{ShownReason, SplitEvent};

    use super::*;

    fn split(child: u64, outcome: &str, why: &str, in_vain: Option<bool>) -> SplitEvent {
        SplitEvent {
            partition: PartitionId(1),
            children: vec![PartitionId(child)],
            outcome: ReshapeOutcome::parse(outcome),
            why: ShownReason::parse(why),
            in_vain,
            ..SplitEvent::default()
        }
    }

    fn told(splits: Vec<SplitEvent>) -> Option<Arc<LoadReport>> {
        Some(Arc::new(LoadReport { splits, ..LoadReport::default() }))
    }

    #[test]
    fn a_split_counts_once_when_it_is_done_and_again_when_it_was_in_vain() {
        let mut heard = State::default();
        heard.take(told(vec![split(2, "under way", "load: busy", None)]));
        assert!(heard.splits.is_empty());
        heard.take(told(vec![
            split(2, "done", "load: busy", None),
            split(3, "done", "by hand", None),
        ]));
        heard.take(told(vec![split(2, "done", "load: busy", Some(true))]));
        heard.take(None);
        heard.take(told(vec![split(2, "done", "load: busy", Some(true))]));
        let counted: Vec<_> = heard.splits.iter().map(|(why, count)| (*why, *count)).collect();
        assert_eq!(counted, [("by hand", 1), ("load", 1)]);
        assert_eq!(heard.in_vain, 1);
    }
}
