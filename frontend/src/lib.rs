//! The frontend: SQL, routing and sessions.
