//! The door over services in memory, as a client sees it.

mod authentication;
mod matrix;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::SinkExt;
use futures::future::try_join_all;
use partita_frontend::fake::Fake;
use partita_frontend::{Frontend, FrontendOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_postgres::error::{ErrorPosition, SqlState};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};
use tokio_util::sync::CancellationToken;

use crate::{PostgresOptions, serve};

mod rights;

const EVENTS: &str = "CREATE TABLE events (host TEXT, ts TIMESTAMP(3) TIME INDEX, n BIGINT NOT NULL, \
                      PRIMARY KEY (host)) PARTITION BY RANGE (host) SPLIT AT (('m'))";

/// How long a test waits for what must come, on machines that are slow and busy.
const PATIENCE: Duration = Duration::from_secs(30);

struct Door {
    fake: Arc<Fake>,
    frontend: Arc<Frontend>,
    port: u16,
    stop: CancellationToken,
    served: JoinHandle<std::io::Result<()>>,
}

impl Door {
    async fn open(max_connections: usize) -> Self {
        let message_timeout = Duration::from_secs(2);
        Self::open_with(PostgresOptions {
            max_connections,
            message_timeout,
            ..PostgresOptions::default()
        })
        .await
    }

    async fn open_with(options: PostgresOptions) -> Self {
        let fake = Fake::new(3);
        let frontend = fake.frontend(FrontendOptions::default()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stop = CancellationToken::new();
        let serving = serve(listener, Arc::clone(&frontend), options, stop.clone());
        let served = tokio::spawn(Box::pin(serving));
        Self { fake, frontend, port, stop, served }
    }

    async fn connect_to(&self, database: &str) -> Result<Client, tokio_postgres::Error> {
        let config = format!("host=127.0.0.1 port={} user=test dbname={database}", self.port);
        let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    async fn connect(&self) -> Client {
        self.connect_to("public").await.unwrap()
    }

    /// A socket that has been through the startup.
    async fn raw(&self) -> TcpStream {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let parameters = b"\x00\x03\x00\x00user\x00test\x00database\x00public\x00\x00";
        let length = u32::try_from(parameters.len() + 4).unwrap();
        socket.write_all(&length.to_be_bytes()).await.unwrap();
        socket.write_all(parameters).await.unwrap();
        while next(&mut socket).await.0 != b'Z' {}
        socket
    }
}

/// The next message: its type and its body.
async fn next(socket: &mut TcpStream) -> (u8, Vec<u8>) {
    let kind = socket.read_u8().await.unwrap();
    let length = socket.read_u32().await.unwrap();
    let mut body = vec![0; length as usize - 4];
    socket.read_exact(&mut body).await.unwrap();
    (kind, body)
}

/// The SQLSTATE in an ErrorResponse.
fn sqlstate(body: &[u8]) -> String {
    let fields = body.split(|byte| *byte == 0);
    let code = fields.filter(|field| field.first() == Some(&b'C')).map(|field| &field[1..]).next();
    String::from_utf8_lossy(code.unwrap_or_default()).into_owned()
}

fn state(error: &tokio_postgres::Error) -> &str {
    error.code().map_or("", SqlState::code)
}

#[tokio::test]
async fn a_database_that_does_not_exist_and_a_connection_too_many_are_refused() {
    let door = Door::open(1).await;
    // The place is free once the server has seen the end of the one before.
    let connect = async |name: &str| {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match door.connect_to(name).await {
                Err(error) if state(&error) == "53300" && Instant::now() < deadline => {}
                answer => return answer,
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    for name in ["public", "postgres", "partita", "test"] {
        drop(connect(name).await.unwrap());
    }
    assert_eq!(state(&connect("nothing").await.err().unwrap()), "3D000");
    let _first = connect("public").await.unwrap();
    assert_eq!(state(&door.connect_to("public").await.err().unwrap()), "53300");
}

#[tokio::test]
async fn inserts_of_one_pipeline_are_one_write_per_partition() {
    let door = Door::open(8).await;
    let client = door.connect().await;
    client.batch_execute(EVENTS).await.unwrap();
    let insert = client
        .prepare("INSERT INTO events (host, ts, n) VALUES ($1, '2024-01-01', $2)")
        .await
        .unwrap();
    let hosts: Vec<String> =
        (0..500).map(|i| format!("{}{i}", if i % 2 == 0 { "a" } else { "z" })).collect();
    let rows = hosts.iter().zip(0_i64..).map(|(host, n)| {
        let (client, insert) = (&client, &insert);
        async move { client.execute(insert, &[host, &n]).await }
    });
    let counts = try_join_all(rows).await.unwrap();
    assert!(counts.iter().all(|count| *count == 1));
    assert_eq!(door.fake.rows("public", "events"), [250, 250]);
    let row = client.query_one("SELECT count(*), sum(n) FROM events", &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (500, 499 * 250));
}

#[tokio::test]
async fn a_copy_is_written_down_however_it_ends() {
    let door = Door::open(8).await;
    let client = door.connect().await;
    client.batch_execute(EVENTS).await.unwrap();
    let copied = "SELECT CAST(rows AS BIGINT), error FROM sys.query_log WHERE kind = 'COPY' ORDER BY started";
    let copy = async |rows: &[&'static str], of: &Client| {
        let sink = of.copy_in("COPY events (host, ts, n) FROM STDIN").await.unwrap();
        let mut sink = Box::pin(sink);
        for row in rows {
            sink.send(bytes::Bytes::from_static(row.as_bytes())).await?;
        }
        sink.as_mut().finish().await
    };
    let (good, bad) = ("a\t2024-01-01\t1\nz\t2024-01-01\t2\n", "b\t2024-01-01\tmany\n");
    assert_eq!(copy(&[good], &client).await.unwrap(), 2);
    copy(&[bad], &client).await.unwrap_err();
    // Its sink is dropped within.
    let sink = client.copy_in::<_, bytes::Bytes>("COPY events (host, ts, n) FROM STDIN").await;
    drop(sink.unwrap());
    // The connection ends within.
    let mut socket = door.raw().await;
    let query = b"COPY events (host, ts, n) FROM STDIN\0";
    let mut message = vec![b'Q'];
    message.extend(u32::try_from(query.len() + 4).unwrap().to_be_bytes());
    message.extend(query);
    socket.write_all(&message).await.unwrap();
    while next(&mut socket).await.0 != b'G' {}
    drop(socket);
    let deadline = Instant::now() + PATIENCE;
    let written = loop {
        let found = client.query(copied, &[]).await.unwrap();
        if found.len() == 4 {
            break found;
        }
        assert!(Instant::now() < deadline, "{} of 4 are written down", found.len());
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let rows: Vec<i64> = written.iter().map(|row| row.get(0)).collect();
    assert_eq!(rows, [2, 0, 0, 0]);
    let state =
        |at: usize| written[at].get::<_, Option<String>>(1).map(|error| error[..5].to_owned());
    assert_eq!(state(0), None);
    let mut failed: Vec<_> = (1..4).filter_map(state).collect();
    failed.sort_unstable();
    assert_eq!(failed, ["08006", "22P02", "57014"]);
}

/// Bind, Execute, Bind, Execute, Sync of one statement in one write of the socket.
fn pipeline(values: &[Option<&str>]) -> Vec<u8> {
    fn message(out: &mut Vec<u8>, kind: u8, body: &[u8]) {
        out.push(kind);
        out.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
        out.extend(body);
    }
    let mut out = Vec::new();
    let text = b"s\x00INSERT INTO events VALUES ('a', '2024-01-01', $1)\x00\x00\x00";
    message(&mut out, b'P', text);
    for value in values {
        let mut bind = b"\x00s\x00\x00\x00\x00\x01".to_vec();
        match value {
            Some(value) => {
                bind.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
                bind.extend(value.as_bytes());
            }
            None => bind.extend((-1_i32).to_be_bytes()),
        }
        bind.extend(b"\x00\x00");
        message(&mut out, b'B', &bind);
        message(&mut out, b'E', b"\x00\x00\x00\x00\x00");
    }
    message(&mut out, b'S', b"");
    out
}

#[tokio::test]
async fn answers_of_a_pipeline_keep_their_order_and_an_error_takes_it_back() {
    let door = Door::open(8).await;
    door.connect().await.batch_execute(EVENTS).await.unwrap();
    let kinds = |values: &'static [Option<&'static str>]| {
        let door = &door;
        async move {
            let mut socket = door.raw().await;
            socket.write_all(&pipeline(values)).await.unwrap();
            let mut kinds = String::new();
            let mut code = String::new();
            loop {
                let (kind, body) = next(&mut socket).await;
                kinds.push(char::from(kind));
                match kind {
                    b'E' => code = sqlstate(&body),
                    b'Z' => return (kinds, code),
                    _ => {}
                }
            }
        }
    };
    assert_eq!(kinds(&[Some("1"), Some("2")]).await, ("12C2CZ".to_owned(), String::new()));
    assert_eq!(door.fake.requests.lock().len(), 1, "both rows are one write");
    // A value that no bigint is, found when it is executed, and NULL, found when it is written.
    assert_eq!(kinds(&[Some("3"), Some("x")]).await.1, "22P02");
    assert_eq!(kinds(&[Some("3"), None, Some("4")]).await.1, "23502");
    assert_eq!(door.fake.requests.lock().len(), 1, "nothing else was written");
}

#[tokio::test]
async fn a_message_that_is_too_long_ends_the_connection() {
    let door = Door::open(8).await;
    let mut socket = door.raw().await;
    socket.write_all(b"Q\x7f\xff\xff\xff").await.unwrap();
    let (kind, body) = next(&mut socket).await;
    assert_eq!((kind, sqlstate(&body).as_str()), (b'E', "08P01"));
    assert_eq!(socket.read(&mut [0]).await.unwrap(), 0, "the server hangs up");
}

#[tokio::test]
async fn a_portal_gives_its_rows_in_parts() {
    let door = Door::open(8).await;
    let mut client = door.connect().await;
    let block = client.transaction().await.unwrap();
    let statement = block.prepare("SELECT value FROM generate_series(1, 25)").await.unwrap();
    let portal = block.bind(&statement, &[]).await.unwrap();
    let mut seen = Vec::new();
    for expected in [10, 10, 5, 0] {
        let rows = block.query_portal(&portal, 10).await.unwrap();
        assert_eq!(rows.len(), expected);
        seen.extend(rows.iter().map(|row| row.get::<_, i64>(0)));
    }
    assert_eq!(seen, (1..=25).collect::<Vec<_>>());
    block.commit().await.unwrap();
}

#[tokio::test]
async fn errors_in_a_block_wait_for_its_end() {
    let door = Door::open(8).await;
    let client = door.connect().await;
    client.batch_execute("BEGIN").await.unwrap();
    let error = client.simple_query("SELECT * FROM nothing").await.unwrap_err();
    assert_eq!(state(&error), "42P01");
    let error = client.query("SELECT 1", &[]).await.unwrap_err();
    assert_eq!(state(&error), "25P02");
    let done = client.simple_query("COMMIT").await.unwrap();
    assert!(matches!(done[..], [SimpleQueryMessage::CommandComplete(0)]));
    client.query("SELECT 1", &[]).await.unwrap();
}

#[tokio::test]
async fn a_statement_is_cancelled_by_its_key() {
    let door = Door::open(8).await;
    let client = door.connect().await;
    let token = client.cancel_token();
    let over = AtomicBool::new(false);
    // A cancel that comes before the statement runs does nothing to it.
    let cancel = async {
        while !over.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(200)).await;
            token.cancel_query(NoTls).await.unwrap();
        }
    };
    let long = "SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 1000000) b \
                WHERE a.value + b.value = 0";
    let run = async {
        let result = client.simple_query(long).await;
        over.store(true, Ordering::SeqCst);
        result
    };
    let (result, ()) = tokio::join!(run, cancel);
    assert_eq!(state(&result.unwrap_err()), "57014");
    // One that is still on its way may end what comes next.
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = client.simple_query("SELECT 1").await {
        assert!(state(&error) == "57014" && Instant::now() < deadline, "{error}");
    }
}

#[tokio::test]
async fn the_server_stops_between_two_statements() {
    let door = Door::open(8).await;
    let mut socket = door.raw().await;
    door.stop.cancel();
    let (kind, body) = next(&mut socket).await;
    assert_eq!((kind, sqlstate(&body).as_str()), (b'E', "57P01"));
    door.served.await.unwrap().unwrap();
}

#[tokio::test]
async fn pg_catalog_lists_tables_columns_and_keys() {
    let door = Door::open(8).await;
    let client = door.connect().await;
    client.batch_execute(EVENTS).await.unwrap();
    client.batch_execute("CREATE DATABASE other").await.unwrap();
    let keys = "SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull \
                FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indexrelid \
                WHERE i.indrelid = 'events'::regclass AND i.indisprimary ORDER BY a.attnum";
    let rows = client.query(keys, &[]).await.unwrap();
    let got: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let expected = [("host", "text"), ("ts", "timestamp(3) without time zone")]
        .map(|(name, of)| (name.to_owned(), of.to_owned()));
    assert_eq!(got, expected);
    // As peewee reads the columns of an index.
    let indexed = "SELECT i.relname, array_to_string(ARRAY(SELECT pg_get_indexdef(idx.indexrelid, k + 1, TRUE) \
                   FROM generate_subscripts(idx.indkey, 1) AS k ORDER BY k), ',') \
                   FROM pg_catalog.pg_class AS t JOIN pg_catalog.pg_index AS idx ON t.oid = idx.indrelid \
                   JOIN pg_catalog.pg_class AS i ON idx.indexrelid = i.oid WHERE t.relname = 'events'";
    let rows = client.query(indexed, &[]).await.unwrap();
    let got: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(got, [("events_pkey".to_owned(), "host,ts".to_owned())]);
    // Subqueries in a select list.
    let counted = "SELECT (SELECT nspname FROM pg_namespace n WHERE n.oid = c.relnamespace) AS space, \
                   (SELECT count(*) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0) AS columns, \
                   array_to_string(ARRAY(SELECT attname FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 \
                   ORDER BY a.attnum), ',') AS names FROM pg_class c WHERE relname = 'events'";
    let row = client.query_one(counted, &[]).await.unwrap();
    let got: (String, i64, String) = (row.get(0), row.get(1), row.get(2));
    assert_eq!(got, ("public".to_owned(), 3, "host,ts,n".to_owned()));
    // Elements of arrays, as Django reads constraints and indexes.
    let constrained = "SELECT c.conname, array(SELECT attname FROM unnest(c.conkey) WITH ORDINALITY cols(colid, arridx) \
                       JOIN pg_attribute AS ca ON cols.colid = ca.attnum WHERE ca.attrelid = c.conrelid \
                       ORDER BY cols.arridx) AS columns FROM pg_constraint AS c JOIN pg_class AS cl ON c.conrelid = cl.oid \
                       WHERE cl.relname = 'events' AND pg_catalog.pg_table_is_visible(cl.oid)";
    let row = client.query_one(constrained, &[]).await.unwrap();
    let expected = ["host".to_owned(), "ts".to_owned()];
    assert_eq!(row.get::<_, String>(0), "events_pkey");
    assert_eq!(row.get::<_, Vec<String>>(1), expected);
    let indexed = "SELECT indexname, array_agg(attname ORDER BY arridx), array_agg(ordering ORDER BY arridx) FROM ( \
                   SELECT c2.relname as indexname, idx.*, attr.attname, CASE am.amname WHEN 'btree' THEN \
                   CASE (option & 1) WHEN 1 THEN 'DESC' ELSE 'ASC' END END as ordering FROM ( \
                   SELECT * FROM pg_index i, unnest(i.indkey, i.indoption) WITH ORDINALITY koi(key, option, arridx)) idx \
                   LEFT JOIN pg_class c ON idx.indrelid = c.oid LEFT JOIN pg_class c2 ON idx.indexrelid = c2.oid \
                   LEFT JOIN pg_am am ON c2.relam = am.oid LEFT JOIN pg_attribute attr \
                   ON attr.attrelid = c.oid AND attr.attnum = idx.key WHERE c.relname = 'events') s2 GROUP BY indexname";
    let row = client.query_one(indexed, &[]).await.unwrap();
    assert_eq!(row.get::<_, Vec<String>>(1), expected);
    assert_eq!(row.get::<_, Vec<String>>(2), ["ASC", "ASC"]);
    // Constraints, as ADBC reads them: the alias of a function of one column is its column, too.
    let constrained = "WITH keys AS (SELECT con.conname, CASE con.contype WHEN 'c' THEN 'CHECK' WHEN 'p' THEN 'PRIMARY KEY' \
                       END AS contype, ARRAY_AGG(attr.attname) AS colnames FROM pg_catalog.pg_constraint AS con \
                       CROSS JOIN UNNEST(conkey) AS conkeys INNER JOIN pg_catalog.pg_class AS cls ON cls.oid = con.conrelid \
                       INNER JOIN pg_catalog.pg_attribute AS attr ON attr.attnum = conkeys AND cls.oid = attr.attrelid \
                       WHERE con.contype IN ('c', 'u', 'p') AND cls.relname = $1 GROUP BY conname, contype) \
                       SELECT conname, contype, colnames, NULL, NULL, NULL FROM keys";
    let row = client.query_one(constrained, &[&"events"]).await.unwrap();
    let mut columns: Vec<String> = row.get(2);
    columns.sort_unstable();
    assert_eq!((row.get::<_, String>(1).as_str(), columns), ("PRIMARY KEY", expected.to_vec()));
    let visible = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace <> 11 AND pg_table_is_visible(oid)";
    assert_eq!(client.query(visible, &[]).await.unwrap().len(), 1);
    client.batch_execute("USE other").await.unwrap();
    assert_eq!(client.query(visible, &[]).await.unwrap().len(), 0);
}

/// Sends a message of a type and a body.
async fn send(socket: &mut TcpStream, kind: u8, body: &[u8]) {
    let length = u32::try_from(body.len() + 4).unwrap();
    let message = [&[kind], length.to_be_bytes().as_slice(), body].concat();
    socket.write_all(&message).await.unwrap();
}

/// The SQLSTATE of the next error.
async fn next_error(socket: &mut TcpStream) -> String {
    loop {
        let (kind, body) = next(socket).await;
        if kind == b'E' {
            return sqlstate(&body);
        }
    }
}

async fn until_ready(socket: &mut TcpStream) {
    while next(socket).await.0 != b'Z' {}
}

/// As [`until_ready`], without an error on the way.
async fn until_ready_without_error(socket: &mut TcpStream) {
    loop {
        match next(socket).await {
            (b'Z', _) => return,
            (b'E', body) => panic!("{}", sqlstate(&body)),
            _ => {}
        }
    }
}

#[tokio::test]
async fn what_is_well_formed_and_cannot_be_is_refused_and_the_connection_goes_on() {
    let door = Door::open(8).await;
    let mut socket = door.raw().await;
    send(&mut socket, b'Q', b"SELECT '\xff'\0").await;
    assert_eq!(next_error(&mut socket).await, "22021");
    until_ready(&mut socket).await;
    // In the extended protocol what follows is left out up to the Sync, faults too.
    send(&mut socket, b'P', b"\0SELECT '\xc3\x28'\0\0\0").await;
    send(&mut socket, b'B', b"\0\0\0\x02\0\0\0\0\0\0\0\0").await;
    send(&mut socket, b'S', b"").await;
    assert_eq!(next_error(&mut socket).await, "22021");
    assert_eq!(next(&mut socket).await.0, b'Z', "one error, then the Sync");
    // More formats than columns or parameters.
    send(&mut socket, b'P', b"s\0SELECT 1, 2\0\0\0").await;
    send(&mut socket, b'B', b"\0s\0\0\0\0\0\0\x03\0\0\0\0\0\0").await;
    send(&mut socket, b'S', b"").await;
    assert_eq!(next_error(&mut socket).await, "08P01");
    until_ready(&mut socket).await;
    send(&mut socket, b'B', b"\0s\0\0\x02\0\0\0\0\0\0\0\0").await;
    send(&mut socket, b'S', b"").await;
    assert_eq!(next_error(&mut socket).await, "08P01");
    until_ready(&mut socket).await;
    send(&mut socket, b'Q', b"SELECT 1\0").await;
    until_ready(&mut socket).await;
}

#[tokio::test]
async fn malformed_messages_are_told_and_end_only_their_connection() {
    let door = Door::open(64).await;
    for (kind, body) in [
        (b'Q', b"SELECT 1".as_slice()),
        (b'Q', b"SELECT 1\0 and more\0"),
        (b'P', b"\0SELECT 1\0\0\x05"),
        (b'B', b"\0"),
        (b'B', b"\0\0\0\0\0\x01\x7f\xff\xff\xff"),
        (b'B', b"\0\0\xff\xff"),
        (b'E', b"\0"),
        (b'C', b""),
        (b'D', b"S"),
        (b'S', b"x"),
        (b'F', b"\0\0\0\0"),
        (b'w', b""),
    ] {
        let mut socket = door.raw().await;
        send(&mut socket, kind, body).await;
        assert_eq!(next_error(&mut socket).await, "08P01", "{} {body:?}", char::from(kind));
        assert_eq!(socket.read(&mut [0]).await.unwrap(), 0, "{} {body:?}", char::from(kind));
    }
    let client = door.connect().await;
    assert!(client.simple_query("SELECT 1").await.is_ok());
}

#[tokio::test]
async fn a_message_that_does_not_go_on_ends_its_connection() {
    let door = Door::open(8).await;
    let mut socket = door.raw().await;
    socket.write_all(b"Q\0\0\0\xffSELECT").await.unwrap();
    assert_eq!(next_error(&mut socket).await, "08P01");
    assert_eq!(socket.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_client_that_says_nothing_is_sent_away_when_it_asked_for_that() {
    let door = Door::open(8).await;
    let mut socket = door.raw().await;
    send(&mut socket, b'Q', b"SET idle_session_timeout = '300ms'\0").await;
    until_ready(&mut socket).await;
    assert_eq!(next_error(&mut socket).await, "57P05");
    assert_eq!(socket.read(&mut [0]).await.unwrap(), 0);
    let mut socket = door.raw().await;
    send(&mut socket, b'Q', b"SET idle_in_transaction_session_timeout = '300ms'\0").await;
    until_ready(&mut socket).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    send(&mut socket, b'Q', b"BEGIN\0").await;
    until_ready(&mut socket).await;
    assert_eq!(next_error(&mut socket).await, "25P03");
}

#[tokio::test]
async fn a_copy_whose_rows_do_not_come_ends_and_its_connection_goes_on() {
    let door = Door::open(8).await;
    let mut socket = door.raw().await;
    for sql in [
        b"CREATE TABLE waited (k BIGINT, PRIMARY KEY (k))\0".as_slice(),
        b"SET statement_timeout = '2s'\0",
    ] {
        send(&mut socket, b'Q', sql).await;
        until_ready(&mut socket).await;
    }
    send(&mut socket, b'Q', b"COPY waited FROM STDIN\0").await;
    assert_eq!(next_error(&mut socket).await, "57014");
    until_ready(&mut socket).await;
    // What comes late is left out, as after any error of a COPY.
    send(&mut socket, b'd', b"1\n").await;
    send(&mut socket, b'c', b"").await;
    send(&mut socket, b'Q', b"SELECT 1\0").await;
    until_ready_without_error(&mut socket).await;
    send(&mut socket, b'P', b"\0COPY waited FROM STDIN\0\0\0").await;
    send(&mut socket, b'B', b"\0\0\0\0\0\0\0\0").await;
    send(&mut socket, b'E', b"\0\0\0\0\0").await;
    send(&mut socket, b'H', b"").await;
    assert_eq!(next_error(&mut socket).await, "57014");
    send(&mut socket, b'd', b"1\n").await;
    send(&mut socket, b'c', b"").await;
    send(&mut socket, b'S', b"").await;
    until_ready_without_error(&mut socket).await;
    let client = door.connect().await;
    let rows = client.query_one("SELECT count(*) FROM waited", &[]).await.unwrap();
    assert_eq!(rows.get::<_, i64>(0), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_that_has_gone_asked_for_is_stopped() {
    let door = Door::open(8).await;
    let running = || door.frontend.lanes().stats().lanes;
    let endless = b"SELECT count(*) FROM generate_series(1, 3000000000) a\0";
    for behind in [b"".as_slice(), b"Q\0\0\0\x0dSELECT 1\0"] {
        let mut socket = door.raw().await;
        send(&mut socket, b'Q', endless).await;
        // What is sent behind hides from a read that the client is gone.
        socket.write_all(behind).await.unwrap();
        let deadline = Instant::now() + PATIENCE;
        while running() == 0 {
            assert!(Instant::now() < deadline, "it does not begin");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(socket);
        while running() > 0 {
            assert!(Instant::now() < deadline, "it goes on without its client");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn a_value_that_is_too_long_for_a_setting_is_an_error() {
    let door = Door::open(8).await;
    let client = door.connect().await;
    let long = format!("SET application_name = '{}'", "x".repeat(5 << 20));
    assert_eq!(state(&client.simple_query(&long).await.unwrap_err()), "22023");
    assert!(client.simple_query("SELECT 1").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_find_and_end_each_other_by_the_number_of_their_session() {
    let door = Door::open(8).await;
    let (client, other) = (door.connect().await, door.connect().await);
    let number = "SELECT pg_backend_pid()";
    let pid: i32 = other.query_one(number, &[]).await.unwrap().get(0);
    let own: i32 = client.query_one(number, &[]).await.unwrap().get(0);
    assert_ne!(pid, own);
    let activity = "SELECT usename, state, query, client_addr FROM pg_stat_activity \
                    WHERE pid <> pg_backend_pid() AND datname = current_database()";
    let rows = client.query(activity, &[]).await.unwrap();
    let row: Vec<&str> = (0..4).map(|column| rows[0].get(column)).collect();
    assert_eq!((rows.len(), row), (1, vec!["partita", "idle", number, "127.0.0.1"]));
    // Times of statements, in any zone.
    let ages = "SELECT count(*) FROM pg_stat_activity WHERE now() - query_start < interval '1 day' \
                AND backend_start <= query_start AND xact_start IS NOT NULL";
    assert_eq!(client.query_one(ages, &[]).await.unwrap().get::<_, i64>(0), 1);
    let end = format!("SELECT pg_terminate_backend({pid})");
    assert!(client.query_one(&end, &[]).await.unwrap().get::<_, bool>(0));
    let deadline = Instant::now() + PATIENCE;
    while !other.is_closed() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(other.is_closed());
    // One that ends itself gets the reason as its last message.
    let error = client.simple_query("SELECT pg_terminate_backend(pg_backend_pid())").await;
    assert_eq!(state(&error.unwrap_err()), "57P01");
    assert_eq!(door.connect().await.query("SELECT * FROM pg_locks", &[]).await.unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_described_as_psql_completes_them() {
    let door = Door::open(4).await;
    let client = door.connect().await;
    client.batch_execute("SET statement_timeout = '2min'").await.unwrap();
    let sql = "SELECT setting, unit, vartype, context, min_val, max_val, source, boot_val, reset_val \
               FROM pg_settings WHERE name = 'statement_timeout'";
    let row = client.query_one(sql, &[]).await.unwrap();
    let cells: Vec<&str> = (0..9).map(|column| row.get(column)).collect();
    assert_eq!(cells, ["120000", "ms", "integer", "user", "0", "2147483647", "session", "0", "0"]);
    let names = "SELECT pg_catalog.lower(name) FROM pg_catalog.pg_settings \
                 WHERE context IN ('user', 'superuser') AND pg_catalog.lower(name) LIKE pg_catalog.lower('date%')";
    let rows = client.query(names, &[]).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<&str>>(), ["datestyle"]);
    let choices = "SELECT enumvals FROM pg_settings WHERE name = 'read_consistency'";
    let row = client.query_one(choices, &[]).await.unwrap();
    assert_eq!(row.get::<_, Vec<String>>(0), ["linearizable", "bounded"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_about_names_have_positions() {
    let door = Door::open(4).await;
    let client = door.connect().await;
    client.batch_execute(EVENTS).await.unwrap();
    let position = |error: tokio_postgres::Error| match error.as_db_error().unwrap().position() {
        Some(ErrorPosition::Original(position)) => Some(*position),
        _ => None,
    };
    for (sql, expected) in [
        ("SELECT n, nope FROM events", Some(11)),
        ("SELECT n\nFROM nowhere", Some(15)),
        ("SELECT nothing(n) FROM events", Some(8)),
        ("DROP TABLE nowhere", None),
    ] {
        assert_eq!(position(client.simple_query(sql).await.unwrap_err()), expected, "{sql}");
        assert_eq!(position(client.query(sql, &[]).await.unwrap_err()), expected, "{sql}");
    }
    // Of the whole text.
    let error = client.simple_query("SELECT 'ö' AS a; SELECT n, nope FROM events").await;
    assert_eq!(position(error.unwrap_err()), Some(28));
}
