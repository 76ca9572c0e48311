//! Files with the columns of a measurement: CSV, JSON or NDJSON.
//!
//! The data type is named `dataType`, as InfluxDB's tool writes it, or `data_type`, as its book does.

use std::path::Path;

use anyhow::{Context, bail};
use serde_json::{Map, Value};

/// Types of columns, and of the values of fields, that the server takes.
const TYPES: [&str; 3] = ["timestamp", "tag", "field"];
const DATA_TYPES: [&str; 5] = ["string", "float", "integer", "unsigned", "boolean"];

/// Format of a file with columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// A header, and a line for each column.
    Csv,
    /// An array of objects.
    Json,
    /// An object on each line.
    Ndjson,
}

impl Format {
    /// The format that the ending of a file's name tells.
    ///
    /// # Errors
    /// If the ending is another one.
    pub(super) fn of(file: &Path) -> anyhow::Result<Self> {
        let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        Ok(match ending.to_ascii_lowercase().as_str() {
            "csv" => Self::Csv,
            "json" => Self::Json,
            "ndjson" | "jsonl" => Self::Ndjson,
            _ => bail!("the format of {} is unknown; use --columns-format", file.display()),
        })
    }
}

/// The columns of a file, as the server takes them.
///
/// # Errors
/// If the text has another form.
pub(super) fn columns(text: &str, format: Format) -> anyhow::Result<Vec<Value>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match format {
        Format::Csv => of_csv(text),
        Format::Json => {
            let objects: Vec<Value> =
                serde_json::from_str(text).context("expected a JSON array of objects")?;
            objects.into_iter().map(column).collect()
        }
        Format::Ndjson => {
            let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
            lines
                .map(|(index, line)| {
                    let object = serde_json::from_str(line);
                    column(object.with_context(|| format!("line {}", index + 1))?)
                })
                .collect()
        }
    }
}

fn of_csv(text: &str) -> anyhow::Result<Vec<Value>> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (_, header) = lines.next().context("the file is empty")?;
    let names: Vec<&str> = cells(header).collect();
    for name in &names {
        if !["name", "type", "data_type", "dataType"].contains(name) {
            bail!("unknown header \"{name}\"; expected name, type and data_type");
        }
    }
    lines
        .map(|(index, line)| {
            let mut object = Map::new();
            for (position, cell) in cells(line).enumerate() {
                let name = names.get(position);
                let name = name.with_context(|| format!("line {} is too long", index + 1))?;
                if !cell.is_empty() {
                    object.insert((*name).to_owned(), Value::from(cell));
                }
            }
            column(Value::Object(object)).with_context(|| format!("line {}", index + 1))
        })
        .collect()
}

/// The values of a line. Names of columns have neither quotes nor commas.
fn cells(line: &str) -> impl Iterator<Item = &str> {
    line.split(',').map(|cell| {
        let cell = cell.trim();
        cell.strip_prefix('"').and_then(|cell| cell.strip_suffix('"')).unwrap_or(cell)
    })
}

/// A column with the server's name of its data type.
fn column(value: Value) -> anyhow::Result<Value> {
    let Value::Object(mut object) = value else { bail!("a column must be an object") };
    if let Some(data_type) = object.remove("data_type")
        && !object.contains_key("dataType")
    {
        object.insert("dataType".to_owned(), data_type);
    }
    for field in ["name", "type"] {
        if !object.get(field).is_some_and(Value::is_string) {
            bail!("a column must have a {field}");
        }
    }
    check(&object, "type", &TYPES)?;
    check(&object, "dataType", &DATA_TYPES)?;
    Ok(Value::Object(object))
}

/// Checks that the value of a field, if it has any, is one of these: the server does not know the file.
///
/// # Errors
/// If it is another one.
fn check(object: &Map<String, Value>, field: &str, allowed: &[&str]) -> anyhow::Result<()> {
    match object.get(field) {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(text)) if allowed.contains(&text.as_str()) => Ok(()),
        Some(value) => bail!("unknown {field} {value}; expected {}", allowed.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn expected() -> Vec<Value> {
        vec![
            json!({"name": "time", "type": "timestamp"}),
            json!({"name": "sensor_id", "type": "tag"}),
            json!({"name": "co", "type": "field", "dataType": "float"}),
        ]
    }

    #[test]
    fn all_formats_and_both_spellings_are_read() {
        for header in ["data_type", "dataType"] {
            let csv =
                format!("name,type,{header}\r\ntime,timestamp,\nsensor_id,tag,\nco,field,float\n");
            assert_eq!(columns(&csv, Format::Csv).unwrap(), expected());
            let objects = [
                "{\"name\":\"time\",\"type\":\"timestamp\"}".to_owned(),
                "{\"name\":\"sensor_id\",\"type\":\"tag\"}".to_owned(),
                format!("{{\"name\":\"co\",\"type\":\"field\",\"{header}\":\"float\"}}"),
            ];
            let json = format!("[{}]", objects.join(","));
            assert_eq!(columns(&json, Format::Json).unwrap(), expected());
            assert_eq!(columns(&objects.join("\n"), Format::Ndjson).unwrap(), expected());
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for (text, format) in [
            ("", Format::Csv),
            ("name,kind\ntime,timestamp", Format::Csv),
            ("name,type\ntime,timestamp,x,y", Format::Csv),
            ("name,type\ntime", Format::Csv),
            ("{}", Format::Json),
            ("[1]", Format::Json),
            ("{\"name\":\"a\"}", Format::Ndjson),
            ("{", Format::Ndjson),
            ("{\"name\":\"a\",\"type\":\"key\"}", Format::Ndjson),
            ("[{\"name\":\"a\",\"type\":\"field\",\"dataType\":1}]", Format::Json),
        ] {
            assert!(columns(text, format).is_err(), "{text}");
        }
        let csv = "name,type,data_type\ntime,timestamp,\nco,field,decimal\n";
        let text = format!("{:#}", columns(csv, Format::Csv).unwrap_err());
        assert!(text.starts_with("line 3: unknown dataType \"decimal\""), "{text}");
    }

    #[test]
    fn the_ending_tells_the_format() {
        assert_eq!(Format::of(Path::new("a/air_schema.csv")).unwrap(), Format::Csv);
        assert_eq!(Format::of(Path::new("x.NDJSON")).unwrap(), Format::Ndjson);
        assert!(Format::of(Path::new("x")).is_err());
    }
}
