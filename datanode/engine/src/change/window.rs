//! Time windows: the spans of the time index at whose bounds files are cut.
//!
//! Windows are aligned to 1970-01-01. Widths come from a ladder whose steps divide each other, so that windows nest
//! when a partition's width is widened; it never narrows. (Where windows do not nest, because a table's owner has
//! chosen another width, files of overlapping windows count as one window: see [`crate::change::compaction`].)

use std::collections::BTreeSet;
use std::time::Duration;

use partita_proto::schema::Unit;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// Widths in seconds. Timestamps may be centuries apart, so the ladder continues beyond a year.
const LADDER: [i64; 8] =
    [HOUR, 6 * HOUR, DAY, 7 * DAY, 28 * DAY, 364 * DAY, 10 * 364 * DAY, 100 * 364 * DAY];
/// Maximum windows to which one flush of a table without `time_window` writes files.
const WINDOWS_MAX: usize = 24;
/// Maximum windows to which one flush writes files when the table's owner has chosen their width.
const CHOSEN_WINDOWS_MAX: usize = 256;
/// Factor by which windows are widened beyond the owner's choice if there are too many.
const WIDEN: i64 = 4;

/// Width that puts everything into one window.
pub(crate) const UNBOUNDED: i64 = i64::MAX;

/// Chooses the width for rows with these values of the time index, given the present width and the width that the
/// table's owner has chosen.
pub(crate) fn choose_width(
    ticks: impl Iterator<Item = i64>,
    unit: Unit,
    present: Option<i64>,
    chosen: Option<Duration>,
) -> i64 {
    let (steps, windows_max): (Vec<i64>, usize) = match chosen {
        Some(chosen) => {
            let first = chosen_ticks(chosen, unit);
            let steps = std::iter::successors(Some(first), |step| step.checked_mul(WIDEN));
            (steps.collect(), CHOSEN_WINDOWS_MAX)
        }
        None => {
            let steps = LADDER.iter().map_while(|step| step.checked_mul(unit.per_second()));
            (steps.collect(), WINDOWS_MAX)
        }
    };
    // All widths in question are multiples of this one.
    let base = present.or(steps.first().copied()).unwrap_or(UNBOUNDED);
    if base == UNBOUNDED {
        return base;
    }
    let starts = occupied(ticks, base);
    let fits = |width: i64| occupied(starts.iter().copied(), width).len() <= windows_max;
    if fits(base) {
        return base;
    }
    let wider = steps.into_iter().filter(|step| *step > base && step % base == 0);
    wider.into_iter().find(|step| fits(*step)).unwrap_or(UNBOUNDED)
}

fn chosen_ticks(chosen: Duration, unit: Unit) -> i64 {
    let ticks = chosen.as_nanos() * u128::try_from(unit.per_second()).unwrap_or(1) / 1_000_000_000;
    i64::try_from(ticks).unwrap_or(UNBOUNDED).max(1)
}

/// The starts of the windows that contain these ticks.
fn occupied(ticks: impl Iterator<Item = i64>, width: i64) -> BTreeSet<i64> {
    let mut starts = BTreeSet::new();
    let mut last = None;
    for tick in ticks {
        let start = start(tick, width);
        if last.replace(start) != Some(start) {
            starts.insert(start);
        }
    }
    starts
}

/// Start of the window that contains a tick.
pub(crate) fn start(tick: i64, width: i64) -> i64 {
    if width == UNBOUNDED {
        return i64::MIN;
    }
    tick.div_euclid(width).saturating_mul(width)
}

/// The window that starts at `start`, half-open.
pub(crate) fn window(start: i64, width: i64) -> (i64, i64) {
    match width {
        UNBOUNDED => (i64::MIN, i64::MAX),
        width => (start, start.saturating_add(width)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn width(ticks: &[i64], now: Option<i64>, chosen: Option<Duration>) -> i64 {
        choose_width(ticks.iter().copied(), Unit::Second, now, chosen)
    }

    #[test]
    fn the_ladder_nests() {
        assert!(LADDER.windows(2).all(|pair| pair[1] % pair[0] == 0));
    }

    #[test]
    fn rows_of_a_few_hours_get_windows_of_an_hour_and_those_of_years_wider_ones() {
        assert_eq!(width(&[0, 5 * HOUR], None, None), HOUR);
        let daily: Vec<i64> = (0..100).map(|day| day * DAY).collect();
        assert_eq!(width(&daily, None, None), 7 * DAY);
        let yearly: Vec<i64> = (0..300).map(|year| year * 365 * DAY).collect();
        assert_eq!(width(&yearly, None, None), 100 * 364 * DAY);
        let outliers = [i64::MIN, 0, i64::MAX];
        assert_eq!(width(&outliers, None, None), HOUR, "what counts is windows that have rows");
    }

    #[test]
    fn a_width_only_ever_widens() {
        assert_eq!(width(&[0], Some(DAY), None), DAY);
        let daily: Vec<i64> = (0..100).map(|day| day * DAY).collect();
        assert_eq!(width(&daily, Some(HOUR), None), 7 * DAY);
        assert_eq!(width(&[0], Some(DAY), Some(Duration::from_secs(60))), DAY);
        let chosen = Some(Duration::from_secs(60));
        assert_eq!(width(&[0, 60, 120], None, chosen), 60);
        let minutes: Vec<i64> = (0..1000).map(|minute| minute * 60).collect();
        assert_eq!(width(&minutes, None, chosen), 240);
    }

    #[test]
    fn windows_hold_their_ticks_at_both_ends_of_time() {
        for tick in [i64::MIN, -1, 0, 1, HOUR, i64::MAX] {
            for width in [HOUR, UNBOUNDED] {
                let (first, end) = window(start(tick, width), width);
                assert!(first <= tick && (tick < end || end == i64::MAX), "{tick} {width}");
            }
        }
    }
}
