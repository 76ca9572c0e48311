//! Measures one second of a cluster.
//!
//! Invariant: measuring does not influence decisions.

use partita_heatmap::{Finding, Key, PartitionLoad, Report, Shares};
use partita_load::{PartitionId, Random, Shape, Verdict};

use super::latency::Latency;
use super::second::Second;
use crate::cluster::{BEGIN_MS, Cluster};
use crate::number::narrow;
use crate::workload::Source;

/// Maximum shares of partitions recorded per second.
const SHARES_MAX: usize = 16;
/// Maximum nodes that are recorded individually.
const NODES_MAX: usize = 16;
/// Maximum partitions whose inner distribution is drawn.
const INSIDE_MAX: usize = 64;
/// Buckets inside a partition, in the heatmap.
const INSIDE: u32 = 16;

impl Cluster {
    pub(crate) fn measure(&mut self) {
        let (now_ms, at_us) = (self.now_ms, self.at_us());
        self.books.judge_splits(now_ms, &self.tables[0].load);
        self.note_verdicts();
        let table = &self.tables[0];
        let mut leaders = vec![0.0; self.nodes.len()];
        let mut latency = Latency::new();
        let mut served: Vec<f64> = Vec::with_capacity(table.order.len());
        for id in &table.order {
            let part = &self.parts[*id as usize];
            served.push(part.served_rows);
            leaders[part.leader as usize] += part.served_rows;
            latency.add(part.busy, part.served_rows);
        }
        let total: f64 = served.iter().sum();
        let shape = Shape::of(served.iter().copied());
        let nodes = Shape::of(self.nodes.iter().map(|node| node.load));
        // Mean waiting time of clients before they could send a request.
        let wait_ms = if total > 0.0 { 1_000.0 * table.backlog / total } else { 0.0 };
        let [p50, p99, p999] = latency.percentiles([0.5, 0.99, 0.999]).map(|ms| ms + wait_ms);
        served.sort_unstable_by(|a, b| b.total_cmp(a));
        let share = |rows: &f64| if total > 0.0 { rows / total } else { 0.0 };
        let led = Some(&leaders).filter(|leaders| leaders.len() <= NODES_MAX);
        let led = led.map(|leaders| leaders.iter().map(share).collect()).unwrap_or_default();
        let second = Second {
            second: at_us / 1_000_000,
            offered: table.offered,
            served: total,
            partitions: served.len(),
            shares: served.iter().take(SHARES_MAX).map(share).collect(),
            max_over_mean: shape.max_over_mean,
            variation: shape.variation,
            gini: shape.gini,
            n_eff: shape.effective,
            n_eff_leaders: Shape::of(leaders.iter().copied()).effective,
            n_eff_nodes: nodes.effective,
            leaders: led,
            node_max_over_mean: nodes.max_over_mean,
            p50_ms: p50,
            p99_ms: p99,
            p999_ms: p999,
            hot: self.books.said.len(),
            verdict: self.books.said.values().next().copied().flatten(),
            ..self.books.counts.clone()
        };
        self.books.seconds.push(second);
        if self.books.history.is_some() && (at_us / 1_000_000).is_multiple_of(self.books.every_s) {
            self.paint(at_us);
        }
    }

    fn note_verdicts(&mut self) {
        let now_ms = self.now_ms;
        let mut classes = std::collections::BTreeMap::new();
        for hot in self.scheduler.hot(now_ms) {
            let PartitionId(id) = hot.partition;
            let Ok(id) = u32::try_from(id) else { continue };
            if hot.table.0 != 0 {
                continue;
            }
            self.books.detected_s.get_or_insert((now_ms - BEGIN_MS) / 1_000);
            let class = hot.verdict.as_ref().map(|verdict| verdict.class);
            if let Some(verdict) =
                hot.verdict.as_ref().filter(|_| self.books.said.get(&id) != Some(&class))
            {
                let part = &self.parts[id as usize];
                let finding = finding(now_ms, &part.low, part.high.as_deref(), verdict);
                self.books.was_judged(now_ms, verdict, finding);
            }
            classes.insert(id, class);
        }
        self.books.said = classes;
    }

    /// Adds a column to the heatmap.
    fn paint(&mut self, at_us: u64) {
        let table = &self.tables[0];
        let inside = table.order.len() <= INSIDE_MAX;
        let loads = table.order.iter().map(|id| {
            let part = &self.parts[*id as usize];
            // The strongest source tells where in the partition the load is.
            let writes = table
                .load
                .sources
                .iter()
                .max_by(|a, b| a.rate.at(at_us).total_cmp(&b.rate.at(at_us)));
            let shares = writes
                .filter(|_| inside)
                .map(|source| shares(source, at_us, &part.low, part.high.as_deref()));
            let shares = shares.unwrap_or_default();
            PartitionLoad {
                id: u64::from(*id),
                leader: Some(u64::from(part.leader)),
                start: Key::from(&*part.low),
                end: part.high.as_deref().map(Key::from),
                rates: [
                    narrow(part.served_rows),
                    0.0,
                    narrow(part.served_rows * part.row_bytes),
                    narrow(part.busy),
                ],
                writes: shares.clone(),
                reads: shares,
            }
        });
        let seconds = crate::number::small(usize::try_from(self.books.every_s).unwrap_or(1));
        let report = Report { from: self.now_ms / 1_000, seconds, partitions: loads.collect() };
        if let Some(history) = &mut self.books.history {
            history.push(&report);
        }
    }
}

/// Distribution of a source's load within a partition: keys that divide it evenly.
fn shares(source: &Source, at_us: u64, low: &[u8], high: Option<&[u8]>) -> Shares {
    let (start, end) =
        (source.law.below(at_us, low), high.map_or(1.0, |key| source.law.below(at_us, key)));
    if end <= start {
        return Shares::default();
    }
    let mut random = Random::new(1);
    let keys = (0..INSIDE).map(|index| {
        let spot = start + (end - start) * (f64::from(index) + 0.5) / f64::from(INSIDE);
        let mut key = Vec::new();
        source.law.draw(at_us, spot, spot, &mut random, &mut key);
        Key::from(key)
    });
    Shares::of_samples(
        keys.filter(|key| **key >= *low && high.is_none_or(|high| **key < *high)).collect(),
    )
}

fn finding(now_ms: u64, low: &[u8], high: Option<&[u8]>, verdict: &Verdict) -> Finding {
    let evidence = &verdict.evidence;
    Finding {
        partition: None,
        since: now_ms / 1_000,
        until: None,
        start: Key::from(low),
        end: high.map(Key::from),
        class: verdict.class.to_string(),
        evidence: format!(
            "append_high {:.2}, append_low {:.2}, AUC {:.2}, best cut leaves {:.2} on one side (predicted {:.2}), top key {:.2}, {} s",
            evidence.append_high,
            evidence.append_low,
            evidence.auc,
            evidence.p_out,
            evidence.predicted,
            evidence.top_key,
            evidence.window_s
        ),
        advice: String::new(),
    }
}
