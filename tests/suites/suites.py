"""Upstream test suites of PostgreSQL's clients on PostgreSQL and on Partita. See tests/suites/run."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import psycopg

import refused
import report
from partita import Partita
from postgres import Postgres
from recorder import read
from upstream import DATABASE, HOST, SUITES, USER, Suite, prepare

# A test that ends pytest itself is left behind this often.
RESTARTS = 20
TITLES = {suite.name.lower(): suite for suite in SUITES}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/suites/run")
    parser.add_argument("--only", default=",".join(TITLES), metavar="SUITE,...", help=f"some of {', '.join(TITLES)}")
    parser.add_argument("--sources", type=pathlib.Path, metavar="DIR",
                        help="has the source of each suite in a folder of its name (they are fetched from where they are published)")
    parser.add_argument("--results", type=pathlib.Path, metavar="DIR",
                        help="keep the records of all tests there; the record of PostgreSQL is used again by the next run")
    parser.add_argument("--control", action="store_true", help="run on PostgreSQL only")
    parser.add_argument("--again", action="store_true", help="of the record of Partita run those tests that did not pass")
    parser.add_argument("--slow", action="store_true", help="with the tests that their suite calls slow")
    parser.add_argument("--match", default="", metavar="EXPRESSION", help="only tests whose names match, as pytest -k")
    parser.add_argument("--timeout", type=int, default=60, metavar="SECONDS", help="longest time of one test (60)")
    parser.add_argument("--longest", type=int, default=40, metavar="N", help="first errors to print (40)")
    parser.add_argument("--goal", type=float, metavar="PERCENT", help="fail when a suite passes less of what needs nothing refused")
    parser.add_argument("--cache", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.only = options.only.lower().split(",")
    if unknown := set(options.only) - set(TITLES):
        parser.error(f"no suite {', '.join(sorted(unknown))}")
    return options


class Run:
    """One run of pytest over a suite against a server, which is begun again when a test ends pytest."""

    def __init__(self, options: argparse.Namespace, suite: Suite, folder: pathlib.Path, record: pathlib.Path, port: int) -> None:
        self.folder = folder
        self.record = record
        self.environment = os.environ | {name: value.format(port=port) for name, value in suite.environment.items()}
        # What a user's own files say about connections must not matter.
        self.environment |= {"SUITES_RECORD": str(record), "PGPASSFILE": "/dev/null", "PGSERVICEFILE": "/dev/null"}
        # -s: SQLAlchemy's tests take the package that is installed.
        self.command = [sys.executable, "-s", "-m", "pytest", "-p", "recorder", "--quiet", "--tb=native",
                        f"--timeout={options.timeout}", "-o", "faulthandler_timeout=0"]
        self.command += suite.slow if options.slow else suite.not_slow
        if options.match:
            self.command += ["-k", options.match]
        self.command += [argument.format(port=port) for argument in suite.arguments]

    def to_end(self, *arguments: str, **environment: object) -> None:
        self.command += arguments
        self.environment |= {name: str(value) for name, value in environment.items()}
        for _ in range(RESTARTS):
            before = len(read(self.record))
            with tempfile.TemporaryDirectory() as cache, open(self.record.with_suffix(".out"), "ab") as output:
                done = subprocess.run([*self.command, "-o", f"cache_dir={cache}"], cwd=self.folder, env=self.environment,
                                      stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            # 0, 1: all were run. 5: none are left.
            if done.returncode in (0, 1, 5):
                return
            if len(read(self.record)) == before:
                break
            print(f"pytest ended with code {done.returncode}, and goes on behind that test", file=sys.stderr)
        print(f"pytest did not come to an end; see {self.record.with_suffix('.out')}", file=sys.stderr)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return listener.getsockname()[1]


def on_postgres(options: argparse.Namespace, suite: Suite, folder: pathlib.Path, work: pathlib.Path, record: pathlib.Path) -> None:
    port = free_port()
    settings = (f"-c listen_addresses={HOST} -c port={port} -c fsync=off -c jit=off -c max_connections=300"
                " -c max_prepared_transactions=10 -c log_statement=all -c log_connections=on -c log_line_prefix='[%p] '")
    server = Postgres(work / "postgres", settings)
    server.start()
    try:
        with psycopg.connect(server.conninfo() + f" port={port}", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}")
        with psycopg.connect(f"host={HOST} port={port} user={USER} dbname={DATABASE}", autocommit=True) as connection:
            for schema in suite.schemas:
                connection.execute(f"CREATE SCHEMA {schema}")
        Run(options, suite, folder, record, port).to_end(SUITES_LOG=work / "postgres" / "log")
    finally:
        server.stop()


def on_partita(
    options: argparse.Namespace, suite: Suite, folder: pathlib.Path, work: pathlib.Path, record: pathlib.Path, tests: list[str]
) -> list[str]:
    """Runs these tests, and returns the names of the features that the server refuses."""
    server = Partita(pathlib.Path(os.environ["PARTITA_BIN"]).resolve(), work / "partita")
    server.start()
    conninfo = f"host={HOST} port={server.port} user={USER} dbname={DATABASE}"
    only = work / "only"
    only.write_text("".join(f"{test}\n" for test in tests), encoding="utf-8")
    try:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            for schema in suite.schemas:
                connection.execute(f"CREATE SCHEMA {schema}")
            features = [name for name, _, example in refused.FEATURES if not example or refuses(connection, example)]
        environment = {"SUITES_ONLY": only} | ({"SUITES_TABLES": conninfo} if suite.has_own_tables else {})
        Run(options, suite, folder, record, server.port).to_end(*suite.elsewhere, **environment)
        if server.process and server.process.poll() is not None:
            print(f"the server ended with code {server.process.returncode}:\n{server.log_tail()}", file=sys.stderr)
    finally:
        server.stop()
    return features


def refuses(connection: psycopg.Connection, statement: str) -> bool:
    try:
        connection.execute(statement)
    except psycopg.Error:
        return True
    return False


def one(options: argparse.Namespace, suite: Suite, work: pathlib.Path, results: pathlib.Path) -> report.Result | None:
    folder = prepare(suite, options.sources, options.cache / "sources").resolve()
    control = results / f"{suite.name}.postgres.jsonl"
    if not control.exists():
        began = time.monotonic()
        on_postgres(options, suite, folder, work, control)
        print(f"{suite.name} on PostgreSQL took {time.monotonic() - began:.0f} s", file=sys.stderr)
    entries = read(control)
    passed = [entry["id"] for entry in entries if entry["outcome"] == "passed" and report.reaches(entry)]
    if not passed:
        raise SystemExit(f"no test of {suite.name} passes on PostgreSQL; see {control.with_suffix('.out')}")
    if options.control:
        print(f"{suite.name} {suite.version}: {len(passed)} of {len(entries)} tests pass on PostgreSQL and reach the server")
        return None
    record = results / f"{suite.name}.partita.jsonl"
    kept = [entry for entry in read(record) if options.again and entry["outcome"] == "passed"]
    record.write_text("".join(json.dumps(entry) + "\n" for entry in kept), encoding="utf-8")
    began = time.monotonic()
    features = on_partita(options, suite, folder, work, record, passed)
    print(f"{suite.name} on Partita took {time.monotonic() - began:.0f} s", file=sys.stderr)
    result = report.compare(entries, read(record), features)
    (results / f"{suite.name}.failed.tsv").write_text("".join(f"{line}\n" for line in report.details(result)), encoding="utf-8")
    print(report.text(f"{suite.name} {suite.version}", result, options.longest), flush=True)
    return result


def main() -> int:
    options = arguments()
    if not options.control and not pathlib.Path(os.environ.get("PARTITA_BIN", "")).is_file():
        sys.exit("PARTITA_BIN does not name a binary")
    work = pathlib.Path(tempfile.mkdtemp(prefix="suites-"))
    results = (options.results or work / "results").resolve()
    results.mkdir(parents=True, exist_ok=True)
    status = 0
    # Servers end with the program.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for name in options.only:
            folder = work / name
            folder.mkdir()
            result = one(options, TITLES[name], folder, results)
            if result and options.goal is not None and result.share() < options.goal:
                print(f"{TITLES[name].name} passes {result.share():.1f} %, not {options.goal:g} %")
                status = 1
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
