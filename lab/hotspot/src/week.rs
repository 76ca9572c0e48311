//! A week with a peak at nine every day, in the virtual cluster: what the forecast makes of it.
//!
//! The first two days are cut when the peak is there; from the third on partitions are to be there before it.
//!
//! Invariants: a run follows from its days, its holidays and its seed. The minutes in which partitions are cut by load go
//! by in seconds, the rest in steps of ten.

use std::fmt::Write as _;

use partita_load::Forecast;

use crate::cluster::{BEGIN_MS, Cluster, Options as ClusterOptions};
use crate::workload::{Design, Knobs, Rate, SECOND_US, find};

const HOUR_S: u64 = 3_600;
const DAY_S: u64 = 24 * HOUR_S;
/// Begin of the peak, seconds of the day.
const PEAK_S: u64 = 9 * HOUR_S;
/// Beginning of the peak in which the served share is taken, seconds.
const BEGINS_S: u64 = 300;
/// Steps apart from the begin of the peak, milliseconds.
const QUIET_PACE_MS: u64 = 10_000;
/// Rows a second: a tenth of a lane, and three lanes in the peak.
const QUIET_ROWS: f64 = 2_000.0;
const PEAK_TIMES: f64 = 30.0;

/// Options of `week`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Days to run, from midnight to midnight.
    #[arg(long, default_value_t = 7)]
    pub days: u64,
    /// Days on which the peak does not come, from 1.
    #[arg(long, value_delimiter = ',')]
    pub holidays: Vec<u64>,
    /// Cut by load only.
    #[arg(long)]
    pub no_forecast: bool,
    /// Seed of all pseudo-random choices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Runs a week, and describes its days.
#[must_use]
pub fn run(options: &Options) -> String {
    page(&days(options.days, &options.holidays, !options.no_forecast, options.seed))
}

/// One day of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Day {
    /// Number of the day, from 1.
    pub day: u64,
    /// True if the peak did not come.
    pub is_holiday: bool,
    /// Partitions when the peak was to begin.
    pub partitions: usize,
    /// Splits ahead of the peak.
    pub cuts_ahead: u64,
    /// Splits by load.
    pub cuts_by_load: u64,
    /// Splits by load that did not help.
    pub in_vain: u64,
    /// Merges of the day.
    pub merges: u64,
    /// Share of the rows that were served in the first five minutes from nine on.
    pub served: f64,
    /// Forecasts of the day.
    pub forecasts: Vec<Forecast>,
}

impl Day {
    /// Splits ahead of a peak that did not come.
    #[must_use]
    pub fn useless(&self) -> u64 {
        let useless = self.forecasts.iter().filter(|forecast| forecast.useful() == Some(false));
        useless.map(|forecast| u64::from(forecast.cuts())).sum()
    }
}

/// Runs days from midnight to midnight; `holidays` has the numbers of those without the peak, below 64.
///
/// # Panics
/// If the workload of plain user events is missing.
#[must_use]
pub fn days(count: u64, holidays: &[u64], forecast: bool, seed: u64) -> Vec<Day> {
    let knobs = Knobs { partitions: 1, ..Knobs::of(Design::UidTs, QUIET_ROWS) };
    let workload = find("W1").expect("the catalogue has plain user events");
    let mut loads = workload.tables(&knobs);
    // The run begins on day 0; days count from the first midnight.
    loads[0].sources[0].rate = Rate::Daily {
        base: QUIET_ROWS,
        times: PEAK_TIMES,
        from_us: PEAK_S * SECOND_US,
        for_us: HOUR_S * SECOND_US,
        holidays: holidays
            .iter()
            .filter(|day| **day < 64)
            .fold(0, |bits, day| bits | (1_u64 << *day)),
    };
    // Rows of next to nothing: only load cuts, and what is quiet may be merged.
    loads[0].row_bytes = 0.01;
    let mut cluster =
        Cluster::new(ClusterOptions { forecast, seed, ..ClusterOptions::default() }, loads);
    let midnight_s = DAY_S - BEGIN_MS / 1_000 % DAY_S;
    cluster.pace_ms = QUIET_PACE_MS;
    cluster.run(midnight_s);
    let mut days = Vec::new();
    for day in 1..=count {
        let begin_s = midnight_s + (day - 1) * DAY_S;
        let earlier = cluster.books.counts.clone();
        cluster.books.seconds.clear();
        cluster.pace_ms = QUIET_PACE_MS;
        cluster.run(begin_s + PEAK_S - 60);
        cluster.pace_ms = 1_000;
        cluster.run(begin_s + PEAK_S - 1);
        let partitions = cluster.partitions();
        cluster.books.seconds.clear();
        cluster.run(begin_s + PEAK_S + BEGINS_S);
        let seconds = cluster.books.seconds.iter();
        let (served, offered) = seconds
            .fold((0.0, 0.0), |sums, second| (sums.0 + second.served, sums.1 + second.offered));
        cluster.run(begin_s + PEAK_S + 2 * BEGINS_S);
        cluster.pace_ms = QUIET_PACE_MS;
        cluster.books.seconds.clear();
        cluster.run(begin_s + DAY_S);
        let counts = &cluster.books.counts;
        let from_ms = BEGIN_MS + begin_s * 1_000;
        let is_of_day =
            |forecast: &&Forecast| (from_ms..from_ms + DAY_S * 1_000).contains(&forecast.from_ms);
        days.push(Day {
            day,
            is_holiday: holidays.contains(&day),
            partitions,
            cuts_ahead: counts.splits_forecast - earlier.splits_forecast,
            cuts_by_load: counts.splits_load - earlier.splits_load,
            in_vain: counts.splits_in_vain - earlier.splits_in_vain,
            merges: counts.merges - earlier.merges,
            served: if offered > 0.0 { served / offered } else { 1.0 },
            forecasts: cluster.forecaster.forecasts().filter(is_of_day).cloned().collect(),
        });
    }
    days
}

/// Days as a page in Markdown.
#[must_use]
pub fn page(days: &[Day]) -> String {
    let mut text = String::from(
        "| day | peak | expected | confidence | partitions at nine | cuts ahead | useless | cuts by load | in vain | merges \
         | served from nine |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for day in days {
        let forecast = day.forecasts.first();
        let figure = |read: fn(&Forecast) -> f64| {
            forecast.map_or_else(|| "-".to_owned(), |forecast| format!("{:.2}", read(forecast)))
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.1} % |",
            day.day,
            if day.is_holiday { "no" } else { "yes" },
            figure(|forecast| forecast.expected),
            figure(|forecast| forecast.confidence),
            day.partitions,
            day.cuts_ahead,
            day.useless(),
            day.cuts_by_load,
            day.in_vain,
            day.merges,
            day.served * 100.0,
        );
    }
    text
}
