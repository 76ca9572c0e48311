//! Numerics that a client declared, with the digits of their values.

use datafusion::scalar::ScalarValue;
use partita_frontend::SqlError;

use super::NUMERIC_PRECISION;

/// The error of a numeric that no column can hold.
pub(super) fn not_finite() -> SqlError {
    SqlError::new("22003", "NaN and infinity are not supported in type numeric")
}

/// Parses a number with an optional exponent into a decimal with exactly its digits.
///
/// # Errors
/// 22P02 when it is no number, 22003 when it has more than 38 digits.
pub(super) fn exact(text: &str) -> Result<ScalarValue, SqlError> {
    let text = text.trim();
    let invalid =
        || SqlError::new("22P02", format!("invalid input syntax for type numeric: \"{text}\""));
    let too_long =
        || SqlError::new("22003", format!("value \"{text}\" is out of range for type numeric"));
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if ["nan", "inf", "infinity"].contains(&unsigned.to_ascii_lowercase().as_str()) {
        return Err(not_finite());
    }
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| invalid())?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(invalid());
    }
    let fraction_digits = i32::try_from(fraction.len()).map_err(|_| too_long())?;
    let mut scale = fraction_digits.checked_sub(exponent).ok_or_else(too_long)?;
    let precision = usize::from(NUMERIC_PRECISION);
    let most = i32::from(NUMERIC_PRECISION);
    // Trailing zeros that do not fit are dropped.
    while (scale > most || digits.trim_start_matches('0').len() > precision)
        && scale > 0
        && digits.len() > 1
        && digits.ends_with('0')
    {
        digits.pop();
        scale -= 1;
    }
    let mut digits = digits.trim_start_matches('0').to_owned();
    if digits.is_empty() {
        scale = scale.clamp(0, most);
    } else if scale < 0 {
        let zeros = usize::try_from(scale.unsigned_abs()).unwrap_or(usize::MAX);
        if digits.len().saturating_add(zeros) > precision {
            return Err(too_long());
        }
        digits.extend(std::iter::repeat_n('0', zeros));
        scale = 0;
    }
    if scale > most || digits.len() > precision {
        return Err(too_long());
    }
    let value: i128 = if digits.is_empty() { 0 } else { digits.parse().map_err(|_| invalid())? };
    let value = if text.starts_with('-') { -value } else { value };
    let scale = i8::try_from(scale).map_err(|_| too_long())?;
    let digits_held = digits.len().max(scale.unsigned_abs().into()).max(1);
    let digits_held = u8::try_from(digits_held).map_err(|_| too_long())?;
    Ok(ScalarValue::Decimal128(Some(value), digits_held, scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numeric_has_the_digits_that_it_is_written_with() {
        for (text, value, precision, scale) in [
            ("12.34", 1234, 4, 2),
            ("-0.50", -50, 2, 2),
            ("+7", 7, 1, 0),
            ("0", 0, 1, 0),
            (".5", 5, 1, 1),
            ("5.", 5, 1, 0),
            ("1E-20", 1, 20, 20),
            ("1.5e3", 1500, 4, 0),
            ("0e50", 0, 1, 0),
            ("00012.340", 12340, 5, 3),
            (" 99999999999999999999999999999999999999 ", 10_i128.pow(38) - 1, 38, 0),
        ] {
            let expected = ScalarValue::Decimal128(Some(value), precision, scale);
            assert_eq!(exact(text).unwrap(), expected, "{text}");
        }
        // What does not fit, but for zeros at its end.
        let long = format!("1.{}", "0".repeat(60));
        assert!(matches!(exact(&long).unwrap(), ScalarValue::Decimal128(Some(_), 38, 37)));
        for (text, sqlstate) in [
            ("", "22P02"),
            (".", "22P02"),
            ("x", "22P02"),
            ("1x", "22P02"),
            ("1e", "22P02"),
            ("--1", "22P02"),
            ("NaN", "22003"),
            ("-Infinity", "22003"),
            ("1e38", "22003"),
            ("1e-39", "22003"),
            ("1e2000000000", "22003"),
            ("1e-2147483648", "22003"),
            ("100000000000000000000000000000000000000", "22003"),
        ] {
            assert_eq!(exact(text).unwrap_err().sqlstate, sqlstate, "{text}");
        }
    }
}
