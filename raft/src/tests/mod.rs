//! Tests of groups: what was acknowledged is there, whatever happens in between.

mod calm;
mod chaos;
mod cluster;
mod groups;
mod loopback;
mod recorder;
mod replication;
mod restarts;
mod seeds;
mod sleep;
mod snapshots;
mod suite;
