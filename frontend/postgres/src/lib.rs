//! The PostgreSQL door of the frontend.
