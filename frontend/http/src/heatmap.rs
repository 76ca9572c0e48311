//! The picture of a table's load over keys and time: the page, and the picture as JSON, SVG and PNG.
//!
//! | path | answers |
//! |---|---|
//! | `/heatmap` | the page, which asks for the rest |
//! | `/v1/tables.json` | the tables, those with the most load first, and what is wrong with each |
//! | `/v1/heatmap.json` | the picture; what it takes is said in `partita_heatmap`'s `picture` |
//! | `/v1/heatmap.svg`, `/v1/heatmap.png` | likewise, drawn; with `width`, `height`, `theme` (`dark`, `light`) |
//!
//! Invariants: meta draws the picture and the frontend adds what would help; errors are `{"error": "text"}`; the size of
//! a drawing is bounded, and it is drawn where blocking does no harm.

use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use axum::Json;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use partita_heatmap::{Heatmap, Metric, Mode, Style, Theme, key_of_hex};
use partita_proto::blocking;
use partita_proto::catalog::{Catalog, DEFAULT_DATABASE, Table};
use partita_proto::load::HeatmapRequest;

use crate::door::Door;
use crate::error::{ApiError, Dialect};
use crate::parameters::Parameters;
use crate::tables_json;

/// Seconds that a picture reaches back, rows and columns that it has, when nobody says.
const SINCE_S: u64 = 900;
const ROWS: u32 = 256;
const COLUMNS: u32 = 240;
/// More rows or columns than these are not drawn.
const SIDE_MAX: u32 = 1_000;
/// The largest drawing, pixels.
const WIDTH_MAX: u32 = 4_096;
const HEIGHT_MAX: u32 = 4_096;

/// The page is the same for everybody.
static PAGE: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(partita_heatmap::page(&[])));

/// `GET /heatmap`.
pub(crate) async fn page() -> Response {
    body("text/html; charset=utf-8", PAGE.clone())
}

/// `GET /v1/tables.json`.
pub(crate) async fn tables(State(door): State<Arc<Door>>) -> Response {
    let Some(report) = door.frontend.load().await else {
        return refused(&ApiError::busy("nobody says how busy the tables are; try again"));
    };
    let list = tables_json::tables(&report, &door.frontend.catalog());
    ([(CACHE_CONTROL, "no-store")], Json(list)).into_response()
}

/// `GET /v1/heatmap.json`.
pub(crate) async fn json(State(door): State<Arc<Door>>, uri: Uri) -> Response {
    answer(async {
        let asked = Asked::of(&door, &uri)?;
        let heatmap = asked.heatmap(&door).await?;
        Ok(([(CACHE_CONTROL, "no-store")], Json(heatmap)).into_response())
    })
    .await
}

/// `GET /v1/heatmap.svg`.
pub(crate) async fn svg(State(door): State<Arc<Door>>, uri: Uri) -> Response {
    answer(async {
        let asked = Asked::of(&door, &uri)?;
        let heatmap = asked.heatmap(&door).await?;
        let drawn = blocking::spawn(move || partita_heatmap::svg(&heatmap, asked.style));
        let drawn = drawn.await.map_err(|error| ApiError::internal(error.to_string()))?;
        Ok(body("image/svg+xml", Bytes::from(drawn)))
    })
    .await
}

/// `GET /v1/heatmap.png`.
pub(crate) async fn png(State(door): State<Arc<Door>>, uri: Uri) -> Response {
    answer(async {
        let asked = Asked::of(&door, &uri)?;
        let heatmap = asked.heatmap(&door).await?;
        let drawn = blocking::spawn(move || partita_heatmap::png(&heatmap, asked.style));
        let drawn = drawn.await.map_err(|error| ApiError::internal(error.to_string()))?;
        let drawn = drawn.map_err(|error| ApiError::internal(error.to_string()))?;
        Ok(body("image/png", Bytes::from(drawn)))
    })
    .await
}

async fn answer(made: impl Future<Output = Result<Response, ApiError>>) -> Response {
    made.await.unwrap_or_else(|error| refused(&error))
}

fn refused(error: &ApiError) -> Response {
    error.respond(Dialect::InfluxV3)
}

fn body(content_type: &'static str, bytes: Bytes) -> Response {
    let headers: [(HeaderName, &str); 2] =
        [(CONTENT_TYPE, content_type), (CACHE_CONTROL, "no-store")];
    (headers, bytes).into_response()
}

/// What a request asks for.
struct Asked {
    table: Arc<Table>,
    request: HeatmapRequest,
    style: Style,
}

impl Asked {
    fn of(door: &Door, uri: &Uri) -> Result<Self, ApiError> {
        let given = Parameters::of(uri);
        let name = given.get("table").ok_or_else(|| ApiError::bad_request("table is required"))?;
        let table = table_named(&door.frontend.catalog(), name).ok_or_else(|| {
            ApiError::new(StatusCode::NOT_FOUND, format!("table \"{name}\" does not exist"))
        })?;
        let metric = match given.get("metric") {
            None => Metric::WriteRows,
            Some(name) => Metric::named(name).ok_or_else(|| {
                let known = Metric::ALL.map(Metric::name).join(", ");
                ApiError::bad_request(format!("metric may be one of {known}, not \"{name}\""))
            })?,
        };
        let key = |name: &str| {
            given.get(name).map(|text| {
                let key = key_of_hex(text).filter(|_| text.len().is_multiple_of(2));
                let key = key.map(|key| Bytes::copy_from_slice(&key));
                key.ok_or_else(|| ApiError::bad_request(format!("{name} is not hexadecimal")))
            })
        };
        let request = HeatmapRequest {
            table: table.id,
            metric: metric.name().to_owned(),
            since_s: number(&given, "since", 1..=u64::MAX)?.unwrap_or(SINCE_S),
            until_s: number(&given, "until", 0..=u64::MAX)?,
            rows: number(&given, "rows", 1..=SIDE_MAX)?.unwrap_or(ROWS),
            columns: number(&given, "columns", 1..=SIDE_MAX)?.unwrap_or(COLUMNS),
            from_key: key("from_key").transpose()?.unwrap_or_default(),
            to_key: key("to_key").transpose()?,
        };
        let usual = Style::default();
        let style = Style {
            width: number(&given, "width", 640..=WIDTH_MAX)?.unwrap_or(usual.width),
            map_height: number(&given, "height", 120..=HEIGHT_MAX)?.unwrap_or(usual.map_height),
            mode: one_of(
                &given,
                "mode",
                [("absolute", Mode::Absolute), ("relative", Mode::Relative)],
            )?,
            theme: one_of(&given, "theme", [("dark", Theme::Dark), ("light", Theme::Light)])?,
        };
        Ok(Self { table, request, style })
    }

    /// The picture as meta draws it, with what would help against what was found.
    async fn heatmap(&self, door: &Door) -> Result<Heatmap, ApiError> {
        let json = door.frontend.heatmap(self.request.clone()).await?;
        let mut heatmap: Heatmap = serde_json::from_slice(&json)
            .map_err(|error| ApiError::internal(format!("the picture cannot be read: {error}")))?;
        if !heatmap.verdicts.is_empty()
            && let Some(report) = door.frontend.load().await
        {
            for note in heatmap.verdicts.iter_mut().filter(|note| note.advice.is_empty()) {
                let advice =
                    door.frontend.advice(&self.table, &report, note.partition, &note.class);
                note.advice = advice.unwrap_or_default();
            }
        }
        Ok(heatmap)
    }
}

/// A table's name as `table=` takes it: with its database, unless that is the usual one.
pub(crate) fn shown_name(table: &Table) -> String {
    if table.database == DEFAULT_DATABASE {
        table.name.clone()
    } else {
        format!("{}.{}", table.database, table.name)
    }
}

/// The table of such a name; names may have points of their own.
fn table_named(catalog: &Catalog, name: &str) -> Option<Arc<Table>> {
    let split = name.match_indices('.').map(|(at, _)| (&name[..at], &name[at + 1..]));
    let mut readings = [(DEFAULT_DATABASE, name)].into_iter().chain(split);
    readings.find_map(|(database, name)| catalog.table(database, name)).cloned()
}

fn number<N: FromStr + PartialOrd + std::fmt::Display>(
    given: &Parameters,
    name: &str,
    range: std::ops::RangeInclusive<N>,
) -> Result<Option<N>, ApiError> {
    let Some(text) = given.get(name) else { return Ok(None) };
    let read = text.parse().ok().filter(|number| range.contains(number));
    read.map(Some).ok_or_else(|| {
        let (least, most) = range.into_inner();
        ApiError::bad_request(format!("{name} may be {least} to {most}, not \"{text}\""))
    })
}

fn one_of<T: Copy + Default>(
    given: &Parameters,
    name: &str,
    known: [(&str, T); 2],
) -> Result<T, ApiError> {
    let Some(text) = given.get(name) else { return Ok(T::default()) };
    let found = known.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let [(one, _), (other, _)] = known;
        ApiError::bad_request(format!("{name} may be {one} or {other}, not \"{text}\""))
    })
}
