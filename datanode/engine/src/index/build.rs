//! Builds the segments of a file's indexes, row group by row group: at most one row group is in memory.

use arrow::datatypes::Schema;
use arrow::record_batch::RecordBatch;
use partita_proto::index::{Backend, Fulltext, IndexOptions};
use partita_proto::text::tokens;

use crate::error::{EngineError, Result};
use crate::index::Indexed;
use crate::index::bloom::BlockKeys;
use crate::index::directory::{Directory, Listed};
use crate::index::inverted::Postings;
use crate::index::value::each_row;

/// The indexes of the file in progress.
pub(crate) struct IndexBuilder {
    columns: Vec<Building>,
    /// Rows of the group in progress.
    rows: u32,
}

/// One index.
struct Building {
    /// Storage name of the column.
    name: String,
    listed: Listed,
    group: Group,
}

/// The row group in progress.
enum Group {
    Values(Postings),
    Blooms(BlockKeys),
    Terms(Fulltext, Tokens),
}

/// The tokens of texts in the row group in progress.
enum Tokens {
    Exact(Postings),
    Blocks(BlockKeys),
}

impl IndexBuilder {
    /// For the indexes (with the storage names of their columns) whose columns the schema has.
    pub(crate) fn new(indexes: &[(String, Indexed)], schema: &Schema) -> Self {
        let present = indexes.iter().filter(|(name, _)| schema.index_of(name).is_ok());
        let columns = present.map(|(name, index)| Building {
            name: name.clone(),
            listed: Listed { index: index.clone(), segments: Vec::new() },
            group: Group::new(&index.options),
        });
        Self { columns: columns.collect(), rows: 0 }
    }

    /// True if there is nothing to build.
    pub(crate) fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Adds rows to the group in progress.
    ///
    /// # Errors
    /// [`EngineError::Internal`], also for a group of more than 2^32 rows.
    pub(crate) fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let rows =
            u32::try_from(batch.num_rows()).ok().and_then(|rows| self.rows.checked_add(rows));
        let rows =
            rows.ok_or_else(|| EngineError::Internal("a row group is too long".to_owned()))?;
        for Building { name, group, .. } in &mut self.columns {
            let column = batch.column_by_name(name).ok_or_else(|| {
                EngineError::Internal(format!("rows to be indexed have no column \"{name}\""))
            })?;
            let (mut row, mut added) = (self.rows, Ok(()));
            each_row(column.as_ref(), |key| {
                if added.is_ok() {
                    added = group.add(row, key);
                }
                row += 1;
            })?;
            added?;
        }
        self.rows = rows;
        Ok(())
    }

    /// Ends the group: passes each segment to `write`, which returns its offset in the file. A group without rows has
    /// no segments.
    ///
    /// # Errors
    /// [`EngineError::Internal`], or as `write`.
    pub(crate) fn end_group(&mut self, mut write: impl FnMut(&[u8]) -> Result<u64>) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        if rows == 0 {
            return Ok(());
        }
        for Building { listed, group, .. } in &mut self.columns {
            let segment = group.finish(rows)?;
            let length = u32::try_from(segment.len())
                .map_err(|_| EngineError::Internal("a segment is too long".to_owned()))?;
            listed.segments.push((write(&segment)?, length));
        }
        Ok(())
    }

    /// Bytes of the group in progress, approximately.
    pub(crate) fn bytes(&self) -> usize {
        self.columns.iter().map(|column| column.group.bytes()).sum()
    }

    /// The directory of all segments.
    pub(crate) fn finish(self) -> Directory {
        Directory { indexes: self.columns.into_iter().map(|column| column.listed).collect() }
    }
}

impl Group {
    fn new(options: &IndexOptions) -> Self {
        match options {
            IndexOptions::Inverted => Self::Values(Postings::default()),
            IndexOptions::Skipping(blooms) => Self::Blooms(BlockKeys::new(*blooms)),
            IndexOptions::Fulltext(options) => {
                let tokens = match options.backend {
                    Backend::Inverted => Tokens::Exact(Postings::default()),
                    Backend::Bloom(blooms) => Tokens::Blocks(BlockKeys::new(blooms)),
                };
                Self::Terms(*options, tokens)
            }
        }
    }

    fn add(&mut self, row: u32, key: Option<&[u8]>) -> Result<()> {
        match (self, key) {
            (Self::Values(postings), Some(key)) => postings.add(row, key),
            (Self::Values(postings) | Self::Terms(_, Tokens::Exact(postings)), None) => {
                postings.add_null(row);
            }
            (Self::Blooms(keys) | Self::Terms(_, Tokens::Blocks(keys)), None) => {
                return keys.add(row, None);
            }
            (Self::Blooms(keys), Some(key)) => return keys.add(row, Some(key)),
            (Self::Terms(options, builder), Some(key)) => {
                let text = std::str::from_utf8(key).map_err(|error| {
                    EngineError::Internal(format!("text to be indexed: {error}"))
                })?;
                let (fold, mut added) = (!options.case_sensitive, Ok(()));
                tokens(text, options.analyzer, fold, &mut |token| {
                    if added.is_ok() {
                        added = builder.add(row, token.as_bytes());
                    }
                });
                return added;
            }
        }
        Ok(())
    }

    fn finish(&mut self, rows: u32) -> Result<Vec<u8>> {
        match self {
            Self::Values(postings) | Self::Terms(_, Tokens::Exact(postings)) => {
                postings.finish(rows)
            }
            Self::Blooms(keys) | Self::Terms(_, Tokens::Blocks(keys)) => keys.finish(rows),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Values(postings) | Self::Terms(_, Tokens::Exact(postings)) => postings.bytes(),
            Self::Blooms(keys) | Self::Terms(_, Tokens::Blocks(keys)) => keys.bytes(),
        }
    }
}

impl Tokens {
    fn add(&mut self, row: u32, token: &[u8]) -> Result<()> {
        match self {
            Self::Exact(postings) => {
                postings.add(row, token);
                Ok(())
            }
            Self::Blocks(keys) => keys.add(row, Some(token)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringViewArray};
    use arrow::datatypes::{DataType, Field};
    use bytes::Bytes;
    use partita_proto::domain::Domain;
    use partita_proto::id::ColumnId;
    use partita_proto::index::{Analyzer, Blooms};
    use partita_proto::text::contains_term;
    use partita_proto::value::Value;
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;
    use crate::index::{Question, Segment};

    type Row = (Option<i64>, Option<String>);

    fn schema() -> Arc<Schema> {
        let number = Field::new("a_1", DataType::Int64, true);
        Arc::new(Schema::new(vec![number, Field::new("b_2", DataType::Utf8View, true)]))
    }

    fn batch(rows: &[Row]) -> RecordBatch {
        let numbers: Int64Array = rows.iter().map(|(number, _)| *number).collect();
        let texts: StringViewArray = rows.iter().map(|(_, text)| text.as_deref()).collect();
        let columns: Vec<ArrayRef> = vec![Arc::new(numbers), Arc::new(texts)];
        RecordBatch::try_new(schema(), columns).unwrap()
    }

    /// Indexes of every kind, and one of a column that rows do not have.
    fn indexes() -> Vec<(String, Indexed)> {
        let blooms = Blooms { granularity: 4, false_positives_ppm: 10_000 };
        let fulltext = |case_sensitive, backend| {
            IndexOptions::Fulltext(Fulltext {
                analyzer: Analyzer::English,
                case_sensitive,
                backend,
            })
        };
        [
            (1, "a_1", IndexOptions::Inverted),
            (1, "a_1", IndexOptions::Skipping(blooms)),
            (2, "b_2", IndexOptions::Inverted),
            (2, "b_2", IndexOptions::Skipping(blooms)),
            (2, "b_2", fulltext(false, Backend::Inverted)),
            (2, "b_2", fulltext(true, Backend::Inverted)),
            (2, "b_2", fulltext(false, Backend::Bloom(blooms))),
            (3, "gone_3", IndexOptions::Inverted),
        ]
        .map(|(id, name, options)| (name.to_owned(), Indexed { column: ColumnId(id), options }))
        .to_vec()
    }

    /// The directory, and a file that has nothing but segments.
    fn built(groups: &[Vec<Row>]) -> (Directory, Bytes) {
        let mut builder = IndexBuilder::new(&indexes(), &schema());
        let mut file = Vec::new();
        for rows in groups {
            // In pieces, as a merge yields them.
            rows.chunks(3).for_each(|piece| builder.add(&batch(piece)).unwrap());
            let write = |segment: &[u8]| {
                let offset = file.len() as u64;
                file.extend_from_slice(segment);
                Ok(offset)
            };
            builder.end_group(write).unwrap();
        }
        (builder.finish(), file.into())
    }

    fn segment(file: &Bytes, listed: &Listed, group: usize) -> Segment {
        let (offset, length) = listed.segments[group];
        let start = usize::try_from(offset).unwrap();
        let bytes = file.slice(start..start + length as usize);
        Segment::decode(&bytes, &listed.index.options).unwrap()
    }

    #[test]
    fn a_group_without_rows_has_no_segments() {
        let mut builder = IndexBuilder::new(&indexes(), &schema());
        assert!(!builder.is_empty());
        builder.end_group(|_| panic!("there is nothing to write")).unwrap();
        builder.add(&batch(&[])).unwrap();
        builder.end_group(|_| panic!("there is nothing to write")).unwrap();
        builder.add(&batch(&[(Some(1), None)])).unwrap();
        assert!(builder.bytes() > 0);
        builder.end_group(|_| Ok(0)).unwrap();
        let directory = builder.finish();
        assert_eq!(directory.indexes.len(), 7, "a column is not there");
        assert!(directory.indexes.iter().all(|listed| listed.segments.len() == 1));
        assert!(IndexBuilder::new(&indexes(), &Schema::empty()).is_empty());
    }

    proptest! {
        #[test]
        fn segments_hold_every_row_that_passes(
            groups in vec(
                vec((option::of(-2..4_i64), option::of("(error |Disk|a-|b){0,3}")), 1..40),
                1..4,
            ),
            low in -3..5_i64,
            high in -3..5_i64,
            text in "(error |Disk|a-|b){0,2}",
            term in "error|Disk|disk|a|b|a-b|-",
        ) {
            let (directory, file) = built(&groups);
            let (low, high) = (Value::Int(low), Value::Int(high));
            let numbers = [
                Domain::interval(Bound::Included(low.clone()), Bound::Excluded(high.clone())),
                Domain::points([low.clone(), Value::Null, high]),
                Domain::point(low),
                Domain::null_only(),
            ];
            let texts = [
                Domain::point(Value::String(text.clone())),
                Domain::interval(Bound::Excluded(Value::String(text.clone())), Bound::Unbounded),
            ];
            let pattern = Regex::new(&regex::escape(&text)).unwrap();
            let terms = [term];
            let contains = |text: &str| terms.iter().all(|term| contains_term(text, term));
            for listed in &directory.indexes {
                prop_assert_eq!(listed.segments.len(), groups.len());
                let is_exact = listed.index.options == IndexOptions::Inverted;
                for (group, rows) in groups.iter().enumerate() {
                    let segment = segment(&file, listed, group);
                    prop_assert!(segment.bytes() > 0);
                    let check = |question: Question<'_>, passes: &dyn Fn(&Row) -> bool| {
                        let Some(answer) = segment.rows(&question).unwrap() else { return true };
                        let passing: Vec<u32> = (0..).zip(rows)
                            .filter(|(_, row)| passes(row))
                            .map(|(row, _)| row)
                            .collect();
                        let is_within = answer.max().is_none_or(|row| (row as usize) < rows.len());
                        let length = answer.len() == passing.len() as u64;
                        is_within && passing.iter().all(|row| answer.contains(*row))
                            && (!is_exact || length)
                    };
                    if listed.index.column == ColumnId(1) {
                        for domain in &numbers {
                            let passes = |row: &Row| {
                                domain.contains(&row.0.map_or(Value::Null, Value::Int))
                            };
                            prop_assert!(check(Question::Within(domain), &passes));
                        }
                        continue;
                    }
                    for domain in &texts {
                        let value = |row: &Row| row.1.clone().map_or(Value::Null, Value::String);
                        let passes = |row: &Row| domain.contains(&value(row));
                        prop_assert!(check(Question::Within(domain), &passes));
                    }
                    let matches = |row: &Row| {
                        row.1.as_deref().is_some_and(|text| pattern.is_match(text))
                    };
                    prop_assert!(check(Question::Pattern(&pattern), &matches));
                    let plain = Question::Terms { terms: &terms, folded: false };
                    prop_assert!(check(plain, &|row| row.1.as_deref().is_some_and(contains)));
                    let folded = Question::Terms { terms: &terms, folded: true };
                    let lower = |row: &Row| {
                        row.1.as_deref().is_some_and(|text| contains(&text.to_lowercase()))
                    };
                    prop_assert!(check(folded, &lower));
                }
            }
        }
    }
}
