//! `partita heatmap`: the load of a table by key and time, in the terminal or as a file.
//!
//! It requests the data from a frontend over HTTP, as the web page does.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use partita_heatmap::{Ansi, Heatmap, Ink, Metric, Mode, Style, Theme};

use crate::client;
use crate::fetch;
use crate::load::urlencode;

/// Width in characters if the terminal does not report one.
const WIDTH: usize = 100;

/// Options of `partita heatmap`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Table; `database.table` if it is not in `public`.
    table: String,
    /// Time to show, up to now: 90s, 15m, 1h, 14d.
    #[arg(long, default_value = "15m", value_parser = seconds)]
    since: u64,
    /// Metric: `write_rows`, `read_rows`, `write_bytes`, `busy` or `operations`.
    #[arg(long, default_value = "write_rows", value_parser = metric)]
    metric: Metric,
    /// Scale colours to the brightest cell instead of the capacity of one partition.
    #[arg(long)]
    relative: bool,
    /// Use colours for a light background.
    #[arg(long)]
    light: bool,
    /// Width in characters, or in pixels of a file.
    #[arg(long)]
    width: Option<u16>,
    /// Height of the map in lines, or in pixels of a file.
    #[arg(long)]
    height: Option<u16>,
    #[command(flatten)]
    form: Form,
    /// HTTP address of a frontend.
    #[arg(long, visible_alias = "http", env = "PARTITA_HTTP", default_value = "127.0.0.1:4000")]
    url: String,
    #[command(flatten)]
    client: client::Options,
}

/// Output; by default the terminal, in colours if it shows them.
#[derive(clap::Args)]
#[group(multiple = false)]
struct Form {
    /// Use colours even if the output is not a terminal.
    #[arg(long)]
    ansi: bool,
    /// Use characters only.
    #[arg(long)]
    plain: bool,
    /// Write an SVG file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write a PNG file.
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
    /// Print the server's JSON.
    #[arg(long)]
    json: bool,
}

/// Shows the heatmap.
///
/// # Errors
/// If the server cannot be reached or refuses, or a file cannot be written.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let path = format!(
        "/v1/heatmap.json?table={}&metric={}&since={}",
        urlencode(&options.table),
        options.metric.name(),
        options.since
    );
    let json = fetch::get(&options.client, &options.url, &path).await?;
    // The server's own form needs no drawing.
    if options.form.json {
        return print(&json, true);
    }
    let heatmap: Heatmap =
        serde_json::from_slice(&json).context("the server's heatmap has another format")?;
    let mode = if options.relative { Mode::Relative } else { Mode::Absolute };
    let theme = if options.light { Theme::Light } else { Theme::Dark };
    let usual = Style::default();
    let style = Style {
        width: options.width.map_or(usual.width, u32::from),
        map_height: options.height.map_or(usual.map_height, u32::from),
        mode,
        theme,
    };
    // A file, or else the terminal.
    if let Some(file) = &options.form.svg {
        return write(file, partita_heatmap::svg(&heatmap, style).as_bytes());
    }
    if let Some(file) = &options.form.png {
        return write(file, &partita_heatmap::png(&heatmap, style)?);
    }
    let usual = Ansi::default();
    let drawn = Ansi {
        width: options.width.map_or_else(terminal_width, usize::from),
        height: options.height.map_or(usual.height, usize::from),
        ink: ink(&options.form),
        mode,
        theme,
    };
    print(partita_heatmap::ansi(&heatmap, drawn).as_bytes(), false)
}

fn ink(form: &Form) -> Ink {
    let says = |name: &str, words: [&str; 2]| {
        std::env::var(name).is_ok_and(|value| words.iter().any(|word| value.contains(word)))
    };
    let colours = form.ansi || (std::io::stdout().is_terminal() && !form.plain);
    match colours {
        false => Ink::Plain,
        true if says("COLORTERM", ["truecolor", "24bit"]) => Ink::True,
        true => Ink::Indexed,
    }
}

fn terminal_width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    columns.unwrap_or(WIDTH)
}

fn write(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    std::fs::write(file, bytes).with_context(|| format!("cannot write {}", file.display()))
}

fn print(bytes: &[u8], line: bool) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(bytes)?;
    if line {
        stdout.write_all(b"\n")?;
    }
    Ok(stdout.flush()?)
}

fn metric(name: &str) -> Result<Metric, String> {
    Metric::named(name)
        .ok_or_else(|| format!("expected one of {}", Metric::ALL.map(Metric::name).join(", ")))
}

/// Parses `90s`, `15m`, `1h`, `14d`, or seconds.
fn seconds(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((end, 's')) => (&text[..end], 1),
        Some((end, 'm')) => (&text[..end], 60),
        Some((end, 'h')) => (&text[..end], 3_600),
        Some((end, 'd')) => (&text[..end], 86_400),
        _ => (text, 1),
    };
    let number: Option<u64> = digits.parse().ok();
    let seconds = number.and_then(|number| number.checked_mul(unit)).filter(|seconds| *seconds > 0);
    seconds.ok_or_else(|| "expected a time like 90s, 15m, 1h or 14d".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units() {
        let read = |text: &str| seconds(text).ok();
        assert_eq!(read("90"), Some(90));
        assert_eq!(read("90s"), Some(90));
        assert_eq!(read("15m"), Some(900));
        assert_eq!(read("1h"), Some(3_600));
        assert_eq!(read("14d"), Some(1_209_600));
        for wrong in ["", "0", "h", "-1m", "1.5h", "99999999999999999999d", "5ü"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
