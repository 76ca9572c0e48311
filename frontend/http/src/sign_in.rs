//! The middleware before every handler: who sends a request, and what its route needs.
//!
//! ```text
//!   route is open ────────────────────────────────────────────────▶ handler
//!   Authorization: Token, Bearer, Basic ─┐
//!   u and p (InfluxDB 1)                 ├─▶ authenticator ─┐
//!   nothing ─────────────────────────────┘                  ├─▶ Caller ─▶ MONITOR? CSRF? ─▶ handler
//!   cookie (pages), Bearer of a handshake ─▶ signed login ──┘
//! ```
//!
//! Invariants:
//! - a handler runs without a [`Caller`] only if the table of routes says that its route is open;
//! - secrets are taken out of the request before a handler sees it, so that no log and no error can have them;
//! - a cookie counts for pages only, and a request with one that is not GET or HEAD needs its CSRF token.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, LOCATION, WWW_AUTHENTICATE};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use bytes::Bytes;
use partita_frontend::SqlError;
use partita_frontend::access::scram::PROTOCOL_VIOLATION;
use partita_proto::access::{Action, Door as DoorKind, Identity, Need, Object};

use crate::activity::Activity;
use crate::caller::{Caller, Peer};
use crate::door::{Door, now_ns};
use crate::error::ApiError;
use crate::flight;
use crate::routes::{Endpoint, Form, Needs, Route};
use crate::signed_login::{Purpose, SignedLogin, csrf_token, is_csrf_token};

/// Cookie of a web session.
pub(crate) const SESSION_COOKIE: &str = "partita_session";
/// Header and form field of the CSRF token.
const CSRF_HEADER: HeaderName = HeaderName::from_static("x-partita-csrf");
pub(crate) const CSRF_FIELD: &str = "csrf";
/// InfluxDB 3's text for every missing or wrong credential.
const NOT_AUTHENTICATED: &str = "the request was not authenticated";
/// Maximum bytes of a form of a page.
const FORM_BYTES_MAX: usize = 16 << 10;

/// Proof of an identity, as a request has it.
#[derive(Clone, PartialEq, Eq)]
enum Credential {
    None,
    /// More than one header, an unknown scheme, or not base64.
    Malformed,
    Password {
        user: String,
        password: String,
    },
    Token(String),
    Cookie(String),
}

/// Authenticates a request and checks what its route needs.
pub(crate) async fn authenticate(
    State((door, route)): State<(Arc<Door>, &'static Route)>,
    mut request: Request,
    next: Next,
) -> Response {
    let credential = take_credential(&mut request, route.form);
    let peer = request.extensions().get::<Peer>().copied().unwrap_or_default();
    if route.needs == Needs::Open || (route.needs == Needs::Metrics && door.options.metrics_open) {
        if tells_more(&door, route)
            && let Ok(identity) = identity_of(&door, route, peer, credential).await
        {
            request.extensions_mut().insert(Caller { identity, csrf: None });
        }
        return next.run(request).await;
    }
    let page = request.uri().path_and_query().map(|path| path.as_str().to_owned());
    let cookie = match &credential {
        Credential::Cookie(text) => Some(text.clone()),
        _ => None,
    };
    let identity = match identity_of(&door, route, peer, credential).await {
        Ok(identity) => identity,
        Err(error) => return refuse(route.form, &error, page.as_deref()),
    };
    if let Some(activity) = request.extensions().get::<Arc<Activity>>() {
        activity.authenticated();
    }
    let key = door.frontend.access().secrets.cookies;
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    if let Some(cookie) = &cookie
        && changes
    {
        request = match with_csrf_token(&door, request, &key, cookie).await {
            Ok(request) => request,
            Err(error) => return error.respond(route.form.dialect()),
        };
    }
    let csrf = cookie.and_then(|cookie| csrf_token(&key, &cookie));
    request.extensions_mut().insert(Caller { identity, csrf });
    let mut response = next.run(request).await;
    if response.status() == StatusCode::UNAUTHORIZED {
        challenge(&mut response, route.form);
    }
    response
}

/// True if an open route tells callers with an identity more than others.
fn tells_more(door: &Door, route: &Route) -> bool {
    match route.endpoint {
        Endpoint::Health | Endpoint::Ready | Endpoint::GreptimeHealth => {
            !door.options.health.ailments().is_empty()
        }
        Endpoint::Metrics => true,
        _ => false,
    }
}

/// The identity of a request, which is valid now and may use the route.
async fn identity_of(
    door: &Door,
    route: &Route,
    peer: Peer,
    credential: Credential,
) -> Result<Identity, SqlError> {
    let kind = route.form.door();
    let authenticator = door.frontend.authenticator();
    let missing = || SqlError::new("28000", "authentication is required");
    let identity = match credential {
        Credential::None => authenticator.anonymous(kind).ok_or_else(missing)?,
        // An open server takes every client at its word, also one that speaks another scheme.
        Credential::Malformed => authenticator.anonymous(kind).ok_or_else(|| {
            SqlError::new(PROTOCOL_VIOLATION, "the Authorization header is malformed")
                .with_hint("use Basic, Bearer or Token")
        })?,
        Credential::Password { user, password } => {
            authenticator.password(kind, peer.address, &user, &password).await?
        }
        Credential::Token(text) => match signed(door, Purpose::Flight, &text, kind) {
            Some(identity) if kind == DoorKind::Flight => identity,
            _ => authenticator.token(kind, peer.address, &text).await?,
        },
        Credential::Cookie(text) => match signed(door, Purpose::Page, &text, kind) {
            Some(identity) => identity,
            // An old cookie is no wrong password: it is as if there were none.
            None => authenticator.anonymous(kind).ok_or_else(missing)?,
        },
    };
    let action = if route.needs == Needs::Metrics { Action::Monitor } else { Action::Login };
    // LOGIN on the cluster is allowed to every identity that is still valid.
    let _permit = door.frontend.authorize(&identity, &[Need::new(action, Object::Cluster)])?;
    Ok(identity)
}

/// The identity of a signed login that is still valid.
fn signed(door: &Door, purpose: Purpose, text: &str, kind: DoorKind) -> Option<Identity> {
    let access = door.frontend.access();
    let login = SignedLogin::verify(&access.secrets.cookies, purpose, text, now_s())?;
    let identity = login.identity(&access, kind)?;
    let needs = [Need::new(Action::Login, Object::Cluster)];
    door.frontend.authorize(&identity, &needs).is_ok().then_some(identity)
}

/// Signs a login of an identity; `None` while meta has not published a key.
pub(crate) fn sign(door: &Door, purpose: Purpose, identity: &Identity) -> Option<String> {
    let expires_s = now_s().saturating_add(door.options.session_time.as_secs());
    let key = door.frontend.access().secrets.cookies;
    SignedLogin::new(purpose, identity, expires_s).sign(&key)
}

/// Seconds since 1970.
fn now_s() -> u64 {
    u64::try_from(now_ns() / 1_000_000_000).unwrap_or(0)
}

/// Takes the credential out of a request. A header counts before parameters, and those before a cookie.
fn take_credential(request: &mut Request, form: Form) -> Credential {
    let parameters = take_parameters(request.uri_mut());
    let header = take_header(request.headers_mut());
    if let Some(credential) = header {
        return credential;
    }
    if form.takes_parameters()
        && let Some((user, password)) = parameters
    {
        return Credential::Password { user, password };
    }
    if form.takes_cookies()
        && let Some(text) = cookie(request.headers(), SESSION_COOKIE)
    {
        return Credential::Cookie(text.to_owned());
    }
    Credential::None
}

/// Removes the parameters `u` and `p`; returns them if at least one is not empty.
fn take_parameters(uri: &mut Uri) -> Option<(String, String)> {
    let query = uri.query()?;
    let (mut user, mut password) = (String::new(), String::new());
    let mut pairs = Vec::new();
    let mut has_parameters = false;
    for pair in query.split('&') {
        let target = match form_urlencoded::parse(pair.as_bytes()).next() {
            Some((name, value)) if name == "u" => Some((&mut user, value)),
            Some((name, value)) if name == "p" => Some((&mut password, value)),
            _ => None,
        };
        match target {
            Some((target, value)) => {
                has_parameters = true;
                // The first one counts, as for other parameters.
                if target.is_empty() {
                    *target = value.into_owned();
                }
            }
            None => pairs.push(pair),
        }
    }
    if !has_parameters {
        return None;
    }
    let path = match pairs.is_empty() {
        true => uri.path().to_owned(),
        false => format!("{}?{}", uri.path(), pairs.join("&")),
    };
    let mut parts = std::mem::take(uri).into_parts();
    parts.path_and_query = PathAndQuery::try_from(path).ok();
    *uri = Uri::from_parts(parts).unwrap_or_default();
    (!user.is_empty() || !password.is_empty()).then_some((user, password))
}

/// Removes the Authorization headers; `None` if there is none, or one without a text.
fn take_header(headers: &mut HeaderMap) -> Option<Credential> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let first = values.next()?.to_str().map(str::to_owned);
    let is_single = values.next().is_none();
    headers.remove(AUTHORIZATION);
    match first {
        Ok(text) if is_single => credential_of(text.trim()),
        _ => Some(Credential::Malformed),
    }
}

fn credential_of(header: &str) -> Option<Credential> {
    let (scheme, text) = header.split_once(' ').unwrap_or((header, ""));
    let text = text.trim();
    let is_scheme = |name: &str| scheme.eq_ignore_ascii_case(name);
    if is_scheme("bearer") || is_scheme("token") {
        return match text.split_once(':') {
            // Clients that have no token send an empty one.
            _ if text.is_empty() => None,
            // InfluxDB 1's way through the API of InfluxDB 2.
            Some((user, password)) if is_scheme("token") => {
                Some(Credential::Password { user: user.to_owned(), password: password.to_owned() })
            }
            _ => Some(Credential::Token(text.to_owned())),
        };
    }
    if !is_scheme("basic") {
        return Some(Credential::Malformed);
    }
    let decoded = STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text)).ok();
    let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    let pair = decoded.as_deref().and_then(|text| text.split_once(':'));
    Some(match pair {
        Some((user, password)) => {
            Credential::Password { user: user.to_owned(), password: password.to_owned() }
        }
        None => Credential::Malformed,
    })
}

/// The text of a cookie.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let texts = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

/// Checks the CSRF token in the header or the form of a request, which keeps its body.
async fn with_csrf_token(
    door: &Door,
    request: Request,
    key: &[u8; 32],
    cookie: &str,
) -> Result<Request, ApiError> {
    let refused = || ApiError::new(StatusCode::FORBIDDEN, "the CSRF token is missing or wrong");
    let (parts, body) = request.into_parts();
    if let Some(token) = parts.headers.get(CSRF_HEADER) {
        let token = token.to_str().unwrap_or_default();
        let is_right = is_csrf_token(key, cookie, token);
        return if is_right { Ok(Request::from_parts(parts, body)) } else { Err(refused()) };
    }
    if !is_form(&parts.headers) {
        return Err(refused());
    }
    let bytes = form_of(door, body).await?;
    let token = field(&bytes, CSRF_FIELD).unwrap_or_default();
    if !is_csrf_token(key, cookie, &token) {
        return Err(refused());
    }
    Ok(Request::from_parts(parts, Body::from(bytes)))
}

fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim() == "application/x-www-form-urlencoded"
}

/// The body of a page's form.
///
/// # Errors
/// 408 when it takes too long, 413 when it is too large or breaks off.
pub(crate) async fn form_of(door: &Door, body: Body) -> Result<Bytes, ApiError> {
    let bytes = axum::body::to_bytes(body, FORM_BYTES_MAX);
    let received = tokio::time::timeout(door.options.body_timeout, bytes).await;
    let received = received.map_err(|_| {
        ApiError::new(StatusCode::REQUEST_TIMEOUT, "timed out while reading the body")
    })?;
    received.map_err(|_| ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "request too large"))
}

/// The first value of a form's field.
pub(crate) fn field(form: &[u8], name: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(form);
    pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// The response to a request whose identity is missing, wrong or not sufficient.
fn refuse(form: Form, error: &SqlError, page: Option<&str>) -> Response {
    let error = &nameless(error);
    if form == Form::Flight {
        return flight::status_of(error).into_http::<Body>();
    }
    let mut error = denial(error);
    if form == Form::InfluxV3 && error.status == StatusCode::UNAUTHORIZED {
        NOT_AUTHENTICATED.clone_into(&mut error.message);
    }
    if form == Form::Page && error.status == StatusCode::UNAUTHORIZED {
        let next: String =
            form_urlencoded::byte_serialize(page.unwrap_or("/").as_bytes()).collect();
        return see_other(&format!("/login?next={next}"));
    }
    let mut response = form.respond(&error);
    if error.status == StatusCode::UNAUTHORIZED {
        challenge(&mut response, form);
    }
    response
}

/// A refusal without the name that the client gave, which may be a secret in the wrong place.
fn nameless(error: &SqlError) -> SqlError {
    if error.sqlstate == "28P01" && error.hint.is_none() {
        return SqlError::new("28P01", "authentication failed");
    }
    error.clone()
}

/// A refusal of the authenticator for HTTP: 429 for too many attempts, which its hint tells by the time to wait.
pub(crate) fn denial(error: &SqlError) -> ApiError {
    let mut denial = ApiError::from(error.clone());
    if denial.status == StatusCode::UNAUTHORIZED
        && let Some(seconds) = seconds_of(error)
    {
        denial.status = StatusCode::TOO_MANY_REQUESTS;
        denial.retry_after = Some(seconds);
    }
    denial
}

/// The number of seconds after which a hint advises to try again.
fn seconds_of(error: &SqlError) -> Option<u32> {
    let rest = error.hint.as_deref()?.strip_prefix("Try again in ")?;
    rest.split(' ').next()?.parse().ok()
}

/// A redirection that is followed with GET.
pub(crate) fn see_other(location: &str) -> Response {
    let location = HeaderValue::from_str(location).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(LOCATION, location)]).into_response()
}

/// Names the schemes that the route's clients know. A page's scripts must not make the browser ask for a password, which
/// it would then send with every request.
fn challenge(response: &mut Response, form: Form) {
    let scheme = HeaderValue::from_static(form.challenge());
    response.headers_mut().entry(WWW_AUTHENTICATE).or_insert(scheme);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn password(user: &str, password: &str) -> Option<Credential> {
        Some(Credential::Password { user: user.to_owned(), password: password.to_owned() })
    }

    fn token(text: &str) -> Option<Credential> {
        Some(Credential::Token(text.to_owned()))
    }

    #[test]
    fn schemes_are_read_as_their_clients_write_them() {
        let cases = [
            ("Bearer abc", token("abc")),
            ("bearer  abc ", token("abc")),
            ("Token abc", token("abc")),
            ("Bearer a:b", token("a:b")),
            ("Token ann:secret", password("ann", "secret")),
            // ann:se:cret
            ("Basic YW5uOnNlOmNyZXQ=", password("ann", "se:cret")),
            ("BASIC YW5uOnNlOmNyZXQ", password("ann", "se:cret")),
            ("Token ", None),
            ("Basic !", Some(Credential::Malformed)),
            ("Digest x", Some(Credential::Malformed)),
            ("abc", Some(Credential::Malformed)),
        ];
        for (header, expected) in cases {
            assert!(credential_of(header) == expected, "{header}");
        }
    }

    #[test]
    fn two_headers_are_malformed_and_neither_stays() {
        let mut headers = HeaderMap::new();
        headers.append(AUTHORIZATION, HeaderValue::from_static("Bearer a"));
        headers.append(AUTHORIZATION, HeaderValue::from_static("Bearer b"));
        assert!(take_header(&mut headers) == Some(Credential::Malformed));
        assert!(headers.is_empty());
        assert!(take_header(&mut headers).is_none());
    }

    #[test]
    fn user_and_password_leave_the_address() {
        let take = |text: &str| {
            let mut uri: Uri = text.parse().unwrap();
            let parameters = take_parameters(&mut uri);
            (uri.to_string(), parameters)
        };
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(
            take("/write?db=b&u=ann&p=a%26b"),
            ("/write?db=b".to_owned(), pair("ann", "a&b"))
        );
        assert_eq!(take("/write?%70=x&db=b&u=a&u=b"), ("/write?db=b".to_owned(), pair("a", "x")));
        assert_eq!(take("/write?u=&p="), ("/write".to_owned(), None));
        assert_eq!(take("/write?db=%20a&up=1"), ("/write?db=%20a&up=1".to_owned(), None));
        assert_eq!(take("http://h:1/write?u=a"), ("http://h:1/write".to_owned(), pair("a", "")));
    }

    #[test]
    fn a_locked_out_client_is_told_when_to_try_again() {
        let wrong = SqlError::new("28P01", "too many failed authentication attempts");
        let locked = denial(&wrong.clone().with_hint("Try again in 7 seconds."));
        assert_eq!((locked.status.as_u16(), locked.retry_after), (429, Some(7)));
        assert_eq!(denial(&wrong).status, StatusCode::UNAUTHORIZED);
    }

    #[test]
    fn cookies_are_found_by_their_whole_name() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("a=1; xpartita_session=no"));
        headers.append(COOKIE, HeaderValue::from_static("b=2;partita_session=yes==; c=3"));
        assert_eq!(cookie(&headers, SESSION_COOKIE), Some("yes=="));
        assert_eq!(cookie(&headers, "session"), None);
    }
}
