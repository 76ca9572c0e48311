"""Clients of PostgreSQL against a running server: psycopg 3, psycopg2, asyncpg, ADBC, JDBC, node-postgres,
SQLAlchemy, pandas, psql.

PARTITA_PG is the server's DSN. Prints what failed, and 'N passed, M failed' at the end.
"""

import asyncio
import datetime as dt
import decimal
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import traceback
import uuid

import psycopg
import psycopg.errors
import psycopg2
import psycopg2.extras

DSN = os.environ["PARTITA_PG"]
PARTS = dict(re.findall(r"(\w+)=(\S+)", DSN))
UTC = dt.timezone.utc
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def name(prefix):
    """A table name nobody else has."""
    return f"{prefix}_{uuid.uuid4().hex[:10]}"


def make(connection, columns, prefix="t"):
    table = name(prefix)
    connection.execute(f"CREATE TABLE {table} ({columns})")
    return table


EVENTS = "host TEXT, ts TIMESTAMP(6) TIME INDEX, v DOUBLE PRECISION, n BIGINT, PRIMARY KEY (host)"


def raises(error, function):
    try:
        function()
    except error as raised:
        return raised
    raise AssertionError(f"{error.__name__} was not raised")


def connect(**options):
    return psycopg.connect(DSN, autocommit=True, **options)


# psycopg 3


@test
def psycopg_knows_the_server():
    with connect() as c:
        assert c.info.server_version == 150018, c.info.server_version
        assert c.info.encoding == "utf-8"
        assert c.info.parameter_status("TimeZone") == "UTC"
        assert c.info.parameter_status("standard_conforming_strings") == "on"
        assert c.execute("SELECT version()").fetchone()[0].startswith("PostgreSQL 15.18 (Partita ")


@test
def psycopg_sends_and_reads_every_type():
    columns = (
        "id INT, ts TIMESTAMP(6) TIME INDEX, b BOOLEAN, i2 SMALLINT, i8 BIGINT, f4 REAL, "
        "f8 DOUBLE PRECISION, s TEXT, y BYTEA, d DATE, z TIMESTAMPTZ, n DECIMAL(20, 5), "
        "u UUID, t TIME, PRIMARY KEY (id)"
    )
    moment = dt.datetime(2024, 2, 29, 12, 30, 45, 123456)
    rows = [
        (1, moment, True, -7, 2**60, 1.5, -2.25e-8, "häßlich 'quoted' \\", b"\x00\xff'\\", dt.date(1969, 12, 31),
         moment.replace(tzinfo=dt.timezone(dt.timedelta(hours=2))), decimal.Decimal("-12345.67890"),
         uuid.UUID(int=2**127 + 7), dt.time(23, 59, 59, 999999)),
        (2, moment, *[None] * 12),
        (3, dt.datetime(1999, 1, 1), False, 0, 0, 0.0, 1e300, "", b"", dt.date(2000, 1, 1),
         dt.datetime(2000, 1, 1, tzinfo=UTC), decimal.Decimal("0.00001"),
         uuid.UUID(int=0), dt.time(0)),
    ]
    with connect() as c:
        table = make(c, columns)
        cursor = c.cursor()
        marks = ", ".join(["%s"] * 14)
        for row in rows:
            cursor.execute(f"INSERT INTO {table} VALUES ({marks})", row)
            assert cursor.rowcount == 1
        for binary in (False, True):
            got = c.cursor(binary=binary).execute(f"SELECT * FROM {table} ORDER BY id").fetchall()
            assert got == rows, (binary, got)
        marks = ", ".join(["%b"] * 14)
        cursor.execute(f"INSERT INTO {table} VALUES ({marks})", (4, *rows[0][1:]))
        got = c.execute(f"SELECT * FROM {table} WHERE id = %s", (4,)).fetchone()
        assert got == (4, *rows[0][1:]), got
        got = c.execute(f"SELECT id FROM {table} WHERE u = %s AND t > %s", (rows[0][12], dt.time(12))).fetchall()
        assert got == [(1,), (4,)] or got == [(4,), (1,)], got
        c.execute(f"DROP TABLE {table}")


@test
def unsigned_integers_come_as_the_next_larger_type():
    with connect() as c:
        table = make(c, "ts TIMESTAMP TIME INDEX, a UINT8, b UINT16, c UINT32, d UINT64")
        c.execute(f"INSERT INTO {table} VALUES ('2024-01-01', 255, 65535, 4294967295, 18446744073709551615)")
        for binary in (False, True):
            cursor = c.cursor(binary=binary).execute(f"SELECT a, b, c, d FROM {table}")
            assert [column.type_code for column in cursor.description] == [21, 23, 20, 1700]
            assert cursor.fetchone() == (255, 65535, 4294967295, 18446744073709551615)
        c.execute(f"INSERT INTO {table} VALUES ('2024-01-02', %s, %s, %s, %s)", (1, 2, 3, 2**64 - 1))
        assert c.execute(f"SELECT d FROM {table} WHERE a = 1").fetchone() == (2**64 - 1,)
        c.execute(f"DROP TABLE {table}")


@test
def columns_are_named_as_postgres_names_them():
    with connect() as c:
        table = make(c, EVENTS)
        c.execute(f"INSERT INTO {table} VALUES ('a', '2024-01-01', 1, 2)")
        text = f"SELECT count(*), max(n)::int, n + 1, *, date_trunc('day', ts), 1 AS one, n, n FROM {table} GROUP BY host, ts, v, n"
        named = ["count", "max", "?column?", "host", "ts", "v", "n", "date_trunc", "one", "n", "n"]
        names = lambda cursor: [column.name for column in cursor.description]
        assert names(c.execute(text)) == named, names(c.execute(text))
        assert names(c.execute(text, prepare=True)) == named
        with c.transaction(), c.cursor("fetched") as cursor:
            assert names(cursor.execute(text)) == named
        with c.cursor().copy(f"COPY ({text}) TO STDOUT WITH (FORMAT csv, HEADER)") as copy:
            lines = b"".join(bytes(part) for part in copy).decode().splitlines()
        assert lines[0] == ",".join(named) and len(lines) == 2, lines
        rows = c.cursor(row_factory=psycopg.rows.dict_row).execute(f"SELECT count(*), sum(n) FROM {table}").fetchall()
        assert rows == [{"count": 1, "sum": 2}], rows
        c.execute(f"DROP TABLE {table}")


@test
def executemany_and_pipelines_write_every_row():
    with connect() as c:
        table = make(c, EVENTS)
        start = dt.datetime(2024, 1, 1)
        rows = [(f"h{i % 7}", start + dt.timedelta(seconds=i), i / 2, i) for i in range(5000)]
        cursor = c.cursor()
        began = time.monotonic()
        cursor.executemany(f"INSERT INTO {table} VALUES (%s, %s, %s, %s)", rows)
        took = time.monotonic() - began
        assert cursor.rowcount == 5000, cursor.rowcount
        assert c.execute(f"SELECT count(*), sum(n) FROM {table}").fetchone() == (5000, sum(range(5000)))
        assert took < 120, f"executemany of 5000 rows took {took:.1f} s"
        with c.pipeline() as pipeline:
            answers = [c.execute(f"SELECT n FROM {table} WHERE n = %s", (i,)) for i in range(50)]
            c.execute(f"INSERT INTO {table} VALUES ('x', %s, 1, -1)", (start,))
            seen = c.execute(f"SELECT n FROM {table} WHERE host = 'x'")
            pipeline.sync()
            assert [answer.fetchone()[0] for answer in answers] == list(range(50))
            assert seen.fetchone() == (-1,)
        c.execute(f"DROP TABLE {table}")


@test
def an_error_in_a_pipeline_leaves_the_connection_usable():
    with connect() as c:
        table = make(c, "ts TIMESTAMP TIME INDEX, n BIGINT NOT NULL")
        def fail():
            c.cursor().executemany(
                f"INSERT INTO {table} VALUES (%s, %s)", [("2024-01-01", 1), ("2024-01-02", None)])
        raises(psycopg.errors.NotNullViolation, fail)
        assert c.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
        c.execute(f"DROP TABLE {table}")


@test
def server_side_prepared_statements_survive_a_new_column():
    with connect(prepare_threshold=1) as c:
        table = make(c, EVENTS)
        for i in range(10):
            c.execute(f"INSERT INTO {table} VALUES (%s, %s, %s, %s)", ("a", dt.datetime(2024, 1, 1 + i), i, i))
            assert c.execute(f"SELECT count(*) FROM {table} WHERE n >= %s", (0,)).fetchone() == (i + 1,)
        c.execute(f"ALTER TABLE {table} ADD COLUMN extra TEXT")
        assert c.execute(f"SELECT extra FROM {table} WHERE n = %s", (3,)).fetchone() == (None,)
        c.execute(f"DROP TABLE {table}")


@test
def times_are_shown_in_the_time_zone_of_the_session():
    with connect() as c:
        c.execute("SET TIME ZONE 'Europe/Berlin'")
        assert c.info.parameter_status("TimeZone") == "Europe/Berlin"
        table = make(c, "z TIMESTAMPTZ TIME INDEX")
        c.execute(f"INSERT INTO {table} VALUES (%s)", (dt.datetime(2024, 7, 1, 10, tzinfo=UTC),))
        for binary in (False, True):
            (got,) = c.cursor(binary=binary).execute(f"SELECT z FROM {table}").fetchone()
            assert got == dt.datetime(2024, 7, 1, 10, tzinfo=UTC) and got.utcoffset() == dt.timedelta(hours=2), got
        raw = c.pgconn.exec_(f"SELECT z FROM {table}".encode()).get_value(0, 0)
        assert raw == b"2024-07-01 12:00:00+02", raw
        c.execute(f"DROP TABLE {table}")


@test
def copy_in_and_out_in_text_csv_and_binary():
    rows = [("a", dt.datetime(2024, 1, 1), 1.5, 1), ("b\tc\\d", dt.datetime(2024, 1, 2), None, 2),
            ("ö", dt.datetime(2024, 1, 3), -0.25, None)]
    with connect() as c:
        for binary in (False, True):
            table = make(c, EVENTS)
            form = " WITH (FORMAT binary)" if binary else ""
            types = ["text", "timestamp", "float8", "int8"]
            with c.cursor().copy(f"COPY {table} (host, ts, v, n) FROM STDIN{form}") as copy:
                copy.set_types(types)
                for row in rows:
                    copy.write_row(row)
            with c.cursor().copy(f"COPY (SELECT host, ts, v, n FROM {table} ORDER BY n) TO STDOUT{form}") as copy:
                copy.set_types(types)
                assert list(copy.rows()) == rows
            c.execute(f"DROP TABLE {table}")
        table = make(c, EVENTS)
        many = "".join(f"h{i},2024-01-01 00:00:00.{i:06},{i},{i}\n" for i in range(20000))
        with c.cursor().copy(f"COPY {table} FROM STDIN WITH (FORMAT csv, HEADER)") as copy:
            copy.write("host,ts,v,n\n" + many)
        assert c.execute(f"SELECT count(*), sum(n) FROM {table}").fetchone() == (20000, sum(range(20000)))
        with c.cursor().copy(f"COPY {table} TO STDOUT WITH (FORMAT csv, HEADER)") as copy:
            text = b"".join(copy).decode()
        assert text.startswith("host,ts,v,n\n") and text.count("\n") == 20001
        with c.cursor().copy(f"COPY (SELECT * FROM {table} WHERE n < 0) TO STDOUT WITH (FORMAT csv, HEADER)") as copy:
            assert b"".join(copy) == b"host,ts,v,n\n"
        def bad():
            with c.cursor().copy(f"COPY {table} FROM STDIN") as copy:
                copy.write("a\t2024-01-01\tnumber\t1\n")
        error = raises(psycopg.errors.InvalidTextRepresentation, bad)
        assert "line 1" in str(error), error
        def stop():
            with c.cursor().copy(f"COPY {table} FROM STDIN") as copy:
                copy.write("zzz\t2024-01-01\t1\t1\n")
                raise ValueError("changed my mind")
        raises(ValueError, stop)
        assert c.execute(f"SELECT count(*) FROM {table}").fetchone() == (20000,)
        c.execute(f"DROP TABLE {table}")


@test
def named_cursors_fetch_in_parts():
    with psycopg.connect(DSN) as c:
        with c.cursor(name="parts") as cursor:
            cursor.itersize = 100
            cursor.execute("SELECT value FROM generate_series(1, 1000)")
            assert cursor.fetchmany(10) == [(i,) for i in range(1, 11)]
            assert sum(1 for _ in cursor) == 990
        c.rollback()


@test
def a_running_statement_is_cancelled():
    with connect() as c:
        def cancelled(work):
            """Cancels again and again: what comes before the statement runs does nothing to it."""
            over = threading.Event()
            def cancel():
                while not over.wait(0.5):
                    c.cancel()
            canceller = threading.Thread(target=cancel)
            canceller.start()
            raises(psycopg.errors.QueryCanceled, work)
            over.set()
            canceller.join()
            # One that is still on its way may end what comes next.
            for _ in range(10):
                try:
                    assert c.execute("SELECT 1").fetchone() == (1,)
                    return
                except psycopg.errors.QueryCanceled:
                    pass
            assert c.execute("SELECT 1").fetchone() == (1,)
        began = time.monotonic()
        query = "SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 1000000) b WHERE a.value + b.value = 0"
        cancelled(lambda: c.execute(query))
        assert time.monotonic() - began < 60
        # Also while rows are on their way.
        def stream():
            for _ in c.cursor().stream("SELECT value FROM generate_series(1, 1000000000)"):
                pass
        cancelled(stream)
        c.execute("SET statement_timeout = '300ms'")
        raises(psycopg.errors.QueryCanceled, lambda: c.execute(query))


@test
def errors_have_their_classes():
    e = psycopg.errors
    with connect() as c:
        table = make(c, "ts TIMESTAMP TIME INDEX, n BIGINT NOT NULL")
        cases = [
            (e.UndefinedColumn, f"SELECT nothing FROM {table}", ()),
            (e.UndefinedTable, "SELECT * FROM there_is_none", ()),
            (e.SyntaxError, "SELEC 1", ()),
            (e.NotNullViolation, f"INSERT INTO {table} VALUES ('2024-01-01', NULL)", ()),
            (e.NotNullViolation, f"INSERT INTO {table} VALUES (%s, %s)", ("2024-01-01", None)),
            (e.DivisionByZero, "SELECT 1 / 0", ()),
            (e.UndefinedFunction, "SELECT there_is_none(1)", ()),
            (e.InvalidTextRepresentation, f"INSERT INTO {table} VALUES ('2024-01-01', 'x')", ()),
            (e.DuplicateTable, f"CREATE TABLE {table} (ts TIMESTAMP TIME INDEX)", ()),
            (e.FeatureNotSupported, f"CREATE TRIGGER x AFTER INSERT ON {table} EXECUTE FUNCTION f()", ()),
        ]
        for error, sql, parameters in cases:
            raised = raises(error, lambda: c.execute(sql, parameters or None))
            assert raised.diag.message_primary
            assert c.execute("SELECT 1").fetchone() == (1,)
        c.execute(f"DROP TABLE {table}")
    raises(psycopg.OperationalError, lambda: psycopg.connect(DSN, dbname="there_is_none"))


@test
def transaction_blocks_are_followed():
    status = psycopg.pq.TransactionStatus
    with psycopg.connect(DSN) as c:
        c.execute("SELECT 1")
        assert c.info.transaction_status == status.INTRANS
        raises(psycopg.errors.UndefinedTable, lambda: c.execute("SELECT * FROM there_is_none"))
        assert c.info.transaction_status == status.INERROR
        raises(psycopg.errors.InFailedSqlTransaction, lambda: c.execute("SELECT 1"))
        c.rollback()
        assert c.info.transaction_status == status.IDLE
        with c.transaction():
            with c.transaction():
                assert c.execute("SELECT 1").fetchone() == (1,)
        c.commit()


@test
def lists_go_to_and_fro():
    with connect() as c:
        for binary in (False, True):
            cursor = c.cursor(binary=binary)
            assert cursor.execute("SELECT make_array(1, NULL, 3), make_array('a b', '\"', '')").fetchone() == (
                [1, None, 3], ["a b", '"', ""])
        got = c.execute("SELECT value FROM generate_series(1, 9) WHERE value = ANY(%s) ORDER BY 1", ([2, 5, 77],))
        assert got.fetchall() == [(2,), (5,)]


@test
def parameters_have_the_types_that_are_declared():
    with connect() as c:
        table = make(c, "id INT PRIMARY KEY, s TEXT, tz TIMESTAMPTZ")
        c.execute(f"INSERT INTO {table} VALUES (1, 'a', '2024-07-01 10:00+00'), (2, 'b', NULL)")
        for binary in (False, True):
            cursor = c.cursor(binary=binary)
            ask = lambda sql, *values: cursor.execute(sql, values).fetchall()
            for value in (5, 2**40, 1.5, "x", True, None, dt.date(2024, 2, 29),
                          dt.datetime(2024, 2, 29, 12, 30, 45, 123456)):
                assert ask("SELECT %s", value) == [(value,)], value
            assert ask(f"SELECT %s, id FROM {table} WHERE id = %s", 5, 1) == [(5, 1)]
            assert ask("SELECT %s::bigint, %s::text, %s::timestamptz", "7", 8, "2024-07-01 10:00+00") == [
                (7, "8", dt.datetime(2024, 7, 1, 10, tzinfo=UTC))]
            for given, ids in ((["a"], [1]), (["b", "a", None], [1, 2]), ([], []), (["z"], [])):
                assert ask(f"SELECT id FROM {table} WHERE s = ANY(%s) ORDER BY id", given) == [(i,) for i in ids]
            assert ask(f"SELECT id FROM {table} WHERE id = ANY(%s) ORDER BY id", [1, 2, 9]) == [(1,), (2,)]
            moment = dt.datetime(2024, 7, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))
            assert ask(f"SELECT id FROM {table} WHERE tz = %s", moment) == [(1,)]
        c.autocommit = False
        with c.cursor("named") as cursor:
            cursor.execute(f"SELECT id FROM {table} WHERE id < %s AND s <> %s", (5, "b"))
            assert cursor.fetchall() == [(1,)]
        c.rollback()
        c.autocommit = True
        c.execute(f"DROP TABLE {table}")


@test
def decimals_keep_their_digits():
    of = decimal.Decimal
    with connect() as c:
        table = make(c, "id INT PRIMARY KEY, n DECIMAL(20, 5), f DOUBLE PRECISION")
        c.execute(f"INSERT INTO {table} VALUES (%s, %s, %s)", (1, of("12.34"), of("1.5")))
        for mark in ("%s", "%b", "%t"):
            ask = lambda sql, *values: c.execute(sql.replace("%s", mark), values).fetchall()
            for value in (of("12.34"), of("-0.5"), of("123456789012345678901234567890.123"), of("0.00000000000000000001")):
                assert ask("SELECT %s", value) == [(value,)], (mark, value)
            assert ask("SELECT %s + 1", of("12.34")) == [(of("13.34"),)]
            assert ask("SELECT round(%s, 1)", of("12.35")) == [(of("12.4"),)]
            assert ask(f"SELECT id FROM {table} WHERE n = %s AND f = %s", of("12.34"), of("1.5")) == [(1,)]
            # Of more digits than the column, and beside whole numbers.
            assert ask(f"SELECT id FROM {table} WHERE n = %s", of("12.340001")) == []
            assert ask(f"SELECT id FROM {table} WHERE n < %s AND id < %s", of("12.340001"), of("1.5")) == [(1,)]
            assert ask(f"SELECT id FROM {table} WHERE n = ANY(%s)", [of("12.34"), of(3)]) == [(1,)]
        c.autocommit = False
        with c.cursor("named") as cursor:
            cursor.execute(f"SELECT id, %s, %s::text FROM {table} WHERE id = ANY(%s)", (of("1.5"), "q", [1, 2]))
            assert cursor.fetchall() == [(1, of("1.5"), "q")]
        c.rollback()
        c.autocommit = True
        c.execute(f"DROP TABLE {table}")


@test
def read_only_transactions_write_nothing():
    with connect() as c:
        table = make(c, "id INT PRIMARY KEY")
        c.read_only = True
        c.autocommit = False
        raises(psycopg.errors.ReadOnlySqlTransaction, lambda: c.execute(f"INSERT INTO {table} VALUES (1)"))
        c.rollback()
        assert c.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
        c.rollback()
        c.read_only = None
        c.execute(f"INSERT INTO {table} VALUES (1)")
        c.commit()
        c.autocommit = True
        heard = []
        c.add_notice_handler(lambda notice: heard.append(notice.message_primary))
        c.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
        assert any("READ COMMITTED" in message for message in heard), heard
        assert c.execute("SHOW transaction_isolation").fetchone() == ("read committed",)
        c.execute("COMMIT")
        c.execute(f"DROP TABLE {table}")


# psycopg2


@test
def psycopg2_reads_the_time():
    c = psycopg2.connect(DSN)
    c.autocommit = True
    cursor = c.cursor()
    cursor.execute("SELECT now(), current_timestamp, now() - now(), pg_typeof(now())")
    now, also, none, of = cursor.fetchone()
    assert abs(now - dt.datetime.now(UTC)) < dt.timedelta(minutes=5) and now == also, now
    assert none == dt.timedelta(0) and of == "timestamp with time zone", (none, of)
    cursor.execute("SET TIME ZONE 'Asia/Tokyo'")
    cursor.execute("SELECT now()")
    assert cursor.fetchone()[0].utcoffset() == dt.timedelta(hours=9)
    c.close()


@test
def psycopg2_inserts_values():
    c = psycopg2.connect(DSN)
    c.autocommit = True
    cursor = c.cursor()
    table = name("t")
    cursor.execute(f"CREATE TABLE {table} ({EVENTS})")
    start = dt.datetime(2024, 1, 1)
    rows = [(f"it's {i}", start + dt.timedelta(seconds=i), i / 4, i) for i in range(1000)]
    psycopg2.extras.execute_values(cursor, f"INSERT INTO {table} VALUES %s", rows)
    cursor.execute(f"SELECT * FROM {table} ORDER BY n")
    assert cursor.fetchall() == rows
    psycopg2.extras.execute_batch(
        cursor, f"INSERT INTO {table} VALUES (%s, %s, %s, %s)", [("x", start, None, -i) for i in range(10)])
    cursor.execute(f"SELECT n FROM {table} WHERE host = 'x'")
    assert cursor.fetchall() == [(-9,)]
    c.autocommit = False
    with c.cursor(name="parts") as named:
        named.execute(f"SELECT n FROM {table}")
        assert len(named.fetchall()) == 1001
    c.rollback()
    import io
    cursor.copy_expert(f"COPY {table} FROM STDIN", io.StringIO("y\t2024-01-01 00:00:00\t\\N\t7\n"))
    c.commit()
    cursor.execute(f"DROP TABLE {table}")
    c.commit()
    c.close()


# asyncpg


@test
def asyncpg_speaks_binary():
    import asyncpg

    async def run():
        c = await asyncpg.connect(host=PARTS["host"], port=int(PARTS["port"]), user=PARTS["user"],
                                  database=PARTS["dbname"])
        table = name("t")
        await c.execute(f"CREATE TABLE {table} ({EVENTS})")
        start = dt.datetime(2024, 1, 1)
        rows = [("a", start + dt.timedelta(seconds=i), i / 2, i) for i in range(1000)]
        await c.executemany(f"INSERT INTO {table} VALUES ($1, $2, $3, $4)", rows)
        got = await c.fetch(f"SELECT * FROM {table} WHERE n < $1 ORDER BY n", 5)
        assert [tuple(row) for row in got] == rows[:5], got
        await c.copy_records_to_table(table, records=[("b", start, None, None)], columns=["host", "ts", "v", "n"])
        assert await c.fetchval(f"SELECT count(*) FROM {table}") == 1001
        async with c.transaction():
            cursor = await c.cursor(f"SELECT n FROM {table} ORDER BY n")
            assert len(await cursor.fetch(10)) == 10
        await c.execute(f"DROP TABLE {table}")
        await c.close()

    asyncio.run(run())


@test
def asyncpg_pools_look_up_types_and_give_connections_back_clean():
    import asyncpg

    async def run():
        pool = await asyncpg.create_pool(host=PARTS["host"], port=int(PARTS["port"]), user=PARTS["user"],
                                         database=PARTS["dbname"], min_size=2, max_size=4)
        async with pool.acquire() as c:
            table = name("t")
            await c.execute(f"CREATE TABLE {table} ({EVENTS})")

        async def write(number):
            async with pool.acquire() as c:
                await c.execute("SET TIME ZONE 'Europe/Berlin'")
                row = (f"h{number}", dt.datetime(2024, 1, 1 + number), number / 2, number)
                await c.execute(f"INSERT INTO {table} VALUES ($1, $2, $3, $4)", *row)
                return await c.fetchval(f"SELECT count(*) FROM {table} WHERE n = $1", number)

        assert await asyncio.gather(*(write(number) for number in range(20))) == [1] * 20
        async with pool.acquire() as c:
            # What a connection was set to ends with its use.
            assert await c.fetchval("SHOW TimeZone") == "UTC"
            # Types that the driver does not know are looked up, of parameters as of results.
            assert await c.fetchval("SELECT array_agg(n ORDER BY n) FROM " + table) == list(range(20))
            rows = await c.fetch(f"SELECT n FROM {table} WHERE n = ANY($1::bigint[]) ORDER BY n", [3, 5, 99])
            assert [row["n"] for row in rows] == [3, 5]
            rows = await c.fetch(f"SELECT n FROM {table} WHERE host = ANY($1) ORDER BY n", ["h1", "h2"])
            assert [row["n"] for row in rows] == [1, 2]
        await pool.close()
        c = await asyncpg.connect(host=PARTS["host"], port=int(PARTS["port"]), user=PARTS["user"],
                                  database=PARTS["dbname"])
        for type_name, values in [
            ("int", [1, None, -2]), ("smallint", [3]), ("bigint", [2**60]), ("text", ["a", 'b "c"', None]),
            ("double precision", [1.5, float("inf")]), ("real", [0.5]), ("boolean", [True, False]),
            ("bytea", [b"\x00\xff"]), ("date", [dt.date(2024, 2, 29)]),
            ("timestamp", [dt.datetime(2024, 2, 29, 1, 2, 3, 456789)]),
            ("timestamptz", [dt.datetime(2024, 2, 29, tzinfo=UTC)]),
            ("interval", [dt.timedelta(days=1, seconds=2)]),
        ]:
            assert await c.fetchval(f"SELECT $1::{type_name}[]", values) == values, type_name
            assert await c.fetchval(f"SELECT $1::{type_name}", values[0]) == values[0], type_name
        assert await c.fetchval("SELECT $1::numeric(10, 2)", decimal.Decimal("1.50")) == decimal.Decimal("1.50")
        await c.execute(f"DROP TABLE {table}")
        await c.close()

    asyncio.run(run())


@test
def asyncpg_finds_types_and_tables_by_their_numbers():
    import asyncpg

    async def run():
        c = await asyncpg.connect(host=PARTS["host"], port=int(PARTS["port"]), user=PARTS["user"],
                                  database=PARTS["dbname"])
        table = name("t")
        await c.execute(f"CREATE TABLE {table} ({EVENTS})")
        statement = await c.prepare("SELECT oid, typname FROM pg_type WHERE oid = ANY($1::oid[]) ORDER BY oid")
        assert [parameter.name for parameter in statement.get_parameters()] == ["oid[]"], statement.get_parameters()
        assert [column.type.name for column in statement.get_attributes()][0] == "oid"
        assert [tuple(row) for row in await statement.fetch([25, 23])] == [(23, "int4"), (25, "text")]
        assert await c.fetchval("SELECT typname FROM pg_type WHERE oid = $1::oid", 20) == "int8"
        numbers = await c.fetchval("SELECT array_agg(oid ORDER BY oid) FROM pg_type WHERE typname IN ('int4', 'text')")
        assert numbers == [23, 25], numbers
        assert await c.fetchval("SELECT atttypid::regtype::text FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
                                "WHERE c.relname = $1 AND a.attname = 'n'", table) == "bigint"
        # The driver's own query of types.
        records, _ = await c._introspect_types((1007, 1016, 23), None)
        found = {record["oid"]: record for record in records}
        assert set(found) == {1007, 1016, 23, 20}, found
        assert found[1007]["elemtype"] == 23 and found[1007]["elemtype_name"] == "integer", found[1007]
        # A recursive query gives a "char" as text: the driver looks at it for composites, domains and enums only.
        assert found[23]["kind"] in (b"b", "b") and found[23]["name"] == "int4" and found[23]["attrtypoids"] is None
        # A codec of one's own, found by the name of its type.
        await c.set_type_codec("int8", schema="pg_catalog", format="text", encoder=str, decoder=lambda text: f"<{text}>")
        assert await c.fetchval("SELECT 7::int8") == "<7>"
        await c.reset_type_codec("int8", schema="pg_catalog")
        assert await c.fetchval("SELECT 7::int8") == 7
        await c.execute(f"DROP TABLE {table}")
        await c.close()

    asyncio.run(run())


@test
def numbers_that_stand_alone_are_decimals():
    with connect() as c:
        for cursor in (c.cursor(), psycopg.ClientCursor(c)):
            got = cursor.execute("SELECT 1.10, -2.50, %s", (decimal.Decimal("3.30"),)).fetchone()
            assert [str(value) for value in got] == ["1.10", "-2.50", "3.30"], got
            assert all(isinstance(value, decimal.Decimal) for value in got), got


@test
def a_sleeping_statement_is_cancelled_and_times_out():
    with connect() as c:
        began = time.monotonic()
        assert c.execute("SELECT pg_sleep(0.2)").fetchone() == ("",)
        assert time.monotonic() - began >= 0.2
        canceller = threading.Timer(0.5, c.cancel)
        canceller.start()
        raises(psycopg.errors.QueryCanceled, lambda: c.execute("SELECT pg_sleep(60)"))
        canceller.join()
        c.execute("SET statement_timeout = '300ms'")
        raises(psycopg.errors.QueryCanceled, lambda: c.execute("SELECT pg_sleep(60)"))
        assert time.monotonic() - began < 20
    # Those who sleep keep nobody waiting.
    sleepers = [connect() for _ in range(24)]
    def sleep(of):
        try:
            of.execute("SELECT pg_sleep(30)")
        except psycopg.Error:
            pass
    threads = [threading.Thread(target=sleep, args=(of,)) for of in sleepers]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    with connect() as c:
        began = time.monotonic()
        assert c.execute("SELECT count(*) FROM generate_series(1, 1000)").fetchone() == (1000,)
        assert time.monotonic() - began < 5
    for of in sleepers:
        of.cancel()
    for thread, of in zip(threads, sleepers):
        thread.join()
        of.close()


# ADBC


@test
def adbc_reads_and_binds():
    import adbc_driver_postgresql.dbapi as adbc

    uri = f"postgresql://{PARTS['user']}@{PARTS['host']}:{PARTS['port']}/{PARTS['dbname']}"
    table = name("t")
    with connect() as c:
        c.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v DOUBLE PRECISION, s TEXT, y BYTEA)")
    with adbc.connect(uri, autocommit=True) as c, c.cursor() as cursor:
        cursor.execute("SELECT 1 AS one, 'x' AS s")
        assert cursor.fetchone() == (1, "x")
        cursor.execute(f"INSERT INTO {table} VALUES ($1, $2, $3, $4)", (1, 1.5, "a", b"\x00\xff"))
        cursor.executemany(f"INSERT INTO {table} VALUES ($1, $2, $3, $4)", [(2, None, "b", b""), (3, 2.5, None, None)])
        cursor.execute(f"SELECT id, v, s, y FROM {table} ORDER BY id")
        rows = cursor.fetch_arrow_table().to_pylist()
        assert [tuple(row.values()) for row in rows] == [
            (1, 1.5, "a", b"\x00\xff"), (2, None, "b", b""), (3, 2.5, None, None)], rows
        cursor.execute(f"SELECT id FROM {table} WHERE y = $1", (b"\x00\xff",))
        assert cursor.fetchall() == [(1,)]
        catalogs = c.adbc_get_objects(depth="all", table_name_filter=table).read_all().to_pylist()
        schemas = [schema for catalog in catalogs for schema in catalog["catalog_db_schemas"] or []]
        (found,) = [found for schema in schemas for found in schema["db_schema_tables"] or []]
        assert (found["table_name"], found["table_type"]) == (table, "table"), found
        # The driver asks for them without an order.
        columns = sorted(found["table_columns"], key=lambda column: column["ordinal_position"])
        assert [column["column_name"] for column in columns] == ["id", "v", "s", "y"], found
        (key,) = found["table_constraints"]
        assert (key["constraint_type"], key["constraint_column_names"]) == ("PRIMARY KEY", ["id"]), key
    with connect() as c:
        c.execute(f"DROP TABLE {table}")


# Other runtimes: scripts beside this one, which print what failed.


def runs(command, *, needs):
    """Runs a script of another runtime; says loudly what is missing on this machine."""
    missing = [what for what, there in needs.items() if not there]
    if missing:
        print(f"   SKIPPED {command[-1]}: not on this machine: {', '.join(missing)} (deploy/setup.sh installs them)")
        return
    done = subprocess.run([*command, PARTS["host"], PARTS["port"], PARTS["user"], PARTS["dbname"]],
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


HERE = os.path.dirname(os.path.abspath(__file__))


@test
def node_postgres_sends_arrays():
    folder = "/usr/share/nodejs"
    os.environ.setdefault("NODE_PATH", folder)
    runs(["node", f"{HERE}/node_postgres.js"],
         needs={"node": shutil.which("node"), "node-pg": os.path.isdir(f"{folder}/pg")})


@test
def jdbc_prepares_batches_and_reads_the_catalog():
    jar = "/usr/share/java/postgresql.jar"
    runs(["java", "-cp", jar, f"{HERE}/Jdbc.java"],
         needs={"java": shutil.which("java"), "libpostgresql-jdbc-java": os.path.exists(jar)})


# SQLAlchemy and pandas


def alchemy(driver):
    import pandas
    import sqlalchemy as sa

    url = f"postgresql+{driver}://{PARTS['user']}@{PARTS['host']}:{PARTS['port']}/{PARTS['dbname']}"
    engine = sa.create_engine(url)
    table = name("sa")
    with engine.connect() as c:
        c.execute(sa.text(
            f"CREATE TABLE {table} (host TEXT, ts TIMESTAMP(6) TIME INDEX, v DOUBLE PRECISION, "
            "n BIGINT NOT NULL DEFAULT 5, d DECIMAL(10, 2) COMMENT 'price', PRIMARY KEY (host))"))
        c.commit()
    look = sa.inspect(engine)
    assert table in look.get_table_names()
    assert look.has_table(table) and not look.has_table("there_is_none")
    assert "public" in look.get_schema_names()
    columns = {column["name"]: column for column in look.get_columns(table)}
    assert list(columns) == ["host", "ts", "v", "n", "d"]
    assert isinstance(columns["host"]["type"], sa.TEXT)
    assert isinstance(columns["ts"]["type"], sa.TIMESTAMP)
    assert isinstance(columns["v"]["type"], sa.DOUBLE_PRECISION)
    assert isinstance(columns["n"]["type"], sa.BIGINT)
    assert (columns["d"]["type"].precision, columns["d"]["type"].scale) == (10, 2)
    assert columns["n"]["nullable"] is False and columns["v"]["nullable"] is True
    assert columns["n"]["default"] == "5" and columns["d"]["comment"] == "price"
    assert look.get_pk_constraint(table)["constrained_columns"] == ["host", "ts"]
    assert look.get_indexes(table) == [] and look.get_foreign_keys(table) == []
    look.get_unique_constraints(table), look.get_check_constraints(table), look.get_table_comment(table)
    reflected = sa.Table(table, sa.MetaData(), autoload_with=engine)
    assert [column.name for column in reflected.primary_key] == ["host", "ts"]
    with engine.connect() as c:
        rows = [{"host": "a", "ts": dt.datetime(2024, 1, i), "v": i / 2, "n": i, "d": None} for i in range(1, 20)]
        c.execute(sa.insert(reflected), rows)
        c.commit()
        counted = c.execute(sa.select(sa.func.count()).where(reflected.c.n > 10)).scalar()
        assert counted == 9, counted
        frame = pandas.read_sql(sa.select(reflected).order_by(reflected.c.n), c)
        assert list(frame["n"]) == list(range(1, 20)) and str(frame["ts"].dtype).startswith("datetime64")
        frame["host"] = "b"
        frame.drop(columns=["d"]).to_sql(table, c, if_exists="append", index=False)
        c.commit()
        assert len(pandas.read_sql(f"SELECT * FROM {table} WHERE host = 'b'", c)) == 19
        c.execute(sa.text(f"DROP TABLE {table}"))
        c.commit()
    engine.dispose()


@test
def sqlalchemy_over_psycopg_reflects_and_writes():
    alchemy("psycopg")


@test
def sqlalchemy_over_psycopg2_reflects_and_writes():
    alchemy("psycopg2")


# psql


def psql(*commands, check=True):
    arguments = ["psql", "-X", "-h", PARTS["host"], "-p", PARTS["port"], "-U", PARTS["user"], "-d", PARTS["dbname"],
                 "-v", "ON_ERROR_STOP=1"]
    for command in commands:
        arguments += ["-c", command]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout if check else done.stderr


@test
def psql_meta_commands():
    if shutil.which("psql") is None:
        print("   (no psql here)")
        return
    table = name("t")
    psql(f"CREATE TABLE {table} (host TEXT, ts TIMESTAMP(3) TIME INDEX, n BIGINT DEFAULT 7, "
         "d DECIMAL(10, 2) COMMENT 'price', PRIMARY KEY (host)) WITH ('comment' = 'things')")
    assert table in psql(r"\dt") and table in psql(r"\d")
    told = psql(rf"\d {table}")
    for part in ["host", "timestamp(3) without time zone", "numeric(10,2)", f'"{table}_pkey" PRIMARY KEY, btree (host, ts)']:
        assert part in told, (part, told)
    assert re.search(r"\bn\s*\|\s*bigint\s*\|\s*\|\s*\|\s*7", told), told
    assert "price" in psql(rf"\d+ {table}")
    assert "things" in psql(rf"\dt+ {table}")
    psql(f"INSERT INTO {table} SELECT 'h' || value, '2024-01-01', value, 1.5 FROM generate_series(1, 2000)")
    time.sleep(1.1)
    assert re.search(r"\d+ kB", psql(rf"\dt+ {table}")), psql(rf"\dt+ {table}")
    with psycopg.connect(DSN) as c:
        sizes = c.execute(
            f"SELECT pg_table_size(oid) > 10000, pg_total_relation_size('{table}') = pg_relation_size(oid, 'main'), "
            "pg_indexes_size(oid), pg_database_size('public') >= pg_table_size(oid), pg_table_size(1), "
            f"pg_size_pretty(pg_relation_size('{table}_pkey')) FROM pg_class WHERE relname = '{table}'").fetchone()
        assert sizes == (True, True, 0, True, None, "0 bytes"), sizes
        raises(psycopg.errors.UndefinedTable, lambda: c.execute("SELECT pg_table_size('there_is_none')"))
        c.rollback()
        # An estimate that nobody waits for: asked of the nodes in the background, every five seconds at most.
        for _ in range(60):
            tuples = c.execute(f"SELECT reltuples FROM pg_class WHERE relname = '{table}'").fetchone()[0]
            if tuples == 2000:
                break
            time.sleep(0.5)
        assert tuples == 2000, tuples
    assert "public" in psql(r"\dn") and "public" in psql(r"\l")
    assert f"{table}_pkey" in psql(r"\di")
    assert "partita" in psql(r"\du")
    psql(r"\dv"), psql(r"\df"), psql(r"\conninfo"), psql(r"\dT"), psql(r"\ds"), psql(r"\dm"), psql(r"\dx")
    psql(r"\dn+"), psql(r"\l+"), psql(r"\di+"), psql(r"\dp"), psql(r"\df pg_size_pretty"), psql(r"\dC")
    assert "Did not find any relation" in psql(r"\d there_is_none", check=False)
    psql(f"DROP TABLE {table}")


def main():
    wanted = sys.argv[1:]
    passed = failed = 0
    for function in TESTS:
        if wanted and function.__name__ not in wanted:
            continue
        try:
            function()
            passed += 1
        except Exception:
            failed += 1
            print(f"-- {function.__name__} failed")
            traceback.print_exc(limit=-4, file=sys.stdout)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
