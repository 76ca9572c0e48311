//! The scripts of `testscripts/detector`: a stream of operations on one partition in, the verdict on its load out.
//!
//! ```text
//!   watch "uid,ts" s=20                    the verdict on a stream of `lab/hotspot/src/streams/catalogue.rs` after some
//!                                          seconds; also: keep_together=1 (columns), seed=N
//!   confirm sweep moving_right sweep       the verdict that is acted on after these, oldest first
//! ```

use std::error::Error;
use std::sync::Arc;

use goldenscript::{Command, Context, Runner};
use partita_hotspot::picker::{Detector, Picker};
use partita_hotspot::streams::{Kind, Op, SECOND_US, all, prefix_ends};
use partita_load::{Class, DetectOptions, Evidence, Verdict, confirm};

use crate::run;

/// Interval of the operations of a stream, microseconds: about 500 a second.
const STEP_US: usize = 2_003;

struct Script;

/// The newest verdict on a stream, before confirmation.
fn watch(kind: &Kind, options: DetectOptions, seed: u64, seconds: u64) -> Option<Verdict> {
    let widths = kind.columns;
    let detector =
        Detector::new(seed, Arc::new(move |key: &[u8]| prefix_ends(widths, key)), options);
    let mut detector = detector.with_reads(kind.reads);
    if let Some((low, high)) = kind.edges() {
        detector.set_edges(&low, &high);
    }
    let mut stream = kind.stream(seed);
    let mut op = Op::default();
    for at_us in (0..seconds * SECOND_US).step_by(STEP_US) {
        if stream.draw(at_us, &mut op) {
            detector.observe(at_us, &op);
        }
    }
    detector.poll(seconds * SECOND_US);
    detector.verdicts().last().cloned()
}

/// The classes by the names that scripts use.
pub(crate) const CLASSES: [(&str, Class); 12] = [
    ("unknown", Class::Unknown),
    ("static_range", Class::StaticRange),
    ("multi_tail", Class::MultiTail),
    ("hot_key", Class::HotKey),
    ("moving_right", Class::MovingRight),
    ("moving_left", Class::MovingLeft),
    ("moving_within", Class::MovingWithin),
    ("rotating", Class::Rotating),
    ("sweep", Class::Sweep),
    ("scan_bound", Class::ScanBound),
    ("unsplittable", Class::Unsplittable),
    ("read_hot", Class::ReadHot),
];

pub(crate) fn class(name: &str) -> Result<Class, Box<dyn Error>> {
    let entry = CLASSES.iter().find(|(known, _)| *known == name);
    entry.map(|(_, class)| *class).ok_or_else(|| format!("no class {name}").into())
}

pub(crate) fn name(class: Class) -> &'static str {
    CLASSES.iter().find(|(_, known)| *known == class).map_or("?", |(name, _)| name)
}

fn columns(count: usize) -> String {
    if count == 1 { "the first column".to_owned() } else { format!("the first {count} columns") }
}

fn describe(kind: &Kind, verdict: &Verdict) -> String {
    let evidence = &verdict.evidence;
    let mut text = name(verdict.class).to_owned();
    if let Some(cut) = &verdict.cut {
        let depth = prefix_ends(kind.columns, &cut.key).len();
        text.push_str(&format!(
            ": a cut between values of {} leaves {:.2} of the load on the larger side",
            columns(depth),
            cut.larger_share
        ));
    } else if let Some(key) = &verdict.hot_key {
        let depth = prefix_ends(kind.columns, key).len();
        text.push_str(&format!(
            ": one value of {} has {:.2} of the load",
            columns(depth),
            evidence.hot_share
        ));
    } else {
        match verdict.class {
            Class::MovingRight => {
                text.push_str(&format!(
                    ": {:.2} of the keys lie above all before",
                    evidence.append_high
                ));
            }
            Class::MovingLeft => {
                text.push_str(&format!(
                    ": {:.2} of the keys lie below all before",
                    evidence.append_low
                ));
            }
            Class::ScanBound => text.push_str(&format!(
                ": {:.2} of the operations are scans across the best cut",
                evidence.contained
            )),
            Class::Sweep => text.push_str(&format!(
                ": {:.2} of the load has moved between the halves of the window",
                evidence.shift
            )),
            Class::Rotating => text.push_str(&format!(
                ": few keys have {:.2} of the load of a second",
                evidence.concentration
            )),
            Class::Unknown
            | Class::StaticRange
            | Class::MultiTail
            | Class::HotKey
            | Class::MovingWithin
            | Class::Unsplittable
            | Class::ReadHot => {}
        }
    }
    text
}

impl Runner for Script {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        let mut arguments = command.consume_args();
        let output = match command.name.as_str() {
            "watch" => {
                let stream = arguments.next_pos().ok_or("the stream is missing")?;
                let kind = all().into_iter().find(|kind| kind.name == stream);
                let kind = kind.ok_or_else(|| format!("no stream {stream}"))?;
                let seconds = run::take(&mut arguments, "s", 20)?;
                let seed = run::take(&mut arguments, "seed", 1)?;
                let keep_together = run::take(&mut arguments, "keep_together", 0)?;
                let options = DetectOptions { keep_together, ..kind.options };
                let verdict = watch(&kind, options, seed, seconds).ok_or("no verdict")?;
                format!("{stream} ({})\n  -> {}", kind.about, describe(&kind, &verdict))
            }
            "confirm" => {
                let mut recent = Vec::new();
                while let Some(word) = arguments.next_pos() {
                    let class = class(word)?;
                    let evidence = Evidence::default();
                    let (cut, divisions, hot_key) = (None, Vec::new(), None);
                    recent.push(Verdict { class, cut, divisions, hot_key, evidence });
                }
                name(confirm(&recent).class).to_owned()
            }
            other => return Err(format!("unknown command {other}").into()),
        };
        arguments.reject_next()?;
        Ok(output)
    }
}

#[test]
fn scripts() {
    run::run_all("detector", || Script);
}
