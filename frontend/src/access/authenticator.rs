//! Authentication of clients by all doors: passwords, tokens, SCRAM and client certificates.
//!
//! ```text
//!   PostgreSQL ── demand ──▶ Open, or Proof: admit, then the door tests the SCRAM proof, then succeeded ──▶ Login
//!   HTTP, Flight ── password, token ───▶ Identity
//!   every door ── lifetime ──▶ the error with which an open session ends
//! ```
//!
//! A user is a role, or a token by the 16 digits of its id. The text of a token is also a password, whatever user it
//! comes with, except over SCRAM, where the server never sees it.
//!
//! While the bootstrap superuser has never had a password the cluster is open: a client that names neither a role nor a
//! token is that superuser, and a role without a password is taken at its word. Doors must then be reachable by
//! trusted clients only.
//!
//! Invariants:
//! - a user who does not exist, has no password or may not log in takes the same steps as one with another password,
//!   and gets the same error;
//! - a password is tested only after the limiter of failures has admitted it. A right token is not limited, because it
//!   cannot be guessed;
//! - the same guess from the same network, sent several times at once, is charged and tested once;
//! - neither a password nor a token is kept: a password that was right is recognized by a digest under a random key.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use partita_proto::Error;
use partita_proto::access::{self, Access, Door, Identity, Role, Token, TokenHash};
use partita_proto::catalog::Catalog;
use partita_proto::id::{BOOTSTRAP_ROLE, TokenId};
use sha2::{Digest, Sha256};
use tokio::sync::{OnceCell, Semaphore, watch};
use zeroize::Zeroizing;

use super::failures::{Admission, Failures, Limits, network};
use super::peer;
use super::random;
use super::scram::{Credentials, ITERATIONS, Key, SALT_BYTES, Verifier};
pub use super::scram::{INVALID_AUTHORIZATION, INVALID_PASSWORD};
use crate::audit::{Audit, KnownName, Origin};
use crate::error::{INVALID_PARAMETER_VALUE, SqlError};

/// Passwords that are recognized without a test, in each of two generations.
const REMEMBERED_MAX: usize = 4_096;
/// Passwords that are tested at the same time. Each test keeps a core busy for milliseconds.
const TESTS_MAX: usize = 2;
/// Guesses in flight that others may share; further ones are tested by themselves.
const SHARED_MAX: usize = 4_096;
/// Maximum iterations of a verifier that a user gives: each test of a password takes that long.
const GIVEN_ITERATIONS_MAX: u32 = 100_000;
/// Maximum time between two looks at the clock before an identity expires: the clock may be set.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Name under which the limiter counts wrong tokens.
const TOKEN_NAME: &str = "";
/// Message of an attempt that the limiter refuses.
const TOO_MANY_FAILURES: &str = "too many failed authentication attempts";

/// An authenticated client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// Identity of the client.
    pub identity: Identity,
    /// Name of the role, or of the owner of the token.
    pub user: String,
}

impl Login {
    /// The login of a valid identity.
    fn of(access: &Access, identity: Identity, now_ms: i64) -> Option<Self> {
        let is_valid = access::check(access, &identity, now_ms, &[]).is_ok();
        let role = access.role(identity.login).filter(|_| is_valid)?;
        Some(Self { identity, user: role.name.clone() })
    }

    fn of_role(access: &Access, role: &Role, door: Door, now_ms: i64) -> Option<Self> {
        Self::of(access, Identity::of_role(role, door), now_ms)
    }

    fn of_token(access: &Access, token: &Token, door: Door, now_ms: i64) -> Option<Self> {
        Self::of(access, Identity::of_token(token, door), now_ms)
    }
}

/// The proof that a user has to give.
#[derive(Debug)]
pub enum Demand {
    /// None: the cluster is open.
    Open(Login),
    /// A password that matches the credentials; without a login, none does.
    Proof(Credentials, Option<Login>),
}

/// Passwords that were right, as digests: the newest ones, in two generations.
#[derive(Debug, Default)]
struct Remembered {
    newer: HashSet<[u8; 32]>,
    older: HashSet<[u8; 32]>,
}

impl Remembered {
    fn contains(&self, tag: &[u8; 32]) -> bool {
        self.newer.contains(tag) || self.older.contains(tag)
    }

    fn insert(&mut self, tag: [u8; 32]) {
        if self.newer.len() >= REMEMBERED_MAX {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(tag);
    }
}

/// A network, and the digest of a user and a password.
type Guess = (u128, [u8; 32]);

/// Whether a guess in flight is right, and the number of those that wait for it.
#[derive(Debug, Default)]
struct InFlight {
    is_right: Arc<OnceCell<bool>>,
    waiting: usize,
}

/// A share of a guess in flight, which is forgotten with its last share.
struct Share<'a> {
    guesses: &'a Mutex<HashMap<Guess, InFlight>>,
    /// `None`: nobody else has a share.
    guess: Option<Guess>,
    is_right: Arc<OnceCell<bool>>,
}

impl<'a> Share<'a> {
    fn of(guesses: &'a Mutex<HashMap<Guess, InFlight>>, guess: Guess) -> Self {
        let mut locked = guesses.lock();
        if locked.len() >= SHARED_MAX && !locked.contains_key(&guess) {
            return Self { guesses, guess: None, is_right: Arc::default() };
        }
        let in_flight = locked.entry(guess).or_default();
        in_flight.waiting += 1;
        let is_right = Arc::clone(&in_flight.is_right);
        Self { guesses, guess: Some(guess), is_right }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let Some(guess) = self.guess else { return };
        let mut locked = self.guesses.lock();
        if let Some(in_flight) = locked.get_mut(&guess) {
            in_flight.waiting -= 1;
            if in_flight.waiting == 0 {
                locked.remove(&guess);
            }
        }
    }
}

/// Authenticates clients by the newest roles and tokens.
pub struct Authenticator {
    catalogs: watch::Receiver<Arc<Catalog>>,
    failures: Mutex<Failures>,
    remembered: Mutex<Remembered>,
    in_flight: Mutex<HashMap<Guess, InFlight>>,
    /// Random key of the digests of passwords.
    key: Key,
    tests: Semaphore,
    audit: Arc<Audit>,
}

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authenticator")
    }
}

impl Authenticator {
    /// An authenticator that follows the catalog, and records all sign-ins.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn new(
        catalogs: watch::Receiver<Arc<Catalog>>,
        audit: Arc<Audit>,
    ) -> Result<Self, SqlError> {
        Ok(Self {
            catalogs,
            failures: Mutex::new(Failures::new(Limits::default())),
            remembered: Mutex::default(),
            in_flight: Mutex::default(),
            key: Key::new(random::bytes()?),
            tests: Semaphore::new(TESTS_MAX),
            audit,
        })
    }

    fn access(&self) -> Arc<Access> {
        Arc::clone(&self.catalogs.borrow().access)
    }

    /// True until the bootstrap superuser has had a password: then every client that names no role and no token is that
    /// superuser.
    pub fn is_open(&self) -> bool {
        is_open(&self.access())
    }

    /// The identity of a client without credentials; `None` unless the cluster is open.
    pub fn anonymous(&self, door: Door) -> Option<Identity> {
        let access = self.access();
        let identity = open_login(&access, door, now_ms())?.identity;
        self.audit.signed_in(&access, Origin { identity, peer: peer::current() });
        Some(identity)
    }

    /// The proof that a user has to give at a door.
    pub fn demand(&self, door: Door, user: &str) -> Demand {
        demand(&self.access(), door, user, now_ms())
    }

    /// The login of a role whose name is the common name of a verified client certificate.
    pub fn certified(&self, door: Door, user: &str, common_name: &str) -> Option<Login> {
        let access = self.access();
        let role = access.role_by_name(user).filter(|role| role.name == common_name)?;
        Login::of_role(&access, role, door, now_ms())
    }

    /// Asks the limiter of failures before a proof is tested, and charges the attempt. Returns the time to wait before
    /// the test.
    ///
    /// # Errors
    /// When the proof must not be tested.
    pub fn admit(&self, peer: IpAddr, user: &str) -> Result<Duration, SqlError> {
        match self.failures.lock().admit(peer, user, Instant::now()) {
            Admission::Now => Ok(Duration::ZERO),
            Admission::After(delay) => Ok(delay),
            Admission::Refused { retry_after } => {
                let seconds = retry_after.as_secs() + 1;
                Err(SqlError::new(INVALID_PASSWORD, TOO_MANY_FAILURES)
                    .with_hint(format!("Try again in {seconds} seconds.")))
            }
        }
    }

    /// Tells the limiter that an admitted proof was right.
    pub fn succeeded(&self, peer: IpAddr, user: &str) {
        self.failures.lock().succeeded(peer, user, Instant::now());
    }

    /// Records the result of a sign-in by a name. The door calls this when it has tested the proof itself.
    pub fn record(
        &self,
        door: Door,
        peer: IpAddr,
        user: &str,
        result: Result<&Identity, &SqlError>,
    ) {
        self.record_as(door, peer, |access| KnownName::of(access, user), result);
    }

    /// Records the result of a sign-in; `name` finds the name of one that failed.
    fn record_as(
        &self,
        door: Door,
        peer: IpAddr,
        name: impl FnOnce(&Access) -> KnownName,
        result: Result<&Identity, &SqlError>,
    ) {
        let access = self.access();
        match result {
            Ok(identity) => {
                self.audit.signed_in(&access, Origin { identity: *identity, peer: Some(peer) });
            }
            Err(error) => {
                let is_limited = error.message == TOO_MANY_FAILURES;
                self.audit.sign_in_failed((door, peer), name(&access), (error, is_limited));
            }
        }
    }

    /// Authenticates a client by a user and a password, or by the text of a token as the password.
    ///
    /// # Errors
    /// SQLSTATE 28P01 unless the password is right.
    pub async fn password(
        &self,
        door: Door,
        peer: IpAddr,
        user: &str,
        password: &str,
    ) -> Result<Identity, SqlError> {
        let result = self.by_password(door, peer, user, password).await;
        self.record(door, peer, user, result.as_ref());
        result
    }

    async fn by_password(
        &self,
        door: Door,
        peer: IpAddr,
        user: &str,
        password: &str,
    ) -> Result<Identity, SqlError> {
        let (access, now_ms) = (self.access(), now_ms());
        let token = access.token_by_hash(&hash(password));
        if let Some(token) = token
            && let Some(login) = Login::of_token(&access, token, door, now_ms)
        {
            return Ok(login.identity);
        }
        let (credentials, login) = match demand(&access, door, user, now_ms) {
            Demand::Open(login) if token.is_none() => return Ok(login.identity),
            // A token that is no longer valid does not become another identity.
            Demand::Open(_) => (mock(&access, user), None),
            Demand::Proof(credentials, login) => (credentials, login),
        };
        let tag = credentials.tag(&self.key, password);
        // The user too: another one may have the same verifier, and is charged by itself.
        let guess = self.key.digest(&[user.as_bytes(), &tag]);
        let share = Share::of(&self.in_flight, (network(peer), guess));
        let may_login = login.is_some();
        // An error is not shared: the next one that waits tries again.
        let guessing = || self.guess((peer, user), password, credentials, tag, may_login);
        let is_right = *share.is_right.get_or_try_init(guessing).await?;
        match login {
            Some(login) if is_right => Ok(login.identity),
            _ => Err(wrong_password(user)),
        }
    }

    /// Charges a guess, and tests it unless it is remembered. True if it is right and the user may log in.
    async fn guess(
        &self,
        (peer, user): (IpAddr, &str),
        password: &str,
        credentials: Credentials,
        tag: [u8; 32],
        may_login: bool,
    ) -> Result<bool, SqlError> {
        let delay = self.admit(peer, user)?;
        let is_known = may_login && self.remembered.lock().contains(&tag);
        if !is_known {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            if !self.test(credentials, password).await? || !may_login {
                return Ok(false);
            }
            self.remembered.lock().insert(tag);
        }
        self.succeeded(peer, user);
        Ok(true)
    }

    /// Authenticates a client by the text of a token.
    ///
    /// # Errors
    /// SQLSTATE 28P01 unless the token is valid.
    pub async fn token(&self, door: Door, peer: IpAddr, text: &str) -> Result<Identity, SqlError> {
        let result = self.by_token(door, peer, text).await;
        // A token that has expired is named, an unknown one is not.
        let name = |access: &Access| {
            let token = access.token_by_hash(&hash(text)).map(|token| token.id);
            KnownName { user: None, token }
        };
        self.record_as(door, peer, name, result.as_ref());
        result
    }

    async fn by_token(&self, door: Door, peer: IpAddr, text: &str) -> Result<Identity, SqlError> {
        let (access, now_ms) = (self.access(), now_ms());
        let login = match access.token_by_hash(&hash(text)) {
            Some(token) => Login::of_token(&access, token, door, now_ms),
            None => open_login(&access, door, now_ms),
        };
        if let Some(login) = login {
            return Ok(login.identity);
        }
        let delay = self.admit(peer, TOKEN_NAME)?;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        Err(SqlError::new(INVALID_PASSWORD, "token authentication failed"))
    }

    /// The error with which the sessions of an identity end; `None` while it is valid.
    pub fn ended(&self, identity: &Identity) -> Option<SqlError> {
        ended(&self.access(), identity, now_ms())
    }

    /// Watches for the end of an identity.
    pub fn lifetime(&self) -> Lifetime {
        Lifetime { catalogs: self.catalogs.clone(), last: None }
    }

    /// Tests a password on a thread for blocking work.
    async fn test(&self, credentials: Credentials, password: &str) -> Result<bool, SqlError> {
        let failed = |error: &dyn std::fmt::Display| {
            SqlError::internal(format!("could not test a password: {error}"))
        };
        let _place = self.tests.acquire().await.map_err(|error| failed(&error))?;
        let password = Zeroizing::new(password.to_owned());
        let test = tokio::task::spawn_blocking(move || credentials.matches(&password));
        test.await.map_err(|error| failed(&error))
    }
}

/// State of an identity when it was checked.
#[derive(Clone, Copy, Debug)]
struct Validity {
    version: u64,
    identity: Identity,
    /// Time at which the identity expires, milliseconds since 1970.
    end_ms: Option<i64>,
}

/// Watches for the end of one session's identity.
#[derive(Clone, Debug)]
pub struct Lifetime {
    catalogs: watch::Receiver<Arc<Catalog>>,
    last: Option<Validity>,
}

impl Lifetime {
    /// Waits until the identity is no longer valid; returns the error with which its session ends. May be dropped and
    /// called again; without a change it costs a look at the catalog.
    pub async fn ended(&mut self, identity: impl Fn() -> Identity) -> SqlError {
        loop {
            let (current, now_ms) = (identity(), now_ms());
            let access = Arc::clone(&self.catalogs.borrow_and_update().access);
            let is_same = |last: &Validity| {
                last.version == access.version
                    && last.identity == current
                    && last.end_ms.is_none_or(|end_ms| end_ms > now_ms)
            };
            let validity = match self.last.filter(is_same) {
                Some(validity) => validity,
                None => {
                    if let Some(error) = ended(&access, &current, now_ms) {
                        return error;
                    }
                    let end_ms = end_ms(&access, &current);
                    Validity { version: access.version, identity: current, end_ms }
                }
            };
            self.last = Some(validity);
            let remaining_ms = validity.end_ms.map(|end_ms| end_ms.saturating_sub(now_ms));
            let remaining = remaining_ms.and_then(|remaining| u64::try_from(remaining).ok());
            let wait = remaining.map_or(LOOK_AGAIN, Duration::from_millis).min(LOOK_AGAIN);
            tokio::select! {
                changed = self.catalogs.changed() => {
                    if changed.is_err() {
                        // The process is stopping.
                        std::future::pending::<()>().await;
                    }
                }
                () = tokio::time::sleep(wait), if validity.end_ms.is_some() => {}
            }
        }
    }
}

/// A verifier of a password, with a random salt.
///
/// # Errors
/// When the system has no random bytes.
pub fn verifier_of(password: &str) -> Result<access::Verifier, SqlError> {
    let salt: [u8; SALT_BYTES] = random::bytes()?;
    let verifier = Verifier::new(password, salt, ITERATIONS).encode();
    verifier.parse::<access::Verifier>().map_err(SqlError::from)
}

/// The verifier that a user gives in place of a password; `None` if the text is a password.
///
/// # Errors
/// When the verifier has too many iterations.
pub fn given_verifier(text: &str) -> Result<Option<access::Verifier>, SqlError> {
    let Ok(verifier) = text.parse::<access::Verifier>() else { return Ok(None) };
    let is_slow = |keys: Verifier| keys.iterations().get() > GIVEN_ITERATIONS_MAX;
    if Verifier::parse(text).is_some_and(is_slow) {
        let message =
            format!("a SCRAM-SHA-256 verifier has at most {GIVEN_ITERATIONS_MAX} iterations");
        return Err(SqlError::new(INVALID_PARAMETER_VALUE, message));
    }
    Ok(Some(verifier))
}

/// The error of a wrong password, and of a user who does not exist.
fn wrong_password(user: &str) -> SqlError {
    let message = format!("password authentication failed for user \"{user}\"");
    SqlError::new(INVALID_PASSWORD, message)
}

/// SHA-256 of a text, by which tokens are found.
fn hash(text: &str) -> TokenHash {
    Sha256::digest(text.as_bytes()).into()
}

fn now_ms() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}

fn is_open(access: &Access) -> bool {
    // A password that was removed does not open the cluster again.
    access
        .role(BOOTSTRAP_ROLE)
        .is_some_and(|role| role.verifier.is_none() && role.secret_version == 0)
}

fn open_login(access: &Access, door: Door, now_ms: i64) -> Option<Login> {
    let role = access.role(BOOTSTRAP_ROLE).filter(|_| is_open(access))?;
    Login::of_role(access, role, door, now_ms)
}

fn mock(access: &Access, user: &str) -> Credentials {
    Credentials::mock(&Key::new(access.secrets.mock_salts), user)
}

fn demand(access: &Access, door: Door, user: &str, now_ms: i64) -> Demand {
    let proof = |verifier: &access::Verifier, login: Option<Login>| match (
        Verifier::parse(verifier.expose()),
        login,
    ) {
        (Some(verifier), Some(login)) => Demand::Proof(Credentials::new(verifier), Some(login)),
        (Some(verifier), None) => Demand::Proof(Credentials::refused(verifier), None),
        (None, _) => Demand::Proof(mock(access, user), None),
    };
    if let Some(role) = access.role_by_name(user) {
        let login = Login::of_role(access, role, door, now_ms);
        return match (&role.verifier, login) {
            (Some(verifier), login) => proof(verifier, login),
            (None, Some(login)) if is_open(access) => Demand::Open(login),
            (None, _) => Demand::Proof(mock(access, user), None),
        };
    }
    if let Ok(id) = user.parse::<TokenId>()
        && let Some(token) = access.token(id)
    {
        return proof(&token.verifier, Login::of_token(access, token, door, now_ms));
    }
    match open_login(access, door, now_ms) {
        Some(login) => Demand::Open(login),
        None => Demand::Proof(mock(access, user), None),
    }
}

fn ended(access: &Access, identity: &Identity, now_ms: i64) -> Option<SqlError> {
    let denied = access::check(access, identity, now_ms, &[]).err()?;
    Some(Error::from(denied).into())
}

/// The time at which an identity expires, milliseconds since 1970.
fn end_ms(access: &Access, identity: &Identity) -> Option<i64> {
    let role_end = access.role(identity.login).and_then(|role| role.valid_until_ms);
    let token = identity.token.and_then(|token| access.token(token));
    let token_end = token.and_then(|token| token.expires_ms);
    role_end.into_iter().chain(token_end).min()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use partita_proto::access::{Mode, Permission, Scope, Secrets};
    use partita_proto::id::RoleId;

    use super::*;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const ANN: RoleId = RoleId(5);
    const TEXT: &str = "a long and random text";
    const TOKEN: &str = "00000000000000ab";
    const OTHER_TOKEN: &str = "00000000000000ac";

    fn role(id: RoleId, name: &str, password: Option<&str>) -> Role {
        let mut role = Role::new(id, name);
        role.login = true;
        role.verifier = password.map(|password| verifier_of(password).unwrap());
        role.secret_version = 1;
        role
    }

    fn token() -> Token {
        Token {
            id: TOKEN.parse().unwrap(),
            sha256: hash(TEXT),
            verifier: verifier_of(TEXT).unwrap(),
            description: String::new(),
            owner: ANN,
            org: None,
            created_ms: 0,
            expires_ms: None,
            enabled: true,
            permissions: vec![Permission { mode: Mode::Read, scope: Scope::AllBuckets }],
        }
    }

    /// The bootstrap superuser without a password, `ann` with one, `bob` without, and a token of `ann`.
    fn open_access() -> Access {
        let mut access = Access::bootstrap("partita", Secrets::default());
        access.put_role(role(ANN, "ann", Some("secret")));
        access.put_role(role(RoleId(6), "bob", None));
        access.put_token(token());
        access
    }

    /// The same with a password of the superuser.
    fn closed_access() -> Access {
        let mut access = open_access();
        access.put_role(Role {
            superuser: true,
            ..role(BOOTSTRAP_ROLE, "partita", Some("first password"))
        });
        access.version += 1;
        access
    }

    fn catalog(access: Access) -> Arc<Catalog> {
        Arc::new(Catalog { access: Arc::new(access), ..Catalog::default() })
    }

    fn over(access: Access) -> (watch::Sender<Arc<Catalog>>, Authenticator) {
        let sender = watch::Sender::new(catalog(access));
        let authenticator = Authenticator::new(sender.subscribe(), Arc::default()).unwrap();
        (sender, authenticator)
    }

    async fn enter(
        authenticator: &Authenticator,
        user: &str,
        password: &str,
    ) -> Result<Identity, SqlError> {
        authenticator.password(Door::Http, PEER, user, password).await
    }

    #[tokio::test]
    async fn a_role_gives_its_password_and_a_token_its_text() {
        let (_sender, authenticator) = over(closed_access());
        assert!(!authenticator.is_open());
        assert_eq!(authenticator.anonymous(Door::Http), None);
        // The second time by the digest.
        for _ in 0..2 {
            let identity = enter(&authenticator, "ann", "secret").await.unwrap();
            assert_eq!((identity.login, identity.token), (ANN, None));
        }
        assert_eq!(authenticator.remembered.lock().newer.len(), 1);
        let by_password = enter(&authenticator, "anything", TEXT).await.unwrap();
        assert_eq!((by_password.login, by_password.token), (ANN, Some(TOKEN.parse().unwrap())));
        let by_text = authenticator.token(Door::Http, PEER, TEXT).await.unwrap();
        assert_eq!(by_text, by_password);
        assert!(authenticator.token(Door::Http, PEER, "another text").await.is_err());
    }

    #[tokio::test]
    async fn the_same_guess_at_the_same_time_is_charged_once() {
        let (_sender, authenticator) = over(closed_access());
        let attempts = (0..50).map(|_| enter(&authenticator, "ann", "secret"));
        for identity in futures::future::join_all(attempts).await {
            assert_eq!(identity.unwrap().login, ANN);
        }
        let attempts = (0..50).map(|_| enter(&authenticator, "nobody", "secret"));
        for identity in futures::future::join_all(attempts).await {
            assert_eq!(identity, Err(wrong_password("nobody")));
        }
        assert!(authenticator.in_flight.lock().is_empty());
    }

    #[tokio::test]
    async fn everything_wrong_gets_the_same_error() {
        let mut access = closed_access();
        let past = Role { valid_until_ms: Some(1), ..role(RoleId(7), "past", Some("secret")) };
        access.put_role(past);
        access.put_role(Role { login: false, ..role(RoleId(8), "group", Some("secret")) });
        let (_sender, authenticator) = over(access);
        let cases = [
            ("ann", "wrong"),
            ("bob", ""),
            ("nobody", "x"),
            ("past", "secret"),
            ("group", "secret"),
        ];
        for (user, password) in cases {
            let error = enter(&authenticator, user, password).await.unwrap_err();
            assert_eq!(error, wrong_password(user));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_limited_for_users_who_do_not_exist_too() {
        for user in ["ann", "nobody"] {
            let (_sender, authenticator) = over(closed_access());
            let mut last = None;
            for _ in 0..20 {
                last = enter(&authenticator, user, "wrong").await.err();
            }
            let last = last.unwrap();
            assert_eq!(
                (last.sqlstate.as_str(), last.message.as_str()),
                (INVALID_PASSWORD, "too many failed authentication attempts")
            );
            // The right token is not limited.
            assert!(enter(&authenticator, user, TEXT).await.is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn every_sign_in_is_recorded_without_secrets() {
        let mut access = closed_access();
        let other = Token { id: OTHER_TOKEN.parse().unwrap(), sha256: hash("other"), ..token() };
        access.put_token(Token { enabled: false, ..other });
        let (_sender, authenticator) = over(access);
        enter(&authenticator, "ann", "secret").await.unwrap();
        authenticator.token(Door::Flight, PEER, TEXT).await.unwrap();
        authenticator.token(Door::Flight, PEER, "other").await.unwrap_err();
        for _ in 0..20 {
            enter(&authenticator, "ann", "a wrong password").await.unwrap_err();
        }
        enter(&authenticator, "a password as the user", "x").await.unwrap_err();
        let entries = authenticator.audit.entries();
        let lines: Vec<String> = entries
            .iter()
            .map(|entry| {
                let token = entry.token.map(|token| token.to_string());
                format!(
                    "{} {} {} {} {}",
                    entry.user.as_deref().unwrap_or("-"),
                    token.as_deref().unwrap_or("-"),
                    entry.door.name(),
                    entry.outcome.name(),
                    entry.sqlstate.as_deref().unwrap_or("-"),
                )
            })
            .collect();
        for line in [
            "ann - http done 00000",
            &format!("ann {TOKEN} flight done 00000"),
            &format!("- {OTHER_TOKEN} flight failed 28P01"),
            "ann - http failed 28P01",
            "ann - http limited 28P01",
            "- - http failed 28P01",
        ] {
            assert!(lines.iter().any(|found| found == line), "{line}: {lines:#?}");
        }
        let failures = entries.iter().filter(|entry| entry.user.is_some() && entry.owner.is_none());
        assert_eq!(failures.map(|entry| entry.count).sum::<u64>(), 20);
        let text = format!("{entries:?}");
        for secret in ["secret", "wrong password", TEXT, "as the user"] {
            assert!(!text.contains(secret), "{secret}");
        }
    }

    #[tokio::test]
    async fn an_open_cluster_takes_unknown_clients_for_the_superuser() {
        let (_sender, authenticator) = over(open_access());
        assert!(authenticator.is_open());
        let superuser = authenticator.anonymous(Door::Http).unwrap();
        assert_eq!(superuser.login, BOOTSTRAP_ROLE);
        assert_eq!(enter(&authenticator, "nobody", "x").await.unwrap(), superuser);
        assert_eq!(enter(&authenticator, "partita", "").await.unwrap(), superuser);
        assert_eq!(authenticator.token(Door::Http, PEER, "x").await.unwrap(), superuser);
        // A role without a password is that role, and one with a password gives it.
        assert_eq!(enter(&authenticator, "bob", "x").await.unwrap().login, RoleId(6));
        assert!(enter(&authenticator, "ann", "wrong").await.is_err());
        assert_eq!(enter(&authenticator, "ann", "secret").await.unwrap().login, ANN);
        assert_eq!(enter(&authenticator, "nobody", TEXT).await.unwrap().login, ANN);
    }

    #[tokio::test]
    async fn a_token_that_is_switched_off_is_nobody_even_in_an_open_cluster() {
        let mut access = open_access();
        access.put_token(Token { enabled: false, ..token() });
        let (_sender, authenticator) = over(access);
        assert!(authenticator.token(Door::Http, PEER, TEXT).await.is_err());
        assert!(enter(&authenticator, "nobody", TEXT).await.is_err());
        assert!(matches!(authenticator.demand(Door::Postgres, TOKEN), Demand::Proof(_, None)));
    }

    #[test]
    fn a_removed_password_does_not_open_the_cluster() {
        let mut access = closed_access();
        let superuser = role(BOOTSTRAP_ROLE, "partita", None);
        access.put_role(Role { secret_version: 2, ..superuser });
        assert!(!is_open(&access));
        assert!(!is_open(&Access::default()));
    }

    #[test]
    fn a_demand_is_a_proof_that_the_credentials_match() {
        let (_sender, authenticator) = over(closed_access());
        for (user, password, is_valid) in [
            ("ann", "secret", true),
            (TOKEN, TEXT, true),
            ("bob", "", false),
            ("nobody", "", false),
        ] {
            let Demand::Proof(credentials, login) = authenticator.demand(Door::Postgres, user)
            else {
                panic!("{user} is open");
            };
            assert_eq!(login.is_some(), is_valid, "{user}");
            assert_eq!(credentials.matches(password), is_valid, "{user}");
        }
    }

    #[test]
    fn a_certificate_logs_in_the_role_that_it_names() {
        let (_sender, authenticator) = over(closed_access());
        let login = |user, name| authenticator.certified(Door::Postgres, user, name);
        assert_eq!(login("bob", "bob").unwrap().identity.login, RoleId(6));
        assert_eq!(login("bob", "ann"), None);
        assert_eq!(login("nobody", "nobody"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_when_the_password_changes() {
        let (sender, authenticator) = over(closed_access());
        let identity = enter(&authenticator, "ann", "secret").await.unwrap();
        assert_eq!(authenticator.ended(&identity), None);
        let mut lifetime = authenticator.lifetime();
        let early = tokio::time::timeout(LOOK_AGAIN * 3, lifetime.ended(|| identity)).await;
        assert!(early.is_err());
        // A change of something else does not end it.
        let mut access = closed_access();
        access.version += 1;
        sender.send_replace(catalog(access.clone()));
        let early = tokio::time::timeout(LOOK_AGAIN, lifetime.ended(|| identity)).await;
        assert!(early.is_err());
        access.put_role(Role { secret_version: 2, ..role(ANN, "ann", Some("other")) });
        access.version += 1;
        sender.send_replace(catalog(access));
        let error = lifetime.ended(|| identity).await;
        assert_eq!(error.sqlstate, INVALID_AUTHORIZATION);
        assert_eq!(authenticator.ended(&identity), Some(error));
        assert!(enter(&authenticator, "ann", "secret").await.is_err(), "no longer remembered");
    }

    #[tokio::test]
    async fn a_session_ends_when_its_role_expires() {
        let mut access = closed_access();
        let (sender, authenticator) = over(access.clone());
        // The test of the password takes longer than the rest of the role's time.
        let identity = enter(&authenticator, "ann", "secret").await.unwrap();
        let end_ms = now_ms() + 300;
        let ann = access.role(ANN).unwrap().as_ref().clone();
        access.put_role(Role { valid_until_ms: Some(end_ms), ..ann });
        access.version += 1;
        sender.send_replace(catalog(access));
        let mut lifetime = authenticator.lifetime();
        let error = lifetime.ended(|| identity).await;
        assert_eq!(error.sqlstate, INVALID_AUTHORIZATION);
        assert!(now_ms() >= end_ms);
    }
}
