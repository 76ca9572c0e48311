//! Explanations and remedies for the classes of verdicts.

use partita_load::Class;

/// Explanation of a class; `None` for a class without a finding.
pub fn explain(class: Class) -> Option<&'static str> {
    Some(match class {
        Class::StaticRange => "load is spread over its keys, so a cut divides it",
        Class::MultiTail => "rows are appended after many leading values, so a cut divides them",
        Class::HotKey => "one key has most of its load, and no cut divides a key",
        Class::MovingRight => {
            "rows are appended at the upper end of its keys: all load stays above any cut"
        }
        Class::MovingLeft => {
            "rows are added at the lower end of its keys: all load stays below any cut"
        }
        Class::MovingWithin => {
            "rows are appended inside its keys: a cut helps until they have passed it"
        }
        Class::Rotating => {
            "a few keys have all load at a time, and change every few seconds: averages hide it"
        }
        Class::Sweep => "a sorted load or a scan visits its keys in order, which will end",
        Class::ScanBound => "most load is scans over most of its keys, which cross any cut",
        Class::Unsplittable => "no cut divides its load evenly enough",
        Class::ReadHot => "reads of few keys have most of its load, and no cut divides them",
        Class::Unknown => return None,
    })
}

/// Remedy for a class; `None` for a class without a finding.
pub fn remedy(class: Class) -> Option<&'static str> {
    Some(match class {
        Class::StaticRange | Class::MultiTail => {
            "it is split automatically if AUTO_PARTITIONING_BY_LOAD is ENABLED; otherwise split it by hand"
        }
        Class::HotKey => {
            "place rows by a hash of that column and the next ones; a single row that is written again and again is to be \
             written less often"
        }
        Class::MovingRight | Class::MovingLeft | Class::MovingWithin => {
            "begin the key with a column that is not a time or a counter, or place rows by hash"
        }
        Class::Rotating => "place rows by a hash of the whole key",
        Class::Sweep => "shuffle the rows before loading them, or split the table first",
        Class::ScanBound => "make scans more selective: filter by the first key columns",
        Class::Unsplittable => "place rows by hash, or begin the key with a column of more values",
        Class::ReadHot => {
            "its followers answer reads too: raise replication_factor for more of them; or cache these rows at the clients, \
             add an index or a materialized copy that the queries can use, or read less often"
        }
        Class::Unknown => return None,
    })
}

/// Returns true if a cut divides the load.
pub fn is_splittable(class: Class) -> bool {
    matches!(class, Class::StaticRange | Class::MultiTail)
}

/// Returns true if another placement or key would divide the load.
pub fn is_curable(class: Class) -> bool {
    class.is_spread_by_hash() || matches!(class, Class::Unsplittable | Class::HotKey)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_with_a_finding_is_explained_and_has_a_remedy() {
        for class in Class::ALL {
            assert_eq!(explain(class).is_some(), class.is_finding(), "{class}");
            assert_eq!(remedy(class).is_some(), class.is_finding(), "{class}");
            assert!(!(is_splittable(class) && is_curable(class)), "{class}");
        }
        // Another placement of rows does not make a read of one row cheaper.
        assert!(!is_curable(Class::ReadHot) && is_curable(Class::Rotating));
    }
}
