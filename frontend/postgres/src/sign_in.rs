//! The sign-in of a connection: decides which message answers those of a client before its session, without I/O.
//!
//! ```text
//!   Startup ─────────── no password needed ──────────────────────────► Session
//!      │ ◄ AuthenticationSASL                                             ▲
//!      ▼                                                                  │
//!   Offered ── SASLInitialResponse ──► Challenged ── SASLResponse ────────┘
//!      │ without data                      ▲           ◄ AuthenticationSASLFinal
//!      ▼ ◄ AuthenticationSASLContinue      │
//!   Selected ────── SASLResponse ──────────┘
//!                    ◄ AuthenticationSASLContinue
//! ```
//!
//! Any other message, one that is too long, and one after the deadline end the sign-in with an error. The caller looks
//! the user up, sends the messages, limits failed attempts before the step that tests a proof
//! ([`SignIn::tests_proof_next`]), and closes the connection with [`SignIn::timeout`] when nothing arrives.
//!
//! Invariants:
//! - a session starts only from [`Step::Session`], at most once, and after it or an error every step is an error;
//! - each sign-in tests at most one proof.
//!
//! Source: PostgreSQL's documentation, SASL Authentication.

use std::time::{Duration, Instant};

use bytes::Bytes;
use partita_frontend::SqlError;
use partita_frontend::access::scram::{
    Challenge, Credentials, Exchange, Failed, INVALID_PASSWORD, Mechanism, Nonce,
    PROTOCOL_VIOLATION,
};
use partita_frontend::error::QUERY_CANCELED;
use pgwire::messages::startup::Authentication;

use crate::check::{self, Fault};

/// Limits of one sign-in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum time from the connection to the session.
    pub(crate) time: Duration,
    /// Maximum length of the body of a message after the startup in bytes.
    pub(crate) message_bytes: usize,
}

/// The way in which a user is authenticated.
#[derive(Debug)]
pub(crate) enum Method {
    /// Without a password: authentication is off, or a client certificate names the user.
    Trust,
    /// By SCRAM; with mock credentials if the user has none.
    Scram(Credentials),
}

/// A message of the client. It has no debug output, because it may have a password.
pub(crate) enum Event<'a> {
    /// A startup message, with the method that applies to its user and the client's address.
    Startup { user: &'a str, method: Method },
    /// The body of a message of type `p`.
    Response(&'a [u8]),
    /// A message of any other type.
    Other,
}

/// The answer to a message.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send this message and wait for the next of the client.
    Send(Authentication),
    /// The user is authenticated: send this message, if any, then AuthenticationOk and the rest of the startup.
    Session(Option<Authentication>),
    /// Send the error as FATAL and close the connection.
    Refuse {
        error: SqlError,
        /// True if a proof was tested and is wrong.
        is_wrong_password: bool,
    },
}

enum State {
    Startup(Nonce),
    /// The mechanisms were offered.
    Offered(Nonce, Credentials),
    /// A mechanism was selected, without its first message.
    Selected(Exchange),
    /// The server's first message was sent.
    Challenged(Challenge),
    Ended,
}

/// The sign-in of one connection.
pub(crate) struct SignIn {
    state: State,
    user: String,
    end_point_hash: Option<Vec<u8>>,
    deadline: Instant,
    message_bytes_max: usize,
}

impl SignIn {
    /// Begins with the connection. `end_point_hash` is the hash of the server's certificate (`tls-server-end-point`) if
    /// the connection has TLS; it lets the client choose channel binding.
    pub(crate) fn new(
        limits: Limits,
        connected: Instant,
        end_point_hash: Option<Vec<u8>>,
        nonce: Nonce,
    ) -> Self {
        Self {
            state: State::Startup(nonce),
            user: String::new(),
            end_point_hash,
            deadline: connected + limits.time,
            message_bytes_max: limits.message_bytes,
        }
    }

    /// The error of a sign-in that takes too long.
    pub(crate) fn timeout() -> SqlError {
        SqlError::new(QUERY_CANCELED, "canceling authentication due to timeout")
    }

    /// True if the next response is tested against a password: ask the limiter of failed attempts first.
    pub(crate) fn tests_proof_next(&self) -> bool {
        matches!(self.state, State::Challenged(_))
    }

    /// Answers a message.
    pub(crate) fn step(&mut self, event: Event<'_>, now: Instant) -> Step {
        let state = std::mem::replace(&mut self.state, State::Ended);
        match self.next(state, event, now) {
            Ok((state, step)) => {
                self.state = state;
                step
            }
            Err(error) => {
                let is_wrong_password = error.sqlstate == INVALID_PASSWORD;
                Step::Refuse { error, is_wrong_password }
            }
        }
    }

    fn next(
        &mut self,
        state: State,
        event: Event<'_>,
        now: Instant,
    ) -> Result<(State, Step), SqlError> {
        if now > self.deadline {
            return Err(Self::timeout());
        }
        match (state, event) {
            (State::Startup(nonce), Event::Startup { user, method }) => {
                user.clone_into(&mut self.user);
                Ok(self.offer(nonce, method))
            }
            (State::Offered(nonce, credentials), Event::Response(body)) => {
                self.check_length(body)?;
                self.select(nonce, credentials, body)
            }
            (State::Selected(exchange), Event::Response(message)) => {
                self.check_length(message)?;
                self.challenge(exchange, message)
            }
            (State::Challenged(challenge), Event::Response(message)) => {
                self.check_length(message)?;
                let server_last = challenge.last(message).map_err(|failed| self.error(failed))?;
                let message = Authentication::SASLFinal(Bytes::from(server_last));
                Ok((State::Ended, Step::Session(Some(message))))
            }
            (State::Startup(_), _) => Err(violation("expected a startup message")),
            (State::Ended, _) => Err(violation("unexpected message after the sign-in")),
            (State::Offered(..) | State::Selected(_) | State::Challenged(_), _) => {
                Err(violation("expected SASL response"))
            }
        }
    }

    fn offer(&self, nonce: Nonce, method: Method) -> (State, Step) {
        match method {
            Method::Trust => (State::Ended, Step::Session(None)),
            Method::Scram(credentials) => {
                let names = Mechanism::offered(self.end_point_hash.is_some());
                let step = Step::Send(Authentication::SASL(names));
                (State::Offered(nonce, credentials), step)
            }
        }
    }

    fn select(
        &mut self,
        nonce: Nonce,
        credentials: Credentials,
        body: &[u8],
    ) -> Result<(State, Step), SqlError> {
        let response = check::initial_response(body)
            .map_err(|Fault { sqlstate, message, .. }| SqlError::new(sqlstate, message))?;
        let end_point_hash = self.end_point_hash.take();
        let exchange = Mechanism::parse(response.mechanism)
            .ok_or(Failed::Mechanism)
            .and_then(|mechanism| Exchange::begin(mechanism, credentials, end_point_hash, nonce))
            .map_err(|failed| self.error(failed))?;
        match response.data {
            Some(message) => self.challenge(exchange, message),
            None => {
                let step = Step::Send(Authentication::SASLContinue(Bytes::new()));
                Ok((State::Selected(exchange), step))
            }
        }
    }

    fn challenge(&self, exchange: Exchange, message: &[u8]) -> Result<(State, Step), SqlError> {
        let (challenge, server_first) =
            exchange.first(message).map_err(|failed| self.error(failed))?;
        let step = Step::Send(Authentication::SASLContinue(Bytes::from(server_first)));
        Ok((State::Challenged(challenge), step))
    }

    fn check_length(&self, message: &[u8]) -> Result<(), SqlError> {
        let (length, maximum) = (message.len(), self.message_bytes_max);
        if length > maximum {
            return Err(violation(format!(
                "invalid message length {length} before the session, the maximum is {maximum}"
            )));
        }
        Ok(())
    }

    fn error(&self, failed: Failed) -> SqlError {
        failed.error(&self.user)
    }
}

fn violation(message: impl Into<String>) -> SqlError {
    SqlError::new(PROTOCOL_VIOLATION, message)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use partita_frontend::access::scram::{Key, Verifier};
    use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { time: Duration::from_secs(10), message_bytes: 1024 };
    const HASH: [u8; 32] = [7; 32];

    /// A sign-in and its clock.
    struct Server {
        sign_in: SignIn,
        now: Instant,
    }

    impl Server {
        fn new(end_point_hash: Option<Vec<u8>>) -> Self {
            let now = Instant::now();
            let nonce = Nonce::new([1; 18]);
            Self { sign_in: SignIn::new(LIMITS, now, end_point_hash, nonce), now }
        }

        fn startup(&mut self, method: Method) -> Step {
            self.sign_in.step(Event::Startup { user: "ann", method }, self.now)
        }

        fn respond(&mut self, message: &[u8]) -> Step {
            self.sign_in.step(Event::Response(message), self.now)
        }
    }

    fn scram() -> Method {
        let verifier = Verifier::new("secret", [3; 16], NonZeroU32::new(2).unwrap());
        Method::Scram(Credentials::new(verifier))
    }

    fn initial(mechanism: &str, data: Option<&[u8]>) -> Vec<u8> {
        let mut body = [mechanism.as_bytes(), b"\0"].concat();
        match data {
            None => body.extend((-1_i32).to_be_bytes()),
            Some(data) => {
                body.extend(i32::try_from(data.len()).unwrap().to_be_bytes());
                body.extend(data);
            }
        }
        body
    }

    fn continued(step: Step) -> Bytes {
        match step {
            Step::Send(Authentication::SASLContinue(data)) => data,
            other => panic!("{other:?}"),
        }
    }

    fn refused(step: Step) -> (String, String, bool) {
        match step {
            Step::Refuse { error, is_wrong_password } => {
                (error.sqlstate, error.message, is_wrong_password)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Brings a sign-in to the challenge; returns it with the client's last message.
    fn challenged(method: Method, password: &str) -> (Server, ScramSha256) {
        let mut server = Server::new(None);
        let mut client = ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
        server.startup(method);
        let response = initial("SCRAM-SHA-256", Some(client.message()));
        client.update(&continued(server.respond(&response))).unwrap();
        (server, client)
    }

    #[test]
    fn a_trusted_user_gets_a_session() {
        let mut server = Server::new(None);
        assert!(matches!(server.startup(Method::Trust), Step::Session(None)));
        assert_eq!(server.sign_in.user, "ann");
        assert_eq!(refused(server.startup(Method::Trust)).0, "08P01");
    }

    #[test]
    fn a_password_gives_a_session() {
        let (mut server, mut client) = challenged(scram(), "secret");
        assert!(server.sign_in.tests_proof_next());
        let Step::Session(Some(Authentication::SASLFinal(data))) = server.respond(client.message())
        else {
            panic!("no session");
        };
        client.finish(&data).unwrap();
        assert!(!server.sign_in.tests_proof_next());
        assert_eq!(refused(server.respond(b"")).0, "08P01");
    }

    #[test]
    fn channel_binding_is_offered_over_tls() {
        let mut server = Server::new(Some(HASH.to_vec()));
        let Step::Send(Authentication::SASL(names)) = server.startup(scram()) else {
            panic!("no offer");
        };
        assert_eq!(names, ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"]);
        let binding = ChannelBinding::tls_server_end_point(HASH.to_vec());
        let mut client = ScramSha256::new(b"secret", binding);
        let response = initial("SCRAM-SHA-256-PLUS", Some(client.message()));
        client.update(&continued(server.respond(&response))).unwrap();
        assert!(matches!(server.respond(client.message()), Step::Session(Some(_))));

        let mut server = Server::new(None);
        let Step::Send(Authentication::SASL(names)) = server.startup(scram()) else {
            panic!("no offer");
        };
        assert_eq!(names, ["SCRAM-SHA-256"]);
        let response = initial("SCRAM-SHA-256-PLUS", Some(b"p=tls-server-end-point,,n=,r=x"));
        assert_eq!(
            refused(server.respond(&response)).1,
            "client selected an invalid SASL authentication mechanism"
        );
    }

    #[test]
    fn the_first_message_may_come_by_itself() {
        let mut server = Server::new(None);
        let mut client = ScramSha256::new(b"secret", ChannelBinding::unrequested());
        server.startup(scram());
        assert!(continued(server.respond(&initial("SCRAM-SHA-256", None))).is_empty());
        assert!(!server.sign_in.tests_proof_next());
        client.update(&continued(server.respond(client.message()))).unwrap();
        assert!(matches!(server.respond(client.message()), Step::Session(Some(_))));
    }

    #[test]
    fn a_wrong_password_and_an_unknown_user_get_the_same_error() {
        let expected = (
            "28P01".to_owned(),
            "password authentication failed for user \"ann\"".to_owned(),
            true,
        );
        let mock = || Method::Scram(Credentials::mock(&Key::new([9; 32]), "ann"));
        for method in [scram(), mock()] {
            let (mut server, client) = challenged(method, "wrong");
            assert_eq!(refused(server.respond(client.message())), expected);
            assert_eq!(refused(server.respond(client.message())).0, "08P01", "no second attempt");
        }
    }

    #[test]
    fn a_message_after_the_deadline_is_refused() {
        let (mut server, client) = challenged(scram(), "secret");
        assert_eq!(server.sign_in.deadline, server.now + LIMITS.time);
        server.now += LIMITS.time + Duration::from_nanos(1);
        assert_eq!(refused(server.respond(client.message())).0, "57014");
        let (mut server, client) = challenged(scram(), "secret");
        server.now += LIMITS.time;
        assert!(matches!(server.respond(client.message()), Step::Session(_)));
    }

    #[test]
    fn a_long_message_is_refused() {
        let long = vec![b'x'; LIMITS.message_bytes + 1];
        let mut server = Server::new(None);
        server.startup(scram());
        assert!(refused(server.respond(&long)).1.starts_with("invalid message length 1025"));
        let mut server = Server::new(None);
        server.startup(scram());
        server.respond(&initial("SCRAM-SHA-256", None));
        assert!(refused(server.respond(&long)).1.starts_with("invalid message length 1025"));
        let (mut server, _) = challenged(scram(), "secret");
        assert!(refused(server.respond(&long)).1.starts_with("invalid message length 1025"));
    }

    #[test]
    fn an_unexpected_message_is_refused_in_each_state() {
        let mut server = Server::new(None);
        assert_eq!(refused(server.respond(b"")).1, "expected a startup message");
        let states: [&[Vec<u8>]; 2] = [&[], &[initial("SCRAM-SHA-256", None)]];
        for responses in states {
            for is_startup in [false, true] {
                let mut server = Server::new(None);
                server.startup(scram());
                for response in responses {
                    server.respond(response);
                }
                let step = if is_startup {
                    server.startup(Method::Trust)
                } else {
                    server.sign_in.step(Event::Other, server.now)
                };
                assert_eq!(refused(step).1, "expected SASL response");
            }
        }
        let (mut server, _) = challenged(scram(), "secret");
        assert_eq!(refused(server.startup(Method::Trust)).1, "expected SASL response");
    }

    proptest! {
        #[test]
        fn no_messages_give_a_session_without_the_password(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..6),
            is_selected in any::<bool>(),
        ) {
            let mut server = Server::new(None);
            server.startup(scram());
            if is_selected {
                server.respond(&initial("SCRAM-SHA-256", Some(b"n,,n=,r=abc")));
            }
            for message in messages {
                prop_assert!(!matches!(server.respond(&message), Step::Session(_)));
            }
        }
    }
}
