//! A bound on the constants that are computed while a plan is made.
//!
//! The optimizer computes calls of constants once and puts the values into the plan, which it copies for each of its
//! rules: eight calls of `repeat('x', 30000000)` took two gigabytes before the statement began, in memory that no pool
//! accounts for. Each function bounds its own values (`bounded.rs`); here the values of one statement are added up.
//!
//! The optimizer leaves a call that fails as it is, for the time when rows come. So the sum is remembered, and the
//! statement fails once its plan is made; what is beyond the bound is not computed.

use std::cell::Cell;

use datafusion::error::Result;

use crate::error::{PROGRAM_LIMIT_EXCEEDED, SqlError};

/// Maximum bytes of the constants of one statement: two of the largest values (`bounded.rs`). The optimizer's copies take
/// about ten times as much.
const FOLDED_BYTES_MAX: u64 = 64 << 20;

thread_local! {
    /// Set while a plan is made: bytes of its constants so far.
    static FOLDED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Makes a plan whose constants are bounded in sum. The plan is made by the calling thread.
///
/// # Errors
/// Those of `make`, and 54000 when constants would take more than `FOLDED_BYTES_MAX` bytes together.
pub fn with_bounded_folding<T>(make: impl FnOnce() -> Result<T>) -> Result<T> {
    let outer = FOLDED.replace(Some(0));
    let made = make();
    let folded = FOLDED.replace(outer).unwrap_or_default();
    check(folded)?;
    made
}

/// Counts the values of a call that is about to be computed.
///
/// # Errors
/// 54000 when the constants of the plan that is made would take too many bytes with them.
pub(crate) fn count(bytes: u64) -> Result<()> {
    let Some(before) = FOLDED.get() else { return Ok(()) };
    let folded = before.saturating_add(bytes);
    FOLDED.set(Some(folded));
    check(folded)
}

fn check(folded: u64) -> Result<()> {
    if folded <= FOLDED_BYTES_MAX {
        return Ok(());
    }
    let message =
        format!("constants of the statement would take more than {FOLDED_BYTES_MAX} bytes");
    Err(SqlError::new(PROGRAM_LIMIT_EXCEEDED, message).into())
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    /// The SQLSTATE with which a plan is refused; empty when it is made.
    async fn refusal(sql: &str) -> String {
        let context = SessionContext::new();
        for function in crate::functions::shared() {
            context.register_udf(function);
        }
        let state = context.state();
        let plan = state.create_logical_plan(sql).await.unwrap();
        match with_bounded_folding(|| state.optimize(&plan)) {
            Ok(_) => String::new(),
            Err(error) => SqlError::from(error).sqlstate,
        }
    }

    #[tokio::test]
    async fn constants_of_a_statement_are_bounded_in_sum() {
        let columns = |count: usize| {
            let calls = (0..count).map(|n| format!("repeat('x', 30000000) AS c{n}"));
            format!("SELECT {}", calls.collect::<Vec<_>>().join(", "))
        };
        assert_eq!(refusal(&columns(2)).await, "");
        assert_eq!(refusal(&columns(8)).await, "54000");
        // Of different calls, and below others.
        let mixed = "SELECT length(repeat('a', 30000000)), upper(repeat('b', 30000000)), \
                     concat(repeat('c', 20000000), 'd')";
        assert_eq!(refusal(mixed).await, "54000");
        // The next statement begins at zero, and a run does not count.
        assert_eq!(refusal(&columns(2)).await, "");
        count(u64::MAX).unwrap();
    }
}
