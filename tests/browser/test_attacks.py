"""The list of attacks and the verdict, without a browser."""

import unittest

import attacks


def result(outcome, status=0, text="", way="fetch"):
    attack = attacks.Attack(way, "http://127.0.0.1:4000/v1/sql")
    return {"attack": attack.as_json(), "outcome": outcome, "status": status, "text": text}


class Lists(unittest.TestCase):
    def test_every_route_is_asked_in_every_way(self):
        source = '    route("/v1/sql", BOTH, Endpoint::Sql),\n    route("/write", POST, Endpoint::WriteV1),'
        self.assertEqual(attacks.routes_of(source), ["/v1/sql", "/write"])
        found = attacks.of_server("http://127.0.0.1:1", ["/v1/sql", "/write"], ["http://127.0.0.1:2"])
        ways = {attack.way for attack in found if "/v1/sql" in attack.url}
        self.assertLessEqual({"fetch", "xhr", "form", "img", "script", "socket", "events", "frame", "window", "beacon"}, ways)
        self.assertTrue(any(attack.url.startswith("http://127.0.0.1:2") and attack.way == "form" for attack in found))

    def test_routes_that_take_lines_are_sent_lines(self):
        bodies = {attack.body for attack in attacks.of_route("http://h", "/api/v2/write") if attack.way == "beacon"}
        self.assertEqual(bodies, {attacks.LINE})

    def test_every_statement_bears_the_mark(self):
        for statement in (attacks.READS, *attacks.CHANGES):
            self.assertIn(attacks.MARK, statement)


class Verdicts(unittest.TestCase):
    def test_what_is_refused_or_cannot_be_seen_is_well(self):
        for outcome in ("refused", "sent", "unanswered"):
            self.assertEqual(attacks.faults([result(outcome)], False), [])

    def test_what_was_read_or_loaded_is_a_fault(self):
        for one in (result("read", 200, "{}"), result("read", 403, "no"), result("loaded", way="img")):
            self.assertEqual(len(attacks.faults([one], False)), 1)

    def test_a_page_whose_name_was_rebound_may_read_that_the_name_is_not_known(self):
        self.assertEqual(attacks.faults([result("read", 421, "no")], True), [])
        self.assertEqual(attacks.faults([result("read", 0, 'unknown host name "x"', way="frame")], True), [])
        self.assertEqual(len(attacks.faults([result("read", 200, "")], True)), 1)
        self.assertEqual(len(attacks.faults([result("read", 421, attacks.SECRET)], True)), 1)


if __name__ == "__main__":
    unittest.main()
