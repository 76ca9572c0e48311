//! Forecasts of the tables' load: profiles are fed, peaks are expected, and both are shown.
//!
//! ```text
//!   rates of partitions ──▶ Forecaster ──▶ cuts and loads to come ──▶ scheduler
//!                               │
//!                               └──▶ sys.forecasts, reasons of splits
//! ```
//!
//! Invariants: every member of the group makes the same forecasts, and only the leader's scheduler acts on them; a table
//! whose option or whose cluster forbids forecasts has no profile.

use std::collections::BTreeMap;

use partita_load::{Decided, Forecast, Held, STEP_MS, demand};
use partita_proto::id::{PartitionId, TableId};
use partita_proto::load::{ForecastAction, ForecastEvent, Instant};
use partita_proto::range::TypedRange;

use super::facts::{partition_id, table_id, table_of};
use super::keeper::Keeper;

const MINUTE_MS: u64 = 60_000;
const DAY_MIN: u64 = 24 * 60;

impl Keeper {
    /// Takes the loads of all partitions of forecast tables, every few seconds, and tells the scheduler what to prepare.
    pub(super) fn note_forecasts(&mut self, now_ms: u64) {
        if now_ms < self.forecast_due_ms {
            return;
        }
        self.forecast_due_ms = now_ms + STEP_MS;
        // The partitions of each table, in key order.
        let mut members: BTreeMap<TableId, Vec<(&[u8], PartitionId)>> = BTreeMap::new();
        for (id, watched) in &self.watched {
            if self.forecast_tables.contains_key(&watched.table) {
                members.entry(watched.table).or_default().push((&watched.range.start[..], *id));
            }
        }
        for (table, mut partitions) in members {
            partitions.sort_unstable();
            let parts: Vec<Held<'_>> = partitions
                .into_iter()
                .map(|(start, id)| {
                    let partition = partition_id(id);
                    let rates = self.scheduler.rates(partition, now_ms).unwrap_or_default();
                    Held { partition, start, load: demand(&rates) }
                })
                .collect();
            let may_cut = self.forecast_tables.get(&table).copied().unwrap_or(false);
            let planned = self.forecaster.step(now_ms, table_id(table), &parts, may_cut);
            self.scheduler.set_forecast(table_id(table), &planned);
        }
        if self.knows_all_tables() {
            let tables = &self.forecast_tables;
            self.forecaster.retain(|table| tables.contains_key(&table_of(table)));
        }
    }

    /// The forecast behind a cut of a partition, in words; empty if there is none.
    pub(super) fn forecast_text(&self, partition: PartitionId) -> String {
        let Some(watched) = self.watched.get(&partition) else { return String::new() };
        let coming = self.forecaster.coming(table_id(watched.table), &watched.range.start);
        coming.map(words).unwrap_or_default()
    }

    /// The forecasts of one table or of all, the oldest first.
    pub(crate) fn forecasts(&self, table: Option<TableId>) -> Vec<ForecastEvent> {
        let event = |forecast: &Forecast| {
            let id = table_of(forecast.table);
            let codec = self.codec(id).filter(|_| table.is_none_or(|table| table == id))?;
            let end = forecast.end.as_deref().unwrap_or_default();
            Some(ForecastEvent {
                at: Instant(forecast.made_ms),
                table: id,
                range: TypedRange {
                    start: codec.decode(&forecast.start).ok()?,
                    end: codec.decode(end).ok()?,
                },
                from: Instant(forecast.from_ms),
                until: Instant(forecast.until_ms),
                expected: forecast.expected,
                confidence: forecast.confidence,
                days: forecast.days,
                action: match forecast.decided {
                    Decided::Cut(_) => ForecastAction::Cut,
                    Decided::NoPlace => ForecastAction::NoPlace,
                    Decided::Off => ForecastAction::Off,
                },
                cuts: forecast.cuts(),
                actual: forecast.actual,
                useful: forecast.useful(),
            })
        };
        self.forecaster.forecasts().filter_map(event).collect()
    }
}

/// A forecast in words: load, time and evidence.
fn words(forecast: &Forecast) -> String {
    let minutes = forecast.from_ms / MINUTE_MS % DAY_MIN;
    format!(
        "{:.2} cores expected from {:02}:{:02} UTC on, by {} days, confidence {:.2}",
        forecast.expected,
        minutes / 60,
        minutes % 60,
        forecast.days,
        forecast.confidence
    )
}
