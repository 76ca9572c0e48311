//! Load of partitions in heartbeats.

use partita_load::{Counters, Sample, Sketch, Tick};

use super::{Wire, pb, required};
use crate::beat::{FollowerReads, Latency, LoadBeat};
use crate::error::Error;
use crate::id::PartitionId;

impl Wire for LoadBeat {
    type Message = pb::LoadBeat;

    fn to_wire(&self) -> pb::LoadBeat {
        pb::LoadBeat {
            partition: self.partition.0,
            term: self.term,
            since_ms: self.since_ms,
            at_ms: self.at_ms,
            counters: Some(self.counters.to_wire()),
            size_bytes: self.size_bytes,
            queue_depth: self.queue_depth,
            writes: Some(self.writes.to_wire()),
            reads: Some(self.reads.to_wire()),
            highest: self.highest.clone(),
            write_keys: Some(self.write_keys.to_wire()),
            read_keys: Some(self.read_keys.to_wire()),
        }
    }

    fn from_wire(message: pb::LoadBeat) -> Result<Self, Error> {
        Ok(Self {
            partition: PartitionId(message.partition),
            term: message.term,
            since_ms: message.since_ms,
            at_ms: message.at_ms,
            counters: required(message.counters, "counters")?,
            size_bytes: message.size_bytes,
            queue_depth: message.queue_depth,
            writes: required(message.writes, "durations of writes")?,
            reads: required(message.reads, "durations of reads")?,
            highest: message.highest,
            write_keys: required(message.write_keys, "keys of writes")?,
            read_keys: required(message.read_keys, "keys of reads")?,
        })
    }
}

impl Wire for FollowerReads {
    type Message = pb::FollowerReads;

    fn to_wire(&self) -> pb::FollowerReads {
        pb::FollowerReads {
            partition: self.partition.0,
            since_ms: self.since_ms,
            counters: Some(self.counters.to_wire()),
        }
    }

    fn from_wire(message: pb::FollowerReads) -> Result<Self, Error> {
        Ok(Self {
            partition: PartitionId(message.partition),
            since_ms: message.since_ms,
            counters: required(message.counters, "counters")?,
        })
    }
}

impl Wire for Latency {
    type Message = pb::Latency;

    fn to_wire(&self) -> pb::Latency {
        let Self { count, p50, p99, p999, max } = *self;
        pb::Latency { count, p50, p99, p999, max }
    }

    fn from_wire(message: pb::Latency) -> Result<Self, Error> {
        let pb::Latency { count, p50, p99, p999, max } = message;
        Ok(Self { count, p50, p99, p999, max })
    }
}

impl Wire for Counters {
    type Message = pb::LoadCounters;

    fn to_wire(&self) -> pb::LoadCounters {
        pb::LoadCounters {
            write_rows: self.write_rows,
            write_bytes: self.write_bytes,
            write_batches: self.write_batches,
            read_rows: self.read_rows,
            read_bytes: self.read_bytes,
            point_reads: self.point_reads,
            range_reads: self.range_reads,
            scans: self.scans,
            busy_ns: self.busy_ns,
            scan_ns: self.scan_ns,
            rejected: self.rejected,
            throttled_ns: self.throttled_ns,
        }
    }

    fn from_wire(message: pb::LoadCounters) -> Result<Self, Error> {
        Ok(Self {
            write_rows: message.write_rows,
            write_bytes: message.write_bytes,
            write_batches: message.write_batches,
            read_rows: message.read_rows,
            read_bytes: message.read_bytes,
            point_reads: message.point_reads,
            range_reads: message.range_reads,
            scans: message.scans,
            busy_ns: message.busy_ns,
            scan_ns: message.scan_ns,
            rejected: message.rejected,
            throttled_ns: message.throttled_ns,
        })
    }
}

impl Wire for Sketch {
    type Message = pb::Sketch;

    fn to_wire(&self) -> pb::Sketch {
        let sample = |sample: &Sample| pb::Sample {
            key: sample.key.to_vec(),
            end: sample.end.as_ref().map(|end| end.to_vec()),
            above: sample.above,
            below: sample.below,
        };
        let tick = |tick: &Tick| pb::Tick {
            second: tick.second,
            count: tick.count,
            samples: tick.samples.iter().map(sample).collect(),
        };
        let heavy =
            |(key, share): &(Box<[u8]>, f64)| pb::HeavyKey { key: key.to_vec(), share: *share };
        pb::Sketch {
            ticks: self.ticks.iter().map(tick).collect(),
            heavy: self.heavy.iter().map(heavy).collect(),
            low: self.edges.as_ref().map(|(low, _)| low.to_vec()),
            high: self.edges.as_ref().map(|(_, high)| high.to_vec()),
        }
    }

    fn from_wire(message: pb::Sketch) -> Result<Self, Error> {
        let sample = |sample: pb::Sample| Sample {
            key: sample.key.into(),
            end: sample.end.map(Into::into),
            above: sample.above,
            below: sample.below,
        };
        let tick = |tick: pb::Tick| Tick {
            second: tick.second,
            count: tick.count,
            samples: tick.samples.into_iter().map(sample).collect(),
        };
        let heavy = |heavy: pb::HeavyKey| (heavy.key.into(), heavy.share);
        Ok(Self {
            ticks: message.ticks.into_iter().map(tick).collect(),
            heavy: message.heavy.into_iter().map(heavy).collect(),
            edges: message.low.zip(message.high).map(|(low, high)| (low.into(), high.into())),
        })
    }
}
