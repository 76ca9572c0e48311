//! Writes the pictures of four key designs under the same stream of events, without a cluster. The key begins with
//! the time, begins with the user, has a hash as its prefix, or is one single hot key.
//!
//! `cargo run -p partita-heatmap --example four_designs -- DIR` leaves `NAME.svg`, `NAME.png`, `NAME-light.png`,
//! `NAME.ansi`, `NAME.txt`, `NAME.json` and one `index.html` in the folder. The streams are seeded: the files are the same
//! each time.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

mod design;
mod table;

use std::path::PathBuf;

use design::{DESIGNS, START};
use partita_heatmap::{Ansi, Heatmap, History, Ink, Metric, Mode, Style, Theme, View};
use table::Table;

/// Duration of the load on each design, seconds.
const SECONDS: u64 = 300;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("name a folder to write to")?);
    std::fs::create_dir_all(&folder)?;
    let mut pictures: Vec<Heatmap> = Vec::new();
    for design in DESIGNS {
        let mut table = Table::new(design);
        let mut history = History::default();
        // The whole run goes into one history, which a cluster would fill second by second.
        for second in 0..SECONDS {
            table.run(second, &mut history);
        }
        let view = View {
            table: design.name.to_owned(),
            metric: Metric::WriteRows,
            from: START,
            to: START + SECONDS,
            columns_max: 300,
            rows_max: 256,
            keys: None,
            capacity: Some(table::CAPACITY),
        };
        let picture = history.view(&view, |key| design.label(key));
        let name = folder.join(design.file);
        // The default style as a vector and as a bitmap, then the light theme with relative brightness.
        std::fs::write(
            name.with_extension("svg"),
            partita_heatmap::svg(&picture, Style::default()),
        )?;
        std::fs::write(
            name.with_extension("png"),
            partita_heatmap::png(&picture, Style::default())?,
        )?;
        let light = Style { theme: Theme::Light, mode: Mode::Relative, ..Style::default() };
        let light = partita_heatmap::png(&picture, light)?;
        std::fs::write(folder.join(format!("{}-light.png", design.file)), light)?;
        // The terminal in colour and in plain characters, and the data of the picture.
        std::fs::write(
            name.with_extension("ansi"),
            partita_heatmap::ansi(&picture, Ansi::default()),
        )?;
        let plain = Ansi { ink: Ink::Plain, ..Ansi::default() };
        std::fs::write(name.with_extension("txt"), partita_heatmap::ansi(&picture, plain))?;
        std::fs::write(name.with_extension("json"), serde_json::to_vec(&picture)?)?;
        println!(
            "{}: {} rows x {} columns, {} partitions, N_eff {:.2}, history {} KiB",
            design.file,
            picture.rows.len(),
            picture.times.len(),
            picture.balance.partitions,
            picture.balance.n_eff,
            history.bytes() / 1024,
        );
        pictures.push(picture);
    }
    // One page with all four pictures, which needs no server.
    std::fs::write(folder.join("index.html"), partita_heatmap::page(&pictures))?;
    Ok(())
}
