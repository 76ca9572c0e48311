//! Labels of nodes: the owner's description of their location, as text `rack=r1,zone=a`.
//!
//! Invariants: names are unique; names and values are not empty, short, and consist of letters, digits and `-_./`, so
//! that the text can be parsed again and shown anywhere. Labels from text or a message are always checked.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// Label of the failure domain: replicas of a partition are spread over its values.
pub const ZONE: &str = "zone";

/// Maximum labels of a node. Every list of nodes contains the labels of all, so they should be few.
const LABELS_MAX: usize = 16;
/// Maximum bytes of a name, and of a value.
const LENGTH_MAX: usize = 63;

/// The labels of a node, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(BTreeMap<String, String>);

impl Labels {
    /// Labels with these names and values.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when a name occurs twice, a text is too long or has other characters, or there are too
    /// many.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, Error> {
        let mut labels = BTreeMap::new();
        for (name, value) in pairs {
            check("name", &name)?;
            check("value", &value)?;
            if let Some(previous) = labels.insert(name.clone(), value) {
                return Err(Error::InvalidInput(format!(
                    "label \"{name}\" is given twice, once as \"{previous}\""
                )));
            }
        }
        if labels.len() > LABELS_MAX {
            return Err(Error::InvalidInput(format!(
                "{} labels exceed the limit of {LABELS_MAX} per node",
                labels.len()
            )));
        }
        Ok(Self(labels))
    }

    /// The value of a label.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// True if there are no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn check(part: &str, text: &str) -> Result<(), Error> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if (1..=LENGTH_MAX).contains(&text.len()) && text.chars().all(plain) {
        return Ok(());
    }
    Err(Error::InvalidInput(format!(
        "invalid label {part} \"{text}\": it must have 1 to {LENGTH_MAX} letters, digits and -_./"
    )))
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{name}={value}")?;
        }
        Ok(())
    }
}

impl FromStr for Labels {
    type Err = Error;

    /// Parses the format that [`Labels`] displays; an empty text gives no labels.
    fn from_str(text: &str) -> Result<Self, Error> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let pair = |item: &str| {
            let (name, value) = item.split_once('=').ok_or_else(|| {
                Error::InvalidInput(format!("\"{item}\" is not a label of the form NAME=VALUE"))
            })?;
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        };
        Self::new(text.split(',').map(pair).collect::<Result<Vec<_>, Error>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        match text.parse::<Labels>() {
            Err(Error::InvalidInput(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn labels_are_the_text_that_they_are_made_of_in_the_order_of_their_names() {
        let labels: Labels = "zone=a, rack=r-1.x/2".parse().unwrap();
        assert_eq!(labels.to_string(), "rack=r-1.x/2,zone=a");
        assert_eq!(labels.to_string().parse::<Labels>(), Ok(labels.clone()));
        assert_eq!((labels.get(ZONE), labels.get("row")), (Some("a"), None));
        let none: Labels = " ".parse().unwrap();
        assert!(none.is_empty() && none.to_string().is_empty());
    }

    #[test]
    fn what_could_not_be_taken_apart_again_is_refused() {
        assert!(refused("zone").contains("NAME=VALUE"));
        assert!(refused("zone=a,zone=b").contains("given twice"));
        for text in ["zone=", "=a", "zone=a b", "zone=a=b", "zone=ä", "zone=a,,rack=b"] {
            refused(text);
        }
        assert!(refused(&format!("zone={}", "x".repeat(64))).contains("63"));
        let many = |count: usize| {
            let labels: Vec<_> = (0..count).map(|at| format!("l{at}=x")).collect();
            labels.join(",")
        };
        assert!(many(16).parse::<Labels>().is_ok());
        assert!(refused(&many(17)).contains("17 labels"));
    }
}
