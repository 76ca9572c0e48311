//! Replication: the Raft groups of one node and the log they share.
