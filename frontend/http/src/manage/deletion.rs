//! `POST /api/v2/delete`: the rows of a time range, by measurement and tags.
//!
//! Each table of the bucket that has the tags gets one DELETE, which checks the right of the caller. Names in its text
//! are those of the catalog, values are parameters.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use arrow::temporal_conversions::timestamp_ns_to_datetime;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use partita_frontend::sql::identifier::quote;
use partita_proto::catalog::Table;
use partita_proto::id::TableId;
use partita_proto::schema::{ColumnType, Semantic};
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::{Client, object};
use super::failure::{Answer, Failure};
use super::ids::bucket_named;
use super::predicate::DeletePredicate;
use crate::error::ApiError;
use crate::parameters::Parameters;
use crate::sql_parameters::run_with;

/// Body of the request.
#[derive(Deserialize)]
struct Deletion {
    start: String,
    stop: String,
    predicate: Option<String>,
}

pub(super) async fn run(
    client: &Client<'_>,
    parameters: &Parameters,
    headers: &HeaderMap,
    body: Body,
) -> Answer {
    let bucket = parameters.get("bucketID").or(parameters.get("bucket"));
    let bucket = bucket.ok_or_else(|| ApiError::bad_request("bucket is required"))?.to_owned();
    let catalog = client.catalog();
    let bucket = bucket_named(&catalog, bucket);
    if !catalog.databases.contains_key(&bucket) {
        return Err(Failure::missing(format!("bucket \"{bucket}\" not found")));
    }
    let body: Deletion = object(client.door, headers, body).await?;
    let (start, stop) = (moment("start", &body.start)?, moment("stop", &body.stop)?);
    let predicate = DeletePredicate::parse(body.predicate.as_deref().unwrap_or_default());
    let predicate = predicate.map_err(ApiError::bad_request)?;
    let session = client.door.session(client.identity, &bucket, "http")?;
    let tables = catalog.tables.get(&bucket).into_iter().flat_map(|tables| tables.values());
    // A former table is read-only, and belongs to its successor.
    let stored = catalog.tables.values().flat_map(|tables| tables.values());
    let formers: BTreeSet<TableId> = stored.filter_map(|table| table.former).collect();
    let is_named = |table: &&Arc<Table>| {
        predicate.measurement.as_ref().is_none_or(|name| *name == table.name)
            && !formers.contains(&table.id)
    };
    let statements: Vec<String> =
        tables.filter(is_named).filter_map(|table| statement(table, &predicate)).collect();
    let mut values: BTreeMap<String, Value> =
        [("start".to_owned(), json!(start)), ("stop".to_owned(), json!(stop))].into();
    for (position, (_, value)) in predicate.tags.iter().enumerate() {
        values.insert(format!("tag{position}"), json!(value));
    }
    for text in statements {
        run_with(&session, &text, &values).await?;
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The DELETE of a table's rows; `None` if the table has no time, or not all the tags.
fn statement(table: &Table, predicate: &DeletePredicate) -> Option<String> {
    let time = quote(&table.schema.time_index()?.name);
    let name = (quote(&table.database), quote(&table.name));
    let mut text =
        format!("DELETE FROM {}.{} WHERE {time} >= $start AND {time} <= $stop", name.0, name.1);
    for (position, (tag, _)) in predicate.tags.iter().enumerate() {
        let column = table.schema.column(tag)?;
        if column.semantic != Semantic::Tag || column.column_type != ColumnType::String {
            return None;
        }
        write!(text, " AND {} = $tag{position}", quote(tag)).ok()?;
    }
    Some(text)
}

/// A time of RFC 3339, in the form that statements take.
fn moment(name: &str, text: &str) -> Result<String, ApiError> {
    let nanos = string_to_timestamp_nanos(text.trim());
    let moment = nanos.ok().and_then(timestamp_ns_to_datetime);
    let moment = moment.map(|moment| format!("{moment:?}"));
    moment.ok_or_else(|| ApiError::bad_request(format!("invalid {name}: not a time of RFC 3339")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_given_in_rfc_3339() {
        assert_eq!(moment("start", "1970-01-01T00:00:01Z").unwrap(), "1970-01-01T00:00:01");
        let zoned = moment("start", "1970-01-01T02:00:00.000000001+02:00").unwrap();
        assert_eq!(zoned, "1970-01-01T00:00:00.000000001");
        for wrong in ["", "yesterday", "9999-01-01T00:00:00Z"] {
            assert!(moment("stop", wrong).is_err(), "{wrong}");
        }
    }
}
