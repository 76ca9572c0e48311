//! Statements and clients that make a partition hot, in words.
//!
//! Invariant: what a viewer may not know is not in the report that is shown to it; nothing is left out here.

use partita_proto::load::{HotCause, LoadReport, PartitionLoad};

/// Maximum causes that are named.
const CAUSES_MAX: usize = 3;
/// Maximum characters of a statement.
const STATEMENT_CHARS_MAX: usize = 80;

/// The greatest causes of a partition's load: `62 % by INSERT INTO t .. of user app, application "loader", from
/// 10.0.0.7`; those of its hot key if it has one, of reads if these keep it busy. `None` if none is known.
pub(crate) fn cause_text(report: &LoadReport, load: &PartitionLoad) -> Option<String> {
    let is_of_reads = load.reads_busy > load.busy.s10;
    let of_load: Vec<&HotCause> = report
        .hot_causes
        .iter()
        .filter(|cause| cause.partition == load.partition && cause.read == is_of_reads)
        .collect();
    let hot_key = load.verdict.as_ref().and_then(|verdict| verdict.hot_key.as_ref());
    let is_of_key = |cause: &&&HotCause| hot_key.is_some() && cause.key.as_ref() == hot_key;
    let mut causes: Vec<&HotCause> = of_load.iter().filter(is_of_key).copied().collect();
    if causes.is_empty() {
        causes = of_load.into_iter().filter(|cause| cause.key.is_none()).collect();
    }
    causes.sort_by(|a, b| b.share.total_cmp(&a.share));
    let texts: Vec<String> = causes.into_iter().take(CAUSES_MAX).map(text).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

fn text(hot_cause: &HotCause) -> String {
    let cause = &hot_cause.cause;
    let subject = if cause.statement.is_empty() { &cause.kind } else { &cause.statement };
    let mut text = format!("{:.0} % by ", hot_cause.share * 100.0);
    text.extend(subject.chars().take(STATEMENT_CHARS_MAX));
    if subject.chars().count() > STATEMENT_CHARS_MAX {
        text.push_str(" ..");
    }
    if !cause.user.is_empty() {
        text.push_str(" of user ");
        text.push_str(&cause.user);
    }
    if !cause.application.is_empty() {
        text.push_str(", application \"");
        text.push_str(&cause.application);
        text.push('"');
    }
    if !cause.client.is_empty() {
        text.push_str(", from ");
        text.push_str(&cause.client);
    }
    text
}

#[cfg(test)]
mod tests {
    use partita_load::Cause;
    use partita_proto::id::{PartitionId, TableId};
    use partita_proto::load::{Busy, Verdict};
    use partita_proto::range::Bound;
    use partita_proto::value::Value;

    use super::*;

    fn cause(share: f64, statement: &str, read: bool, key: Option<Bound>) -> HotCause {
        let cause = Cause {
            statement: statement.to_owned(),
            kind: "LINE PROTOCOL".to_owned(),
            user: "app".to_owned(),
            application: "loader".to_owned(),
            client: "10.0.0.7".to_owned(),
        };
        let (table, partition) = (TableId(1), PartitionId(2));
        HotCause { table, partition, read, key, cause, share, samples: 100 }
    }

    #[test]
    fn a_cause_is_said_with_its_statement_and_client() {
        let key = Bound { placement: None, key: vec![Value::Int(7)] };
        let mut report = LoadReport {
            hot_causes: vec![
                cause(0.3, "", false, None),
                cause(0.621, "INSERT INTO t VALUES (?)", false, None),
                cause(0.9, "SELECT v FROM t", true, None),
                cause(0.8, "UPDATE t SET v = ?", false, Some(key.clone())),
            ],
            ..LoadReport::default()
        };
        let mut load = PartitionLoad {
            partition: PartitionId(2),
            busy: Busy { s10: 0.9, ..Busy::default() },
            ..PartitionLoad::default()
        };
        let client = "of user app, application \"loader\", from 10.0.0.7";
        assert_eq!(
            cause_text(&report, &load),
            Some(format!(
                "62 % by INSERT INTO t VALUES (?) {client}; 30 % by LINE PROTOCOL {client}"
            ))
        );
        // A hot key has causes of its own.
        load.verdict = Some(Verdict { hot_key: Some(key), ..Verdict::default() });
        assert!(cause_text(&report, &load).unwrap().starts_with("80 % by UPDATE t"));
        load.reads_busy = 1.5;
        assert!(cause_text(&report, &load).unwrap().starts_with("90 % by SELECT"));
        // A long statement is cut, and other partitions have other causes.
        report.hot_causes[2].cause.statement = "S".repeat(200);
        let long = cause_text(&report, &load).unwrap();
        assert!(
            long.contains(&format!("{} ..", "S".repeat(80))) && !long.contains(&"S".repeat(81))
        );
        load.partition = PartitionId(3);
        assert_eq!(cause_text(&report, &load), None);
    }
}
