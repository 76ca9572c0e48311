//! More streams, of which most came to light on real clusters: ids of the usual generators, growth inside the keys, spots
//! that rotate, hot reads, and loads that change their rate.
//!
//! Invariants: as in `catalogue.rs`. Rotating spots change at whole seconds of the stream's time.

use partita_load::{Class, Random, mix};

use super::catalogue::{
    BEGIN_US, DISORDER_US, HOUR_US, KEY, PAIR, PLAIN, RECORDS, TIME_FIRST, TIME_SECOND, TRIPLE,
    kind, late_stamp, points, stamp, swept,
};
use super::{Draw, Kind, Op, SECOND_US, Truth};

const MILLISECOND_US: u64 = 1_000;
/// Rows a second of streams whose keys are counted.
const ROWS_PER_S: u64 = 1_500;
/// Writers that take blocks of ids.
const WRITERS: u64 = 8;
/// Names of months as words of three bytes, so that April comes before September, and July between them.
const MONTH: &[usize] = &[3, 8, 8];
const APRIL: u64 = 0x41_70_72;
const JULY: u64 = 0x4A_75_6C;
const SEPTEMBER: u64 = 0x53_65_70;

/// Tenant, time and id.
const TENANT: &[usize] = &[8, 8, 8];

const CUT: (Truth, &[Class]) = (Truth::Cut, &[Class::StaticRange]);
const TAILS: (Truth, &[Class]) = (Truth::Cut, &[Class::MultiTail]);
const RIGHT: (Truth, &[Class]) = (Truth::Stay, &[Class::MovingRight]);
const LEFT: (Truth, &[Class]) = (Truth::Stay, &[Class::MovingLeft]);
const WITHIN: (Truth, &[Class]) = (Truth::Stay, &[Class::MovingWithin]);
const ROTATING: (Truth, &[Class]) = (Truth::Stay, &[Class::Rotating]);
const HOT_KEY: (Truth, &[Class]) = (Truth::Stay, &[Class::HotKey]);
const READ_HOT: (Truth, &[Class]) = (Truth::Stay, &[Class::ReadHot]);
const OPEN: (Truth, &[Class]) = (Truth::Open, &[]);

/// The streams, in the order in which they are reported.
#[must_use]
pub fn scored() -> Vec<Kind> {
    [ids(), inside(), rotating(), skewed(), reads(), changing()].concat()
}

/// A key column of an id that begins with the time in milliseconds, and ends with random bits.
fn timed_id(time_us: u64, random: &mut Random, random_bits: u32) -> u64 {
    let ms = stamp(time_us, random, DISORDER_US) / MILLISECOND_US;
    (ms << random_bits) | random.below(1 << random_bits)
}

/// Ids that writers take in blocks of `size` from one counter. A writer uses up a block before it takes the next one, and
/// the writers take theirs one after the other.
fn blocks(size: u64, random: &mut Random) -> Draw {
    let block_us = size * WRITERS * SECOND_US / ROWS_PER_S;
    let phase = random.below(block_us);
    points(KEY, move |time_us, r| {
        let writer = r.below(WRITERS);
        // Writer 1 takes its block an eighth of a block's time after writer 0.
        let since = time_us + phase + block_us - writer * block_us / WRITERS;
        let (block, position_us) = (since / block_us * WRITERS + writer, since % block_us);
        [block * size + position_us * size / block_us]
    })
}

/// Ids of the usual generators.
fn ids() -> Vec<Kind> {
    vec![
        // Time in the highest bits, in this order or the other.
        kind("uuid v7", "48 bits of milliseconds, then random ones", RIGHT, (KEY, PLAIN), |_| {
            points(KEY, |time_us, r| [timed_id(time_us, r, 16)])
        }),
        kind("ulid", "the same, of one writer in order", RIGHT, (KEY, PLAIN), |_| {
            points(KEY, |time_us, _| {
                let ms = (BEGIN_US + time_us) / MILLISECOND_US;
                [(ms << 16) | (time_us % MILLISECOND_US)]
            })
        }),
        kind("snowflake ids", "ms, 16 machines, a sequence", RIGHT, (KEY, PLAIN), |_| {
            points(KEY, |time_us, r| {
                let ms = stamp(time_us, r, 5 * MILLISECOND_US) / MILLISECOND_US;
                [(ms << 22) | (r.below(16) << 12) | r.below(8)]
            })
        }),
        kind("descending ids", "one counter that falls", LEFT, (KEY, PLAIN), |_| {
            points(KEY, |time_us, _| [u64::MAX / 2 - time_us])
        }),
        kind("reversed time", "ms until the end of time, then an id", LEFT, (PAIR, PLAIN), |_| {
            points(PAIR, |time_us, r| {
                let ms = stamp(time_us, r, DISORDER_US) / MILLISECOND_US;
                [u64::MAX - ms, r.bits()]
            })
        }),
        // Blocks of a counter.
        kind("hi/lo 100", "blocks of 100 ids, 8 writers", RIGHT, (KEY, PLAIN), |seed| {
            blocks(100, seed)
        }),
        kind("hi/lo 1000", "blocks of 1,000 ids, 8 writers", RIGHT, (KEY, PLAIN), |seed| {
            blocks(1_000, seed)
        }),
        kind("hi/lo 5000", "blocks of 5,000 ids, 8 writers", RIGHT, (KEY, PLAIN), |seed| {
            blocks(5_000, seed)
        }),
        kind("hi/lo 20000", "a block lasts for 107 s", OPEN, (KEY, PLAIN), |seed| {
            blocks(20_000, seed)
        }),
        kind("counters of tenants", "(tenant, counter), 200 tenants", TAILS, (PAIR, PLAIN), |_| {
            points(PAIR, |time_us, r| {
                let tenant = r.below(200);
                [mix(tenant), (time_us + mix(tenant) % SECOND_US) / (100 * MILLISECOND_US)]
            })
        }),
    ]
}

/// Growth between existing keys.
fn inside() -> Vec<Kind> {
    let bounded = |first, last, kind: Kind| Kind { first_columns: Some((first, last)), ..kind };
    let numbers_end = digits(9_999_999);
    vec![
        bounded(
            APRIL,
            SEPTEMBER,
            kind("month names", "(month as text, ts, id)", WITHIN, (MONTH, TIME_SECOND), |_| {
                points(MONTH, |time_us, r| [JULY, stamp(time_us, r, DISORDER_US), r.bits()])
            }),
        ),
        bounded(
            digits(1),
            numbers_end,
            kind(
                "numbers as text",
                "ORD-1234567: digits, no zeros",
                WITHIN,
                (KEY, PLAIN),
                |seed| {
                    let start = 2_000_000 + seed.below(1_000_000);
                    points(KEY, move |time_us, r| {
                        let number = time_us.saturating_sub(r.below(DISORDER_US)) * 300 / SECOND_US;
                        [digits(start + number)]
                    })
                },
            ),
        ),
        bounded(
            0,
            1 << 40,
            kind("newest users", "(uid, ts), old users above", WITHIN, (PAIR, TIME_SECOND), |_| {
                points(PAIR, |time_us, r| {
                    // A user writes for the first two seconds.
                    let newest = (1 << 32) + (4 * SECOND_US + time_us) * 50 / SECOND_US;
                    [newest - r.below(100), stamp(time_us, r, DISORDER_US)]
                })
            }),
        ),
        bounded(
            0,
            RECORDS * 100,
            kind("bulk over existing", "all keys in order, in 2 h", WITHIN, (KEY, PLAIN), |seed| {
                let phase = seed.below(HOUR_US);
                points(KEY, move |time_us, _| [swept(time_us, phase, 2 * HOUR_US, RECORDS * 100)])
            }),
        ),
        kind(
            "one tenant of 20",
            "(tenant, ts, id), one has 60 %",
            WITHIN,
            (TENANT, TIME_SECOND),
            |_| {
                points(TENANT, |time_us, r| {
                    let tenant = if r.chance(0.6) { 10 } else { r.below(20) };
                    [tenant, stamp(time_us, r, DISORDER_US), r.bits()]
                })
            },
        ),
        kind("two moving prefixes", "(region, ts, id)", TAILS, (TRIPLE, TIME_SECOND), |_| {
            points(TRIPLE, |time_us, r| [40 + r.below(2), stamp(time_us, r, DISORDER_US), r.bits()])
        }),
    ]
}

/// A number as text without leading zeros, with zero bytes behind it.
fn digits(number: u64) -> u64 {
    let mut bytes = [0; 8];
    for (byte, digit) in bytes.iter_mut().zip(number.to_string().bytes()) {
        *byte = digit;
    }
    u64::from_be_bytes(bytes)
}

/// One key of a thousand with nearly all load, and another one every so many seconds.
fn spots(period_s: u64, random: &mut Random) -> Draw {
    let salt = random.bits();
    points(KEY, move |time_us, r| {
        let spot = mix((time_us / (period_s * SECOND_US)) ^ salt) % 1_000;
        [if r.chance(0.97) { spot * 1_000 } else { r.below(RECORDS) }]
    })
}

/// Spots that rotate.
fn rotating() -> Vec<Kind> {
    vec![
        kind("spot of 1 s", "97 % on another key each second", ROTATING, (KEY, PLAIN), |seed| {
            spots(1, seed)
        }),
        kind("spot of 3 s", "the same, every 3 s", ROTATING, (KEY, PLAIN), |seed| spots(3, seed)),
        kind("spot of 5 s", "the same, every 5 s", ROTATING, (KEY, PLAIN), |seed| spots(5, seed)),
    ]
}

/// Late, skewed and wandering loads.
fn skewed() -> Vec<Kind> {
    vec![
        kind("ts,uid late 40 %", "40 % up to an hour late", OPEN, (PAIR, TIME_FIRST), |_| {
            points(PAIR, |time_us, r| [late_stamp(time_us, r, 0.4, HOUR_US), r.bits()])
        }),
        kind(
            "flood of one host",
            "(host, ts), one of 1,000 writes 95 %",
            HOT_KEY,
            (PAIR, TIME_SECOND),
            |seed| {
                let flooding = seed.below(1_000);
                points(PAIR, move |time_us, r| {
                    let host = if r.chance(0.95) { flooding } else { r.below(1_000) };
                    [mix(host), stamp(time_us, r, DISORDER_US)]
                })
            },
        ),
        kind("geohash walk", "a fleet that drives through cells", OPEN, (KEY, PLAIN), |seed| {
            let (salt, mut cell) = (seed.bits(), 1_u64 << 40);
            let mut moved_us = 0;
            points(KEY, move |time_us, r| {
                // Two thousand cells a second, in a direction that changes every ten seconds.
                let steps = (time_us - moved_us) / 500;
                moved_us += steps * 500;
                let is_east = mix((time_us / (10 * SECOND_US)) ^ salt).is_multiple_of(2);
                cell = if is_east { cell + steps } else { cell - steps };
                [cell + r.below(10_000)]
            })
        }),
        // From half on, what is appended outweighs the rest after every cut.
        kind("tail 50 % of updates", "50 % evenly, 50 % appended", OPEN, (KEY, PLAIN), |_| {
            points(KEY, |time_us, r| {
                [if r.chance(0.5) { BEGIN_US + time_us } else { r.below(BEGIN_US) }]
            })
        }),
    ]
}

/// Reads that no cut divides.
fn reads() -> Vec<Kind> {
    let read = |kind: Kind| Kind { reads: true, ..kind };
    vec![
        read(kind("hot read", "one key has 85 % of the reads", READ_HOT, (KEY, PLAIN), |seed| {
            let key = seed.below(RECORDS);
            points(KEY, move |_, r| [if r.chance(0.85) { key } else { r.below(RECORDS) }])
        })),
        read(kind(
            "reads of the newest",
            "(ts, uid), scans of the last minute",
            READ_HOT,
            (PAIR, TIME_FIRST),
            |_| {
                Box::new(|time_us, _: &mut Random, op: &mut Op| {
                    let newest = BEGIN_US + time_us;
                    op.scan(&[newest - 60 * SECOND_US], &[newest], PAIR);
                    true
                })
            },
        )),
        read(kind(
            "scans of one tenant",
            "(tenant, ts), all rows of one of 50: 80 %",
            READ_HOT,
            (PAIR, TIME_SECOND),
            |seed| {
                let hot = mix(seed.below(50));
                Box::new(move |_, r: &mut Random, op: &mut Op| {
                    let tenant = if r.chance(0.8) { hot } else { mix(r.below(50)) };
                    op.scan(&[tenant, 0], &[tenant, u64::MAX], PAIR);
                    true
                })
            },
        )),
    ]
}

/// A stream that has operations only in a share of the times, which depends on the time.
fn at_rate(mut draw: Draw, share: impl Fn(u64) -> f64 + Send + 'static) -> Draw {
    Box::new(move |time_us, random: &mut Random, op: &mut Op| {
        random.chance(share(time_us)) && draw(time_us, random, op)
    })
}

/// Loads whose rate or kind changes.
fn changing() -> Vec<Kind> {
    vec![
        kind("ramp", "even keys, from a fifth to all in a minute", CUT, (KEY, PLAIN), |_| {
            at_rate(even_keys(), |time_us| {
                0.2 + 0.8 * (time_us.min(60 * SECOND_US) as f64 / (60 * SECOND_US) as f64)
            })
        }),
        kind("bursts of 2 s", "even keys, in 2 s of every 10", CUT, (KEY, PLAIN), |seed| {
            let phase = seed.below(10 * SECOND_US);
            at_rate(even_keys(), move |time_us| {
                f64::from(u8::from((time_us + phase) % (10 * SECOND_US) < 2 * SECOND_US))
            })
        }),
        kind("even after a tail", "appended for 25 s, then even", OPEN, (KEY, PLAIN), |_| {
            points(KEY, |time_us, r| {
                [if time_us < 25 * SECOND_US { BEGIN_US + time_us } else { r.below(2 * BEGIN_US) }]
            })
        }),
    ]
}

/// Keys evenly.
fn even_keys() -> Draw {
    points(KEY, |_, r| [r.bits()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_use_up_their_blocks_and_never_share_one() {
        let mut random = Random::new(3);
        let mut draw = blocks(1_000, &mut random);
        let mut op = Op::default();
        let mut highest = 0;
        for step in 0..60_000 {
            draw(step * 1_000, &mut random, &mut op);
            let key = u64::from_be_bytes(op.key.as_slice().try_into().unwrap());
            // Eight blocks are in use at a time.
            assert!(key + 10_000 > highest, "{key} long after {highest}");
            highest = highest.max(key);
        }
        let rows = highest - 8_000;
        assert!((80_000..105_000).contains(&rows), "{rows} rows in a minute");
    }

    #[test]
    fn numbers_as_text_are_ordered_as_text() {
        assert!(digits(1_234_567) < digits(999_999));
        assert!(digits(12) > digits(1) && digits(2) > digits(19));
    }
}
