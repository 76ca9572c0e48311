//! Claims about key designs.

use partita_hotspot::cluster::{Cluster, Options, Policy};
use partita_hotspot::metrics::Summary;
use partita_hotspot::report::advice;
use partita_hotspot::workload::{Design, Knobs, find};
use partita_load::{Class, Remedy};

use crate::{cluster, knobs, outcome};

#[test]
fn time_first_stays_one_hotspot_and_is_named_within_twenty_seconds() {
    for seed in 1..=3 {
        let mut cluster = cluster("W1", &knobs(Design::TsUid), Policy::Ours, seed);
        cluster.run(240);
        let summary = Summary::of(&cluster);
        assert!(summary.n_eff <= 1.05, "seed {seed}: {}", summary.n_eff);
        assert_eq!(summary.load_splits_after_moving, 0, "seed {seed}");
        assert_eq!(summary.last.splits_load, 0, "seed {seed}");
        assert!(
            summary.t_verdict_s.is_some_and(|second| second <= 20),
            "seed {seed}: {:?}",
            summary.t_verdict_s
        );
        let classes: Vec<Class> = summary.verdicts.keys().copied().collect();
        assert_eq!(classes, [Class::MovingRight], "seed {seed}");
        let (ddl, best) = advice(&cluster).into_iter().next().unwrap();
        assert!(!best.is_today && best.carries, "seed {seed}: {best:?}");
        assert!(ddl.starts_with("CREATE TABLE events_new (") && ddl.ends_with(';'), "{ddl}");
    }
}

#[test]
fn newest_first_is_the_mirror_image() {
    let summary = outcome("W8", &knobs(Design::TsUid), Policy::Ours, 120);
    assert!(summary.n_eff <= 1.05 && summary.last.splits_load == 0, "{summary:?}");
    assert!(summary.verdicts.contains_key(&Class::MovingLeft), "{:?}", summary.verdicts);
}

#[test]
fn buckets_for_what_is_new_carry_the_load_within_a_minute_of_the_verdict() {
    let mut loads = find("W1").unwrap().tables(&knobs(Design::TsUid));
    loads[0].facts.remedy = Remedy::Auto;
    let mut cluster = Cluster::new(Options { nodes: 10, ..Options::default() }, loads);
    cluster.run(180);
    let summary = Summary::of(&cluster);
    let (_, buckets) = summary.rekeyed.expect("buckets were given");
    assert!(summary.served_share >= 0.95, "{summary:?}");
    let (verdict, served) = (summary.t_verdict_s.unwrap(), summary.t95_s.unwrap());
    assert!(served <= verdict + 60, "{served} {verdict}");
    assert!(summary.n_eff >= 0.95 * f64::from(buckets), "{} of {buckets}", summary.n_eff);
}

#[test]
fn a_table_that_is_left_to_cure_itself_does_and_is_read_in_both_places() {
    for seed in 1..=3 {
        let mut cluster = cluster("W1", &knobs(Design::TsUidAuto), Policy::Ours, seed);
        cluster.run(180);
        let summary = Summary::of(&cluster);
        let (cured, buckets) = summary.rekeyed.expect("buckets were given");
        let (verdict, served) = (summary.t_verdict_s.unwrap(), summary.t95_s.unwrap());
        assert!((verdict + 30..verdict + 40).contains(&cured), "{cured} {verdict}");
        assert!(served <= verdict + 60, "{served} {verdict}");
        assert!(summary.served_share >= 0.99, "{summary:?}");
        assert!(summary.n_eff >= 0.95 * f64::from(buckets), "{} of {buckets}", summary.n_eff);
        assert_eq!(summary.last.splits_load, 0, "no cut helps before, and none is needed after");
        // A user's rows are in one of the buckets, and anywhere in what was there before; the last minutes are in all of
        // the buckets, and in the last partition from before.
        let fan_out = summary.fan_out.unwrap();
        assert_eq!(fan_out.mean[0], 9.0, "{fan_out:?}");
        assert_eq!(fan_out.mean[1], f64::from(buckets) + 1.0, "{fan_out:?}");
    }
}

#[test]
fn a_hash_of_the_whole_key_uses_all_partitions() {
    let summary = outcome("W1", &knobs(Design::HashAll), Policy::Ours, 60);
    assert!(
        summary.n_eff >= 0.95 * summary.partitions as f64,
        "{} of {}",
        summary.n_eff,
        summary.partitions
    );
    assert!(summary.served_share >= 0.99);
}

#[test]
fn others_split_a_growing_key_in_vain_and_we_do_not() {
    // CockroachDB's finder would refuse keys in perfect order; 50 ms of disorder among the writers mislead it.
    for policy in [Policy::YdbLike, Policy::TikvLike, Policy::CrdbLike] {
        let summary = outcome("W1", &knobs(Design::TsUid), policy, 200);
        assert!(summary.last.splits_in_vain >= 1, "{}: {:?}", policy.name(), summary.last);
        assert!(summary.n_eff <= 1.05 && summary.served_share < 0.5, "{}", policy.name());
    }
}

#[test]
fn loads_that_stay_are_split_usefully() {
    // One partition to begin with, three lanes offered: it has to be cut, and each cut has to help.
    let mut judged = 0;
    for (name, design) in [
        ("W1", Design::UidTs),
        ("W1", Design::HashUid),
        ("W1", Design::HashAll),
        ("W6", Design::UidTs),
        ("W6:uniform", Design::UidTs),
        ("W6:hotspot", Design::UidTs),
        ("W6:scans", Design::UidTs),
        ("W7:range", Design::UidTs),
        ("W7:two", Design::UidTs),
    ] {
        for seed in 1..=2 {
            let knobs = Knobs { partitions: 1, ..knobs(design) };
            let mut cluster = cluster(name, &knobs, Policy::Ours, seed);
            cluster.run(300);
            let summary = Summary::of(&cluster);
            assert!(summary.last.splits_load >= 1, "{name} {} seed {seed}", design.name());
            assert_eq!(summary.last.splits_in_vain, 0, "{name} {} seed {seed}", design.name());
            judged += cluster.books().outcomes.len();
        }
    }
    assert!(judged >= 25, "{judged}");
}

#[test]
fn days_and_nights_do_not_make_partitions_flap() {
    let knobs = Knobs { partitions: 1, rate: 40_000.0, day_s: 6 * 3_600, ..knobs(Design::UidTs) };
    let mut loads = find("W10").unwrap().tables(&knobs);
    // Rows of next to nothing, so that only load cuts, and small neighbours may be merged at night.
    loads[0].row_bytes = 0.01;
    let mut cluster = Cluster::new(Options { nodes: 10, ..Options::default() }, loads);
    cluster.run(13 * 3_600);
    let last = Summary::of(&cluster).last;
    assert!(last.splits_load >= 1, "{last:?}");
    assert_eq!((last.flaps, last.splits_in_vain), (0, 0), "{last:?}");
}

#[test]
fn many_lukewarm_partitions_on_one_node_are_spread_though_none_is_hot() {
    // Forty partitions of 0.1 lanes each, all led by one of ten nodes with four cores.
    let knobs = Knobs { partitions: 40, rate: 40.0 * 0.1 * 20_000.0, ..knobs(Design::UidTs) };
    let mut cluster = cluster("W13", &knobs, Policy::Ours, 1);
    cluster.run(1_800);
    let summary = Summary::of(&cluster);
    assert_eq!(summary.t_detect_s, None, "no partition is hot");
    let first = &cluster.books().seconds[0];
    assert!(first.node_max_over_mean > 4.0, "{}", first.node_max_over_mean);
    assert!(summary.node_max_over_mean <= 1.25, "{}", summary.node_max_over_mean);
    assert_eq!(summary.last.splits_load, 0);
}

#[test]
fn a_single_hot_key_is_named() {
    let knobs = Knobs { partitions: 4, rate: 30_000.0, ..knobs(Design::UidTs) };
    let summary = outcome("W7", &knobs, Policy::Ours, 240);
    assert!(summary.verdicts.contains_key(&Class::HotKey), "{:?}", summary.verdicts);
    assert_eq!(summary.last.splits_in_vain, 0);
}

#[test]
fn reading_by_user_costs_what_the_design_says() {
    let by_user = |design| {
        let summary = outcome("W1", &Knobs { rate: 1_000.0, ..knobs(design) }, Policy::Ours, 5);
        (summary.fan_out.unwrap().mean[0], summary.partitions)
    };
    assert_eq!(by_user(Design::TsUid), (8.0, 8));
    assert_eq!(by_user(Design::UidTs), (1.0, 8));
    assert_eq!(by_user(Design::HashUid), (1.0, 8));
    assert_eq!(by_user(Design::HashAll), (8.0, 8));
}

/// A cluster whose clients retry requests that were not served.
fn patient(design: Design, rate: f64) -> Cluster {
    let options =
        Options { nodes: 3, lane_rows_per_s: 1_000.0, patient: true, ..Options::default() };
    Cluster::new(options, find("W1").unwrap().tables(&Knobs { rate, ..knobs(design) }))
}

#[test]
fn who_is_patient_waits_ever_longer_for_one_partition_and_is_served_once_there_are_more() {
    let mut cluster = patient(Design::TsUidAuto, 3_000.0);
    cluster.run(120);
    let summary = Summary::of(&cluster);
    let (cured, _) = summary.rekeyed.expect("buckets were given");
    let seconds = &cluster.books().seconds;
    let second_at = |number: u64| seconds.iter().find(|second| second.second == number).unwrap();
    let (early, late, recovered) = (second_at(10), second_at(cured - 1), second_at(cured + 10));
    assert!(early.served <= 1_000.0 && late.served <= 1_000.0, "{} {}", early.served, late.served);
    assert!(late.p50_ms > 2.0 * early.p50_ms && early.p50_ms > 1_000.0, "{}", late.p50_ms);
    // Requests that were held back come in addition.
    assert_eq!(recovered.offered, 3_000.0);
    assert!(recovered.served > 4_000.0, "{}", recovered.served);
    let last = seconds.last().unwrap();
    assert!(last.served <= 3_000.1 && last.p50_ms < 100.0, "{} {}", last.served, last.p50_ms);
    let (demanded, got): (f64, f64) = (
        seconds.iter().map(|second| second.offered).sum(),
        seconds.iter().map(|second| second.served).sum(),
    );
    assert!((demanded - got).abs() < 1.0, "nothing is given up: {demanded} {got}");
}

#[test]
fn a_full_partition_holds_up_patient_clients_of_the_others() {
    // Of eight partitions of skewed users, one has a far higher demand than the others.
    let knobs = Knobs { theta: 0.99, ..knobs(Design::UidTs) };
    let run = |patient: bool| {
        let knobs = Knobs { rate: 9_000.0, ..knobs.clone() };
        let mut loads = find("W1").unwrap().tables(&knobs);
        loads[0].facts.by_load = false;
        let options =
            Options { cores: 16.0, lane_rows_per_s: 1_000.0, patient, ..Options::default() };
        let mut cluster = Cluster::new(options, loads);
        cluster.run(30);
        cluster.books().seconds.last().unwrap().clone()
    };
    let (patient, hasty) = (run(true), run(false));
    let busiest = |second: &partita_hotspot::metrics::Second| second.shares[0] * second.served;
    assert!((busiest(&patient) - 1_000.0).abs() < 1.0 && (busiest(&hasty) - 1_000.0).abs() < 1.0);
    assert!(patient.served < 0.9 * hasty.served, "{} {}", patient.served, hasty.served);
    assert!(patient.max_over_mean > hasty.max_over_mean, "shares are those of what is asked");
}
