//! Chooses the key that splits a partition best: near the middle of its rows, with as few columns of the key as
//! separate well. A bound of few columns keeps related rows in one partition, and stays readable.
//!
//! The keys are a sample: if there are few row groups, every n-th row; if many, the first key of each. Versions and
//! deletes of rows count as rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::Schema;
use bytes::Bytes;
use futures::TryStreamExt;
use partita_proto::domain::Domains;
use partita_proto::key::Keys;
use partita_proto::range::Bound;

use crate::error::Result;
use crate::file::FileEntry;
use crate::file::footer::Counters;
use crate::read::reader::{FileReader, Read};
use crate::rows::layout::Layout;
use crate::state::partition::Partition;

/// With more row groups than this only their first keys are read.
const GROUPS_READ_MAX: usize = 16;
/// Approximate number of sampled keys.
const SAMPLES: usize = 4096;
/// A split that leaves at least one n-th of the rows on its smaller side is even enough to be preferred for a short
/// bound.
const EVEN_ENOUGH: u64 = 4;

/// Sampled keys, and the number of rows that each represents.
type Samples = BTreeMap<Bytes, u64>;

impl Partition {
    /// A key below which about half of the rows lie, with as few columns as leave a quarter of them on either side (if
    /// any number does), and which separates no rows that have to stay together; `None` when no such key leaves rows on
    /// both sides.
    ///
    /// # Errors
    /// When files cannot be read.
    pub async fn middle(&self) -> Result<Option<Bound>> {
        let version = self.version();
        let layout = &version.layout;
        let sealed = version.sealed.iter().flat_map(|sealed| &sealed.memtable.runs);
        let runs: Vec<_> = sealed.chain(&version.active.runs).collect();
        let files = version.files.values();
        let rows = files.clone().map(FileEntry::rows).sum::<u64>()
            + runs.iter().map(|run| run.rows() as u64).sum::<u64>();
        let step = usize::try_from(rows).unwrap_or(usize::MAX).div_ceil(SAMPLES).max(1);
        let mut samples = Samples::new();
        for run in runs {
            sample(&mut samples, &run.sorted.keys, step);
        }
        let groups: usize = files.clone().map(FileEntry::row_groups).sum();
        for file in files {
            if groups <= GROUPS_READ_MAX {
                self.sample_rows(&mut samples, file, layout, step).await?;
            } else {
                sample_groups(&mut samples, file);
            }
        }
        choose(&samples, layout)
    }

    async fn sample_rows(
        &self,
        samples: &mut Samples,
        file: &FileEntry,
        layout: &Arc<Layout>,
        step: usize,
    ) -> Result<()> {
        let reader = FileReader {
            store: Arc::clone(&self.store),
            footers: Arc::clone(&self.footers),
            blocks: Arc::clone(&self.options.blocks),
            counters: Counters::default(),
            layout: Arc::clone(layout),
            series: None,
            indexes: None,
        };
        // Read the key columns only, and only the rows that count.
        let fields = layout.key_names().filter_map(|name| layout.field(name));
        let read = Read {
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            domains: Domains::default(),
            ranges: Arc::from([file.range.clone()]),
            groups: 0..file.row_groups(),
            probes: Arc::from([]),
            keys: None,
        };
        let mut batches = reader.open(file, read).await?;
        while let Some(batch) = batches.try_next().await? {
            let keys = layout.codec.encode(&batch)?;
            let (start, end) = keys.within(&file.range);
            sample(samples, &keys.slice(start..end), step);
        }
        Ok(())
    }
}

/// Samples every `step`-th key, and the last one: it may be the only one of its kind.
fn sample(samples: &mut Samples, keys: &Keys, step: usize) {
    let Some(last) = keys.len().checked_sub(1) else { return };
    let places = (0..last).step_by(step).chain([last]);
    for position in places {
        let rows = (last + 1 - position).min(step) as u64;
        *samples.entry(Bytes::copy_from_slice(keys.get(position))).or_default() += rows;
    }
}

/// Samples the first key of every row group.
fn sample_groups(samples: &mut Samples, file: &FileEntry) {
    let range = std::slice::from_ref(&file.range);
    let rows = file.meta().rows / file.row_groups() as u64;
    for group in (0..file.row_groups()).filter(|group| file.group_overlaps(*group, range)) {
        let (first, _) = file.group_span(group);
        let first = Bytes::copy_from_slice(first).max(file.range.start.clone());
        *samples.entry(first).or_default() += rows;
    }
    if !file.is_clipped() {
        *samples.entry(file.last.clone()).or_default() += 1;
    }
}

/// The best bound among those next to the middle, by number of columns.
fn choose(samples: &Samples, layout: &Layout) -> Result<Option<Bound>> {
    let total: u64 = samples.values().sum();
    let rows_below = |cut: &Bytes| samples.range(..cut.clone()).map(|(_, rows)| rows).sum::<u64>();
    let mut passed = 0;
    let middle = samples.iter().find(|(_, rows)| {
        passed += **rows;
        2 * passed > total
    });
    let Some((middle, _)) = middle else { return Ok(None) };
    let columns_min = usize::from(!layout.codec.placed());
    let permitted = layout.config.schema.options.partitioning.cut_columns_max();
    let columns_max = layout.codec.key_columns().len().min(permitted);
    let mut best: Option<(u64, Bound)> = None;
    for columns in columns_min..=columns_max {
        let prefix = |key: &Bytes| -> Result<(Bytes, Bound)> {
            let mut bound = layout.codec.decode(key)?;
            bound.key.truncate(columns);
            Ok((layout.codec.encode_bound(&bound)?, bound))
        };
        let common = prefix(middle)?;
        // The first key behind all that share the prefix.
        let mut next = None;
        for key in samples.range(middle.clone()..).map(|(key, _)| key) {
            if !key.starts_with(&common.0) {
                next = Some(prefix(key)?);
                break;
            }
        }
        for (cut, bound) in [Some(common), next].into_iter().flatten() {
            let smaller = rows_below(&cut).min(total - rows_below(&cut));
            if smaller > best.as_ref().map_or(0, |(rows, _)| *rows) {
                best = Some((smaller, bound));
            }
        }
        if best.as_ref().is_some_and(|(rows, _)| rows * EVEN_ENOUGH >= total) {
            break;
        }
    }
    Ok(best.map(|(_, bound)| bound))
}
