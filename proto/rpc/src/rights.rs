//! Who may call what: the table of all calls between processes by role, and the check before a call's body is read.
//!
//! ```text
//!   accept (serve.rs): TLS ─ role of the certificate ─▶ Caller ─▶ Guarded: path, role ─▶ service, or a refusal
//! ```
//!
//! Invariants:
//! - a call that is not in the table is refused; a test compares the table with the .proto files;
//! - orders that change a node's replicas come from meta only;
//! - without a certificate of this process nothing is checked: such a port is for a machine or network of its own.

use std::task::{Context, Poll};

use futures::future::{Either, Ready, ready};
use partita_proto::Error;
use partita_tls::Role;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tower::{Layer, Service};

use crate::status::to_status;

/// Roles that may make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Callers {
    /// These roles.
    Of(&'static [Role]),
    /// Processes with the role of the server.
    Alike,
}

impl Callers {
    /// True if they include a role, for a server with a role.
    fn include(self, server: Role, role: Role) -> bool {
        match self {
            Self::Of(roles) => roles.contains(&role),
            Self::Alike => role == server,
        }
    }
}

/// Every call between processes, by its path.
pub(crate) const CALLS: &[(&str, Callers)] = &[
    // Rows, for statements.
    ("/partita.v1.Data/Write", Callers::Of(&[Role::Frontend])),
    ("/partita.v1.Data/Scan", Callers::Of(&[Role::Frontend])),
    ("/partita.v1.Data/Run", Callers::Of(&[Role::Frontend])),
    ("/partita.v1.Data/Fetch", Callers::Of(&[Role::Frontend])),
    // Rows of materialized copies.
    ("/partita.v1.Data/Capture", Callers::Of(&[Role::Frontend])),
    ("/partita.v1.Data/Changes", Callers::Of(&[Role::Frontend])),
    ("/partita.v1.Data/Fill", Callers::Of(&[Role::Frontend])),
    // Orders.
    ("/partita.v1.Data/OpenPartition", Callers::Of(&[Role::Meta])),
    ("/partita.v1.Data/DropPartition", Callers::Of(&[Role::Meta])),
    ("/partita.v1.Data/Reconfigure", Callers::Of(&[Role::Meta])),
    ("/partita.v1.Data/TransferLeader", Callers::Of(&[Role::Meta])),
    ("/partita.v1.Data/Reshape", Callers::Of(&[Role::Meta])),
    ("/partita.v1.Data/MiddleKey", Callers::Of(&[Role::Meta])),
    ("/partita.v1.Data/TruncatePartition", Callers::Of(&[Role::Meta])),
    ("/partita.v1.Data/AlterPartition", Callers::Of(&[Role::Meta])),
    // Upkeep, which changes no row: meta's merges, and ADMIN statements at a frontend.
    ("/partita.v1.Data/FlushPartition", Callers::Of(&[Role::Meta, Role::Frontend])),
    ("/partita.v1.Data/CompactPartition", Callers::Of(&[Role::Frontend])),
    ("/partita.v1.Data/Status", Callers::Of(&[Role::Meta, Role::Frontend])),
    // Members: datanodes follow them for addresses, a damaged member of meta until another one leads.
    ("/partita.v1.Meta/Watch", Callers::Of(&[Role::Meta, Role::Datanode, Role::Frontend])),
    ("/partita.v1.Meta/Standing", Callers::Of(&[Role::Meta, Role::Frontend])),
    // Statements.
    ("/partita.v1.Meta/Change", Callers::Of(&[Role::Frontend])),
    ("/partita.v1.Meta/Administer", Callers::Of(&[Role::Frontend])),
    ("/partita.v1.Meta/Load", Callers::Of(&[Role::Frontend])),
    ("/partita.v1.Meta/Picture", Callers::Of(&[Role::Frontend])),
    ("/partita.v1.Meta/Confirm", Callers::Of(&[Role::Frontend])),
    // Nodes.
    ("/partita.v1.Meta/Register", Callers::Of(&[Role::Datanode])),
    ("/partita.v1.Meta/Beat", Callers::Of(&[Role::Datanode])),
    ("/partita.v1.Meta/Renew", Callers::Of(&[Role::Datanode])),
    // Causes of load.
    ("/partita.v1.Meta/Blame", Callers::Of(&[Role::Frontend])),
    // Groups: those of meta are apart from those of partitions.
    ("/partita.v1.Raft/Link", Callers::Alike),
    ("/grpc.health.v1.Health/Check", Callers::Of(&Role::ALL)),
    ("/grpc.health.v1.Health/Watch", Callers::Of(&Role::ALL)),
];

/// Paths of all calls between processes, each with the roles that may make it to a server with a role.
#[must_use]
pub fn calls(server: Role) -> Vec<(&'static str, Vec<Role>)> {
    let roles_of = |callers: Callers| {
        let roles = Role::ALL.into_iter().filter(|role| callers.include(server, *role));
        roles.collect::<Vec<_>>()
    };
    CALLS.iter().map(|(path, callers)| (*path, roles_of(*callers))).collect()
}

/// Role of a connection's client; in the extensions of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller(pub(crate) Option<Role>);

/// True if a watcher of the catalog gets roles, grants and tokens: a frontend, or any caller where nothing is checked.
pub(crate) fn needs_access(caller: Option<Caller>) -> bool {
    let role = caller.and_then(|Caller(role)| role);
    role.is_none_or(|role| role == Role::Frontend)
}

/// Decides whether a caller may make a call to a server with a role.
///
/// # Errors
/// The refusal.
pub(crate) fn check(server: Role, caller: Option<Caller>, path: &str) -> Result<(), Error> {
    let Some(Caller(Some(role))) = caller else {
        let text = "a call between processes needs a certificate of the cluster";
        return Err(Error::Unauthenticated(text.to_owned()));
    };
    let Some((_, callers)) = CALLS.iter().find(|(call, _)| *call == path) else {
        return Err(Error::Unsupported(format!("the call {path}")));
    };
    if callers.include(server, role) {
        return Ok(());
    }
    tracing::warn!(%role, path, "refused a call because of the caller's role");
    Err(Error::NotAllowed(format!("role {role} must not call {path} of role {server}")))
}

/// Puts the check before a service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    /// Role of this process; none: nothing is checked.
    pub(crate) server: Option<Role>,
}

impl<S> Layer<S> for Guard {
    type Service = Guarded<S>;

    fn layer(&self, service: S) -> Guarded<S> {
        Guarded { service, server: self.server }
    }
}

/// A service behind the check.
#[derive(Clone, Debug)]
pub(crate) struct Guarded<S> {
    service: S,
    server: Option<Role>,
}

impl<S, B> Service<Request<B>> for Guarded<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Either<S::Future, Ready<Result<Response<Body>, S::Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let caller = request.extensions().get::<Caller>().copied();
        let checked =
            self.server.map_or(Ok(()), |server| check(server, caller, request.uri().path()));
        match checked {
            Ok(()) => Either::Left(self.service.call(request)),
            Err(error) => Either::Right(ready(Ok(to_status(error).into_http()))),
        }
    }
}
