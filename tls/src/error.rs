//! Errors of reading, checking and issuing certificates, in PostgreSQL's style: they name the file and the cause.

use std::path::PathBuf;

use crate::role::Role;

/// Error of an operation on certificates and keys.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file or directory cannot be read.
    #[error("could not read \"{}\": {cause}", .path.display())]
    Read {
        /// File or directory.
        path: PathBuf,
        /// Error of the system.
        cause: std::io::Error,
    },
    /// A file or directory cannot be written.
    #[error("could not write \"{}\": {cause}", .path.display())]
    Write {
        /// File or directory.
        path: PathBuf,
        /// Error of the system.
        cause: std::io::Error,
    },
    /// A private key is accessible to other users.
    #[error(
        "private key file \"{}\" has group or world access (mode {mode:04o}); it must have mode 0600",
        .path.display()
    )]
    KeyMode {
        /// Key file.
        path: PathBuf,
        /// Permission bits of the file.
        mode: u32,
    },
    /// A file holds something else than it should.
    #[error("file \"{}\" is not valid: {reason}", .path.display())]
    Invalid {
        /// File that was read.
        path: PathBuf,
        /// Description of the defect.
        reason: String,
    },
    /// A key does not belong to a certificate.
    #[error(
        "private key file \"{}\" does not match certificate file \"{}\"",
        .key.display(),
        .certificate.display()
    )]
    KeyMismatch {
        /// Key file.
        key: PathBuf,
        /// Certificate file.
        certificate: PathBuf,
    },
    /// A certificate is for another role than the process has.
    #[error(
        "certificate file \"{}\" {}{}",
        .certificate.display(),
        .found.map_or_else(|| "proves no role of a cluster".to_owned(), |role| format!("is for role {role}")),
        .expected.map_or_else(String::new, |role| format!(", but role {role} is required"))
    )]
    WrongRole {
        /// Certificate file.
        certificate: PathBuf,
        /// Role of the certificate.
        found: Option<Role>,
        /// Role of the process.
        expected: Option<Role>,
    },
    /// rustls refuses a configuration.
    #[error("could not set up TLS: {0}")]
    Setup(rustls::Error),
    /// A file that would be created exists.
    #[error("file \"{}\" already exists", .0.display())]
    Exists(PathBuf),
    /// A certificate cannot be made.
    #[error("could not issue a certificate: {0}")]
    Issue(String),
    /// The request for a certificate is invalid.
    #[error("{0}")]
    InvalidRequest(String),
}

// The messages include the causes: a `source` would print them twice.
impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        Self::Setup(error)
    }
}

impl From<rcgen::Error> for TlsError {
    fn from(error: rcgen::Error) -> Self {
        Self::Issue(error.to_string())
    }
}
