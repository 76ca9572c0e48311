//! Access to the cluster: what the doors share to authenticate clients.

pub mod failures;
