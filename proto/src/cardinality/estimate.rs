//! Figures of a sketch: the number of series, the worst case by the product rule, and the tags that do not count in it.
//!
//! The worst case multiplies the numbers of values of all tags by the number of fields: so many series there would be if
//! every value came with every other. A tag whose value follows from the value of another one (`region` from `host`)
//! adds nothing; without such tags the product is the reduced estimate. Tags `a` and `b` may follow from each other: then
//! the later one is left out.

use super::sketch::{Partner, SeriesSketch, TagSketch};
use crate::id::ColumnId;

/// Figures about the series of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cardinality {
    /// Series: combinations of a tag set and a field with a value.
    pub series: u64,
    /// Combinations of tag values.
    pub tag_sets: u64,
    /// Fields with a value.
    pub fields: u64,
    /// Worst case: the product of the tags' numbers of values, times the number of fields.
    pub estimate: u64,
    /// The same product without dependent tags.
    pub reduced: u64,
    /// True if the number of series is exact.
    pub exact: bool,
    /// Number of files whose series are missing in all figures.
    pub unsketched: u64,
    /// Tags, by column.
    pub tags: Vec<TagCardinality>,
}

/// Figures about one tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagCardinality {
    /// Column of the tag.
    pub column: ColumnId,
    /// Number of values; NULL is one.
    pub values: u64,
    /// The tag from which this one follows.
    pub depends_on: Option<ColumnId>,
}

impl SeriesSketch {
    /// Figures about the series.
    pub fn cardinality(&self) -> Cardinality {
        let columns: Vec<ColumnId> = self.tags.keys().copied().collect();
        let determines = |source: ColumnId, target: ColumnId| {
            let tag = self.tags.get(&source).filter(|tag| tag.count() > 1);
            tag.is_some_and(|tag| tag.determines(target))
                && self.tags.get(&target).is_some_and(|tag| tag.count() > 1)
        };
        let dependence = dependent(&columns, determines);
        let tags: Vec<TagCardinality> = self
            .tags
            .iter()
            .zip(dependence)
            .map(|((column, tag), depends_on)| TagCardinality {
                column: *column,
                values: tag.count(),
                depends_on,
            })
            .collect();
        let fields = self.fields.len() as u64;
        let independent = tags.iter().filter(|tag| tag.depends_on.is_none());
        Cardinality {
            series: self.series.count(),
            tag_sets: self.tag_sets.count(),
            fields,
            estimate: product(tags.iter().map(|tag| tag.values), fields),
            reduced: product(independent.map(|tag| tag.values), fields),
            exact: self.series.is_exact() && self.unsketched == 0,
            unsketched: self.unsketched,
            tags,
        }
    }
}

impl TagSketch {
    /// Number of values; NULL is one.
    fn count(&self) -> u64 {
        self.values.count() + u64::from(self.has_null)
    }

    /// True if every value in the sample came with one value of another tag only. (Rows where this tag is NULL do not
    /// count.)
    fn determines(&self, other: ColumnId) -> bool {
        // A tag that no partner map has is not in the sample; one that some lack was NULL there.
        let mut maps = self.sample.values();
        let is_sampled = self.sample.values().any(|partners| partners.contains_key(&other));
        is_sampled && maps.all(|partners| partners.get(&other) != Some(&Partner::Several))
    }
}

/// Number of series if every value of a tag came with every other and with every field.
pub fn product(values: impl Iterator<Item = u64>, fields: u64) -> u64 {
    values.fold(fields, |product, values| product.saturating_mul(values.max(1)))
}

/// For each tag, the one that it follows from, if it can be left out. Later ones are left out first, and only because of
/// a tag that was not left out before: so every chain of dependences ends at a tag that stays.
fn dependent(
    tags: &[ColumnId],
    determines: impl Fn(ColumnId, ColumnId) -> bool,
) -> Vec<Option<ColumnId>> {
    let mut dependence = vec![None; tags.len()];
    for (position, tag) in tags.iter().enumerate().rev() {
        let mut candidates =
            tags.iter().enumerate().filter(|(candidate, _)| *candidate != position);
        let determinant = candidates
            .find(|(number, source)| dependence[*number].is_none() && determines(**source, *tag))
            .map(|(_, source)| *source);
        dependence[position] = determinant;
    }
    dependence
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG1: ColumnId = ColumnId(1);
    const TAG2: ColumnId = ColumnId(2);
    const TAG3: ColumnId = ColumnId(3);
    const FIELDS: [ColumnId; 3] = [ColumnId(5), ColumnId(6), ColumnId(7)];

    /// The tags with these values; 0 is NULL.
    fn tags(values: [u64; 2]) -> [(ColumnId, Option<u64>); 2] {
        let hash = |value: u64| (value > 0).then(|| value.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        [(TAG1, hash(values[0])), (TAG2, hash(values[1]))]
    }

    #[test]
    fn a_dependent_tag_is_found_and_left_out() {
        // InfluxDB's example: tag2 has one value for each value of tag1.
        let mut sketch = SeriesSketch::default();
        for values in [[1, 3], [2, 4], [1, 3], [2, 4]] {
            sketch.add(&tags(values), &FIELDS);
        }
        let figures = sketch.cardinality();
        assert_eq!((figures.series, figures.estimate, figures.reduced), (6, 12, 6));
        assert!(figures.exact);
        assert_eq!((figures.tags[0].depends_on, figures.tags[1].depends_on), (None, Some(TAG1)));
        // A second value of tag2 for one of tag1: each tag1 no longer has one tag2, but each tag2 one tag1.
        sketch.add(&tags([1, 5]), &FIELDS);
        let figures = sketch.cardinality();
        assert_eq!((figures.series, figures.estimate, figures.reduced), (9, 18, 9));
        assert_eq!((figures.tags[0].depends_on, figures.tags[1].depends_on), (Some(TAG2), None));
        sketch.add(&tags([2, 5]), &FIELDS);
        let figures = sketch.cardinality();
        assert_eq!((figures.series, figures.estimate, figures.reduced), (12, 18, 18));
    }

    #[test]
    fn the_product_of_independent_tags_is_the_number_of_series() {
        // Customers, devices and fields of InfluxDB's example of runaway cardinality, at 1:100.
        let mut sketch = SeriesSketch::default();
        let fields: Vec<ColumnId> = (10..15).map(ColumnId).collect();
        for customer in 1..=50 {
            for device in 1..=10 {
                sketch.add(&tags([customer, 1000 + device]), &fields[..1]);
            }
        }
        let figures = sketch.cardinality();
        assert_eq!((figures.series, figures.estimate, figures.reduced), (500, 500, 500));
        sketch.add(&tags([1, 1001]), &fields);
        assert_eq!(sketch.cardinality().estimate, 2_500, "worst case: all fields everywhere");
    }

    #[test]
    fn a_chain_of_dependences_ends_at_a_tag_that_stays() {
        let all = [TAG1, TAG2, TAG3];
        let chain =
            |source, target| [(TAG1, TAG2), (TAG2, TAG3), (TAG1, TAG3)].contains(&(source, target));
        assert_eq!(dependent(&all, chain), [None, Some(TAG1), Some(TAG1)]);
        assert_eq!(dependent(&all, |_, _| true), [None, Some(TAG1), Some(TAG1)]);
        assert_eq!(dependent(&all, |_, _| false), [None, None, None]);
    }

    #[test]
    fn products_do_not_overflow() {
        assert_eq!(product([u64::MAX, 2].into_iter(), 3), u64::MAX);
        assert_eq!(product([0, 4].into_iter(), 2), 8);
        assert_eq!(product([5].into_iter(), 0), 0);
    }
}
