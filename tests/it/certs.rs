//! Certificate authorities of tests, made by the binary, and the binary's tools.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A command of the binary.
pub(crate) fn partita(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_partita"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs a command to its end: whether it succeeded, and its output.
pub(crate) fn finish(command: &mut Command) -> (bool, String) {
    let output = command.output().expect("the command can be run");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// A certificate authority in a directory, made by the binary.
pub(crate) struct Authority(PathBuf);

impl Authority {
    pub(crate) fn create(dir: PathBuf) -> Self {
        let authority = Self(dir);
        authority.run(&["init"]);
        authority
    }

    /// Runs a command of `partita certs`.
    pub(crate) fn run(&self, arguments: &[&str]) {
        let (succeeded, text) =
            finish(partita(&["certs", "--dir", &self.0.display().to_string()]).args(arguments));
        assert!(succeeded, "{text}");
    }

    /// Directory of a new certificate for this machine.
    pub(crate) fn issue(&self, role: &str, name: &str) -> String {
        self.run(&["issue", role, name, "--host", "localhost,127.0.0.1"]);
        self.member(name).display().to_string()
    }

    /// Directory of the authority.
    pub(crate) fn dir(&self) -> &Path {
        &self.0
    }

    /// Directory of a certificate.
    pub(crate) fn member(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// File of the authorities that are trusted.
    pub(crate) fn bundle(&self) -> String {
        self.0.join("ca.pem").display().to_string()
    }
}

/// A file that only its owner can read.
pub(crate) fn secret_file(path: &Path, text: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}
