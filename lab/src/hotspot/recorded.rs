//! A run in a file: the operations sent to the cluster, and the run's parameters.
//!
//! Invariants: the file has everything to repeat the run, except the cluster; it is read to its end before the
//! clock starts, so that damage is detected then; the recorded operations follow from the distribution and the
//! seed, regardless of the cluster's reaction.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context, ensure};
use partita_hotspot::workload::{Kind, Knobs, Op, Reader, SECOND_US, Writer};
use serde::{Deserialize, Serialize};

use super::case::Case;

/// Size of the read and write buffers.
const BUFFER_BYTES: usize = 256 << 10;
/// Maximum length of a run in seconds: a day.
const SECONDS_MAX: u64 = 86_400;
/// Maximum numbers of users or records, and of partitions, in a file.
const ENTITIES_MAX: u64 = 100_000_000;
const PARTITIONS_MAX: u32 = 1_000;

/// Description of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct About {
    pub(super) workload: String,
    pub(super) knobs: Knobs,
    pub(super) seconds: u64,
}

/// Records the operations of a run to a file; returns their number.
///
/// # Errors
/// If it cannot be written.
pub(super) fn record(path: &Path, case: &Case) -> anyhow::Result<u64> {
    let seconds = case.seconds;
    let message = || format!("cannot write {}", path.display());
    let description = About {
        workload: case.workload.unwrap_or("W1").to_owned(),
        knobs: case.knobs.clone(),
        seconds,
    };
    let file = BufWriter::with_capacity(BUFFER_BYTES, File::create(path).with_context(message)?);
    let text = serde_json::to_string(&description)?;
    let mut writer = Writer::new(file, &text, &case.loads[0].shape.widths).with_context(message)?;
    let (mut count, mut failed) = (0, None);
    case.offer.each(seconds, |at_us, kind, op| match writer.add(at_us, kind, op) {
        Ok(()) => {
            count += 1;
            ControlFlow::Continue(())
        }
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    })?;
    match failed {
        Some(error) => Err(error).with_context(message),
        None => writer.finish().map(|_| count).with_context(message),
    }
}

fn open(path: &Path) -> anyhow::Result<Reader<BufReader<File>>> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Reader::new(BufReader::with_capacity(BUFFER_BYTES, file))?)
}

/// Reads a file to its end: its description, and its operations per second.
///
/// # Errors
/// If it cannot be read to its end, or is not the trace of a run.
pub(super) fn scan(path: &Path) -> anyhow::Result<(About, Vec<u64>)> {
    let description: About = serde_json::from_str(open(path)?.about())
        .with_context(|| format!("{} has no valid description of a run", path.display()))?;
    let seconds = description.seconds;
    let knobs = &description.knobs;
    // The contents of a file from anywhere must not exhaust memory.
    let bounded = (1..=SECONDS_MAX).contains(&seconds)
        && knobs.entities <= ENTITIES_MAX
        && knobs.records <= ENTITIES_MAX
        && knobs.partitions <= PARTITIONS_MAX
        && knobs.day_s.min(knobs.hour_s) > 0
        && knobs.rate.is_finite()
        && knobs.rate > 0.0;
    ensure!(bounded, "{} describes an impossible run: {description:?}", path.display());
    let mut offered = vec![0; usize::try_from(seconds)?];
    each(path, |at_us, _, _| {
        let second = usize::try_from(at_us / SECOND_US).unwrap_or(usize::MAX);
        if let Some(count) = offered.get_mut(second) {
            *count += 1;
        }
        ControlFlow::Continue(())
    })?;
    Ok((description, offered))
}

/// Passes the operations of a file to `take`, until it breaks.
///
/// # Errors
/// If it cannot be read, or is damaged.
pub(super) fn each(
    path: &Path,
    mut take: impl FnMut(u64, Kind, &Op) -> ControlFlow<()>,
) -> anyhow::Result<()> {
    let (mut reader, mut op) = (open(path)?, Op::default());
    while let Some((at_us, kind)) = reader.next(&mut op)? {
        if take(at_us, kind, &op).is_break() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::case::tests::cases;
    use super::*;

    fn operations(case: &Case, seconds: u64) -> Vec<(u64, bool, Op)> {
        let mut operations = Vec::new();
        let take = |at_us, kind, op: &Op| {
            operations.push((at_us, kind == Kind::Write, op.clone()));
            ControlFlow::Continue(())
        };
        case.offer.each(seconds, take).unwrap();
        operations
    }

    #[test]
    fn a_recorded_run_is_the_same_run_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let file = path.display().to_string();
        for name in ["W1", "W6:scans", "W15", "W14", "W9"] {
            let run = ["--workload", name, "--design", "ts-uid", "--seconds", "5", "--users", "50"];
            let recorded = cases(&run).unwrap();
            let case = &recorded.all[0];
            let count = record(&path, case).unwrap();
            let replayed = cases(&["--replay", &file]).unwrap();
            let replay = &replayed.all[0];
            assert_eq!((&replay.name, replayed.seconds), (&case.name, 5));
            assert_eq!(replay.table(0), case.table(0));
            // A rate may lose its last digit in JSON.
            assert!((replay.knobs.rate - case.knobs.rate).abs() < 1e-9, "{name}");
            let rate = case.knobs.rate;
            assert_eq!(Knobs { rate, ..replay.knobs.clone() }, case.knobs, "{name}");
            let (was, is) = (operations(case, 5), operations(replay, 5));
            assert_eq!((was.len() as u64, &was), (count, &is), "{name}");
            let offered: f64 = (1..=5).map(|second| replay.offer.offered(second)).sum();
            assert!((offered - was.len() as f64).abs() < 0.5, "{offered}");
        }
    }

    #[test]
    fn a_file_that_is_no_trace_of_a_run_is_refused_before_anything_runs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let file = path.display().to_string();
        let refused = || cases(&["--replay", &file]).err().expect("refused").to_string();
        assert!(refused().contains("cannot read"));
        std::fs::write(&path, "no trace at all").unwrap();
        assert!(refused().contains("magic bytes"), "{}", refused());
        let foreign = Writer::new(Vec::new(), "of something", &[8]).unwrap();
        std::fs::write(&path, foreign.finish().unwrap()).unwrap();
        assert!(refused().contains("no valid description"), "{}", refused());
        let recorded = cases(&["--workload", "W7:", "--seconds", "2"]).unwrap();
        record(&path, &recorded.all[0]).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.truncate(bytes.len() - 20);
        std::fs::write(&path, bytes).unwrap();
        assert!(refused().contains("trace"), "{}", refused());
    }
}
