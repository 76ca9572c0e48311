//! Aspects of a workload that a real cluster cannot show as the catalogue defines them, in sentences for its
//! report.
//!
//! Invariant: the sentences follow from the tables and their load, not from a workload's name.

use super::part::Part;
use super::source::Kind;
use super::table::{Spread, TableLoad};

/// The sentences; empty if the cluster can show everything.
#[must_use]
pub fn lacking(loads: &[TableLoad]) -> Vec<&'static str> {
    let sources = || loads.iter().flat_map(|load| &load.sources);
    let reads = || sources().filter(|source| source.kind != Kind::Write);
    let parts = || reads().flat_map(|source| &source.law.parts);
    let events = || loads.iter().filter_map(|load| load.events.as_ref());
    // Each condition on the tables with its sentence.
    let sentences = [
        (
            events().any(|events| events.time.descending),
            "Key columns cannot descend (PRIMARY KEY (ts DESC, ..) is refused), so a column that counts down replaces the time in the key, with the time beside it.",
        ),
        (
            loads.iter().any(|load| load.mirrors),
            "There are no secondary indexes, so the writers maintain the index as a separate table, with a second INSERT that is not atomic with the first.",
        ),
        (
            loads.iter().any(|load| load.spread == Spread::OneNode),
            "A table cannot be created with all leaders on one node, so they are moved there one by one before the clock starts. Meta balances leaders by number as well as by load and spreads them again within seconds, whatever their load; the virtual cluster shows the effect of load alone.",
        ),
        (
            reads().next().is_some(),
            "Reads do not pass a partition's write lane, so they are not limited and do not make a partition hot. In the virtual cluster they do, so it is not compared with such a run.",
        ),
        (
            reads().any(|source| source.kind == Kind::Read) && events().next().is_some(),
            "Dashboards look back on rows that the run itself wrote; there are no earlier rows.",
        ),
        (
            parts().any(|part| matches!(part, Part::Latest { .. })),
            "A counter's keys are drawn from its last second: some are written twice and some never, so some reads of the latest keys find nothing.",
        ),
    ];
    sentences.into_iter().filter(|(holds, _)| *holds).map(|(_, text)| text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Design, Knobs, find};

    fn words(name: &str) -> String {
        let loads = find(name).unwrap().tables(&Knobs::of(Design::UidTs, 1_000.0));
        lacking(&loads).join(" ")
    }

    #[test]
    fn what_a_store_lacks_is_said_where_it_matters_only() {
        for name in ["W1", "W3", "W4:home", "W5", "W7", "W9", "W10", "W11"] {
            assert_eq!(words(name), "", "{name}");
        }
        for (name, word) in [
            ("W8", "descend"),
            ("W13", "leaders"),
            ("W14", "secondary"),
            ("W12", "Reads"),
            ("W15", "look back"),
            ("W6:latest", "find nothing"),
        ] {
            assert!(words(name).contains(word), "{name}: {}", words(name));
        }
    }
}
