"""The parts of the harness that need no server: the catalogue, the choices of a seed, verdicts, shrinking."""

import http.client
import random
import socket
import threading
import time
import unittest

import pyarrow.flight as flight

import judge
import mutate
import pgwire
from cases import FORMS, MADE, STATEMENTS, Maker
from doors import DOORS, explained, field, fields, read_http
from families import catalogue
from grammar import Grammar
from kinds import chosen, door_of
from probes import NAMES, Sample
from shrink import parts_of, shrink

LIMITS = judge.Limits(probe_p99=0.5, stall=1.0, probe_failures=0, timeout=2.0, late=1.0, memory_mb=100)


def ran(**changes):
    run = judge.Run("nest/abs/14", "simple", 10.0, 1.0, "refused", "54001", "too deep", 50.0)
    return run._replace(**changes)


class Catalogue(unittest.TestCase):
    def test_there_are_many_kinds_and_no_two_have_one_name(self):
        names = [kind.name for kind in catalogue()]
        self.assertGreaterEqual(len({name.rsplit("/", 1)[0] for name in names}), 300)
        self.assertEqual(len(names), len(set(names)))

    def test_every_kind_has_a_text_and_doors(self):
        for kind in catalogue():
            texts = kind.build()
            self.assertTrue(texts and all(isinstance(text, str) and text for text in texts), kind.name)
            self.assertTrue(set(kind.doors) <= set(DOORS) and kind.doors, kind.name)

    def test_a_seed_decides_doors_and_order_and_uses_every_door(self):
        kinds = catalogue()
        self.assertEqual([kind.name for kind in chosen(kinds, 5)], [kind.name for kind in chosen(kinds, 5)])
        self.assertNotEqual([kind.name for kind in chosen(kinds, 5)], [kind.name for kind in chosen(kinds, 6)])
        self.assertEqual({door_of(kind, 1) for kind in kinds}, set(DOORS))
        (alone,) = chosen(kinds, 5, ["nest/abs/64_typo"])
        self.assertEqual(door_of(alone, 5), door_of(next(kind for kind in kinds if kind.name == alone.name), 5))


class Verdicts(unittest.TestCase):
    def test_a_statement_is_named_for_what_it_did(self):
        self.assertEqual(judge.faults(ran(), [], LIMITS), [])
        self.assertEqual(judge.faults(ran(seconds=3.5), [], LIMITS), [("late", "3.5 s")])
        self.assertEqual(judge.faults(ran(end="died", text="SIGABRT"), [], LIMITS), [("died", "SIGABRT")])
        self.assertEqual(judge.faults(ran(end="lost", text="closed"), [], LIMITS), [("connection lost", "closed")])
        self.assertEqual(judge.faults(ran(peak_mb=126.0), [], LIMITS), [("memory", "126 MiB")])
        self.assertEqual(judge.faults(ran(peak_mb=126.0, before_mb=125.0), [], LIMITS), [])
        self.assertEqual(judge.faults(ran(end="interrupted", seconds=9.0), [], LIMITS), [])
        self.assertEqual(judge.faults(ran(panics=["a.rs:1:2", "a.rs:1:2"]), [], LIMITS), [("panic", "a.rs:1:2")])

    def test_a_stall_is_the_fault_of_what_ran_meanwhile(self):
        samples = [Sample("read", 10.5, 4.0, ""), Sample("write", 11.5, 9.0, "")]
        self.assertEqual(judge.faults(ran(), samples, LIMITS), [("stall", "read 4.0 s")])

    def test_what_the_harness_took_away_itself_does_not_count(self):
        samples = [Sample("read", 9.0, 0.1, ""), Sample("read", 9.8, 5.0, "Lost"), Sample("read", 10.5, 2.0, "refused")]
        self.assertEqual(
            judge.counted(samples, [(10.0, 12.0)]), [Sample("read", 9.0, 0.1, ""), Sample("read", 9.8, 10.0 - 9.8, "")]
        )

    def test_quantiles_and_promises_of_a_whole_run(self):
        samples = [Sample(probe, float(i), 0.01, "") for probe in NAMES for i in range(100)]
        self.assertEqual(judge.broken(judge.lines(samples), 100.0, LIMITS), [])
        slow = samples + [Sample("write", 200.0, 0.9, ""), Sample("write", 201.0, 0.8, "")]
        self.assertEqual(judge.broken(judge.lines(slow), 100.0, LIMITS), ["write: p99 is 800 ms, allowed are 500"])
        failed = [*samples, Sample("health", 1.0, 0.0, "refused")]
        self.assertEqual(judge.broken(judge.lines(failed), 126.0, LIMITS), [
            "health: 1 failed, allowed are 0", "memory: 126 MiB were resident, allowed are 125",
        ])  # fmt: skip
        self.assertEqual(len(judge.broken(judge.lines([]), 0.0, LIMITS)), len(NAMES))


class Wire(unittest.TestCase):
    def test_large_rows_are_thrown_away_as_they_come(self):
        near, far = socket.socketpair()
        connection = pgwire.Connection.over(near, patience=10)
        row = pgwire.message(b"D", b"x" * (3 * pgwire.KEPT_BYTES))
        after = pgwire.message(b"D", b"\0\1\0\0\0\1" + b"7") + pgwire.message(b"Z", b"I")
        sender = threading.Thread(target=far.sendall, args=(row + after,))
        sender.start()
        rows = connection.until_ready()
        sender.join()
        far.close()
        connection.close()
        self.assertEqual([len(row) for row in rows], [0, 7])
        self.assertEqual(pgwire.first_value(rows[1:]), "7")
        self.assertLess(len(connection.buffer), pgwire.KEPT_BYTES)

    def test_the_first_error_is_raised_once_the_server_is_ready(self):
        near, far = socket.socketpair()
        connection = pgwire.Connection.over(near, patience=10)
        far.sendall(pgwire.message(b"E", b"SERROR\0C54001\0Mtoo deep\0\0") + pgwire.message(b"Z", b"I"))
        with self.assertRaises(pgwire.Refused) as raised:
            connection.until_ready()
        self.assertEqual((raised.exception.code, raised.exception.message), ("54001", "too deep"))
        far.close()
        with self.assertRaises(pgwire.Lost):
            connection.until_ready()
        connection.close()


    def test_a_server_that_times_out_or_is_busy_is_told_from_one_that_is_silent_or_gone(self):
        ended = flight.FlightTimedOutError("canceling statement due to statement timeout")
        self.assertIsInstance(explained(ended), pgwire.Refused)
        self.assertIsInstance(explained(flight.FlightTimedOutError("Deadline Exceeded")), TimeoutError)
        self.assertIsInstance(explained(flight.FlightUnavailableError("too many queries")), pgwire.Refused)
        self.assertIsInstance(explained(flight.FlightUnavailableError("Socket closed")), pgwire.Lost)

    def test_an_answer_of_http_that_breaks_off_is_an_error(self):
        near, far = socket.socketpair()
        far.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        far.close()
        response = http.client.HTTPResponse(near)
        response.begin()
        self.assertEqual(read_http(response, time.monotonic() + 10)[0], "broken off")
        response.close()
        near.close()

    def test_fields_of_protobuf_are_read_as_they_are_written(self):
        self.assertEqual(fields(field(1, b"x" * 300) + field(200, b"")), {1: b"x" * 300, 200: b""})


class Fuzzing(unittest.TestCase):
    def test_a_case_follows_from_its_seed_and_number(self):
        first, second = Maker(3), Maker(3)
        for number in (0, 7, 1000):
            self.assertEqual(first.case(number), second.case(number))
        self.assertNotEqual(first.case(1), Maker(4).case(1))

    def test_cases_use_every_form_and_stay_small(self):
        maker = Maker(1)
        cases = [maker.case(number) for number in range(1500)]
        self.assertEqual({case.form for case in cases}, set(FORMS))
        self.assertEqual(set(FORMS), {*STATEMENTS, *MADE})
        self.assertLess(max(len(case.data) for case in cases), 10 * mutate.LARGEST)

    def test_the_grammar_ends_and_makes_different_statements(self):
        texts = {Grammar(random.Random(number), 6).statement() for number in range(500)}
        self.assertGreater(len(texts), 400)
        self.assertLess(max(map(len, texts)), 200_000)

    def test_shrinking_keeps_what_is_at_fault(self):
        data = b"SELECT " + b"a, " * 200 + b"crash(1), " + b"b, " * 300 + b"c FROM t"
        found = b"".join(shrink(parts_of(data), lambda parts: b"crash" in b"".join(parts), 1000, 60))
        self.assertEqual(found, b"crash")
        spoiled = b"\xff" * 50 + b"!" + b"\xfe" * 60
        found = b"".join(shrink(parts_of(spoiled), lambda parts: b"!" in b"".join(parts), 1000, 60))
        self.assertEqual(found, b"!")

    def test_shrinking_ends_after_its_tries(self):
        tried = []
        shrink([b"x"] * 64, lambda parts: tried.append(parts) or False, 10, 60)
        self.assertEqual(len(tried), 10)


if __name__ == "__main__":
    unittest.main()
