//! The follower's side: receives, checks, installs.

use partita_proto::id::ReplicaId;
use partita_proto::wire::pb;
use partita_proto::wire::pb::raft_message::Body;

use crate::error::RaftError;
use crate::group::Group;
use crate::machine::{Incoming, Offer, SnapshotFile};
use crate::state::{MetaType, SnapshotContent, SnapshotType};
use crate::types::{Mark, log_id};
use crate::wire;

/// A snapshot that is being received.
pub(crate) struct Receiving {
    sender: ReplicaId,
    offer: u64,
    files: Vec<SnapshotFile>,
    have: Vec<u64>,
    meta: MetaType,
    incoming: Box<dyn Incoming>,
}

impl Receiving {
    /// Checks that a chunk is the next one of its file; returns the file's number and the chunk's offset.
    fn check(&self, chunk: &pb::RaftSnapshotChunk) -> Result<(usize, u64), RaftError> {
        let refused = |why: String| RaftError::InvalidInput(why);
        let number = chunk.file as usize;
        let (Some(file), Some(have)) = (self.files.get(number), self.have.get(number)) else {
            return Err(refused(format!("the offer has no file {number}")));
        };
        let end = chunk.offset.saturating_add(chunk.data.len() as u64);
        if chunk.offset != *have || end > file.bytes {
            return Err(refused(format!(
                "bytes {} to {end} of the {} bytes of {}, of which {have} have been received",
                chunk.offset, file.bytes, file.name
            )));
        }
        if crc32c::crc32c(&chunk.data) != chunk.checksum {
            return Err(RaftError::Corrupted(format!(
                "the bytes of {} from offset {} were damaged in transit",
                file.name, chunk.offset
            )));
        }
        Ok((number, end))
    }

    fn check_complete(&self) -> Result<(), RaftError> {
        for (file, have) in self.files.iter().zip(&self.have) {
            if *have != file.bytes {
                return Err(RaftError::InvalidInput(format!(
                    "only {have} of the {} bytes of {} have been received",
                    file.bytes, file.name
                )));
            }
        }
        Ok(())
    }
}

fn unavailable(error: impl std::fmt::Display) -> RaftError {
    RaftError::Unavailable(format!("the snapshot cannot be received: {error}"))
}

impl Group {
    /// Handles an offer of another replica; answers with the bytes already received of each file.
    pub(crate) async fn offered(
        &self,
        sender: ReplicaId,
        offer: pb::RaftSnapshotOffer,
    ) -> Result<Body, RaftError> {
        let mut receiving = self.receiving().lock().await;
        // One transfer at a time: an earlier one is dropped, except for the files that the machine has kept.
        drop(receiving.take());
        let mark = Mark::from_bytes(&offer.mark)?;
        let meta = MetaType {
            last_log_id: Some(log_id(mark.position())),
            last_membership: mark.membership().clone(),
        };
        let files: Vec<_> = offer
            .files
            .into_iter()
            .map(|file| SnapshotFile { name: file.name, bytes: file.bytes })
            .collect();
        let offered = Offer { from: sender, mark, state: offer.state, files: files.clone() };
        let incoming = self.machine().receive(offered).await.map_err(unavailable)?;
        let have = incoming.have();
        let fits = have.len() == files.len()
            && have.iter().zip(&files).all(|(have, file)| *have <= file.bytes);
        if !fits {
            return Err(unavailable(format!("the machine has {have:?} of {files:?}")));
        }
        tracing::info!(
            group = %self.id(), %sender, files = files.len(), bytes = files.iter().map(|f| f.bytes).sum::<u64>(),
            received = have.iter().sum::<u64>(), "receiving a snapshot"
        );
        let progress = pb::RaftSnapshotWanted { have: have.clone() };
        *receiving = Some(Receiving { sender, offer: offer.offer, files, have, meta, incoming });
        Ok(Body::Wanted(progress))
    }

    /// Accepts a chunk of the offered state.
    pub(crate) async fn take_chunk(
        &self,
        sender: ReplicaId,
        chunk: pb::RaftSnapshotChunk,
    ) -> Result<Body, RaftError> {
        let mut receiving = self.receiving().lock().await;
        let belongs = |r: &mut Receiving| r.sender == sender && r.offer == chunk.offer;
        // Taken out while it changes: if this future is dropped, the machine's part of the file is unknown.
        let Some(mut current) = receiving.take_if(belongs) else {
            return Err(unavailable("it is not the last one offered"));
        };
        let checked = current.check(&chunk);
        if let Ok((number, end)) = checked {
            current.incoming.write(number, chunk.offset, chunk.data).await.map_err(unavailable)?;
            if let Some(have) = current.have.get_mut(number) {
                *have = end;
            }
        }
        *receiving = Some(current);
        checked?;
        Ok(Body::Done(pb::RaftDone {}))
    }

    /// Installs the state, once everything has been received. Answers with the vote of this replica.
    pub(crate) async fn end_snapshot(
        &self,
        sender: ReplicaId,
        end: pb::RaftSnapshotEnd,
    ) -> Result<Body, RaftError> {
        let received = {
            let mut receiving = self.receiving().lock().await;
            let whole = receiving.take_if(|r| r.sender == sender && r.offer == end.offer);
            whole.ok_or_else(|| unavailable("it is not the last one offered"))?
        };
        received.check_complete()?;
        let vote = wire::vote_in(end.vote)?;
        let snapshot = SnapshotType {
            meta: received.meta,
            snapshot: SnapshotContent::Received(received.incoming),
        };
        let answer = self.raft().install_full_snapshot(vote, snapshot).await;
        let answer = answer.map_err(|fatal| self.fatal(&fatal))?;
        Ok(wire::follows_out(&answer.vote))
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use bytes::Bytes;

    use super::*;
    use crate::machine::MachineError;

    struct Nothing;

    #[async_trait]
    impl Incoming for Nothing {
        fn have(&self) -> Vec<u64> {
            Vec::new()
        }

        async fn write(&mut self, _: usize, _: u64, _: Bytes) -> Result<(), MachineError> {
            Ok(())
        }

        async fn install(self: Box<Self>) -> Result<(), MachineError> {
            Ok(())
        }
    }

    #[test]
    fn only_the_next_bytes_of_a_file_with_the_right_checksum_are_taken() {
        let file = |name: &str, bytes| SnapshotFile { name: name.to_owned(), bytes };
        let receiving = Receiving {
            sender: ReplicaId(1),
            offer: 1,
            files: vec![file("a", 10), file("b", 4)],
            have: vec![4, 4],
            meta: MetaType::default(),
            incoming: Box::new(Nothing),
        };
        let chunk = |file, offset, data: &'static [u8]| pb::RaftSnapshotChunk {
            offer: 1,
            file,
            offset,
            checksum: crc32c::crc32c(data),
            data: Bytes::from_static(data),
        };
        assert_eq!(receiving.check(&chunk(0, 4, b"next")).unwrap(), (0, 8));
        for (refused, why) in [
            (chunk(0, 3, b"again"), "of which 4 have been received"),
            (chunk(0, 5, b"gap"), "of which 4 have been received"),
            (chunk(0, 4, b"too much"), "bytes 4 to 12 of the 10"),
            (chunk(1, 4, b"more"), "bytes 4 to 8 of the 4"),
            (chunk(2, 0, b"other"), "has no file 2"),
            (pb::RaftSnapshotChunk { checksum: 7, ..chunk(0, 4, b"next") }, "were damaged"),
        ] {
            let error = receiving.check(&refused).unwrap_err();
            assert!(error.to_string().contains(why), "{error}: {why}");
        }
        let error = receiving.check_complete().unwrap_err();
        assert!(error.to_string().contains("4 of the 10 bytes of a"), "{error}");
    }
}
