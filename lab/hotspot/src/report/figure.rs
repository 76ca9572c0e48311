//! Charts of a run, and of several runs.
//!
//! Invariants: charts show the seconds unchanged; colours are the page's variables, which [`alone`] replaces by a
//! theme's colours for a picture of its own.

use std::fmt::Write as _;

use partita_heatmap::Theme;

use super::chart::{Dot, Line, WIDTH, chart, scatter};
use crate::metrics::{Second, Summary};

const A: &str = "var(--a)";
const B: &str = "var(--b)";
const C: &str = "var(--c)";
/// Gap between charts of one picture.
const GAP: f64 = 16.0;

fn line<'a>(
    name: &'a str,
    colour: &'a str,
    seconds: &[Second],
    value: impl Fn(&Second) -> f64,
) -> Line<'a> {
    Line { name, colour, values: seconds.iter().map(value).collect() }
}

/// Demanded and served rows per second.
pub(super) fn rates(seconds: &[Second]) -> String {
    let demand = line("demand", B, seconds, |s| s.offered);
    chart("rows/s", &[demand, line("served", A, seconds, |s| s.served)])
}

/// Effective numbers of partitions and nodes.
pub(super) fn spread(seconds: &[Second]) -> String {
    let partitions = line("partitions", A, seconds, |s| s.n_eff);
    chart("N_eff", &[partitions, line("leaders' nodes", C, seconds, |s| s.n_eff_leaders)])
}

/// Latencies; `kind` labels them as measured or estimated.
pub(super) fn latency(seconds: &[Second], kind: &str) -> String {
    let p50 = line("p50", C, seconds, |s| s.p50_ms);
    chart(&format!("latency, ms, {kind}"), &[p50, line("p99", B, seconds, |s| s.p99_ms)])
}

/// Cumulative splits by load.
pub(super) fn splits(seconds: &[Second]) -> String {
    let total = line("all", A, seconds, |s| s.splits_load as f64);
    chart("splits by load", &[total, line("in vain", B, seconds, |s| s.splits_in_vain as f64)])
}

/// Leaders and CPU usage by node; empty if unknown.
pub(super) fn nodes(seconds: &[Second]) -> Vec<String> {
    let nodes = seconds.iter().map(|second| second.cpu.len()).max().unwrap_or(0);
    if nodes == 0 {
        return Vec::new();
    }
    let names: Vec<String> = (1..=nodes).map(|node| format!("node {node}")).collect();
    let value = |list: &[f64], node: usize| list.get(node).copied().unwrap_or(0.0);
    let pick = |list: fn(&Second) -> &Vec<f64>| -> Vec<Line<'_>> {
        let coloured = names.iter().zip([A, B, C].into_iter().cycle()).enumerate().take(4);
        coloured
            .map(|(node, (name, colour))| line(name, colour, seconds, |s| value(list(s), node)))
            .collect()
    };
    vec![
        chart("share by leading node", &pick(|s| &s.leaders)),
        chart("cores in use", &pick(|s| &s.cpu)),
    ]
}

/// The trade-off between evenly spread writes and the cost of reading one user; `None` if no reads are known.
pub(super) fn trade_off(rows: &[(String, &Summary)]) -> Option<String> {
    let with_reads =
        rows.iter().filter_map(|(name, summary)| Some((name, summary, summary.fan_out.as_ref()?)));
    let dots: Vec<Dot<'_>> = with_reads
        .map(|(name, summary, fan_out)| Dot { name, x: fan_out.mean[0], y: summary.n_eff })
        .collect();
    let title = "partitions that write (N_eff) by partitions that a read of one user touches";
    (!dots.is_empty()).then(|| scatter(title, &dots))
}

/// Several charts as one file, in a theme's colours.
pub(super) fn alone(charts: &[String], theme: Theme) -> String {
    let [ink, soft, rule, a, b, c] = match theme {
        Theme::Light => ["#1b1f24", "#f3f5f7", "#d5dae0", "#0b69c7", "#c2410c", "#0f7b45"],
        Theme::Dark => ["#e6e9ee", "#191f26", "#303944", "#6cb2ff", "#ff9a62", "#5fd39a"],
    };
    // In `<svg viewBox="0 0 560 160"`, the last number is the height.
    let height = |chart: &String| {
        let end = chart.split("viewBox=\"").nth(1)?.split('"').next()?;
        end.rsplit(' ').next()?.parse::<f64>().ok()
    };
    let tall = charts.iter().filter_map(height).fold(0.0, f64::max);
    let wide = charts.len() as f64 * (WIDTH + GAP) - GAP;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide}\" height=\"{tall}\" viewBox=\"0 0 {wide} {tall}\">\n\
         <style>text{{font:11px system-ui,sans-serif;fill:{ink}}}.title{{font-weight:600}}.grid{{stroke:{rule}}}</style>\n\
         <rect width=\"{wide}\" height=\"{tall}\" fill=\"{soft}\"/>\n"
    );
    for (index, chart) in charts.iter().enumerate() {
        let (x, chart_height) = (index as f64 * (WIDTH + GAP), height(chart).unwrap_or(tall));
        let placed = format!("<svg x=\"{x}\" y=\"0\" width=\"{WIDTH}\" height=\"{chart_height}\" ");
        // Writing to a string cannot fail.
        let _ok = writeln!(svg, "{}", chart.replacen("<svg ", &placed, 1));
    }
    svg.push_str("</svg>\n");
    svg.replace(A, a).replace(B, b).replace(C, c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_of_its_own_has_its_colours_and_its_places() {
        let seconds = [1.0, 2.0, 3.0].map(|served| Second { served, ..Second::default() });
        for (theme, colour) in [(Theme::Light, "#0b69c7"), (Theme::Dark, "#6cb2ff")] {
            let svg = alone(&[rates(&seconds), latency(&seconds, "measured")], theme);
            assert!(svg.contains(colour) && !svg.contains("var("), "{svg}");
            assert!(svg.contains("width=\"1136\" height=\"160\""), "{svg}");
            assert_eq!(svg.matches("<svg ").count(), 3);
            assert_eq!(svg.matches("<svg ").count(), svg.matches("</svg>").count());
            assert!(svg.contains("<svg x=\"576\" y=\"0\" width=\"560\""), "{svg}");
        }
    }

    #[test]
    fn nothing_is_drawn_of_what_nobody_knows() {
        assert!(nodes(&[Second::default()]).is_empty());
        assert_eq!(nodes(&[Second { cpu: vec![0.1, 0.2], ..Second::default() }]).len(), 2);
        let summary = Summary::of_seconds(&[], crate::metrics::Told::default());
        assert_eq!(trade_off(&[("one".to_owned(), &summary)]), None);
    }
}
