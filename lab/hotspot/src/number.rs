//! Numbers from one kind to another, in the few ways that are needed.
//!
//! Invariants: casts saturate; what is not a number is 0.

/// A number that is not negative, without its fraction.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
pub(crate) fn whole(value: f64) -> u64 {
    value as u64
}

/// The same as a position in a list.
pub(crate) fn index(value: f64) -> usize {
    usize::try_from(whole(value)).unwrap_or(usize::MAX)
}

/// For what a picture shows: fewer digits.
#[expect(clippy::cast_possible_truncation, reason = "seven digits are plenty in a picture")]
pub(crate) fn narrow(value: f64) -> f32 {
    value as f32
}

/// A node's number, or another that is known to be small.
pub(crate) fn small(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
