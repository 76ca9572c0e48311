//! The causes of hot partitions and hot keys: what frontends report of the rows of their statements.
//!
//! Invariant: users, applications and clients appear in reports only; texts that everyone sees who sees the table's
//! load have no more than kinds of statements.

use std::collections::{BTreeMap, BTreeSet};

use partita_load::{BlameBook, Class, Verdict};
use partita_proto::id::{PartitionId, TableId};
use partita_proto::key::KeyCodec;
use partita_proto::load::HotCause;

use super::facts;
use super::rings::Rings;

/// Minimum share of a key, or leading part of one, whose causes are reported.
const KEY_SHARE_MIN: f64 = 0.2;
/// Maximum keys of a partition whose causes are reported.
const KEYS_MAX: usize = 4;
/// Maximum kinds of statements in a text.
const KINDS_MAX: usize = 2;

/// A hot partition, and what is known of its keys.
pub(super) struct Suspect<'k> {
    pub(super) table: TableId,
    pub(super) partition: PartitionId,
    pub(super) verdict: Option<&'k Verdict>,
    pub(super) rings: Option<&'k Rings>,
    pub(super) codec: Option<&'k KeyCodec>,
}

/// Causes of a hot partition's writes and reads, and of those of its hot keys.
pub(super) fn hot_causes(book: &BlameBook, suspect: &Suspect<'_>, now_s: u64) -> Vec<HotCause> {
    let mut hot_causes = Vec::new();
    let partition = facts::partition_id(suspect.partition);
    for read in [false, true] {
        let mut prefixes: Vec<Option<&[u8]>> = vec![None];
        prefixes.extend(hot_keys(suspect, read).into_iter().map(Some));
        for prefix in prefixes {
            let key = prefix.and_then(|prefix| suspect.codec?.decode(prefix).ok());
            if prefix.is_some() && key.is_none() {
                continue;
            }
            let samples = book.samples(partition, read, prefix, now_s) as u64;
            let causes = book.causes(partition, read, prefix, now_s).into_iter();
            hot_causes.extend(causes.map(|(cause, share)| HotCause {
                table: suspect.table,
                partition: suspect.partition,
                read,
                key: key.clone(),
                cause,
                share,
                samples,
            }));
        }
    }
    hot_causes
}

/// Encoded keys, or leading parts of keys, with much of a partition's writes or reads.
fn hot_keys<'k>(suspect: &Suspect<'k>, read: bool) -> BTreeSet<&'k [u8]> {
    let verdict_key = suspect.verdict.filter(|verdict| verdict.evidence.reads == read);
    let verdict_key = verdict_key.and_then(|verdict| verdict.hot_key.as_deref());
    let sketch = suspect.rings.map(|rings| if read { &rings.reads } else { &rings.writes });
    let is_placed = suspect.codec.is_some_and(KeyCodec::placed);
    let heavy = sketch.into_iter().flat_map(|sketch| &sketch.heavy).filter(|(key, share)| {
        // A bare bucket number is not a key of the table.
        *share >= KEY_SHARE_MIN && !(is_placed && key.len() <= 2)
    });
    let heavy = heavy.map(|(key, _)| &**key).filter(|key| verdict_key != Some(*key));
    verdict_key.into_iter().chain(heavy).take(KEYS_MAX).collect()
}

/// Kinds of the statements that cause a partition's writes or reads, the greatest share first: `62 % by INSERT`;
/// `None` while too little is known.
pub(super) fn kinds_text(
    book: &BlameBook,
    partition: PartitionId,
    verdict: &Verdict,
    now_s: u64,
) -> Option<String> {
    let read = verdict.evidence.reads;
    let prefix = match verdict.class {
        Class::HotKey | Class::ReadHot => verdict.hot_key.as_deref(),
        _ => None,
    };
    let mut shares: BTreeMap<String, f64> = BTreeMap::new();
    for (cause, share) in book.causes(facts::partition_id(partition), read, prefix, now_s) {
        if !cause.kind.is_empty() {
            *shares.entry(cause.kind).or_default() += share;
        }
    }
    let mut shares: Vec<_> = shares.into_iter().collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let parts: Vec<String> = shares
        .iter()
        .take(KINDS_MAX)
        .map(|(kind, share)| format!("{:.0} % by {kind}", share * 100.0))
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

#[cfg(test)]
mod tests {
    use partita_load::{Cause, Intake};
    use partita_proto::placement::Placement;
    use partita_proto::range::Bound;
    use partita_proto::value::Value;

    use super::*;

    const NOW_S: u64 = 1_000;

    fn cause(kind: &str, user: &str) -> Cause {
        Cause {
            statement: format!("{kind} ... readings"),
            kind: kind.to_owned(),
            user: user.to_owned(),
            application: "loader".to_owned(),
            client: "10.0.0.7".to_owned(),
        }
    }

    /// A book in which user `a` inserts three quarters of the rows, all of sensor 7, and user `b` writes the others.
    fn book(codec: &KeyCodec) -> BlameBook {
        let key = |sensor, at| {
            let key = vec![Value::Int(sensor), Value::Timestamp(at)];
            Box::<[u8]>::from(&*codec.encode_bound(&Bound { placement: None, key }).unwrap())
        };
        let partition = facts::partition_id(PartitionId(3));
        let mut intake = Intake::new(1);
        for second in NOW_S - 5..NOW_S {
            let at = i64::try_from(second).unwrap();
            let causes = [(30, 7, cause("INSERT", "a")), (10, 1, cause("LINE PROTOCOL", "b"))];
            for (rows, sensor, cause) in &causes {
                let picked = |_: u64| Some((partition, Some(key(*sensor, at))));
                intake.offer(second, false, *rows, cause, picked);
            }
        }
        let mut book = BlameBook::default();
        book.hear(1, intake.take(NOW_S), NOW_S);
        book
    }

    fn verdict(codec: &KeyCodec) -> Verdict {
        let bound = Bound { placement: None, key: vec![Value::Int(7)] };
        Verdict {
            class: Class::HotKey,
            cut: None,
            divisions: Vec::new(),
            hot_key: Some(Box::from(&*codec.encode_bound(&bound).unwrap())),
            evidence: partita_load::Evidence::default(),
        }
    }

    #[test]
    fn partitions_and_their_hot_keys_have_causes() {
        let codec = KeyCodec::new(&crate::tests::readings(), &Placement::Range).unwrap();
        let (book, verdict) = (book(&codec), verdict(&codec));
        let suspect = Suspect {
            table: TableId(1),
            partition: PartitionId(3),
            verdict: Some(&verdict),
            rings: None,
            codec: Some(&codec),
        };
        let found = hot_causes(&book, &suspect, NOW_S);
        let shown: Vec<_> = found
            .iter()
            .map(|found| (found.key.is_some(), found.cause.user.as_str(), found.samples))
            .collect();
        assert_eq!(shown, [(false, "a", 200), (false, "b", 200), (true, "a", 150)]);
        assert!((found[0].share - 0.75).abs() < 1e-9 && (found[2].share - 1.0).abs() < 1e-9);
        assert_eq!(found[2].key.as_ref().unwrap().key, [Value::Int(7)]);
        let other = Suspect { partition: PartitionId(4), ..suspect };
        assert!(hot_causes(&book, &other, NOW_S).is_empty());
    }

    #[test]
    fn texts_have_kinds_of_statements_and_nobody() {
        let codec = KeyCodec::new(&crate::tests::readings(), &Placement::Range).unwrap();
        let (book, hot) = (book(&codec), verdict(&codec));
        let text = |verdict: &Verdict| kinds_text(&book, PartitionId(3), verdict, NOW_S);
        assert_eq!(text(&hot).as_deref(), Some("100 % by INSERT"));
        let wide = Verdict { class: Class::Unsplittable, ..hot };
        assert_eq!(text(&wide).as_deref(), Some("75 % by INSERT, 25 % by LINE PROTOCOL"));
        assert_eq!(kinds_text(&book, PartitionId(4), &wide, NOW_S), None);
    }
}
