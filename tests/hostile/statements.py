"""The run of the catalogue: hostile statements one after another and several at once, beside the probes."""

import json
import queue
import threading
import time
from collections import defaultdict

import judge
from doors import DOORS, Outcome
from families import catalogue
from kinds import chosen, door_of
from probes import Probes

# How long what a statement has left behind may hold the next one up.
SETTLE_S = 3


def limits_of(options):
    return judge.Limits(
        options.probe_p99, options.stall, options.probe_failures, options.timeout, options.late, options.memory_mb
    )


def plan(options):
    """Pairs of kind and door, in the order of the seed."""
    pairs = []
    for kind in chosen(catalogue(), options.seed, options.only, options.sample):
        doors = kind.doors if options.every_door else (door_of(kind, options.seed),)
        if options.door:
            doors = (options.door,) if options.door in kind.doors else ()
        pairs += [(kind, door) for door in doors]
    return pairs


def show(options):
    for kind, door in plan(options):
        texts = kind.build()
        size = sum(map(len, texts))
        print(f"{kind.name} [{door}] {size} bytes: {'; '.join(text[:300] for text in texts[:6])[:600]}")
    return 0


class Phase:
    """So many senders that take statements from one list."""

    def __init__(self, server, probes, options, pairs, senders):
        self.server = server
        self.probes = probes
        self.options = options
        self.senders = senders
        self.limits = limits_of(options)
        self.work = queue.SimpleQueue()
        for pair in pairs:
            self.work.put(pair)
        self.runs = []
        self.interrupted = False
        # Taken by whoever starts the server again; the others wait.
        self.mending = threading.Lock()

    def run(self):
        """Sends everything; returns the runs, after an interrupt those that are done."""
        threads = [threading.Thread(target=self.send, daemon=True) for _ in range(self.senders)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            self.interrupted = True
            while not self.work.empty():
                self.work.get()
        return self.runs

    def send(self):
        while True:
            with self.mending:
                pass
            try:
                kind, door = self.work.get_nowait()
            except queue.Empty:
                return
            run = self.one(kind, door)
            self.runs.append(run)
            self.tell(run)

    def tell(self, run):
        """Prints what can be seen at once; what the probes say comes at the end."""
        for fault, detail in judge.faults(run, [], self.limits):
            print(f"  {len(self.runs)} {run.kind} [{run.door}] {fault}: {detail}", flush=True)

    def one(self, kind, door):
        texts = kind.build()
        process = self.server.process
        before = 0.0
        if self.senders == 1:
            self.probes.settle(SETTLE_S)
            before = self.server.reset_peak()
        began = time.monotonic()
        outcome = DOORS[door](self.server, texts, self.options.timeout + self.options.patience)
        outcome, ended = self.look_after(process, outcome)
        panics = self.server.new_panics()
        peak = self.server.read_peak() if self.senders == 1 and process is self.server.process else 0.0
        if self.server.guarded and outcome.end == "died":
            peak = float(self.server.guard_mb)
        run = judge.Run(kind.name, door, began, outcome.seconds, outcome.end, outcome.code, outcome.text, peak, before, panics)
        if ended:
            with self.mending:
                if process is self.server.process:
                    self.server.replace()
        return run

    def look_after(self, process, outcome):
        """The outcome as the process explains it, and whether the server has to be started again."""
        if outcome.end == "lost":
            # A process that aborts closes its connections before it is gone.
            time.sleep(0.3)
        answers = outcome.end != "unended" and self.server.alive() and self.server.answers(self.options.answer)
        alive = self.server.alive()
        # Last: it is marked as taken away before it is killed.
        if process is not self.server.process or self.server.taken_away():
            return outcome._replace(end="interrupted", text="the server was started again"), False
        if not alive:
            return Outcome(outcome.seconds, "died", "", self.server.exit_text()), True
        if not answers and outcome.end != "unended":
            outcome = outcome._replace(end="unended", text=f"answered, and then nobody for {self.options.answer:.0f} s")
        return outcome, not answers


def run(server, options):
    pairs = plan(options)
    limits = limits_of(options)
    print(f"{len(pairs)} hostile statements, seed {options.seed}, {' '.join(server.arguments)}", flush=True)
    failed = False
    for senders in map(int, options.at_once.split(",")):
        server.peak_mb = 0.0
        server.reset_peak()
        probes = Probes(server, options.period)
        began = time.monotonic()
        phase = Phase(server, probes, options, pairs, senders)
        try:
            runs = phase.run()
        finally:
            probes.stop()
        server.read_peak()
        samples = judge.counted([sample for sample in probes.samples if sample.due >= began], server.downtimes)
        failed |= report(runs, samples, server, options, limits, senders)
        if phase.interrupted:
            return 1
        server.replace()
    stopped = server.stop()
    if stopped is None:
        print("BROKEN: SIGTERM did not end the server")
        failed = True
    return 1 if failed else 0


def report(runs, samples, server, options, limits, senders):
    """Prints what a phase showed; returns whether something is broken."""
    print(f"\n== {senders} at once: {len(runs)} statements")
    print(f"{'probe':8} {'answers':>8} {'failed':>7} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8}")
    table = judge.lines(samples)
    for line in table:
        times = (line.p50 * 1000, line.p99 * 1000, line.worst * 1000)
        print(f"{line.probe:8} {line.answers:8} {line.failures:7} " + " ".join(f"{value:8.1f}" for value in times))
    ends = defaultdict(int)
    for one in runs:
        ends[one.end] += 1
    slowest = max((one.seconds for one in runs), default=0.0)
    print("statements: " + ", ".join(f"{count} {end}" for end, count in sorted(ends.items())) + f"; slowest {slowest:.1f} s")
    print(f"memory: at most {server.peak_mb:.0f} MiB resident, limit {limits.memory_mb} MiB")
    offenders = [(one, judge.faults(one, samples, limits)) for one in runs]
    offenders = sorted((pair for pair in offenders if pair[1]), key=lambda pair: pair[0].kind)
    for one, faults in offenders:
        text = "; ".join(f"{fault}: {detail}" for fault, detail in faults)
        print(f"OFFENDER {one.kind} [{one.door}] seed {options.seed}: {text} ({one.seconds:.1f} s, {one.end} {one.code})")
    internal = sorted({(one.kind, one.text) for one in runs if one.code == "XX000" or "panic" in one.text.lower()})
    for kind, text in internal:
        print(f"internal error {kind}: {text}")
    failures = sorted({sample.failure for sample in samples if sample.failure})
    for failure in failures[:10]:
        print(f"probe failed: {failure}")
    broken = judge.broken(table, server.peak_mb, limits)
    for sentence in broken:
        print(f"BROKEN: {sentence}")
    if offenders:
        print(f"again: tests/hostile/run statements --seed {options.seed} --at-once {senders} --only {offenders[0][0].kind}")
    if options.out:
        with open(options.out, "a") as file:
            for one in runs:
                found = judge.faults(one, samples, limits)
                file.write(json.dumps({"senders": senders, **one._asdict(), "faults": found}) + "\n")
    return bool(offenders or broken)
