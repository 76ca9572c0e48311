//! Memory of the advisor: since when each finding has been there, and what became of those that were dealt with.
//!
//! A finding that is gone after its table was changed (another schema, number of partitions or table of the name) counts as
//! applied: its figures from before are kept, and compared with those of the statements since. The memory is this
//! frontend's, is refreshed when somebody looks, and ends with the process.
//!
//! Invariant: findings about tables that a look does not include stay as they are.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use parking_lot::Mutex;
use partita_advice::{Finding, Judge, Judged, Measurements, Rule, Thresholds};
use partita_proto::catalog::Catalog;
use partita_proto::id::{ColumnId, SchemaVersion, TableId};

use super::kept::KeptFacts;

/// Maximum number of findings that are remembered.
const OPEN_MAX: usize = 10_000;
/// Maximum number of applied findings.
const HISTORY_MAX: usize = 1_000;
/// Time over which growth is measured, in milliseconds.
const GROWTH_SPAN_MS: i64 = 3_600_000;
/// Minimum interval between two kept counts, and minimum time over which growth is measured, in milliseconds.
const GROWTH_STEP_MS: i64 = 60_000;

/// Sums over the statements on a table.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Totals {
    pub(crate) calls: u64,
    pub(crate) rows: u64,
    pub(crate) partitions: u64,
    pub(crate) milliseconds: f64,
}

/// Means of one statement on a table.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Means {
    pub(crate) rows: Option<f64>,
    pub(crate) partitions: Option<f64>,
    pub(crate) milliseconds: Option<f64>,
}

impl Totals {
    /// Sums of the statements after an earlier moment. Forgotten statements may make sums smaller.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(earlier.calls),
            rows: self.rows.saturating_sub(earlier.rows),
            partitions: self.partitions.saturating_sub(earlier.partitions),
            milliseconds: (self.milliseconds - earlier.milliseconds).max(0.0),
        }
    }

    pub(crate) fn means(&self) -> Means {
        if self.calls == 0 {
            return Means::default();
        }
        let mean = |sum: f64| Some(sum / self.calls as f64);
        Means {
            rows: mean(self.rows as f64),
            partitions: mean(self.partitions as f64),
            milliseconds: mean(self.milliseconds),
        }
    }
}

/// Identity of a table's definition: another one means that the table was changed.
pub(crate) type Version = (TableId, SchemaVersion, usize);

/// A table at the moment of a look.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TableState {
    pub(crate) version: Version,
    pub(crate) bytes: Option<u64>,
    pub(crate) totals: Totals,
    /// Number of equal partitions over which writes would be as concentrated.
    pub(crate) n_eff: Option<f64>,
    /// Key and placement in SQL, without the number of partitions.
    pub(crate) placed: String,
    /// Designs in the same form, the best first, each with its predicted number of equal partitions.
    pub(crate) predictions: Vec<(String, f64)>,
}

impl TableState {
    /// The number of equal partitions that was predicted for a design.
    fn predicted(&self, placed: &str) -> Option<f64> {
        let design = self.predictions.iter().find(|(design, _)| design == placed);
        design.map(|(_, n_eff)| *n_eff)
    }
}

/// A finding that is still there.
#[derive(Clone, Debug)]
struct Open {
    since_ms: i64,
    ddl: Option<String>,
    predicted_rows: Option<f64>,
    state: TableState,
}

/// A finding that is gone since its table was changed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Applied {
    pub(crate) rule: Rule,
    pub(crate) object: String,
    /// Name of the table, with its database.
    pub(crate) table: String,
    pub(crate) ddl: Option<String>,
    /// Time of the first look without the finding, in milliseconds since 1970.
    pub(crate) applied_ms: i64,
    pub(crate) before: Means,
    pub(crate) bytes_before: Option<u64>,
    /// Sums at that time, from which those of later statements are told.
    pub(crate) baseline: Totals,
    pub(crate) predicted_rows: Option<f64>,
    /// Number of equal partitions over which writes were as concentrated.
    pub(crate) n_eff_before: Option<f64>,
    /// The same as it was predicted for the design that the table has now; `None` if it was not among the replayed ones.
    pub(crate) n_eff_predicted: Option<f64>,
}

#[derive(Debug, Default)]
struct Memory {
    open: BTreeMap<(String, Rule), Open>,
    history: VecDeque<Applied>,
}

/// Counts at times in milliseconds, oldest first; about sixty, of an hour.
type Counts = VecDeque<(i64, u64)>;

/// Counted thing: the series of a table, or the distinct values of one of its tags.
type Counted = (TableId, Option<ColumnId>);

/// Memory of the advisor; see the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Advisor {
    memory: Mutex<Memory>,
    counts: Mutex<HashMap<Counted, Counts>>,
    pub(crate) facts: KeptFacts,
    judge: Mutex<Judge>,
}

/// Notes a count. Returns the growth per hour within the last hour, if the first count is old enough.
fn growth(counts: &mut Counts, now_ms: i64, count: u64) -> Option<f64> {
    if counts.back().is_none_or(|(time, _)| now_ms - time >= GROWTH_STEP_MS) {
        counts.push_back((now_ms, count));
    }
    while counts.get(1).is_some_and(|(time, _)| now_ms - time >= GROWTH_SPAN_MS) {
        counts.pop_front();
    }
    let (time, first) = counts.front()?;
    let elapsed = now_ms - time;
    let hours = elapsed as f64 / GROWTH_SPAN_MS as f64;
    (elapsed >= GROWTH_STEP_MS).then(|| (count as f64 - *first as f64) / hours)
}

/// The table that a finding's object is, or is a column of.
fn table_of<'t>(
    tables: &'t BTreeMap<String, TableState>,
    object: &str,
) -> Option<(&'t str, &'t TableState)> {
    // Names may have dots in them: the longest one that fits is meant.
    let mut name = object;
    loop {
        if let Some((name, state)) = tables.get_key_value(name) {
            return Some((name.as_str(), state));
        }
        name = &name[..name.rfind('.')?];
    }
}

impl Advisor {
    /// Notes the findings about some tables at a moment. Returns since when each has been there, in milliseconds since
    /// 1970.
    pub(crate) fn observe(
        &self,
        now_ms: i64,
        tables: &BTreeMap<String, TableState>,
        findings: &[Finding],
    ) -> Vec<i64> {
        let mut memory = self.memory.lock();
        let memory = &mut *memory;
        let keys: Vec<(String, Rule)> =
            findings.iter().map(|finding| (finding.object.clone(), finding.rule)).collect();
        let present: HashSet<&(String, Rule)> = keys.iter().collect();
        // Findings about these tables that are gone.
        let vanished: Vec<(String, Rule)> = memory
            .open
            .keys()
            .filter(|key| !present.contains(key) && table_of(tables, &key.0).is_some())
            .cloned()
            .collect();
        for key in vanished {
            let Some(open) = memory.open.remove(&key) else { continue };
            let Some((table, state)) = table_of(tables, &key.0) else { continue };
            // Without a change of the table, the figures have changed by themselves.
            if state.version == open.state.version {
                continue;
            }
            let applied = Applied {
                rule: key.1,
                object: key.0,
                table: table.to_owned(),
                ddl: open.ddl,
                applied_ms: now_ms,
                before: open.state.totals.means(),
                bytes_before: open.state.bytes,
                baseline: state.totals,
                predicted_rows: open.predicted_rows,
                n_eff_before: open.state.n_eff,
                n_eff_predicted: (open.state.placed != state.placed)
                    .then(|| open.state.predicted(&state.placed))
                    .flatten(),
            };
            memory.history.push_back(applied);
            if memory.history.len() > HISTORY_MAX {
                memory.history.pop_front();
            }
        }
        let mut times = Vec::with_capacity(findings.len());
        for (finding, key) in findings.iter().zip(keys) {
            let Some((_, state)) = table_of(tables, &key.0) else {
                times.push(now_ms);
                continue;
            };
            let first_seen = memory.open.get(&key).map(|open| open.since_ms);
            times.push(first_seen.unwrap_or(now_ms));
            if first_seen.is_some() || memory.open.len() < OPEN_MAX {
                let predicted_rows = finding.effect.as_ref().and_then(|effect| effect.rows_read);
                let open = Open {
                    since_ms: first_seen.unwrap_or(now_ms),
                    ddl: finding.ddl.clone(),
                    predicted_rows,
                    state: state.clone(),
                };
                memory.open.insert(key, open);
            }
        }
        times
    }

    /// Times since when findings have been there, as far as they are remembered, in milliseconds since 1970.
    pub(crate) fn times(&self, now_ms: i64, findings: &[Finding]) -> Vec<i64> {
        let memory = self.memory.lock();
        let time = |finding: &Finding| {
            let open = memory.open.get(&(finding.object.clone(), finding.rule));
            open.map_or(now_ms, |open| open.since_ms)
        };
        findings.iter().map(time).collect()
    }

    /// Findings that were dealt with, oldest first.
    pub(crate) fn history(&self) -> Vec<Applied> {
        self.memory.lock().history.iter().cloned().collect()
    }

    /// Notes the number of series of a table. Returns the growth per hour within the last hour, if the table has been known
    /// for long enough.
    pub(crate) fn growth(&self, table: TableId, now_ms: i64, series: u64) -> Option<f64> {
        growth(self.counts.lock().entry((table, None)).or_default(), now_ms, series)
    }

    /// Notes the number of distinct values of a tag, and returns their growth as [`growth`](Self::growth) does.
    pub(crate) fn growth_of_values(
        &self,
        (table, column): (TableId, ColumnId),
        now_ms: i64,
        distinct: u64,
    ) -> Option<f64> {
        let mut counts = self.counts.lock();
        growth(counts.entry((table, Some(column))).or_default(), now_ms, distinct)
    }

    /// All findings, worst first. A table is judged again if anything has changed that its rules see.
    pub(crate) fn judge(
        &self,
        measurements: &Measurements,
        thresholds: &Thresholds,
    ) -> Vec<Judged> {
        self.judge.lock().judge(measurements, thresholds)
    }

    /// Numbers of times that the facts of a table were computed, and that a table was judged.
    #[cfg(test)]
    pub(crate) fn computed(&self) -> (u64, u64) {
        (self.facts.computed(), self.judge.lock().judged_tables())
    }

    /// Forgets counts, facts and findings of tables that are not in the newest catalog.
    pub(crate) fn retain(&self, newest: &Catalog) {
        let tables = newest.tables.values().flat_map(BTreeMap::values);
        let ids: HashSet<TableId> = tables.map(|table| table.id).collect();
        self.counts.lock().retain(|(table, _), _| ids.contains(table));
        self.facts.retain(|table| ids.contains(&table));
        self.judge.lock().retain(|database, name| newest.table(database, name).is_some());
    }
}

#[cfg(test)]
mod tests {
    use partita_advice::{Effect, Severity};

    use super::*;

    fn finding(object: &str, rule: Rule) -> Finding {
        Finding {
            rule,
            severity: Severity::Warning,
            object: object.to_owned(),
            evidence: serde_json::Value::Null,
            advice: String::new(),
            ddl: Some("ALTER TABLE t SET ('ttl' = '1d');".to_owned()),
            effect: Some(Effect { rows_read: Some(0.5), ..Effect::default() }),
        }
    }

    fn tables(version: u32, calls: u64, rows: u64) -> BTreeMap<String, TableState> {
        let totals = Totals { calls, rows, partitions: calls, milliseconds: 2.0 * calls as f64 };
        let version = (TableId(1), SchemaVersion(version), 1);
        let state = TableState {
            version,
            bytes: Some(7),
            totals,
            n_eff: Some(1.5),
            placed: "PRIMARY KEY (ts, u)".to_owned(),
            predictions: Vec::new(),
        };
        BTreeMap::from([("public.t".to_owned(), state)])
    }

    #[test]
    fn a_finding_is_known_since_it_was_first_seen() {
        let advisor = Advisor::default();
        let findings = [finding("public.t.c", Rule::A18)];
        assert_eq!(advisor.observe(1, &tables(1, 0, 0), &findings), [1]);
        assert_eq!(advisor.observe(2, &tables(1, 0, 0), &findings), [1]);
        assert_eq!(
            advisor.times(3, &[findings[0].clone(), finding("public.t", Rule::A01)]),
            [1, 3]
        );
        // It has come again.
        assert!(advisor.observe(3, &tables(1, 0, 0), &[]).is_empty());
        assert_eq!(advisor.observe(4, &tables(1, 0, 0), &findings), [4]);
        assert!(advisor.history().is_empty());
    }

    #[test]
    fn what_was_applied_is_compared_with_the_statements_before() {
        let advisor = Advisor::default();
        advisor.observe(1, &tables(1, 10, 1_000), &[finding("public.t.c", Rule::A18)]);
        advisor.observe(2, &tables(2, 12, 1_100), &[]);
        let history = advisor.history();
        let [applied] = history.as_slice() else { panic!("{history:?}") };
        assert_eq!((applied.object.as_str(), applied.table.as_str()), ("public.t.c", "public.t"));
        assert_eq!((applied.applied_ms, applied.predicted_rows), (2, Some(0.5)));
        assert_eq!(applied.before.rows, Some(100.0));
        let totals = Totals { calls: 22, rows: 1_150, partitions: 22, milliseconds: 30.0 };
        assert_eq!(totals.since(&applied.baseline).means().rows, Some(5.0));
        assert_eq!(Totals::default().since(&totals).means(), Means::default());
    }

    #[test]
    fn the_prediction_for_a_design_is_kept_beside_what_came() {
        let advisor = Advisor::default();
        let advised = [finding("public.t", Rule::A14)];
        let mut first = tables(1, 0, 0);
        let state = first.get_mut("public.t").unwrap();
        let hashed = "PARTITION BY HASH (u), PRIMARY KEY (ts, u)".to_owned();
        state.predictions = vec![("PRIMARY KEY (u, ts)".to_owned(), 7.9), (hashed.clone(), 7.5)];
        advisor.observe(1, &first, &advised);
        // The second design of the list is what the owner has chosen.
        let mut later = tables(2, 0, 0);
        let state = later.get_mut("public.t").unwrap();
        (state.placed, state.n_eff) = (hashed, Some(7.4));
        advisor.observe(2, &later, &[]);
        let history = advisor.history();
        assert_eq!(history[0].n_eff_before, Some(1.5));
        assert_eq!(history[0].n_eff_predicted, Some(7.5));
        // A change that leaves the placement as it is was not predicted.
        let advisor = Advisor::default();
        advisor.observe(1, &first, &advised);
        advisor.observe(2, &tables(2, 0, 0), &[]);
        assert_eq!(advisor.history()[0].n_eff_predicted, None);
    }

    #[test]
    fn findings_about_other_tables_stay() {
        let advisor = Advisor::default();
        advisor.observe(1, &tables(1, 0, 0), &[finding("public.t", Rule::A01)]);
        advisor.observe(2, &BTreeMap::new(), &[]);
        assert_eq!(advisor.observe(3, &tables(1, 0, 0), &[finding("public.t", Rule::A01)]), [1]);
    }

    #[test]
    fn names_may_have_dots() {
        let mut facts = tables(1, 0, 0);
        let state = facts["public.t"].clone();
        facts.insert("public.Cpu.server-1".to_owned(), state);
        let name = |object: &str| table_of(&facts, object).map(|(name, _)| name.to_owned());
        assert_eq!(name("public.Cpu.server-1.usage").as_deref(), Some("public.Cpu.server-1"));
        assert_eq!(name("public.t").as_deref(), Some("public.t"));
        assert_eq!(name("public.u.c"), None);
    }

    #[test]
    fn growth_is_that_of_the_last_hour() {
        let advisor = Advisor::default();
        let growth =
            |minutes: i64, series: u64| advisor.growth(TableId(1), minutes * 60_000, series);
        assert_eq!(growth(0, 100), None, "not known for long enough");
        assert_eq!(growth(30, 200), Some(200.0));
        assert_eq!(growth(60, 300), Some(200.0));
        assert_eq!(growth(90, 300), Some(100.0));
        // Tags are counted apart.
        let of_tag = |column: u32, minutes: i64, distinct: u64| {
            let tag = (TableId(1), ColumnId(column));
            advisor.growth_of_values(tag, minutes * 60_000, distinct)
        };
        assert_eq!((of_tag(1, 90, 5), of_tag(2, 90, 5)), (None, None));
        assert_eq!((of_tag(1, 120, 10), of_tag(2, 120, 5)), (Some(10.0), Some(0.0)));
        advisor.retain(&Catalog::default());
        assert_eq!((growth(121, 300), of_tag(1, 121, 10)), (None, None));
    }
}
