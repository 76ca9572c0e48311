//! A limiter of failed sign-ins: first free attempts, then delayed ones, then none until time has passed.
//!
//! ```text
//!   attempt ──► admit ──┬─ Now ──────────┐
//!                       ├─ After(delay) ─┴─► test the password ──┬─ right ──► succeeded: the attempt costs nothing
//!                       └─ Refused                               └─ wrong ──► the attempt stays charged
//! ```
//!
//! Two token buckets limit an attempt: that of its network (an IPv4 address, or the first 64 bits of an IPv6 address)
//! and that of its network and user name together. There is none of the name alone, because it would allow a user to
//! be locked out from outside. The buckets do not depend on whether the user exists.
//!
//! An attempt is charged before the password is tested, so that attempts at the same time do not share one token. A
//! success fills the bucket of its network and name, and refunds its attempt to the network. It does not fill the
//! bucket of the network: one valid password would then lift the limit on guesses of others. Networks and names
//! that have succeeded are no longer limited by the network, so that a neighbour behind the same address, or a client
//! with an old password, does not lock the others out.
//!
//! A bucket is one instant, the time at which it is full again; an attempt moves it by [`Rate::interval`].
//!
//! Invariants:
//! - there are at most [`Limits::entries_max`] buckets; the least recently used is dropped, and is full when it is
//!   needed again;
//! - `order` has exactly the keys of `buckets`, by the number of their last use;
//! - an attempt that is refused changes nothing, so that a lockout ends while attempts go on.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Default limit of the number of buckets: some megabytes.
const ENTRIES_MAX: usize = 65_536;
/// Bytes of a name that tell buckets apart. Longer names that begin alike share one, and memory has a bound.
const NAME_BYTES_MAX: usize = 64;

/// The rate of attempts that a bucket allows.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Attempts of a full bucket without delay.
    pub burst: u32,
    /// Time after which one more attempt is free.
    pub interval: Duration,
    /// Maximum delay of an attempt; one that would have to wait longer is refused.
    pub delay_max: Duration,
}

impl Rate {
    /// The time for which another attempt has to wait.
    fn delay(&self, full_at: Instant, now: Instant) -> Duration {
        let debt = full_at.saturating_duration_since(now) + self.interval;
        debt.saturating_sub(self.interval.saturating_mul(self.burst))
    }

    /// The time until another attempt would be admitted; zero if it is admitted now.
    fn refused_for(&self, delay: Duration) -> Duration {
        delay.saturating_sub(self.delay_max)
    }
}

/// Limits of failed sign-ins.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Rate for a network as a whole.
    pub network: Rate,
    /// Rate for a network and a user name together.
    pub name: Rate,
    /// Maximum number of buckets.
    pub entries_max: usize,
}

impl Default for Limits {
    /// 5 wrong passwords for a name, then one each 5 seconds; 50 from a network, then two each second. Delays are
    /// shorter than the time that a sign-in may take.
    fn default() -> Self {
        let delay_max = Duration::from_secs(5);
        Self {
            network: Rate { burst: 50, interval: Duration::from_millis(500), delay_max },
            name: Rate { burst: 5, interval: Duration::from_secs(5), delay_max },
            entries_max: ENTRIES_MAX,
        }
    }
}

/// The answer to an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The password may be tested.
    Now,
    /// The password may be tested after this time.
    After(Duration),
    /// The password must not be tested.
    Refused {
        /// Time until an attempt would be admitted.
        retry_after: Duration,
    },
}

/// A network, or a network and a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    network: u128,
    name: Option<Arc<[u8]>>,
}

impl Key {
    fn network(address: IpAddr) -> Self {
        let network = match address.to_canonical() {
            // Mapped addresses have other bits than zero below, so that they are no network of IPv6.
            IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()),
            IpAddr::V6(address) => u128::from(address) & !u128::from(u64::MAX),
        };
        Self { network, name: None }
    }

    fn with_name(&self, name: &str) -> Self {
        let name = &name.as_bytes()[..name.len().min(NAME_BYTES_MAX)];
        Self { network: self.network, name: Some(Arc::from(name)) }
    }
}

/// The number of an address's network.
pub(super) fn network(address: IpAddr) -> u128 {
    Key::network(address).network
}

#[derive(Debug)]
struct Bucket {
    full_at: Instant,
    has_succeeded: bool,
    last_use: u64,
}

/// The buckets of failed sign-ins. Time comes from the caller, and only order matters.
#[derive(Debug)]
pub struct Failures {
    limits: Limits,
    buckets: HashMap<Key, Bucket>,
    /// Keys by the number of their last use.
    order: BTreeMap<u64, Key>,
    uses: u64,
}

impl Failures {
    /// A limiter in which all buckets are full.
    pub fn new(limits: Limits) -> Self {
        Self { limits, buckets: HashMap::new(), order: BTreeMap::new(), uses: 0 }
    }

    /// Decides on an attempt to sign in before its password is tested, and charges it.
    pub fn admit(&mut self, address: IpAddr, name: &str, now: Instant) -> Admission {
        let network = Key::network(address);
        let name_key = network.with_name(name);
        let delay = |key: &Key, rate: &Rate| {
            let full_at = self.buckets.get(key).map_or(now, |bucket| bucket.full_at);
            rate.delay(full_at, now)
        };
        let is_known = self.is_known(&name_key);
        let named_delay = delay(&name_key, &self.limits.name);
        let network_delay =
            if is_known { Duration::ZERO } else { delay(&network, &self.limits.network) };
        // Both decide before either is charged.
        let retry_after = self
            .limits
            .name
            .refused_for(named_delay)
            .max(self.limits.network.refused_for(network_delay));
        if !retry_after.is_zero() {
            return Admission::Refused { retry_after };
        }
        if !is_known {
            self.charge(network, self.limits.network, now);
        }
        self.charge(name_key, self.limits.name, now);
        let delay = named_delay.max(network_delay);
        if delay.is_zero() { Admission::Now } else { Admission::After(delay) }
    }

    /// Notes that the password of an admitted attempt was right.
    pub fn succeeded(&mut self, address: IpAddr, name: &str, now: Instant) {
        let network = Key::network(address);
        let name_key = network.with_name(name);
        // Only an attempt of an unknown name was charged to the network.
        if !self.is_known(&name_key)
            && let Some(bucket) = self.buckets.get_mut(&network)
        {
            let refunded = bucket.full_at.checked_sub(self.limits.network.interval);
            bucket.full_at = refunded.unwrap_or(now);
        }
        let bucket = self.touch(name_key, now);
        bucket.full_at = now;
        bucket.has_succeeded = true;
    }

    /// The number of buckets.
    pub fn entries(&self) -> usize {
        self.buckets.len()
    }

    fn is_known(&self, key: &Key) -> bool {
        self.buckets.get(key).is_some_and(|bucket| bucket.has_succeeded)
    }

    fn charge(&mut self, key: Key, rate: Rate, now: Instant) {
        let bucket = self.touch(key, now);
        bucket.full_at = bucket.full_at.max(now) + rate.interval;
    }

    /// Finds a bucket or adds a full one, and makes it the most recently used.
    fn touch(&mut self, key: Key, now: Instant) -> &mut Bucket {
        self.uses += 1;
        if !self.buckets.contains_key(&key)
            && self.buckets.len() >= self.limits.entries_max
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.buckets.remove(&oldest);
        }
        let use_number = self.uses;
        self.order.insert(use_number, key.clone());
        let bucket = self.buckets.entry(key).or_insert(Bucket {
            full_at: now,
            has_succeeded: false,
            last_use: use_number,
        });
        if bucket.last_use != use_number {
            self.order.remove(&bucket.last_use);
            bucket.last_use = use_number;
        }
        bucket
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

    /// 3 attempts for a name, then one each second; 6 from a network, then one each second; delays of up to 2 seconds.
    fn limiter() -> Failures {
        let rate = |burst| Rate { burst, interval: SECOND, delay_max: 2 * SECOND };
        Failures::new(Limits { network: rate(6), name: rate(3), entries_max: 8 })
    }

    fn after(seconds: u32) -> Admission {
        Admission::After(seconds * SECOND)
    }

    fn refused(seconds: u32) -> Admission {
        Admission::Refused { retry_after: seconds * SECOND }
    }

    /// Attempts of the same kind at the same time.
    fn admissions(
        failures: &mut Failures,
        count: usize,
        address: IpAddr,
        name: &str,
        now: Instant,
    ) -> Vec<Admission> {
        (0..count).map(|_| failures.admit(address, name, now)).collect()
    }

    #[test]
    fn attempts_are_free_then_delayed_then_refused() {
        let (mut failures, now) = (limiter(), Instant::now());
        let free = Admission::Now;
        assert_eq!(
            admissions(&mut failures, 7, ADDRESS, "ann", now),
            [free, free, free, after(1), after(2), refused(1), refused(1)]
        );
        // Refused attempts do not prolong the lockout.
        assert_eq!(failures.admit(ADDRESS, "ann", now + SECOND), after(2));
        assert_eq!(failures.admit(ADDRESS, "ann", now + SECOND), refused(1));
    }

    #[test]
    fn time_fills_the_bucket() {
        let (mut failures, now) = (limiter(), Instant::now());
        admissions(&mut failures, 5, ADDRESS, "ann", now);
        assert_eq!(failures.admit(ADDRESS, "ann", now + 3 * SECOND), Admission::Now);
        assert_eq!(failures.admit(ADDRESS, "ann", now + 3 * SECOND), after(1));
        // Never above its burst.
        assert_eq!(
            admissions(&mut failures, 4, ADDRESS, "ann", now + 1000 * SECOND),
            [Admission::Now, Admission::Now, Admission::Now, after(1)]
        );
    }

    #[test]
    fn a_name_is_limited_for_each_network_by_itself() {
        let (mut failures, now) = (limiter(), Instant::now());
        admissions(&mut failures, 6, ADDRESS, "ann", now);
        assert_eq!(failures.admit(ADDRESS, "ann", now), refused(1));
        assert_eq!(failures.admit(OTHER, "ann", now), Admission::Now);
    }

    #[test]
    fn a_network_is_limited_over_all_names() {
        let (mut failures, now) = (limiter(), Instant::now());
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        let given: Vec<_> = names.iter().map(|name| failures.admit(ADDRESS, name, now)).collect();
        assert_eq!(given[..6], [Admission::Now; 6]);
        assert_eq!(given[6..], [after(1), after(2), refused(1)]);
    }

    #[test]
    fn a_success_fills_the_bucket_of_its_name_and_refunds_the_network() {
        let (mut failures, now) = (limiter(), Instant::now());
        admissions(&mut failures, 3, ADDRESS, "ann", now);
        failures.succeeded(ADDRESS, "ann", now);
        assert_eq!(
            admissions(&mut failures, 4, ADDRESS, "ann", now),
            [Admission::Now, Admission::Now, Admission::Now, after(1)]
        );
        // Two wrong passwords of the network are still charged: four of six are left.
        let names = ["a", "b", "c", "d", "e"];
        let given: Vec<_> = names.iter().map(|name| failures.admit(ADDRESS, name, now)).collect();
        assert_eq!(
            given,
            [Admission::Now, Admission::Now, Admission::Now, Admission::Now, after(1)]
        );
    }

    #[test]
    fn one_password_does_not_help_to_guess_others() {
        let (mut failures, now) = (limiter(), Instant::now());
        let mut guesses = 0;
        for number in 0..100 {
            failures.admit(ADDRESS, "mine", now);
            failures.succeeded(ADDRESS, "mine", now);
            let admission = failures.admit(ADDRESS, &format!("victim {number}"), now);
            guesses += usize::from(admission == Admission::Now);
        }
        assert_eq!(guesses, 6);
    }

    #[test]
    fn a_name_that_has_succeeded_is_not_locked_out_by_its_network() {
        let (mut failures, now) = (limiter(), Instant::now());
        failures.admit(ADDRESS, "ann", now);
        failures.succeeded(ADDRESS, "ann", now);
        for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            // Signing in keeps the bucket among the recently used ones.
            assert_eq!(failures.admit(ADDRESS, "ann", now), Admission::Now);
            failures.succeeded(ADDRESS, "ann", now);
            failures.admit(ADDRESS, name, now);
        }
        assert_eq!(failures.admit(ADDRESS, "i", now), refused(1));
        // Its own wrong passwords are limited all the same.
        assert_eq!(
            admissions(&mut failures, 4, ADDRESS, "ann", now),
            [Admission::Now, Admission::Now, Admission::Now, after(1)]
        );
    }

    #[test]
    fn addresses_are_taken_together_by_network() {
        let v6 = |text: &str| IpAddr::V6(text.parse::<Ipv6Addr>().unwrap());
        let same = |a: IpAddr, b: IpAddr| Key::network(a) == Key::network(b);
        assert!(same(v6("2001:db8::1"), v6("2001:db8::ffff:1")));
        assert!(!same(v6("2001:db8::1"), v6("2001:db8:0:1::1")));
        assert!(same(v6("::ffff:192.0.2.1"), ADDRESS));
        assert!(!same(ADDRESS, OTHER));
        assert!(!same(v6("::1"), IpAddr::V4(Ipv4Addr::LOCALHOST)));
        let network = Key::network(ADDRESS);
        assert_ne!(network.with_name(""), network, "an empty name is a name");
        let long = "é".repeat(1000);
        assert_eq!(network.with_name(&long).name.unwrap().len(), NAME_BYTES_MAX);
    }

    #[test]
    fn the_least_recently_used_bucket_goes_first() {
        let (mut failures, now) = (limiter(), Instant::now());
        admissions(&mut failures, 3, ADDRESS, "ann", now);
        for number in 0..4 {
            let address = IpAddr::V4(Ipv4Addr::new(198, 51, 100, number));
            failures.admit(address, "bob", now);
            assert!(failures.entries() <= 8);
        }
        assert_eq!(failures.entries(), 8);
        assert_eq!(failures.admit(ADDRESS, "ann", now), Admission::Now, "forgotten");
    }

    #[test]
    fn the_defaults_delay_less_than_a_sign_in_may_take() {
        let (mut failures, now) = (Failures::new(Limits::default()), Instant::now());
        let attempts = admissions(&mut failures, 7, ADDRESS, "ann", now);
        assert_eq!(attempts[..5], [Admission::Now; 5]);
        assert_eq!(attempts[5..], [after(5), refused(5)]);
    }

    fn check_order(failures: &Failures) -> Result<(), TestCaseError> {
        prop_assert_eq!(failures.buckets.len(), failures.order.len());
        for (number, key) in &failures.order {
            prop_assert_eq!(failures.buckets[key].last_use, *number);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn entries_never_exceed_their_limit(
            steps in prop::collection::vec((0..9_u8, 0..3_u8, any::<bool>()), 0..200),
        ) {
            let (mut failures, now) = (limiter(), Instant::now());
            for (host, name, is_right) in steps {
                let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, host));
                let name = format!("user {name}");
                failures.admit(address, &name, now);
                if is_right {
                    failures.succeeded(address, &name, now);
                }
                prop_assert!(failures.entries() <= 8);
                check_order(&failures)?;
            }
        }

        // Two networks and three names have eight buckets, so that none is forgotten.
        #[test]
        fn free_attempts_never_exceed_the_rate(
            steps in prop::collection::vec((0..2_u8, 0..3_u8, 0..2000_u64, any::<bool>()), 0..200),
        ) {
            let start = Instant::now();
            let (mut failures, mut now) = (limiter(), start);
            let mut free = 0;
            for (host, name, millis, is_right) in steps {
                now += Duration::from_millis(millis);
                let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, host));
                let name = format!("user {name}");
                let admission = failures.admit(address, &name, now);
                if (host, name.as_str()) == (0, "user 0") {
                    free += u64::from(admission == Admission::Now);
                    prop_assert!(free <= 3 + (now - start).as_secs());
                } else if is_right && !matches!(admission, Admission::Refused { .. }) {
                    failures.succeeded(address, &name, now);
                }
                check_order(&failures)?;
            }
        }
    }
}
