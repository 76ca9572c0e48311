//! Workloads have their stated densities: streams agree with the fluid, and choosers with published figures.

use partita_hotspot::workload::{Design, Kind, Knobs, Op, SECOND_US, Stream, TableLoad, all, find};
use partita_hotspot::zipf::{YCSB_THETA, Zipf};

use crate::knobs;

fn shares(load: &TableLoad, at_us: u64) -> Vec<f64> {
    let mut bounds: Vec<Vec<u8>> = vec![Vec::new()];
    bounds.extend(load.cuts.iter().cloned());
    let highs = bounds.iter().skip(1).map(Some).chain(std::iter::once(None));
    bounds
        .iter()
        .zip(highs)
        .map(|(low, high)| load.share(at_us, low, high.map(Vec::as_slice)))
        .collect()
}

#[test]
fn shares_of_a_table_add_up_to_one() {
    for workload in all() {
        for design in Design::ALL {
            for load in workload.tables(&knobs(design)) {
                for at_us in [0, 10 * SECOND_US, 4_000 * SECOND_US] {
                    let sum: f64 = shares(&load, at_us).iter().sum();
                    assert!((sum - 1.0).abs() < 1e-6, "{} {} {sum}", workload.name, design.name());
                }
            }
        }
    }
}

#[test]
fn a_stream_falls_where_the_fluid_says() {
    let draws = 20_000;
    for workload in all() {
        for design in Design::ALL {
            let loads = workload.tables(&Knobs { rate: 10_000.0, ..knobs(design) });
            let load = &loads[0];
            if load.sources.iter().any(|source| format!("{source:?}").contains("ScanRecent")) {
                continue;
            }
            let mut stream = Stream::new(&load.sources, 11);
            let mut counts = vec![0.0; load.cuts.len() + 1];
            let mut expected = vec![0.0; counts.len()];
            let mut op = Op::default();
            let mut looked = u64::MAX;
            let mut current = vec![0.0; counts.len()];
            for _ in 0..draws {
                let (at_us, _) = stream.next(&mut op).unwrap();
                counts[load.cuts.partition_point(|cut| *cut <= op.key)] += 1.0;
                if at_us / 50_000 != looked {
                    looked = at_us / 50_000;
                    current = shares(load, at_us);
                }
                expected.iter_mut().zip(&current).for_each(|(sum, share)| *sum += share);
            }
            for (part, (count, expected)) in counts.iter().zip(&expected).enumerate() {
                // Six standard deviations, and the movement within a twentieth of a second.
                let room = 6.0 * expected.max(1.0).sqrt() + 0.02 * f64::from(draws);
                assert!(
                    (count - expected).abs() < room,
                    "{} {} part {part}: {count} for {expected}",
                    workload.name,
                    design.name()
                );
            }
        }
    }
}

/// Largest share among eight partitions, for 10,000 users whose ids do not correlate with their activity.
fn largest(design: Design, theta: f64) -> f64 {
    largest_of("W1", design, theta)
}

fn largest_of(name: &str, design: Design, theta: f64) -> f64 {
    let load = &find(name).unwrap().tables(&Knobs { theta, ..knobs(design) })[0];
    shares(load, 100 * SECOND_US).into_iter().fold(0.0, f64::max)
}

#[test]
fn eight_partitions_bear_the_shares_that_designs_promise() {
    assert!((largest(Design::TsUid, 0.0) - 1.0).abs() < 1e-9);
    assert!((largest(Design::UidTs, 0.0) - 0.125).abs() < 1e-3);
    assert!((largest(Design::HashAll, 1.0) - 0.125).abs() < 1e-3);
    // 10,000 users over eight buckets: evenly but for chance.
    assert!((0.125..0.14).contains(&largest(Design::HashUid, 0.0)));
    // With Zipf's law the first user alone has a tenth, so that user's bucket has about 0.1 + 0.9 / 8.
    assert!(
        (0.17..0.30).contains(&largest(Design::HashUid, 1.0)),
        "{}",
        largest(Design::HashUid, 1.0)
    );
}

#[test]
fn users_in_the_order_of_what_they_do_make_the_first_of_eight_partitions_hot() {
    // The first 1,250 of 10,000 by Zipf's law: H(1250) / H(10000).
    let harmonic = |n: u32| (1..=n).map(|rank| 1.0 / f64::from(rank)).sum::<f64>();
    let first = harmonic(1_250) / harmonic(10_000);
    assert!((largest_of("W1:ordered", Design::UidTs, 1.0) - first).abs() < 1e-3);
    assert!((first - 0.787).abs() < 1e-3);
    assert!((largest_of("W1:ordered", Design::UidTs, 0.0) - 0.125).abs() < 1e-3);
    assert!((largest_of("W1:ordered", Design::TsUid, 1.0) - 1.0).abs() < 1e-9);
    assert!((largest_of("W1:ordered", Design::HashAll, 1.0) - 0.125).abs() < 1e-3);
    let hashed = largest_of("W1:ordered", Design::HashUid, 1.0);
    assert!((0.17..0.30).contains(&hashed), "{hashed}");
}

#[test]
fn zipf_has_the_constants_that_ycsb_publishes() {
    // ScrambledZipfianGenerator.ZETAN, for ten thousand million items and 0.99.
    let zipf = Zipf::new(10_000_000_000, YCSB_THETA);
    assert!(
        (1.0 / zipf.share_of_first(1) - 26.469_028_201_783_02).abs() < 1e-3,
        "{}",
        1.0 / zipf.share_of_first(1)
    );
}

/// Keys of a workload's reads (or writes) of one column.
fn drawn(name: &str, selected: Kind, count: usize) -> Vec<u64> {
    let loads = find(name).unwrap().tables(&knobs(Design::UidTs));
    let mut stream = Stream::new(&loads[0].sources, 3);
    let mut op = Op::default();
    let mut keys = Vec::new();
    while keys.len() < count {
        let (_, kind) = stream.next(&mut op).unwrap();
        if kind == selected {
            keys.push(u64::from_be_bytes(op.key[..8].try_into().unwrap()));
        }
    }
    keys
}

fn share(keys: &[u64], matches: impl Fn(u64) -> bool) -> f64 {
    keys.iter().filter(|key| matches(**key)).count() as f64 / keys.len() as f64
}

#[test]
fn choosers_are_ycsbs() {
    let zipf = Zipf::new(100_000, YCSB_THETA);
    let ordered = drawn("W6:ordered", Kind::Write, 40_000);
    for ranks in [1, 10, 100, 1_000, 10_000] {
        let expected = zipf.share_of_first(usize::try_from(ranks).unwrap());
        let measured = share(&ordered, |key| key < ranks);
        assert!((measured - expected).abs() < 0.015, "{ranks}: {measured} for {expected}");
    }
    // 80 % of the operations on the first fifth.
    let hotspot = drawn("W6:hotspot", Kind::Write, 40_000);
    assert!((share(&hotspot, |key| key < 20_000) - 0.8).abs() < 0.015);
    let uniform = drawn("W6:uniform", Kind::Read, 40_000);
    assert!((share(&uniform, |key| key < 50_000) - 0.5).abs() < 0.015);
    // Each insert is the next.
    let sequential = drawn("W6:sequential", Kind::Write, 40_000);
    let last = *sequential.last().unwrap() as f64;
    assert!((last / 140_000.0 - 1.0).abs() < 0.5 && sequential[39_999] > sequential[20_000]);
    // Reads follow the newest: half of what an order-zipfian reads lies as near to it.
    let latest = drawn("W6:latest", Kind::Read, 40_000);
    assert!(share(&latest, |key| key > 99_000) > 0.5);
    // The same frequencies, scattered.
    let mut scrambled = drawn("W6", Kind::Write, 40_000);
    assert!((share(&scrambled, |key| key < u64::MAX / 2) - 0.5).abs() < 0.1);
    scrambled.sort_unstable();
    let most = scrambled.chunk_by(|a, b| a == b).map(<[u64]>::len).max().unwrap() as f64 / 40_000.0;
    assert!((most - zipf.share_of_first(1)).abs() < 0.015, "{most}");
}
