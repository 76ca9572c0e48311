//! The picture as shapes on a sheet of paper, which SVG and PNG draw in the same way.
//!
//! ```text
//!   title
//!   N_eff, max/mean, rates
//!   key │ cells, bounds, marks, verdicts │ partitions at the end
//!       └ time ──────────────────────────┘
//!   legend: colours, marks
//!   verdicts: class, range; evidence; advice
//! ```
//!
//! Invariants: keys ascend upwards; lengths are pixels, and all shapes lie on the sheet; letters are 6 pixels wide
//! (9 in the title), so that labels can be kept apart; each mark is one shape, each verdict one label on the map.

mod cells;
mod frame;
mod notes;

use crate::colour::{Rgb, Theme};
use crate::intensity::Mode;
use crate::matrix::MarkKind;
use crate::number::pixel;
use crate::picture::Heatmap;
use crate::wording::across;

/// Options of a drawn picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Width of the sheet, pixels; at least 640.
    pub width: u32,
    /// Height of the map alone, pixels; at least 120. The legend and the notes below it add to this.
    pub map_height: u32,
    /// Reference of the brightness.
    pub mode: Mode,
    /// Dark or light.
    pub theme: Theme,
}

impl Default for Style {
    fn default() -> Self {
        Self { width: 1200, map_height: 440, mode: Mode::Absolute, theme: Theme::Dark }
    }
}

/// Width of a small letter.
const LETTER: i32 = 6;

/// Height of a line of small letters.
const LINE: i32 = 15;

/// Width reserved for key labels: 30 letters.
const LEFT: i32 = 196;

/// Width reserved for the partitions' load at the end.
const RIGHT: i32 = 156;

/// Height reserved for the title.
const TOP: i32 = 62;

const MARGIN: i32 = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Letters {
    Small,
    Bold,
    Title,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) x: i32,
    pub(crate) y: i32,
    pub(crate) width: i32,
    pub(crate) height: i32,
}

impl Area {
    fn touches(&self, area: &Self) -> bool {
        self.x < area.x + area.width
            && area.x < self.x + self.width
            && self.y < area.y + area.height
            && area.y < self.y + self.height
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    /// A filled rectangle.
    Box(Area, Rgb),
    /// The outline of a rectangle.
    Frame(Area, Rgb),
    /// A line from (x, y) to (x, y).
    Line([i32; 4], Rgb),
    /// A text whose baseline is at `y`.
    Text { x: i32, y: i32, text: String, letters: Letters, anchor: Anchor, colour: Rgb },
    /// A sign centred at this point; `title` is its tooltip.
    Mark { x: i32, y: i32, kind: MarkKind, colour: Rgb, edge: Rgb, title: String },
}

/// Everything on the sheet, in drawing order.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) width: i32,
    pub(crate) height: i32,
    pub(crate) ground: Rgb,
    /// One line that describes the sheet.
    pub(crate) title: String,
    /// The cells: for each colour, the areas of that colour. The areas do not overlap.
    pub(crate) cells: Vec<(Rgb, Vec<Area>)>,
    /// The rest, above the cells.
    pub(crate) shapes: Vec<Shape>,
}

/// Position of the map on the sheet, and of rows and times on the map.
struct Map<'a> {
    heatmap: &'a Heatmap,
    area: Area,
    /// Lower edge of the first row, then the upper edge of each row.
    edges: Vec<i32>,
}

impl<'a> Map<'a> {
    fn new(heatmap: &'a Heatmap, area: Area) -> Self {
        let bottom = f64::from(area.y + area.height);
        let mut edges = vec![area.y + area.height];
        let mut sum = 0.0;
        for row in &heatmap.rows {
            sum += f64::from(row.height);
            edges.push(pixel(bottom - sum.min(1.0) * f64::from(area.height)));
        }
        if let Some(last) = edges.last_mut() {
            *last = area.y;
        }
        Self { heatmap, area, edges }
    }

    /// The lower edge of a row; the upper edge of the map for the row after the last.
    fn y(&self, row: usize) -> i32 {
        self.edges.get(row).copied().unwrap_or(self.area.y)
    }

    fn x(&self, time: u64) -> i32 {
        self.area.x + pixel(across(self.heatmap, time) * f64::from(self.area.width))
    }

    fn column_x(&self, column: usize) -> i32 {
        let part = column as f64 / self.heatmap.times.len().max(1) as f64;
        self.area.x + pixel(part * f64::from(self.area.width))
    }
}

impl Scene {
    pub(crate) fn new(heatmap: &Heatmap, style: Style) -> Self {
        let width = i32::try_from(style.width.clamp(640, 16_000)).unwrap_or(640);
        let height = i32::try_from(style.map_height.clamp(120, 16_000)).unwrap_or(120);
        let area = Area { x: LEFT, y: TOP, width: width - LEFT - RIGHT, height };
        let map = Map::new(heatmap, area);
        let palette = style.theme.palette();
        let mut scene = Self {
            width,
            height: 0,
            ground: palette.ground,
            title: format!("{}: {}", heatmap.table, heatmap.metric.title()),
            cells: cells::cells(&map, style),
            shapes: Vec::new(),
        };
        scene.frame(&map, style);
        scene.notes(&map, style);
        scene
    }

    fn text(&mut self, x: i32, y: i32, text: impl Into<String>, letters: Letters, colour: Rgb) {
        self.anchored(x, y, text, letters, Anchor::Start, colour);
    }

    fn anchored(
        &mut self,
        x: i32,
        y: i32,
        text: impl Into<String>,
        letters: Letters,
        anchor: Anchor,
        colour: Rgb,
    ) {
        self.shapes.push(Shape::Text { x, y, text: text.into(), letters, anchor, colour });
    }
}
