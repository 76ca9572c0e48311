"""Unit tests of the measurement itself; no server."""

import contextlib
import decimal
import io
import pathlib
import unittest
from unittest import mock

import indexes
import peers
import questions
import report
import rows
import subject


class Rows(unittest.TestCase):
    def test_no_word_is_a_part_of_another(self):
        words = [rows.word(number) for number in range(rows.VOCABULARY)]
        asked = [term for each in rows.TERM_ROWS for term in rows.terms(each)]
        self.assertEqual(len(set(words + asked)), rows.VOCABULARY + rows.TERMS * len(rows.TERM_ROWS))
        self.assertEqual({len(word) for word in words + asked}, {6})

    def test_ids_and_codes_are_those_of_rows(self):
        self.assertEqual(rows.request_ids(1_000, 2), ["cfcd208495d565ef", "cee631121c2ec9232f3a2f028ad5c89b"[:16]])
        self.assertEqual(rows.codes(3), ["c0000", "c0037", "c0074"])
        self.assertEqual(len(set(rows.codes(rows.TERMS))), rows.TERMS)

    def test_advice_has_all_tables_and_rows(self):
        lines = [line for body in subject.advice_bodies(10, 55) for line in body.decode().splitlines()]
        self.assertEqual(len(lines), 55 * subject.ADVICE_ROWS)
        self.assertEqual({line.partition(",")[0] for line in lines}, {f"table_{number}" for number in range(10, 65)})


class Questions(unittest.TestCase):
    def test_every_question_has_a_statement_for_each_run(self):
        for question in questions.all_questions(1_000_000):
            for engine in question.statements:
                texts = question.texts(engine, rows.TERMS - 1)
                self.assertEqual(len(set(texts)), rows.TERMS)
                self.assertTrue(all("{}" not in text and " FROM logs WHERE " in text for text in texts))

    def test_tables_take_turns_and_the_first_turn_is_not_counted(self):
        question = questions.Question("q", "q", {"e": "{}"}, ("a", "b", "c", "d"))
        order = []
        clock = iter([0, 9, 9, 18, 20, 21, 21, 23, 30, 33, 33, 37])

        def table(name):
            return lambda text: order.append(name + text) or [(decimal.Decimal(2), name), (1, None)]

        with mock.patch("time.perf_counter", lambda: next(clock)):
            found = questions.ask(question, "e", {"x": table("x"), "y": table("y")}, 2)
        self.assertEqual(order, ["xa", "ya", "yb", "xb", "xc", "yc"])
        self.assertEqual(found["x"]["ms"], 2_500)
        self.assertEqual(found["x"]["answers"], [[["1", "None"], ["2", "x"]]] * 3)

    def test_different_answers_are_found(self):
        one = {"a": {"answers": [[["1"]], [["2"]]]}}
        self.assertEqual(questions.differences({"x": one, "y": one}), [])
        other = {"a": {"answers": [[["1"]], [["3"]]]}, "b": {"answers": []}}
        self.assertEqual(questions.differences({"x": one, "y": other}), ["a: x answered [['2']], y [['3']]"])


class Partita(unittest.TestCase):
    def test_the_tables_differ_in_indexes_only(self):
        plain = subject.definition("append", "bloom", has_indexes=False)
        indexed = subject.definition("append", "bloom", has_indexes=True)
        self.assertNotIn("INDEX,", plain.replace("TIME INDEX,", ""))
        for part in (" INVERTED INDEX", " SKIPPING INDEX", " FULLTEXT INDEX WITH (backend = 'bloom')"):
            self.assertIn(part, indexed)
            indexed = indexed.replace(part, "")
        self.assertEqual(indexed, plain)
        self.assertIn("'merge_mode' = 'last_row'", subject.definition("last_row", "bloom", has_indexes=False))

    def test_metrics_are_added_up_whether_shortened_or_not(self):
        lines = ["A metrics=[rows_scanned=10.24 K, row_groups_pruned=3]", "B metrics=[row_groups_pruned=35, xrows_scanned=1]"]
        self.assertEqual(subject.metric(lines, "row_groups_pruned"), 38)
        self.assertEqual(subject.metric(lines, "rows_scanned"), 10_240)
        self.assertEqual(subject.metric(lines, "files_read"), 0)


class Report(unittest.TestCase):
    def test_figures_have_three_digits(self):
        figures = [0, 0.01234, 1.5, 12.34, 1_234_567.8, float("nan")]
        self.assertEqual([report.number(figure) for figure in figures], ["0", "0.0123", "1.50", "12.3", "1,234,568", "-"])

    def test_a_line_judges_its_goal(self):
        self.assertTrue(report.line("x", 200, 1, goal=(0.01, False)).endswith("0.00500   at most 0.0100: ok"))
        self.assertTrue(report.line("x", 90, 10, 9.0, (10, True)).endswith("9.00   at least 10.0: MISSED"))

    def test_engines_stand_beside_each_other(self):
        def figures(title, ms):
            return {"title": title, "load_s": 1, "settle_s": 2, "bytes": 3e6, "questions": {"q": {"ms": ms}}}

        question = questions.Question("q", "a question", {}, ())
        subjects = {"A": [figures("A", 10.0), figures("with i", 2.0)], "B": [figures("B", 8.0), figures("with j", 9.0)]}
        lines = report.beside(subjects, [question]).splitlines()
        self.assertIn("| a question, ms | 10.0 | 2.00 | 8.00 | 9.00 |", lines)
        self.assertIn("|  | A: without / with | B: without / with | B / A, the fastest of each |", lines)
        self.assertEqual(lines[-1], "| a question | 5.00 | 0.889 | 4.00 |")


class Arguments(unittest.TestCase):
    def parsed(self, *arguments, binary="partita"):
        with mock.patch("sys.argv", ["run", *arguments]), mock.patch.dict("os.environ", {"PARTITA_BIN": binary}), \
                contextlib.redirect_stderr(io.StringIO()):
            return indexes.arguments()

    def test_sizes_that_are_given_count_with_quick(self):
        options = self.parsed("--quick", "--rows", "7")
        self.assertEqual((options.rows, options.pairs), (7, 2))
        self.assertEqual(self.parsed().rows, 5_000_000)

    def test_what_cannot_be_measured_is_refused(self):
        for arguments in (["--only", "nothing"], ["--runs", "0"], ["--runs", str(rows.TERMS)]):
            with self.assertRaises(SystemExit):
                self.parsed(*arguments)
        with self.assertRaises(SystemExit):
            self.parsed(binary="")
        self.assertEqual(self.parsed("--only", "peers", binary="").only, ["peers"])

    def test_every_peer_has_a_table_without_indexes_first(self):
        for tables in (peers.CLICKHOUSE_TABLES, peers.DUCKDB_TABLES):
            self.assertEqual(next(iter(tables.values()))[0], "")
        self.assertTrue((pathlib.Path(indexes.__file__).parent / "peers.py").exists())


if __name__ == "__main__":
    unittest.main()
