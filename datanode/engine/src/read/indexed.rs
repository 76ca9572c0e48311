//! Asks the indexes of a file which of its rows may pass some tests.
//!
//! ```text
//!   tests ── chosen index for each ── segments (cached, or read and checked) ── bitmaps ── rows of the file
//! ```
//!
//! An answer holds every row that passes, and perhaps others: the caller still applies its predicates, except those
//! whose answers are exact ([`Answers::exact`]). A row group about which no index can tell is answered as a whole. All
//! segments that some row groups need are read at once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use parquet::file::metadata::ParquetMetaData;
use partita_proto::index::IndexOptions;
use partita_proto::service::IndexKey;
use roaring::RoaringBitmap;

use crate::error::{EngineError, Result};
use crate::file::FileEntry;
use crate::file::blocks::BlockReader;
use crate::file::footer::{Counters, Footer};
use crate::index::cache::IndexCache;
use crate::index::directory::Listed;
use crate::index::{POINTS_MAX, Segment};
use crate::read::questions::{Prepared, PreparedTest};
use crate::rows::layout::Layout;

/// Minimum rows of a row group whose indexes are asked, unless they are asked about another one of the file: fewer rows
/// are read as fast.
pub(crate) const GROUP_ROWS_MIN: usize = if cfg!(test) { 1 } else { 1024 };
/// Row groups whose segments are in memory at once, beside those in the cache.
const GROUPS_AT_ONCE: usize = if cfg!(test) { 2 } else { 8 };

/// Access to the segments of one open file.
pub(crate) struct Segments<'a> {
    pub(crate) file: &'a FileEntry,
    pub(crate) footer: &'a Arc<Footer>,
    pub(crate) blocks: &'a BlockReader,
    pub(crate) cache: &'a IndexCache,
    pub(crate) layout: &'a Layout,
    pub(crate) counters: &'a Counters,
}

/// Rows that may pass some tests.
pub(crate) struct Answers<R> {
    /// The rows; `None` if no index restricts them.
    pub(crate) rows: R,
    /// For each test, true if all of these rows pass it: it need not be applied again.
    pub(crate) exact: Vec<bool>,
}

/// A test, with the index that is asked for each part of it. Parts that no index answers are left out.
enum Choice<'a> {
    All(Vec<Self>),
    Any(Vec<Self>),
    Ask {
        /// Position of the index in the file's directory.
        position: usize,
        /// True if no row of an answer fails the test.
        is_exact: bool,
        column: &'a str,
        test: &'a PreparedTest,
    },
}

/// Segments by position in the directory and by row group.
type Loaded = BTreeMap<(usize, usize), Arc<Segment>>;

impl Segments<'_> {
    /// Rows of some row groups that may pass all tests, as row numbers of the file: ascending, disjoint; `None` if no
    /// index restricts them. The groups are ascending.
    pub(crate) async fn rows(
        &self,
        tests: &[&Prepared],
        groups: &[usize],
    ) -> Result<Answers<Option<Vec<Range<usize>>>>> {
        let Answers { rows: answers, exact } = self.answers(tests, groups).await?;
        if answers.iter().all(Option::is_none) {
            return Ok(Answers { rows: None, exact });
        }
        let starts = group_starts(self.footer.metadata.metadata());
        let mut rows = Vec::new();
        for (group, answer) in groups.iter().zip(answers) {
            let (start, end) = (starts[*group], starts[*group + 1]);
            match answer {
                Some(answer) => {
                    answer.iter().for_each(|row| add_row(&mut rows, start + row as usize));
                }
                None => rows.push(start..end),
            }
        }
        Ok(Answers { rows: Some(rows), exact })
    }

    /// For each of some row groups the rows that may pass all tests, counted from the group's first row; `None` if no
    /// index tells.
    pub(crate) async fn answers(
        &self,
        tests: &[&Prepared],
        groups: &[usize],
    ) -> Result<Answers<Vec<Option<RoaringBitmap>>>> {
        let choices: Vec<_> = tests.iter().map(|test| self.choose(test)).collect();
        if choices.iter().all(Option::is_none) {
            return Ok(Answers { rows: vec![None; groups.len()], exact: vec![false; tests.len()] });
        }
        // An exact index may still have no answer in some row group.
        let mut exact: Vec<bool> =
            choices.iter().map(|choice| choice.as_ref().is_some_and(Choice::is_exact)).collect();
        let mut positions = BTreeSet::new();
        choices.iter().flatten().for_each(|choice| choice.add_positions(&mut positions));
        let metadata = self.footer.metadata.metadata();
        // Small groups beside a large one are asked as well: without their answers, none would be exact.
        let has_large = groups.iter().any(|group| group_rows(metadata, *group) >= GROUP_ROWS_MIN);
        let mut answers = Vec::with_capacity(groups.len());
        for part in groups.chunks(GROUPS_AT_ONCE) {
            let segments = self.load(&positions, if has_large { part } else { &[] }).await?;
            for group in part {
                answers.push(self.answer(&choices, *group, &segments, &mut exact)?);
            }
        }
        Ok(Answers { rows: answers, exact })
    }

    /// The index to be asked for each part of a test; `None` if the file's indexes cannot tell who passes it.
    fn choose<'t>(&self, test: &'t Prepared) -> Option<Choice<'t>> {
        match test {
            Prepared::All(parts) => {
                let choices: Vec<_> = parts.iter().filter_map(|part| self.choose(part)).collect();
                (!choices.is_empty()).then_some(Choice::All(choices))
            }
            Prepared::Any(parts) => {
                let choices: Option<Vec<_>> = parts.iter().map(|part| self.choose(part)).collect();
                choices.filter(|choices| !choices.is_empty()).map(Choice::Any)
            }
            Prepared::Test { column, test } => {
                let (position, options) = self.cheapest(column, test)?;
                let is_exact = is_exact(options, test) && self.is_comparable(column);
                Some(Choice::Ask { position, is_exact, column, test })
            }
            Prepared::Unknown => None,
        }
    }

    /// Position and options of the cheapest index that can answer. An index that the table no longer has in this form
    /// is not used.
    fn cheapest(&self, column: &str, test: &PreparedTest) -> Option<(usize, &IndexOptions)> {
        let directory = self.footer.indexes();
        let declared = self.layout.indexes.iter().filter(|(name, _)| name == column);
        let candidates = declared.filter_map(|(_, indexed)| {
            let cost = cost(&indexed.options, test)?;
            let mut listed = directory.find(indexed.column);
            let (position, _) = listed.find(|(_, listed)| listed.index == *indexed)?;
            Some((cost, position, &indexed.options))
        });
        let cheapest = candidates.min_by_key(|(cost, position, _)| (*cost, *position));
        cheapest.map(|(_, position, options)| (position, options))
    }

    /// True if the file has the column in the table's type, and one order of values is used everywhere: floats have
    /// several zeros and NaNs.
    fn is_comparable(&self, column: &str) -> bool {
        let stored = self.footer.metadata.schema().field_with_name(column);
        let (Ok(stored), Some(current)) = (stored, self.layout.field(column)) else { return false };
        stored.data_type() == current.data_type() && !stored.data_type().is_floating()
    }

    /// The segments of indexes for row groups, from the cache or read in one go.
    async fn load(&self, positions: &BTreeSet<usize>, groups: &[usize]) -> Result<Loaded> {
        let (mut loaded, mut absent, mut ranges) = (Loaded::new(), Vec::new(), Vec::new());
        for position in positions {
            let Some(listed) = self.footer.indexes().indexes.get(*position) else { continue };
            for group in groups {
                let Some((offset, length)) = listed.segments.get(*group) else { continue };
                match self.cache.0.get(self.cache_key(*position, *group)) {
                    Some(segment) => {
                        loaded.insert((*position, *group), segment);
                    }
                    None => {
                        absent.push((*position, *group, listed));
                        ranges.push(*offset..offset.saturating_add(u64::from(*length)));
                    }
                }
            }
        }
        if absent.is_empty() {
            return Ok(loaded);
        }
        let bodies = self.blocks.read_checked(&ranges).await?;
        for ((position, group, listed), body) in absent.into_iter().zip(&bodies) {
            let segment = Segment::decode(body, &listed.index.options)
                .map_err(|problem| self.corrupted(listed, &problem))?;
            let segment = Arc::new(segment);
            let bytes = segment.bytes();
            self.cache.0.insert(self.cache_key(position, group), Arc::clone(&segment), bytes);
            loaded.insert((position, group), segment);
        }
        Ok(loaded)
    }

    fn cache_key(&self, position: usize, group: usize) -> (u64, u32, u32) {
        let number = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
        (self.file.handle.number, number(position), number(group))
    }

    /// The rows of a group that may pass all tests, counted from its first row; `None` if no index tells. `choices` and
    /// `exact` have an item for each test; `exact` becomes false where rows may remain that fail the test.
    fn answer(
        &self,
        choices: &[Option<Choice<'_>>],
        group: usize,
        segments: &Loaded,
        exact: &mut [bool],
    ) -> Result<Option<RoaringBitmap>> {
        let count = group_rows(self.footer.metadata.metadata(), group);
        let mut conjunction: Option<RoaringBitmap> = None;
        let mut answered = vec![false; choices.len()];
        for (choice, answered) in choices.iter().zip(&mut answered) {
            let Some(choice) = choice else { continue };
            let mut uses = BTreeSet::new();
            let Some(mut rows) = self.ask(choice, group, segments, &mut uses)? else { continue };
            *answered = true;
            if let Ok(count) = u32::try_from(count) {
                rows.remove_range(count..);
            }
            for key in uses {
                self.counters.index(key, count as u64, count as u64 - rows.len());
            }
            conjunction = Some(match conjunction {
                Some(previous) => previous & rows,
                None => rows,
            });
        }
        // Of a group without rows nothing is left to be tested.
        if conjunction.as_ref().is_none_or(|rows| !rows.is_empty()) {
            exact.iter_mut().zip(answered).for_each(|(exact, answered)| *exact &= answered);
        }
        Ok(conjunction)
    }

    /// Rows of a row group that may pass one test; `None` if no index can tell. `uses` receives the indexes that
    /// gave an answer.
    fn ask(
        &self,
        choice: &Choice<'_>,
        group: usize,
        segments: &Loaded,
        uses: &mut BTreeSet<IndexKey>,
    ) -> Result<Option<RoaringBitmap>> {
        match choice {
            Choice::All(parts) => {
                let mut conjunction: Option<RoaringBitmap> = None;
                for part in parts {
                    let Some(rows) = self.ask(part, group, segments, uses)? else { continue };
                    conjunction = Some(match conjunction {
                        Some(previous) => previous & rows,
                        None => rows,
                    });
                }
                Ok(conjunction)
            }
            Choice::Any(parts) => {
                let mut disjunction = RoaringBitmap::new();
                for part in parts {
                    match self.ask(part, group, segments, uses)? {
                        Some(rows) => disjunction |= rows,
                        // By this alternative any row may pass.
                        None => return Ok(None),
                    }
                }
                Ok(Some(disjunction))
            }
            Choice::Ask { position, column, test, .. } => {
                let Some(segment) = segments.get(&(*position, group)) else { return Ok(None) };
                let Some(listed) = self.footer.indexes().indexes.get(*position) else {
                    return Ok(None);
                };
                let rows = segment
                    .rows(&test.question())
                    .map_err(|problem| self.corrupted(listed, &problem))?;
                if rows.is_some() {
                    uses.insert(((*column).to_owned(), listed.index.options.kind()));
                }
                Ok(rows)
            }
        }
    }

    fn corrupted(&self, listed: &Listed, problem: &str) -> EngineError {
        let (path, kind) = (&self.file.handle.path, listed.index.options.kind().method());
        let column = listed.index.column;
        EngineError::Corrupted(format!(
            "file {path}: the {kind} index of column {column}: {problem}"
        ))
    }
}

impl Choice<'_> {
    /// True if no row of an answer fails the test.
    fn is_exact(&self) -> bool {
        match self {
            Self::All(_) | Self::Any(_) => false,
            Self::Ask { is_exact, .. } => *is_exact,
        }
    }

    fn add_positions(&self, positions: &mut BTreeSet<usize>) {
        match self {
            Self::All(parts) | Self::Any(parts) => {
                parts.iter().for_each(|part| part.add_positions(positions));
            }
            Self::Ask { position, .. } => {
                positions.insert(*position);
            }
        }
    }
}

/// Rank of an index among those that answer a test, the cheapest and most exact first; `None` if it cannot.
fn cost(options: &IndexOptions, test: &PreparedTest) -> Option<u8> {
    match (options, test) {
        (IndexOptions::Inverted, PreparedTest::Within(_) | PreparedTest::Pattern(_)) => Some(0),
        (IndexOptions::Fulltext(fulltext), PreparedTest::Terms { folded, .. }) => {
            // Words in their own case do not tell which of them are equal in lower case.
            (!(fulltext.case_sensitive && *folded)).then_some(1)
        }
        (IndexOptions::Skipping(_), PreparedTest::Within(domain)) => {
            domain.as_points(POINTS_MAX).map(|_| 2)
        }
        (IndexOptions::Inverted, PreparedTest::Terms { .. })
        | (IndexOptions::Fulltext(_), PreparedTest::Within(_) | PreparedTest::Pattern(_))
        | (IndexOptions::Skipping(_), PreparedTest::Pattern(_) | PreparedTest::Terms { .. }) => {
            None
        }
    }
}

/// True if the answers of an index hold no row that fails the test.
fn is_exact(options: &IndexOptions, test: &PreparedTest) -> bool {
    match (options, test) {
        (IndexOptions::Inverted, PreparedTest::Within(_)) => true,
        (IndexOptions::Inverted, PreparedTest::Pattern(_) | PreparedTest::Terms { .. })
        | (IndexOptions::Skipping(_) | IndexOptions::Fulltext(_), _) => false,
    }
}

/// Number of rows of a row group.
pub(crate) fn group_rows(metadata: &ParquetMetaData, group: usize) -> usize {
    usize::try_from(metadata.row_group(group).num_rows()).unwrap_or_default()
}

/// Number of the first row of each row group, and behind them the number of all rows.
pub(crate) fn group_starts(metadata: &ParquetMetaData) -> Vec<usize> {
    let mut starts = vec![0];
    let mut end = 0;
    for group in 0..metadata.num_row_groups() {
        end += group_rows(metadata, group);
        starts.push(end);
    }
    starts
}

/// Adds a row behind all rows of some ranges.
fn add_row(rows: &mut Vec<Range<usize>>, row: usize) {
    match rows.last_mut() {
        Some(last) if last.end == row => last.end = row + 1,
        _ => rows.push(row..row + 1),
    }
}

#[cfg(test)]
mod tests {
    use partita_proto::domain::Domain;
    use partita_proto::index::{Blooms, Fulltext};
    use partita_proto::rule::Comparison;
    use partita_proto::value::Value;
    use regex::Regex;

    use super::*;

    #[test]
    fn indexes_are_asked_only_for_what_they_can_tell() {
        let point = PreparedTest::Within(Domain::point(Value::Int(1)));
        let range = Domain::compare(Comparison::GreaterOrEqual, Value::Int(1));
        let range = PreparedTest::Within(range);
        let pattern = PreparedTest::Pattern(Regex::new("a").unwrap());
        let terms = |folded| PreparedTest::Terms { terms: vec!["a".to_owned()], folded };
        let tests = [&point, &range, &pattern, &terms(false), &terms(true)];
        let costs = |options: IndexOptions| tests.map(|test| cost(&options, test));
        assert_eq!(costs(IndexOptions::Inverted), [Some(0), Some(0), Some(0), None, None]);
        let skipping = IndexOptions::Skipping(Blooms::default());
        assert_eq!(costs(skipping), [Some(2), None, None, None, None]);
        let fulltext = |case_sensitive| {
            IndexOptions::Fulltext(Fulltext { case_sensitive, ..Fulltext::default() })
        };
        assert_eq!(costs(fulltext(false)), [None, None, None, Some(1), Some(1)]);
        assert_eq!(costs(fulltext(true)), [None, None, None, Some(1), None]);
        let exact = |options: IndexOptions| tests.map(|test| is_exact(&options, test));
        assert_eq!(exact(IndexOptions::Inverted), [true, true, false, false, false]);
        assert_eq!(exact(skipping), [false; 5]);
        assert_eq!(exact(fulltext(false)), [false; 5]);
        let many = Domain::points((0..2000).map(Value::Int));
        assert_eq!(cost(&skipping, &PreparedTest::Within(many)), None);
    }

    #[test]
    fn neighbouring_rows_become_one_range() {
        let mut rows = Vec::new();
        [0, 1, 2, 5, 7, 8].into_iter().for_each(|row| add_row(&mut rows, row));
        assert_eq!(rows, [0..3, 5..6, 7..9]);
    }
}
