//! Series of load for Prometheus: how unevenly tables are loaded, what is wrong with them, and what was done.
//!
//! Invariants: made of one report, some seconds old at most; their number is bounded, whatever the number of tables and
//! partitions: [`TABLES_MAX`] tables, one series for each class that is found of them, and [`TOP`] partitions, which
//! take numbered places. Splits are counted when they are first heard of, so the counters of this process only grow,
//! although meta remembers the last ones only, and another meta none of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use partita_frontend::Frontend;
use partita_load::Shape;
use partita_proto::id::{PartitionId, TableId};
use partita_proto::load::{LoadReport, PartitionLoad};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::heatmap::shown_name;

/// Tables that have series: those with the most load.
const TABLES_MAX: usize = 50;
/// Partitions that have series: the busiest.
const TOP: usize = 20;
/// Splits that are known to have been counted; older ones that meta still tells of are few.
const COUNTED_MAX: usize = 10_000;

/// A split or merge: both partitions, which no other one of its kind has.
type Event = (bool, PartitionId, Option<PartitionId>);

/// What was heard.
#[derive(Debug, Default)]
struct Heard {
    report: Option<Arc<LoadReport>>,
    counted: BTreeSet<Event>,
    in_vain_counted: BTreeSet<Event>,
    splits: BTreeMap<String, u64>,
    merges: BTreeMap<String, u64>,
    in_vain: u64,
}

impl Heard {
    fn take(&mut self, report: Option<Arc<LoadReport>>) {
        for event in report.iter().flat_map(|report| &report.splits) {
            let id = (event.merge, event.partition, event.children.first().copied());
            if event.outcome == "done" && self.counted.insert(id) {
                let reason = event.why.split(':').next().unwrap_or_default().to_owned();
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

/// What is told of load, and what it is made of.
pub(crate) struct LoadMetrics {
    frontend: Arc<Frontend>,
    heard: Arc<Mutex<Heard>>,
}

impl std::fmt::Debug for LoadMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LoadMetrics")
    }
}

/// Where reports go in.
pub(crate) struct LoadIntake(Arc<Mutex<Heard>>);

impl LoadIntake {
    /// Takes what meta says now; nothing when it says nothing: then only what was counted is shown.
    pub(crate) fn take(&self, report: Option<Arc<LoadReport>>) {
        self.0.lock().take(report);
    }
}

impl LoadMetrics {
    pub(crate) fn new(frontend: Arc<Frontend>) -> (Self, LoadIntake) {
        let heard = Arc::new(Mutex::new(Heard::default()));
        (Self { frontend, heard: Arc::clone(&heard) }, LoadIntake(heard))
    }
}

/// One table with series.
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
    tables.sort_by(|(a, id, _), (b, other, _)| b.total_cmp(a).then(id.cmp(other)));
    tables.truncate(TABLES_MAX);
    let of = |(_, id, loads): (f64, TableId, Vec<&'r PartitionLoad>)| {
        let writes = Shape::of(loads.iter().map(|load| load.rates.write_rows));
        Some(OfTable { name: name(id)?, writes, loads })
    };
    tables.into_iter().filter_map(of).collect()
}

impl Collector for LoadMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let heard = self.heard.lock();
        let sums = [
            ("splits", "Splits, by what wanted them", &heard.splits),
            ("merges", "Merges, by what wanted them", &heard.merges),
        ];
        for (name, help, sums) in sums {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (reason, count) in sums {
                let labels = [("reason", reason.as_str())];
                ConstCounter::new(*count).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Splits that did not divide the load";
        let vain = encoder.encode_descriptor("splits_in_vain", help, None, MetricType::Counter)?;
        ConstCounter::new(heard.in_vain).encode(vain)?;
        let Some(report) = &heard.report else { return Ok(()) };
        let catalog = self.frontend.catalog();
        let tables = loudest(report, |id| catalog.table_by_id(id).map(|table| shown_name(table)));
        encode_tables(&mut encoder, &tables)?;
        encode_verdicts(&mut encoder, &tables)?;
        encode_top(&mut encoder, report)
    }
}

fn encode_tables(encoder: &mut DescriptorEncoder<'_>, tables: &[OfTable<'_>]) -> std::fmt::Result {
    type Figure = fn(&Shape) -> f64;
    let figures: [(&str, &str, Figure); 4] = [
        ("table_neff", "Equal partitions that would be as unevenly written", |of| of.effective),
        ("table_max_over_mean", "Rows written to the busiest partition over the mean", |of| {
            of.max_over_mean
        }),
        ("table_gini", "Gini coefficient of rows written to partitions", |of| of.gini),
        ("table_write_rows_per_second", "Rows written, as nodes report them", |of| of.total),
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
    let help = "Partitions of which the detector says so";
    let mut family =
        encoder.encode_descriptor("detector_verdict", help, None, MetricType::Gauge)?;
    for table in tables {
        let mut classes: BTreeMap<&str, i64> = BTreeMap::new();
        for verdict in table.loads.iter().filter_map(|load| load.verdict.as_ref()) {
            *classes.entry(&verdict.class).or_default() += 1;
        }
        for (class, count) in classes {
            let labels = [("table", table.name.as_str()), ("class", class)];
            ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// The busiest partitions take numbered places, so that those that come and go leave no series behind.
fn encode_top(encoder: &mut DescriptorEncoder<'_>, report: &LoadReport) -> std::fmt::Result {
    let mut busiest: Vec<&PartitionLoad> = report.partitions.iter().collect();
    busiest.sort_by(|a, b| b.busy.s10.total_cmp(&a.busy.s10).then(a.partition.cmp(&b.partition)));
    busiest.truncate(TOP);
    type Figure = fn(&PartitionLoad) -> f64;
    #[expect(clippy::cast_precision_loss, reason = "numbers of partitions and nodes are small")]
    let figures: [(&str, &str, Figure); 4] = [
        ("top_partition_rho", "Busy share of the busiest partitions", |load| load.busy.s10),
        ("top_partition_write_rows_per_second", "Rows that they are written", |load| {
            load.rates.write_rows
        }),
        ("top_partition_number", "Which they are", |load| load.partition.0 as f64),
        ("top_partition_leader", "The nodes that lead them; 0: nobody known", |load| {
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
    use partita_proto::load::SplitEvent;

    use super::*;

    fn split(child: u64, outcome: &str, why: &str, in_vain: Option<bool>) -> SplitEvent {
        SplitEvent {
            partition: PartitionId(1),
            children: vec![PartitionId(child)],
            outcome: outcome.to_owned(),
            why: why.to_owned(),
            in_vain,
            ..SplitEvent::default()
        }
    }

    fn told(splits: Vec<SplitEvent>) -> Option<Arc<LoadReport>> {
        Some(Arc::new(LoadReport { splits, ..LoadReport::default() }))
    }

    #[test]
    fn a_split_counts_once_when_it_is_done_and_again_when_it_was_in_vain() {
        let mut heard = Heard::default();
        heard.take(told(vec![split(2, "under way", "load: busy", None)]));
        assert!(heard.splits.is_empty());
        heard.take(told(vec![
            split(2, "done", "load: busy", None),
            split(3, "done", "by hand", None),
        ]));
        heard.take(told(vec![split(2, "done", "load: busy", Some(true))]));
        heard.take(None);
        heard.take(told(vec![split(2, "done", "load: busy", Some(true))]));
        let counted: Vec<_> =
            heard.splits.iter().map(|(why, count)| (why.as_str(), *count)).collect();
        assert_eq!(counted, [("by hand", 1), ("load", 1)]);
        assert_eq!(heard.in_vain, 1);
    }
}
