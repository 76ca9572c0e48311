//! Decimal numbers in text.

use partita_proto::schema::ColumnType;

/// The reason why a text is no value of a DECIMAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecimalError {
    /// It is not a number.
    Syntax,
    /// It has more digits before the point than the type.
    OutOfRange,
}

/// The unscaled number at the type's scale; further digits are rounded half away from zero, as in PostgreSQL.
pub(super) fn parse_decimal(text: &str, column_type: ColumnType) -> Result<i128, DecimalError> {
    let ColumnType::Decimal(precision, scale) = column_type else {
        return Err(DecimalError::Syntax);
    };
    let bytes = text.trim_ascii().as_bytes();
    let (negative, bytes) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let (mantissa, exponent) = match bytes.iter().position(|b| matches!(b, b'e' | b'E')) {
        Some(exponent_mark) => {
            (&bytes[..exponent_mark], parse_exponent(&bytes[exponent_mark + 1..])?)
        }
        None => (bytes, 0),
    };
    let point = mantissa.iter().position(|b| *b == b'.').unwrap_or(mantissa.len());
    let fraction = mantissa.get(point + 1..).unwrap_or_default();
    let digits = || mantissa[..point].iter().chain(fraction);
    if digits().next().is_none() || !digits().all(u8::is_ascii_digit) {
        return Err(DecimalError::Syntax);
    }
    // The number of digits to keep; it may be larger than the number of digits there are, which means zeros at the end.
    let whole = i64::try_from(point).map_err(|_| DecimalError::OutOfRange)?;
    let digits_kept = whole.saturating_add(exponent).saturating_add(scale.into());
    let mut unscaled = 0_i128;
    let mut digits_read = 0_i64;
    for digit in digits() {
        let digit = i128::from(digit - b'0');
        if digits_read < digits_kept {
            unscaled = push(unscaled, digit)?;
        } else {
            if digits_read == digits_kept && digit >= 5 {
                unscaled += 1;
            }
            break;
        }
        digits_read += 1;
    }
    if unscaled != 0 {
        while digits_read < digits_kept {
            unscaled = push(unscaled, 0)?;
            digits_read += 1;
        }
    }
    if unscaled >= 10_i128.pow(u32::from(precision)) {
        return Err(DecimalError::OutOfRange);
    }
    Ok(if negative { -unscaled } else { unscaled })
}

fn push(unscaled: i128, digit: i128) -> Result<i128, DecimalError> {
    unscaled
        .checked_mul(10)
        .and_then(|tens| tens.checked_add(digit))
        .ok_or(DecimalError::OutOfRange)
}

fn parse_exponent(bytes: &[u8]) -> Result<i64, DecimalError> {
    let (negative, digits) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(DecimalError::Syntax);
    }
    let exponent = digits
        .iter()
        .fold(0_i64, |n, digit| n.saturating_mul(10).saturating_add((digit - b'0').into()));
    // A larger exponent has the same effect: no digit remains, or the number does not fit.
    let exponent = exponent.min(1 << 32);
    Ok(if negative { -exponent } else { exponent })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A decimal number as it is written, with all digits of its scale.
    fn write_decimal(unscaled: i128, scale: i8, out: &mut String) {
        let places = usize::from(scale.unsigned_abs());
        if unscaled < 0 {
            out.push('-');
        }
        let digits = unscaled.unsigned_abs().to_string();
        if scale <= 0 {
            out.push_str(&digits);
            if unscaled != 0 {
                out.extend(std::iter::repeat_n('0', places));
            }
            return;
        }
        let digits = format!("{digits:0>width$}", width = places + 1);
        let (whole, fraction) = digits.split_at(digits.len() - places);
        out.push_str(whole);
        out.push('.');
        out.push_str(fraction);
    }

    fn parse(text: &str) -> Result<i128, DecimalError> {
        parse_decimal(text, ColumnType::Decimal(10, 2))
    }

    #[test]
    fn decimals_round_half_away_from_zero() {
        for (text, unscaled) in [
            ("0", 0),
            ("1", 100),
            ("-1.5", -150),
            ("1.005", 101),
            ("-1.005", -101),
            ("1.0049", 100),
            (".5", 50),
            ("5.", 500),
            ("1e2", 10_000),
            ("1.5e-1", 15),
            ("123e-4", 1),
            ("149e-4", 1),
            ("5e-3", 1),
            ("5e-4", 0),
            ("0e99999999999", 0),
            ("1e-99999999999", 0),
            (" +7 ", 700),
            ("99999999.99", 9_999_999_999),
        ] {
            assert_eq!(parse(text), Ok(unscaled), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_or_too_large_is_told_apart() {
        for text in ["", "-", ".", "1.2.3", "x", "1e", "1e+", "0x1", "NaN", "1 2", "--1", "ü"] {
            assert_eq!(parse(text), Err(DecimalError::Syntax), "{text}");
        }
        for text in ["100000000", "99999999.995", "1e8", "1e99999999999"] {
            assert_eq!(parse(text), Err(DecimalError::OutOfRange), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(unscaled in -(10_i128.pow(38) - 1)..10_i128.pow(38), scale in 0_i8..=38) {
            let mut text = String::new();
            write_decimal(unscaled, scale, &mut text);
            prop_assert_eq!(parse_decimal(&text, ColumnType::Decimal(38, scale)), Ok(unscaled));
        }

        #[test]
        fn any_text_is_a_number_or_an_error(text in "[-+0-9.eE ]{0,12}|.{0,8}") {
            let _ = parse(&text);
        }
    }
}
