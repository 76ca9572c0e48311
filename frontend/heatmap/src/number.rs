//! From fractions to whole numbers and to narrower ones, in one place.
//!
//! Invariant: every function says what happens to values that do not fit, and none of them wraps around.

/// Rounds down; negative numbers and what is not a number become 0, huge ones the largest.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from float saturates, which is what is wanted"
)]
pub(crate) fn floor(value: f64) -> usize {
    value as usize
}

/// Rounds to the nearest; saturates like [`floor`].
pub(crate) fn round(value: f64) -> usize {
    floor(value + 0.5)
}

/// Rounds to the nearest colour component, 0 to 255.
pub(crate) fn byte(value: f64) -> u8 {
    u8::try_from(round(value)).unwrap_or(u8::MAX)
}

/// Rounds to the nearest pixel; saturates.
pub(crate) fn pixel(value: f64) -> i32 {
    let magnitude = i32::try_from(round(value.abs())).unwrap_or(i32::MAX);
    if value < 0.0 { -magnitude } else { magnitude }
}

/// A count as pixels; saturates.
pub(crate) fn signed(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// Loses digits that a picture does not show.
#[expect(clippy::cast_possible_truncation, reason = "a float loses digits, not size")]
pub(crate) fn narrow(value: f64) -> f32 {
    value as f32
}
