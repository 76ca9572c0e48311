"""What the records of a suite on both servers say."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterable

import refused

MESSAGE_MAX = 110


@dataclasses.dataclass
class Result:
    """The tests of a suite that pass on PostgreSQL and reach the server, by what becomes of them on Partita."""

    passed: list[str]
    failed: dict[str, dict]
    # Of those that failed: the features that each needs and Partita refuses, if any.
    needs: dict[str, list[str]]
    # Tests that pass on PostgreSQL without sending anything to it.
    aside: int

    def share_of_all(self) -> float:
        """Percentage that passes of all tests."""
        total = len(self.passed) + len(self.failed)
        return 100 * len(self.passed) / total if total else 0.0

    def share(self) -> float:
        """Percentage that passes of the tests that need nothing that is refused."""
        counted = len(self.passed) + len(self.failed) - len(self.needs)
        return 100 * len(self.passed) / counted if counted else 0.0


def compare(control: list[dict], partita: list[dict], features: Iterable[str]) -> Result:
    """A test without a record on Partita counts as failed: the run ended before it."""
    features = list(features)
    records = {entry["id"]: entry for entry in partita}
    result = Result([], {}, {}, 0)
    fixtures = collections.defaultdict(list)
    for entry in control:
        fixtures[group(entry["id"])] += entry.get("setup", [])
    for entry in control:
        if entry["outcome"] != "passed":
            continue
        if not reaches(entry):
            result.aside += 1
            continue
        record = records.get(entry["id"], {"outcome": "not run", "message": "the run ended before it"})
        if record["outcome"] == "passed":
            result.passed.append(entry["id"])
            continue
        result.failed[entry["id"]] = record
        statements = list(entry.get("statements", []))
        if record.get("phase") == "setup":
            # Fixtures of a class run once, for its first test, and when they fail each of its tests does.
            statements = fixtures[group(entry["id"])] + statements
        if names := refused.needs(statements, record, features):
            result.needs[entry["id"]] = names
    return result


def group(test: str) -> str:
    """The class or file of a test."""
    return test.partition("[")[0].rpartition("::")[0]


def reaches(entry: dict) -> bool:
    return bool(entry.get("statements") or entry.get("connections"))


def cause(record: dict) -> str:
    """The first error of a failed test, without what differs between tests."""
    lines = record.get("message", "").strip().splitlines() or [""]
    text = lines[0]
    text = re.sub(r'"[^"]*"', '".."', text)
    text = re.sub(r"0x[0-9a-f]+", "0x..", text)
    text = re.sub(r"\d+", "N", text)
    kind = record.get("sqlstate") or record.get("type") or record["outcome"]
    return f"{kind} {text}"[:MESSAGE_MAX]


def text(title: str, result: Result, longest: int) -> str:
    """The report of one suite, with at most so many causes."""
    total = len(result.passed) + len(result.failed)
    lines = [
        f"{title}",
        f"  pass on PostgreSQL and reach the server   {total:5}   ({result.aside} others pass without the server)",
        f"  of these pass on Partita                  {len(result.passed):5}   ({result.share_of_all():.1f} %)",
        f"  fail                                      {len(result.failed):5}",
        f"  of these need what Partita refuses        {len(result.needs):5}",
    ]
    features = collections.Counter(name for names in result.needs.values() for name in names)
    lines += [f"    {count:5}  {name}" for name, count in features.most_common()]
    lines.append(f"  passes of those that need nothing refused {result.share():7.1f} %")
    others = [test for test in result.failed if test not in result.needs]
    lines.append("  first errors of the other failures")
    causes = collections.Counter(cause(result.failed[test]) for test in others)
    lines += [f"    {count:5}  {message}" for message, count in causes.most_common(longest)]
    if len(causes) > longest:
        lines.append(f"    and {len(causes) - longest} more")
    return "\n".join(lines)


def details(result: Result) -> Iterable[str]:
    """A line for each failed test: what it needs, its first error and its id, separated by tabs."""
    for test, record in sorted(result.failed.items(), key=lambda pair: (cause(pair[1]), pair[0])):
        yield "\t".join((", ".join(result.needs.get(test, [])) or "-", cause(record), test))
