//! Plans a scan: which sources it reads, and which of them must be merged. A pure function of a version.
//!
//! Two sources have to be merged if they may share a key: if their time spans overlap and their key spans do. Files are
//! grouped by time first (their windows keep these groups apart), then by key. Runs of memtables, which may span
//! everything, are cut at the bounds of the groups; a group of files in which no run has a row is read without them.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use partita_proto::domain::Domains;
use partita_proto::range::KeyRange;
use partita_proto::value::Value;

use crate::file::{FileEntry, overlaps, parts_within};
use crate::read::source::Piece;
use crate::rows::run::Run;
use crate::sizes::ROW_GROUP_ROWS;
use crate::state::version::Version;

/// Row groups of a file that one stream reads, without a merge, before it takes other work.
const PLAIN_GROUPS: usize = 2;
/// The same where indexes may exclude most of their rows: opening a unit is a large part of its cost then.
const INDEXED_GROUPS_MAX: usize = 8;
/// Minimum rows of a merge that is worth dividing.
const MERGE_ROWS_MIN: u64 = 2 * ROW_GROUP_ROWS as u64;

/// Sources that are read together.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    /// Key range of the unit; rows outside belong to another unit, or to none.
    pub(crate) range: KeyRange,
    /// Files with their row groups, oldest first.
    pub(crate) files: Vec<(FileEntry, Range<usize>)>,
    /// Runs, oldest first; younger than all files.
    pub(crate) runs: Vec<Piece>,
    /// Ranges of the wanted keys.
    pub(crate) ranges: Arc<[KeyRange]>,
    /// True if there are several sources that have to be merged.
    pub(crate) merge: bool,
}

impl Unit {
    /// First and last time that its rows may have; `None` if a source does not tell.
    pub(crate) fn time(&self) -> Option<(i64, i64)> {
        let files = self.files.iter().map(|(file, _)| file.meta().time);
        let spans = files.chain(self.runs.iter().map(Piece::time_span));
        let spans: Option<Vec<(i64, i64)>> = spans.collect();
        spans?.into_iter().reduce(|(first, last), span| (first.min(span.0), last.max(span.1)))
    }
}

/// Plan of a scan.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Units of work, in key order if `sorted`.
    pub(crate) units: Vec<Unit>,
    /// True if a stream that reads units in this order yields rows in key order.
    pub(crate) sorted: bool,
    pub(crate) files_pruned: u64,
}

/// Sources that may hold rows of some domains and a range.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) files: Vec<FileEntry>,
    /// Runs, oldest first; younger than all files.
    pub(crate) runs: Vec<Arc<Run>>,
    /// Ranges of the wanted keys.
    pub(crate) ranges: Vec<KeyRange>,
    pub(crate) files_pruned: u64,
}

/// Size of the parts into which a plan divides its work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grain {
    /// Maximum number of parts of a merge, and of streams.
    pub(crate) parallelism: usize,
    /// True if indexes are asked which rows are to be read.
    pub(crate) is_indexed: bool,
}

impl Grain {
    /// Row groups of a unit, of so many that are read without a merge: so few that all streams have work.
    fn plain_groups(self, total: usize) -> usize {
        if !self.is_indexed {
            return PLAIN_GROUPS;
        }
        (total / self.parallelism.max(1)).clamp(PLAIN_GROUPS, INDEXED_GROUPS_MAX)
    }
}

/// Excludes files and runs by key and time.
pub(crate) fn sources(version: &Version, domains: &Domains, exact: &KeyRange) -> Sources {
    let layout = &version.layout;
    let schema = &layout.config.schema;
    let ranges = layout.codec.key_ranges(schema, &layout.config.placement, domains);
    let ranges: Vec<_> = parts_within(&ranges, exact).collect();
    let in_ranges = |span: (&[u8], &[u8])| overlaps(span, &ranges);
    let in_time = |time: Option<(i64, i64)>| {
        let domain = layout.time.as_ref().and_then(|column| domains.get(&column.name));
        let (Some(domain), Some((first, last))) = (domain, time) else { return true };
        domain.may_contain(Some(&Value::Timestamp(first)), Some(&Value::Timestamp(last)), false)
    };
    let is_wanted = |file: &&FileEntry| in_time(file.meta().time) && in_ranges(file.span());
    let files: Vec<FileEntry> = version.files.values().filter(is_wanted).cloned().collect();
    let files_pruned = (version.files.len() - files.len()) as u64;
    let sealed = version.sealed.iter().flat_map(|sealed| &sealed.memtable.runs);
    let runs = sealed.chain(&version.active.runs);
    let runs = runs.filter(|run| in_time(run.time) && in_ranges(run.span())).cloned().collect();
    Sources { files, runs, ranges, files_pruned }
}

/// Plans a scan of the rows within some domains and (exactly) a range.
pub(crate) fn plan(version: &Version, domains: &Domains, exact: &KeyRange, grain: Grain) -> Plan {
    let Sources { files, runs, ranges, files_pruned } = sources(version, domains, exact);
    let mut units = match version.layout.policy.folds() {
        true => merging_units(files, &runs, &ranges, exact, grain),
        false => plain_units(files, &runs, &ranges, grain),
    };
    let sorted = sort_units(&mut units);
    Plan { units, sorted, files_pruned }
}

/// Units of a table that keeps all rows: nothing is ever merged.
fn plain_units(
    files: Vec<FileEntry>,
    runs: &[Arc<Run>],
    ranges: &[KeyRange],
    grain: Grain,
) -> Vec<Unit> {
    let ranges: Arc<[KeyRange]> = Arc::from(ranges);
    let groups = grain.plain_groups(files.iter().map(FileEntry::row_groups).sum());
    let mut units: Vec<Unit> =
        files.into_iter().flat_map(|file| plain_file(&file, &ranges, groups)).collect();
    units.extend(runs.iter().map(|run| {
        plain_run(Piece { run: Arc::clone(run), ranges: Arc::clone(&ranges), time: None })
    }));
    units
}

/// Units of a file that is not merged, of `step` row groups each.
fn plain_file(file: &FileEntry, ranges: &Arc<[KeyRange]>, step: usize) -> Vec<Unit> {
    let groups = 0..file.row_groups();
    let parts = groups.clone().step_by(step);
    let unit = |start: usize| {
        let part = start..groups.end.min(start + step);
        let overlaps = part.clone().any(|group| file.group_overlaps(group, ranges));
        overlaps.then(|| Unit {
            range: group_range(file, &part),
            files: vec![(file.clone(), part)],
            runs: Vec::new(),
            ranges: Arc::clone(ranges),
            merge: false,
        })
    };
    parts.filter_map(unit).collect()
}

fn plain_run(piece: Piece) -> Unit {
    let (first, last) = piece.run.span();
    Unit {
        range: KeyRange { start: Bytes::copy_from_slice(first), end: Some(behind(last)) },
        files: Vec::new(),
        ranges: Arc::clone(&piece.ranges),
        runs: vec![piece],
        merge: false,
    }
}

/// The keys of some row groups. The end includes the next group's first key, since equal keys may continue into the
/// next group.
fn group_range(file: &FileEntry, groups: &Range<usize>) -> KeyRange {
    let start = match groups.start {
        0 => file.first.clone(),
        group => file.splits[group - 1].clone(),
    };
    let last = groups.end.checked_sub(1).and_then(|group| file.splits.get(group));
    KeyRange { start, end: Some(last.cloned().unwrap_or_else(|| behind(&file.last))) }
}

/// The smallest key greater than `key`.
fn behind(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

/// Units of a table whose rows fold.
fn merging_units(
    files: Vec<FileEntry>,
    runs: &[Arc<Run>],
    ranges: &[KeyRange],
    exact: &KeyRange,
    grain: Grain,
) -> Vec<Unit> {
    let mut units = Vec::new();
    let groups = group_by_time(files);
    let cuts: Vec<i64> = groups.iter().skip(1).filter_map(|group| Some(group.time?.0)).collect();
    let groups = if groups.is_empty() { vec![TimeGroup::default()] } else { groups };
    for (number, group) in groups.into_iter().enumerate() {
        let start = number.checked_sub(1).map_or(i64::MIN, |previous| cuts[previous]);
        let end = cuts.get(number).copied().unwrap_or(i64::MAX);
        let pieces: Vec<(Arc<Run>, Option<(i64, i64)>)> = runs
            .iter()
            .filter_map(|run| cut_run(run, (start, end)).map(|time| (Arc::clone(run), time)))
            .collect();
        units.extend(key_units(group.files, &pieces, ranges, exact, grain));
    }
    units
}

/// Decides whether a run is read for the ticks from `start` to `end` (half-open; the end of time is included): `None`
/// if it has no such rows, `Some(None)` if all of it is read, and `Some(Some(_))` if it must be cut to these ticks.
#[expect(clippy::option_option, reason = "none, some of it uncut, some of it cut")]
fn cut_run(run: &Run, (start, end): (i64, i64)) -> Option<Option<(i64, i64)>> {
    let Some((first, last)) = run.time else { return Some(None) };
    let ends = end != i64::MAX;
    if last < start || (ends && first >= end) {
        return None;
    }
    let inside = first >= start && (!ends || last < end);
    Some((!inside).then_some((start, end)))
}

#[derive(Default)]
struct TimeGroup {
    time: Option<(i64, i64)>,
    files: Vec<FileEntry>,
}

/// Groups of files that overlap in time; the groups are in order and disjoint. Files without time overlap all.
fn group_by_time(mut files: Vec<FileEntry>) -> Vec<TimeGroup> {
    files.sort_by_key(|file| file.meta().time);
    let mut groups: Vec<TimeGroup> = Vec::new();
    for file in files {
        let time = file.meta().time;
        match (groups.last_mut(), time) {
            (Some(group), Some((first, last)))
                if group.time.is_none_or(|(_, end)| first <= end) =>
            {
                group.time = group.time.map(|(start, end)| (start, end.max(last)));
                group.files.push(file);
            }
            (Some(group), None) => group.files.push(file),
            _ => groups.push(TimeGroup { time, files: vec![file] }),
        }
    }
    groups
}

/// Units of sources whose times overlap, cut at keys that no file spans.
fn key_units(
    mut files: Vec<FileEntry>,
    runs: &[(Arc<Run>, Option<(i64, i64)>)],
    ranges: &[KeyRange],
    exact: &KeyRange,
    grain: Grain,
) -> Vec<Unit> {
    files.sort_by(|a, b| a.first.cmp(&b.first));
    let mut groups: Vec<(KeyRange, Vec<FileEntry>)> = Vec::new();
    for file in files {
        let end = behind(&file.last);
        match groups.last_mut() {
            Some((range, group)) if range.end.as_ref().is_some_and(|end| file.first < *end) => {
                range.end = range.end.take().max(Some(end));
                group.push(file);
            }
            _ => {
                groups.push((KeyRange { start: file.first.clone(), end: Some(end) }, vec![file]));
            }
        }
    }
    // Runs may have rows between the groups, and before and after them.
    let mut segments = Vec::with_capacity(groups.len() * 2 + 1);
    let mut start = Bytes::new();
    for (range, files) in groups {
        segments.push((KeyRange { start, end: Some(range.start.clone()) }, Vec::new()));
        start = range.end.clone().unwrap_or_default();
        segments.push((range, files));
    }
    segments.push((KeyRange { start, end: None }, Vec::new()));
    let mut units = Vec::new();
    for (range, files) in segments {
        let range = range.intersect(exact);
        segment_units(&mut units, range, files, runs, ranges, grain);
    }
    units
}

/// Units of sources that have to be merged if there are several.
fn segment_units(
    units: &mut Vec<Unit>,
    range: KeyRange,
    mut files: Vec<FileEntry>,
    runs: &[(Arc<Run>, Option<(i64, i64)>)],
    ranges: &[KeyRange],
    grain: Grain,
) {
    let wanted_ranges: Arc<[KeyRange]> = parts_within(ranges, &range).collect();
    let mut pieces = Vec::new();
    for (run, time) in runs {
        let piece = Piece { run: Arc::clone(run), ranges: Arc::clone(&wanted_ranges), time: *time };
        if !wanted_ranges.is_empty() && !piece.run.within(&wanted_ranges).is_empty() {
            pieces.push(piece);
        }
    }
    if wanted_ranges.is_empty() || (files.is_empty() && pieces.is_empty()) {
        return;
    }
    if files.len() == 1 && pieces.is_empty() {
        let groups = grain.plain_groups(files[0].row_groups());
        units.extend(plain_file(&files[0], &wanted_ranges, groups));
        return;
    }
    if files.is_empty() && pieces.len() == 1 {
        units.extend(pieces.pop().map(|piece| Unit { range, ..plain_run(piece) }));
        return;
    }
    // Oldest first: files of one run share no key, so their order does not matter.
    files.sort_by_key(|file| (file.meta().run, file.meta().id));
    for part in divide(&range, &files, &pieces, grain.parallelism) {
        let wanted_ranges: Arc<[KeyRange]> = parts_within(&wanted_ranges, &part).collect();
        if wanted_ranges.is_empty() {
            continue;
        }
        let overlapping =
            |group: &usize, file: &FileEntry| file.group_overlaps(*group, &wanted_ranges);
        let part_files = files.iter().filter_map(|file| {
            let mut groups = (0..file.row_groups()).filter(|group| overlapping(group, file));
            let first = groups.next()?;
            let last = groups.next_back().unwrap_or(first);
            Some((file.clone(), first..last + 1))
        });
        let part_runs = pieces
            .iter()
            .map(|piece| Piece { ranges: Arc::clone(&wanted_ranges), ..piece.clone() });
        units.push(Unit {
            files: part_files.collect(),
            runs: part_runs.collect(),
            range: part,
            ranges: wanted_ranges,
            merge: true,
        });
    }
}

/// Divides a range into parts with about the same number of row groups.
fn divide(
    range: &KeyRange,
    files: &[FileEntry],
    pieces: &[Piece],
    parallelism: usize,
) -> Vec<KeyRange> {
    let in_files: u64 = files.iter().map(|file| file.meta().rows).sum();
    let in_runs: u64 = pieces.iter().map(|piece| piece.run.rows() as u64).sum();
    let parts = usize::try_from((in_files + in_runs) / MERGE_ROWS_MIN).unwrap_or(usize::MAX);
    let parts = parts.clamp(1, parallelism);
    let starts = files.iter().flat_map(|file| file.splits.iter().chain([&file.first]));
    let mut starts: Vec<&Bytes> = starts.filter(|start| **start > range.start).collect();
    starts.sort();
    starts.dedup();
    let mut cuts: Vec<Bytes> = (1..parts)
        .filter_map(|part| starts.get(part * starts.len() / parts).map(|start| Bytes::clone(start)))
        .collect();
    cuts.dedup();
    let mut ranges = Vec::with_capacity(parts);
    let mut start = range.start.clone();
    for cut in cuts {
        ranges.push(KeyRange { start, end: Some(cut.clone()) });
        start = cut;
    }
    ranges.push(KeyRange { start, end: range.end.clone() });
    ranges
}

/// Sorts units by key; true if no two overlap.
fn sort_units(units: &mut [Unit]) -> bool {
    let in_order = |units: &[Unit]| {
        units
            .windows(2)
            .all(|pair| pair[0].range.end.as_ref().is_some_and(|end| *end <= pair[1].range.start))
    };
    let mut starts: Vec<usize> = (0..units.len()).collect();
    starts.sort_by(|a, b| units[*a].range.start.cmp(&units[*b].range.start));
    let sorted: Vec<Unit> = starts.iter().map(|position| units[*position].clone()).collect();
    if in_order(&sorted) {
        units.clone_from_slice(&sorted);
        return true;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_larger_where_indexes_exclude_rows_but_all_streams_have_work() {
        let groups =
            |is_indexed, parallelism, total| Grain { parallelism, is_indexed }.plain_groups(total);
        assert_eq!(groups(false, 2, 100), 2);
        assert_eq!(groups(true, 2, 100), 8);
        assert_eq!(groups(true, 2, 10), 5);
        assert_eq!(groups(true, 16, 20), 2);
        assert_eq!(groups(true, 0, 0), 2);
    }
}
