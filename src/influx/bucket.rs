//! `partita bucket`: create, list and delete buckets, which are databases.

use hyper::Method;
use serde_json::{Value, json};

use super::{Server, print};
use crate::load::urlencode;

/// Options of `partita bucket`.
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    server: Server,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Create a bucket.
    Create {
        /// Name of the bucket.
        #[arg(long, short)]
        name: String,
        /// Organisation that gets it; otherwise that of the user.
        #[arg(long, short)]
        org: Option<String>,
        /// Time for which rows are kept: 90m, 12h, 30d; 0: for ever. At least an hour.
        #[arg(long, short, default_value = "0", value_parser = seconds)]
        retention: u64,
        /// Creation of tables and columns: by writes (implicit), or by bucket-schema only (explicit).
        #[arg(long, default_value = "implicit", value_parser = ["implicit", "explicit"])]
        schema_type: String,
    },
    /// List buckets.
    List {
        /// Only those of this organisation.
        #[arg(long, short)]
        org: Option<String>,
    },
    /// Delete a bucket with its tables.
    Delete {
        /// Name of the bucket.
        #[arg(long, short, required_unless_present = "id")]
        name: Option<String>,
        /// Id of the bucket.
        #[arg(long, short, conflicts_with = "name")]
        id: Option<String>,
    },
}

/// Columns of a list.
const COLUMNS: [&str; 5] = ["id", "name", "orgID", "schemaType", "retentionRules"];

/// Runs one command.
///
/// # Errors
/// If the server cannot be reached, or refuses.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let Options { server, command } = options;
    match command {
        Command::Create { name, org, retention, schema_type } => {
            let rules = match retention {
                0 => json!([]),
                seconds => json!([{ "type": "expire", "everySeconds": seconds }]),
            };
            let mut body =
                json!({ "name": name, "retentionRules": rules, "schemaType": schema_type });
            if let Some(org) = org {
                body["orgID"] = Value::String(server.org(&org).await?);
            }
            let bucket = server.call(Method::POST, "/api/v2/buckets", Some(&body)).await?;
            print(&COLUMNS, &[bucket])
        }
        Command::List { org } => {
            let org = org.map(|org| format!("org={}&", urlencode(&org))).unwrap_or_default();
            print(&COLUMNS, &server.all(&format!("/api/v2/buckets?{org}"), "buckets").await?)
        }
        Command::Delete { name, id } => {
            let id = match (id, name) {
                (Some(id), _) => id,
                (None, name) => server.bucket(&name.unwrap_or_default()).await?,
            };
            let path = format!("/api/v2/buckets/{}", urlencode(&id));
            server.call(Method::DELETE, &path, None).await.map(drop)
        }
    }
}

/// Parses `90m`, `12h`, `30d`, `4w`, or seconds.
fn seconds(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((end, 's')) => (&text[..end], 1),
        Some((end, 'm')) => (&text[..end], 60),
        Some((end, 'h')) => (&text[..end], 3_600),
        Some((end, 'd')) => (&text[..end], 86_400),
        Some((end, 'w')) => (&text[..end], 604_800),
        _ => (text, 1),
    };
    let number: Option<u64> = digits.parse().ok();
    let seconds = number.and_then(|number| number.checked_mul(unit));
    seconds.ok_or_else(|| "expected a time like 90m, 12h or 30d, or 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retentions_are_read_with_their_units() {
        assert_eq!(seconds("0"), Ok(0));
        assert_eq!(seconds("90m"), Ok(5_400));
        assert_eq!(seconds("30d"), Ok(2_592_000));
        for wrong in ["", "d", "-1d", "99999999999999999999d", "5ü"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
