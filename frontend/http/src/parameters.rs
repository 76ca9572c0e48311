//! Parameters of a request: query string, form, headers.

use std::collections::BTreeMap;

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Uri};

/// Named texts of a request. The first value of a repeated name counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters(BTreeMap<String, String>);

impl Parameters {
    pub(crate) fn of(uri: &Uri) -> Self {
        let mut parameters = Self::default();
        parameters.add(uri.query().unwrap_or_default().as_bytes());
        parameters
    }

    /// Adds the parameters of a form that the query string does not have.
    pub(crate) fn add(&mut self, form: &[u8]) {
        for (name, value) in form_urlencoded::parse(form) {
            self.0.entry(name.into_owned()).or_insert_with(|| value.into_owned());
        }
    }

    /// Adds a parameter unless it exists.
    pub(crate) fn set(&mut self, name: &str, value: String) {
        self.0.entry(name.to_owned()).or_insert(value);
    }

    /// The value of a parameter, unless it is missing or empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// All parameters, by name.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The value of a boolean parameter.
    ///
    /// # Errors
    /// A message when it is neither true nor false.
    pub(crate) fn flag(&self, name: &str, default: bool) -> Result<bool, String> {
        match self.get(name) {
            None => Ok(default),
            Some("true" | "1" | "t") => Ok(true),
            Some("false" | "0" | "f") => Ok(false),
            Some(text) => Err(format!("{name} must be true or false, not \"{text}\"")),
        }
    }
}

/// A header as text.
pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().filter(|value| !value.is_empty())
}

/// The type of a body, without parameters, in lower case.
pub(crate) fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_add_to_the_query_string() {
        let uri: Uri = "/write?db=a%2Fb&x=&precision=ms".parse().unwrap();
        let mut parameters = Parameters::of(&uri);
        parameters.add(b"db=other&sql=SELECT+1");
        assert_eq!(parameters.get("db"), Some("a/b"));
        assert_eq!(parameters.get("x"), None);
        assert_eq!(parameters.get("sql"), Some("SELECT 1"));
        assert_eq!(parameters.flag("pretty", true), Ok(true));
        assert!(parameters.flag("precision", true).is_err());
    }
}
