//! The forecast: what a table's load was at each quarter of an hour of the last two weeks, by key range, and which peaks
//! that lets expect.
//!
//! ```text
//!   loads of partitions ──▶ Profile (ranges x quarters x days) ──▶ expect ──▶ a peak: when, how much, how sure, where to cut
//!                                                                                │
//!                         Forecaster: profiles of all tables, peaks that were expected, and what came of them
//! ```
//!
//! Splits by load come when a peak is there; a peak that comes every day can be met with its partitions in place. A
//! forecast needs two days: one day is no habit. Days on which a peak did not come make it less sure, not wrong.
//!
//! Invariants: pure functions of what was observed and of the time that is passed in; a profile has at most
//! [`CELLS_MAX`] ranges and [`DAYS_KEPT`] days, a forecaster at most [`TABLES_MAX`] profiles and [`FORECASTS_MAX`]
//! forecasts. Days are those of UTC.

mod book;
mod expect;
mod profile;

pub use book::{
    Decided, FORECASTS_MAX, Forecast, Forecaster, Held, Planned, PlannedCut, STEP_MS, TABLES_MAX,
};
pub use expect::{LEAD_MS, LIKELY, PEAK_MIN};
pub use profile::{CELLS_MAX, DAY_SLOTS, DAYS_KEPT, SLOT_MS, SavedCell};

use crate::offered::offered;
use crate::window::Rates;

/// Maximum ratio of offered to served load that is believed.
const OFFERED_TIMES_MAX: f64 = 8.0;

/// Cores that clients ask of a partition, over the last minute: those that are served, in the ratio of offered to
/// served rows, or a full partition would look as if it had just enough.
#[must_use]
pub fn demand(rates: &Rates) -> f64 {
    let times = if rates.write_rows > 0.0 {
        (offered(rates).rows_per_s / rates.write_rows).clamp(1.0, OFFERED_TIMES_MAX)
    } else {
        1.0
    };
    rates.rho_60 * times + rates.reads_60
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_rows_are_demanded_too() {
        let rates = Rates { rho_60: 0.5, reads_60: 0.25, write_rows: 100.0, ..Rates::default() };
        assert!((demand(&rates) - 0.75).abs() < 1e-9);
        let refused = Rates { turned_away: 0.5, write_batches: 100.0, ..rates };
        assert!((demand(&refused) - 1.25).abs() < 1e-9);
        assert_eq!(demand(&Rates::default()), 0.0);
    }
}
