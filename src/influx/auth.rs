//! `partita auth`: create, list and delete tokens.

use anyhow::bail;
use hyper::Method;
use serde_json::{Value, json};

use super::{Server, print};
use crate::load::urlencode;

/// Options of `partita auth`.
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    server: Server,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Create a token, and print it: this is the only time.
    Create(Rights),
    /// List tokens, without their texts.
    List,
    /// Delete a token.
    Delete {
        /// Id of the token.
        #[arg(long, short)]
        id: String,
    },
}

/// A new token.
#[derive(clap::Args)]
struct Rights {
    /// Organisation of the token; otherwise that of the user.
    #[arg(long, short)]
    org: Option<String>,
    /// Text for people.
    #[arg(long, short, default_value = "")]
    description: String,
    /// Bucket whose rows may be read: its id or name; may be repeated.
    #[arg(long, value_name = "BUCKET")]
    read_bucket: Vec<String>,
    /// Bucket whose rows may be written: its id or name; may be repeated.
    #[arg(long, value_name = "BUCKET")]
    write_bucket: Vec<String>,
    /// The rows of all buckets may be read.
    #[arg(long)]
    read_buckets: bool,
    /// The rows of all buckets may be written.
    #[arg(long)]
    write_buckets: bool,
    /// The token has all rights of the user.
    #[arg(long)]
    all_access: bool,
}

/// Columns of a list, and of a new token.
const COLUMNS: [&str; 6] = ["id", "description", "user", "orgID", "status", "permissions"];
const NEW_COLUMNS: [&str; 3] = ["id", "description", "token"];
/// Digits of an id.
const ID_DIGITS: usize = 16;

impl Rights {
    fn permissions(&self) -> Vec<Value> {
        let of_all = |kind: &str| json!({ "type": kind });
        let mut list = Vec::new();
        let mut add = |action: &str, resource: Value| {
            list.push(json!({ "action": action, "resource": resource }));
        };
        for (action, buckets, all) in [
            ("read", &self.read_bucket, self.read_buckets),
            ("write", &self.write_bucket, self.write_buckets),
        ] {
            for bucket in buckets {
                add(action, named(bucket));
            }
            if all || self.all_access {
                add(action, of_all("buckets"));
            }
            if self.all_access {
                add(action, of_all("authorizations"));
            }
        }
        list
    }
}

/// A bucket by its id, or by its name if it has not the form of an id.
fn named(bucket: &str) -> Value {
    let is_id = bucket.len() == ID_DIGITS && bucket.bytes().all(|byte| byte.is_ascii_hexdigit());
    let field = if is_id { "id" } else { "name" };
    json!({ "type": "buckets", field: bucket })
}

/// Runs one command.
///
/// # Errors
/// If the server cannot be reached, or refuses.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let Options { server, command } = options;
    match command {
        Command::Create(rights) => {
            let permissions = rights.permissions();
            if permissions.is_empty() {
                bail!("a token needs a right, such as --read-bucket or --all-access");
            }
            let mut body = json!({ "description": rights.description, "permissions": permissions });
            if let Some(org) = &rights.org {
                body["orgID"] = Value::String(server.org(org).await?);
            }
            let path = "/api/v2/authorizations";
            print(&NEW_COLUMNS, &[server.call(Method::POST, path, Some(&body)).await?])
        }
        Command::List => {
            print(&COLUMNS, &server.all("/api/v2/authorizations?", "authorizations").await?)
        }
        Command::Delete { id } => {
            let path = format!("/api/v2/authorizations/{}", urlencode(&id));
            server.call(Method::DELETE, &path, None).await.map(drop)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_named_by_id_or_name() {
        let rights = Rights {
            org: None,
            description: String::new(),
            read_bucket: vec!["air".to_owned()],
            write_bucket: vec!["00000000000000ab".to_owned()],
            read_buckets: false,
            write_buckets: false,
            all_access: false,
        };
        let expected = [
            json!({"action": "read", "resource": {"type": "buckets", "name": "air"}}),
            json!({"action": "write", "resource": {"type": "buckets", "id": "00000000000000ab"}}),
        ];
        assert_eq!(rights.permissions(), expected);
        let whole =
            Rights { read_bucket: vec![], write_bucket: vec![], all_access: true, ..rights };
        assert_eq!(whole.permissions().len(), 4);
    }
}
