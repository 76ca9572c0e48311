"""The parts: each measures a running server, and prints a Markdown table of medians and ratios."""

import contextlib
import json
import statistics
import subprocess
import time

import psycopg

import bigtable
import readings
import report
from server import Broken, request
from writers import BIGTABLE, LINES, MANY_ROWS, ONE_ROW, READINGS, Work, write

DATABASE = "wide"
# Partitions are neither split nor merged, so that all tables have one.
STILL = "'auto_partitioning_by_load' = 'DISABLED', 'auto_partitioning_by_size' = 'DISABLED'"
READING_COLUMNS = "host STRING, ts TIMESTAMP(3) TIME INDEX, pressure BIGINT, PRIMARY KEY (host)"
BALLOON_COLUMNS = ("balloon STRING, ts TIMESTAMP(3) TIME INDEX, pressure BIGINT, temperature DOUBLE, humidity BIGINT,"
                   " altitude BIGINT, PRIMARY KEY (balloon)")
# Events of a request that loads a balloon.
EVENTS_PER_REQUEST = 1_000
PATTERNS = {"new-columns": "1 new columns", "new-cells": "2 new cells", "serialized": "3 serialized",
            "unserialized": "4 unserialized", "serialized-cells": "5 serialized cells", "table": "ordinary table"}


def expect(condition, message):
    if not condition:
        raise Broken(message)


def connect(server, database=DATABASE):
    return psycopg.connect(**(server.postgres() | {"dbname": database}), autocommit=True, prepare_threshold=None)


def create_database(server):
    with connect(server, "public") as connection:
        connection.execute(f"CREATE DATABASE {DATABASE}")


def create(connection, table, columns=None):
    """Makes an ordinary table of these columns, or a wide one."""
    if columns:
        connection.execute(f"CREATE TABLE {table} ({columns}) WITH ({STILL})")
    else:
        connection.execute(f"CREATE TABLE {table} WIDE (ROW KEY BYTES) FAMILIES ({readings.FAMILY}) WITH ({STILL})")


def settle(connection, table, count):
    """Writes what is in memory to files, and merges these; returns the seconds of the first. `count`: rows that must be there."""
    began = time.monotonic()
    connection.execute(f"ADMIN flush_table('{table}')")
    flush_s = time.monotonic() - began
    connection.execute(f"ADMIN compact_table('{table}')")
    found = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    expect(found == count, f"{found} rows are in {table}, not {count}")
    return flush_s


def stored_bytes(connection, table):
    statement = f"SELECT bytes FROM sys.tables WHERE database = '{DATABASE}' AND \"table\" = '{table}'"
    return int(connection.execute(statement).fetchone()[0])


def in_turns(names, number):
    """The names in an order that changes with each turn."""
    return names if number % 2 == 0 else names[::-1]


def medians(turns):
    return {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}


def judged(ratio, bound):
    return f"at least {report.number(bound)}: {'ok' if ratio >= bound else 'MISSED'}"


def compared(first, second):
    """Lines of two dictionaries with the same names, and the ratio of the first to the second."""
    return [[name, first[name], second[name], first[name] / second[name]] for name in first]


# Writes.


def write_once(options, server, door, shape, number):
    """Writes a new table with some processes, and returns the figures. The table is dropped afterwards."""
    table = f"written_{number}_{door}_{shape.replace(' ', '_')}"
    work = Work(door, server.http_port, DATABASE, table, shape, options.hosts, options.values, options.per_request)
    with connect(server) as connection:
        create(connection, table, READING_COLUMNS if door == LINES else None)
        used = server.cpu_s()
        count, seconds, client_cpu_s = write(work, options.processes)
        server_cpu_s = server.cpu_s() - used
        flush_s = settle(connection, table, count)
        size = stored_bytes(connection, table)
        connection.execute(f"DROP TABLE {table}")
    return {
        "values/s, until acknowledged": count / seconds,
        "values/s, until in files": count / (seconds + flush_s),
        "server CPU s per million values": server_cpu_s / count * 1e6,
        "client CPU s per million values": client_cpu_s / count * 1e6,
        "bytes per value, compacted": size / count,
    }


def write_readings(options, server):
    """Part a: readings by MutateRows and by line protocol, in turns."""
    turns = {BIGTABLE: [], LINES: []}
    for number in range(options.pairs):
        for door in in_turns((BIGTABLE, LINES), number):
            report.progress(f"writing, pair {number + 1} of {options.pairs}: {door}")
            turns[door].append(write_once(options, server, door, READINGS, number))
    print(f"\na. {options.values:,} readings of {options.hosts} hosts, one a wide row's cell or a row of its own; requests of"
          f" {options.per_request:,} by {options.processes} processes; medians of {options.pairs} pairs\n")
    heads = ["", "MutateRows, cells", "line protocol, rows", "ratio"]
    print(report.markdown(heads, compared(medians(turns[BIGTABLE]), medians(turns[LINES]))), flush=True)


# Reads.


def load_balloons(options, server):
    """Loads balloons into a wide table and an ordinary one; returns their events."""
    measured = [readings.events(balloon, options.minutes) for balloon in range(options.balloons)]
    name, http = bigtable.table_name(DATABASE, "balloons_wide"), server.http()
    with connect(server) as sql, bigtable.Connection(server.http_port) as connection, contextlib.closing(http):
        create(sql, "balloons_wide")
        create(sql, "balloons", BALLOON_COLUMNS)
        for balloon, week in enumerate(measured):
            report.progress(f"loading balloon {balloon + 1} of {options.balloons}")
            for first in range(0, options.minutes, EVENTS_PER_REQUEST):
                some = week[first:first + EVENTS_PER_REQUEST]
                cells = readings.balloon_cells(some, first)
                connection.write(bigtable.mutate_rows(name, [(wide_key(balloon), cells)]))
                body = readings.balloon_lines("balloons", balloon, some, first)
                status, text = request(http, "POST", f"/api/v2/write?bucket={DATABASE}&precision=ms", None, body)
                expect(status == 204, f"line protocol was answered with {status}: {text}")
        events = options.balloons * options.minutes
        settle(sql, "balloons_wide", events * len(readings.METRICS))
        settle(sql, "balloons", events)
        sizes = [stored_bytes(sql, table) / events for table in ("balloons_wide", "balloons")]
    return measured, sizes


def wide_key(balloon):
    return f"{readings.balloon_key(balloon)}#week1".encode()


class Asker:
    """Asks both tables for all events of a balloon."""

    def __init__(self, sql, connection):
        self.sql = sql
        self.connection = connection
        self.name = bigtable.table_name(DATABASE, "balloons_wide")

    def statement(self, balloon, metrics):
        return (f"SELECT ts, {', '.join(metrics)} FROM balloons WHERE balloon = '{readings.balloon_key(balloon)}'"
                " ORDER BY ts")

    def wide(self, balloon, metrics):
        """Responses of ReadRows, as bytes."""
        qualifier = metrics[0].encode() if len(metrics) == 1 else None
        return self.connection.read(bigtable.read_rows(self.name, wide_key(balloon), qualifier=qualifier))

    def wide_cells(self, balloon, metrics):
        return bigtable.cells_of(self.wide(balloon, metrics))

    def table(self, balloon, metrics):
        """The result of the SELECT, whose values stay bytes; the number of its rows."""
        result = self.sql.pgconn.exec_(self.statement(balloon, metrics).encode())
        expect(result.status == psycopg.pq.ExecStatus.TUPLES_OK, f"the SELECT failed: {result.error_message!r}")
        return result.ntuples

    def table_rows(self, balloon, metrics):
        return self.sql.execute(self.statement(balloon, metrics)).fetchall()

    def check(self, balloon, measured):
        """Compares the answers of both with the events of a balloon."""
        cells = sorted(tuple(cell) for _, *cell in self.wide_cells(balloon, readings.METRICS))
        expect(cells == sorted(readings.balloon_cells(measured, 0)), f"ReadRows of balloon {balloon} has other cells than were written")
        rows = [tuple(map(str, row[1:])) for row in self.table_rows(balloon, readings.METRICS)]
        expect(rows == measured, f"the SELECT of balloon {balloon} has other rows than were written")


def ask_in_turns(askers, runs, balloons, metrics):
    """Medians of latencies in milliseconds, by name. The first turn warms up."""
    times = {name: [] for name in askers}
    for run in range(runs + 1):
        for name in in_turns(list(askers), run):
            began = time.perf_counter()
            askers[name](run % balloons, metrics)
            elapsed_ms = (time.perf_counter() - began) * 1_000
            if run > 0:
                times[name].append(elapsed_ms)
    return {name: statistics.median(some) for name, some in times.items()}


def read(options, server):
    """Part b: all events of a balloon by ReadRows and by SQL, in turns."""
    measured, sizes = load_balloons(options, server)
    lines = []
    with connect(server) as sql, bigtable.Connection(server.http_port) as connection:
        asker = Asker(sql, connection)
        asker.check(0, measured[0])
        for title, metrics in (("all columns", readings.METRICS), ("the pressure", readings.METRICS[:1])):
            report.progress(f"reading: {title}")
            for how, wide, table in (("received", asker.wide, asker.table),
                                     ("decoded by Python", asker.wide_cells, asker.table_rows)):
                ms = ask_in_turns({"wide": wide, "table": table}, options.runs, options.balloons, metrics)
                lines.append([f"{title}, {how}, ms", ms["wide"], ms["table"], ms["wide"] / ms["table"]])
    lines.append(["bytes per event, compacted", *sizes, sizes[0] / sizes[1]])
    print(f"\nb. {options.minutes:,} minutes of one balloon of {options.balloons},"
          f" {options.minutes * len(readings.METRICS):,} cells; medians of {options.runs}\n")
    print(report.markdown(["", "ReadRows", "SELECT of an ordinary table", "ratio"], lines), flush=True)


# Sizes.


def sizes_of(document):
    """Lines of the report that `partita lab patterns` writes: bytes of an event, and their ratio to the ordinary table's."""
    figures = {entry["pattern"]: entry for entry in document["patterns"]}
    ordinary = figures["table"]["bytes_per_event"]
    expect(ordinary > 0, "the ordinary table has no bytes")
    return [[PATTERNS[name], entry["bytes_per_event"], entry["bytes_per_event"] / ordinary, entry["cells"], entry["rows"]]
            for name, entry in figures.items()]


def sizes(options, work):
    """Part c: bytes of an event under each pattern, of merged files."""
    report.progress(f"partita lab patterns: {options.lab_balloons} balloons, {options.lab_span}")
    folder = work / "patterns"
    command = [options.binary, "lab", "patterns", "--balloons", str(options.lab_balloons), "--span", options.lab_span,
               "--partitions", "1", "--runs", "1", "--warmup", "0", "--ticks", "0", "--out", folder, "--data-dir", work]
    done = subprocess.run(command, capture_output=True, text=True)
    expect(done.returncode == 0, f"partita lab patterns: {done.stderr.strip()[-2000:]}")
    document = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    print(f"\nc. bytes of an event of {options.lab_balloons} balloons, {options.lab_span}; flushed and compacted\n")
    print(report.markdown(["", "bytes per event", "to the ordinary table", "cells", "rows"], sizes_of(document)), flush=True)


# Sets of 100 values.


def sets(options, server):
    """Part d: 100 values in one row against 100 rows."""
    name, shapes = bigtable.table_name(DATABASE, "sets"), (ONE_ROW, MANY_ROWS)
    times = {shape: {"written": [], "read": []} for shape in shapes}
    with connect(server) as sql, bigtable.Connection(server.http_port) as connection:
        create(sql, "sets")

        def timed(shape, kind, send, body):
            began = time.perf_counter()
            answer = send(body)
            times[shape][kind].append((time.perf_counter() - began) * 1_000)
            return answer

        report.progress("writing sets of 100 values")
        for number in range(options.sets):
            for shape in in_turns(shapes, number):
                body = bigtable.mutate_rows(name, readings.set_rows(number, shape == ONE_ROW))
                timed(shape, "written", connection.write, body)
        settle(sql, "sets", 2 * options.sets * readings.SET)
        report.progress("reading sets of 100 values")
        for number in range(options.sets):
            bodies = {ONE_ROW: bigtable.read_rows(name, key=f"one#{number:08}".encode()),
                      MANY_ROWS: bigtable.read_rows(name, prefix=f"many#{number:08}#".encode())}
            for shape in in_turns(shapes, number):
                cells = bigtable.cells_of(timed(shape, "read", connection.read, bodies[shape]))
                expect(len(cells) == readings.SET, f"{len(cells)} cells were read, not {readings.SET}")
    turns = {shape: [] for shape in shapes}
    for number in range(options.pairs):
        for shape in in_turns(shapes, number):
            report.progress(f"writing, pair {number + 1} of {options.pairs}: {shape}")
            turns[shape].append(write_once(options, server, BIGTABLE, shape, number))
    lines = []
    for kind in ("written", "read"):
        fast, slow = (statistics.median(times[shape][kind]) for shape in shapes)
        lines.append([f"{readings.SET} values {kind} by one request, ms", fast, slow, slow / fast, judged(slow / fast, 2)])
    together, apart = (medians(turns[shape]) for shape in shapes)
    for figure, *values, ratio in compared(together, apart):
        lines.append([figure, *values, ratio, judged(ratio, 2) if figure.startswith("values/s") else ""])
    print(f"\nd. {readings.SET} values in one row against {readings.SET} rows: medians of {options.sets} requests; and"
          f" {options.values:,} values by {options.processes} processes, medians of {options.pairs} pairs. Ratios of times are those of"
          " many rows to one, others those of one to many\n")
    print(report.markdown(["", "one row", "100 rows", "ratio", "goal"], lines), flush=True)
