//! Load of partitions and nodes.

mod events;

use partita_load::{Class, Standing};

use super::{Wire, all, pb, required};
use crate::error::Error;
use crate::id::{Epoch, NodeId, PartitionId, TableId};
use crate::load::{
    Busy, Evidence, HeatmapRequest, Instant, KeySample, Latency, LoadReport, LoadRequest, NodeLoad,
    OfferedRows, PartitionLoad, Rates, Verdict,
};

impl Wire for LoadRequest {
    type Message = pb::LoadRequest;

    fn to_wire(&self) -> pb::LoadRequest {
        pb::LoadRequest {
            table: self.table.map(|table| table.0),
            history_since: self.history_since.map(|start| start.0),
            samples: self.samples,
        }
    }

    fn from_wire(message: pb::LoadRequest) -> Result<Self, Error> {
        Ok(Self {
            table: message.table.map(TableId),
            history_since: message.history_since.map(Instant),
            samples: message.samples,
        })
    }
}

impl Wire for HeatmapRequest {
    type Message = pb::HeatmapRequest;

    fn to_wire(&self) -> pb::HeatmapRequest {
        pb::HeatmapRequest {
            table: self.table.0,
            metric: self.metric.clone(),
            since_s: self.since_s,
            until_s: self.until_s,
            rows: self.rows,
            columns: self.columns,
            from_key: self.from_key.clone(),
            to_key: self.to_key.clone(),
        }
    }

    fn from_wire(message: pb::HeatmapRequest) -> Result<Self, Error> {
        Ok(Self {
            table: TableId(message.table),
            metric: message.metric,
            since_s: message.since_s,
            until_s: message.until_s,
            rows: message.rows,
            columns: message.columns,
            from_key: message.from_key,
            to_key: message.to_key,
        })
    }
}

impl Wire for LoadReport {
    type Message = pb::LoadReport;

    fn to_wire(&self) -> pb::LoadReport {
        pb::LoadReport {
            at: self.at.0,
            partitions: self.partitions.iter().map(Wire::to_wire).collect(),
            nodes: self.nodes.iter().map(Wire::to_wire).collect(),
            splits: self.splits.iter().map(Wire::to_wire).collect(),
            balances: self.balances.iter().map(Wire::to_wire).collect(),
            hot_keys: self.hot_keys.iter().map(Wire::to_wire).collect(),
            history: self.history.iter().map(Wire::to_wire).collect(),
            hot_causes: self.hot_causes.iter().map(Wire::to_wire).collect(),
            rotations: self.rotations.iter().map(Wire::to_wire).collect(),
            forecasts: self.forecasts.iter().map(Wire::to_wire).collect(),
        }
    }

    fn from_wire(message: pb::LoadReport) -> Result<Self, Error> {
        Ok(Self {
            at: Instant(message.at),
            partitions: all(message.partitions)?,
            nodes: all(message.nodes)?,
            splits: all(message.splits)?,
            balances: all(message.balances)?,
            hot_keys: all(message.hot_keys)?,
            history: all(message.history)?,
            hot_causes: all(message.hot_causes)?,
            rotations: all(message.rotations)?,
            forecasts: all(message.forecasts)?,
        })
    }
}

impl Wire for PartitionLoad {
    type Message = pb::PartitionLoad;

    fn to_wire(&self) -> pb::PartitionLoad {
        pb::PartitionLoad {
            table: self.table.0,
            partition: self.partition.0,
            range: Some(self.range.to_wire()),
            leader: self.leader.map(|node| node.0),
            epoch: self.epoch.0,
            age: Some(self.age.to_wire()),
            busy: Some(self.busy.to_wire()),
            rates: Some(self.rates.to_wire()),
            queue: self.queue,
            size_bytes: self.size_bytes,
            rows: self.rows,
            write_latency: self.write_latency.as_ref().map(Wire::to_wire),
            share: self.share,
            verdict: self.verdict.as_ref().map(Wire::to_wire),
            samples: self.samples.iter().map(Wire::to_wire).collect(),
            standing: self.standing.name().to_owned(),
            reads_busy: self.reads_busy,
            offered_rows: self.offered.rows_per_s,
            offered_is_floor: self.offered.is_floor,
            read_share: self.read_share,
            capacity_rows: self.capacity.0,
            capacity_measured: self.capacity.1,
        }
    }

    fn from_wire(message: pb::PartitionLoad) -> Result<Self, Error> {
        Ok(Self {
            table: TableId(message.table),
            partition: PartitionId(message.partition),
            range: required(message.range, "range")?,
            leader: message.leader.map(NodeId),
            epoch: Epoch(message.epoch),
            age: required(message.age, "age")?,
            busy: required(message.busy, "busy shares")?,
            rates: required(message.rates, "rates")?,
            queue: message.queue,
            size_bytes: message.size_bytes,
            rows: message.rows,
            write_latency: message.write_latency.map(Wire::from_wire).transpose()?,
            share: message.share,
            verdict: message.verdict.map(Wire::from_wire).transpose()?,
            samples: all(message.samples)?,
            // An earlier version names none, a newer one perhaps one that is unknown here: nothing follows from either.
            standing: Standing::named(&message.standing).unwrap_or_default(),
            reads_busy: message.reads_busy,
            offered: OfferedRows {
                rows_per_s: message.offered_rows,
                is_floor: message.offered_is_floor,
            },
            read_share: message.read_share,
            capacity: (message.capacity_rows, message.capacity_measured),
        })
    }
}

impl Wire for Busy {
    type Message = pb::LoadBusy;

    fn to_wire(&self) -> pb::LoadBusy {
        let Self { s10, s60, s600, max } = *self;
        pb::LoadBusy { s10, s60, s600, max }
    }

    fn from_wire(message: pb::LoadBusy) -> Result<Self, Error> {
        let pb::LoadBusy { s10, s60, s600, max } = message;
        Ok(Self { s10, s60, s600, max })
    }
}

impl Wire for Rates {
    type Message = pb::LoadRates;

    fn to_wire(&self) -> pb::LoadRates {
        let Self { write_rows, write_bytes, read_rows, point_reads, scans, rejected } = *self;
        pb::LoadRates { write_rows, write_bytes, read_rows, point_reads, scans, rejected }
    }

    fn from_wire(message: pb::LoadRates) -> Result<Self, Error> {
        let pb::LoadRates { write_rows, write_bytes, read_rows, point_reads, scans, rejected } =
            message;
        Ok(Self { write_rows, write_bytes, read_rows, point_reads, scans, rejected })
    }
}

impl Wire for Latency {
    type Message = pb::LoadLatency;

    fn to_wire(&self) -> pb::LoadLatency {
        let Self { p50, p99, p999, max } = *self;
        pb::LoadLatency { p50, p99, p999, max }
    }

    fn from_wire(message: pb::LoadLatency) -> Result<Self, Error> {
        let pb::LoadLatency { p50, p99, p999, max } = message;
        Ok(Self { p50, p99, p999, max })
    }
}

/// A class by its name on the wire; [`Class::Unknown`] for one that only a newer version knows.
fn class_of(name: &str) -> Class {
    Class::named(name).unwrap_or_default()
}

impl Wire for Verdict {
    type Message = pb::LoadVerdict;

    fn to_wire(&self) -> pb::LoadVerdict {
        pb::LoadVerdict {
            class: self.class.name().to_owned(),
            since: self.since.0,
            evidence: Some(self.evidence.to_wire()),
            cut: self.cut.as_ref().map(|(key, _)| key.to_wire()),
            larger_share: self.cut.as_ref().map_or(0.0, |(_, share)| *share),
            hot_key: self.hot_key.as_ref().map(Wire::to_wire),
        }
    }

    fn from_wire(message: pb::LoadVerdict) -> Result<Self, Error> {
        let share = message.larger_share;
        let cut = message.cut.map(Wire::from_wire).transpose()?;
        Ok(Self {
            class: class_of(&message.class),
            since: Instant(message.since),
            evidence: required(message.evidence, "evidence")?,
            cut: cut.map(|key| (key, share)),
            hot_key: message.hot_key.map(Wire::from_wire).transpose()?,
        })
    }
}

impl Wire for Evidence {
    type Message = pb::LoadEvidence;

    fn to_wire(&self) -> pb::LoadEvidence {
        pb::LoadEvidence {
            samples_old: self.samples_old,
            samples_new: self.samples_new,
            window: Some(self.window.to_wire()),
            p_out: self.p_out,
            auc: self.auc,
            append_high: self.append_high,
            append_low: self.append_low,
            top_key: self.top_key,
            top_prefix: self.top_prefix.clone(),
            distinct_prefix: self.distinct_prefix.clone(),
            contained: self.contained,
            shift: self.shift,
            hot_share: self.hot_share,
            lead: self.lead,
            front: self.front,
            passes_in_s: self.passes_in_s,
            concentration: self.concentration,
            reads: self.reads,
        }
    }

    fn from_wire(message: pb::LoadEvidence) -> Result<Self, Error> {
        Ok(Self {
            samples_old: message.samples_old,
            samples_new: message.samples_new,
            window: required(message.window, "window")?,
            p_out: message.p_out,
            auc: message.auc,
            append_high: message.append_high,
            append_low: message.append_low,
            top_key: message.top_key,
            top_prefix: message.top_prefix,
            distinct_prefix: message.distinct_prefix,
            contained: message.contained,
            shift: message.shift,
            hot_share: message.hot_share,
            lead: message.lead,
            front: message.front,
            passes_in_s: message.passes_in_s,
            concentration: message.concentration,
            reads: message.reads,
        })
    }
}

impl Wire for KeySample {
    type Message = pb::KeySample;

    fn to_wire(&self) -> pb::KeySample {
        pb::KeySample {
            at: self.at.0,
            key: Some(self.key.to_wire()),
            weight: self.weight,
            read: self.read,
        }
    }

    fn from_wire(message: pb::KeySample) -> Result<Self, Error> {
        Ok(Self {
            at: Instant(message.at),
            key: required(message.key, "key")?,
            weight: message.weight,
            read: message.read,
        })
    }
}

impl Wire for NodeLoad {
    type Message = pb::NodeLoad;

    fn to_wire(&self) -> pb::NodeLoad {
        pb::NodeLoad {
            node: self.node.0,
            leaders: self.leaders,
            replicas: self.replicas,
            busy: self.busy,
            rates: Some(self.rates.to_wire()),
            cpu_cores: self.cpu_cores,
        }
    }

    fn from_wire(message: pb::NodeLoad) -> Result<Self, Error> {
        Ok(Self {
            node: NodeId(message.node),
            leaders: message.leaders,
            replicas: message.replicas,
            busy: message.busy,
            rates: required(message.rates, "rates")?,
            cpu_cores: message.cpu_cores,
        })
    }
}
