//! The list of streams: stationary loads, skewed ones, growing keys, sweeps, scans, and mixes of them.
//!
//! Invariants: rates of what moves are per second of the stream's own time, not per operation. Where a stream has a
//! phase (when the hour changes, where a sweep stands), the seed chooses it.

use partita_load::{Class, DetectOptions, Random, mix};

use super::{Draw, Kind, Op, SECOND_US, Truth};
use crate::zipf::{YCSB_THETA, Zipf};

/// Beginning of stream times; arbitrary, with room below.
pub(super) const BEGIN_US: u64 = 1_700_000_000 * SECOND_US;
/// Maximum lag between writers, unless the stream says otherwise.
pub(super) const DISORDER_US: u64 = 50_000;
const USERS: u64 = 100_000;
pub(super) const RECORDS: u64 = 1_000_000;
pub(super) const HOUR_US: u64 = 3_600 * SECOND_US;

const STATIC: &[Class] = &[Class::StaticRange];
const TAILS: &[Class] = &[Class::MultiTail];
const RIGHT: &[Class] = &[Class::MovingRight];

/// Widths of a key with one column.
pub(super) const KEY: &[usize] = &[8];
/// Widths of two columns: user and time, or time and user.
pub(super) const PAIR: &[usize] = &[8, 8];
/// Widths of a small number before the two.
pub(super) const TRIPLE: &[usize] = &[2, 8, 8];

pub(super) const PLAIN: DetectOptions =
    DetectOptions { keep_together: 0, placement: 0, time_column: None };
pub(super) const TIME_FIRST: DetectOptions = DetectOptions { time_column: Some(0), ..PLAIN };
pub(super) const TIME_SECOND: DetectOptions = DetectOptions { time_column: Some(1), ..PLAIN };
const TIME_THIRD: DetectOptions = DetectOptions { time_column: Some(2), ..PLAIN };
const BUCKET_TIME: DetectOptions = DetectOptions { placement: 1, ..TIME_SECOND };
const BUCKET_USER: DetectOptions = DetectOptions { placement: 1, ..TIME_THIRD };

/// A stream of point operations; most are.
pub(super) fn points<const N: usize>(
    widths: &'static [usize],
    mut columns: impl FnMut(u64, &mut Random) -> [u64; N] + Send + 'static,
) -> Draw {
    Box::new(move |time_us, random: &mut Random, op: &mut Op| {
        op.point(&columns(time_us, random), widths);
        true
    })
}

/// The timestamp of a row that arrives now.
pub(super) fn stamp(time_us: u64, random: &mut Random, disorder_us: u64) -> u64 {
    BEGIN_US + time_us - random.below(disorder_us + 1)
}

/// The timestamp of a row, a share of which arrives late.
pub(super) fn late_stamp(time_us: u64, random: &mut Random, share: f64, by_us: u64) -> u64 {
    let disorder = if random.chance(share) { by_us } else { DISORDER_US };
    stamp(time_us, random, disorder)
}

/// The timestamp of a row that arrives by one of two paths, of which one is longer.
fn lagging_stamp(time_us: u64, random: &mut Random, lag_us: u64) -> u64 {
    let lag = if random.chance(0.5) { lag_us } else { 0 };
    stamp(time_us, random, DISORDER_US) - lag
}

/// A user; the order of users is independent of how often they write.
fn user(zipf: &Zipf, random: &mut Random) -> u64 {
    mix(zipf.rank(random))
}

fn mild_users() -> Zipf {
    Zipf::new(USERS, 0.5)
}

/// The position of a sweep that visits `items` in order, once in `period_us`.
pub(super) fn swept(time_us: u64, phase: u64, period_us: u64, items: u64) -> u64 {
    ((time_us + phase) % period_us) * items / period_us
}

/// The streams, in the order in which they are reported.
#[must_use]
pub fn all() -> Vec<Kind> {
    [still(), growing(), tails(), sweeps(), scans(), mixed(), super::scored()].concat()
}

pub(super) fn kind(
    name: &'static str,
    description: &'static str,
    (truth, classes): (Truth, &'static [Class]),
    (columns, options): (&'static [usize], DetectOptions),
    make: fn(&mut Random) -> Draw,
) -> Kind {
    let first_columns = None;
    Kind {
        name,
        about: description,
        truth,
        classes,
        columns,
        options,
        first_columns,
        reads: false,
        make,
    }
}

/// Loads that stay in place.
fn still() -> Vec<Kind> {
    let cut = (Truth::Cut, STATIC);
    let hot = (Truth::Stay, &[Class::HotKey][..]);
    vec![
        // Even and skewed keys.
        kind("uniform", "keys evenly", cut, (KEY, PLAIN), |_| points(KEY, |_, r| [r.bits()])),
        kind("zipf scrambled", "YCSB zipfian 0.99", cut, (KEY, PLAIN), |_| {
            let zipf = Zipf::new(RECORDS, YCSB_THETA);
            points(KEY, move |_, r| [user(&zipf, r)])
        }),
        kind("zipf in order", "the same, frequent keys side by side", cut, (KEY, PLAIN), |_| {
            let zipf = Zipf::new(RECORDS, YCSB_THETA);
            points(KEY, move |_, r| [zipf.rank(r)])
        }),
        kind("hot range 90/1", "90 % in 1 % of the keys", cut, (KEY, PLAIN), |seed| {
            let start = seed.below(RECORDS * 98 / 100);
            points(KEY, move |_, r| {
                [if r.chance(0.9) { start + r.below(RECORDS / 100) } else { r.below(RECORDS) }]
            })
        }),
        // One or two keys with most of the load.
        kind("one key 80 %", "one key, and others evenly", hot, (KEY, PLAIN), |seed| {
            let key = seed.below(RECORDS);
            points(KEY, move |_, r| [if r.chance(0.8) { key } else { r.below(RECORDS) }])
        }),
        kind(
            "one series 80 %",
            "(uid, ts), one user writes most",
            hot,
            (PAIR, TIME_SECOND),
            |seed| {
                let hot = seed.bits();
                points(PAIR, move |time_us, r| {
                    [if r.chance(0.8) { hot } else { r.bits() }, stamp(time_us, r, DISORDER_US)]
                })
            },
        ),
        kind("two keys 45/45", "two keys, and others evenly", cut, (KEY, PLAIN), |seed| {
            let keys = [seed.below(RECORDS / 2), RECORDS / 2 + seed.below(RECORDS / 2)];
            points(KEY, move |_, r| {
                [if r.chance(0.9) { keys[r.index(2)] } else { r.below(RECORDS) }]
            })
        }),
        // Reads that no writes accompany.
        kind(
            "reads of nothing",
            "points in a narrow empty range",
            cut,
            (PAIR, TIME_SECOND),
            |_| points(PAIR, |_, r| [(1 << 60) + r.below(1_000), BEGIN_US + r.below(HOUR_US)]),
        ),
        kind(
            "old rows",
            "(ts, uid), reads of the last year evenly",
            cut,
            (PAIR, TIME_FIRST),
            |_| points(PAIR, |_, r| [BEGIN_US - r.below(365 * 24 * HOUR_US), r.bits()]),
        ),
    ]
}

/// Keys that grow (or shrink): no cut divides later operations.
fn growing() -> Vec<Kind> {
    let right = (Truth::Stay, RIGHT);
    let time_first = (PAIR, TIME_FIRST);
    vec![
        // Time or a counter comes first, in order or nearly.
        kind("sequence", "one counter", right, (KEY, PLAIN), |_| {
            points(KEY, |time_us, _| [time_us])
        }),
        kind("ts,uid in order", "no disorder", right, time_first, |_| {
            points(PAIR, |time_us, r| [stamp(time_us, r, 0), r.bits()])
        }),
        kind("ts,uid 50 ms", "disorder 50 ms", right, time_first, |_| {
            points(PAIR, |time_us, r| [stamp(time_us, r, DISORDER_US), r.bits()])
        }),
        kind("ts,uid 500 ms", "disorder 500 ms", right, time_first, |_| {
            points(PAIR, |time_us, r| [stamp(time_us, r, 500_000), r.bits()])
        }),
        // A share of the rows is late.
        kind("ts,uid late 10 %", "10 % up to ten minutes late", right, time_first, |_| {
            points(PAIR, |time_us, r| [late_stamp(time_us, r, 0.1, 600 * SECOND_US), r.bits()])
        }),
        kind("ts,uid backfill 30 %", "30 % anywhere in a day", right, time_first, |_| {
            points(PAIR, |time_us, r| [late_stamp(time_us, r, 0.3, 24 * HOUR_US), r.bits()])
        }),
        kind("ts,uid half 5 s late", "half of the writers lag by 5 s", right, time_first, |_| {
            points(PAIR, |time_us, r| [lagging_stamp(time_us, r, 5 * SECOND_US), r.bits()])
        }),
        kind("ts,uid half 20 s late", "half of the writers lag by 20 s", right, time_first, |_| {
            points(PAIR, |time_us, r| [lagging_stamp(time_us, r, 20 * SECOND_US), r.bits()])
        }),
        // Descending and coarse times, and one bucket.
        kind(
            "ts desc,uid",
            "newest first",
            (Truth::Stay, &[Class::MovingLeft]),
            time_first,
            |_| points(PAIR, |time_us, r| [u64::MAX - stamp(time_us, r, DISORDER_US), r.bits()]),
        ),
        kind("minute,uid", "time cut to minutes", right, time_first, |seed| {
            let phase = seed.below(60 * SECOND_US);
            points(PAIR, move |time_us, r| {
                [(BEGIN_US + phase + time_us) / (60 * SECOND_US), r.bits()]
            })
        }),
        kind("10 s,host", "time cut to 10 s, 1,000 hosts", right, time_first, |seed| {
            let phase = seed.below(10 * SECOND_US);
            points(PAIR, move |time_us, r| {
                [(BEGIN_US + phase + time_us) / (10 * SECOND_US), r.below(1_000)]
            })
        }),
        kind("one bucket,ts,uid", "a single hash bucket", right, (TRIPLE, BUCKET_TIME), |_| {
            points(TRIPLE, |time_us, r| [7, stamp(time_us, r, DISORDER_US), r.bits()])
        }),
        // Reads that follow the newest keys, and a sorted load.
        kind("latest reads", "YCSB D: zipf from the newest of 150/s", right, (KEY, PLAIN), |_| {
            let zipf = Zipf::new(USERS, YCSB_THETA);
            points(KEY, move |time_us, r| [USERS + time_us * 150 / SECOND_US - zipf.rank(r)])
        }),
        kind("bulk load", "sorted, into an empty partition", right, (KEY, PLAIN), |_| {
            points(KEY, |time_us, _| [time_us * 3])
        }),
    ]
}

/// Many places that grow.
fn tails() -> Vec<Kind> {
    let cut = (Truth::Cut, TAILS);
    vec![
        // A tail for each user.
        kind("uid,ts", "100,000 users, mild skew", cut, (PAIR, TIME_SECOND), |_| {
            let users = mild_users();
            points(PAIR, move |time_us, r| [user(&users, r), stamp(time_us, r, DISORDER_US)])
        }),
        kind("uid,ts zipf", "zipf .99 users", cut, (PAIR, TIME_SECOND), |_| {
            let users = Zipf::new(USERS, YCSB_THETA);
            points(PAIR, move |time_us, r| [user(&users, r), stamp(time_us, r, DISORDER_US)])
        }),
        kind("uid,ts late 10 %", "10 % up to ten minutes late", cut, (PAIR, TIME_SECOND), |_| {
            let users = mild_users();
            points(PAIR, move |time_us, r| {
                [user(&users, r), late_stamp(time_us, r, 0.1, 600 * SECOND_US)]
            })
        }),
        kind(
            "uid,ts in batches",
            "500 rows of one user at a time",
            cut,
            (PAIR, TIME_SECOND),
            |seed| {
                let salt = seed.bits();
                points(PAIR, move |time_us, r| {
                    [mix((time_us / 166_667) ^ salt), stamp(time_us, r, DISORDER_US)]
                })
            },
        ),
        // A prefix before the user or the time.
        kind("hash,uid,ts", "a hash of the user first", cut, (TRIPLE, BUCKET_USER), |_| {
            let users = mild_users();
            points(TRIPLE, move |time_us, r| {
                let user = user(&users, r);
                [mix(user), user, stamp(time_us, r, DISORDER_US)]
            })
        }),
        kind("bucket16,ts,uid", "a hash of the row first", cut, (TRIPLE, BUCKET_TIME), |_| {
            points(TRIPLE, |time_us, r| [r.below(16), stamp(time_us, r, DISORDER_US), r.bits()])
        }),
        kind("hour,uid,ts", "within one hour", cut, (TRIPLE, TIME_THIRD), |_| {
            points(TRIPLE, |time_us, r| [5, r.bits(), stamp(time_us, r, DISORDER_US)])
        }),
        // Few tails, and hosts that report in turn.
        kind("two tails", "(tenant, ts) of two tenants", cut, (PAIR, TIME_SECOND), |_| {
            points(PAIR, |time_us, r| [r.below(2), stamp(time_us, r, DISORDER_US)])
        }),
        kind(
            "eight sensors",
            "(sensor, ts), a reading a second each",
            cut,
            (PAIR, TIME_SECOND),
            |_| points(PAIR, |time_us, r| [r.below(8), (BEGIN_US + time_us) / SECOND_US]),
        ),
        kind(
            "hosts at 10 s",
            "30,000 hosts in order, every 10 s",
            cut,
            (PAIR, TIME_SECOND),
            |seed| {
                let phase = seed.below(10 * SECOND_US);
                points(PAIR, move |time_us, _| {
                    [swept(time_us, phase, 10 * SECOND_US, 30_000), BEGIN_US + time_us]
                })
            },
        ),
        kind("hosts at 15 s", "the same, every 15 s", cut, (PAIR, TIME_SECOND), |seed| {
            let phase = seed.below(15 * SECOND_US);
            points(PAIR, move |time_us, _| {
                [swept(time_us, phase, 15 * SECOND_US, 30_000), BEGIN_US + time_us]
            })
        }),
        kind("dashboards of users", "(uid, ts), the last 5 min", cut, (PAIR, TIME_SECOND), |_| {
            Box::new(|time_us, r, op| {
                let (user, now) = (mix(r.below(USERS)), BEGIN_US + time_us);
                op.scan(&[user, now - 300 * SECOND_US], &[user, now], PAIR);
                true
            })
        }),
    ]
}

/// Loads that wander over existing keys.
fn sweeps() -> Vec<Kind> {
    let sweep = (Truth::Stay, &[Class::Sweep][..]);
    let filled = |end: u64, kind: Kind| Kind { first_columns: Some((0, end)), ..kind };
    vec![
        filled(
            RECORDS,
            kind("sorted sweep", "all keys in order, in 5 min", sweep, (KEY, PLAIN), |seed| {
                let phase = seed.below(100 * SECOND_US);
                points(KEY, move |time_us, _| [swept(time_us, phase, 300 * SECOND_US, RECORDS)])
            }),
        ),
        filled(
            30_000,
            kind("hosts at 60 s", "30,000 hosts in order", sweep, (PAIR, TIME_SECOND), |seed| {
                let phase = seed.below(60 * SECOND_US);
                points(PAIR, move |time_us, _| {
                    [swept(time_us, phase, 60 * SECOND_US, 30_000), BEGIN_US + time_us]
                })
            }),
        ),
    ]
}

/// Reads of ranges.
fn scans() -> Vec<Kind> {
    let scans = (Truth::Stay, &[Class::ScanBound][..]);
    vec![
        // Scans that contain every cut, and scans of a few keys.
        kind("full scans 60 %", "and points evenly", scans, (KEY, PLAIN), |_| {
            Box::new(|_, r, op| {
                if r.chance(0.6) {
                    op.scan(&[], &[], KEY)
                } else {
                    op.point(&[r.bits()], KEY)
                }
                true
            })
        }),
        kind(
            "short scans",
            "YCSB E: up to 1,000 records",
            (Truth::Cut, STATIC),
            (KEY, PLAIN),
            |_| {
                Box::new(|_, r, op| {
                    let start = r.below(RECORDS);
                    op.scan(&[start], &[start + 1 + r.below(1_000)], KEY);
                    true
                })
            },
        ),
        // Scans of the newest keys.
        kind(
            "dashboards",
            "(ts, uid), the last 5 min",
            (Truth::Stay, RIGHT),
            (PAIR, TIME_FIRST),
            |_| {
                Box::new(|time_us, _, op| {
                    let instant_us = BEGIN_US + time_us;
                    op.scan(&[instant_us - 300 * SECOND_US], &[instant_us], PAIR);
                    true
                })
            },
        ),
        kind(
            "dashboards of all spans",
            "5 min, 1 h, 1 d",
            (Truth::Stay, &[]),
            (PAIR, TIME_FIRST),
            |_| {
                Box::new(|time_us, r, op| {
                    let span = [HOUR_US / 12, HOUR_US, 24 * HOUR_US][r.index(3)];
                    op.scan(&[BEGIN_US + time_us - span], &[BEGIN_US + time_us], PAIR);
                    true
                })
            },
        ),
    ]
}

/// Mixes, and loads that change during the observation.
fn mixed() -> Vec<Kind> {
    let open = (Truth::Open, &[][..]);
    vec![
        // Appends beside an even load.
        kind(
            "tail 30 % of updates",
            "70 % evenly, 30 % appended",
            (Truth::Cut, STATIC),
            (KEY, PLAIN),
            |_| {
                points(KEY, |time_us, r| {
                    [if r.chance(0.3) { BEGIN_US + time_us } else { r.below(BEGIN_US) }]
                })
            },
        ),
        kind("tail 60 % of updates", "40 % evenly, 60 % appended", open, (KEY, PLAIN), |_| {
            points(KEY, |time_us, r| {
                [if r.chance(0.6) { BEGIN_US + time_us } else { r.below(BEGIN_US) }]
            })
        }),
        kind("three tails", "(tenant, ts), 20/20/60 %", open, (PAIR, TIME_SECOND), |_| {
            points(PAIR, |time_us, r| [[0, 1, 2, 2, 2][r.index(5)], stamp(time_us, r, DISORDER_US)])
        }),
        // Loads that change or pause.
        kind("hour changes", "(hour, uid, ts), at 5 to 25 s", open, (TRIPLE, TIME_THIRD), |seed| {
            let change = (5 + seed.below(20)) * SECOND_US;
            points(TRIPLE, move |time_us, r| {
                [5 + u64::from(time_us > change), r.bits(), BEGIN_US + time_us]
            })
        }),
        kind("hot spot moves", "10 % of keys, elsewhere every 30 s", open, (KEY, PLAIN), |seed| {
            let (salt, phase) = (seed.bits(), seed.below(30 * SECOND_US));
            points(KEY, move |time_us, r| {
                let place = mix(((time_us + phase) / (30 * SECOND_US)) ^ salt) % 9;
                [(place * RECORDS + r.below(RECORDS)) / 10]
            })
        }),
        kind(
            "hosts in bursts",
            "30,000 hosts in 5 s of every 60",
            open,
            (PAIR, TIME_SECOND),
            |seed| {
                let phase = seed.below(60 * SECOND_US);
                let mut burst = points(PAIR, move |time_us, _| {
                    let at_in = (time_us + phase) % (60 * SECOND_US);
                    [at_in * 30_000 / (5 * SECOND_US), BEGIN_US + time_us]
                });
                Box::new(move |time_us, random, op| {
                    (time_us + phase) % (60 * SECOND_US) < 5 * SECOND_US
                        && burst(time_us, random, op)
                })
            },
        ),
        kind("drifting crowd", "zipf around a place that moves 1 %/s", open, (KEY, PLAIN), |_| {
            let zipf = Zipf::new(RECORDS, 0.8);
            points(KEY, move |time_us, r| {
                let place = time_us * RECORDS / (100 * SECOND_US);
                let off = zipf.rank(r);
                [if r.chance(0.5) {
                    RECORDS + place + off
                } else {
                    (RECORDS + place).saturating_sub(off)
                }]
            })
        }),
    ]
}
