//! Everything around the cells: title, axes, partitions' bounds, and the partitions' load at the end of the time
//! shown.

use super::{Anchor, Area, LEFT, LETTER, LINE, Letters, MARGIN, Map, RIGHT, Scene, Shape, Style};
use crate::intensity::{Mode, tone};
use crate::number::{narrow, pixel, signed};
use crate::picture::Heatmap;
use crate::wording::{balance, cut, key_label, moment, percent, rate, ticks};

/// With more bounds than this, the lines would hide the cells.
const LINES_MAX: usize = 96;

/// Maximum characters of a key's label.
const KEY_LETTERS: usize = 29;

/// The load at the end is the mean over this many of the last known seconds, or the last known column if that is
/// longer.
const END_SECONDS: usize = 5;

impl Scene {
    pub(super) fn frame(&mut self, map: &Map<'_>, style: Style) {
        let palette = style.theme.palette();
        let heatmap = map.heatmap;
        self.text(MARGIN, 22, cut(&self.title.clone(), 90), Letters::Title, palette.ink);
        let letters = usize::try_from((self.width - 2 * MARGIN) / LETTER).unwrap_or(0);
        self.text(MARGIN, 40, cut(&balance(heatmap), letters), Letters::Bold, palette.ink);
        let start = heatmap.times.first().copied().unwrap_or(0);
        let span = format!(
            "{} to {} UTC, {} s a column",
            moment(start),
            moment(heatmap.end()),
            heatmap.step
        );
        self.text(MARGIN, 55, cut(&span, letters), Letters::Small, palette.faint);
        self.bounds(map, style);
        self.times(map, style);
        self.keys(map, style);
        self.partitions(map, style);
        self.shapes.push(Shape::Frame(map.area, palette.faint));
    }

    fn bounds(&mut self, map: &Map<'_>, style: Style) {
        let bounds = &map.heatmap.bounds;
        if bounds.len() > LINES_MAX {
            return;
        }
        for bound in bounds.iter().filter(|bound| bound.row > 0) {
            let (y, start, end) =
                (map.y(bound.row), map.column_x(bound.from), map.column_x(bound.to));
            self.shapes.push(Shape::Line([start, y, end, y], style.theme.palette().bound));
        }
    }

    fn times(&mut self, map: &Map<'_>, style: Style) {
        let palette = style.theme.palette();
        let start = map.heatmap.times.first().copied().unwrap_or(0);
        let bottom = map.area.y + map.area.height;
        let most = usize::try_from(map.area.width / 90).unwrap_or(1);
        for (time, label) in ticks(start, map.heatmap.end(), most) {
            let x = map.x(time);
            self.shapes.push(Shape::Line([x, bottom, x, bottom + 4], palette.faint));
            self.anchored(x, bottom + 17, label, Letters::Small, Anchor::Middle, palette.faint);
        }
    }

    /// Labels of keys: first the starts of partitions, then rows in between, as far as there is room.
    fn keys(&mut self, map: &Map<'_>, style: Style) {
        let heatmap = map.heatmap;
        let last = heatmap.times.len();
        // Partitions that exist at the end of the time shown.
        let partition_rows: Vec<usize> =
            heatmap.bounds.iter().filter(|bound| bound.to == last).map(|bound| bound.row).collect();
        // Rows at even distances, for the room between partitions.
        let mut even_rows: Vec<usize> = Vec::new();
        let parts = usize::try_from(map.area.height / 44).unwrap_or(1).max(1);
        for part in 1..parts {
            let y = map.area.y + map.area.height - map.area.height * signed(part) / signed(parts);
            even_rows.push(map.edges.partition_point(|edge| *edge > y));
        }
        // A label must not touch one that is placed already, nor repeat a text close to it.
        let mut placed: Vec<(i32, String)> = Vec::new();
        for row in std::iter::once(0).chain(partition_rows).chain(even_rows) {
            let Some(label) = heatmap.rows.get(row).map(|row| row.start.clone()) else {
                continue;
            };
            let y = map.y(row);
            let crowded = placed.iter().any(|(placed_y, text)| {
                let is_alike = cut(text, KEY_LETTERS) == cut(&label, KEY_LETTERS);
                (placed_y - y).abs() < LINE || (is_alike && (placed_y - y).abs() < 4 * LINE)
            });
            if !crowded {
                placed.push((y, label));
            }
        }
        // From above, so that a label can leave out what it shares with the one before.
        placed.sort_unstable();
        let palette = style.theme.palette();
        let mut upper: Option<&str> = None;
        for (y, key) in &placed {
            let label = key_label(upper, key, KEY_LETTERS);
            self.shapes.push(Shape::Line([LEFT - 5, *y, LEFT - 1, *y], palette.faint));
            self.anchored(LEFT - 9, y + 4, label, Letters::Small, Anchor::End, palette.ink);
            upper = Some(key.as_str());
        }
    }

    /// A bar for each partition, to the right of the map, with its load at the end.
    fn partitions(&mut self, map: &Map<'_>, style: Style) {
        let heatmap = map.heatmap;
        let palette = style.theme.palette();
        let capacity =
            heatmap.known_capacity().filter(|_| heatmap.mode(style.mode) == Mode::Absolute);
        let last = at_the_end(heatmap);
        let most = last.iter().map(|(_, _, rate)| *rate).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let bar_x = map.area.x + map.area.width + 8;
        let room = RIGHT - 8 - MARGIN;
        self.text(bar_x, map.area.y - 7, "at the right edge", Letters::Small, palette.faint);
        let mut labelled = i32::MAX;
        for (start, end, load) in last {
            let (low, high) = (map.y(start), map.y(end));
            let share = (load / capacity.unwrap_or(most)).min(1.0);
            let (middle, tall) = (i32::midpoint(low, high), low - high >= 2 * LINE);
            let (top, thick) =
                if tall { (middle + 3, 8) } else { (high + 1, (low - high - 2).max(1)) };
            let width = pixel(share * f64::from(room)).max(1);
            let colour = style.theme.colour(tone(narrow(share)));
            self.shapes.push(Shape::Box(Area { x: bar_x, y: top, width, height: thick }, colour));
            let baseline = if tall { middle - 1 } else { middle + 4 };
            if !tall && low - high < LINE - 1 && (labelled - baseline < LINE || share < 0.02) {
                continue;
            }
            labelled = baseline;
            let load = match capacity {
                Some(capacity) => percent(load / capacity),
                None => rate(heatmap.metric, load),
            };
            let id = heatmap.rows[start].partition.map_or_else(String::new, |id| format!("p{id} "));
            let leader =
                heatmap.rows[start].leader.map_or_else(String::new, |node| format!(" node {node}"));
            let text = cut(&format!("{id}{load}{leader}"), 23);
            if !tall {
                // The text stands on the ground, not on the bar, to stay readable.
                let width = signed(text.chars().count()) * LETTER + 4;
                let area = Area { x: bar_x + 2, y: baseline - 11, width, height: 14 };
                self.shapes.push(Shape::Box(area, palette.ground));
            }
            self.text(bar_x + 4, baseline, text, Letters::Small, palette.ink);
        }
    }
}

/// First row, row after the last, and load at the end, of each partition.
fn at_the_end(heatmap: &Heatmap) -> Vec<(usize, usize, f64)> {
    let covered =
        (0..heatmap.times.len()).rev().filter(|column| heatmap.gaps.binary_search(column).is_err());
    let step = usize::try_from(heatmap.step).unwrap_or(usize::MAX).max(1);
    let columns: Vec<usize> = covered.take((END_SECONDS / step).max(1)).collect();
    let Some(last) = columns.first() else { return Vec::new() };
    let load = |(start, end): (usize, usize)| {
        let rows = heatmap.cells[start..end].iter();
        let sum: f64 =
            rows.flat_map(|row| columns.iter().map(|column| f64::from(row[*column]))).sum();
        (start, end, sum / columns.len() as f64)
    };
    heatmap.partitions_in(*last).into_iter().map(load).collect()
}
