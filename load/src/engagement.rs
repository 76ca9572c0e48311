//! Decides when the samplers of a partition keep a minute of keys, rather than a few seconds.
//!
//! A minute of 32 keys a second, and the counters of frequent keys, cost some hundred kibibytes and a few nanoseconds a
//! row: too much for each of many idle partitions, and nothing for a busy one.
//!
//! Invariants: pure; engaged at once, so that a verdict is there when it is needed, and released after a minute below,
//! so that a load that pauses keeps its history.

/// Busy share from which samplers are engaged ...
const ENGAGE_BUSY: f64 = 0.10;
/// ... and below which they are released ...
const RELEASE_BUSY: f64 = 0.05;
/// ... after so many seconds in a row.
const RELEASE_AFTER_S: u32 = 60;

/// The state of the decision; to be told of each second of a leader.
#[derive(Clone, Copy, Debug, Default)]
pub struct Engagement {
    quiet_s: u32,
    on: bool,
}

impl Engagement {
    /// Hears of one more second, and returns if the samplers are to be engaged. `busy_share`: of the lane or of a core
    /// that reads, whichever is more. `held_back`: requests were refused or delayed.
    pub fn note(&mut self, busy_share: f64, held_back: bool) -> bool {
        if busy_share >= ENGAGE_BUSY || held_back {
            *self = Self { quiet_s: 0, on: true };
        } else if busy_share < RELEASE_BUSY {
            self.quiet_s = self.quiet_s.saturating_add(1);
            self.on &= self.quiet_s < RELEASE_AFTER_S;
        } else {
            self.quiet_s = 0;
        }
        self.on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_leader_is_sampled_at_once_and_for_a_minute_more() {
        let mut engagement = Engagement::default();
        assert!(!engagement.note(0.09, false), "not busy enough");
        assert!(engagement.note(0.10, false));
        assert!((0..59).all(|_| engagement.note(0.0, false)));
        // Neither busy nor quiet: the minute begins again.
        assert!(engagement.note(0.07, false));
        assert!((0..59).all(|_| engagement.note(0.04, false)));
        assert!(!engagement.note(0.04, false));
        assert!(!engagement.note(0.07, false), "released until it is busy again");
        assert!(engagement.note(0.0, true), "what is held back counts");
    }
}
