//! Access to the cluster: what the doors share to authenticate clients, and what each client sees and may do.

pub mod authenticator;
pub mod failures;
pub(crate) mod life;
pub(crate) mod named;
pub(crate) mod needs;
pub mod peer;
pub mod random;
pub mod scram;
pub mod viewer;
