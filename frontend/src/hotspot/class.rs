//! Explanations and remedies for the classes of verdicts.

use partita_load::Class;

/// Explanation of a class; `None` for a class without a finding.
pub(crate) fn explain(class: Class) -> Option<&'static str> {
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
        Class::Sweep => "a sorted load or a scan visits its keys in order, which will end",
        Class::ScanBound => "most load is scans over most of its keys, which cross any cut",
        Class::Unsplittable => "no cut divides its load evenly enough",
        Class::Unknown => return None,
    })
}

/// Remedy for a class; `None` for a class without a finding.
pub(crate) fn remedy(class: Class) -> Option<&'static str> {
    Some(match class {
        Class::StaticRange | Class::MultiTail => {
            "it is split automatically if AUTO_PARTITIONING_BY_LOAD is ENABLED; otherwise split it by hand"
        }
        Class::HotKey => {
            "write to that key less often, or add a column to the key that divides its rows"
        }
        Class::MovingRight | Class::MovingLeft => {
            "begin the key with a column that is not a time or a counter, or place rows by hash"
        }
        Class::Sweep => "shuffle the rows before loading them, or split the table first",
        Class::ScanBound => "make scans more selective: filter by the first key columns",
        Class::Unsplittable => "place rows by hash, or begin the key with a column of more values",
        Class::Unknown => return None,
    })
}

/// Returns true if a cut divides the load.
pub(crate) fn is_splittable(class: Class) -> bool {
    matches!(class, Class::StaticRange | Class::MultiTail)
}

/// Returns true if another placement or key would divide the load.
pub(crate) fn is_curable(class: Class) -> bool {
    class.is_moving() || matches!(class, Class::Unsplittable | Class::HotKey)
}
