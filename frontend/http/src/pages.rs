//! Signing in and out of the pages: a form, and a cookie that proves the login later.
//!
//! ```text
//!   page without a cookie ── 303 ─▶ GET /login ── form ─▶ POST /login ── cookie, 303 ─▶ page
//!   page ── form with a CSRF token ─▶ POST /logout ── no cookie, 303 ─▶ GET /login
//! ```
//!
//! The form of the login has a token too, that of a cookie of its own: no other site can sign a browser in as somebody
//! else. Cookies are for HTTP only, not sent with requests of other sites, and over TLS not without it. Signing out
//! removes the cookie; a copy of it is valid until it expires or the password changes.
//!
//! Invariants: a login leads to a page of this server only; text of a request is escaped before it is shown.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, RETRY_AFTER, SET_COOKIE,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use partita_proto::access::Door as DoorKind;
use uuid::Uuid;

use crate::caller::Peer;
use crate::door::Door;
use crate::error::ApiError;
use crate::parameters::Parameters;
use crate::routes::{Form, ROUTES};
use crate::sign_in::{CSRF_FIELD, SESSION_COOKIE, cookie, denial, field, form_of, see_other, sign};
use crate::signed_login::{Purpose, csrf_token, is_csrf_token};

/// Cookie of the form of the login.
const FORM_COOKIE: &str = "partita_login";
/// Seconds for which the form can be used.
const FORM_SECONDS: u64 = 3_600;
/// Page after a login that names no other.
const FIRST_PAGE: &str = "/heatmap";
/// The form loads and runs nothing, and is sent to this server only.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";
const HTML: &str = include_str!("pages/login.html");

/// `GET /login`.
pub(crate) async fn form(State(door): State<Arc<Door>>, request: Request) -> Response {
    let next = next_page(Parameters::of(request.uri()).get("next"));
    let peer = peer_of(&request);
    login_page(&door, peer, StatusCode::OK, &next, "")
}

/// `POST /login`.
pub(crate) async fn login(State(door): State<Arc<Door>>, request: Request) -> Response {
    let peer = peer_of(&request);
    let (parts, body) = request.into_parts();
    let bytes = match form_of(&door, body).await {
        Ok(bytes) => bytes,
        Err(error) => return Form::Page.respond(&error),
    };
    let next = next_page(field(&bytes, "next").as_deref());
    if !is_own_form(&door, &parts.headers, &bytes) {
        let message = "The form was not from this server or has expired. Try again.";
        return login_page(&door, peer, StatusCode::FORBIDDEN, &next, message);
    }
    let user = field(&bytes, "user").unwrap_or_default();
    let password = field(&bytes, "password").unwrap_or_default();
    let authenticator = door.frontend.authenticator();
    let result = authenticator.password(DoorKind::Http, peer.address, &user, &password).await;
    let identity = match result {
        Ok(identity) => identity,
        Err(error) => {
            let error = denial(&error);
            let message = match error.status {
                StatusCode::UNAUTHORIZED => "The user name or the password is wrong.",
                StatusCode::TOO_MANY_REQUESTS => "Too many attempts. Try again later.",
                _ => error.message.as_str(),
            };
            let mut response = login_page(&door, peer, error.status, &next, message);
            if let Some(seconds) = error.retry_after {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
            }
            return response;
        }
    };
    let Some(text) = sign(&door, Purpose::Page, &identity) else {
        return Form::Page.respond(&no_key());
    };
    let mut response = see_other(&next);
    let seconds = door.options.session_time.as_secs();
    set_cookie(&mut response, SESSION_COOKIE, &text, seconds, peer);
    set_cookie(&mut response, FORM_COOKIE, "", 0, peer);
    response
}

/// `POST /logout`. The middleware has checked the CSRF token.
pub(crate) async fn logout(request: Request) -> Response {
    let mut response = see_other("/login");
    set_cookie(&mut response, SESSION_COOKIE, "", 0, peer_of(&request));
    response
}

/// A form that signs out, for the head of a page.
pub(crate) fn logout_form(csrf: &str) -> String {
    format!(
        "<form method=\"post\" action=\"/logout\"><input type=\"hidden\" name=\"{CSRF_FIELD}\" \
         value=\"{}\"><button>Sign out</button></form>",
        escaped(csrf)
    )
}

fn peer_of(request: &Request) -> Peer {
    request.extensions().get::<Peer>().copied().unwrap_or_default()
}

fn no_key() -> ApiError {
    ApiError::busy("the roles of the cluster are not known yet; try again")
}

/// True if the form was made by this cluster for this browser.
fn is_own_form(door: &Door, headers: &HeaderMap, form: &[u8]) -> bool {
    let key = door.frontend.access().secrets.cookies;
    let pair = cookie(headers, FORM_COOKIE).zip(field(form, CSRF_FIELD));
    pair.is_some_and(|(cookie, token)| is_csrf_token(&key, cookie, &token))
}

fn login_page(door: &Door, peer: Peer, status: StatusCode, next: &str, message: &str) -> Response {
    let nonce = Uuid::new_v4().to_string();
    let key = door.frontend.access().secrets.cookies;
    let Some(token) = csrf_token(&key, &nonce) else { return Form::Page.respond(&no_key()) };
    let html = HTML
        .replace("/*CSRF*/", &escaped(&token))
        .replace("/*NEXT*/", &escaped(next))
        .replace("/*MESSAGE*/", &escaped(message));
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
    ];
    let mut response = (status, headers, html).into_response();
    set_cookie(&mut response, FORM_COOKIE, &nonce, FORM_SECONDS, peer);
    response
}

/// The page to go to after the login: a page of the table of routes, and no other address.
fn next_page(target: Option<&str>) -> String {
    let is_page = |path: &str| {
        let mut pages = ROUTES.iter().filter(|route| route.form == Form::Page);
        pages.any(|route| route.path == path && route.methods.contains(&"GET") && path != "/login")
    };
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    match target {
        Some(next)
            if is_plain(next) && is_page(next.split(['?', '#']).next().unwrap_or_default()) =>
        {
            next.to_owned()
        }
        _ => FIRST_PAGE.to_owned(),
    }
}

fn set_cookie(response: &mut Response, name: &str, text: &str, seconds: u64, peer: Peer) {
    let secure = if peer.tls { "; Secure" } else { "" };
    let cookie =
        format!("{name}={text}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    if let Ok(mut value) = HeaderValue::from_str(&cookie) {
        value.set_sensitive(true);
        response.headers_mut().append(SET_COOKIE, value);
    }
}

/// Text for HTML, within an attribute too.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_our_own_pages_only() {
        for (asked, next) in [
            ("/heatmap", "/heatmap"),
            ("/heatmap?table=a%20b", "/heatmap?table=a%20b"),
            ("//evil.example/heatmap", FIRST_PAGE),
            ("https://evil.example/heatmap", FIRST_PAGE),
            ("/\\evil.example", FIRST_PAGE),
            ("/heatmap?a=\r\nset-cookie: x", FIRST_PAGE),
            ("/login", FIRST_PAGE),
            ("/logout", FIRST_PAGE),
            ("/v1/sql?sql=SELECT+1", FIRST_PAGE),
            ("", FIRST_PAGE),
        ] {
            assert_eq!(next_page(Some(asked)), next, "{asked}");
        }
        assert_eq!(next_page(None), FIRST_PAGE);
    }

    #[test]
    fn markup_is_shown_as_text() {
        assert_eq!(escaped("<a href='x'>\"&"), "&lt;a href=&#39;x&#39;&gt;&quot;&amp;");
        assert!(logout_form("\"><script>").contains("&quot;&gt;&lt;script&gt;"));
    }
}
