//! The scripts of `testscripts/`: loads in, verdicts and actions out.

mod detector;
mod forecast;
mod scheduler;

#[path = "../../../tests/scripts/run.rs"]
mod run;
