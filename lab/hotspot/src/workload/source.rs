//! The load of a table as a sum of sources: as densities for the fluid, and as a stream of operations.
//!
//! Invariants: both have the same distribution: the share of drawn keys below a key converges to its density; a
//! stream repeats with its seed.

use partita_load::Random;

use super::law::{Law, encode};
use super::part::SECOND_US;
use super::rate::Rate;
use super::stamp::BEGIN_US;
use crate::streams::Op;

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Writes a row.
    Write,
    /// Reads one key.
    Read,
    /// Reads this many keys at most, from a random one (the last column counts them).
    ScanAhead(u64),
    /// Reads the newest microseconds of a key that begins with the time.
    ScanRecent(u64),
}

/// Operations of one kind with one distribution.
#[derive(Clone, Debug)]
pub struct Source {
    pub(crate) law: Law,
    pub(crate) rate: Rate,
    pub(crate) kind: Kind,
    /// Cost of an operation for the lane, in rows written.
    pub(crate) cost: f64,
}

impl Source {
    pub(crate) fn is_write(&self) -> bool {
        self.kind == Kind::Write
    }

    /// Draws an operation whose key lies between two shares.
    pub(crate) fn draw(
        &self,
        at_us: u64,
        (low, high): (f64, f64),
        random: &mut Random,
        op: &mut Op,
    ) {
        match self.kind {
            Kind::Write | Kind::Read => {
                self.law.draw(at_us, low, high, random, &mut op.key);
                op.end = None;
            }
            Kind::ScanAhead(most) => {
                self.law.draw(at_us, low, high, random, &mut op.key);
                let mut end = op.key.clone();
                add(&mut end, 1 + random.below(most));
                op.end = Some(end);
            }
            Kind::ScanRecent(us) => {
                let now_us = BEGIN_US + at_us;
                encode(&[now_us - us], &self.law.widths, &mut op.key);
                encode(&[now_us], &self.law.widths, op.end.get_or_insert_default());
            }
        }
    }
}

/// Adds to the last eight bytes of a key.
fn add(key: &mut [u8], amount: u64) {
    let start = key.len().saturating_sub(8);
    let value = key[start..]
        .iter()
        .fold(0_u64, |value, byte| value << 8 | u64::from(*byte))
        .saturating_add(amount);
    let width = key.len() - start;
    key[start..].copy_from_slice(&value.to_be_bytes()[8 - width..]);
}

/// The operations on a table, as a stream.
pub struct Stream<'a> {
    sources: &'a [Source],
    random: Random,
    /// Microseconds since the begin of the run.
    at: f64,
}

impl<'a> Stream<'a> {
    /// A stream that repeats with its seed.
    #[must_use]
    pub fn new(sources: &'a [Source], seed: u64) -> Self {
        Self { sources, random: Random::new(seed), at: 0.0 }
    }

    /// The next operation: its time (microseconds since the begin) and its kind. `None` if the rates stay zero for
    /// a day.
    pub fn next(&mut self, op: &mut Op) -> Option<(u64, Kind)> {
        // While all rates are zero, time advances in steps of a second, up to a day.
        for _ in 0..86_400 {
            let now_us = crate::number::whole(self.at);
            let rate: f64 = self.sources.iter().map(|source| source.rate.at(now_us)).sum();
            if rate <= 0.0 {
                self.at += SECOND_US as f64;
                continue;
            }
            // Poisson arrivals: the gaps are exponential.
            self.at += -(1.0 - self.random.unit()).ln() / rate * SECOND_US as f64;
            let now_us = crate::number::whole(self.at);
            let mut spot = self.random.unit() * rate;
            let chosen = self.sources.iter().find(|source| {
                spot -= source.rate.at(now_us);
                spot < 0.0
            });
            let source = chosen.or(self.sources.last())?;
            source.draw(now_us, (0.0, 1.0), &mut self.random, op);
            return Some((now_us, source.kind));
        }
        None
    }
}
