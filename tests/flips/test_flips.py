"""Places, contents and plans, without a server."""

import pathlib
import random
import tempfile
import unittest

import flips
import places
import tables
import trial


def log_of(payloads):
    """A segment with records of these many bytes of payload, and room behind them."""
    records = b"".join(b"\1" * 4 + size.to_bytes(4, "little") + b"\2" * (places.RECORD_HEADER - 8 + size) for size in payloads)
    return records + bytes(8192)


class Places(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name, data in {
            "NODE": b"identity 1",
            "log/0000000001.log": log_of([100] * 200),
            "log/spare-0000000002.log": bytes(8192),
            "log/SYNCED": b"\1" * 1024,
            "log/LOCK": b"",
            "meta/state/db": b"\1" * 100,
            "partitions/7/manifest/0000000000000000.checkpoint": b"\1" * 50,
            "partitions/7/files/0000000000000002.parquet": b"PAR1" + b"\1" * 96 + b"\2" * 40 + (40).to_bytes(4, "little") + b"PAR1",
            "partitions/8/manifest/0000000000000001.edit": b"\1" * 50,
            "trash/7.1/x": b"\1",
        }.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(data)
        self.regions = places.regions(self.folder)

    def region(self, kind):
        return next(region for region in self.regions if region.kind == kind)

    def test_every_byte_in_use_of_a_segment_is_in_one_region(self):
        own = [region for region in self.regions if region.path == "log/0000000001.log"]
        self.assertEqual([region.kind for region in own], list(places.OF_LOG[:5]))
        self.assertEqual(own[0].end, 156)
        self.assertEqual([region.start for region in own[1:]], [region.end for region in own[:-1]])
        self.assertEqual(own[3].end, 156 * 200)

    def test_a_file_has_its_pages_and_its_footer(self):
        self.assertEqual((self.region("parquet-data").end, self.region("parquet-footer").end), (100, 148))

    def test_what_holds_nothing_is_left_alone(self):
        self.assertFalse([region for region in self.regions if region.path.startswith(("trash", "log/LOCK"))])

    def test_a_seed_gives_the_same_places_and_no_two_are_in_one_partition(self):
        picked = [places.pick(self.regions, random.Random(5), 20) for _ in range(2)]
        self.assertEqual(picked[0], picked[1])
        numbers = [place.partition for place in picked[0] if place.partition]
        self.assertEqual(sorted(numbers), [7, 8])
        self.assertTrue({"log-head", "log-middle", "log-tail", "sled"} <= {place.kind for place in picked[0]})

    def test_a_second_flip_undoes_the_first(self):
        for width in (0, 16):
            place = places.pick(self.regions, random.Random(1), 1, ("sled",), width)[0]
            before = (self.folder / place.path).read_bytes()
            places.flip(self.folder, place)
            changed = (self.folder / place.path).read_bytes()
            self.assertEqual(len(changed), len(before))
            self.assertNotEqual(changed, before)
            places.flip(self.folder, place)
            self.assertEqual((self.folder / place.path).read_bytes(), before)


class Contents(unittest.TestCase):
    def test_rows_are_replaced_deleted_and_kept_as_the_server_does_it(self):
        done, contents = [], [tables.Content(table) for table in tables.tables(1, 0, 1, 0)]
        tables.fill(done.append, contents)
        keyed, kept = contents
        self.assertEqual(len(keyed.all()), 3 * (38 - len(tables.GONE)))
        self.assertEqual(len(kept.all()), 2 * (38 + len(tables.AGAIN) + len(tables.LAST_AGAIN)))
        self.assertEqual(sum("DELETE" in sql for sql in done), 1)

    def test_parts_of_a_table_are_all_of_it(self):
        content = tables.Content(tables.Table("r0", "range", 3))
        tables.fill(lambda _: None, [content])
        self.assertEqual([row for _, _, rows in tables.slots(content) for row in rows], content.all())
        for _, rows in tables.questions(content):
            self.assertTrue(rows)


class Plans(unittest.TestCase):
    def test_a_trial_follows_from_its_seed_and_number(self):
        found = [places.Region(kind, f"log/{kind}", 0, 5000) for kind in places.OF_LOG]
        found += [places.Region("parquet-data", f"partitions/{at}/files/1.parquet", 0, 90) for at in range(20)]
        self.assertEqual(flips.plan(3, 4, found), flips.plan(3, 4, found))
        self.assertNotEqual(flips.plan(3, 4, found), flips.plan(3, 5, found))

    def test_the_partition_that_an_error_names_is_found(self):
        for text in ("partition 35 is not served: group 35: bad", "file 35/files/04.parquet: bad", "corrupted data: 35/manifest/0.edit: bad"):
            found = {number for pair in trial.NAMED_PARTITION.findall(text) for number in pair if number}
            self.assertEqual(found, {"35"})

    def test_rows_that_differ_are_told_with_their_number(self):
        self.assertEqual(trial.difference([1, 1, 2], [1, 3]), [1, 2])


if __name__ == "__main__":
    unittest.main()
