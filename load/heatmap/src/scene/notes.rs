//! Annotations of the cells: marks, verdicts on the map and in words below it, the legend.

use super::{Anchor, Area, LEFT, LETTER, LINE, Letters, MARGIN, Map, Scene, Shape, Style};
use crate::intensity::Mode;
use crate::matrix::MarkKind;
use crate::number::signed;
use crate::picture::{Mark, VerdictNote};
use crate::wording::{clock, cut, moment, percent, rate, wrapped};

/// Maximum number of verdicts put into words below the map; the map itself shows all.
const WORDED_MAX: usize = 6;

/// Shares with a label in the legend.
const LEGEND: [f64; 6] = [0.0, 0.01, 0.05, 0.25, 0.5, 1.0];

const LEGEND_WIDTH: i32 = 300;

/// Minimum width of a sheet whose legend has its words beside its colours.
const WIDE: i32 = 940;

/// Every kind of mark with its name in the legend.
pub(crate) const KINDS: [(MarkKind, &str); 4] = [
    (MarkKind::Split, "split"),
    (MarkKind::Merge, "merge"),
    (MarkKind::Move, "move"),
    (MarkKind::Transfer, "leader transfer"),
];

impl Scene {
    pub(super) fn notes(&mut self, map: &Map<'_>, style: Style) {
        self.labels(map, style);
        self.marks(map, style);
        let bottom = self.legend(map, style);
        self.height = self.words(map, style, bottom) + MARGIN;
    }

    fn marks(&mut self, map: &Map<'_>, style: Style) {
        let palette = style.theme.palette();
        for mark in &map.heatmap.marks {
            let (x, y) = mark_point(map, mark);
            self.shapes.push(Shape::Mark {
                x,
                y,
                kind: mark.kind,
                colour: palette.mark,
                edge: palette.ground,
                title: format!("{} {}: {}", clock(mark.at), mark.key, mark.text),
            });
        }
    }

    /// Verdicts: the outline of their range and time, with the class on it.
    fn labels(&mut self, map: &Map<'_>, style: Style) {
        let palette = style.theme.palette();
        let sign_area = |mark: &Mark| {
            let (x, y) = mark_point(map, mark);
            Area { x: x - 6, y: y - 6, width: 12, height: 12 }
        };
        let mut placed: Vec<Area> = map.heatmap.marks.iter().map(sign_area).collect();
        for verdict in &map.heatmap.verdicts {
            let (left_x, right_x) =
                (map.x(verdict.since), map.x(verdict.until.unwrap_or(u64::MAX)));
            let (low, high) = (map.y(verdict.from_row), map.y(verdict.to_row));
            let outline = Area {
                x: left_x,
                y: high,
                width: (right_x - left_x).max(2),
                height: (low - high).max(2),
            };
            self.shapes.push(Shape::Frame(outline, palette.alarm));
            let label =
                free_place(map, &mut placed, &verdict.class, left_x, i32::midpoint(low, high));
            self.shapes.push(Shape::Box(label, palette.alarm));
            self.text(label.x + 4, label.y + 12, &*verdict.class, Letters::Bold, palette.alarm_ink);
        }
    }

    /// Draws the legend; returns the lowest y in use.
    fn legend(&mut self, map: &Map<'_>, style: Style) -> i32 {
        let palette = style.theme.palette();
        let heatmap = map.heatmap;
        let top = map.area.y + map.area.height + 28;
        for step in 0..LEGEND_WIDTH {
            let colour = style.theme.colour(f64::from(step) / f64::from(LEGEND_WIDTH - 1));
            self.shapes
                .push(Shape::Box(Area { x: LEFT + step, y: top, width: 1, height: 12 }, colour));
        }
        let absolute = heatmap.mode(style.mode) == Mode::Absolute;
        for share in LEGEND {
            let x = LEFT + crate::number::pixel(share.sqrt() * f64::from(LEGEND_WIDTH));
            let anchor = if share >= 1.0 { Anchor::End } else { Anchor::Middle };
            let text = if share > 0.0 { percent(share) } else { "0".to_owned() };
            self.anchored(x, top + 25, text, Letters::Small, anchor, palette.faint);
        }
        let reference = match heatmap.known_capacity().filter(|_| absolute) {
            Some(capacity) => format!("of one partition's {}", rate(heatmap.metric, capacity)),
            None => {
                format!("of the brightest row's {}", rate(heatmap.metric, heatmap.density_max()))
            }
        };
        // On a narrow sheet the words stand below the colours.
        let right = LEFT + LEGEND_WIDTH + 14;
        let (words, mut x, signs) = if self.width >= WIDE {
            ((right, top + 25), right, top)
        } else {
            ((MARGIN, top + 42), MARGIN, top + 50)
        };
        let letters = usize::try_from((self.width - words.0 - MARGIN) / LETTER).unwrap_or(0);
        self.text(words.0, words.1, cut(&reference, letters), Letters::Small, palette.faint);
        for (kind, name) in KINDS {
            let (colour, edge, title) = (palette.mark, palette.ground, name.to_owned());
            self.shapes.push(Shape::Mark { x: x + 5, y: signs + 6, kind, colour, edge, title });
            self.text(x + 14, signs + 10, name, Letters::Small, palette.ink);
            x += 14 + signed(name.len()) * LETTER + 16;
        }
        self.shapes.push(Shape::Box(Area { x, y: signs, width: 12, height: 12 }, palette.gap));
        self.text(x + 17, signs + 10, "no report", Letters::Small, palette.ink);
        words.1.max(signs + 12)
    }

    fn words(&mut self, map: &Map<'_>, style: Style, mut y: i32) -> i32 {
        let palette = style.theme.palette();
        let letters = usize::try_from((self.width - 2 * MARGIN) / LETTER).unwrap_or(80);
        let verdicts = &map.heatmap.verdicts;
        // Verdicts that hold come first, then the ended ones; the newest first in each group.
        let mut order: Vec<&VerdictNote> = verdicts.iter().collect();
        order.sort_by_key(|verdict| (verdict.until.is_some(), std::cmp::Reverse(verdict.since)));
        for verdict in order.iter().take(WORDED_MAX) {
            y += LINE + 7;
            let head = format!(
                "{}  {}  since {} UTC",
                verdict.class,
                verdict.range,
                moment(verdict.since)
            );
            self.text(MARGIN, y, cut(&head, letters), Letters::Bold, palette.alarm);
            for line in wrapped(&verdict.evidence, letters) {
                y += LINE;
                self.text(MARGIN, y, line, Letters::Small, palette.ink);
            }
            if !verdict.advice.is_empty() {
                for line in wrapped(&format!("-> {}", verdict.advice), letters) {
                    y += LINE;
                    self.text(MARGIN, y, line, Letters::Small, palette.mark);
                }
            }
        }
        if let Some(more) = verdicts.len().checked_sub(WORDED_MAX + 1) {
            y += LINE + 7;
            self.text(MARGIN, y, format!("and {} more", more + 1), Letters::Small, palette.faint);
        }
        y
    }
}

/// The position of a mark, kept inside the map so that the whole sign is visible.
fn mark_point(map: &Map<'_>, mark: &Mark) -> (i32, i32) {
    let area = map.area;
    let x = map.x(mark.at).clamp(area.x + 5, area.x + area.width - 5);
    let y = map.y(mark.row).clamp(area.y + 5, area.y + area.height - 5);
    (x, y)
}

/// Places a label near a point without touching another label; on top of others if there is no room.
fn free_place(map: &Map<'_>, placed: &mut Vec<Area>, text: &str, x: i32, y: i32) -> Area {
    let (width, height) = (signed(text.chars().count()) * 7 + 8, 16);
    let right = map.area.x + map.area.width - width - 2;
    let area_at = |x: i32, y: i32| Area {
        x: x.clamp(map.area.x + 2, right.max(map.area.x + 2)),
        y: (y - height / 2).clamp(map.area.y + 2, map.area.y + map.area.height - height - 2),
        width,
        height,
    };
    let steps = (0..40).flat_map(|step| [step * (height + 2), -step * (height + 2)]);
    let mut tried = steps.map(|step| area_at(x + 4, y + step));
    let free = tried.find(|area| !placed.iter().any(|neighbour| neighbour.touches(area)));
    let label = free.unwrap_or_else(|| area_at(x + 4, y));
    placed.push(label);
    label
}
