//! The SQL dialect: text in, [`statement::Statement`]s out, and the two ways of reading rows that
//! need no planner.

pub mod statement;

pub use statement::Statement;
