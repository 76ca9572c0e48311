//! The names of a connection's prepared statements, or of its portals: bounded by number and by what they keep.

use std::collections::HashMap;

use parking_lot::Mutex;
use pgwire::error::PgWireResult;

use crate::error::protocol;

/// Names, and the bytes that what they name keeps.
#[derive(Debug)]
pub(crate) struct Names {
    what: &'static str,
    count_max: usize,
    bytes_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    bytes_by_name: HashMap<String, usize>,
    bytes: usize,
}

impl Names {
    /// Room for `count_max` of them that keep `bytes_max` bytes; `what` they are, as errors call them.
    pub(crate) fn new(what: &'static str, count_max: usize, bytes_max: usize) -> Self {
        Self { what, count_max, bytes_max, kept: Mutex::default() }
    }

    /// Whether there is one of this name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.kept.lock().bytes_by_name.contains_key(name)
    }

    /// Counts one in, in the place of one of the same name.
    ///
    /// # Errors
    /// 54000 when there are too many, 53200 when they keep too much.
    pub(crate) fn add(&self, name: &str, bytes: usize) -> PgWireResult<()> {
        let mut kept = self.kept.lock();
        let before = kept.bytes_by_name.get(name).copied();
        if before.is_none() && kept.bytes_by_name.len() >= self.count_max {
            let (max, what) = (self.count_max, self.what);
            return Err(protocol("54000", format!("a connection may have {max} {what}")));
        }
        let all = (kept.bytes - before.unwrap_or(0)).saturating_add(bytes);
        if all > self.bytes_max {
            let (max, what) = (self.bytes_max, self.what);
            return Err(protocol(
                "53200",
                format!("the {what} of a connection may take {max} bytes of memory"),
            ));
        }
        kept.bytes = all;
        kept.bytes_by_name.insert(name.to_owned(), bytes);
        Ok(())
    }

    /// Forgets one; none is no error.
    pub(crate) fn remove(&self, name: &str) {
        let mut kept = self.kept.lock();
        if let Some(bytes) = kept.bytes_by_name.remove(name) {
            kept.bytes -= bytes;
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        *self.kept.lock() = Kept::default();
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
