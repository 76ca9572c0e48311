//! The causes of a load: the statements, users, applications and clients whose rows a partition takes.
//!
//! ```text
//!   rows of a statement ──▶ Intake ──▶ Intaken ──▶ BlameBook ──▶ the causes of a hot partition, or of a hot key
//!                (frontend: a sample a second)     (meta: the last minute of all frontends)
//! ```
//!
//! Invariants:
//! - A row that is not sampled costs an addition and a comparison; the cause is looked up for sampled rows only.
//! - Memory is bounded: [`SAMPLES_PER_SECOND`] rows of each second and kind, [`ENDED_S`] seconds in a frontend that does
//!   not report, [`KEPT_S`] seconds of [`SOURCES_MAX`] frontends in meta, and [`CAUSES_MAX`] causes of each report.
//! - A second that is reported again replaces the earlier report of it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::facts::PartitionId;
use crate::random::Random;
use crate::reservoir::Lots;

/// Rows that are kept of a second, for writes and for reads each.
const SAMPLES_PER_SECOND: usize = 256;
/// Ended seconds that wait for a report.
const ENDED_S: u64 = 10;
/// Maximum causes of a report; one of a full report stands for all others.
const CAUSES_MAX: usize = 256;
/// Maximum causes that a process remembers between two reports.
const REMEMBERED_MAX: usize = 4_096;
/// Text of the cause that stands for all others.
const OTHERS: &str = "(others)";
/// Maximum length of each text of a cause, bytes.
const TEXT_MAX: usize = 200;
/// Seconds that meta keeps ...
const KEPT_S: u64 = 60;
/// ... of so many frontends; of more, those that were heard last.
const SOURCES_MAX: usize = 16;
/// Maximum samples of a second that meta keeps, whatever a frontend sends.
const HEARD_MAX: usize = 512;
/// Minimum samples of a statement about causes.
const ANSWER_SAMPLES_MIN: usize = 20;
/// Maximum number of causes in an answer ...
const ANSWER_CAUSES_MAX: usize = 8;
/// ... and the minimum share of each.
const ANSWER_SHARE_MIN: f64 = 0.02;

/// Origin of operations.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cause {
    /// Text of the statement without its literals, at most 200 bytes; empty if there is none.
    pub statement: String,
    /// Kind of the statement, or the protocol by which rows came without one.
    pub kind: String,
    /// Name of the user.
    pub user: String,
    /// Name that the application gave itself; empty if it gave none.
    pub application: String,
    /// Network address of the client without its port, or empty.
    pub client: String,
}

impl Cause {
    fn others() -> Self {
        let empty = String::new;
        Self {
            statement: OTHERS.to_owned(),
            kind: empty(),
            user: empty(),
            application: empty(),
            client: empty(),
        }
    }

    fn texts_mut(&mut self) -> [&mut String; 5] {
        let Self { statement, kind, user, application, client } = self;
        [statement, kind, user, application, client]
    }

    /// The cause with texts of at most the length that is kept.
    fn bounded(mut self) -> Self {
        for text in self.texts_mut() {
            text.truncate(text.floor_char_boundary(TEXT_MAX));
        }
        self
    }
}

/// A sampled row with its cause.
#[derive(Clone, Debug, PartialEq)]
pub struct Blamed {
    /// The encoded key with its placement, if the row had one.
    pub key: Option<Box<[u8]>>,
    /// Position of the cause in [`Intaken::causes`].
    pub cause: u32,
    /// Number of rows that the sample represents.
    pub weight: f64,
}

/// Sampled rows of one second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IntakenSecond {
    /// Seconds since the Unix epoch, by the clock of the process.
    pub second: u64,
    /// True for rows that were read, false for rows that were written.
    pub read: bool,
    /// The rows, with the partition of each.
    pub samples: Vec<(PartitionId, Blamed)>,
}

/// A report of sampled rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Intaken {
    /// At most 256 causes; if there were more, one of them is "(others)".
    pub causes: Vec<Cause>,
    /// Seconds that have ended, oldest first.
    pub seconds: Vec<IntakenSecond>,
}

/// The sample of the current second, of one kind.
#[derive(Debug)]
struct Open {
    lots: Lots,
    /// Rows in the sample, with their causes' numbers; `None` for those that were left out.
    rows: Vec<Option<(PartitionId, Option<Box<[u8]>>, u32)>>,
}

impl Open {
    fn new() -> Self {
        Self { lots: Lots::new(SAMPLES_PER_SECOND), rows: Vec::new() }
    }

    /// Ends the second: its samples, each with its weight.
    fn close(&mut self) -> Vec<(PartitionId, Blamed)> {
        let weight = self.lots.count() as f64 / self.lots.used().max(1) as f64;
        self.lots.clear();
        let rows = self.rows.drain(..).flatten();
        let blamed = |(partition, key, cause)| (partition, Blamed { key, cause, weight });
        rows.map(blamed).collect()
    }
}

/// Uniform sample of the rows of one process over a second: 256 for writes and 256 for reads.
#[derive(Debug)]
pub struct Intake {
    random: Random,
    second: u64,
    /// Rows of the current second: written ones, then read ones.
    open: [Open; 2],
    ended: VecDeque<IntakenSecond>,
    /// Numbers of the causes that were seen since the last report; number 0 stands for all others.
    causes: BTreeMap<Cause, u32>,
}

impl Intake {
    /// A sample whose choices are reproducible by `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            second: 0,
            open: [Open::new(), Open::new()],
            ended: VecDeque::new(),
            causes: BTreeMap::from([(Cause::others(), 0)]),
        }
    }

    /// Offers `rows` rows of a second, which were written or read because of `cause`. `pick` is called for few of them,
    /// with ascending numbers, and returns the partition and the key of the row, or `None` to leave it out. A second
    /// before the current one counts as the current one.
    pub fn offer(
        &mut self,
        second: u64,
        read: bool,
        rows: u64,
        cause: &Cause,
        mut pick: impl FnMut(u64) -> Option<(PartitionId, Option<Box<[u8]>>)>,
    ) {
        if second > self.second {
            self.close(second);
        }
        let Self { random, open, causes, .. } = self;
        let open = &mut open[usize::from(read)];
        let slots = &mut open.rows;
        let mut number = None;
        open.lots.offer(rows, random, |lot| {
            let row = pick(lot.number).map(|(partition, key)| {
                let cause = *number.get_or_insert_with(|| number_of(causes, cause));
                (partition, key, cause)
            });
            match slots.get_mut(lot.place) {
                Some(slot) => *slot = row,
                None => slots.push(row),
            }
        });
    }

    /// Ends the current second, and begins another.
    #[cold]
    fn close(&mut self, next: u64) {
        for (open, read) in self.open.iter_mut().zip([false, true]) {
            let samples = open.close();
            if !samples.is_empty() {
                self.ended.push_back(IntakenSecond { second: self.second, read, samples });
            }
        }
        self.second = next;
        while self.ended.front().is_some_and(|ended| ended.second + ENDED_S < next) {
            self.ended.pop_front();
        }
    }

    /// The seconds before `second` that have ended since the last call, at most ten of them; causes without a sample are
    /// left out.
    pub fn take(&mut self, second: u64) -> Intaken {
        if second > self.second {
            self.close(second);
        }
        let mut seconds: Vec<IntakenSecond> = self.ended.drain(..).collect();
        // Causes of the current second keep their names; the numbers of a report are its own.
        let names = std::mem::take(&mut self.causes);
        let mut weights: BTreeMap<u32, f64> = BTreeMap::new();
        for (_, sample) in seconds.iter().flat_map(|second| &second.samples) {
            *weights.entry(sample.cause).or_default() += sample.weight;
        }
        let mut by_weight: Vec<(u32, f64)> = weights.into_iter().collect();
        by_weight.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let is_full = by_weight.len() > CAUSES_MAX;
        by_weight.truncate(if is_full { CAUSES_MAX - 1 } else { CAUSES_MAX });
        let numbers: BTreeMap<u32, u32> =
            (0..).zip(&by_weight).map(|(new, (old, _))| (*old, new)).collect();
        // What is cut off joins the others, which may have a number already.
        let is_rest_new = is_full && !numbers.contains_key(&0);
        let rest = u32::try_from(by_weight.len()).unwrap_or(u32::MAX);
        let rest = numbers.get(&0).copied().unwrap_or(rest);
        for (_, sample) in seconds.iter_mut().flat_map(|second| &mut second.samples) {
            sample.cause = numbers.get(&sample.cause).copied().unwrap_or(rest);
        }

        let mut causes = vec![Cause::others(); by_weight.len() + usize::from(is_rest_new)];
        self.causes = BTreeMap::from([(Cause::others(), 0)]);
        let mut open_numbers: BTreeMap<u32, u32> = BTreeMap::new();
        for (_, _, cause) in self.open.iter().flat_map(|open| open.rows.iter().flatten()) {
            open_numbers.insert(*cause, 0);
        }
        for (name, old) in names.into_iter().filter(|(_, old)| *old != 0) {
            if let Some(new) = numbers.get(&old).and_then(|new| usize::try_from(*new).ok()) {
                causes[new] = name.clone();
            }
            if let Some(number) = open_numbers.get_mut(&old) {
                *number = number_of(&mut self.causes, &name);
            }
        }
        for open in &mut self.open {
            for (_, _, cause) in open.rows.iter_mut().flatten() {
                *cause = open_numbers.get(cause).copied().unwrap_or(0);
            }
        }
        Intaken { causes, seconds }
    }
}

/// The number of a cause; a new one if there is room.
fn number_of(causes: &mut BTreeMap<Cause, u32>, cause: &Cause) -> u32 {
    if let Some(number) = causes.get(cause) {
        return *number;
    }
    let cause = cause.clone().bounded();
    if let Some(number) = causes.get(&cause) {
        return *number;
    }
    if causes.len() >= REMEMBERED_MAX {
        return 0;
    }
    let number = u32::try_from(causes.len()).unwrap_or(0);
    causes.insert(cause, number);
    number
}

/// A row in the book.
#[derive(Clone, Debug)]
struct Entry {
    partition: PartitionId,
    key: Option<Box<[u8]>>,
    cause: Arc<Cause>,
    weight: f64,
}

/// The seconds of one frontend.
#[derive(Clone, Debug, Default)]
struct Source {
    heard_s: u64,
    /// By second and kind; ordered by partition.
    seconds: BTreeMap<(u64, bool), Vec<Entry>>,
}

/// The causes of the last minute, from all frontends.
#[derive(Clone, Debug, Default)]
pub struct BlameBook {
    sources: BTreeMap<u64, Source>,
}

impl BlameBook {
    /// Hears the report of the frontend with the number `source`, at the second `now_s`. Seconds that are more than a
    /// minute away from now are left out.
    pub fn hear(&mut self, source: u64, taken: Intaken, now_s: u64) {
        let causes: Vec<Arc<Cause>> =
            taken.causes.into_iter().map(|cause| Arc::new(cause.bounded())).collect();
        let report = self.sources.entry(source).or_default();
        report.heard_s = now_s;
        for second in taken.seconds {
            let samples = second.samples.into_iter().take(HEARD_MAX);
            let entries = samples.filter_map(|(partition, blamed)| {
                let Blamed { key, cause, weight } = blamed;
                let cause = causes.get(usize::try_from(cause).ok()?).map(Arc::clone)?;
                (weight > 0.0 && weight.is_finite()).then_some(Entry {
                    partition,
                    key,
                    cause,
                    weight,
                })
            });
            let mut entries: Vec<Entry> = entries.collect();
            entries.sort_by_key(|entry| entry.partition);
            report.seconds.insert((second.second, second.read), entries);
        }
        for source in self.sources.values_mut() {
            source.seconds.retain(|(second, _), _| is_kept(*second, now_s));
        }
        self.sources.retain(|_, source| is_kept(source.heard_s, now_s));
        while self.sources.len() > SOURCES_MAX {
            let stalest = self.sources.iter().min_by_key(|(_, source)| source.heard_s);
            let Some(stalest) = stalest.map(|(number, _)| *number) else { break };
            self.sources.remove(&stalest);
        }
    }

    /// The rows of a partition in the minute before now.
    fn entries<'b>(
        &'b self,
        partition: PartitionId,
        read: bool,
        prefix: Option<&'b [u8]>,
        now_s: u64,
    ) -> impl Iterator<Item = &'b Entry> {
        let seconds = self.sources.values().flat_map(|source| &source.seconds);
        let seconds =
            seconds.filter(move |((second, kind), _)| *kind == read && is_kept(*second, now_s));
        let entries = seconds.flat_map(move |(_, entries)| {
            let start = entries.partition_point(|entry| entry.partition < partition);
            let end = entries.partition_point(|entry| entry.partition <= partition);
            &entries[start..end]
        });
        entries.filter(move |entry| {
            let begins = |prefix| entry.key.as_deref().is_some_and(|key| key.starts_with(prefix));
            prefix.is_none_or(begins)
        })
    }

    /// Number of samples of a partition's rows that were written or read, or of those whose keys begin with `prefix`.
    #[must_use]
    pub fn samples(
        &self,
        partition: PartitionId,
        read: bool,
        prefix: Option<&[u8]>,
        now_s: u64,
    ) -> usize {
        self.entries(partition, read, prefix, now_s).count()
    }

    /// The causes of a partition's writes or reads, or of those whose keys begin with `prefix`, with their shares, 0 to 1,
    /// descending: at most eight of at least 2 % each. Empty with fewer than 20 samples.
    #[must_use]
    pub fn causes(
        &self,
        partition: PartitionId,
        read: bool,
        prefix: Option<&[u8]>,
        now_s: u64,
    ) -> Vec<(Cause, f64)> {
        let mut weights: BTreeMap<&Cause, f64> = BTreeMap::new();
        let (mut samples, mut total) = (0, 0.0);
        for entry in self.entries(partition, read, prefix, now_s) {
            *weights.entry(&*entry.cause).or_default() += entry.weight;
            samples += 1;
            total += entry.weight;
        }
        if samples < ANSWER_SAMPLES_MIN {
            return Vec::new();
        }
        let mut shares: Vec<(&Cause, f64)> = weights
            .into_iter()
            .map(|(cause, weight)| (cause, weight / total))
            .filter(|(_, share)| *share >= ANSWER_SHARE_MIN)
            .collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        shares.truncate(ANSWER_CAUSES_MAX);
        shares.into_iter().map(|(cause, share)| (cause.clone(), share)).collect()
    }
}

/// True if a second lies within a minute of now: clocks of nodes differ.
fn is_kept(second: u64, now_s: u64) -> bool {
    second.abs_diff(now_s) <= KEPT_S
}

#[cfg(test)]
mod tests;
