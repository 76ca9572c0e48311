//! Commands on generations of data directories. The decisions are in [`partita_proto::generation`].
//!
//! A command from an older copy changes nothing but is not refused: its sender reads the recorded generation
//! afterwards.

use std::sync::Arc;

use partita_proto::error::Error;
use partita_proto::generation::{Decision, Generation, Renewal, decide};

use super::draft::{Draft, Outcome, Reply};
use super::node::registered;
use crate::catalog::{Edit, MetaRecord, NodeRecord, State};

/// Records a generation of a node's data directory.
pub(super) fn renew(state: &State, renewal: &Renewal) -> Result<Outcome, Error> {
    let record = registered(state, renewal.node, renewal.identity)?;
    let decision = decide(record.generation, &renewal.claim, renewal.set_aside)?;
    Ok(recorded(state, decision, |generation| {
        let record = NodeRecord { generation: Some(generation), ..NodeRecord::clone(record) };
        Edit::Node(Arc::new(record))
    }))
}

/// Records a generation of the data directory of a member of meta's group.
pub(super) fn renew_meta(state: &State, renewal: &Renewal) -> Result<Outcome, Error> {
    let record = state.meta(renewal.node).filter(|record| record.identity == renewal.identity);
    let record = record.ok_or_else(|| Error::NotFound {
        kind: "member of meta's group",
        name: renewal.node.to_string(),
    })?;
    let decision = decide(record.generation, &renewal.claim, renewal.set_aside)?;
    Ok(recorded(state, decision, |generation| {
        Edit::Meta(renewal.node, MetaRecord { generation: Some(generation), ..*record })
    }))
}

fn recorded(state: &State, decision: Decision, edit: impl FnOnce(Generation) -> Edit) -> Outcome {
    let Decision::Record(generation) = decision else {
        return Outcome::without_edits(Reply::Unchanged);
    };
    let mut draft = Draft::new(state);
    draft.edits.push(edit(generation));
    draft.done()
}
