//! The supported servers, and how each creates the table `cpu`.
//!
//! | server | table | index |
//! |---|---|---|
//! | Partita | tags STRING, time TIMESTAMP(9), fields BIGINT | PRIMARY KEY (hostname, other tags), time |
//! | InfluxDB 1, VictoriaMetrics | made by line protocol | their own |
//! | PostgreSQL | text, timestamp, bigint | (hostname, time DESC), (time DESC) |
//! | ClickHouse | String, DateTime, Int64 | ORDER BY (hostname, time), partitioned by day |
//!
//! The columns have the names that line protocol gives them, so that one set of queries fits all protocols.

use anyhow::bail;
use bytes::Bytes;

use crate::cpu::{FIELDS, TABLE, TAGS, TIME};
use crate::door::http::{HttpDoor, escape};
use crate::door::postgres;

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Server {
    Partita,
    /// InfluxDB 1.
    Influxdb,
    VictoriaMetrics,
    #[value(name = "postgresql")]
    PostgreSql,
    #[value(name = "clickhouse")]
    ClickHouse,
}

/// Addresses of a server, and the database to use.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Target {
    /// Kind of server.
    #[arg(long, value_enum, default_value = "partita")]
    pub(crate) server: Server,
    /// HTTP (and Flight) address of the server.
    #[arg(long, default_value = "http://127.0.0.1:4000")]
    pub(crate) url: String,
    /// Connection string for the server's PostgreSQL protocol.
    #[arg(long, default_value = "host=127.0.0.1 port=4003 user=partita")]
    pub(crate) pg: String,
    /// Database (bucket) on the server.
    #[arg(long, default_value = "public")]
    pub(crate) db: String,
}

impl Server {
    /// Name in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Partita => "partita",
            Self::Influxdb => "influxdb",
            Self::VictoriaMetrics => "victoria-metrics",
            Self::PostgreSql => "postgresql",
            Self::ClickHouse => "clickhouse",
        }
    }
}

impl Target {
    /// Path for line protocol, with times in nanoseconds.
    ///
    /// # Errors
    /// If the server does not accept line protocol.
    pub(crate) fn line_path(&self) -> anyhow::Result<String> {
        let db = escape(&self.db);
        Ok(match self.server {
            Server::Partita => format!("/api/v3/write_lp?db={db}&precision=nanosecond"),
            Server::Influxdb | Server::VictoriaMetrics => format!("/write?db={db}&precision=ns"),
            server => bail!("{} does not accept line protocol", server.name()),
        })
    }

    /// Path for rows as ClickHouse's TabSeparated.
    ///
    /// # Errors
    /// If the server is not ClickHouse.
    pub(crate) fn tab_separated_path(&self) -> anyhow::Result<String> {
        if self.server != Server::ClickHouse {
            bail!("only ClickHouse accepts rows as TabSeparated");
        }
        let columns = crate::encode::columns().collect::<Vec<_>>().join(", ");
        let insert = format!("INSERT INTO {TABLE} ({columns}) FORMAT TabSeparated");
        Ok(format!("/?database={}&query={}", escape(&self.db), escape(&insert)))
    }

    /// Drops the table if it exists, or the database of a server without tables.
    ///
    /// # Errors
    /// If the server refuses or cannot be reached.
    pub(crate) async fn drop_table(&self) -> anyhow::Result<()> {
        match self.server {
            Server::Partita | Server::PostgreSql => {
                self.sql(&[format!("DROP TABLE IF EXISTS {TABLE}")]).await
            }
            Server::Influxdb => self.influx(&format!("DROP DATABASE \"{}\"", self.db)).await,
            Server::ClickHouse => self.click(&format!("DROP TABLE IF EXISTS {TABLE}")).await,
            Server::VictoriaMetrics => bail!("start VictoriaMetrics with an empty folder instead"),
        }
    }

    /// Creates the table, with `suffix` at the end of CREATE TABLE, or the database of a server that creates tables
    /// by itself. An existing one is kept unchanged.
    ///
    /// # Errors
    /// If the server refuses or cannot be reached.
    pub(crate) async fn create_table(&self, suffix: &str) -> anyhow::Result<()> {
        match self.server {
            Server::Partita => self.sql(&[format!("{} {suffix}", partita_table())]).await,
            Server::PostgreSql => self.sql(&postgres_table(suffix)).await,
            Server::Influxdb => self.influx(&format!("CREATE DATABASE \"{}\"", self.db)).await,
            Server::ClickHouse => self.click(&format!("{} {suffix}", clickhouse_table())).await,
            Server::VictoriaMetrics => Ok(()),
        }
    }

    async fn sql(&self, statements: &[String]) -> anyhow::Result<()> {
        let client = postgres::connect(&self.pg, &self.db).await?;
        for statement in statements {
            let outcome = client.batch_execute(statement).await;
            outcome.map_err(|error| postgres::failure(&error))?;
        }
        Ok(())
    }

    async fn influx(&self, statement: &str) -> anyhow::Result<()> {
        let path = format!("/query?q={}", escape(statement));
        HttpDoor::new(&self.url).post(&path, "text/plain", Bytes::new()).await?;
        Ok(())
    }

    async fn click(&self, statement: &str) -> anyhow::Result<()> {
        let path = format!("/?database={}", escape(&self.db));
        let body = Bytes::from(statement.to_owned());
        HttpDoor::new(&self.url).post(&path, "text/plain", body).await?;
        Ok(())
    }
}

/// Definitions of all columns.
fn definitions(tag: &str, time: &str, field: &str) -> String {
    let tags = TAGS.iter().map(|name| format!("{name} {tag}"));
    let fields = FIELDS.iter().map(|name| format!("{name} {field}"));
    let columns: Vec<_> = tags.chain([format!("{TIME} {time}")]).chain(fields).collect();
    columns.join(", ")
}

/// Same columns as line protocol creates, but with the host first in the key.
fn partita_table() -> String {
    let columns = definitions("STRING", "TIMESTAMP(9) TIME INDEX", "BIGINT");
    format!("CREATE TABLE IF NOT EXISTS {TABLE} ({columns}, PRIMARY KEY ({}))", TAGS.join(", "))
}

fn postgres_table(suffix: &str) -> [String; 3] {
    let columns = definitions("text", "timestamp NOT NULL", "bigint");
    [
        format!("CREATE TABLE IF NOT EXISTS {TABLE} ({columns}) {suffix}"),
        format!("CREATE INDEX IF NOT EXISTS {TABLE}_host ON {TABLE} (hostname, {TIME} DESC)"),
        format!("CREATE INDEX IF NOT EXISTS {TABLE}_time ON {TABLE} ({TIME} DESC)"),
    ]
}

fn clickhouse_table() -> String {
    let columns = definitions("String", "DateTime", "Int64");
    format!(
        "CREATE TABLE IF NOT EXISTS {TABLE} ({columns}) ENGINE = MergeTree() \
         PARTITION BY toYYYYMMDD({TIME}) ORDER BY (hostname, {TIME})"
    )
}
