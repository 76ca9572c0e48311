//! The fifteen queries of TSBS's DevOps use case, with their parameters drawn from a seed.
//!
//! | name | hosts | window | result |
//! |---|---|---|---|
//! | single-groupby-F-H-T | H | T hours | the maximum of F fields by minute |
//! | cpu-max-all-H | H | 8 h | the maximum of all fields by hour |
//! | double-groupby-F | all | 12 h | the mean of F fields by hour and host |
//! | high-cpu-H | H or all | 12 h | whole rows where usage_user > 90 |
//! | lastpoint | all | | the newest row of each host |
//! | groupby-orderby-limit | all | up to an hour's end | the maximum of usage_user of the last 5 minutes |
//!
//! Windows begin at a random second of the data's span and are shortened to that span if they are longer.
//! Parameters depend on the query, the run and the seed, not on which other queries run, so that every server gets
//! the same questions.

use crate::cpu::{FIELDS, hostname};
use crate::data::Data;
use crate::random::Random;

/// Seconds in an hour.
const HOUR: i64 = 3_600;

/// Kind of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Maximum of the first fields in each interval of `step_s` seconds.
    Maximum { fields: usize, step_s: i64 },
    /// Mean of the first fields by hour and host.
    MeanByHost { fields: usize },
    /// Whole rows of busy hosts.
    Busy,
    /// The newest row of each host.
    LastPoint,
    /// Maximum of the first field in each of the last five minutes before the window's end.
    LastMinutes,
}

/// A query without its hosts and window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Number of hosts to draw; `None`: all hosts.
    hosts: Option<u32>,
    hours: i64,
    /// True if it reads much of the data.
    pub(crate) heavy: bool,
}

const fn light(name: &'static str, kind: Kind, hosts: u32, hours: i64) -> Query {
    Query { name, kind, hosts: Some(hosts), hours, heavy: false }
}

const fn heavy(name: &'static str, kind: Kind, hosts: Option<u32>, hours: i64) -> Query {
    Query { name, kind, hosts, hours, heavy: true }
}

const fn by_minute(fields: usize) -> Kind {
    Kind::Maximum { fields, step_s: 60 }
}

const ALL_BY_HOUR: Kind = Kind::Maximum { fields: FIELDS.len(), step_s: HOUR };

/// All queries.
pub(crate) const QUERIES: [Query; 15] = [
    light("single-groupby-1-1-1", by_minute(1), 1, 1),
    light("single-groupby-1-1-12", by_minute(1), 1, 12),
    light("single-groupby-1-8-1", by_minute(1), 8, 1),
    light("single-groupby-5-1-1", by_minute(5), 1, 1),
    light("single-groupby-5-1-12", by_minute(5), 1, 12),
    light("single-groupby-5-8-1", by_minute(5), 8, 1),
    light("cpu-max-all-1", ALL_BY_HOUR, 1, 8),
    heavy("cpu-max-all-8", ALL_BY_HOUR, Some(8), 8),
    heavy("double-groupby-1", Kind::MeanByHost { fields: 1 }, None, 12),
    heavy("double-groupby-5", Kind::MeanByHost { fields: 5 }, None, 12),
    heavy("double-groupby-all", Kind::MeanByHost { fields: FIELDS.len() }, None, 12),
    light("high-cpu-1", Kind::Busy, 1, 12),
    heavy("high-cpu-all", Kind::Busy, None, 12),
    // Neither light nor heavy in the lists below: its cost is bounded differently on every server.
    Query { name: "lastpoint", kind: Kind::LastPoint, hosts: None, hours: 0, heavy: false },
    heavy("groupby-orderby-limit", Kind::LastMinutes, None, 1),
];

/// A query with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) query: Query,
    /// Host names; empty: all hosts.
    pub(crate) hosts: Vec<String>,
    /// Time window in seconds since 1970; the end is exclusive.
    pub(crate) start_s: i64,
    pub(crate) end_s: i64,
}

impl Query {
    /// The question of a run.
    pub(crate) fn question(&self, data: &Data, seed: u64, run: u64) -> Question {
        let place = QUERIES.iter().position(|query| query == self).unwrap_or(QUERIES.len());
        let mut random = Random::new(seed, ((place as u64) << 32) | run);
        let span = i64::try_from(data.span.as_secs()).unwrap_or(i64::MAX);
        let window = (self.hours * HOUR).min(span);
        let latest = u64::try_from(span - window).unwrap_or(0);
        let offset = i64::try_from(random.below(latest + 1)).unwrap_or(0);
        let start_s = data.start + offset;
        let hosts = self.hosts.map_or_else(Vec::new, |count| draw(&mut random, data.hosts, count));
        Question { query: *self, hosts, start_s, end_s: start_s + window }
    }

    /// True if it is among the queries that read little.
    pub(crate) fn is_light(&self) -> bool {
        !self.heavy && self.kind != Kind::LastPoint
    }
}

impl Question {
    /// Fields that it reads.
    pub(crate) fn fields(&self) -> &'static [&'static str] {
        match self.query.kind {
            Kind::Maximum { fields, .. } | Kind::MeanByHost { fields } => &FIELDS[..fields],
            Kind::LastMinutes => &FIELDS[..1],
            Kind::Busy | Kind::LastPoint => &FIELDS,
        }
    }
}

/// Distinct random hosts, in the order in which they were drawn.
fn draw(random: &mut Random, hosts: u32, count: u32) -> Vec<String> {
    let mut drawn: Vec<u64> = Vec::new();
    while drawn.len() < count.min(hosts) as usize {
        let host = random.below(u64::from(hosts));
        if !drawn.contains(&host) {
            drawn.push(host);
        }
    }
    drawn.into_iter().map(|host| hostname(u32::try_from(host).unwrap_or(u32::MAX))).collect()
}

/// Queries by name; `all`, `light` and `heavy` select several.
///
/// # Errors
/// If there is no query with that name.
pub(crate) fn named(names: &str) -> anyhow::Result<Vec<Query>> {
    let mut chosen: Vec<Query> = Vec::new();
    for name in names.split(',').map(str::trim) {
        let count = chosen.len();
        let selected = |query: &&Query| match name {
            "all" => true,
            "light" => query.is_light(),
            "heavy" => query.heavy,
            _ => query.name == name,
        };
        chosen.extend(QUERIES.iter().filter(selected));
        if chosen.len() == count {
            let available: Vec<_> = QUERIES.iter().map(|query| query.name).collect();
            anyhow::bail!("there is no query \"{name}\"; the queries are {}", available.join(", "));
        }
    }
    Ok(chosen)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;

    pub(crate) fn data(hosts: u32, hours: u64) -> Data {
        Data {
            hosts,
            span: Duration::from_secs(hours * 3_600),
            interval: Duration::from_secs(10),
            start: 1_451_606_400,
            seed: 123,
        }
    }

    #[test]
    fn every_run_asks_within_the_data_and_the_same_of_every_server() {
        let data = data(100, 24);
        for query in QUERIES {
            for run in 0..200 {
                let question = query.question(&data, 42, run);
                assert_eq!(question, query.question(&data, 42, run));
                assert!(question.start_s >= data.start);
                assert!(question.end_s <= data.start + 24 * HOUR, "{} {run}", query.name);
                assert_eq!(question.end_s - question.start_s, query.hours * HOUR);
                let mut hosts = question.hosts.clone();
                hosts.sort();
                hosts.dedup();
                assert_eq!(hosts.len(), query.hosts.unwrap_or(0) as usize);
            }
        }
        let runs: Vec<_> = (0..3).map(|run| QUERIES[0].question(&data, 42, run)).collect();
        assert!(runs[0] != runs[1] && runs[1] != runs[2]);
        assert_ne!(QUERIES[0].question(&data, 43, 0), runs[0]);
    }

    #[test]
    fn windows_are_cut_to_the_span() {
        let data = data(4, 3);
        let question = named("double-groupby-1").unwrap()[0].question(&data, 1, 0);
        assert_eq!((question.start_s, question.end_s), (data.start, data.start + 3 * HOUR));
        let few = named("cpu-max-all-8").unwrap()[0].question(&data, 1, 0);
        assert_eq!(few.hosts.len(), 4);
    }

    #[test]
    fn there_are_eight_light_and_six_heavy_queries() {
        assert_eq!(named("light").unwrap().len(), 8);
        assert_eq!(named("heavy").unwrap().len(), 6);
        assert_eq!(named("all").unwrap().len(), 15);
        assert_eq!(named("lastpoint, high-cpu-1").unwrap().len(), 2);
        assert!(named("lastpoints").is_err());
    }
}
