//! Tests of groups: acknowledged commands survive, whatever happens in between.

mod calm;
mod chaos;
mod cluster;
mod follower_reads;
mod groups;
mod loopback;
mod recorder;
mod replication;
mod restarts;
mod seeds;
mod sleep;
mod snapshots;
mod suite;
