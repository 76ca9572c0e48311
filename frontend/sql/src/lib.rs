//! The SQL dialect: text in, [`Statement`]s out, and the two ways of reading rows that need no
//! planner.
//!
//! ```text
//!   text ── split ── parser ─┬─ sqlparser ───────────────────────── Query
//!                            ├─ create_table, alter_table, ... ──── NewTable, TableChange
//!                            └─ insert ── values ──┐
//!   COPY's bytes ── copy ──────────────────────────┴─ column_builder ── RecordBatch
//! ```
//!
//! Nothing here waits, touches the catalog or keeps state between statements. [`partita_worker::SqlError`] and the functions of SQL are
//! those of [`partita_worker`].

pub mod access_statement;
pub mod adapted;
mod admin;
mod advise_grammar;
pub mod advise_statement;
pub mod aligned;
mod aligned_grammar;
mod alter_table;
mod array_subqueries;
pub mod bound_words;
mod check_constraint;
mod collations;
mod column;
mod column_builder;
mod conflict;
pub mod copy;
mod copy_statement;
mod counts;
mod create_as;
mod create_table;
mod cursor;
mod database;
mod decimal;
mod delete_grammar;
mod dialect;
mod effort;
mod families;
pub mod fingerprint;
mod from_functions;
mod gap_filled;
mod given_names;
mod grants;
mod grouped_casts;
pub mod hidden;
pub mod identifier;
mod index_grammar;
pub mod index_statement;
mod insert;
mod joined_subqueries;
mod json;
mod like;
pub mod literal;
mod lock_grammar;
mod materialized_grammar;
mod materialized_statement;
pub mod merged;
mod new_placement;
mod new_table;
pub mod notice;
mod null_tests;
mod options;
mod ordered_aggregates;
mod ordered_sets;
mod org_statement;
mod other_dialects;
pub mod parser;
mod partitioning;
pub mod qualifiers;
mod quantity;
mod redacted;
mod refused;
mod rekey;
mod repartition;
mod returning;
pub mod rewritten;
mod roles;
mod rule;
mod sequence_grammar;
pub mod sequence_statement;
mod session;
mod shape;
pub mod show;
mod show_statement;
pub mod shown_names;
mod signs;
mod sort_columns;
mod sort_keys;
mod sort_operators;
mod sort_rules;
mod split;
pub mod statement;
mod table_name;
mod table_names;
mod table_query;
mod tail;
pub mod task_grammar;
pub mod task_statement;
mod token_statement;
mod tokens;
mod type_change;
mod types;
mod unique_names;
mod update_grammar;
pub mod update_rows;
mod vacuum_grammar;
mod values;
mod view_grammar;
mod weight;
mod wide_functions;
mod wide_statement;
mod with_clause;

use partita_worker::error;

pub use collations::drop_collations;
pub use from_functions::name_function_columns;
pub use given_names::give_names;
pub use like::LikeSource;
pub use new_table::rename_sequence;
pub use notice::{Notice, Severity};
pub use ordered_aggregates::order_aggregates;
pub use parser::parse;
pub use partita_worker::bytes;
pub use partitioning::PartitioningOption;
pub use redacted::redacted;
pub use repartition::{Repartition, Step};
pub use shown_names::with_shown_names;
pub use sort_columns::tell_sort_columns;
pub use sort_keys::name_numbered;
pub use sort_rules::check_sort_keys;
pub use split::texts;
pub use statement::{Rekey, RekeyChange, Statement};
pub use table_names::rename_tables;
pub use tail::of_table as tail_notice;
pub use unique_names::{name_by_text, number_alike, number_hiding};
pub use values::{StatementTime, Target};

#[cfg(test)]
mod tests;
