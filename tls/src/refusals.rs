//! Refused handshakes in the log: one line for a network and period, with a count.
//!
//! The first refusal of a network is logged at once. Further ones are counted, and logged together when the period ends.
//! Refusals of further networks, when many are counted already, share a line.
//!
//! Invariant: in a period there are at most [`NETWORKS_MAX`] + 1 lines, however many handshakes are refused.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Time between two lines of one network.
pub(crate) const PERIOD: Duration = Duration::from_secs(60);
/// Maximum networks with lines of their own.
const NETWORKS_MAX: usize = 64;

/// Refusals of a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Network of the peers; none for those without a line of their own.
    pub(crate) network: Option<IpAddr>,
    /// Number of refused handshakes that no line has counted yet; never zero.
    pub(crate) count: u64,
    /// Error of the last one.
    pub(crate) error: String,
}

/// Refusals since the last line.
#[derive(Debug)]
struct Counter {
    count: u64,
    error: String,
    /// End of the period.
    end: Instant,
}

impl Counter {
    fn new(now: Instant) -> Self {
        Self { count: 0, error: String::new(), end: now + PERIOD }
    }

    fn add(&mut self, error: &str) {
        self.count += 1;
        error.clone_into(&mut self.error);
    }

    /// Ends a period with refusals and begins the next one.
    fn take(&mut self, network: Option<IpAddr>, now: Instant) -> Summary {
        let ended = std::mem::replace(self, Self::new(now));
        Summary { network, count: ended.count, error: ended.error }
    }
}

/// Counters of refused handshakes. Time comes from the caller.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    networks: BTreeMap<IpAddr, Counter>,
    others: Option<Counter>,
}

impl Refusals {
    /// Notes a refused handshake; true if it has to be logged now.
    pub(crate) fn add(&mut self, network: IpAddr, error: &str, now: Instant) -> bool {
        if let Some(counter) = self.networks.get_mut(&network) {
            counter.add(error);
            return false;
        }
        if self.networks.len() < NETWORKS_MAX {
            self.networks.insert(network, Counter::new(now));
            return true;
        }
        self.others.get_or_insert_with(|| Counter::new(now)).add(error);
        false
    }

    /// Ends the periods that are over, and returns the lines to log.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<Summary> {
        // A period without a refusal is the last of its network.
        self.networks.retain(|_, counter| counter.count > 0 || counter.end > now);
        let mut summaries: Vec<_> = self
            .networks
            .iter_mut()
            .filter(|(_, counter)| counter.end <= now)
            .map(|(network, counter)| counter.take(Some(*network), now))
            .collect();
        if let Some(counter) = &mut self.others
            && counter.end <= now
        {
            summaries.push(counter.take(None, now));
            self.others = None;
        }
        summaries
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn host(number: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, number))
    }

    fn summary(network: Option<IpAddr>, count: u64, error: &str) -> Summary {
        Summary { network, count, error: error.to_owned() }
    }

    #[test]
    fn a_network_has_one_line_in_each_period() {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        assert!(refusals.add(host(1), "first", start));
        for _ in 0..1000 {
            assert!(!refusals.add(host(1), "second", start));
        }
        assert!(refusals.add(host(2), "other", start + PERIOD / 2));
        assert!(refusals.due(start + PERIOD / 2).is_empty());
        let next = start + PERIOD;
        assert_eq!(refusals.due(next), [summary(Some(host(1)), 1000, "second")]);
        assert!(!refusals.add(host(1), "third", next));
        assert!(refusals.due(next).is_empty());
        // The other network was silent since its line, and is forgotten.
        assert_eq!(refusals.due(next + PERIOD), [summary(Some(host(1)), 1, "third")]);
        assert!(refusals.add(host(2), "again", next + PERIOD));
    }

    #[test]
    fn networks_beyond_the_maximum_share_a_line() {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        let logged = (0..=255).filter(|number| refusals.add(host(*number), "refused", start));
        assert_eq!(logged.count(), NETWORKS_MAX);
        let count = u64::try_from(256 - NETWORKS_MAX).unwrap();
        assert_eq!(refusals.due(start + PERIOD), [summary(None, count, "refused")]);
        assert!(refusals.due(start + PERIOD * 2).is_empty());
        assert!(refusals.add(host(1), "refused", start + PERIOD * 2));
    }
}
