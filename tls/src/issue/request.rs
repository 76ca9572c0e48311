//! Requests for certificates: their limits, and their form in the file REQUEST.
//!
//! ```text
//! role datanode
//! days 365
//! host 10.0.0.4
//! ```

use std::path::Path;

use rustls::pki_types::ServerName;

use crate::error::TlsError;
use crate::files::{invalid, unreadable};
use crate::role::Role;

/// Maximum length of a name: X.509's bound of a common name.
const NAME_BYTES_MAX: usize = 64;
/// Maximum validity: that of an authority.
const DAYS_MAX: u32 = super::AUTHORITY_DAYS;
/// Domain of the names that prove roles.
const ROLE_DOMAIN: &str = "partita.internal";

/// Request for a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Role that the certificate proves.
    pub role: Role,
    /// Common name, and name of the directory.
    pub name: String,
    /// Host names and IP addresses by which clients of a door call the process.
    pub hosts: Vec<String>,
    /// Validity in days.
    pub days: u32,
}

impl Request {
    /// Checks the request before anything is written.
    pub(super) fn check(&self) -> Result<(), TlsError> {
        let error = |message: String| Err(TlsError::InvalidRequest(message));
        let name = &self.name;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty()
            || name.len() > NAME_BYTES_MAX
            || !name.starts_with(|c: char| c.is_ascii_alphanumeric())
            || !name.chars().all(is_plain)
        {
            return error(format!(
                "invalid name \"{name}\": it must begin with a letter or digit and have at most {NAME_BYTES_MAX} \
                 letters, digits, \"-\", \"_\" and \".\""
            ));
        }
        if self.days == 0 || self.days > DAYS_MAX {
            return error(format!("days must be between 1 and {DAYS_MAX}"));
        }
        for host in &self.hosts {
            let lower = host.to_ascii_lowercase();
            let lower = lower.trim_end_matches('.');
            if lower == ROLE_DOMAIN || lower.ends_with(&format!(".{ROLE_DOMAIN}")) {
                return error(format!("host name \"{host}\" is reserved: it would prove a role"));
            }
            if host.ends_with('.') || ServerName::try_from(host.as_str()).is_err() {
                return error(format!("\"{host}\" is neither a host name nor an IP address"));
            }
        }
        Ok(())
    }

    pub(super) fn to_text(&self) -> String {
        let hosts: String = self.hosts.iter().map(|host| format!("host {host}\n")).collect();
        format!("role {}\ndays {}\n{hosts}", self.role, self.days)
    }

    /// Reads the request of the certificate with a name.
    pub(super) fn read(path: &Path, name: &str) -> Result<Self, TlsError> {
        let text = std::fs::read_to_string(path).map_err(|cause| unreadable(path, cause))?;
        let field = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
        let role = field("role ").and_then(|role| role.parse().ok());
        let days = field("days ").and_then(|days| days.parse().ok());
        let hosts = text.lines().filter_map(|line| line.strip_prefix("host "));
        let (Some(role), Some(days)) = (role, days) else {
            return Err(invalid(path, "it has no role or no days"));
        };
        let request =
            Self { role, name: name.to_owned(), hosts: hosts.map(str::to_owned).collect(), days };
        request.check().map_err(|error| invalid(path, error.to_string()))?;
        Ok(request)
    }
}
