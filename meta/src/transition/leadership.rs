//! Commands on meta's own group: its leaderships, and its members' data directories.

use partita_proto::catalog_history::{LEADERSHIPS_MAX, Leadership};
use partita_proto::id::NodeId;

use super::draft::{Draft, Outcome, Reply};
use crate::catalog::{Edit, MetaRecord, State};

/// Records a leadership, and with the first one the cluster's random number. Recorded terms never fall: a process
/// that lost and won an election in between may report the older term.
pub(super) fn lead(state: &State, cluster: u64, term: u64, nonce: u64) -> Outcome {
    let mut draft = Draft::new(state);
    if state.cluster() == 0 {
        draft.edits.push(Edit::Cluster(cluster));
    }
    let last = state.leaderships().next_back().map_or(0, |last| last.term);
    let first = draft.counters.version;
    draft.edits.push(Edit::Leadership(Leadership { first, term: term.max(last), nonce }));
    let surplus = (state.leaderships().count() + 1).saturating_sub(LEADERSHIPS_MAX);
    let oldest = state.leaderships().take(surplus);
    draft.edits.extend(oldest.map(|oldest| Edit::LeadershipGone(oldest.first)));
    draft.done()
}

/// Records the data directory of a member of meta's group; it replaces an earlier one.
pub(super) fn know_meta(state: &State, node: NodeId, identity: u64) -> Outcome {
    if state.meta_identity(node) == Some(identity) {
        return Outcome::without_edits(Reply::Unchanged);
    }
    let mut draft = Draft::new(state);
    draft.edits.push(Edit::Meta(node, MetaRecord { identity, generation: None }));
    draft.done()
}
