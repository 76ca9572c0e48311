//! Drives pickers over streams, and looks at the minute after a cut.
//!
//! Invariants: a stream that begins anew with the same seed has the same parameters, so its future can be drawn without
//! its past. A picker that says that a sample is enough for it gets one.

use std::sync::Arc;

use partita_hotspot::baseline::{Finder, KeySample, Recorder, SizeOnly};
use partita_hotspot::picker::{Answer, Detector, Picker};
use partita_hotspot::streams::{Kind, Op, SECOND_US, Truth, prefix_ends};
use partita_load::{Class, Columns};

use crate::report::{Cell, Outcome, Row};

/// Operations a second.
const RATE: u64 = 3_000;
/// Of which the future is drawn with so many: 3,000 in a minute, to within 0.01.
const FUTURE_RATE: u64 = 50;
/// When ours is asked: often at first, and until after a minute has changed.
const POLLS_S: [u64; 11] = [12, 16, 20, 24, 28, 36, 44, 52, 60, 68, 72];
/// The verdict that counts is the first that holds after these seconds.
const VERDICT_S: u64 = 20;

/// The share of the larger side of a cut in the minute from `from_s` on. A scan across the cut loads both.
fn future(kind: &Kind, seed: u64, cut: &[u8], from_s: u64) -> f64 {
    let mut stream = kind.stream(seed);
    let (mut left, mut right, mut all) = (0_u32, 0_u32, 0_u32);
    let mut op = Op::default();
    for step in 0..60 * FUTURE_RATE {
        if !stream.draw(from_s * SECOND_US + step * SECOND_US / FUTURE_RATE, &mut op) {
            continue;
        }
        all += 1;
        left += u32::from(*op.key < *cut);
        let reaches = op.end.as_ref().is_some_and(|end| end.is_empty() || **end > *cut);
        right += u32::from(*op.key >= *cut || reaches);
    }
    f64::from(left.max(right)) / f64::from(all.max(1))
}

/// Asks a picker at the given seconds until it proposes a cut.
fn outcome(kind: &Kind, seed: u64, picker: &mut dyn Picker, polls_s: &[u64]) -> Outcome {
    let rate = picker.rate().min(RATE);
    let mut stream = kind.stream(seed);
    let mut op = Op::default();
    let (mut class, mut held_s) = (Class::Unknown, None);
    let mut sent = 0;
    for poll_s in polls_s {
        while sent < poll_s * rate {
            // Evenly, but not on the same microseconds of every second.
            let at_us = sent * SECOND_US / rate;
            if stream.draw(at_us, &mut op) {
                picker.observe(at_us, &op);
            }
            sent += 1;
        }
        match picker.poll(poll_s * SECOND_US) {
            Answer::Wait => {}
            Answer::Cut(class, cut) => {
                let future = Some(future(kind, seed, &cut.key, *poll_s));
                let after_s = held_s.unwrap_or(*poll_s);
                return Outcome { seed, class, after_s, future };
            }
            Answer::Stay(said) => {
                held_s = held_s.or(Some(*poll_s));
                if class == Class::Unknown || *poll_s <= VERDICT_S {
                    class = said;
                }
            }
        }
    }
    Outcome { seed, class, after_s: held_s.unwrap_or(0), future: None }
}

fn detector(kind: &Kind, seed: u64, columns: &Columns) -> Detector {
    let ours = Detector::new(seed, Arc::clone(columns), kind.options);
    let mut ours = ours.with_reads(kind.reads);
    if let Some((low, high)) = kind.edges() {
        ours.set_edges(&low, &high);
    }
    ours
}

/// All pickers over all seeds of a kind.
pub(crate) fn row(kind: &Kind, seeds: &[u64]) -> Row {
    let widths = kind.columns;
    let columns: Columns = Arc::new(move |key| prefix_ends(widths, key));
    let each = |make: &dyn Fn(u64) -> Outcome| Cell {
        outcomes: seeds.iter().map(|seed| make(*seed)).collect(),
    };
    // A cut ends a run early, so there is time for more: enough cuts to see one in a thousand.
    let more = if kind.truth == Truth::Cut { seeds.len() * 5 / 3 } else { seeds.len() } as u64;
    let ours_on = |seed| {
        let mut ours = detector(kind, seed, &columns);
        let outcome = outcome(kind, seed, &mut ours, &POLLS_S);
        if seeds.len() == 1 {
            println!("{outcome:?}");
            ours.verdicts().iter().for_each(|verdict| println!("{verdict:#?}"));
        }
        outcome
    };
    let ours = Cell { outcomes: (seeds[0]..seeds[0] + more).map(ours_on).collect() };
    if std::env::var_os("MATRIX_OURS").is_some() {
        return Row::of_ours(*kind, ours);
    }
    Row {
        kind: *kind,
        ours,
        finder: each(&|seed| outcome(kind, seed, &mut Finder::new(seed), &[11, 12])),
        recorder: each(&|seed| outcome(kind, seed, &mut Recorder::new(seed), &[10, 11, 12])),
        key_sample: each(&|seed| {
            outcome(kind, seed, &mut KeySample::new(seed, Arc::clone(&columns)), &[75])
        }),
        size_only: each(&|seed| outcome(kind, seed, &mut SizeOnly::new(seed, 4_000), &[25])),
    }
}
