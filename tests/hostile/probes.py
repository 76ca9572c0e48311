"""What everybody else does while somebody is hostile: four probes, in a process of their own.

An open loop: each probe is due ten times a second (or as often as is said), and its latency counts from when it was due. So a stall of ten
seconds is a hundred slow answers, as many users would have had, and not a single one.
"""

import http.client
import multiprocessing
import threading
import time
from typing import NamedTuple

import pgwire

NAMES = ("read", "write", "health", "connect")
# The place after those of the probes says that they are to stop.
STOP = len(NAMES)
# Between two turns of a probe, when nobody says otherwise.
PERIOD_S = 0.1
# A probe that waits for so long gives its connection up and counts as failed.
PATIENCE_S = 60


class Sample(NamedTuple):
    """One answer: when it was due by the monotonic clock, seconds until it came, and what failed ('' for nothing)."""

    probe: str
    due: float
    seconds: float
    failure: str


class Session:
    """A PostgreSQL connection that is made again when it was lost."""

    def __init__(self, port):
        self.port = port
        self.connection = None

    def run(self, text):
        if self.connection is None:
            self.connection = pgwire.Connection(self.port, PATIENCE_S, "probes")
            # A late answer is to be seen as late, and not as a time-out.
            self.connection.run("SET statement_timeout = 0")
        try:
            return self.connection.run(text)
        except (OSError, pgwire.Lost):
            self.connection.close()
            self.connection = None
            raise


def operations(postgres, http_port):
    """What each probe does, by its name; an operation takes the number of its turn."""
    reader, writer = Session(postgres), Session(postgres)

    def read(turn):
        if not reader.run(f"SELECT v FROM light WHERE id = {turn % 1000}"):
            raise pgwire.Refused("?????", "a row is missing")

    def write(turn):
        writer.run(f"INSERT INTO notes VALUES ({turn % 1000}, {int(time.time() * 1000)}, {turn})")

    def health(_):
        connection = http.client.HTTPConnection("127.0.0.1", http_port, timeout=PATIENCE_S)
        try:
            connection.request("GET", "/health")
            response = connection.getresponse()
            response.read()
            if response.status != 200:
                raise pgwire.Refused(str(response.status), "health")
        finally:
            connection.close()

    def connect(_):
        with pgwire.Connection(postgres, PATIENCE_S, "probes") as connection:
            connection.run("SELECT 1")

    return dict(zip(NAMES, (read, write, health, connect)))


def loop(name, operation, waiting, place, send, period):
    due = time.monotonic()
    turn = 0
    while not waiting[STOP]:
        time.sleep(max(0.0, due - time.monotonic()))
        waiting[place] = due
        failure = ""
        try:
            operation(turn)
        except (OSError, http.client.HTTPException, pgwire.Lost, pgwire.Refused) as error:
            failure = f"{type(error).__name__}: {error}"
        now = time.monotonic()
        waiting[place] = 0.0
        send(Sample(name, due, now - due, failure))
        due += period
        turn += 1


def process(postgres, http_port, waiting, pipe, period):
    """The process of the probes."""
    lock = threading.Lock()

    def send(sample):
        with lock:
            pipe.send(sample)

    threads = [
        threading.Thread(target=loop, args=(name, operation, waiting, place, send, period))
        for place, (name, operation) in enumerate(operations(postgres, http_port).items())
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pipe.close()


class Probes:
    """The probes as the harness sees them; `samples` grows while they run."""

    def __init__(self, server, period=PERIOD_S):
        self.period = period
        # Not forked: threads of the harness would not be there, and their locks would.
        context = multiprocessing.get_context("spawn")
        self.samples = []
        # When each probe's operation was due, 0 between operations; and whether to stop. No lock, because a process
        # that is killed while it holds one would never give it back.
        self.waiting = context.Array("d", len(NAMES) + 1, lock=False)
        pipe, far = context.Pipe(duplex=False)
        arguments = (server.postgres, server.http, self.waiting, far, period)
        self.process = context.Process(target=process, args=arguments, daemon=True)
        self.process.start()
        far.close()
        self.collector = threading.Thread(target=self.collect, args=(pipe,), daemon=True)
        self.collector.start()

    def collect(self, pipe):
        while True:
            try:
                self.samples.append(pipe.recv())
            except (EOFError, OSError):
                return

    def longest_wait(self, since=0.0):
        """Seconds that the slowest probe waits now, or waited for an answer that came after `since`, and its name.

        Waiting counts from `since` on.
        """
        now = time.monotonic()
        waits = [(now - max(due, since), name) for due, name in zip(self.waiting, NAMES) if due]
        for sample in reversed(self.samples):
            ended = sample.due + sample.seconds
            if ended < since:
                break
            waits.append((ended - max(sample.due, since), sample.probe))
        return max(waits, default=(0.0, ""))

    def settle(self, patience):
        """Waits until every probe answers at once again, so that the next statement is not blamed for the last one."""
        until = time.monotonic() + patience
        while time.monotonic() < until:
            since = time.monotonic()
            time.sleep(2 * self.period)
            if self.longest_wait(since - self.period)[0] < 2 * self.period:
                return

    def stop(self):
        self.waiting[STOP] = 1.0
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
        self.collector.join(5)
