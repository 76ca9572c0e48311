//! `to_char` and `to_number` of numbers, with PostgreSQL's patterns.
//!
//! ```text
//!   9 0 . D , G     digits, the point, groups          S MI PL SG PR    signs
//!   L               the currency (none here)           TH th RN rn V    ordinals, Roman numerals, shifts
//!   EEEE            an exponent                        FM               without blanks and trailing zeros
//! ```
//!
//! Names of months and days, and the signs of currency and groups, are those of locale C.

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use arrow::datatypes::{DataType, Decimal128Type};
use datafusion::error::Result;
use std::sync::Arc;

use crate::error::{SYNTAX_ERROR, SqlError};
use crate::plain::{Plain, Texts, is_text, texts};

/// Maximum digits in a pattern, to bound memory; PostgreSQL allows more.
const DIGITS_MAX: usize = 400;
/// Type of parsed numbers.
const NUMBER: DataType = DataType::Decimal128(38, 10);

/// `to_number(text, format)`.
pub(crate) static TO_NUMBER: Plain = Plain {
    name: "to_number",
    takes: |types| crate::plain::all(types, 2, is_text, &DataType::Utf8),
    gives: |_| NUMBER,
    run: |arguments| {
        let (values, formats) = (texts(&arguments[0])?, texts(&arguments[1])?);
        let number = |(value, format): (Option<&str>, Option<&str>)| {
            let Some((value, format)) = value.zip(format) else { return Ok(None) };
            read(value, &Pattern::parse(format)?)
        };
        let numbers = values.iter().zip(&formats).map(number);
        let numbers: Decimal128Array = numbers.collect::<Result<_, SqlError>>()?;
        Ok(Arc::new(numbers.with_precision_and_scale(38, 10)?))
    },
};

/// Formats numbers, by one format for all or one for each.
pub(crate) fn written(numbers: &ArrayRef, formats: &ArrayRef) -> Result<ArrayRef> {
    let formats = texts(formats)?;
    let mut cached: Option<(String, Pattern)> = None;
    let mut results = Texts::new("to_char", numbers.len());
    for row in 0..numbers.len() {
        if numbers.is_null(row) || formats.is_null(row) {
            results.push(None::<&str>)?;
            continue;
        }
        let format = formats.value(row);
        if cached.as_ref().is_none_or(|(text, _)| text != format) {
            cached = Some((format.to_owned(), Pattern::parse(format)?));
        }
        let Some((_, pattern)) = &cached else { continue };
        results.push(Some(pattern.write(&Value::of(numbers, row, pattern)?)))?;
    }
    Ok(results.finish())
}

/// A number in decimal digits.
#[derive(Debug, PartialEq, Eq)]
enum Value {
    Finite {
        negative: bool,
        whole: String,
        part: String,
    },
    /// Scientific notation.
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
                // As many digits as the type guarantees.
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

/// Formats a number with an exponent of at least two digits.
fn exponential(value: f64, places: usize) -> String {
    let text = format!("{value:.places$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Shifts the decimal point, and rounds the digits half away from zero.
fn rounded(text: &str, places: usize, shift: usize) -> Value {
    let negative = text.starts_with('-');
    let digits = text.trim_start_matches('-');
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let mut part = part.to_owned();
    while part.len() < places + shift {
        part.push('0');
    }
    // Round by the first digit that is dropped, and carry.
    let mut digits: Vec<u8> = whole.bytes().chain(part.bytes()).collect();
    let kept_len = whole.len() + shift + places;
    let up = digits.get(kept_len).is_some_and(|digit| *digit >= b'5');
    digits.truncate(kept_len);
    if up {
        let mut index = digits.len();
        loop {
            if index == 0 {
                digits.insert(0, b'1');
                break;
            }
            index -= 1;
            if digits[index] == b'9' {
                digits[index] = b'0';
            } else {
                digits[index] += 1;
                break;
            }
        }
    }
    let digits = String::from_utf8(digits).unwrap_or_default();
    let (whole, part) = digits.split_at(digits.len() - places);
    let whole = whole.trim_start_matches('0').to_owned();
    let zero = whole.is_empty() && part.bytes().all(|digit| digit == b'0');
    Value::Finite { negative: negative && !zero, whole, part: part.to_owned() }
}

/// Position and form of a number's sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// Before the first digit, with a blank for plus.
    Leading,
    /// `S`, before or after the digits.
    Anchored,
    /// `MI`, `PL`, `SG`, at their positions in the format.
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

/// A parsed format.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    nodes: Vec<Node>,
    fill: bool,
    sign: Sign,
    /// Digits before and after the point.
    whole: usize,
    places: usize,
    /// Digits after `V`.
    shift: usize,
    scientific: bool,
    roman: Option<bool>,
}

fn wrong(message: &str) -> SqlError {
    SqlError::new(SYNTAX_ERROR, message)
}

/// Part of a number to which a digit of a format belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Whole,
    Fraction,
    Shift,
}

const SHIFT_AND_POINT: &str = "cannot use \"V\" and decimal point together";

/// Reads a quoted text after its opening mark; returns the text and what follows the closing mark.
fn quoted(rest: &str) -> (String, &str) {
    let mut text = String::new();
    let mut characters = rest.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '"' => return (text, &rest[index + 1..]),
            '\\' => text.extend(characters.next().map(|(_, escaped)| escaped)),
            _ => text.push(character),
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
        let mut section = Section::Whole;
        let mut rest = format;
        while let Some(next) = rest.chars().next() {
            // A quoted text is written as it is.
            if next == '"' {
                let (text, tail) = quoted(&rest[1..]);
                pattern.nodes.push(Node::Text(text));
                rest = tail;
                continue;
            }
            // Letters that begin no word are literal.
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
            // Nothing but `FM` may follow an exponent.
            if pattern.scientific && !matches!(word.to_ascii_uppercase().as_str(), "FM") {
                return Err(wrong("\"EEEE\" must be the last pattern used"));
            }
            pattern.take(word, &mut section)?;
        }
        Ok(pattern)
    }

    /// Adds a word of the format, whose meaning depends on the words before it.
    fn take(&mut self, word: &str, section: &mut Section) -> Result<(), SqlError> {
        match word.to_ascii_uppercase().as_str() {
            "9" | "0" => {
                if self.sign == Sign::Brackets {
                    return Err(wrong("\"9\" must be ahead of \"PR\""));
                }
                match section {
                    Section::Whole => self.whole += 1,
                    Section::Fraction => self.places += 1,
                    Section::Shift => self.shift += 1,
                }
                self.nodes.push(if word == "9" { Node::Nine } else { Node::Zero });
                if self.whole + self.places + self.shift > DIGITS_MAX {
                    return Err(wrong("number format has too many digits"));
                }
            }
            "." | "D" => {
                match section {
                    Section::Whole => *section = Section::Fraction,
                    Section::Fraction => return Err(wrong("multiple decimal points")),
                    Section::Shift => return Err(wrong(SHIFT_AND_POINT)),
                }
                self.nodes.push(Node::Point);
            }
            "," | "G" => self.nodes.push(Node::Group),
            "V" => {
                if *section == Section::Fraction {
                    return Err(wrong(SHIFT_AND_POINT));
                }
                *section = Section::Shift;
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
                // `PL` at its own position may be combined with the number's sign.
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
            // PostgreSQL ignores `B` too.
            "B" => {}
            unknown => {
                return Err(SqlError::unsupported(format!("the pattern \"{unknown}\"")));
            }
        }
        Ok(())
    }

    /// Formats a number.
    fn write(&self, value: &Value) -> String {
        if let Some(upper) = self.roman {
            return self.roman(value, upper);
        }
        let (negative, whole, part) = match value {
            Value::Finite { negative, whole, part } => (*negative, whole.as_str(), part.as_str()),
            _ => return self.write_as_text(value),
        };
        // Digits before the point are right-aligned in the positions of the format.
        let whole_digits = self.whole + self.shift;
        let overflows = whole.len() > whole_digits;
        let (first_zero, last_zero_place) = self.zeros();
        let padded = format!("{whole:>whole_digits$}");
        let padded: Vec<char> = padded.chars().collect();
        let blank_until = padded.iter().position(|digit| *digit != ' ').unwrap_or(whole_digits);
        // Position of the first digit to write.
        let mut start = blank_until.min(first_zero);
        if whole.is_empty() && self.places == 0 && start == whole_digits && whole_digits > 0 {
            start = whole_digits - 1;
        }
        let places_shown = if self.fill {
            part.len()
        } else {
            part.trim_end_matches('0').len().max(last_zero_place)
        };
        let mut output = String::new();
        let mut sign_done = false;
        let leading = self.leading(negative);
        let mut position = 0;
        let mut place = 0;
        let mut after_point = false;
        let mut seen_digit = false;
        for (index, node) in self.nodes.iter().enumerate() {
            match node {
                Node::Nine | Node::Zero if !after_point => {
                    if position >= start && !sign_done {
                        output.push_str(leading);
                        sign_done = true;
                    }
                    if overflows {
                        if !sign_done {
                            output.push_str(leading);
                            sign_done = true;
                        }
                        output.push('#');
                    } else if position < start {
                        if self.fill {
                            output.push(' ');
                        }
                    } else {
                        let digit = padded.get(position).copied().unwrap_or('0');
                        output.push(if digit == ' ' { '0' } else { digit });
                        seen_digit = true;
                    }
                    position += 1;
                }
                Node::Point => {
                    if !sign_done {
                        output.push_str(leading);
                        sign_done = true;
                    }
                    after_point = true;
                    if self.fill || places_shown > 0 || self.places > 0 {
                        output.push('.');
                    }
                }
                Node::Nine | Node::Zero => {
                    if place < places_shown {
                        let digit = part.as_bytes().get(place).copied().unwrap_or(b'0');
                        output.push(if overflows { '#' } else { char::from(digit) });
                    }
                    place += 1;
                }
                Node::Group => {
                    if seen_digit || overflows {
                        output.push(',');
                    } else if self.fill {
                        output.push(' ');
                    }
                }
                Node::Sign | Node::Minus | Node::Plus | Node::Both | Node::Currency => {
                    output.extend(self.mark(index, node, negative));
                }
                Node::Ordinal(upper) => {
                    if !negative && self.places == 0 {
                        output.push_str(ordinal(whole, *upper));
                    }
                }
                Node::Text(text) => output.push_str(text),
            }
        }
        // Without a digit or a point, the sign comes last.
        if !sign_done {
            output.push_str(leading);
        }
        if self.sign == Sign::Brackets {
            if negative {
                output.push('>');
            } else if self.fill {
                output.push(' ');
            }
        }
        output
    }

    /// Formats scientific notation, infinities and NaN, which are not written digit by digit.
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

    /// Position of the first digit before the point that is written as a zero if the number has none there, and number
    /// of digits after the point that are always written.
    fn zeros(&self) -> (usize, usize) {
        // Digits after the point so far.
        let mut places = 0;
        let mut first_zero = self.whole + self.shift;
        let mut digits_seen = 0;
        let mut last_zero_place = 0;
        let mut after_point = false;
        for node in &self.nodes {
            match node {
                Node::Point => after_point = true,
                Node::Nine | Node::Zero if !after_point => {
                    if *node == Node::Zero {
                        first_zero = first_zero.min(digits_seen);
                    }
                    digits_seen += 1;
                }
                Node::Nine | Node::Zero => {
                    places += 1;
                    if *node == Node::Zero {
                        last_zero_place = places;
                    }
                }
                _ => {}
            }
        }
        (first_zero, last_zero_place)
    }

    /// Character at the position of a sign or of a currency; `None` writes nothing, not even a blank.
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

    /// Sign, bracket or blank before the first digit.
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
            // An anchored sign before the digits is written next to the first of them.
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

    /// Returns true if `S` is before the digits.
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
        // Roman numerals have neither zero nor numbers of 4000 and more.
        let number = match value {
            Value::Finite { negative: false, whole, .. } => whole.parse().unwrap_or(0),
            _ => 0,
        };
        if !(1..4_000).contains(&number) {
            return "#".repeat(WIDTH);
        }
        let mut rest = number;
        let mut text = String::new();
        for (size, numeral) in NUMERALS {
            while rest >= size {
                text.push_str(numeral);
                rest -= size;
            }
        }
        if !upper {
            text.make_ascii_lowercase();
        }
        if self.fill { format!("{text:>WIDTH$}") } else { text }
    }
}

/// Ending of an ordinal number.
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

/// Parses a number of 38 digits, ten of them after the point. Digits beyond the pattern's are dropped.
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
    // The text is read along the pattern; missing digits and signs are tolerated.
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
    // Scale the digits to the result type, without rounding.
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
