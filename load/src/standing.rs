//! The standing of a partition: if its load is worth a word at all.
//!
//! A verdict tells one kind of load from another, also where there is hardly any. Lists, alarms and advice go by the
//! standing, and verdicts explain it.
//!
//! Invariant: a pure function of rates; a standing is text only where it is shown or leaves the process.

use crate::split::HOT_SECONDS_MIN;
use crate::window::{HOT_PRESSURE, HOT_RHO, Rates};

/// Operations a second below which a partition is idle.
const IDLE_BELOW: f64 = 0.01;
/// Busy share, of the lane or of a core that reads, from which a partition is busy.
const BUSY_RHO: f64 = 0.25;

/// The standing of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Nothing is written or read.
    #[default]
    Idle,
    /// The load is carried with ease.
    Healthy,
    /// The load is carried, with less to spare.
    Busy,
    /// The lane or the reads are full half of the time, or requests are held back: a hotspot.
    Hot,
}

impl Standing {
    /// All standings.
    pub const ALL: [Self; 4] = [Self::Idle, Self::Healthy, Self::Busy, Self::Hot];

    /// Name of the standing in tables, messages and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Healthy => "healthy",
            Self::Busy => "busy",
            Self::Hot => "hot",
        }
    }

    /// The standing of this name; `None` if no standing has it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|standing| standing.name() == name)
    }
}

/// The standing of a partition by its rates; `rotates` if its table's load rotates over partitions of which it is one.
#[must_use]
pub fn standing(rates: &Rates, rotates: bool) -> Standing {
    let busy = rates.rho_10.max(rates.reads_10);
    let operations = rates.write_rows.max(rates.write_batches).max(rates.read_rows);
    let is_hot = rates.hot_seconds >= HOT_SECONDS_MIN
        || rotates
        || rates.pressure >= HOT_PRESSURE
        || busy >= HOT_RHO;
    // Reads that find nothing return no rows, and take time.
    let is_idle = operations < IDLE_BELOW && busy < IDLE_BELOW;
    if is_hot {
        Standing::Hot
    } else if is_idle {
        Standing::Idle
    } else if busy >= BUSY_RHO {
        Standing::Busy
    } else {
        Standing::Healthy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_full_or_held_back_is_hot() {
        let quiet = Rates::default();
        assert_eq!(standing(&quiet, false), Standing::Idle);
        let served = Rates { write_rows: 5_000.0, rho_10: 0.12, ..quiet };
        assert_eq!(standing(&served, false), Standing::Healthy);
        assert_eq!(standing(&Rates { rho_10: 0.3, ..served }, false), Standing::Busy);
        assert_eq!(standing(&Rates { rho_10: 0.5, ..served }, false), Standing::Hot);
        assert_eq!(standing(&Rates { reads_10: 1.4, ..served }, false), Standing::Hot);
        assert_eq!(standing(&Rates { pressure: 0.01, ..served }, false), Standing::Hot);
        assert_eq!(standing(&Rates { hot_seconds: 8, ..served }, false), Standing::Hot);
        assert_eq!(standing(&served, true), Standing::Hot);
    }

    #[test]
    fn a_standing_is_found_by_its_name() {
        for standing in Standing::ALL {
            assert_eq!(Standing::named(standing.name()), Some(standing));
        }
        assert_eq!(Standing::named(""), None);
    }
}
