//! A connection for queries.

use anyhow::bail;
use futures::TryStreamExt;
use tokio_postgres::Client;

use super::Door;
use super::answer::Answer;
use super::text::{Dialect, step_s};
use super::tsbs::Question;
use crate::door::Failure;
use crate::door::http::{HttpDoor, escape};
use crate::door::postgres;
use crate::server::{Server, Target};

/// A connection of one of the supported kinds.
pub(crate) enum Asker {
    Postgres(Client),
    /// Partita's SQL over HTTP, answered as CSV.
    PartitaHttp(HttpDoor, String),
    Influx(HttpDoor, String),
    ClickHouse(HttpDoor, String),
    VictoriaMetrics(HttpDoor),
}

impl Asker {
    /// Connects.
    ///
    /// # Errors
    /// If the server cannot be reached, or does not support the protocol.
    pub(crate) async fn connect(target: &Target, door: Door) -> anyhow::Result<Self> {
        let http = || HttpDoor::new(&target.url);
        Ok(match (target.server, door) {
            (Server::Partita | Server::PostgreSql, Door::Postgres) => {
                Self::Postgres(postgres::connect(&target.pg, &target.db).await?)
            }
            (Server::Partita, Door::Http) => Self::PartitaHttp(http(), target.db.clone()),
            (Server::Influxdb, Door::Http) => Self::Influx(http(), target.db.clone()),
            (Server::ClickHouse, Door::Http) => Self::ClickHouse(http(), target.db.clone()),
            (Server::VictoriaMetrics, Door::Http) => Self::VictoriaMetrics(http()),
            (server, door) => bail!("{} has no door {door:?} for queries", server.name()),
        })
    }

    /// Sends a question; returns the answer unparsed.
    ///
    /// # Errors
    /// If the server refuses or is gone.
    pub(crate) async fn ask(&self, question: &Question, text: &str) -> Result<Answer, Failure> {
        // Each server's own interface; the answer is read completely, but not parsed.
        match self {
            Self::Postgres(client) => {
                let messages = client.simple_query_raw(text).await;
                let messages = messages.map_err(|error| postgres::failure(&error))?;
                let collected = messages.try_collect().await;
                Ok(Answer::Messages(collected.map_err(|error| postgres::failure(&error))?))
            }
            Self::PartitaHttp(door, db) => {
                let form = format!("db={}&format=csv&q={}", escape(db), escape(text));
                let kind = "application/x-www-form-urlencoded";
                let body = door.post("/api/v3/query_sql", kind, form.into()).await?;
                Ok(Answer::Lines(body, ','))
            }
            Self::Influx(door, db) => {
                let path = format!("/query?db={}&q={}", escape(db), escape(text));
                Ok(Answer::Influx(door.get(&path).await?))
            }
            Self::ClickHouse(door, db) => {
                let path = format!("/?database={}", escape(db));
                let statement = format!("{text} FORMAT TabSeparatedWithNames");
                let body = door.post(&path, "text/plain", statement.into()).await?;
                Ok(Answer::Lines(body, '\t'))
            }
            Self::VictoriaMetrics(door) => {
                let (step, start, end) = (step_s(question), question.start_s, question.end_s);
                let path = format!(
                    "/api/v1/query_range?nocache=1&start={start}&end={end}&step={step}&query={}",
                    escape(text)
                );
                Ok(Answer::Matrix(door.get(&path).await?))
            }
        }
    }
}

/// Query language of a server.
pub(crate) fn dialect_of(server: Server) -> Dialect {
    match server {
        Server::Partita => Dialect::Sql,
        Server::PostgreSql => Dialect::Postgres,
        Server::ClickHouse => Dialect::Clickhouse,
        Server::Influxdb => Dialect::Influxql,
        Server::VictoriaMetrics => Dialect::Metricsql,
    }
}
