//! The server's side of SCRAM-SHA-256 and SCRAM-SHA-256-PLUS, without I/O, clock and randomness.
//!
//! ```text
//!   client                                              server
//!   n,,n=user,r=CNONCE                  ──first──►      Exchange
//!                         ◄── r=CNONCE SNONCE,s=salt,i=iterations
//!   c=biws,r=CNONCE SNONCE,p=proof      ──last──►       Challenge
//!                         ◄── v=signature, or an error
//!
//!   AuthMessage = client-first without `n,,` "," server-first "," client-final without `,p=proof`
//!   ClientKey   = proof XOR HMAC(StoredKey, AuthMessage)       SHA256(ClientKey) must be StoredKey
//!   signature   = HMAC(ServerKey, AuthMessage)
//! ```
//!
//! The first field is the client's view of channel binding: `n` (not supported), `y` (supported, but not offered by the
//! server) or `p=tls-server-end-point`; `c` repeats it in base64, followed by the hash of the server's certificate.
//! A man in the middle of TLS has another certificate, and an offer without PLUS that did not come from the server is
//! detected by `y`.
//!
//! Invariants:
//! - each exchange has one nonce and tests one proof: a step consumes the state before it;
//! - an exchange for a user without a verifier takes the same steps, and fails with the error of a wrong password;
//! - an error before the last step does not depend on the user.
//!
//! The user's name in the client's message is ignored, as in PostgreSQL: the startup message has it.
//!
//! Sources: RFC 5802, RFC 5929 section 4, RFC 7677; PostgreSQL's `auth-scram.c`. Of the crates with a server's side,
//! pgwire and `scram` keep SaltedPassword; `rsasl` compares with `==`, answers an unknown user with another salt each
//! time, and names the unknown user in its error.

#[cfg(test)]
mod tests;
mod verifier;

use std::str::Split;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use subtle::Choice;

pub use self::verifier::{ITERATIONS, Key, SALT_BYTES, Verifier};
use crate::error::{FEATURE_NOT_SUPPORTED, SqlError};

/// Length of the server's nonce in random bytes, as in PostgreSQL.
pub const NONCE_BYTES: usize = 18;
/// SQLSTATE of a proof that does not match.
pub const INVALID_PASSWORD: &str = "28P01";
/// SQLSTATE of messages that do not follow the protocol.
pub const PROTOCOL_VIOLATION: &str = "08P01";
/// SQLSTATE of other reasons not to authenticate.
pub const INVALID_AUTHORIZATION: &str = "28000";

/// Name of SCRAM-SHA-256.
const PLAIN: &str = "SCRAM-SHA-256";
/// Name of SCRAM-SHA-256 with channel binding.
const PLUS: &str = "SCRAM-SHA-256-PLUS";
/// Channel-binding flag of a client that binds to the server's certificate.
const END_POINT_FLAG: &str = "p=tls-server-end-point";

/// A mechanism of SASL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// SCRAM-SHA-256, without channel binding.
    Plain,
    /// SCRAM-SHA-256-PLUS, with channel binding.
    Plus,
}

impl Mechanism {
    /// Finds a mechanism by name.
    pub fn parse(name: &[u8]) -> Option<Self> {
        [(PLAIN, Self::Plain), (PLUS, Self::Plus)]
            .into_iter()
            .find_map(|(known, mechanism)| (known.as_bytes() == name).then_some(mechanism))
    }

    /// Names of the mechanisms to offer, the preferred one first.
    pub fn offered(has_end_point: bool) -> Vec<String> {
        let names: &[&str] = if has_end_point { &[PLUS, PLAIN] } else { &[PLAIN] };
        names.iter().map(|name| (*name).to_owned()).collect()
    }
}

/// The server's part of the nonce of one exchange.
#[derive(Clone, Debug)]
pub struct Nonce(String);

impl Nonce {
    /// Takes bytes from a cryptographic random generator, fresh for each exchange.
    pub fn new(random: [u8; NONCE_BYTES]) -> Self {
        Self(STANDARD.encode(random))
    }
}

/// The keys that an exchange tests a client with.
#[derive(Clone, Debug)]
pub struct Credentials {
    verifier: Verifier,
    is_mock: Choice,
}

impl Credentials {
    /// The keys of a user.
    pub fn new(verifier: Verifier) -> Self {
        Self { verifier, is_mock: Choice::from(0) }
    }

    /// Keys that match no password, for a user who does not exist, has no password or may not sign in. All servers of
    /// a cluster must use the same secret, and keep it over restarts.
    pub fn mock(secret: &Key, user: &str) -> Self {
        Self { verifier: Verifier::mock(secret, user), is_mock: Choice::from(1) }
    }

    /// The keys of a user who may not sign in: they look like those of [`Credentials::new`] and match no password.
    pub fn refused(verifier: Verifier) -> Self {
        Self { verifier, is_mock: Choice::from(1) }
    }

    /// Tests a password itself, for protocols without SCRAM. Takes as long for a mock, and for a wrong password.
    pub fn matches(&self, password: &str) -> bool {
        bool::from(self.verifier.matches(password) & !self.is_mock)
    }

    /// A digest of these keys and a password under a secret key, to recognize the pair again.
    pub(super) fn tag(&self, secret: &Key, password: &str) -> [u8; 32] {
        // The text of a verifier has no zero byte, so that the parts cannot be cut differently.
        secret.digest(&[self.verifier.encode().as_bytes(), b"\0", password.as_bytes()])
    }
}

/// The reason why an exchange ends without authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// A message does not follow the grammar; with more about it.
    Malformed(&'static str),
    /// The client requires an optional part of SCRAM; the whole error message.
    NotSupported(&'static str),
    /// The selected mechanism was not offered.
    Mechanism,
    /// The client does not know that channel binding was offered.
    Downgraded,
    /// The client is bound to another certificate, or repeats another header than it has sent.
    Binding,
    /// The last message belongs to another exchange.
    Nonce,
    /// The password is wrong, or there is no such user.
    Password,
}

impl Failed {
    /// The error for the client, in PostgreSQL's words.
    pub fn error(self, user: &str) -> SqlError {
        match self {
            Self::Malformed(detail) => {
                SqlError::new(PROTOCOL_VIOLATION, "malformed SCRAM message").with_detail(detail)
            }
            Self::NotSupported(message) => SqlError::new(FEATURE_NOT_SUPPORTED, message),
            Self::Mechanism => SqlError::new(
                PROTOCOL_VIOLATION,
                "client selected an invalid SASL authentication mechanism",
            ),
            Self::Downgraded => {
                SqlError::new(INVALID_AUTHORIZATION, "SCRAM channel binding negotiation error")
                    .with_detail(
                        "the client supports SCRAM channel binding but thinks the server does not; \
                         however, this server does support channel binding",
                    )
            }
            Self::Binding => {
                SqlError::new(INVALID_AUTHORIZATION, "SCRAM channel binding check failed")
            }
            Self::Nonce => SqlError::new(PROTOCOL_VIOLATION, "invalid SCRAM response")
                .with_detail("the nonce does not match"),
            Self::Password => SqlError::new(
                INVALID_PASSWORD,
                format!("password authentication failed for user \"{user}\""),
            ),
        }
    }
}

/// An exchange that waits for the client's first message.
#[derive(Clone, Debug)]
pub struct Exchange {
    mechanism: Mechanism,
    credentials: Credentials,
    end_point_hash: Option<Vec<u8>>,
    nonce: Nonce,
}

impl Exchange {
    /// Begins an exchange with the mechanism that the client has selected. `end_point_hash` is the hash of the server's
    /// certificate (`tls-server-end-point`) if the connection has TLS, and PLUS was offered if and only if it is there.
    ///
    /// # Errors
    /// When the mechanism was not offered.
    pub fn begin(
        mechanism: Mechanism,
        credentials: Credentials,
        end_point_hash: Option<Vec<u8>>,
        nonce: Nonce,
    ) -> Result<Self, Failed> {
        if mechanism == Mechanism::Plus && end_point_hash.is_none() {
            return Err(Failed::Mechanism);
        }
        Ok(Self { mechanism, credentials, end_point_hash, nonce })
    }

    /// Answers the client's first message with the server's.
    ///
    /// # Errors
    /// When the message is malformed, requires what is not supported, or does not fit the mechanism.
    pub fn first(self, message: &[u8]) -> Result<(Challenge, String), Failed> {
        let message = text(message)?;
        let header = message.split_once(',').and_then(|(flag, rest)| {
            let (authorization, bare) = rest.split_once(',')?;
            Some((flag, authorization, bare))
        });
        let Some((flag, authorization, bare)) = header else {
            return Err(Failed::Malformed("the client-first-message is incomplete"));
        };
        let binding = self.binding(flag)?;
        if authorization.starts_with("a=") {
            return Err(Failed::NotSupported(
                "client uses authorization identity, but it is not supported",
            ));
        }
        if !authorization.is_empty() {
            return Err(Failed::Malformed("unexpected attribute in the client-first-message"));
        }
        if bare.starts_with("m=") {
            return Err(Failed::NotSupported("client requires an unsupported SCRAM extension"));
        }
        let mut attributes = Attributes::new(bare);
        attributes.take('n')?;
        let client_nonce = attributes.take('r')?;
        attributes.skip_extensions()?;
        // All printable characters of ASCII but the comma, which ends the attribute.
        if client_nonce.is_empty() || !client_nonce.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Failed::Malformed("non-printable characters in SCRAM nonce"));
        }
        let nonce = format!("{client_nonce}{}", self.nonce.0);
        let (salt, iterations) = self.credentials.verifier.parameters();
        let server_first = format!("r={nonce},s={salt},i={iterations}");
        let challenge = Challenge {
            credentials: self.credentials,
            binding: STANDARD.encode(binding),
            nonce,
            messages: format!("{bare},{server_first}"),
        };
        Ok((challenge, server_first))
    }

    /// The channel binding that the client must repeat in its last message, by the flag in its first.
    fn binding(&self, flag: &str) -> Result<Vec<u8>, Failed> {
        let mut binding = format!("{flag},,").into_bytes();
        match (self.mechanism, flag, &self.end_point_hash) {
            (Mechanism::Plain, "n", _) | (Mechanism::Plain, "y", None) => Ok(binding),
            (Mechanism::Plain, "y", Some(_)) => Err(Failed::Downgraded),
            (Mechanism::Plus, END_POINT_FLAG, Some(hash)) => {
                binding.extend_from_slice(hash);
                Ok(binding)
            }
            (Mechanism::Plus, "n" | "y", _) => Err(Failed::Malformed(
                "the client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include \
                 channel binding data",
            )),
            (Mechanism::Plain, flag, _) if flag.starts_with("p=") => Err(Failed::Malformed(
                "the client selected SCRAM-SHA-256 without channel binding, but the SCRAM message \
                 includes channel binding data",
            )),
            (Mechanism::Plus, flag, _) if flag.starts_with("p=") => {
                Err(Failed::NotSupported("unsupported SCRAM channel-binding type"))
            }
            _ => Err(Failed::Malformed("unexpected channel-binding flag")),
        }
    }
}

/// An exchange that waits for the client's last message.
#[derive(Clone, Debug)]
pub struct Challenge {
    credentials: Credentials,
    /// The value that `c` must have.
    binding: String,
    /// The value that `r` must have.
    nonce: String,
    /// The beginning of AuthMessage.
    messages: String,
}

impl Challenge {
    /// Tests the client's proof; returns the server's last message, which proves the server to the client.
    ///
    /// # Errors
    /// When the message is malformed or belongs to another exchange or connection, or the proof is wrong.
    pub fn last(self, message: &[u8]) -> Result<String, Failed> {
        let message = text(message)?;
        let Some((signed, proof)) = message.rsplit_once(",p=") else {
            return Err(Failed::Malformed("the client-final-message has no proof"));
        };
        let mut attributes = Attributes::new(signed);
        let binding = attributes.take('c')?;
        let nonce = attributes.take('r')?;
        attributes.skip_extensions()?;
        let Some(proof) = Key::decode(proof) else {
            return Err(Failed::Malformed("malformed proof in the client-final-message"));
        };
        if binding != self.binding {
            return Err(Failed::Binding);
        }
        if nonce != self.nonce {
            return Err(Failed::Nonce);
        }
        // From here to the end the time does not depend on the user, nor on the proof.
        let Credentials { verifier, is_mock } = &self.credentials;
        let auth_message = [self.messages.as_bytes(), b",", signed.as_bytes()];
        let client_key = proof.xor(&verifier.stored_key().sign(&auth_message));
        let is_match = client_key.hash().equals(verifier.stored_key()) & !*is_mock;
        let signature = verifier.server_key().sign(&auth_message);
        if bool::from(is_match) {
            Ok(format!("v={}", signature.encode()))
        } else {
            Err(Failed::Password)
        }
    }
}

/// A message as text.
fn text(message: &[u8]) -> Result<&str, Failed> {
    match std::str::from_utf8(message) {
        Ok("") => Err(Failed::Malformed("the message is empty")),
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(Failed::Malformed("the message is not UTF-8 text")),
    }
}

/// The attributes of a message that are still unread, such as `r=abc`.
struct Attributes<'a>(Split<'a, char>);

impl<'a> Attributes<'a> {
    fn new(text: &'a str) -> Self {
        Self(text.split(','))
    }

    /// The value of the next attribute, which must have this name.
    fn take(&mut self, name: char) -> Result<&'a str, Failed> {
        let attribute = self.0.next().and_then(|attribute| attribute.strip_prefix(name));
        let value = attribute.and_then(|attribute| attribute.strip_prefix('='));
        value.ok_or(Failed::Malformed("an expected attribute is missing"))
    }

    /// Skips optional extensions, which a server that does not know them must ignore.
    fn skip_extensions(self) -> Result<(), Failed> {
        for attribute in self.0 {
            match attribute.as_bytes() {
                [name, b'=', ..] if name.is_ascii_alphabetic() => {}
                _ => return Err(Failed::Malformed("malformed attribute")),
            }
        }
        Ok(())
    }
}
