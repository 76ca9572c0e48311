//! The page: one HTML file that needs nothing else, live or with a picture in it.
//!
//! Invariants: the page loads nothing from elsewhere; it has the colours of the other renderers, which are written
//! into it here; text from tables is shown as text, never as markup.

use crate::colour::Theme;
use crate::picture::Heatmap;

const HTML: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPTS: [&str; 5] = [
    include_str!("page/model.js"),
    include_str!("page/paint.js"),
    include_str!("page/side.js"),
    include_str!("page/pointer.js"),
    include_str!("page/page.js"),
];

/// The page. Without pictures it requests `/v1/tables.json` and `/v1/heatmap.json` (see [`Heatmap`]) once a second
/// from the server that it was loaded from; with pictures it shows those and makes no requests.
#[must_use]
pub fn page(pictures: &[Heatmap]) -> String {
    let ramp = |theme: Theme| {
        let hex = |[red, green, blue]: [u8; 3]| format!("#{red:02x}{green:02x}{blue:02x}");
        theme.ramp().into_iter().map(hex).collect::<Vec<_>>().join("")
    };
    // No "</script>" can occur in the data, which would end the script.
    let data =
        serde_json::to_string(pictures).unwrap_or_else(|_| "[]".to_owned()).replace('<', "\\u003c");
    let script = SCRIPTS.join("\n");
    HTML.replace("/*STYLE*/", STYLE)
        .replace("/*DARK*/", &ramp(Theme::Dark))
        .replace("/*LIGHT*/", &ramp(Theme::Light))
        .replace("/*SCRIPT*/", &script)
        .replace("/*DATA*/", &data)
}
