//! The picture as PNG, drawn like the SVG with the letters of the X11 "misc fixed" fonts (Latin-1; others become `?`).

use std::convert::Infallible;

use embedded_graphics::geometry::{OriginDimensions, Point, Size};
use embedded_graphics::mono_font::iso_8859_1::{FONT_6X13, FONT_7X13_BOLD, FONT_9X18_BOLD};
use embedded_graphics::mono_font::{MonoFont, MonoTextStyle};
use embedded_graphics::pixelcolor::{Rgb888, RgbColor};
use embedded_graphics::prelude::{Dimensions, DrawTarget, Drawable, Pixel, Primitive};
use embedded_graphics::primitives::{Line, PrimitiveStyle, Rectangle, Triangle};
use embedded_graphics::text::{Alignment, Text};

use crate::colour::Rgb;
use crate::matrix::MarkKind;
use crate::picture::Heatmap;
use crate::scene::{Anchor, Area, Letters, Scene, Shape, Style};

/// The sheet could not be written as PNG.
#[derive(Debug)]
pub struct PngError(::png::EncodingError);

impl std::fmt::Display for PngError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "cannot encode the picture: {}", self.0)
    }
}

impl std::error::Error for PngError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// The picture as a complete PNG file.
///
/// # Errors
/// If the encoder refuses the sheet; no size that [`Style`] allows leads to this.
pub fn png(heatmap: &Heatmap, style: Style) -> Result<Vec<u8>, PngError> {
    let scene = Scene::new(heatmap, style);
    let mut sheet = Sheet::new(&scene);
    for (colour, areas) in &scene.cells {
        areas.iter().for_each(|area| sheet.fill(*area, *colour));
    }
    for shape in &scene.shapes {
        sheet.draw(shape);
    }
    sheet.encode().map_err(PngError)
}

struct Sheet {
    width: u32,
    height: u32,
    bytes: Vec<u8>,
}

impl Sheet {
    fn new(scene: &Scene) -> Self {
        let (width, height) = (scene.width.unsigned_abs(), scene.height.unsigned_abs());
        let mut sheet = Self { width, height, bytes: Vec::new() };
        let pixels = width as usize * height as usize;
        sheet.bytes = scene.ground.iter().copied().cycle().take(pixels * 3).collect();
        sheet
    }

    fn encode(&self) -> Result<Vec<u8>, ::png::EncodingError> {
        let mut file = Vec::new();
        let mut encoder = ::png::Encoder::new(&mut file, self.width, self.height);
        encoder.set_color(::png::ColorType::Rgb);
        encoder.set_depth(::png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.bytes)?;
        writer.finish()?;
        Ok(file)
    }

    fn fill(&mut self, area: Area, colour: Rgb) {
        let size = Size::new(area.width.unsigned_abs(), area.height.unsigned_abs());
        let area = Rectangle::new(Point::new(area.x, area.y), size);
        let Ok(()) = self.fill_solid(&area, shade(colour));
    }

    fn draw(&mut self, shape: &Shape) {
        match shape {
            Shape::Box(area, colour) => self.fill(*area, *colour),
            Shape::Frame(area, colour) => {
                let size = Size::new(area.width.unsigned_abs(), area.height.unsigned_abs());
                let frame = Rectangle::new(Point::new(area.x, area.y), size);
                let Ok(()) =
                    frame.into_styled(PrimitiveStyle::with_stroke(shade(*colour), 1)).draw(self);
            }
            Shape::Line([x, y, to_x, to_y], colour) => {
                let line = Line::new(Point::new(*x, *y), Point::new(*to_x, *to_y));
                let Ok(()) =
                    line.into_styled(PrimitiveStyle::with_stroke(shade(*colour), 1)).draw(self);
            }
            // The fonts are fixed in size: 6, 7 or 9 pixels per letter.
            Shape::Text { x, y, text, letters, anchor, colour } => {
                let font: &MonoFont<'_> = match letters {
                    Letters::Small => &FONT_6X13,
                    Letters::Bold => &FONT_7X13_BOLD,
                    Letters::Title => &FONT_9X18_BOLD,
                };
                let alignment = match anchor {
                    Anchor::Start => Alignment::Left,
                    Anchor::Middle => Alignment::Center,
                    Anchor::End => Alignment::Right,
                };
                let style = MonoTextStyle::new(font, shade(*colour));
                let text = Text::with_alignment(text, Point::new(*x, *y), style, alignment);
                let Ok(_next) = text.draw(self);
            }
            Shape::Mark { x, y, kind, colour, edge, .. } => {
                // A sign is drawn twice: the larger one under it is its edge.
                self.sign(*kind, Point::new(*x, *y), 7, *edge);
                self.sign(*kind, Point::new(*x, *y), 5, *colour);
            }
        }
    }

    fn sign(&mut self, kind: MarkKind, centre: Point, size: i32, colour: Rgb) {
        let style = PrimitiveStyle::with_fill(shade(colour));
        let corner = |x: i32, y: i32| centre + Point::new(x * size, y * size);
        let triangles = match kind {
            MarkKind::Split => [[(-1, 0), (0, -1), (1, 0)], [(-1, 0), (0, 1), (1, 0)]],
            MarkKind::Merge => [[(-1, -1), (1, -1), (1, 1)], [(-1, -1), (-1, 1), (1, 1)]],
            MarkKind::Move => [[(-1, -1), (1, 0), (-1, 1)]; 2],
            MarkKind::Transfer => [[(-1, 1), (0, -1), (1, 1)]; 2],
        };
        for corners in triangles {
            let [a, b, c] = corners.map(|(x, y)| corner(x, y));
            let Ok(()) = Triangle::new(a, b, c).into_styled(style).draw(self);
        }
    }
}

fn shade([red, green, blue]: Rgb) -> Rgb888 {
    Rgb888::new(red, green, blue)
}

impl OriginDimensions for Sheet {
    fn size(&self) -> Size {
        Size::new(self.width, self.height)
    }
}

impl DrawTarget for Sheet {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(
        &mut self,
        pixels: I,
    ) -> Result<(), Infallible> {
        let sheet = self.bounding_box();
        for Pixel(point, colour) in
            pixels.into_iter().filter(|Pixel(point, _)| sheet.contains(*point))
        {
            let place = (point.y.unsigned_abs() * self.width + point.x.unsigned_abs()) as usize * 3;
            self.bytes[place..place + 3].copy_from_slice(&[colour.r(), colour.g(), colour.b()]);
        }
        Ok(())
    }
}
