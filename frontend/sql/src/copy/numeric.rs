//! PostgreSQL's binary `numeric`: base-10,000 digits with a weight, a sign and a display scale.

use partita_proto::schema::ColumnType;

use crate::decimal::{DecimalError, parse_decimal};

const NEGATIVE: u16 = 0x4000;
const POSITIVE: u16 = 0;

/// The reason why bytes are no value of a DECIMAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumericError {
    /// The bytes are not a numeric.
    Malformed,
    /// The type cannot store it: it is too large, infinite or NaN.
    OutOfRange,
}

/// The unscaled number at the type's scale, rounded half away from zero.
pub(super) fn read_numeric(bytes: &[u8], column_type: ColumnType) -> Result<i128, NumericError> {
    let (head, digits) = bytes.split_at_checked(8).ok_or(NumericError::Malformed)?;
    let word = |offset: usize| u16::from_be_bytes([head[offset], head[offset + 1]]);
    let (count, weight, sign) = (usize::from(word(0)), word(2).cast_signed(), word(4));
    let (pairs, rest) = digits.as_chunks::<2>();
    if pairs.len() != count || !rest.is_empty() {
        return Err(NumericError::Malformed);
    }
    if !matches!(sign, POSITIVE | NEGATIVE) {
        return Err(NumericError::OutOfRange);
    }
    let mut text = String::with_capacity(count * 4 + 8);
    if sign == NEGATIVE {
        text.push('-');
    }
    text.push('0');
    for pair in pairs {
        let digit = u16::from_be_bytes(*pair);
        if digit > 9999 {
            return Err(NumericError::Malformed);
        }
        text.push_str(&format!("{digit:04}"));
    }
    // The first digit counts 10000^weight; in the text so far, the last digit counts one.
    let last = i64::from(weight) - i64::try_from(count).map_err(|_| NumericError::Malformed)? + 1;
    text.push_str(&format!("e{}", last * 4));
    parse_decimal(&text, column_type).map_err(|error| match error {
        DecimalError::Syntax => NumericError::Malformed,
        DecimalError::OutOfRange => NumericError::OutOfRange,
    })
}

/// Appends the binary numeric of an unscaled number.
pub(super) fn write_numeric(unscaled: i128, scale: i8, buffer: &mut Vec<u8>) {
    let places = u32::from(scale.unsigned_abs());
    // Digits of the text, aligned so that the point lies between two groups of four.
    let mut digits = unscaled.unsigned_abs().to_string();
    let mut fraction = if scale > 0 { places } else { 0 };
    if scale < 0 {
        digits.extend(std::iter::repeat_n('0', scale.unsigned_abs().into()));
    }
    while !fraction.is_multiple_of(4) {
        digits.push('0');
        fraction += 1;
    }
    while !digits.len().is_multiple_of(4) {
        digits.insert(0, '0');
    }
    // Groups of four digits, without zeros at either end.
    let mut groups: Vec<u16> = digits
        .as_bytes()
        .chunks(4)
        .map(|four| four.iter().fold(0, |n, d| n * 10 + u16::from(d - b'0')))
        .collect();
    let before_point = i64::try_from(groups.len()).unwrap_or(0) - i64::from(fraction / 4);
    let mut weight = before_point - 1;
    let zeros = groups.iter().take_while(|group| **group == 0).count();
    groups.drain(..zeros);
    weight -= i64::try_from(zeros).unwrap_or(0);
    while groups.last() == Some(&0) {
        groups.pop();
    }
    if groups.is_empty() {
        weight = 0;
    }
    // At most 38 digits and a scale of 38, so that all of these fit.
    let count = u16::try_from(groups.len()).unwrap_or(0);
    let weight = i16::try_from(weight).unwrap_or(0);
    let sign = if unscaled < 0 { NEGATIVE } else { POSITIVE };
    let display = if scale > 0 { u16::from(scale.unsigned_abs()) } else { 0 };
    buffer.extend_from_slice(&count.to_be_bytes());
    buffer.extend_from_slice(&weight.to_be_bytes());
    buffer.extend_from_slice(&sign.to_be_bytes());
    buffer.extend_from_slice(&display.to_be_bytes());
    for group in groups {
        buffer.extend_from_slice(&group.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_numbers_have_postgresqls_bytes() {
        let bytes = |unscaled, scale| {
            let mut out = Vec::new();
            write_numeric(unscaled, scale, &mut out);
            out
        };
        // SELECT numeric_send(12345.678), numeric_send(-0.0001), numeric_send(0.00)
        assert_eq!(bytes(12_345_678, 3), [0, 3, 0, 1, 0, 0, 0, 3, 0, 1, 0x09, 0x29, 0x1a, 0x7c]);
        assert_eq!(bytes(-1, 4), [0, 1, 0xff, 0xff, 0x40, 0, 0, 4, 0, 1]);
        assert_eq!(bytes(0, 2), [0, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(bytes(10_000, 0), [0, 1, 0, 1, 0, 0, 0, 0, 0, 1]);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(unscaled in -(10_i128.pow(38) - 1)..10_i128.pow(38), scale in 0_i8..=38) {
            let mut bytes = Vec::new();
            write_numeric(unscaled, scale, &mut bytes);
            prop_assert_eq!(read_numeric(&bytes, ColumnType::Decimal(38, scale)), Ok(unscaled));
        }

        #[test]
        fn any_bytes_are_a_number_or_an_error(bytes: Vec<u8>) {
            let _ = read_numeric(&bytes, ColumnType::Decimal(20, 5));
        }
    }
}
