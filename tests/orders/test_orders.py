"""Unit tests of the measurement itself; no server."""

import unittest

import orders
from server import Broken


class Connection:
    """Answers each table's queries with rows of its own."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = []

    def execute(self, sql):
        self.asked.append(sql)
        self.found = next(answer for name, answer in self.answers.items() if name in sql)
        return self

    def fetchall(self):
        return self.found


class Orders(unittest.TestCase):
    def test_every_question_names_its_table(self):
        for question in orders.QUESTIONS:
            self.assertIn(" by_hash ", question.sql.format(table="by_hash") + " ", question.name)
            self.assertLessEqual(set(question.sortless), set(orders.PLACEMENTS))

    def test_tables_are_asked_in_turns_and_compared(self):
        question = orders.Question("all", "SELECT * FROM {table} ORDER BY ts")
        equal = Connection({f"by_{name}": [(1, 2)] for name in orders.PLACEMENTS})
        medians = orders.measured(equal, question, 2)
        self.assertEqual(set(medians), set(orders.PLACEMENTS))
        self.assertEqual(equal.asked[:3], equal.asked[3:6])
        differs = Connection({"by_range": [(1, 2)], "by_hash": [(2, 1)], "by_rules": [(1, 2)]})
        with self.assertRaisesRegex(Broken, "by hash differs"):
            orders.measured(differs, question, 1)

    def test_a_sort_that_is_not_needed_is_a_failure(self):
        question = orders.Question("one", "SELECT * FROM {table}", ("range",))
        self.assertIsNone(orders.check(question, "hash", True))
        self.assertIsNone(orders.check(question, "range", False))
        self.assertIn("has a sort", orders.check(question, "range", True))

    def test_merges_are_no_sorts(self):
        plan = Connection({"EXPLAIN": [("physical_plan", "SortPreservingMergeExec: [a]\n  PartitionScanExec")]})
        self.assertFalse(orders.has_sort(plan, "SELECT 1"))
        plan = Connection({"EXPLAIN": [("physical_plan", "SortExec: [a]")]})
        self.assertTrue(orders.has_sort(plan, "SELECT 1"))

    def test_the_ratio_is_that_of_hash_to_range(self):
        question = orders.QUESTIONS[0]
        self.assertTrue(orders.line(question, {"range": 2.0, "hash": 2.1, "rules": 9.0}).endswith("ok"))
        self.assertTrue(orders.line(question, {"range": 2.0, "hash": 3.0, "rules": 1.0}).endswith("MISSED"))


if __name__ == "__main__":
    unittest.main()
