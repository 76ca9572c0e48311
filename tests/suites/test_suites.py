"""The parts that need neither a server nor the suites: records, what a test needs, the report."""

from __future__ import annotations

import pathlib
import tempfile
import unittest
from unittest import mock
import sys

# The plugin is imported by pytest, which the unit tests do without.
sys.modules.setdefault("pytest", mock.MagicMock())

import recorder
import refused
import report

NAMES = [name for name, _, _ in refused.FEATURES]


def control(name: str, *statements: str, outcome: str = "passed") -> dict:
    return {"id": name, "outcome": outcome, "statements": sent(*statements), "connections": 0}


def sent(*statements: str) -> list[list]:
    return [[1, text] for text in statements]


def failure(name: str, sqlstate: str | None, message: str) -> dict:
    return {"id": name, "outcome": "failed", "sqlstate": sqlstate, "message": message, "type": "Error"}


class Records(unittest.TestCase):
    def test_a_statement_of_several_lines_is_one_and_repetitions_are_left_out(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder, "log")
            log.write_text(
                "before\n"
                "[7] LOG:  connection received: host=127.0.0.1 port=1\n"
                "[7] LOG:  statement: SELECT 1,\n\t2\n"
                "[7] ERROR:  division by zero\n\tmore of it\n"
                "[8] LOG:  execute <unnamed>: SELECT $1\n"
                "[8] DETAIL:  parameters: $1 = '3'\n"
                "[8] LOG:  execute <unnamed>: SELECT $1\n"
                "[8] LOG:  execute fetch from s/c: SELECT $1\n"
            )
            found, connections = recorder.statements(str(log), len("before\n"))
        self.assertEqual(found, [[7, "SELECT 1,\n2"], [8, "SELECT $1"]])
        self.assertEqual(connections, 1)

    def test_the_last_line_of_a_test_counts_and_a_torn_one_does_not(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "record")
            path.write_text('{"id": "a", "outcome": "died"}\n{"id": "a", "outcome": "passed"}\n{"id": "b", "outc')
            self.assertEqual(recorder.read(path), [{"id": "a", "outcome": "passed"}])

    def test_ids_have_no_version_of_the_server(self) -> None:
        self.assertEqual(recorder.name_of("t.py::A_postgresql+psycopg_15_18::test_1_2"), "t.py::A_postgresql+psycopg::test_1_2")

    def test_the_error_of_the_server_is_found_behind_others(self) -> None:
        server = ValueError("relation is missing")
        server.sqlstate = "42P01"  # type: ignore[attr-defined]
        outer = RuntimeError("wrapped")
        outer.__cause__ = server
        self.assertEqual(recorder.description(outer), {"sqlstate": "42P01", "message": "relation is missing", "type": "RuntimeError"})
        self.assertIsNone(recorder.description(AssertionError("1 != 2"))["sqlstate"])


class Needs(unittest.TestCase):
    def test_features_are_found_in_statements(self) -> None:
        for name, statement in (
            ("two-phase commit", "PREPARE TRANSACTION 'a'"),
            ("LISTEN and NOTIFY", "listen channel"),
            ("stored functions and procedures", "CREATE OR REPLACE FUNCTION f() RETURNS INT AS ''"),
            ("enums", "CREATE TYPE mood AS\n ENUM ('a')"),
            ("range types", "SELECT $1::int4range"),
            ("composite types", "create type tmp as (a int)"),
            ("domains", "CREATE DOMAIN d AS int"),
            ("large objects", "SELECT lo_create(0)"),
            ("foreign keys", "CREATE TABLE t (a INT REFERENCES u (a))"),
            ("UNIQUE constraints", "CREATE UNIQUE INDEX i ON t (a)"),
            ("other encodings", "set client_encoding to latin9"),
            ("other date styles", "set datestyle = German, YMD"),
            ("times with a zone", "SELECT $1::TIME WITH TIME ZONE"),
        ):
            self.assertEqual(refused.needs(sent(statement), failure("a", "0A000", ""), NAMES), [name], statement)

    def test_settings_that_are_taken_are_no_features(self) -> None:
        statements = sent("set client_encoding to utf8", "SET client_encoding = 'SQL_ASCII'", "set datestyle = ISO, DMY",
                          "set intervalstyle to 'postgres'", "SELECT $1::TIMESTAMP WITH TIME ZONE")
        self.assertEqual(refused.needs(statements, failure("a", None, ""), NAMES), [])

    def test_what_the_server_says_counts_too(self) -> None:
        refusal = failure("a", "0A000", "conversion between latin1 and UTF8 is not supported")
        self.assertEqual(refused.needs(sent("SELECT set_config($1, $2, false)"), refusal, NAMES), ["other encodings"])

    def test_each_example_uses_its_feature(self) -> None:
        for name, _, example in refused.FEATURES:
            if example:
                self.assertIn(name, refused.needs(sent(example), failure("a", "0A000", ""), NAMES))

    def test_a_feature_that_is_not_refused_excuses_nothing(self) -> None:
        names = [name for name in NAMES if name != "enums"]
        statements = sent("CREATE TYPE mood AS ENUM ('a')")
        self.assertEqual(refused.needs(statements, failure("a", "0A000", ""), names), [])

    def test_a_rollback_matters_when_the_transaction_wrote(self) -> None:
        wrong = failure("a", None, "assert 1 == 0")
        self.assertEqual(refused.needs(sent("BEGIN", "INSERT INTO t VALUES (1)", "ROLLBACK"), wrong, NAMES), ["ROLLBACK"])
        self.assertEqual(refused.needs(sent("BEGIN", "SELECT 1", "ROLLBACK"), wrong, NAMES), [])
        self.assertEqual(refused.needs(sent("BEGIN", "INSERT INTO t VALUES (1)", "COMMIT", "ROLLBACK"), wrong, NAMES), [])

    def test_a_rollback_is_no_excuse_for_an_unknown_function(self) -> None:
        statements = sent("BEGIN", "INSERT INTO t VALUES (1)", "ROLLBACK")
        self.assertEqual(refused.needs(statements, failure("a", "42883", "function f() does not exist"), NAMES), [])

    def test_a_transaction_that_stays_failed_needed_its_savepoint(self) -> None:
        statements = sent("BEGIN", "SAVEPOINT a", "SELECT wat", 'ROLLBACK TO "a"', "COMMIT")
        self.assertEqual(refused.needs(statements, failure("a", "25P02", ""), NAMES), ["ROLLBACK"])
        self.assertEqual(refused.needs(statements, failure("a", "42883", ""), NAMES), [])

    def test_sessions_do_not_share_a_transaction(self) -> None:
        self.assertFalse(refused.takes_back([[1, "BEGIN"], [2, "INSERT INTO t VALUES (1)"], [1, "ROLLBACK"]]))


class Reports(unittest.TestCase):
    def test_the_share_leaves_out_what_needs_something_refused(self) -> None:
        entries = [control("passes", "SELECT 1"), control("fails", "SELECT 2"), control("enum", "CREATE TYPE e AS ENUM ()"),
                   control("aside"), control("broken", "SELECT 3", outcome="failed"), control("unseen", "SELECT 4")]
        records = [{"id": "passes", "outcome": "passed"}, failure("fails", "42883", "function \"f\" of 12"), failure("enum", "0A000", "")]
        result = report.compare(entries, records, NAMES)
        self.assertEqual(result.passed, ["passes"])
        self.assertEqual(sorted(result.failed), ["enum", "fails", "unseen"])
        self.assertEqual(result.needs, {"enum": ["enums"]})
        self.assertEqual(result.aside, 1)
        self.assertAlmostEqual(result.share(), 100 / 3)
        text = report.text("suite", result, 1)
        self.assertIn("and 1 more", text)
        self.assertEqual(len(list(report.details(result))), 3)

    def test_what_the_fixtures_of_a_class_need_each_of_its_tests_needs(self) -> None:
        first = control("t.py::A::first", "SELECT 1") | {"setup": sent("CREATE TABLE t (a INT REFERENCES u (a))")}
        records = [failure(name, "0A000", "") | {"phase": "setup"} for name in ("t.py::A::first", "t.py::A::other[1::2]")]
        result = report.compare([first, control("t.py::A::other[1::2]", "SELECT 2")], records, NAMES)
        self.assertEqual(list(result.needs.values()), [["foreign keys"], ["foreign keys"]])

    def test_causes_leave_out_names_and_numbers(self) -> None:
        self.assertEqual(report.cause(failure("a", "42883", "function \"f\" of 12\nmore")), '42883 function ".." of N')
        self.assertEqual(report.cause({"id": "a", "outcome": "died"}), "died ")


if __name__ == "__main__":
    unittest.main()
