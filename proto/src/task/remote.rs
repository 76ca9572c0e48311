//! Servers that get the rows of a task as line protocol.
//!
//! Invariant: neither `Debug` nor an error contains the token, nor what follows the host in the address.

use std::fmt;

use crate::error::Error;
use crate::schema::validate_name;

/// Maximum bytes of an address, and of a token.
const URL_BYTES_MAX: usize = 2_048;
const TOKEN_BYTES_MAX: usize = 1_024;
/// Maximum tags.
const TAGS_MAX: usize = 64;

/// A server that gets rows as line protocol.
#[derive(Clone, PartialEq, Eq)]
pub struct Remote {
    /// Address for writes, such as `https://host:8086/api/v2/write?bucket=b`; times are in nanoseconds.
    pub url: String,
    /// Token for the server; a secret.
    pub token: Option<String>,
    /// Measurement of the rows.
    pub measurement: String,
    /// Columns that become tags.
    pub tags: Vec<String>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("origin", &self.origin())
            .field("measurement", &self.measurement)
            .finish_non_exhaustive()
    }
}

impl Remote {
    /// Scheme, host and port, which are no secret; empty for an address that is not valid.
    #[must_use]
    pub fn origin(&self) -> &str {
        let Some((scheme, rest)) = self.url.split_once("://") else { return "" };
        let host = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        &self.url[..scheme.len() + "://".len() + host]
    }

    /// True if the connection has TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.url.starts_with("https://")
    }

    /// Checks address, token and names.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for what cannot be sent to a server.
    pub fn validate(&self) -> Result<(), Error> {
        let invalid = |message: &str| Err(Error::InvalidInput(message.to_owned()));
        let has_scheme = self.is_secure() || self.url.starts_with("http://");
        let host = self.origin().rsplit('/').next().unwrap_or_default();
        let is_plain = self.url.bytes().all(|byte| byte.is_ascii_graphic());
        if !has_scheme || host.is_empty() || host.contains('@') || !is_plain {
            return invalid(
                "the address of a task must be http:// or https://, a host and a path, without a user",
            );
        }
        if self.url.len() > URL_BYTES_MAX || self.url.contains('#') {
            return invalid("the address of a task is too long, or has a fragment");
        }
        let is_header = |token: &String| {
            token.len() <= TOKEN_BYTES_MAX && token.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if !self.token.as_ref().is_none_or(is_header) {
            return invalid("the token of a task must be visible ASCII characters, at most 1024");
        }
        if self.tags.len() > TAGS_MAX {
            return invalid("a task has at most 64 tags");
        }
        validate_name("measurement", &self.measurement)?;
        self.tags.iter().try_for_each(|tag| validate_name("column", tag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(url: &str, token: Option<&str>) -> Remote {
        Remote {
            url: url.to_owned(),
            token: token.map(str::to_owned),
            measurement: "events".to_owned(),
            tags: vec!["host".to_owned()],
        }
    }

    #[test]
    fn addresses_have_a_scheme_and_a_host_and_no_user() {
        for url in ["http://a", "https://a.b:8086/api/v2/write?bucket=b", "http://[::1]:1/w"] {
            assert_eq!(remote(url, Some("abc==")).validate(), Ok(()), "{url}");
        }
        for url in [
            "",
            "a",
            "ftp://a",
            "http://",
            "http:///w",
            "http://u:p@a/w",
            "http://a/w x",
            "http://a#b",
        ] {
            assert!(remote(url, None).validate().is_err(), "{url}");
        }
        assert!(remote("http://a", Some("a\nb")).validate().is_err());
        assert!(remote("http://a", Some("")).validate().is_ok());
    }

    #[test]
    fn secrets_are_not_shown() {
        let remote = remote("https://a:1/w?u=secret&p=secret", Some("secret"));
        assert_eq!(remote.origin(), "https://a:1");
        let shown = format!("{remote:?}");
        assert!(shown.contains("https://a:1") && !shown.contains("secret"), "{shown}");
    }
}
