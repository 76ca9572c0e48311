//! Databases, tables, routes and changes of them.

use std::sync::Arc;

use super::place::{replicas_from_wire, replicas_to_wire};
use super::{Wire, all, missing, pb, required};
use crate::access::AccessChange;
use crate::catalog::{Database, Table};
use crate::error::Error;
use crate::id::{DatabaseId, Epoch, NodeId, PartitionId, RoleId, TableId};
use crate::key::KeyCodec;
use crate::materialized::{CopyChange, CopyOf};
use crate::placement::Placement;
use crate::route::{PartitionMap, Route};
use crate::schema::TableSchema;
use crate::sequence::SequenceChange;
use crate::service::{Ddl, NamedObject, NewTable, TableChange};
use crate::task::TaskChange;

impl Wire for Database {
    type Message = pb::Database;

    fn to_wire(&self) -> pb::Database {
        pb::Database {
            id: self.id.0,
            name: self.name.clone(),
            ttl: self.ttl.as_ref().map(Wire::to_wire),
            owner: self.owner.0,
            explicit: self.explicit,
            comment: self.comment.clone(),
        }
    }

    fn from_wire(message: pb::Database) -> Result<Self, Error> {
        Ok(Self {
            id: DatabaseId(message.id),
            name: message.name,
            ttl: message.ttl.map(Wire::from_wire).transpose()?,
            owner: RoleId(message.owner),
            explicit: message.explicit,
            comment: message.comment,
        })
    }
}

impl Route {
    /// The message of a route; it contains the typed range only.
    pub fn to_wire(&self) -> pb::Route {
        pb::Route {
            partition: self.partition.0,
            range: Some(self.range.to_wire()),
            epoch: self.epoch.0,
            replicas: replicas_to_wire(&self.replicas),
            leader: self.leader.map(|node| node.0),
        }
    }
}

/// The route of a message; its range is encoded by the table's codec.
///
/// # Errors
/// [`Error::Corrupted`] when a field is missing, or the range does not fit the table's key.
pub fn decode_route(message: pb::Route, codec: &KeyCodec) -> Result<Route, Error> {
    let partition = PartitionId(message.partition);
    let range = required(message.range, "range")?;
    let mut route = Route::new(codec, partition, range, Epoch(message.epoch)).map_err(|error| {
        Error::Corrupted(format!("the range of partition {partition} is wrong: {error}"))
    })?;
    route.replicas = replicas_from_wire(message.replicas)?;
    route.leader = message.leader.map(NodeId);
    Ok(route)
}

/// The table with this number, if it is not 0.
fn optional_id(id: u32) -> Option<TableId> {
    (id != 0).then_some(TableId(id))
}

impl Wire for Table {
    type Message = pb::Table;

    fn to_wire(&self) -> pb::Table {
        pb::Table {
            id: self.id.0,
            database: self.database.clone(),
            name: self.name.clone(),
            schema: Some(self.schema.to_wire()),
            placement: Some(self.placement.to_wire()),
            routes: self.partitions.routes().iter().map(Route::to_wire).collect(),
            former: self.former.unwrap_or_default().0,
            succeeded_by: self.succeeded_by.unwrap_or_default().0,
            owner: self.owner.0,
            copy: self.copy.as_deref().map(Wire::to_wire),
        }
    }

    fn from_wire(message: pb::Table) -> Result<Self, Error> {
        let schema: TableSchema = required(message.schema, "schema")?;
        let placement: Placement = required(message.placement, "placement")?;
        let corrupted = |error| {
            Error::Corrupted(format!(
                "table \"{}\".\"{}\" is wrong: {error}",
                message.database, message.name
            ))
        };
        let codec = KeyCodec::new(&schema, &placement).map_err(corrupted)?;
        let routes = message.routes.into_iter().map(|route| decode_route(route, &codec));
        let routes = routes.collect::<Result<Vec<_>, _>>()?;
        let partitions = match &schema.view {
            Some(_) => PartitionMap::none(),
            None => PartitionMap::new(routes).map_err(corrupted)?,
        };
        let copy = message.copy.map(CopyOf::from_wire).transpose()?;
        Ok(Self {
            id: TableId(message.id),
            database: message.database,
            name: message.name,
            schema: Arc::new(schema),
            placement,
            partitions: Arc::new(partitions),
            former: optional_id(message.former),
            succeeded_by: optional_id(message.succeeded_by),
            owner: RoleId(message.owner),
            copy: copy.map(Arc::new),
        })
    }
}

impl Wire for NewTable {
    type Message = pb::NewTable;

    fn to_wire(&self) -> pb::NewTable {
        pb::NewTable {
            database: self.database.clone(),
            name: self.name.clone(),
            schema: Some(self.schema.to_wire()),
            placement: Some(self.placement.to_wire()),
            cuts: self.cuts.iter().map(Wire::to_wire).collect(),
            owner: self.owner.0,
            copy_of: self.copy_of.unwrap_or_default().0,
            rekeys: self.rekeys,
            sequences: self.sequences.iter().map(Wire::to_wire).collect(),
        }
    }

    fn from_wire(message: pb::NewTable) -> Result<Self, Error> {
        Ok(Self {
            database: message.database,
            name: message.name,
            schema: required(message.schema, "schema")?,
            placement: required(message.placement, "placement")?,
            cuts: all(message.cuts)?,
            owner: RoleId(message.owner),
            copy_of: optional_id(message.copy_of),
            rekeys: message.rekeys,
            sequences: all(message.sequences)?,
        })
    }
}

impl Wire for TableChange {
    type Message = pb::TableChange;

    fn to_wire(&self) -> pb::TableChange {
        use pb::table_change::Kind;
        let kind = match self {
            Self::AddColumns { columns, if_not_exists } => Kind::AddColumns(pb::AddColumns {
                columns: columns.iter().map(Wire::to_wire).collect(),
                if_not_exists: *if_not_exists,
            }),
            Self::DropColumn(name) => Kind::DropColumn(name.clone()),
            Self::RenameColumn { from: old_name, to: new_name } => {
                Kind::RenameColumn(pb::RenameColumn {
                    from: old_name.clone(),
                    to: new_name.clone(),
                })
            }
            Self::SetType { column, column_type, length } => Kind::SetType(pb::SetType {
                column: column.clone(),
                column_type: Some(column_type.to_wire()),
                length: length.as_ref().map(Wire::to_wire),
            }),
            Self::DropNotNull(column) => Kind::DropNotNull(column.clone()),
            Self::SetDefault { column, default } => Kind::SetDefault(pb::SetDefault {
                column: column.clone(),
                default: default.clone(),
            }),
            Self::SetOptions(options) => Kind::SetOptions(options.to_wire()),
            Self::ChangeOptions { base, next } => Kind::ChangeOptions(pb::OptionsChange {
                base: Some(base.to_wire()),
                next: Some(next.to_wire()),
            }),
            Self::Rename(name) => Kind::Rename(name.clone()),
            Self::TakePlace(replaced) => Kind::TakePlace(replaced.0),
            Self::ChangeFamilies(changes) => Kind::ChangeFamilies(pb::FamilyChanges {
                changes: changes.iter().map(Wire::to_wire).collect(),
            }),
            Self::Repartition { placement, cuts } => Kind::Repartition(pb::Repartition {
                placement: Some(placement.to_wire()),
                cuts: cuts.iter().map(Wire::to_wire).collect(),
            }),
            Self::SetIndex { column, index, if_not_exists } => Kind::SetIndex(pb::SetIndex {
                column: column.clone(),
                index: Some(index.to_wire()),
                if_not_exists: *if_not_exists,
            }),
            Self::DropIndex { column, kind } => {
                Kind::DropIndex(pb::DropIndex { column: column.clone(), kind: kind.to_wire() })
            }
            Self::SetView { columns, definition } => Kind::SetView(pb::SetView {
                columns: columns.iter().map(Wire::to_wire).collect(),
                definition: Some(definition.to_wire()),
            }),
            Self::MoveColumn { column, after: predecessor } => Kind::MoveColumn(pb::MoveColumn {
                column: column.clone(),
                after: predecessor.clone(),
            }),
            Self::AddCheck(check) => Kind::AddCheck(check.to_wire()),
            Self::DropCheck(name) => Kind::DropCheck(name.clone()),
            Self::SetComment { column, comment } => Kind::SetComment(pb::SetComment {
                column: column.clone(),
                comment: comment.clone(),
            }),
        };
        pb::TableChange { kind: Some(kind) }
    }

    fn from_wire(message: pb::TableChange) -> Result<Self, Error> {
        use pb::table_change::Kind;
        Ok(match message.kind.ok_or_else(|| missing("change"))? {
            Kind::AddColumns(add) => {
                Self::AddColumns { columns: all(add.columns)?, if_not_exists: add.if_not_exists }
            }
            Kind::DropColumn(name) => Self::DropColumn(name),
            Kind::RenameColumn(rename) => Self::RenameColumn { from: rename.from, to: rename.to },
            Kind::SetType(set) => Self::SetType {
                column: set.column,
                column_type: required(set.column_type, "column type")?,
                length: set.length.map(Wire::from_wire).transpose()?,
            },
            Kind::DropNotNull(column) => Self::DropNotNull(column),
            Kind::SetDefault(set) => Self::SetDefault { column: set.column, default: set.default },
            Kind::SetOptions(options) => Self::SetOptions(Box::new(Wire::from_wire(options)?)),
            Kind::ChangeOptions(change) => Self::ChangeOptions {
                base: Box::new(required(change.base, "options")?),
                next: Box::new(required(change.next, "options")?),
            },
            Kind::Rename(name) => Self::Rename(name),
            Kind::TakePlace(replaced) => Self::TakePlace(TableId(replaced)),
            Kind::ChangeFamilies(changes) => Self::ChangeFamilies(all(changes.changes)?),
            Kind::Repartition(change) => Self::Repartition {
                placement: required(change.placement, "placement")?,
                cuts: all(change.cuts)?,
            },
            Kind::SetIndex(set) => Self::SetIndex {
                column: set.column,
                index: required(set.index, "index")?,
                if_not_exists: set.if_not_exists,
            },
            Kind::DropIndex(drop) => {
                Self::DropIndex { column: drop.column, kind: Wire::from_wire(drop.kind)? }
            }
            Kind::SetView(set) => Self::SetView {
                columns: all(set.columns)?,
                definition: Box::new(required(set.definition, "definition")?),
            },
            Kind::MoveColumn(place) => {
                Self::MoveColumn { column: place.column, after: place.after }
            }
            Kind::AddCheck(check) => Self::AddCheck(Wire::from_wire(check)?),
            Kind::DropCheck(name) => Self::DropCheck(name),
            Kind::SetComment(set) => Self::SetComment { column: set.column, comment: set.comment },
        })
    }
}

impl Wire for Ddl {
    type Message = pb::Ddl;

    fn to_wire(&self) -> pb::Ddl {
        use pb::ddl::{Kind, Object};
        let object = match self {
            Self::Checked(checked) => Some(match checked.object {
                NamedObject::Database(id) => Object::Database(id.0),
                NamedObject::Table(id) => Object::Table(id.0),
            }),
            _ => None,
        };
        // The fields have the same names in the messages.
        let kind = match self.body().clone() {
            Self::CreateDatabase { name, if_not_exists, ttl, owner: RoleId(owner) } => {
                let ttl = ttl.as_ref().map(Wire::to_wire);
                Kind::CreateDatabase(pb::CreateDatabase { name, if_not_exists, ttl, owner })
            }
            Self::AlterDatabase { name, ttl } => {
                let ttl = ttl.as_ref().map(Wire::to_wire);
                Kind::AlterDatabase(pb::AlterDatabase { name, ttl })
            }
            Self::MakeExplicit { name } => Kind::MakeExplicit(pb::MakeExplicit { name }),
            Self::CommentDatabase { name, comment } => {
                Kind::CommentDatabase(pb::CommentDatabase { name, comment })
            }
            Self::DropDatabase { name, if_exists } => {
                Kind::DropDatabase(pb::DropDatabase { name, if_exists })
            }
            Self::CreateTable { table, if_not_exists } => {
                let table = Some(table.to_wire());
                Kind::CreateTable(pb::CreateTable { table, if_not_exists })
            }
            Self::DropTable { database, name, if_exists, cascade } => {
                Kind::DropTable(pb::DropTable { database, name, if_exists, cascade })
            }
            Self::TruncateTable { database, name } => {
                Kind::TruncateTable(pb::TruncateTable { database, name })
            }
            Self::AlterTable { database, name, change } => {
                let change = Some(change.to_wire());
                Kind::AlterTable(pb::AlterTable { database, name, change })
            }
            Self::Access(change) => Kind::Access(change.to_wire()),
            Self::Task(change) => Kind::Task(change.to_wire()),
            Self::Copy(change) => Kind::Copy(change.to_wire()),
            Self::Sequence(change) => Kind::Sequence(change.to_wire()),
            // A body is never a checked change itself.
            Self::Checked(checked) => return checked.ddl.to_wire(),
        };
        pb::Ddl { kind: Some(kind), object }
    }

    fn from_wire(message: pb::Ddl) -> Result<Self, Error> {
        use pb::ddl::{Kind, Object};
        // A kind of a later version is missing here, and refused.
        let ddl = match message.kind.ok_or_else(|| missing("change"))? {
            Kind::CreateDatabase(create) => Self::CreateDatabase {
                name: create.name,
                if_not_exists: create.if_not_exists,
                ttl: create.ttl.map(Wire::from_wire).transpose()?,
                owner: RoleId(create.owner),
            },
            Kind::AlterDatabase(alter) => Self::AlterDatabase {
                name: alter.name,
                ttl: alter.ttl.map(Wire::from_wire).transpose()?,
            },
            Kind::MakeExplicit(explicit) => Self::MakeExplicit { name: explicit.name },
            Kind::CommentDatabase(change) => {
                Self::CommentDatabase { name: change.name, comment: change.comment }
            }
            Kind::DropDatabase(drop) => {
                Self::DropDatabase { name: drop.name, if_exists: drop.if_exists }
            }
            Kind::CreateTable(create) => Self::CreateTable {
                table: Box::new(required(create.table, "table")?),
                if_not_exists: create.if_not_exists,
            },
            Kind::DropTable(drop) => Self::DropTable {
                database: drop.database,
                name: drop.name,
                if_exists: drop.if_exists,
                cascade: drop.cascade,
            },
            Kind::TruncateTable(truncate) => {
                Self::TruncateTable { database: truncate.database, name: truncate.name }
            }
            Kind::AlterTable(alter) => Self::AlterTable {
                database: alter.database,
                name: alter.name,
                change: required(alter.change, "change")?,
            },
            Kind::Access(change) => Self::Access(Box::new(AccessChange::from_wire(change)?)),
            Kind::Task(change) => Self::Task(Box::new(TaskChange::from_wire(change)?)),
            Kind::Copy(change) => Self::Copy(CopyChange::from_wire(change)?),
            Kind::Sequence(change) => Self::Sequence(Box::new(SequenceChange::from_wire(change)?)),
        };
        Ok(match message.object {
            Some(Object::Database(id)) => ddl.checked(NamedObject::Database(DatabaseId(id))),
            Some(Object::Table(id)) => ddl.checked(NamedObject::Table(TableId(id))),
            None => ddl,
        })
    }
}
