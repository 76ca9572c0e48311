//! What the classes of verdicts mean, in words.

/// What a class says of a partition; `None` of one that says nothing.
pub(crate) fn explain(class: &str) -> Option<&'static str> {
    Some(match class {
        "STATIC_RANGE" => "its keys are busy evenly enough to be cut in two",
        "MULTI_TAIL" => "rows are appended behind many leading values, so it can be cut in two",
        "HOT_KEY" => "one key bears most of its load, and no cut divides a key",
        "MOVING_RIGHT" => {
            "rows are appended at the right edge of its keys: whatever the cut, all load goes to its right"
        }
        "MOVING_LEFT" => {
            "rows are added at the left edge of its keys: whatever the cut, all load goes to its left"
        }
        "SWEEP" => "its keys are visited in order: a sorted load or a scan, which passes",
        "SCAN_BOUND" => "scans of most of its keys are its load, and each cut is inside of them",
        "UNSPLITTABLE" => "no cut divides its load well enough",
        _ => return None,
    })
}

/// What helps against a class; `None` of one that says nothing.
pub(crate) fn remedy(class: &str) -> Option<&'static str> {
    Some(match class {
        "STATIC_RANGE" | "MULTI_TAIL" => {
            "it is split by itself if AUTO_PARTITIONING_BY_LOAD is ENABLED, or by hand"
        }
        "HOT_KEY" => {
            "write to that key less often, or add a column to the key that divides its rows"
        }
        "MOVING_RIGHT" | "MOVING_LEFT" => {
            "let the key begin with a column that is not the time or a counter, or place rows by hash"
        }
        "SWEEP" => "shuffle the rows of a load, or cut the table before it",
        "SCAN_BOUND" => "let scans ask for less: filter by the first key columns",
        "UNSPLITTABLE" => "place rows by hash, or let the key begin with a column of more values",
        _ => return None,
    })
}

/// Whether a cut helps.
pub(crate) fn is_splittable(class: &str) -> bool {
    matches!(class, "STATIC_RANGE" | "MULTI_TAIL")
}

/// Whether another placement or key would help.
pub(crate) fn is_curable(class: &str) -> bool {
    matches!(class, "MOVING_RIGHT" | "MOVING_LEFT" | "UNSPLITTABLE" | "HOT_KEY")
}
