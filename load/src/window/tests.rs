//! Rates from reports that come in order, late, twice, or not at all.

use super::*;

const START: u64 = 1_000_000_000;

fn report(term: u64, since_ms: u64, at_ms: u64, busy_share: f64) -> PartitionReport {
    let lived = (at_ms - since_ms) as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a test's own numbers"
    )]
    let busy_ns = (lived * 1e6 * busy_share) as u64;
    let counters = Counters {
        busy_ns,
        write_rows: busy_ns / 10_000,
        write_batches: busy_ns / 1_000_000,
        ..Counters::default()
    };
    PartitionReport {
        partition: PartitionId(1),
        term,
        since_ms,
        at_ms,
        counters,
        size_bytes: 5 << 20,
        queue_depth: 0,
    }
}

fn near(a: f64, b: f64, off: f64) {
    assert!((a - b).abs() <= off, "{a} is not {b}");
}

#[test]
fn a_steady_load_is_seen_as_it_is() {
    let mut window = Window::default();
    for second in 1..=60 {
        let at = START + second * 1_000;
        assert!(window.accept(at, &report(3, START, at, 0.6)).is_some());
    }
    let rates = window.rates(START + 60_000);
    near(rates.rho_10, 0.6 * (1.0 - 2f64.powi(-6)), 1e-3);
    near(rates.rho_60, 0.3, 1e-3);
    near(rates.rho_max, 0.6, 1e-3);
    near(rates.write_rows, 60_000.0 * (1.0 - 2f64.powi(-6)), 100.0);
    assert_eq!(window.hot_seconds(), 10);
    assert_eq!(rates.size_bytes, 5 << 20);
}

#[test]
fn a_lane_that_is_busy_in_jerks_is_as_busy_as_it_is() {
    let mut window = Window::default();
    for second in 1..=90_u64 {
        let at = START + second * 1_000;
        let steady = report(3, START, at, 0.95);
        // An operation of five seconds is counted when it ends.
        let ended = report(3, START, START + second / 5 * 5_000 + 1, 0.95).counters;
        window.accept(at, &PartitionReport { counters: ended, ..steady });
    }
    let rates = window.rates(START + 90_000);
    near(rates.rho_10, 0.95, 0.05);
    near(rates.write_rows / rates.rho_10, 100_000.0, 20_000.0);
    assert_eq!(window.hot_seconds(), 10);
}

#[test]
fn what_is_counted_at_once_is_not_busy_for_ever() {
    let mut window = Window::default();
    let (mut work, mut hottest) = (0.0, 0);
    for second in 1..=40_u64 {
        let at = START + second * 1_000;
        // A minute, in the first second.
        let once = report(3, START, START + 60_000, 1.0).counters;
        let span =
            window.accept(at, &PartitionReport { counters: once, ..report(3, START, at, 0.0) });
        work += span.unwrap().work_s;
        hottest = hottest.max(window.hot_seconds());
    }
    assert!(hottest < crate::split::HOT_SECONDS_MIN, "one stall is no hotspot: {hottest} s");
    near(work, 1.0 + SURPLUS_MAX_S, 1e-3);
    assert_eq!(window.hot_seconds(), 0);
}

#[test]
fn a_lost_report_loses_nothing_and_a_late_one_adds_nothing() {
    let mut all = Window::default();
    let mut some = Window::default();
    let (mut work_all, mut work_some) = (0.0, 0.0);
    let mut stale = Vec::new();
    for second in 1..=40_u64 {
        let at = START + second * 1_000;
        let now = report(3, START, at, 0.5);
        work_all += all.accept(at, &now).expect("in order").work_s;
        if second % 4 == 0 {
            work_some += some.accept(at, &now).expect("in order").work_s;
            for late in stale.drain(..) {
                assert!(some.accept(at, &late).is_none());
            }
            assert!(some.accept(at, &now).is_none(), "twice");
        } else {
            stale.push(now);
        }
    }
    near(work_all, work_some, 1e-6);
    near(all.rho_10(), some.rho_10(), 1e-3);
}

#[test]
fn a_new_term_or_a_restart_counts_from_zero_and_old_leaders_are_not_heard() {
    let mut window = Window::default();
    let at = |second: u64| START + second * 1_000;
    for second in 1..=10 {
        window.accept(at(second), &report(3, START, at(second), 0.9));
    }
    let before = window.rho_10();
    let span = window.accept(at(12), &report(4, at(10), at(12), 0.25)).expect("a new term");
    near(span.work_s, 0.5, 1e-6);
    assert!(window.rho_10() < before && window.rho_10() > 0.0);
    assert!(window.accept(at(13), &report(3, START, at(13), 0.9)).is_none());
    let span = window.accept(at(15), &report(4, at(14), at(15), 0.5)).expect("a restart");
    near(span.work_s, 0.5, 1e-6);
    assert!(window.accept(at(16), &report(4, at(10), at(16), 0.5)).is_none());
}

#[test]
fn the_maximum_leaves_after_five_minutes() {
    let mut window = Window::default();
    let at = |second: u64| START + second * 1_000;
    window.accept(at(1), &report(3, at(0), at(1), 0.8));
    for second in 2..=400 {
        window.accept(at(second), &report(3, at(1), at(second), 0.1));
        let max = window.rho_max(at(second));
        if second <= 250 {
            near(max, 0.8, 1e-3);
        } else if second > 301 {
            near(max, 0.1, 1e-3);
        }
    }
    near(window.rho_max(at(400) + 299_000), 0.1, 0.11);
    near(window.rho_max(at(800)), 0.0, 1e-9);
}

#[test]
fn a_report_after_a_very_long_gap_starts_anew() {
    let mut window = Window::default();
    let at = START + GAP_MAX_MS * 2;
    assert_eq!(window.accept(at, &report(3, START, at, 0.9)), Some(Span { work_s: 0.0 }));
    near(window.rho_10(), 0.0, 1e-9);
    assert!(
        window.accept(at + 1_000, &report(3, START, at + 1_000, 0.9)).expect("next").work_s > 0.8
    );
}

#[test]
fn counters_may_wrap_where_they_are_kept() {
    let mut window = Window::default();
    // So long it takes to count that much.
    let mut first = report(3, START, START + 4_294_968, 0.5);
    first.counters.write_rows = u64::from(u32::MAX) - 10;
    first.counters.busy_ns = u64::from(u32::MAX) * 1_000 - 1_000;
    window.accept(first.at_ms, &first);
    let mut next = first;
    next.at_ms += 1_000;
    next.counters.write_rows += 100;
    next.counters.busy_ns += 250_000_000;
    near(window.accept(next.at_ms, &next).expect("next").work_s, 0.25, 1e-5);
}

#[test]
fn requests_turned_away_make_a_second_hot() {
    let mut window = Window::default();
    let mut now = report(3, START, START + 1_000, 0.1);
    now.counters.write_batches = 98;
    now.counters.rejected = 2;
    window.accept(now.at_ms, &now);
    assert_eq!(window.hot_seconds(), 1);
    assert!(window.pressure() > 0.0);
}

#[test]
fn reads_and_what_is_refused_or_delayed_are_told_apart() {
    let mut window = Window::default();
    for second in 1..=60 {
        let mut now = report(3, START, START + second * 1_000, 0.1);
        now.counters.scan_ns = second * 700_000_000;
        now.counters.write_batches = second * 75;
        now.counters.rejected = second * 25;
        now.counters.throttled_ns = second * 500_000_000;
        window.accept(now.at_ms, &now);
    }
    let rates = window.rates(START + 60_000);
    near(rates.reads_10, 0.7, 0.02);
    near(rates.reads_60, 0.35, 0.01);
    near(rates.write_batches, 75.0, 2.0);
    near(rates.turned_away, 0.25, 0.01);
    near(rates.held_back, 0.5, 0.01);
    assert_eq!(rates.hot_seconds, 10);
    near(window.busy_10(), rates.reads_10, 1e-9);
    // Both parts of a split have their share.
    let right = window.cut(0.75, 0.5).rates(START + 60_000);
    near(right.write_batches, 0.25 * rates.write_batches, 1e-3);
    near(right.reads_10, 0.25 * rates.reads_10, 1e-3);
}

#[test]
fn a_window_stays_small() {
    assert!(size_of::<Window>() <= 150, "{}", size_of::<Window>());
}
