"""Partita under measurement: two databases with the same rows, `plain` without indexes and `indexed` with one of each kind."""

import collections
import concurrent.futures
import contextlib
import functools
import re
import statistics
import subprocess
import time

import psycopg

import report
from questions import PARTITA, all_questions, ask
from server import Broken, request

PLAIN, INDEXED = "plain", "indexed"
KINDS = {"code": "INVERTED", "request_id": "SKIPPING", "message": "FULLTEXT"}
# Rows of a bloom filter, by default.
GRANULARITY = 10_240
READY_S = 600
ADVICE_DATABASES = 2
ADVICE_ROWS = 100
TABLES_PER_BODY = 25
FIRST_S = 1_767_225_600
UNITS = {"": 1, "K": 1e3, "M": 1e6, "B": 1e9}


def expect(condition, message):
    if not condition:
        raise Broken(message)


def definition(merge, backend, has_indexes):
    """CREATE TABLE of the rows. Partitions are neither split nor merged, so that both tables have one."""
    def column(name):
        if not has_indexes or name not in KINDS:
            return f"{name} STRING"
        options = f" WITH (backend = '{backend}')" if KINDS[name] == "FULLTEXT" else ""
        return f"{name} STRING {KINDS[name]} INDEX{options}"

    options = "'append_mode' = 'true'" if merge == "append" else f"'merge_mode' = '{merge}'"
    return (f"CREATE TABLE logs (host STRING, ts TIMESTAMP(3) TIME INDEX, {column('code')}, {column('request_id')}, size BIGINT,"
            f" {column('message')}, PRIMARY KEY (host)) WITH ({options}, 'auto_partitioning_by_load' = 'DISABLED',"
            " 'auto_partitioning_by_size' = 'DISABLED')")


def connect(server, database):
    return psycopg.connect(**(server.postgres() | {"dbname": database}), autocommit=True, prepare_threshold=None)


def rows_of(connection, statement):
    """The rows of a statement, which is sent as it is."""
    return connection.execute(statement).fetchall()


def make(options, server, database, has_indexes):
    """Makes the table in a database of its own, and returns a connection to it."""
    with connect(server, "public") as connection:
        connection.execute(f"CREATE DATABASE {database}")
    connection = connect(server, database)
    connection.execute(definition(options.merge, options.backend, has_indexes))
    return connection


def settle(connection, count):
    """Writes what is in memory to files, and merges these; returns the seconds that each takes."""
    began = time.monotonic()
    connection.execute("ADMIN flush_table('logs')")
    flushed = time.monotonic()
    connection.execute("ADMIN compact_table('logs')")
    merged = time.monotonic()
    found = rows_of(connection, "SELECT count(*) FROM logs")[0][0]
    expect(found == count, f"{found} rows are there, not {count}")
    return flushed - began, merged - flushed


def await_indexes(connection, database):
    """Waits until all files have their indexes, and returns the bytes of each kind."""
    end = time.monotonic() + READY_S
    while time.monotonic() < end:
        builds = rows_of(connection, f"SELECT kind, state, bytes FROM sys.index_builds WHERE database = '{database}'")
        if len(builds) == len(KINDS) and all(state == "ready" for _, state, _ in builds):
            return {kind: int(size) for kind, _, size in builds}
        time.sleep(0.5)
    raise Broken(f"indexes are not ready after {READY_S} s: {builds}")


def stored_bytes(connection, database):
    found = rows_of(connection, f"SELECT bytes FROM sys.tables WHERE database = '{database}' AND \"table\" = 'logs'")
    return int(found[0][0])


# The questions.


def load(options, server, database, path):
    """Loads the rows from the Parquet file, and returns what that took."""
    with make(options, server, database, database == INDEXED) as connection:
        command = [options.binary, "load", path, "--table", "logs", "--database", database,
                   "--http", f"127.0.0.1:{server.http_port}", "--postgres", f"127.0.0.1:{server.postgres_port}"]
        began, used = time.monotonic(), server.cpu_s()
        done = subprocess.run(command, capture_output=True, text=True)
        load_s = time.monotonic() - began
        expect(done.returncode == 0, f"partita load: {done.stderr.strip()}")
        settle_s = sum(settle(connection, options.rows))
        figures = {"engine": PARTITA, "title": "Partita" if database == PLAIN else "with indexes", "load_s": load_s,
                   "settle_s": settle_s, "cpu_s": server.cpu_s() - used, "bytes": stored_bytes(connection, database),
                   "questions": {}}
        figures["index_bytes"] = await_indexes(connection, database) if database == INDEXED else {}
        return figures


def row_groups(connection, server, database, count):
    """Numbers of rows of the row groups of a table, from the footers of its files."""
    import pyarrow.parquet
    found = rows_of(connection, f"SELECT \"partition\" FROM sys.partitions WHERE database = '{database}'")
    # Files that were merged stay for some seconds.
    for _ in range(60):
        groups = []
        for (partition,) in found:
            for path in server.folder.glob(f"data/**/partitions/{partition}/files/*.parquet"):
                with contextlib.suppress(FileNotFoundError):
                    metadata = pyarrow.parquet.read_metadata(path)
                    groups += [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        if sum(groups) == count:
            return groups
        time.sleep(0.5)
    raise Broken(f"the files of {database} have {sum(groups)} rows, not {count}")


def metric(lines, name):
    """The sum of a metric in the lines of EXPLAIN ANALYZE, which may be shortened: 10.24 K."""
    found = re.findall(rf"\b{name}=([\d.]+)(?: ([KMB])\b)?", "\n".join(lines))
    return round(sum(float(figure) * UNITS[unit] for figure, unit in found))


def logged(connection, database, texts):
    """What the query log, which holds all statements of this program, says about some of them: a dictionary for each."""
    columns = ("rows_scanned", "index_used", "index_rows_examined", "index_rows_skipped")
    log = rows_of(connection, f"SELECT text, {', '.join(columns)} FROM sys.query_log WHERE database = '{database}'")
    entries = {text: dict(zip(columns, values)) for text, *values in log}
    missing = [text for text in texts if text not in entries]
    expect(not missing, f"the query log lacks {missing[:1]}")
    return [entries[text] for text in texts]


def reads(connection, server, database, question, options):
    """Means of what the statements of a question read in a database: rows, blocks and row groups."""
    texts = question.texts(PARTITA, options.runs)[1:]
    entries = logged(connection, database, texts)
    groups = row_groups(connection, server, database, options.rows)
    pruned = [metric([line for (line,) in rows_of(connection, f"EXPLAIN ANALYZE {text}")], "row_groups_pruned")
              for text in texts]

    def mean(name):
        return statistics.mean(int(entry[name] or 0) for entry in entries)

    def blocks(rows):
        return -(-rows // GRANULARITY)

    def blocks_read(entry):
        examined, skipped = int(entry["index_rows_examined"] or 0), int(entry["index_rows_skipped"] or 0)
        return blocks(examined - skipped) if examined else sum(map(blocks, groups))

    return {
        "blocks": statistics.mean(map(blocks_read, entries)),
        "row groups": len(groups) - statistics.mean(pruned),
        "rows": mean("rows_scanned"),
        "index_used": {entry["index_used"] for entry in entries},
    }


def ask_all(options, server, path):
    """Loads both tables, asks them, prints parts a to c, and returns the figures of both."""
    figures = {}
    for database in (PLAIN, INDEXED):
        report.progress(f"loading {options.rows:,} rows: {database}")
        figures[database] = load(options, server, database, path)
    with connect(server, PLAIN) as plain, connect(server, INDEXED) as indexed:
        connections = {PLAIN: plain, INDEXED: indexed}
        asked = all_questions(options.rows)
        tables = {name: functools.partial(rows_of, connection) for name, connection in connections.items()}
        for question in asked:
            report.progress(f"asking: {question.title}")
            for database, result in ask(question, PARTITA, tables, options.runs).items():
                figures[database]["questions"][question.name] = result
        print_questions(options, server, connections, figures, {question.name: question for question in asked})
    return list(figures.values())


def used(found):
    """The line that tells which indexes were used."""
    return f"indexes used: {', '.join(sorted(str(kinds) for kinds in found[INDEXED]['index_used']))}"


def print_questions(options, server, connections, figures, asked):
    def by_name(name):
        return {database: reads(connection, server, database, asked[name], options)
                for database, connection in connections.items()}

    def ms(database, name):
        return figures[database]["questions"][name]["ms"]

    found = by_name("id")
    print(report.head(f"a. {asked['id'].title}: skipping index, means of {options.runs}"))
    for unit, goal in (("blocks", (0.01, False)), ("row groups", None), ("rows", None)):
        print(report.line(f"{unit} read", found[PLAIN][unit], found[INDEXED][unit], goal=goal))
    print(report.line("latency, ms", ms(PLAIN, "id"), ms(INDEXED, "id")))
    print(used(found))

    print(report.head(f"b. {asked['code'].title}: inverted index, 1 of 1,000 rows, medians of {options.runs}"))
    for name in ("code", "code_text"):
        without, with_indexes = ms(PLAIN, name), ms(INDEXED, name)
        print(report.line(f"{asked[name].title}, ms", without, with_indexes, without / with_indexes, (10, True)))
    found = by_name("code")
    print(report.line("rows read", found[PLAIN]["rows"], found[INDEXED]["rows"]))
    print(used(found))

    print(report.head(f"c. fulltext index beside LIKE '%word%' without, medians of {options.runs}"))
    searches = [name for name in asked if name.startswith(("term_", "at_"))]
    for name in searches:
        each = name.partition("_")[2]
        without, with_index = ms(PLAIN, f"like_{each}"), ms(INDEXED, name)
        goal = (20, True) if name in (searches[0], searches[-1]) else None
        print(report.line(f"{asked[name].title}, ms", without, with_index, without / with_index, goal))
    for name in [name for name in searches if name.startswith("term_")]:
        print(report.line(f"{asked[name].title}: both with matches_term, ms", ms(PLAIN, name), ms(INDEXED, name),
                          ms(PLAIN, name) / ms(INDEXED, name)))
    found = by_name(searches[0])
    print(report.line("blocks read", found[PLAIN]["blocks"], found[INDEXED]["blocks"]))
    print(used(found))

    print(report.head(f"load of the Parquet file, {options.rows:,} rows"))
    for name, title in (("load_s", "load, s"), ("settle_s", "flush and compaction, s"), ("cpu_s", "server CPU of both, s"),
                        ("bytes", "disk, bytes")):
        goal = (1.3, False) if name == "bytes" else None
        print(report.line(title, figures[PLAIN][name], figures[INDEXED][name], goal=goal))
    for kind, size in figures[INDEXED]["index_bytes"].items():
        print(report.line(f"{kind} index, bytes", 0, size, size / figures[PLAIN]["bytes"]))


# Ingest.


def send(server, database, bodies):
    connection = server.http()
    try:
        for body in bodies:
            status, text = request(connection, "POST", f"/api/v2/write?bucket={database}&precision=ms", None, body)
            expect(status == 204, f"line protocol was answered with {status}: {text}")
    finally:
        connection.close()


def ingest_once(options, server, bodies, database, has_indexes):
    """Loads a new table by line protocol, and returns the figures. The table is dropped afterwards."""
    shares = [bodies[i::options.connections] for i in range(options.connections)]
    with make(options, server, database, has_indexes) as connection:
        began, used = time.monotonic(), server.cpu_s()
        with concurrent.futures.ThreadPoolExecutor(options.connections) as pool:
            for done in [pool.submit(send, server, database, share) for share in shares]:
                done.result()
        acknowledged_s, acknowledged_cpu_s = time.monotonic() - began, server.cpu_s() - used
        flush_s, _ = settle(connection, options.ingest_rows)
        settled_cpu_s = server.cpu_s() - used
        if has_indexes:
            await_indexes(connection, database)
        size = stored_bytes(connection, database)
        connection.execute("DROP TABLE logs")
    return {
        "rows/s, until acknowledged": options.ingest_rows / acknowledged_s,
        "rows/s, until in files": options.ingest_rows / (acknowledged_s + flush_s),
        "server CPU s per million rows, acknowledged": acknowledged_cpu_s / options.ingest_rows * 1e6,
        "server CPU s per million rows, compacted": settled_cpu_s / options.ingest_rows * 1e6,
        "bytes per row, compacted": size / options.ingest_rows,
    }


def ingest(options, server, bodies):
    """Loads in turns without and with indexes, and prints part d: medians."""
    figures = {PLAIN: [], INDEXED: []}
    for turn in range(options.pairs):
        for subject in (PLAIN, INDEXED) if turn % 2 == 0 else (INDEXED, PLAIN):
            report.progress(f"ingest, pair {turn + 1} of {options.pairs}: {subject}")
            database = f"turn_{turn}_{subject}"
            figures[subject].append(ingest_once(options, server, bodies, database, subject == INDEXED))
    medians = {subject: {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}
               for subject, turns in figures.items()}
    goals = {"rows/s, until acknowledged": (0.8, True), "rows/s, until in files": (0.8, True),
             "bytes per row, compacted": (1.3, False)}
    print(report.head(f"d. line protocol, {options.ingest_rows:,} rows, medians of {options.pairs} pairs"))
    for name in medians[PLAIN]:
        print(report.line(name, medians[PLAIN][name], medians[INDEXED][name], goal=goals.get(name)))


# Advice.


def advice_bodies(first, count):
    """Line protocol for some tables with names by their numbers."""
    for begin in range(first, first + count, TABLES_PER_BODY):
        tables = range(begin, min(begin + TABLES_PER_BODY, first + count))
        lines = (f"table_{table},host=host_{row % 10},zone=z{row % 3} "
                 f'used={row % 97}i,state="s{row % 5}",id="{table:x}{row:08x}" {FIRST_S + row}'
                 for table in tables for row in range(ADVICE_ROWS))
        yield "\n".join(lines).encode()


def advice(options, server):
    """Makes many tables, and prints part f: how long a look at the advice takes."""
    report.progress(f"making {options.tables} tables")
    share = -(-options.tables // ADVICE_DATABASES)
    http = server.http()
    for number in range(ADVICE_DATABASES):
        first, database = number * share, f"advice_{number}"
        count = min(share, options.tables - first)
        for body in advice_bodies(first, count):
            status, text = request(http, "POST", f"/api/v2/write?bucket={database}&precision=s", None, body)
            expect(status == 204, f"line protocol was answered with {status}: {text}")
        with connect(server, database) as connection:
            for table in range(first, first + count):
                connection.execute(f"ADMIN flush_table('table_{table}')")
                # Something that advice is about.
                rows_of(connection, f"SELECT count(*) FROM table_{table} WHERE id = 'none'")
    http.close()
    times = collections.defaultdict(list)
    with connect(server, "public") as connection:
        tables = rows_of(connection, "SELECT count(*) FROM sys.tables WHERE database LIKE 'advice_%'")[0][0]
        expect(tables == options.tables, f"there are {tables} tables, not {options.tables}")
        for _ in range(options.runs):
            for name, table in (("first" if not times else "later", "sys.advice"), ("sys.columns", "sys.columns")):
                began = time.perf_counter()
                findings = rows_of(connection, f"SELECT count(*) FROM {table}")[0][0]
                times[name].append((time.perf_counter() - began) * 1_000)
                if table == "sys.advice":
                    found = findings
    print(f"\nf. sys.advice of {tables} tables: {report.number(statistics.median(times['later']))} ms (median of"
          f" {len(times['later'])}; the first {report.number(times['first'][0])} ms), {found} findings;"
          f" sys.columns {report.number(statistics.median(times['sys.columns']))} ms")
