"""The ledger and the schedule, without a server: what they accuse, and what they must not."""

import unittest

import chaos
import faults
import ledger


class Keys(unittest.TestCase):
    def setUp(self):
        self.keyed = ledger.Keyed()
        for key in range(3):
            self.keyed.begin(500, key, 1)
        self.keyed.acknowledge(500, 0)
        self.keyed.acknowledge(500, 1)

    def test_rows_with_and_without_the_open_write_are_both_right(self):
        self.assertEqual(self.keyed.compare([(500, 0, 1), (500, 1, 1)]), [])
        self.assertEqual(self.keyed.compare([(500, 0, 1), (500, 1, 1), (500, 2, 1)]), [])

    def test_a_lost_a_doubled_a_strange_and_a_changed_row_are_found(self):
        for rows, word in (
            ([(500, 0, 1)], "lost"),
            ([(500, 0, 1), (500, 1, 1), (500, 1, 1)], "doubled"),
            ([(500, 0, 1), (500, 1, 1), (500, 9, 1)], "stranger"),
            ([(500, 0, 1), (500, 1, 7)], "wrong value"),
        ):
            found = self.keyed.compare(rows)
            self.assertEqual(len(found), 1, found)
            self.assertIn(word, found[0])

    def test_an_open_write_over_an_acknowledged_one_may_show_or_not(self):
        self.keyed.begin(500, 0, 2)
        self.assertFalse(self.keyed.settled(500, 0))
        for n in (1, 2):
            self.assertEqual(self.keyed.compare([(500, 0, n), (500, 1, 1)]), [])
        self.keyed.acknowledge(500, 0)
        self.assertIn("wrong value", self.keyed.compare([(500, 0, 1), (500, 1, 1)])[0])
        self.assertEqual(self.keyed.bounds(500), (2, 3))

    def test_a_write_that_never_left_leaves_nothing(self):
        self.keyed.never_sent(500, 2)
        self.assertIn("stranger", self.keyed.compare([(500, 0, 1), (500, 1, 1), (500, 2, 1)])[0])


class Rows(unittest.TestCase):
    def test_appended_rows_are_there_once_each(self):
        appended = ledger.Appended()
        appended.begin([(0, 1), (0, 2)])
        appended.acknowledge([(0, 1), (0, 2)])
        appended.begin([(0, 3)])
        self.assertEqual(appended.compare([(0, 1), (0, 2)]), [])
        self.assertEqual(appended.compare([(0, 1), (0, 2), (0, 3)]), [])
        self.assertIn("lost", appended.compare([(0, 1)])[0])
        self.assertIn("doubled", appended.compare([(0, 1), (0, 2), (0, 3), (0, 3)])[0])
        self.assertIn("stranger", appended.compare([(0, 1), (0, 2), (1, 1)])[0])


class Catalogs(unittest.TestCase):
    def test_tables_are_there_from_their_creation_to_their_drop(self):
        tables = ledger.Tables()
        for name in ("a", "b", "c"):
            tables.begin(name)
        tables.created("a")
        tables.created("b")
        tables.begin("b")
        tables.dropped("b")
        self.assertEqual(tables.compare(["a"]), [])
        self.assertEqual(tables.compare(["a", "c"]), [])
        self.assertIn("lost", tables.compare(["c"])[0])
        self.assertIn("back", tables.compare(["a", "b"])[0])
        self.assertIn("strange", tables.compare(["a", "d"])[0])


class Times(unittest.TestCase):
    def test_a_failover_lasts_until_a_later_write_is_acknowledged(self):
        line = ledger.Timeline()
        for began, ended, ok in ((0, 1, True), (1, 2.5, True), (3, 4, False), (4, 6, True), (6, 7, True)):
            line.add(began, ended, ok)
        # The write that was under way when the fault came does not count.
        self.assertEqual(line.first_success(1.5), 6)
        self.assertEqual(line.longest_gap(1, 7), 3.5)
        self.assertEqual(line.longest_gap(6.5, 30), 23)
        self.assertEqual(line.failures(0, 7), 1)
        self.assertIsNone(line.first_success(8))


class Schedules(unittest.TestCase):
    def test_a_seed_gives_the_same_schedule_and_another_seed_another(self):
        kinds = list(faults.KINDS.values())
        one, two = faults.schedule(7, kinds, 2), faults.schedule(7, kinds, 2)
        self.assertEqual(one, two)
        self.assertNotEqual([fault.kind.name for fault in one], [fault.kind.name for fault in faults.schedule(8, kinds, 2)])
        self.assertEqual(sorted(fault.kind.name for fault in one), sorted([kind.name for kind in kinds] * 2))

    def test_what_a_cluster_cannot_do_is_not_planned(self):
        verbs = {"kill", "start", "stop"}
        names = {kind.name for kind in faults.possible([], {"meta", "datanode", "frontend"}, verbs)}
        self.assertIn("kill-meta", names)
        self.assertIn("restart-all", names)
        self.assertFalse(names & {"cut-meta", "pause-meta", "full-disk", "bounce", "corrupt-file"})
        self.assertFalse(names & {"flip-datanode", "wipe-meta", "older-datanode", "eio-sync-datanode"})
        harmed = {kind.name for kind in faults.possible([], {"meta", "datanode"}, verbs | {"flip", "wipe"})}
        self.assertLessEqual({"flip-datanode", "flip-meta", "wipe-datanode"}, harmed)
        self.assertFalse(harmed & {"wipe-meta", "corrupt-file"})
        with self.assertRaises(ValueError):
            faults.possible(["cut-meta"], {"meta"}, verbs)
        with self.assertRaises(ValueError):
            faults.possible(["no-such-fault"], {"meta"}, verbs)


class Orders(unittest.TestCase):
    def test_orders_are_as_the_library_reads_them(self):
        for kind in faults.KINDS.values():
            for order in kind.orders:
                self.assertRegex(order, r"^(fsync|fdatasync|read|pread|write|pwrite|open) \d+ \S+$")
            self.assertEqual(bool(kind.orders), kind.verb == "disturb", kind.name)


class Health(unittest.TestCase):
    NODES = [(1, "a", True, 0), (2, "b", True, 0), (3, "c", True, 0)]

    def replicas(self, *roles, applied=(100, 100, 100)):
        return [("t", 7, node + 1, role, at, None) for node, (role, at) in enumerate(zip(roles, applied))]

    def troubles(self, replicas, nodes=None):
        return chaos.troubles_of(nodes or self.NODES, replicas, [], 3, 10)

    def test_a_cluster_whose_replicas_follow_is_well(self):
        self.assertEqual(self.troubles(self.replicas("leader", "follower", "follower")), [])

    def test_what_is_absent_behind_or_without_a_leader_is_said(self):
        self.assertIn("absent", self.troubles(self.replicas("leader", "follower", "absent"))[0])
        self.assertIn("at 80 of 100", self.troubles(self.replicas("leader", "follower", "follower", applied=(100, 80, 95)))[0])
        self.assertIn("no leader", self.troubles(self.replicas("follower", "follower", "follower"))[0])
        dead = [(1, "a", True, 0), (2, "b", True, 0), (3, "c", False, 0)]
        self.assertEqual(len(self.troubles(self.replicas("leader", "follower", "follower"), dead)), 2)

    def test_a_meta_that_is_away_or_behind_and_a_group_without_a_leader_are_said(self):
        well = [("a", True, True, 100), ("b", True, False, 99), ("c", True, False, 90)]
        self.assertEqual(chaos.troubles_of_metas(well), [])
        self.assertIn("does not answer", chaos.troubles_of_metas([*well[:2], ("c", False, None, None)])[0])
        self.assertIn("no leader", chaos.troubles_of_metas([("a", True, False, 100), *well[1:]])[0])
        self.assertIn("at 10 of 100", chaos.troubles_of_metas([*well[:2], ("c", True, False, 10)])[0])

    def test_a_partitions_start_is_read_from_its_text(self):
        self.assertEqual([chaos.lower_bound(text) for text in ("(slot=1000)", None, "", "(slot=-5)")], [1000, -(2**63), -(2**63), -5])


if __name__ == "__main__":
    unittest.main()
