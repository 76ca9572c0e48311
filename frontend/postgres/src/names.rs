//! The names of a connection's prepared statements, or of its portals: bounded by their number and memory.

use std::collections::HashMap;

use parking_lot::Mutex;
use pgwire::error::PgWireResult;

use crate::error::protocol;

/// Names, and the bytes that their objects occupy.
#[derive(Debug)]
pub(crate) struct Names {
    kind: &'static str,
    count_max: usize,
    bytes_max: usize,
    usage: Mutex<Usage>,
}

#[derive(Debug, Default)]
struct Usage {
    bytes_by_name: HashMap<String, usize>,
    bytes: usize,
}

impl Names {
    /// Room for `count_max` objects that occupy `bytes_max` bytes; `kind` is their plural in errors.
    pub(crate) fn new(kind: &'static str, count_max: usize, bytes_max: usize) -> Self {
        Self { kind, count_max, bytes_max, usage: Mutex::default() }
    }

    /// Returns true if an object has this name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.usage.lock().bytes_by_name.contains_key(name)
    }

    /// Adds an object, in place of one of the same name.
    ///
    /// # Errors
    /// 54000 when there are too many, 53200 when they occupy too much memory.
    pub(crate) fn add(&self, name: &str, bytes: usize) -> PgWireResult<()> {
        let mut usage = self.usage.lock();
        let previous = usage.bytes_by_name.get(name).copied();
        if previous.is_none() && usage.bytes_by_name.len() >= self.count_max {
            let (max, kind) = (self.count_max, self.kind);
            return Err(protocol("54000", format!("a connection may have at most {max} {kind}")));
        }
        let total = (usage.bytes - previous.unwrap_or(0)).saturating_add(bytes);
        if total > self.bytes_max {
            let (max, kind) = (self.bytes_max, self.kind);
            return Err(protocol(
                "53200",
                format!("the {kind} of a connection may occupy at most {max} bytes of memory"),
            ));
        }
        usage.bytes = total;
        usage.bytes_by_name.insert(name.to_owned(), bytes);
        Ok(())
    }

    /// Removes an object; an unknown name is no error.
    pub(crate) fn remove(&self, name: &str) {
        let mut usage = self.usage.lock();
        if let Some(bytes) = usage.bytes_by_name.remove(name) {
            usage.bytes -= bytes;
        }
    }

    /// Removes the objects for whose names `is_taken` is true, and returns the names.
    pub(crate) fn take_all(&self, is_taken: impl Fn(&str) -> bool) -> Vec<String> {
        let mut usage = self.usage.lock();
        let names = usage.bytes_by_name.keys().filter(|name| is_taken(name));
        let names: Vec<String> = names.cloned().collect();
        for name in &names {
            if let Some(bytes) = usage.bytes_by_name.remove(name) {
                usage.bytes -= bytes;
            }
        }
        names
    }

    /// Removes all objects.
    pub(crate) fn clear(&self) {
        *self.usage.lock() = Usage::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_by_number_and_by_what_they_keep() {
        let names = Names::new("portals", 3, 100);
        for name in ["a", "b", "c"] {
            names.add(name, 20).unwrap();
        }
        assert!(names.add("d", 1).unwrap_err().to_string().contains("54000"));
        assert!(names.add("c", 61).unwrap_err().to_string().contains("53200"));
        names.add("c", 60).unwrap();
        names.remove("a");
        names.add("d", 20).unwrap();
        assert!(names.contains("d") && !names.contains("a"));
        names.clear();
        names.add("e", 100).unwrap();
    }
}
