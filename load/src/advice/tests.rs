//! Advice on the key designs of a table of user events, against the shares that are known for them.

use super::*;

/// Rows (ts, user) with users drawn evenly or by Zipf's law, one a millisecond.
fn events(rows: usize, users: u64, zipf: f64) -> Vec<SampledRow> {
    let weights: Vec<f64> = (1..=users).map(|rank| (rank as f64).powf(-zipf)).collect();
    let sum: f64 = weights.iter().sum();
    let mut seed = 11_u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(seed >> 33).unwrap()) / f64::from(1_u32 << 31)
    };
    (0..rows as u64)
        .map(|ts| {
            let mut left = random() * sum;
            let rank = weights.iter().position(|weight| {
                left -= weight;
                left <= 0.0
            });
            // Ranks are scattered over the ids, as users' activity is.
            let user = (rank.unwrap_or(0) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            vec![ts.to_be_bytes().to_vec(), user.to_be_bytes().to_vec()]
        })
        .collect()
}

fn question(rows: &[SampledRow]) -> Question<'_> {
    Question {
        rows,
        columns: 2,
        time: Some(0),
        today: Design::Range { order: vec![0, 1] },
        keep_together: 0,
        partitions: 1,
        nodes: 8,
        rows_per_s: 32_000.0,
        capacity_rows_per_s: 10_000.0,
        time_range_share: 0.1,
        reads: Reads { by_column: vec![0.0, 1.0], ..Reads::default() },
        shapes: Vec::new(),
        hot: None,
    }
}

fn found<'a>(choices: &'a [Choice], design: &Design) -> &'a Choice {
    choices.iter().find(|choice| choice.design == *design).expect("among the candidates")
}

#[test]
fn buckets_follow_the_load_within_two_a_node() {
    assert_eq!(buckets_for(32_000.0, 10_000.0, 8), 8);
    assert_eq!(buckets_for(33_000.0, 10_000.0, 8), 9);
    assert_eq!(buckets_for(1.0, 10_000.0, 8), 2);
    assert_eq!(buckets_for(1e9, 10_000.0, 8), 16);
    assert_eq!(buckets_for(5.0, 0.0, 8), 16);
    assert_eq!(buckets_for(0.0, 0.0, 0), 2);
}

#[test]
fn rows_that_are_kept_together_are_parted_by_no_design() {
    // (user, a number that says nothing): one user writes most.
    let mut rows = events(4_000, 10, 1.2);
    for (number, row) in rows.iter_mut().enumerate() {
        let mixed = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        row[0] = mixed.to_be_bytes().to_vec();
        row.swap(0, 1);
    }
    let question = |keep_together| Question { time: None, keep_together, ..question(&rows) };
    let free = advise(&question(0));
    let by_all = |choices: &[Choice]| {
        choices
            .iter()
            .any(|choice| matches!(&choice.design, Design::Hash { of, .. } if of.len() > 1))
    };
    assert!(by_all(&free));
    let kept = advise(&question(1));
    assert!(!by_all(&kept));
    for choice in &kept {
        let (Design::Range { order } | Design::Hash { order, .. }) = &choice.design;
        assert_eq!(order[0], 0, "{choice:?}");
    }
    // Its cuts are between users: the busiest one is never parted.
    let top = |choices: &[Choice]| found(choices, &Design::Range { order: vec![0, 1] }).max_share;
    let users = rows.iter().map(|row| &row[0]);
    let busiest =
        users.clone().map(|user| users.clone().filter(|other| *other == user).count()).max();
    let share = busiest.unwrap_or(0) as f64 / rows.len() as f64;
    assert!(top(&free) < share * 0.8, "{} of {share}", top(&free));
    assert!(top(&kept) > share * 0.9, "{} of {share}", top(&kept));
    // By two columns in another order they still agree.
    let both = advise(&question(2));
    assert!(by_all(&both));
}

#[test]
fn time_first_is_one_tail_and_user_first_is_advised() {
    let rows = events(4_000, 10_000, 0.0);
    let choices = advise(&question(&rows));
    let today = found(&choices, &Design::Range { order: vec![0, 1] });
    assert!(today.is_today && !today.carries);
    assert!(
        (today.max_share - 1.0).abs() < 1e-9 && (today.effective_partitions - 1.0).abs() < 1e-9
    );
    assert!(today.warnings.contains(&Warning::OneTail));
    // A read by user touches all of it.
    assert!((today.fan_out.by_column[1] - today.partitions as f64).abs() < 1e-9);

    let best = &choices[0];
    assert_eq!(best.design, Design::Range { order: vec![1, 0] });
    assert!(
        best.carries && best.effective_partitions > 7.5 && best.effective_nodes > 7.0,
        "{best:?}"
    );
    assert!(best.max_share < 0.17 && best.fan_out.by_column[1] < 1.01);
}

#[test]
fn each_design_has_its_known_shares_and_fan_out() {
    let rows = events(8_000, 10_000, 0.0);
    let choices = advise(&question(&rows));
    let hash = |of: Vec<usize>, order: Vec<usize>| Design::Hash { of, buckets: 8, order };
    let by_user = found(&choices, &hash(vec![1], vec![1, 0]));
    let by_all = found(&choices, &hash(vec![0, 1], vec![0, 1]));
    for even in [by_user, by_all] {
        assert!((even.max_share - 0.13).abs() < 0.02, "{even:?}");
        assert!(even.effective_partitions > 7.7, "{even:?}");
    }
    assert!((by_user.fan_out.by_column[1] - 1.0).abs() < 1e-9);
    assert!((by_user.fan_out.last_point - 1.0).abs() < 1e-9);
    assert!((by_all.fan_out.by_column[1] - 8.0).abs() < 1e-9);
    assert!((by_all.fan_out.point - 1.0).abs() < 1e-9);
    assert!((by_user.fan_out.time_range - 8.0).abs() < 1e-9);
}

#[test]
fn a_user_that_bears_more_than_a_bucket_is_warned_of() {
    let rows = events(8_000, 10_000, 1.3);
    let choices = advise(&question(&rows));
    let by_user = found(&choices, &Design::Hash { of: vec![1], buckets: 8, order: vec![1, 0] });
    let warned = by_user.warnings.iter().any(|warning| {
        matches!(warning, Warning::TopValue { column: 1, share, equal_share } if share > equal_share)
    });
    assert!(warned, "{:?}", by_user.warnings);
    // Only a hash over all of the key carries it; reads pay for that.
    assert_eq!(choices[0].design, Design::Hash { of: vec![0, 1], buckets: 8, order: vec![0, 1] });
    assert!(choices[0].carries && !by_user.carries);
}

#[test]
fn few_values_cannot_fill_many_partitions() {
    let rows = events(4_000, 3, 0.0);
    let choices = advise(&question(&rows));
    let by_room = found(&choices, &Design::Hash { of: vec![1], buckets: 8, order: vec![1, 0] });
    assert!(by_room.warnings.contains(&Warning::FewValues { column: 1, values: 3 }));
    assert!(by_room.effective_partitions <= 3.1);
}

#[test]
fn a_design_that_carries_its_load_stays() {
    let rows = events(4_000, 10_000, 0.0);
    let mut calm = question(&rows);
    calm.rows_per_s = 100.0;
    let choices = advise(&calm);
    assert!(choices[0].is_today && choices[0].carries, "{:?}", choices[0]);
    assert!(choices.iter().all(|choice| choice.carries));
}

#[test]
fn too_small_a_sample_says_nothing_or_says_so() {
    assert!(advise(&question(&[])).is_empty());
    let rows = events(40, 10, 0.0);
    let choices = advise(&question(&rows));
    assert!(
        choices.iter().all(|choice| choice.warnings.contains(&Warning::SmallSample { rows: 40 }))
    );
}

#[test]
fn the_same_question_has_the_same_answer() {
    let rows = events(1_000, 100, 0.99);
    assert_eq!(advise(&question(&rows)), advise(&question(&rows)));
}

/// Reads of one value of a column, a thousand rows each.
fn by_value(column: usize, per_s: f64) -> ReadShape {
    ReadShape { bounds: vec![(column, ShapeBound::Value)], per_s, rows: 1_000.0 }
}

#[test]
fn statements_say_how_many_partitions_and_rows_a_design_costs() {
    let rows = events(4_000, 100, 0.0);
    let of_time = ReadShape {
        bounds: vec![(1, ShapeBound::Value), (0, ShapeBound::Range(0.5))],
        per_s: 1.0,
        rows: 1_000.0,
    };
    let asked = Question { shapes: vec![by_value(1, 10.0), of_time], ..question(&rows) };
    let choices = advise(&asked);
    let today = found(&choices, &asked.today);
    // Today all rows are read for a user, in all partitions that half of the time is in.
    assert!((today.shapes[0].partitions - today.partitions as f64).abs() < 1e-9, "{today:?}");
    assert!((today.shapes[0].rows - 1_000.0).abs() < 1e-6, "{today:?}");
    let visited = today.shapes[1].partitions;
    assert!(visited < today.partitions as f64 * 0.6, "{today:?}");
    let by_user = found(&choices, &Design::Range { order: vec![1, 0] });
    assert!(by_user.shapes[0].partitions < 1.2, "{:?}", by_user.shapes[0]);
    // A user has a hundredth of the rows, within the error of some hundred probes.
    assert!((5.0..15.0).contains(&by_user.shapes[0].rows), "{:?}", by_user.shapes[0]);
    let hashed = found(&choices, &Design::Hash { of: vec![1], buckets: 8, order: vec![1, 0] });
    assert!((hashed.shapes[0].partitions - 1.0).abs() < 1e-9, "{:?}", hashed.shapes[0]);
    let all = found(&choices, &Design::Hash { of: vec![0, 1], buckets: 8, order: vec![0, 1] });
    assert!((all.shapes[0].partitions - 8.0).abs() < 1e-9, "{:?}", all.shapes[0]);
    // Within a bucket, the rows of a user must lie together, too.
    let best = Design::Hash { of: vec![1], buckets: 8, order: vec![1, 0] };
    assert_eq!(choices[0].design, best, "{:?}", choices[0]);
    assert!(choices.iter().all(|choice| choice.needed_partitions == 8));
}

#[test]
fn a_list_of_values_visits_a_bucket_for_each() {
    let rows = events(4_000, 100, 0.0);
    let listed = ReadShape { bounds: vec![(1, ShapeBound::Values(4.0))], per_s: 1.0, rows: 40.0 };
    let asked = Question { shapes: vec![listed], ..question(&rows) };
    let choices = advise(&asked);
    let hashed = found(&choices, &Design::Hash { of: vec![1], buckets: 8, order: vec![1, 0] });
    assert!((hashed.shapes[0].partitions - 4.0).abs() < 1e-9, "{:?}", hashed.shapes[0]);
}

#[test]
fn a_hash_that_scatters_what_is_read_together_comes_last_of_those_that_carry() {
    // (seq, tenant): 1,000 tenants, read by tenant; a hash of seq alone would spread best.
    let rows = events(4_000, 1_000, 0.0);
    let asked = Question {
        time: None,
        today: Design::Range { order: vec![1, 0] },
        rows_per_s: 60_000.0,
        shapes: vec![by_value(1, 100.0)],
        ..question(&rows)
    };
    let choices = advise(&asked);
    let carrying: Vec<&Choice> = choices.iter().filter(|choice| choice.carries).collect();
    let scatters =
        |choice: &&Choice| matches!(&choice.design, Design::Hash { of, .. } if of.contains(&0));
    let first = carrying.iter().position(scatters).unwrap();
    assert!(first > 0, "{:?}", carrying[0]);
    assert!(carrying[first..].iter().all(scatters), "{carrying:?}");
}

#[test]
fn a_hot_value_is_not_collected_in_one_bucket() {
    // (user, ts), and one user writes nine rows of ten.
    let mut rows = events(4_000, 1_000, 0.0);
    for (number, row) in rows.iter_mut().enumerate() {
        if number % 10 > 0 {
            row[1] = 7_u64.to_be_bytes().to_vec();
        }
        row.swap(0, 1);
    }
    let asked = Question {
        time: Some(1),
        reads: Reads { by_column: vec![1.0], ..Reads::default() },
        hot: Some(Class::HotKey),
        ..question(&rows)
    };
    let choices = advise(&asked);
    assert!(
        matches!(&choices[0].design, Design::Hash { of, .. } if *of == [0, 1]),
        "{:?}",
        choices[0]
    );
    assert!(choices[0].carries, "{:?}", choices[0]);
    let collecting: Vec<usize> = (0..choices.len())
        .filter(|place| matches!(&choices[*place].design, Design::Hash { of, .. } if *of == [0]))
        .collect();
    assert!(!collecting.is_empty());
    assert_eq!(collecting.last(), Some(&(choices.len() - 1)));
    for place in &collecting {
        let warned = |warning: &Warning| matches!(warning, Warning::TopValue { column: 0, .. });
        assert!(choices[*place].warnings.iter().any(warned), "{:?}", choices[*place]);
    }
}

#[test]
fn what_comes_later_is_spread_as_was_predicted() {
    let rows = events(8_000, 10_000, 0.5);
    let (sampled, later) = rows.split_at(4_000);
    let asked = question(sampled);
    let choices = advise(&asked);
    let best = &choices[0];
    let measured = asked.measured(&best.design, later);
    let error = (best.effective_partitions - measured).abs() / measured;
    assert!(error < 0.1, "{measured} for {best:?}");
    assert!((asked.served(&best.design, later) - 1.0).abs() < 1e-9);
    // What moves on leaves all of its cuts behind.
    let tail = asked.measured(&asked.today, later);
    assert!((tail - 1.0).abs() < 1e-9, "{tail}");
    let served = asked.served(&asked.today, later);
    assert!((served - 10_000.0 / 32_000.0).abs() < 1e-9, "{served}");
    assert!((asked.measured(&best.design, &[]) - 1.0).abs() < 1e-9);
}

#[test]
fn the_number_of_designs_is_bounded() {
    let wide: Vec<SampledRow> = (0..400_u32)
        .map(|row| (1..=8).map(|column| vec![u8::try_from(row * column % 251).unwrap()]).collect())
        .collect();
    let asked = Question {
        columns: 8,
        time: None,
        today: Design::Range { order: (0..8).collect() },
        ..question(&wide)
    };
    let choices = advise(&asked);
    assert!(choices.len() <= DESIGNS_MAX, "{}", choices.len());
    let pair = |choice: &Choice| matches!(&choice.design, Design::Hash { of, .. } if *of == [1, 3]);
    assert!(choices.iter().any(pair));
}

#[test]
fn a_sample_of_one_minute_does_not_hide_that_the_load_moves_past_every_cut() {
    // (minute, user): users are even, and all rows are of one minute.
    let mut rows = events(4_000, 10_000, 0.0);
    rows.iter_mut().for_each(|row| row[0] = 5_u64.to_be_bytes().to_vec());
    let asked = |hot| Question { hot, ..question(&rows) };
    let ranges = Design::Range { order: vec![0, 1] };
    assert_eq!(advise(&asked(None))[0].design, ranges);
    let choices = advise(&asked(Some(Class::MovingRight)));
    assert!(choices[0].carries && choices[0].design != ranges, "{:?}", choices[0]);
    assert!(!found(&choices, &ranges).carries);
}
