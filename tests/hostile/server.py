"""A standalone server under test: started on ports of its own, measured, killed, and started again on its data."""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import pgwire

START_S = 180
# Between two looks at the memory. A query that runs away takes a gigabyte or two in a second.
WATCH_S = 0.05
ADDRESSES_PER_BYTE = 8
# Tables that hostile statements read; their names are known to the catalogue and to the grammar.
ROWS = 60_000
SMALL_ROWS = 1_000


class Broken(Exception):
    """The server did not start, or its tables could not be made."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def status_kib(pid, field):
    """A figure of /proc/PID/status in KiB; None when the process is gone."""
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1])
    except (FileNotFoundError, ProcessLookupError):
        pass
    return None


class Server:
    """The process and what is known of it.

    `guard_mb`: resident memory at which it is killed, for the sake of the machine. `downtimes`: from when until when
    it was away because the harness took it away, by the monotonic clock.
    """

    def __init__(self, binary, work, options):
        self.binary = pathlib.Path(binary).resolve()
        self.work = pathlib.Path(work)
        self.postgres = options.port or free_port()
        self.http = options.port + 1 if options.port else free_port()
        self.guard_mb = options.guard_mb
        self.stop_s = options.stop
        self.arguments = self.choose(options)
        self.process = None
        self.guarded = False
        self.downtimes = []
        self.peak_mb = 0.0
        # Bytes of the log that were looked at for panics.
        self.log_read = 0
        self.watching = threading.Event()

    def choose(self, options):
        """Arguments of the server: those that this build knows."""
        done = subprocess.run([self.binary, "standalone", "--help"], capture_output=True, text=True, check=True)
        wanted = {
            "--query-memory-mb": options.query_memory_mb,
            "--memory-limit-mb": options.memory_mb,
            "--statement-timeout-s": options.timeout,
        }
        known = [(name, value) for name, value in wanted.items() if name in done.stdout]
        return [text for name, value in known for text in (name, str(value))] + options.server_argument

    def start(self):
        """Starts it and waits until it answers."""
        self.guarded = False
        command = [
            self.binary, "standalone", "--data-dir", self.work / "data",
            "--postgres", f"127.0.0.1:{self.postgres}", "--http", f"127.0.0.1:{self.http}", *self.arguments,
        ]  # fmt: skip
        # A second guard, by the kernel: addresses are taken in larger pieces than memory is, and each thread takes some for a
        # stack that it hardly uses. On a busy machine there are hundreds.
        limited = ["sh", "-c", 'ulimit -v "$0"; exec "$@"', str(self.guard_mb * ADDRESSES_PER_BYTE * 1024), *map(str, command)]
        with open(self.work / "log", "ab") as log:
            self.process = subprocess.Popen(limited, stdout=log, stderr=log)
        until = time.monotonic() + START_S
        while not self.answers(1):
            if self.process.poll() is not None:
                raise Broken(f"it ended with {self.process.returncode}: {self.log_tail()}")
            if time.monotonic() > until:
                raise Broken(f"no answer after {START_S} s: {self.log_tail()}")
            time.sleep(0.05)
        if self.downtimes and self.downtimes[-1][1] is None:
            self.downtimes[-1] = (self.downtimes[-1][0], time.monotonic())
        self.watching.clear()
        self.watching = threading.Event()
        self.watching.set()
        threading.Thread(target=self.watch, args=(self.process, self.watching), daemon=True).start()

    def watch(self, process, watching):
        """Kills a process that takes more than the guard allows."""
        while watching.is_set() and process.poll() is None:
            resident = status_kib(process.pid, "VmRSS")
            if resident and resident > self.guard_mb * 1024:
                self.guarded = True
                process.kill()
                return
            time.sleep(WATCH_S)

    def answers(self, patience):
        """Whether a new connection is answered within `patience` seconds."""
        try:
            with pgwire.Connection(self.postgres, patience) as connection:
                connection.run("SELECT 1")
            return True
        except (OSError, pgwire.Lost, pgwire.Refused):
            return False

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def taken_away(self):
        """Whether the harness has killed it and it is not back."""
        return bool(self.downtimes) and self.downtimes[-1][1] is None

    def exit_text(self):
        """How it ended."""
        if self.guarded:
            return f"killed by the harness: more than {self.guard_mb} MiB resident"
        code = self.process.wait()
        if code < 0:
            return f"ended by {signal.Signals(-code).name}"
        return f"ended with {code}"

    def reset_peak(self):
        """Has the kernel forget the most memory that was resident; returns the MiB that are resident now."""
        self.read_peak()
        try:
            pathlib.Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        except OSError:
            pass
        return (status_kib(self.process.pid, "VmRSS") or 0) / 1024

    def read_peak(self):
        """MiB that were resident at most since it was forgotten."""
        peak = (status_kib(self.process.pid, "VmHWM") or 0) / 1024 if self.alive() else 0.0
        self.peak_mb = max(self.peak_mb, peak)
        return peak

    def replace(self):
        """Kills it and starts it again on the same data."""
        self.kill()
        self.start()

    def kill(self):
        self.watching.clear()
        self.downtimes.append((time.monotonic(), None))
        if self.alive():
            self.read_peak()
            self.process.kill()
        self.process.wait()

    def stop(self):
        """Ends it as an operator does; returns the seconds that it took, None when it had to be killed."""
        self.watching.clear()
        if not self.alive():
            return None
        began = time.monotonic()
        self.read_peak()
        self.process.terminate()
        try:
            self.process.wait(self.stop_s)
            return time.monotonic() - began
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None

    def log_tail(self, lines=12):
        with open(self.work / "log", "rb") as log:
            log.seek(max(0, os.path.getsize(self.work / "log") - 8192))
            return "\n".join(log.read().decode("utf-8", "replace").splitlines()[-lines:])

    def new_panics(self):
        """Places in the source where a thread has panicked since this was asked last."""
        with open(self.work / "log", "rb") as log:
            log.seek(self.log_read)
            data = log.read()
        # Half a line is read again when it is whole.
        whole = data[: data.rfind(b"\n") + 1]
        self.log_read += len(whole)
        return re.findall(r"panicked at (\S+?):?(?:\s|$)", whole.decode("utf-8", "replace"))

    def make_tables(self):
        """Makes the tables that hostile statements read, and those of the probes in a database of their own."""
        with pgwire.Connection(self.postgres, START_S) as connection:
            connection.run("SET statement_timeout = 0")
            tables = {"hostile_rows": ROWS, "hostile_small": SMALL_ROWS, "hostile_sink": 0, "t0": 10, "t1": 0, "t2": 0}
            for table, rows in tables.items():
                connection.run(
                    f"CREATE TABLE {table} (k BIGINT, ts TIMESTAMP(3) TIME INDEX, n BIGINT, v DOUBLE, s STRING, "
                    "PRIMARY KEY (k))"
                )
                fill(connection, table, rows)
            connection.run("CREATE DATABASE probes")
        with pgwire.Connection(self.postgres, START_S, "probes") as connection:
            for table in ("light", "notes"):
                connection.run(f"CREATE TABLE {table} (id BIGINT, ts TIMESTAMP(3) TIME INDEX, v DOUBLE, PRIMARY KEY (id))")
            values = ", ".join(f"({i}, {i}, {i / 2})" for i in range(SMALL_ROWS))
            connection.run(f"INSERT INTO light VALUES {values}")

    def remove(self):
        shutil.rmtree(self.work, ignore_errors=True)


def fill(connection, table, rows, step=5_000):
    for first in range(0, rows, step):
        values = ", ".join(
            f"({i}, {i * 1000}, {i % 1000}, {i / 7}, 'row {i}')" for i in range(first, min(first + step, rows))
        )
        connection.run(f"INSERT INTO {table} VALUES {values}")
