//! `partita org`: create and list organisations.

use hyper::Method;
use serde_json::json;

use super::{Server, print};

/// Options of `partita org`.
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    server: Server,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Create an organisation.
    Create {
        /// Name of the organisation.
        #[arg(long, short)]
        name: String,
        /// Limits by contract.
        #[arg(long, default_value = "unlimited", value_parser = ["unlimited", "free", "payg"])]
        profile: String,
    },
    /// List organisations.
    List,
}

/// Columns of a list.
const COLUMNS: [&str; 3] = ["id", "name", "profile"];

/// Runs one command.
///
/// # Errors
/// If the server cannot be reached, or refuses.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let Options { server, command } = options;
    match command {
        Command::Create { name, profile } => {
            let body = json!({ "name": name, "profile": profile });
            print(&COLUMNS, &[server.call(Method::POST, "/api/v2/orgs", Some(&body)).await?])
        }
        Command::List => print(&COLUMNS, &server.all("/api/v2/orgs?", "orgs").await?),
    }
}
