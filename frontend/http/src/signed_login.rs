//! Signed logins: what a web page's cookie, and the token of a Flight handshake, prove later without their secret.
//!
//! ```text
//!   text = "v1." base64url( login | HMAC-SHA-256(key, domain | login) )
//!   login = purpose, role, token, secret version, expiry, nonce
//! ```
//!
//! The key is the cluster's, so that every frontend accepts the logins of the others. There is no list of logins: one
//! ends when it expires, when the role's password changes, or when the role or token is no longer valid.
//!
//! Invariants: a login of one purpose is not accepted for another; nothing is signed or accepted before meta has
//! published a key; signatures are compared in constant time.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use partita_proto::access::{Access, Door, Identity};
use partita_proto::id::{RoleId, TokenId};
use sha2::Sha256;
use uuid::Uuid;

/// Beginning of every text, by which it is told from an API token.
const PREFIX: &str = "v1.";
/// Domains of signatures under the one key.
const LOGIN_DOMAIN: &[u8] = b"partita login\0";
const CSRF_DOMAIN: &[u8] = b"partita csrf\0";
const NONCE_BYTES: usize = 16;
/// Purpose, role, token, secret version, expiry, nonce.
const LOGIN_BYTES: usize = 1 + 4 + 8 + 8 + 8 + NONCE_BYTES;
const SIGNATURE_BYTES: usize = 32;

/// Use that a login is signed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Cookie of a web page.
    Page = 1,
    /// Bearer token of a Flight handshake.
    Flight = 2,
}

/// Identity that signed in, and the time at which that ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SignedLogin {
    purpose: Purpose,
    role: RoleId,
    token: Option<TokenId>,
    secret_version: u64,
    /// Seconds since 1970.
    expires_s: u64,
    nonce: [u8; NONCE_BYTES],
}

impl SignedLogin {
    /// A new login of an identity.
    pub(crate) fn new(purpose: Purpose, identity: &Identity, expires_s: u64) -> Self {
        Self {
            purpose,
            role: identity.login,
            token: identity.token,
            secret_version: identity.secret_version,
            expires_s,
            nonce: Uuid::new_v4().into_bytes(),
        }
    }

    /// The text for the client; `None` while there is no key.
    pub(crate) fn sign(&self, key: &[u8; 32]) -> Option<String> {
        let bytes = self.to_bytes();
        let signature = keyed(key, LOGIN_DOMAIN, &bytes)?.finalize().into_bytes();
        let signed = [bytes.as_slice(), signature.as_slice()].concat();
        Some(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(signed)))
    }

    /// The login that a text proves; `None` if the text was not signed with this key, is for another purpose, or has
    /// expired.
    pub(crate) fn verify(key: &[u8; 32], purpose: Purpose, text: &str, now_s: u64) -> Option<Self> {
        let signed = URL_SAFE_NO_PAD.decode(text.strip_prefix(PREFIX)?).ok()?;
        if signed.len() != LOGIN_BYTES + SIGNATURE_BYTES {
            return None;
        }
        let (bytes, signature) = signed.split_at(LOGIN_BYTES);
        keyed(key, LOGIN_DOMAIN, bytes)?.verify_slice(signature).ok()?;
        let login = Self::from_bytes(bytes)?;
        (login.purpose == purpose && now_s < login.expires_s).then_some(login)
    }

    /// The identity, if the role's password or the token is still the same. Its rights are checked elsewhere.
    pub(crate) fn identity(&self, access: &Access, door: Door) -> Option<Identity> {
        if let Some(id) = self.token {
            let token = access.token(id)?;
            return (token.owner == self.role).then(|| Identity::of_token(token, door));
        }
        let role = access.role(self.role)?;
        (role.secret_version == self.secret_version).then(|| Identity::of_role(role, door))
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LOGIN_BYTES);
        bytes.push(self.purpose as u8);
        bytes.extend(self.role.0.to_be_bytes());
        bytes.extend(self.token.map_or(0, TokenId::get).to_be_bytes());
        bytes.extend(self.secret_version.to_be_bytes());
        bytes.extend(self.expires_s.to_be_bytes());
        bytes.extend(self.nonce);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (purpose, rest) = bytes.split_first()?;
        let (role, rest) = rest.split_first_chunk::<4>()?;
        let (token, rest) = rest.split_first_chunk::<8>()?;
        let (secret_version, rest) = rest.split_first_chunk::<8>()?;
        let (expires_s, nonce) = rest.split_first_chunk::<8>()?;
        let purpose = match purpose {
            1 => Purpose::Page,
            2 => Purpose::Flight,
            _ => return None,
        };
        Some(Self {
            purpose,
            role: RoleId(u32::from_be_bytes(*role)),
            token: TokenId::new(u64::from_be_bytes(*token)),
            secret_version: u64::from_be_bytes(*secret_version),
            expires_s: u64::from_be_bytes(*expires_s),
            nonce: nonce.try_into().ok()?,
        })
    }
}

/// The CSRF token of a cookie's text; `None` while there is no key.
pub(crate) fn csrf_token(key: &[u8; 32], cookie: &str) -> Option<String> {
    let signature = keyed(key, CSRF_DOMAIN, cookie.as_bytes())?.finalize().into_bytes();
    Some(URL_SAFE_NO_PAD.encode(signature))
}

/// True if a CSRF token belongs to a cookie's text.
pub(crate) fn is_csrf_token(key: &[u8; 32], cookie: &str, token: &str) -> bool {
    let Ok(signature) = URL_SAFE_NO_PAD.decode(token) else { return false };
    let mac = keyed(key, CSRF_DOMAIN, cookie.as_bytes());
    mac.is_some_and(|mac| mac.verify_slice(&signature).is_ok())
}

/// A signature that waits for its end. A key of zeros is that of an access that meta has not published yet.
fn keyed(key: &[u8; 32], domain: &[u8], bytes: &[u8]) -> Option<Hmac<Sha256>> {
    if key.iter().all(|byte| *byte == 0) {
        return None;
    }
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(domain);
    mac.update(bytes);
    Some(mac)
}

#[cfg(test)]
mod tests {
    use partita_proto::access::{Role, Secrets};
    use partita_proto::id::BOOTSTRAP_ROLE;

    use super::*;

    const KEY: [u8; 32] = [7; 32];
    const NOW: u64 = 1_800_000_000;

    fn access() -> Access {
        Access::bootstrap("partita", Secrets { cookies: KEY, ..Secrets::default() })
    }

    fn login(purpose: Purpose) -> SignedLogin {
        let identity = Identity::of_role(access().role(BOOTSTRAP_ROLE).unwrap(), Door::Http);
        SignedLogin::new(purpose, &identity, NOW + 60)
    }

    #[test]
    fn a_login_is_accepted_until_it_expires_and_for_its_purpose_only() {
        let login = login(Purpose::Page);
        let text = login.sign(&KEY).unwrap();
        let verify = |purpose, now_s| SignedLogin::verify(&KEY, purpose, &text, now_s);
        assert_eq!(verify(Purpose::Page, NOW).as_ref(), Some(&login));
        assert_eq!(verify(Purpose::Page, NOW + 60), None);
        assert_eq!(verify(Purpose::Flight, NOW), None);
    }

    #[test]
    fn a_changed_text_or_another_key_is_refused() {
        let text = login(Purpose::Page).sign(&KEY).unwrap();
        let signed = URL_SAFE_NO_PAD.decode(text.strip_prefix(PREFIX).unwrap()).unwrap();
        for position in 0..signed.len() {
            let mut forged = signed.clone();
            forged[position] ^= 1;
            let forged = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(forged));
            assert_eq!(SignedLogin::verify(&KEY, Purpose::Page, &forged, NOW), None, "{position}");
        }
        assert_eq!(SignedLogin::verify(&[8; 32], Purpose::Page, &text, NOW), None);
        for forged in
            ["", "v1.", "v1.!!", &text[3..], &format!("{text}AA"), &text[..text.len() - 4]]
        {
            assert_eq!(SignedLogin::verify(&KEY, Purpose::Page, forged, NOW), None, "{forged}");
        }
    }

    #[test]
    fn nothing_is_signed_without_a_key() {
        let zeros = [0; 32];
        assert_eq!(login(Purpose::Page).sign(&zeros), None);
        assert_eq!(csrf_token(&zeros, "x"), None);
        assert!(!is_csrf_token(&zeros, "x", ""));
    }

    #[test]
    fn a_changed_password_ends_a_login() {
        let login = login(Purpose::Page);
        let mut access = access();
        assert!(login.identity(&access, Door::Http).is_some());
        access.put_role(Role { secret_version: 1, ..Role::bootstrap("partita") });
        assert_eq!(login.identity(&access, Door::Http), None);
        access.drop_role(BOOTSTRAP_ROLE);
        assert_eq!(login.identity(&access, Door::Http), None);
    }

    #[test]
    fn a_csrf_token_belongs_to_one_cookie() {
        let text = login(Purpose::Page).sign(&KEY).unwrap();
        let token = csrf_token(&KEY, &text).unwrap();
        assert!(is_csrf_token(&KEY, &text, &token));
        let forgery = login(Purpose::Page).sign(&KEY).unwrap();
        assert!(!is_csrf_token(&KEY, &forgery, &token));
        assert!(!is_csrf_token(&KEY, &text, ""));
        assert!(!is_csrf_token(&KEY, &text, &text));
    }
}
