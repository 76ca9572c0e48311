//! SCRAM verifiers: the keys that a server keeps instead of a password, in PostgreSQL's form.
//!
//! ```text
//!   SaltedPassword = Hi(SASLprep(password), salt, iterations)
//!   StoredKey      = SHA256(HMAC(SaltedPassword, "Client Key"))     tests the proof of a client
//!   ServerKey      = HMAC(SaltedPassword, "Server Key")             proves the server to a client
//!
//!   SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey               salt and keys in base64
//! ```
//!
//! A verifier does not let its owner sign in, but allows passwords to be guessed offline, so it is a secret too.
//!
//! Invariant: the password, SaltedPassword and ClientKey do not outlive the call that computes them.
//!
//! Sources: RFC 5802, RFC 7677; PostgreSQL's `scram-common.c` and `saslprep.c`.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};
use zeroize::{Zeroize, Zeroizing};

/// The name of the scheme in a verifier's text.
const SCHEME: &str = "SCRAM-SHA-256";
/// Iterations of a new verifier, as in PostgreSQL; the minimum of RFC 7677.
pub const ITERATIONS: NonZeroU32 =
    NonZeroU32::new(4096).expect("the number of iterations is not zero");
/// Maximum iterations that a server computes itself: about a second. A client may set any verifier for itself.
const ITERATIONS_MAX: NonZeroU32 =
    NonZeroU32::new(1_000_000).expect("the number of iterations is not zero");
/// Length of a new salt in bytes, as in PostgreSQL.
pub const SALT_BYTES: usize = 16;
/// Maximum length of a salt in bytes; other tools than PostgreSQL make longer ones than it.
const SALT_BYTES_MAX: usize = 256;
/// Length of SHA-256 in bytes.
const KEY_BYTES: usize = 32;
/// Length of a key in base64.
const KEY_TEXT_BYTES: usize = KEY_BYTES.div_ceil(3) * 4;

/// A secret of 32 bytes: compared in constant time, wiped when dropped, redacted in debug output.
#[derive(Clone)]
pub struct Key([u8; KEY_BYTES]);

impl Key {
    /// Takes the bytes of a secret.
    pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// Reads base64; `None` unless it is canonical and of the right length.
    pub fn decode(text: &str) -> Option<Self> {
        if text.len() != KEY_TEXT_BYTES {
            return None;
        }
        let bytes = Zeroizing::new(STANDARD.decode(text).ok()?);
        <[u8; KEY_BYTES]>::try_from(bytes.as_slice()).ok().map(Self)
    }

    /// Writes base64.
    pub fn encode(&self) -> String {
        STANDARD.encode(self.0.as_slice())
    }

    /// HMAC-SHA-256 of a message in parts, with this key.
    pub fn sign(&self, parts: &[&[u8]]) -> Self {
        let mut mac = keyed(&self.0);
        for part in parts {
            mac.update(part);
        }
        Self::from_mac(mac)
    }

    /// The bytes of [`Key::sign`], for a digest that is no secret.
    pub(crate) fn digest(&self, parts: &[&[u8]]) -> [u8; KEY_BYTES] {
        self.sign(parts).0
    }

    /// SHA-256 of the key.
    pub fn hash(&self) -> Self {
        Self(Sha256::digest(self.0.as_slice()).into())
    }

    /// The bitwise exclusive or with another key.
    pub fn xor(mut self, other: &Self) -> Self {
        for (byte, operand) in self.0.iter_mut().zip(&other.0) {
            *byte ^= operand;
        }
        self
    }

    /// Compares in constant time.
    pub fn equals(&self, other: &Self) -> Choice {
        self.0.as_slice().ct_eq(other.0.as_slice())
    }

    fn from_mac(mac: Hmac<Sha256>) -> Self {
        Self(mac.finalize().into_bytes().into())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key(redacted)")
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// The keys that test a password, with the parameters to derive them from it.
#[derive(Clone, Debug)]
pub struct Verifier {
    iterations: NonZeroU32,
    salt: Vec<u8>,
    stored_key: Key,
    server_key: Key,
}

impl Verifier {
    /// Derives the keys from a password; takes as long as `iterations` computations of HMAC. The salt must be random.
    pub fn new(password: &str, salt: [u8; SALT_BYTES], iterations: NonZeroU32) -> Self {
        let salted_password = hi(prepared(password).as_bytes(), &salt, iterations);
        Self {
            iterations,
            salt: salt.to_vec(),
            stored_key: salted_password.sign(&[b"Client Key"]).hash(),
            server_key: salted_password.sign(&[b"Server Key"]),
        }
    }

    /// Number of iterations that derive the keys.
    pub fn iterations(&self) -> NonZeroU32 {
        self.iterations
    }

    /// Tests a password; takes as long as [`Verifier::new`], whether or not it is right. No password is right for a
    /// verifier of more iterations than the server computes.
    pub(super) fn matches(&self, password: &str) -> Choice {
        let iterations = self.iterations.min(ITERATIONS_MAX);
        let salted_password = hi(prepared(password).as_bytes(), &self.salt, iterations);
        salted_password.sign(&[b"Client Key"]).hash().equals(&self.stored_key)
    }

    /// Keys in place of those of a user who has none. Their parameters are the same for each attempt, because a salt
    /// that changes would tell that the user does not exist.
    pub(super) fn mock(secret: &Key, user: &str) -> Self {
        let digest = secret.sign(&[user.as_bytes()]);
        Self {
            iterations: ITERATIONS,
            salt: digest.0[..SALT_BYTES].to_vec(),
            stored_key: Key([0; KEY_BYTES]),
            server_key: Key([0; KEY_BYTES]),
        }
    }

    /// Reads a verifier's text; `None` if it is something else, such as a password.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(SCHEME)?.strip_prefix('$')?;
        let (parameters, keys) = rest.split_once('$')?;
        let (iterations, salt) = parameters.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        // A number may not have the sign that `parse` would accept.
        if !iterations.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        if salt.len() > SALT_BYTES_MAX.div_ceil(3) * 4 {
            return None;
        }
        let salt = STANDARD.decode(salt).ok()?;
        if !(1..=SALT_BYTES_MAX).contains(&salt.len()) {
            return None;
        }
        Some(Self {
            iterations: iterations.parse().ok()?,
            salt,
            stored_key: Key::decode(stored_key)?,
            server_key: Key::decode(server_key)?,
        })
    }

    /// Writes the text that [`Verifier::parse`] reads.
    pub fn encode(&self) -> Zeroizing<String> {
        Zeroizing::new(format!(
            "{SCHEME}${}:{}${}:{}",
            self.iterations,
            STANDARD.encode(&self.salt),
            self.stored_key.encode(),
            self.server_key.encode()
        ))
    }

    /// The parameters of the derivation as a client gets them: the salt in base64, and the number of iterations.
    pub(super) fn parameters(&self) -> (String, NonZeroU32) {
        (STANDARD.encode(&self.salt), self.iterations)
    }

    /// The key that tests the proof of a client.
    pub(super) fn stored_key(&self) -> &Key {
        &self.stored_key
    }

    /// The key that signs the server's last message.
    pub(super) fn server_key(&self) -> &Key {
        &self.server_key
    }
}

/// A password as SASLprep normalizes it; without change if it is prohibited or nothing remains, as in PostgreSQL.
fn prepared(password: &str) -> Zeroizing<String> {
    let normalized = stringprep::saslprep(password).ok().filter(|text| !text.is_empty());
    Zeroizing::new(normalized.map_or_else(|| password.to_owned(), Cow::into_owned))
}

/// The function `Hi` of RFC 5802: the first block of PBKDF2.
fn hi(password: &[u8], salt: &[u8], iterations: NonZeroU32) -> Key {
    let mac = keyed(password);
    let first = mac.clone().chain_update(salt).chain_update(1_u32.to_be_bytes());
    let mut block = Key::from_mac(first);
    let mut sum = block.clone();
    for _ in 1..iterations.get() {
        block = Key::from_mac(mac.clone().chain_update(block.0.as_slice()));
        sum = sum.xor(&block);
    }
    sum
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Made by PostgreSQL 15: `SELECT rolpassword FROM pg_authid`.
    const POSTGRES: [(&str, &str); 5] = [
        (
            "correct horse",
            "SCRAM-SHA-256$4096:7N90QYc9GfhwheZ+oyuuhg==$eja7m8J42ZVX+kndd2KhyHGrLylvjTsGG+/9PoKfb0s=:QDsNuSnupvtOZgCVeq4ao6z3w/oOblEAILG5+Jx1rgg=",
        ),
        // Normalized to "IX IX".
        (
            "I\u{ad}X\u{a0}\u{2168}",
            "SCRAM-SHA-256$4096:qcJQgK5oMKfB2nznjFaB+Q==$zai93nJcQjcU4VdLfschBLEvsYDwTpzs8gFk1/mohfE=:vj/u35PreQzmfoj85i+YjpEOnV1Opm5Qg912QQADdT0=",
        ),
        // Normalized to nothing, so the text itself is used.
        (
            "\u{ad}",
            "SCRAM-SHA-256$4096:GpZs7tiTfmrZkZxRRE+0zQ==$fKgkogjDshFa7m77oK5/jVEifLwHjSkMPsbTVcIl0sc=:Ph9G35mE0vjyRKl/miVLmdZMPnuidkPcLr126eqXh6k=",
        ),
        // Prohibited, so the text itself is used.
        (
            "x\u{7}\u{e9}",
            "SCRAM-SHA-256$4096:M6IZUZI7t5d90m9cbp5viQ==$7BpV+g4BWoTgU+8gjgSQsOA83OTKiY+C7ieQRI2AhZc=:6aIarbGEzSKF/CvLX+UBgolQFc5+IDIESIfpSG6XYFA=",
        ),
        // Normalized to "a".
        (
            "\u{aa}",
            "SCRAM-SHA-256$4096:yD+xWA1nhYPP1yMWL3EYng==$dGRZUyti4OuitChounCJ3Qfs4I4KFxUVFNf0IT7CgmQ=:Vt2oHWc8zeO7fK+xpDlmJN3AeinjWCAd3V5634HZv2o=",
        ),
    ];

    #[test]
    fn verifiers_are_those_of_postgres() {
        for (password, text) in POSTGRES {
            let parsed = Verifier::parse(text).expect(text);
            assert_eq!(parsed.encode().as_str(), text);
            let salt = parsed.salt.as_slice().try_into().unwrap();
            let derived = Verifier::new(password, salt, parsed.iterations);
            assert_eq!(derived.encode().as_str(), text, "{password:?}");
        }
    }

    #[test]
    fn a_password_matches_its_verifier_only() {
        for (password, text) in POSTGRES {
            let verifier = Verifier::parse(text).expect(text);
            assert!(bool::from(verifier.matches(password)), "{password:?}");
            assert!(!bool::from(verifier.matches(&format!("{password}x"))), "{password:?}");
        }
    }

    #[test]
    fn other_text_is_no_verifier() {
        let (_, text) = POSTGRES[0];
        let key = "eja7m8J42ZVX+kndd2KhyHGrLylvjTsGG+/9PoKfb0s=";
        let others = [
            String::new(),
            "secret".to_owned(),
            "md5a3556571e93b0d20722ba62be61e8c2d".to_owned(),
            text[1..].to_owned(),
            text[..text.len() - 1].to_owned(),
            format!("{text} "),
            format!("{text}:{key}"),
            format!("{text}${key}"),
            text.replace("SHA-256", "SHA-1"),
            text.replace("4096", "0"),
            text.replace("4096", "+4096"),
            text.replace("4096", "-1"),
            text.replace("4096", ""),
            text.replace("4096", "4294967296"),
            text.replace("7N90QYc9GfhwheZ+oyuuhg==", ""),
            text.replace("7N90QYc9GfhwheZ+oyuuhg==", "7N90QYc9GfhwheZ+oyuuhg"),
            text.replace("7N90QYc9GfhwheZ+oyuuhg==", &"AAAA".repeat(100)),
            // The last character of a key has bits that mean nothing.
            text.replace("PoKfb0s=", "PoKfb0t="),
            text.replace(key, "AAAA"),
            text.replace(key, ""),
        ];
        for other in others {
            assert!(Verifier::parse(&other).is_none(), "{other:?}");
        }
    }

    #[test]
    fn debug_output_has_no_keys() {
        let verifier = Verifier::parse(POSTGRES[0].1).unwrap();
        let output = format!("{verifier:?}");
        assert!(
            output.contains("stored_key: Key(redacted), server_key: Key(redacted)"),
            "{output}"
        );
        assert_eq!(format!("{:?}", verifier.encode()), "Zeroizing { .. }");
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "\\PC*") {
            prop_assert!(Verifier::parse(&text).is_none());
        }

        #[test]
        fn nearly_right_text_is_read_without_a_panic(
            iterations in "[0-9+-]{0,12}",
            salt in "[A-Za-z0-9+/=]{0,30}",
            key in "[A-Za-z0-9+/=$:]{0,50}",
        ) {
            let text = format!("SCRAM-SHA-256${iterations}:{salt}${key}:{key}");
            if let Some(verifier) = Verifier::parse(&text) {
                prop_assert!(Verifier::parse(&verifier.encode()).is_some());
            }
        }
    }
}
