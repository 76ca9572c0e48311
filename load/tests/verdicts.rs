//! What a verdict promises, beyond the streams of the matrix: where cuts may lie, what counts as hot, what little data
//! says, and that nothing that a node sends makes the judge fail.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without, it fails by")]

use std::sync::Arc;

use partita_hotspot::picker::{Detector, Picker};
use partita_hotspot::streams::{Kind, Op, SECOND_US, all, prefix_ends};
use partita_load::{
    Class, Columns, DetectOptions, Evidence, Random, Sample, Sketch, Tick, Verdict, classify,
    confirm, mix, of_reads,
};

const PAIR: &[usize] = &[8, 8];
const TIME_SECOND: DetectOptions =
    DetectOptions { keep_together: 0, placement: 0, time_column: Some(1) };

/// The last verdict on a kind of stream after some seconds.
fn verdict_on(kind: &Kind, options: DetectOptions, seed: u64, seconds: u64) -> Verdict {
    let widths = kind.columns;
    let columns: Columns = Arc::new(move |key| prefix_ends(widths, key));
    let mut detector = Detector::new(seed, columns, options);
    let mut stream = kind.stream(seed);
    let mut op = Op::default();
    for at in (0..seconds * SECOND_US).step_by(2_003) {
        if stream.draw(at, &mut op) {
            detector.observe(at, &op);
        }
    }
    detector.poll(seconds * SECOND_US);
    detector.verdicts().last().unwrap().clone()
}

fn key(first: u64, second: u64) -> Box<[u8]> {
    [first.to_be_bytes(), second.to_be_bytes()].concat().into()
}

fn sample(key: Box<[u8]>) -> Sample {
    Sample { key, end: None, above: false, below: false }
}

/// A sketch of `seconds` seconds whose samples are made from the second and their number.
fn sketch(seconds: u64, mut make: impl FnMut(u64, u64) -> Sample) -> Sketch {
    let tick = |second| Tick {
        second,
        count: 3_200,
        samples: (0..32).map(|number| make(second, number)).collect(),
    };
    Sketch { ticks: (0..seconds).map(tick).collect(), ..Sketch::default() }
}

fn judge(sketch: &Sketch, options: &DetectOptions) -> Verdict {
    classify(sketch, 20, &|key| prefix_ends(PAIR, key), options)
}

#[test]
fn a_cut_falls_where_a_column_ends_and_never_within_what_is_kept_together() {
    for kind in all() {
        for keep_together in 0..=kind.columns.len() {
            let options = DetectOptions { keep_together, ..kind.options };
            let verdict = verdict_on(&kind, options, 11, 20);
            let Some(cut) = verdict.cut else { continue };
            let ends = prefix_ends(kind.columns, &cut.key);
            assert_eq!(ends.last(), Some(&cut.key.len()), "{}: {cut:?}", kind.name);
            let together = if keep_together == 0 { usize::MAX } else { keep_together };
            assert!(ends.len() <= together, "{}: {cut:?}", kind.name);
            // Of a key of several columns the last one tells the rows of a series apart.
            let series = kind.columns.len().saturating_sub(1).max(1);
            assert!(ends.len() <= series, "{}: {cut:?}", kind.name);
        }
    }
}

#[test]
fn a_series_is_cut_only_if_it_is_hot_itself_and_its_load_stands_still() {
    let mut random = Random::new(5);
    // One user's history is read evenly.
    let history = sketch(20, |_, number| {
        let user = if number % 8 == 0 { random.bits() } else { 77 };
        sample(key(user, random.below(1_000_000)))
    });
    let verdict = judge(&history, &TIME_SECOND);
    assert_eq!(verdict.class, Class::StaticRange);
    let cut = verdict.cut.unwrap();
    assert!(cut.key.len() == 16 && cut.key.starts_with(&77_u64.to_be_bytes()), "{cut:?}");
    // The same, but that user may not be cut.
    let whole = judge(&history, &DetectOptions { keep_together: 1, ..TIME_SECOND });
    assert_eq!((whole.class, whole.cut), (Class::HotKey, None));
    assert_eq!(whole.hot_key.as_deref(), Some(&77_u64.to_be_bytes()[..]));
}

#[test]
fn a_key_that_is_hot_in_its_turn_only_is_no_hot_key() {
    let turns = sketch(20, |second, _| sample(key(second / 10, 0)));
    assert_ne!(judge(&turns, &DetectOptions::default()).class, Class::HotKey);
    let lasting = sketch(20, |_, _| sample(key(3, 0)));
    assert_eq!(judge(&lasting, &DetectOptions::default()).class, Class::HotKey);
}

#[test]
fn a_busy_second_weighs_more_than_a_quiet_one() {
    let mut random = Random::new(6);
    let mut mixed = sketch(20, |second, _| {
        sample(if second % 2 == 0 { key(500, 0) } else { key(random.below(1_000), 0) })
    });
    // Half of the samples are of one key, but they stand for nearly all operations, or for hardly any.
    for (busy, class) in [(0, Class::HotKey), (1, Class::StaticRange)] {
        for tick in &mut mixed.ticks {
            tick.count = if tick.second % 2 == busy { 100_000 } else { 32 };
        }
        assert_eq!(judge(&mixed, &DetectOptions::default()).class, class);
    }
}

#[test]
fn a_hash_bucket_is_no_hot_series_but_a_tenant_is() {
    // All rows bear the same first column, and grow.
    let tail = sketch(20, |second, number| Sample {
        above: second > 1,
        ..sample(key(7, second * 100 + number))
    });
    let bucket = DetectOptions { placement: 1, ..TIME_SECOND };
    assert_eq!(judge(&tail, &bucket).class, Class::MovingRight);
    let tenant = judge(&tail, &TIME_SECOND);
    assert_eq!(tenant.class, Class::HotKey);
    assert_eq!(tenant.hot_key.as_deref(), Some(&7_u64.to_be_bytes()[..]));
}

#[test]
fn a_hot_key_far_from_the_middle_is_cut_for_little_gain() {
    let mut random = Random::new(8);
    // 44 % on one key, the rest evenly on both sides of it: no cut does better than 0.72.
    let lump = sketch(60, |_, _| {
        sample(key(if random.chance(0.44) { 500 } else { random.below(1_000) }, 0))
    });
    let verdict = judge(&lump, &DetectOptions::default());
    assert_eq!(verdict.class, Class::StaticRange);
    let share = verdict.cut.unwrap().larger_share;
    assert!((0.68..0.80).contains(&share), "{share}");
}

#[test]
fn reads_that_no_cut_helps_are_hot_and_others_stay_as_they_are() {
    for class in Class::ALL {
        let verdict = Verdict {
            class,
            cut: None,
            divisions: Vec::new(),
            hot_key: Some(key(1, 2)),
            evidence: Evidence { p_out: 0.9, ..Evidence::default() },
        };
        let reads = of_reads(verdict.clone());
        let is_hot = matches!(class, Class::HotKey | Class::Unsplittable | Class::ReadHot)
            || class.is_spread_by_hash();
        assert_eq!(reads.class, if is_hot { Class::ReadHot } else { class });
        assert!(reads.evidence.reads && reads.hot_key == verdict.hot_key);
    }
    // The reason why reads are hot is a matter of name.
    let hot = |class| {
        let evidence = Evidence { reads: true, ..Evidence::default() };
        Verdict { class, cut: None, divisions: Vec::new(), hot_key: None, evidence }
    };
    let recent = [hot(Class::ReadHot), hot(Class::Sweep), hot(Class::HotKey)];
    assert_eq!(confirm(&recent).class, Class::HotKey);
}

#[test]
fn growth_between_known_keys_is_named_only_where_edges_are_known() {
    let growing = sketch(60, |second, number| sample(key(1_000, second * 32 + number)));
    let ends = |key: &[u8]| prefix_ends(&[16], key);
    let judge = |sketch: &Sketch| classify(sketch, 20, &ends, &DetectOptions::default()).class;
    let known = Sketch { edges: Some((key(0, 0), key(1 << 40, 0))), ..growing.clone() };
    assert_eq!(judge(&known), Class::MovingWithin);
    // A sketch of an older node has no edges.
    assert_eq!(judge(&growing), Class::Sweep);
    // It will have passed the last known key in a minute.
    let passing = Sketch { edges: Some((key(1_000, 0), key(1_000, 3_840))), ..growing };
    assert_eq!(judge(&passing), Class::Sweep);
}

#[test]
fn little_data_says_nothing() {
    let unknown = |sketch: &Sketch| {
        let verdict = judge(sketch, &DetectOptions::default());
        assert_eq!((verdict.class, verdict.cut), (Class::Unknown, None));
    };
    unknown(&Sketch::default());
    unknown(&sketch(8, |second, number| sample(key(mix(second * 32 + number), 0))));
    let mut starved = sketch(20, |second, number| sample(key(mix(second * 32 + number), 0)));
    starved.ticks.iter_mut().for_each(|tick| tick.samples.truncate(3));
    unknown(&starved);
}

#[test]
fn scans_that_no_cut_separates_are_named_as_such() {
    let mut random = Random::new(9);
    let short = sketch(20, |_, _| {
        let start = random.below(1_000);
        Sample { end: Some(key(start + 100, 0)), ..sample(key(start, 0)) }
    });
    let verdict = judge(&short, &DetectOptions::default());
    assert_eq!(verdict.class, Class::StaticRange);
    assert!((0.02..0.2).contains(&verdict.evidence.contained), "{verdict:?}");
    // Scans of nearly everything: whatever the cut, both sides serve them.
    let wide = sketch(20, |_, _| {
        let end = key(900 + random.below(100), 0);
        Sample { end: Some(end), ..sample(key(random.below(100), 0)) }
    });
    let verdict = judge(&wide, &DetectOptions::default());
    assert_eq!((verdict.class, verdict.cut), (Class::ScanBound, None));
    assert!(verdict.evidence.contained >= 0.5);
}

#[test]
fn the_same_sketch_is_judged_alike_and_its_numbers_are_shares() {
    for kind in all() {
        for seconds in [13, 20, 61] {
            let verdict = verdict_on(&kind, kind.options, seconds, seconds);
            let again = verdict_on(&kind, kind.options, seconds, seconds);
            assert_eq!(verdict, again, "{}", kind.name);
            let evidence = verdict.evidence;
            let shares = [
                evidence.p_out,
                evidence.predicted,
                evidence.shift,
                evidence.auc,
                evidence.tail,
                evidence.append_high,
                evidence.append_low,
                evidence.top_key,
                evidence.contained,
                evidence.hot_share,
                evidence.lead,
                evidence.front,
                evidence.concentration,
            ];
            let all = shares.iter().chain(&evidence.top_prefix);
            for share in all {
                assert!((-1e-9..=1.0 + 1e-9).contains(share), "{} {shares:?}", kind.name);
            }
        }
    }
}

/// Whatever arrives from a node, a verdict comes of it.
#[test]
fn no_sketch_makes_the_judge_fail() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let bytes = |random: &mut Random, len: u64| -> Box<[u8]> {
            (0..random.below(len)).map(|_| random.bits().to_be_bytes()[0] % 3).collect()
        };
        let mut second = 0;
        let mut ticks = Vec::new();
        for _ in 0..random.below(70) {
            second += random.below(3);
            let mut samples = Vec::new();
            for _ in 0..random.below(40) {
                let end = random.chance(0.3).then(|| bytes(&mut random, 4));
                let (above, below) = (random.chance(0.2), random.chance(0.2));
                samples.push(Sample { key: bytes(&mut random, 5), end, above, below });
            }
            let count = if random.chance(0.1) { 0 } else { random.below(u64::MAX >> 12) };
            ticks.push(Tick { second, count, samples });
        }
        let options = DetectOptions {
            keep_together: random.index(4),
            placement: random.index(3),
            time_column: random.chance(0.5).then(|| random.index(4)),
        };
        let edges = random.chance(0.5);
        let edges = edges.then(|| (bytes(&mut random, 5), bytes(&mut random, 5)));
        let sketch = Sketch { ticks, heavy: Vec::new(), edges };
        let ends = |key: &[u8]| vec![0, 1, 1, 2, key.len() + 1];
        let window_s = u32::try_from(random.below(70)).unwrap();
        let verdict = classify(&sketch, window_s, &ends, &options);
        let cuts = matches!(verdict.class, Class::StaticRange | Class::MultiTail);
        assert_eq!(verdict.cut.is_some(), cuts, "seed {seed}: {verdict:?}");
        assert_eq!(verdict.hot_key.is_some(), verdict.class == Class::HotKey, "seed {seed}");
        if let Some(cut) = verdict.cut {
            assert!((0.5..=1.0).contains(&cut.larger_share), "seed {seed}: {cut:?}");
        }
    }
}
