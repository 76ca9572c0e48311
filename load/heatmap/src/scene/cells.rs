//! Cells as few rectangles: equal neighbours in a row are joined, and equal runs in neighbouring rows are joined,
//! too.

use std::collections::BTreeMap;

use super::{Area, Map, Style};
use crate::colour::Rgb;
use crate::intensity::tone;
use crate::number::round;

/// Number of distinct shades: more cannot be told apart side by side, and fewer make longer runs.
const SHADES: usize = 48;

/// The shade of a cell; `None` if no report covers it.
type Shade = Option<usize>;

/// A run of columns of equal shade: first column, column after the last, shade.
type Run = (usize, usize, Shade);

/// For each colour, the areas of that colour; the map's ground comes first.
pub(crate) fn cells(map: &Map<'_>, style: Style) -> Vec<(Rgb, Vec<Area>)> {
    let shades = map.heatmap.intensity(style.mode);
    let mut areas: BTreeMap<Shade, Vec<Area>> = BTreeMap::new();
    // Runs of the rows below that can still grow, with their lower edge.
    let mut open: BTreeMap<Run, i32> = BTreeMap::new();
    for (row, line) in shades.iter().enumerate() {
        if map.y(row) == map.y(row + 1) {
            continue;
        }
        let runs = runs(line, &map.heatmap.gaps);
        let ended: Vec<_> = open.extract_if(.., |run, _| !runs.contains(run)).collect();
        for (run, low) in ended {
            areas.entry(run.2).or_default().push(area(map, run, low, map.y(row)));
        }
        for run in runs {
            open.entry(run).or_insert(map.y(row));
        }
    }
    for (run, low) in open {
        areas.entry(run.2).or_default().push(area(map, run, low, map.area.y));
    }
    // Cells without load are the ground, which is drawn already.
    areas.remove(&Some(0));
    let palette = style.theme.palette();
    let colour = |shade: Shade| match shade {
        Some(shade) => style.theme.colour(shade as f64 / SHADES as f64),
        None => palette.gap,
    };
    let ground = (style.theme.colour(0.0), vec![map.area]);
    let rest = areas.into_iter().map(|(shade, areas)| (colour(shade), areas));
    std::iter::once(ground).chain(rest).collect()
}

fn area(map: &Map<'_>, (start, end, _): Run, low: i32, high: i32) -> Area {
    let (left_x, right_x) = (map.column_x(start), map.column_x(end));
    Area { x: left_x, y: high, width: right_x - left_x, height: low - high }
}

fn runs(line: &[f32], gaps: &[usize]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (column, shade) in line.iter().enumerate() {
        let gap = gaps.binary_search(&column).is_ok();
        // Any load above zero gets a visible shade.
        let least = usize::from(*shade > 0.0);
        let shade = (!gap).then(|| round(tone(*shade) * SHADES as f64).max(least));
        match runs.last_mut() {
            Some((_, end, last)) if *last == shade => *end = column + 1,
            _ => runs.push((column, column + 1, shade)),
        }
    }
    runs
}
