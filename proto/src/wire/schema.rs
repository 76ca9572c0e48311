//! Values, columns and schemas.

use super::{Wire, all, missing, narrow, pb, required};
use crate::error::Error;
use crate::id::{ColumnId, SchemaVersion};
use crate::partitioning::MERGE_AFTER_S;
use crate::schema::{
    Check, Column, ColumnType, Element, HotspotRemedy, JsonType, MergeMode, Partitioning, Semantic,
    TableOptions, TableSchema, TextLength, Unit,
};
use crate::stored_view::{RelationName, ViewDefinition};
use crate::value::Value;

impl Wire for Value {
    type Message = pb::Value;

    fn to_wire(&self) -> pb::Value {
        use pb::value::Kind;
        let kind = match self {
            Self::Null => Kind::Null(true),
            Self::Bool(v) => Kind::Bool(*v),
            Self::Int(v) => Kind::Int(*v),
            Self::UInt(v) => Kind::Uint(*v),
            Self::Float(v) => Kind::Float(*v),
            Self::Decimal(v) => Kind::Decimal(v.to_be_bytes().to_vec()),
            Self::String(v) => Kind::String(v.clone()),
            Self::Binary(v) => Kind::Binary(v.clone()),
            Self::Date(v) => Kind::Date(*v),
            Self::Timestamp(v) => Kind::Timestamp(*v),
        };
        pb::Value { kind: Some(kind) }
    }

    fn from_wire(message: pb::Value) -> Result<Self, Error> {
        use pb::value::Kind;
        Ok(match message.kind.ok_or_else(|| missing("value"))? {
            Kind::Null(_) => Self::Null,
            Kind::Bool(v) => Self::Bool(v),
            Kind::Int(v) => Self::Int(v),
            Kind::Uint(v) => Self::UInt(v),
            Kind::Float(v) => Self::Float(v),
            Kind::Decimal(v) => {
                let bytes = <[u8; 16]>::try_from(v.as_slice()).map_err(|_| {
                    Error::Corrupted(format!("a decimal has {} bytes instead of 16", v.len()))
                })?;
                Self::Decimal(i128::from_be_bytes(bytes))
            }
            Kind::String(v) => Self::String(v),
            Kind::Binary(v) => Self::Binary(v),
            Kind::Date(v) => Self::Date(v),
            Kind::Timestamp(v) => Self::Timestamp(v),
        })
    }
}

impl Wire for ColumnType {
    type Message = pb::ColumnType;

    fn to_wire(&self) -> pb::ColumnType {
        use pb::TypeKind;
        let mut message = pb::ColumnType::default();
        message.set_kind(match self {
            Self::Bool => TypeKind::Bool,
            Self::Int8 => TypeKind::Int8,
            Self::Int16 => TypeKind::Int16,
            Self::Int32 => TypeKind::Int32,
            Self::Int64 => TypeKind::Int64,
            Self::UInt8 => TypeKind::Uint8,
            Self::UInt16 => TypeKind::Uint16,
            Self::UInt32 => TypeKind::Uint32,
            Self::UInt64 => TypeKind::Uint64,
            Self::Float32 => TypeKind::Float32,
            Self::Float64 => TypeKind::Float64,
            Self::Decimal(..) => TypeKind::Decimal,
            Self::String => TypeKind::String,
            Self::Binary => TypeKind::Binary,
            Self::Date => TypeKind::Date,
            Self::Timestamp(..) => TypeKind::Timestamp,
            Self::Uuid => TypeKind::Uuid,
            Self::Time => TypeKind::Time,
            Self::Array(_) => TypeKind::Array,
            Self::Interval => TypeKind::Interval,
        });
        // Precision, scale, unit and time zone are fields beside the kind.
        match self {
            Self::Decimal(precision, scale) => {
                message.precision = u32::from(*precision);
                message.scale = i32::from(*scale);
            }
            Self::Timestamp(unit, utc) => {
                message.set_unit(match unit {
                    Unit::Second => pb::Unit::Second,
                    Unit::Millisecond => pb::Unit::Millisecond,
                    Unit::Microsecond => pb::Unit::Microsecond,
                    Unit::Nanosecond => pb::Unit::Nanosecond,
                });
                message.utc = *utc;
            }
            Self::Array(element) => {
                // The fields of the elements' type, with its kind in a place of its own.
                let element = element.column_type().to_wire();
                message = pb::ColumnType { kind: message.kind, element: element.kind, ..element };
            }
            _ => {}
        }
        message
    }

    fn from_wire(message: pb::ColumnType) -> Result<Self, Error> {
        use pb::TypeKind;
        // Fields beside the kind count only for the kinds that have them.
        Ok(match TypeKind::try_from(message.kind) {
            Ok(TypeKind::Bool) => Self::Bool,
            Ok(TypeKind::Int8) => Self::Int8,
            Ok(TypeKind::Int16) => Self::Int16,
            Ok(TypeKind::Int32) => Self::Int32,
            Ok(TypeKind::Int64) => Self::Int64,
            Ok(TypeKind::Uint8) => Self::UInt8,
            Ok(TypeKind::Uint16) => Self::UInt16,
            Ok(TypeKind::Uint32) => Self::UInt32,
            Ok(TypeKind::Uint64) => Self::UInt64,
            Ok(TypeKind::Float32) => Self::Float32,
            Ok(TypeKind::Float64) => Self::Float64,
            Ok(TypeKind::Decimal) => Self::Decimal(
                narrow(message.precision, "precision")?,
                narrow(message.scale, "scale")?,
            ),
            Ok(TypeKind::String) => Self::String,
            Ok(TypeKind::Binary) => Self::Binary,
            Ok(TypeKind::Date) => Self::Date,
            Ok(TypeKind::Timestamp) => Self::Timestamp(
                match pb::Unit::try_from(message.unit) {
                    Ok(pb::Unit::Second) => Unit::Second,
                    Ok(pb::Unit::Millisecond) => Unit::Millisecond,
                    Ok(pb::Unit::Microsecond) => Unit::Microsecond,
                    Ok(pb::Unit::Nanosecond) => Unit::Nanosecond,
                    Ok(pb::Unit::Unspecified) | Err(_) => return Err(missing("unit")),
                },
                message.utc,
            ),
            Ok(TypeKind::Uuid) => Self::Uuid,
            Ok(TypeKind::Time) => Self::Time,
            Ok(TypeKind::Interval) => Self::Interval,
            Ok(TypeKind::Array) => {
                let element = pb::ColumnType { kind: message.element, element: 0, ..message };
                let element = Element::of(Self::from_wire(element)?);
                Self::Array(element.ok_or_else(|| missing("type of elements"))?)
            }
            Ok(TypeKind::Unspecified) | Err(_) => return Err(missing("column type")),
        })
    }
}

impl Wire for TextLength {
    type Message = pb::TextLength;

    fn to_wire(&self) -> pb::TextLength {
        pb::TextLength { characters: self.characters, fixed: self.fixed }
    }

    fn from_wire(message: pb::TextLength) -> Result<Self, Error> {
        Ok(Self { characters: message.characters, fixed: message.fixed })
    }
}

impl Wire for Column {
    type Message = pb::Column;

    fn to_wire(&self) -> pb::Column {
        let semantic = match self.semantic {
            Semantic::Tag => pb::Semantic::Tag,
            Semantic::Field => pb::Semantic::Field,
            Semantic::TimeIndex => pb::Semantic::TimeIndex,
        };
        pb::Column {
            id: self.id.0,
            name: self.name.clone(),
            storage_name: self.storage_name.clone(),
            column_type: Some(self.column_type.to_wire()),
            nullable: self.nullable,
            semantic: semantic.into(),
            default: self.default.clone(),
            generated: self.generated.clone(),
            comment: self.comment.clone(),
            missing: self.missing.as_ref().map(Wire::to_wire),
            length: self.length.as_ref().map(Wire::to_wire),
            indexes: self.indexes.iter().map(Wire::to_wire).collect(),
            json: match self.json {
                None => pb::JsonType::Unspecified,
                Some(JsonType::Json) => pb::JsonType::Json,
                Some(JsonType::Jsonb) => pb::JsonType::Jsonb,
            }
            .into(),
        }
    }

    fn from_wire(message: pb::Column) -> Result<Self, Error> {
        let semantic = match pb::Semantic::try_from(message.semantic) {
            Ok(pb::Semantic::Tag) => Semantic::Tag,
            Ok(pb::Semantic::Field) => Semantic::Field,
            Ok(pb::Semantic::TimeIndex) => Semantic::TimeIndex,
            Ok(pb::Semantic::Unspecified) | Err(_) => return Err(missing("semantic")),
        };
        let json = match pb::JsonType::try_from(message.json) {
            Ok(pb::JsonType::Unspecified) => None,
            Ok(pb::JsonType::Json) => Some(JsonType::Json),
            Ok(pb::JsonType::Jsonb) => Some(JsonType::Jsonb),
            Err(_) => return Err(missing("JSON type")),
        };
        Ok(Self {
            id: ColumnId(message.id),
            name: message.name,
            storage_name: message.storage_name,
            column_type: required(message.column_type, "column type")?,
            nullable: message.nullable,
            semantic,
            default: message.default,
            generated: message.generated,
            comment: message.comment,
            missing: message.missing.map(Wire::from_wire).transpose()?,
            length: message.length.map(Wire::from_wire).transpose()?,
            json,
            indexes: all(message.indexes)?,
        })
    }
}

impl Wire for TableOptions {
    type Message = pb::TableOptions;

    fn to_wire(&self) -> pb::TableOptions {
        let merge_mode = match self.merge_mode {
            MergeMode::LastRow => pb::MergeMode::LastRow,
            MergeMode::LastNonNull => pb::MergeMode::LastNonNull,
        };
        pb::TableOptions {
            append_mode: self.append_mode,
            merge_mode: merge_mode.into(),
            ttl: self.ttl.as_ref().map(Wire::to_wire),
            time_window: self.time_window.as_ref().map(Wire::to_wire),
            comment: self.comment.clone(),
            replication_factor: self.replication_factor,
            // Absent: the defaults.
            partitioning: (self.partitioning != Partitioning::default())
                .then(|| self.partitioning.to_wire()),
            advice_off: self.advice_off.clone(),
            advice_thresholds: self.advice_thresholds.clone(),
            wide: self.wide.as_ref().map(Wire::to_wire),
        }
    }

    fn from_wire(message: pb::TableOptions) -> Result<Self, Error> {
        let merge_mode = match pb::MergeMode::try_from(message.merge_mode) {
            Ok(pb::MergeMode::LastRow) => MergeMode::LastRow,
            Ok(pb::MergeMode::LastNonNull) => MergeMode::LastNonNull,
            Ok(pb::MergeMode::Unspecified) | Err(_) => return Err(missing("merge mode")),
        };
        Ok(Self {
            append_mode: message.append_mode,
            merge_mode,
            ttl: message.ttl.map(Wire::from_wire).transpose()?,
            time_window: message.time_window.map(Wire::from_wire).transpose()?,
            comment: message.comment,
            replication_factor: message.replication_factor,
            // Absent: written before the field existed.
            partitioning: message
                .partitioning
                .map(Wire::from_wire)
                .transpose()?
                .unwrap_or_default(),
            advice_off: message.advice_off,
            advice_thresholds: message.advice_thresholds,
            wide: message.wide.map(Wire::from_wire).transpose()?,
        })
    }
}

impl Wire for Partitioning {
    type Message = pb::Partitioning;

    fn to_wire(&self) -> pb::Partitioning {
        let remedy = match self.hotspot_remedy {
            HotspotRemedy::Off => pb::HotspotRemedy::Off,
            HotspotRemedy::Advise => pb::HotspotRemedy::Advise,
            HotspotRemedy::Auto => pb::HotspotRemedy::Auto,
        };
        pb::Partitioning {
            by_load: self.by_load,
            by_size: self.by_size,
            partition_size_mb: self.partition_size_mb,
            min_partitions: self.min_partitions,
            max_partitions: self.max_partitions,
            hotspot_remedy: remedy.into(),
            keep_together: self.keep_together,
            // The default is absent, as in forms that were written before the field existed.
            merge_after_s: Some(self.merge_after_s).filter(|seconds| *seconds != MERGE_AFTER_S),
            pin_expiry_s: self.pin_expiry_s,
            forecast_off: !self.forecast,
        }
    }

    fn from_wire(message: pb::Partitioning) -> Result<Self, Error> {
        let hotspot_remedy = match pb::HotspotRemedy::try_from(message.hotspot_remedy) {
            Ok(pb::HotspotRemedy::Off) => HotspotRemedy::Off,
            Ok(pb::HotspotRemedy::Advise) => HotspotRemedy::Advise,
            Ok(pb::HotspotRemedy::Auto) => HotspotRemedy::Auto,
            Ok(pb::HotspotRemedy::Unspecified) | Err(_) => return Err(missing("hotspot remedy")),
        };
        Ok(Self {
            by_load: message.by_load,
            by_size: message.by_size,
            partition_size_mb: message.partition_size_mb,
            min_partitions: message.min_partitions,
            max_partitions: message.max_partitions,
            hotspot_remedy,
            keep_together: message.keep_together,
            merge_after_s: message.merge_after_s.unwrap_or(MERGE_AFTER_S),
            pin_expiry_s: message.pin_expiry_s,
            forecast: !message.forecast_off,
        })
    }
}

impl Wire for TableSchema {
    type Message = pb::TableSchema;

    fn to_wire(&self) -> pb::TableSchema {
        pb::TableSchema {
            version: self.version.0,
            columns: self.columns.iter().map(Wire::to_wire).collect(),
            key: self.key.iter().map(|id| id.0).collect(),
            options: Some(self.options.to_wire()),
            next_column: self.next_column.0,
            schema_on_write: self.schema_on_write,
            view: self.view.as_ref().map(Wire::to_wire),
            checks: self.checks.iter().map(Wire::to_wire).collect(),
        }
    }

    fn from_wire(message: pb::TableSchema) -> Result<Self, Error> {
        Ok(Self {
            version: SchemaVersion(message.version),
            columns: all(message.columns)?,
            key: message.key.into_iter().map(ColumnId).collect(),
            options: required(message.options, "options")?,
            next_column: ColumnId(message.next_column),
            schema_on_write: message.schema_on_write,
            view: message.view.map(Wire::from_wire).transpose()?,
            checks: all(message.checks)?,
        })
    }
}

impl Wire for Check {
    type Message = pb::Check;

    fn to_wire(&self) -> pb::Check {
        pb::Check { name: self.name.clone(), expression: self.expression.clone() }
    }

    fn from_wire(message: pb::Check) -> Result<Self, Error> {
        Ok(Self { name: message.name, expression: message.expression })
    }
}

impl Wire for ViewDefinition {
    type Message = pb::ViewDefinition;

    fn to_wire(&self) -> pb::ViewDefinition {
        let relation = |read: &RelationName| pb::RelationName {
            database: read.database.clone(),
            name: read.name.clone(),
        };
        pb::ViewDefinition {
            query: self.query.clone(),
            database: self.database.clone(),
            reads: self.reads.iter().map(relation).collect(),
        }
    }

    fn from_wire(message: pb::ViewDefinition) -> Result<Self, Error> {
        let relation =
            |read: pb::RelationName| RelationName { database: read.database, name: read.name };
        Ok(Self {
            query: message.query,
            database: message.database,
            reads: message.reads.into_iter().map(relation).collect(),
        })
    }
}
