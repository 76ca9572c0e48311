"""Unit tests of the measurement itself; no server of Partita."""

import concurrent.futures
import contextlib
import io
import threading
import unittest
from unittest import mock

import grpc

import bigtable
import measure
import readings
import wide
import writers
from server import Broken


class Readings(unittest.TestCase):
    def test_both_forms_have_the_same_values(self):
        # Two days.
        steps = range(8_638, 8_642)
        rows = dict(readings.readings_rows([7], steps))
        self.assertEqual({key: len(cells) for key, cells in rows.items()},
                         {b"host_0007#2021-03-01": 2, b"host_0007#2021-03-02": 2})
        cells = [f"t,host=host_0007 pressure={value.decode()}i {micros // 1_000}"
                 for some in rows.values() for _, micros, value in some]
        self.assertEqual(readings.readings_lines("t", [7], steps).decode().splitlines(), cells)

    def test_readings_are_pressures(self):
        values = {readings.reading(host, step) for host in range(10) for step in range(1_000)}
        self.assertTrue(94_122 <= min(values) and max(values) <= 96_025)
        self.assertGreater(len(values), 1_800)

    def test_processes_write_all_values_once(self):
        written = []
        for process in range(3):
            hosts = readings.share(10, process, 3)
            written += [(host, step) for some, steps in readings.requests_of(hosts, 50, 100) for host in some for step in steps]
        self.assertEqual(sorted(written), [(host, step) for host in range(10) for step in range(50)])

    def test_a_week_of_a_balloon_is_40_320_cells(self):
        week = readings.events(1)
        cells = readings.balloon_cells(week, 0)
        self.assertEqual(len(set(cell[:2] for cell in cells)), 40_320)
        self.assertEqual(readings.events(1, 5), week[:5])
        line = readings.balloon_lines("b", 1, week[:1], 3).decode()
        self.assertTrue(line.startswith("b,balloon=asia-south2#3699 pressure="), line)
        self.assertTrue(line.endswith(" 1614556980000"), line)

    def test_a_set_is_one_row_or_a_hundred(self):
        one, many = readings.set_rows(3, True), readings.set_rows(3, False)
        self.assertEqual((len(one), len(many)), (1, 100))
        self.assertEqual(one[0][1], [cells[0] for _, cells in many])
        self.assertEqual(many[99][0], b"many#00000003#099")


class Fake(grpc.GenericRpcHandler):
    """The API over a dictionary. Rows with the key `refused` are."""

    def __init__(self):
        self.cells = {}
        self.lock = threading.Lock()

    def service(self, details):
        handler = {"MutateRows": self.mutate, "ReadRows": self.read}.get(details.method.rpartition("/")[2])
        return grpc.unary_stream_rpc_method_handler(handler)

    def mutate(self, body, _):
        request = bigtable.MutateRowsRequest.FromString(body)
        response = bigtable.MutateRowsResponse()
        for index, row in enumerate(request.entries):
            entry = response.entries.add(index=index)
            if row.row_key == b"refused":
                entry.status.code, entry.status.message = 5, "no such family"
                continue
            with self.lock:
                for mutation in row.mutations:
                    cell = mutation.set_cell
                    self.cells[row.row_key, cell.column_qualifier, cell.timestamp_micros] = cell.value
        yield response.SerializeToString()

    def read(self, body, _):
        request = bigtable.ReadRowsRequest.FromString(body)
        last = ()
        for (key, qualifier, micros), value in sorted(self.cells.items()):
            if key not in request.rows.row_keys:
                continue
            response = bigtable.ReadRowsResponse()
            chunk = response.chunks.add(timestamp_micros=micros, value=value)
            if last != (key, qualifier):
                chunk.row_key = key
                chunk.qualifier.value = qualifier
            last = (key, qualifier)
            yield response.SerializeToString()

    @contextlib.contextmanager
    def running(self):
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        server.add_generic_rpc_handlers([self])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield port
        finally:
            server.stop(None)


class Bigtable(unittest.TestCase):
    def test_cells_come_back_as_they_were_written(self):
        rows = [(b"a", [(b"p", 1_000, b"1"), (b"p", 2_000, b"2"), (b"q", 1_000, b"")]), (b"b", [(b"p", 1_000, b"3")])]
        with Fake().running() as port, bigtable.Connection(port) as connection:
            connection.write(bigtable.mutate_rows("t", rows))
            for key, cells in rows:
                read = bigtable.cells_of(connection.read(bigtable.read_rows("t", key)))
                self.assertEqual(read, [(key, *cell) for cell in cells])
            with self.assertRaisesRegex(Broken, "1 rows were refused: no such family"):
                connection.write(bigtable.mutate_rows("t", [(b"refused", rows[0][1]), rows[1]]))

    def test_requests_name_a_prefix_and_a_column(self):
        request = bigtable.ReadRowsRequest.FromString(bigtable.read_rows("t", prefix=b"many#1#", qualifier=b"p"))
        span = request.rows.row_ranges[0]
        self.assertEqual((span.start_key_closed, span.end_key_open), (b"many#1#", b"many#1$"))
        self.assertEqual(request.filter.column_range_filter.end_qualifier_closed, b"p")


class Writers(unittest.TestCase):
    def test_processes_write_together(self):
        fake = Fake()
        with fake.running() as port:
            work = writers.Work(writers.BIGTABLE, port, "d", "t", writers.READINGS, 4, 400, 50)
            count, seconds, cpu_s = writers.write(work, 2)
        self.assertEqual((count, len(fake.cells)), (400, 400))
        self.assertTrue(seconds > 0 and cpu_s >= 0)

    def test_sets_are_written_in_either_shape(self):
        for shape, rows in ((writers.ONE_ROW, 1), (writers.MANY_ROWS, 100)):
            work = writers.Work(writers.BIGTABLE, 0, "d", "t", shape, 4, 500, 200)
            bodies, count = work.bodies(1, 2)
            entries = [len(bigtable.MutateRowsRequest.FromString(body).entries) for body in bodies]
            self.assertEqual((entries, count), ([2 * rows], 200))

    def test_a_writer_that_fails_is_told(self):
        work = writers.Work(writers.LINES, 1, "d", "t", writers.READINGS, 2, 200, 50)
        with self.assertRaisesRegex(Broken, "a writer failed"):
            writers.write(work, 1)


class Measure(unittest.TestCase):
    def test_turns_alternate_and_the_first_warms_up(self):
        order, clock = [], iter(range(100))
        askers = {name: lambda balloon, _, name=name: order.append(f"{name}{balloon}") for name in ("a", "b")}
        with mock.patch("time.perf_counter", lambda: next(clock)):
            found = measure.ask_in_turns(askers, 2, 2, ())
        self.assertEqual(order, ["a0", "b0", "b1", "a1", "a0", "b0"])
        self.assertEqual(found, {"a": 1_000, "b": 1_000})

    def test_sizes_are_compared_with_the_ordinary_table(self):
        figures = [{"pattern": "new-cells", "bytes_per_event": 30.0, "cells": 8, "rows": 2},
                   {"pattern": "table", "bytes_per_event": 10.0, "cells": 8, "rows": 2}]
        lines = measure.sizes_of({"patterns": figures})
        self.assertEqual(lines, [["2 new cells", 30.0, 3.0, 8, 2], ["ordinary table", 10.0, 1.0, 8, 2]])

    def test_ratios_are_of_the_first_to_the_second(self):
        self.assertEqual(measure.compared({"x": 6.0}, {"x": 3.0}), [["x", 6.0, 3.0, 2.0]])
        self.assertEqual(measure.judged(1.5, 2), "at least 2.00: MISSED")


class Arguments(unittest.TestCase):
    def parsed(self, *arguments, binary="partita"):
        with mock.patch("sys.argv", ["run", *arguments]), mock.patch.dict("os.environ", {"PARTITA_BIN": binary}), \
                contextlib.redirect_stderr(io.StringIO()):
            return wide.arguments()

    def test_sizes_that_are_given_count_with_quick(self):
        options = self.parsed("--quick", "--values", "4000")
        self.assertEqual((options.values, options.pairs), (4_000, 2))
        self.assertEqual(self.parsed().values, 1_000_000)

    def test_what_cannot_be_measured_is_refused(self):
        for arguments in (["--only", "nothing"], ["--minutes", "10081"], ["--processes", "0"], ["--values", "150"]):
            with self.assertRaises(SystemExit):
                self.parsed(*arguments)
        with self.assertRaises(SystemExit):
            self.parsed(binary="")


if __name__ == "__main__":
    unittest.main()
