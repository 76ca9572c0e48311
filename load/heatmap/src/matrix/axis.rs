//! Rows over keys: the union of two sets of rows, spreading the load of coarse rows over finer ones, and gathering
//! fine rows into a few groups of about equal heat.
//!
//! An axis is the list of its rows' first keys: ascending, without duplicates, the first one empty. A row ends at
//! the next row's first key; the last row has no end. Invariant: spreading and gathering keep the sum.

use super::report::Key;
use crate::number::floor;

/// The axis with one row, which has all keys.
pub(crate) fn whole() -> Vec<Key> {
    vec![Key::from([])]
}

/// The union of the first keys of both axes.
pub(crate) fn union(first: &[Key], second: &[Key]) -> Vec<Key> {
    let mut joined = Vec::with_capacity(first.len() + second.len());
    let (mut first_keys, mut second_keys) = (first.iter().peekable(), second.iter().peekable());
    loop {
        let order = match (first_keys.peek(), second_keys.peek()) {
            (Some(a), Some(b)) => a.cmp(b),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => break,
        };
        if order.is_ge() {
            let key = second_keys.next();
            if order.is_eq() {
                first_keys.next();
            }
            joined.extend(key.cloned());
        } else {
            joined.extend(first_keys.next().cloned());
        }
    }
    joined.shrink_to_fit();
    joined
}

/// Index of the row that contains a key.
pub(crate) fn row_of(axis: &[Key], key: &[u8]) -> usize {
    axis.partition_point(|start| **start <= *key).saturating_sub(1)
}

/// For each row of a coarse axis, the index of its first row in a finer axis, which has all keys of the coarse one.
/// The last entry, the length of the finer axis, closes the last row.
pub(crate) fn offsets(coarse: &[Key], fine: &[Key]) -> Vec<usize> {
    let mut row = 0;
    let mut offsets = Vec::with_capacity(coarse.len() + 1);
    for start in coarse {
        while row < fine.len() && fine[row] < *start {
            row += 1;
        }
        offsets.push(row);
    }
    offsets.push(fine.len());
    offsets
}

/// Divides each coarse row evenly among its finer rows. Cuts are made where load was seen to divide, so equal parts
/// of the load are a better estimate of the past than parts by distance between keys.
pub(crate) fn spread<const N: usize>(cells: &[[f32; N]], offsets: &[usize]) -> Vec<[f32; N]> {
    let mut fine = Vec::with_capacity(offsets.last().copied().unwrap_or(0));
    for (cell, span) in cells.iter().zip(offsets.windows(2)) {
        let rows = span[1] - span[0];
        let share = cell.map(|load| load / rows.max(1) as f32);
        fine.extend(std::iter::repeat_n(share, rows));
    }
    fine
}

/// Adds up the rows of each group; a group ends at the first row of the next one.
pub(crate) fn gather<const N: usize>(cells: &[[f32; N]], groups: &[usize]) -> Vec<[f32; N]> {
    let ends = groups.iter().skip(1).copied().chain([cells.len()]);
    let sum = |(start, end): (&usize, usize)| {
        let mut sum = [0.0; N];
        for cell in &cells[*start..end] {
            for (whole, part) in sum.iter_mut().zip(cell) {
                *whole += part;
            }
        }
        sum
    };
    groups.iter().zip(ends).map(sum).collect()
}

/// The first rows of at most `rows_max` groups of neighbouring rows with about equal weight. A row marked in
/// `forced` begins a group, unless more than half of the groups would be needed for such rows.
pub(crate) fn divide(weights: &[f64], forced: &[bool], rows_max: usize) -> Vec<usize> {
    if weights.len() <= rows_max {
        return (0..weights.len()).collect();
    }
    let keep = forced.iter().filter(|forced| **forced).count() <= rows_max / 2;
    let groups = |limit: f64| {
        let mut starts = Vec::new();
        let mut sum = 0.0;
        for (row, weight) in weights.iter().enumerate() {
            if row == 0 || (keep && forced[row]) || sum + weight > limit {
                starts.push(row);
                sum = 0.0;
            }
            sum += weight;
        }
        starts
    };
    // Binary search for the smallest limit that gives few enough groups; 40 halvings exhaust the useful digits of a
    // float.
    let (mut low, mut high) = (0.0, weights.iter().sum::<f64>() * 1.01 + f64::MIN_POSITIVE);
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if groups(middle).len() > rows_max {
            low = middle;
        } else {
            high = middle;
        }
    }
    let mut starts = groups(high);
    // With an infinite weight no limit is large enough.
    if starts.len() > rows_max {
        let step = weights.len() as f64 / rows_max as f64;
        starts = (0..rows_max).map(|group| floor(group as f64 * step)).collect();
    }
    starts
}

/// Position of a key between two others, 0 to 1, with the keys read as numbers.
pub(crate) fn position(key: &[u8], low: &[u8], high: &[u8]) -> f64 {
    let common = low.iter().zip(high).take_while(|(a, b)| a == b).count();
    let number = |bytes: &[u8]| {
        bytes[common.min(bytes.len())..]
            .iter()
            .copied()
            .chain(std::iter::repeat(0))
            .take(8)
            .fold(0.0, |sum, byte| sum * 256.0 + f64::from(byte))
    };
    let (low, high) = (number(low), number(high));
    if high <= low { 0.0 } else { ((number(key) - low) / (high - low)).clamp(0.0, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(bytes: &[u8]) -> Vec<Key> {
        let mut keys = whole();
        keys.extend(bytes.iter().map(|byte| Key::from([*byte])));
        keys
    }

    #[test]
    fn a_union_has_every_key_once() {
        assert_eq!(union(&axis(&[1, 5]), &axis(&[3, 5, 9])), axis(&[1, 3, 5, 9]));
    }

    #[test]
    fn groups_weigh_about_the_same() {
        let weights: Vec<f64> = (0..1000).map(|row| if row < 500 { 3.0 } else { 1.0 }).collect();
        let starts = divide(&weights, &[false; 1000], 20);
        let heavy_half = starts.iter().filter(|start| **start < 500).count();
        assert!((18..=20).contains(&starts.len()), "{starts:?}");
        assert!((13..=16).contains(&heavy_half), "{starts:?}");
    }

    #[test]
    fn groups_begin_where_they_must() {
        let mut forced = [false; 100];
        forced[37] = true;
        assert!(divide(&[1.0; 100], &forced, 7).contains(&37));
        assert!(divide(&[1.0; 100], &[true; 100], 7).len() <= 7);
        assert!(divide(&[0.0; 100], &forced, 7).len() <= 7);
        assert!(divide(&[f64::INFINITY; 100], &forced, 7).len() <= 7);
    }

    #[test]
    fn positions_are_in_proportion() {
        assert!((position(&[7, 64], &[7, 0], &[7, 128]) - 0.5).abs() < 1e-9);
        assert!((position(&[9], &[7], &[7]) - 0.0).abs() < 1e-9);
        assert!((position(&[250], &[], &[128]) - 1.0).abs() < 1e-9);
    }
}
