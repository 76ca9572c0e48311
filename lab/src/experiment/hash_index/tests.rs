//! The experiment's evaluation of given rounds.

use super::*;
use crate::claim::Verdict;
use crate::random::Random;

fn runs(reads: [[f64; 3]; 3], written: [[f64; 2]; 2]) -> Runs {
    let slice = |round, table, reads_per_s| Slice {
        round,
        table,
        reads_per_s,
        writes_per_s: reads_per_s / 9.0,
        failed: 0,
        messages: Vec::new(),
        read: Summary::default(),
        write: Summary::default(),
    };
    let mut runs = Runs::default();
    for (round, rates) in (1..).zip(reads) {
        runs.slices.extend(KINDS.iter().zip(rates).map(|(kind, rate)| slice(round, *kind, rate)));
    }
    // Without writes there are twice as many reads.
    let slices = runs.slices.iter().filter(|slice| slice.table != Kind::Naive);
    let reads_only =
        slices.map(|slice| Slice { reads_per_s: slice.reads_per_s * 2.0, ..slice.clone() });
    runs.alone = reads_only.collect();
    runs.compare();
    runs.asked = KINDS
        .map(|table| Asked {
            table,
            partitions: Some(if table == Kind::Naive { 8.0 } else { 1.0 }),
        })
        .into();
    for (partitions, rates) in [1, 8].into_iter().zip(written) {
        for (table, rows_per_s) in [Kind::Plain, Kind::Hashed].into_iter().zip(rates) {
            let latency = Summary::default();
            runs.written.push(Written { table, partitions, rows_per_s, failed: 0, latency });
        }
    }
    runs
}

fn verdicts(runs: &Runs, bound: Option<f64>) -> Vec<Verdict> {
    claims(runs, 8, bound).iter().map(|claim| claim.verdict).collect()
}

#[test]
fn the_expected_shape_holds_and_each_other_is_noticed() {
    use Verdict::{Fails, Holds, Open};
    let rounds = [[1_000.0, 990.0, 400.0], [500.0, 490.0, 190.0], [1_000.0, 1_010.0, 380.0]];
    let good = runs(rounds, [[100.0, 100.0], [101.0, 780.0]]);
    assert_eq!(verdicts(&good, Some(100.0)), [Holds, Holds, Holds, Holds, Holds]);
    assert_eq!(verdicts(&good, None)[3..], [Open, Open]);

    let mut fanned_out = good;
    fanned_out.asked[1].partitions = Some(8.0);
    assert_eq!(verdicts(&fanned_out, Some(100.0))[0], Fails);
    fanned_out.asked[1].partitions = None;
    assert_eq!(verdicts(&fanned_out, Some(100.0))[0], Open);

    let lossy = runs(rounds.map(|[plain, _, naive]| [plain, plain * 0.8, naive]), [[100.0; 2]; 2]);
    assert_eq!(verdicts(&lossy, Some(100.0)), [Holds, Fails, Holds, Fails, Holds]);
    let mut mixed = runs(rounds, [[100.0, 100.0], [101.0, 780.0]]);
    mixed
        .slices
        .iter_mut()
        .filter(|slice| slice.table == Kind::Hashed)
        .for_each(|slice| slice.reads_per_s *= 0.8);
    mixed.compare();
    assert_eq!(verdicts(&mixed, Some(100.0))[1], Holds, "it is writes that cost the mix something");
    assert!(mixed.loss_in_mix.median > 0.15, "{:?}", mixed.loss_in_mix);
    let free = runs(rounds.map(|[plain, _, _]| [plain; 3]), [[100.0, 100.0], [700.0, 780.0]]);
    assert_eq!(verdicts(&free, Some(100.0)), [Holds, Holds, Fails, Holds, Fails]);
}

#[test]
fn ratios_are_of_rounds_and_stand_beside_the_published_one() {
    // A round in which the machine was half as fast changes neither.
    let rounds = [[1_000.0, 980.0, 400.0], [500.0, 490.0, 200.0], [1_000.0, 980.0, 400.0]];
    let figures = figures(&runs(rounds, [[100.0, 100.0], [101.0, 800.0]]));
    let find = |name: &str| figures.iter().find(|figure| figure.figure == name).unwrap();
    assert_eq!(find("price of naive hashing").ours, Some(2.5));
    assert!((find("price of naive hashing").published.unwrap() - 2.69).abs() < 0.01);
    assert!((find("reads lost by hashing, %").ours.unwrap() - 2.0).abs() < 1e-9);
    assert_eq!(find("plain, reads/s").ours, Some(1_000.0));
    assert_eq!(find("hashed writes, most / fewest partitions").ours, Some(8.0));
    assert_eq!(find("naive, read p99 ms").published, Some(26.2));
    let table = written_table(&runs(rounds, [[100.0, 100.0], [101.0, 800.0]]).written);
    assert_eq!(table[0][1..], ["1", "8"]);
    assert_eq!(table[2], ["hashed", "100 (0)", "800 (0)"]);
}

#[test]
fn tables_differ_in_nothing_but_where_rows_go() {
    let statement = Kind::Plain.create(4, 100);
    assert!(
        statement.contains("PRIMARY KEY (k)) SPLIT AT ((25), (50), (75)) WITH ("),
        "{statement}"
    );
    let statement = Kind::Naive.create(3, 100);
    assert!(
        statement
            .contains("(shard BIGINT NOT NULL, k BIGINT NOT NULL, v TEXT, PRIMARY KEY (shard, k))")
    );
    assert!(statement.contains("SPLIT AT ((1), (2)) WITH ("), "{statement}");
    assert!(Kind::Hashed.create(8, 100).contains("PARTITION BY HASH (k) PARTITIONS 8 WITH ("));
    assert!(!Kind::Plain.create(1, 0).contains("SPLIT"));
}

#[test]
fn keys_are_written_in_order_and_read_where_they_are() {
    let next = Arc::new(AtomicI64::new(41));
    let table = Sequence { kind: Kind::Naive, partitions: 10, next };
    let (mut random, write) = (Random::new(1, 0), table.write());
    assert!(write.text.ends_with("(shard, k, v) VALUES ($1, $2, $3)"), "{}", write.text);
    (write.draw)(&mut random);
    let values = (write.draw)(&mut random);
    assert!(matches!(values[..2], [Value::Int(2), Value::Int(42)]), "{values:?}");
    let read = table.read(5);
    assert!(read.text.ends_with("WHERE shard IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9) AND k = $1"));
    for _ in 0..100 {
        assert!(matches!((read.draw)(&mut random)[..], [Value::Int(0..5)]));
    }
}
