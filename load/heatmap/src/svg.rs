//! The picture as SVG: one file without fonts, scripts or style sheets from elsewhere.
//!
//! Invariants: the output is well-formed for any text; cells of one colour are one path, so that the file stays
//! small.

use std::fmt::Write as _;

use crate::colour::Rgb;
use crate::matrix::MarkKind;
use crate::picture::Heatmap;
use crate::scene::{Anchor, Letters, Scene, Shape, Style};

/// The picture as a complete SVG file.
#[must_use]
pub fn svg(heatmap: &Heatmap, style: Style) -> String {
    let scene = Scene::new(heatmap, style);
    let (width, height) = (scene.width, scene.height);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace\">\n\
         <title>{}</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"{}\"/>\n\
         <g shape-rendering=\"crispEdges\">\n",
        escaped(&scene.title),
        hex(scene.ground),
    );
    // Cells first, one path per colour, without anti-aliasing at their edges; then all other shapes on top.
    for (colour, areas) in &scene.cells {
        let mut path = String::new();
        for area in areas {
            append(
                &mut path,
                format_args!(
                    "M{} {}h{}v{}h-{}z",
                    area.x, area.y, area.width, area.height, area.width
                ),
            );
        }
        append(&mut text, format_args!("<path fill=\"{}\" d=\"{path}\"/>\n", hex(*colour)));
    }
    text.push_str("</g>\n");
    for shape in &scene.shapes {
        draw(&mut text, shape);
    }
    text.push_str("</svg>\n");
    text
}

fn draw(output: &mut String, shape: &Shape) {
    // One element for each shape. Outlines and lines lie at half pixels, so that they are one pixel wide and sharp.
    match shape {
        Shape::Box(area, colour) => append(
            output,
            format_args!(
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n",
                area.x,
                area.y,
                area.width,
                area.height,
                hex(*colour)
            ),
        ),
        Shape::Frame(area, colour) => append(
            output,
            format_args!(
                "<rect x=\"{}.5\" y=\"{}.5\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"{}\"/>\n",
                area.x,
                area.y,
                area.width - 1,
                area.height - 1,
                hex(*colour)
            ),
        ),
        Shape::Line([x, y, to_x, to_y], colour) => append(
            output,
            format_args!(
                "<path d=\"M{x}.5 {y}.5L{to_x}.5 {to_y}.5\" stroke=\"{}\"/>\n",
                hex(*colour)
            ),
        ),
        Shape::Text { x, y, text, letters, anchor, colour } => {
            let (size, weight) = match letters {
                Letters::Small => (10, "normal"),
                Letters::Bold => (11, "bold"),
                Letters::Title => (15, "bold"),
            };
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            append(
                output,
                format_args!(
                    "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" font-weight=\"{weight}\" text-anchor=\"{anchor}\" \
                 fill=\"{}\" xml:space=\"preserve\">{}</text>\n",
                    hex(*colour),
                    escaped(text)
                ),
            );
        }
        Shape::Mark { x, y, kind, colour, edge, title } => append(
            output,
            format_args!(
                "<path class=\"mark\" d=\"{}\" fill=\"{}\" stroke=\"{}\"><title>{}</title></path>\n",
                sign(*kind, *x, *y),
                hex(*colour),
                hex(*edge),
                escaped(title)
            ),
        ),
    }
}

fn sign(kind: MarkKind, x: i32, y: i32) -> String {
    match kind {
        MarkKind::Split => format!("M{} {y}l5 -5l5 5l-5 5z", x - 5),
        MarkKind::Merge => format!("M{} {}h8v8h-8z", x - 4, y - 4),
        MarkKind::Move => format!("M{} {}l9 5l-9 5z", x - 4, y - 5),
        MarkKind::Transfer => format!("M{} {}l5 -9l5 9z", x - 5, y + 4),
    }
}

fn hex([red, green, blue]: Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Escapes text for XML. Characters that XML cannot hold become a replacement character.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\t' | '\n' | '\r' => safe.push(' '),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            _ => safe.push(letter),
        }
    }
    safe
}

/// Appends formatted text; writing to a string does not fail.
fn append(output: &mut String, text: std::fmt::Arguments<'_>) {
    let _infallible = output.write_fmt(text);
}
