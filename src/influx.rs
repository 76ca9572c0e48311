//! `partita bucket`, `bucket-schema`, `auth` and `org`: what InfluxDB's own tool has, over the same HTTP API.
//!
//! Lists are printed as lines of values that are separated by tabs, with a header.

pub(crate) mod auth;
pub(crate) mod bucket;
pub(crate) mod bucket_schema;
mod columns;
pub(crate) mod org;

use anyhow::{Context, bail};
use hyper::Method;
use serde_json::Value;

use crate::load::urlencode;
use crate::{client, fetch, sql};

/// Most objects of one request for a list.
const PAGE: usize = 100;

/// Server of a command.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Server {
    /// HTTP address of a frontend.
    #[arg(
        long,
        visible_alias = "http",
        env = "PARTITA_HTTP",
        default_value = "127.0.0.1:4000",
        global = true
    )]
    url: String,
    #[command(flatten)]
    client: client::Options,
}

impl Server {
    /// The JSON that a request is answered with; null without any.
    ///
    /// # Errors
    /// If the server cannot be reached, or refuses: with its message.
    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let answer = fetch::send(&self.client, &self.url, path, (method, body)).await?;
        if answer.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&answer).context("the server's answer is no JSON")
    }

    async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.call(Method::GET, path, None).await
    }

    /// Id of an organisation by its name.
    ///
    /// # Errors
    /// If there is none that the user may see.
    async fn org(&self, name: &str) -> anyhow::Result<String> {
        let list = self.get(&format!("/api/v2/orgs?org={}", urlencode(name))).await?;
        only(&list, "orgs").with_context(|| format!("no organization is named \"{name}\""))
    }

    /// Id of a bucket by its name.
    ///
    /// # Errors
    /// If there is none that the user may see.
    async fn bucket(&self, name: &str) -> anyhow::Result<String> {
        let list = self.get(&format!("/api/v2/buckets?name={}", urlencode(name))).await?;
        only(&list, "buckets").with_context(|| format!("no bucket is named \"{name}\""))
    }

    /// All objects of a list, page by page; `path` has parameters.
    ///
    /// # Errors
    /// As [`Self::call`].
    async fn all(&self, path: &str, field: &str) -> anyhow::Result<Vec<Value>> {
        let mut objects: Vec<Value> = Vec::new();
        loop {
            let page = format!("{path}limit={PAGE}&offset={}", objects.len());
            let mut list = self.get(&page).await?;
            let Some(Value::Array(more)) = list.get_mut(field).map(Value::take) else {
                bail!("the server's answer has no {field}");
            };
            let is_last = more.len() < PAGE;
            objects.extend(more);
            if is_last {
                return Ok(objects);
            }
        }
    }
}

/// Id of the first object of a list.
fn only(list: &Value, field: &str) -> Option<String> {
    Some(list.get(field)?.get(0)?.get("id")?.as_str()?.to_owned())
}

/// Prints a header and a line for each object.
fn print(columns: &[&str], objects: &[Value]) -> anyhow::Result<()> {
    sql::say(&columns.join("\t"))?;
    for object in objects {
        let cell = |column: &&str| match &object[*column] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        sql::say(&columns.iter().map(cell).collect::<Vec<_>>().join("\t"))?;
    }
    Ok(())
}
