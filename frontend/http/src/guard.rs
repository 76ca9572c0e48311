//! Protects against pages of other origins: a browser on this machine, or on a network that reaches it, can be made to
//! send requests by any page that it shows.
//!
//! ```text
//!   Host         a name that is not ours          421  a name was rebound to our address
//!   Origin       neither our own nor allowed      403  fetch, forms, WebSocket
//!   Sec-Fetch-*  from another site, no Origin     403  images, scripts, frames, fetch without CORS
//! ```
//!
//! Browsers set these headers themselves, and pages cannot change them; other clients send only Host, and are not
//! restricted. A name cannot be rebound to an address, so Host may be any address. No browser speaks HTTP/2 without
//! TLS, and over TLS a rebound name does not match the certificate: names are not checked for HTTP/2, which gRPC clients
//! speak. A GET request may only read, which depends on its statements ([`partita_frontend::Statement::reads`]).
//!
//! Sources: the Fetch standard (Origin, CORS) and Fetch Metadata Request Headers.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri, Version};

use crate::error::ApiError;

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
/// The name that disables the check of names.
const ANY_NAME: &str = "*";
/// Paths that execute statements from the URL; links of other sites must not lead there.
pub(crate) const RUNS_STATEMENTS: [&str; 2] = ["/v1/sql", "/api/v3/query_sql"];

/// The host names and origins that are admitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    names: Vec<String>,
    origins: Vec<String>,
}

/// An admitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admitted<'a> {
    /// From one of our own pages, or from no page.
    Own,
    /// From a page of an allowed origin, which the response must name.
    Allowed(&'a str),
}

impl Guard {
    /// A guard that admits requests for these host names, and from pages of these origins (`https://host:port`).
    /// Addresses and `localhost` are always admitted; the name `*` stands for every name.
    ///
    /// # Errors
    /// When an origin is malformed.
    pub fn new(names: &[String], origins: &[String]) -> Result<Self, String> {
        let name = |name: &String| name.trim_end_matches('.').to_ascii_lowercase();
        let origin = |origin: &String| {
            let text = origin.to_ascii_lowercase();
            match authority_of(&text) {
                Some(authority) if split(authority).is_some() => Ok(text),
                _ => Err(format!(
                    "\"{origin}\" is not an origin; expected a form such as https://example.org:3000"
                )),
            }
        };
        Ok(Self {
            names: names.iter().map(name).collect(),
            origins: origins.iter().map(origin).collect::<Result<_, _>>()?,
        })
    }

    /// Decides whether a request is admitted.
    ///
    /// # Errors
    /// 400 for headers that contradict each other, 421 for another server's name, 403 for another origin's page.
    pub(crate) fn admit<'a>(
        &self,
        version: Version,
        method: &Method,
        uri: &Uri,
        headers: &'a HeaderMap,
    ) -> Result<Admitted<'a>, ApiError> {
        let host = host_of(uri, headers)?;
        if version < Version::HTTP_2
            && let Some(host) = host
            && !self.serves(host)
        {
            return Err(ApiError::new(
                StatusCode::MISDIRECTED_REQUEST,
                format!(
                    "unknown host name \"{host}\"; start the server with --http-host and this name if it \
                     belongs to the server"
                ),
            ));
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        if let Some(origin) = origins.next() {
            let origin = origin.to_str().unwrap_or("null");
            if origins.next().is_some() {
                return Err(ApiError::bad_request("a request must have at most one Origin header"));
            }
            return self.admit_origin(origin, host);
        }
        match text(headers, &SITE) {
            None | Some("same-origin" | "none") => Ok(Admitted::Own),
            Some(_) if is_visit(method, uri, headers) => Ok(Admitted::Own),
            Some(_) => Err(foreign("another site")),
        }
    }

    fn admit_origin<'a>(
        &self,
        origin: &'a str,
        host: Option<&str>,
    ) -> Result<Admitted<'a>, ApiError> {
        let authorities = authority_of(origin).zip(host);
        if authorities.is_some_and(|(authority, host)| authority.eq_ignore_ascii_case(host)) {
            return Ok(Admitted::Own);
        }
        if self.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin)) {
            return Ok(Admitted::Allowed(origin));
        }
        Err(foreign(origin))
    }

    /// Returns true if an authority (`host`, `host:port`) is a valid name of this server.
    fn serves(&self, authority: &str) -> bool {
        let Some(host) = split(authority) else { return false };
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let address = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(bracketed) => bracketed.parse::<Ipv6Addr>().is_ok(),
            None => host.parse::<Ipv4Addr>().is_ok(),
        };
        address
            || host == "localhost"
            // Browsers resolve these to loopback without a lookup.
            || host.ends_with(".localhost")
            || self.names.iter().any(|name| name == ANY_NAME || *name == host)
    }
}

fn foreign(origin: &str) -> ApiError {
    ApiError::new(
        StatusCode::FORBIDDEN,
        format!(
            "requests from pages of {origin} are not allowed; start the server with --http-origin and this origin to allow them"
        ),
    )
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("unreadable"))
}

/// The host that the request is for, if it names one: HTTP/1.0 need not.
fn host_of<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Result<Option<&'a str>, ApiError> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = match hosts.next().map(|host| host.to_str()) {
        None => None,
        Some(Ok(host)) => Some(host),
        Some(Err(_)) => return Err(ApiError::bad_request("the Host header is not a host name")),
    };
    if hosts.next().is_some() {
        return Err(ApiError::bad_request("a request must have at most one Host header"));
    }
    let addressed = uri.authority().map(axum::http::uri::Authority::as_str);
    match (addressed, host) {
        (Some(addressed), Some(host)) if !addressed.eq_ignore_ascii_case(host) => {
            Err(ApiError::bad_request("the Host header differs from the request's authority"))
        }
        (addressed, host) => Ok(addressed.or(host)),
    }
}

/// Returns true if a person follows a link to one of our pages, in a window and not in a frame: the page with the link
/// cannot read the response, and nothing is changed.
fn is_visit(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
        && text(headers, &MODE) == Some("navigate")
        && text(headers, &DEST) == Some("document")
        && !RUNS_STATEMENTS.contains(&uri.path())
}

/// The part of an origin after its scheme.
fn authority_of(origin: &str) -> Option<&str> {
    origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"))
}

/// The host of an authority without its port; `None` if it is not a host with an optional port.
fn split(authority: &str) -> Option<&str> {
    let end_of_address = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    let (host, port) = match authority[end_of_address..].find(':') {
        Some(colon) => {
            let (host, port) = authority.split_at(end_of_address + colon);
            (host, &port[1..])
        }
        None => (authority, ""),
    };
    let is_port = port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    let of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_host = match bare {
        Some(address) => {
            address.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':' || byte == b'.')
        }
        None => host.bytes().all(of_name),
    };
    (is_port && is_host && !host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> Guard {
        let names = ["Partita.example".to_owned(), "frontend".to_owned()];
        Guard::new(&names, &["https://Board.example:3000".to_owned()]).unwrap()
    }

    /// The status of a request, or the origin that is allowed, or nothing of note.
    fn asked(method: &str, uri: &str, headers: &[(&str, &str)]) -> (u16, Option<String>) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, value.parse().unwrap());
        }
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let uri: Uri = uri.parse().unwrap();
        match guard().admit(Version::HTTP_11, &method, &uri, &map) {
            Ok(Admitted::Own) => (200, None),
            Ok(Admitted::Allowed(origin)) => (200, Some(origin.to_owned())),
            Err(error) => (error.status.as_u16(), None),
        }
    }

    #[test]
    fn only_addresses_and_names_of_ones_own_are_served() {
        for host in [
            "127.0.0.1:4000",
            "10.0.0.7",
            "[::1]:4000",
            "[fe80::1]",
            "localhost",
            "LOCALHOST:4000",
            "a.localhost:1",
            "partita.example",
            "partita.example.:4000",
            "frontend:4000",
        ] {
            assert_eq!(asked("GET", "/health", &[("host", host)]).0, 200, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:4000",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evillocalhost",
            "xpartita.example",
            "[::1].evil.example",
            "user@localhost",
            "localhost:4000:4000",
            "2130706433",
            "",
        ] {
            assert_eq!(asked("POST", "/v1/sql", &[("host", host)]).0, 421, "{host}");
        }
        assert_eq!(asked("GET", "/health", &[]).0, 200, "HTTP/1.0 names no host");
        assert_eq!(asked("GET", "/", &[("host", "localhost"), ("host", "evil.example")]).0, 400);
        assert_eq!(asked("GET", "http://evil.example/", &[("host", "localhost")]).0, 400);
        assert_eq!(asked("GET", "http://evil.example/", &[]).0, 421);
        let any = Guard::new(&["*".to_owned()], &[]).unwrap();
        assert!(any.serves("evil.example") && !any.serves("user@evil.example"));
    }

    #[test]
    fn http2_clients_may_call_the_server_by_any_name() {
        let uri: Uri =
            "http://node-7:4000/arrow.flight.protocol.FlightService/DoGet".parse().unwrap();
        let admit = |version| {
            guard().admit(version, &Method::POST, &uri, &HeaderMap::new()).map(|_| ()).is_ok()
        };
        assert!(admit(Version::HTTP_2));
        assert!(!admit(Version::HTTP_11));
    }

    #[test]
    fn pages_of_other_origins_are_refused_whatever_they_ask() {
        let host = ("host", "localhost:4000");
        for method in ["GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE"] {
            for origin in [
                "http://evil.example",
                "https://localhost:4001",
                "http://localhost",
                "http://127.0.0.1:4000",
                "null",
                "file://localhost:4000",
                "http://user@localhost:4000",
                "chrome-extension://abc",
            ] {
                for path in ["/v1/sql", "/health", "/metrics", "/heatmap", "/nothing"] {
                    let status = asked(method, path, &[host, ("origin", origin)]).0;
                    assert_eq!(status, 403, "{method} {path} {origin}");
                }
            }
            assert_eq!(
                asked(method, "/v1/sql", &[host, ("origin", "http://localhost:4000")]).0,
                200
            );
            assert_eq!(
                asked(method, "/v1/sql", &[host, ("origin", "https://LOCALHOST:4000")]).0,
                200
            );
        }
        let twice = [host, ("origin", "http://localhost:4000"), ("origin", "http://evil.example")];
        assert_eq!(asked("POST", "/v1/sql", &twice).0, 400);
        let allowed = asked("POST", "/v1/sql", &[host, ("origin", "https://board.example:3000")]);
        assert_eq!(allowed, (200, Some("https://board.example:3000".to_owned())));
        assert_eq!(
            asked("POST", "/v1/sql", &[host, ("origin", "http://board.example:3000")]).0,
            403
        );
    }

    #[test]
    fn what_a_browser_fetches_for_another_site_without_an_origin_is_refused() {
        let fetched = |method, path, site, mode, dest| {
            let host = ("host", "localhost:4000");
            let said = [
                host,
                ("sec-fetch-site", site),
                ("sec-fetch-mode", mode),
                ("sec-fetch-dest", dest),
            ];
            asked(method, path, &said).0
        };
        for site in ["cross-site", "same-site", "invented"] {
            for (mode, dest) in [
                ("no-cors", "image"),
                ("no-cors", "script"),
                ("navigate", "iframe"),
                ("navigate", "frame"),
                ("no-cors", "empty"),
            ] {
                for path in ["/v1/sql", "/metrics", "/heatmap"] {
                    assert_eq!(fetched("GET", path, site, mode, dest), 403, "{site} {mode} {dest}");
                }
            }
            // A link that a person follows.
            assert_eq!(fetched("GET", "/heatmap", site, "navigate", "document"), 200);
            assert_eq!(fetched("POST", "/heatmap", site, "navigate", "document"), 403);
            assert_eq!(fetched("GET", "/v1/sql", site, "navigate", "document"), 403);
            assert_eq!(fetched("GET", "/api/v3/query_sql", site, "navigate", "document"), 403);
        }
        assert_eq!(fetched("GET", "/v1/sql", "same-origin", "cors", "empty"), 200);
        assert_eq!(fetched("GET", "/v1/sql", "none", "navigate", "document"), 200);
    }

    #[test]
    fn an_origin_that_is_none_is_refused_at_the_start() {
        for origin in ["*", "example.org", "https://", "https://a/b", "ftp://a", "https://a:b"] {
            assert!(Guard::new(&[], &[origin.to_owned()]).is_err(), "{origin}");
        }
    }
}
