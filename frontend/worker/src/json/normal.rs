//! JSONB: values as trees, their normal form, and their order.
//!
//! ```text
//!   {"bb": 1e2, "a": [ 1.50 ], "a": 2}     {"a": 2, "bb": 100}
//! ```
//!
//! In the normal form the keys of an object are unique (the last member wins) and ordered by length, then by bytes;
//! numbers are decimals with the digits that they were written with; there is one blank behind each comma and colon.
//!
//! Values are equal when their trees are, whatever the digits behind a number's last one that is not zero. The order is
//! that of PostgreSQL: null, strings, numbers, booleans, arrays and objects; arrays and objects by their number of
//! parts first, strings by bytes. [`sort_key`] has it in bytes.
//!
//! Invariant: a tree has at most [`DEPTH_MAX`](super::text::DEPTH_MAX) levels, because it is read from a text.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::text::{Lexer, Token, check_length, invalid, quote, unquoted};
use crate::error::{NUMERIC_OUT_OF_RANGE, SqlError};

/// Maximum digits before the point of a number, as in PostgreSQL.
const WHOLE_DIGITS_MAX: i64 = 131_072;
/// Maximum digits behind the point.
const FRACTION_DIGITS_MAX: i64 = 16_383;

/// Tree of a JSON text, as JSONB has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    /// Decimal digits, with a sign and a point where needed.
    Number(Cow<'a, str>),
    String(Cow<'a, str>),
    Array(Vec<Self>),
    /// Members, with unique keys in their order.
    Object(Vec<(Cow<'a, str>, Self)>),
}

impl<'a> Value<'a> {
    /// Reads a text.
    ///
    /// # Errors
    /// 22P02 for a text that is no JSON, 22003 for a number that is too long, 54000 for numbers that are too long together.
    pub(super) fn read(text: &'a str) -> Result<Self, SqlError> {
        let mut lexer = Lexer::new(text)?;
        let value = Self::take(&mut lexer)?;
        lexer.end()?;
        Ok(value)
    }

    fn take(lexer: &mut Lexer<'a>) -> Result<Self, SqlError> {
        let value = match lexer.token {
            Token::Mark(b'[') => return Self::array(lexer),
            Token::Mark(b'{') => return Self::object(lexer),
            Token::String => Self::String(unquoted(lexer.slice())?),
            Token::Number => {
                let digits = decimal(lexer.slice())?;
                if let Cow::Owned(digits) = &digits {
                    lexer.write_out(digits.len())?;
                }
                Self::Number(digits)
            }
            Token::True => Self::Bool(true),
            Token::False => Self::Bool(false),
            Token::Null => Self::Null,
            Token::Mark(_) | Token::End => return Err(lexer.expected("JSON value")),
        };
        lexer.advance()?;
        Ok(value)
    }

    fn array(lexer: &mut Lexer<'a>) -> Result<Self, SqlError> {
        let mut elements = Vec::new();
        lexer.deeper()?;
        if lexer.token == Token::Mark(b']') {
            lexer.leave()?;
            return Ok(Self::Array(elements));
        }
        loop {
            elements.push(Self::take(lexer)?);
            if !lexer.goes_on(b']')? {
                return Ok(Self::Array(elements));
            }
        }
    }

    fn object(lexer: &mut Lexer<'a>) -> Result<Self, SqlError> {
        let mut members = Vec::new();
        lexer.deeper()?;
        if lexer.token == Token::Mark(b'}') {
            lexer.leave()?;
            return Ok(Self::Object(members));
        }
        loop {
            let key = lexer.key(members.is_empty())?;
            members.push((unquoted(key)?, Self::take(lexer)?));
            if !lexer.goes_on(b'}')? {
                return Ok(Self::object_of(members));
            }
        }
    }

    /// An object with these members, of which the last with a key wins.
    pub(super) fn object_of(mut members: Vec<(Cow<'a, str>, Self)>) -> Self {
        // The sort is stable; the later of two equal keys comes first after the reversal, and is kept.
        members.reverse();
        members.sort_by(|(left, _), (right, _)| key_order(left, right));
        members.dedup_by(|(left, _), (right, _)| left == right);
        Self::Object(members)
    }

    /// The member with a key.
    pub(super) fn member(&self, key: &str) -> Option<&Self> {
        let Self::Object(members) = self else { return None };
        let position = members.binary_search_by(|(candidate, _)| key_order(candidate, key)).ok()?;
        members.get(position).map(|(_, value)| value)
    }

    /// True for arrays and objects.
    pub(super) fn is_container(&self) -> bool {
        matches!(self, Self::Array(_) | Self::Object(_))
    }

    /// Appends the normal form.
    pub(super) fn write(&self, output: &mut String) {
        // A blank stands behind each comma and colon.
        match self {
            Self::Null => output.push_str("null"),
            Self::Bool(value) => output.push_str(if *value { "true" } else { "false" }),
            Self::Number(digits) => output.push_str(digits),
            Self::String(text) => quote(text, output),
            Self::Array(elements) => {
                output.push('[');
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        output.push_str(", ");
                    }
                    element.write(output);
                }
                output.push(']');
            }
            Self::Object(members) => {
                output.push('{');
                for (index, (key, value)) in members.iter().enumerate() {
                    if index > 0 {
                        output.push_str(", ");
                    }
                    quote(key, output);
                    output.push_str(": ");
                    value.write(output);
                }
                output.push('}');
            }
        }
    }

    /// The normal form.
    ///
    /// # Errors
    /// 54000 when it is too long: no function could read it again.
    pub(super) fn text(&self) -> Result<String, SqlError> {
        let mut text = String::new();
        self.write(&mut text);
        check_length(&text)?;
        Ok(text)
    }

    /// True if both are the same value.
    pub(super) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Number(left), Self::Number(right)) => significant(left) == significant(right),
            (Self::Array(left), Self::Array(right)) => {
                left.len() == right.len() && left.iter().zip(right).all(|(a, b)| a.equals(b))
            }
            (Self::Object(left), Self::Object(right)) => {
                let same = |((key, value), (other_key, other)): (&(_, Self), &(_, Self))| {
                    key == other_key && value.equals(other)
                };
                left.len() == right.len() && left.iter().zip(right).all(same)
            }
            _ => self == other,
        }
    }

    /// Appends bytes that compare as the values do, of which none begins another.
    fn write_key(&self, output: &mut Vec<u8>) {
        match self {
            Self::Null => output.push(1),
            Self::String(text) => {
                output.push(2);
                string_key(text, output);
            }
            Self::Number(digits) => {
                output.push(3);
                number_key(digits, output);
            }
            Self::Bool(value) => output.extend([4, u8::from(*value)]),
            Self::Array(elements) => {
                output.push(5);
                output.extend(count(elements.len()));
                for element in elements {
                    element.write_key(output);
                }
            }
            Self::Object(members) => {
                output.push(6);
                output.extend(count(members.len()));
                for (key, value) in members {
                    string_key(key, output);
                    value.write_key(output);
                }
            }
        }
    }
}

/// Bytes that are equal for equal values, and compare as PostgreSQL orders values. An empty array is less than all
/// others, as there.
pub(super) fn sort_key(value: &Value<'_>) -> Vec<u8> {
    let mut key = Vec::new();
    match value {
        Value::Array(elements) if elements.is_empty() => key.push(0),
        value => value.write_key(&mut key),
    }
    key
}

/// The order of keys: by length, then by bytes.
fn key_order(left: &str, right: &str) -> Ordering {
    left.len().cmp(&right.len()).then_with(|| left.cmp(right))
}

fn count(parts: usize) -> [u8; 4] {
    u32::try_from(parts).unwrap_or(u32::MAX).to_be_bytes()
}

/// The bytes of a text, in which a zero byte is followed by 255, and two zero bytes behind them.
fn string_key(text: &str, output: &mut Vec<u8>) {
    for byte in text.bytes() {
        output.push(byte);
        if byte == 0 {
            output.push(u8::MAX);
        }
    }
    output.extend([0, 0]);
}

/// Sign, weight of the first digit, digits and an end; all but the sign inverted for negative numbers.
fn number_key(digits: &str, output: &mut Vec<u8>) {
    let (negative, weight, digits) = significant(digits);
    if digits.is_empty() {
        output.push(1);
        return;
    }
    output.push(if negative { 0 } else { 2 });
    let start = output.len();
    // Weights are within the bounds of numbers, so that the sum is not negative.
    let shifted = u32::try_from(weight + WHOLE_DIGITS_MAX).unwrap_or(0);
    output.extend(shifted.to_be_bytes());
    output.extend(digits.bytes());
    output.push(0);
    if negative {
        for byte in &mut output[start..] {
            *byte = !*byte;
        }
    }
}

/// The sign, the number of digits before the point (negative for zeros behind it), and the digits of a decimal without
/// zeros at both ends; no digits for zero.
pub(super) fn significant(decimal: &str) -> (bool, i64, String) {
    let (negative, unsigned) = match decimal.strip_prefix('-') {
        Some(unsigned) => (true, unsigned),
        None => (false, decimal),
    };
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let all = [whole, fraction].concat();
    let digits = all.trim_start_matches('0');
    let zeros = i64::try_from(all.len() - digits.len()).unwrap_or(i64::MAX);
    let weight = i64::try_from(whole.len()).unwrap_or(i64::MAX) - zeros;
    let digits = digits.trim_end_matches('0');
    if digits.is_empty() {
        return (false, 0, String::new());
    }
    (negative, weight, digits.to_owned())
}

/// A number of JSON as a decimal without an exponent.
fn decimal(number: &str) -> Result<Cow<'_, str>, SqlError> {
    let overflow = || SqlError::new(NUMERIC_OUT_OF_RANGE, "value overflows numeric format");
    let (sign, unsigned) = match number.strip_prefix('-') {
        Some(unsigned) => ("-", unsigned),
        None => ("", number),
    };
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        // An exponent that is too long for the type is out of range, too.
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().map_err(|_| overflow())?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, fraction].concat();
    let is_zero = digits.bytes().all(|digit| digit == b'0');
    let length = |text: &str| i64::try_from(text.len()).map_err(|_| overflow());
    let fraction_digits = length(fraction)?.saturating_sub(exponent).max(0);
    if fraction_digits > FRACTION_DIGITS_MAX {
        return Err(overflow());
    }
    // Zero has no sign.
    if exponent == 0 && !(is_zero && sign == "-") {
        return if length(whole)? > WHOLE_DIGITS_MAX { Err(overflow()) } else { Ok(number.into()) };
    }
    let zeros = |count: usize| "0".repeat(count);
    let places = usize::try_from(fraction_digits).map_err(|_| overflow())?;
    if is_zero {
        return Ok(if places == 0 { "0".into() } else { format!("0.{}", zeros(places)).into() });
    }
    let shortest = digits.trim_start_matches('0');
    let leading = i64::try_from(digits.len() - shortest.len()).map_err(|_| overflow())?;
    let digits = shortest;
    let whole_digits = length(whole)?.saturating_add(exponent).saturating_sub(leading);
    if whole_digits > WHOLE_DIGITS_MAX {
        return Err(overflow());
    }
    // Zeros are put before or behind the digits until the point lies within them.
    let text = match usize::try_from(whole_digits) {
        Ok(whole) if whole >= digits.len() => {
            format!("{sign}{digits}{}", zeros(whole - digits.len()))
        }
        Ok(whole) if whole > 0 => format!("{sign}{}.{}", &digits[..whole], &digits[whole..]),
        _ => {
            let missing = usize::try_from(whole_digits.saturating_neg()).unwrap_or(0);
            format!("{sign}0.{}{digits}", zeros(missing))
        }
    };
    Ok(text.into())
}

/// The normal form of a text.
///
/// # Errors
/// As of [`Value::read`] and [`Value::text`].
pub(super) fn normalised(text: &str) -> Result<String, SqlError> {
    Value::read(text)?.text()
}

/// An index as a path has it.
///
/// # Errors
/// 22P02 for other texts.
pub(super) fn index(step: &str, position: usize) -> Result<i64, SqlError> {
    step.trim().parse().map_err(|_| {
        let message = format!("path element at position {position} is not an integer: \"{step}\"");
        SqlError { message, detail: None, ..invalid(String::new()) }
    })
}

#[cfg(test)]
mod tests {
    use super::super::text::BYTES_MAX;
    use super::*;

    #[test]
    fn the_normal_form_is_that_of_postgresql() {
        for (text, expected) in [
            (" null ", "null"),
            ("[ 1,2 , [ ] ]", "[1, 2, []]"),
            ("{\"bb\":1,\"a\":2, \"c\" : {} }", "{\"a\": 2, \"c\": {}, \"bb\": 1}"),
            ("{\"a\":1,\"b\":2,\"a\":3}", "{\"a\": 3, \"b\": 2}"),
            ("\"\\u00e9\\/\"", "\"é/\""),
            ("1e5", "100000"),
            ("1.50", "1.50"),
            ("1E-3", "0.001"),
            ("-0", "0"),
            ("-0.0", "0.0"),
            ("1.50e1", "15.0"),
            ("0e10", "0"),
            ("12.5e-1", "1.25"),
            ("-12.5e1", "-125"),
            ("0.05e1", "0.5"),
            ("-0.05e3", "-50"),
        ] {
            assert_eq!(normalised(text).unwrap(), expected, "{text}");
            assert_eq!(normalised(expected).unwrap(), expected, "{text}");
        }
        assert_eq!(normalised("1e131071").unwrap().len(), 131_072);
        assert_eq!(normalised("1e-16383").unwrap().len(), 16_385);
        for text in ["1e131072", "1e-16384", "1e99999999999999999999"] {
            assert_eq!(normalised(text).unwrap_err().sqlstate, "22003", "{text}");
        }
    }

    #[test]
    fn a_short_text_does_not_become_a_long_one() {
        let numbers = |count: usize| format!("[{}]", vec!["1e131071"; count].join(","));
        assert_eq!(normalised(&numbers(100)).unwrap().len(), 100 * (131_072 + 2));
        assert_eq!(normalised(&numbers(200)).unwrap_err().sqlstate, "54000");
    }

    #[test]
    fn the_normal_form_is_as_long_as_a_text_can_be_at_most() {
        // The numbers fit, but not with the blanks between them.
        let numbers = vec!["1e131071"; BYTES_MAX / 131_072].join(",");
        let error = normalised(&format!("[{numbers}]")).unwrap_err();
        assert_eq!(error.sqlstate, "54000");
        assert_eq!(error.message, "JSON of 16777472 bytes exceeds the limit of 16777216");
        let longest = format!("\"{}\"", "a".repeat(BYTES_MAX - 2));
        assert!(normalised(&longest).unwrap() == longest);
    }

    #[test]
    fn keys_compare_as_postgresql_orders_values() {
        let ordered = [
            "[]",
            "null",
            "\"\"",
            "\"a\"",
            "\"ab\"",
            "\"b\"",
            "-100",
            "-20.5",
            "-20",
            "-0.001",
            "0",
            "0.001",
            "0.0015",
            "2",
            "10",
            "10.5",
            "100",
            "false",
            "true",
            "[null]",
            "[2]",
            "[[]]",
            "[1, 2]",
            "{}",
            "{\"a\": 1}",
            "{\"a\": 2}",
            "{\"b\": 1}",
            "{\"a\": 1, \"b\": 1}",
        ];
        let keys: Vec<Vec<u8>> =
            ordered.iter().map(|text| sort_key(&Value::read(text).unwrap())).collect();
        for (index, pair) in keys.windows(2).enumerate() {
            assert!(pair[0] < pair[1], "{} {}", ordered[index], ordered[index + 1]);
        }
        for (left, right) in [("1.0", "1"), ("1e2", "100.00"), ("[0.0]", "[-0]")] {
            let (left, right) = (Value::read(left).unwrap(), Value::read(right).unwrap());
            assert_eq!(sort_key(&left), sort_key(&right));
            assert!(left.equals(&right));
        }
    }
}
