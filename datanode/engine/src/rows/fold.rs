//! Folds the versions of one key into one row: a pure function, the same for memtables, flush, compaction and scans.
//!
//! Versions are ordered from the oldest to the newest: by log index, then by position in the entry.
//!
//! | policy | row |
//! |---|---|
//! | append | every version is a row of its own; nothing is ever folded |
//! | last_row | the newest version, whole |
//! | last_non_null | each field's newest value that is not NULL, back to the nearest delete |
//!
//! A folded row may be folded with older versions later, with the same result as folding all at once. That is the
//! reason for [`REPLACE`]: `put a=1; delete; put b=2` folds to `replace b=2`, which hides any `a` that an older file
//! still has.

/// Sets the row's fields; NULL fields may get older versions' values (last_non_null).
pub(crate) const PUT: u8 = 0;
/// Deletes the key's row.
pub(crate) const DELETE: u8 = 1;
/// Sets the whole row; older versions have no influence.
pub(crate) const REPLACE: u8 = 2;

/// Rule by which a table folds versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Append,
    LastRow,
    LastNonNull,
}

impl Policy {
    /// True if a key has at most one row.
    pub(crate) fn folds(self) -> bool {
        self != Self::Append
    }
}

/// Folds the versions of one key, given the operation of each, oldest first. The row is the newest version;
/// `take(field, version)` is called for each field that comes from an older one. Returns the row's operation.
pub(crate) fn fold(
    policy: Policy,
    ops: &[u8],
    fields: &[usize],
    is_null: impl Fn(usize, usize) -> bool,
    mut take: impl FnMut(usize, usize),
) -> u8 {
    let newest = ops.len() - 1;
    if policy != Policy::LastNonNull || ops[newest] != PUT {
        return ops[newest];
    }
    // Go back to the nearest delete or replace. Older versions have no influence on the row; a row that hides older
    // versions becomes a replace.
    let mut oldest = newest;
    let mut op = PUT;
    while oldest > 0 && op == PUT {
        match ops[oldest - 1] {
            PUT => oldest -= 1,
            REPLACE => {
                oldest -= 1;
                op = REPLACE;
            }
            _ => op = REPLACE,
        }
    }
    // Each field that is NULL in the newest version comes from the youngest version that gives it a value.
    for &field in fields {
        let source = (oldest..=newest).rev().find(|version| !is_null(*version, field));
        if let Some(version) = source.filter(|version| *version != newest) {
            take(field, version);
        }
    }
    op
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Version = (u8, [Option<i64>; 2]);

    fn folded(policy: Policy, versions: &[Version]) -> Version {
        let ops: Vec<u8> = versions.iter().map(|(op, _)| *op).collect();
        let (_, mut row) = versions[versions.len() - 1];
        let is_null = |version: usize, field: usize| versions[version].1[field].is_none();
        let mut taken = Vec::new();
        let op =
            fold(policy, &ops, &[0, 1], is_null, |field, version| taken.push((field, version)));
        for (field, version) in taken {
            row[field] = versions[version].1[field];
        }
        (op, row)
    }

    #[test]
    fn two_half_written_rows_fold_as_the_policy_says() {
        let versions = [(PUT, [Some(0), None]), (PUT, [None, Some(10)])];
        assert_eq!(folded(Policy::LastRow, &versions), (PUT, [None, Some(10)]));
        assert_eq!(folded(Policy::LastNonNull, &versions), (PUT, [Some(0), Some(10)]));
    }

    #[test]
    fn nothing_comes_back_from_behind_a_delete() {
        let versions = [(PUT, [Some(1), Some(1)]), (DELETE, [None, None]), (PUT, [None, Some(2)])];
        assert_eq!(folded(Policy::LastNonNull, &versions), (REPLACE, [None, Some(2)]));
        assert_eq!(folded(Policy::LastNonNull, &versions[..2]).0, DELETE);
    }

    fn version() -> impl Strategy<Value = Version> {
        (0_u8..3, any::<[Option<i64>; 2]>()).prop_map(|(op, fields)| match op {
            DELETE => (DELETE, [None, None]),
            op => (op, fields),
        })
    }

    proptest! {
        #[test]
        fn folding_in_two_steps_is_folding_at_once(
            versions in prop::collection::vec(version(), 2..8),
            cut in any::<prop::sample::Index>(),
            last_row in any::<bool>(),
        ) {
            let policy = if last_row { Policy::LastRow } else { Policy::LastNonNull };
            let cut = 1 + cut.index(versions.len() - 1);
            let old = folded(policy, &versions[..cut]);
            let new = folded(policy, &versions[cut..]);
            let mut at_once = folded(policy, &versions);
            let mut in_steps = folded(policy, &[old, new]);
            // Of a deleted key only the operation counts.
            for row in [&mut at_once, &mut in_steps] {
                if row.0 == DELETE {
                    row.1 = [None, None];
                }
            }
            prop_assert_eq!(at_once, in_steps);
        }
    }
}
