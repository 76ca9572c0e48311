//! The scripts of `testscripts/forecast`: days of a table in, peaks that were expected and what came of them out.
//!
//! The keys of the table are the bytes from 0 to 255, with an even load: 0.1 cores, and 1.6 from 09:00 to 10:00. Cuts are
//! made as planned; without them the table is cut into four when the peak is there. At 11:00 all partitions are merged.
//!
//! ```text
//!   days 5                         so many days; also: peak=false (without the peak), may_cut=false (no splits by load),
//!                                  moves=true (the peak is on another eighth of the keys each day)
//! ```

use std::error::Error;

use goldenscript::{Command, Context, Runner};
use partita_load::{Decided, Forecast, Forecaster, Held, PartitionId, TableId};

use crate::run;

const MINUTE_MS: u64 = 60_000;
const DAY_MIN: u64 = 24 * 60;
const NINE_MIN: u64 = 9 * 60;
const TABLE: TableId = TableId(1);

struct Script {
    forecaster: Forecaster,
    day: u64,
    starts: Vec<u8>,
}

/// A day's load.
struct Day {
    peaks: bool,
    may_cut: bool,
    moves: bool,
}

impl Script {
    fn new() -> Self {
        Self { forecaster: Forecaster::default(), day: 0, starts: vec![0] }
    }

    /// Load of the keys from `start` on that are below `end`.
    fn load(&self, day: &Day, minute: u64, start: u8, end: u16) -> f64 {
        let width = f64::from(end - u16::from(start)) / 256.0;
        let is_peak = day.peaks && (NINE_MIN..NINE_MIN + 60).contains(&minute);
        if !is_peak {
            return 0.1 * width;
        }
        if !day.moves {
            return 1.6 * width;
        }
        let place = (self.day % 8) as f64 / 8.0;
        let (low, high) = (f64::from(start) / 256.0, f64::from(end) / 256.0);
        let shared = (high.min(place + 0.125) - low.max(place)).max(0.0);
        1.6 * shared / 0.125
    }

    fn minute(&mut self, day: &Day, minute: u64) {
        let keys: Vec<[u8; 1]> = self.starts.iter().map(|start| [*start]).collect();
        let held = |(index, key): (usize, &'_ [u8; 1])| {
            let end = self.starts.get(index + 1).map_or(256, |end| u16::from(*end));
            (key[0], self.load(day, minute, key[0], end))
        };
        let loads: Vec<(u8, f64)> = keys.iter().enumerate().map(held).collect();
        let parts: Vec<Held<'_>> = keys
            .iter()
            .zip(&loads)
            .map(|(key, (start, load))| Held {
                partition: PartitionId(u64::from(*start)),
                start: key,
                load: *load,
            })
            .collect();
        let now_ms = (self.day * DAY_MIN + minute) * MINUTE_MS;
        let planned = self.forecaster.step(now_ms, TABLE, &parts, day.may_cut);
        self.starts.extend(planned.cuts.iter().map(|cut| cut.key[0]));
        let is_peak = day.peaks && (NINE_MIN..NINE_MIN + 60).contains(&minute);
        if is_peak && self.starts.len() == 1 {
            self.starts = vec![0, 64, 128, 192];
        }
        if minute >= NINE_MIN + 120 {
            self.starts = vec![0];
        }
        self.starts.sort_unstable();
        self.starts.dedup();
    }

    fn days(&mut self, count: u64, day: &Day) -> String {
        let mut lines = Vec::new();
        for _ in 0..count {
            let known = self.forecaster.forecasts().count();
            for minute in 0..DAY_MIN {
                self.minute(day, minute);
            }
            self.day += 1;
            let new: Vec<String> = self.forecaster.forecasts().skip(known).map(describe).collect();
            let text =
                if new.is_empty() { "nothing is expected".to_owned() } else { new.join("; ") };
            lines.push(format!("day {}: {text}", self.day));
        }
        lines.join("\n")
    }
}

fn time(at_ms: u64) -> String {
    let minutes = at_ms / MINUTE_MS % DAY_MIN;
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

fn describe(forecast: &Forecast) -> String {
    let what = match (forecast.decided, forecast.useful()) {
        (Decided::Off, _) => "nothing is done".to_owned(),
        (Decided::NoPlace, _) => "no place for a cut is known".to_owned(),
        (Decided::Cut(cuts), Some(true)) => format!("{cuts} cuts, useful"),
        (Decided::Cut(cuts), Some(false)) => format!("{cuts} cuts, in vain"),
        (Decided::Cut(cuts), None) => format!("{cuts} cuts"),
    };
    format!(
        "at {} a peak of {:.2} cores is expected from {} to {}, by {} days, confidence {:.2}; {what}",
        time(forecast.made_ms),
        forecast.expected,
        time(forecast.from_ms),
        time(forecast.until_ms),
        forecast.days,
        forecast.confidence,
    )
}

impl Runner for Script {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        let mut arguments = command.consume_args();
        let output = match command.name.as_str() {
            "days" => {
                let count = arguments.next_pos().ok_or("the number of days is missing")?.parse()?;
                let day = Day {
                    peaks: run::take(&mut arguments, "peak", true)?,
                    may_cut: run::take(&mut arguments, "may_cut", true)?,
                    moves: run::take(&mut arguments, "moves", false)?,
                };
                self.days(count, &day)
            }
            other => return Err(format!("unknown command {other}").into()),
        };
        arguments.reject_next()?;
        Ok(output)
    }
}

#[test]
fn scripts() {
    run::run_all("forecast", Script::new);
}
