//! The services over tables in memory, by their messages.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::TryStreamExt;
use partita_proto::access::{Door, Identity, Role};
use partita_proto::clock::Clock;
use partita_proto::id::BOOTSTRAP_ROLE;
use partita_proto::wide::Aggregate;
use tonic::{Code, Request, Status};

use crate::api::data::bigtable_server::Bigtable;
use crate::api::data::mutation::{
    AddToCell, DeleteFromColumn, DeleteFromFamily, DeleteFromRow, Mutation as Kind, SetCell,
};
use crate::api::data::read_modify_write_rule::Rule;
use crate::api::data::read_rows_response::CellChunk;
use crate::api::data::request_stats::StatsView;
use crate::api::data::row_filter::Filter;
use crate::api::data::row_range::{EndKey, StartKey};
use crate::api::data::value::Kind as ValueKind;
use crate::api::data::{
    CheckAndMutateRowRequest, MutateRowRequest, MutateRowsRequest, Mutation, PingAndWarmRequest,
    ReadModifyWriteRowRequest, ReadModifyWriteRule, ReadRowsRequest, RowFilter, RowRange, RowSet,
    SampleRowKeysRequest, TimestampRange, Value, mutate_rows_request,
};
use crate::api::tables::bigtable_table_admin_server::BigtableTableAdmin;
use crate::api::tables::create_table_request::Split;
use crate::api::tables::drop_row_range_request::Target;
use crate::api::tables::gc_rule::Rule as Gc;
use crate::api::tables::modify_column_families_request::Modification;
use crate::api::tables::modify_column_families_request::modification::Mod;
use crate::api::tables::table::View;
use crate::api::tables::r#type::Kind as TypeKind;
use crate::api::tables::{
    CheckConsistencyRequest, ColumnFamily, CreateTableRequest, DeleteTableRequest,
    DropRowRangeRequest, GcRule, GenerateConsistencyTokenRequest, GetTableRequest,
    ListTablesRequest, ModifyColumnFamiliesRequest, Table, Type,
};
use crate::memory::{Memory, NOW_US};
use crate::store::{Caller, WideStore};
use crate::{Admin, Data, types};

const PARENT: &str = "projects/p/instances/i";
const TABLE: &str = "projects/p/instances/i/tables/t";

/// A clock that stands still.
struct Still;

impl Clock for Still {
    fn now_ms(&self) -> i64 {
        NOW_US / 1_000
    }
}

/// A request of the superuser.
fn asked<T>(message: T) -> Request<T> {
    let role = Role::new(BOOTSTRAP_ROLE, "root");
    let mut request = Request::new(message);
    request.extensions_mut().insert(Caller(Identity::of_role(&role, Door::Flight)));
    request
}

/// Both services over the same tables.
struct Api {
    data: Data,
    admin: Admin,
}

impl Api {
    /// Services with the table `t` of the families `f` and `g`.
    async fn new() -> Self {
        let store: Arc<dyn WideStore> = Arc::new(Memory::default());
        let api =
            Self { data: Data::new(Arc::clone(&store), Arc::new(Still)), admin: Admin::new(store) };
        api.create("t", &["f", "g"], &["m"]).await.unwrap();
        api
    }

    async fn create(&self, name: &str, families: &[&str], cuts: &[&str]) -> Result<Table, Status> {
        let family = |name: &&str| ((*name).to_owned(), ColumnFamily::default());
        let split = |cut: &&str| Split { key: Bytes::copy_from_slice(cut.as_bytes()) };
        let table =
            Table { column_families: families.iter().map(family).collect(), ..Table::default() };
        let request = CreateTableRequest {
            parent: PARENT.to_owned(),
            table_id: name.to_owned(),
            table: Some(table),
            initial_splits: cuts.iter().map(split).collect(),
        };
        Ok(self.admin.create_table(asked(request)).await?.into_inner())
    }

    async fn mutate(&self, key: &str, mutations: Vec<Mutation>) -> Result<(), Status> {
        let request = MutateRowRequest {
            table_name: TABLE.to_owned(),
            row_key: bytes(key),
            mutations,
            ..MutateRowRequest::default()
        };
        self.data.mutate_row(asked(request)).await.map(|_| ())
    }

    async fn read(&self, request: ReadRowsRequest) -> Result<Vec<String>, Status> {
        let request = ReadRowsRequest { table_name: TABLE.to_owned(), ..request };
        let responses = self.data.read_rows(asked(request)).await?.into_inner();
        let responses: Vec<_> = responses.try_collect().await?;
        let chunks = responses.into_iter().flat_map(|response| response.chunks);
        Ok(shown(chunks))
    }

    async fn all(&self) -> Vec<String> {
        self.read(ReadRowsRequest::default()).await.unwrap()
    }

    async fn check(
        &self,
        filter: Option<RowFilter>,
        true_mutations: Vec<Mutation>,
        false_mutations: Vec<Mutation>,
    ) -> Result<bool, Status> {
        let request = CheckAndMutateRowRequest {
            table_name: TABLE.to_owned(),
            row_key: bytes("r"),
            predicate_filter: filter,
            true_mutations,
            false_mutations,
            ..CheckAndMutateRowRequest::default()
        };
        let response = self.data.check_and_mutate_row(asked(request)).await?;
        Ok(response.into_inner().predicate_matched)
    }

    async fn families(&self, view: View) -> Table {
        let request = GetTableRequest { name: TABLE.to_owned(), view: view.into() };
        self.admin.get_table(asked(request)).await.unwrap().into_inner()
    }
}

/// Cells as `key/family:qualifier@timestamp=value`.
fn shown(chunks: impl Iterator<Item = CellChunk>) -> Vec<String> {
    let (mut key, mut family, mut qualifier) = (String::new(), String::new(), String::new());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut lines = Vec::new();
    for chunk in chunks {
        if !chunk.row_key.is_empty() {
            key = text(&chunk.row_key);
        }
        family = chunk.family_name.unwrap_or(family);
        qualifier = chunk.qualifier.map_or(qualifier, |bytes| text(&bytes));
        let (time, value) = (chunk.timestamp_micros, text(&chunk.value));
        lines.push(format!("{key}/{family}:{qualifier}@{time}={value}"));
    }
    lines
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn mutation(kind: Kind) -> Mutation {
    Mutation { mutation: Some(kind) }
}

fn set(family: &str, qualifier: &str, timestamp_micros: i64, value: &str) -> Mutation {
    mutation(Kind::SetCell(SetCell {
        family_name: family.to_owned(),
        column_qualifier: bytes(qualifier),
        timestamp_micros,
        value: bytes(value),
    }))
}

fn filter(kind: Filter) -> Option<RowFilter> {
    Some(RowFilter { filter: Some(kind) })
}

#[tokio::test]
async fn a_row_is_written_in_cells_and_read_by_filters() {
    let api = Api::new().await;
    api.mutate(
        "us-west2#3698#week1",
        vec![
            set("f", "pressure", 2_000, "94122"),
            set("f", "pressure", 1_000, "94558"),
            set("g", "temp", 1_000, "9.6"),
        ],
    )
    .await
    .unwrap();
    let row = [
        "us-west2#3698#week1/f:pressure@2000=94122",
        "us-west2#3698#week1/f:pressure@1000=94558",
        "us-west2#3698#week1/g:temp@1000=9.6",
    ];
    assert_eq!(api.all().await, row);
    let newest = filter(Filter::CellsPerColumnLimitFilter(1));
    let read = api.read(ReadRowsRequest { filter: newest, ..ReadRowsRequest::default() });
    assert_eq!(read.await.unwrap(), [row[0], row[2]]);
    let none = filter(Filter::BlockAllFilter(true));
    let read = api.read(ReadRowsRequest { filter: none, ..ReadRowsRequest::default() });
    assert!(read.await.unwrap().is_empty());
    let wrong = filter(Filter::ValueRegexFilter(bytes("(")));
    let read = api.read(ReadRowsRequest { filter: wrong, ..ReadRowsRequest::default() });
    assert_eq!(read.await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn rows_are_read_by_key_range_and_limit_in_either_order() {
    let api = Api::new().await;
    for key in ["a", "b", "c", "d"] {
        api.mutate(key, vec![set("f", "", 0, key)]).await.unwrap();
    }
    let range = RowRange {
        start_key: Some(StartKey::StartKeyOpen(bytes("b"))),
        end_key: Some(EndKey::EndKeyClosed(bytes("c"))),
    };
    let rows =
        RowSet { row_keys: vec![bytes("c"), bytes("a"), bytes("x")], row_ranges: vec![range] };
    let read = api.read(ReadRowsRequest { rows: Some(rows), ..ReadRowsRequest::default() });
    assert_eq!(read.await.unwrap(), ["a/f:@0=a", "c/f:@0=c"]);
    let limited = ReadRowsRequest { rows_limit: 2, ..ReadRowsRequest::default() };
    assert_eq!(api.read(limited.clone()).await.unwrap(), ["a/f:@0=a", "b/f:@0=b"]);
    let reversed = ReadRowsRequest { reversed: true, ..limited.clone() };
    assert_eq!(api.read(reversed).await.unwrap(), ["d/f:@0=d", "c/f:@0=c"]);
    // Rows that a filter leaves empty do not count.
    let late = filter(Filter::RowKeyRegexFilter(bytes("[cd]")));
    let read = api.read(ReadRowsRequest { filter: late, ..limited });
    assert_eq!(read.await.unwrap(), ["c/f:@0=c", "d/f:@0=d"]);
    let negative = ReadRowsRequest { rows_limit: -1, ..ReadRowsRequest::default() };
    assert_eq!(api.read(negative).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn many_cells_are_filtered_where_the_store_computes() {
    let memory = Arc::new(Memory::default());
    let store: Arc<dyn WideStore> = Arc::<Memory>::clone(&memory);
    let api =
        Api { data: Data::new(Arc::clone(&store), Arc::new(Still)), admin: Admin::new(store) };
    api.create("t", &["f"], &[]).await.unwrap();
    api.mutate("a", vec![set("f", "few", 0, "1")]).await.unwrap();
    let many = (0..2_000).map(|time| set("f", "many", time * 1_000, "2"));
    api.mutate("b", many.collect()).await.unwrap();
    let newest = || filter(Filter::CellsPerColumnLimitFilter(1));
    let limited = ReadRowsRequest { rows_limit: 1, filter: newest(), ..ReadRowsRequest::default() };
    assert_eq!(api.read(limited).await.unwrap(), ["a/f:few@0=1"]);
    assert_eq!(memory.computations.load(Ordering::Relaxed), 0);
    let read = api.read(ReadRowsRequest { filter: newest(), ..ReadRowsRequest::default() });
    assert_eq!(read.await.unwrap(), ["a/f:few@0=1", "b/f:many@1999000=2"]);
    assert_eq!(memory.computations.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn statistics_of_a_read_are_those_of_its_cells() {
    let api = Api::new().await;
    for key in ["a", "b"] {
        api.mutate(key, vec![set("f", "x", 0, "1"), set("f", "y", 0, "2")]).await.unwrap();
    }
    let request = ReadRowsRequest {
        table_name: TABLE.to_owned(),
        filter: filter(Filter::ValueRegexFilter(bytes("1"))),
        request_stats_view: 2,
        ..ReadRowsRequest::default()
    };
    let responses = api.data.read_rows(asked(request)).await.unwrap().into_inner();
    let responses: Vec<_> = responses.try_collect().await.unwrap();
    let stats = responses.last().unwrap().request_stats.as_ref().unwrap();
    let Some(StatsView::FullReadStatsView(view)) = &stats.stats_view else {
        panic!("no view of the statistics");
    };
    let counts = view.read_iteration_stats.as_ref().unwrap();
    let counts = (
        counts.rows_seen_count,
        counts.rows_returned_count,
        counts.cells_seen_count,
        counts.cells_returned_count,
    );
    assert_eq!(counts, (2, 2, 4, 2));
}

#[tokio::test]
async fn cells_columns_families_and_rows_are_deleted() {
    let api = Api::new().await;
    let fill = || {
        vec![
            set("f", "a", 1_000, "1"),
            set("f", "a", 2_000, "2"),
            set("f", "b", 0, "3"),
            set("g", "a", 0, "4"),
        ]
    };
    let range =
        |start, end| TimestampRange { start_timestamp_micros: start, end_timestamp_micros: end };
    let column = |range| {
        mutation(Kind::DeleteFromColumn(DeleteFromColumn {
            family_name: "f".to_owned(),
            column_qualifier: bytes("a"),
            time_range: range,
        }))
    };
    let family = DeleteFromFamily { family_name: "f".to_owned() };
    let cases = [
        (column(Some(range(2_000, 3_000))), vec!["r/f:a@1000=1", "r/f:b@0=3", "r/g:a@0=4"]),
        (column(None), vec!["r/f:b@0=3", "r/g:a@0=4"]),
        (mutation(Kind::DeleteFromFamily(family)), vec!["r/g:a@0=4"]),
        (mutation(Kind::DeleteFromRow(DeleteFromRow {})), vec![]),
    ];
    for (delete, expected) in cases {
        api.mutate("r", fill()).await.unwrap();
        api.mutate("r", vec![delete]).await.unwrap();
        assert_eq!(api.all().await, expected);
    }
}

#[tokio::test]
async fn each_row_of_a_batch_has_its_status() {
    let api = Api::new().await;
    let entry = |key: &str, mutations| mutate_rows_request::Entry {
        row_key: bytes(key),
        mutations,
        idempotency: None,
    };
    let request = |entries| MutateRowsRequest {
        table_name: TABLE.to_owned(),
        entries,
        ..MutateRowsRequest::default()
    };
    let batch = request(vec![
        entry("a", vec![set("f", "q", 0, "1")]),
        entry("b", vec![set("nothing", "q", 0, "2")]),
        entry("", vec![set("f", "q", 0, "3")]),
        entry("d", vec![set("f", "q", -1, "4")]),
    ]);
    let responses = api.data.mutate_rows(asked(batch)).await.unwrap().into_inner();
    let responses: Vec<_> = responses.try_collect().await.unwrap();
    let statuses = responses
        .into_iter()
        .flat_map(|response| response.entries)
        .map(|entry| (entry.index, Code::from_i32(entry.status.unwrap().code)));
    let expected = [(0, Code::Ok), (1, Code::NotFound), (2, Code::InvalidArgument), (3, Code::Ok)];
    assert_eq!(statuses.collect::<Vec<_>>(), expected);
    assert_eq!(api.all().await, ["a/f:q@0=1".to_owned(), format!("d/f:q@{NOW_US}=4")]);
    let empty = api.data.mutate_rows(asked(request(vec![]))).await;
    assert_eq!(empty.map(|_| ()).unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_row_is_changed_by_what_a_filter_leaves_of_it() {
    let api = Api::new().await;
    let (yes, no) = (|| vec![set("f", "q", 0, "yes")], || vec![set("f", "q", 0, "no")]);
    // Without a filter, a row matches if it is there.
    assert!(!api.check(None, yes(), no()).await.unwrap());
    assert_eq!(api.all().await, ["r/f:q@0=no"]);
    let is_no = filter(Filter::ValueRegexFilter(bytes("n.")));
    assert!(api.check(is_no.clone(), yes(), no()).await.unwrap());
    assert_eq!(api.all().await, ["r/f:q@0=yes"]);
    // Nothing is done where nothing is said.
    assert!(!api.check(is_no.clone(), no(), vec![]).await.unwrap());
    assert_eq!(api.all().await, ["r/f:q@0=yes"]);
    let neither = api.check(is_no, vec![], vec![]).await.unwrap_err();
    assert_eq!(neither.code(), Code::InvalidArgument);
    let unknown = api.check(None, vec![set("nothing", "q", 0, "")], vec![]).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test]
async fn counters_and_texts_grow_and_are_returned() {
    let api = Api::new().await;
    let rule = |qualifier: &str, rule| ReadModifyWriteRule {
        family_name: "f".to_owned(),
        column_qualifier: bytes(qualifier),
        rule: Some(rule),
    };
    let request = || ReadModifyWriteRowRequest {
        table_name: TABLE.to_owned(),
        row_key: bytes("r"),
        rules: vec![
            rule("count", Rule::IncrementAmount(2)),
            rule("text", Rule::AppendValue(bytes("ab"))),
            rule("count", Rule::IncrementAmount(-5)),
        ],
        ..ReadModifyWriteRowRequest::default()
    };
    api.data.read_modify_write_row(asked(request())).await.unwrap();
    let response = api.data.read_modify_write_row(asked(request())).await.unwrap();
    let row = response.into_inner().row.unwrap();
    let family = &row.families[0];
    let columns = family.columns.iter().map(|column| {
        (
            column.qualifier.clone(),
            column.cells.iter().map(|cell| cell.value.to_vec()).collect::<Vec<_>>(),
        )
    });
    let expected: Vec<(Bytes, Vec<Vec<u8>>)> = vec![
        (bytes("count"), vec![(-6_i64).to_be_bytes().to_vec()]),
        (bytes("text"), vec![b"abab".to_vec()]),
    ];
    assert_eq!((row.key, family.name.as_str()), (bytes("r"), "f"));
    assert_eq!(columns.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn samples_of_keys_are_cuts_and_the_end() {
    let api = Api::new().await;
    api.create("cut", &["f"], &["t", "g"]).await.unwrap();
    api.mutate("a", vec![set("f", "q", 0, "abc")]).await.unwrap();
    api.mutate("z", vec![set("f", "q", 0, "de")]).await.unwrap();
    let samples = async |row_range: Option<RowRange>| {
        let table_name = TABLE.to_owned();
        let request =
            SampleRowKeysRequest { table_name, row_range, ..SampleRowKeysRequest::default() };
        let responses = api.data.sample_row_keys(asked(request)).await.unwrap().into_inner();
        let responses: Vec<_> = responses.try_collect().await.unwrap();
        responses
            .into_iter()
            .map(|sample| (sample.row_key, sample.offset_bytes))
            .collect::<Vec<_>>()
    };
    assert_eq!(samples(None).await, [(bytes("m"), 3), (bytes(""), 5)]);
    let late = RowRange { start_key: Some(StartKey::StartKeyClosed(bytes("n"))), end_key: None };
    assert_eq!(samples(Some(late)).await, [(bytes(""), 2)]);
    let early = RowRange { start_key: None, end_key: Some(EndKey::EndKeyClosed(bytes("m"))) };
    assert_eq!(samples(Some(early)).await, [(bytes("m"), 3)]);
}

#[tokio::test]
async fn tables_are_created_listed_by_pages_and_deleted() {
    let api = Api::new().await;
    assert_eq!(api.create("t", &[], &[]).await.unwrap_err().code(), Code::AlreadyExists);
    assert_eq!(api.create("-", &[], &[]).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(api.create("u", &["a:b"], &[]).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(api.create("u", &[], &[""]).await.unwrap_err().code(), Code::InvalidArgument);
    for name in ["b", "a"] {
        api.create(name, &["f"], &[]).await.unwrap();
    }
    let list = async |page_token: String| {
        let request = ListTablesRequest {
            parent: PARENT.to_owned(),
            page_size: 2,
            page_token,
            ..ListTablesRequest::default()
        };
        api.admin.list_tables(asked(request)).await.unwrap().into_inner()
    };
    let first = list(String::new()).await;
    let names: Vec<&str> = first.tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(names, [format!("{PARENT}/tables/a"), format!("{PARENT}/tables/b")]);
    let rest = list(first.next_page_token).await;
    assert_eq!((rest.tables[0].name.as_str(), rest.tables.len()), (TABLE, 1));
    assert!(rest.next_page_token.is_empty() && rest.tables[0].column_families.is_empty());
    let delete = || asked(DeleteTableRequest { name: TABLE.to_owned() });
    api.admin.delete_table(delete()).await.unwrap();
    assert_eq!(api.admin.delete_table(delete()).await.unwrap_err().code(), Code::NotFound);
    let read = api.read(ReadRowsRequest::default()).await;
    assert_eq!(read.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn a_table_with_unsupported_features_is_not_created() {
    let api = Api::new().await;
    let create = async |table: Table| {
        let request = CreateTableRequest {
            parent: PARENT.to_owned(),
            table_id: "u".to_owned(),
            table: Some(table),
            ..CreateTableRequest::default()
        };
        api.admin.create_table(asked(request)).await.map(|_| ())
    };
    let family = |kind| ColumnFamily { value_type: Some(Type { kind }), ..ColumnFamily::default() };
    let families = |family| HashMap::from([("f".to_owned(), family)]);
    for table in [
        Table { change_stream_config: Some(Bytes::new()), ..Table::default() },
        Table { deletion_protection: true, ..Table::default() },
        Table { column_families: families(family(None)), ..Table::default() },
    ] {
        assert_eq!(create(table).await.unwrap_err().code(), Code::Unimplemented);
    }
    let table = Table {
        column_families: families(family(Some(TypeKind::BytesType(Bytes::new())))),
        ..Table::default()
    };
    create(table).await.unwrap();
}

#[tokio::test]
async fn families_are_added_changed_and_dropped_with_their_cells() {
    let api = Api::new().await;
    api.mutate(
        "r",
        vec![set("f", "q", 1_000, "1"), set("f", "q", 2_000, "2"), set("g", "q", 0, "3")],
    )
    .await
    .unwrap();
    let versions = |count| ColumnFamily {
        gc_rule: Some(GcRule { rule: Some(Gc::MaxNumVersions(count)) }),
        ..ColumnFamily::default()
    };
    let modify = async |changes: Vec<(&str, Option<Mod>)>| {
        let modification = |(id, r#mod): (&str, Option<Mod>)| Modification {
            id: id.to_owned(),
            r#mod,
            ..Modification::default()
        };
        let modifications = changes.into_iter().map(modification).collect();
        let request = ModifyColumnFamiliesRequest { name: TABLE.to_owned(), modifications };
        api.admin.modify_column_families(asked(request)).await.map(tonic::Response::into_inner)
    };
    let table = modify(vec![
        ("f", Some(Mod::Update(versions(1)))),
        ("g", Some(Mod::Drop(true))),
        ("h", Some(Mod::Create(ColumnFamily::default()))),
    ])
    .await
    .unwrap();
    let expected =
        HashMap::from([("f".to_owned(), versions(1)), ("h".to_owned(), ColumnFamily::default())]);
    assert_eq!(table.column_families, expected);
    // A cell that the rule makes garbage is not read.
    assert_eq!(api.all().await, ["r/f:q@2000=2"]);
    for (changes, code) in [
        (vec![("g", Some(Mod::Update(versions(1))))], Code::NotFound),
        (vec![("g", Some(Mod::Drop(true)))], Code::NotFound),
        (vec![("f", Some(Mod::Create(versions(1))))], Code::AlreadyExists),
        (vec![("f", Some(Mod::Update(versions(0))))], Code::InvalidArgument),
        (vec![("f", Some(Mod::Drop(false)))], Code::InvalidArgument),
        (vec![("f", None)], Code::InvalidArgument),
        (vec![], Code::InvalidArgument),
    ] {
        assert_eq!(modify(changes).await.unwrap_err().code(), code);
    }
    let names = |table: &Table| table.column_families.keys().cloned().collect::<Vec<_>>();
    assert!(names(&api.families(View::NameOnly).await).is_empty());
    assert_eq!(names(&api.families(View::Unspecified).await).len(), 2);
    let clusters = api.families(View::ReplicationView).await.cluster_states;
    assert_eq!(clusters.values().map(|state| state.replication_state).collect::<Vec<_>>(), [4]);
}

#[tokio::test]
async fn numbers_are_added_to_the_cells_of_an_aggregate_family() {
    let api = Api::new().await;
    let largest = types::message_of(Aggregate::Max);
    let counters = ColumnFamily { value_type: Some(largest), ..ColumnFamily::default() };
    let modify = async |r#mod| {
        let modification =
            Modification { id: "n".to_owned(), r#mod: Some(r#mod), ..Modification::default() };
        let modifications = vec![modification];
        let request = ModifyColumnFamiliesRequest { name: TABLE.to_owned(), modifications };
        api.admin.modify_column_families(asked(request)).await.map(tonic::Response::into_inner)
    };
    let table = modify(Mod::Create(counters.clone())).await.unwrap();
    assert_eq!(table.column_families.get("n"), Some(&counters));
    // A new rule leaves the type as it is.
    let gc_rule = Some(GcRule { rule: Some(Gc::MaxNumVersions(2)) });
    let ruled = ColumnFamily { gc_rule, ..ColumnFamily::default() };
    let table = modify(Mod::Update(ruled.clone())).await.unwrap();
    let expected = ColumnFamily { gc_rule: ruled.gc_rule, ..counters };
    assert_eq!(table.column_families.get("n"), Some(&expected));
    let add = |number| {
        mutation(Kind::AddToCell(AddToCell {
            family_name: "n".to_owned(),
            column_qualifier: Some(Value { kind: Some(ValueKind::RawValue(bytes("q"))) }),
            timestamp: Some(Value { kind: Some(ValueKind::RawTimestampMicros(0)) }),
            input: Some(Value { kind: Some(ValueKind::IntValue(number)) }),
        }))
    };
    let text = |number: i64| String::from_utf8(number.to_be_bytes().to_vec()).unwrap();
    api.mutate("r", vec![add(64), add(32), set("f", "q", 0, "1")]).await.unwrap();
    assert_eq!(api.all().await, ["r/f:q@0=1".to_owned(), format!("r/n:q@0={}", text(64))]);
    api.mutate("r", vec![add(65)]).await.unwrap();
    assert_eq!(api.all().await[1], format!("r/n:q@0={}", text(65)));
    let refused = api.mutate("r", vec![set("n", "q", 0, "12345678")]).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn rows_are_dropped_by_prefix_or_all() {
    let api = Api::new().await;
    for key in ["a#1", "a#2", "b#1"] {
        api.mutate(key, vec![set("f", "", 0, "")]).await.unwrap();
    }
    let drop_rows = async |target| {
        let request = DropRowRangeRequest { name: TABLE.to_owned(), target };
        api.admin.drop_row_range(asked(request)).await.map(|_| ())
    };
    drop_rows(Some(Target::RowKeyPrefix(bytes("a#")))).await.unwrap();
    assert_eq!(api.all().await, ["b#1/f:@0="]);
    for target in [
        None,
        Some(Target::RowKeyPrefix(Bytes::new())),
        Some(Target::DeleteAllDataFromTable(false)),
    ] {
        assert_eq!(drop_rows(target).await.unwrap_err().code(), Code::InvalidArgument);
    }
    drop_rows(Some(Target::DeleteAllDataFromTable(true))).await.unwrap();
    assert!(api.all().await.is_empty());
}

#[tokio::test]
async fn a_table_is_consistent_by_its_token() {
    let api = Api::new().await;
    let name = TABLE.to_owned();
    let request = asked(GenerateConsistencyTokenRequest { name: name.clone() });
    let response = api.admin.generate_consistency_token(request).await.unwrap();
    let consistency_token = response.into_inner().consistency_token;
    let request = asked(CheckConsistencyRequest { name: name.clone(), consistency_token });
    assert!(api.admin.check_consistency(request).await.unwrap().into_inner().consistent);
    let request = asked(CheckConsistencyRequest { name, consistency_token: "other".to_owned() });
    let error = api.admin.check_consistency(request).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn nothing_is_served_without_an_identity() {
    let api = Api::new().await;
    let ping = PingAndWarmRequest { name: PARENT.to_owned(), ..PingAndWarmRequest::default() };
    api.data.ping_and_warm(asked(ping.clone())).await.unwrap();
    let code = |error: Status| error.code();
    let refused = BTreeMap::from([
        ("ping", api.data.ping_and_warm(Request::new(ping)).await.map(|_| ()).map_err(code)),
        (
            "read",
            api.data
                .read_rows(Request::new(ReadRowsRequest::default()))
                .await
                .map(|_| ())
                .map_err(code),
        ),
        (
            "list",
            api.admin
                .list_tables(Request::new(ListTablesRequest::default()))
                .await
                .map(|_| ())
                .map_err(code),
        ),
    ]);
    for (call, result) in refused {
        assert_eq!(result, Err(Code::Unauthenticated), "{call}");
    }
}
