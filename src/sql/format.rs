//! Results as text: aligned, unaligned, CSV or JSON, rows side by side or one column per line.
//!
//! ```text
//!   columns, rows ── Printer ── texts of up to a page of rows ── the screen, a pager, a file
//! ```
//!
//! Column widths are computed over a page, so that memory stays bounded; longer results are printed page by page, each
//! with its own widths.
//!
//! Invariant: aligned results have no control characters but line feeds, so that no value can steer the terminal.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Rows of a page.
const PAGE_ROWS: usize = 1_000;
/// Columns between two stops of tabulators.
const TAB_STOP: usize = 8;

/// Ways to write rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Columns as wide as their widest value.
    Aligned,
    /// Values between separators.
    Unaligned,
    /// Comma-separated values.
    Csv,
    /// Array of objects.
    Json,
}

impl Format {
    /// Formats by the names that `\pset format` takes.
    pub(super) const ALL: [(&'static str, Self); 4] = [
        ("aligned", Self::Aligned),
        ("csv", Self::Csv),
        ("json", Self::Json),
        ("unaligned", Self::Unaligned),
    ];

    /// Name that `\pset format` takes.
    pub(super) fn name(self) -> &'static str {
        let mut names = Self::ALL.iter().filter(|(_, format)| *format == self);
        names.next().map_or("", |(name, _)| *name)
    }
}

/// Types that JSON tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Written as a string.
    Text,
    /// Written as it is, unless it is no number of JSON, such as NaN.
    Number,
    /// `t` or `f`.
    Bool,
    /// Text of JSON, written as it is.
    Json,
}

/// Settings of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) format: Format,
    /// One line per value.
    pub(super) is_expanded: bool,
    /// Rows only, without names of columns and without the number of rows.
    pub(super) has_tuples_only: bool,
    /// Text of NULL; without it `NULL` where results are aligned, and nothing elsewhere.
    pub(super) null: Option<String>,
    /// Separator of unaligned values.
    pub(super) separator: String,
    /// True if control characters are escaped in unaligned values and in CSV too.
    pub(super) is_escaped: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            format: Format::Aligned,
            is_expanded: false,
            has_tuples_only: false,
            null: None,
            separator: "|".to_owned(),
            is_escaped: false,
        }
    }
}

impl Style {
    /// Values between tabulators, for scripts.
    pub(super) fn plain() -> Self {
        Self {
            format: Format::Unaligned,
            has_tuples_only: true,
            null: Some("NULL".to_owned()),
            separator: "\t".to_owned(),
            ..Self::default()
        }
    }

    fn null(&self) -> &str {
        let usual = if self.format == Format::Aligned { "NULL" } else { "" };
        self.null.as_deref().unwrap_or(usual)
    }

    /// True if the result of a statement without rows is reported.
    fn reports(&self) -> bool {
        !self.has_tuples_only && matches!(self.format, Format::Aligned | Format::Unaligned)
    }
}

/// Row of texts as the server sends it.
pub(super) type Row = Vec<Option<String>>;

/// Writes the results of statements, one after another.
pub(super) struct Printer {
    style: Style,
    kinds: Vec<Kind>,
    columns: Vec<String>,
    rows: Vec<Row>,
    /// Rows of the result that were written.
    written: u64,
    has_rows: bool,
}

impl Printer {
    /// Printer of a style. Columns whose kinds are not named are text.
    pub(super) fn new(style: Style, kinds: Vec<Kind>) -> Self {
        Self { style, kinds, columns: Vec::new(), rows: Vec::new(), written: 0, has_rows: false }
    }

    /// Begins a result.
    pub(super) fn start(&mut self, columns: Vec<String>) {
        self.columns = columns;
        self.rows.clear();
        self.written = 0;
        self.has_rows = true;
    }

    /// Takes a row; returns the text of a page that is full, or else nothing.
    pub(super) fn push(&mut self, row: Row) -> String {
        self.rows.push(row);
        if self.rows.len() < PAGE_ROWS { String::new() } else { self.page() }
    }

    /// Ends a result; returns the text of the remaining rows, and of their number.
    pub(super) fn end(&mut self, affected: u64) -> String {
        if !std::mem::take(&mut self.has_rows) {
            let ending = if affected == 1 { "" } else { "s" };
            return if self.style.reports() {
                format!("ok, {affected} row{ending}\n")
            } else {
                String::new()
            };
        }
        let mut text =
            if self.rows.is_empty() && self.written > 0 { String::new() } else { self.page() };
        let is_list = matches!(self.style.format, Format::Aligned | Format::Unaligned);
        if self.style.format == Format::Json && !self.style.is_expanded {
            text.push_str(if self.written == 0 { "[]\n" } else { "\n]\n" });
        } else if is_list
            && !self.style.has_tuples_only
            && (!self.style.is_expanded || self.written == 0)
        {
            let ending = if self.written == 1 { "" } else { "s" };
            text.push_str(&format!("({} row{ending})\n", self.written));
        }
        text
    }

    /// Writes the rows of a page, with the head of the result where it belongs.
    fn page(&mut self) -> String {
        let rows = std::mem::take(&mut self.rows);
        let text = match (self.style.format, self.style.is_expanded) {
            (Format::Aligned, false) => self.aligned(&rows),
            (Format::Aligned, true) => self.records(&rows),
            (Format::Unaligned | Format::Csv, false) => self.separated(&rows),
            (Format::Unaligned | Format::Csv, true) => self.separated_records(&rows),
            (Format::Json, _) => self.objects(&rows),
        };
        self.written += rows.len() as u64;
        text
    }

    fn cell(&self, value: Option<&String>) -> Vec<String> {
        lines_of(value.map_or(self.style.null(), String::as_str))
    }

    /// Columns side by side, as wide as their widest value; numbers are right-aligned.
    fn aligned(&self, rows: &[Row]) -> String {
        let heads: Vec<Vec<String>> = self.columns.iter().map(|name| lines_of(name)).collect();
        let cells: Vec<Vec<Vec<String>>> = rows
            .iter()
            .map(|row| row.iter().map(|value| self.cell(value.as_ref())).collect())
            .collect();
        let head = (!self.style.has_tuples_only).then_some(&heads);
        let mut widths = vec![0; self.columns.len()];
        for line in head.into_iter().chain(&cells) {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = cell.iter().map(|text| text.width()).fold(*width, usize::max);
            }
        }
        let is_number = |column: usize| {
            let mut values = rows.iter().map(|row| row.get(column).and_then(Option::as_ref));
            !rows.is_empty()
                && values.all(|value| value.is_none_or(|text| text.parse::<f64>().is_ok()))
        };
        let is_right: Vec<bool> = (0..widths.len()).map(is_number).collect();
        let mut text = String::new();
        if let Some(head) = head {
            push_line(&mut text, head, &widths, &vec![false; widths.len()]);
            let dashes: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
            text.push_str(&dashes.join("+"));
            text.push('\n');
        }
        for row in &cells {
            push_line(&mut text, row, &widths, &is_right);
        }
        text
    }

    /// One line per value, with the names of columns before it.
    fn records(&self, rows: &[Row]) -> String {
        let names: Vec<Vec<String>> = self.columns.iter().map(|name| lines_of(name)).collect();
        let widest = |lines: &[String]| lines.iter().map(|text| text.width()).max().unwrap_or(0);
        let name_width = names.iter().map(|lines| widest(lines)).max().unwrap_or(0);
        let cells: Vec<Vec<Vec<String>>> = rows
            .iter()
            .map(|row| row.iter().map(|value| self.cell(value.as_ref())).collect())
            .collect();
        let width = cells.iter().flatten().map(|lines| widest(lines)).max().unwrap_or(0);
        let mut text = String::new();
        for (number, row) in (self.written + 1..).zip(&cells) {
            if !self.style.has_tuples_only {
                let label = format!("-[ RECORD {number} ]");
                let dashes = format!("{}+{}", "-".repeat(name_width + 1), "-".repeat(width + 1));
                let remaining = dashes.get(label.len()..).unwrap_or_default();
                text.push_str(&format!("{label}{remaining}\n"));
            } else if number > 1 {
                text.push('\n');
            }
            for (name, value) in names.iter().zip(row) {
                for index in 0..name.len().max(value.len()) {
                    let cell = |lines: &[String]| lines.get(index).cloned().unwrap_or_default();
                    let (label, text_line) = (cell(name), cell(value));
                    let space = " ".repeat(name_width.saturating_sub(label.width()));
                    let sign = if index + 1 < name.len() { '+' } else { ' ' };
                    let end = if index + 1 < value.len() {
                        format!("{}+", " ".repeat(width.saturating_sub(text_line.width())))
                    } else {
                        String::new()
                    };
                    let line = format!("{label}{space}{sign}| {text_line}{end}");
                    text.push_str(line.trim_end());
                    text.push('\n');
                }
            }
        }
        text
    }

    /// One line per row, with separators between values.
    fn separated(&self, rows: &[Row]) -> String {
        let mut text = String::new();
        if self.written == 0 && !self.style.has_tuples_only {
            let names = self.columns.iter().map(|name| self.value(Some(name)));
            text.push_str(&names.collect::<Vec<_>>().join(self.separator()));
            text.push('\n');
        }
        for row in rows {
            let values = row.iter().map(|value| self.value(value.as_ref()));
            text.push_str(&values.collect::<Vec<_>>().join(self.separator()));
            text.push('\n');
        }
        text
    }

    /// One line per value, with its name before the separator.
    fn separated_records(&self, rows: &[Row]) -> String {
        let mut text = String::new();
        for (number, row) in (self.written..).zip(rows) {
            if number > 0 && self.style.format == Format::Unaligned {
                text.push('\n');
            }
            for (name, value) in self.columns.iter().zip(row) {
                text.push_str(&self.value(Some(name)));
                text.push_str(self.separator());
                text.push_str(&self.value(value.as_ref()));
                text.push('\n');
            }
        }
        text
    }

    fn separator(&self) -> &str {
        if self.style.format == Format::Csv { "," } else { &self.style.separator }
    }

    /// Value between separators.
    fn value(&self, value: Option<&String>) -> String {
        let is_csv = self.style.format == Format::Csv;
        let Some(text) = value else { return self.style.null().to_owned() };
        let text = if self.style.is_escaped { printable(text) } else { text.clone() };
        // Quotes tell an empty string from NULL.
        let needs_quotes =
            text.is_empty() || text == "\\." || text.contains(['"', ',', '\n', '\r']);
        if is_csv && needs_quotes { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
    }

    /// Objects of an array, one per line; expanded without the array.
    fn objects(&self, rows: &[Row]) -> String {
        let mut text = String::new();
        for (number, row) in (self.written..).zip(rows) {
            if !self.style.is_expanded {
                text.push_str(if number == 0 { "[\n" } else { ",\n" });
            }
            let fields = self.columns.iter().zip(row).enumerate().map(|(column, (name, value))| {
                let kind = self.kinds.get(column).copied().unwrap_or(Kind::Text);
                format!("{}: {}", json_string(name), json_value(value.as_deref(), kind))
            });
            text.push_str(&format!("{{{}}}", fields.collect::<Vec<_>>().join(", ")));
            if self.style.is_expanded {
                text.push('\n');
            }
        }
        text
    }
}

/// Adds the lines of a row of cells.
fn push_line(text: &mut String, cells: &[Vec<String>], widths: &[usize], is_right: &[bool]) {
    let height = cells.iter().map(Vec::len).max().unwrap_or(1);
    for index in 0..height {
        let padded = cells.iter().zip(widths).zip(is_right).map(|((lines, width), is_right)| {
            let line = lines.get(index).map_or("", String::as_str);
            let space = " ".repeat(width.saturating_sub(line.width()));
            let end = if index + 1 < lines.len() { '+' } else { ' ' };
            if *is_right { format!(" {space}{line}{end}") } else { format!(" {line}{space}{end}") }
        });
        let line = padded.collect::<Vec<_>>().join("|");
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn json_value(value: Option<&str>, kind: Kind) -> String {
    let Some(text) = value else { return "null".to_owned() };
    let is_json = |text: &str| serde_json::from_str::<serde_json::Value>(text).is_ok();
    match (kind, text) {
        (Kind::Bool, "t" | "true") => "true".to_owned(),
        (Kind::Bool, "f" | "false") => "false".to_owned(),
        (Kind::Number, _) if text.parse::<f64>().is_ok_and(f64::is_finite) && is_json(text) => {
            text.to_owned()
        }
        // An object is on one line.
        (Kind::Json, _) if is_json(text) => text.replace(['\n', '\r'], " "),
        _ => json_string(text),
    }
}

/// Lines of a value, without control characters.
fn lines_of(text: &str) -> Vec<String> {
    text.split('\n').map(printable_line).collect()
}

/// Text without control characters but line feeds.
pub(super) fn printable(text: &str) -> String {
    lines_of(text).join("\n")
}

fn printable_line(line: &str) -> String {
    let mut output = String::with_capacity(line.len());
    let mut width = 0;
    for letter in line.chars() {
        match letter {
            '\t' => {
                let stop = TAB_STOP - width % TAB_STOP;
                output.push_str(&" ".repeat(stop));
                width += stop;
                continue;
            }
            '\r' => output.push_str("\\r"),
            _ if letter.is_ascii_control() => {
                output.push_str(&format!("\\x{:02X}", u32::from(letter)));
            }
            _ if letter.is_control() || turns_direction(letter) => {
                output.push_str(&format!("\\u{:04X}", u32::from(letter)));
            }
            _ => output.push(letter),
        }
        width += letter.width().unwrap_or(0);
    }
    output
}

/// True for marks that change the direction of the text, or end its line, and so show something else than is there.
fn turns_direction(letter: char) -> bool {
    matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn style(format: Format) -> Style {
        Style { format, ..Style::default() }
    }

    fn expanded(format: Format) -> Style {
        Style { is_expanded: true, ..style(format) }
    }

    /// The text of a result.
    fn printed(style: Style, columns: &[&str], rows: &[&[Option<&str>]]) -> String {
        let mut printer = Printer::new(style, vec![Kind::Text, Kind::Number]);
        printer.start(columns.iter().map(|name| (*name).to_owned()).collect());
        let mut text = String::new();
        for row in rows {
            let row = row.iter().map(|value| value.map(str::to_owned)).collect();
            text.push_str(&printer.push(row));
        }
        text.push_str(&printer.end(0));
        text
    }

    const ROWS: &[&[Option<&str>]] = &[&[Some("a"), Some("1")], &[Some("größer"), None]];

    #[test]
    fn columns_are_as_wide_as_their_widest_value_and_numbers_stand_right() {
        assert_eq!(
            printed(style(Format::Aligned), &["name", "value"], ROWS),
            " name   | value\n--------+-------\n a      |     1\n größer |  NULL\n(2 rows)\n"
        );
        assert_eq!(
            printed(style(Format::Aligned), &["n"], &[&[Some("東京")], &[Some("x")]]),
            " n\n------\n 東京\n x\n(2 rows)\n"
        );
        assert_eq!(printed(style(Format::Aligned), &["n"], &[]), " n\n---\n(0 rows)\n");
    }

    #[test]
    fn lines_of_a_value_stand_one_below_another() {
        assert_eq!(
            printed(style(Format::Aligned), &["a", "b"], &[&[Some("x\nyy"), Some("z")]]),
            " a  | b\n----+---\n x +| z\n yy |\n(1 row)\n"
        );
        assert_eq!(
            printed(expanded(Format::Aligned), &["a", "b"], &[&[Some("x\nyy"), Some("z")]]),
            "-[ RECORD 1 ]\na | x +\n  | yy\nb | z\n"
        );
    }

    #[test]
    fn an_expanded_result_has_one_line_per_value() {
        assert_eq!(
            printed(expanded(Format::Aligned), &["name", "measured_value"], &[ROWS[0], ROWS[0]]),
            "-[ RECORD 1 ]--+--\nname           | a\nmeasured_value | 1\n\
             -[ RECORD 2 ]--+--\nname           | a\nmeasured_value | 1\n"
        );
        assert_eq!(printed(expanded(Format::Aligned), &["n"], &[]), "(0 rows)\n");
    }

    #[test]
    fn unaligned_values_have_a_separator_and_plain_ones_nothing_else() {
        let names = ["name", "value"];
        assert_eq!(
            printed(style(Format::Unaligned), &names, ROWS),
            "name|value\na|1\ngrößer|\n(2 rows)\n"
        );
        assert_eq!(printed(Style::plain(), &names, ROWS), "a\t1\ngrößer\tNULL\n");
        assert_eq!(
            printed(expanded(Format::Unaligned), &names, ROWS),
            "name|a\nvalue|1\n\nname|größer\nvalue|\n"
        );
    }

    #[test]
    fn csv_quotes_what_would_be_read_otherwise() {
        let rows: &[&[Option<&str>]] =
            &[&[Some("a,b"), Some("say \"x\"")], &[Some(""), None], &[Some("l\nm"), Some(" ")]];
        assert_eq!(
            printed(style(Format::Csv), &["a", "b"], rows),
            "a,b\n\"a,b\",\"say \"\"x\"\"\"\n\"\",\n\"l\nm\", \n"
        );
    }

    #[test]
    fn json_has_numbers_where_the_type_is_one() {
        let rows: &[&[Option<&str>]] =
            &[&[Some("1"), Some("1.50")], &[Some("a\"\n"), Some("NaN")], &[None, None]];
        assert_eq!(
            printed(style(Format::Json), &["a", "b"], rows),
            "[\n{\"a\": \"1\", \"b\": 1.50},\n{\"a\": \"a\\\"\\n\", \"b\": \"NaN\"},\n\
             {\"a\": null, \"b\": null}\n]\n"
        );
        assert_eq!(printed(style(Format::Json), &["a"], &[]), "[]\n");
        assert_eq!(printed(expanded(Format::Json), &["a"], &[&[Some("x")]]), "{\"a\": \"x\"}\n");
        assert_eq!(json_value(Some("{\"a\":\n1}"), Kind::Json), "{\"a\": 1}");
        assert_eq!(json_value(Some("t"), Kind::Bool), "true");
        assert_eq!(json_value(Some("007"), Kind::Number), "\"007\"");
    }

    #[test]
    fn pages_of_a_long_result_are_one_result() {
        let rows = vec![[Some("1")]; PAGE_ROWS * 2];
        let rows: Vec<&[Option<&str>]> = rows.iter().map(|row| &row[..]).collect();
        let text = printed(style(Format::Json), &["a"], &rows);
        let array: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(array.len(), PAGE_ROWS * 2);
        let text = printed(style(Format::Csv), &["a"], &rows);
        assert_eq!(text.lines().count(), PAGE_ROWS * 2 + 1);
        let text = printed(style(Format::Aligned), &["a"], &rows);
        assert!(text.ends_with("(2000 rows)\n"));
        assert_eq!(text.lines().count(), PAGE_ROWS * 2 + 2 * 2 + 1);
    }

    #[test]
    fn a_statement_without_rows_is_reported_to_readers_only() {
        let told = |style| Printer::new(style, Vec::new()).end(1);
        assert_eq!(told(style(Format::Aligned)), "ok, 1 row\n");
        assert_eq!(told(style(Format::Csv)), "");
        assert_eq!(told(style(Format::Json)), "");
        assert_eq!(told(Style::plain()), "");
    }

    #[test]
    fn no_value_steers_the_terminal() {
        assert_eq!(printable("a\u{1b}[31mb\u{7}\r\u{9b}"), "a\\x1B[31mb\\x07\\r\\u009B");
        assert_eq!(printable("a\tb\n\u{202e}c"), "a       b\n\\u202Ec");
        let rows: &[&[Option<&str>]] = &[&[Some("\u{1b}[2J")]];
        for format in [Format::Aligned, Format::Json] {
            assert!(!printed(style(format), &["a"], rows).contains('\u{1b}'), "{format:?}");
        }
        let escaped = Style { is_escaped: true, ..style(Format::Unaligned) };
        assert!(!printed(escaped, &["a"], rows).contains('\u{1b}'));
        assert!(printed(style(Format::Unaligned), &["a"], rows).contains('\u{1b}'));
    }
}
