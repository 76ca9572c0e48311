//! Certificates and passwords with real processes: psql over TLS, and processes that are not of the cluster.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::certs::{Authority, finish, partita, secret_file};
use crate::server::Server;

/// Time in which a process that is refused would have joined.
const JOIN_WAIT: Duration = Duration::from_secs(4);

/// Runs a statement by psql.
fn psql(server: &Server, options: &str, password: &str) -> (bool, String) {
    let target = format!(
        "host=localhost hostaddr=127.0.0.1 port={} dbname=public {options}",
        server.postgres.port()
    );
    let mut command = Command::new("psql");
    command.args([&target, "-X", "-w", "-tA", "-c", "SELECT 40 + 2"]).env("PGPASSWORD", password);
    finish(&mut command)
}

#[test]
fn psql_needs_tls_and_the_password_that_a_file_gave() {
    if Command::new("psql").arg("--version").output().is_err() {
        eprintln!("psql is not installed: not tested");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path().join("ca"));
    let certs = authority.issue("frontend", "frontend1");
    let data = dir.path().join("data");
    let file = secret_file(&dir.path().join("password"), "correct horse\n");
    let options = ["--certs", &certs, "--require-tls", "--initial-password-file", &file];
    let server = Server::try_start(&data, &options).unwrap_or_else(|log| panic!("{log}"));
    let verified = format!("user=partita sslmode=verify-full sslrootcert={}", authority.bundle());
    let (succeeded, text) = psql(&server, &verified, "correct horse");
    assert!(succeeded && text.trim() == "42", "{text}");
    let (succeeded, wrong) = psql(&server, &verified, "wrong");
    assert!(!succeeded && wrong.contains("password authentication failed"), "{wrong}");
    // Nothing tells whether a user exists.
    let (succeeded, unknown) = psql(&server, &verified.replace("partita ", "mallory "), "wrong");
    assert!(!succeeded, "{unknown}");
    assert_eq!(unknown.replace("mallory", "partita"), wrong);
    let (succeeded, text) = psql(&server, "user=partita sslmode=disable", "correct horse");
    assert!(!succeeded, "{text}");
    assert!(!server.log().contains("correct horse"), "the password is in the log");

    // A password that exists stays, whatever the file says.
    assert!(server.stop());
    secret_file(&dir.path().join("password"), "another\n");
    let server = Server::try_start(&data, &options).unwrap_or_else(|log| panic!("{log}"));
    assert!(psql(&server, &verified, "correct horse").0);
    assert!(!psql(&server, &verified, "another").0);
}

#[test]
fn the_tools_reach_a_server_with_tls_and_a_password() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::create(dir.path().join("ca"));
    let certs = authority.issue("frontend", "frontend1");
    let file = secret_file(&dir.path().join("password"), "secret\n");
    let options = ["--certs", &certs, "--require-tls", "--initial-password-file", &file];
    let server =
        Server::try_start(&dir.path().join("data"), &options).unwrap_or_else(|log| panic!("{log}"));
    let (postgres, http) = (server.postgres.to_string(), server.http.to_string());
    let bundle = authority.bundle();
    let sql = ["sql", "--server", &postgres, "--plain", "-c", "SELECT 40 + 2"];
    let trusted = [&sql[..], &["--tls-ca", &bundle, "--password-file", &file]].concat();
    let (succeeded, text) = finish(&mut partita(&trusted));
    assert!(succeeded && text.trim() == "42", "{text}");
    let (succeeded, text) = finish(&mut partita(&[&sql[..], &["--password-file", &file]].concat()));
    assert!(!succeeded, "{text}");
    let (succeeded, text) =
        finish(partita(&[&sql[..], &["--tls-ca", &bundle]].concat()).env("PARTITA_PASSWORD", "no"));
    assert!(!succeeded && text.contains("28P01"), "{text}");

    let lines = dir.path().join("rows.lp");
    std::fs::write(&lines, "m,host=a v=1 1\nm,host=b v=2 2\n").unwrap();
    let lines = lines.display().to_string();
    let load = ["load", &lines, "--http", &http, "--tls-ca", &bundle];
    let (succeeded, text) =
        finish(&mut partita(&[&load[..], &["--password-file", &file]].concat()));
    assert!(succeeded && text.contains("2 rows"), "{text}");
    let (succeeded, text) = finish(partita(&load).env_remove("PARTITA_PASSWORD"));
    assert!(!succeeded && text.contains("401"), "{text}");

    let health = ["health", "--http", "--connect", &http];
    let (succeeded, text) = finish(&mut partita(&[&health[..], &["--tls-ca", &bundle]].concat()));
    assert!(succeeded, "{text}");
    let (succeeded, text) = finish(&mut partita(&health));
    assert!(!succeeded && text.contains("speaks TLS: use --tls-ca"), "{text}");
}

/// A meta or a datanode; ends when it is dropped.
struct Peer(Child);

impl Peer {
    /// Starts one and waits until it is ready.
    fn start(arguments: &[&str], log: &Path) -> Self {
        let mut peer = Self::spawn(arguments, log);
        let stdout = peer.0.stdout.take().expect("stdout is piped");
        let is_ready = BufReader::new(stdout)
            .lines()
            .map_while(Result::ok)
            .any(|line| line.contains("is ready"));
        assert!(is_ready, "{}", std::fs::read_to_string(log).unwrap_or_default());
        peer
    }

    fn spawn(arguments: &[&str], log: &Path) -> Self {
        let file = std::fs::File::create(log).unwrap();
        Self(partita(arguments).stdout(Stdio::piped()).stderr(file).spawn().unwrap())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

#[test]
fn a_process_without_a_certificate_of_the_cluster_gets_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let text_of = |name: &str| path(name).display().to_string();
    let (authority, other) = (Authority::create(path("ca")), Authority::create(path("other")));
    let (meta, node) = (free_address(), free_address());
    let peers = format!("1={meta}");
    let certs = ["meta", "datanode", "frontend"].map(|role| authority.issue(role, role));
    let [meta_certs, node_certs, frontend_certs] = &certs;

    let data = text_of("meta-data");
    let arguments = ["meta", "--node", "1", "--peers", &peers, "--listen", &meta];
    let more = ["--replication-factor", "1", "--data-dir", &data, "--certs", meta_certs];
    let _meta = Peer::start(&[&arguments[..], &more[..]].concat(), &path("meta.log"));
    let data = text_of("node-data");
    let arguments = ["datanode", "--meta", &meta, "--listen", &node];
    let more = ["--data-dir", &data, "--certs", node_certs];
    let _node = Peer::start(&[&arguments[..], &more[..]].concat(), &path("node.log"));
    let mut command = partita(&["frontend", "--meta", &meta, "--certs", frontend_certs]);
    command.args(["--http", "127.0.0.1:0", "--postgres", "127.0.0.1:0"]);
    let frontend =
        Server::spawn(command, &path("frontend.log")).unwrap_or_else(|log| panic!("{log}"));

    let (door, bundle) = (frontend.postgres.to_string(), authority.bundle());
    let sql = |statement: &str| {
        let arguments = ["sql", "--server", &door, "--tls-ca", &bundle, "--plain", "-c", statement];
        let (succeeded, text) = finish(&mut partita(&arguments));
        assert!(succeeded, "{statement}: {text}");
        text.trim().to_owned()
    };
    sql("CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (1), (2)");
    assert_eq!(sql("SELECT count(*) FROM t"), "2");

    // Each port answers those who have a certificate of the cluster only.
    let admin = authority.issue("admin", "alice");
    let foreign = other.issue("admin", "alice");
    for address in [&meta, &node] {
        let health = ["health", "--connect", address];
        let (succeeded, text) = finish(&mut partita(&[&health[..], &["--certs", &admin]].concat()));
        assert!(succeeded, "{text}");
        let (succeeded, text) = finish(&mut partita(&health));
        assert!(!succeeded, "{address} answers without a certificate");
        assert!(text.contains("speaks TLS: use --certs"), "{text}");
        let by_foreign = [&health[..], &["--certs", &foreign]].concat();
        assert!(!finish(&mut partita(&by_foreign)).0, "{address} answers another authority");
    }

    // Datanodes that are none: plain, of another authority, and of another role.
    let foreign = other.issue("datanode", "datanode");
    let started: Vec<Peer> = [("plain", None), ("foreign", Some(&foreign))]
        .into_iter()
        .map(|(name, certs)| {
            let data = text_of(name);
            let mut arguments =
                vec!["datanode", "--meta", &meta, "--listen", "127.0.0.1:0", "--data-dir", &data];
            if let Some(certs) = certs {
                arguments.extend(["--certs", certs]);
            }
            Peer::spawn(&arguments, &path(&format!("{name}.log")))
        })
        .collect();
    std::thread::sleep(JOIN_WAIT);
    assert_eq!(sql("SELECT count(*) FROM sys.nodes"), "1");
    drop(started);
    let data = text_of("wrong");
    let arguments = ["datanode", "--meta", &meta, "--listen", "127.0.0.1:0", "--data-dir", &data];
    let (succeeded, text) =
        finish(&mut partita(&[&arguments[..], &["--certs", frontend_certs]].concat()));
    assert!(!succeeded && text.contains("role datanode is required"), "{text}");

    // Certificates are replaced without a restart.
    for (role, name) in [("meta", "meta"), ("datanode", "datanode"), ("frontend", "frontend")] {
        authority.issue(role, name);
    }
    sql("INSERT INTO t VALUES (3)");
    std::thread::sleep(JOIN_WAIT * 2);
    sql("INSERT INTO t VALUES (4)");
    assert_eq!(sql("SELECT count(*) FROM t"), "4");
}

#[test]
fn a_port_beyond_loopback_needs_a_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data").display().to_string();
    for arguments in [
        &["meta", "--node", "1", "--peers", "1=127.0.0.1:1", "--listen", "0.0.0.0:0"][..],
        &["datanode", "--meta", "127.0.0.1:1", "--listen", "0.0.0.0:0"],
    ] {
        let (succeeded, text) = finish(partita(arguments).args(["--data-dir", &data]));
        assert!(!succeeded && text.contains("--certs") && text.contains("--insecure"), "{text}");
        std::fs::remove_dir_all(&data).ok();
    }
    let arguments = ["standalone", "--postgres", "0.0.0.0:0", "--data-dir", &data];
    let (succeeded, text) = finish(&mut partita(&arguments));
    assert!(!succeeded && text.contains("--tls-cert") && text.contains("--insecure"), "{text}");
}
