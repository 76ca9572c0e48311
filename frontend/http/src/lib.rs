//! The HTTP and Arrow Flight doors of the frontend.
