//! The TSBS cpu-only data set (the DevOps use case of timescale/tsbs), generated afresh.
//!
//! One table, `cpu`: ten tags that a host keeps for ever, ten fields, one row per host and interval.
//! Order of rows: all hosts at one time, then all hosts an interval later.
//!
//! A field begins evenly in 0..100, takes a step of the standard normal distribution each interval,
//! stays within [0, 100] and is written truncated to an integer. Everything follows from the seed;
//! a host's values do not depend on how many hosts there are. The numbers are not those that TSBS
//! itself draws (it uses the generator of Go's library); their distributions are.

use std::borrow::Cow;
use std::time::Duration;

use crate::random::Random;

/// The table.
pub const TABLE: &str = "cpu";
/// The time index, as line protocol's tables call it.
pub const TIME: &str = "time";
/// The tags, in the order in which TSBS writes them.
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
/// The fields, in the order in which TSBS writes them.
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
/// The largest value of a field; the smallest is 0.
const VALUE_MAX: f64 = 100.0;
/// What keeps the stream of a host's tags apart from that of its values.
const TAG_STREAMS: u64 = 1 << 63;

/// Which data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Hosts, which are series.
    pub hosts: u32,
    /// The first row's time, in nanoseconds since 1970.
    pub start_ns: i64,
    /// Between two rows of a host; at least a nanosecond.
    pub interval: Duration,
    /// Rows to make: of whole intervals unless said otherwise.
    pub rows: u64,
    /// What everything follows from.
    pub seed: u64,
}

impl Spec {
    fn interval_ns(&self) -> i64 {
        i64::try_from(self.interval.as_nanos()).unwrap_or(i64::MAX)
    }
}

/// What a host is, for ever.
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

    /// The values of [`TAGS`].
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

/// The name of a host.
pub fn hostname(number: u32) -> String {
    format!("host_{number}")
}

/// The hosts of a data set; their number is their place.
pub fn hosts(spec: &Spec) -> Vec<Host> {
    (0..spec.hosts).map(|number| Host::new(spec.seed, number)).collect()
}

/// Rows, column by column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Numbers of hosts.
    pub hosts: Vec<u32>,
    /// Nanoseconds since 1970.
    pub times: Vec<i64>,
    /// The values of [`FIELDS`], each in 0..=100.
    pub fields: [Vec<i64>; 10],
}

impl Rows {
    /// How many.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether there are none.
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

/// One host's fields on their way.
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

/// Makes the rows of a data set, in order.
pub struct Generator {
    spec: Spec,
    walks: Vec<Walk>,
    made: u64,
    next_host: u32,
    time: i64,
}

impl Generator {
    /// From the first row on.
    pub fn new(spec: Spec) -> Self {
        let walks = (0..spec.hosts).map(|number| Walk::new(spec.seed, number)).collect();
        let time = spec.start_ns;
        Self { spec, walks, made: 0, next_host: 0, time }
    }

    /// The next rows, `count` at most; none when all are made.
    pub fn next(&mut self, count: usize) -> Option<Rows> {
        let left = usize::try_from(self.spec.rows - self.made).unwrap_or(usize::MAX);
        let count = count.min(left);
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

/// All rows of one host, in the order of their times: the same ones that the [`Generator`] makes among others. For those
/// who want the data set sorted by host.
///
/// Of a last interval that is not whole, the first hosts have a row.
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
