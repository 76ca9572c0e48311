"""Verdicts over what was measured: pure functions of samples, runs and limits."""

from typing import NamedTuple

from probes import NAMES, Sample


class Limits(NamedTuple):
    """Bounds of a run; seconds and MiB."""

    probe_p99: float
    stall: float
    probe_failures: int
    timeout: float
    late: float
    memory_mb: float


class Run(NamedTuple):
    """One hostile statement that was sent: by which kind, through which door, and how it ended.

    `end`: answered, refused, lost (the connection), unended (nobody knows), died (the process), interrupted (the
    harness started the server again because of another one). `peak_mb`: 0 where several ran at once. `before_mb`: what
    was resident when it began; what an earlier one took is given back only after a while. `panics`: places in the
    server's source, of whatever ran then.
    """

    kind: str
    door: str
    began: float
    seconds: float
    end: str
    code: str
    text: str
    peak_mb: float
    before_mb: float = 0.0
    panics: tuple | list = ()


class Line(NamedTuple):
    """A probe's line of the table."""

    probe: str
    answers: int
    failures: int
    p50: float
    p99: float
    worst: float


def quantile(ordered, share):
    """The value below or at which `share` of the ordered values lie; 0 of none."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def counted(samples, downtimes):
    """Samples as the server is answerable for them, without what the harness did itself.

    What was due while the harness had taken the server away is left out; what waited when it was taken away counts
    until then.
    """
    kept = []
    for sample in samples:
        end = sample.due + sample.seconds
        away = any(first <= sample.due and (last is None or sample.due <= last) for first, last in downtimes)
        if away:
            continue
        cut = min((first for first, _ in downtimes if sample.due < first < end), default=None)
        if cut is None:
            kept.append(sample)
        else:
            kept.append(Sample(sample.probe, sample.due, cut - sample.due, ""))
    return kept


def lines(samples):
    """The table of the probes."""
    table = []
    for probe in NAMES:
        own = [sample for sample in samples if sample.probe == probe]
        seconds = sorted(sample.seconds for sample in own)
        failures = sum(1 for sample in own if sample.failure)
        table.append(
            Line(probe, len(own), failures, quantile(seconds, 0.5), quantile(seconds, 0.99), seconds[-1] if seconds else 0.0)
        )
    return table


def stall_during(run, samples):
    """Seconds that a probe waited at most while a statement ran, and which; 0 when none waited."""
    first, last = run.began, run.began + run.seconds
    during = [
        (sample.seconds, sample.probe)
        for sample in samples
        if sample.due < last and sample.due + sample.seconds > first
    ]
    return max(during, default=(0.0, ""))


def faults(run, samples, limits):
    """What a statement did that it must not: (fault, detail) pairs."""
    found = []
    if run.end == "interrupted":
        return found
    if run.end == "died":
        found.append(("died", run.text))
    if run.end == "lost":
        found.append(("connection lost", run.text))
    if run.end == "unended":
        found.append(("not ended", f"after {run.seconds:.1f} s {run.text}".rstrip()))
    elif run.end != "died" and run.seconds > limits.timeout + limits.late:
        found.append(("late", f"{run.seconds:.1f} s"))
    if run.panics:
        found.append(("panic", ", ".join(sorted(set(run.panics)))))
    stall, probe = stall_during(run, samples)
    if stall > limits.stall:
        found.append(("stall", f"{probe} {stall:.1f} s"))
    if run.peak_mb > max(limits.memory_mb * 1.25, run.before_mb * 1.05):
        found.append(("memory", f"{run.peak_mb:.0f} MiB"))
    return found


def broken(table, peak_mb, limits):
    """Promises about all of a run that do not hold, a sentence each."""
    found = []
    for line in table:
        if line.answers == 0:
            found.append(f"{line.probe}: no answer at all")
        if line.p99 > limits.probe_p99:
            found.append(f"{line.probe}: p99 is {line.p99 * 1000:.0f} ms, allowed are {limits.probe_p99 * 1000:.0f}")
        if line.failures > limits.probe_failures:
            found.append(f"{line.probe}: {line.failures} failed, allowed are {limits.probe_failures}")
    if peak_mb > limits.memory_mb * 1.25:
        found.append(f"memory: {peak_mb:.0f} MiB were resident, allowed are {limits.memory_mb * 1.25:.0f}")
    return found
