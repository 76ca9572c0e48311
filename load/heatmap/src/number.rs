//! Conversions from fractions to integers and to narrower numbers.
//!
//! Invariant: every function documents its result for values that do not fit; none wraps around.

/// Rounds down. Negative numbers and NaN become 0, values that are too large the maximum.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from float saturates, which is what is wanted"
)]
pub(crate) fn floor(value: f64) -> usize {
    value as usize
}

/// Rounds to the nearest integer; saturates like [`floor`].
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

/// Converts to `f32`; the digits lost are not visible in a picture.
#[expect(clippy::cast_possible_truncation, reason = "a float loses digits, not size")]
pub(crate) fn narrow(value: f64) -> f32 {
    value as f32
}
