//! New tokens: random texts, of which the catalog keeps a hash and a verifier.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use partita_frontend::SqlError;
use partita_frontend::access::authenticator::verifier_of;
use partita_frontend::access::random;
use partita_proto::access::{AccessChange, Mode, Permission, Permit, Role, Scope, Token};
use partita_proto::id::OrgId;
use sha2::{Digest, Sha256};

use super::client::Client;
use crate::door::now_ns;

/// Random bytes of a token's text: 64 characters.
const TEXT_BYTES: usize = 48;

/// A token to create.
pub(super) struct NewToken {
    pub(super) description: String,
    pub(super) owner: Arc<Role>,
    pub(super) org: Option<OrgId>,
    pub(super) expires_ms: Option<i64>,
    pub(super) enabled: bool,
    pub(super) permissions: Vec<Permission>,
    /// The text, if the client has chosen one.
    pub(super) text: Option<String>,
}

impl NewToken {
    /// A token with all rights of its owner, without an end.
    pub(super) fn whole(description: impl Into<String>, owner: Arc<Role>) -> Self {
        Self {
            description: description.into(),
            owner,
            org: None,
            expires_ms: None,
            enabled: true,
            permissions: vec![Permission { mode: Mode::Both, scope: Scope::Everything }],
            text: None,
        }
    }
}

/// Creates a token; the text is nowhere else. `permit` is that to create tokens of the owner.
///
/// # Errors
/// When the permissions are invalid, and those of meta.
pub(super) async fn create(
    client: &Client<'_>,
    permit: &Permit,
    new: NewToken,
) -> Result<(Token, String), SqlError> {
    let text = match new.text {
        Some(text) => text,
        None => URL_SAFE_NO_PAD.encode(random::bytes::<TEXT_BYTES>()?),
    };
    let secret = text.clone();
    // It takes some milliseconds.
    let verifier = tokio::task::spawn_blocking(move || verifier_of(&secret)).await;
    let verifier = verifier.map_err(|_| SqlError::internal("the verifier was not computed"))??;
    let token = Token {
        id: client.new_token_id()?,
        sha256: Sha256::digest(text.as_bytes()).into(),
        verifier,
        description: new.description,
        owner: new.owner.id,
        org: new.org,
        created_ms: now_ms(),
        expires_ms: new.expires_ms,
        enabled: new.enabled,
        permissions: new.permissions,
    };
    token.validate()?;
    client.change_access(permit, AccessChange::CreateToken(Box::new(token.clone()))).await?;
    Ok((token, text))
}

/// Milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    now_ns() / 1_000_000
}
