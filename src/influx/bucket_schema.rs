//! `partita bucket-schema`: the measurements of buckets with an explicit schema.

use std::path::PathBuf;

use anyhow::Context;
use hyper::Method;
use serde_json::json;

use super::columns::{Format, columns};
use super::{Server, print};

/// Options of `partita bucket-schema`.
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    server: Server,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Add a measurement.
    Create {
        /// Name of the bucket.
        #[arg(long, short)]
        bucket: String,
        /// Name of the measurement.
        #[arg(long, short)]
        name: String,
        /// File with the columns: name, type (timestamp, tag, field) and data type of each.
        #[arg(long, value_name = "FILE")]
        columns_file: PathBuf,
        /// Format of the file; otherwise told by its ending.
        #[arg(long, value_enum)]
        columns_format: Option<Format>,
    },
    /// List the measurements of a bucket.
    List {
        /// Name of the bucket.
        #[arg(long, short)]
        bucket: String,
    },
}

/// Columns of a list.
const COLUMNS: [&str; 3] = ["id", "name", "columns"];

/// Runs one command.
///
/// # Errors
/// If the file cannot be read, or the server cannot be reached or refuses.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let Options { server, command } = options;
    let path = |bucket: &str| format!("/api/v2/buckets/{bucket}/schema/measurements");
    match command {
        Command::Create { bucket, name, columns_file: file, columns_format } => {
            let format = columns_format.map_or_else(|| Format::of(&file), Ok)?;
            let text = std::fs::read_to_string(&file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            let columns = columns(&text, format).with_context(|| file.display().to_string())?;
            let body = json!({ "name": name, "columns": columns });
            let path = path(&server.bucket(&bucket).await?);
            print(&COLUMNS, &[server.call(Method::POST, &path, Some(&body)).await?])
        }
        Command::List { bucket } => {
            let list = server.get(&path(&server.bucket(&bucket).await?)).await?;
            let schemas = list["measurementSchemas"].as_array();
            print(&COLUMNS, schemas.map(Vec::as_slice).unwrap_or_default())
        }
    }
}
