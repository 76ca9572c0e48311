//! Times of day as texts: `04:05:06.789`.
//!
//! A time is a number of microseconds since midnight, less than a day. Input is what PostgreSQL reads, but for names of
//! time zones and 24:00: `04:05`, `04:05:06.7`, `040506`, `04:05 PM`, each also behind a date, which is ignored. Output
//! has seconds, and the fraction that there is.

use crate::calendar;

/// Microseconds of a day: the first number that is no time.
pub const DAY_MICROS: i64 = 86_400_000_000;

const MICROS_PER_SECOND: i64 = 1_000_000;
/// Digits of a fraction that are kept.
const DIGITS: usize = 6;

/// The reason why a text is no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeError {
    /// A part is out of its range, as in 25:00.
    OutOfRange,
    /// It is not written as a time.
    Syntax,
}

/// Microseconds since midnight of a text; digits after the sixth of a fraction are rounded.
///
/// # Errors
/// When it is not one of a time.
pub fn parse(text: &str) -> Result<i64, TimeError> {
    let text = text.trim_ascii();
    let text = match text.split_once([' ', 'T']) {
        Some((date, rest)) if calendar::parse(date).is_some() => rest.trim_ascii(),
        _ => text,
    };
    // The half of the day, then the parts of the clock.
    let end = text.len().checked_sub(2).and_then(|length| text.split_at_checked(length));
    let (clock, half) = match end {
        Some((clock, end)) if end.eq_ignore_ascii_case("am") => (clock.trim_ascii_end(), Some(0)),
        Some((clock, end)) if end.eq_ignore_ascii_case("pm") => (clock.trim_ascii_end(), Some(12)),
        _ => (text, None),
    };
    let (whole, fraction) = match clock.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (clock, None),
    };
    let parts: Vec<&str> = whole.split(':').collect();
    let (hour, minute, second) = match (parts.as_slice(), fraction) {
        ([hour, minute], None) => (number(hour)?, number(minute)?, 0),
        ([hour, minute, second], _) => (number(hour)?, number(minute)?, number(second)?),
        ([digits], _) => match (digits.as_bytes().as_chunks::<2>(), fraction) {
            (([hour, minute], []), None) => (pair(hour)?, pair(minute)?, 0),
            (([hour, minute, second], []), _) => (pair(hour)?, pair(minute)?, pair(second)?),
            _ => return Err(TimeError::Syntax),
        },
        _ => return Err(TimeError::Syntax),
    };
    let micros = fraction.map_or(Ok(0), fraction_micros)?;
    let hour = match half {
        Some(_) if hour > 12 => return Err(TimeError::OutOfRange),
        Some(half) => hour % 12 + half,
        None => hour,
    };
    if hour > 23 || minute > 59 || second > 60 {
        return Err(TimeError::OutOfRange);
    }
    // A second of 60 is the next minute, unless that is the next day.
    let total = ((hour * 60 + minute) * 60 + second) * MICROS_PER_SECOND + micros;
    if total < DAY_MICROS { Ok(total) } else { Err(TimeError::OutOfRange) }
}

/// The text of a time.
#[must_use]
pub fn text(micros: i64) -> String {
    let second = micros.div_euclid(MICROS_PER_SECOND);
    let fraction = micros.rem_euclid(MICROS_PER_SECOND);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let text = format!("{hour:02}:{minute:02}:{second:02}");
    if fraction == 0 {
        return text;
    }
    format!("{text}.{fraction:06}").trim_end_matches('0').to_owned()
}

fn number(digits: &str) -> Result<i64, TimeError> {
    let is_number =
        (1..=2).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit());
    if is_number { digits.parse().map_err(|_| TimeError::Syntax) } else { Err(TimeError::Syntax) }
}

fn pair(digits: &[u8; 2]) -> Result<i64, TimeError> {
    std::str::from_utf8(digits).map_err(|_| TimeError::Syntax).and_then(number)
}

fn fraction_micros(digits: &str) -> Result<i64, TimeError> {
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(TimeError::Syntax);
    }
    let micros = (0..DIGITS).fold(0, |micros, place| {
        let digit = digits.as_bytes().get(place).map_or(0, |digit| i64::from(digit - b'0'));
        micros * 10 + digit
    });
    let is_above = digits.as_bytes().get(DIGITS).is_some_and(|digit| *digit >= b'5');
    Ok(micros + i64::from(is_above))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_read_as_postgresql_reads_them() {
        for (input, shown) in [
            ("04:05", "04:05:00"),
            ("4:5:6", "04:05:06"),
            (" 12:34:56.1234567 ", "12:34:56.123457"),
            ("12:34:56.5", "12:34:56.5"),
            ("040506", "04:05:06"),
            ("0405", "04:05:00"),
            ("04:05 PM", "16:05:00"),
            ("12:05am", "00:05:00"),
            ("0:00 am", "00:00:00"),
            ("10:10:60", "10:11:00"),
            ("2001-01-01 10:11:12", "10:11:12"),
            ("2001-01-01T10:11:12", "10:11:12"),
        ] {
            assert_eq!(parse(input).map(text), Ok(shown.to_owned()), "{input}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for wrong in ["25:00", "10:60", "10:00:61", "24:00:00", "23:59:60", "13:00 PM"] {
            assert_eq!(parse(wrong), Err(TimeError::OutOfRange), "{wrong}");
        }
        for wrong in ["", "abc", "10", "1:2:3:4", "-1:00", "10:00:00.", "10:00:00.x", "1é:00", "é"]
        {
            assert_eq!(parse(wrong), Err(TimeError::Syntax), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn texts_read_back(micros in 0..DAY_MICROS) {
            prop_assert_eq!(parse(&text(micros)), Ok(micros));
        }

        #[test]
        fn any_text_is_refused_or_a_time_of_a_day(input in any::<String>()) {
            if let Ok(time) = parse(&input) {
                prop_assert!((0..DAY_MICROS).contains(&time));
            }
        }
    }
}
