//! The HTTP and Arrow Flight doors of the frontend.

pub mod line_protocol;
