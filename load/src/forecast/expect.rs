//! What the last days let expect of the next half hour.
//!
//! ```text
//!   days ago:      14 ... 7 ... 3  2  1     now
//!   peak there?     1     1     1  0  1  ──▶ by days: 0.73   by weekdays: 1.0   the one with fewer mistakes last week
//! ```
//!
//! Two habits are compared: the last days, newer ones counting more, and the same weekday of the last two weeks. Each
//! would have said something about every day of the last week; the weekday is believed where it would have been wrong
//! less often, as at a weekend.
//!
//! Invariants: pure functions of a profile; nothing is expected from a single day.

use std::ops::Range;

use super::profile::{DAY_SLOTS, DAYS_KEPT, Profile, SLOT_MS};

/// Time before a peak from which on it is expected: 60 splits at two a minute.
pub const LEAD_MS: u64 = 30 * 60_000;
/// Load that makes a peak, cores: that of a hot partition.
pub const PEAK_MIN: f64 = 0.5;
/// Confidence from which a peak is expected.
pub const LIKELY: f64 = 0.6;
/// Minimum days of a habit.
const DAYS_MIN: u32 = 2;
/// Weight of a day relative to the one after it.
const FADE: f64 = 0.8;
/// Days by which the two habits are compared.
const COMPARED_DAYS: u64 = 7;
const WEEK_DAYS: u64 = 7;
/// Share of [`PEAK_MIN`] below which a peak has ended.
const ENDED_SHARE: f64 = 0.5;
/// Maximum slots of a peak: half a day.
const SLOTS_MAX: u64 = DAY_SLOTS / 2;
/// First slots of a peak, by which its load is divided.
const DIVIDED_SLOTS: u64 = 4;
/// Maximum share of the busier part of a cut: the same as for splits by load with little gain.
const CUT_SHARE_MAX: f64 = 0.8;

/// A peak that is expected on a range of keys.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Peak {
    /// Begin, milliseconds.
    pub(super) from_ms: u64,
    /// End, milliseconds.
    pub(super) until_ms: u64,
    /// Greatest load, cores.
    pub(super) load: f64,
    /// Share of the days that had the peak, newer ones weighing more: 0 to 1.
    pub(super) confidence: f64,
    /// Days behind the forecast.
    pub(super) days: u32,
    /// Where to cut, with the busier part's share; `None` if no bound inside is known that divides the load.
    pub(super) cut: Option<(Box<[u8]>, f64)>,
}

/// Evidence of past days about a slot.
struct Habit {
    confidence: f64,
    days: u32,
    /// Days ago on which the peak was there, with weights.
    hits: Vec<(u64, f64)>,
}

/// Weighted days: those with the peak, and all of them.
fn weighed(days: impl Iterator<Item = (u64, f64)>) -> Habit {
    let (mut weight, mut total, mut hit, mut count) = (1.0, 0.0, 0.0, 0);
    let mut hits = Vec::new();
    for (ago, load) in days {
        total += weight;
        if load >= PEAK_MIN {
            hit += weight;
            hits.push((ago, weight));
        }
        count += 1;
        weight *= FADE;
    }
    Habit { confidence: if total > 0.0 { hit / total } else { 0.0 }, days: count, hits }
}

/// The habit of the days before the one that was `ago` days ago.
fn by_days(observed: &[(u64, f64)], ago: u64) -> Option<Habit> {
    let habit = weighed(observed.iter().copied().filter(|(day, _)| *day > ago));
    (habit.days >= DAYS_MIN).then_some(habit)
}

/// The habit of the weekday of the day that was `ago` days ago.
fn by_weekday(observed: &[(u64, f64)], ago: u64) -> Option<Habit> {
    let is_same = |day: u64| day > ago && (day - ago).is_multiple_of(WEEK_DAYS);
    let habit = weighed(observed.iter().copied().filter(|(day, _)| is_same(*day)));
    (habit.days > 0).then_some(habit)
}

/// The habit that is to be believed about today.
fn habit(observed: &[(u64, f64)]) -> Option<Habit> {
    let (daily, weekly) = (by_days(observed, 0)?, by_weekday(observed, 0));
    let (mut by_day, mut by_week) = (0_u32, 0_u32);
    for (ago, load) in observed.iter().filter(|(ago, _)| *ago <= COMPARED_DAYS) {
        let answers = by_days(observed, *ago).zip(by_weekday(observed, *ago));
        let Some((daily, weekly)) = answers else { continue };
        let is_wrong = |habit: &Habit| (habit.confidence >= LIKELY) != (*load >= PEAK_MIN);
        by_day += u32::from(is_wrong(&daily));
        by_week += u32::from(is_wrong(&weekly));
    }
    match weekly {
        Some(weekly) if by_week < by_day => Some(weekly),
        _ => Some(daily),
    }
}

/// The days before today on which a slot was observed, newest first, each with its load.
fn observed(profile: &Profile, cells: &Range<usize>, slot: u64) -> Vec<(u64, f64)> {
    let on_day = |ago: u64| {
        let load = profile.sum(cells.clone(), slot.checked_sub(ago * DAY_SLOTS)?)?;
        Some((ago, load))
    };
    (1..DAYS_KEPT).filter_map(on_day).collect()
}

/// Mean of a slot's load over weighted days, as `load_at` reads it.
fn mean(hits: &[(u64, f64)], slot: u64, load_at: impl Fn(u64) -> Option<f64>) -> f64 {
    let (mut sum, mut total) = (0.0, 0.0);
    for (ago, weight) in hits {
        let load = slot.checked_sub(ago * DAY_SLOTS).and_then(&load_at).unwrap_or(0.0);
        sum += load * weight;
        total += weight;
    }
    if total > 0.0 { sum / total } else { 0.0 }
}

/// The next peak of a partition within [`LEAD_MS`], if one is to be expected.
pub(super) fn peak(
    profile: &Profile,
    now_ms: u64,
    start: &[u8],
    end: Option<&[u8]>,
) -> Option<Peak> {
    let cells = profile.exactly(start, end)?;
    let likely = |slot: u64| {
        let habit = habit(&observed(profile, &cells, slot))?;
        (habit.confidence >= LIKELY).then_some((slot, habit))
    };
    let (next, last) = (now_ms / SLOT_MS + 1, (now_ms + LEAD_MS) / SLOT_MS);
    let (first, habit) = (next..=last).find_map(likely)?;
    let expected = |slot: u64| mean(&habit.hits, slot, |slot| profile.sum(cells.clone(), slot));
    let lasts = |slot: &u64| expected(*slot) >= PEAK_MIN * ENDED_SHARE;
    let slots = (first..first + SLOTS_MAX).take_while(lasts).count() as u64;
    let end_slot = first + slots.max(1);
    let load = (first..end_slot).map(expected).fold(0.0, f64::max);
    // Where a cut would have divided the first hour of the peak on each of these days.
    let divided = first..end_slot.min(first + DIVIDED_SLOTS);
    let loads_of = |ago: u64| -> Vec<f64> {
        let in_slot = |cell: usize, slot: u64| profile.at(cell, slot.checked_sub(ago * DAY_SLOTS)?);
        let load =
            |cell: usize| divided.clone().filter_map(|slot| in_slot(cell, slot)).sum::<f64>();
        cells.clone().map(load).collect()
    };
    let days: Vec<(Vec<f64>, f64)> =
        habit.hits.iter().map(|(ago, weight)| (loads_of(*ago), *weight)).collect();
    let cut = best_cut(&days).filter(|(_, share)| *share <= CUT_SHARE_MAX);
    Some(Peak {
        from_ms: first * SLOT_MS,
        until_ms: end_slot * SLOT_MS,
        load,
        confidence: habit.confidence,
        days: habit.days,
        cut: cut.map(|(place, share)| (profile.start(cells.start + place).into(), share)),
    })
}

/// The place that divides the loads of weighted days best, with the greater share: the mean of those of each day, because
/// a peak that moves looks divided on average only.
fn best_cut(days: &[(Vec<f64>, f64)]) -> Option<(usize, f64)> {
    let places = days.first()?.0.len();
    let larger_share = |place: usize| {
        let (mut sum, mut total) = (0.0, 0.0);
        for (loads, weight) in days {
            let load: f64 = loads.iter().sum();
            if load > 0.0 {
                let share = loads[..place].iter().sum::<f64>() / load;
                sum += share.max(1.0 - share) * weight;
                total += weight;
            }
        }
        if total > 0.0 { sum / total } else { 1.0 }
    };
    let shares = (1..places).map(|place| (place, larger_share(place)));
    shares.min_by(|a, b| a.1.total_cmp(&b.1))
}

/// Mean load of a partition in a slot of the last days, however sure.
pub(super) fn usual(profile: &Profile, slot: u64, start: &[u8], end: Option<&[u8]>) -> f64 {
    let Some(cells) = profile.exactly(start, end) else { return 0.0 };
    let days = weighed(observed(profile, &cells, slot).into_iter().map(|(ago, _)| (ago, PEAK_MIN)));
    mean(&days.hits, slot, |slot| profile.sum(cells.clone(), slot))
}

#[cfg(test)]
mod tests {
    use super::super::profile::RangeLoad;
    use super::*;

    /// Nine o'clock, as a slot of the day.
    const NINE: u64 = 36;
    const HALF_PAST_EIGHT: u64 = NINE - 2;

    /// A profile of one day after the other, each with a peak of two hours on two equal ranges or without.
    fn profile(days: &[bool]) -> Profile {
        let mut profile = Profile::default();
        for (day, peaks) in (0..).zip(days) {
            for slot in 0..DAY_SLOTS {
                let is_peak = *peaks && (NINE..NINE + 8).contains(&slot);
                let load = if is_peak { 0.8 } else { 0.0 };
                let loads = [RangeLoad { start: b"", load }, RangeLoad { start: b"m", load }];
                profile.observe((day * DAY_SLOTS + slot) * SLOT_MS, &loads);
            }
        }
        profile
    }

    fn today(profile: &Profile, day: u64, slot: u64) -> Option<Peak> {
        peak(profile, (day * DAY_SLOTS + slot) * SLOT_MS, b"", None)
    }

    #[test]
    fn two_days_make_a_habit_and_one_does_not() {
        assert_eq!(today(&profile(&[true]), 1, HALF_PAST_EIGHT), None);
        let profile = profile(&[true, true]);
        assert_eq!(today(&profile, 2, HALF_PAST_EIGHT - 1), None, "too early");
        let peak = today(&profile, 2, HALF_PAST_EIGHT).unwrap();
        let nine = (2 * DAY_SLOTS + NINE) * SLOT_MS;
        assert_eq!((peak.from_ms, peak.until_ms), (nine, nine + 8 * SLOT_MS));
        assert!((peak.load - 1.6).abs() < 1e-6, "{peak:?}");
        assert_eq!((peak.confidence, peak.days), (1.0, 2));
        let (key, share) = peak.cut.unwrap();
        assert_eq!(&*key, b"m");
        assert!((share - 0.5).abs() < 1e-6);
    }

    #[test]
    fn a_day_without_the_peak_makes_it_less_sure() {
        let sure = today(&profile(&[true; 5]), 5, HALF_PAST_EIGHT).unwrap();
        let holiday = [true, true, true, true, true, false];
        let less = today(&profile(&holiday), 6, HALF_PAST_EIGHT).unwrap();
        assert!(less.confidence < sure.confidence && less.confidence >= LIKELY, "{less:?}");
        // Of two days one is no habit.
        assert_eq!(today(&profile(&[true, false]), 2, HALF_PAST_EIGHT), None);
        // And a peak that has stayed away for a while is not expected any more.
        let gone = [true, true, true, true, false, false, false];
        assert_eq!(today(&profile(&gone), 7, HALF_PAST_EIGHT), None);
    }

    #[test]
    fn weekends_are_known_after_a_week() {
        let week = [true, true, true, true, true, false, false];
        let fortnight = [&week[..], &week[..]].concat();
        // The second Saturday, and the third Monday after two days without a peak.
        assert_eq!(today(&profile(&fortnight[..12]), 12, HALF_PAST_EIGHT), None);
        let monday = today(&profile(&fortnight), 14, HALF_PAST_EIGHT).unwrap();
        assert_eq!(monday.confidence, 1.0);
    }

    #[test]
    fn cuts_divide_as_well_as_known_bounds_allow() {
        let cut = |days: &[&[f64]]| {
            best_cut(&days.iter().map(|loads| (loads.to_vec(), 1.0)).collect::<Vec<_>>())
        };
        assert_eq!(cut(&[]), None);
        assert_eq!(cut(&[&[1.0]]), None);
        assert_eq!(cut(&[&[0.0, 0.0]]), Some((1, 1.0)));
        assert_eq!(cut(&[&[1.0, 1.0, 2.0]]), Some((2, 0.5)));
        assert_eq!(cut(&[&[0.0, 4.0]]), Some((1, 1.0)));
        // Half of the load on average, and all of it each day.
        assert_eq!(cut(&[&[4.0, 0.0], &[0.0, 4.0]]), Some((1, 1.0)));
    }

    #[test]
    fn a_partition_of_unknown_bounds_expects_nothing() {
        let profile = profile(&[true, true]);
        let now_ms = (2 * DAY_SLOTS + HALF_PAST_EIGHT) * SLOT_MS;
        assert_eq!(peak(&profile, now_ms, b"", Some(b"c")), None);
        assert!(peak(&profile, now_ms, b"m", None).is_some());
        let slot = 2 * DAY_SLOTS + NINE;
        assert!((usual(&profile, slot, b"m", None) - 0.8).abs() < 1e-6);
    }
}
