//! The address of the client for which a task works: doors set it, and viewers and sign-ins keep it for the audit.
//!
//! It is that of the task, not of a lane: a viewer takes it when it is made, and has it on whichever thread it is used.

use std::net::IpAddr;

tokio::task_local! {
    /// Address of the client.
    static PEER: IpAddr;
}

/// Runs work for the client at an address.
pub fn within<F: Future>(peer: IpAddr, work: F) -> impl Future<Output = F::Output> {
    PEER.scope(peer, work)
}

/// Address of the client for which this task works; `None` outside of [`within`].
pub(crate) fn current() -> Option<IpAddr> {
    PEER.try_with(|peer| *peer).ok()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn the_address_is_that_of_the_work() {
        let peer = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
        assert_eq!(current(), None);
        assert_eq!(within(peer, async { current() }).await, Some(peer));
        assert_eq!(current(), None);
    }
}
