//! Parsing of PostgreSQL's patterns of times, which `to_char` writes (`to_char.rs`), and `to_date` and `to_timestamp`
//! read (`time_read.rs`).

/// Part of a time that a word of a pattern stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Era,
    HalfDay,
    Century,
    DayName,
    DayShort,
    DayOfYear,
    IsoDayOfYear,
    DayOfMonth,
    DayOfWeek,
    IsoDay,
    /// With this number of digits.
    Fraction(usize),
    Hour24,
    Hour12,
    IsoWeek,
    /// With this number of digits.
    IsoYear(usize),
    Julian,
    Minute,
    Month,
    MonthName,
    MonthShort,
    Offset,
    Quarter,
    Roman,
    SecondOfDay,
    Second,
    ZoneHour,
    ZoneMinute,
    ZoneName,
    WeekOfYear,
    WeekOfMonth,
    /// `Y,YYY`.
    YearWithComma,
    /// With this number of digits.
    Year(usize),
}

/// Case in which the letters of a field are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Letters {
    Upper,
    Lower,
    Capital,
}

/// A part of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Field {
        field: Field,
        letters: Letters,
        /// The word in the pattern.
        name: &'static str,
        /// `FM` or `TM`: without padding.
        bare: bool,
        /// True for `TH`, false for `th`.
        ordinal: Option<bool>,
    },
    /// A blank or a punctuation mark between fields.
    Separator(char),
    /// Any other letter, or a quoted one.
    Text(char),
}

/// A parsed pattern of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    pub(crate) parts: Vec<Part>,
    /// `FX`: every field has its full width.
    pub(crate) fixed: bool,
}

/// Words of patterns. Where one begins another, the longer one is first.
const WORDS: [(&str, Field); 53] = [
    ("A.D.", Field::Era),
    ("B.C.", Field::Era),
    ("AD", Field::Era),
    ("BC", Field::Era),
    ("A.M.", Field::HalfDay),
    ("P.M.", Field::HalfDay),
    ("AM", Field::HalfDay),
    ("PM", Field::HalfDay),
    ("CC", Field::Century),
    ("DAY", Field::DayName),
    ("DDD", Field::DayOfYear),
    ("DD", Field::DayOfMonth),
    ("DY", Field::DayShort),
    ("D", Field::DayOfWeek),
    ("FF1", Field::Fraction(1)),
    ("FF2", Field::Fraction(2)),
    ("FF3", Field::Fraction(3)),
    ("FF4", Field::Fraction(4)),
    ("FF5", Field::Fraction(5)),
    ("FF6", Field::Fraction(6)),
    ("HH24", Field::Hour24),
    ("HH12", Field::Hour12),
    ("HH", Field::Hour12),
    ("IDDD", Field::IsoDayOfYear),
    ("ID", Field::IsoDay),
    ("IW", Field::IsoWeek),
    ("IYYY", Field::IsoYear(4)),
    ("IYY", Field::IsoYear(3)),
    ("IY", Field::IsoYear(2)),
    ("I", Field::IsoYear(1)),
    ("J", Field::Julian),
    ("MI", Field::Minute),
    ("MM", Field::Month),
    ("MONTH", Field::MonthName),
    ("MON", Field::MonthShort),
    ("MS", Field::Fraction(3)),
    ("OF", Field::Offset),
    ("Q", Field::Quarter),
    ("RM", Field::Roman),
    ("SSSSS", Field::SecondOfDay),
    ("SSSS", Field::SecondOfDay),
    ("SS", Field::Second),
    ("TZH", Field::ZoneHour),
    ("TZM", Field::ZoneMinute),
    ("TZ", Field::ZoneName),
    ("US", Field::Fraction(6)),
    ("WW", Field::WeekOfYear),
    ("W", Field::WeekOfMonth),
    ("Y,YYY", Field::YearWithComma),
    ("YYYY", Field::Year(4)),
    ("YYY", Field::Year(3)),
    ("YY", Field::Year(2)),
    ("Y", Field::Year(1)),
];

/// Returns true if a text begins with a word, in any case.
fn begins(text: &str, word: &str) -> bool {
    text.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word))
}

impl Pattern {
    /// Parses a pattern. Characters that belong to no field are literal.
    pub(crate) fn parse(format: &str) -> Self {
        let mut pattern = Self { parts: Vec::new(), fixed: false };
        let mut rest = format;
        while let Some(next) = rest.chars().next() {
            // Modifiers before a field.
            let mut ahead = rest;
            let mut bare = false;
            loop {
                if begins(ahead, "FX") {
                    pattern.fixed = true;
                } else if begins(ahead, "FM") || begins(ahead, "TM") {
                    bare = true;
                } else {
                    break;
                }
                ahead = &ahead[2..];
            }
            // A field, with the case of its letters and the ordinal ending after it.
            if let Some((name, field)) = WORDS.iter().find(|(word, _)| begins(ahead, word)) {
                let (written, tail) = ahead.split_at(name.len());
                let letters = match written.chars().nth(1) {
                    _ if written.starts_with(|c: char| c.is_ascii_lowercase()) => Letters::Lower,
                    Some(second) if second.is_ascii_lowercase() => Letters::Capital,
                    _ => Letters::Upper,
                };
                let ordinal = begins(tail, "TH").then(|| tail.starts_with('T'));
                rest = if ordinal.is_some() { &tail[2..] } else { tail };
                rest = if begins(rest, "SP") { &rest[2..] } else { rest };
                let (field, name) = (*field, *name);
                pattern.parts.push(Part::Field { field, letters, name, bare, ordinal });
                continue;
            }
            // Modifiers without a field mean nothing.
            if ahead.len() < rest.len() {
                rest = ahead;
                continue;
            }
            // Quoted text, and other characters.
            if next == '"' {
                rest = pattern.quoted(&rest[1..]);
                continue;
            }
            if next == '\\' && rest[1..].starts_with('"') {
                pattern.parts.push(Part::Text('"'));
                rest = &rest[2..];
                continue;
            }
            pattern.parts.push(if next.is_whitespace() || next.is_ascii_punctuation() {
                Part::Separator(next)
            } else {
                Part::Text(next)
            });
            rest = &rest[next.len_utf8()..];
        }
        pattern
    }

    /// Adds a text up to its closing quotation mark, and returns what follows.
    fn quoted<'a>(&mut self, text: &'a str) -> &'a str {
        let mut letters = text.char_indices();
        while let Some((index, letter)) = letters.next() {
            match letter {
                '"' => return &text[index + 1..],
                '\\' => {
                    self.parts.extend(letters.next().map(|(_, letter)| Part::Text(letter)));
                }
                _ => self.parts.push(Part::Text(letter)),
            }
        }
        ""
    }
}

/// Names of the months.
pub(crate) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// Names of the days, starting on Sunday.
pub(crate) const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
/// The months as Roman numerals.
pub(crate) const ROMAN: [&str; 12] =
    ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_word_is_the_field() {
        let fields = |format: &str| -> Vec<Field> {
            let pattern = Pattern::parse(format);
            let fields = pattern.parts.iter().filter_map(|part| match part {
                Part::Field { field, .. } => Some(*field),
                _ => None,
            });
            fields.collect()
        };
        assert_eq!(fields("YYYY-MM-DD"), [Field::Year(4), Field::Month, Field::DayOfMonth]);
        assert_eq!(
            fields("hh24:mi:ss.us"),
            [Field::Hour24, Field::Minute, Field::Second, Field::Fraction(6)]
        );
        assert_eq!(fields("IYYY-IW-ID"), [Field::IsoYear(4), Field::IsoWeek, Field::IsoDay]);
        assert_eq!(fields("TZH:TZM TZ"), [Field::ZoneHour, Field::ZoneMinute, Field::ZoneName]);
        assert_eq!(fields("\"YYYY\" x"), []);
        assert_eq!(fields("FMMonth DDth"), [Field::MonthName, Field::DayOfMonth]);
    }
}
