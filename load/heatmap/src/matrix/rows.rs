//! Selection of a picture's rows and their heights.
//!
//! Half of a row's weight is its heat, half its width (keys read as numbers, within the current partition), so that
//! a hot range gets many rows and a cold one does not vanish. The height follows the weight, but a single hot key,
//! which no row can divide, stays thin: this tells it from a hot range.

use std::collections::BTreeMap;

use super::axis::{divide, position};
use super::history::Present;
use super::report::Key;
use crate::number::narrow;

/// Maximum share of the picture's height that a row's heat can claim: enough to be visible.
const HEAT_HEIGHT_MAX: f64 = 0.03;

/// Minimum height of a row, as a share of the mean height.
const HEIGHT_MIN: f64 = 0.2;

/// The index of the first fine row of each row, and the heights, which add up to 1. `end` is the key after the last
/// row.
pub(crate) fn choose(
    fine: &[Key],
    end: Option<&Key>,
    heat: &[f64],
    present: &BTreeMap<Key, Present>,
    rows_max: usize,
) -> (Vec<usize>, Vec<f32>) {
    let mut forced: Vec<bool> = fine.iter().map(|key| present.contains_key(key)).collect();
    if let Some(first) = forced.first_mut() {
        *first = true;
    }
    let widths = widths(fine, end, &forced);
    let total: f64 = heat.iter().sum();
    let half_of_heat = |row: usize| if total > 0.0 { heat[row] / total / 2.0 } else { 0.0 };
    let weights: Vec<f64> =
        widths.iter().enumerate().map(|(row, width)| width / 2.0 + half_of_heat(row)).collect();
    let groups = divide(&weights, &forced, rows_max.max(1));
    let ends = groups.iter().skip(1).copied().chain([fine.len()]);
    let height = |(start, end): (&usize, usize)| {
        let width: f64 = widths[*start..end].iter().sum();
        let heat: f64 = (*start..end).map(half_of_heat).sum();
        (width / 2.0 + heat.min(HEAT_HEIGHT_MAX)).max(HEIGHT_MIN / groups.len() as f64)
    };
    let heights: Vec<f64> = groups.iter().zip(ends).map(height).collect();
    let whole: f64 = heights.iter().sum();
    (groups.clone(), heights.into_iter().map(|height| narrow(height / whole)).collect())
}

/// Width of each row within its partition; every partition counts the same, and all widths add up to 1.
fn widths(fine: &[Key], end: Option<&Key>, forced: &[bool]) -> Vec<f64> {
    let starts: Vec<usize> = (0..fine.len()).filter(|row| forced[*row]).collect();
    let ends = starts.iter().skip(1).copied().chain([fine.len()]);
    let mut widths = Vec::with_capacity(fine.len());
    for (start, stop) in starts.iter().copied().zip(ends) {
        let rows = &fine[start..stop];
        // The lowest and the highest known key: with an open end, everything else would become narrow.
        let low = if rows[0].is_empty() { rows.get(1).unwrap_or(&rows[0]) } else { &rows[0] };
        let high = fine.get(stop).or(end).unwrap_or(&rows[rows.len() - 1]);
        let place = |key: &Key| position(key, low, high);
        let nexts = rows.iter().skip(1).map(place).chain([1.0]);
        let distances: Vec<f64> =
            rows.iter().zip(nexts).map(|(key, next)| (next - place(key)).max(0.0)).collect();
        let sum: f64 = distances.iter().sum();
        let even = 1.0 / rows.len() as f64;
        let share = |width: f64| if sum > 0.0 { width / sum } else { even };
        widths.extend(distances.into_iter().map(|width| share(width) / starts.len() as f64));
    }
    widths
}
