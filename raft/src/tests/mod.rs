//! Tests of groups: what was acknowledged is there, whatever happens in between.

mod groups;
mod recorder;
mod restarts;
mod suite;
