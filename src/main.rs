//! The one binary of Partita.
fn main() {}
