//! Tests of the book of forecasts: days of a table with a peak at nine, whose partitions are cut as planned.

use super::super::profile::DAY_SLOTS;
use super::*;

const TABLE: TableId = TableId(1);
const DAY_MS: u64 = DAY_SLOTS * SLOT_MS;
const NINE_MS: u64 = 9 * 3_600_000;

/// A table whose keys from 0 to 255 have an even load.
struct World {
    forecaster: Forecaster,
    now_ms: u64,
    starts: Vec<u8>,
    may_cut: bool,
}

impl World {
    fn new() -> Self {
        Self { forecaster: Forecaster::default(), now_ms: 0, starts: vec![0], may_cut: true }
    }

    fn step(&mut self, load: f64) -> Planned {
        let keys: Vec<[u8; 1]> = self.starts.iter().map(|start| [*start]).collect();
        let width = |index: usize| {
            let end = self.starts.get(index + 1).map_or(256.0, |end| f64::from(*end));
            (end - f64::from(self.starts[index])) / 256.0
        };
        let parts: Vec<Held<'_>> = keys
            .iter()
            .enumerate()
            .map(|(index, key)| Held {
                partition: PartitionId(u64::from(key[0])),
                start: key,
                load: load * width(index),
            })
            .collect();
        let planned = self.forecaster.step(self.now_ms, TABLE, &parts, self.may_cut);
        self.now_ms += 60_000;
        planned
    }

    /// A day, minute by minute: cuts are made as planned or, when the peak is there, by hand; at eleven all are merged.
    fn day(&mut self, peaks: bool) {
        let begin_ms = self.now_ms;
        while self.now_ms < begin_ms + DAY_MS {
            let time_ms = self.now_ms - begin_ms;
            let is_peak = peaks && (NINE_MS..NINE_MS + 3_600_000).contains(&time_ms);
            let planned = self.step(if is_peak { 1.6 } else { 0.1 });
            for cut in planned.cuts {
                self.starts.push(cut.key[0]);
            }
            if is_peak && self.starts.len() == 1 {
                self.starts = vec![0, 64, 128, 192];
            }
            if time_ms >= NINE_MS + 2 * 3_600_000 {
                self.starts = vec![0];
            }
            self.starts.sort_unstable();
            self.starts.dedup();
        }
    }

    fn newest(&self) -> &Forecast {
        self.forecaster.forecasts().last().unwrap()
    }
}

#[test]
fn a_peak_is_met_with_its_partitions_from_the_third_day_on() {
    let mut world = World::new();
    world.day(true);
    world.day(true);
    assert_eq!(world.forecaster.forecasts().count(), 0);
    for day in 3..=7 {
        world.day(true);
        assert_eq!(world.forecaster.forecasts().count(), day - 2);
        let forecast = world.newest();
        assert_eq!(forecast.from_ms % DAY_MS, NINE_MS);
        assert_eq!(forecast.made_ms + 1_800_000, forecast.from_ms);
        assert_eq!((forecast.decided, forecast.useful()), (Decided::Cut(3), Some(true)));
        assert_eq!(&*forecast.start, [0]);
        assert_eq!(forecast.end, None);
        assert!((forecast.expected - 1.6).abs() < 0.1, "{forecast:?}");
    }
}

#[test]
fn a_holiday_costs_the_cuts_of_its_day() {
    let mut world = World::new();
    for _ in 0..5 {
        world.day(true);
    }
    let sure = world.newest().confidence;
    world.day(false);
    assert_eq!(world.newest().useful(), Some(false));
    world.day(true);
    let forecast = world.newest();
    assert!(forecast.confidence < sure);
    assert_eq!(forecast.useful(), Some(true));
    assert_eq!(world.forecaster.forecasts().count(), 5);
}

#[test]
fn what_may_not_be_cut_is_only_expected() {
    let mut world = World { may_cut: false, ..World::new() };
    for _ in 0..3 {
        world.day(true);
    }
    let forecast = world.newest();
    assert_eq!((forecast.decided, forecast.cuts(), forecast.useful()), (Decided::Off, 0, None));
    assert!(forecast.is_over && forecast.actual.is_some_and(|load| load >= 1.5));
}

#[test]
fn parts_of_a_peak_are_held_and_expected() {
    let mut world = World::new();
    world.day(true);
    world.day(true);
    let mut held = 0;
    for minute in 0..(24 * 60) {
        let is_peak = (540..600).contains(&minute);
        let planned = world.step(if is_peak { 1.6 } else { 0.1 });
        for cut in &planned.cuts {
            world.starts.push(cut.key[0]);
            world.starts.sort_unstable();
        }
        if minute == 530 {
            assert_eq!(planned.expects.len(), 4);
            assert!(planned.expects.iter().all(|(_, load)| (*load - 0.4).abs() < 0.05));
        }
        held += usize::from(!planned.holds.is_empty());
    }
    assert_eq!(held, 90, "from half past eight to ten");
}

#[test]
fn what_is_saved_comes_back() {
    let mut world = World::new();
    for _ in 0..3 {
        world.day(true);
    }
    let saved: Vec<_> = world.forecaster.saved().collect();
    let forecasts: Vec<Forecast> = world.forecaster.forecasts().cloned().collect();
    world.forecaster = Forecaster::default();
    world.forecaster.restore(saved, forecasts);
    world.day(true);
    assert_eq!(world.forecaster.forecasts().count(), 2);
    assert_eq!(world.newest().decided, Decided::Cut(3));
}

#[test]
fn nothing_is_expected_of_a_table_whose_keys_are_in_another_order() {
    let mut world = World::new();
    for _ in 0..3 {
        world.day(true);
    }
    world.forecaster.forget(TableId(2));
    assert_eq!(world.forecaster.forecasts().count(), 1);
    world.forecaster.forget(TABLE);
    assert_eq!((world.forecaster.saved().count(), world.forecaster.forecasts().count()), (0, 0));
    world.day(true);
    assert_eq!(world.forecaster.forecasts().count(), 0, "one day is no habit");
}

#[test]
fn the_quietest_profile_goes_for_a_table_that_bears_much_more() {
    let mut forecaster = Forecaster::default();
    let mut step = |table: usize, load: f64| {
        let part = Held { partition: PartitionId(1), start: b"", load };
        forecaster.step(0, TableId(u32::try_from(table).unwrap()), &[part], true);
        forecaster.saved().count()
    };
    assert_eq!(step(0, 0.01), 0, "idle");
    for table in 0..TABLES_MAX {
        step(table, 0.1 + table as f64);
    }
    assert_eq!(step(99, 0.15), TABLES_MAX);
    assert_eq!(step(99, 0.5), TABLES_MAX);
    assert!(forecaster.saved().any(|(table, _)| table == TableId(99)));
}
