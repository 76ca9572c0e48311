//! The sketch of the series of some rows of one table.
//!
//! It counts tag sets, series and the values of each tag ([`Distinct`]), and it has a sample of values of the leading
//! tags, from which one can tell that a tag depends on another: for each of the values with the smallest hashes, the one
//! value of each other tag that came with it, or the fact that there were several. A value that is in the sample of a
//! merged sketch was in the samples of all sketches whose rows have it, so that nothing about it was missed.
//!
//! Hashes of tag sets do not include tags that are NULL: rows from before a tag was added keep their series.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::{partition, take};
use arrow::record_batch::RecordBatch;

use super::distinct::Distinct;
use crate::array::arrow_error;
use crate::error::Error;
use crate::hash::hash64;
use crate::id::ColumnId;
use crate::schema::{Column, Semantic, TableSchema};

/// Bits that select a register for tag sets and series: a standard error of 1.6 %, in at most 4 KiB.
pub(crate) const SERIES_PRECISION: u32 = 12;
/// The same for values of a tag: 3.3 %, in at most 1 KiB.
pub(crate) const VALUE_PRECISION: u32 = 10;
/// Number of leading tags that are examined for dependence on each other.
pub const SAMPLED_TAGS_MAX: usize = 5;
/// Values of a tag in the sample. A dependence that does not hold for one value in ten is found out with a
/// probability of 96 %.
const SAMPLE_MAX: usize = 32;
/// Hash of NULL as a partner.
const NULL_PARTNER: u32 = 0;

/// Odd numbers that keep the hashes of tags, fields and sets apart.
const TAG_SALT: u64 = 0x9e37_79b9_7f4a_7c15;
const FIELD_SALT: u64 = 0xc2b2_ae3d_27d4_eb4f;

/// Sketch of the series of a table's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesSketch {
    pub(crate) tag_sets: Distinct,
    pub(crate) series: Distinct,
    pub(crate) tags: BTreeMap<ColumnId, TagSketch>,
    /// Fields that have a value in some row.
    pub(crate) fields: BTreeSet<ColumnId>,
    /// Number of files whose series are not included, since they were written before there were sketches.
    pub(crate) unsketched: u64,
}

/// Values of a tag, and what came with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TagSketch {
    /// Values, without NULL.
    pub(crate) values: Distinct,
    pub(crate) has_null: bool,
    /// By the hash of a value: its partners among the leading tags.
    pub(crate) sample: BTreeMap<u64, Partners>,
}

/// Values of other tags that came with a value.
pub(crate) type Partners = BTreeMap<ColumnId, Partner>;

/// Values of another tag that came with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partner {
    /// Always the same, with this hash.
    One(u32),
    /// Different ones.
    Several,
}

impl Default for SeriesSketch {
    fn default() -> Self {
        Self {
            tag_sets: Distinct::new(SERIES_PRECISION),
            series: Distinct::new(SERIES_PRECISION),
            tags: BTreeMap::new(),
            fields: BTreeSet::new(),
            unsketched: 0,
        }
    }
}

impl Default for TagSketch {
    fn default() -> Self {
        Self { values: Distinct::new(VALUE_PRECISION), has_null: false, sample: BTreeMap::new() }
    }
}

impl SeriesSketch {
    /// Adds the series of one tag set: `tags` in the order of the key, with the hashes of their values, and `fields`
    /// that have a value.
    pub fn add(&mut self, tags: &[(ColumnId, Option<u64>)], fields: &[ColumnId]) {
        // The first row decides which tags there are; rows before had NULL in tags that come later.
        let is_first = self.tag_sets.is_empty();
        for (column, _) in tags {
            self.tags
                .entry(*column)
                .or_insert_with(|| TagSketch { has_null: !is_first, ..TagSketch::default() });
        }
        let set = tag_set_hash(tags);
        self.tag_sets.add(set);
        for field in fields {
            self.series.add(series_hash(set, *field));
            self.fields.insert(*field);
        }
        let sampled = &tags[..tags.len().min(SAMPLED_TAGS_MAX)];
        for (position, (column, value)) in tags.iter().enumerate() {
            let Some(tag) = self.tags.get_mut(column) else { continue };
            match value {
                None => tag.has_null = true,
                Some(value) => {
                    tag.values.add(*value);
                    if position < sampled.len() {
                        tag.sample_value(*value, *column, sampled);
                    }
                }
            }
        }
    }

    /// Adds the series of rows whose columns have storage names. Rows of one series that follow each other cost little.
    ///
    /// # Errors
    /// When the rows do not have the table's types.
    pub fn add_rows(&mut self, schema: &TableSchema, rows: &RecordBatch) -> Result<(), Error> {
        if schema.time_index().is_none() {
            return Ok(());
        }
        each_tag_set(schema, rows, storage_name, |_, tags, fields| self.add(tags, fields))
    }

    /// Adds all series of another sketch of the same table.
    pub fn merge(&mut self, other: &Self) {
        let (is_empty, other_empty) = (self.tag_sets.is_empty(), other.tag_sets.is_empty());
        for (column, theirs) in &other.tags {
            let tag = self
                .tags
                .entry(*column)
                .or_insert_with(|| TagSketch { has_null: !is_empty, ..TagSketch::default() });
            tag.merge(theirs);
        }
        for (column, tag) in &mut self.tags {
            // Rows of a sketch without the tag have NULL in it.
            tag.has_null |= !other_empty && !other.tags.contains_key(column);
        }
        self.tag_sets.merge(&other.tag_sets);
        self.series.merge(&other.series);
        self.fields.extend(&other.fields);
        self.unsketched = self.unsketched.saturating_add(other.unsketched);
    }

    /// Approximate bytes of the sketch in messages.
    pub fn size_bytes(&self) -> usize {
        const PARTNER_BYTES: usize = 8;
        let of_tag = |tag: &TagSketch| {
            let partners: usize = tag.sample.values().map(|partners| 2 + partners.len()).sum();
            tag.values.size_bytes() + partners * PARTNER_BYTES
        };
        let tags: usize = self.tags.values().map(of_tag).sum();
        self.tag_sets.size_bytes() + self.series.size_bytes() + tags + 4 * self.fields.len()
    }

    /// Notes that a file has no sketch, so that its series are missing in this one.
    pub fn add_unsketched(&mut self) {
        self.unsketched += 1;
    }
}

/// Consecutive rows with one tag set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagSetRows {
    /// Positions of the rows.
    pub rows: Range<usize>,
    /// Hash of the tag set. Equal tag sets of a table have equal hashes, whatever other tags the table gets later.
    pub tag_set: u64,
    /// Number of fields that have a value in some row.
    pub fields: u64,
}

/// The tag sets of rows; one that occurs in several places is returned for each. `name` is the name of a column in the
/// rows.
///
/// # Errors
/// When the rows do not have the table's types.
pub fn tag_sets(
    schema: &TableSchema,
    rows: &RecordBatch,
    name: fn(&Column) -> &str,
) -> Result<Vec<TagSetRows>, Error> {
    let mut sets = Vec::new();
    each_tag_set(schema, rows, name, |range, tags, fields| {
        let (tag_set, fields) = (tag_set_hash(tags), fields.len() as u64);
        sets.push(TagSetRows { rows: range.clone(), tag_set, fields });
    })?;
    Ok(sets)
}

impl TagSketch {
    /// Puts a value with its partners into the sample, if its hash is among the smallest.
    fn sample_value(&mut self, value: u64, column: ColumnId, tags: &[(ColumnId, Option<u64>)]) {
        let is_full = self.sample.len() >= SAMPLE_MAX;
        if is_full && self.sample.last_key_value().is_some_and(|(last, _)| *last < value) {
            return;
        }
        let is_several = |partner: &Partner| *partner == Partner::Several;
        if let Some(partners) = self.sample.get(&value)
            && partners.len() + 1 == tags.len()
            && partners.values().all(is_several)
        {
            return;
        }
        let partners = tags.iter().filter(|(partner, _)| *partner != column);
        let partners = partners.map(|(column, value)| (*column, Partner::One(partner(*value))));
        join(&mut self.sample, value, partners.collect());
        self.truncate();
    }

    fn merge(&mut self, other: &Self) {
        self.values.merge(&other.values);
        self.has_null |= other.has_null;
        for (value, partners) in &other.sample {
            join(&mut self.sample, *value, partners.clone());
        }
        self.truncate();
    }

    fn truncate(&mut self) {
        while self.sample.len() > SAMPLE_MAX {
            self.sample.pop_last();
        }
    }
}

/// Adds partners of a value. A tag that only one side knows was NULL on the other.
fn join(sample: &mut BTreeMap<u64, Partners>, value: u64, mut partners: Partners) {
    let Some(joined) = sample.get_mut(&value) else {
        sample.insert(value, partners);
        return;
    };
    for (column, partner) in &mut *joined {
        let added = partners.remove(column).unwrap_or(Partner::One(NULL_PARTNER));
        if *partner != added {
            *partner = Partner::Several;
        }
    }
    for (column, partner) in partners {
        let is_null = partner == Partner::One(NULL_PARTNER);
        joined.insert(column, if is_null { partner } else { Partner::Several });
    }
}

fn partner(value: Option<u64>) -> u32 {
    // The upper half, which is never that of NULL.
    value.map_or(NULL_PARTNER, |value| u32::try_from(value >> 32).unwrap_or(u32::MAX).max(1))
}

/// Hash of a tag set, independent of the order of its tags.
fn tag_set_hash(tags: &[(ColumnId, Option<u64>)]) -> u64 {
    let hash = |(column, value): &(ColumnId, Option<u64>)| {
        let salt = u64::from(column.0).wrapping_add(1).wrapping_mul(TAG_SALT);
        value.map(|value| mixed(value ^ mixed(salt)))
    };
    mixed(tags.iter().filter_map(hash).fold(TAG_SALT, u64::wrapping_add))
}

fn series_hash(set: u64, field: ColumnId) -> u64 {
    mixed(set.wrapping_add(u64::from(field.0).wrapping_add(1).wrapping_mul(FIELD_SALT)))
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood, 2014).
fn mixed(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn storage_name(column: &Column) -> &str {
    &column.storage_name
}

/// Visits the tag sets of consecutive rows: their positions, the hashes of their values, the fields with a value. `name`
/// is the name of a column in the rows.
fn each_tag_set(
    schema: &TableSchema,
    rows: &RecordBatch,
    name: fn(&Column) -> &str,
    mut visit: impl FnMut(&Range<usize>, &[(ColumnId, Option<u64>)], &[ColumnId]),
) -> Result<(), Error> {
    if rows.num_rows() == 0 {
        return Ok(());
    }
    let tags: Vec<(ColumnId, Option<&ArrayRef>)> = schema
        .key_columns()
        .filter(|column| column.semantic != Semantic::TimeIndex)
        .map(|column| (column.id, rows.column_by_name(name(column))))
        .collect();
    let arrays: Vec<ArrayRef> = tags.iter().filter_map(|(_, array)| array.cloned()).collect();
    let ranges = runs(&arrays, rows.num_rows())?;
    let hashes = tags
        .iter()
        .map(|(_, array)| array.map(|array| first_hashes(array, &ranges)).transpose())
        .collect::<Result<Vec<_>, _>>()?;
    let fields: Vec<(ColumnId, &ArrayRef)> = schema
        .columns
        .iter()
        .filter(|column| column.semantic == Semantic::Field)
        .filter_map(|column| Some((column.id, stored(rows, name(column))?)))
        .collect();
    let mut values = Vec::with_capacity(tags.len());
    let mut present = Vec::with_capacity(fields.len());
    for (number, range) in ranges.iter().enumerate() {
        values.clear();
        for ((column, _), hashes) in tags.iter().zip(&hashes) {
            values.push((*column, hashes.as_ref().and_then(|hashes| hashes[number])));
        }
        present.clear();
        present
            .extend(fields.iter().filter(|(_, array)| has_value(array, range)).map(|(id, _)| *id));
        visit(range, &values, &present);
    }
    Ok(())
}

/// Ranges of consecutive rows with equal values.
fn runs(columns: &[ArrayRef], rows: usize) -> Result<Vec<Range<usize>>, Error> {
    if columns.is_empty() {
        return Ok(std::iter::once(0..rows).collect());
    }
    let partitions = partition(columns).map_err(|error| arrow_error(&error))?;
    Ok(partitions.ranges())
}

/// Hashes of the values in the first rows of ranges; `None` for NULL.
fn first_hashes(array: &ArrayRef, ranges: &[Range<usize>]) -> Result<Vec<Option<u64>>, Error> {
    let first = ranges.iter().map(|range| u32::try_from(range.start).unwrap_or(u32::MAX));
    let first = UInt32Array::from_iter_values(first);
    let values = take(array, &first, None).map_err(|error| arrow_error(&error))?;
    let hashes = hash64(&[Arc::clone(&values)])?;
    let hash = |(row, hash)| (!values.is_null(row)).then_some(hash);
    Ok(hashes.into_iter().enumerate().map(hash).collect())
}

/// The values of a field, if it has any.
fn stored<'a>(rows: &'a RecordBatch, name: &str) -> Option<&'a ArrayRef> {
    let array = rows.column_by_name(name)?;
    (array.null_count() < array.len()).then_some(array)
}

fn has_value(array: &ArrayRef, range: &Range<usize>) -> bool {
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    nulls.is_none_or(|nulls| (range.start..range.end).any(|row| nulls.is_valid(row)))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int64Array, StringViewArray};
    use arrow::datatypes::{DataType, Field, Schema};
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;
    use crate::id::SchemaVersion;
    use crate::schema::{ColumnType, TableOptions, Unit};

    fn column(id: u32, name: &str, column_type: ColumnType, semantic: Semantic) -> Column {
        Column {
            id: ColumnId(id),
            name: name.to_owned(),
            storage_name: name.to_owned(),
            column_type,
            nullable: semantic != Semantic::TimeIndex,
            semantic,
            default: None,
            generated: None,
            missing: None,
            length: None,
            json: None,
            indexes: Vec::new(),
            comment: None,
        }
    }

    fn schema() -> TableSchema {
        let time = ColumnType::Timestamp(Unit::Nanosecond, false);
        TableSchema {
            version: SchemaVersion(1),
            columns: vec![
                column(1, "a", ColumnType::String, Semantic::Tag),
                column(2, "b", ColumnType::String, Semantic::Tag),
                column(3, "time", time, Semantic::TimeIndex),
                column(4, "x", ColumnType::Float64, Semantic::Field),
                column(5, "y", ColumnType::Int64, Semantic::Field),
            ],
            key: vec![ColumnId(1), ColumnId(2), ColumnId(3)],
            options: TableOptions::default(),
            next_column: ColumnId(6),
            schema_on_write: true,
            checks: Vec::new(),
            view: None,
        }
    }

    type Row = (Option<u8>, Option<u8>, Option<i64>, Option<i64>);

    fn batch(rows: &[Row]) -> RecordBatch {
        let text = |value: Option<u8>| value.map(|value| format!("v{value}"));
        let a: StringViewArray = rows.iter().map(|row| text(row.0)).collect();
        let b: StringViewArray = rows.iter().map(|row| text(row.1)).collect();
        let x: Float64Array = rows.iter().map(|row| row.2.map(|_| 1.5_f64)).collect();
        let y: Int64Array = rows.iter().map(|row| row.3).collect();
        let fields = vec![
            Field::new("a", DataType::Utf8View, true),
            Field::new("b", DataType::Utf8View, true),
            Field::new("x", DataType::Float64, true),
            Field::new("y", DataType::Int64, true),
        ];
        let columns: Vec<ArrayRef> = vec![Arc::new(a), Arc::new(b), Arc::new(x), Arc::new(y)];
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    }

    fn sketch(rows: &[Row]) -> SeriesSketch {
        let mut sketch = SeriesSketch::default();
        sketch.add_rows(&schema(), &batch(rows)).unwrap();
        sketch
    }

    #[test]
    fn a_tag_that_was_added_later_changes_no_series() {
        let old = [(ColumnId(1), Some(7))];
        let new = [(ColumnId(1), Some(7)), (ColumnId(2), None)];
        let mut sketch = SeriesSketch::default();
        sketch.add(&old, &[ColumnId(4)]);
        sketch.add(&new, &[ColumnId(4)]);
        assert_eq!((sketch.tag_sets.count(), sketch.series.count()), (1, 1));
        assert!(sketch.tags[&ColumnId(2)].has_null);
        assert!(!sketch.tags[&ColumnId(1)].has_null);
    }

    #[test]
    fn a_table_without_time_index_has_no_series() {
        let mut schema = schema();
        schema.columns[2].semantic = Semantic::Tag;
        let mut sketch = SeriesSketch::default();
        sketch.add_rows(&schema, &batch(&[(Some(1), None, Some(1), None)])).unwrap();
        assert_eq!(sketch, SeriesSketch::default());
    }

    #[test]
    fn tag_sets_of_consecutive_rows_are_found() {
        let rows = [
            (Some(1), None, Some(1), None),
            (Some(1), None, Some(1), Some(2)),
            (Some(2), None, None, None),
            (Some(1), None, None, Some(1)),
        ];
        let sets = tag_sets(&schema(), &batch(&rows), storage_name).unwrap();
        let figures: Vec<_> = sets.iter().map(|run| (run.rows.clone(), run.fields)).collect();
        assert_eq!(figures, [(0..2, 2), (2..3, 0), (3..4, 1)]);
        assert!(sets[0].tag_set == sets[2].tag_set && sets[0].tag_set != sets[1].tag_set);
    }

    proptest! {
        #[test]
        fn sketches_count_series_and_merge_in_any_order(
            parts in vec(vec((option::of(0_u8..4), option::of(0_u8..4), option::of(0_i64..2),
                option::of(0_i64..2)), 0..20), 1..4),
        ) {
            let rows: Vec<Row> = parts.concat();
            let mut merged = SeriesSketch::default();
            parts.iter().rev().for_each(|part| merged.merge(&sketch(part)));
            prop_assert_eq!(&merged, &sketch(&rows));
            let sets: BTreeSet<_> = rows.iter().map(|row| (row.0, row.1)).collect();
            let x = rows.iter().filter(|row| row.2.is_some()).map(|row| (row.0, row.1, 'x'));
            let y = rows.iter().filter(|row| row.3.is_some()).map(|row| (row.0, row.1, 'y'));
            let series: BTreeSet<_> = x.chain(y).collect();
            prop_assert_eq!(merged.tag_sets.count(), sets.len() as u64);
            prop_assert_eq!(merged.series.count(), series.len() as u64);
        }
    }
}
