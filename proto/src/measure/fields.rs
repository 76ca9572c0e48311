//! Sets of the fields that have a value, row by row.

use arrow::array::{Array, ArrayRef};
use arrow::buffer::NullBuffer;

/// Number of fields in a set, the first ones by id.
const FIELDS_MAX: usize = 64;
/// Maximum number of different sets that are counted in one batch; the rows of further ones are left out.
const COUNTED_MAX: usize = 64;

/// For each row the set of fields with a value, as bits.
pub(crate) enum FieldSets {
    /// All rows have the same.
    Same(u64),
    ByRow(Vec<u64>),
}

impl FieldSets {
    /// The sets of rows with these fields, in the order of their ids; `None` for one that is NULL in all rows.
    pub(crate) fn new<'a>(fields: impl Iterator<Item = Option<&'a ArrayRef>>, rows: usize) -> Self {
        let mut shared = 0_u64;
        let mut partial: Vec<(u64, &NullBuffer)> = Vec::new();
        for (number, array) in fields.take(FIELDS_MAX).enumerate() {
            let bit = 1_u64 << number;
            let Some(array) = array else { continue };
            match array.nulls() {
                Some(nulls) if nulls.null_count() == rows => {}
                Some(nulls) if nulls.null_count() > 0 => partial.push((bit, nulls)),
                _ => shared |= bit,
            }
        }
        if partial.is_empty() {
            return Self::Same(shared);
        }
        let mut sets = vec![shared; rows];
        for (bit, nulls) in partial {
            for (start, end) in nulls.valid_slices() {
                sets[start..end].iter_mut().for_each(|set| *set |= bit);
            }
        }
        Self::ByRow(sets)
    }

    /// Number of rows with each set.
    pub(crate) fn counts(&self, rows: usize) -> Vec<(u64, u64)> {
        let sets = match self {
            Self::Same(set) => return vec![(*set, rows as u64)],
            Self::ByRow(sets) => sets,
        };
        let mut counts: Vec<(u64, u64)> = Vec::new();
        for run in sets.chunk_by(|a, b| a == b) {
            let (set, rows) = (run[0], run.len() as u64);
            match counts.iter().position(|(counted, _)| *counted == set) {
                Some(position) => counts[position].1 += rows,
                None if counts.len() < COUNTED_MAX => counts.push((set, rows)),
                None => {}
            }
        }
        counts
    }

    /// True if both rows have values, and no field has one in both.
    pub(crate) fn are_disjoint(&self, row: usize, next: usize) -> bool {
        match self {
            Self::Same(_) => false,
            Self::ByRow(sets) => {
                let (set, following) = (sets[row], sets[next]);
                set != 0 && following != 0 && (set & following) == 0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;

    use super::*;

    fn field(values: [Option<i64>; 4]) -> ArrayRef {
        Arc::new(Int64Array::from(values.to_vec()))
    }

    #[test]
    fn sets_name_the_fields_with_a_value() {
        let fields = [
            Some(field([Some(1), Some(2), None, None])),
            None,
            Some(field([None, None, Some(3), Some(4)])),
            Some(field([Some(5); 4])),
            Some(field([None; 4])),
        ];
        let sets = FieldSets::new(fields.iter().map(Option::as_ref), 4);
        assert_eq!(sets.counts(4), [(0b1001, 2), (0b1100, 2)]);
        assert!(!sets.are_disjoint(1, 2), "the fourth field has values in both");
        let sets = FieldSets::new(fields[..3].iter().map(Option::as_ref), 4);
        assert!(sets.are_disjoint(1, 2) && !sets.are_disjoint(0, 1));
    }

    #[test]
    fn rows_with_all_values_are_counted_at_once() {
        let fields = [Some(field([Some(1); 4]))];
        let sets = FieldSets::new(fields.iter().map(Option::as_ref), 4);
        assert!(matches!(sets, FieldSets::Same(1)));
        assert_eq!(sets.counts(4), [(1, 4)]);
        let none = FieldSets::new(std::iter::empty(), 4);
        assert_eq!(none.counts(4), [(0, 4)]);
        assert!(!none.are_disjoint(0, 1));
    }

    #[test]
    fn many_sets_are_counted_as_far_as_they_fit() {
        let values = |bit: u32| (0..256_i64).map(move |row| ((row >> bit) & 1 == 1).then_some(row));
        let fields: Vec<Option<ArrayRef>> = (0..8)
            .map(|bit| Some(Arc::new(values(bit).collect::<Int64Array>()) as ArrayRef))
            .collect();
        let sets = FieldSets::new(fields.iter().map(Option::as_ref), 256);
        assert_eq!(sets.counts(256).len(), COUNTED_MAX);
        let more: Vec<Option<ArrayRef>> = vec![Some(field([Some(1); 4])); 70];
        let sets = FieldSets::new(more.iter().map(Option::as_ref), 4);
        assert_eq!(sets.counts(4), [(u64::MAX, 4)]);
    }
}
