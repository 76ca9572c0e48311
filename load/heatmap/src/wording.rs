//! Numbers, times and long texts, formatted for the readers of pictures.
//!
//! Invariant: times are UTC, and every full date says so.

use chrono::{DateTime, Utc};

use crate::metric::Metric;
use crate::number::floor;
use crate::picture::Heatmap;

/// Distances of labels on the time axis, seconds.
const TICKS: [u64; 18] =
    [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 43_200, 86_400];

/// A time as `format` describes; times beyond the calendar's years become its last one.
fn formatted(time: u64, format: &str) -> String {
    let time = i64::try_from(time).ok().and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    time.unwrap_or(DateTime::<Utc>::MAX_UTC).format(format).to_string()
}

/// `2026-01-31 23:59:59`.
pub(crate) fn moment(time: u64) -> String {
    formatted(time, "%Y-%m-%d %H:%M:%S")
}

/// `23:59:59`.
pub(crate) fn clock(time: u64) -> String {
    formatted(time, "%H:%M:%S")
}

/// At most `most` + 1 times from `start` to `end`, at round values, each with its label.
pub(crate) fn ticks(start: u64, end: u64, most: usize) -> Vec<(u64, String)> {
    let span = end.saturating_sub(start);
    let least = span.div_ceil(most.max(1) as u64);
    let step = TICKS.into_iter().find(|step| *step >= least);
    let step = step.unwrap_or_else(|| least.div_ceil(86_400) * 86_400);
    let form = match step {
        86_400.. => "%m-%d",
        60.. => "%H:%M",
        _ => "%H:%M:%S",
    };
    let first = start.div_ceil(step) * step;
    (first..=end)
        .step_by(usize::try_from(step).unwrap_or(usize::MAX))
        .map(|time| (time, formatted(time, form)))
        .collect()
}

/// `0`, `0.12`, `7.5`, `830`, `12.3k`, `4.5M`, `1.2G`.
pub(crate) fn number(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        1e9.. => (value / 1e9, "G"),
        1e6.. => (value / 1e6, "M"),
        1e3.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        99.95.. => 0,
        9.995.. => 1,
        0.0 => 0,
        _ => 2,
    };
    let text = format!("{scaled:.digits$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

/// A rate in the metric's unit.
pub(crate) fn rate(metric: Metric, value: f64) -> String {
    match metric {
        Metric::WriteRows | Metric::ReadRows | Metric::Operations => {
            format!("{} rows/s", number(value))
        }
        Metric::WriteBytes => format!("{}B/s", number(value)),
        Metric::Busy => percent(value),
    }
}

/// `12 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{} %", number((share * 1000.0).round() / 10.0))
}

/// Cuts the text to a number of characters; `..` at the end stands for the part that is cut.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let beginning: String = text.chars().take(most.saturating_sub(2)).collect();
    format!("{beginning}..")
}

/// Marks that end a level of a key: `us-west2#3698#week1` has three levels.
const LEVEL_ENDS: [char; 3] = ['#', '/', '|'];

/// Positions behind the levels of a key, without the last level.
fn level_ends(key: &str) -> impl DoubleEndedIterator<Item = usize> {
    let is_end = |letter: char| LEVEL_ENDS.contains(&letter);
    key.match_indices(is_end).map(|(position, mark)| position + mark.len())
}

/// A key on an axis. `..` stands for the leading levels that it shares with the key above it; what does not fit into the
/// number of characters is cut off behind a level, if that leaves half of them.
pub(crate) fn key_label(upper: Option<&str>, key: &str, most: usize) -> String {
    let is_shared = |end: &usize| upper.is_some_and(|upper| upper.get(..*end) == key.get(..*end));
    let text = match level_ends(key).rev().find(is_shared) {
        Some(end) => format!("..{}", &key[end..]),
        None => key.to_owned(),
    };
    if text.chars().count() <= most {
        return text;
    }
    let fits = |end: &usize| {
        let letters = text[..*end].chars().count();
        letters + 2 <= most && letters * 2 >= most
    };
    match level_ends(&text).rev().find(fits) {
        Some(end) => format!("{}..", &text[..end]),
        None => cut(&text, most),
    }
}

/// Lines of at most this many characters (at least 8), broken between words where possible.
pub(crate) fn wrapped(text: &str, most: usize) -> Vec<String> {
    let most = most.max(8);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for piece in letters.chunks(most) {
            let last = lines.last().map_or(0, |line| line.chars().count());
            if last > 0 && last + 1 + piece.len() > most {
                lines.push(String::new());
            }
            if let Some(line) = lines.last_mut() {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.extend(piece);
            }
        }
    }
    lines
}

/// One line about the distribution of the load among partitions.
pub(crate) fn balance(heatmap: &Heatmap) -> String {
    let balance = heatmap.balance;
    format!(
        "N_eff {} of {} partitions   max/mean {}   now {}   busiest partition {}",
        number(f64::from(balance.n_eff)),
        balance.partitions,
        number(f64::from(balance.max_over_mean)),
        rate(heatmap.metric, f64::from(balance.total)),
        rate(heatmap.metric, f64::from(balance.max)),
    )
}

/// Position of a time in a picture, as a share of its width, 0 to 1.
pub(crate) fn across(heatmap: &Heatmap, time: u64) -> f64 {
    let start = heatmap.times.first().copied().unwrap_or(0);
    let span = heatmap.end().saturating_sub(start).max(1);
    (time.saturating_sub(start) as f64 / span as f64).min(1.0)
}

/// Index of the place, out of `places`, that a position from 0 to 1 falls on.
pub(crate) fn place(part: f64, places: usize) -> usize {
    floor(part * places as f64).min(places.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_in_utc() {
        assert_eq!(moment(0), "1970-01-01 00:00:00");
        assert_eq!(moment(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(moment(1_767_225_599), "2025-12-31 23:59:59");
    }

    #[test]
    fn numbers_have_three_digits() {
        let texts = [0.0, 0.123, 7.5, 830.4, 12_345.0, 999_999.0, 4.5e6, 1.2e9].map(number);
        assert_eq!(texts, ["0", "0.12", "7.5", "830", "12.3k", "1000k", "4.5M", "1.2G"]);
    }

    #[test]
    fn ticks_are_few_and_inside() {
        let times = ticks(1003, 1063, 7);
        assert!((2..=7).contains(&times.len()), "{times:?}");
        assert!(times.iter().all(|(time, _)| (1003..=1063).contains(time)));
        assert_eq!(ticks(0, 86_400 * 14, 7).last().unwrap().1, "01-15");
    }

    #[test]
    fn keys_on_an_axis_show_their_levels() {
        let label = |upper, key| key_label(upper, key, 20);
        let key = "us-west2#3698#week1";
        assert_eq!(label(None, key), key);
        assert_eq!(label(Some("us-west2#3699#week1"), key), "..3698#week1");
        assert_eq!(label(Some("us-west2#3698#week2"), key), "..week1");
        assert_eq!(label(Some("us-east1#3698#week1"), key), key);
        assert_eq!(label(None, "us-west2#3698#pressure#week1"), "us-west2#3698#..");
        // Too little would be left, or there is no level.
        assert_eq!(label(None, "a#a name of many letters"), "a#a name of many l..");
        assert_eq!(label(Some("(17, 3)"), "(17, 2)"), "(17, 2)");
        assert_eq!(label(Some("é#a"), "è#b"), "è#b");
    }

    #[test]
    fn long_texts_are_wrapped_without_loss() {
        let text = "ALTER TABLE events PARTITION BY HASH (userid) PARTITIONS 16 abcdefghijklmnopqrstuvwxyz";
        let lines = wrapped(text, 20);
        assert!(lines.iter().all(|line| line.len() <= 20), "{lines:?}");
        assert_eq!(lines.concat().replace(' ', ""), text.replace(' ', ""));
    }
}
