"""Bigtable's API with google-cloud-bigtable against a running server: its tables, rows and filters by the client of tables
and by both clients of data.

PARTITA_HTTP is the server's URL. Prints what failed, and 'N passed, M failed' at the end.
"""

import asyncio
import datetime
import os
import sys
import time
import traceback
import urllib.parse
import uuid
import warnings

os.environ["BIGTABLE_EMULATOR_HOST"] = urllib.parse.urlparse(os.environ["PARTITA_HTTP"]).netloc

from google.api_core.exceptions import AlreadyExists, InvalidArgument, MethodNotImplemented, NotFound
from google.cloud import bigtable
from google.cloud.bigtable import column_family, data, row_filters
from google.cloud.bigtable.data import row_filters as data_filters
from google.cloud.bigtable.data.read_modify_write_rules import AppendValueRule, IncrementRule
from google.cloud.bigtable.row_set import RowSet
from google.cloud.bigtable_admin_v2.types import ColumnFamily, ModifyColumnFamiliesRequest, Table, Type

# The clients of data tell that they speak to an emulator.
warnings.simplefilter("ignore", RuntimeWarning)

TESTS = []
PROJECT = "project"
INSTANCE = "balloons"
CLIENT = bigtable.Client(project=PROJECT, admin=True)
BEGIN = datetime.datetime(2023, 3, 1, 12, 0, tzinfo=datetime.timezone.utc)


def test(function):
    TESTS.append(function)
    return function


def raises(error, function):
    try:
        function()
    except error as raised:
        return raised
    raise AssertionError(f"{error.__name__} was not raised")


def table(families=("stats",), splits=()):
    """A new table with a name that nobody else has."""
    new = CLIENT.instance(INSTANCE).table(f"t_{uuid.uuid4().hex[:10]}")
    rules = {family: None for family in families} if not isinstance(families, dict) else families
    new.create(initial_split_keys=list(splits), column_families=rules)
    return new


def minute(number):
    return BEGIN + datetime.timedelta(minutes=number)


def write(target, key, family, qualifier, values):
    """Values of a column, a minute each."""
    row = target.direct_row(key)
    for number, value in enumerate(values):
        row.set_cell(family, qualifier, value, timestamp=minute(number))
    assert row.commit().code == 0


def read(target, **options):
    """Cells of rows as (key, family, qualifier, value), newest first."""
    return [
        (row.row_key, family, qualifier, cell.value)
        for row in target.read_rows(**options)
        for family, columns in row.cells.items()
        for qualifier, cells in columns.items()
        for cell in cells
    ]


def values(target, filter_):
    return [cell[3] for cell in read(target, filter_=filter_)]


@test
def tables_and_families_are_made_changed_and_dropped():
    rule = column_family.GCRuleUnion([
        column_family.MaxVersionsGCRule(2),
        column_family.GCRuleIntersection([
            column_family.MaxVersionsGCRule(1),
            column_family.MaxAgeGCRule(datetime.timedelta(days=30)),
        ]),
    ])
    new = table({"stats": rule, "meta": None}, [b"m"])
    assert new.exists()
    raises(AlreadyExists, lambda: new.create())
    families = new.list_column_families()
    assert set(families) == {"stats", "meta"}
    assert families["stats"].gc_rule.to_pb() == rule.to_pb() and families["meta"].gc_rule is None
    new.column_family("more", gc_rule=column_family.MaxVersionsGCRule(1)).create()
    new.column_family("more", gc_rule=column_family.MaxVersionsGCRule(5)).update()
    assert new.list_column_families()["more"].gc_rule == column_family.MaxVersionsGCRule(5)
    new.column_family("meta").delete()
    assert set(new.list_column_families()) == {"stats", "more"}
    raises(NotFound, lambda: new.column_family("meta").delete())
    names = [one.table_id for one in CLIENT.instance(INSTANCE).list_tables()]
    assert new.table_id in names, names
    keys = [sample.row_key for sample in new.sample_row_keys()]
    assert keys == [b"m", b""], keys
    new.delete()
    assert not new.exists()
    raises(NotFound, lambda: new.delete())


@test
def a_week_of_cells_is_written_and_read_newest_first():
    new = table()
    key = b"us-west2#3698#week1"
    write(new, key, "stats", b"pressure", [b"94558", b"94122", b"95992"])
    row = new.read_row(key)
    cells = row.cells["stats"][b"pressure"]
    assert [cell.value for cell in cells] == [b"95992", b"94122", b"94558"]
    assert [cell.timestamp for cell in cells] == [minute(2), minute(1), minute(0)]
    newest = new.read_row(key, filter_=row_filters.CellsColumnLimitFilter(1))
    assert [value for value, _ in newest.cell_values("stats", b"pressure")] == [b"95992"]
    assert new.read_row(b"nothing") is None


@test
def events_in_qualifiers_keep_their_repetitions():
    new = table()
    row = new.direct_row(b"us-west2#3698#pressure#week1")
    for number, value in enumerate([b"94558", b"94122", b"95992", b"94558"]):
        row.set_cell("stats", value, b"", timestamp=minute(number))
    row.commit()
    columns = new.read_row(row.row_key).cells["stats"]
    assert {name: len(cells) for name, cells in columns.items()} == {b"94122": 1, b"94558": 2, b"95992": 1}


@test
def garbage_is_not_read():
    new = table({"stats": column_family.MaxVersionsGCRule(2)})
    write(new, b"k", "stats", b"q", [b"1", b"2", b"3"])
    assert values(new, None) == [b"3", b"2"]


@test
def batches_have_a_status_for_each_row():
    new = table()
    rows = [new.direct_row(f"k{number}".encode()) for number in range(3)]
    for number, row in enumerate(rows):
        row.set_cell("nothing" if number == 1 else "stats", b"q", str(number))
    assert [status.code for status in new.mutate_rows(rows)] == [0, 5, 0]
    assert [cell[0] for cell in read(new)] == [b"k0", b"k2"]
    with new.mutations_batcher(flush_count=100) as batcher:
        for number in range(1000):
            row = new.direct_row(f"b{number:04}".encode())
            row.set_cell("stats", b"q", b"x")
            batcher.mutate(row)
    assert len(read(new, start_key=b"b", end_key=b"c")) == 1000
    wrong = new.direct_row(b"k")
    wrong.set_cell("stats", b"q", b"x" * 10)
    wrong.set_cell("stats", b"q" * 20_000, b"x")
    assert wrong.commit().code == 3


@test
def rows_are_read_by_keys_ranges_and_prefixes():
    new = table(splits=[b"phone#b", b"phone#c"])
    keys = [b"phone#a#1", b"phone#a#2", b"phone#b#1", b"phone#c#1", b"tablet#a#1"]
    for key in keys:
        write(new, key, "stats", b"q", [key])
    assert [cell[0] for cell in read(new)] == keys
    assert [cell[0] for cell in read(new, limit=2)] == keys[:2]
    wanted = RowSet()
    wanted.add_row_key(b"tablet#a#1")
    wanted.add_row_key(b"nothing")
    wanted.add_row_range_from_keys(b"phone#a#2", b"phone#b#1", start_inclusive=False, end_inclusive=True)
    assert [cell[0] for cell in read(new, row_set=wanted)] == [b"phone#b#1", b"tablet#a#1"]
    prefixed = RowSet()
    prefixed.add_row_range_with_prefix("phone#a")
    assert [cell[0] for cell in read(new, row_set=prefixed)] == keys[:2]
    new.drop_by_prefix(b"phone#a")
    assert [cell[0] for cell in read(new)] == keys[2:]
    new.truncate()
    assert read(new) == []


@test
def every_filter_leaves_its_cells():
    new = table(("cell_plan", "stats"))
    key = b"phone#4c410523#20190501"
    write(new, key, "cell_plan", b"data_plan_01gb", [b"true", b"false"])
    write(new, key, "stats", b"connected_cell", [b"1", b"10"])
    write(new, key, "stats", b"os_build", [b"PQ2A.190405.003"])
    oldest = row_filters.TimestampRange(end=minute(1))
    cases = [
        (row_filters.PassAllFilter(True), 5),
        (row_filters.BlockAllFilter(True), 0),
        (row_filters.RowKeyRegexFilter(".*#20190501$"), 5),
        (row_filters.RowKeyRegexFilter(".*#2019050[2-9]$"), 0),
        (row_filters.FamilyNameRegexFilter("stats.*$"), 3),
        (row_filters.ColumnQualifierRegexFilter("connected_.*$"), 2),
        (row_filters.ColumnRangeFilter("cell_plan", b"data_plan_01gb", b"data_plan_10gb", inclusive_end=False), 2),
        (row_filters.ValueRegexFilter("PQ2A.*$"), 1),
        (row_filters.ExactValueFilter(b"10"), 1),
        (row_filters.ValueRangeFilter(b"1", b"10", inclusive_end=False), 1),
        (row_filters.TimestampRangeFilter(oldest), 3),
        (row_filters.CellsRowOffsetFilter(2), 3),
        (row_filters.CellsRowLimitFilter(2), 2),
        (row_filters.CellsColumnLimitFilter(1), 3),
        (row_filters.RowFilterChain([
            row_filters.CellsColumnLimitFilter(1), row_filters.FamilyNameRegexFilter("cell_plan")]), 1),
        (row_filters.RowFilterUnion([
            row_filters.ValueRegexFilter("true"), row_filters.ColumnQualifierRegexFilter("os_build")]), 2),
        (row_filters.ConditionalRowFilter(
            row_filters.RowFilterChain([
                row_filters.ColumnQualifierRegexFilter("data_plan_01gb"), row_filters.ValueRegexFilter("true")]),
            true_filter=row_filters.ApplyLabelFilter("passed-filter"),
            false_filter=row_filters.BlockAllFilter(True)), 5),
    ]
    for filter_, count in cases:
        found = values(new, filter_)
        assert len(found) == count, (filter_.to_pb(), found)
    stripped = values(new, row_filters.StripValueTransformerFilter(True))
    assert stripped == [b""] * 5
    labelled = new.read_row(key, filter_=row_filters.ApplyLabelFilter("one"))
    assert labelled.cells["stats"][b"os_build"][0].labels == ["one"]
    raises(InvalidArgument, lambda: values(new, row_filters.ValueRegexFilter("(")))
    for number in range(100):
        write(new, f"sample{number:03}".encode(), "stats", b"q", [b"x"])
    assert 20 < len(values(new, row_filters.RowSampleFilter(0.5))) < 85


@test
def cells_columns_families_and_rows_are_deleted():
    new = table(("stats", "meta"))

    def fill():
        write(new, b"k", "stats", b"a", [b"1", b"2"])
        write(new, b"k", "stats", b"b", [b"3"])
        write(new, b"k", "meta", b"a", [b"4"])

    def left(change):
        fill()
        row = new.direct_row(b"k")
        change(row)
        assert row.commit().code == 0
        return values(new, None)

    first = row_filters.TimestampRange(start=minute(0), end=minute(1))
    assert left(lambda row: row.delete_cell("stats", b"a", time_range=first)) == [b"4", b"2", b"3"]
    assert left(lambda row: row.delete_cell("stats", b"a")) == [b"4", b"3"]
    assert left(lambda row: row.delete_cells("stats", row.ALL_COLUMNS)) == [b"4"]
    assert left(lambda row: row.delete()) == []


@test
def rows_change_by_what_they_are():
    new = table()
    write(new, b"k", "stats", b"os", [b"PQ2A.1"])
    row = new.conditional_row(b"k", row_filters.ValueRegexFilter("PQ2A.*"))
    row.set_cell("stats", b"go", b"yes", state=True)
    row.set_cell("stats", b"go", b"no", state=False)
    assert row.commit() is True
    assert new.read_row(b"k").cell_value("stats", b"go") == b"yes"
    other = new.conditional_row(b"other", row_filters.PassAllFilter(True))
    other.set_cell("stats", b"go", b"no", state=False)
    assert other.commit() is False
    assert new.read_row(b"other").cell_value("stats", b"go") == b"no"
    for _ in range(3):
        row = new.append_row(b"k")
        row.increment_cell_value("stats", b"count", 2)
        row.append_cell_value("stats", b"os", b"+")
        written = row.commit()
    assert written["stats"][b"count"][0][0] == (6).to_bytes(8, "big")
    assert written["stats"][b"os"][0][0] == b"PQ2A.1+++"


@test
def the_client_of_data_reads_and_writes():
    new = table(splits=[b"m"])
    with data.BigtableDataClient(project=PROJECT) as client, client.get_table(INSTANCE, new.table_id) as target:
        target.mutate_row(b"k", [data.SetCell("stats", b"q", b"v", timestamp_micros=1_000_000)])
        entries = [
            data.RowMutationEntry(f"z{number:02}".encode(), data.SetCell("stats", b"n", number)) for number in range(50)]
        target.bulk_mutate_rows(entries)
        cell = target.read_row(b"k").get_cells("stats", b"q")[0]
        assert (cell.value, cell.timestamp_micros) == (b"v", 1_000_000)
        query = data.ReadRowsQuery(row_ranges=data.RowRange(b"z10", b"z20"), limit=5)
        assert [row.row_key for row in target.read_rows(query)] == [f"z{number}".encode() for number in range(10, 15)]
        assert target.row_exists(b"k") and not target.row_exists(b"nothing")
        assert [key for key, _ in target.sample_row_keys()] == [b"m", b""]
        is_v = data_filters.ValueRegexFilter(b"v")
        change = data.SetCell("stats", b"q", b"w", timestamp_micros=1_000_000)
        assert target.check_and_mutate_row(b"k", is_v, true_case_mutations=change)
        assert not target.check_and_mutate_row(b"k", is_v, true_case_mutations=change)
        rules = [IncrementRule("stats", b"count", 5), AppendValueRule("stats", b"q", b"!")]
        row = target.read_modify_write_row(b"k", rules)
        assert row.get_cells("stats", b"q")[0].value == b"w!"
        target.mutate_row(b"k", [data.DeleteAllFromRow()])
        assert target.read_row(b"k") is None


@test
def the_asynchronous_client_counts_every_increment():
    new = table()

    async def run():
        async with data.BigtableDataClientAsync(project=PROJECT) as client:
            async with client.get_table(INSTANCE, new.table_id) as target:
                one = [IncrementRule("stats", b"count", 1)]
                await asyncio.gather(*(target.read_modify_write_row(b"k", one) for _ in range(100)))
                row = await target.read_row(b"k", row_filter=data_filters.CellsColumnLimitFilter(1))
                assert int.from_bytes(row.get_cells("stats", b"count")[0].value, "big") == 100
                keys = [row.row_key async for row in await target.read_rows_stream(data.ReadRowsQuery())]
                assert keys == [b"k"]

    asyncio.run(run())


def aggregate(aggregator):
    """A family of numbers, as in Google's samples."""
    number = Type(int64_type={"encoding": {"big_endian_bytes": {}}})
    return ColumnFamily(value_type=Type(aggregate_type=Type.Aggregate(input_type=number, **{aggregator: {}})))


def table_of_aggregates(families):
    """A new table with families of aggregates, made by the messages of the API."""
    instance = CLIENT.instance(INSTANCE)
    new = instance.table(f"t_{uuid.uuid4().hex[:10]}")
    request = {
        "parent": instance.name,
        "table_id": new.table_id,
        "table": Table(column_families={name: aggregate(kind) for name, kind in families.items()}),
    }
    CLIENT.table_admin_client.create_table(request=request)
    return new


@test
def numbers_are_added_to_cells_of_aggregate_families():
    new = table_of_aggregates({"counters": "sum", "low": "min_", "high": "max_"})
    new.column_family("stats").create()
    admin = CLIENT.table_admin_client
    families = admin.get_table(request={"name": new.name}).column_families
    kind = families["counters"].value_type.aggregate_type
    assert "sum" in kind and "big_endian_bytes" in kind.state_type.int64_type.encoding, kind
    assert "min_" in families["low"].value_type.aggregate_type
    assert not families["stats"].value_type
    with data.BigtableDataClient(project=PROJECT) as client, client.get_table(INSTANCE, new.table_id) as target:
        key = b"unique_device_ids_1"

        def add(family, value, time=0):
            return data.AddToCell(family, "odometer", value, timestamp_micros=time)

        def number(family):
            return [int.from_bytes(cell.value, "big", signed=True) for cell in target.read_row(key).get_cells(family)]

        # As write_aggregate of the samples does.
        with target.mutations_batcher() as batcher:
            batcher.append(data.RowMutationEntry(key, [add("counters", 32304)]))
        target.mutate_row(key, [add("counters", -4), add("low", 5), add("high", 5), data.SetCell("stats", b"q", b"v")])
        target.mutate_row(key, [add("counters", 7, time=1_000), add("low", 9), add("high", 9)])
        assert (number("counters"), number("low"), number("high")) == ([7, 32300], [5], [9])
        assert target.check_and_mutate_row(
            key, data_filters.PassAllFilter(True), true_case_mutations=[add("counters", 1)])
        merge = {
            "family_name": "counters",
            "column_qualifier": {"raw_value": b"odometer"},
            "timestamp": {"raw_timestamp_micros": 0},
            "input": {"raw_value": (100).to_bytes(8, "big")},
        }
        request = {"table_name": new.name, "row_key": key, "mutations": [{"merge_to_cell": merge}]}
        CLIENT.table_data_client.mutate_row(request=request)
        assert number("counters") == [7, 32401]
        target.mutate_row(key, [data.DeleteAllFromFamily("counters"), add("counters", 3)])
        assert number("counters") == [3]
        raises(InvalidArgument, lambda: target.mutate_row(key, [data.SetCell("counters", b"odometer", 1)]))
        raises(InvalidArgument, lambda: target.mutate_row(key, [add("stats", 1)]))
        raises(InvalidArgument, lambda: target.read_modify_write_row(key, [IncrementRule("counters", b"odometer", 1)]))


@test
def an_aggregate_stays_what_it_is():
    new = table_of_aggregates({"counters": "sum"})
    new.column_family("counters", gc_rule=column_family.MaxVersionsGCRule(3)).update()
    admin = CLIENT.table_admin_client
    family = admin.get_table(request={"name": new.name}).column_families["counters"]
    assert family.gc_rule.max_num_versions == 3 and "sum" in family.value_type.aggregate_type

    def modify(**modification):
        change = ModifyColumnFamiliesRequest.Modification(id=modification.pop("id"), **modification)
        return admin.modify_column_families(request={"name": new.name, "modifications": [change]})

    assert "max_" in modify(id="high", create=aggregate("max_")).column_families["high"].value_type.aggregate_type
    raises(InvalidArgument, lambda: modify(id="counters", update=aggregate("max_")))
    refused = raises(MethodNotImplemented, lambda: modify(id="many", create=aggregate("hllpp_unique_count")))
    assert "hllpp_unique_count" in str(refused)


@test
def additions_of_many_clients_are_all_counted():
    new = table_of_aggregates({"counters": "sum"})

    async def run():
        async with data.BigtableDataClientAsync(project=PROJECT) as client:
            async with client.get_table(INSTANCE, new.table_id) as target:
                one = data.AddToCell("counters", b"count", 1, timestamp_micros=0)
                await asyncio.gather(*(target.mutate_row(b"k", [one]) for _ in range(100)))
                cells = (await target.read_row(b"k")).get_cells("counters", b"count")
                assert [int.from_bytes(cell.value, "big") for cell in cells] == [100]

    asyncio.run(run())


@test
def an_increment_counts_on_from_the_newest_of_many_cells():
    new = table()
    with data.BigtableDataClient(project=PROJECT) as client, client.get_table(INSTANCE, new.table_id) as target:
        cells = [data.SetCell("stats", b"n", number, timestamp_micros=number * 1_000) for number in range(8_000)]
        target.mutate_row(b"k", cells)
        began = time.monotonic()
        for _ in range(10):
            row = target.read_modify_write_row(b"k", [IncrementRule("stats", b"n", 1)])
        assert int.from_bytes(row.get_cells("stats", b"n")[0].value, "big") == 8_009
        assert time.monotonic() - began < 10


@test
def a_large_row_is_read_in_parts():
    new = table()
    row = new.direct_row(b"a")
    row.set_cell("stats", b"small", b"1")
    row.commit()
    for number in range(20):
        row = new.direct_row(b"large")
        row.set_cell("stats", f"q{number:02}".encode(), bytes([number]) * (1 << 20))
        row.commit()
    with data.BigtableDataClient(project=PROJECT) as client, client.get_table(INSTANCE, new.table_id) as target:
        for rows in (list(new.read_rows()), target.read_rows(data.ReadRowsQuery())):
            assert [row.row_key for row in rows] == [b"a", b"large"]
        large = target.read_row(b"large")
        assert [cell.value[0] for cell in large] == list(range(20))


def main():
    wanted = sys.argv[1:]
    passed = failed = 0
    for function in TESTS:
        if wanted and function.__name__ not in wanted:
            continue
        began = time.monotonic()
        try:
            function()
            passed += 1
        except Exception:
            failed += 1
            print(f"-- {function.__name__} failed after {time.monotonic() - began:.1f} s")
            traceback.print_exc(limit=-4, file=sys.stdout)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
