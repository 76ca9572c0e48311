//! The shell's connection: statements, cancelling, COPY, and connecting again.
//!
//! Invariant: Ctrl-C ends the running statement and never an interactive session. A first one asks the server to cancel the
//! statement; a second one, because the server does not answer, gives the connection up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, SinkExt, TryStreamExt};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::failure::Failure;
use super::format::{Kind, Row};
use crate::client::{self, PostgresTls};

/// Messages between two looks for interrupts.
const YIELD_MESSAGES: usize = 256;
/// Exit code of a program that Ctrl-C ended.
pub(super) const INTERRUPTED: u8 = 130;

/// Part of the results of statements.
pub(super) enum Message {
    /// Names of columns: a result with rows begins.
    Columns(Vec<String>),
    Row(Row),
    /// The statement is complete, with the number of rows.
    Done(u64),
    /// Text of COPY TO STDOUT.
    Copied(String),
}

impl From<SimpleQueryMessage> for Message {
    fn from(message: SimpleQueryMessage) -> Self {
        match message {
            SimpleQueryMessage::RowDescription(columns) => {
                Self::Columns(columns.iter().map(|column| column.name().to_owned()).collect())
            }
            SimpleQueryMessage::Row(row) => {
                Self::Row((0..row.len()).map(|index| row.get(index).map(str::to_owned)).collect())
            }
            SimpleQueryMessage::CommandComplete(rows) => Self::Done(rows),
            // The library may add messages, which have no rows.
            _ => Self::Done(0),
        }
    }
}

/// Input of COPY FROM STDIN.
pub(super) enum Data {
    /// Line with its line feed.
    Line(String),
    End,
    Aborted,
}

/// Takes the results of statements.
pub(super) type Take<'a> = dyn FnMut(Message) + 'a;

/// Door of a server.
pub(super) trait Door {
    /// Database of the connection.
    fn database(&self) -> &str;
    /// True if Ctrl-C has ended a statement since the last call.
    fn take_interrupt(&mut self) -> bool;
    /// True if the connection is gone.
    fn is_closed(&self) -> bool;
    /// Waits; true if Ctrl-C has ended the pause.
    async fn pause(&mut self, interval: Duration) -> bool;
    /// Connects to a database, or again to that of the connection.
    async fn connect(&mut self, database: Option<&str>) -> Result<(), Failure>;
    /// Runs statements.
    async fn run(&mut self, text: &str, take: &mut Take<'_>) -> Result<(), Failure>;
    /// Types of the columns of a query; none if the server does not tell.
    async fn kinds(&mut self, text: &str) -> Vec<Kind>;
    /// Runs COPY FROM STDIN with lines of the client; returns the number of rows.
    async fn copy_in(
        &mut self,
        text: &str,
        lines: &mut dyn FnMut() -> Data,
    ) -> Result<u64, Failure>;
    /// Runs COPY TO STDOUT.
    async fn copy_out(&mut self, text: &str, take: &mut Take<'_>) -> Result<(), Failure>;
}

/// Connection to a server.
pub(super) struct Wire {
    options: client::Options,
    server: String,
    database: String,
    client: Client,
    tls: PostgresTls,
    interrupts: Signal,
    is_interrupted: bool,
    is_running: Arc<AtomicBool>,
}

impl Wire {
    /// Connects.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub(super) async fn open(
        options: client::Options,
        server: String,
        database: String,
        is_interactive: bool,
    ) -> anyhow::Result<Self> {
        let client = super::connect(&options, &server, &database).await?;
        let tls = options.cancelling()?;
        let is_running = Arc::new(AtomicBool::new(false));
        // From here on the signal does not end the process by itself.
        let interrupts = signal(SignalKind::interrupt())?;
        if !is_interactive {
            tokio::spawn(end_at_interrupt(Arc::clone(&is_running)));
        }
        Ok(Self {
            options,
            server,
            database,
            client,
            tls,
            interrupts,
            is_interrupted: false,
            is_running,
        })
    }

    /// Waits for a statement, which Ctrl-C cancels.
    async fn until_canceled<T>(
        &mut self,
        running: impl Future<Output = Result<T, tokio_postgres::Error>>,
        cancel: tokio_postgres::CancelToken,
    ) -> Result<T, Failure> {
        // Interrupts of the time before, such as a pager's, are not for this statement.
        while self.interrupts.recv().now_or_never().flatten().is_some() {}
        self.is_running.store(true, Ordering::SeqCst);
        let mut running = std::pin::pin!(running);
        let mut is_canceling = false;
        let result = loop {
            tokio::select! {
                result = &mut running => break result.map_err(|error| Failure::from(&error)),
                _ = self.interrupts.recv() => {
                    self.is_interrupted = true;
                    if is_canceling {
                        break Err(Failure {
                            is_lost: true,
                            ..Failure::new("the server does not cancel the statement: connection given up")
                        });
                    }
                    is_canceling = true;
                    // In the background: a server that does not answer must not keep the second Ctrl-C waiting.
                    let (cancel, tls) = (cancel.clone(), self.tls.clone());
                    tokio::spawn(async move {
                        if let Err(error) = cancel.cancel_query(tls).await {
                            let text = Failure::from(&error).describe("");
                            super::complain(&format!("cannot cancel the statement: {text}"));
                        }
                    });
                }
            }
        };
        self.is_running.store(false, Ordering::SeqCst);
        result
    }

    /// Adds to a failure that the connection is gone.
    fn judged<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        result.map_err(|failure| Failure {
            is_lost: failure.is_lost || self.client.is_closed(),
            ..failure
        })
    }
}

/// Ends the process at Ctrl-C between statements, and at the second one within a statement.
async fn end_at_interrupt(is_running: Arc<AtomicBool>) {
    let Ok(mut interrupts) = signal(SignalKind::interrupt()) else { return };
    let mut count = 0;
    while interrupts.recv().await.is_some() {
        count += 1;
        if count > 1 || !is_running.load(Ordering::SeqCst) {
            #[expect(clippy::exit, reason = "the user interrupted a script")]
            std::process::exit(i32::from(INTERRUPTED));
        }
    }
}

impl Door for Wire {
    fn database(&self) -> &str {
        &self.database
    }

    fn take_interrupt(&mut self) -> bool {
        std::mem::take(&mut self.is_interrupted)
    }

    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    async fn pause(&mut self, interval: Duration) -> bool {
        self.is_running.store(true, Ordering::SeqCst);
        let is_interrupted = tokio::select! {
            _ = self.interrupts.recv() => true,
            () = tokio::time::sleep(interval) => false,
        };
        self.is_running.store(false, Ordering::SeqCst);
        is_interrupted
    }

    async fn connect(&mut self, database: Option<&str>) -> Result<(), Failure> {
        let database = database.unwrap_or(&self.database).to_owned();
        let connected = Box::pin(super::connect(&self.options, &self.server, &database)).await;
        self.client = connected.map_err(|error| Failure::new(format!("{error:#}")))?;
        self.database = database;
        Ok(())
    }

    async fn run(&mut self, text: &str, take: &mut Take<'_>) -> Result<(), Failure> {
        let cancel = self.client.cancel_token();
        // The stream of messages borrows nothing, so that the connection stays free for an interrupt.
        let started = self.client.simple_query_raw(text).await;
        let messages = started.map_err(|error| Failure::from(&error));
        let messages = self.judged(messages)?;
        let running = async {
            let mut messages = std::pin::pin!(messages);
            let mut count = 0_usize;
            while let Some(message) = messages.try_next().await? {
                take(Message::from(message));
                // Rows that come faster than they are printed would let no interrupt in.
                count += 1;
                if count.is_multiple_of(YIELD_MESSAGES) {
                    tokio::task::yield_now().await;
                }
            }
            Ok::<(), tokio_postgres::Error>(())
        };
        let result = self.until_canceled(running, cancel).await;
        self.judged(result)
    }

    async fn kinds(&mut self, text: &str) -> Vec<Kind> {
        let Ok(statement) = self.client.prepare(text).await else { return Vec::new() };
        let kind = |kind: &Type| match *kind {
            Type::BOOL => Kind::Bool,
            Type::INT2 | Type::INT4 | Type::INT8 | Type::FLOAT4 | Type::FLOAT8 | Type::NUMERIC => {
                Kind::Number
            }
            Type::JSON | Type::JSONB => Kind::Json,
            _ => Kind::Text,
        };
        statement.columns().iter().map(|column| kind(column.type_())).collect()
    }

    async fn copy_in(
        &mut self,
        text: &str,
        lines: &mut dyn FnMut() -> Data,
    ) -> Result<u64, Failure> {
        let copying = async {
            let sink = self.client.copy_in::<_, Bytes>(text).await?;
            let mut sink = std::pin::pin!(sink);
            loop {
                match lines() {
                    Data::Line(line) => sink.send(Bytes::from(line)).await?,
                    Data::End => return sink.as_mut().finish().await.map(Some),
                    // Without an end, the server takes the rows for incomplete.
                    Data::Aborted => return Ok(None),
                }
            }
        };
        let result: Result<Option<u64>, tokio_postgres::Error> = copying.await;
        let rows = self.judged(result.map_err(|error| Failure::from(&error)))?;
        rows.ok_or_else(|| Failure::new("COPY aborted: its input did not end"))
    }

    async fn copy_out(&mut self, text: &str, take: &mut Take<'_>) -> Result<(), Failure> {
        let cancel = self.client.cancel_token();
        let started = self.client.copy_out(text).await;
        let started = started.map_err(|error| Failure::from(&error));
        let chunks = self.judged(started)?;
        let running = async {
            let mut chunks = std::pin::pin!(chunks);
            while let Some(chunk) = chunks.try_next().await? {
                take(Message::Copied(String::from_utf8_lossy(&chunk).into_owned()));
                tokio::task::yield_now().await;
            }
            Ok::<(), tokio_postgres::Error>(())
        };
        let result = self.until_canceled(running, cancel).await;
        self.judged(result)
    }
}
