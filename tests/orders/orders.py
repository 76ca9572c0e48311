"""Measures queries in an order, by placement. See tests/orders/run."""

import argparse
import dataclasses
import os
import pathlib
import statistics
import sys
import tempfile
import time

import psycopg

from server import Broken, Server

RANGE = "range"
# Placements of the rows of HOSTS hosts, in four partitions each.
PLACEMENTS = {
    RANGE: "PARTITION BY RANGE (host) SPLIT AT (('h25'), ('h50'), ('h75'))",
    "hash": "PARTITION BY HASH (host) PARTITIONS 4",
    "rules": "PARTITION ON COLUMNS (host) (host < 'h25', host >= 'h25' AND host < 'h50', "
             "host >= 'h50' AND host < 'h75', host >= 'h75')",
}
HOSTS = 100
# One row of each host in so many milliseconds, from 2025-01-01 on.
STEP_MS = 10_000
BEGIN_MS = 1_735_689_600_000
# Goal of the latency by hash, as a multiple of that by range.
GOAL = 1.1


@dataclasses.dataclass(frozen=True)
class Question:
    """A query with the name of its table left open."""

    name: str
    sql: str
    # Placements under which the plan has no sort.
    sortless: tuple = ()


QUESTIONS = [
    Question("first rows by time", "SELECT * FROM {table} ORDER BY ts, host LIMIT 10"),
    Question("last rows by time", "SELECT * FROM {table} ORDER BY ts DESC, host LIMIT 10"),
    Question("last thousand rows by time", "SELECT * FROM {table} ORDER BY ts DESC, host LIMIT 1000"),
    Question("last rows of a value", "SELECT * FROM {table} WHERE v = 7 ORDER BY ts DESC, host LIMIT 10"),
    Question("first rows of a host", "SELECT * FROM {table} WHERE host = 'h42' ORDER BY ts LIMIT 10", tuple(PLACEMENTS)),
    Question("last rows of a host", "SELECT * FROM {table} WHERE host = 'h42' ORDER BY ts DESC LIMIT 10", tuple(PLACEMENTS)),
    Question("all rows of a host", "SELECT * FROM {table} WHERE host = 'h42' ORDER BY ts DESC", tuple(PLACEMENTS)),
    Question("first rows by key", "SELECT * FROM {table} ORDER BY host, ts LIMIT 10", (RANGE, "rules")),
    Question("last rows by key", "SELECT * FROM {table} ORDER BY host DESC, ts DESC LIMIT 10", (RANGE, "rules")),
    Question("a range of time", "SELECT count(*), sum(v) FROM {table} WHERE ts >= '2025-01-01 01:00:00' AND ts < '2025-01-01 02:00:00'"),
    Question("a range of hosts", "SELECT count(*), sum(v) FROM {table} WHERE host >= 'h40' AND host < 'h43'"),
]


def arguments():
    parser = argparse.ArgumentParser(prog="tests/orders/run", description="Measures queries in an order, by placement.")
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows of each table (2000000)")
    parser.add_argument("--turns", type=int, default=15, help="turns, in each of which every table is asked once (15)")
    parser.add_argument("--quick", action="store_true", help="few rows and turns, to see that everything works")
    if "--quick" in sys.argv:
        parser.set_defaults(rows=50_000, turns=2)
    options = parser.parse_args()
    options.binary = os.environ.get("PARTITA_BIN")
    if not options.binary:
        parser.error("PARTITA_BIN is not set")
    return options


def set_up(connection, rows):
    """Makes the tables, with the same rows; the last hundredth is in memory."""
    late = rows - rows // 100
    for name, placement in PLACEMENTS.items():
        connection.execute(
            f"CREATE TABLE by_{name} (host STRING NOT NULL, ts TIMESTAMP(3) TIME INDEX, v BIGINT, w DOUBLE, "
            f"PRIMARY KEY (host)) {placement}")
        for first, behind in ((0, late), (late, rows)):
            connection.execute(
                f"INSERT INTO by_{name} SELECT 'h' || lpad((n % {HOSTS})::text, 2, '0'), "
                f"to_timestamp_millis({BEGIN_MS} + n / {HOSTS} * {STEP_MS}), n % 1009, n * 0.5 "
                f"FROM generate_series({first}, {behind - 1}) AS s(n)")
            if behind == late:
                connection.execute(f"ADMIN flush_table('by_{name}')")


def has_sort(connection, sql):
    """True if the plan of a query has a sort; a merge of sorted streams is none."""
    plan = connection.execute(f"EXPLAIN {sql}").fetchall()
    return any("SortExec" in str(cell) for row in plan for cell in row)


def ask(connection, sql):
    """The answer of a query, and its milliseconds."""
    began = time.monotonic()
    answer = connection.execute(sql).fetchall()
    return answer, 1_000 * (time.monotonic() - began)


def check(question, name, sorts):
    """A failure, if a plan has a sort that it should not need."""
    if name in question.sortless and sorts:
        return f"{question.name}, by {name}: the plan has a sort"
    return None


def measured(connection, question, turns):
    """Median milliseconds by placement, asked in turns."""
    times = {name: [] for name in PLACEMENTS}
    for turn in range(turns + 1):
        answers = {}
        for name in PLACEMENTS:
            answers[name], milliseconds = ask(connection, question.sql.format(table=f"by_{name}"))
            # The first turn fills caches.
            if turn > 0:
                times[name].append(milliseconds)
        for name, answer in answers.items():
            if answer != answers[RANGE]:
                raise Broken(f"{question.name}: the answer by {name} differs from that by {RANGE}")
    return {name: statistics.median(values) for name, values in times.items()}


def line(question, medians):
    """A line of the table; the ratio is that of hash to range."""
    figures = " ".join(f"{medians[name]:>10.2f}" for name in PLACEMENTS)
    ratio = medians["hash"] / medians[RANGE] if medians[RANGE] else float("nan")
    verdict = "ok" if ratio <= GOAL else "MISSED"
    return f"{question.name:<30} {figures} {ratio:>8.2f}   at most {GOAL}: {verdict}"


def main():
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="partita-orders-") as folder:
        server = Server(options.binary, pathlib.Path(folder) / "server")
        server.start()
        try:
            with psycopg.connect(**server.postgres(), autocommit=True, prepare_threshold=None) as connection:
                set_up(connection, options.rows)
                heads = " ".join(f"{name:>10}" for name in PLACEMENTS)
                print(f"{f'{options.rows:,} rows, ms':<30} {heads} {'ratio':>8}   goal", flush=True)
                failures = []
                for question in QUESTIONS:
                    print(line(question, measured(connection, question, options.turns)), flush=True)
                    for name in PLACEMENTS:
                        sorts = has_sort(connection, question.sql.format(table=f"by_{name}"))
                        failures.append(check(question, name, sorts))
                if failures := [failure for failure in failures if failure]:
                    raise Broken("\n".join(failures))
        finally:
            server.stop()


if __name__ == "__main__":
    try:
        main()
    except (Broken, psycopg.Error) as error:
        sys.exit(f"tests/orders/run: {error}")
