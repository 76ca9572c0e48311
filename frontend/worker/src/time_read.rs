//! `to_date(text, format)` and `to_timestamp(text, format)`, with PostgreSQL's patterns.
//!
//! The frontend calls them `date_of_text` and `instant_of_pattern`, because DataFusion has functions of these names
//! with other formats. The last argument of `instant_of_pattern` is the zone of local times.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Date32Array, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;

use crate::civil::{date_of, day_of};
use crate::error::{INVALID_DATETIME, INVALID_PARAMETER_VALUE, SqlError};
use crate::plain::{Plain, all, is_text, texts};
use crate::time_pattern::{DAYS, Field, MONTHS, Part, Pattern, ROMAN};
use crate::to_char::{JULIAN_EPOCH, first_iso_day};
use crate::zone::Zone;

const SECONDS_PER_DAY: i64 = 86_400;

/// The functions to register.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [&TO_DATE, &TO_TIMESTAMP].into_iter().map(Plain::function)
}

static TO_DATE: Plain = Plain {
    name: "date_of_text",
    takes: |types| all(types, 2, is_text, &DataType::Utf8),
    gives: |_| DataType::Date32,
    run: |arguments| {
        let read = |moment: Read| {
            i32::try_from(moment.days).map_err(|_| SqlError::new("22008", "date out of range"))
        };
        let days: Vec<Option<i32>> = read_all(arguments, read)?;
        Ok(Arc::new(Date32Array::from(days)))
    },
};

static TO_TIMESTAMP: Plain = Plain {
    name: "instant_of_pattern",
    takes: |types| match types.len() {
        2 | 3 => all(types, types.len(), is_text, &DataType::Utf8),
        _ => None,
    },
    gives: |_| DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
    run: |arguments| {
        let zone = match arguments.get(2).map(texts).transpose()? {
            Some(zones) if !zones.is_empty() && zones.is_valid(0) => {
                let name = zones.value(0);
                let unknown = || {
                    let message = format!("time zone \"{name}\" not recognized");
                    SqlError::new(INVALID_PARAMETER_VALUE, message)
                };
                Zone::named(name).ok_or_else(unknown)?
            }
            _ => Zone::UTC,
        };
        let read = |moment: Read| {
            let local = moment.days * SECONDS_PER_DAY + moment.seconds;
            let east = moment.east.unwrap_or_else(|| zone.offset_of_local(local));
            let micros = (local - east).checked_mul(1_000_000);
            let micros = micros.and_then(|micros| micros.checked_add(moment.micros));
            micros.ok_or_else(|| SqlError::new("22008", "timestamp out of range"))
        };
        let micros: Vec<Option<i64>> = read_all(arguments, read)?;
        Ok(Arc::new(TimestampMicrosecondArray::from(micros).with_timezone("UTC")))
    },
};

/// Parses each text by its format.
fn read_all<T>(
    arguments: &[ArrayRef],
    make: impl Fn(Read) -> Result<T, SqlError>,
) -> Result<Vec<Option<T>>> {
    let (values, formats) = (texts(&arguments[0])?, texts(&arguments[1])?);
    let mut cached: Option<(&str, Pattern)> = None;
    let mut results = Vec::with_capacity(values.len());
    for (value, format) in values.iter().zip(&formats) {
        let Some((value, format)) = value.zip(format) else {
            results.push(None);
            continue;
        };
        if cached.as_ref().is_none_or(|(text, _)| *text != format) {
            cached = Some((format, Pattern::parse(format)));
        }
        if let Some((_, pattern)) = &cached {
            results.push(Some(make(read(value, pattern)?)?));
        }
    }
    Ok(results)
}

/// A parsed time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Read {
    /// Days since 1970.
    days: i64,
    seconds: i64,
    micros: i64,
    /// Seconds east of Greenwich, if the text has an offset.
    east: Option<i64>,
}

/// Values of the fields of a text.
#[derive(Default)]
struct ParsedFields {
    year: Option<i64>,
    iso_year: bool,
    before_christ: bool,
    century: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    iso_day_of_year: bool,
    week_of_year: Option<i64>,
    week_of_month: Option<i64>,
    iso_week: Option<i64>,
    /// Days since Sunday.
    weekday: Option<i64>,
    julian: Option<i64>,
    hour: i64,
    is_half_day: bool,
    afternoon: bool,
    minute: i64,
    second: i64,
    second_of_day: Option<i64>,
    micros: i64,
    zone: Option<(i64, i64, i64)>,
}

/// A text that is being parsed.
struct Input<'a> {
    whole: &'a str,
    rest: &'a str,
}

impl Input<'_> {
    fn skip_blanks(&mut self) -> usize {
        let trimmed = self.rest.trim_start();
        let skipped = self.rest.len() - trimmed.len();
        self.rest = trimmed;
        skipped
    }

    fn skip_letter(&mut self) {
        let mut letters = self.rest.chars();
        letters.next();
        self.rest = letters.as_str();
    }

    fn invalid(&self, name: &str, detail: String) -> SqlError {
        let excerpt: String = self.rest.chars().take(name.len().max(1)).collect();
        SqlError::new(INVALID_DATETIME, format!("invalid value \"{excerpt}\" for \"{name}\""))
            .with_detail(detail)
    }

    /// Takes a whole number of `width` digits, or of as many as there are if `open`: when no digit may follow.
    fn number(&mut self, name: &str, width: usize, open: bool) -> Result<(i64, usize), SqlError> {
        self.skip_blanks();
        let signed = self.rest.starts_with(['-', '+']);
        let digits: usize = self.rest[usize::from(signed)..]
            .bytes()
            .take(if open { 18 } else { width.saturating_sub(usize::from(signed)) })
            .take_while(u8::is_ascii_digit)
            .count();
        let length = digits + usize::from(signed);
        let number = self.rest[..length].parse::<i64>();
        let Ok(number) = number else {
            return Err(self.invalid(name, "Value must be an integer.".to_owned()));
        };
        if !open && length < width {
            let detail = if self.rest.len() < width {
                format!("Field requires {width} characters, but only {} remain.", self.rest.len())
            } else {
                format!("Field requires {width} characters, but only {length} could be parsed.")
            };
            return Err(self.invalid(name, detail));
        }
        self.rest = &self.rest[length..];
        Ok((number, digits))
    }

    /// Takes one of some words, in any case, and returns its index; the longest match wins.
    fn word(&mut self, name: &str, words: &[&str]) -> Result<usize, SqlError> {
        let begins = |word: &&str| {
            self.rest.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word))
        };
        let matches = words.iter().enumerate().filter(|(_, word)| begins(word));
        match matches.max_by_key(|(_, word)| word.len()) {
            Some((index, word)) => {
                self.rest = &self.rest[word.len()..];
                Ok(index)
            }
            None => {
                let detail =
                    "The given value did not match any of the allowed values for this field.";
                Err(self.invalid(name, detail.to_owned()))
            }
        }
    }
}

/// Completes a year of less than four digits to the one nearest to 2020.
fn near_2020(year: i64) -> i64 {
    match year {
        0..70 => year + 2000,
        70..100 => year + 1900,
        100..520 => year + 2000,
        520..1000 => year + 1000,
        _ => year,
    }
}

/// Returns true if no digit may follow a field.
fn is_open(parts: &[Part], position: usize) -> bool {
    if let Part::Field { ordinal: Some(_), .. } = parts[position] {
        return true;
    }
    match parts.get(position + 1) {
        None => true,
        Some(Part::Field { field, .. }) => matches!(
            field,
            Field::Era
                | Field::HalfDay
                | Field::DayName
                | Field::DayShort
                | Field::MonthName
                | Field::MonthShort
                | Field::Roman
                | Field::ZoneHour
                | Field::ZoneName
                | Field::Offset
        ),
        Some(Part::Separator(letter) | Part::Text(letter)) => !letter.is_ascii_digit(),
    }
}

fn read(text: &str, pattern: &Pattern) -> Result<Read, SqlError> {
    let mut input = Input { whole: text, rest: text };
    let mut fields = ParsedFields::default();
    let mut extra = 0_i64;
    for (position, part) in pattern.parts.iter().enumerate() {
        if input.rest.is_empty() {
            break;
        }
        // Blanks before a field are optional, and may stand for separators.
        if !pattern.fixed && (position == 0 || matches!(part, Part::Field { .. })) {
            extra += i64::try_from(input.skip_blanks()).unwrap_or(0);
        }
        match part {
            Part::Separator(_) if pattern.fixed => input.skip_letter(),
            Part::Separator(_) => {
                // A separator matches at most one character.
                extra -= 1;
                if input.rest.starts_with(|c: char| c.is_whitespace() || c.is_ascii_punctuation()) {
                    input.skip_letter();
                    extra += 1;
                }
            }
            Part::Text(_) if !pattern.fixed && extra > 0 => extra -= 1,
            Part::Text(_) => input.skip_letter(),
            Part::Field { field, name, bare, ordinal, .. } => {
                let open = *bare || is_open(&pattern.parts, position);
                read_field(&mut input, &mut fields, *field, (name, open))?;
                if ordinal.is_some() {
                    input.skip_letter();
                    input.skip_letter();
                }
                extra = 0;
                if !pattern.fixed {
                    extra = i64::try_from(input.skip_blanks()).unwrap_or(0);
                }
            }
        }
    }
    fields.moment(input.whole)
}

fn read_field(
    input: &mut Input<'_>,
    fields: &mut ParsedFields,
    field: Field,
    (name, open): (&str, bool),
) -> Result<(), SqlError> {
    let shorts = |names: &[&'static str]| -> Vec<&'static str> {
        names.iter().map(|name| &name[..3]).collect()
    };
    let whole = |index: usize| i64::try_from(index).unwrap_or(0);
    match field {
        Field::Era => {
            let era = input.word(name, &["AD", "BC", "A.D.", "B.C."])?;
            fields.before_christ = era % 2 == 1;
        }
        Field::HalfDay => {
            let half = input.word(name, &["AM", "PM", "A.M.", "P.M."])?;
            fields.afternoon = half % 2 == 1;
            fields.is_half_day = true;
        }
        Field::Century => fields.century = Some(input.number(name, 2, open)?.0),
        Field::DayName => fields.weekday = Some(whole(input.word(name, &DAYS)?)),
        Field::DayShort => fields.weekday = Some(whole(input.word(name, &shorts(&DAYS))?)),
        Field::MonthName => fields.month = Some(whole(input.word(name, &MONTHS)?) + 1),
        Field::MonthShort => fields.month = Some(whole(input.word(name, &shorts(&MONTHS))?) + 1),
        Field::Roman => fields.month = Some(whole(input.word(name, &ROMAN)?) + 1),
        Field::DayOfYear | Field::IsoDayOfYear => {
            fields.day_of_year = Some(input.number(name, 3, open)?.0);
            fields.iso_day_of_year = field == Field::IsoDayOfYear;
        }
        Field::DayOfMonth => fields.day = Some(input.number(name, 2, open)?.0),
        Field::DayOfWeek => fields.weekday = Some(input.number(name, 1, open)?.0 - 1),
        Field::IsoDay => fields.weekday = Some(input.number(name, 1, open)?.0 % 7),
        Field::Fraction(width) => {
            let (number, digits) = input.number(name, width, open)?;
            let missing = u32::try_from(6_usize.saturating_sub(digits)).unwrap_or(0);
            fields.micros += number.saturating_mul(10_i64.pow(missing));
        }
        Field::Hour24 => fields.hour = input.number(name, 2, open)?.0,
        Field::Hour12 => {
            fields.hour = input.number(name, 2, open)?.0;
            fields.is_half_day = true;
        }
        Field::Minute => fields.minute = input.number(name, 2, open)?.0,
        Field::Second => fields.second = input.number(name, 2, open)?.0,
        Field::SecondOfDay => fields.second_of_day = Some(input.number(name, name.len(), true)?.0),
        Field::IsoWeek => fields.iso_week = Some(input.number(name, 2, open)?.0),
        Field::Julian => fields.julian = Some(input.number(name, 1, true)?.0),
        Field::Month => fields.month = Some(input.number(name, 2, open)?.0),
        Field::Quarter => {
            // PostgreSQL ignores the quarter too.
            input.number(name, 1, open)?;
        }
        Field::WeekOfYear => fields.week_of_year = Some(input.number(name, 2, open)?.0),
        Field::WeekOfMonth => fields.week_of_month = Some(input.number(name, 1, open)?.0),
        Field::YearWithComma => {
            let (thousands, _) = input.number(name, 1, true)?;
            if !input.rest.starts_with(',') {
                return Err(SqlError::new(INVALID_DATETIME, "invalid input string for \"Y,YYY\""));
            }
            input.skip_letter();
            fields.year = Some(thousands * 1000 + input.number(name, 3, open)?.0);
        }
        Field::Year(width) | Field::IsoYear(width) => {
            let (year, digits) = input.number(name, width, open)?;
            fields.iso_year = matches!(field, Field::IsoYear(_));
            let short = digits < 4 && year >= 0;
            fields.year = Some(if short { near_2020(year) } else { year });
        }
        Field::ZoneHour => {
            let negative = input.rest.starts_with('-');
            if input.rest.starts_with(['-', '+', ' ']) {
                input.skip_letter();
            }
            let hours = input.number(name, 2, open)?.0;
            fields.zone = Some((if negative { -1 } else { 1 }, hours, 0));
        }
        Field::ZoneMinute => {
            let minutes = input.number(name, 2, open)?.0;
            let (sign, hours, _) = fields.zone.unwrap_or((1, 0, 0));
            fields.zone = Some((sign, hours, minutes));
        }
        Field::ZoneName | Field::Offset => {
            let message = format!("formatting field \"{name}\" is only supported in to_char");
            return Err(SqlError::new("0A000", message));
        }
    }
    Ok(())
}

impl ParsedFields {
    /// Combines all fields to a time.
    fn moment(&self, text: &str) -> Result<Read, SqlError> {
        let out_of_range =
            || SqlError::new("22008", format!("date/time field value out of range: \"{text}\""));
        // The 12-hour clock.
        let mut hour = self.hour;
        if self.is_half_day {
            if !(1..=12).contains(&hour) && (hour, self.afternoon) != (0, false) {
                let message = format!("hour \"{hour}\" is invalid for the 12-hour clock");
                return Err(SqlError::new(INVALID_DATETIME, message)
                    .with_hint("Use the 24-hour clock, or give an hour between 1 and 12."));
            }
            hour = hour % 12 + if self.afternoon { 12 } else { 0 };
        }
        // Check the time of day, which may be given in seconds.
        let clock = match self.second_of_day {
            Some(seconds) => (seconds / 3600, seconds / 60 % 60, seconds % 60),
            None => (hour, self.minute, self.second),
        };
        let is_valid = (0..24).contains(&clock.0)
            && (0..60).contains(&clock.1)
            && (0..60).contains(&clock.2)
            && (0..1_000_000).contains(&self.micros);
        if !is_valid {
            return Err(out_of_range());
        }
        Ok(Read {
            days: self.days().ok_or_else(out_of_range)?,
            seconds: (clock.0 * 60 + clock.1) * 60 + clock.2,
            micros: self.micros,
            east: self.zone.map(|(sign, hours, minutes)| sign * (hours * 60 + minutes) * 60),
        })
    }

    /// Days since 1970; `None` when the calendar has no such day.
    fn days(&self) -> Option<i64> {
        // The first of these that is present decides: Julian day, ISO week, day of the year, week of the year, date.
        if let Some(julian) = self.julian {
            return julian.checked_sub(JULIAN_EPOCH);
        }
        let mut year = self.year.unwrap_or(0);
        if let (Some(century), None) = (self.century, self.year) {
            year = (century - 1) * 100 + 1;
        }
        if self.before_christ {
            year = -year;
        }
        if year < 0 {
            year += 1;
        }
        if year.abs() > 5_900_000 {
            return None;
        }
        if let Some(week) = self.iso_week {
            let weekday = self.weekday.map_or(0, |day| (day + 6) % 7);
            return (1..=53)
                .contains(&week)
                .then(|| first_iso_day(year) + (week - 1) * 7 + weekday);
        }
        if let Some(day) = self.day_of_year {
            let first = if self.iso_day_of_year { first_iso_day(year) } else { day_of(year, 1, 1) };
            return (1..=371).contains(&day).then(|| first + day - 1);
        }
        if let Some(week) = self.week_of_year
            && self.month.is_none()
        {
            return (1..=53).contains(&week).then(|| day_of(year, 1, 1) + (week - 1) * 7);
        }
        let month = self.month.unwrap_or(1);
        let day = self.week_of_month.map_or(1, |week| (week - 1) * 7 + 1);
        let day = self.day.unwrap_or(day);
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        let days = day_of(year, month, day);
        (date_of(days) == (year, month, day)).then_some(days)
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;

    fn answer(text: &str, format: &str) -> Result<String, String> {
        let moment = read(text, &Pattern::parse(format)).map_err(|error| error.sqlstate)?;
        let seconds = moment.days * SECONDS_PER_DAY + moment.seconds - moment.east.unwrap_or(0);
        let mut out = BytesMut::new();
        let micros = seconds * 1_000_000 + moment.micros;
        crate::civil::timestamp(&mut out, micros, TimeUnit::Microsecond, None);
        Ok(String::from_utf8(out.to_vec()).unwrap())
    }

    #[test]
    fn texts_are_read_as_postgresql_reads_them() {
        for (text, format, expected) in [
            ("05 Dec 2000", "DD Mon YYYY", "2000-12-05 00:00:00"),
            ("20240307", "YYYYMMDD", "2024-03-07 00:00:00"),
            ("March 7, 2024", "Month DD, YYYY", "2024-03-07 00:00:00"),
            ("07.03.24", "DD.MM.YY", "2024-03-07 00:00:00"),
            ("2024-067", "YYYY-DDD", "2024-03-07 00:00:00"),
            ("2024W103", "IYYY\"W\"IWID", "2024-03-06 00:00:00"),
            ("2024-03-07 03:04:05 PM", "YYYY-MM-DD HH:MI:SS PM", "2024-03-07 15:04:05"),
            (
                "2011-12-18 23:38:15.123456",
                "YYYY-MM-DD HH24:MI:SS.US",
                "2011-12-18 23:38:15.123456",
            ),
            ("12.5", "SS.MS", "0001-01-01 00:00:12.5 BC"),
            ("2011-12-18 11:38 +05", "YYYY-MM-DD HH12:MI TZH", "2011-12-18 06:38:00"),
            ("2024-01-01T10:00:00", "YYYY-MM-DD\"T\"HH24:MI:SS", "2024-01-01 10:00:00"),
            ("2024", "YYYY", "2024-01-01 00:00:00"),
        ] {
            assert_eq!(answer(text, format).as_deref(), Ok(expected), "{text} {format}");
        }
        for (text, format, sqlstate) in [
            ("2024-02-30", "YYYY-MM-DD", "22008"),
            ("2024-13-01", "YYYY-MM-DD", "22008"),
            ("x", "YYYY", "22007"),
            ("2024-01-01 25:00", "YYYY-MM-DD HH24:MI", "22008"),
            ("13:00", "HH12:MI", "22007"),
            ("2024 UTC", "YYYY TZ", "0A000"),
        ] {
            assert_eq!(answer(text, format), Err(sqlstate.to_owned()), "{text} {format}");
        }
    }
}
