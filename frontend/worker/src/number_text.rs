//! `to_char` and `to_number` of numbers, with PostgreSQL's patterns.
//!
//! ```text
//!   9 0 . D , G     digits, the point, groups          S MI PL SG PR    signs
//!   L               the currency (none here)           TH th RN rn V    ordinals, Roman numerals, shifts
//!   EEEE            an exponent                        FM               no blanks and no zeros at the end
//! ```
//!
//! The names of months and days, and signs of currency and of groups, are those of the locale C.

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use arrow::datatypes::{DataType, Decimal128Type};
use datafusion::error::Result;
use std::sync::Arc;

use crate::error::{SYNTAX_ERROR, SqlError};
use crate::plain::{Plain, Texts, is_text, texts};

/// Digits in a pattern; PostgreSQL has more, in more memory.
const DIGITS_MAX: usize = 400;
/// The type of what texts are read as.
const NUMBER: DataType = DataType::Decimal128(38, 10);

/// `to_number(text, format)`.
pub(crate) static TO_NUMBER: Plain = Plain {
    name: "to_number",
    takes: |of| crate::plain::all(of, 2, is_text, &DataType::Utf8),
    gives: |_| NUMBER,
    run: |of| {
        let (values, formats) = (texts(&of[0])?, texts(&of[1])?);
        let number = |(value, format): (Option<&str>, Option<&str>)| {
            let Some((value, format)) = value.zip(format) else { return Ok(None) };
            read(value, &Pattern::parse(format)?)
        };
        let made = values.iter().zip(&formats).map(number);
        let made: Decimal128Array = made.collect::<Result<_, SqlError>>()?;
        Ok(Arc::new(made.with_precision_and_scale(38, 10)?))
    },
};

/// Numbers as texts; each of them has a format, or all have one.
pub(crate) fn written(numbers: &ArrayRef, formats: &ArrayRef) -> Result<ArrayRef> {
    let formats = texts(formats)?;
    let mut known: Option<(String, Pattern)> = None;
    let mut made = Texts::new("to_char", numbers.len());
    for row in 0..numbers.len() {
        if numbers.is_null(row) || formats.is_null(row) {
            made.push(None::<&str>)?;
            continue;
        }
        let format = formats.value(row);
        if known.as_ref().is_none_or(|(known, _)| known != format) {
            known = Some((format.to_owned(), Pattern::parse(format)?));
        }
        let Some((_, pattern)) = &known else { continue };
        made.push(Some(pattern.write(&Value::of(numbers, row, pattern)?)))?;
    }
    Ok(made.finish())
}

/// A number in decimal digits.
#[derive(Debug, PartialEq, Eq)]
enum Value {
    Finite {
        negative: bool,
        whole: String,
        part: String,
    },
    /// In exponents.
    Scientific(String),
    Other(&'static str),
}

impl Value {
    fn of(numbers: &ArrayRef, row: usize, pattern: &Pattern) -> Result<Self> {
        let scale = pattern.places + pattern.shift;
        let text = match numbers.data_type() {
            DataType::Float64 | DataType::Float32 => {
                let double = crate::plain::doubles(&numbers.slice(row, 1))?.value(0);
                if !double.is_finite() {
                    return Ok(Self::Other(if double.is_nan() {
                        "NaN"
                    } else if double > 0.0 {
                        "Infinity"
                    } else {
                        "-Infinity"
                    }));
                }
                // As many digits as the type is sure of.
                let digits = if *numbers.data_type() == DataType::Float64 { 15_usize } else { 6 };
                if pattern.scientific {
                    return Ok(Self::Scientific(exponential(double, pattern.places)));
                }
                let whole = format!("{:.0}", double.trunc().abs()).len();
                format!("{double:.*}", scale.min(digits.saturating_sub(whole)))
            }
            DataType::Decimal128(..) => {
                numbers.as_primitive::<Decimal128Type>().value_as_string(row)
            }
            _ => texts(&numbers.slice(row, 1))?.value(0).to_owned(),
        };
        if pattern.scientific {
            let double: f64 = text.parse().unwrap_or(f64::NAN);
            return Ok(Self::Scientific(exponential(double, pattern.places)));
        }
        Ok(rounded(&text, pattern.places, pattern.shift))
    }
}

/// Digits with an exponent of two digits or more.
fn exponential(value: f64, places: usize) -> String {
    let text = format!("{value:.places$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// A number's digits, times a power of ten, rounded half away from zero.
fn rounded(text: &str, places: usize, shift: usize) -> Value {
    let negative = text.starts_with('-');
    let digits = text.trim_start_matches('-');
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let mut part = part.to_owned();
    while part.len() < places + shift {
        part.push('0');
    }
    let mut all: Vec<u8> = whole.bytes().chain(part.bytes()).collect();
    let kept = whole.len() + shift + places;
    let up = all.get(kept).is_some_and(|digit| *digit >= b'5');
    all.truncate(kept);
    if up {
        let mut at = all.len();
        loop {
            if at == 0 {
                all.insert(0, b'1');
                break;
            }
            at -= 1;
            if all[at] == b'9' {
                all[at] = b'0';
            } else {
                all[at] += 1;
                break;
            }
        }
    }
    let all = String::from_utf8(all).unwrap_or_default();
    let (whole, part) = all.split_at(all.len() - places);
    let whole = whole.trim_start_matches('0').to_owned();
    let zero = whole.is_empty() && part.bytes().all(|digit| digit == b'0');
    Value::Finite { negative: negative && !zero, whole, part: part.to_owned() }
}

/// Where and how a sign is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// Beside the first digit, a blank for plus.
    Leading,
    /// `S`, before or behind.
    Anchored,
    /// `MI`, `PL`, `SG` at their own places.
    Placed,
    /// `PR`.
    Brackets,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Nine,
    Zero,
    Point,
    Group,
    Sign,
    Minus,
    Plus,
    Both,
    Currency,
    Ordinal(bool),
    Text(String),
}

/// A format, read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    nodes: Vec<Node>,
    fill: bool,
    sign: Sign,
    /// Digits before and behind the point.
    whole: usize,
    places: usize,
    /// Digits behind `V`.
    shift: usize,
    scientific: bool,
    roman: Option<bool>,
}

fn wrong(message: &str) -> SqlError {
    SqlError::new(SYNTAX_ERROR, message)
}

/// What digits of a format stand behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    Nothing,
    Point,
    Shift,
}

const SHIFT_AND_POINT: &str = "cannot use \"V\" and decimal point together";

/// A text up to its closing quotation mark, and what follows that.
fn quoted(rest: &str) -> (String, &str) {
    let mut text = String::new();
    let mut letters = rest.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (text, &rest[at + 1..]),
            '\\' => text.extend(letters.next().map(|(_, letter)| letter)),
            _ => text.push(letter),
        }
    }
    (text, "")
}

impl Pattern {
    fn parse(format: &str) -> Result<Self, SqlError> {
        const WORDS: [&str; 17] = [
            "EEEE", "FM", "MI", "PL", "PR", "RN", "SG", "SP", "TH", "B", "C", "D", "G", "L", "S",
            "V", ",",
        ];
        let mut pattern = Self {
            nodes: Vec::new(),
            fill: true,
            sign: Sign::Leading,
            whole: 0,
            places: 0,
            shift: 0,
            scientific: false,
            roman: None,
        };
        let mut behind = Behind::Nothing;
        let mut rest = format;
        while let Some(next) = rest.chars().next() {
            if next == '"' {
                let (text, behind) = quoted(&rest[1..]);
                pattern.nodes.push(Node::Text(text));
                rest = behind;
                continue;
            }
            let word = WORDS.iter().find(|word| {
                rest.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word))
            });
            let word = match next {
                '9' | '0' | '.' => &rest[..1],
                _ => match word {
                    Some(word) => &rest[..word.len()],
                    None => {
                        let letter = &rest[..next.len_utf8()];
                        if next != '\\' {
                            pattern.nodes.push(Node::Text(letter.to_owned()));
                        }
                        rest = &rest[letter.len()..];
                        continue;
                    }
                },
            };
            rest = &rest[word.len()..];
            if pattern.scientific && !matches!(word.to_ascii_uppercase().as_str(), "FM") {
                return Err(wrong("\"EEEE\" must be the last pattern used"));
            }
            pattern.take(word, &mut behind)?;
        }
        Ok(pattern)
    }

    /// Takes a word of the format for what it means behind those before it.
    fn take(&mut self, word: &str, behind: &mut Behind) -> Result<(), SqlError> {
        match word.to_ascii_uppercase().as_str() {
            "9" | "0" => {
                if self.sign == Sign::Brackets {
                    return Err(wrong("\"9\" must be ahead of \"PR\""));
                }
                match behind {
                    Behind::Nothing => self.whole += 1,
                    Behind::Point => self.places += 1,
                    Behind::Shift => self.shift += 1,
                }
                self.nodes.push(if word == "9" { Node::Nine } else { Node::Zero });
                if self.whole + self.places + self.shift > DIGITS_MAX {
                    return Err(wrong("a number format has too many digits"));
                }
            }
            "." | "D" => {
                match behind {
                    Behind::Nothing => *behind = Behind::Point,
                    Behind::Point => return Err(wrong("multiple decimal points")),
                    Behind::Shift => return Err(wrong(SHIFT_AND_POINT)),
                }
                self.nodes.push(Node::Point);
            }
            "," | "G" => self.nodes.push(Node::Group),
            "V" => {
                if *behind == Behind::Point {
                    return Err(wrong(SHIFT_AND_POINT));
                }
                *behind = Behind::Shift;
            }
            "S" => {
                if self.sign == Sign::Anchored {
                    return Err(wrong("cannot use \"S\" twice"));
                }
                if self.sign != Sign::Leading {
                    return Err(wrong("cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together"));
                }
                self.sign = Sign::Anchored;
                self.nodes.push(Node::Sign);
            }
            sign @ ("MI" | "PL" | "SG") => {
                if self.sign == Sign::Anchored {
                    return Err(wrong(&format!("cannot use \"S\" and \"{sign}\" together")));
                }
                // A plus of its own place stands beside the sign of the number.
                self.sign = Sign::Placed;
                self.nodes.push(match sign {
                    "MI" => Node::Minus,
                    "PL" => Node::Plus,
                    _ => Node::Both,
                });
            }
            "PR" => {
                if self.sign != Sign::Leading {
                    return Err(wrong("cannot use \"PR\" and \"S\"/\"PL\"/\"MI\"/\"SG\" together"));
                }
                self.sign = Sign::Brackets;
            }
            "FM" => self.fill = false,
            "EEEE" => self.scientific = true,
            "RN" => self.roman = Some(word.starts_with('R')),
            "TH" => self.nodes.push(Node::Ordinal(word.starts_with('T'))),
            "L" => self.nodes.push(Node::Currency),
            // An empty zero and the ISO currency are nothing here, as in PostgreSQL.
            "B" => {}
            other => {
                return Err(SqlError::unsupported(format!("the pattern \"{other}\"")));
            }
        }
        Ok(())
    }

    /// A number as the format has it.
    fn write(&self, value: &Value) -> String {
        if let Some(upper) = self.roman {
            return self.roman(value, upper);
        }
        let (negative, whole, part) = match value {
            Value::Finite { negative, whole, part } => (*negative, whole.as_str(), part.as_str()),
            other => return self.write_as_text(other),
        };
        let whole_digits = self.whole + self.shift;
        let overflows = whole.len() > whole_digits;
        let (first_zero, last_zero_place) = self.zeros();
        let padded = format!("{whole:>whole_digits$}");
        let padded: Vec<char> = padded.chars().collect();
        let blank_until = padded.iter().position(|digit| *digit != ' ').unwrap_or(whole_digits);
        // The position of the first digit that is written.
        let mut start = blank_until.min(first_zero);
        if whole.is_empty() && self.places == 0 && start == whole_digits && whole_digits > 0 {
            start = whole_digits - 1;
        }
        let places_shown = if self.fill {
            part.len()
        } else {
            part.trim_end_matches('0').len().max(last_zero_place)
        };
        let mut made = String::new();
        let mut sign_done = false;
        let leading = self.leading(negative);
        let mut position = 0;
        let mut place = 0;
        let mut behind = false;
        let mut seen_digit = false;
        for (index, node) in self.nodes.iter().enumerate() {
            match node {
                Node::Nine | Node::Zero if !behind => {
                    if position >= start && !sign_done {
                        made.push_str(leading);
                        sign_done = true;
                    }
                    if overflows {
                        if !sign_done {
                            made.push_str(leading);
                            sign_done = true;
                        }
                        made.push('#');
                    } else if position < start {
                        if self.fill {
                            made.push(' ');
                        }
                    } else {
                        let digit = padded.get(position).copied().unwrap_or('0');
                        made.push(if digit == ' ' { '0' } else { digit });
                        seen_digit = true;
                    }
                    position += 1;
                }
                Node::Point => {
                    if !sign_done {
                        made.push_str(leading);
                        sign_done = true;
                    }
                    behind = true;
                    if self.fill || places_shown > 0 || self.places > 0 {
                        made.push('.');
                    }
                }
                Node::Nine | Node::Zero => {
                    if place < places_shown {
                        let digit = part.as_bytes().get(place).copied().unwrap_or(b'0');
                        made.push(if overflows { '#' } else { char::from(digit) });
                    }
                    place += 1;
                }
                Node::Group => {
                    if seen_digit || overflows {
                        made.push(',');
                    } else if self.fill {
                        made.push(' ');
                    }
                }
                Node::Sign | Node::Minus | Node::Plus | Node::Both | Node::Currency => {
                    made.extend(self.mark(index, node, negative));
                }
                Node::Ordinal(upper) => {
                    if !negative && self.places == 0 {
                        made.push_str(ordinal(whole, *upper));
                    }
                }
                Node::Text(text) => made.push_str(text),
            }
        }
        if !sign_done {
            made.push_str(leading);
        }
        if self.sign == Sign::Brackets {
            if negative {
                made.push('>');
            } else if self.fill {
                made.push(' ');
            }
        }
        made
    }

    /// What is no digits: a number in scientific notation, an infinity, NaN.
    fn write_as_text(&self, value: &Value) -> String {
        match value {
            Value::Finite { .. } => String::new(),
            Value::Scientific(text) => {
                let blank = if text.starts_with('-') || !self.fill { "" } else { " " };
                format!("{blank}{text}")
            }
            Value::Other(text) => {
                let width = self.whole + usize::from(self.places > 0) + self.places + 1;
                let text = if *text == "NaN" { " NaN" } else { text };
                let text = if self.fill { text } else { text.trim_start() };
                text.chars().take(width.max(text.len())).collect()
            }
        }
    }

    /// The position of the first digit before the point that is written as a zero where there is none, and of the last
    /// one behind it.
    fn zeros(&self) -> (usize, usize) {
        // Digits from where a zero was asked for.
        let mut at = 0;
        let mut first_zero = self.whole + self.shift;
        let mut digits_seen = 0;
        let mut last_zero_place = 0;
        let mut behind = false;
        for node in &self.nodes {
            match node {
                Node::Point => behind = true,
                Node::Nine | Node::Zero if !behind => {
                    if *node == Node::Zero {
                        first_zero = first_zero.min(digits_seen);
                    }
                    digits_seen += 1;
                }
                Node::Nine | Node::Zero => {
                    at += 1;
                    if *node == Node::Zero {
                        last_zero_place = at;
                    }
                }
                _ => {}
            }
        }
        (first_zero, last_zero_place)
    }

    /// What stands at the place of a sign or of a currency; `None`: nothing, not even a blank.
    fn mark(&self, index: usize, node: &Node, negative: bool) -> Option<char> {
        let sign = if negative { '-' } else { '+' };
        let blank = self.fill.then_some(' ');
        match node {
            Node::Sign => {
                let elsewhere = self.anchored_first() && (index == 0 || self.digits_behind(index));
                (!elsewhere).then_some(sign)
            }
            Node::Minus if !negative => blank,
            Node::Plus if negative => blank,
            Node::Minus | Node::Plus | Node::Both => Some(sign),
            _ => blank,
        }
    }

    /// What stands before the first digit.
    fn leading(&self, negative: bool) -> &'static str {
        match self.sign {
            Sign::Leading => {
                if negative {
                    "-"
                } else if self.fill {
                    " "
                } else {
                    ""
                }
            }
            Sign::Brackets => {
                if negative {
                    "<"
                } else if self.fill {
                    " "
                } else {
                    ""
                }
            }
            Sign::Placed
                if !self.nodes.iter().any(|node| matches!(node, Node::Minus | Node::Both)) =>
            {
                if negative {
                    "-"
                } else if self.fill {
                    " "
                } else {
                    ""
                }
            }
            // An anchored sign before digits stands beside the first of them.
            Sign::Anchored if self.anchored_first() => {
                if negative {
                    "-"
                } else {
                    "+"
                }
            }
            Sign::Anchored | Sign::Placed => "",
        }
    }

    /// Whether `S` stands before the digits.
    fn anchored_first(&self) -> bool {
        let digit = self.nodes.iter().position(|node| matches!(node, Node::Nine | Node::Zero));
        let sign = self.nodes.iter().position(|node| *node == Node::Sign);
        matches!((sign, digit), (Some(sign), Some(digit)) if sign < digit)
    }

    fn digits_behind(&self, index: usize) -> bool {
        self.nodes[index..].iter().any(|node| matches!(node, Node::Nine | Node::Zero))
    }

    fn roman(&self, value: &Value, upper: bool) -> String {
        const WIDTH: usize = 15;
        const NUMERALS: [(u32, &str); 13] = [
            (1000, "M"),
            (900, "CM"),
            (500, "D"),
            (400, "CD"),
            (100, "C"),
            (90, "XC"),
            (50, "L"),
            (40, "XL"),
            (10, "X"),
            (9, "IX"),
            (5, "V"),
            (4, "IV"),
            (1, "I"),
        ];
        let number = match value {
            Value::Finite { negative: false, whole, .. } => whole.parse().unwrap_or(0),
            _ => 0,
        };
        if !(1..4_000).contains(&number) {
            return "#".repeat(WIDTH);
        }
        let mut rest = number;
        let mut made = String::new();
        for (size, numeral) in NUMERALS {
            while rest >= size {
                made.push_str(numeral);
                rest -= size;
            }
        }
        if !upper {
            made.make_ascii_lowercase();
        }
        if self.fill { format!("{made:>WIDTH$}") } else { made }
    }
}

/// The ending of an ordinal number.
pub(crate) fn ordinal(digits: &str, upper: bool) -> &'static str {
    let number = digits.as_bytes();
    let last = number.last().copied().unwrap_or(b'0');
    let teens = number.len() > 1 && number[number.len() - 2] == b'1';
    match (last, teens, upper) {
        (b'1', false, false) => "st",
        (b'2', false, false) => "nd",
        (b'3', false, false) => "rd",
        (_, _, false) => "th",
        (b'1', false, true) => "ST",
        (b'2', false, true) => "ND",
        (b'3', false, true) => "RD",
        (_, _, true) => "TH",
    }
}

/// A text as a number of 38 digits, ten of them behind the point. What a pattern has no digit for is cut off.
fn read(text: &str, pattern: &Pattern) -> Result<Option<i128>, SqlError> {
    if pattern.scientific {
        return Err(SqlError::unsupported("\"EEEE\" for input"));
    }
    if pattern.roman.is_some() {
        return Err(SqlError::unsupported("\"RN\" for input"));
    }
    let mut rest = text.trim_start().chars().peekable();
    let (mut negative, mut digits, mut places) = (false, String::new(), None::<usize>);
    let mut take_sign = |rest: &mut std::iter::Peekable<std::str::Chars<'_>>| {
        while rest.next_if_eq(&' ').is_some() {}
        if rest.next_if(|c| matches!(c, '-' | '<')).is_some() {
            negative = true;
        } else {
            rest.next_if(|c| matches!(c, '+' | '>'));
        }
    };
    for node in &pattern.nodes {
        match node {
            Node::Nine | Node::Zero => {
                if digits.is_empty() && places.is_none() {
                    take_sign(&mut rest);
                }
                if let Some(digit) = rest.next_if(char::is_ascii_digit) {
                    digits.push(digit);
                    if let Some(places) = &mut places {
                        *places += 1;
                    }
                } else if places.is_none() && rest.next_if_eq(&'.').is_some() {
                    places = Some(0);
                }
            }
            Node::Point => {
                if places.is_none() && rest.next_if_eq(&'.').is_some() {
                    places = Some(0);
                }
            }
            Node::Group => {
                rest.next_if_eq(&',');
            }
            Node::Sign | Node::Minus | Node::Plus | Node::Both => take_sign(&mut rest),
            Node::Currency => {
                rest.next_if(|c| !c.is_ascii_digit() && !matches!(c, '-' | '+' | '.' | ','));
            }
            Node::Ordinal(_) => {
                rest.next();
                rest.next();
            }
            Node::Text(text) => {
                for _ in text.chars() {
                    rest.next();
                }
            }
        }
    }
    if pattern.sign == Sign::Anchored && rest.clone().all(|c| matches!(c, '-' | '+' | ' ')) {
        take_sign(&mut rest);
    }
    if digits.is_empty() {
        let message = "invalid input syntax for type numeric: \" \"";
        return Err(SqlError::new("22P02", message));
    }
    let places = places.unwrap_or(0) + pattern.shift;
    const SCALE: usize = 10;
    let out_of_range = || SqlError::new("22003", "value out of range");
    let digits = if places > SCALE {
        digits[..digits.len() - (places - SCALE)].to_owned()
    } else {
        format!("{digits}{}", "0".repeat(SCALE - places))
    };
    let number: i128 = digits.parse().map_err(|_| out_of_range())?;
    if number >= 10_i128.pow(38) {
        return Err(out_of_range());
    }
    Ok(Some(if negative { -number } else { number }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(number: &str, format: &str) -> String {
        let pattern = Pattern::parse(format).unwrap();
        pattern.write(&rounded(number, pattern.places, pattern.shift))
    }

    #[test]
    fn numbers_are_written_as_postgresql_writes_them() {
        for (number, format, expected) in [
            ("125", "999", " 125"),
            ("-125", "999", "-125"),
            ("125.8", "999D9", " 125.8"),
            ("1485", "9,999", " 1,485"),
            ("485", "9,999", "   485"),
            ("0.1", "0.9", " 0.1"),
            ("12", "9990999.9", "    0012.0"),
            ("148.5", "FM999.990", "148.500"),
            ("148.5", "FM999.999", "148.5"),
            ("-485", "999S", "485-"),
            ("-485", "999MI", "485-"),
            ("485", "999MI", "485 "),
            ("485", "999PL", " 485+"),
            ("485", "SG999", "+485"),
            ("-485", "999PR", "<485>"),
            ("485", "RN", "        CDLXXXV"),
            ("485", "FMRN", "CDLXXXV"),
            ("482", "999th", " 482nd"),
            ("485", "\"Good number:\"999", "Good number: 485"),
            ("12.4", "99V999", " 12400"),
            ("0", "9", " 0"),
            ("5", "00000", " 00005"),
            ("12345", "999", " ###"),
            ("1.5", "9", " 2"),
            ("-0.5", "9.9", " -.5"),
            ("-0.5", "S0.9", "-0.5"),
            ("1234567.891", "FM9,999,999.00", "1,234,567.89"),
        ] {
            assert_eq!(shown(number, format), expected, "{number} {format}");
        }
    }

    #[test]
    fn texts_are_read_by_patterns() {
        for (text, format, expected) in [
            ("12,454.8-", "99G999D9S", -124_548),
            ("123", "999", 1_230),
            ("-1.5", "S9.9", -15),
            ("1,234.5", "9,999.9", 12_345),
            ("$12", "L99", 120),
            ("<12>", "99PR", -120),
        ] {
            let read = read(text, &Pattern::parse(format).unwrap()).unwrap();
            assert_eq!(read, Some(expected * 1_000_000_000), "{text} {format}");
        }
        assert!(Pattern::parse("9.9.9").is_err());
        assert!(read("abc", &Pattern::parse("999").unwrap()).is_err());
    }
}
