//! Samples of rows by cause: uniform, bounded, and added up over frontends.

use super::*;

fn cause(statement: &str, user: &str) -> Cause {
    Cause {
        statement: statement.to_owned(),
        kind: "INSERT".to_owned(),
        user: user.to_owned(),
        application: String::new(),
        client: "10.0.0.7".to_owned(),
    }
}

fn key(number: u64) -> Option<Box<[u8]>> {
    Some(Box::from(number.to_be_bytes()))
}

/// Offers `rows` rows of partition 1 in batches, whose keys are numbers.
fn write(intake: &mut Intake, second: u64, rows: u64, batch: u64, cause: &Cause) {
    let mut sent = 0;
    while sent < rows {
        let size = batch.min(rows - sent);
        intake
            .offer(second, false, size, cause, |number| Some((PartitionId(1), key(sent + number))));
        sent += size;
    }
}

#[test]
fn rows_are_sampled_evenly_and_weigh_what_they_represent() {
    let mut tenths = [0_u32; 10];
    for seed in 0..40 {
        let mut intake = Intake::new(seed);
        write(&mut intake, 5, 10_000, 137, &cause("INSERT", "app"));
        let taken = intake.take(6);
        assert_eq!((taken.causes.len(), taken.seconds.len()), (1, 1));
        let samples = &taken.seconds[0].samples;
        assert_eq!(samples.len(), SAMPLES_PER_SECOND);
        let weight: f64 = samples.iter().map(|(_, blamed)| blamed.weight).sum();
        assert!((weight - 10_000.0).abs() < 1e-6, "{weight}");
        for (_, blamed) in samples {
            let bytes: [u8; 8] = blamed.key.as_deref().unwrap().try_into().unwrap();
            tenths[usize::try_from(u64::from_be_bytes(bytes) / 1_000).unwrap()] += 1;
        }
    }
    // 1,024 each; six standard deviations are 182.
    assert!(tenths.iter().all(|count| (842..=1_206).contains(count)), "{tenths:?}");
}

#[test]
fn few_rows_are_kept_whole_and_by_kind() {
    let mut intake = Intake::new(1);
    let loader = cause("INSERT", "loader");
    intake.offer(5, false, 3, &loader, |row| (row != 1).then_some((PartitionId(row), None)));
    intake.offer(5, true, 1, &cause("SELECT", "app"), |_| Some((PartitionId(9), key(4))));
    assert_eq!(intake.take(5), Intaken::default(), "the second has not ended");
    let taken = intake.take(6);
    let kinds: Vec<_> = taken.seconds.iter().map(|second| (second.second, second.read)).collect();
    assert_eq!(kinds, [(5, false), (5, true)]);
    let partitions: Vec<_> = taken.seconds[0].samples.iter().map(|(id, _)| id.0).collect();
    assert_eq!(partitions, [0, 2], "one row was left out");
    assert_eq!(taken.seconds[1].samples[0].1.key, key(4));
    assert_eq!(intake.take(7), Intaken::default(), "each second is reported once");
}

#[test]
fn reports_and_what_waits_for_them_are_bounded() {
    let mut intake = Intake::new(1);
    let write_many = |intake: &mut Intake, second: u64| {
        for number in 0..300 {
            let statement = format!("INSERT {second} {number} {}", "x".repeat(500));
            write(intake, second, 2, 2, &cause(&statement, "app"));
        }
    };
    for second in 0..50 {
        write_many(&mut intake, second);
        if second % 10 != 9 {
            continue;
        }
        let taken = intake.take(second + 1);
        assert_eq!((taken.seconds.len(), taken.causes.len()), (10, CAUSES_MAX));
        assert!(taken.causes.iter().all(|cause| cause.statement.len() <= TEXT_MAX));
        let others = taken.causes.iter().filter(|cause| cause.statement == OTHERS);
        assert_eq!(others.count(), 1);
        let count = u32::try_from(taken.causes.len()).unwrap();
        let mut samples = taken.seconds.iter().flat_map(|second| &second.samples);
        assert!(samples.all(|(_, blamed)| blamed.cause < count));
    }
    // Nobody asks.
    (50..150).for_each(|second| write_many(&mut intake, second));
    assert!(intake.causes.len() <= REMEMBERED_MAX);
    assert_eq!(intake.take(150).seconds.len(), usize::try_from(ENDED_S).unwrap());
}

#[test]
fn causes_of_the_open_second_keep_their_names_over_a_report() {
    let mut intake = Intake::new(1);
    write(&mut intake, 5, 10, 10, &cause("first", "app"));
    write(&mut intake, 6, 10, 10, &cause("second", "app"));
    let name = |taken: &Intaken| taken.causes[0].statement.clone();
    let taken = intake.take(6);
    assert_eq!((taken.causes.len(), name(&taken)), (1, "first".to_owned()));
    write(&mut intake, 6, 10, 10, &cause("second", "app"));
    let taken = intake.take(7);
    assert_eq!((taken.causes.len(), name(&taken)), (1, "second".to_owned()));
    assert!(taken.seconds[0].samples.iter().all(|(_, blamed)| blamed.cause == 0));
}

#[test]
fn two_planted_statements_are_found_with_their_shares() {
    let mut book = BlameBook::default();
    for source in [1, 2] {
        let mut intake = Intake::new(source);
        for second in 100..130 {
            write(&mut intake, second, 4_000, 100, &cause("INSERT INTO t", "loader"));
            write(&mut intake, second, 1_000, 10, &cause("UPDATE t", "app"));
            intake.offer(second, true, 500, &cause("SELECT", "reader"), |_| {
                Some((PartitionId(1), None))
            });
        }
        book.hear(source, intake.take(130), 130);
    }
    let causes = book.causes(PartitionId(1), false, None, 130);
    assert_eq!(causes.len(), 2, "{causes:?}");
    assert_eq!((&*causes[0].0.user, &*causes[1].0.user), ("loader", "app"));
    assert!((causes[0].1 - 0.8).abs() < 0.05, "{causes:?}");
    let reads = book.causes(PartitionId(1), true, None, 130);
    assert_eq!((reads.len(), &*reads[0].0.user), (1, "reader"));
    assert!(book.causes(PartitionId(2), false, None, 130).is_empty());
    assert!(book.causes(PartitionId(1), false, None, 400).is_empty(), "a minute is kept");
}

#[test]
fn the_causes_of_a_hot_key_are_those_of_its_rows() {
    let mut intake = Intake::new(3);
    for second in 0..10 {
        for (user, number) in [("one", 7_u64), ("two", 8)] {
            intake.offer(second, false, 50, &cause("INSERT", user), |_| {
                Some((PartitionId(1), key(number)))
            });
        }
    }
    let mut book = BlameBook::default();
    book.hear(1, intake.take(10), 10);
    let prefix = 7_u64.to_be_bytes();
    let causes = book.causes(PartitionId(1), false, Some(&prefix), 10);
    assert_eq!((causes.len(), &*causes[0].0.user), (1, "one"));
    assert!((causes[0].1 - 1.0).abs() < 1e-9);
    assert_eq!(book.samples(PartitionId(1), false, Some(&prefix), 10), 500);
}

#[test]
fn the_book_is_bounded_and_a_repeated_report_does_no_harm() {
    let mut book = BlameBook::default();
    let blamed = |cause, weight| (PartitionId(1), Blamed { key: None, cause, weight });
    let second = |second, samples| IntakenSecond { second, read: false, samples };
    let report = |seconds| Intaken { causes: vec![cause("INSERT", "app")], seconds };
    for now in 100..400 {
        for source in 0..40 {
            let seconds = vec![second(now, vec![blamed(0, 1.0); 1_000]), second(5, vec![])];
            book.hear(source, report(seconds), now);
        }
        assert!(book.sources.len() <= SOURCES_MAX);
    }
    assert!(book.sources.values().all(|source| source.seconds.len() <= 61));
    let count = book.samples(PartitionId(1), false, None, 399);
    assert!(count <= SOURCES_MAX * 61 * HEARD_MAX);
    book.hear(39, report(vec![second(399, vec![blamed(0, 1.0); 1_000])]), 399);
    assert_eq!(book.samples(PartitionId(1), false, None, 399), count);
    // Causes that do not exist, and weights that are none.
    let mut odd = BlameBook::default();
    let samples = vec![blamed(7, 1.0), blamed(0, f64::NAN), blamed(0, -1.0), blamed(0, 0.0)];
    odd.hear(1, report(vec![second(9, samples)]), 9);
    assert_eq!(odd.samples(PartitionId(1), false, None, 9), 0);
}
