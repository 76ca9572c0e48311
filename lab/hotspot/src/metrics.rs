//! Results of a run: one record per second, counts, and the times at which conditions were first met.
//!
//! Invariants: all shares are of served load; latencies of a virtual cluster are estimates, and labelled so;
//! metrics do not influence decisions.

mod books;
mod fan_out;
mod latency;
mod measure;
mod second;
mod summary;

pub use books::Books;
pub use fan_out::{FanOut, QUERIES};
pub use second::{Second, csv};
pub use summary::{Summary, Told};
