//! Requests to nodes and their answers.
//!
//! Rows are encoded as [`super::ipc`] streams, which may fail; so a [`WriteRequest`] has functions of its own instead
//! of [`Wire`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow::datatypes::{Field, Schema, SchemaRef};

use super::index::{merge_uses, uses_to_wire};
use super::probe::{probes_from_wire, probes_to_wire};
use super::{Wire, all, ipc, missing, pb, required};
use crate::cardinality::SeriesSketch;
use crate::domain::Domains;
use crate::error::Error;
use crate::id::{Epoch, NodeId, PartitionId, ReplicaId, SchemaVersion, TableId};
use crate::materialized::Ship;
use crate::measure::PartitionMeasures;
use crate::schema::ColumnType;
use crate::service::{
    Condition, FirstByTime, FragmentRequest, KeyOrder, ReadFrom, ReplicaStatus, RequestId,
    ScanRequest, ScanStats, WriteKind, WriteReply, WriteRequest,
};

/// Maximum number of streams of a scan. More than any machine has threads for.
const PARALLELISM_MAX: u32 = 1024;

impl Wire for WriteKind {
    type Message = i32;

    fn to_wire(&self) -> i32 {
        match self {
            Self::Put => pb::WriteKind::Put,
            Self::Delete => pb::WriteKind::Delete,
        }
        .into()
    }

    fn from_wire(message: i32) -> Result<Self, Error> {
        Ok(match pb::WriteKind::try_from(message) {
            Ok(pb::WriteKind::Put) => Self::Put,
            Ok(pb::WriteKind::Delete) => Self::Delete,
            Ok(pb::WriteKind::Unspecified | pb::WriteKind::PutIf | pb::WriteKind::DeleteIf)
            | Err(_) => return Err(missing("kind of write")),
        })
    }
}

/// The number of a kind of write, with a condition or without.
pub(super) fn kind_to_wire(kind: WriteKind, condition: Option<&Condition>) -> i32 {
    match (kind, condition) {
        (kind, None) => kind.to_wire(),
        (WriteKind::Put, Some(_)) => pb::WriteKind::PutIf.into(),
        (WriteKind::Delete, Some(_)) => pb::WriteKind::DeleteIf.into(),
    }
}

/// A kind of write by its number, with the condition of such a write.
pub(super) fn kind_from_wire(
    kind: i32,
    condition: Option<pb::Condition>,
) -> Result<(WriteKind, Option<Condition>), Error> {
    let condition = condition.map(Condition::from_wire).transpose()?;
    match (pb::WriteKind::try_from(kind), condition) {
        (Ok(pb::WriteKind::PutIf), Some(condition)) => Ok((WriteKind::Put, Some(condition))),
        (Ok(pb::WriteKind::DeleteIf), Some(condition)) => Ok((WriteKind::Delete, Some(condition))),
        (_, None) => Ok((WriteKind::from_wire(kind)?, None)),
        (_, Some(_)) => Err(missing("kind of a write with a condition")),
    }
}

impl Wire for Condition {
    type Message = pb::Condition;

    fn to_wire(&self) -> pb::Condition {
        pb::Condition {
            epoch: self.epoch.0,
            index: self.index,
            bulk: self.bulk,
            schema: self.schema.0,
            by_row: self.by_row,
        }
    }

    fn from_wire(message: pb::Condition) -> Result<Self, Error> {
        Ok(Self {
            epoch: Epoch(message.epoch),
            index: message.index,
            bulk: message.bulk,
            schema: SchemaVersion(message.schema),
            by_row: message.by_row,
        })
    }
}

impl WriteRequest {
    /// The message of a request; encodes its rows.
    ///
    /// # Errors
    /// As [`ipc::encode`].
    pub fn to_wire(&self) -> Result<pb::WriteRequest, Error> {
        Ok(pb::WriteRequest {
            partition: self.partition.0,
            epoch: self.epoch.0,
            id: Some(self.id.to_wire()),
            kind: kind_to_wire(self.kind, self.condition.as_ref()),
            rows: ipc::encode(std::slice::from_ref(&self.rows))?,
            earlier: self.earlier.iter().map(Wire::to_wire).collect(),
            ship: self.ship.as_ref().map(Wire::to_wire),
            condition: self.condition.as_ref().map(Wire::to_wire),
        })
    }

    /// The request of a message. Its rows share the message's bytes wherever these are aligned for it.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when a field is missing or the rows are not one batch.
    pub fn from_wire(message: pb::WriteRequest) -> Result<Self, Error> {
        let [rows] = <[_; 1]>::try_from(ipc::decode(message.rows)?).map_err(|batches| {
            Error::Corrupted(format!(
                "a write has {} batches of rows instead of one",
                batches.len()
            ))
        })?;
        let (kind, condition) = kind_from_wire(message.kind, message.condition)?;
        Ok(Self {
            partition: PartitionId(message.partition),
            epoch: Epoch(message.epoch),
            id: required::<RequestId>(message.id, "request id")?,
            earlier: all(message.earlier)?,
            kind,
            rows,
            ship: message.ship.map(Ship::from_wire).transpose()?,
            condition,
        })
    }
}

impl Wire for WriteReply {
    type Message = pb::WriteReply;

    fn to_wire(&self) -> pb::WriteReply {
        let owed = self.owed.iter().map(|copy| copy.0).collect();
        pb::WriteReply { index: self.index, owed }
    }

    fn from_wire(message: pb::WriteReply) -> Result<Self, Error> {
        let owed = message.owed.into_iter().map(TableId).collect();
        Ok(Self { index: message.index, owed })
    }
}

impl ScanRequest {
    /// The message of a request.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when a column has a type that tables do not have.
    pub fn to_wire(&self) -> Result<pb::ScanRequest, Error> {
        Ok(pb::ScanRequest {
            partition: self.partition.0,
            epoch: self.epoch.0,
            columns: columns_to_wire(&self.columns)?,
            domains: Some(self.domains.to_wire()),
            limit: self.limit.map(|rows| u64::try_from(rows).unwrap_or(u64::MAX)),
            parallelism: u32::try_from(self.parallelism).unwrap_or(u32::MAX).min(PARALLELISM_MAX),
            newest_only: self.newest_only,
            probes: probes_to_wire(&self.probes),
            any_replica: any_replica_to_wire(self.read_from),
            first_by_time: self.first_by_time.as_ref().map(Wire::to_wire),
            descending: self.order.map(|order| order.descending),
            nulls_apart: self.order.is_some_and(|order| order.nulls_apart),
            for_update: self.for_update,
            uncollected: self.uncollected,
        })
    }

    /// The request of a message.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when a field is missing or out of range.
    pub fn from_wire(message: pb::ScanRequest) -> Result<Self, Error> {
        if message.parallelism > PARALLELISM_MAX {
            return Err(Error::Corrupted(format!(
                "a scan is to be split into {} streams, more than {PARALLELISM_MAX}",
                message.parallelism
            )));
        }
        Ok(Self {
            partition: PartitionId(message.partition),
            epoch: Epoch(message.epoch),
            columns: columns_from_wire(message.columns)?,
            domains: required::<Domains>(message.domains, "domains")?,
            limit: message.limit.map(|rows| usize::try_from(rows).unwrap_or(usize::MAX)),
            parallelism: message.parallelism as usize,
            newest_only: message.newest_only,
            probes: probes_from_wire(message.probes)?,
            read_from: read_from_of_wire(message.any_replica),
            first_by_time: message.first_by_time.map(FirstByTime::from_wire).transpose()?,
            order: message
                .descending
                .map(|descending| KeyOrder { descending, nulls_apart: message.nulls_apart }),
            for_update: message.for_update,
            uncollected: message.uncollected,
        })
    }
}

fn any_replica_to_wire(read_from: ReadFrom) -> Option<pb::AnyReplica> {
    match read_from {
        ReadFrom::Leader => None,
        ReadFrom::AnyReplica { staleness_max, schema } => Some(pb::AnyReplica {
            staleness_max_us: u64::try_from(staleness_max.as_micros()).unwrap_or(u64::MAX),
            schema: schema.0,
        }),
    }
}

fn read_from_of_wire(message: Option<pb::AnyReplica>) -> ReadFrom {
    message.map_or(ReadFrom::Leader, |message| ReadFrom::AnyReplica {
        staleness_max: Duration::from_micros(message.staleness_max_us),
        schema: SchemaVersion(message.schema),
    })
}

impl Wire for FirstByTime {
    type Message = pb::FirstByTime;

    fn to_wire(&self) -> pb::FirstByTime {
        let rows = u64::try_from(self.rows).unwrap_or(u64::MAX);
        pb::FirstByTime { rows, descending: self.descending }
    }

    fn from_wire(message: pb::FirstByTime) -> Result<Self, Error> {
        let rows = usize::try_from(message.rows).unwrap_or(usize::MAX);
        Ok(Self { rows, descending: message.descending })
    }
}

impl FragmentRequest {
    /// The message of a request.
    ///
    /// # Errors
    /// As [`ScanRequest::to_wire`].
    pub fn to_wire(&self) -> Result<pb::FragmentRequest, Error> {
        let scan = Some(self.scan.to_wire()?);
        Ok(pb::FragmentRequest { scan, fragment: self.fragment.clone() })
    }

    /// The request of a message.
    ///
    /// # Errors
    /// As [`ScanRequest::from_wire`].
    pub fn from_wire(message: pb::FragmentRequest) -> Result<Self, Error> {
        let scan = message.scan.ok_or_else(|| missing("scan"))?;
        Ok(Self { scan: ScanRequest::from_wire(scan)?, fragment: message.fragment })
    }
}

fn columns_to_wire(columns: &Schema) -> Result<Vec<pb::ScanColumn>, Error> {
    let column = |field: &Arc<Field>| {
        let column_type = ColumnType::from_arrow(field.data_type()).ok_or_else(|| {
            Error::InvalidInput(format!(
                "column \"{}\" has type {}, which tables do not have",
                field.name(),
                field.data_type()
            ))
        })?;
        Ok(pb::ScanColumn {
            name: field.name().clone(),
            column_type: Some(column_type.to_wire()),
            nullable: field.is_nullable(),
        })
    };
    columns.fields().iter().map(column).collect()
}

fn columns_from_wire(columns: Vec<pb::ScanColumn>) -> Result<SchemaRef, Error> {
    let field = |column: pb::ScanColumn| {
        let column_type: ColumnType = required(column.column_type, "column type")?;
        Ok(Field::new(column.name, column_type.arrow(), column.nullable))
    };
    let fields = columns.into_iter().map(field).collect::<Result<Vec<_>, Error>>()?;
    Ok(Arc::new(Schema::new(fields)))
}

impl ScanStats {
    /// The message of the current counters.
    pub fn to_wire(&self) -> pb::ScanStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        pb::ScanStats {
            rows_scanned: read(&self.rows_scanned),
            bytes_scanned: read(&self.bytes_scanned),
            files_read: read(&self.files_read),
            files_pruned: read(&self.files_pruned),
            row_groups_pruned: read(&self.row_groups_pruned),
            indexes: uses_to_wire(&self.indexes.lock()),
            by_followers: read(&self.by_followers),
            busy_millicores: read(&self.busy_millicores),
            read_millicores: read(&self.read_millicores),
        }
    }

    /// Merges counters from a message. Messages of a scan's streams arrive in any order; counters only grow, so the
    /// largest value is the newest.
    pub fn merge_wire(&self, message: &pb::ScanStats) {
        let grow = |counter: &AtomicU64, value| {
            counter.fetch_max(value, Ordering::Relaxed);
        };
        grow(&self.rows_scanned, message.rows_scanned);
        grow(&self.bytes_scanned, message.bytes_scanned);
        grow(&self.files_read, message.files_read);
        grow(&self.files_pruned, message.files_pruned);
        grow(&self.row_groups_pruned, message.row_groups_pruned);
        grow(&self.by_followers, message.by_followers);
        grow(&self.busy_millicores, message.busy_millicores);
        grow(&self.read_millicores, message.read_millicores);
        merge_uses(&mut self.indexes.lock(), &message.indexes);
    }
}

impl Wire for ReplicaStatus {
    type Message = pb::ReplicaStatus;

    fn to_wire(&self) -> pb::ReplicaStatus {
        pb::ReplicaStatus {
            partition: self.partition.0,
            table: self.table.0,
            replica: self.replica.0,
            leader: self.leader,
            epoch: self.epoch.0,
            rows: self.rows,
            file_bytes: self.file_bytes,
            files: self.files,
            memtable_bytes: self.memtable_bytes,
            rows_written: self.rows_written,
            bytes_written: self.bytes_written,
            writes: self.writes,
            scans: self.scans,
            rows_scanned: self.rows_scanned,
            rejected: self.rejected,
            applied: self.applied,
            flushed: self.flushed,
            failure: self.failure.clone(),
            leader_node: self.leader_node.map(|node| node.0),
            term: self.term,
            voters: self.voters.iter().map(|replica| replica.0).collect(),
            learners: self.learners.iter().map(|replica| replica.0).collect(),
            series: self.series.as_deref().map(Wire::to_wire),
            measures: self.measures.as_deref().map(Wire::to_wire),
        }
    }

    fn from_wire(message: pb::ReplicaStatus) -> Result<Self, Error> {
        Ok(Self {
            partition: PartitionId(message.partition),
            table: TableId(message.table),
            replica: ReplicaId(message.replica),
            leader: message.leader,
            epoch: Epoch(message.epoch),
            rows: message.rows,
            file_bytes: message.file_bytes,
            files: message.files,
            memtable_bytes: message.memtable_bytes,
            rows_written: message.rows_written,
            bytes_written: message.bytes_written,
            writes: message.writes,
            scans: message.scans,
            rows_scanned: message.rows_scanned,
            rejected: message.rejected,
            applied: message.applied,
            flushed: message.flushed,
            failure: message.failure,
            leader_node: message.leader_node.map(NodeId),
            term: message.term,
            voters: message.voters.into_iter().map(ReplicaId).collect(),
            learners: message.learners.into_iter().map(ReplicaId).collect(),
            series: message.series.map(SeriesSketch::from_wire).transpose()?.map(Arc::new),
            measures: message.measures.map(PartitionMeasures::from_wire).transpose()?.map(Arc::new),
        })
    }
}
