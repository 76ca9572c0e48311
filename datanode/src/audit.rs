//! Reads the content of one replica, leader or not: for checks that compare replicas.

use arrow::record_batch::RecordBatch;
use futures::TryStreamExt;
use partita_engine::Scan;
use partita_proto::domain::Domains;
use partita_proto::error::Error;
use partita_proto::id::PartitionId;

use crate::node::Datanode;

/// All rows of one replica at one position of its group's log.
#[derive(Clone, Debug)]
pub struct Content {
    /// Index of the last log entry that the rows reflect.
    pub applied: u64,
    /// The rows, in no particular order.
    pub rows: Vec<RecordBatch>,
}

impl Datanode {
    /// Reads everything that the replica here has applied, without asking its group. Not for clients: the rows may be
    /// stale.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no replica here; those of reading.
    pub async fn content(&self, partition: PartitionId) -> Result<Content, Error> {
        let replica = self.replica(partition)?;
        let engine = replica.partition();
        let (scanned, applied) = loop {
            let applied = engine.applied();
            let scan = Scan {
                columns: engine.config().schema.storage(),
                domains: Domains::default(),
                limit: None,
                parallelism: 1,
                range: None,
                newest_only: false,
                probes: Vec::new(),
                first_by_time: None,
                order: None,
                uncollected: false,
            };
            let scanned = engine.scan(scan).map_err(Error::from)?;
            // The applied index only grows, so a version pinned in between reflects this index too.
            if engine.applied() == applied {
                break (scanned, applied);
            }
        };
        let mut rows = Vec::new();
        for stream in scanned.streams {
            let batches: Vec<RecordBatch> = stream.try_collect().await?;
            rows.extend(batches);
        }
        Ok(Content { applied, rows })
    }
}
