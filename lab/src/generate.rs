//! `partita lab generate`: writes a data set to a file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::Context;

use crate::cpu::{Generator, hosts};
use crate::data::Data;
use crate::encode::{BINARY_END, BINARY_HEAD, Encoder, Format, columns};

/// Rows generated at a time.
const CHUNK_ROWS: usize = 10_000;

/// Options of `generate`.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    data: Data,
    /// Format of the file.
    #[arg(long, value_enum, default_value = "lp")]
    format: FileFormat,
    /// File to write; by default standard output.
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum FileFormat {
    /// InfluxDB's line protocol.
    Lp,
    /// Tab-separated values, as COPY reads them.
    CopyText,
    /// PostgreSQL's binary COPY format.
    CopyBinary,
    /// Comma-separated values with a header line.
    Csv,
}

/// Writes the file.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    match &options.out {
        Some(path) => {
            let file =
                File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
            write(options, BufWriter::new(file))
                .with_context(|| format!("cannot write {}", path.display()))
        }
        None => write(options, BufWriter::new(std::io::stdout().lock()))
            .context("cannot write to standard output"),
    }
}

fn write(options: &Options, mut writer: impl Write) -> std::io::Result<()> {
    let spec = options.data.spec(None);
    let hosts = hosts(&spec);
    let format = match options.format {
        FileFormat::Lp => Format::LineProtocol,
        FileFormat::CopyText => Format::CopyText,
        FileFormat::CopyBinary => Format::CopyBinary,
        FileFormat::Csv => Format::Csv,
    };
    match options.format {
        FileFormat::CopyBinary => writer.write_all(&BINARY_HEAD)?,
        FileFormat::Csv => writeln!(writer, "{}", columns().collect::<Vec<_>>().join(","))?,
        FileFormat::Lp | FileFormat::CopyText => {}
    }
    let mut encoder = Encoder::new(format, &hosts);
    let mut generator = Generator::new(spec);
    let mut chunk = Vec::new();
    while let Some(rows) = generator.next(CHUNK_ROWS) {
        chunk.clear();
        encoder.append(&rows, &mut chunk);
        writer.write_all(&chunk)?;
    }
    if options.format == FileFormat::CopyBinary {
        writer.write_all(&BINARY_END)?;
    }
    writer.flush()
}
