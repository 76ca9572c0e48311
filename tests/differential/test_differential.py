"""The parts of the fuzzer that need no server: trees and how they shrink, the choices of a seed, the rules of comparison."""

from __future__ import annotations

import random
import re
import unittest

import compare
import known
from cases import Case, case_of
from changes import Change, Changes
from compare import Answer
from expressions import KINDS, split
from forms import AGGREGATES, FORMS, ORDERED, PEERS
from judge import texts
from layouts import FEW, LAYOUTS
from literals import LITERALS, literal_of
from query_tree import Select, SetOperation, is_ordered
from schema import insert, random_rows, random_table
from shrink import Contents, Failing, candidates, with_fewer_rows
from tree import Form, Node, Same, Series, Text, reductions

INT, FLOAT, NUMERIC, TEXT, INTERVAL, DATE, TIME = 23, 701, 1700, 25, 1186, 1082, 1114


def rows(types: tuple[int, ...], *values: tuple[str | None, ...]) -> Answer:
    return Answer(types=types, names=("?",) * len(types), rows=values)


def error(code: str, message: str = "") -> Answer:
    return Answer(code=code, message=message)


def shrunk(tree: Node, fails: object) -> str:
    """The smallest text that still fails."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in reductions(tree):
            if fails(candidate.sql()):  # type: ignore[operator]
                tree, smaller = candidate, True
                break
    return tree.sql()


class Trees(unittest.TestCase):
    def test_an_expression_shrinks_to_the_part_that_fails(self) -> None:
        bad = Form("int", ["abs(", Text("t.bad", "int"), ")"])
        tree = Form("bool", ["(", Form("int", ["(", bad, " + ", Text("t.x", "int"), ")"]), " = ", Text("7", "int"), ")"])
        self.assertEqual(shrunk(tree, lambda text: "abs(t.bad)" in text), "(abs(t.bad) = 7)")

    def test_a_query_loses_clauses_columns_and_its_limit(self) -> None:
        query = Select(
            [Text("t.a", "int"), Text("t.bad", "int"), Text("t.b", "text")],
            [Text(" FROM t"), Series([Text("t.a > 1", "bool"), Text("t.b = 'x'", "bool")], " AND ", 0, " WHERE ")],
            word="SELECT DISTINCT", order=["", " DESC", ""], limit=" LIMIT 3",
        )  # fmt: skip
        self.assertEqual(shrunk(query, lambda text: "t.bad" in text), "SELECT t.bad FROM t")

    def test_columns_of_both_sides_of_a_set_operation_go_together(self) -> None:
        left = Select([Text("1"), Text("bad")], [], names=["c0", "c1"])
        right = Select([Text("2"), Text("worse")], [])
        query = SetOperation(left, "UNION", right, ["", ""])
        self.assertEqual(shrunk(query, lambda text: "bad" in text and "worse" in text), "(SELECT bad AS c1) UNION (SELECT worse)")

    def test_a_part_that_stands_twice_shrinks_in_both_places(self) -> None:
        part = Form("text", ["upper(", Text("t.long_name", "text"), ")"])
        tree = Form("text", ["string_agg(", part, ", ',' ORDER BY ", Same(part), ")"])
        for candidate in reductions(tree):
            found = re.fullmatch(r"string_agg\((.*), ',' ORDER BY (.*)\)", candidate.sql())
            self.assertTrue(not found or found[1] == found[2], candidate.sql())

    def test_every_reduction_is_another_text_and_an_end_comes(self) -> None:
        for number in range(1, 6):
            for statement in case_of(3, number).statements():
                node = statement.node if isinstance(statement, Change) else statement
                for candidate, _ in zip(reductions(node), range(50), strict=False):
                    self.assertIsInstance(candidate.sql(), str)


class Seeds(unittest.TestCase):
    def test_the_same_seed_gives_the_same_case(self) -> None:
        for number in (0, 1, 2):
            one, other = ([texts(statement) for statement in case_of(5, number).statements()] for _ in range(2))
            self.assertEqual(one, other)
        self.assertNotEqual(Case(5, 1).loads()[0].first, Case(6, 1).loads()[0].first)

    def test_many_cases_can_be_made(self) -> None:
        for number in range(80):
            self.assertTrue(all(all(texts(statement)) for statement in case_of(9, number).statements()))

    def test_no_two_rows_of_an_insert_have_one_key(self) -> None:
        for number in range(30):
            dice = random.Random(number)
            table = random_table(dice, 0)
            places = [place for place, column in enumerate(table.columns) if column.name in table.key]
            keys = [tuple(row[place] for place in places) for row in random_rows(dice, table, 40)]
            self.assertEqual(len(keys), len(set(keys)))

    def test_tables_say_how_keys_meet(self) -> None:
        for number in range(30):
            table = random_table(random.Random(number), 0)
            self.assertEqual("UNIQUE" in table.theirs(), table.mode != "append")
            self.assertEqual("append_mode" in table.ours(), table.mode == "append")
            self.assertEqual(bool(table.conflict()), table.mode != "append")

    def test_first_rows_are_in_both_parts_of_a_load(self) -> None:
        for load in Case(7, 3).loads():
            self.assertTrue(load.first.startswith(f"INSERT INTO {load.table.name} VALUES ("))

    def test_an_added_column_is_there_for_later_statements_only(self) -> None:
        tables = [random_table(random.Random(2), place) for place in range(2)]
        before, changes = tables[1], Changes(random.Random(3), tables)
        change = changes.column(before)
        self.assertIs(tables[1], before)
        changes.made(change)
        column = tables[1].columns[-1]
        self.assertEqual(tables[1].columns[:-1], before.columns)
        self.assertNotIn(column.name, [other.name for table in (before, tables[0]) for other in table.columns])
        self.assertIn(f" ADD COLUMN {column.name} {column.type.theirs}{column.default_clause}", texts(change)[0])
        self.assertIn(f"{column.name} {column.type.theirs}{column.default_clause}", tables[1].theirs())
        self.assertIn(f"{column.name} {column.type.ours}{column.default_clause}", tables[1].ours())

    def test_quotes_in_values_are_doubled(self) -> None:
        table = random_table(random.Random(1), 0)
        text = insert(table, [("it's", None)], ("k", "g"))
        self.assertEqual(text, "INSERT INTO t0 (k, g) VALUES ('it''s', NULL)")


class Surface(unittest.TestCase):
    def test_templates_name_kinds_and_literals_that_there_are(self) -> None:
        for table in (FORMS, AGGREGATES, PEERS, ORDERED):
            for kind, forms in table.items():
                self.assertIn(kind, KINDS)
                for form in forms:
                    for _, name in split(form):
                        self.assertTrue(not name or name.isdigit() or name in KINDS or name in LITERALS, f"{name} of {form}")

    def test_every_kind_has_literals(self) -> None:
        for kind in KINDS:
            self.assertTrue(all(literal_of(random.Random(number), kind) for number in range(20)))

    def test_what_is_held_back_has_a_reason_and_comes_in_no_statement(self) -> None:
        self.assertEqual(len(known.HELD_BACK), sum(len(constructs) for _, constructs in known.KNOWN))
        templates = {form for table in (FORMS, AGGREGATES, PEERS, ORDERED) for forms in table.values() for form in forms}
        for construct in known.HELD_BACK:
            if "{" in construct:
                self.assertIn(construct, templates)

    def test_ci_has_every_way_of_storing_and_running_once(self) -> None:
        self.assertEqual({layout.run_at_data for layout in FEW}, {"off", "on", "always"})
        self.assertEqual({layout.storage for layout in FEW}, {"memory", "files", "both", "compacted"})
        self.assertEqual(len({layout.name for layout in LAYOUTS}), len(LAYOUTS))


class Comparing(unittest.TestCase):
    def differ(self, ours: Answer, theirs: Answer, ordered: bool = False) -> str:
        verdict = compare.with_postgres(ours, theirs, ordered)
        return "" if verdict.accepted else verdict.kind

    def test_order_counts_where_it_is_decided(self) -> None:
        one, other = rows((INT,), ("1",), ("2",)), rows((INT,), ("2",), ("1",))
        self.assertEqual(self.differ(one, other), "")
        self.assertEqual(self.differ(one, other, ordered=True), "order")

    def test_floats_may_differ_in_their_last_digits_and_nothing_else(self) -> None:
        self.assertEqual(self.differ(rows((FLOAT,), ("0.30000000000000004",)), rows((FLOAT,), ("0.3",))), "")
        self.assertEqual(self.differ(rows((FLOAT,), ("0.30001",)), rows((FLOAT,), ("0.3",))), "values")
        self.assertEqual(self.differ(rows((FLOAT,), ("NaN",)), rows((FLOAT,), ("0.3",))), "values")
        self.assertEqual(self.differ(rows((FLOAT,), ("Infinity",)), rows((FLOAT,), ("-Infinity",))), "values")
        self.assertEqual(self.differ(rows((FLOAT,), ("-0",)), rows((FLOAT,), ("0",))), "")

    def test_zeros_behind_the_point_say_nothing_and_other_digits_do(self) -> None:
        self.assertEqual(self.differ(rows((NUMERIC,), ("1.50",)), rows((NUMERIC,), ("1.5000",))), "")
        self.assertEqual(self.differ(rows((NUMERIC,), ("1.51",)), rows((NUMERIC,), ("1.5000",))), "values")
        self.assertEqual(self.differ(rows((INT,), ("9007199254740993",)), rows((INT,), ("9007199254740992",))), "values")

    def test_decimals_are_compared_as_far_as_both_have_digits(self) -> None:
        self.assertEqual(self.differ(rows((NUMERIC,), ("0.333333",)), rows((NUMERIC,), ("0.33333333333333333333",))), "")
        self.assertEqual(self.differ(rows((NUMERIC,), ("0.333335",)), rows((NUMERIC,), ("0.33333333333333333333",))), "values")
        self.assertEqual(self.differ(rows((NUMERIC,), ("2",)), rows((NUMERIC,), ("2.5",))), "values")
        self.assertEqual(self.differ(rows((NUMERIC,), ("1.2346",)), rows((NUMERIC,), ("1.2345",))), "values")

    def test_null_is_no_empty_text(self) -> None:
        self.assertEqual(self.differ(rows((TEXT,), (None,)), rows((TEXT,), ("",))), "values")

    def test_rows_are_counted(self) -> None:
        self.assertEqual(self.differ(rows((INT,), ("1",), ("1",)), rows((INT,), ("1",))), "rows")
        self.assertEqual(self.differ(rows((INT,), ("1",), ("1",), ("2",)), rows((INT,), ("1",), ("2",), ("2",))), "values")
        self.assertEqual(self.differ(Answer(count=2), Answer(count=1)), "count")

    def test_types_of_one_family_are_alike(self) -> None:
        self.assertEqual(self.differ(rows((FLOAT,), ("2.5",)), rows((NUMERIC,), ("2.5000000000000000",))), "")
        self.assertEqual(self.differ(rows((DATE,), ("2024-01-01",)), rows((TIME,), ("2024-01-01 00:00:00",))), "type")

    def test_intervals_are_read_however_they_are_written(self) -> None:
        self.assertEqual(compare.interval("1 year 2 mons 3 days 04:05:06.5"), (14, 3, 14706500000))
        self.assertEqual(compare.interval("-1 days -00:30:00"), (0, -1, -1800000000))
        self.assertEqual(self.differ(rows((INTERVAL,), ("1 day",)), rows((INTERVAL,), ("24:00:00",))), "values")

    def test_a_refusal_by_name_is_accepted_and_a_wrong_error_is_not(self) -> None:
        refused = compare.with_postgres(error("0A000", 'FETCH of "t1" is not supported'), rows((INT,), ("1",)), False)
        self.assertEqual((refused.kind, refused.accepted, refused.text), ("refused", True, "FETCH of .. is not supported"))
        self.assertEqual(self.differ(error("XX000"), rows((INT,), ("1",))), "error")
        self.assertEqual(self.differ(error("22012"), rows((INT,), ("1",))), "error")

    def test_errors_are_alike_by_their_class(self) -> None:
        self.assertEqual(self.differ(error("22003"), error("22012")), "")
        self.assertEqual(self.differ(error("22003"), error("22008")), "")
        self.assertEqual(self.differ(error("XX000"), error("22012")), "error code")
        self.assertEqual(self.differ(error("57014"), error("22012")), "error code")

    def test_who_looks_at_fewer_rows_may_see_no_error(self) -> None:
        verdict = compare.with_postgres(rows((INT,)), error("22012"), False)
        self.assertEqual((verdict.kind, verdict.accepted), ("not evaluated", True))
        self.assertEqual(self.differ(rows((INT,)), error("21000")), "accepted")

    def test_layouts_have_to_say_the_same(self) -> None:
        self.assertEqual(compare.between_layouts(error("22012"), error("22003"), False).kind, "error code")
        self.assertEqual(compare.between_layouts(error("22012"), rows((INT,)), False).kind, "error")
        self.assertEqual(compare.between_layouts(rows((INT,), ("1",)), rows((INT,), ("2",)), False).kind, "values")

    def test_rows_that_the_tolerance_puts_into_another_order_are_found(self) -> None:
        one = rows((FLOAT, TEXT), ("1.0000000001", "a"), ("1", "b"), ("5", "c"))
        other = rows((FLOAT, TEXT), ("1", "a"), ("1.0000000001", "b"), ("5", "c"))
        self.assertEqual(self.differ(one, other), "")


class Shrinking(unittest.TestCase):
    def setUp(self) -> None:
        dice = random.Random(4)
        self.table = random_table(dice, 0)
        self.contents = (Contents(self.table, random_rows(dice, self.table, 8)),)

    def test_halves_of_the_rows_are_left_out_first(self) -> None:
        sizes = [len(contents[0].rows) for contents in with_fewer_rows(self.contents)]
        self.assertEqual(sizes[0], len(self.contents[0].rows) - len(self.contents[0].rows) // 2)
        self.assertEqual(sizes[-1], len(self.contents[0].rows) - 1)

    def test_tables_and_columns_that_nobody_names_go(self) -> None:
        statement = Select([Text("1")], [])
        fewer = next(candidates(Failing(statement, self.contents)))
        self.assertEqual(fewer.contents, ())
        named = Select([Text("k", "int")], [Text(" FROM t0")])
        last = list(candidates(Failing(named, self.contents)))[-1]
        self.assertEqual({column.name for column in last.contents[0].table.columns}, {"k", *self.table.key})

    def test_only_total_orders_are_compared(self) -> None:
        self.assertTrue(is_ordered(Select([Text("1")], [], order=[""])))
        self.assertFalse(is_ordered(Select([Text("1")], [])))


if __name__ == "__main__":
    unittest.main()
