//! The four key designs: how a row becomes a key, and how a key is read.

use partita_heatmap::Key;

/// Start of the load, seconds since the Unix epoch.
pub(crate) const START: u64 = 1_790_000_000;

/// Number of users. Their activity follows Zipf's law by user number: users with low numbers, which signed up
/// first, are the most active.
const USERS: u64 = 5000;

/// Share of events that have the single hot key.
const HOT: f64 = 0.85;

/// Ways to build the key of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Monotonic,
    UserFirst,
    Hashed,
    HotKey,
}

/// A key design with its file name and its title.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Design {
    pub(crate) kind: Kind,
    pub(crate) file: &'static str,
    pub(crate) name: &'static str,
}

pub(crate) const DESIGNS: [Design; 4] = [
    Design { kind: Kind::Monotonic, file: "monotonic", name: "events PRIMARY KEY (ts, userid)" },
    Design { kind: Kind::UserFirst, file: "user-first", name: "events PRIMARY KEY (userid, ts)" },
    Design {
        kind: Kind::Hashed,
        file: "hash-prefixed",
        name: "events PARTITION BY HASH (ts, userid)",
    },
    Design { kind: Kind::HotKey, file: "hot-key", name: "counters PRIMARY KEY (userid)" },
];

/// A seeded stream of numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// The next number, 0 to below 1.
    pub(crate) fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Cumulative shares of the users, by rank.
pub(crate) fn zipf() -> Vec<f64> {
    let weights = (1..=USERS).map(|rank| 1.0 / (rank as f64).powf(0.99));
    let sums: Vec<f64> = weights
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect();
    let whole = sums.last().copied().unwrap_or(1.0);
    sums.into_iter().map(|sum| sum / whole).collect()
}

impl Design {
    /// The key of an event in this second.
    pub(crate) fn key(self, second: u64, random: &mut Random, zipf: &[f64]) -> Key {
        let micros = (START + second) * 1_000_000 + random.next() % 1_000_000;
        let part = random.part();
        let user = zipf.partition_point(|sum| *sum < part) as u64;
        let pair = |first: u64, second: u64| [first.to_be_bytes(), second.to_be_bytes()].concat();
        match self.kind {
            Kind::Monotonic => pair(micros, user).into(),
            Kind::UserFirst => pair(user, micros).into(),
            Kind::Hashed => {
                let bucket = mixed(micros ^ user.rotate_left(32)).to_be_bytes();
                [&bucket[..2], &pair(micros, user)].concat().into()
            }
            Kind::HotKey if random.part() < HOT => Key::from(3217_u64.to_be_bytes()),
            Kind::HotKey => Key::from((random.next() % USERS).to_be_bytes()),
        }
    }

    /// First keys of the partitions at the start.
    pub(crate) fn partitions(self) -> Vec<Key> {
        let eighth = |part: u64| match self.kind {
            Kind::Monotonic => ((START - 60 * (8 - part)) * 1_000_000).to_be_bytes().to_vec(),
            Kind::UserFirst | Kind::HotKey => (USERS * part / 8).to_be_bytes().to_vec(),
            Kind::Hashed => (part * 8192).to_be_bytes()[6..].to_vec(),
        };
        std::iter::once(Vec::new()).chain((1..8).map(eighth)).map(Key::from).collect()
    }

    /// The key in SQL values.
    pub(crate) fn label(self, key: &[u8]) -> String {
        let number = |offset: usize| {
            key.get(offset..offset + 8)
                .and_then(|bytes| bytes.try_into().ok())
                .map(u64::from_be_bytes)
        };
        let user = |offset| number(offset).map(|user| format!("userid={user}"));
        let time = |offset| {
            number(offset).map(|micros| {
                let second = micros / 1_000_000 % 86_400;
                let (hour, minute) = (second / 3600, second / 60 % 60);
                format!("ts={hour:02}:{minute:02}:{:02}.{:03}", second % 60, micros / 1000 % 1000)
            })
        };
        let columns = match self.kind {
            Kind::Monotonic => vec![time(0), user(8)],
            Kind::UserFirst => vec![user(0), time(8)],
            Kind::HotKey => vec![user(0)],
            Kind::Hashed => {
                let bucket = key.get(..2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
                vec![bucket.map(|bucket| format!("hash={bucket}")), time(2), user(10)]
            }
        };
        columns.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}
