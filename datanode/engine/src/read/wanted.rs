//! Finds the rows of a file that belong to wanted series.
//!
//! A domain on a tag keeps or drops a whole series, and a series is a run of rows. Where the ends of a file's series
//! are known ([`crate::read::series`]), its rows are selected by their keys, and the columns of the tags are not read at
//! all: these are long runs of equal values, and comparing them row by row would be the largest part of the cost of
//! reading one series.
//!
//! Invariants:
//! - every row that is left out is outside of the domains;
//! - every row that counts (is in the file's range) and is not left out is in all domains that are not returned.

use std::ops::Range;
use std::sync::Arc;

use partita_proto::domain::{Domain, Domains};
use partita_proto::schema::ColumnType;

use crate::error::Result;
use crate::file::FileEntry;
use crate::read::reader::{FileReader, Read};
use crate::read::series::{SeriesCache, SeriesEnds, series, when_asked_often};
use crate::rows::layout::Layout;

/// Minimum rows per series; with fewer it is as cheap to look at each row.
const ROWS_PER_SERIES_MIN: u64 = if cfg!(test) { 1 } else { 32 };

/// Selects rows by their series.
#[derive(Clone)]
pub(crate) struct BySeries {
    pub(crate) cache: Arc<SeriesCache>,
    pub(crate) layout: Arc<Layout>,
}

/// Some rows of a file.
#[derive(Debug, PartialEq)]
pub(crate) struct Wanted {
    /// Row numbers: ascending, disjoint, not empty.
    pub(crate) rows: Vec<Range<usize>>,
    /// Domains that are still to be applied row by row.
    pub(crate) domains: Domains,
}

impl BySeries {
    /// The rows of a file that belong to wanted series; `None` when its series are not known, or the selection would
    /// not help.
    pub(crate) async fn wanted(
        &self,
        reader: &FileReader,
        file: &FileEntry,
        read: &Read,
    ) -> Result<Option<Wanted>> {
        // Only domains on tags select whole series, and only the known ends of a file locate them.
        let Some(tail) = self.layout.time_tail() else { return Ok(None) };
        let tags = self.tags(&read.domains);
        if tags.is_empty() {
            return Ok(None);
        }
        let groups = read.groups.len();
        let ends = when_asked_often(&self.cache, reader, file, &self.layout, tail, groups).await?;
        let Some(ends) = ends else { return Ok(None) };
        // With many candidates reading the columns of the tags is cheaper.
        let candidates = candidates(&ends, tail, read);
        let few = file.meta().rows / ROWS_PER_SERIES_MIN;
        if candidates.iter().map(|places| places.len() as u64).sum::<u64>() > few {
            return Ok(None);
        }
        // Check the tags in each candidate's key, and join rows of neighbouring series.
        let mut rows: Vec<Range<usize>> = Vec::new();
        for place in candidates.into_iter().flatten() {
            let key = ends.keys.get(place);
            let mut is_wanted = true;
            for tag in &tags {
                is_wanted = tag.domain.contains(&self.layout.codec.value(key, tag.position)?);
                if !is_wanted {
                    break;
                }
            }
            if !is_wanted {
                continue;
            }
            let range = ends.rows_of(place);
            match rows.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => rows.push(range),
            }
        }
        let names: Vec<&str> = tags.iter().map(|tag| tag.name).collect();
        let domains = read.domains.only(|name| !names.contains(&name));
        Ok(Some(Wanted { rows, domains }))
    }

    /// Domains on columns of the key that are the same for all rows of a series, and compare alike in keys and in
    /// columns.
    fn tags<'a>(&self, domains: &'a Domains) -> Vec<Tag<'a>> {
        let codec = &self.layout.codec;
        let columns = codec.key_columns().iter().zip(codec.key_types()).enumerate();
        // The last column is the time index.
        let tags = columns.take(codec.key_columns().len().saturating_sub(1));
        let float = |column_type: &ColumnType| {
            matches!(column_type, ColumnType::Float32 | ColumnType::Float64)
        };
        tags.filter(|(_, (_, column_type))| !float(column_type))
            .filter_map(|(position, (column, _))| {
                let (name, domain) = domains.iter().find(|(name, _)| name == column)?;
                Some(Tag { position, name, domain })
            })
            .collect()
    }
}

/// A domain on a column of the key.
struct Tag<'a> {
    position: usize,
    name: &'a str,
    domain: &'a Domain,
}

/// The positions of series that may have rows with wanted keys: ascending, disjoint.
fn candidates(ends: &SeriesEnds, tail: usize, read: &Read) -> Vec<Range<usize>> {
    let mut candidates: Vec<Range<usize>> = Vec::new();
    let mut next = 0;
    for range in &*read.ranges {
        // The first series whose last key is not before the range, and the first whose keys are all behind it.
        let start = ends.keys.lower_bound(&range.start).max(next);
        let mut end = range.end.as_ref().map_or(ends.keys.len(), |end| ends.keys.lower_bound(end));
        // A series that ends behind the range may begin before its end.
        if let Some(end_key) = &range.end
            && end < ends.keys.len()
            && series(ends.keys.get(end), tail) < &end_key[..]
        {
            end += 1;
        }
        if start < end {
            candidates.push(start..end);
            next = end;
        }
    }
    candidates
}
