//! The TSBS cpu-only data set (the DevOps use case of timescale/tsbs), reimplemented.
//!
//! One table, `cpu`: ten constant tags per host, ten fields, one row per host and interval. Order of rows: all
//! hosts at one time, then all hosts an interval later.
//!
//! A field begins with a uniform value in 0..100, takes a step of the standard normal distribution each interval,
//! stays within [0, 100], and is written truncated to an integer. Everything follows from the seed; a host's values
//! do not depend on the number of hosts. The numbers differ from those of TSBS (which uses the generator of Go's
//! library); their distributions are the same.

use std::borrow::Cow;
use std::time::Duration;

use crate::random::Random;

/// Table name.
pub const TABLE: &str = "cpu";
/// Name of the time index, as line protocol gives it.
pub const TIME: &str = "time";
/// Tag names, in TSBS's order.
pub const TAGS: [&str; 10] = [
    "hostname",
    "region",
    "datacenter",
    "rack",
    "os",
    "arch",
    "team",
    "service",
    "service_version",
    "service_environment",
];
/// Field names, in TSBS's order.
pub const FIELDS: [&str; 10] = [
    "usage_user",
    "usage_system",
    "usage_idle",
    "usage_nice",
    "usage_iowait",
    "usage_irq",
    "usage_softirq",
    "usage_steal",
    "usage_guest",
    "usage_guest_nice",
];

/// Regions and the letters of their datacenters.
const REGIONS: [(&str, &[&str]); 9] = [
    ("us-east-1", &["a", "b", "c", "e"]),
    ("us-west-1", &["a", "b"]),
    ("us-west-2", &["a", "b", "c"]),
    ("eu-west-1", &["a", "b", "c"]),
    ("eu-central-1", &["a", "b"]),
    ("ap-southeast-1", &["a", "b"]),
    ("ap-southeast-2", &["a", "b"]),
    ("ap-northeast-1", &["a", "c"]),
    ("sa-east-1", &["a", "b", "c"]),
];
const RACKS: u64 = 100;
const SYSTEMS: [&str; 3] = ["Ubuntu16.10", "Ubuntu16.04LTS", "Ubuntu15.10"];
const ARCHITECTURES: [&str; 2] = ["x64", "x86"];
const TEAMS: [&str; 4] = ["SF", "NYC", "LON", "CHI"];
const SERVICES: u64 = 20;
const SERVICE_VERSIONS: u64 = 2;
const ENVIRONMENTS: [&str; 3] = ["production", "staging", "test"];
/// Maximum of a field; the minimum is 0.
const VALUE_MAX: f64 = 100.0;
/// Separates the random stream of a host's tags from that of its values.
const TAG_STREAMS: u64 = 1 << 63;

/// Parameters of a data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Number of hosts, which are series.
    pub hosts: u32,
    /// Time of the first row, in nanoseconds since 1970.
    pub start_ns: i64,
    /// Interval between two rows of a host; at least a nanosecond.
    pub interval: Duration,
    /// Number of rows; need not be whole intervals.
    pub rows: u64,
    /// Seed of all values.
    pub seed: u64,
}

impl Spec {
    fn interval_ns(&self) -> i64 {
        i64::try_from(self.interval.as_nanos()).unwrap_or(i64::MAX)
    }
}

/// Constant properties of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    number: u32,
    region: &'static str,
    datacenter: &'static str,
    rack: u64,
    system: &'static str,
    architecture: &'static str,
    team: &'static str,
    service: u64,
    version: u64,
    environment: &'static str,
}

impl Host {
    fn new(seed: u64, number: u32) -> Self {
        let mut random = Random::new(seed, TAG_STREAMS | u64::from(number));
        let &(region, letters) = random.choose(&REGIONS);
        Self {
            number,
            region,
            datacenter: *random.choose::<&'static str>(letters),
            rack: random.below(RACKS),
            system: *random.choose::<&'static str>(&SYSTEMS),
            architecture: *random.choose::<&'static str>(&ARCHITECTURES),
            team: *random.choose::<&'static str>(&TEAMS),
            service: random.below(SERVICES),
            version: random.below(SERVICE_VERSIONS),
            environment: *random.choose::<&'static str>(&ENVIRONMENTS),
        }
    }

    /// Values of [`TAGS`].
    pub fn tags(&self) -> [Cow<'static, str>; 10] {
        [
            hostname(self.number).into(),
            self.region.into(),
            format!("{}{}", self.region, self.datacenter).into(),
            self.rack.to_string().into(),
            self.system.into(),
            self.architecture.into(),
            self.team.into(),
            self.service.to_string().into(),
            self.version.to_string().into(),
            self.environment.into(),
        ]
    }
}

/// Name of a host.
pub fn hostname(number: u32) -> String {
    format!("host_{number}")
}

/// Hosts of a data set, indexed by their numbers.
pub fn hosts(spec: &Spec) -> Vec<Host> {
    (0..spec.hosts).map(|number| Host::new(spec.seed, number)).collect()
}

/// A batch of rows, by column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Host numbers.
    pub hosts: Vec<u32>,
    /// Nanoseconds since 1970.
    pub times: Vec<i64>,
    /// Values of [`FIELDS`], each in 0..=100.
    pub fields: [Vec<i64>; 10],
}

impl Rows {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// True if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    fn with_capacity(count: usize) -> Self {
        Self {
            hosts: Vec::with_capacity(count),
            times: Vec::with_capacity(count),
            fields: std::array::from_fn(|_| Vec::with_capacity(count)),
        }
    }

    fn push(&mut self, host: u32, time: i64, walk: &mut Walk) {
        self.hosts.push(host);
        self.times.push(time);
        walk.write(&mut self.fields);
        walk.step();
    }
}

/// Random walks of one host's fields.
struct Walk {
    random: Random,
    values: [f64; 10],
}

impl Walk {
    fn new(seed: u64, number: u32) -> Self {
        let mut random = Random::new(seed, u64::from(number));
        let values = std::array::from_fn(|_| random.unit() * VALUE_MAX);
        Self { random, values }
    }

    #[expect(clippy::cast_possible_truncation, reason = "truncated is how fields are written")]
    fn write(&self, fields: &mut [Vec<i64>; 10]) {
        for (column, value) in fields.iter_mut().zip(self.values) {
            column.push(value as i64);
        }
    }

    fn step(&mut self) {
        for pair in self.values.chunks_exact_mut(2) {
            for (value, step) in pair.iter_mut().zip(self.random.normals()) {
                *value = (*value + step).clamp(0.0, VALUE_MAX);
            }
        }
    }
}

/// Generates the rows of a data set, in order.
pub struct Generator {
    spec: Spec,
    walks: Vec<Walk>,
    made: u64,
    next_host: u32,
    time: i64,
}

impl Generator {
    /// Starts at the first row.
    pub fn new(spec: Spec) -> Self {
        let walks = (0..spec.hosts).map(|number| Walk::new(spec.seed, number)).collect();
        let time = spec.start_ns;
        Self { spec, walks, made: 0, next_host: 0, time }
    }

    /// The next rows, `count` at most; `None` after the last one.
    pub fn next(&mut self, count: usize) -> Option<Rows> {
        let remaining = usize::try_from(self.spec.rows - self.made).unwrap_or(usize::MAX);
        let count = count.min(remaining);
        if count == 0 || self.walks.is_empty() {
            return None;
        }
        let mut rows = Rows::with_capacity(count);
        for _ in 0..count {
            let walk = &mut self.walks[self.next_host as usize];
            rows.push(self.next_host, self.time, walk);
            self.next_host += 1;
            if self.next_host == self.spec.hosts {
                self.next_host = 0;
                self.time += self.spec.interval_ns();
            }
        }
        self.made += count as u64;
        Some(rows)
    }
}

/// All rows of one host, in order of time: the same rows as the [`Generator`] makes. For data sets sorted by host.
///
/// If the last interval is incomplete, only the first hosts have a row in it.
pub fn rows_of(spec: &Spec, host: u32) -> Rows {
    let hosts = u64::from(spec.hosts.max(1));
    let intervals = spec.rows / hosts + u64::from(u64::from(host) < spec.rows % hosts);
    let mut walk = Walk::new(spec.seed, host);
    let mut rows = Rows::with_capacity(usize::try_from(intervals).unwrap_or(0));
    let mut time = spec.start_ns;
    for _ in 0..intervals {
        rows.push(host, time, &mut walk);
        time += spec.interval_ns();
    }
    rows
}

#[cfg(test)]
mod tests;
