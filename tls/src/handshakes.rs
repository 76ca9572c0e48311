//! Handshakes in progress at a port, bounded by network and in total, so that strangers do not delay members of the
//! cluster.
//!
//! ```text
//!   begin(address) ──► queue of members or of strangers ──► number, and the handshake that ends for it
//!   end(number)        with a proof of membership, the network counts as one of members from then on
//! ```
//!
//! A handshake never waits for others and is never refused because of them. When a limit is reached, the oldest one ends
//! instead: of the same network at the limit of the network, of the network with the most at the limit of the queue. An
//! honest handshake takes milliseconds, so that the oldest is one that stalls.
//!
//! Invariants:
//! - a queue never has more handshakes than its limits allow, in total and of each network;
//! - a handshake from a network of strangers ends none from a network of members;
//! - at most [`Limits::networks_max`] networks are known to have members; the one that was proved longest ago is
//!   forgotten first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

/// Bits of an IPv6 address that name its network.
const NETWORK_BITS: u128 = !(u64::MAX as u128);

/// Maximum handshakes in progress in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// From one network.
    pub(crate) network: usize,
    /// From all networks together.
    pub(crate) total: usize,
}

/// Limits of the handshakes of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Networks from which no member has connected yet.
    pub(crate) strangers: Share,
    /// Networks from which a member has connected.
    pub(crate) members: Share,
    /// Maximum networks that are known to have members.
    pub(crate) networks_max: usize,
}

impl Default for Limits {
    /// 512 handshakes of members on one machine are those of a large cluster that starts there at once.
    fn default() -> Self {
        Self {
            strangers: Share { network: 128, total: 512 },
            members: Share { network: 512, total: 1536 },
            networks_max: 1024,
        }
    }
}

/// A handshake that may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// Number of the handshake; larger ones are younger.
    pub(crate) number: u64,
    /// Network of the peer.
    pub(crate) network: IpAddr,
    /// Number of the handshake that has to end for it, if any.
    pub(crate) displaced: Option<u64>,
}

/// Network of an address: an IPv4 address, or the first 64 bits of an IPv6 address.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & NETWORK_BITS)),
    }
}

/// Handshakes in progress with their limits.
#[derive(Debug)]
struct Queue {
    share: Share,
    count: usize,
    /// Numbers of the handshakes of each network that has any.
    networks: BTreeMap<IpAddr, BTreeSet<u64>>,
}

impl Queue {
    fn new(share: Share) -> Self {
        Self { share, count: 0, networks: BTreeMap::new() }
    }

    /// Adds a handshake, and returns the one that was removed to make room.
    fn add(&mut self, network: IpAddr, number: u64) -> Option<u64> {
        let crowded = self.crowded(network);
        let displaced = crowded.and_then(|crowded| {
            let oldest = *self.networks.get(&crowded)?.first()?;
            self.remove(crowded, oldest).then_some(oldest)
        });
        if self.networks.entry(network).or_default().insert(number) {
            self.count += 1;
        }
        displaced
    }

    /// Network whose oldest handshake has to end before another one of `network` begins.
    fn crowded(&self, network: IpAddr) -> Option<IpAddr> {
        let len = self.networks.get(&network).map_or(0, BTreeSet::len);
        if len >= self.share.network {
            return Some(network);
        }
        if self.count < self.share.total {
            return None;
        }
        // Of several networks with as many, the one with the oldest handshake.
        let largest = self
            .networks
            .iter()
            .max_by_key(|(_, numbers)| (numbers.len(), Reverse(numbers.first().copied())));
        largest.map(|(network, _)| *network)
    }

    /// True if the handshake was in progress.
    fn remove(&mut self, network: IpAddr, number: u64) -> bool {
        let Some(numbers) = self.networks.get_mut(&network) else { return false };
        let is_removed = numbers.remove(&number);
        if numbers.is_empty() {
            self.networks.remove(&network);
        }
        self.count -= usize::from(is_removed);
        is_removed
    }
}

/// Handshakes in progress at a port.
#[derive(Debug)]
pub(crate) struct Handshakes {
    strangers: Queue,
    members: Queue,
    /// Networks from which a member has connected, with the number of its youngest handshake.
    proved: BTreeMap<IpAddr, u64>,
    networks_max: usize,
    /// Number of the youngest handshake.
    youngest: u64,
}

impl Handshakes {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            strangers: Queue::new(limits.strangers),
            members: Queue::new(limits.members),
            proved: BTreeMap::new(),
            networks_max: limits.networks_max,
            youngest: 0,
        }
    }

    /// Begins a handshake with a peer. One of a number that is returned as displaced is not in progress any more.
    pub(crate) fn begin(&mut self, address: IpAddr) -> Admitted {
        let network = network_of(address);
        self.youngest += 1;
        let number = self.youngest;
        let is_of_members = self.proved.contains_key(&network);
        let queue = if is_of_members { &mut self.members } else { &mut self.strangers };
        Admitted { number, network, displaced: queue.add(network, number) }
    }

    /// Ends a handshake, which may have been displaced before. `is_member`: the peer has proved a role of the cluster.
    pub(crate) fn end(&mut self, network: IpAddr, number: u64, is_member: bool) {
        // The network may have proved to be one of members meanwhile: the handshake stays in the queue in which it began.
        if !self.strangers.remove(network, number) {
            self.members.remove(network, number);
        }
        if is_member {
            self.prove(network, number);
        }
    }

    fn prove(&mut self, network: IpAddr, number: u64) {
        let last = self.proved.entry(network).or_insert(number);
        *last = number.max(*last);
        if self.proved.len() > self.networks_max {
            let oldest = self.proved.iter().min_by_key(|(_, last)| **last);
            if let Some(oldest) = oldest.map(|(network, _)| *network) {
                self.proved.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const LIMITS: Limits = Limits {
        strangers: Share { network: 3, total: 5 },
        members: Share { network: 4, total: 6 },
        networks_max: 2,
    };

    fn host(number: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, number))
    }

    /// Begins handshakes from hosts, and returns the displaced ones.
    fn begin(handshakes: &mut Handshakes, hosts: &[u8]) -> Vec<Option<u64>> {
        hosts.iter().map(|number| handshakes.begin(host(*number)).displaced).collect()
    }

    /// Makes the network of a host one of members.
    fn join(handshakes: &mut Handshakes, number: u8) {
        let admitted = handshakes.begin(host(number));
        handshakes.end(admitted.network, admitted.number, true);
    }

    #[test]
    fn a_network_at_its_limit_loses_its_oldest_handshake() {
        let mut handshakes = Handshakes::new(LIMITS);
        let displaced = begin(&mut handshakes, &[1, 1, 2, 1, 1, 1]);
        assert_eq!(displaced, [None, None, None, None, Some(1), Some(2)]);
        handshakes.end(host(1), 4, false);
        assert_eq!(begin(&mut handshakes, &[1, 1]), [None, Some(5)]);
    }

    #[test]
    fn in_total_the_network_with_the_most_loses_its_oldest_handshake() {
        let mut handshakes = Handshakes::new(LIMITS);
        let displaced = begin(&mut handshakes, &[1, 2, 2, 2, 3, 4, 5]);
        assert_eq!(displaced, [None, None, None, None, None, Some(2), Some(3)]);
        // All have one: the oldest of them.
        assert_eq!(begin(&mut handshakes, &[6]), [Some(1)]);
    }

    #[test]
    fn strangers_end_no_handshake_from_a_network_of_members() {
        let mut handshakes = Handshakes::new(LIMITS);
        join(&mut handshakes, 1);
        let member = handshakes.begin(host(1));
        assert_eq!(member.displaced, None);
        for number in 2..=200 {
            let displaced = handshakes.begin(host(number)).displaced;
            assert_ne!(displaced, Some(member.number));
            assert_eq!(displaced.is_some(), number > 6, "{number}");
        }
        // Members have limits too.
        assert_eq!(begin(&mut handshakes, &[1, 1, 1, 1]), [None, None, None, Some(member.number)]);
    }

    #[test]
    fn a_handshake_ends_in_the_queue_in_which_it_began() {
        let mut handshakes = Handshakes::new(LIMITS);
        let early = [handshakes.begin(host(1)), handshakes.begin(host(1))];
        join(&mut handshakes, 1);
        for admitted in early {
            handshakes.end(admitted.network, admitted.number, false);
            // Displaced before, or ended twice: nothing else ends.
            handshakes.end(admitted.network, admitted.number, false);
        }
        assert_eq!((handshakes.strangers.count, handshakes.members.count), (0, 0));
        assert!(handshakes.strangers.networks.is_empty());
    }

    #[test]
    fn the_network_that_was_proved_longest_ago_is_forgotten() {
        let mut handshakes = Handshakes::new(LIMITS);
        for number in [1, 2, 1, 3] {
            join(&mut handshakes, number);
        }
        let networks: Vec<_> = handshakes.proved.keys().copied().collect();
        assert_eq!(networks, [host(1), host(3)]);
    }

    #[test]
    fn queues_never_exceed_their_limits() {
        let mut handshakes = Handshakes::new(LIMITS);
        let mut state = 7_u64;
        let mut pending = Vec::new();
        for _ in 0..5_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let draw = state >> 33;
            let address = host(u8::try_from(draw % 9).unwrap());
            if draw % 5 < 3 || pending.is_empty() {
                pending.push(handshakes.begin(address));
            } else {
                let position = usize::try_from(draw).unwrap() % pending.len();
                let ended = pending.swap_remove(position);
                handshakes.end(ended.network, ended.number, draw.is_multiple_of(11));
            }
            for queue in [&handshakes.strangers, &handshakes.members] {
                let lens: Vec<_> = queue.networks.values().map(BTreeSet::len).collect();
                assert_eq!(queue.count, lens.iter().sum::<usize>());
                assert!(queue.count <= queue.share.total);
                assert!(lens.iter().all(|len| (1..=queue.share.network).contains(len)));
            }
            assert!(handshakes.proved.len() <= LIMITS.networks_max);
        }
    }

    #[test]
    fn addresses_of_one_network_share_its_limit() {
        let network = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:192.0.2.1"), host(1));
        assert_ne!(network("::1"), network("127.0.0.1"));
    }
}
