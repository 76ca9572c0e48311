//! Sessions without a terminal and without a server.

use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;

use super::*;
use crate::sql::wire::Take;

/// Text that a session has written.
#[derive(Clone, Default)]
struct Written(Rc<RefCell<Vec<u8>>>);

impl Written {
    fn text(&self) -> String {
        String::from_utf8(self.0.borrow().clone()).unwrap()
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Server that answers each statement with its text, as a row of one column.
#[derive(Default)]
struct Echo {
    database: String,
    statements: Vec<String>,
    is_closed: bool,
    connections: usize,
    copied: String,
}

impl Door for Echo {
    fn database(&self) -> &str {
        &self.database
    }

    fn take_interrupt(&mut self) -> bool {
        false
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }

    async fn pause(&mut self, _interval: Duration) -> bool {
        false
    }

    async fn connect(&mut self, database: Option<&str>) -> Result<(), Failure> {
        if database == Some("none") {
            return Err(Failure::new("FATAL: there is none"));
        }
        database.unwrap_or("public").clone_into(&mut self.database);
        self.connections += 1;
        self.is_closed = false;
        Ok(())
    }

    async fn run(&mut self, text: &str, take: &mut Take<'_>) -> Result<(), Failure> {
        if text == Names::QUERY {
            return Ok(());
        }
        self.statements.push(text.to_owned());
        if text == "CRASH" {
            self.is_closed = true;
            return Err(Failure { is_lost: true, ..Failure::new("connection closed") });
        }
        if text.starts_with("FAIL") {
            let position = text.find('!').map(|index| index + 1);
            return Err(Failure { position, ..Failure::new("ERROR: failed") });
        }
        take(Message::Columns(vec!["text".to_owned()]));
        take(Message::Row(vec![Some(text.to_owned())]));
        take(Message::Done(1));
        Ok(())
    }

    async fn kinds(&mut self, _text: &str) -> Vec<Kind> {
        Vec::new()
    }

    async fn copy_in(
        &mut self,
        _text: &str,
        lines: &mut dyn FnMut() -> Data,
    ) -> Result<u64, Failure> {
        let mut rows = 0;
        while let Data::Line(line) = lines() {
            self.copied.push_str(&line);
            rows += 1;
        }
        Ok(rows)
    }

    async fn copy_out(&mut self, _text: &str, take: &mut Take<'_>) -> Result<(), Failure> {
        take(Message::Copied("1\t2\n".to_owned()));
        Ok(())
    }
}

/// A user who types lines.
#[derive(Default)]
struct User {
    lines: Vec<&'static str>,
    prompts: Vec<String>,
    history: Vec<String>,
}

impl User {
    fn typing(mut lines: Vec<&'static str>) -> Self {
        lines.reverse();
        Self { lines, ..Self::default() }
    }
}

impl Lines for User {
    fn read_line(&mut self, prompt: &str) -> anyhow::Result<Line> {
        self.prompts.push(prompt.to_owned());
        Ok(match self.lines.pop() {
            Some("^C") => Line::Interrupted,
            Some(line) => Line::Text(line.to_owned()),
            None => Line::End,
        })
    }

    fn remember(&mut self, entry: &str) {
        self.history.push(entry.to_owned());
    }

    fn is_interactive(&self) -> bool {
        true
    }
}

/// A session, its output and its errors.
fn session(variables: &[(&str, &str)]) -> (Session<Echo>, Written, Written) {
    let (output, errors) = (Written::default(), Written::default());
    let screen = Screen::new(Box::new(output.clone()), Box::new(errors.clone()), None);
    let variables =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let door = Echo { database: "public".to_owned(), ..Echo::default() };
    (Session::new(door, screen, Style::plain(), variables), output, errors)
}

#[tokio::test]
async fn prompts_say_what_is_open_and_ctrl_c_discards_it() {
    let (mut session, output, _) = session(&[]);
    let mut user =
        User::typing(vec!["SELECT (", "1,", "'a;", "^C", "SELECT 2;", "\\q", "SELECT 3;"]);
    assert_eq!(session.read(&mut user).await.unwrap(), Ending::Quit);
    assert_eq!(
        user.prompts,
        ["public=> ", "public(> ", "public(> ", "public'> ", "public=> ", "public=> "]
    );
    assert_eq!(output.text(), "SELECT 2\n");
    assert_eq!(user.history, ["SELECT 2;", "\\q"]);
}

#[tokio::test]
async fn a_script_goes_on_after_an_error_unless_it_is_told_to_stop() {
    let script = "FAIL\n !;SELECT 1;\nSELECT 2";
    let (mut going, output, errors) = session(&[]);
    assert_eq!(going.read(&mut Reader(script.as_bytes())).await.unwrap(), Ending::Done);
    assert_eq!(output.text(), "SELECT 1\nSELECT 2\n");
    assert_eq!(errors.text(), "ERROR: failed\nLINE 2:  !\n         ^\n");
    let (mut stopping, output, _) = session(&[("ON_ERROR_STOP", "1")]);
    assert_eq!(stopping.read(&mut Reader(script.as_bytes())).await.unwrap(), Ending::Failed);
    assert_eq!(output.text(), "");
}

#[tokio::test]
async fn a_user_is_connected_again_and_a_script_ends() {
    let (mut interactive, output, errors) = session(&[]);
    let mut user = User::typing(vec!["CRASH;", "SELECT 1;"]);
    assert_eq!(interactive.read(&mut user).await.unwrap(), Ending::Done);
    assert_eq!(interactive.door.connections, 1);
    assert_eq!(interactive.door.statements, ["CRASH", "SELECT 1"]);
    assert_eq!(output.text(), "SELECT 1\n");
    assert!(errors.text().contains("connecting again"), "{}", errors.text());
    let (mut script, _, _) = session(&[]);
    let ending = script.read(&mut Reader(&b"CRASH; SELECT 1;"[..])).await.unwrap();
    assert_eq!(ending, Ending::Lost);
    assert_eq!(script.door.statements, ["CRASH"]);
}

#[tokio::test]
async fn statements_are_run_again_expanded_and_watched() {
    let (mut session, output, _) = session(&[]);
    let script = "\\t off\nSELECT 1 \\gx\n\\g\nSELECT 2 \\watch 0.01 c=2\n";
    session.read(&mut Reader(script.as_bytes())).await.unwrap();
    assert_eq!(session.door.statements, ["SELECT 1", "SELECT 1", "SELECT 2", "SELECT 2"]);
    assert!(
        output.text().starts_with("text\tSELECT 1\ntext\nSELECT 1\n(1 row)\n"),
        "{}",
        output.text()
    );
}

#[tokio::test]
async fn variables_files_and_destinations_work_together() {
    let dir = tempfile::tempdir().unwrap();
    let (inner, results) = (dir.path().join("inner.sql"), dir.path().join("results"));
    std::fs::write(&inner, "SELECT :n;\n\\q\nSELECT 4;\n").unwrap();
    let (mut session, output, errors) = session(&[("n", "1")]);
    let script = format!(
        "\\o {}\n\\i {}\n\\o\n\\set n 2\nSELECT :n;\n\\echo :n\n\\i nowhere.sql\n\\dance\n",
        results.display(),
        inner.display()
    );
    session.read(&mut Reader(script.as_bytes())).await.unwrap();
    assert_eq!(std::fs::read_to_string(&results).unwrap(), "SELECT 1\n");
    assert_eq!(output.text(), "SELECT 2\n2\n");
    assert!(errors.text().contains("nowhere.sql: No such file"), "{}", errors.text());
    assert!(errors.text().contains("unknown command \\dance"), "{}", errors.text());
}

#[tokio::test]
async fn a_file_that_runs_itself_comes_to_an_end() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("itself.sql");
    std::fs::write(&file, format!("\\i {}\n", file.display())).unwrap();
    let (mut session, _, errors) = session(&[]);
    let script = format!("\\i {}\n", file.display());
    session.read(&mut Reader(script.as_bytes())).await.unwrap();
    assert_eq!(errors.text(), "\\i: files are nested more than 16 deep\n");
}

#[tokio::test]
async fn copy_reads_its_rows_from_the_script() {
    let (mut session, output, _) = session(&[]);
    let script = "COPY t FROM STDIN;\n1;\\N\n2\n\\.\nCOPY t TO STDOUT;\nSELECT 1;\n";
    session.read(&mut Reader(script.as_bytes())).await.unwrap();
    assert_eq!(session.door.copied, "1;\\N\n2\n");
    assert_eq!(session.door.statements, ["SELECT 1"]);
    assert_eq!(output.text(), "1\t2\nSELECT 1\n");
}

#[tokio::test]
async fn a_refused_database_leaves_the_former_one() {
    let (mut session, output, errors) = session(&[]);
    session.read(&mut Reader(&b"\\c none\n\\c other\n\\c\n"[..])).await.unwrap();
    assert!(errors.text().contains("the former connection is kept"), "{}", errors.text());
    let line = "you are connected to database \"other\"\n";
    assert_eq!(output.text(), line.repeat(2));
}

#[test]
fn only_a_copy_of_the_client_is_one() {
    for (text, direction) in [
        ("COPY t FROM STDIN", Some(Copied::In)),
        ("-- a\n/* b */ copy t (a, b) from stdin with (format csv)", Some(Copied::In)),
        ("COPY (SELECT 1) TO STDOUT", Some(Copied::Out)),
        ("COPY t TO '/tmp/f'", None),
        ("SELECT 'COPY t FROM STDIN'", None),
        ("", None),
        ("/*", None),
    ] {
        assert_eq!(copied(text), direction, "{text}");
    }
}
