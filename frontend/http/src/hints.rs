//! Hints in the headers of line protocol requests, for tables that the request creates.
//!
//! `x-partita-hint-<key>: value`, or several in `x-partita-hints: key=value, key=value`; GreptimeDB's clients send
//! `x-greptime-hint-<key>` and `x-greptime-hints`. Keys: `append_mode`, `merge_mode`, `time_column`, and
//! `auto_create_table`, which must be true. Hints do not change existing tables.

use axum::http::HeaderMap;
use partita_proto::schema::{MergeMode, validate_name};

/// Options of tables that a write creates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hints {
    pub(crate) append_mode: bool,
    pub(crate) merge_mode: MergeMode,
    /// The name of the time index.
    pub(crate) time_column: String,
}

impl Hints {
    /// The hints of a request.
    ///
    /// # Errors
    /// A message that names the hint, if it is unknown or has an invalid value.
    pub(crate) fn of(headers: &HeaderMap, time_column: &str) -> Result<Self, String> {
        let mut hints = Self {
            append_mode: false,
            merge_mode: MergeMode::LastNonNull,
            time_column: time_column.to_owned(),
        };
        let mut merge_mode = None;
        for (name, value) in headers {
            let Some(hint) = name
                .as_str()
                .strip_prefix("x-partita-hint")
                .or_else(|| name.as_str().strip_prefix("x-greptime-hint"))
            else {
                continue;
            };
            let value = value
                .to_str()
                .map_err(|_| format!("header {name} holds bytes that are not ASCII"))?;
            match hint.strip_prefix('-') {
                Some(key) => hints.set(key, value.trim(), &mut merge_mode)?,
                None => {
                    for pair in value.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
                        let (key, value) = pair
                            .split_once('=')
                            .ok_or_else(|| format!("hint \"{pair}\" is not key=value"))?;
                        hints.set(key.trim(), value.trim(), &mut merge_mode)?;
                    }
                }
            }
        }
        match merge_mode {
            Some(merge_mode) => hints.merge_mode = merge_mode,
            // Rows that are all kept are never merged.
            None if hints.append_mode => hints.merge_mode = MergeMode::LastRow,
            None => {}
        }
        Ok(hints)
    }

    fn set(
        &mut self,
        key: &str,
        value: &str,
        merge_mode: &mut Option<MergeMode>,
    ) -> Result<(), String> {
        let flag = |value: &str| match value {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(format!("hint {key} must be true or false, not \"{value}\"")),
        };
        // Each hint is one option of new tables.
        match key {
            "append_mode" => self.append_mode = flag(value)?,
            "merge_mode" => {
                *merge_mode = Some(match value {
                    "last_row" => MergeMode::LastRow,
                    "last_non_null" => MergeMode::LastNonNull,
                    _ => {
                        return Err(format!(
                            "hint merge_mode must be last_row or last_non_null, not \"{value}\""
                        ));
                    }
                });
            }
            "time_column" => {
                validate_name("column", value).map_err(|error| error.to_string())?;
                value.clone_into(&mut self.time_column);
            }
            "auto_create_table" if flag(value)? => {}
            "auto_create_table" => {
                return Err("hint auto_create_table=false is not supported".to_owned());
            }
            _ => {
                return Err(format!(
                    "hint \"{key}\" is not supported; use append_mode, merge_mode or time_column"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn hints(headers: &[(&'static str, &'static str)]) -> Result<Hints, String> {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        Hints::of(&headers, "time")
    }

    #[test]
    fn hints_come_one_by_one_or_together() {
        assert_eq!(hints(&[]).unwrap().merge_mode, MergeMode::LastNonNull);
        let append = hints(&[("x-greptime-hint-append_mode", "true")]).unwrap();
        assert!(append.append_mode);
        assert_eq!(append.merge_mode, MergeMode::LastRow);
        let both = hints(&[("x-partita-hints", "time_column=ts, merge_mode=last_row")]).unwrap();
        assert_eq!((both.time_column.as_str(), both.merge_mode), ("ts", MergeMode::LastRow));
    }

    #[test]
    fn unknown_hints_are_named() {
        assert!(hints(&[("x-greptime-hints", "ttl=7d")]).unwrap_err().contains("\"ttl\""));
        assert!(hints(&[("x-greptime-hint-append_mode", "maybe")]).is_err());
    }
}
