//! Token-bucket budgets, which refill with time.
//!
//! Invariants: refilling never exceeds the burst, however long nothing is taken; time that goes back refills nothing.

/// A token bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tokens {
    held: f64,
    at_ms: u64,
    begun: bool,
}

impl Tokens {
    /// Refills by the time passed; the first call fills it completely.
    pub(crate) fn refill(&mut self, now_ms: u64, per_second: f64, burst: f64) {
        if !self.begun {
            (self.begun, self.held, self.at_ms) = (true, burst, now_ms);
        }
        let passed_s = now_ms.saturating_sub(self.at_ms) as f64 / 1_000.0;
        // Tokens given beyond the burst stay.
        self.held = self.held.max((self.held + passed_s * per_second).min(burst));
        self.at_ms = self.at_ms.max(now_ms);
    }

    /// Takes one token if there is one.
    pub(crate) fn take_one(&mut self) -> bool {
        // A whole token, except for rounding errors of adding up fractions.
        let enough = self.held >= 1.0 - 1e-9;
        if enough {
            self.held -= 1.0;
        }
        enough
    }

    /// Takes any amount as long as the budget is not overdrawn; an excess is owed. For amounts that may exceed the
    /// burst.
    pub(crate) fn take_on_credit(&mut self, amount: f64) -> bool {
        let enough = self.held > 0.0;
        if enough {
            self.held -= amount;
        }
        enough
    }

    /// Gives tokens back, beyond the burst if need be: up to `most`.
    pub(crate) fn give(&mut self, amount: f64, most: f64) {
        self.held = (self.held + amount).min(most.max(self.held));
    }
}

#[cfg(test)]
mod tests {
    use super::Tokens;

    #[test]
    fn no_more_is_taken_than_burst_and_rate_allow() {
        let mut tokens = Tokens::default();
        let mut taken = 0;
        for ms in (0..=600_000).step_by(100) {
            tokens.refill(ms, 2.0 / 60.0, 2.0);
            taken += u32::from(tokens.take_one());
        }
        assert_eq!(taken, 2 + 20);
    }

    #[test]
    fn an_amount_above_the_burst_is_owed() {
        let mut tokens = Tokens::default();
        tokens.refill(0, 10.0, 10.0);
        assert!(tokens.take_on_credit(110.0));
        tokens.refill(9_000, 10.0, 10.0);
        assert!(!tokens.take_on_credit(1.0));
        tokens.refill(10_100, 10.0, 10.0);
        assert!(tokens.take_on_credit(1.0));
    }

    #[test]
    fn time_that_goes_back_refills_nothing() {
        let mut tokens = Tokens::default();
        tokens.refill(10_000, 1.0, 1.0);
        assert!(tokens.take_one());
        tokens.refill(0, 1.0, 1.0);
        tokens.refill(10_000, 1.0, 1.0);
        assert!(!tokens.take_one());
    }
}
