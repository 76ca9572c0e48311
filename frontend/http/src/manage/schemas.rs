//! `/api/v2/buckets/{id}/schema/measurements`: the tables of a bucket with an explicit schema.
//!
//! A schema of a measurement is a table with exactly these columns, which line protocol adds none to. Columns may be
//! added here, never changed or dropped. The catalog keeps no times of creation: they are shown as 1970.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use partita_frontend::SqlError;
use partita_proto::access::{Action, Need, Object};
use partita_proto::catalog::{Database, Table};
use partita_proto::schema::{Column, ColumnType, MergeMode, Semantic, TableOptions};
use partita_proto::service::{Ddl, TableChange};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::authorizations::time_text;
use super::client::{Client, object};
use super::failure::{Answer, Failure};
use super::ids::{id_text, table_of};
use crate::parameters::Parameters;
use crate::schema_on_write::{Definition, tags_and_fields};

/// Maximum characters of the name of a measurement or a column.
const NAME_CHARACTERS_MAX: usize = 128;
/// Name of the time column.
const TIME: &str = "time";

/// Body of POST.
#[derive(Deserialize)]
struct NewSchema {
    name: String,
    columns: Vec<ColumnBody>,
}

/// Body of PATCH.
#[derive(Deserialize)]
struct SchemaEdit {
    columns: Vec<ColumnBody>,
}

#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
struct ColumnBody {
    name: String,
    #[serde(rename = "type")]
    kind: Kind,
    /// Type of a field; string without one.
    #[serde(
        rename = "dataType",
        alias = "data_type",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    data_type: Option<DataType>,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Timestamp,
    Tag,
    Field,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum DataType {
    String,
    Float,
    Integer,
    Unsigned,
    Boolean,
}

impl DataType {
    fn column_type(self) -> ColumnType {
        match self {
            Self::String => ColumnType::String,
            Self::Float => ColumnType::Float64,
            Self::Integer => ColumnType::Int64,
            Self::Unsigned => ColumnType::UInt64,
            Self::Boolean => ColumnType::Bool,
        }
    }

    /// The type of a column; `None` for types that only SQL has.
    fn of(column_type: ColumnType) -> Option<Self> {
        let types = [Self::String, Self::Float, Self::Integer, Self::Unsigned, Self::Boolean];
        types.into_iter().find(|candidate| candidate.column_type() == column_type)
    }
}

impl ColumnBody {
    fn of(column: &Column) -> Self {
        let (kind, data_type) = match column.semantic {
            Semantic::TimeIndex => (Kind::Timestamp, None),
            Semantic::Tag => (Kind::Tag, None),
            Semantic::Field => (Kind::Field, DataType::of(column.column_type)),
        };
        Self { name: column.name.clone(), kind, data_type }
    }

    /// With the type that it has without one.
    fn explicit(mut self) -> Self {
        self.data_type = match self.kind {
            Kind::Field => self.data_type.or(Some(DataType::String)),
            Kind::Timestamp | Kind::Tag => None,
        };
        self
    }
}

/// Tags and fields of a measurement, both by name.
#[derive(Debug, Default)]
struct Columns {
    tags: Vec<String>,
    fields: Vec<(String, ColumnType)>,
}

impl Columns {
    /// Checks the columns of a whole schema.
    ///
    /// # Errors
    /// 422 for a wrong name or type, no time, or no field.
    fn of(bodies: &[ColumnBody]) -> Result<Self, Failure> {
        let mut columns = Self::default();
        let mut times = 0;
        let mut names = BTreeSet::new();
        for body in bodies {
            if !names.insert(body.name.as_str()) {
                let message = format!("column \"{}\" is specified more than once", body.name);
                return Err(Failure::unprocessable(message));
            }
            match body.kind {
                Kind::Timestamp if body.name == TIME => times += 1,
                Kind::Timestamp => {
                    return Err(Failure::unprocessable("the timestamp column must be named time"));
                }
                Kind::Tag if body.data_type.is_some_and(|kind| kind != DataType::String) => {
                    let message = format!("tag \"{}\" must have no data type", body.name);
                    return Err(Failure::unprocessable(message));
                }
                Kind::Tag => columns.tags.push(checked_name("column", &body.name)?),
                Kind::Field => {
                    let kind = body.data_type.unwrap_or(DataType::String);
                    let name = checked_name("column", &body.name)?;
                    columns.fields.push((name, kind.column_type()));
                }
            }
        }
        if times != 1 || columns.fields.is_empty() {
            return Err(Failure::unprocessable(
                "a schema must have a timestamp column named time, and a field",
            ));
        }
        columns.tags.sort_unstable();
        columns.fields.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        Ok(columns)
    }
}

/// Checks the name of a measurement or a tag or field.
fn checked_name(kind: &str, name: &str) -> Result<String, Failure> {
    let length = name.chars().count();
    let is_first = |first: char| first != '_' && !first.is_ascii_digit();
    let is_right = (1..=NAME_CHARACTERS_MAX).contains(&length)
        && name.starts_with(is_first)
        && !name.contains(['"', '\''])
        && (kind == "measurement" || name != TIME);
    match is_right {
        true => Ok(name.to_owned()),
        false => Err(Failure::unprocessable(format!(
            "invalid {kind} name \"{name}\": it must have 1 to {NAME_CHARACTERS_MAX} characters, \
             begin with neither \"_\" nor a digit, have no quotes, and not be time"
        ))),
    }
}

/// A measurement's schema as clients see it.
fn shown(client: &Client<'_>, database: &Database, table: &Table) -> Value {
    let columns: Vec<_> = table.schema.shown().map(ColumnBody::of).collect();
    let epoch = time_text(0);
    let mut schema = json!({
        "id": id_text(table.id.0),
        "bucketID": id_text(database.id.0),
        "name": table.name,
        "columns": columns,
        "createdAt": epoch,
        "updatedAt": epoch,
    });
    if let Some(org) = client.org_of(database) {
        schema["orgID"] = json!(org.to_string());
    }
    schema
}

/// The bucket with this id, which must have an explicit schema.
fn explicit(client: &Client<'_>, bucket: &str) -> Result<Arc<Database>, Failure> {
    let database = client.bucket(bucket)?;
    match database.explicit {
        true => Ok(database),
        false => Err(Failure::unprocessable(format!(
            "bucket \"{}\" has no explicit schema",
            database.name
        ))),
    }
}

/// The measurement with this id.
fn measurement(
    client: &Client<'_>,
    database: &Database,
    text: &str,
) -> Result<Arc<Table>, Failure> {
    let catalog = client.catalog();
    let table = table_of(text).and_then(|id| catalog.table_by_id(id));
    let table = table.filter(|table| table.database == database.name).map(Arc::clone);
    table.ok_or_else(|| Failure::missing("measurement schema not found"))
}

pub(super) fn list(client: &Client<'_>, bucket: &str, parameters: &Parameters) -> Answer {
    let database = explicit(client, bucket)?;
    let catalog = client.catalog();
    let tables = catalog.tables.get(&database.name).into_iter().flat_map(|tables| tables.values());
    let name = parameters.get("name");
    let tables = tables.filter(|table| name.is_none_or(|name| name == table.name));
    let schemas: Vec<_> = tables.map(|table| shown(client, &database, table)).collect();
    Ok(Json(json!({ "measurementSchemas": schemas })).into_response())
}

pub(super) async fn create(
    client: &Client<'_>,
    bucket: &str,
    headers: &HeaderMap,
    body: Body,
) -> Answer {
    let database = explicit(client, bucket)?;
    let create = Need::new(Action::Create, Object::Database(Arc::clone(&database)));
    let permit = client.permit(&[create])?;
    let body: NewSchema = object(client.door, headers, body).await?;
    let name = checked_name("measurement", &body.name)?;
    let columns = Columns::of(&body.columns)?;
    let definition = Definition {
        database: &database.name,
        name: &name,
        time_column: TIME,
        tags: &columns.tags,
        fields: &columns.fields,
        options: TableOptions { merge_mode: MergeMode::LastNonNull, ..TableOptions::default() },
        schema_on_write: false,
    };
    let table = Box::new(definition.into_table(permit.role()));
    client.change(&permit, Ddl::CreateTable { table, if_not_exists: false }).await?;
    let catalog = client.door.frontend.catalog();
    let table = catalog.table(&database.name, &name);
    let table = table.ok_or_else(|| SqlError::undefined_table(&name))?;
    Ok((StatusCode::CREATED, Json(shown(client, &database, table))).into_response())
}

pub(super) fn show(client: &Client<'_>, bucket: &str, id: &str) -> Answer {
    let database = explicit(client, bucket)?;
    let table = measurement(client, &database, id)?;
    Ok(Json(shown(client, &database, &table)).into_response())
}

/// Adds columns; those that exist must be named, unchanged.
pub(super) async fn change(
    client: &Client<'_>,
    (bucket, id): (&str, &str),
    headers: &HeaderMap,
    body: Body,
) -> Answer {
    let database = explicit(client, bucket)?;
    let table = measurement(client, &database, id)?;
    let object_of = Object::Table { database: Arc::clone(&database), table: Arc::clone(&table) };
    let permit = client.permit(&[Need::new(Action::Own, object_of)])?;
    let body: SchemaEdit = object(client.door, headers, body).await?;
    let new = added(&table, &body.columns)?;
    if !new.is_empty() {
        let change = TableChange::AddColumns { columns: new, if_not_exists: false };
        let (database, name) = (database.name.clone(), table.name.clone());
        client.change(&permit, Ddl::AlterTable { database, name, change }).await?;
    }
    show(client, bucket, id)
}

/// The columns that a table lacks.
///
/// # Errors
/// 422 when one that it has is missing, or differs.
fn added(table: &Table, bodies: &[ColumnBody]) -> Result<Vec<Column>, Failure> {
    Columns::of(bodies)?;
    let wanted: Vec<ColumnBody> = bodies.iter().cloned().map(ColumnBody::explicit).collect();
    for column in &table.schema.columns {
        if !wanted.contains(&ColumnBody::of(column)) {
            return Err(Failure::unprocessable(format!(
                "column \"{}\" of the schema is missing or differs; columns can only be added",
                column.name
            )));
        }
    }
    let is_new = |body: &&ColumnBody| table.schema.column(&body.name).is_none();
    let new = wanted.iter().filter(is_new);
    let (tags, fields): (Vec<&ColumnBody>, Vec<&ColumnBody>) =
        new.partition(|body| body.kind == Kind::Tag);
    let tags: Vec<String> = tags.into_iter().map(|body| body.name.clone()).collect();
    let kind = |body: &ColumnBody| body.data_type.unwrap_or(DataType::String).column_type();
    let fields: Vec<_> = fields.into_iter().map(|body| (body.name.clone(), kind(body))).collect();
    Ok(tags_and_fields(&tags, &fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(bodies: Value) -> Result<Columns, Failure> {
        Columns::of(&serde_json::from_value::<Vec<ColumnBody>>(bodies).unwrap())
    }

    #[test]
    fn both_spellings_of_the_data_type_are_read() {
        let read = columns(json!([
            {"name": "time", "type": "timestamp"},
            {"name": "sensor_id", "type": "tag"},
            {"name": "humidity", "type": "field", "data_type": "float"},
            {"name": "co", "type": "field", "dataType": "integer"},
            {"name": "note", "type": "field"},
        ]));
        let read = read.unwrap();
        assert_eq!(read.tags, ["sensor_id"]);
        let fields: Vec<_> =
            read.fields.iter().map(|(name, kind)| (name.as_str(), *kind)).collect();
        let expected = [
            ("co", ColumnType::Int64),
            ("humidity", ColumnType::Float64),
            ("note", ColumnType::String),
        ];
        assert_eq!(fields, expected);
    }

    #[test]
    fn a_schema_has_a_time_and_a_field_and_plain_names() {
        let time = json!({"name": "time", "type": "timestamp"});
        let field = json!({"name": "v", "type": "field"});
        let with_tag = |name: &str| json!([time, field, {"name": name, "type": "tag"}]);
        assert!(columns(json!([time, field])).is_ok());
        for wrong in [
            json!([time]),
            json!([field]),
            json!([{"name": "at", "type": "timestamp"}, field]),
            json!([time, field, {"name": "a", "type": "tag", "dataType": "float"}]),
            with_tag("v"),
            with_tag("_a"),
            with_tag("1a"),
            with_tag("a\"b"),
            with_tag(""),
            with_tag(&"x".repeat(129)),
        ] {
            assert!(columns(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
