//! The scripts of `testscripts/`: loads in, verdicts and actions out.

mod detector;
mod scheduler;

#[path = "../../../tests/scripts/run.rs"]
mod run;
