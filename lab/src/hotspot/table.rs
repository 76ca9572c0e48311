//! The real table of a design.
//!
//! Invariants: the columns are the same in all designs; it begins with the partitions that the virtual one begins with.

use partita_hotspot::workload::{Cuts, Design, TableLoad};

/// A table's name: nobody else's tables begin like this.
pub(super) fn name(design: Design) -> String {
    format!("lab_hotspot_{}", design.name().replace('-', "_"))
}

/// What a design is, for people.
pub(super) fn about(design: Design) -> &'static str {
    match design {
        Design::TsUid => {
            "PRIMARY KEY (ts, userid): all that is new has the highest key, so that one partition takes it."
        }
        Design::UidTs => {
            "PRIMARY KEY (userid, ts): users spread over the partitions, and what belongs to one lies together."
        }
        Design::HashUid => {
            "PARTITION BY HASH (userid): users are dealt out, however unevenly their numbers lie."
        }
        Design::HashAll => {
            "PARTITION BY HASH (ts, userid): every row goes anywhere; so do the rows of one user."
        }
        Design::Single => {
            "PRIMARY KEY (userid, ts), and all rows are one user's: no key spreads what has only one value."
        }
    }
}

/// The statement that makes it, with a run that begins at this time.
pub(super) fn statement(table: &str, load: &TableLoad, design: Design, begin_us: i64) -> String {
    let list = |values: Vec<i64>| {
        values.iter().map(|value| format!("({value})")).collect::<Vec<_>>().join(", ")
    };
    let placed = match Cuts::of(load) {
        Some(Cuts::Times(times)) if !times.is_empty() => {
            let times = times.into_iter().map(|time| time + begin_us).collect();
            format!(" PARTITION BY RANGE (ts) SPLIT AT ({})", list(times))
        }
        Some(Cuts::Entities(users)) if !users.is_empty() => {
            format!(" PARTITION BY RANGE (userid) SPLIT AT ({})", list(users))
        }
        Some(Cuts::Buckets(buckets)) => {
            let of = if design == Design::HashAll { "ts, userid" } else { "userid" };
            format!(" PARTITION BY HASH ({of}) PARTITIONS {buckets}")
        }
        _ => String::new(),
    };
    let key = if design == Design::TsUid { "ts, userid" } else { "userid, ts" };
    format!(
        "CREATE TABLE {table} (ts TIMESTAMP(6) NOT NULL, userid BIGINT NOT NULL, event STRING, TIME INDEX (ts), PRIMARY KEY ({key})){placed}"
    )
}

#[cfg(test)]
mod tests {
    use partita_hotspot::workload::{Knobs, find};

    use super::*;

    #[test]
    fn each_design_has_its_clauses() {
        let made = |design, partitions| {
            let knobs = Knobs {
                design,
                rate: 100.0,
                entities: 100,
                theta: 0.0,
                disorder_us: 0,
                late_share: 0.0,
                partitions,
                day_s: 86_400,
            };
            let load = find("W1").unwrap().tables(&knobs).remove(0);
            statement(&name(design), &load, design, 10_000_000_000)
        };
        let by_time = made(Design::TsUid, 2);
        assert!(by_time.starts_with("CREATE TABLE lab_hotspot_ts_uid (ts TIMESTAMP(6) NOT NULL"));
        assert!(
            by_time.ends_with(
                "PRIMARY KEY (ts, userid)) PARTITION BY RANGE (ts) SPLIT AT ((6400000000))"
            ),
            "{by_time}"
        );
        assert!(made(Design::UidTs, 4).contains("PARTITION BY RANGE (userid) SPLIT AT (("));
        assert!(made(Design::UidTs, 1).ends_with("PRIMARY KEY (userid, ts))"));
        assert!(made(Design::Single, 8).ends_with("PRIMARY KEY (userid, ts))"));
        assert!(made(Design::HashUid, 8).ends_with("PARTITION BY HASH (userid) PARTITIONS 8"));
        assert!(made(Design::HashAll, 8).ends_with("PARTITION BY HASH (ts, userid) PARTITIONS 8"));
    }
}
