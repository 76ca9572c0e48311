"""A run: case after case until enough statements were compared, and what it has found."""

from __future__ import annotations

import argparse
import collections
import pathlib
import re
import time
from collections.abc import Iterator

import known
from cases import Case, case_of
from changes import Change
from judge import Finding, judge, texts
from layouts import FEW, LAYOUTS
from partita import Partita
from postgres import Postgres
from servers import Servers
from session import Broken, Refused
from shrink import Failing, Shrinker, contents_of, script, signature
from tree import Node

# So many of one kind and message are shrunk and printed.
SAME_DIFFERENCE_MAX = 1
# Statements between two lines that say how far it has come.
PROGRESS = 500
# Cases whose tables were not made in time.
SKIPPED_MAX = 3


class Campaign:
    def __init__(self, binary: pathlib.Path, work: pathlib.Path, options: argparse.Namespace) -> None:
        self.options = options
        self.partita = Partita(binary, work / "partita", options.port)
        self.postgres = Postgres(work / "postgres")
        self.layouts = FEW if options.ci else LAYOUTS[: options.layouts or len(LAYOUTS)]
        self.servers: Servers | None = None
        self.scratches = 0
        self.compared = 0
        self.cases = 0
        self.skipped = 0
        self.began = time.monotonic()
        self.same = 0
        self.accepted: collections.Counter[tuple[str, str]] = collections.Counter()
        # Differences by kind and message, and how often each came.
        self.found: collections.Counter[str] = collections.Counter()
        self.printed: set[str] = set()

    def start(self) -> None:
        self.postgres.start()
        self.partita.start()
        self.servers = Servers(self.partita, self.postgres, self.layouts)
        self.began = time.monotonic()

    def stop(self) -> None:
        self.partita.stop()
        self.postgres.stop()

    def run(self) -> None:
        number, last = self.options.first, 0
        if self.options.only:
            parts = self.options.only.split(".")
            number, last = int(parts[0]), int(parts[1]) if len(parts) > 1 else 0
        while self.compared < self.options.statements and len(self.found) < self.options.differences:
            try:
                self.run_case(case_of(self.options.seed, number), number, last)
            except Refused as refused:
                # On a busy machine a table may not be made in time; the next case makes its own.
                print(f"case {number} could not be run: {refused}", flush=True)
                self.skipped += 1
                if self.skipped > SKIPPED_MAX or "57014" not in str(refused):
                    self.found[f"a case could not be run: {str(refused)[:150]}"] += 1
            except Broken as broken:
                self.found[f"the server is gone: {broken}"] += 1
                print(f"DIFFERENCE: {broken}\n{self.partita.log_tail()}", flush=True)
                return
            self.cases += 1
            if self.options.only:
                return
            number += 1

    def run_case(self, case: Case, number: int, last: int) -> None:
        assert self.servers
        loads = case.loads()
        self.servers.prepare(loads, case.zone)
        for place, statement in enumerate(case.statements(), 1):
            before = contents_of(self.servers, case.tables) if isinstance(statement, Change) else None
            started = time.monotonic()
            found = judge(self.servers, statement)
            if time.monotonic() - started > 20:
                print(f"slow: {time.monotonic() - started:.0f} s for {self.options.seed} {number}.{place}: {texts(statement)[0][:300]}", flush=True)
            self.compared += 1
            if self.compared % PROGRESS == 0:
                print(f"{self.compared} statements in {time.monotonic() - self.began:.0f} s, {sum(self.found.values())} differ", flush=True)
            if isinstance(found, Finding):
                self.explain(found, case, statement, before, f"--seed {self.options.seed} --only {number}.{place}")
                if isinstance(statement, Change):
                    # The tables differ from here on.
                    break
            elif found.kind:
                self.accepted[(found.kind, found.text)] += 1
                if found.ends:
                    break
            else:
                self.same += 1
            if place == last or self.compared >= self.options.statements:
                break
        for load in loads:
            self.servers.drop(load.table)

    def explain(self, found: Finding, case: Case, statement: Node | Change, before: object, where: str) -> None:
        """Prints a difference as a script, shrunk unless ones like it were."""
        assert self.servers
        name = f"{found.verdict.kind}: {message_of(found)}"
        self.found[name] += 1
        if self.found[name] > SAME_DIFFERENCE_MAX:
            return
        contents = before or contents_of(self.servers, case.tables)
        failing = Failing(statement, contents)  # type: ignore[arg-type]
        note = ""
        if not self.options.no_shrink:
            layouts = [found.layout] if not found.verdict.kind.startswith("layouts") else [self.layouts[0], found.layout]
            self.scratches += 1
            scratch = Servers(self.partita, self.postgres, list(dict.fromkeys(layouts)), f"s{self.scratches}")
            shrinker = Shrinker(scratch, case.zone, signature(found))
            smaller = shrinker.shrink(failing)
            scratch.close()
            if smaller is None:
                note = "-- It did not come again in fresh tables; these are the rows as they were.\n"
            else:
                failing, found = smaller, shrinker.last or found
        text = f"DIFFERENCE {where}\n-- {name}, layout {found.layout.name}\n{note}{script(failing, found.layout, case.zone, found)}\n"
        print(text, flush=True)
        if self.options.out:
            with open(self.options.out, "a") as out:
                out.write(text + "\n")

    def report(self) -> int:
        seconds = time.monotonic() - self.began
        print(f"{self.compared} statements of {self.cases} cases, seed {self.options.seed}, over {len(self.layouts)} layouts, in {seconds:.0f} s")
        kinds: collections.Counter[str] = collections.Counter()
        for (kind, _), count in self.accepted.items():
            kinds[kind] += count
        differences = sum(self.found.values())
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        print(f"{self.same} the same, {differences} differ in {len(self.found)} ways" + (f", {counts}" if counts else ""))
        for kind in ("refused", "postgres refuses", "not evaluated", "beyond", "large"):
            for (found, text), count in self.accepted.most_common():
                if found == kind:
                    print(f"  {kind}: {count} x {text}")
        for name, count in self.found.most_common():
            print(f"  DIFFERS: {count} x {name}")
        if known.HELD_BACK:
            print(f"{len(known.HELD_BACK)} constructs are left out (tests/differential/known.py)")
        return 1 if self.found else 0


def message_of(found: Finding) -> str:
    """What tells differences of one kind apart, as far as it can be told without looking at the statement."""
    if found.ours.failed or found.theirs.failed:
        said = found.ours if found.ours.failed else found.theirs
        return f"{said.code} " + re.sub(r"'[^']*'|\"[^\"]*\"|-?\d+(\.\d+)?", "..", said.message)[:60]
    return found.verdict.text if found.verdict.kind == "type" else ""


def statements_of(case: Case) -> Iterator[str]:
    """A case's statements as texts."""
    for load in case.loads():
        yield from (load.table.theirs(), load.first + load.table.conflict(), load.second + load.table.conflict())
    for statement in case.statements():
        yield texts(statement)[1]
