//! No acknowledged row is lost, no row exists twice, and no row exists that was never written.

use std::collections::BTreeSet;

use crate::history::History;

/// Checks the rows of a read. `before` are the rows acknowledged when it began.
pub(crate) fn check(history: &History, before: &BTreeSet<i64>, seen: &[(i64, i64)]) {
    for what in violations(before, &history.attempted(), seen) {
        history.violation(what);
    }
}

fn violations(
    before: &BTreeSet<i64>,
    attempted: &BTreeSet<i64>,
    seen: &[(i64, i64)],
) -> Vec<String> {
    let mut found = Vec::new();
    let mut present = BTreeSet::new();
    for (_, number) in seen {
        if !present.insert(*number) {
            found.push(format!("row {number} is there twice"));
        }
        if !attempted.contains(number) {
            found.push(format!("row {number} is there, and nobody has written it"));
        }
    }
    let lost: Vec<_> = before.difference(&present).take(5).collect();
    if !lost.is_empty() {
        found.push(format!("rows {lost:?} were acknowledged and are not there"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_doubled_and_invented_rows_are_found() {
        let written = BTreeSet::from([1, 2, 3]);
        let of = |seen: &[(i64, i64)]| violations(&BTreeSet::from([1, 2]), &written, seen).len();
        assert_eq!(of(&[(0, 1), (0, 2)]), 0);
        assert_eq!(of(&[(0, 1), (0, 2), (0, 3)]), 0);
        assert_eq!(of(&[(0, 1)]), 1);
        assert_eq!(of(&[(0, 1), (0, 2), (5, 2)]), 1);
        assert_eq!(of(&[(0, 1), (0, 2), (0, 9)]), 1);
    }
}
