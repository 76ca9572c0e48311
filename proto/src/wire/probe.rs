//! Probes: tests of rows for indexes.
//!
//! Bounded in depth and number, because they are walked by recursion. A sender leaves out a probe beyond the bounds:
//! the scan then reads more, and is still right.

use super::{Wire, missing, pb};
use crate::domain::Domain;
use crate::error::Error;
use crate::probe::{ColumnTest, PROBE_DEPTH_MAX, PROBE_NODES_MAX, Probe};

impl Wire for Probe {
    type Message = pb::Probe;

    fn to_wire(&self) -> pb::Probe {
        use pb::probe::Kind;
        let parts =
            |probes: &[Self]| pb::Probes { parts: probes.iter().map(Wire::to_wire).collect() };
        let kind = match self {
            Self::All(probes) => Kind::All(parts(probes)),
            Self::Any(probes) => Kind::Any(parts(probes)),
            Self::Column { column, test } => Kind::Column(test_to_wire(column, test)),
        };
        pb::Probe { kind: Some(kind) }
    }

    fn from_wire(message: pb::Probe) -> Result<Self, Error> {
        let mut remaining = PROBE_NODES_MAX;
        probe_from_wire(message, 1, &mut remaining)
    }
}

/// The messages of a conjunction of probes, without those that would exceed the bounds.
pub(super) fn probes_to_wire(probes: &[Probe]) -> Vec<pb::Probe> {
    let mut remaining = PROBE_NODES_MAX;
    let mut messages = Vec::new();
    for probe in probes {
        let (nodes, depth) = probe.size();
        if depth <= PROBE_DEPTH_MAX && nodes <= remaining {
            remaining -= nodes;
            messages.push(probe.to_wire());
        }
    }
    messages
}

/// The probes of a conjunction.
///
/// # Errors
/// [`Error::Corrupted`] when a field is missing or a bound is exceeded.
pub(super) fn probes_from_wire(messages: Vec<pb::Probe>) -> Result<Vec<Probe>, Error> {
    let mut remaining = PROBE_NODES_MAX;
    messages.into_iter().map(|message| probe_from_wire(message, 1, &mut remaining)).collect()
}

/// The probe of a message at a depth; `remaining` is how many more nodes are accepted.
fn probe_from_wire(
    message: pb::Probe,
    depth: usize,
    remaining: &mut usize,
) -> Result<Probe, Error> {
    use pb::probe::Kind;
    if depth > PROBE_DEPTH_MAX {
        return Err(Error::Corrupted(format!("a probe is deeper than {PROBE_DEPTH_MAX}")));
    }
    *remaining = remaining.checked_sub(1).ok_or_else(|| {
        Error::Corrupted(format!("a request has more than {PROBE_NODES_MAX} probes"))
    })?;
    let mut parts = |probes: pb::Probes| -> Result<Vec<Probe>, Error> {
        let messages = probes.parts.into_iter();
        messages.map(|message| probe_from_wire(message, depth + 1, remaining)).collect()
    };
    Ok(match message.kind.ok_or_else(|| missing("probe"))? {
        Kind::All(probes) => Probe::All(parts(probes)?),
        Kind::Any(probes) => Probe::Any(parts(probes)?),
        Kind::Column(probe) => Probe::Column {
            test: test_from_wire(probe.test, probe.case_insensitive)?,
            column: probe.column,
        },
    })
}

fn test_to_wire(column: &str, test: &ColumnTest) -> pb::ColumnProbe {
    use pb::column_probe::Test;
    let mut case_insensitive = false;
    let test = match test {
        ColumnTest::Within(domain) => Test::Within(domain.to_wire()),
        ColumnTest::Like(pattern) => Test::Like(pattern.clone()),
        ColumnTest::Regex { pattern, case_insensitive: ignores_case } => {
            case_insensitive = *ignores_case;
            Test::Regex(pattern.clone())
        }
        ColumnTest::Terms { terms, folded } => {
            Test::Terms(pb::Terms { terms: terms.clone(), folded: *folded })
        }
    };
    pb::ColumnProbe { column: column.to_owned(), test: Some(test), case_insensitive }
}

fn test_from_wire(
    test: Option<pb::column_probe::Test>,
    case_insensitive: bool,
) -> Result<ColumnTest, Error> {
    use pb::column_probe::Test;
    Ok(match test.ok_or_else(|| missing("test of a column"))? {
        Test::Within(domain) => ColumnTest::Within(Domain::from_wire(domain)?),
        Test::Like(pattern) => ColumnTest::Like(pattern),
        Test::Regex(pattern) => ColumnTest::Regex { pattern, case_insensitive },
        Test::Terms(terms) => ColumnTest::Terms { terms: terms.terms, folded: terms.folded },
    })
}
