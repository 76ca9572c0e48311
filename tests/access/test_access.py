"""Unit tests of the measurement itself; no server."""

import argparse
import base64
import contextlib
import io
import unittest

from access import bodies, line, pairs
from server import verifier


def options(**values):
    return argparse.Namespace(**values)


class Access(unittest.TestCase):
    def test_a_verifier_is_that_of_rfc_7677(self):
        salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
        self.assertEqual(
            verifier("pencil", salt),
            "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:"
            "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=")

    def test_turns_of_ingest_have_no_row_in_common(self):
        keys = []
        for turn in range(3):
            for body in bodies(options(rows=12_345), turn):
                for text in body.decode().splitlines():
                    series, _, second = text.split(" ")
                    keys.append((series, second))
        self.assertEqual(len(keys), 3 * 12_345)
        self.assertEqual(len(set(keys)), len(keys))

    def test_pairs_take_turns_and_give_medians(self):
        order = []

        def measure(subject, turn):
            order.append(subject)
            return {"ms": turn * 10 if subject == "b" else turn}

        with contextlib.redirect_stderr(io.StringIO()):
            medians = pairs(options(pairs=3), "a", "b", measure)
        self.assertEqual(order, ["a", "b", "b", "a", "a", "b"])
        self.assertEqual(medians, ({"ms": 1}, {"ms": 10}))

    def test_a_line_has_the_ratio(self):
        self.assertEqual(line("x", 2_000, 1_500, "goal").split(), ["x", "2,000.00", "1,500.00", "0.750", "goal"])


if __name__ == "__main__":
    unittest.main()
