//! Compaction and expiry: fewer files for the same rows, and no files for expired ones.
//!
//! A pure function, [`pick`], decides from the metadata of the files which ones to merge. It looks at one window at a
//! time (files of overlapping windows count as one window, since a key's versions may be in both) and merges
//! neighbouring runs of about one size into one of the next size. Files that reach beyond the partition's range come
//! first: they are rewritten without the rows outside, once the range has been stable for a while, since one split is
//! often followed by the next, and writers need the CPU then. During a high write rate more runs are collected first: a
//! result merged then would soon be merged again.
//!
//! A file that lacks an index of its table is rewritten alone, when nothing else is due and writes are not fast: so a
//! new index comes into existing files one by one, whatever happens to the partition meanwhile. An index that was
//! dropped leaves with the next rewrite for another reason.
//!
//! A merge of a wide table leaves out cells that are garbage ([`crate::rows::collector`]). A cell that is garbage among some
//! files is garbage among all: others only add newer versions.
//!
//! Invariants:
//! - the runs of a pick are neighbours in age, so that no version of a key in a file that is left out lies between the
//!   merged ones;
//! - a merge during which the partition's range changed is discarded;
//! - where a file is known to be damaged, no file of its windows is merged: its rows keep their place among the
//!   versions;
//! - deletes are dropped only by a pick that begins with the oldest run of its window: no older row is left that they
//!   would have to hide.

use std::collections::BTreeMap;
use std::sync::Arc;

use partita_proto::domain::Domains;

use crate::error::{EngineError, Result};
use crate::file::footer::Counters;
use crate::file::{FileEntry, FileId, FileMeta};
use crate::options::EngineOptions;
use crate::parquet::row_group::Purpose;
use crate::read::reader::{FileReader, Read};
use crate::read::source::file_input;
use crate::rows::collector::Collector;
use crate::rows::merge::Merge;
use crate::state::manifest::Edit;
use crate::state::partition::Partition;
use crate::state::version::Version;
use crate::write::rewrite::discard;

/// Maximum runs of one merge: a row group of each is in memory.
const RUNS_MAX: usize = 16;
/// Runs up to this size count as one size.
const SIZE_MIN: u64 = 4 * 1024 * 1024;

/// Maximum interval between flushes that counts as a high write rate, and the time it takes to end.
const BUSY_MS: i64 = 10_000;

/// Time for which the range must be stable before files that reach beyond it are rewritten.
const REST_MS: i64 = 10_000;

/// Conditions under which files are merged now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aim {
    /// Minimum number of runs of one size.
    runs_min: usize,
    /// True if files that reach beyond the range are rewritten, even alone.
    clipped: bool,
    /// True if files that lack an index are rewritten alone.
    unindexed: bool,
}

impl Aim {
    /// Conditions for a partition that is being written fast or not, and whose range has been stable for some time.
    fn new(options: &EngineOptions, busy: bool, stable_ms: i64) -> Self {
        let runs = if busy { options.compaction_runs_busy } else { options.compaction_runs };
        // A merge never takes more runs, so a higher minimum would never be reached.
        let runs_min = runs.clamp(2, RUNS_MAX);
        Self { runs_min, clipped: stable_ms >= REST_MS, unindexed: !busy }
    }
}

/// Times at which the last two flushes ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flushes {
    last_ms: Option<i64>,
    before_ms: Option<i64>,
}

impl Flushes {
    pub(crate) fn note(&mut self, now_ms: i64) {
        self.before_ms = self.last_ms.replace(now_ms);
    }

    /// True if the write rate is high: the last two flushes followed each other closely, and recently.
    fn busy(&self, now_ms: i64) -> bool {
        let (Some(last), Some(previous)) = (self.last_ms, self.before_ms) else { return false };
        now_ms.saturating_sub(last) < BUSY_MS && last.saturating_sub(previous) < BUSY_MS
    }
}

/// Files to be merged into one run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pick {
    files: Vec<FileId>,
    /// Time window of the result.
    window: Option<(i64, i64)>,
    /// True if no older file is left in the window.
    covering: bool,
}

/// Metadata of a file that decides about merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct View {
    id: FileId,
    run: u64,
    bytes: u64,
    window: Option<(i64, i64)>,
    has_op: bool,
    /// True if the file reaches beyond the partition's range.
    clipped: bool,
    /// True if the file lacks an index of the table.
    unindexed: bool,
    /// True if the file is known to be damaged.
    damaged: bool,
    /// True if the file may have garbage, and everything is to be merged.
    collectable: bool,
}

/// The files of one run in one window.
#[derive(Clone, Debug, Default)]
struct RunOfFiles {
    files: Vec<FileId>,
    bytes: u64,
    has_op: bool,
    clipped: Vec<FileId>,
    unindexed: Vec<FileId>,
    damaged: bool,
    collectable: bool,
}

/// Overlapping windows and their runs, oldest first.
#[derive(Clone, Debug)]
struct Window {
    window: Option<(i64, i64)>,
    runs: Vec<RunOfFiles>,
}

impl Partition {
    /// True if there are files to be merged, or to be deleted.
    pub fn wants_compaction(&self) -> bool {
        if !self.garbage.lock().is_empty() {
            return true;
        }
        let version = self.version();
        let aim = self.aim();
        let mut due = self.compaction_due.lock();
        // Called often, while files change seldom: the decision is cached.
        let conditions = (version.files_changes, version.layout.config.schema.version, aim);
        match *due {
            Some((cached, answer)) if cached == conditions => answer,
            _ => {
                let answer = pick(&views(&version), &self.options, aim).is_some();
                *due = Some((conditions, answer));
                answer
            }
        }
    }

    /// Conditions under which files are merged now.
    fn aim(&self) -> Aim {
        let options = &self.options;
        let now_ms = self.clock.now_ms();
        let busy = self.flushes.lock().busy(now_ms);
        let epoch = self.config().epoch;
        let mut range_since = self.range_since.lock();
        let since_ms = match *range_since {
            Some((seen_epoch, since_ms)) if seen_epoch == epoch => since_ms,
            _ => {
                *range_since = Some((epoch, now_ms));
                now_ms
            }
        };
        Aim::new(options, busy, now_ms.saturating_sub(since_ms))
    }

    /// Merges files where there are too many; with `everything`, merges all files of each window into one run (possibly
    /// several files, but they share no key) and carries out all deletes. Returns true if anything was merged. Readers
    /// and writers continue meanwhile.
    ///
    /// # Errors
    /// [`EngineError::DiskFull`] and [`EngineError::Corrupted`]: nothing was changed. Anything else: stop the
    /// partition.
    pub async fn compact(&self, everything: bool) -> Result<bool> {
        let _one_at_a_time = self.compacting.lock().await;
        self.check_running()?;
        let mut changed = !self.garbage.lock().is_empty();
        self.collect_garbage().await?;
        // Files that are there now may have garbage; those that are written here have none.
        let newest = self.version().files.keys().max().copied().unwrap_or_default();
        loop {
            let version = self.version();
            let mut views = views(&version);
            let is_wide = version.layout.config.schema.options.wide.is_some();
            for view in &mut views {
                view.collectable = is_wide && everything && view.id <= newest;
            }
            let picked =
                if everything { pick_all(&views) } else { pick(&views, &self.options, self.aim()) };
            let Some(pick) = picked else { return Ok(changed) };
            if !self.merge_files(version, pick).await? {
                return Ok(changed);
            }
            changed = true;
            self.collect_garbage().await?;
            if !everything {
                return Ok(true);
            }
        }
    }

    /// Merges picked files; false when they were truncated meanwhile, or the partition's range has changed.
    async fn merge_files(&self, version: Arc<Version>, pick: Pick) -> Result<bool> {
        let mut written = Vec::new();
        if let Err(error) = self.write_merged(&version, &pick, &mut written).await {
            discard(&self.store, &self.root, &written).await;
            return Err(error);
        }
        let removed = version.files.values().filter(|entry| pick.files.contains(&entry.meta().id));
        let removed: Vec<_> = removed.map(|entry| Arc::clone(&entry.handle)).collect();
        let epoch = version.layout.config.epoch;
        drop(version);
        let mut manifest = self.manifest.lock().await;
        let current = self.version();
        // A merge for an earlier range may hold rows outside the current one, or lack some inside.
        let is_current = current.layout.config.epoch == epoch;
        if !is_current || !pick.files.iter().all(|id| current.files.contains_key(id)) {
            discard(&self.store, &self.root, &written).await;
            return Ok(false);
        }
        drop(current);
        let edit = Edit { added: written.clone(), removed: pick.files.clone(), ..Edit::default() };
        self.record(&mut manifest, edit, &written).await?;
        let added = self.handles(&written);
        self.update(|current| current.replaced(&pick.files, added))?;
        self.retire(&removed);
        tracing::debug!(
            partition = %self.root, merged = pick.files.len(), into = written.len(), "files merged"
        );
        Ok(true)
    }

    async fn write_merged(
        &self,
        version: &Version,
        pick: &Pick,
        written: &mut Vec<FileMeta>,
    ) -> Result<()> {
        let layout = &version.layout;
        let mut files: Vec<FileEntry> =
            pick.files.iter().filter_map(|id| version.files.get(id).cloned()).collect();
        files.sort_by_key(|file| (file.meta().run, file.meta().id));
        // The result is as old as its youngest input.
        let run = files.last().map(|file| file.meta().run);
        let run = run.ok_or_else(|| EngineError::Internal("nothing to merge".to_owned()))?;
        let with_op = files.iter().any(|file| file.meta().has_op);
        let schema = layout.file_schema(with_op);
        let mut alive = Domains::default();
        if let Some((name, domain)) = layout.alive(self.clock.now_ms()) {
            alive.restrict(name, domain);
        }
        let reader = FileReader {
            store: Arc::clone(&self.store),
            footers: Arc::clone(&self.footers),
            blocks: Arc::clone(&self.options.blocks),
            counters: Counters::default(),
            layout: Arc::clone(layout),
            series: None,
            // All rows are read: nothing is asked.
            indexes: None,
        };
        let inputs = files.into_iter().map(|file| {
            let read = Read {
                schema: Arc::clone(&schema),
                domains: alive.clone(),
                ranges: Arc::from([file.range.clone()]),
                groups: 0..file.row_groups(),
                probes: Arc::from([]),
                keys: None,
            };
            // Files may hold rows outside the partition's range: these are dropped here.
            let bounds = file.bounds(&layout.range);
            file_input(reader.clone(), file, read, Arc::clone(layout), bounds)
        });
        let collector = Collector::new(layout, self.clock.now_ms());
        let merge = Merge::new(layout, Arc::clone(&schema), inputs.collect(), pick.covering);
        let merge = merge.collecting(collector);
        let schema = layout.file_schema(with_op && !pick.covering);
        let output = self.output(layout, Purpose::Compaction);
        output.write(merge, schema, run, pick.window, written).await
    }

    /// Deletes files all of whose rows have expired. (Scans leave expired rows out anyway.) Returns true if there were
    /// any. Call it now and then: it also deletes the files of another replica's broken transfer that is not resumed.
    ///
    /// # Errors
    /// As [`Partition::compact`].
    pub async fn expire(&self) -> Result<bool> {
        let _one_at_a_time = self.compacting.lock().await;
        self.check_running()?;
        self.collect_garbage().await?;
        self.tidy_arrivals().await;
        let mut manifest = self.manifest.lock().await;
        let version = self.version();
        let Some(oldest) = version.layout.oldest_tick(self.clock.now_ms()) else {
            return Ok(false);
        };
        let expired = |file: &&FileEntry| file.meta().time.is_some_and(|(_, last)| last < oldest);
        let removed = version.files.values().filter(expired);
        let removed: Vec<_> = removed.map(|entry| Arc::clone(&entry.handle)).collect();
        drop(version);
        if removed.is_empty() {
            return Ok(false);
        }
        let ids: Vec<FileId> = removed.iter().map(|handle| handle.meta.id).collect();
        let edit = Edit { removed: ids.clone(), ..Edit::default() };
        self.record(&mut manifest, edit, &[]).await?;
        self.update(|current| current.replaced(&ids, Vec::new()))?;
        drop(manifest);
        self.retire(&removed);
        tracing::info!(partition = %self.root, files = ids.len(), "expired files dropped");
        drop(removed);
        self.collect_garbage().await?;
        Ok(true)
    }
}

fn views(version: &Version) -> Vec<View> {
    let view = |file: &FileEntry| {
        let FileMeta { id, run, window, has_op, .. } = *file.meta();
        let (clipped, damaged) = (file.is_clipped(), file.handle.damage().is_some());
        let unindexed = file.meta().lacks_index(&version.layout.indexes);
        let (bytes, collectable) = (file.bytes(), false);
        View { id, run, bytes, window, has_op, clipped, unindexed, damaged, collectable }
    };
    version.files.values().map(view).collect()
}

/// The windows of files, in order, without those that hold a damaged file.
fn windows(files: &[View]) -> Vec<Window> {
    let mut files = files.to_vec();
    files.sort_by_key(|file| file.window);
    let mut windows: Vec<(Option<(i64, i64)>, BTreeMap<u64, RunOfFiles>)> = Vec::new();
    for file in files {
        let joins = windows.last().is_some_and(|(window, _)| match (window, file.window) {
            (Some((_, end)), Some((start, _))) => start < *end,
            // Without a time index there is one window.
            _ => true,
        });
        if !joins {
            windows.push((file.window, BTreeMap::new()));
        }
        let Some((window, runs)) = windows.last_mut() else { continue };
        if let (Some((_, end)), Some((_, file_end))) = (window, file.window) {
            *end = (*end).max(file_end);
        }
        let run = runs.entry(file.run).or_default();
        run.files.push(file.id);
        run.bytes += file.bytes;
        run.has_op |= file.has_op;
        run.clipped.extend(file.clipped.then_some(file.id));
        run.unindexed.extend(file.unindexed.then_some(file.id));
        run.damaged |= file.damaged;
        run.collectable |= file.collectable;
    }
    let window =
        |(window, runs): (_, BTreeMap<_, _>)| Window { window, runs: runs.into_values().collect() };
    let whole = |window: &Window| window.runs.iter().all(|run| !run.damaged);
    windows.into_iter().map(window).filter(whole).collect()
}

/// The next merge. Among merges that are due, one with a file that reaches beyond the range comes first: it writes that
/// file once for both purposes. Then such a file alone, then any other, and last a file alone that lacks an index.
fn pick(files: &[View], options: &EngineOptions, aim: Aim) -> Option<Pick> {
    let windows = windows(files);
    let due = windows.iter().filter_map(|window| pick_in(window, options, aim.runs_min));
    let due: Vec<Pick> = due.collect();
    let clipped = |id: &FileId| files.iter().any(|file| file.id == *id && file.clipped);
    let combined = due.iter().find(|pick| pick.files.iter().any(clipped)).cloned();
    let clipped_only = || windows.iter().find_map(Window::pick_clipped).filter(|_| aim.clipped);
    let unindexed = |run: &RunOfFiles| run.unindexed.first().copied();
    let unindexed_only = || {
        let first = windows.iter().find_map(|window| window.pick_alone(unindexed));
        first.filter(|_| aim.unindexed)
    };
    combined.or_else(clipped_only).or(due.into_iter().next()).or_else(unindexed_only)
}

fn pick_in(window: &Window, options: &EngineOptions, runs_min: usize) -> Option<Pick> {
    let size = |run: &RunOfFiles| run.bytes.max(SIZE_MIN).ilog2() / 2;
    let sizes: std::collections::BTreeSet<u32> = window.runs.iter().map(size).collect();
    for largest in sizes {
        let mut start = 0;
        while start < window.runs.len() {
            let (mut bytes, mut most) = (0, 0);
            let mut end = start;
            while let Some(run) = window.runs.get(end)
                && end - start < RUNS_MAX
                && size(run) <= largest
                && bytes + run.bytes <= options.compaction_bytes_max
            {
                bytes += run.bytes;
                most = most.max(run.bytes);
                end += 1;
            }
            // A large run is not rewritten for the sake of a few small ones.
            if end - start >= runs_min && bytes >= 2 * most {
                return Some(window.pick(start, end));
            }
            start = end.max(start + 1);
        }
    }
    None
}

/// The next merge towards one run per window, without deletes and with all indexes.
fn pick_all(files: &[View]) -> Option<Pick> {
    let windows = windows(files);
    let unfinished = |run: &RunOfFiles| {
        let is_outdated = !run.clipped.is_empty() || !run.unindexed.is_empty();
        run.has_op || run.collectable || is_outdated
    };
    let due = |window: &&Window| window.runs.len() > 1 || window.runs.iter().any(unfinished);
    windows.iter().find(due).map(|window| window.pick(0, window.runs.len()))
}

impl Window {
    fn pick(&self, start: usize, end: usize) -> Pick {
        let files = self.runs[start..end].iter().flat_map(|run| run.files.iter().copied());
        Pick { files: files.collect(), window: self.window, covering: start == 0 }
    }

    /// A file that reaches beyond the partition's range.
    fn pick_clipped(&self) -> Option<Pick> {
        self.pick_alone(|run| run.clipped.first().copied())
    }

    /// The file that `choose` names in the oldest run where it names one. It shares no key with the others of its run,
    /// so it can be rewritten without them.
    fn pick_alone(&self, choose: impl Fn(&RunOfFiles) -> Option<FileId>) -> Option<Pick> {
        let mut runs = self.runs.iter().enumerate();
        let chosen = runs.find_map(|(position, run)| Some((position, choose(run)?)));
        chosen.map(|(position, id)| Pick {
            files: vec![id],
            window: self.window,
            covering: position == 0,
        })
    }
}

#[cfg(test)]
mod scripts;

#[cfg(test)]
mod tests {
    use super::*;

    impl Partition {
        /// Merges some neighbours of some window, whatever their sizes.
        pub(crate) async fn compact_some(&self, [window, from, count]: [usize; 3]) -> Result<()> {
            let _one_at_a_time = self.compacting.lock().await;
            let version = self.version();
            let windows = windows(&views(&version));
            if !windows.is_empty() {
                let window = &windows[window % windows.len()];
                let from = from % window.runs.len();
                let pick = window.pick(from, window.runs.len().min(from + 1 + count % 3));
                self.merge_files(version, pick).await?;
            }
            Ok(())
        }
    }
}
