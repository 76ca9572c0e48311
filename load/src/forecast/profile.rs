//! The profile of a table: its load in each quarter of an hour of the last days, by key range.
//!
//! Ranges come from the bounds of partitions that bear a good part of the load, and stay when these are merged: a peak
//! that was cut yesterday shows where to cut it tomorrow. While a range is part of a larger partition, it gets that
//! partition's load in proportion to what it had at the same time of other days.
//!
//! Invariants: ranges tile the keys from the first one on; there are at most [`CELLS_MAX`] of them, the quietest
//! neighbours are joined; a quarter that nobody observed has no value, which is not zero.

use std::collections::BTreeMap;
use std::ops::Range;

/// Length of a slot: a quarter of an hour.
pub const SLOT_MS: u64 = 15 * 60_000;
/// Slots of a day.
pub const DAY_SLOTS: u64 = SLOTS as u64;
/// Days that are kept: today and two weeks before.
pub const DAYS_KEPT: u64 = 15;
/// Maximum ranges of a table. With all days they take 90 KB.
pub const CELLS_MAX: usize = 32;

/// Slots of a day, as a length.
const SLOTS: usize = 96;
/// A range gets bounds of its own from this load on, cores ...
const CELL_MIN: f64 = 0.05;
/// ... and from this share of its table's load on: of 1,000 partitions few matter.
const CELL_SHARE_MIN: f64 = 1.0 / 16.0;
/// Stands for a slot that was not observed.
const UNSEEN: u16 = u16::MAX;
/// Units of stored loads: thousandths of a core.
const UNITS: f64 = 1_000.0;

/// Load of a partition; it ends where the next one begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RangeLoad<'a> {
    /// First key.
    pub(super) start: &'a [u8],
    /// Cores that are asked of it.
    pub(super) load: f64,
}

/// A range of a profile as it is kept on disk: its first key, and for each day (since 1970) the load of its 96 slots in
/// thousandths of a core, 65,535 where nothing was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedCell {
    /// First key.
    pub start: Box<[u8]>,
    /// Loads of each day.
    pub days: Vec<(u64, Vec<u16>)>,
}

/// A range of keys with its loads.
#[derive(Clone, Debug, PartialEq)]
struct Cell {
    start: Box<[u8]>,
    /// Loads by day.
    days: BTreeMap<u64, Box<[u16]>>,
    /// Sum of the observations of the slot in progress, and their number.
    open: (f64, f64),
    /// Load at the last observation.
    latest: f64,
}

impl Cell {
    fn new(start: &[u8]) -> Self {
        Self { start: start.into(), days: BTreeMap::new(), open: (0.0, 0.0), latest: 0.0 }
    }

    fn at(&self, slot: u64) -> Option<f64> {
        let (day, index) = place(slot);
        let value = *self.days.get(&day)?.get(index)?;
        (value != UNSEEN).then(|| f64::from(value) / UNITS)
    }

    fn set(&mut self, slot: u64, load: f64) {
        let (day, index) = place(slot);
        let loads = self.days.entry(day).or_insert_with(unseen_day);
        loads[index] = in_units(load);
    }

    /// The greatest load of all slots.
    fn greatest(&self) -> f64 {
        let values = self.days.values().flat_map(|day| day.iter().copied());
        let greatest = values.filter(|value| *value != UNSEEN).max().unwrap_or(0);
        (f64::from(greatest) / UNITS).max(self.latest)
    }

    /// Gives half of everything to a new range that begins at `start`.
    fn cut(&mut self, start: &[u8]) -> Self {
        for value in self.days.values_mut().flat_map(|day| day.iter_mut()) {
            if *value != UNSEEN {
                *value /= 2;
            }
        }
        self.open.0 /= 2.0;
        self.latest /= 2.0;
        Self { start: start.into(), ..self.clone() }
    }

    fn absorb(&mut self, neighbour: &Self) {
        for (day, theirs) in &neighbour.days {
            let mine = self.days.entry(*day).or_insert_with(unseen_day);
            for (mine, theirs) in mine.iter_mut().zip(theirs.iter()) {
                *mine = match (*mine, *theirs) {
                    (UNSEEN, value) | (value, UNSEEN) => value,
                    (a, b) => a.saturating_add(b).min(UNSEEN - 1),
                };
            }
        }
        self.open.0 += neighbour.open.0;
        self.open.1 = self.open.1.max(neighbour.open.1);
        self.latest += neighbour.latest;
    }
}

/// Day of a slot, and its place in the day.
fn place(slot: u64) -> (u64, usize) {
    (slot / DAY_SLOTS, usize::try_from(slot % DAY_SLOTS).unwrap_or(0))
}

fn unseen_day() -> Box<[u16]> {
    vec![UNSEEN; SLOTS].into()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the range before"
)]
fn in_units(load: f64) -> u16 {
    (load * UNITS).round().clamp(0.0, f64::from(UNSEEN - 1)) as u16
}

/// The profile of one table. See the head of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Profile {
    cells: Vec<Cell>,
    /// Number of the slot in progress, since 1970.
    slot: u64,
}

impl Profile {
    /// A profile from disk. Cells out of order, and days without their 96 slots, are left out.
    pub(super) fn restore(saved: Vec<SavedCell>) -> Self {
        let mut profile = Self::default();
        for SavedCell { start, days } in saved.into_iter().take(CELLS_MAX) {
            if profile.cells.last().is_some_and(|last| last.start >= start) {
                continue;
            }
            let whole = days.into_iter().filter(|(_, day)| day.len() == SLOTS);
            let days = whole.map(|(number, day)| (number, day.into_boxed_slice())).collect();
            profile.cells.push(Cell { days, ..Cell::new(&start) });
        }
        profile
    }

    /// The profile as it is kept on disk, without the slot in progress.
    pub(super) fn save(&self) -> Vec<SavedCell> {
        let saved = |cell: &Cell| SavedCell {
            start: cell.start.clone(),
            days: cell.days.iter().map(|(number, day)| (*number, day.to_vec())).collect(),
        };
        self.cells.iter().map(saved).collect()
    }

    /// Number of ranges.
    #[cfg(test)]
    fn cells(&self) -> usize {
        self.cells.len()
    }

    /// The greatest load of any range in any slot that is kept.
    pub(super) fn greatest(&self) -> f64 {
        self.cells.iter().map(Cell::greatest).fold(0.0, f64::max)
    }

    /// Takes the loads of all partitions, in key order. To be called at equal intervals: a slot's load is the mean of its
    /// observations.
    pub(super) fn observe(&mut self, now_ms: u64, loads: &[RangeLoad<'_>]) {
        let Some(first) = loads.first() else { return };
        let slot = now_ms / SLOT_MS;
        if slot != self.slot {
            self.close();
            self.slot = slot;
            let oldest = (slot / DAY_SLOTS + 1).saturating_sub(DAYS_KEPT);
            for cell in &mut self.cells {
                cell.days = cell.days.split_off(&oldest);
            }
        }
        if self.cells.is_empty() {
            self.cells.push(Cell::new(first.start));
        }
        // Partitions that matter get ranges of their own.
        let total: f64 = loads.iter().map(|range| range.load).sum();
        let least = (total * CELL_SHARE_MIN).max(CELL_MIN);
        for (index, range) in loads.iter().enumerate() {
            if range.load >= least {
                self.cut(range.start);
                if let Some(next) = loads.get(index + 1) {
                    self.cut(next.start);
                }
            }
        }
        // Their loads go to the ranges in them.
        let mut sums = vec![0.0; self.cells.len()];
        for (index, range) in loads.iter().enumerate() {
            let end = loads.get(index + 1).map(|next| next.start);
            let cells = self.within(range.start, end);
            for (place, share) in cells.clone().zip(self.shares(cells)) {
                sums[place] += range.load * share;
            }
        }
        for (cell, load) in self.cells.iter_mut().zip(sums) {
            cell.open = (cell.open.0 + load, cell.open.1 + 1.0);
            cell.latest = load;
        }
        self.shrink();
    }

    /// The ranges that make up a partition exactly; `None` if it shares one with its neighbours.
    pub(super) fn exactly(&self, start: &[u8], end: Option<&[u8]>) -> Option<Range<usize>> {
        let cells = self.within(start, end);
        let begins = *self.cells.get(cells.start)?.start == *start;
        let next = self.cells.get(cells.end).map(|cell| &*cell.start);
        (begins && next == end).then_some(cells)
    }

    /// The ranges that lie in a partition: those that begin in it, or else the one that it is part of.
    fn within(&self, start: &[u8], end: Option<&[u8]>) -> Range<usize> {
        let first = self.cells.partition_point(|cell| *cell.start < *start);
        let last = end
            .map_or(self.cells.len(), |end| self.cells.partition_point(|cell| *cell.start < *end));
        if first < last {
            first..last
        } else {
            let place = first.saturating_sub(1);
            place..self.cells.len().min(place + 1)
        }
    }

    /// First key of a range.
    pub(super) fn start(&self, cell: usize) -> &[u8] {
        &self.cells[cell].start
    }

    /// Load of a range in a past slot; `None` if it was not observed.
    pub(super) fn at(&self, cell: usize, slot: u64) -> Option<f64> {
        self.cells[cell].at(slot)
    }

    /// Load of neighbouring ranges in a past slot; `None` if none of them was observed.
    pub(super) fn sum(&self, cells: Range<usize>, slot: u64) -> Option<f64> {
        let observed = self.cells[cells].iter().filter_map(|cell| cell.at(slot));
        observed.fold(None, |sum, load| Some(sum.unwrap_or(0.0) + load))
    }

    /// The shares of a partition's load that go to the ranges in it: as on other days at this time; without any load
    /// then, equal ones.
    fn shares(&self, cells: Range<usize>) -> Vec<f64> {
        let usual = |cell: &Cell| -> f64 {
            (1..DAYS_KEPT)
                .filter_map(|days| cell.at(self.slot.checked_sub(days * DAY_SLOTS)?))
                .sum()
        };
        let weights: Vec<f64> = self.cells[cells].iter().map(usual).collect();
        let total: f64 = weights.iter().sum();
        let equal = 1.0 / weights.len().max(1) as f64;
        let share = |weight: f64| if total > 0.0 { weight / total } else { equal };
        weights.into_iter().map(share).collect()
    }

    /// Makes a range begin at a key.
    fn cut(&mut self, start: &[u8]) {
        let place = self.cells.partition_point(|cell| *cell.start <= *start);
        match place.checked_sub(1) {
            None => self.cells.insert(0, Cell::new(start)),
            Some(left) if *self.cells[left].start == *start => {}
            Some(left) => {
                let right = self.cells[left].cut(start);
                self.cells.insert(place, right);
            }
        }
    }

    /// Ends the slot in progress.
    fn close(&mut self) {
        let slot = self.slot;
        for cell in &mut self.cells {
            let (sum, count) = std::mem::take(&mut cell.open);
            if count > 0.0 {
                cell.set(slot, sum / count);
            }
        }
    }

    /// Joins the quietest neighbours while there are too many ranges.
    fn shrink(&mut self) {
        while self.cells.len() > CELLS_MAX {
            let greatest: Vec<f64> = self.cells.iter().map(Cell::greatest).collect();
            let pairs = greatest.windows(2).map(|pair| pair[0] + pair[1]).enumerate();
            let Some((place, _)) = pairs.min_by(|a, b| a.1.total_cmp(&b.1)) else { return };
            let right = self.cells.remove(place + 1);
            self.cells[place].absorb(&right);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = DAY_SLOTS * SLOT_MS;

    fn loads<'a>(parts: &[(&'a [u8], f64)]) -> Vec<RangeLoad<'a>> {
        parts.iter().map(|&(start, load)| RangeLoad { start, load }).collect()
    }

    #[test]
    fn a_slot_has_the_mean_of_its_observations() {
        let mut profile = Profile::default();
        for minute in 0..15 {
            let load = if minute < 5 { 0.3 } else { 0.6 };
            profile.observe(minute * 60_000, &loads(&[(b"", load)]));
        }
        assert_eq!(profile.at(0, 0), None, "the slot has not ended");
        profile.observe(SLOT_MS, &loads(&[(b"", 0.0)]));
        assert_eq!(profile.at(0, 0), Some(0.5));
        assert_eq!(profile.at(0, 1), None);
    }

    #[test]
    fn merged_partitions_keep_their_ranges_and_shares() {
        let mut profile = Profile::default();
        // Yesterday two partitions bore 0.2 and 0.6, today they are one.
        profile.observe(0, &loads(&[(b"", 0.2), (b"m", 0.6)]));
        profile.observe(SLOT_MS, &loads(&[(b"", 0.0)]));
        profile.observe(DAY_MS, &loads(&[(b"", 0.4)]));
        profile.observe(DAY_MS + SLOT_MS, &loads(&[(b"", 0.4)]));
        assert_eq!(profile.cells(), 2);
        assert_eq!(profile.start(1), b"m");
        let near = |load: Option<f64>, wanted: f64| (load.unwrap() - wanted).abs() < 0.002;
        assert!(near(profile.at(0, DAY_SLOTS), 0.1) && near(profile.at(1, DAY_SLOTS), 0.3));
        assert!(near(profile.sum(0..2, 0), 0.8));
        assert_eq!(profile.within(b"", None), 0..2);
        assert_eq!(profile.within(b"a", Some(b"b")), 0..1);
        assert_eq!(profile.within(b"n", None), 1..2);
        assert_eq!(profile.exactly(b"", Some(b"m")), Some(0..1));
        assert_eq!(profile.exactly(b"", None), Some(0..2));
        assert_eq!(profile.exactly(b"", Some(b"n")), None);
        assert_eq!(profile.exactly(b"n", None), None);
    }

    #[test]
    fn ranges_and_days_are_bounded() {
        let mut profile = Profile::default();
        let starts: Vec<Vec<u8>> = (0..200_u8).map(|start| vec![start]).collect();
        for day in 0..30 {
            // Another ten partitions are busy each day.
            let busy = |part: usize| part / 10 == day % 20;
            let parts: Vec<RangeLoad<'_>> = starts
                .iter()
                .enumerate()
                .map(|(part, start)| RangeLoad { start, load: if busy(part) { 0.5 } else { 0.0 } })
                .collect();
            profile.observe(day as u64 * DAY_MS, &parts);
            assert!(profile.cells() <= CELLS_MAX);
        }
        let saved = profile.save();
        assert!(saved.iter().all(|cell| cell.days.len() as u64 <= DAYS_KEPT));
        assert!(saved.windows(2).all(|pair| pair[0].start < pair[1].start));
    }

    #[test]
    fn a_thousand_quiet_partitions_are_one_range() {
        let mut profile = Profile::default();
        let starts: Vec<[u8; 2]> = (0..1_000_u16).map(u16::to_be_bytes).collect();
        let parts: Vec<RangeLoad<'_>> =
            starts.iter().map(|start| RangeLoad { start, load: 0.01 }).collect();
        profile.observe(0, &parts);
        profile.observe(SLOT_MS, &parts);
        assert_eq!(profile.cells(), 1);
        assert_eq!(profile.at(0, 0), Some(10.0));
    }

    #[test]
    fn what_is_saved_comes_back() {
        let mut profile = Profile::default();
        profile.observe(0, &loads(&[(b"", 0.2), (b"m", 0.6)]));
        profile.observe(SLOT_MS, &loads(&[(b"", 0.2), (b"m", 0.6)]));
        let restored = Profile::restore(profile.save());
        assert_eq!(restored.save(), profile.save());
        assert_eq!(restored.at(1, 0), Some(0.6));
        // Damaged cells are left out.
        let mut damaged = profile.save();
        damaged[1].start = Box::from([]);
        damaged[0].days[0].1.pop();
        let restored = Profile::restore(damaged);
        assert_eq!((restored.cells(), restored.at(0, 0)), (1, None));
    }
}
