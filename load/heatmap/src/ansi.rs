//! The picture in a terminal. With colours, a line of text shows two rows of cells; without, characters of growing
//! weight stand for the shades.
//!
//! Invariants: no line is wider than the given width; keys and texts cannot steer the terminal; each mark is a
//! letter on the map unless another one occupies the place; the newest marks are also described below the map.

use unicode_width::UnicodeWidthChar as _;

use crate::colour::{Rgb, Theme};
use crate::intensity::{Mode, tone};
use crate::matrix::MarkKind;
use crate::number::{narrow, round};
use crate::picture::Heatmap;
use crate::wording::{across, balance, clock, moment, percent, place, rate, ticks, wrapped};

/// Colours of the terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ink {
    /// 24-bit colours.
    #[default]
    True,
    /// The 256 colours of xterm.
    Indexed,
    /// Characters only: for logs and pipes.
    Plain,
}

/// Options of the terminal picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ansi {
    /// Columns of characters, at least 40.
    pub width: usize,
    /// Lines of the map alone, at least 4.
    pub height: usize,
    /// Colours of the terminal.
    pub ink: Ink,
    /// Reference of the brightness: a partition's capacity or the maximum of the map.
    pub mode: Mode,
    /// Background of the terminal: dark or light.
    pub theme: Theme,
}

impl Default for Ansi {
    fn default() -> Self {
        Self { width: 100, height: 20, ink: Ink::True, mode: Mode::Absolute, theme: Theme::Dark }
    }
}

/// Characters from no load to the maximum.
const WEIGHTS: [char; 10] = [' ', '.', ':', '-', '=', '+', '*', '#', '%', '@'];

const RESET: &str = "\x1b[0m";

/// Marks, and likewise verdicts, that are put into words; the rest is counted.
const WORDED_MAX: usize = 8;

/// The picture as text; every line ends with a line feed.
#[must_use]
pub fn ansi(heatmap: &Heatmap, options: Ansi) -> String {
    // Geometry: keys on the left, then the map. With colours a character shows two points, one above the other.
    let width = options.width.max(40);
    let margin = (width / 4).clamp(12, 28);
    let lines = options.height.max(4);
    let plain = options.ink == Ink::Plain;
    let (columns, pixels) = (width - margin - 2, if plain { lines } else { 2 * lines });
    let shades = sampled(heatmap, options.mode, columns, pixels);
    let letters = overlay(heatmap, columns, lines);
    let mut text = String::new();
    let mut line = |content: &str| {
        text.push_str(content);
        text.push('\n');
    };
    line(&fit(&format!("{}: {}", heatmap.table, heatmap.metric.title()), width));
    line(&fit(&balance(heatmap), width));
    let mut labelled = String::new();
    // A key is written on every third line, and only if it differs from the one written before.
    for index in 0..lines {
        let label = label(heatmap, lines, index)
            .filter(|label| *label != labelled && (lines - index) % 3 == 1);
        labelled = label.clone().unwrap_or(labelled);
        let mut content = format!("{} |", padded(&label.unwrap_or_default(), margin));
        let (upper, lower) = if plain {
            (&shades[index], &shades[index])
        } else {
            (&shades[2 * index], &shades[2 * index + 1])
        };
        for column in 0..columns {
            content.push_str(&cell(options, upper[column], lower[column], letters[index][column]));
        }
        if !plain {
            content.push_str(RESET);
        }
        line(&content);
    }
    // Below the map: time, legend, and the marks and verdicts in words.
    line(&time_axis(heatmap, margin, columns));
    line(&legend(heatmap, options, width));
    for note in notes(heatmap, width) {
        line(&note);
    }
    text
}

/// Intensity of each point of the map, rows from the top; `None` where no report covers the point.
fn sampled(heatmap: &Heatmap, mode: Mode, columns: usize, pixels: usize) -> Vec<Vec<Option<f32>>> {
    let shades = heatmap.intensity(mode);
    let count = heatmap.times.len();
    let mut points = vec![vec![None; columns]; pixels];
    let mut low = 0.0;
    for (row, line) in heatmap.rows.iter().zip(&shades) {
        let high = low + f64::from(row.height);
        let (first, last) = (place(low, pixels), place((high - 1e-6).max(low), pixels));
        low = high;
        for column in 0..columns {
            let start = column * count / columns;
            let end =
                ((column + 1) * count).div_ceil(columns).clamp(start + 1, count.max(start + 1));
            let covered =
                (start..end.min(count)).filter(|index| heatmap.gaps.binary_search(index).is_err());
            let values: Vec<f32> = covered.map(|index| line[index]).collect();
            if values.is_empty() {
                continue;
            }
            let mean = values.iter().sum::<f32>() / values.len() as f32;
            // Where several rows fall on one point, the brightest is shown, so that one hot key is not averaged
            // away.
            for point in points.iter_mut().rev().take(last + 1).skip(first) {
                point[column] =
                    Some(point[column].map_or(mean, |brightest: f32| brightest.max(mean)));
            }
        }
    }
    points
}

/// Letters that replace cells on the map: marks and the classes of verdicts.
fn overlay(heatmap: &Heatmap, columns: usize, lines: usize) -> Vec<Vec<Option<char>>> {
    let mut letters = vec![vec![None; columns]; lines];
    let line_of = |row: usize| {
        let height: f64 = heatmap.rows.iter().take(row).map(|row| f64::from(row.height)).sum();
        lines - 1 - place(height, lines)
    };
    for mark in &heatmap.marks {
        letters[line_of(mark.row)][place(across(heatmap, mark.at), columns)]
            .get_or_insert(sign(mark.kind));
    }
    for verdict in &heatmap.verdicts {
        let text = format!("[{}]", clean(&verdict.class));
        let size = text.chars().count();
        let start =
            place(across(heatmap, verdict.since), columns).min(columns.saturating_sub(size));
        let middle = line_of(usize::midpoint(verdict.from_row, verdict.to_row));
        let free = |line: &usize| letters[*line].iter().skip(start).take(size).all(Option::is_none);
        let mut lines_near: Vec<usize> = (0..lines).collect();
        lines_near.sort_by_key(|line| line.abs_diff(middle));
        if let Some(line) = lines_near.into_iter().find(free) {
            for (place, letter) in letters[line].iter_mut().skip(start).zip(text.chars()) {
                *place = Some(letter);
            }
        }
    }
    letters
}

fn sign(kind: MarkKind) -> char {
    match kind {
        MarkKind::Split => 'S',
        MarkKind::Merge => 'M',
        MarkKind::Move => '>',
        MarkKind::Transfer => '^',
    }
}

fn cell(options: Ansi, upper: Option<f32>, lower: Option<f32>, letter: Option<char>) -> String {
    let palette = options.theme.palette();
    let colour =
        |shade: Option<f32>| shade.map_or(palette.gap, |shade| options.theme.colour(tone(shade)));
    match (options.ink, letter) {
        (Ink::Plain, Some(letter)) => letter.to_string(),
        (Ink::Plain, None) => upper.map_or('?', weight).to_string(),
        (_, Some(letter)) => {
            let (front, back) = (palette.alarm_ink, palette.alarm);
            format!("{}{}{letter}", code(options.ink, 38, front), code(options.ink, 48, back))
        }
        (_, None) => {
            let (front, back) =
                (code(options.ink, 38, colour(upper)), code(options.ink, 48, colour(lower)));
            format!("{front}{back}\u{2580}")
        }
    }
}

/// The character for a shade. Any load above zero gets a visible character.
fn weight(shade: f32) -> char {
    let least = usize::from(shade > 0.0);
    WEIGHTS[round(tone(shade) * 9.0).clamp(least, 9)]
}

fn code(ink: Ink, ground: u8, colour: Rgb) -> String {
    let [red, green, blue] = colour;
    if ink == Ink::True {
        return format!("\x1b[{ground};2;{red};{green};{blue}m");
    }
    // The cube of 6 by 6 by 6 colours begins at 16; its steps are 0, 95, 135, 175, 215, 255.
    let step = |part: u8| if part < 48 { 0 } else { (u16::from(part.max(75)) - 35) / 40 };
    format!("\x1b[{ground};5;{}m", 16 + 36 * step(red) + 6 * step(green) + step(blue))
}

/// The key at the lower edge of a line of the map.
fn label(heatmap: &Heatmap, lines: usize, line: usize) -> Option<String> {
    let target = (lines - 1 - line) as f64 / lines as f64;
    let mut height = 0.0;
    let row = heatmap.rows.iter().find(|row| {
        height += f64::from(row.height);
        height > target + 1e-6
    });
    row.map(|row| clean(&row.start))
}

fn time_axis(heatmap: &Heatmap, margin: usize, columns: usize) -> String {
    let mut axis = vec![' '; margin + 2 + columns];
    let begin = heatmap.times.first().copied().unwrap_or(0);
    for (time, label) in ticks(begin, heatmap.end(), columns / 12) {
        let start = margin + 2 + place(across(heatmap, time), columns);
        if start + label.len() <= axis.len()
            && axis[start - 1..].iter().all(|letter| *letter == ' ')
        {
            axis.splice(start..start + label.len(), label.chars());
        }
    }
    axis.into_iter().collect::<String>().trim_end().to_owned()
}

fn legend(heatmap: &Heatmap, options: Ansi, width: usize) -> String {
    let steps = [0.0, 0.01, 0.05, 0.25, 0.5, 1.0];
    let reference = match heatmap
        .known_capacity()
        .filter(|_| heatmap.mode(options.mode) == Mode::Absolute)
    {
        Some(capacity) => format!("of one partition's {}", rate(heatmap.metric, capacity)),
        None => format!("of the brightest row's {}", rate(heatmap.metric, heatmap.density_max())),
    };
    let scale = |step: f64| {
        let shade = Some(narrow(step));
        let sample = cell(options, shade, shade, None);
        let reset = if options.ink == Ink::Plain { "" } else { RESET };
        format!("[{sample}{reset}] {}", percent(step))
    };
    let mut used = 0;
    let fits = |step: &&f64| {
        used += 6 + percent(**step).len();
        used <= width + 2
    };
    let scales: Vec<String> = steps.iter().take_while(fits).map(|step| scale(*step)).collect();
    let rest = format!("{reference}   S split M merge > move ^ leader");
    let rest = fit(&rest, width.saturating_sub(used + 1));
    format!("{}   {rest}", scales.join("  ")).trim_end().to_owned()
}

fn notes(heatmap: &Heatmap, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    // Verdicts that hold come first, then the ended ones; the newest first in each group.
    let mut verdicts: Vec<_> = heatmap.verdicts.iter().collect();
    verdicts.sort_by_key(|verdict| (verdict.until.is_some(), std::cmp::Reverse(verdict.since)));
    for verdict in verdicts.iter().take(WORDED_MAX) {
        let head =
            format!("{} {} since {} UTC", verdict.class, verdict.range, moment(verdict.since));
        lines.push(fit(&head, width));
        let evidence = wrapped(&clean(&verdict.evidence), width - 2);
        let advice = wrapped(&clean(&verdict.advice), width - 5);
        lines.extend(
            evidence
                .iter()
                .filter(|line| !line.is_empty())
                .map(|line| fit(&format!("  {line}"), width)),
        );
        lines.extend(
            advice
                .iter()
                .filter(|line| !line.is_empty())
                .map(|line| fit(&format!("  -> {line}"), width)),
        );
    }
    let hidden = verdicts.len().saturating_sub(WORDED_MAX);
    if hidden > 0 {
        lines.push(format!("and {hidden} more verdicts"));
    }
    // Marks, the newest first.
    let mut marks: Vec<_> = heatmap.marks.iter().collect();
    marks.sort_by_key(|mark| std::cmp::Reverse(mark.at));
    for mark in marks.iter().take(WORDED_MAX) {
        let text = format!("{} {} {}: {}", clock(mark.at), sign(mark.kind), mark.key, mark.text);
        lines.push(fit(&text, width));
    }
    let hidden = marks.len().saturating_sub(WORDED_MAX);
    if hidden > 0 {
        lines.push(format!("and {hidden} earlier marks"));
    }
    lines
}

/// Replaces control characters, which could steer a terminal.
fn clean(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

/// Without control characters, and cut to a width in terminal columns.
fn fit(text: &str, width: usize) -> String {
    let text = clean(text);
    let places = |text: &str| text.chars().map(|letter| letter.width().unwrap_or(0)).sum::<usize>();
    if places(&text) <= width {
        return text;
    }
    let mut used = 0;
    let short = text.chars().take_while(|letter| {
        used += letter.width().unwrap_or(0);
        used + 2 <= width
    });
    short.chain(['.', '.']).take(width).collect()
}

/// Right-aligned in a field of this width.
fn padded(text: &str, width: usize) -> String {
    let text = fit(text, width);
    let used: usize = text.chars().map(|letter| letter.width().unwrap_or(0)).sum();
    format!("{}{text}", " ".repeat(width.saturating_sub(used)))
}
