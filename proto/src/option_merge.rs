//! Changes of a table's options that leave other options as they are.
//!
//! ```text
//!   base       as the sender read them     ttl 1d    comment 'a'
//!   next       as the sender wants them    ttl 2d    comment 'a'
//!   present    when it is decided          ttl 1d    comment 'b'
//!   merged                                 ttl 2d    comment 'b'
//! ```
//!
//! A frontend changes the options that its catalog shows, which another client may have changed since.
//!
//! Invariant: a change that is merged twice gives the same options as once: it is sent again when its answer was lost.

use crate::partitioning::Partitioning;
use crate::schema::TableOptions;
use crate::wide::{Family, Wide};

/// Some options in the three states.
struct States<'a, T> {
    present: &'a T,
    base: &'a T,
    next: &'a T,
}

impl<'a, T> States<'a, T> {
    /// A part of the options, which is changed as a whole.
    fn value<P: Clone + PartialEq>(&self, part: fn(&T) -> &P) -> P {
        let (base, next) = (part(self.base), part(self.next));
        if base == next { part(self.present).clone() } else { next.clone() }
    }

    /// A part of the options that has parts itself.
    fn part<P>(&self, part: fn(&'a T) -> &'a P) -> States<'a, P> {
        States { present: part(self.present), base: part(self.base), next: part(self.next) }
    }
}

impl TableOptions {
    /// The options after a change from `base` to `next`: those that differ in these two are as in `next`, the others as
    /// they are. Column families are told apart by their names.
    #[must_use]
    pub fn merged(&self, base: &Self, next: &Self) -> Self {
        let states = States { present: self, base, next };
        let wide = match (&self.wide, &base.wide, &next.wide) {
            (Some(present), Some(base), Some(next)) => {
                Some(merged_wide(&States { present, base, next }))
            }
            _ => states.value(|options| &options.wide),
        };
        Self {
            append_mode: states.value(|options| &options.append_mode),
            merge_mode: states.value(|options| &options.merge_mode),
            ttl: states.value(|options| &options.ttl),
            time_window: states.value(|options| &options.time_window),
            comment: states.value(|options| &options.comment),
            replication_factor: states.value(|options| &options.replication_factor),
            partitioning: merged_partitioning(&states.part(|options| &options.partitioning)),
            advice_off: states.value(|options| &options.advice_off),
            advice_thresholds: states.value(|options| &options.advice_thresholds),
            wide,
        }
    }
}

fn merged_partitioning(states: &States<'_, Partitioning>) -> Partitioning {
    Partitioning {
        by_load: states.value(|rules| &rules.by_load),
        by_size: states.value(|rules| &rules.by_size),
        partition_size_mb: states.value(|rules| &rules.partition_size_mb),
        min_partitions: states.value(|rules| &rules.min_partitions),
        max_partitions: states.value(|rules| &rules.max_partitions),
        hotspot_remedy: states.value(|rules| &rules.hotspot_remedy),
        keep_together: states.value(|rules| &rules.keep_together),
        merge_after_s: states.value(|rules| &rules.merge_after_s),
        pin_expiry_s: states.value(|rules| &rules.pin_expiry_s),
        forecast: states.value(|rules| &rules.forecast),
    }
}

fn merged_wide(states: &States<'_, Wide>) -> Wide {
    Wide {
        families: merged_families(&states.part(|wide| &wide.families)),
        dropped: states.present.dropped.clone(),
        row_bytes_warn: states.value(|wide| &wide.row_bytes_warn),
        row_bytes_max: states.value(|wide| &wide.row_bytes_max),
    }
}

fn merged_families(states: &States<'_, Vec<Family>>) -> Vec<Family> {
    let States { present, base, next } = *states;
    if present == base {
        return next.clone();
    }
    let mut merged = Vec::with_capacity(next.len());
    for family in present {
        match (find(base, &family.name), find(next, &family.name)) {
            (Some(_), None) => {}
            (former, Some(changed)) if former != Some(changed) => merged.push(changed.clone()),
            _ => merged.push(family.clone()),
        }
    }
    // A family that another client has dropped stays dropped.
    let is_added = |family: &&Family| {
        find(base, &family.name).is_none() && find(present, &family.name).is_none()
    };
    merged.extend(next.iter().filter(is_added).cloned());
    merged
}

fn find<'a>(families: &'a [Family], name: &str) -> Option<&'a Family> {
    families.iter().find(|family| family.name == name)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::wide::GcRule;

    fn wide(families: &[(&str, u32)]) -> TableOptions {
        let family = |(name, versions): &(&str, u32)| {
            let gc = Some(GcRule::MaxVersions(*versions));
            Family { name: (*name).to_owned(), gc, aggregate: None }
        };
        let families = families.iter().map(family).collect();
        TableOptions { wide: Some(Wide { families, ..Wide::default() }), ..TableOptions::default() }
    }

    #[test]
    fn options_change_one_by_one() {
        let base = TableOptions::default();
        let mut commented = base.clone();
        commented.comment = Some("a".to_owned());
        commented.partitioning.by_load = false;
        let mut aged = base.clone();
        aged.ttl = Some(Duration::from_secs(60));
        aged.partitioning.by_size = false;
        let merged = commented.merged(&base, &aged);
        let mut expected = commented.clone();
        expected.ttl = aged.ttl;
        expected.partitioning.by_size = false;
        assert_eq!(merged, expected);
        assert_eq!(aged.merged(&base, &commented), expected);
        assert_eq!(merged.merged(&base, &aged), merged, "a change that is sent again");
        assert_eq!(base.merged(&base, &aged), aged);
        // Of two changes of the same option, the later one is in force.
        let other = TableOptions { comment: Some("b".to_owned()), ..base.clone() };
        assert_eq!(commented.merged(&base, &other).comment, other.comment);
        assert_eq!(commented.merged(&commented, &base), base);
    }

    #[test]
    fn families_change_one_by_one() {
        let base = wide(&[("a", 1), ("b", 1), ("c", 1)]);
        let next = wide(&[("d", 1), ("a", 2), ("c", 1)]);
        assert_eq!(base.merged(&base, &next), next);
        let present = wide(&[("a", 1), ("b", 3), ("c", 3), ("e", 1)]);
        let merged = present.merged(&base, &next);
        assert_eq!(merged, wide(&[("a", 2), ("c", 3), ("e", 1), ("d", 1)]));
        assert_eq!(merged.merged(&base, &next), merged, "a change that is sent again");
        // A family that was dropped does not come back with its rule.
        assert_eq!(wide(&[("b", 1)]).merged(&base, &next), wide(&[("d", 1)]));
        let limited = {
            let mut limited = base.clone();
            limited.wide.get_or_insert_default().row_bytes_max += 1;
            limited
        };
        let mut expected = present.clone();
        expected.wide.get_or_insert_default().row_bytes_max += 1;
        assert_eq!(present.merged(&base, &limited), expected);
    }
}
