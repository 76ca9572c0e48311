//! Explanations and remedies for the classes of verdicts.

/// Explanation of a class; `None` for a class without a finding.
pub(crate) fn explain(class: &str) -> Option<&'static str> {
    Some(match class {
        "STATIC_RANGE" => "load is spread over its keys, so a cut divides it",
        "MULTI_TAIL" => "rows are appended after many leading values, so a cut divides them",
        "HOT_KEY" => "one key has most of its load, and no cut divides a key",
        "MOVING_RIGHT" => {
            "rows are appended at the upper end of its keys: all load stays above any cut"
        }
        "MOVING_LEFT" => {
            "rows are added at the lower end of its keys: all load stays below any cut"
        }
        "SWEEP" => "a sorted load or a scan visits its keys in order, which will end",
        "SCAN_BOUND" => "most load is scans over most of its keys, which cross any cut",
        "UNSPLITTABLE" => "no cut divides its load evenly enough",
        _ => return None,
    })
}

/// Remedy for a class; `None` for a class without a finding.
pub(crate) fn remedy(class: &str) -> Option<&'static str> {
    Some(match class {
        "STATIC_RANGE" | "MULTI_TAIL" => {
            "it is split automatically if AUTO_PARTITIONING_BY_LOAD is ENABLED; otherwise split it by hand"
        }
        "HOT_KEY" => {
            "write to that key less often, or add a column to the key that divides its rows"
        }
        "MOVING_RIGHT" | "MOVING_LEFT" => {
            "begin the key with a column that is not a time or a counter, or place rows by hash"
        }
        "SWEEP" => "shuffle the rows before loading them, or split the table first",
        "SCAN_BOUND" => "make scans more selective: filter by the first key columns",
        "UNSPLITTABLE" => "place rows by hash, or begin the key with a column of more values",
        _ => return None,
    })
}

/// Returns true if a cut divides the load.
pub(crate) fn is_splittable(class: &str) -> bool {
    matches!(class, "STATIC_RANGE" | "MULTI_TAIL")
}

/// Returns true if another placement or key would divide the load.
pub(crate) fn is_curable(class: &str) -> bool {
    matches!(class, "MOVING_RIGHT" | "MOVING_LEFT" | "UNSPLITTABLE" | "HOT_KEY")
}
