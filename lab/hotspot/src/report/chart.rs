//! Line charts over time, scatter plots, and bars, as SVG.
//!
//! Invariants: axes and bars begin at 0; names are escaped; at most [`POINTS_MAX`] points, each the mean of the seconds that
//! it covers.

use std::fmt::Write as _;

use super::html::plain;

pub(super) const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 160.0;
const LEFT: f64 = 62.0;
const BOTTOM: f64 = 22.0;
const TOP: f64 = 24.0;
const POINTS_MAX: usize = 280;

/// A line: its name, its colour (a CSS variable) and one value per second.
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    pub(super) colour: &'a str,
    pub(super) values: Vec<f64>,
}

fn tick(value: f64) -> String {
    match value {
        size if size >= 1e6 => format!("{:.1}M", size / 1e6),
        size if size >= 1e4 => format!("{:.0}k", size / 1e3),
        size if size >= 10.0 => format!("{size:.0}"),
        size => format!("{size:.1}"),
    }
}

/// A line chart as SVG.
pub(super) fn chart(title: &str, lines: &[Line<'_>]) -> String {
    let most =
        lines.iter().flat_map(|line| &line.values).copied().fold(0.0, f64::max).max(1e-9) * 1.05;
    let seconds = lines.iter().map(|line| line.values.len()).max().unwrap_or(0).max(2);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\"><text x=\"{LEFT}\" y=\"14\" class=\"title\">{title}</text>"
    );
    let floor = HEIGHT - BOTTOM;
    for part in 0..=2 {
        let value = most * f64::from(part) / 2.0;
        let y = floor - (floor - TOP) * f64::from(part) / 2.0;
        // Writing to a string cannot fail.
        let _ok = write!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\" class=\"grid\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            tick(value)
        );
    }
    let _ok = write!(
        svg,
        "<text x=\"{WIDTH}\" y=\"{:.1}\" text-anchor=\"end\">{seconds} s</text>",
        HEIGHT - 6.0
    );
    for (number, line) in lines.iter().enumerate() {
        let chunk_seconds = line.values.len().div_ceil(POINTS_MAX).max(1);
        let mut path = String::new();
        for (index, chunk) in line.values.chunks(chunk_seconds).enumerate() {
            let mean = chunk.iter().sum::<f64>() / chunk.len() as f64;
            let x = LEFT + (WIDTH - LEFT) * (index * chunk_seconds) as f64 / (seconds - 1) as f64;
            let y = floor - (floor - TOP) * mean / most;
            let _ok = write!(path, "{}{x:.1} {y:.1}", if index == 0 { "M" } else { "L" });
        }
        let x = LEFT + f64::max(150.0, 6.6 * title.len() as f64 + 24.0) + 110.0 * number as f64;
        let _ok = write!(
            svg,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{0}\" stroke-width=\"1.6\"/><text x=\"{x:.0}\" y=\"14\" fill=\"{0}\" style=\"fill:{0}\">{1}</text>",
            line.colour, line.name
        );
    }
    svg.push_str("</svg>");
    svg
}

/// A labelled dot of a scatter plot.
pub(super) struct Dot<'a> {
    pub(super) name: &'a str,
    pub(super) x: f64,
    pub(super) y: f64,
}

/// A scatter plot whose axes begin at 0. Names of dots close together are placed below each other.
pub(super) fn scatter(title: &str, dots: &[Dot<'_>]) -> String {
    const TALL: f64 = 260.0;
    const RADIUS: f64 = 4.5;
    /// Approximate width of a letter.
    const LETTER: f64 = 7.0;
    // Axes with a margin, so that no dot lies at the edge.
    let most = |figure: fn(&Dot<'_>) -> f64| dots.iter().map(figure).fold(1.0, f64::max) * 1.15;
    let (most_x, most_y) = (most(|dot| dot.x), most(|dot| dot.y));
    let floor = TALL - BOTTOM;
    let x_of = |x: f64| LEFT + (WIDTH - LEFT) * x / most_x;
    let y_of = |y: f64| floor - (floor - TOP) * y / most_y;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {TALL}\" role=\"img\" aria-label=\"{title}\"><text x=\"{LEFT}\" y=\"14\" class=\"title\">{title}</text>"
    );
    for part in 0..=2 {
        let (x, y) = (most_x * f64::from(part) / 2.0, most_y * f64::from(part) / 2.0);
        let anchor = if part == 0 { "start" } else { "end" };
        // Writing to a string cannot fail.
        let _ok = write!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{0:.1}\" y2=\"{0:.1}\" class=\"grid\"/><text x=\"{1:.1}\" y=\"{2:.1}\" text-anchor=\"end\">{3}</text><text x=\"{4:.1}\" y=\"{5:.1}\" text-anchor=\"{anchor}\">{6}</text>",
            y_of(y),
            LEFT - 6.0,
            y_of(y) + 4.0,
            tick(y),
            x_of(x),
            TALL - 6.0,
            tick(x)
        );
    }
    // Names go beside their dots; a name moves up while it would cover a dot or another name.
    let mut places: Vec<(f64, f64)> = Vec::new();
    for dot in dots {
        let (x, y) = (x_of(dot.x), y_of(dot.y));
        let is_left = x > WIDTH * 0.6;
        let (mut text_y, text_x) = (y + 4.0, if is_left { x - 8.0 } else { x + 8.0 });
        let wide = LETTER * dot.name.chars().fold(0.0, |wide, _| wide + 1.0);
        let (start, end) = if is_left { (text_x - wide, text_x) } else { (text_x, text_x + wide) };
        let covers = |text_y: f64| {
            dots.iter().map(|neighbour| (x_of(neighbour.x), y_of(neighbour.y))).any(|(x, y)| {
                (start - RADIUS..end + RADIUS).contains(&x) && (y + 4.0 - text_y).abs() < 10.0
            })
        };
        while covers(text_y)
            || places
                .iter()
                .any(|place| (place.0 - text_x).abs() < 160.0 && (place.1 - text_y).abs() < 13.0)
        {
            text_y -= 13.0;
        }
        places.push((text_x, text_y));
        let name = dot.name.replace('&', "&amp;").replace('<', "&lt;");
        let anchor = if is_left { "end" } else { "start" };
        let _ok = write!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{RADIUS}\" fill=\"var(--a)\"/><text x=\"{text_x:.1}\" y=\"{text_y:.1}\" text-anchor=\"{anchor}\">{name}</text>"
        );
    }
    svg.push_str("</svg>");
    svg
}

/// A bar of a bar chart.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Label to the left of it.
    pub name: String,
    /// Length, in the scale of its group; not negative.
    pub value: f64,
    /// The value as text, to the right of it.
    pub text: String,
    /// CSS colour, such as `var(--a)`.
    pub colour: &'static str,
}

/// Bars that are compared with each other.
#[derive(Clone, Debug)]
pub struct Bars {
    /// Heading; empty for none.
    pub name: String,
    /// From top to bottom.
    pub bars: Vec<Bar>,
}

/// Horizontal bars in groups. The longest bar of each group is as wide as the chart allows.
#[must_use]
pub fn bars(title: &str, groups: &[Bars]) -> String {
    const NAMES: f64 = 132.0;
    const LONGEST: f64 = 290.0;
    const STEP: f64 = 16.0;
    let lines = groups.iter().map(|group| group.bars.len() + 1).sum::<usize>();
    let tall = TOP + STEP * (lines as f64 + 0.5);
    let title = plain(title);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {tall}\" role=\"img\" aria-label=\"{title}\"><text x=\"8\" y=\"14\" class=\"title\">{title}</text>"
    );
    let mut y = TOP;
    for group in groups {
        y += STEP;
        // Writing to a string cannot fail.
        let _ok = write!(svg, "<text x=\"8\" y=\"{:.1}\">{}</text>", y - 4.0, plain(&group.name));
        let most = group.bars.iter().map(|bar| bar.value).fold(0.0, f64::max).max(1e-9);
        for bar in &group.bars {
            let wide = (LONGEST * bar.value / most).max(1.0);
            let _ok = write!(
                svg,
                "<text x=\"{0:.1}\" y=\"{1:.1}\" text-anchor=\"end\">{2}</text><rect x=\"{NAMES}\" y=\"{3:.1}\" width=\"{wide:.1}\" height=\"11\" fill=\"{4}\"/><text x=\"{5:.1}\" y=\"{1:.1}\">{6}</text>",
                NAMES - 6.0,
                y + 10.0,
                plain(&bar.name),
                y + 1.0,
                bar.colour,
                NAMES + wide + 6.0,
                plain(&bar.text)
            );
            y += STEP;
        }
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_of_each_group_is_as_wide_as_that_of_another() {
        let bar = |name: &str, value: f64| Bar {
            name: name.to_owned(),
            value,
            text: format!("{value} <"),
            colour: "var(--a)",
        };
        let group = |name: &str, bars| Bars { name: name.to_owned(), bars };
        let few = group("few", vec![bar("a & b", 1.0), bar("c", 2.0)]);
        let svg = bars("rows", &[few, group("many", vec![bar("d", 2_000.0), bar("e", 0.0)])]);
        let wide: Vec<&str> = svg
            .split(" width=\"")
            .skip(1)
            .filter_map(|rest| rest.split_once('"').map(|(wide, _)| wide))
            .collect();
        assert_eq!(wide, ["145.0", "290.0", "290.0", "1.0"]);
        assert!(svg.contains("a &amp; b") && svg.contains("2000 &lt;"), "{svg}");
        assert!(svg.contains("viewBox=\"0 0 560 128\""), "{svg}");
    }

    #[test]
    fn names_of_dots_that_lie_together_do_not_cover_each_other() {
        let dot = |name| Dot { name, x: 1.0, y: 8.0 };
        let svg = scatter("t", &[dot("one"), dot("two"), dot("three <")]);
        let place = |name: &str| {
            let head = &svg[..svg.find(&format!(">{name}</text>")).unwrap()];
            let value = &head[head.rfind(" y=\"").unwrap() + 4..];
            value[..value.find('"').unwrap()].parse::<f64>().unwrap()
        };
        assert!((place("one") - place("two")).abs() >= 12.9);
        assert!((place("three &lt;") - place("two")).abs() >= 12.9);
    }

    #[test]
    fn no_name_covers_the_dot_of_another() {
        let dot = |name, x| Dot { name, x, y: 8.0 };
        let svg = scatter("t", &[dot("first", 8.0), dot("a longer name", 8.8)]);
        let number = |element: &str, name: &str, attribute: &str| {
            let head = &svg[..svg.find(name).unwrap()];
            let start = head.rfind(element).unwrap();
            let tag = &head[start..];
            let value = &tag[tag.find(attribute).unwrap() + attribute.len()..];
            value[..value.find('"').unwrap()].parse::<f64>().unwrap()
        };
        let dot_y = number("<circle", ">first</text>", "cy=\"");
        let text_y = number("<text", ">a longer name</text>", " y=\"");
        assert!((dot_y + 4.0 - text_y).abs() >= 10.0, "{svg}");
    }
}
