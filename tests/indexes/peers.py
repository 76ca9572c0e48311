"""ClickHouse (chdb) and DuckDB over the same rows. Run as a program, for one engine: a process of its own each.

peers.py ENGINE ROWS.parquet COUNT RUNS FOLDER prints what it measured as JSON.
"""

import json
import pathlib
import sys
import time

from questions import CLICKHOUSE, DUCKDB, all_questions, ask

MERGE_TREE = "ENGINE = MergeTree ORDER BY (host, ts)"
COLUMNS = "host String, ts DateTime64(3, 'UTC'), code String, request_id String, size Int64, message String"
# For each set of indexes: its title, and its part of the definition of the table. The bloom filters and the sets are of a
# granule, 8,192 rows.
CLICKHOUSE_TABLES = {
    "plain": ("", ""),
    "skip": ("set, bloom_filter, tokenbf_v1",
             ", INDEX by_code code TYPE set(0) GRANULARITY 1"
             ", INDEX by_id request_id TYPE bloom_filter(0.01) GRANULARITY 1"
             ", INDEX by_word message TYPE tokenbf_v1(32768, 3, 0) GRANULARITY 1"),
    "text": ("text, bloom_filter",
             ", INDEX by_code code TYPE text(tokenizer = 'array')"
             ", INDEX by_id request_id TYPE bloom_filter(0.01) GRANULARITY 1"
             ", INDEX by_word message TYPE text(tokenizer = 'splitByNonAlpha')"),
}
DUCKDB_TABLES = {"plain": ("", []), "art": ("ART", ["code", "request_id"])}


class ClickHouse:
    engine = CLICKHOUSE
    tables = CLICKHOUSE_TABLES

    def __init__(self, folder):
        from chdb import session
        self.session = session.Session(str(folder))
        self.version = self.rows("SELECT version()")[0][0]

    def rows(self, statement):
        text = str(self.session.query(statement, "TabSeparated"))
        return [line.split("\t") for line in text.splitlines()]

    def load(self, name, path):
        """Loads the rows, and returns the seconds until they are there, and until they are in one part."""
        self.session.query(f"CREATE DATABASE {name}")
        self.session.query(f"CREATE TABLE {name}.logs ({COLUMNS}{self.tables[name][1]}) {MERGE_TREE}")
        began = time.monotonic()
        self.session.query(f"INSERT INTO {name}.logs SELECT * FROM file('{path}', Parquet)")
        loaded = time.monotonic()
        self.session.query(f"OPTIMIZE TABLE {name}.logs FINAL")
        return loaded - began, time.monotonic() - loaded

    def bytes(self, name):
        found = self.rows(f"SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND database = '{name}'")
        return int(found[0][0])

    def asker(self, name):
        return lambda statement: self.rows(statement.replace(" FROM logs ", f" FROM {name}.logs "))


class DuckDb:
    engine = DUCKDB
    tables = DUCKDB_TABLES

    def __init__(self, folder):
        import duckdb
        self.version = duckdb.__version__
        self.paths = {name: folder / f"{name}.duckdb" for name in self.tables}
        self.connections = {name: duckdb.connect(str(path)) for name, path in self.paths.items()}

    def load(self, name, path):
        connection = self.connections[name]
        connection.execute("CREATE TABLE logs (host VARCHAR, ts TIMESTAMP_MS, code VARCHAR, request_id VARCHAR, size BIGINT,"
                           " message VARCHAR)")
        began = time.monotonic()
        connection.execute(f"INSERT INTO logs SELECT * FROM '{path}'")
        # Faster than rows that come into a table with indexes.
        for column in self.tables[name][1]:
            connection.execute(f"CREATE INDEX by_{column} ON logs ({column})")
        loaded = time.monotonic()
        connection.execute("CHECKPOINT")
        return loaded - began, time.monotonic() - loaded

    def bytes(self, name):
        return self.paths[name].stat().st_size

    def asker(self, name):
        return lambda statement: self.connections[name].execute(statement).fetchall()


def measure(engine, path, count, runs):
    figures = {}
    for name, (title, _) in engine.tables.items():
        load_s, settle_s = engine.load(name, path)
        label = f"{engine.engine} {engine.version}" if not title else f"with {title}"
        figures[name] = {"engine": engine.engine, "title": label, "load_s": load_s, "settle_s": settle_s,
                         "bytes": engine.bytes(name), "questions": {}}
    for question in all_questions(count):
        if engine.engine in question.statements:
            askers = {name: engine.asker(name) for name in engine.tables}
            for name, result in ask(question, engine.engine, askers, runs).items():
                figures[name]["questions"][question.name] = result
    return list(figures.values())


def main():
    name, path, count, runs, folder = sys.argv[1:]
    engine = {CLICKHOUSE: ClickHouse, DUCKDB: DuckDb}[name](pathlib.Path(folder))
    json.dump(measure(engine, path, int(count), int(runs)), sys.stdout)


if __name__ == "__main__":
    main()
