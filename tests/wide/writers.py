"""Processes that write at the same time, so that no interpreter is the limit.

Each makes its requests, tells so, and waits for the word to send them; then it sends one after the other. Requests are those
of readings.py: of hosts that no other process writes, or of sets of 100 values.
"""

import multiprocessing
import time
import traceback
from dataclasses import dataclass

import readings
from server import Broken, request

BIGTABLE, LINES = "bigtable", "lines"
READINGS, ONE_ROW, MANY_ROWS = "readings", "one row", "many rows"
READY_S = 600


@dataclass(frozen=True)
class Work:
    """What all processes write. `values`: of all; `per_request`: of a request."""
    door: str
    port: int
    database: str
    table: str
    shape: str
    hosts: int
    values: int
    per_request: int

    def bodies(self, process, processes):
        """Requests of a process, and the number of their values."""
        if self.shape == READINGS:
            made, count = [], 0
            hosts = readings.share(self.hosts, process, processes)
            for hosts, steps in readings.requests_of(hosts, self.values // self.hosts, self.per_request):
                made.append(self.body(hosts, steps))
                count += len(hosts) * len(steps)
            return made, count
        return self.sets(process, processes)

    def body(self, hosts, steps):
        if self.door == LINES:
            return readings.readings_lines(self.table, hosts, steps)
        import bigtable
        return bigtable.mutate_rows(bigtable.table_name(self.database, self.table), readings.readings_rows(hosts, steps))

    def sets(self, process, processes):
        import bigtable
        name, together = bigtable.table_name(self.database, self.table), max(1, self.per_request // readings.SET)
        numbers = range(process, self.values // readings.SET, processes)
        made = []
        for first in range(0, len(numbers), together):
            some = numbers[first:first + together]
            rows = [row for number in some for row in readings.set_rows(number, self.shape == ONE_ROW)]
            made.append(bigtable.mutate_rows(name, rows))
        return made, len(numbers) * readings.SET


def send_lines(work, bodies):
    import http.client
    connection = http.client.HTTPConnection("127.0.0.1", work.port, timeout=READY_S)
    try:
        for body in bodies:
            status, text = request(connection, "POST", f"/api/v2/write?bucket={work.database}&precision=ms", None, body)
            if status != 204:
                raise Broken(f"line protocol was answered with {status}: {text}")
    finally:
        connection.close()


def send_mutations(work, bodies):
    from bigtable import Connection
    with Connection(work.port) as connection:
        for body in bodies:
            connection.write(body)


def process_main(work, process, processes, pipe):
    """The process: makes requests, sends the number of their values, waits, sends them, and sends what that took."""
    try:
        bodies, count = work.bodies(process, processes)
        send = send_lines if work.door == LINES else send_mutations
        pipe.send(count)
        pipe.recv()
        # That of all threads of the process.
        used_s = time.process_time()
        send(work, bodies)
        pipe.send((time.monotonic(), time.process_time() - used_s))
    except Exception:
        pipe.send(traceback.format_exc())


def received(pipe):
    if not pipe.poll(READY_S):
        raise Broken(f"a writer said nothing for {READY_S} s")
    message = pipe.recv()
    if isinstance(message, str):
        raise Broken(f"a writer failed:\n{message}")
    return message


def write(work, processes):
    """Writes with some processes. Returns the number of values, seconds, and CPU seconds of the clients."""
    context = multiprocessing.get_context("spawn")
    pipes, running = [], []
    try:
        for process in range(processes):
            pipe, end = context.Pipe()
            child = context.Process(target=process_main, args=(work, process, processes, end), daemon=True)
            child.start()
            # The other end is the child's alone, so that its death is noticed.
            end.close()
            pipes.append(pipe)
            running.append(child)
        count = sum(received(pipe) for pipe in pipes)
        began = time.monotonic()
        for pipe in pipes:
            pipe.send("go")
        ends = [received(pipe) for pipe in pipes]
        for child in running:
            child.join(READY_S)
    except EOFError:
        raise Broken("a writer ended") from None
    finally:
        for child in running:
            child.kill()
    return count, max(end for end, _ in ends) - began, sum(cpu_s for _, cpu_s in ends)
