//! Tests over real server processes: one test binary, one module for each concern.

mod kill;
mod limits;
mod scripts;
mod server;
mod start;
