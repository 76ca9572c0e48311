//! The workloads W1 to W15 by name.
//!
//! Invariants: a workload follows from its name, its design and its [`Knobs`]; names are unique; every table's
//! total rate is the requested rate, except in workloads with changing rates.

use std::sync::Arc;

use partita_load::mix;

use super::design::Design;
use super::law::Law;
use super::listed::Listed;
use super::part::{Part, SECOND_US};
use super::rate::{Rate, flash_crowd};
use super::shows::shows;
use super::source::{Kind, Source};
use super::stamp::{BEGIN_US, Stamp};
use super::table::{Events, Spread, TableLoad};
use crate::zipf::YCSB_THETA;

/// Parameters of a workload.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Knobs {
    /// Key design, if the workload leaves it open.
    pub design: Design,
    /// Rows per second.
    pub rate: f64,
    /// Number of users (hosts, sensors ...), if the workload leaves it open.
    pub entities: u64,
    /// Zipf exponent of their activity: 0 is even, 0.99 is YCSB's.
    pub theta: f64,
    /// Maximum delay between writers, in microseconds.
    pub disorder_us: u64,
    /// Share of rows that are up to ten minutes late.
    pub late_share: f64,
    /// Initial number of partitions.
    pub partitions: u32,
    /// Length of a day for W10, seconds.
    pub day_s: u64,
    /// Length of an hour for W9, seconds.
    pub hour_s: u64,
    /// Second at which the flash crowd of W10 comes.
    pub crowd_s: u64,
    /// Number of records of W6 and W7.
    pub records: u64,
}

impl Knobs {
    /// Typical user events: even except for a mild skew, with real days and hours.
    #[must_use]
    pub fn of(design: Design, rate: f64) -> Self {
        Self {
            design,
            rate,
            entities: 10_000,
            theta: 0.5,
            disorder_us: 50_000,
            late_share: 0.0,
            partitions: 8,
            day_s: 86_400,
            hour_s: 3_600,
            crowd_s: 120,
            records: RECORDS,
        }
    }
}

/// A workload of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// `W1`, or `W6:latest` for a variant.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// True if a key design may be chosen.
    pub designs: bool,
    make: fn(&Knobs) -> Vec<TableLoad>,
}

impl Workload {
    /// Tables under load; the first is measured.
    #[must_use]
    pub fn tables(&self, knobs: &Knobs) -> Vec<TableLoad> {
        (self.make)(knobs)
    }

    /// The effect that the workload demonstrates.
    #[must_use]
    pub fn shows(&self) -> &'static str {
        shows(self.name)
    }
}

/// The workload with this name, in any case.
#[must_use]
pub fn find(name: &str) -> Option<Workload> {
    all().into_iter().find(|workload| workload.name.eq_ignore_ascii_case(name))
}

/// The workloads of a name: `W6` selects it and its variants, `W6:` it alone, `W6:latest` the variant, `all` all.
#[must_use]
pub fn group(name: &str) -> Vec<Workload> {
    let exact_name = name.strip_suffix(':');
    let belongs = |candidate: &str| {
        let family = candidate.split_once(':').map_or(candidate, |(family, _)| family);
        let is_exact = candidate.eq_ignore_ascii_case(exact_name.unwrap_or(name));
        is_exact || (exact_name.is_none() && family.eq_ignore_ascii_case(name)) || name == "all"
    };
    all().into_iter().filter(|workload| belongs(workload.name)).collect()
}

fn users(knobs: &Knobs) -> Arc<Listed> {
    Arc::new(Listed::zipf(knobs.entities, knobs.theta, mix))
}

fn stamp(knobs: &Knobs) -> Stamp {
    Stamp {
        disorder_us: knobs.disorder_us,
        late_share: knobs.late_share,
        late_us: 600 * SECOND_US,
        ..Stamp::default()
    }
}

fn table(
    knobs: &Knobs,
    name: &str,
    entity: &'static str,
    entities: Arc<Listed>,
    time: Stamp,
) -> Vec<TableLoad> {
    let entities = if knobs.design == Design::Single {
        Arc::new(Listed::zipf(1, 0.0, |_| 17))
    } else {
        entities
    };
    let events =
        Events { design: knobs.design, entity, entities, time, rate: Rate::Steady(knobs.rate) };
    vec![TableLoad::events(name, events, knobs.partitions)]
}

fn with_rate(mut tables: Vec<TableLoad>, rate: Rate) -> Vec<TableLoad> {
    for table in &mut tables {
        for source in &mut table.sources {
            source.rate = rate;
        }
        if let Some(events) = &mut table.events {
            events.rate = rate;
        }
    }
    tables
}

/// One column of 8 bytes.
fn one(part: Part) -> Law {
    Law { parts: vec![part], widths: vec![8] }
}

fn source(part: Part, rate: f64, kind: Kind) -> Source {
    Source { law: one(part), rate: Rate::Steady(rate), kind, cost: 1.0 }
}

/// Default number of records of W6 and W7.
pub const RECORDS: u64 = 100_000;

fn records(knobs: &Knobs, sources: Vec<Source>, end: u64) -> Vec<TableLoad> {
    vec![TableLoad::records("usertable", sources, end, knobs.partitions)]
}

/// The record at this many hundred-thousandths of all records.
fn record(knobs: &Knobs, hundred_thousandths: u64) -> u64 {
    let index = u128::from(knobs.records) * u128::from(hundred_thousandths) / 100_000;
    u64::try_from(index).unwrap_or(u64::MAX)
}

/// Sets the records that exist before the first operation.
fn with_records(mut tables: Vec<TableLoad>, prior: Part) -> Vec<TableLoad> {
    tables[0].prior = Some(prior);
    tables
}

/// Half reads, half updates of the same keys: YCSB A.
fn updates(knobs: &Knobs, part: Part, end: u64) -> Vec<TableLoad> {
    let half = |kind| source(part.clone(), knobs.rate / 2.0, kind);
    let tables = records(knobs, vec![half(Kind::Read), half(Kind::Write)], end);
    with_records(tables, part)
}

fn zipf(knobs: &Knobs, id: impl Fn(u64) -> u64) -> Part {
    Part::Listed(Arc::new(Listed::zipf(knobs.records, YCSB_THETA, id)))
}

fn hosts_sweep(knobs: &Knobs, period_s: u64) -> Vec<TableLoad> {
    let mut tables = table(
        knobs,
        "cpu",
        "hostname",
        Arc::new(Listed::zipf(knobs.entities, 0.0, |id| id)),
        stamp(knobs),
    );
    let sweep = Part::Sweep { items: knobs.entities, period_us: period_s * SECOND_US };
    for source in &mut tables[0].sources {
        for part in &mut source.law.parts {
            if matches!(part, Part::Listed(listed) if listed.columns() == 1) {
                *part = sweep.clone();
            }
        }
    }
    tables
}

/// All workloads, variants after their own.
#[must_use]
pub fn all() -> Vec<Workload> {
    [events(), ycsb(), shapes()].concat()
}

fn kind(
    name: &'static str,
    description: &'static str,
    designs: bool,
    make: fn(&Knobs) -> Vec<TableLoad>,
) -> Workload {
    Workload { name, about: description, designs, make }
}

fn events() -> Vec<Workload> {
    vec![
        // Many users or devices, each with rows of its own.
        kind("W1", "user events: (ts, userid) and its alternatives", true, |k| {
            table(k, "events", "userid", users(k), stamp(k))
        }),
        kind("W1:ordered", "the same, with users numbered by their activity", true, |k| {
            let users = Arc::new(Listed::zipf(k.entities, k.theta, |rank| rank));
            table(k, "events", "userid", users, stamp(k))
        }),
        kind("W2", "weather balloons of six locations, one event a minute each", true, |k| {
            let id = |rank: u64| (rank % 6) << 32 | (3_698 + rank);
            table(k, "balloons", "balloon", Arc::new(Listed::zipf(600, 0.0, id)), stamp(k))
        }),
        kind("W2:week", "the same with the week in place of the time", true, |k| {
            let id = |rank: u64| (rank % 6) << 32 | (3_698 + rank);
            let week = Stamp { grain_us: 7 * 86_400 * SECOND_US, ..stamp(k) };
            table(k, "balloons", "balloon", Arc::new(Listed::zipf(600, 0.0, id)), week)
        }),
        kind("W3", "http_logs: 20 applications of very different size", true, |k| {
            table(k, "http_logs", "application", Arc::new(Listed::zipf(20, 1.0, mix)), stamp(k))
        }),
        kind("W3:metrics", "system_metrics by host", true, |k| {
            table(
                k,
                "system_metrics",
                "host",
                Arc::new(Listed::zipf(k.entities, 0.0, mix)),
                stamp(k),
            )
        }),
        // Leading columns with few values.
        kind("W4", "eight air sensors: fewer values than nodes", true, |k| {
            table(k, "air_sensors", "sensor_id", Arc::new(Listed::zipf(8, 0.0, mix)), stamp(k))
        }),
        kind("W4:home", "two rooms", true, |k| {
            table(k, "home", "room", Arc::new(Listed::zipf(2, 0.0, mix)), stamp(k))
        }),
        // Keys visited in order, and times that descend or advance in steps.
        kind("W5", "TSBS cpu-only: hosts in order, every 10 s", true, |k| hosts_sweep(k, 10)),
        kind("W5:minute", "the same every 60 s", true, |k| hosts_sweep(k, 60)),
        kind("W8", "newest first: time descending", true, |k| {
            table(k, "events", "userid", users(k), Stamp { descending: true, ..stamp(k) })
        }),
        kind("W9", "(hour, userid): the hour advances", true, |k| {
            table(
                k,
                "events",
                "userid",
                users(k),
                Stamp { grain_us: k.hour_s * SECOND_US, ..stamp(k) },
            )
        }),
        // Rates that change.
        kind("W10", "W1 over days: ten times as much by noon", true, |k| {
            let day =
                Rate::Diurnal { least: k.rate / 10.0, times: 10.0, period_us: k.day_s * SECOND_US };
            with_rate(table(k, "events", "userid", users(k), stamp(k)), day)
        }),
        kind("W10:flash", "a crowd twenty times as large within 10 s", true, |k| {
            with_rate(
                table(k, "events", "userid", users(k), stamp(k)),
                flash_crowd(k.rate / 20.0, k.crowd_s),
            )
        }),
        // Two tables or two kinds of operations.
        kind("W14", "a table by user with a secondary index by time", false, |k| {
            let main = Knobs { design: Design::HashUid, ..k.clone() };
            let index = Knobs { design: Design::TsUid, ..k.clone() };
            let mut tables = table(&index, "events_by_time", "userid", users(k), stamp(k));
            tables.extend(table(&main, "events", "userid", users(k), stamp(k)));
            tables[1].mirrors = true;
            tables
        }),
        kind("W15", "dashboards of the last five minutes, beside the writes", true, |k| {
            let mut tables = table(k, "events", "userid", users(k), stamp(k));
            let by_time =
                Source { rate: Rate::Steady(k.rate / 2.0), ..tables[0].sources[0].clone() };
            let mut reads = by_time;
            for part in &mut reads.law.parts {
                if let Part::Stamp(stamp) = part {
                    stamp.disorder_us = 300 * SECOND_US;
                }
            }
            reads.kind =
                if k.design.time_first() { Kind::ScanRecent(300 * SECOND_US) } else { Kind::Read };
            tables[0].sources[0].rate = Rate::Steady(k.rate / 2.0);
            tables[0].sources.push(reads);
            tables
        }),
    ]
}

fn ycsb() -> Vec<Workload> {
    vec![
        // Reads and updates of existing records.
        kind("W6", "YCSB A, zipfian scrambled", false, |k| updates(k, zipf(k, mix), u64::MAX)),
        kind("W6:ordered", "YCSB A, zipfian in order", false, |k| {
            updates(k, zipf(k, |rank| rank), k.records)
        }),
        kind("W6:uniform", "YCSB C, uniform", false, |k| {
            let keys = Part::Even(0, k.records);
            let reads = source(keys.clone(), k.rate, Kind::Read);
            with_records(records(k, vec![reads], k.records), keys)
        }),
        kind("W6:hotspot", "80 % of operations on 20 % of the keys", false, |k| {
            let hot = source(Part::Even(0, k.records / 5), k.rate * 0.8, Kind::Write);
            let cold = source(Part::Even(k.records / 5, k.records), k.rate * 0.2, Kind::Write);
            records(k, vec![hot, cold], k.records)
        }),
        // Inserts at a growing end, with and without reads.
        kind("W6:latest", "YCSB D: 95 % reads of the latest, 5 % inserts", false, |k| {
            let behind = Arc::new(Listed::zipf(k.records, YCSB_THETA, |rank| rank));
            let latest = Part::Latest { behind, first: k.records, per_s: k.rate * 0.05 };
            let inserts = Part::Counter { first: k.records, per_s: k.rate * 0.05 };
            let sources = vec![
                source(latest, k.rate * 0.95, Kind::Read),
                source(inserts, k.rate * 0.05, Kind::Write),
            ];
            with_records(records(k, sources, k.records), Part::Even(0, k.records))
        }),
        kind("W6:scans", "YCSB E: 95 % scans of up to 1,000, 5 % inserts", false, |k| {
            let scans = source(Part::Even(0, k.records), k.rate * 0.95, Kind::ScanAhead(1_000));
            let inserts = source(
                Part::Counter { first: k.records, per_s: k.rate * 0.05 },
                k.rate * 0.05,
                Kind::Write,
            );
            let tables = records(k, vec![scans, inserts], k.records);
            with_records(tables, Part::Even(0, k.records))
        }),
        kind("W6:sequential", "inserts by a counter", false, |k| {
            let inserts = Part::Counter { first: k.records, per_s: k.rate };
            records(k, vec![source(inserts, k.rate, Kind::Write)], k.records)
        }),
    ]
}

fn shapes() -> Vec<Workload> {
    vec![
        // Hot keys and a hot range.
        kind("W7", "one key with 80 % of the load", false, |k| {
            let hot = source(
                Part::Even(record(k, 3_217), record(k, 3_217) + 1),
                k.rate * 0.8,
                Kind::Write,
            );
            records(
                k,
                vec![hot, source(Part::Even(0, k.records), k.rate * 0.2, Kind::Write)],
                k.records,
            )
        }),
        kind("W7:two", "two keys with 45 % each", false, |k| {
            let hot = |key| source(Part::Even(key, key + 1), k.rate * 0.45, Kind::Write);
            let [first, second] = [3_217, 70_001].map(|place| record(k, place));
            let rest = source(Part::Even(0, k.records), k.rate * 0.1, Kind::Write);
            records(k, vec![hot(first), hot(second), rest], k.records)
        }),
        kind("W7:range", "90 % of the load on 1 % of the keys", false, |k| {
            let hot = source(
                Part::Even(record(k, 40_000), record(k, 41_000).max(record(k, 40_000) + 1)),
                k.rate * 0.9,
                Kind::Write,
            );
            records(
                k,
                vec![hot, source(Part::Even(0, k.records), k.rate * 0.1, Kind::Write)],
                k.records,
            )
        }),
        // Loads that no split by load helps.
        kind("W11", "a sorted load into an empty table", false, |k| {
            let load = Part::Counter { first: 0, per_s: k.rate * 3.0 };
            let mut tables = records(k, vec![source(load, k.rate, Kind::Write)], u64::MAX);
            tables[0].cuts.clear();
            tables
        }),
        kind("W12", "reads of an empty range", false, |k| {
            let reads = source(Part::Even(1 << 40, (1 << 40) + 1_000), k.rate, Kind::Read);
            records(k, vec![reads], u64::MAX)
        }),
        kind("W13", "many lukewarm partitions on one node", false, |k| {
            let writes = source(Part::Even(0, u64::MAX), k.rate, Kind::Write);
            let mut tables = records(k, vec![writes], u64::MAX);
            tables[0].spread = Spread::OneNode;
            tables
        }),
    ]
}

/// Idle partitions: the rest of a large cluster. Each always has about the same small load, some twice as much as
/// others.
#[must_use]
pub fn background(name: &str, partitions: u32, rows_per_s: f64) -> TableLoad {
    let mut table = TableLoad::records(
        name,
        vec![source(Part::Even(0, u64::MAX), rows_per_s, Kind::Write)],
        u64::MAX,
        1,
    );
    let step = u64::MAX / u64::from(partitions.max(1));
    let cut = |number: u32| {
        let offset = mix(u64::from(number)) % (step / 2).max(1);
        (u64::from(number) * step + offset).to_be_bytes().to_vec()
    };
    table.cuts = (1..partitions).map(cut).collect();
    table.facts.partitions_max = usize::MAX;
    table
}

/// Begin of virtual time, in seconds since the Unix epoch.
pub(crate) const BEGIN_S: u64 = BEGIN_US / SECOND_US;

#[cfg(test)]
mod tests {
    use super::*;

    fn names(name: &str) -> Vec<&'static str> {
        group(name).into_iter().map(|workload| workload.name).collect()
    }

    #[test]
    fn a_group_is_a_workload_with_its_variants() {
        assert_eq!(names("W3"), ["W3", "W3:metrics"]);
        assert_eq!(names("w3:"), ["W3"]);
        assert_eq!(names("w3:METRICS"), ["W3:metrics"]);
        assert_eq!(names("W1"), ["W1", "W1:ordered"], "and not W10 to W15");
        assert_eq!(names("all").len(), all().len());
        assert!(names("W").is_empty() && names("").is_empty() && names("W16").is_empty());
    }

    #[test]
    fn every_workload_says_what_it_shows_and_has_a_name_of_its_own() {
        let workloads = all();
        for workload in &workloads {
            assert!(!workload.shows().is_empty(), "{}", workload.name);
            let same = workloads
                .iter()
                .filter(|candidate| candidate.name.eq_ignore_ascii_case(workload.name));
            assert_eq!(same.count(), 1, "{}", workload.name);
        }
        let numbers: std::collections::BTreeSet<&str> =
            workloads.iter().map(|workload| workload.name.split(':').next().unwrap()).collect();
        assert_eq!(numbers.len(), 15, "W1 to W15: {numbers:?}");
    }

    #[test]
    fn only_the_first_table_has_rows_of_its_own() {
        for workload in all() {
            let tables = workload.tables(&Knobs::of(Design::UidTs, 1_000.0));
            assert!(!tables[0].mirrors, "{}", workload.name);
            assert!(tables[1..].iter().all(|table| table.mirrors), "{}", workload.name);
        }
    }
}
