//! Keys as numbers, and how load lies over them.
//!
//! Invariants: a flow over a range is the sum of the flows over its parts.

use partita_load::{SplitWhy, Step};

/// Load, in busy lanes, of a table's keys between two numbers at a time (seconds since the start).
pub(crate) type Flow = Box<dyn Fn(f64, f64, f64) -> f64>;

/// Numbers are written in steps of 2^-53.
const KEYS: f64 = 9_007_199_254_740_992.0;

pub(crate) fn whole(value: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive and small"
    )]
    let whole = value.max(0.0).round() as u64;
    whole
}

pub(crate) fn key(at: f64) -> Box<[u8]> {
    Box::from(whole(at * KEYS).to_be_bytes())
}

pub(crate) fn number(key: &[u8]) -> f64 {
    let mut bytes = [0; 8];
    bytes[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(bytes) as f64 / KEYS
}

/// A load that is spread evenly over the keys.
pub(crate) fn even(lanes: f64) -> Flow {
    Box::new(move |_, low, high| lanes * (high - low))
}

/// A load whose density falls off by a power: the lowest keys are the busiest.
pub(crate) fn skewed(lanes: f64, power: f64) -> Flow {
    Box::new(move |_, low, high| lanes * (high.powf(power) - low.powf(power)))
}

/// All of the load at the right end.
pub(crate) fn tail(lanes: f64) -> Flow {
    Box::new(move |_, _, high| if high >= 1.0 { lanes } else { 0.0 })
}

pub(crate) fn is_split(why: SplitWhy) -> impl Fn(&Step) -> bool {
    move |step| matches!(step, Step::Split { why: found, .. } if *found == why)
}
