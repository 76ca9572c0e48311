"""A pytest plugin that writes what becomes of each test to a file, one JSON object a line.

SUITES_RECORD   the file. Tests that are in it already are not run again, so that a run goes on after pytest itself died.
SUITES_ONLY     a file with the ids of the tests to run, one a line (all)
SUITES_LOG      the log of a PostgreSQL server: what it was sent during a test is recorded with the test
SUITES_TABLES   conninfo of a server without ROLLBACK: tables and views that a test leaves behind are dropped after it, unless
                they are of fixtures that it shares with others
"""

import json
import os
import pathlib
import re

import pytest

MESSAGE_MAX = 600
# Statements of one test.
STATEMENTS_MAX = 2_000
LINE = re.compile(r"\[(?P<session>\d+)\] LOG:  (?P<kind>statement|execute [^:]*|connection received): (?P<text>.*)")
# SQLAlchemy's ids have the server's version, which PostgreSQL's minor release is part of.
VERSION = re.compile(r"(?<=[a-z0-9])_\d+_\d+(?=::)")
RELATIONS = """
    SELECT n.nspname, c.relname, c.relkind = 'v' FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'sys')
    AND n.nspname NOT LIKE 'pg@_%' ESCAPE '@'"""


def pytest_configure(config):
    config.pluginmanager.register(Recorder(os.environ), "suites-recorder")


class Recorder:
    def __init__(self, environment):
        self.path = pathlib.Path(environment["SUITES_RECORD"])
        self.log = environment.get("SUITES_LOG")
        only = environment.get("SUITES_ONLY")
        self.only = set(pathlib.Path(only).read_text(encoding="utf-8").splitlines()) if only else None
        self.done = {entry["id"] for entry in read(self.path)}
        self.cleaner = Cleaner(environment["SUITES_TABLES"]) if environment.get("SUITES_TABLES") else None
        self.current = None
        self.position = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config, items):
        kept, others = [], []
        for item in items:
            name = name_of(item.nodeid)
            is_wanted = name not in self.done and (self.only is None or name in self.only)
            (kept if is_wanted else others).append(item)
        items[:] = kept
        config.hook.pytest_deselected(items=others)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid):
        self.current = {"id": name_of(nodeid), "outcome": "passed"}
        # Replaced by the outcome at the end: a test that ends the process is found by this line.
        self.write({"id": name_of(nodeid), "outcome": "died"})
        self.position = os.path.getsize(self.log) if self.log else 0

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        """Tables of fixtures that several tests share stay."""
        is_shared = self.cleaner is not None and fixturedef.scope != "function"
        before = self.cleaner.relations() if is_shared else None
        yield
        if before is not None:
            self.cleaner.keep(self.cleaner.relations() - before)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = (yield).get_result()
        entry = self.current
        if entry is not None and self.log and report.when == "setup":
            # What the fixtures of a class need, each of its tests needs.
            entry["setup"] = statements(self.log, self.position)[0]
        if entry is None or entry["outcome"] != "passed" or (report.passed and not hasattr(report, "wasxfail")):
            return
        entry["outcome"] = "failed" if report.failed else "skipped"
        entry["phase"] = report.when
        if call.excinfo is not None:
            entry.update(description(call.excinfo.value))
        else:
            entry["message"] = str(report.longrepr or getattr(report, "wasxfail", ""))[:MESSAGE_MAX]

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self, nodeid):
        entry, self.current = self.current, None
        if entry is None:
            return
        if self.log:
            entry["statements"], entry["connections"] = statements(self.log, self.position)
        self.write(entry)
        if self.cleaner:
            self.cleaner.after()

    def write(self, entry):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def name_of(nodeid):
    """The id of a test without the server's version."""
    return VERSION.sub("", nodeid)


def read(path):
    """The last entry of each test of a record."""
    entries = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                # The process may have died within the last line.
                if line.endswith("\n"):
                    entry = json.loads(line)
                    entries[entry["id"]] = entry
    return list(entries.values())


def description(error):
    """The server's error that an exception is about or was raised after; the exception itself when there is none."""
    chain, seen = [error], set()
    for candidate in chain:
        if id(candidate) in seen:
            continue
        seen.add(id(candidate))
        code = getattr(candidate, "sqlstate", None)
        if isinstance(code, str):
            diagnostics = getattr(candidate, "diag", None)
            message = getattr(diagnostics, "message_primary", None) or str(candidate)
            return {"sqlstate": code, "message": message[:MESSAGE_MAX], "type": type(error).__name__}
        following = (getattr(candidate, "orig", None), candidate.__cause__, candidate.__context__)
        chain += [other for other in following if isinstance(other, BaseException)]
        chain += [other for other in getattr(candidate, "exceptions", ()) if isinstance(other, BaseException)]
    return {"sqlstate": None, "message": str(error)[:MESSAGE_MAX], "type": type(error).__name__}


def statements(path, position):
    """What the log of PostgreSQL has from a position on: the statements in order, each with its session, and the number of
    connections. A line of the log begins with the process of the session in brackets.
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        file.seek(position)
        lines = file.read().splitlines()
    found, connections = [], 0
    is_statement = False
    for line in lines:
        if line.startswith("\t"):
            if is_statement:
                found[-1][1] += "\n" + line[1:]
            continue
        begin = LINE.match(line)
        is_statement = begin is not None and begin["kind"] != "connection received"
        if is_statement:
            found.append([int(begin["session"]), begin["text"]])
        elif begin:
            connections += 1
    return collapsed(found)[:STATEMENTS_MAX], connections


def collapsed(statements):
    """Statements without those that only repeat the one before."""
    return [entry for index, entry in enumerate(statements) if index == 0 or statements[index - 1] != entry]


class Cleaner:
    """Drops the tables and views that a test made, where a transaction's ROLLBACK would have removed them."""

    def __init__(self, conninfo):
        self.conninfo = conninfo
        self.connection = None
        # Those that are not dropped.
        self.known = self.relations()

    def keep(self, relations):
        self.known |= relations

    def after(self):
        for relation in self.relations() - self.known:
            schema, name, is_view = relation
            quoted = ".".join('"' + part.replace('"', '""') + '"' for part in (schema, name))
            try:
                self.execute(f"DROP {'VIEW' if is_view else 'TABLE'} IF EXISTS {quoted} CASCADE")
            except self.error as error:
                print(f"{quoted} stays: {error}")
                self.known.add(relation)

    def relations(self):
        return {tuple(row) for row in self.execute(RELATIONS).fetchall()}

    def execute(self, statement):
        import psycopg

        self.error = psycopg.Error
        if self.connection is None or self.connection.closed:
            self.connection = psycopg.connect(self.conninfo, autocommit=True, prepare_threshold=None)
        return self.connection.execute(statement)
