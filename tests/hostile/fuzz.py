"""The fuzzer's run: senders take cases by number, a watch looks at the process, the probes and the memory."""

import re
import threading
import time
from typing import NamedTuple

import judge
import statements
from cases import Maker
from doors import DOORS
from probes import Probes
from server import status_kib
from shrink import parts_of, shrink

WATCH_S = 0.05
# How many cases before the newest may be at fault when something is seen.
RECENT = 12
# What a light statement may take that is one of many in one text.
TOGETHER_S = 0.01
SHRINK_TRIES = 60
SHRINK_S = 90
# Bytes of a case that are printed.
SHOWN_BYTES = 1500


class Fault(NamedTuple):
    """What was seen, and the cases that may be at fault, most suspicious first."""

    text: str
    cases: list


class Fuzzer:
    def __init__(self, server, options):
        self.server = server
        self.options = options
        self.limits = statements.limits_of(options)
        self.patience = options.timeout + options.patience
        self.maker = Maker(options.seed)
        self.probes = Probes(server, options.period)
        self.lock = threading.Lock()
        # From when on waits of probes count: the last start of the server.
        self.since = time.monotonic()
        self.next_number = 0
        self.found = 0
        self.stopping = threading.Event()
        self.running = {}
        self.recent = []
        self.wrong = []
        # Places of panics that were printed; each is one fault.
        self.panics = set()
        self.ends = {}

    def watch_once(self):
        """A sentence about what is wrong now, or ''."""
        if not self.server.alive():
            return f"the process is gone: {self.server.exit_text()}"
        panics = [place for place in self.server.new_panics() if place not in self.panics]
        if panics:
            return f"panicked at {panics[0]}"
        wait, probe = self.probes.longest_wait(self.since)
        if wait > self.limits.stall:
            return f"{probe} waited {wait:.1f} s"
        resident = (status_kib(self.server.process.pid, "VmHWM") or 0) / 1024
        if resident > self.limits.memory_mb * 1.25:
            return f"{resident:.0f} MiB were resident"
        return ""

    def wrong_of(self, case, outcome):
        """A sentence about a case that did not end as it must, or ''."""
        # A text with a NUL is no message of the protocol.
        if outcome.end == "lost" and case.form in DOORS and b"\0" not in case.data:
            return f"connection lost: {outcome.text}"
        if outcome.end == "unended":
            return f"no end after {outcome.seconds:.1f} s"
        # Each of several statements in one text has the time-out, as in PostgreSQL.
        together = case.data.count(b";") * TOGETHER_S
        if outcome.seconds > self.limits.timeout + self.limits.late + together:
            return f"ended after {outcome.seconds:.1f} s"
        return ""

    def send_cases(self):
        while not self.stopping.is_set():
            with self.lock:
                number = self.next_number
                self.next_number += 1
            case = self.maker.case(number)
            if self.options.form and case.form not in self.options.form:
                continue
            with self.lock:
                self.running[number] = case
            outcome = case.send(self.server, self.patience)
            wrong = self.wrong_of(case, outcome)
            with self.lock:
                del self.running[number]
                self.recent = [*self.recent[1 - RECENT :], case]
                if self.stopping.is_set():
                    return
                key = (case.form, outcome.end)
                self.ends[key] = self.ends.get(key, 0) + 1
                if wrong:
                    self.wrong.append((case, wrong))

    def until_fault(self, until):
        """Sends cases until something is wrong or the time is up; returns the fault or None."""
        self.stopping.clear()
        self.running, self.recent, self.wrong = {}, [], []
        threads = [threading.Thread(target=self.send_cases, daemon=True) for _ in range(self.options.at_once)]
        for thread in threads:
            thread.start()
        seen, fault = "", None
        while not seen and time.monotonic() < until:
            time.sleep(WATCH_S)
            seen = self.watch_once()
            with self.lock:
                others = [*self.running.values(), *reversed(self.recent)]
                if seen:
                    fault = Fault(seen, others)
                elif self.wrong:
                    # It may have waited for another one.
                    case, seen = self.wrong[0]
                    fault = Fault(f"{case.form} {case.number}: {seen}", [case, *(other for other in others if other != case)])
        self.stopping.set()
        if fault:
            # Whatever still runs ends with the server.
            self.restart()
        for thread in threads:
            thread.join(self.patience + 5)
        return fault

    def restart(self):
        self.server.replace()
        self.server.reset_peak()
        self.since = time.monotonic()

    def tried(self, case, data=None):
        """Sends a case alone; returns what was wrong then, or ''. The server is fresh afterwards if something was."""
        self.since = time.monotonic()
        outcome = case.send(self.server, self.patience, data)
        # What it left behind may still hold somebody up.
        time.sleep(0.3)
        wrong = self.watch_once() or self.wrong_of(case, outcome)
        if wrong:
            self.restart()
        return wrong

    def explain(self, fault):
        """Finds the case at fault, makes it smaller, prints it."""
        print(f"FAULT: {fault.text}", flush=True)
        for case in fault.cases:
            again = self.tried(case)
            if again:
                break
        else:
            numbers = [case.number for case in fault.cases]
            print(f"  no case alone does it again; of seed {self.options.seed} one or several of {numbers} did it together")
            return
        print(f"  alone it does it again: {again}")
        print(f"  repeat: tests/hostile/run fuzz --seed {self.options.seed} --only {case.number}", flush=True)
        data = b"".join(
            shrink(parts_of(case.data), lambda parts: bool(self.tried(case, b"".join(parts))), SHRINK_TRIES, SHRINK_S)
        )
        print(f"  {case.form}, {len(data)} of {len(case.data)} bytes: {data[:SHOWN_BYTES]!r}", flush=True)

    def run(self):
        until = time.monotonic() + self.options.seconds
        while self.found < self.options.keep_going and time.monotonic() < until:
            fault = self.until_fault(until)
            if not fault:
                break
            self.found += 1
            self.explain(fault)
            self.panics.update(re.findall(r"^panicked at (.*)", fault.text))
        return self.found

    def report(self, began, found):
        samples = judge.counted([sample for sample in self.probes.samples if sample.due >= began], self.server.downtimes)
        print(f"{self.next_number} cases of seed {self.options.seed}, {found} faults, {self.server.peak_mb:.0f} MiB at most")
        for line in judge.lines(samples):
            times = f"p50 {line.p50 * 1000:.1f} ms, p99 {line.p99 * 1000:.1f} ms, max {line.worst * 1000:.1f} ms"
            print(f"{line.probe:8} {line.answers} answers, {line.failures} failed, {times}")
        by_form = {}
        for (form, end), count in sorted(self.ends.items()):
            by_form.setdefault(form, []).append(f"{count} {end}")
        for form, counts in by_form.items():
            print(f"{form:18} {', '.join(counts)}")
        for failure in sorted({sample.failure for sample in samples if sample.failure})[:10]:
            print(f"probe failed: {failure}")
        return sum(line.failures for line in judge.lines(samples)) > self.limits.probe_failures


def run(server, options):
    fuzzer = Fuzzer(server, options)
    server.reset_peak()
    began = time.monotonic()
    try:
        if options.only is not None:
            case = fuzzer.maker.case(options.only)
            print(f"{case.form}, {len(case.data)} bytes: {case.data[:SHOWN_BYTES]!r}", flush=True)
            wrong = fuzzer.tried(case)
            print(wrong or "nothing is wrong")
            return 1 if wrong else 0
        found = fuzzer.run()
    except KeyboardInterrupt:
        fuzzer.stopping.set()
        found = fuzzer.found
    finally:
        fuzzer.probes.stop()
    server.read_peak()
    failed = fuzzer.report(began, found)
    return 1 if found or failed else 0
