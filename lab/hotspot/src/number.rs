//! The few number conversions that are needed.
//!
//! Invariants: casts saturate; NaN becomes 0.

/// A non-negative number without its fraction; others become 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
pub(crate) fn whole(value: f64) -> u64 {
    value as u64
}

/// The same as an index.
pub(crate) fn index(value: f64) -> usize {
    usize::try_from(whole(value)).unwrap_or(usize::MAX)
}

/// With fewer digits, for a picture.
#[expect(clippy::cast_possible_truncation, reason = "seven digits are plenty in a picture")]
pub(crate) fn narrow(value: f64) -> f32 {
    value as f32
}

/// A node's index, or another number that is known to be small.
pub(crate) fn small(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
