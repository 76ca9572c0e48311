//! The profiles of all tables, the peaks that were expected, and what came of them.
//!
//! Every member of the group that decides keeps such a book, and each expects the same: what was cut is seen from the
//! partitions, so that the book of a member that does not decide is right, too.
//!
//! Invariants: a peak of a range has one forecast, also when the range is cut meanwhile; cuts count that were made before
//! the peak; a forecast is judged once, when its peak has ended.

use std::collections::{BTreeMap, VecDeque};

use super::expect::{self, PEAK_MIN};
use super::profile::{Profile, RangeLoad, SLOT_MS, SavedCell};
use crate::facts::{PartitionId, TableId};

/// Interval of observations, milliseconds.
pub const STEP_MS: u64 = 15_000;
/// Maximum tables with a profile, those with the highest peaks.
pub const TABLES_MAX: usize = 32;
/// Maximum forecasts that are kept, the newest.
pub const FORECASTS_MAX: usize = 1_000;
/// Load from which a table gets a profile, cores.
const TABLE_MIN: f64 = 0.05;
/// Factor by which a table's load must exceed the highest peak of the quietest profile to replace it.
const LOUDER: f64 = 2.0;

/// A partition with its load; it ends where the next one begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held<'a> {
    /// Partition id.
    pub partition: PartitionId,
    /// First key.
    pub start: &'a [u8],
    /// Cores that are asked of it.
    pub load: f64,
}

/// Decision about a peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    /// To cut, and so many cuts were made before the peak.
    Cut(u32),
    /// Nothing, because no bound is known that divides the load.
    NoPlace,
    /// Nothing, because the table does not split by load.
    Off,
}

/// A peak that was expected, and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Table id.
    pub table: TableId,
    /// First key of the range.
    pub start: Box<[u8]>,
    /// End of the range; `None`: the end of the keys.
    pub end: Option<Box<[u8]>>,
    /// Time of the forecast, milliseconds.
    pub made_ms: u64,
    /// Expected begin of the peak, milliseconds.
    pub from_ms: u64,
    /// Expected end of the peak, milliseconds.
    pub until_ms: u64,
    /// Expected load, cores.
    pub expected: f64,
    /// Share of the days that had the peak, newer ones weighing more.
    pub confidence: f64,
    /// Days behind the forecast.
    pub days: u32,
    /// Decision about it.
    pub decided: Decided,
    /// Greatest load of the range since the peak was to begin, cores; `None` before.
    pub actual: Option<f64>,
    /// True when the peak has ended and the forecast was judged.
    pub is_over: bool,
}

impl Forecast {
    /// True if cuts were made and the peak came, false if they were made for nothing; `None` before the end, and without
    /// cuts.
    #[must_use]
    pub fn useful(&self) -> Option<bool> {
        match (self.is_over, self.decided, self.actual) {
            (true, Decided::Cut(cuts), Some(actual)) if cuts > 0 => Some(actual >= PEAK_MIN),
            _ => None,
        }
    }

    /// Cuts that were made before the peak.
    #[must_use]
    pub fn cuts(&self) -> u32 {
        match self.decided {
            Decided::Cut(cuts) => cuts,
            Decided::NoPlace | Decided::Off => 0,
        }
    }

    /// True if a partition that begins at `start` lies in the range.
    fn has(&self, start: &[u8]) -> bool {
        *self.start <= *start && self.end.as_deref().is_none_or(|end| start < end)
    }

    /// Takes the present partitions. The range was one partition when its peak was first expected: bounds inside are cuts.
    fn note(&mut self, now_ms: u64, parts: &[Held<'_>]) {
        if now_ms < self.from_ms {
            if let Decided::Cut(cuts) = &mut self.decided {
                let start = &*self.start;
                let end = self.end.as_deref();
                let is_inside = |part: &&Held<'_>| {
                    *part.start > *start && end.is_none_or(|end| part.start < end)
                };
                let inside = parts.iter().filter(is_inside).count();
                *cuts = (*cuts).max(u32::try_from(inside).unwrap_or(u32::MAX));
            }
            return;
        }
        if now_ms < self.until_ms {
            let inside = parts.iter().filter(|part| self.has(part.start));
            let load: f64 = inside.map(|part| part.load).sum();
            self.actual = Some(self.actual.unwrap_or(0.0).max(load));
        } else {
            self.is_over = true;
        }
    }
}

/// A cut ahead of a peak.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedCut {
    /// Partition to be cut.
    pub partition: PartitionId,
    /// First key of the right part.
    pub key: Box<[u8]>,
    /// Expected share of the busier part.
    pub larger_share: f64,
}

/// Preparations for the expected peaks of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Planned {
    /// Partitions to be cut, each once.
    pub cuts: Vec<PlannedCut>,
    /// Expected loads of the partitions of peaks that have not begun, cores.
    pub expects: Vec<(PartitionId, f64)>,
    /// Partitions that are not to be merged, each with the end of its peak, milliseconds.
    pub holds: Vec<(PartitionId, u64)>,
}

/// Profiles and forecasts. See the head of the file.
#[derive(Clone, Debug, Default)]
pub struct Forecaster {
    profiles: BTreeMap<TableId, Profile>,
    forecasts: VecDeque<Forecast>,
}

impl Forecaster {
    /// Takes the loads of all partitions of a table, in key order, and returns what is to be done. To be called every
    /// [`STEP_MS`]. `may_cut`: the table splits by load.
    pub fn step(
        &mut self,
        now_ms: u64,
        table: TableId,
        parts: &[Held<'_>],
        may_cut: bool,
    ) -> Planned {
        let load: f64 = parts.iter().map(|part| part.load).sum();
        if !self.profiles.contains_key(&table) && !self.make_room(load) {
            return Planned::default();
        }
        let loads: Vec<RangeLoad<'_>> =
            parts.iter().map(|part| RangeLoad { start: part.start, load: part.load }).collect();
        let profile = self.profiles.entry(table).or_default();
        profile.observe(now_ms, &loads);
        // What comes of earlier forecasts.
        let open = |forecast: &&mut Forecast| forecast.table == table && !forecast.is_over;
        for forecast in self.forecasts.iter_mut().filter(open) {
            forecast.note(now_ms, parts);
        }
        // New ones.
        let mut planned = Planned::default();
        for (index, part) in parts.iter().enumerate() {
            let end = parts.get(index + 1).map(|next| next.start);
            // What is hot already is cut by the load that it has.
            if part.load >= PEAK_MIN {
                continue;
            }
            let Some(peak) = expect::peak(profile, now_ms, part.start, end) else { continue };
            let is_known = self.forecasts.iter().any(|forecast| {
                forecast.table == table
                    && forecast.has(part.start)
                    && forecast.from_ms < peak.until_ms
                    && peak.from_ms < forecast.until_ms
            });
            let decided = match (&peak.cut, may_cut) {
                (_, false) => Decided::Off,
                (None, true) => Decided::NoPlace,
                (Some(_), true) => Decided::Cut(0),
            };
            if !is_known {
                if self.forecasts.len() == FORECASTS_MAX {
                    self.forecasts.pop_front();
                }
                self.forecasts.push_back(Forecast {
                    table,
                    start: part.start.into(),
                    end: end.map(Box::from),
                    made_ms: now_ms,
                    from_ms: peak.from_ms,
                    until_ms: peak.until_ms,
                    expected: peak.load,
                    confidence: peak.confidence,
                    days: peak.days,
                    decided,
                    actual: None,
                    is_over: false,
                });
            }
            if let Some((key, larger_share)) = peak.cut.filter(|_| may_cut) {
                planned.cuts.push(PlannedCut { partition: part.partition, key, larger_share });
            }
        }
        // Partitions of a peak stay until it has ended, and are placed before it begins.
        let coming = |forecast: &&Forecast| {
            forecast.table == table && now_ms < forecast.until_ms && !forecast.is_over
        };
        for forecast in self.forecasts.iter().filter(coming) {
            for (index, part) in parts.iter().enumerate() {
                if !forecast.has(part.start) {
                    continue;
                }
                planned.holds.push((part.partition, forecast.until_ms));
                if now_ms < forecast.from_ms {
                    let end = parts.get(index + 1).map(|next| next.start);
                    let slot = forecast.from_ms / SLOT_MS;
                    let load = expect::usual(profile, slot, part.start, end);
                    planned.expects.push((part.partition, load));
                }
            }
        }
        planned
    }

    /// Makes room for the profile of a table with this load. False if it has too little, or all others have more.
    fn make_room(&mut self, load: f64) -> bool {
        if load < TABLE_MIN {
            return false;
        }
        if self.profiles.len() < TABLES_MAX {
            return true;
        }
        let peaks = self.profiles.iter().map(|(table, profile)| (*table, profile.greatest()));
        let Some((quietest, peak)) = peaks.min_by(|a, b| a.1.total_cmp(&b.1)) else { return true };
        let is_louder = load > peak * LOUDER;
        if is_louder {
            self.profiles.remove(&quietest);
        }
        is_louder
    }

    /// Drops the profiles of tables that are gone or are not to be forecast; forecasts stay.
    pub fn retain(&mut self, is_kept: impl Fn(TableId) -> bool) {
        self.profiles.retain(|table, _| is_kept(*table));
    }

    /// Drops the profile and the forecasts of a table whose keys are in another order now.
    pub fn forget(&mut self, table: TableId) {
        self.profiles.remove(&table);
        self.forecasts.retain(|forecast| forecast.table != table);
    }

    /// The forecasts, the oldest first.
    pub fn forecasts(&self) -> impl Iterator<Item = &Forecast> {
        self.forecasts.iter()
    }

    /// The forecast that a partition's key belongs to and whose peak has not ended.
    #[must_use]
    pub fn coming(&self, table: TableId, start: &[u8]) -> Option<&Forecast> {
        let is_meant = |forecast: &&Forecast| {
            forecast.table == table && !forecast.is_over && forecast.has(start)
        };
        self.forecasts.iter().rev().find(is_meant)
    }

    /// The profiles, as they are kept on disk.
    pub fn saved(&self) -> impl Iterator<Item = (TableId, Vec<SavedCell>)> + '_ {
        self.profiles.iter().map(|(table, profile)| (*table, profile.save()))
    }

    /// Takes what was kept on disk: profiles, and forecasts, the oldest first.
    pub fn restore(
        &mut self,
        profiles: impl IntoIterator<Item = (TableId, Vec<SavedCell>)>,
        forecasts: impl IntoIterator<Item = Forecast>,
    ) {
        let profiles = profiles.into_iter().take(TABLES_MAX);
        self.profiles = profiles.map(|(table, cells)| (table, Profile::restore(cells))).collect();
        self.forecasts = forecasts.into_iter().take(FORECASTS_MAX).collect();
    }
}

#[cfg(test)]
mod tests;
