//! No acknowledged row is lost, no row exists twice, and no row exists that was never written.

use std::collections::BTreeSet;

use crate::history::History;

/// Checks the rows of a read. `acknowledged` are the rows that were acknowledged when it began.
pub(crate) fn check(history: &History, acknowledged: &BTreeSet<i64>, rows: &[(i64, i64)]) {
    for violation in violations(acknowledged, &history.attempted(), rows) {
        history.violation(violation);
    }
}

fn violations(
    acknowledged: &BTreeSet<i64>,
    attempted: &BTreeSet<i64>,
    rows: &[(i64, i64)],
) -> Vec<String> {
    let mut violations = Vec::new();
    let mut present = BTreeSet::new();
    for (_, number) in rows {
        if !present.insert(*number) {
            violations.push(format!("row {number} exists twice"));
        }
        if !attempted.contains(number) {
            violations.push(format!("row {number} exists and was never written"));
        }
    }
    let lost: Vec<_> = acknowledged.difference(&present).take(5).collect();
    if !lost.is_empty() {
        violations.push(format!("acknowledged rows {lost:?} are missing"));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_doubled_and_invented_rows_are_found() {
        let written = BTreeSet::from([1, 2, 3]);
        let count = |rows: &[(i64, i64)]| violations(&BTreeSet::from([1, 2]), &written, rows).len();
        assert_eq!(count(&[(0, 1), (0, 2)]), 0);
        assert_eq!(count(&[(0, 1), (0, 2), (0, 3)]), 0);
        assert_eq!(count(&[(0, 1)]), 1);
        assert_eq!(count(&[(0, 1), (0, 2), (5, 2)]), 1);
        assert_eq!(count(&[(0, 1), (0, 2), (0, 9)]), 1);
    }
}
