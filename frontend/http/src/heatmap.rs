//! The heatmap of a table's load over keys and time: the page, and the heatmap as JSON, SVG and PNG.
//!
//! | path | response |
//! |---|---|
//! | `/heatmap` | the page, which requests the rest |
//! | `/v1/tables.json` | the tables, those with the most load first, each with its verdict |
//! | `/v1/heatmap.json` | the heatmap; its fields are described in `partita_heatmap`'s `picture` |
//! | `/v1/heatmap.svg`, `/v1/heatmap.png` | the same, drawn; with `width`, `height`, `theme` (`dark`, `light`) |
//!
//! Invariants: meta computes the heatmap and the frontend adds advice; errors are `{"error": "text"}`; the size of a
//! drawing is bounded, and drawings are made on threads that may block; figures are shown of tables all of whose rows
//! the caller may read, and other tables do not exist unless the caller sees their names.

use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use partita_heatmap::{Heatmap, Metric, Mode, Style, Theme, key_of_hex};
use partita_load::Class;
use partita_proto::access::{Action, Need, Object, Permit, Sight};
use partita_proto::blocking;
use partita_proto::catalog::{Catalog, DEFAULT_DATABASE, Table};
use partita_proto::load::HeatmapRequest;

use crate::caller::Caller;
use crate::door::Door;
use crate::error::{ApiError, Dialect};
use crate::pages::logout_form;
use crate::parameters::Parameters;
use crate::tables_json;

/// Defaults: seconds covered, rows and columns.
const SINCE_S: u64 = 900;
const ROWS: u32 = 256;
const COLUMNS: u32 = 240;
/// Maximum rows or columns of a heatmap.
const SIDE_MAX: u32 = 1_000;
/// Maximum size of a drawing in pixels.
const WIDTH_MAX: u32 = 4_096;
const HEIGHT_MAX: u32 = 4_096;

/// The page does not depend on the request.
static PAGE: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(partita_heatmap::page(&[])));

/// `GET /heatmap`; with a form that signs out, for a caller with a cookie.
pub(crate) async fn page(Extension(caller): Extension<Caller>) -> Response {
    let page = match (&caller.csrf, std::str::from_utf8(&PAGE)) {
        (Some(csrf), Ok(page)) => {
            Bytes::from(page.replacen("</header>", &format!("{}</header>", logout_form(csrf)), 1))
        }
        _ => PAGE.clone(),
    };
    body("text/html; charset=utf-8", page)
}

/// `GET /v1/tables.json`.
pub(crate) async fn tables(
    State(door): State<Arc<Door>>,
    Extension(caller): Extension<Caller>,
) -> Response {
    let Some(report) = door.frontend.load().await else {
        return refused(&ApiError::busy("the load of the tables is not known yet; try again"));
    };
    let viewer = door.frontend.viewer(caller.identity);
    let is_shown = |table| viewer.sight_of(table) == Sight::All;
    let list = tables_json::tables(&report, &viewer.catalog(), is_shown);
    ([(CACHE_CONTROL, "no-store")], Json(list)).into_response()
}

/// `GET /v1/heatmap.json`.
pub(crate) async fn json(
    State(door): State<Arc<Door>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Response {
    answer(async {
        let request = HeatmapQuery::parse(&door, &caller, &uri)?;
        let heatmap = request.heatmap(&door).await?;
        Ok(([(CACHE_CONTROL, "no-store")], Json(heatmap)).into_response())
    })
    .await
}

/// `GET /v1/heatmap.svg`.
pub(crate) async fn svg(
    State(door): State<Arc<Door>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Response {
    answer(async {
        let request = HeatmapQuery::parse(&door, &caller, &uri)?;
        let heatmap = request.heatmap(&door).await?;
        let drawn = blocking::spawn(move || partita_heatmap::svg(&heatmap, request.style));
        let drawn = drawn.await.map_err(|error| ApiError::internal(error.to_string()))?;
        Ok(body("image/svg+xml", Bytes::from(drawn)))
    })
    .await
}

/// `GET /v1/heatmap.png`.
pub(crate) async fn png(
    State(door): State<Arc<Door>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Response {
    answer(async {
        let request = HeatmapQuery::parse(&door, &caller, &uri)?;
        let heatmap = request.heatmap(&door).await?;
        let drawn = blocking::spawn(move || partita_heatmap::png(&heatmap, request.style));
        let drawn = drawn.await.map_err(|error| ApiError::internal(error.to_string()))?;
        let drawn = drawn.map_err(|error| ApiError::internal(error.to_string()))?;
        Ok(body("image/png", Bytes::from(drawn)))
    })
    .await
}

async fn answer(response: impl Future<Output = Result<Response, ApiError>>) -> Response {
    response.await.unwrap_or_else(|error| refused(&error))
}

fn refused(error: &ApiError) -> Response {
    error.respond(Dialect::InfluxV3)
}

fn body(content_type: &'static str, bytes: Bytes) -> Response {
    let headers: [(HeaderName, &str); 2] =
        [(CONTENT_TYPE, content_type), (CACHE_CONTROL, "no-store")];
    (headers, bytes).into_response()
}

/// A parsed request for a heatmap.
struct HeatmapQuery {
    table: Arc<Table>,
    permit: Permit,
    request: HeatmapRequest,
    style: Style,
}

impl HeatmapQuery {
    fn parse(door: &Door, caller: &Caller, uri: &Uri) -> Result<Self, ApiError> {
        // The table and what is measured.
        let parameters = Parameters::of(uri);
        let name =
            parameters.get("table").ok_or_else(|| ApiError::bad_request("table is required"))?;
        let (table, permit) = visible_table(door, caller, name)?;
        let metric = match parameters.get("metric") {
            None => Metric::WriteRows,
            Some(name) => Metric::named(name).ok_or_else(|| {
                let names = Metric::ALL.map(Metric::name).join(", ");
                ApiError::bad_request(format!("metric must be one of {names}, not \"{name}\""))
            })?,
        };
        // The part of the key space, and the resolution.
        let key = |name: &str| {
            parameters.get(name).map(|text| {
                let key = key_of_hex(text).filter(|_| text.len().is_multiple_of(2));
                let key = key.map(|key| Bytes::copy_from_slice(&key));
                key.ok_or_else(|| ApiError::bad_request(format!("{name} is not hexadecimal")))
            })
        };
        let request = HeatmapRequest {
            table: table.id,
            metric: metric.name().to_owned(),
            since_s: number(&parameters, "since", 1..=u64::MAX)?.unwrap_or(SINCE_S),
            until_s: number(&parameters, "until", 0..=u64::MAX)?,
            rows: number(&parameters, "rows", 1..=SIDE_MAX)?.unwrap_or(ROWS),
            columns: number(&parameters, "columns", 1..=SIDE_MAX)?.unwrap_or(COLUMNS),
            from_key: key("from_key").transpose()?.unwrap_or_default(),
            to_key: key("to_key").transpose()?,
        };
        // The size and look of a drawing.
        let usual = Style::default();
        let style = Style {
            width: number(&parameters, "width", 640..=WIDTH_MAX)?.unwrap_or(usual.width),
            map_height: number(&parameters, "height", 120..=HEIGHT_MAX)?
                .unwrap_or(usual.map_height),
            mode: one_of(
                &parameters,
                "mode",
                [("absolute", Mode::Absolute), ("relative", Mode::Relative)],
            )?,
            theme: one_of(&parameters, "theme", [("dark", Theme::Dark), ("light", Theme::Light)])?,
        };
        Ok(Self { table, permit, request, style })
    }

    /// The heatmap from meta, with advice for its verdicts.
    async fn heatmap(&self, door: &Door) -> Result<Heatmap, ApiError> {
        let json = door.frontend.heatmap(&self.permit, self.request.clone()).await?;
        let mut heatmap: Heatmap = serde_json::from_slice(&json)
            .map_err(|error| ApiError::internal(format!("cannot decode the heatmap: {error}")))?;
        if !heatmap.verdicts.is_empty()
            && let Some(report) = door.frontend.load().await
        {
            for note in heatmap.verdicts.iter_mut().filter(|note| note.advice.is_empty()) {
                // The heatmap has classes as texts; one of a newer version gets no advice.
                let advice = Class::named(&note.class).and_then(|class| {
                    door.frontend.advice(&self.table, &report, note.partition, class)
                });
                note.advice = advice.unwrap_or_default();
            }
        }
        Ok(heatmap)
    }
}

/// The table with this name, with the permit to see its figures.
///
/// # Errors
/// 404 when the table does not exist for the caller, 403 when the caller may not read all of its rows.
fn visible_table(
    door: &Door,
    caller: &Caller,
    name: &str,
) -> Result<(Arc<Table>, Permit), ApiError> {
    let viewer = door.frontend.viewer(caller.identity);
    let catalog = viewer.catalog();
    let missing =
        || ApiError::new(StatusCode::NOT_FOUND, format!("table \"{name}\" does not exist"));
    let table = table_named(&catalog, name).ok_or_else(missing)?;
    let database = catalog.databases.get(&table.database).cloned().ok_or_else(missing)?;
    match viewer.sight(&database, &table) {
        Sight::All => {}
        Sight::None => return Err(missing()),
        Sight::Names | Sight::Rows(_) => {
            let message = format!("permission denied for table {name}");
            return Err(ApiError::new(StatusCode::FORBIDDEN, message));
        }
    }
    let object = Object::Table { database, table: Arc::clone(&table) };
    let permit = viewer.check(&[Need::new(Action::Select, object)])?;
    Ok((table, permit))
}

/// A table's name for parameter `table`: with its database, unless that is the default one.
pub(crate) fn shown_name(table: &Table) -> String {
    if table.database == DEFAULT_DATABASE {
        table.name.clone()
    } else {
        format!("{}.{}", table.database, table.name)
    }
}

/// The table with such a name; names may contain dots themselves.
fn table_named(catalog: &Catalog, name: &str) -> Option<Arc<Table>> {
    let split = name.match_indices('.').map(|(dot, _)| (&name[..dot], &name[dot + 1..]));
    let mut readings = [(DEFAULT_DATABASE, name)].into_iter().chain(split);
    readings.find_map(|(database, name)| catalog.table(database, name)).cloned()
}

fn number<N: FromStr + PartialOrd + std::fmt::Display>(
    parameters: &Parameters,
    name: &str,
    range: std::ops::RangeInclusive<N>,
) -> Result<Option<N>, ApiError> {
    let Some(text) = parameters.get(name) else { return Ok(None) };
    let read = text.parse().ok().filter(|number| range.contains(number));
    read.map(Some).ok_or_else(|| {
        let (least, most) = range.into_inner();
        ApiError::bad_request(format!("{name} must be {least} to {most}, not \"{text}\""))
    })
}

fn one_of<T: Copy + Default>(
    parameters: &Parameters,
    name: &str,
    choices: [(&str, T); 2],
) -> Result<T, ApiError> {
    let Some(text) = parameters.get(name) else { return Ok(T::default()) };
    let choice = choices.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    choice.ok_or_else(|| {
        let [(first, _), (second, _)] = choices;
        ApiError::bad_request(format!("{name} must be {first} or {second}, not \"{text}\""))
    })
}
