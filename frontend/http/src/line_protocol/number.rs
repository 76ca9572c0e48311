//! Numbers of line protocol: `1`, `1.5`, `-1.2e+3` (floats), `1i`, `1u`.
//!
//! Floats with up to 15 significant digits and a small exponent, which are nearly all, are computed exactly in double
//! arithmetic: mantissa and power of ten are both representable, and one multiplication or division rounds once. Others
//! are parsed by the standard library, which rounds correctly too.

use super::scan::{Malformed, Value};

/// The powers of ten that a double represents exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];
/// Numbers with this many digits are below 2^53.
const EXACT_DIGITS: usize = 15;

/// Parses digits as an integer; `None` when it is out of range.
pub(super) fn integer(digits: &[u8], negative: bool) -> Option<i64> {
    // Built downwards, because there is one more negative number than there are positive ones.
    let mut value = 0_i64;
    for digit in digits {
        value = value.checked_mul(10)?.checked_sub(i64::from(digit - b'0'))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

fn unsigned(digits: &[u8]) -> Option<u64> {
    digits
        .iter()
        .try_fold(0_u64, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}

fn digits_end(bytes: &[u8], start: usize) -> usize {
    let mut end = start;
    while end < bytes.len() && bytes[end].is_ascii_digit() {
        end += 1;
    }
    end
}

/// Parses the number at `start`, which is a digit or a minus sign. Returns it with its end.
pub(super) fn number(text: &str, start: usize) -> Result<(Value<'static>, usize), Malformed> {
    let bytes = text.as_bytes();
    let negative = bytes[start] == b'-';
    let whole = start + usize::from(negative);
    let whole_end = digits_end(bytes, whole);
    if whole_end == whole {
        return Err(Malformed::Trailing { at: start });
    }
    match bytes.get(whole_end) {
        Some(b'i') => integer(&bytes[whole..whole_end], negative)
            .map(|value| (Value::Integer(value), whole_end + 1))
            .ok_or(Malformed::Integer { from: start, to: whole_end }),
        Some(b'u') if !negative => unsigned(&bytes[whole..whole_end])
            .map(|value| (Value::Unsigned(value), whole_end + 1))
            .ok_or(Malformed::Unsigned { from: start, to: whole_end }),
        _ => float(text, start, negative, whole, whole_end),
    }
}

fn float(
    text: &str,
    start: usize,
    negative: bool,
    whole: usize,
    whole_end: usize,
) -> Result<(Value<'static>, usize), Malformed> {
    let bytes = text.as_bytes();
    let mut number_end = whole_end;
    let mut fraction = (number_end, number_end);
    if bytes.get(number_end) == Some(&b'.') {
        let end = digits_end(bytes, number_end + 1);
        if end > number_end + 1 {
            fraction = (number_end + 1, end);
            number_end = end;
        }
    }
    let mut exponent = 0_i32;
    if matches!(bytes.get(number_end), Some(b'e' | b'E')) {
        let sign = bytes.get(number_end + 1).copied();
        let digits = number_end + 1 + usize::from(matches!(sign, Some(b'-' | b'+')));
        let end = digits_end(bytes, digits);
        if end > digits {
            // An exponent that saturates is left to the standard library.
            let size = bytes[digits..end].iter().fold(0_i32, |size, digit| {
                size.saturating_mul(10).saturating_add(i32::from(digit - b'0'))
            });
            exponent = if sign == Some(b'-') { -size } else { size };
            number_end = end;
        }
    }
    let (fraction_start, fraction_end) = fraction;
    let value = exact(&bytes[whole..whole_end], &bytes[fraction_start..fraction_end], exponent)
        .map(|value| if negative { -value } else { value });
    let value = match value {
        Some(value) => Some(value),
        None => text[start..number_end].parse::<f64>().ok(),
    };
    match value {
        Some(value) if value.is_finite() => Ok((Value::Float(value), number_end)),
        _ => Err(Malformed::Float { from: start, to: number_end }),
    }
}

fn exact(whole: &[u8], fraction: &[u8], exponent: i32) -> Option<f64> {
    if whole.len() + fraction.len() > EXACT_DIGITS {
        return None;
    }
    let mantissa = whole
        .iter()
        .chain(fraction)
        .fold(0_u64, |mantissa, digit| mantissa * 10 + u64::from(digit - b'0'));
    let scale = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let power = *POWERS.get(usize::try_from(scale.unsigned_abs()).ok()?)?;
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    let mantissa = mantissa as f64;
    Some(if scale < 0 { mantissa / power } else { mantissa * power })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn floats_equal_the_standard_library(text in "-?[0-9]{1,20}(\\.[0-9]{1,20})?(e[+-]?[0-9]{1,3})?") {
            let expected: f64 = text.parse().unwrap();
            match number(&text, 0) {
                Ok((Value::Float(value), to)) => {
                    prop_assert_eq!(value.to_bits(), expected.to_bits());
                    prop_assert_eq!(to, text.len());
                }
                other => prop_assert!(expected.is_infinite(), "{:?} for {}", other, text),
            }
        }

        #[test]
        fn integers_equal_the_standard_library(text in "-?[0-9]{1,21}") {
            let digits = text.trim_start_matches('-').as_bytes();
            prop_assert_eq!(integer(digits, text.starts_with('-')), text.parse().ok());
        }
    }

    #[test]
    fn minus_zero_keeps_its_sign() {
        let Ok((Value::Float(value), 2)) = number("-0", 0) else { panic!("no float") };
        assert!(value.is_sign_negative());
    }
}
