//! A week with a peak at nine: partitions are there before it from the third day on.
//!
//! The page is printed (`cargo test -p partita-hotspot --test hotspot week -- --nocapture`).

use partita_hotspot::week::{Day, days, page};

/// Splits ahead of peaks in some days, and those of them that were useless.
fn cuts(days: &[Day]) -> (u64, u64) {
    days.iter().fold((0, 0), |sums, day| (sums.0 + day.cuts_ahead, sums.1 + day.useless()))
}

#[test]
#[allow(clippy::print_stdout, reason = "the page is what the test is for")]
fn a_daily_peak_is_met_from_the_third_day_on() {
    let week = days(7, &[], true, 1);
    println!("{}", page(&week));
    for day in &week[..2] {
        assert!(day.forecasts.is_empty(), "{day:?}");
        assert_eq!((day.partitions, day.cuts_ahead), (1, 0), "{day:?}");
        assert!(day.cuts_by_load >= 3 && day.served < 0.99, "{day:?}");
    }
    for day in &week[2..] {
        assert!(day.partitions >= 4 && day.served > 0.99, "{day:?}");
        // Partitions that were cut again after a merge are kept for longer: those of the second day may still be there.
        let is_kept = day.day == 3 && week[1].merges == 0;
        assert!(is_kept || (day.forecasts.len() == 1 && day.cuts_ahead >= 3), "{day:?}");
        assert!(day.merges >= 3, "the partitions are given up after the peak: {day:?}");
    }
    let (ahead, useless) = cuts(&week);
    assert!(useless * 20 <= ahead, "{useless} of {ahead} cuts were useless");
}

#[test]
fn a_holiday_costs_the_cuts_of_its_day() {
    let week = days(7, &[5], true, 2);
    println!("{}", page(&week));
    let confidence = |day: usize| week[day - 1].forecasts[0].confidence;
    assert!(week[4].is_holiday && week[4].useless() > 0);
    assert_eq!(cuts(&week).1, week[4].useless(), "no other day has useless cuts");
    assert!(confidence(6) < confidence(5), "{} {}", confidence(5), confidence(6));
    assert!(week[5].cuts_ahead >= 3 && week[5].served > 0.99, "{:?}", week[5]);
}

#[test]
fn without_the_forecast_each_day_is_cut_when_the_peak_is_there() {
    let week = days(3, &[], false, 1);
    println!("{}", page(&week));
    assert!(week.iter().all(|day| day.forecasts.is_empty() && day.cuts_ahead == 0));
}
