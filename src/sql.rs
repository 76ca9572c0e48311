//! `partita sql`: the SQL client: statements, files, or an interactive session.
//!
//! It speaks the PostgreSQL protocol like any other client, so what works here works in psql.
//!
//! ```text
//!   terminal.rs ──┐
//!   a file, -c  ──┴── session.rs ──┬── input.rs      statements and commands of lines
//!                                  ├── command.rs    describe.rs, help.rs
//!                                  ├── wire.rs       the connection, failure.rs its errors
//!                                  └── screen.rs     format.rs: results as text
//! ```

mod command;
mod complete;
mod describe;
mod failure;
mod format;
mod help;
mod history;
mod input;
mod screen;
mod session;
mod terminal;
mod wire;

use std::collections::BTreeMap;
use std::io::{self, BufReader, IsTerminal, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use futures::{StreamExt, TryStreamExt};
use tokio_postgres::{AsyncMessage, Client, Connection, SimpleQueryMessage, Socket};

use self::failure::Failure;
use self::format::{Format, Printer, Style};
use self::screen::Screen;
use self::session::{Ending, Lines, Reader, Session};
use self::terminal::Terminal;
use self::wire::{Message, Wire};
use crate::client::{self, PostgresStream, PostgresTls};

/// Exit code without a connection, as psql's.
const NO_CONNECTION: u8 = 2;
/// Exit code after an error of a script that ends at errors, as psql's.
const SCRIPT_FAILED: u8 = 3;

/// Options of `partita sql`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// PostgreSQL address of the server.
    #[arg(long, env = "PARTITA_POSTGRES", default_value = "127.0.0.1:4003")]
    pub(crate) server: String,
    /// Database to connect to.
    #[arg(short, long, default_value = "public")]
    pub(crate) database: String,
    /// Run this and exit; may be repeated. It is one request, or one command with a backslash.
    #[arg(short, long, conflicts_with = "file")]
    command: Vec<String>,
    /// Run this file and exit, statement by statement; may be repeated; `-` is standard input.
    #[arg(short, long)]
    file: Vec<PathBuf>,
    /// Print values separated by tabs, without a frame.
    #[arg(short, long)]
    plain: bool,
    /// Print rows only: no names of columns, no number of rows.
    #[arg(short, long)]
    tuples_only: bool,
    /// Print one line per value.
    #[arg(short = 'x', long)]
    expanded: bool,
    /// Print values between separators.
    #[arg(short = 'A', long, conflicts_with = "plain")]
    no_align: bool,
    /// Print CSV.
    #[arg(long, conflicts_with_all = ["plain", "no_align"])]
    csv: bool,
    /// Print JSON: an array of objects, or with --expanded one object per line.
    #[arg(long, conflicts_with_all = ["plain", "no_align", "csv"])]
    json: bool,
    /// Set a variable: `ON_ERROR_STOP=1` ends files at an error, with exit code 3.
    #[arg(short = 'v', long, value_name = "NAME=VALUE")]
    set: Vec<String>,
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
                    let more = failure::details(notice.detail(), notice.hint());
                    let text = format!("{}: {}{more}", notice.severity(), notice.message());
                    complain(&format::printable(&text));
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

/// Runs the commands, the files, or an interactive session; returns psql's exit codes.
///
/// # Errors
/// If a file or the terminal cannot be read, or output cannot be written.
pub(crate) async fn run(mut options: Options) -> anyhow::Result<ExitCode> {
    let variables = variables(&options.set)?;
    let (commands, mut files) =
        (std::mem::take(&mut options.command), std::mem::take(&mut options.file));
    if commands.is_empty() && files.is_empty() && !io::stdin().is_terminal() {
        files.push(PathBuf::from("-"));
    }
    let is_interactive = commands.is_empty() && files.is_empty();
    let style = style(&options);
    let wire = Wire::open(options.client, options.server, options.database, is_interactive);
    let wire = match Box::pin(wire).await {
        Ok(wire) => wire,
        Err(error) => {
            complain(&format!("partita: {error:#}"));
            return Ok(ExitCode::from(NO_CONNECTION));
        }
    };
    let history = history::path(
        variables.get("HISTFILE").map(String::as_str),
        std::env::var_os("HOME").map(PathBuf::from),
    );
    let pager = screen::pager().filter(|_| io::stdout().is_terminal());
    let screen = Screen::new(Box::new(io::stdout()), Box::new(io::stderr()), pager);
    let mut session = Session::new(wire, screen, style, variables);
    let ending = if is_interactive {
        Box::pin(interact(&mut session, history)).await
    } else {
        Box::pin(run_scripts(&mut session, &commands, &files)).await
    };
    // The files of \o are complete, and its commands have ended.
    let ending = ending.and_then(|code| {
        session.screen.redirect(None)?;
        Ok(code)
    });
    match ending {
        Ok(code) => Ok(ExitCode::from(code)),
        // The reader has closed the pipe (`| head`).
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Variables of `--set`.
///
/// # Errors
/// If an option has no name of a variable.
fn variables(options: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let mut variables = BTreeMap::new();
    for option in options {
        let (name, value) = option.split_once('=').unwrap_or((option.as_str(), ""));
        if !command::is_variable(name) {
            return Err(anyhow!("--set: invalid variable name \"{name}\""));
        }
        variables.insert(name.to_owned(), value.to_owned());
    }
    Ok(variables)
}

fn style(options: &Options) -> Style {
    let usual = if options.plain { Style::plain() } else { Style::default() };
    let format = if options.csv {
        Format::Csv
    } else if options.json {
        Format::Json
    } else if options.no_align {
        Format::Unaligned
    } else {
        usual.format
    };
    Style {
        format,
        is_expanded: options.expanded,
        has_tuples_only: usual.has_tuples_only || options.tuples_only,
        is_escaped: io::stdout().is_terminal(),
        ..usual
    }
}

/// Runs an interactive session; returns the exit code.
async fn interact(session: &mut Session<Wire>, history: Option<PathBuf>) -> anyhow::Result<u8> {
    let mut terminal = Terminal::open(history)?;
    session.screen.say(&format!(
        "partita {}; statements end with ;  \\? lists commands  \\q ends\n",
        env!("CARGO_PKG_VERSION")
    ))?;
    session.read(&mut terminal).await?;
    Ok(0)
}

/// Runs commands, or else files, one after another; returns the exit code.
async fn run_scripts(
    session: &mut Session<Wire>,
    commands: &[String],
    files: &[PathBuf],
) -> anyhow::Result<u8> {
    let mut code = 0;
    for command in commands {
        let mut stdin = Reader(BufReader::new(io::stdin()));
        let has_succeeded = Box::pin(session.run_all(command, &mut stdin)).await?;
        code = u8::from(!has_succeeded);
        if session.was_interrupted() {
            return Ok(wire::INTERRUPTED);
        }
        if !has_succeeded && session.stops_at_errors() {
            break;
        }
    }
    for path in files {
        let ending = session.read(&mut *open_file(path)?).await?;
        match ending {
            Ending::Done | Ending::Quit => {}
            Ending::Failed => return Ok(SCRIPT_FAILED),
            Ending::Lost => return Ok(NO_CONNECTION),
            Ending::Interrupted => return Ok(wire::INTERRUPTED),
        }
    }
    Ok(code)
}

/// Lines of a file; `-` is standard input.
fn open_file(path: &Path) -> anyhow::Result<Box<dyn Lines>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(Reader(BufReader::new(io::stdin()))));
    }
    let file = std::fs::File::open(path);
    let file = file.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Box::new(Reader(BufReader::new(file))))
}

/// Runs all statements of a text and prints what they return.
pub(crate) async fn execute(
    client: &Client,
    text: &str,
    plain: bool,
) -> Result<(), tokio_postgres::Error> {
    let messages = client.simple_query_raw(text).await?;
    let mut messages = std::pin::pin!(messages);
    let mut printer = printer(plain);
    while let Some(message) = messages.try_next().await? {
        print(&mut printer, message);
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
    let mut printer = printer(plain);
    messages.into_iter().for_each(|message| print(&mut printer, message));
    Ok(true)
}

fn printer(plain: bool) -> Printer {
    Printer::new(if plain { Style::plain() } else { Style::default() }, Vec::new())
}

/// Prints a part of a result; if the reader has closed the pipe (`| head`), the program ends quietly.
fn print(printer: &mut Printer, message: SimpleQueryMessage) {
    let text = match Message::from(message) {
        Message::Columns(columns) => {
            printer.start(columns);
            return;
        }
        Message::Row(row) => printer.push(row),
        Message::Done(rows) => printer.end(rows),
        Message::Copied(text) => text,
    };
    let mut stdout = io::stdout().lock();
    if stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_err() {
        #[expect(clippy::exit, reason = "standard output has no reader any more")]
        std::process::exit(0);
    }
}

/// The server's error, with SQLSTATE, detail and hint.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    Failure::from(error).describe("")
}

pub(crate) fn say(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

/// Quotes an identifier.
pub(crate) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Quotes a string.
fn quote_literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
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
}
