//! What a run came to: a line a second, counts, and the times at which something was first so.
//!
//! Invariants: all shares are of what was served; latencies of a virtual cluster are estimates, and named so; nothing
//! here decides anything.

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
