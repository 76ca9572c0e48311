//! Access to the cluster: what the doors share to authenticate clients.

pub mod authenticator;
pub mod failures;
pub mod random;
pub mod scram;
