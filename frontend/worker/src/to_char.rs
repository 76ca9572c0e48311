//! `to_char` with PostgreSQL's patterns.
//!
//! DataFusion's function takes the formats of chrono (`%Y-%m-%d`) and gives back `YYYY-MM-DD` as it is: a text that looks
//! like an answer. Here a format without `%` is read as PostgreSQL reads it, and a pattern that is not known is an error.
//!
//! Invariant: formats with `%`, and what they make of times, are DataFusion's.

use std::borrow::Cow;
use std::hash::Hash;
use std::sync::Arc;

use arrow::array::{Array, StringArray};
use arrow::datatypes::DataType;
use datafusion::common::{ScalarValue, cast::as_string_array, exec_err};
use datafusion::error::Result;
use datafusion::functions::datetime::to_char;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

/// PostgreSQL's patterns as chrono has them, the longest first where one begins another. Upper and lower case are alike
/// but for names.
const PATTERNS: [(&str, &str); 30] = [
    ("YYYY", "%Y"),
    ("IYYY", "%G"),
    ("YY", "%y"),
    ("FMMONTH", ""),
    ("FMMonth", "%B"),
    ("Month", ""),
    ("Mon", "%b"),
    ("FMMM", "%-m"),
    ("MM", "%m"),
    ("MI", "%M"),
    ("MS", "%3f"),
    ("DDD", "%j"),
    ("FMDD", "%-d"),
    ("FMDay", "%A"),
    ("Day", ""),
    ("DD", "%d"),
    ("Dy", "%a"),
    ("HH24", "%H"),
    ("HH12", "%I"),
    ("HH", "%I"),
    ("SS", "%S"),
    ("US", "%6f"),
    ("IW", "%V"),
    ("ID", "%u"),
    ("AM", "%p"),
    ("PM", "%p"),
    ("am", "%P"),
    ("pm", "%P"),
    ("TZ", "%Z"),
    ("Q", "%q"),
];

/// The function, under DataFusion's name.
pub(crate) fn function() -> ScalarUDF {
    ScalarUDF::from(ToChar { inner: to_char() })
}

/// A format of chrono's that says the same.
fn translated(format: &str) -> Result<Cow<'_, str>> {
    if format.contains('%') || !format.contains(|c: char| c.is_ascii_alphabetic()) {
        return Ok(Cow::Borrowed(format));
    }
    let mut made = String::new();
    let mut rest = format;
    while let Some(next) = rest.chars().next() {
        if let Some(quoted) = rest.strip_prefix('"') {
            // What is quoted goes to its end, or to that of the format.
            let (text, behind) = quoted.split_once('"').unwrap_or((quoted, ""));
            made.push_str(text);
            rest = behind;
            continue;
        }
        if !next.is_ascii_alphabetic() {
            made.push(next);
            rest = &rest[next.len_utf8()..];
            continue;
        }
        let begins = |(pattern, _): &&(&str, &str)| {
            let head = rest.get(..pattern.len());
            let names = pattern.contains(|c: char| c.is_ascii_lowercase())
                || matches!(*pattern, "AM" | "PM" | "FMMONTH");
            head.is_some_and(|head| {
                if names { head == *pattern } else { head.eq_ignore_ascii_case(pattern) }
            })
        };
        match PATTERNS.iter().find(begins) {
            Some((pattern, chrono)) if !chrono.is_empty() => {
                made.push_str(chrono);
                rest = &rest[pattern.len()..];
            }
            _ => {
                return exec_err!(
                    "to_char: the pattern at \"{rest}\" is not supported; quote text (\"T\"), write FMMonth and FMDay for names, or use a format like %Y-%m-%d"
                );
            }
        }
    }
    Ok(Cow::Owned(made))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToChar {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for ToChar {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        // A duration's format is a word.
        let of_time =
            !matches!(args.args.first().map(ColumnarValue::data_type), Some(DataType::Duration(_)));
        if of_time && let Some(format) = args.args.get_mut(1) {
            match format {
                ColumnarValue::Scalar(ScalarValue::Utf8(Some(text))) => {
                    *text = translated(text)?.into_owned();
                }
                ColumnarValue::Array(texts) if texts.data_type() == &DataType::Utf8 => {
                    let texts = as_string_array(texts)?;
                    let made = texts.iter().map(|text| text.map(translated).transpose());
                    let made: StringArray = made.collect::<Result<_>>()?;
                    *format = ColumnarValue::Array(Arc::new(made));
                }
                _ => {}
            }
        }
        self.inner.inner().invoke_with_args(args)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::SqlError;

    async fn answer(format: &str) -> std::result::Result<String, String> {
        let context = SessionContext::new();
        context.register_udf(function());
        let at = "TIMESTAMP '2026-03-07 15:04:05.678901'";
        let sql = format!("SELECT to_char({at}, '{format}')");
        let told = |error| SqlError::from(error).message;
        let batches = context.sql(&sql).await.map_err(told)?.collect().await.map_err(told)?;
        Ok(as_string_array(batches[0].column(0)).unwrap().value(0).to_owned())
    }

    #[tokio::test]
    async fn patterns_are_postgresqls_and_formats_chronos() {
        for (format, expected) in [
            ("YYYY-MM-DD", "2026-03-07"),
            ("yyyy-mm-dd hh24:mi:ss", "2026-03-07 15:04:05"),
            ("YYYY-MM-DD\"T\"HH24:MI:SS.MS", "2026-03-07T15:04:05.678"),
            ("HH12:MI:SS.US PM", "03:04:05.678901 PM"),
            ("HH:MI am", "03:04 pm"),
            ("Dy, FMDD Mon YYYY", "Sat, 7 Mar 2026"),
            ("FMDay FMMonth FMMM", "Saturday March 3"),
            ("IYYY-IW-ID, DDD, Q", "2026-10-6, 066, 1"),
            ("%d.%m.%Y", "07.03.2026"),
            ("--", "--"),
        ] {
            assert_eq!(answer(format).await.as_deref(), Ok(expected), "{format}");
        }
    }

    #[tokio::test]
    async fn a_pattern_that_is_not_known_is_an_error_that_shows_it() {
        for format in ["Month", "YYYY-MON", "YYYYth", "DAY", "J", "YYYY foo", "TZH"] {
            let error = answer(format).await.unwrap_err();
            assert!(error.contains("is not supported"), "{format}: {error}");
        }
    }
}
