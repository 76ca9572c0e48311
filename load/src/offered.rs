//! The load that clients offer to a partition, and the load that a partition can serve.
//!
//! A full partition serves what it can, and its clients wait: sizes that follow the served load are too small by as much
//! as the clients would like to send more.
//!
//! Invariants: pure functions of rates. Where clients wait, the offered load is a floor, and marked as such; a capacity
//! that nobody measured is marked as assumed.

use crate::window::Rates;

/// Busy share of a lane, with waiting requests, from which its clients wait for it ...
const SATURATED_RHO: f64 = 0.9;
/// ... or share of the time for which requests are held back ...
const HELD_BACK_MIN: f64 = 0.5;
/// ... and the assumed ratio of offered to served load then: the offered load cannot be measured, because waiting
/// clients do not ask for more. Too few buckets would be full again, and stay so until load has split them; too many
/// cost little.
const SATURATED_TIMES: f64 = 4.0;
/// Maximum share of refused requests that is believed.
const TURNED_AWAY_MAX: f64 = 0.99;
/// Busy share below which rows over busy time is mostly the cost of being awake.
const RHO_MIN: f64 = 0.02;
/// Rows a second below which the same holds.
const ROWS_MIN: f64 = 100.0;
/// Rows a second that a partition is assumed to take where none was measured.
const ASSUMED_ROWS: f64 = 20_000.0;

/// Load that clients offer to a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Offered {
    /// Rows a second.
    pub rows_per_s: f64,
    /// True if clients wait, and would send more than that.
    pub is_floor: bool,
}

/// The rows that are offered to a partition: served ones, plus refused and queued ones; at least four times the served
/// ones where clients wait (the lane is nine tenths busy with a queue before it, or requests are held back for half of
/// the time), and then a floor.
#[must_use]
pub fn offered(rates: &Rates) -> Offered {
    let served = rates.write_rows;
    let rows_per_batch = served / rates.write_batches.max(1.0);
    let queued = f64::from(rates.queue_depth) * rows_per_batch;
    let rows = served / (1.0 - rates.turned_away.min(TURNED_AWAY_MAX)) + queued;
    let is_saturated = rates.rho_10 >= SATURATED_RHO && rates.queue_depth > 0;
    let is_floor = is_saturated || rates.held_back >= HELD_BACK_MIN;
    let rows_per_s = if is_floor { rows.max(SATURATED_TIMES * served) } else { rows };
    Offered { rows_per_s, is_floor }
}

/// Load that one partition can serve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Rows a second of a lane that is busy all the time.
    pub rows_per_s: f64,
    /// False if it is assumed, because no partition was busy enough.
    pub is_measured: bool,
}

impl Default for Capacity {
    /// The assumed one.
    fn default() -> Self {
        Self { rows_per_s: ASSUMED_ROWS, is_measured: false }
    }
}

/// The capacity of a table's partitions: the most rows for the busy time of any that is at least 2 % busy with 100 rows a
/// second; otherwise 20,000 rows a second, or what one partition is seen to serve if that is more.
#[must_use]
pub fn capacity<'r>(partitions: impl IntoIterator<Item = &'r Rates>) -> Capacity {
    let (mut measured, mut served) = (0.0_f64, 0.0_f64);
    for rates in partitions {
        served = served.max(rates.write_rows);
        if rates.rho_10 >= RHO_MIN && rates.write_rows >= ROWS_MIN {
            measured = measured.max(rates.write_rows / rates.rho_10);
        }
    }
    if measured > 0.0 {
        Capacity { rows_per_s: measured, is_measured: true }
    } else {
        Capacity { rows_per_s: served.max(ASSUMED_ROWS), is_measured: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-6 * b.max(1.0), "{a} is not {b}");
    }

    #[test]
    fn clients_that_wait_offer_more_than_is_served() {
        // 900 rows a second are offered, of which 300 are served; the store cannot know the 900.
        let full = Rates {
            write_rows: 300.0,
            write_batches: 300.0,
            rho_10: 0.97,
            queue_depth: 6,
            ..Rates::default()
        };
        let load = offered(&full);
        near(load.rows_per_s, 1_200.0);
        assert!(load.is_floor);
        // The same where requests are delayed before they reach the lane.
        let delayed = Rates { rho_10: 0.2, queue_depth: 0, held_back: 0.8, ..full };
        let load = offered(&delayed);
        near(load.rows_per_s, 1_200.0);
        assert!(load.is_floor);
    }

    #[test]
    fn refused_and_queued_rows_are_offered_too() {
        let rates = Rates {
            write_rows: 1_000.0,
            write_batches: 10.0,
            turned_away: 0.5,
            rho_10: 0.5,
            queue_depth: 3,
            ..Rates::default()
        };
        let load = offered(&rates);
        near(load.rows_per_s, 2_000.0 + 300.0);
        assert!(!load.is_floor);
        assert_eq!(offered(&Rates::default()), Offered::default());
    }

    #[test]
    fn capacity_is_measured_where_a_partition_is_busy() {
        let busy = Rates { write_rows: 10_000.0, rho_10: 0.1, ..Rates::default() };
        let slow = Rates { write_rows: 500.0, rho_10: 0.5, ..Rates::default() };
        let idle = Rates { write_rows: 50_000.0, rho_10: 0.01, ..Rates::default() };
        let all = capacity([&slow, &busy, &idle]);
        near(all.rows_per_s, 100_000.0);
        assert!(all.is_measured);
        assert_eq!(capacity([&idle]), Capacity { rows_per_s: 50_000.0, is_measured: false });
        assert_eq!(capacity([]), Capacity::default());
    }
}
