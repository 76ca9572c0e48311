//! `sys.advice_thresholds`: the thresholds of the advisor, and those that tables have of their own by their option
//! `advice_thresholds`. The rules that tables switch off are checked here too.

use std::collections::BTreeMap;

use arrow::record_batch::RecordBatch;
use partita_advice::{Rule, Threshold, Thresholds, facts_of_table};
use partita_proto::schema::TableOptions;

use crate::access::viewer::Viewer;
use crate::error::SqlError;
use crate::virtual_table::{Cell, Kind, batch, schema};

/// Columns of `sys.advice_thresholds`.
pub(crate) const ADVICE_THRESHOLDS: &[(&str, Kind)] = &[
    ("database", Kind::Text),
    ("table", Kind::Text),
    ("name", Kind::Text),
    ("value", Kind::Float),
    ("default_value", Kind::Float),
    ("min_value", Kind::Float),
    ("max_value", Kind::Float),
    ("rules", Kind::Text),
    ("meaning", Kind::Text),
];

/// The error of a threshold that does not exist or has a wrong value.
pub(crate) fn refused(message: String) -> SqlError {
    let names: Vec<&str> = Thresholds::all().iter().map(|threshold| threshold.name).collect();
    SqlError::new("22023", message).with_hint(format!("thresholds: {}", names.join(", ")))
}

/// Checks the thresholds among the options of a table.
///
/// # Errors
/// 22023 if one does not exist or its value is outside the range.
pub(crate) fn check(options: &TableOptions) -> Result<(), SqlError> {
    Thresholds::check(&options.advice_thresholds).map_err(refused)
}

/// Checks the rules that the options of a table switch off.
///
/// # Errors
/// 22023 if one does not exist.
pub(crate) fn check_rules(options: &TableOptions) -> Result<(), SqlError> {
    let Some(unknown) = options.advice_off.iter().find(|id| Rule::of_id(id).is_none()) else {
        return Ok(());
    };
    let (first, last) = (Rule::ALL[0], Rule::ALL[Rule::ALL.len() - 1]);
    Err(SqlError::new("22023", format!("rule \"{unknown}\" does not exist")).with_hint(format!(
        "Rules of the advisor are {} to {}.",
        first.id(),
        last.id()
    )))
}

/// Rows of `sys.advice_thresholds`: the defaults, then the thresholds of the tables that the viewer sees.
pub(crate) fn rows(viewer: &Viewer) -> Result<RecordBatch, SqlError> {
    let row = |place: Option<(&str, &str)>, threshold: &Threshold, value: f64| -> Vec<Cell> {
        let Threshold { name, default, min, max, .. } = *threshold;
        vec![
            place.map(|(database, _)| database.to_owned()).into(),
            place.map(|(_, table)| table.to_owned()).into(),
            name.into(),
            value.into(),
            default.into(),
            min.into(),
            max.into(),
            threshold.rules().into(),
            threshold.meaning().into(),
        ]
    };
    let thresholds = Thresholds::all();
    let mut rows: Vec<Vec<Cell>> =
        thresholds.iter().map(|threshold| row(None, threshold, threshold.default)).collect();
    let catalog = viewer.catalog();
    for table in catalog.tables.values().flat_map(BTreeMap::values) {
        if table.schema.options.advice_thresholds.is_empty() {
            continue;
        }
        for (name, value) in facts_of_table(table).thresholds {
            let Some(threshold) = thresholds.iter().find(|threshold| threshold.name == name) else {
                continue;
            };
            let place = (table.database.as_str(), table.name.as_str());
            rows.push(row(Some(place), threshold, value));
        }
    }
    batch(&schema(ADVICE_THRESHOLDS), rows)
}
