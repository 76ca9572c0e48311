//! `partita sql`: a small SQL client: one statement, a file, or an interactive session.
//!
//! It speaks the PostgreSQL protocol like any other client, so what works here works in psql.

mod command;

use std::io::{IsTerminal, Read, Write};
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail};
use futures::{StreamExt, TryStreamExt};
use rustyline::error::ReadlineError;
use tokio_postgres::{AsyncMessage, Client, Connection, SimpleQueryMessage, Socket};
use unicode_width::UnicodeWidthStr;

use self::command::Command;
use crate::client::{self, PostgresStream, PostgresTls};

/// Rows of a page, over which column widths are computed; longer results are printed page by page, each with its
/// own widths, so that memory stays bounded.
const PAGE_ROWS: usize = 1_000;
/// Maximum lines of history.
const HISTORY_MAX: usize = 10_000;

/// Options of `partita sql`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// PostgreSQL address of the server.
    #[arg(long, env = "PARTITA_POSTGRES", default_value = "127.0.0.1:4003")]
    pub(crate) server: String,
    /// Database to connect to.
    #[arg(short, long, default_value = "public")]
    pub(crate) database: String,
    /// Run this and exit.
    #[arg(short, long, conflicts_with = "file")]
    command: Option<String>,
    /// Run this file and exit; `-` is standard input.
    #[arg(short, long)]
    file: Option<PathBuf>,
    /// Print values separated by tabs, without a frame.
    #[arg(short, long)]
    plain: bool,
    #[command(flatten)]
    client: client::Options,
}

/// A session, and the connection that it uses.
type Opened = (Client, Connection<Socket, PostgresStream<Socket>>);

/// Connects; notices are printed on standard error.
///
/// # Errors
/// If the server cannot be reached or refuses.
pub(crate) async fn connect(
    options: &client::Options,
    server: &str,
    database: &str,
) -> anyhow::Result<Client> {
    let (host, port) =
        server.rsplit_once(':').with_context(|| format!("{server} is not an address host:port"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port: u16 = port.parse().with_context(|| format!("{port} is not a port"))?;
    let mut config = tokio_postgres::Config::new();
    config.host(host).port(port).dbname(database).application_name("partita sql");
    let tls = options.postgres(&mut config)?;
    // A name that cannot be resolved is reported by the client below.
    let addresses: Vec<IpAddr> = tokio::net::lookup_host((host, port))
        .await
        .map(|addresses| addresses.map(|address| address.ip()).collect())
        .unwrap_or_default();
    let (client, mut connection) = open(&config, &tls, &addresses).await.map_err(|error| {
        // The server's own refusal says enough.
        if error.as_db_error().is_some() {
            anyhow!("{}", describe(&error))
        } else {
            let text = format!("cannot connect to {server}; is the server running?");
            anyhow::Error::new(error).context(text)
        }
    })?;
    // The connection runs in a task, which also prints the server's notices.
    tokio::spawn(async move {
        let mut messages =
            futures::stream::poll_fn(move |context| connection.poll_message(context));
        while let Some(message) = messages.next().await {
            match message {
                Ok(AsyncMessage::Notice(notice)) => {
                    complain(&format!("{}: {}", notice.severity(), notice.message()));
                }
                Ok(_) => {}
                Err(error) => {
                    complain(&format!("connection lost: {}", describe(&error)));
                    return;
                }
            }
        }
    });
    Ok(client)
}

/// Opens a connection at the first of a host's addresses that accepts or refuses the client. The client of
/// tokio-postgres tries the next address also after a refusal, and so sends a wrong password to each of them and reports
/// the last one, where perhaps no server listens.
///
/// # Errors
/// The refusal of a server, or else why there is no connection to the first address.
async fn open(
    config: &tokio_postgres::Config,
    tls: &PostgresTls,
    addresses: &[IpAddr],
) -> Result<Opened, tokio_postgres::Error> {
    let mut unreachable = None;
    for address in addresses {
        let mut config = config.clone();
        config.hostaddr(*address);
        match config.connect(tls.clone()).await {
            Ok(opened) => return Ok(opened),
            Err(error) if error.as_db_error().is_some() => return Err(error),
            Err(error) => unreachable = unreachable.or(Some(error)),
        }
    }
    match unreachable {
        Some(error) => Err(error),
        None => config.connect(tls.clone()).await,
    }
}

/// Runs the command, the file, or an interactive session.
///
/// # Errors
/// If the server cannot be reached, or a statement of `-c` or a file fails.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let client = connect(&options.client, &options.server, &options.database).await?;
    let tls = options.client.cancelling()?;
    let piped = options.command.is_none() && !std::io::stdin().is_terminal();
    let text = match (&options.command, &options.file) {
        (Some(command), _) => Some(command.clone()),
        (None, Some(file)) if file.as_os_str() != "-" => Some(
            std::fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?,
        ),
        (None, Some(_)) => Some(read_stdin()?),
        (None, None) if piped => Some(read_stdin()?),
        (None, None) => None,
    };
    match text {
        Some(text) => match until_canceled(&client, &tls, &text, options.plain).await {
            Ok(()) => Ok(()),
            Err(error) => bail!("{}", describe(&error)),
        },
        None => interact(&client, &tls, &options).await,
    }
}

fn read_stdin() -> anyhow::Result<String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
    Ok(text)
}

/// Reads statements until the end of input; a statement ends with a semicolon.
async fn interact(client: &Client, tls: &PostgresTls, options: &Options) -> anyhow::Result<()> {
    let config = rustyline::Config::builder().max_history_size(HISTORY_MAX)?.build();
    let mut editor = rustyline::DefaultEditor::with_config(config)?;
    let history = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".partita_history"));
    if let Some(history) = &history {
        // Before the first session there is no history.
        editor.load_history(history).ok();
    }
    say(&format!(
        "partita {}; statements end with ;  \\? lists commands  \\q ends",
        env!("CARGO_PKG_VERSION")
    ))?;
    let mut pending = String::new();
    loop {
        let prompt = if pending.is_empty() {
            format!("{}=> ", options.database)
        } else {
            format!("{}-> ", options.database)
        };
        let line = match editor.readline(&prompt) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => {
                pending.clear();
                continue;
            }
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error.into()),
        };
        let text = match command::parse(&line, !pending.is_empty()) {
            Some(command) => {
                editor.add_history_entry(line.trim())?;
                match command {
                    Command::Quit => break,
                    Command::Help => say(command::HELP)?,
                    Command::SqlHelp => say(command::SQL_HELP)?,
                    Command::Reset => pending.clear(),
                    Command::Unknown(answer) => complain(&answer),
                    Command::Run(text) => {
                        run_shown(client, tls, &text, options.plain).await?;
                    }
                }
                continue;
            }
            None => {
                if !pending.is_empty() && command::tries_to_leave(&line) {
                    complain(command::WITHIN);
                }
                pending.push_str(&line);
                pending.push('\n');
                if !line.trim_end().ends_with(';') {
                    continue;
                }
                std::mem::take(&mut pending)
            }
        };
        editor.add_history_entry(text.trim())?;
        run_shown(client, tls, &text, options.plain).await?;
    }
    if let Some(history) = &history
        && let Err(error) = editor.save_history(history)
    {
        complain(&format!("cannot save {}: {error}", history.display()));
    }
    Ok(())
}

/// Runs statements and prints their error, if any.
///
/// # Errors
/// If the connection is closed: nothing more can be run.
async fn run_shown(
    client: &Client,
    tls: &PostgresTls,
    text: &str,
    plain: bool,
) -> anyhow::Result<()> {
    let Err(error) = until_canceled(client, tls, text, plain).await else { return Ok(()) };
    complain(&describe(&error));
    if client.is_closed() {
        bail!("the connection is closed");
    }
    Ok(())
}

/// Runs all statements of a text. Ctrl-C asks the server to cancel the running one, which then ends with an error;
/// a second Ctrl-C ends the program, in case the server does not answer.
async fn until_canceled(
    client: &Client,
    tls: &PostgresTls,
    text: &str,
    plain: bool,
) -> Result<(), tokio_postgres::Error> {
    let mut running = std::pin::pin!(execute(client, text, plain));
    let mut canceling = false;
    loop {
        tokio::select! {
            done = &mut running => return done,
            interrupted = tokio::signal::ctrl_c() => {
                if canceling || interrupted.is_err() {
                    #[expect(clippy::exit, reason = "the user interrupted twice")]
                    std::process::exit(130);
                }
                canceling = true;
                if let Err(error) = client.cancel_token().cancel_query(tls.clone()).await {
                    complain(&format!("cannot cancel the statement: {}", describe(&error)));
                }
            }
        }
    }
}

/// Runs all statements of a text and prints what they return.
pub(crate) async fn execute(
    client: &Client,
    text: &str,
    plain: bool,
) -> Result<(), tokio_postgres::Error> {
    let messages = client.simple_query_raw(text).await?;
    let mut messages = std::pin::pin!(messages);
    let mut page = Page::new(plain);
    while let Some(message) = messages.try_next().await? {
        page.take(message);
    }
    Ok(())
}

/// Runs a query and prints its rows; returns false, and prints nothing, if there are none.
pub(crate) async fn execute_if_any(
    client: &Client,
    text: &str,
    plain: bool,
) -> Result<bool, tokio_postgres::Error> {
    let messages = client.simple_query(text).await?;
    if !messages.iter().any(|message| matches!(message, SimpleQueryMessage::Row(_))) {
        return Ok(false);
    }
    let mut page = Page::new(plain);
    messages.into_iter().for_each(|message| page.take(message));
    Ok(true)
}

/// A result being printed.
struct Page {
    plain: bool,
    columns: Vec<String>,
    rows: Vec<Vec<Option<String>>>,
    printed: u64,
    has_rows: bool,
}

impl Page {
    fn new(plain: bool) -> Self {
        Self { plain, columns: Vec::new(), rows: Vec::new(), printed: 0, has_rows: false }
    }

    fn take(&mut self, message: SimpleQueryMessage) {
        match message {
            SimpleQueryMessage::RowDescription(columns) => {
                self.start(columns.iter().map(|column| column.name().to_owned()).collect());
            }
            SimpleQueryMessage::Row(row) => {
                self.push((0..row.len()).map(|index| row.get(index).map(str::to_owned)).collect());
            }
            SimpleQueryMessage::CommandComplete(rows) => self.end(rows),
            _ => {}
        }
    }

    fn start(&mut self, columns: Vec<String>) {
        self.columns = columns;
        self.rows.clear();
        self.printed = 0;
        self.has_rows = true;
    }

    fn push(&mut self, row: Vec<Option<String>>) {
        self.rows.push(row);
        if self.rows.len() == PAGE_ROWS {
            self.print();
        }
    }

    fn end(&mut self, affected: u64) {
        if self.has_rows {
            if !self.rows.is_empty() || self.printed == 0 {
                self.print();
            }
            if !self.plain {
                let rows = self.printed;
                say_or_end(&format!("({rows} row{})", if rows == 1 { "" } else { "s" }));
            }
        } else if !self.plain {
            say_or_end(&format!("ok, {affected} row{}", if affected == 1 { "" } else { "s" }));
        }
        self.has_rows = false;
    }

    fn print(&mut self) {
        let text = if self.plain {
            let line = |row: &Vec<Option<String>>| {
                row.iter().map(|v| v.as_deref().unwrap_or("NULL")).collect::<Vec<_>>().join("\t")
            };
            self.rows.iter().map(line).collect::<Vec<_>>().join("\n")
        } else {
            align(&self.columns, &self.rows)
        };
        self.printed += self.rows.len() as u64;
        self.rows.clear();
        if !text.is_empty() {
            say_or_end(&text);
        }
    }
}

/// Formats columns side by side, as wide as their widest value; numbers are right-aligned.
fn align(columns: &[String], rows: &[Vec<Option<String>>]) -> String {
    let text_of = |value: &Option<String>| value.clone().unwrap_or_else(|| "NULL".to_owned());
    let mut widths: Vec<usize> = columns.iter().map(|name| name.width()).collect();
    let mut numeric = vec![!rows.is_empty(); columns.len()];
    for row in rows {
        for (column, value) in row.iter().enumerate() {
            widths[column] = widths[column].max(text_of(value).width());
            numeric[column] &= value.as_ref().is_none_or(|text| text.parse::<f64>().is_ok());
        }
    }
    let mut lines = Vec::with_capacity(rows.len() + 2);
    let line = |cells: Vec<String>, right: &dyn Fn(usize) -> bool| {
        let padded = cells.iter().enumerate().map(|(column, cell)| {
            let space = " ".repeat(widths[column].saturating_sub(cell.width()));
            if right(column) { format!(" {space}{cell} ") } else { format!(" {cell}{space} ") }
        });
        padded.collect::<Vec<_>>().join("|").trim_end().to_owned()
    };
    lines.push(line(columns.to_vec(), &|_| false));
    lines.push(widths.iter().map(|width| "-".repeat(width + 2)).collect::<Vec<_>>().join("+"));
    for row in rows {
        lines.push(line(row.iter().map(text_of).collect(), &|column| numeric[column]));
    }
    lines.join("\n")
}

/// The server's error, with SQLSTATE, detail and hint.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    let Some(server_error) = error.as_db_error() else { return error.to_string() };
    let mut text = format!(
        "{}: {} (SQLSTATE {})",
        server_error.severity(),
        server_error.message(),
        server_error.code().code()
    );
    for (label, more) in [("DETAIL", server_error.detail()), ("HINT", server_error.hint())] {
        if let Some(more) = more {
            text.push_str(&format!("\n{label}: {more}"));
        }
    }
    text
}

pub(crate) fn say(text: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

/// Quotes an identifier.
pub(crate) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Prints; if the reader has closed the pipe (`| head`), the program ends quietly.
fn say_or_end(text: &str) {
    if say(text).is_err() {
        #[expect(clippy::exit, reason = "standard output has no reader any more")]
        std::process::exit(0);
    }
}

#[expect(clippy::print_stderr, reason = "notices and errors of an interactive tool")]
fn complain(text: &str) {
    eprintln!("{text}");
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_postgres::error::SqlState;

    use super::*;

    /// A server that refuses the password of its only client.
    async fn refuse(listener: &TcpListener) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let length = stream.read_u32().await.unwrap();
        let mut startup = vec![0; usize::try_from(length).unwrap() - 4];
        stream.read_exact(&mut startup).await.unwrap();
        let fields = b"SFATAL\0C28P01\0Mwrong password\0\0";
        stream.write_u8(b'E').await.unwrap();
        stream.write_u32(u32::try_from(4 + fields.len()).unwrap()).await.unwrap();
        stream.write_all(fields).await.unwrap();
    }

    #[tokio::test]
    async fn a_refusal_is_reported_whatever_other_addresses_the_host_has() {
        let listening = IpAddr::from([127, 0, 0, 1]);
        let silent = IpAddr::from([127, 0, 0, 2]);
        for addresses in [[listening, silent], [silent, listening]] {
            let listener = TcpListener::bind((listening, 0)).await.unwrap();
            let mut config = tokio_postgres::Config::new();
            config.host("localhost").port(listener.local_addr().unwrap().port()).user("partita");
            config.ssl_mode(tokio_postgres::config::SslMode::Disable);
            let tls = PostgresTls::default();
            let (opened, ()) = tokio::join!(open(&config, &tls, &addresses), refuse(&listener));
            let code = opened.err().and_then(|error| error.code().cloned());
            assert_eq!(code, Some(SqlState::INVALID_PASSWORD), "{addresses:?}");
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_value_and_numbers_stand_right() {
        let rows = vec![
            vec![Some("a".to_owned()), Some("1".to_owned())],
            vec![Some("größer".to_owned()), None],
        ];
        let text = align(&["name".to_owned(), "value".to_owned()], &rows);
        assert_eq!(text, " name   | value\n--------+-------\n a      |     1\n größer |  NULL");
    }
}
