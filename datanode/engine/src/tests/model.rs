//! Whatever is done to a partition, in whatever order: it reads like a plain map.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use partita_proto::domain::Domain;
use partita_proto::id::{ColumnId, SchemaVersion};
use partita_proto::key::KeyCodec;
use partita_proto::placement::Placement;
use partita_proto::range::Bound;
use partita_proto::rule::Comparison;
use partita_proto::schema::{ColumnType, Semantic, TableSchema};
use partita_proto::service::{FirstByTime, KeyOrder, WriteKind};
use partita_proto::value::Value;
use proptest::prelude::*;

use super::*;

const HOUR: i64 = 3_600_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Append,
    LastRow,
    LastNonNull,
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    policy: Policy,
    time: bool,
    hash: bool,
}

/// Operations, with small numbers that become keys and values.
#[derive(Clone, Debug)]
enum Step {
    Put(Vec<(u8, u8, Option<u8>, Option<u8>)>, Columns),
    Delete(Vec<(u8, u8)>),
    /// Two writes in one entry.
    PutAndDelete((u8, u8, Option<u8>, Option<u8>), (u8, u8), bool),
    Flush,
    Compact(bool),
    /// Of any window, any neighbours.
    CompactSome(u8, u8, u8),
    Reopen,
    /// Another replica takes over, after a transfer in pieces of some size.
    Transfer(u8),
    AddField,
    AddTag,
    Truncate,
    /// At a key of so many columns, or in the middle; the test continues with the right half, or the left one.
    Split(Cut, bool),
    /// As above, then some rows for the right half; what is compacted before the left one takes the right one over.
    SplitAndMerge(Cut, Vec<(u8, u8, Option<u8>, Option<u8>)>, bool, bool),
    Scan(Vec<(u8, DomainOf)>, Vec<u8>, u8, Option<u8>),
}

#[derive(Clone, Copy, Debug)]
enum Cut {
    At((u8, u8), u8),
    Middle,
}

#[derive(Clone, Copy, Debug)]
enum Columns {
    All,
    OnlyA,
    OnlyB,
}

#[derive(Clone, Debug)]
enum DomainOf {
    Point(u8),
    Points(Vec<u8>),
    From(u8),
    Below(u8),
    Null,
    NotNull,
}

/// All columns a table may get. The key of a row in the model has all its tags.
const NAMES: [&str; 6] = ["host", "extra", "ts", "a", "b", "c"];

#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    /// By key, the rows in order of arrival.
    rows: BTreeMap<[Value; 3], Vec<[Value; 3]>>,
}

impl Model {
    fn put(&mut self, policy: Policy, key: [Value; 3], fields: [Value; 3]) {
        let versions = self.rows.entry(key).or_default();
        match policy {
            Policy::Append => versions.push(fields),
            Policy::LastRow => *versions = vec![fields],
            Policy::LastNonNull => {
                let mut row = versions.pop().unwrap_or([const { Value::Null }; 3]);
                for (old, new) in row.iter_mut().zip(fields) {
                    if !new.is_null() {
                        *old = new;
                    }
                }
                *versions = vec![row];
            }
        }
    }

    fn rows(&self) -> impl Iterator<Item = [Value; 6]> {
        self.rows.iter().flat_map(|(key, versions)| {
            versions.iter().map(|fields| {
                let [a, b, c] = key.clone();
                let [d, e, f] = fields.clone();
                [a, b, c, d, e, f]
            })
        })
    }
}

fn schema_of(shape: Shape) -> TableSchema {
    let options = match shape.policy {
        Policy::Append => append(),
        Policy::LastRow => last_row(),
        Policy::LastNonNull => last_non_null(),
    };
    let mut schema = series_schema(options);
    if !shape.time {
        // The same column, as a plain part of the key.
        schema.columns[1] = column(2, "ts", MILLIS, Semantic::Tag);
    }
    schema
}

fn host(number: u8) -> Value {
    match number % 6 {
        0 => Value::Null,
        1 => text(""),
        number => text(&format!("host number {number:03}")),
    }
}

/// Few values, over hours and years, so that keys repeat and windows widen.
fn tick(number: u8) -> Value {
    let number = i64::from(number % 40);
    ts(if number < 30 { number * HOUR / 4 } else { (number - 35) * 8000 * HOUR })
}

fn a(number: Option<u8>) -> Value {
    number.map_or(Value::Null, |number| int(i64::from(number) - 100))
}

fn b(number: Option<u8>) -> Value {
    number.map_or(Value::Null, |number| match number % 3 {
        0 => text("short"),
        _ => text(&format!("a longer text with number {number:03}")),
    })
}

fn value_of(column: &str, number: u8) -> Value {
    match column {
        "host" | "extra" => host(number),
        "ts" => tick(number),
        "a" | "c" => a(Some(number)),
        _ => b(Some(number)),
    }
}

fn domain_of(column: &str, domain: &DomainOf) -> Domain {
    let value = |number: u8| value_of(column, number);
    match domain {
        DomainOf::Point(number) => Domain::point(value(*number)),
        DomainOf::Points(numbers) => Domain::points(numbers.iter().map(|number| value(*number))),
        DomainOf::From(number) => Domain::compare(Comparison::GreaterOrEqual, value(*number)),
        DomainOf::Below(number) => Domain::compare(Comparison::Less, value(*number)),
        DomainOf::Null => Domain::null_only(),
        DomainOf::NotNull => Domain::not_null(),
    }
}

/// A partition, its log, and the model after each entry.
struct Test {
    shape: Shape,
    fixture: Fixture,
    /// Another replica. Stands where this one stood at the last transfer, or is new.
    other: Fixture,
    log: Vec<Entry>,
    /// `models[index]` is the state after the entry `index`.
    models: Vec<Model>,
}

#[derive(Clone)]
enum Entry {
    Writes(Vec<(WriteKind, RecordBatch)>),
    Schema(Arc<TableSchema>),
    Truncate,
    Split,
}

impl Test {
    async fn new(shape: Shape) -> Self {
        let placement = match shape.hash {
            true => Placement::Hash { columns: vec![ColumnId(1)] },
            false => Placement::Range,
        };
        let fixture = async || {
            let mut fixture = Fixture::new(config(schema_of(shape), placement.clone())).await;
            fixture.options.compaction_runs = 2;
            fixture.options.compaction_runs_busy = 3;
            fixture.options.file_bytes_target = 1;
            fixture.reopen().await;
            fixture
        };
        let (fixture, other) = (fixture().await, fixture().await);
        Self { shape, fixture, other, log: Vec::new(), models: vec![Model::default()] }
    }

    fn has(&self, name: &str) -> bool {
        self.fixture.partition.config().schema.column(name).is_some()
    }

    fn model(&self) -> &Model {
        self.models.last().unwrap()
    }

    fn apply(&mut self, entry: Entry, model: Model) {
        self.log.push(entry);
        self.models.push(model);
        self.apply_at(self.log.len());
    }

    /// Applies the entry at an index.
    fn apply_at(&self, at: usize) {
        let index = at as u64;
        let partition = &self.fixture.partition;
        match &self.log[at - 1] {
            Entry::Writes(writes) => partition.apply(index, mark(index), writes).map(drop),
            Entry::Schema(schema) => partition.apply_schema(index, mark(index), Arc::clone(schema)),
            Entry::Truncate => partition.apply_truncate(index, mark(index)),
            // It is durable when it was applied.
            Entry::Split => return assert!(index <= partition.applied()),
        }
        .unwrap();
    }

    fn key(&self, host_number: u8, tick_number: u8) -> [Value; 3] {
        // Once there is a second tag, most rows have it.
        let extra = if self.has("extra") { host(host_number / 6) } else { Value::Null };
        [host(host_number), extra, tick(tick_number)]
    }

    fn key_names(&self) -> Vec<&'static str> {
        NAMES[..3].iter().copied().filter(|name| self.has(name)).collect()
    }

    /// The key of a row, encoded as of now.
    fn encoded(&self, key: &[Value; 3]) -> Bytes {
        let config = self.fixture.partition.config();
        let values: Vec<Value> =
            if self.has("extra") { key.to_vec() } else { vec![key[0].clone(), key[2].clone()] };
        let row = self.fixture.rows(&self.key_names(), &[values]);
        let codec = KeyCodec::new(&config.schema, &config.placement).unwrap();
        Bytes::copy_from_slice(codec.encode(&row).unwrap().get(0))
    }

    /// True if the partition owns the key.
    fn owns(&self, key: &[Value; 3]) -> bool {
        self.fixture.partition.version().layout.range.contains(&self.encoded(key))
    }

    fn put(
        &self,
        model: &mut Model,
        rows: &[(u8, u8, Option<u8>, Option<u8>)],
        given: Columns,
    ) -> (WriteKind, RecordBatch) {
        let mut names = self.key_names();
        let fields: &[&str] = match given {
            Columns::All => &["a", "b", "c"],
            Columns::OnlyA => &["a"],
            Columns::OnlyB => &["b"],
        };
        names.extend(fields.iter().filter(|name| self.has(name)));
        let mut values = Vec::new();
        for (host, tick, in_a, in_b) in rows {
            let key = self.key(*host, *tick);
            if !self.owns(&key) {
                continue;
            }
            let all = [a(*in_a), b(*in_b), a(*in_b)];
            let fields = std::array::from_fn(|at| match names.contains(&NAMES[3 + at]) {
                true => all[at].clone(),
                false => Value::Null,
            });
            let whole: Vec<Value> = key.iter().chain(&fields).cloned().collect();
            let at = |name: &&str| NAMES.iter().position(|other| other == name).unwrap();
            values.push(names.iter().map(|name| whole[at(name)].clone()).collect());
            model.put(self.shape.policy, key, fields);
        }
        (WriteKind::Put, self.fixture.rows(&names, &values))
    }

    fn delete(&self, model: &mut Model, keys: &[(u8, u8)]) -> (WriteKind, RecordBatch) {
        let names = self.key_names();
        let mut values = Vec::new();
        for (host, tick) in keys {
            let key = self.key(*host, *tick);
            if !self.owns(&key) {
                continue;
            }
            model.rows.remove(&key);
            values.push(if self.has("extra") {
                key.to_vec()
            } else {
                vec![key[0].clone(), key[2].clone()]
            });
        }
        (WriteKind::Delete, self.fixture.rows(&names, &values))
    }

    async fn step(&mut self, step: &Step) {
        let folds = self.shape.policy != Policy::Append;
        match step {
            Step::Put(rows, given) => {
                let mut model = self.model().clone();
                let write = self.put(&mut model, rows, *given);
                self.apply(Entry::Writes(vec![write]), model);
            }
            Step::Delete(keys) if folds => {
                let mut model = self.model().clone();
                let write = self.delete(&mut model, keys);
                self.apply(Entry::Writes(vec![write]), model);
            }
            Step::PutAndDelete(row, key, put_first) if folds => {
                let mut model = self.model().clone();
                let mut writes = Vec::new();
                for put in [*put_first, !*put_first] {
                    writes.push(match put {
                        true => self.put(&mut model, std::slice::from_ref(row), Columns::OnlyA),
                        false => self.delete(&mut model, std::slice::from_ref(key)),
                    });
                }
                self.apply(Entry::Writes(writes), model);
            }
            Step::Delete(_) | Step::PutAndDelete(..) => {}
            Step::Flush => {
                self.fixture.flush().await.unwrap();
                let durable = self.fixture.partition.durable_mark().map(|(index, _)| index);
                let index = self.log.len() as u64;
                assert_eq!(durable.unwrap_or_default(), index);
            }
            Step::Compact(all) => {
                self.fixture.partition.compact(*all).await.unwrap();
            }
            Step::CompactSome(window, from, count) => {
                let choice = [*window, *from, *count].map(usize::from);
                self.fixture.partition.compact_some(choice).await.unwrap();
            }
            Step::Reopen => self.reopen().await,
            Step::Transfer(piece) => self.transfer(usize::from(*piece)).await,
            Step::AddField => self.add("c", ColumnType::Int64, Semantic::Field),
            Step::AddTag => self.add("extra", ColumnType::String, Semantic::Tag),
            Step::Truncate => self.apply(Entry::Truncate, Model::default()),
            Step::Split(cut, right) => self.split(*cut, *right).await,
            Step::SplitAndMerge(cut, rows, left, right) => {
                self.split_and_merge(*cut, rows, *left, *right).await;
            }
            Step::Scan(domains, wanted, parallelism, limit) => {
                self.scan(domains, wanted, usize::from(*parallelism), *limit).await;
            }
        }
    }

    fn add(&mut self, name: &str, column_type: ColumnType, semantic: Semantic) {
        let mut schema = TableSchema::clone(&self.fixture.partition.config().schema);
        // What goes into the hash may not change, so a hashed table's key stays as it is here.
        if schema.column(name).is_some() {
            return;
        }
        let added = column(schema.next_column.0, name, column_type, semantic);
        if semantic == Semantic::Tag {
            schema.key.insert(1, added.id);
        }
        schema.next_column = ColumnId(schema.next_column.0 + 1);
        schema.version = SchemaVersion(schema.version.0 + 1);
        schema.columns.push(added);
        let model = self.model().clone();
        self.apply(Entry::Schema(Arc::new(schema)), model);
    }

    async fn cut(&self, cut: Cut) -> Option<Bound> {
        let layout = Arc::clone(&self.fixture.partition.version().layout);
        let at = match cut {
            Cut::Middle => {
                let middle = self.fixture.partition.middle().await.unwrap();
                assert!(middle.is_some() || self.model().rows.len() < 2, "there is a cut");
                middle?
            }
            Cut::At((host, tick), columns) => {
                let key = self.encoded(&self.key(host, tick));
                let mut at = layout.codec.decode(&key).unwrap();
                let columns_min = usize::from(!layout.codec.placed());
                at.key.truncate(usize::from(columns).max(columns_min));
                at
            }
        };
        let key = layout.codec.encode_bound(&at).unwrap();
        let strictly = layout.range.contains(&key) && layout.range.start < key;
        assert!(strictly || !matches!(cut, Cut::Middle), "{at} is not inside");
        strictly.then_some(at)
    }

    /// Splits the partition; returns the child, and the rows of either half.
    async fn halves(&mut self, cut: Cut) -> Option<(Arc<Partition>, Path, Model, Model)> {
        let at = self.cut(cut).await?;
        let index = self.log.len() as u64 + 1;
        let codec = self.fixture.partition.version().layout.codec.clone();
        let key = codec.encode_bound(&at).unwrap();
        let (mut left, mut right) = (Model::default(), Model::default());
        for (row, versions) in &self.model().rows {
            let half = if self.encoded(row) < key { &mut left } else { &mut right };
            half.rows.insert(row.clone(), versions.clone());
        }
        self.fixture.flush().await.unwrap();
        let root = Path::from(format!("partitions/child-{index}"));
        split::split(&self.fixture, &root, &at, index).await.unwrap();
        self.log.push(Entry::Split);
        self.models.push(left.clone());
        let clock: Arc<dyn Clock> = Arc::<TestClock>::clone(&self.fixture.clock);
        let (store, options) = (Arc::clone(&self.fixture.store), self.fixture.options.clone());
        let child = Partition::open(store, root.clone(), options, clock).await.unwrap();
        Some((child, root, left, right))
    }

    /// Checks the rows of both halves; the test continues with one of them.
    async fn split(&mut self, cut: Cut, keep_right: bool) {
        let Some((child, root, left, right)) = self.halves(cut).await else { return };
        self.scan(&[], &[0, 1, 2, 3, 4, 5], 3, None).await;
        let parent = std::mem::replace(&mut self.fixture.partition, Arc::clone(&child));
        *self.models.last_mut().unwrap() = right;
        self.scan(&[], &[0, 1, 2, 3, 4, 5], 3, None).await;
        if keep_right {
            self.fixture.root = root;
            let config = PartitionConfig { join: true, ..PartitionConfig::clone(&child.config()) };
            self.other = Fixture::new(config).await;
        } else {
            self.fixture.partition = parent;
            *self.models.last_mut().unwrap() = left;
        }
    }

    /// Splits the partition, writes to the right half, and merges the two again.
    async fn split_and_merge(
        &mut self,
        cut: Cut,
        rows: &[(u8, u8, Option<u8>, Option<u8>)],
        compact_left: bool,
        compact_right: bool,
    ) {
        let Some((child, root, left, mut right)) = self.halves(cut).await else { return };
        let parent = std::mem::replace(&mut self.fixture.partition, Arc::clone(&child));
        let write = self.put(&mut right, rows, Columns::All);
        let index = self.log.len() as u64 + 1;
        child.apply(index, mark(index), &[write]).unwrap();
        child.seal(|| Bytes::from_static(b"of the child"));
        child.flush().await.unwrap();
        self.fixture.partition = parent;
        for (partition, compact) in
            [(&self.fixture.partition, compact_left), (&child, compact_right)]
        {
            if compact {
                partition.compact(true).await.unwrap();
            }
        }
        self.fixture.flush().await.unwrap();
        split::merge(&self.fixture, &child, index).await.unwrap();
        self.log.push(Entry::Split);
        let mut both = left;
        both.rows.extend(right.rows);
        self.models.push(both);
        // Nothing of it is needed any more.
        drop(child);
        let path = self.fixture.directory.path().join(root.as_ref());
        std::fs::remove_dir_all(path).unwrap();
        self.scan(&[], &[0, 1, 2, 3, 4, 5], 3, None).await;
    }

    /// A crash, and the log applied again.
    async fn reopen(&mut self) {
        self.fixture.reopen().await;
        let durable = self.fixture.partition.durable_mark();
        let index = durable.map_or(0, |(index, found)| {
            assert_eq!(found, mark(index));
            let state = self.fixture.partition.state();
            assert_eq!(state, Bytes::from(format!("state {index}")));
            usize::try_from(index).unwrap()
        });
        self.compare(&self.models[index], &[], &[0, 1, 2, 3, 4, 5], 2, None).await;
        // Some that are in files are sent again.
        for at in index.saturating_sub(2).max(1)..=self.log.len() {
            self.apply_at(at);
        }
    }

    /// The other replica gets this one's files and the log from there, and takes over.
    async fn transfer(&mut self, piece: usize) {
        let Some((durable, _)) = self.fixture.partition.durable_mark() else { return };
        if durable < self.other.partition.applied() {
            return;
        }
        let (from, to) = (&self.fixture.partition, &self.other.partition);
        transfer::transfer(from, to, 200 + 40 * piece).await.unwrap();
        std::mem::swap(&mut self.fixture, &mut self.other);
        assert_eq!(self.fixture.partition.durable_mark(), Some((durable, mark(durable))));
        assert_eq!(self.fixture.partition.state(), Bytes::from(format!("state {durable}")));
        for at in usize::try_from(durable).unwrap() + 1..=self.log.len() {
            self.apply_at(at);
        }
        self.compare(self.model(), &[], &[0, 1, 2, 3, 4, 5], 2, None).await;
    }

    async fn scan(
        &self,
        domains: &[(u8, DomainOf)],
        wanted: &[u8],
        parallelism: usize,
        limit: Option<u8>,
    ) {
        let limit = limit.map(usize::from);
        self.compare(self.model(), domains, wanted, parallelism, limit).await;
        self.compare_newest(domains).await;
        for descending in [false, true] {
            let first = FirstByTime { rows: limit.unwrap_or(2).max(1), descending };
            self.compare_first(domains, first, parallelism).await;
            for nulls_apart in [false, true] {
                let order = KeyOrder { descending, nulls_apart };
                self.compare_ordered(domains, order, limit).await;
            }
        }
    }

    /// A scan in key order returns all rows in one stream, or as many of the first ones as its limit says.
    async fn compare_ordered(
        &self,
        domains: &[(u8, DomainOf)],
        order: KeyOrder,
        limit: Option<usize>,
    ) {
        let (named, columns) = self.named(domains);
        let names: Vec<&str> = columns.iter().map(|column| NAMES[*column]).collect();
        let contains = |row: &[Value; 6]| {
            let mut values = NAMES.iter().zip(row);
            values.all(|(name, value)| named.get(name).is_none_or(|d| d.contains(value)))
        };
        let rows = self.model().rows().filter(contains);
        let mut all: Vec<Row> =
            rows.map(|row| columns.iter().map(|column| row[*column].clone()).collect()).collect();
        let named_domains = named.clone();
        let named: Vec<_> = named.into_iter().collect();
        let mut scan = self.fixture.scan(&names, &named);
        (scan.order, scan.limit) = (Some(order), limit);
        let found = collect(&self.fixture.partition, scan).await.unwrap();
        // Too many sources may overlap.
        if found.order != Some(order) {
            return;
        }
        assert_eq!(found.streams.len(), 1);
        all.sort();
        if limit.is_none() {
            assert_eq!(found.rows, all, "domains {named:?}, {order:?}");
        }
        if self.shape.hash {
            return;
        }
        // NULLs of the first column that is not bound come last, if they are apart.
        let is_bound = |column: &usize| {
            let points = named_domains.get(NAMES[*column]).and_then(|domain| domain.as_points(1));
            points.is_some_and(|points| points.len() == 1)
        };
        let key_columns = columns.iter().filter(|column| **column < 3);
        let apart = key_columns.clone().position(|column| !is_bound(column));
        if let Some(position) = apart.filter(|_| order.nulls_apart) {
            all.sort_by_key(|row| row[position].is_null());
        }
        let key_length = columns.iter().filter(|column| **column < 3).count();
        let key = |row: &Row| row[..key_length].to_vec();
        let mut keys: Vec<Vec<Value>> = all.iter().map(key).collect();
        if order.descending {
            keys.reverse();
        }
        keys.truncate(limit.unwrap_or(usize::MAX));
        let found: Vec<Vec<Value>> = found.streams[0].iter().map(key).collect();
        assert_eq!(found, keys, "domains {named:?}, {order:?}, limit {limit:?}");
    }

    /// A scan for the first rows by time returns these, with all rows of the last one's time; all others that it returns
    /// are rows too, each once.
    async fn compare_first(
        &self,
        domains: &[(u8, DomainOf)],
        first: FirstByTime,
        parallelism: usize,
    ) {
        let (named, columns) = self.named(domains);
        let names: Vec<&str> = columns.iter().map(|column| NAMES[*column]).collect();
        let tick = |row: &Row| row[columns.iter().position(|column| *column == 2).unwrap()].clone();
        let contains = |row: &[Value; 6]| {
            let mut values = NAMES.iter().zip(row);
            values.all(|(name, value)| named.get(name).is_none_or(|d| d.contains(value)))
        };
        let rows = self.model().rows().filter(contains);
        let mut all: Vec<Row> =
            rows.map(|row| columns.iter().map(|column| row[*column].clone()).collect()).collect();
        let mut ticks: Vec<Value> = all.iter().map(tick).collect();
        ticks.sort();
        if first.descending {
            ticks.reverse();
        }
        let is_first = |row: &&Row| match ticks.get(first.rows - 1) {
            Some(last) if first.descending => tick(row) >= *last,
            Some(last) => tick(row) <= *last,
            None => true,
        };
        let named: Vec<_> = named.into_iter().collect();
        let mut scan = self.fixture.scan(&names, &named);
        scan.parallelism = parallelism;
        scan.first_by_time = Some(first);
        let found = collect(&self.fixture.partition, scan).await.unwrap().rows;
        all.sort();
        let mut rest = all.iter();
        for row in &found {
            assert!(rest.any(|other| other == row), "{row:?} is no row, or came twice");
        }
        let found: Vec<&Row> = found.iter().filter(is_first).collect();
        let expected: Vec<&Row> = all.iter().filter(is_first).collect();
        assert_eq!(found, expected, "domains {named:?}, {first:?}");
    }

    /// Domains by name, and the positions of the columns that the table has.
    fn named(&self, domains: &[(u8, DomainOf)]) -> (BTreeMap<&'static str, Domain>, Vec<usize>) {
        let named = domains
            .iter()
            .map(|(column, domain)| (NAMES[usize::from(*column) % NAMES.len()], domain))
            .map(|(name, domain)| (name, domain_of(name, domain)))
            .filter(|(name, _)| self.has(name))
            .collect();
        (named, (0..NAMES.len()).filter(|at| self.has(NAMES[*at])).collect())
    }

    /// A scan for the newest rows returns those of all series; all others that it returns are rows too, each once.
    async fn compare_newest(&self, domains: &[(u8, DomainOf)]) {
        let (named, columns) = self.named(domains);
        let names: Vec<&str> = columns.iter().map(|column| NAMES[*column]).collect();
        let contains = |row: &[Value; 6]| {
            let mut values = NAMES.iter().zip(row);
            values.all(|(name, value)| named.get(name).is_none_or(|d| d.contains(value)))
        };
        let mut all: Vec<Row> = Vec::new();
        let mut newest: BTreeMap<[Value; 2], Row> = BTreeMap::new();
        for row in self.model().rows().filter(contains) {
            let series = [row[0].clone(), row[1].clone()];
            let row: Row = columns.iter().map(|column| row[*column].clone()).collect();
            // In order of their keys.
            newest.insert(series, row.clone());
            all.push(row);
        }
        let named: Vec<_> = named.into_iter().collect();
        let mut scan = self.fixture.scan(&names, &named);
        scan.newest_only = true;
        let found = collect(&self.fixture.partition, scan).await.unwrap().rows;
        all.sort();
        let mut rest = all.iter();
        for row in &found {
            assert!(rest.any(|other| other == row), "{row:?} is no row, or came twice");
        }
        for (series, row) in newest {
            let there = found.binary_search(&row).is_ok();
            assert!(there, "the newest row of {series:?} is missing, domains {named:?}");
        }
    }

    async fn compare(
        &self,
        model: &Model,
        domains: &[(u8, DomainOf)],
        wanted: &[u8],
        parallelism: usize,
        limit: Option<usize>,
    ) {
        let at = |number: u8| usize::from(number) % NAMES.len();
        let mut domains: BTreeMap<usize, Domain> = domains
            .iter()
            .map(|(column, domain)| (at(*column), domain_of(NAMES[at(*column)], domain)))
            .collect();
        domains.retain(|column, _| self.has(NAMES[*column]));
        let mut wanted: Vec<usize> = wanted.iter().map(|column| at(*column)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted.retain(|column| self.has(NAMES[*column]));
        let mut expected: Vec<Row> = model
            .rows()
            .filter(|row| domains.iter().all(|(column, domain)| domain.contains(&row[*column])))
            .map(|row| wanted.iter().map(|column| row[*column].clone()).collect())
            .collect();
        expected.sort();
        let names: Vec<&str> = wanted.iter().map(|column| NAMES[*column]).collect();
        let named: Vec<_> =
            domains.iter().map(|(column, domain)| (NAMES[*column], domain.clone())).collect();
        let mut scan = self.fixture.scan(&names, &named);
        scan.parallelism = parallelism;
        scan.limit = limit;
        let found = collect(&self.fixture.partition, scan).await.unwrap();
        assert!(found.streams.len() <= parallelism.max(1));
        match limit {
            None => assert_eq!(found.rows, expected, "domains {named:?}"),
            Some(limit) => {
                assert_eq!(found.rows.len(), limit.min(expected.len()));
                for row in &found.rows {
                    assert!(expected.binary_search(row).is_ok());
                }
            }
        }
        if found.order.is_some() && !self.shape.hash {
            for stream in &found.streams {
                let keys = |row: &Row| -> Option<[Value; 3]> {
                    let value = |name: &str| {
                        let column = NAMES.iter().position(|other| *other == name)?;
                        if !self.has(name) {
                            return Some(Value::Null);
                        }
                        Some(row[wanted.iter().position(|w| *w == column)?].clone())
                    };
                    Some([value("host")?, value("extra")?, value("ts")?])
                };
                let keys: Vec<_> = stream.iter().filter_map(keys).collect();
                assert!(keys.is_sorted(), "{keys:?}");
            }
        }
    }
}

fn domain() -> impl Strategy<Value = DomainOf> {
    prop_oneof![
        any::<u8>().prop_map(DomainOf::Point),
        prop::collection::vec(any::<u8>(), 0..4).prop_map(DomainOf::Points),
        any::<u8>().prop_map(DomainOf::From),
        any::<u8>().prop_map(DomainOf::Below),
        Just(DomainOf::Null),
        Just(DomainOf::NotNull),
    ]
}

/// A key: every other one is one of very few, so that these get versions of all kinds.
fn key() -> impl Strategy<Value = (u8, u8)> {
    prop_oneof![any::<(u8, u8)>(), (1_u8..3, 0_u8..2)]
}

fn cut() -> impl Strategy<Value = Cut> {
    prop_oneof![
        3 => (key(), 0_u8..4).prop_map(|(key, columns)| Cut::At(key, columns)),
        1 => Just(Cut::Middle),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let row = || {
        let fields = any::<(Option<u8>, Option<u8>)>();
        (key(), fields).prop_map(|((host, tick), (a, b))| (host, tick, a, b))
    };
    let given = prop_oneof![Just(Columns::All), Just(Columns::OnlyA), Just(Columns::OnlyB)];
    prop_oneof![
        8 => (prop::collection::vec(row(), 1..30), given).prop_map(|(r, g)| Step::Put(r, g)),
        3 => prop::collection::vec(key(), 1..8).prop_map(Step::Delete),
        2 => (row(), key(), any::<bool>())
            .prop_map(|(row, key, first)| Step::PutAndDelete(row, key, first)),
        6 => Just(Step::Flush),
        1 => any::<bool>().prop_map(Step::Compact),
        3 => any::<(u8, u8, u8)>().prop_map(|(w, f, c)| Step::CompactSome(w, f, c)),
        2 => Just(Step::Reopen),
        2 => any::<u8>().prop_map(Step::Transfer),
        1 => Just(Step::AddField),
        1 => Just(Step::AddTag),
        1 => Just(Step::Truncate),
        3 => (cut(), any::<bool>()).prop_map(|(cut, right)| Step::Split(cut, right)),
        3 => (cut(), prop::collection::vec(row(), 0..8), any::<bool>(), any::<bool>())
            .prop_map(|(cut, rows, left, right)| Step::SplitAndMerge(cut, rows, left, right)),
        8 => (
            prop::collection::vec((any::<u8>(), domain()), 0..3),
            prop::collection::vec(any::<u8>(), 0..5),
            1_u8..5,
            prop::option::weighted(0.2, 0_u8..20),
        )
            .prop_map(|(domains, wanted, parallelism, limit)| {
                Step::Scan(domains, wanted, parallelism, limit)
            }),
    ]
}

fn run(shape: Shape, steps: &[Step]) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let mut test = Test::new(shape).await;
        for step in steps {
            test.step(step).await;
        }
        test.scan(&[], &[0, 1, 2, 3, 4, 5], 3, None).await;
        test.fixture.partition.verify().await.unwrap();
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 500, ..ProptestConfig::default() })]

    #[test]
    fn a_partition_reads_like_a_map(
        policy in prop_oneof![
            1 => Just(Policy::Append),
            2 => Just(Policy::LastRow),
            3 => Just(Policy::LastNonNull),
        ],
        time in any::<bool>(),
        hash in any::<bool>(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        run(Shape { policy, time, hash }, &steps);
    }
}
