//! The handshakes of a port for the cluster: at most so many at a time, and a log of the refused ones that has a bound.
//!
//! ```text
//!   accept ── Gate::enter ──► Place ── Place::run(handshake) ──┬─ proved a role: the network is one of members
//!                               │                              ├─ failed, or took too long: counted and logged
//!                               └─ displaced by a younger one ─┘
//! ```
//!
//! Who has to end is decided in `handshakes.rs`, what is logged in `refusals.rs`.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::handshakes::{Handshakes, Limits};
use crate::refusals::Refusals;

/// Interval at which periods of the log are looked at.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Admission of handshakes at a port. Clones share it.
#[derive(Clone, Debug)]
pub struct Gate {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    handshakes: Handshakes,
    /// Tokens that end handshakes in progress, by number.
    tokens: HashMap<u64, CancellationToken>,
    refusals: Refusals,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Gate {
    pub(crate) fn new(limits: Limits) -> Self {
        let (handshakes, tokens) = (Handshakes::new(limits), HashMap::new());
        let state = State { handshakes, tokens, refusals: Refusals::default() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// A place for a handshake with a peer. It displaces an older handshake if there are too many.
    #[must_use]
    pub fn enter(&self, peer: SocketAddr) -> Place {
        let displaced = CancellationToken::new();
        let mut state = self.state.lock();
        let admitted = state.handshakes.begin(peer.ip());
        state.tokens.insert(admitted.number, displaced.clone());
        let victim = admitted.displaced.and_then(|number| state.tokens.remove(&number));
        drop(state);
        if let Some(victim) = victim {
            victim.cancel();
        }
        Place {
            gate: self.clone(),
            peer,
            network: admitted.network,
            number: admitted.number,
            is_member: false,
            displaced,
        }
    }

    /// Logs the counts of refused handshakes at the end of each period, for ever.
    pub async fn report(self) {
        let mut ticks = interval(REPORT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let summaries = self.state.lock().refusals.due(Instant::now());
            for summary in summaries {
                let network =
                    summary.network.map_or_else(|| "others".to_owned(), |ip| ip.to_string());
                let (count, error) = (summary.count, summary.error);
                warn!(network, count, error, "refused more connections");
            }
        }
    }

    fn refuse(&self, peer: SocketAddr, network: IpAddr, error: &io::Error) {
        let is_first = self.state.lock().refusals.add(network, &error.to_string(), Instant::now());
        if is_first {
            warn!(%peer, %error, "refused a connection; further ones of its network are counted");
        }
    }
}

/// Place of a handshake; given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    gate: Gate,
    peer: SocketAddr,
    network: IpAddr,
    number: u64,
    is_member: bool,
    displaced: CancellationToken,
}

impl Place {
    /// Runs the handshake to its end, unless younger ones displace it. Failures are logged within bounds.
    ///
    /// # Errors
    /// If the handshake fails or was displaced.
    pub async fn run<T>(mut self, handshake: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let ended = tokio::select! {
            biased;
            () = self.displaced.cancelled() => {
                let text = "the handshake was unfinished when younger ones needed its place";
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, text))
            }
            ended = handshake => ended,
        };
        match &ended {
            Ok(_) => self.is_member = true,
            Err(error) => self.gate.refuse(self.peer, self.network, error),
        }
        ended
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        state.tokens.remove(&self.number);
        state.handshakes.end(self.network, self.number, self.is_member);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;
    use crate::handshakes::Share;

    const LIMITS: Limits = Limits {
        strangers: Share { network: 2, total: 3 },
        members: Share { network: 2, total: 3 },
        networks_max: 8,
    };

    fn peer(host: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, host], port))
    }

    fn in_progress(gate: &Gate) -> usize {
        gate.state.lock().tokens.len()
    }

    #[tokio::test]
    async fn a_silent_peer_is_displaced_and_others_go_on() {
        let gate = Gate::new(LIMITS);
        let silent = gate.enter(peer(1, 1)).run(pending::<io::Result<()>>());
        let patient = gate.enter(peer(1, 2));
        let youngest = gate.enter(peer(1, 3));
        let error = silent.await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        patient.run(ready(Ok(()))).await.unwrap();
        youngest.run(ready(Ok(()))).await.unwrap();
        assert_eq!(in_progress(&gate), 0);
    }

    #[tokio::test]
    async fn places_of_members_are_apart_from_those_of_strangers() {
        let gate = Gate::new(LIMITS);
        gate.enter(peer(1, 1)).run(ready(Ok(()))).await.unwrap();
        let member = gate.enter(peer(1, 2));
        let strangers: Vec<_> = (2..100).map(|host| gate.enter(peer(host, 1))).collect();
        // Tokens of displaced handshakes are gone at once.
        assert_eq!(in_progress(&gate), 1 + LIMITS.strangers.total);
        assert!(!member.displaced.is_cancelled());
        let displaced = strangers.iter().filter(|place| place.displaced.is_cancelled()).count();
        assert_eq!(displaced, strangers.len() - LIMITS.strangers.total);
        drop(strangers);
        member.run(ready(Ok(()))).await.unwrap();
        assert_eq!(in_progress(&gate), 0);
    }

    #[tokio::test]
    async fn a_failed_handshake_proves_nothing_and_is_counted() {
        let gate = Gate::new(LIMITS);
        for port in 0..5 {
            let failure = ready(Err::<(), _>(io::Error::other("unknown issuer")));
            gate.enter(peer(1, port)).run(failure).await.unwrap_err();
        }
        // Still a stranger: the third handshake displaces the first.
        let places: Vec<_> = (0..3).map(|port| gate.enter(peer(1, port))).collect();
        assert!(places[0].displaced.is_cancelled());
        let period_end = Instant::now() + crate::refusals::PERIOD;
        let summaries = gate.state.lock().refusals.due(period_end);
        assert_eq!(summaries.len(), 1);
        // The first was logged by itself.
        assert_eq!((summaries[0].count, summaries[0].error.as_str()), (4, "unknown issuer"));
    }
}
