//! Key samples of one partition over the last minute, assembled from its leader's heartbeats.
//!
//! Invariants: seconds ascend, each occurs once, and no more than a minute is kept; samples lie in the partition's
//! range.

use partita_load::{RING_ENGAGED_S, Sketch, Tick, Verdict};
use partita_proto::beat::LoadBeat;
use partita_proto::range::KeyRange;

/// Number of verdicts that are kept, to confirm the newest one.
const VERDICTS_MAX: usize = 3;

/// Samples and verdicts of one partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rings {
    pub(crate) writes: Sketch,
    pub(crate) reads: Sketch,
    /// Latest verdicts, oldest first.
    pub(crate) verdicts: Vec<Verdict>,
    term: u64,
    /// Nanoseconds of work for writes and for reads, exponentially decayed.
    work: [f64; 2],
    last: [u64; 2],
}

impl Rings {
    /// Adds the samples of a heartbeat.
    pub(crate) fn add_beat(&mut self, beat: &LoadBeat, range: &KeyRange) {
        let is_new_term = std::mem::replace(&mut self.term, beat.term) != beat.term;
        let sums = [beat.counters.busy_ns, beat.counters.scan_ns];
        for (kind, sum) in sums.into_iter().enumerate() {
            let previous = if is_new_term { 0 } else { self.last[kind] };
            // About half of the average comes from the last ten heartbeats.
            self.work[kind] = self.work[kind] * 0.93 + as_f64(sum.saturating_sub(previous)) * 0.07;
        }
        self.last = sums;
        extend(&mut self.writes, &beat.write_keys, is_new_term, range);
        extend(&mut self.reads, &beat.read_keys, is_new_term, range);
    }

    /// Samples of writes or of reads, whichever causes more work; true for reads.
    pub(crate) fn heavier(&self) -> (&Sketch, bool) {
        let [writes, reads] = self.work;
        let (writing, reading) = (!self.writes.ticks.is_empty(), !self.reads.ticks.is_empty());
        let is_read = reading && (reads > writes || !writing);
        (if is_read { &self.reads } else { &self.writes }, is_read)
    }

    /// Appends a verdict, and drops the oldest if there are too many.
    pub(crate) fn add_verdict(&mut self, verdict: Verdict) {
        if self.verdicts.len() == VERDICTS_MAX {
            self.verdicts.remove(0);
        }
        self.verdicts.push(verdict);
    }

    /// The samples that lie in a part of the range, without verdicts.
    pub(crate) fn part(&self, range: &KeyRange) -> Self {
        let mut part = Self { verdicts: Vec::new(), ..self.clone() };
        narrow(&mut part.writes, range);
        narrow(&mut part.reads, range);
        part
    }

    /// Adds a neighbour's samples; verdicts are dropped.
    pub(crate) fn absorb(&mut self, neighbour: &Self) {
        join(&mut self.writes, &neighbour.writes);
        join(&mut self.reads, &neighbour.reads);
        self.verdicts.clear();
    }
}

fn as_f64(value: u64) -> f64 {
    value as f64
}

fn extend(sketch: &mut Sketch, beat: &Sketch, is_new_term: bool, range: &KeyRange) {
    if is_new_term && let Some(first) = beat.ticks.first() {
        // The new leader's clock may be behind the old one's.
        sketch.ticks.retain(|tick| tick.second < first.second);
    }
    for tick in &beat.ticks {
        if sketch.ticks.last().is_none_or(|last| last.second < tick.second) {
            sketch.ticks.push(within(tick, range));
        }
    }
    if !beat.heavy.is_empty() {
        sketch.heavy.clone_from(&beat.heavy);
    }
    if let Some(edges) = &beat.edges {
        sketch.edges = edges_within(edges, range);
    }
    let end = sketch.ticks.last().map_or(0, |tick| tick.second);
    sketch.ticks.retain(|tick| tick.second + RING_ENGAGED_S > end && tick.count > 0);
}

/// Known edges of the keys, as far as they lie in a range; `None` if all keys between them lie outside.
fn edges_within(
    (low, high): &(Box<[u8]>, Box<[u8]>),
    range: &KeyRange,
) -> Option<(Box<[u8]>, Box<[u8]>)> {
    let low = (&range.start[..]).max(low);
    let high = range.end.as_deref().map_or(&**high, |end| end.min(high));
    (low <= high).then(|| (low.into(), high.into()))
}

/// The part of a second's samples that lies in a range; scans that overlap the range count.
fn within(tick: &Tick, range: &KeyRange) -> Tick {
    let mut part = tick.clone();
    part.samples.retain(|sample| match &sample.end {
        None => range.contains(&sample.key),
        Some(end) => {
            let starts_after = range.end.as_deref().is_some_and(|end| end <= sample.key.as_ref());
            let ends_before = !end.is_empty() && end.as_ref() <= range.start.as_ref();
            !starts_after && !ends_before
        }
    });
    if part.samples.len() < tick.samples.len() {
        let remaining = part.samples.len() as u64;
        part.count = tick.count.saturating_mul(remaining) / (tick.samples.len() as u64).max(1);
    }
    part
}

fn narrow(sketch: &mut Sketch, range: &KeyRange) {
    sketch.ticks = sketch.ticks.iter().map(|tick| within(tick, range)).collect();
    sketch.ticks.retain(|tick| tick.count > 0);
    sketch.heavy.retain(|(key, _)| range.contains(key));
    sketch.edges = sketch.edges.as_ref().and_then(|edges| edges_within(edges, range));
}

fn join(sketch: &mut Sketch, neighbour: &Sketch) {
    for tick in &neighbour.ticks {
        match sketch.ticks.binary_search_by_key(&tick.second, |candidate| candidate.second) {
            Ok(position) => {
                sketch.ticks[position].count += tick.count;
                sketch.ticks[position].samples.extend(tick.samples.iter().cloned());
            }
            Err(position) => sketch.ticks.insert(position, tick.clone()),
        }
    }
    let edges = sketch.edges.take().zip(neighbour.edges.as_ref());
    sketch.edges = edges.map(|((low, high), (other_low, other_high))| {
        (low.min(other_low.clone()), high.max(other_high.clone()))
    });
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use partita_load::Sample;

    use super::*;

    fn tick(second: u64, keys: &[u8]) -> Tick {
        let sample =
            |key: &u8| Sample { key: Box::from([*key]), end: None, above: false, below: false };
        let samples: Vec<_> = keys.iter().map(sample).collect();
        Tick { second, count: samples.len() as u64 * 10, samples }
    }

    fn beat(term: u64, ticks: Vec<Tick>) -> LoadBeat {
        LoadBeat { term, write_keys: Sketch { ticks, ..Sketch::default() }, ..LoadBeat::default() }
    }

    fn seconds(rings: &Rings) -> Vec<u64> {
        rings.writes.ticks.iter().map(|tick| tick.second).collect()
    }

    #[test]
    fn a_second_that_comes_twice_counts_once_and_a_minute_is_kept() {
        let mut rings = Rings::default();
        rings.add_beat(&beat(1, vec![tick(5, &[1]), tick(6, &[1, 2])]), &KeyRange::all());
        rings.add_beat(&beat(1, vec![tick(6, &[9]), tick(7, &[3])]), &KeyRange::all());
        assert_eq!(seconds(&rings), [5, 6, 7]);
        assert_eq!(rings.writes.ticks[1].count, 20);
        rings.add_beat(&beat(1, vec![tick(66, &[1])]), &KeyRange::all());
        assert_eq!(seconds(&rings), [7, 66]);
    }

    #[test]
    fn a_new_leader_whose_clock_is_behind_is_heard_at_once() {
        let mut rings = Rings::default();
        rings.add_beat(&beat(1, vec![tick(5, &[1]), tick(9, &[1])]), &KeyRange::all());
        rings.add_beat(&beat(2, vec![tick(7, &[1])]), &KeyRange::all());
        assert_eq!(seconds(&rings), [5, 7]);
    }

    #[test]
    fn parts_of_a_range_know_what_lay_in_them() {
        let mut rings = Rings::default();
        rings.add_beat(&beat(1, vec![tick(5, &[1, 2, 7, 8]), tick(6, &[1])]), &KeyRange::all());
        let at = Bytes::from_static(&[5]);
        let left = rings.part(&KeyRange { start: Bytes::new(), end: Some(at.clone()) });
        let right = rings.part(&KeyRange { start: at, end: None });
        assert_eq!(seconds(&right), [5]);
        assert_eq!(right.writes.ticks[0].count, 20);
        let mut whole = left;
        whole.absorb(&right);
        assert_eq!(seconds(&whole), [5, 6]);
        assert_eq!(whole.writes.ticks[0].count, 40);
        assert_eq!(whole.writes.ticks[0].samples.len(), 4);
    }

    #[test]
    fn edges_stay_until_they_change_and_lie_in_the_range() {
        let key = |byte: u8| Box::<[u8]>::from([byte]);
        let at = Bytes::from_static(&[5]);
        let mut rings = Rings::default();
        let mut said = beat(1, vec![tick(5, &[1, 7])]);
        said.write_keys.edges = Some((key(1), key(9)));
        rings.add_beat(&said, &KeyRange::all());
        // An older node knows of none.
        rings.add_beat(&beat(1, vec![tick(6, &[1])]), &KeyRange::all());
        assert_eq!(rings.writes.edges, Some((key(1), key(9))));
        let left = rings.part(&KeyRange { start: Bytes::new(), end: Some(at.clone()) });
        let right = rings.part(&KeyRange { start: at.clone(), end: None });
        assert_eq!(left.writes.edges, Some((key(1), key(5))));
        assert_eq!(right.writes.edges, Some((key(5), key(9))));
        let mut whole = left;
        whole.absorb(&right);
        assert_eq!(whole.writes.edges, Some((key(1), key(9))));
        said.write_keys.edges = Some((key(6), key(9)));
        rings.add_beat(&said, &KeyRange { start: Bytes::new(), end: Some(at) });
        assert_eq!(rings.writes.edges, None);
    }

    #[test]
    fn what_bears_more_of_the_load_is_looked_at() {
        let mut rings = Rings::default();
        let mut said = beat(1, vec![tick(5, &[1])]);
        said.read_keys = Sketch { ticks: vec![tick(5, &[2])], ..Sketch::default() };
        said.counters.busy_ns = 10;
        said.counters.scan_ns = 5;
        rings.add_beat(&said, &KeyRange::all());
        let (sketch, is_read) = rings.heavier();
        assert_eq!((sketch.ticks[0].samples[0].key.as_ref(), is_read), (&[1][..], false));
        for beats in 1..40 {
            said.counters.scan_ns = 5 + beats * 100;
            rings.add_beat(&said, &KeyRange::all());
        }
        let (sketch, is_read) = rings.heavier();
        assert_eq!((sketch.ticks[0].samples[0].key.as_ref(), is_read), (&[2][..], true));
    }
}
