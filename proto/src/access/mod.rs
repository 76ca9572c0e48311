//! Roles, grants, tokens and organisations, and the one check of what an identity may do.
//!
//! ```text
//!   door ── authenticates ──▶ Identity ──┐
//!   statement, route ───────▶ [Need] ────┤
//!   meta ── publishes ──────▶ Access ────┴─▶ check ─▶ Permit, or Denied ─▶ Error ─▶ SQLSTATE
//! ```
//!
//! An [`Access`] is an immutable snapshot, as the catalog is: meta publishes a new one with every change, and frontends
//! check every statement against the newest one. A right that was revoked therefore ends with the next statement of
//! every open session.
//!
//! Invariants:
//! - anything unknown is denied: an unknown role or token, or an action that an object does not have, allows nothing;
//! - roles and tokens that are still being loaded are not unknown: whoever needs them waits (`late.rs`);
//! - secrets are never shown: neither `Debug` nor an error contains a verifier or a hash;
//! - a clone costs a few counters; an edit copies one chunk of roles or grants (`chunks.rs`), one of 256 buckets of names
//!   or tokens, or the map of organisations, and no other snapshot sees it.

mod change;
mod check;
mod chunks;
mod grant;
mod late;
mod org;
mod predicate;
mod role;
#[cfg(test)]
mod tests;
mod token;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use self::change::{AccessChange, RoleEdit, TokenEdit};
pub use self::check::{
    Denied, Door, EndReason, Identity, Need, Object, Permit, Sight, check, check_through, grantor,
    sight, sight_through, sights, visible,
};
pub use self::chunks::{Chunked, Chunks};
pub use self::grant::{Action, Actions, Grant, GrantEntry, Grantee, Revocation, Target};
use self::late::{Delivery, Late};
pub use self::org::{Org, Profile};
pub use self::predicate::{RowPredicate, Term};
pub use self::role::{Membership, Role, RoleMap, Verifier, validate_role_name};
pub use self::token::{Mode, Permission, Scope, Token};
use crate::id::{OrgId, RoleId, TokenId};

/// Number of buckets of tokens and of names: one for each value of a byte.
const BUCKETS: usize = 256;

/// SHA-256 of the text of a token.
pub type TokenHash = [u8; 32];

type Buckets<K, V> = Arc<Vec<Arc<BTreeMap<K, V>>>>;

/// Random keys of the cluster, made once with its first role.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Secrets {
    /// Key that derives the salts shown to users who do not exist, so that they look like those of users who do.
    pub mock_salts: [u8; 32],
    /// Key that signs the cookies of web sessions.
    pub cookies: [u8; 32],
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

/// Roles by id and name.
#[derive(Clone, PartialEq, Eq)]
struct Roles {
    by_id: RoleMap,
    /// By a byte that follows from the name.
    by_name: Buckets<String, RoleId>,
}

impl Default for Roles {
    fn default() -> Self {
        Self { by_id: RoleMap::default(), by_name: empty_buckets() }
    }
}

impl Roles {
    /// Removes the name of a role, unless another role has got it meanwhile.
    fn remove_name(&mut self, role: &Role) {
        let position = name_bucket(&role.name);
        if self.by_name[position].get(&role.name) == Some(&role.id) {
            bucket_mut(&mut self.by_name, position).remove(&role.name);
        }
    }
}

/// Tokens by hash and id.
#[derive(Clone, PartialEq, Eq)]
struct Tokens {
    /// By the first byte of the hash.
    by_hash: Buckets<TokenHash, Arc<Token>>,
    /// By the last byte of the id.
    hashes: Buckets<TokenId, TokenHash>,
}

impl Default for Tokens {
    fn default() -> Self {
        Self { by_hash: empty_buckets(), hashes: empty_buckets() }
    }
}

/// Snapshot of all roles, grants, organisations and tokens. By default there are none, and nobody may do anything.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// Version; grows with every change.
    pub version: u64,
    /// Random keys of the cluster.
    pub secrets: Secrets,
    roles: Late<Roles>,
    grants: Chunks<Target, Grant>,
    orgs: Arc<BTreeMap<OrgId, Arc<Org>>>,
    tokens: Late<Tokens>,
}

impl fmt::Debug for Access {
    /// Counts only: there may be 100,000 tokens. Those that are still being loaded are `None`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("version", &self.version)
            .field("roles", &self.roles.peek().map(|roles| roles.by_id.len()))
            .field("grants", &self.grants.len())
            .field("orgs", &self.orgs.len())
            .field("tokens", &self.tokens.peek().map(count))
            .finish_non_exhaustive()
    }
}

/// Number of tokens in all buckets.
fn count(tokens: &Tokens) -> usize {
    tokens.by_hash.iter().map(|bucket| bucket.len()).sum()
}

/// The loader's end of the roles and tokens that an [`Access`] waits for. Without them, dropping it releases the waiting
/// readers with no role and no token: nobody may do anything.
pub struct Arrival {
    roles: Delivery<Roles>,
    tokens: Delivery<Tokens>,
}

impl fmt::Debug for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arrival").finish_non_exhaustive()
    }
}

impl Arrival {
    /// Delivers the roles of a snapshot that has them.
    pub fn deliver_roles(&self, loaded: &Access) {
        self.roles.deliver(loaded.roles.get().clone());
    }

    /// Delivers the tokens of a snapshot that has them.
    pub fn deliver_tokens(&self, loaded: &Access) {
        self.tokens.deliver(loaded.tokens.get().clone());
    }
}

fn empty_buckets<K, V>() -> Buckets<K, V> {
    Arc::new((0..BUCKETS).map(|_| Arc::new(BTreeMap::new())).collect())
}

/// The position of the bucket of a token's hash.
fn hash_bucket(hash: &TokenHash) -> usize {
    usize::from(hash[0])
}

/// The position of the bucket of a token's id.
fn id_bucket(id: TokenId) -> usize {
    usize::from(id.get().to_be_bytes()[7])
}

/// The position of the bucket of a role's name.
fn name_bucket(name: &str) -> usize {
    usize::from(name.bytes().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte)))
}

/// One bucket, for an edit: other snapshots keep theirs.
fn bucket_mut<K: Clone, V: Clone>(
    buckets: &mut Buckets<K, V>,
    position: usize,
) -> &mut BTreeMap<K, V> {
    Arc::make_mut(&mut Arc::make_mut(buckets)[position])
}

impl Access {
    /// An access without roles, grants, organisations and tokens.
    #[must_use]
    pub fn new(version: u64, secrets: Secrets) -> Self {
        Self { version, secrets, ..Self::default() }
    }

    /// The access of a new cluster: the bootstrap superuser alone.
    #[must_use]
    pub fn bootstrap(superuser: &str, secrets: Secrets) -> Self {
        let mut access = Self::new(1, secrets);
        access.put_role(Role::bootstrap(superuser));
        access
    }

    /// Replaces roles and tokens by those that a loader delivers later. Until then, everything that reads or changes them
    /// blocks, here and in clones; clones themselves, grants and organisations do not.
    pub fn await_identities(&mut self) -> Arrival {
        let (roles, roles_delivery) = Late::awaited();
        let (tokens, tokens_delivery) = Late::awaited();
        (self.roles, self.tokens) = (roles, tokens);
        Arrival { roles: roles_delivery, tokens: tokens_delivery }
    }

    /// Blocks until roles and tokens are loaded.
    pub fn until_loaded(&self) {
        self.roles.get();
        self.tokens.get();
    }

    /// All roles, by id.
    #[must_use]
    pub fn roles(&self) -> &RoleMap {
        &self.roles.get().by_id
    }

    /// The role with this id.
    #[must_use]
    pub fn role(&self, id: RoleId) -> Option<&Arc<Role>> {
        self.roles().get(&id)
    }

    /// The role with this name, which is case-sensitive.
    #[must_use]
    pub fn role_by_name(&self, name: &str) -> Option<&Arc<Role>> {
        let roles = self.roles.get();
        roles.by_id.get(roles.by_name[name_bucket(name)].get(name)?)
    }

    /// Adds a role, or replaces the one with its id.
    pub fn put_role(&mut self, role: impl Into<Arc<Role>>) {
        let role: Arc<Role> = role.into();
        let roles = self.roles.get_mut();
        if let Some(former) = roles.by_id.get(&role.id).map(Arc::clone)
            && former.name != role.name
        {
            roles.remove_name(&former);
        }
        // Most edits keep the name: they must not copy its bucket.
        let position = name_bucket(&role.name);
        if roles.by_name[position].get(&role.name) != Some(&role.id) {
            bucket_mut(&mut roles.by_name, position).insert(role.name.clone(), role.id);
        }
        roles.by_id.insert(role.id, role);
    }

    /// Removes a role. Its grants and memberships stay, and mean nothing: ids are not reused.
    pub fn drop_role(&mut self, id: RoleId) {
        let roles = self.roles.get_mut();
        if let Some(role) = roles.by_id.remove(&id) {
            roles.remove_name(&role);
        }
    }

    /// True if `member` must not become a member of `group`, because `group` is a member of it or is the same role.
    #[must_use]
    pub fn would_cycle(&self, member: RoleId, group: RoleId) -> bool {
        role::would_cycle(self.roles(), member, group)
    }

    /// All grants, by object.
    pub fn grants(&self) -> impl Iterator<Item = &Arc<Grant>> {
        self.grants.values()
    }

    /// The grants on an object; `None` if there are none.
    #[must_use]
    pub fn grant(&self, target: Target) -> Option<&Arc<Grant>> {
        self.grants.get(&target)
    }

    /// Sets the grants on their object; without entries, removes them.
    pub fn put_grant(&mut self, grant: Grant) {
        if grant.entries().is_empty() {
            self.drop_grant(grant.target());
        } else {
            self.grants.insert(grant.target(), Arc::new(grant));
        }
    }

    /// Grants that another snapshot lacks, or has otherwise.
    pub(crate) fn grants_unlike<'a>(
        &'a self,
        other: &'a Self,
    ) -> impl Iterator<Item = &'a Arc<Grant>> {
        self.grants.unlike(&other.grants)
    }

    /// Removes the grants on an object that was dropped.
    pub fn drop_grant(&mut self, target: Target) {
        self.grants.remove(&target);
    }

    /// All organisations, by id.
    pub fn orgs(&self) -> impl Iterator<Item = &Arc<Org>> {
        self.orgs.values()
    }

    /// The organisation with this id.
    #[must_use]
    pub fn org(&self, id: OrgId) -> Option<&Arc<Org>> {
        self.orgs.get(&id)
    }

    /// The organisation with this name. A scan: there are few organisations.
    #[must_use]
    pub fn org_by_name(&self, name: &str) -> Option<&Arc<Org>> {
        self.orgs.values().find(|org| org.name == name)
    }

    /// Adds an organisation, or replaces the one with its id.
    pub fn put_org(&mut self, org: Org) {
        Arc::make_mut(&mut self.orgs).insert(org.id, Arc::new(org));
    }

    /// Removes an organisation.
    pub fn drop_org(&mut self, id: OrgId) {
        Arc::make_mut(&mut self.orgs).remove(&id);
    }

    /// All tokens, in no order that matters.
    pub fn tokens(&self) -> impl Iterator<Item = &Arc<Token>> {
        self.tokens.get().by_hash.iter().flat_map(|bucket| bucket.values())
    }

    /// Number of tokens.
    #[must_use]
    pub fn token_count(&self) -> usize {
        count(self.tokens.get())
    }

    /// The token with this hash, whether or not it is still valid.
    #[must_use]
    pub fn token_by_hash(&self, hash: &TokenHash) -> Option<&Arc<Token>> {
        self.tokens.get().by_hash[hash_bucket(hash)].get(hash)
    }

    /// The token with this id, whether or not it is still valid.
    #[must_use]
    pub fn token(&self, id: TokenId) -> Option<&Arc<Token>> {
        let hash = self.tokens.get().hashes[id_bucket(id)].get(&id)?;
        self.token_by_hash(hash).filter(|token| token.id == id)
    }

    /// Tokens that another snapshot lacks, or has otherwise. Buckets that both share are skipped.
    pub(crate) fn tokens_unlike<'a>(
        &'a self,
        other: &'a Self,
    ) -> impl Iterator<Item = &'a Arc<Token>> {
        let buckets = self.tokens.get().by_hash.iter().zip(other.tokens.get().by_hash.iter());
        let buckets = buckets.filter(|(ours, theirs)| !Arc::ptr_eq(ours, theirs));
        buckets.flat_map(|(ours, theirs)| {
            let is_shared = move |hash: &TokenHash, token: &Arc<Token>| {
                theirs.get(hash).is_some_and(|twin| Arc::ptr_eq(twin, token) || twin == token)
            };
            ours.iter().filter(move |(hash, token)| !is_shared(hash, token)).map(|(_, token)| token)
        })
    }

    /// Adds a token, or replaces the one with its id.
    pub fn put_token(&mut self, token: impl Into<Arc<Token>>) {
        let token: Arc<Token> = token.into();
        self.drop_token(token.id);
        let tokens = self.tokens.get_mut();
        bucket_mut(&mut tokens.hashes, id_bucket(token.id)).insert(token.id, token.sha256);
        let position = hash_bucket(&token.sha256);
        bucket_mut(&mut tokens.by_hash, position).insert(token.sha256, token);
    }

    /// Removes a token.
    pub fn drop_token(&mut self, id: TokenId) {
        let tokens = self.tokens.get_mut();
        let position = id_bucket(id);
        // Most calls precede the insertion of a new token: they must not copy its bucket.
        let Some(hash) = tokens.hashes[position].get(&id).copied() else { return };
        bucket_mut(&mut tokens.hashes, position).remove(&id);
        bucket_mut(&mut tokens.by_hash, hash_bucket(&hash)).remove(&hash);
    }
}
