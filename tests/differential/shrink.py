"""Makes a failing statement and its rows smaller, in tables of its own, and writes both as a script."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from cases import Load
from changes import Change
from judge import Finding, judge, texts
from layouts import Layout
from schema import Table, insert
from servers import Servers, steps
from session import Refused
from tree import Node, reductions

SECONDS = 40.0

Rows = list[tuple[str | None, ...]]


class Contents(NamedTuple):
    """A table and all its rows, as PostgreSQL has them."""

    table: Table
    rows: Rows


class Failing(NamedTuple):
    """A statement and tables for which something differs."""

    statement: Node | Change
    contents: tuple[Contents, ...]


def contents_of(servers: Servers, tables: Sequence[Table]) -> tuple[Contents, ...]:
    zone = servers.theirs.must("SHOW timezone").rows[0][0]
    servers.theirs.must("SET TIME ZONE 'UTC'")
    found = tuple(Contents(table, list(servers.theirs.must(f"SELECT * FROM {table.name}").rows)) for table in tables)
    servers.theirs.must(f"SET TIME ZONE '{zone}'")
    return found


class Shrinker:
    """Tries smaller statements and tables in `servers`, which have one layout and nothing else in them."""

    def __init__(self, servers: Servers, zone: str, kind: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.servers = servers
        self.zone = zone
        self.kind = kind
        self.clock = clock
        self.prepared: tuple[Contents, ...] | None = None
        self.last: Finding | None = None

    def fails(self, failing: Failing) -> bool:
        """Whether the same kind of difference is still there."""
        try:
            if self.prepared != failing.contents or isinstance(failing.statement, Change):
                self.prepare(failing.contents)
            found = judge(self.servers, failing.statement)
        except Refused:
            self.prepared = None
            return False
        if isinstance(found, Finding) and signature(found) == self.kind:
            self.last = found
            return True
        return False

    def prepare(self, contents: tuple[Contents, ...]) -> None:
        if self.prepared:
            for content in self.prepared:
                self.servers.drop(content.table)
        self.prepared = contents
        self.servers.prepare([load_of(content) for content in contents], self.zone)

    def shrink(self, failing: Failing, seconds: float = SECONDS) -> Failing | None:
        """The smallest that was found; None when the difference does not come again in fresh tables."""
        until = self.clock() + seconds
        if not self.fails(failing):
            return None
        smaller = True
        while smaller and self.clock() < until:
            smaller = False
            for candidate in candidates(failing):
                if self.clock() > until:
                    break
                if self.fails(candidate):
                    failing, smaller = candidate, True
                    break
        # The last one that was tried need not be the one that is kept.
        self.fails(failing)
        return failing


def signature(found: Finding) -> str:
    """What has to stay the same while a difference shrinks."""
    if found.verdict.kind.endswith(("error", "accepted", "error code")):
        return f"{found.verdict.kind} {found.ours.code} {found.theirs.code}"
    return found.verdict.kind


def candidates(failing: Failing) -> Iterator[Failing]:
    statement, contents = failing
    text = texts(statement)[1]
    unused = [content for content in contents if content.table.name not in text]
    if unused:
        yield Failing(statement, tuple(content for content in contents if content not in unused))
    for fewer in with_fewer_rows(contents):
        yield Failing(statement, fewer)
    if isinstance(statement, Change):
        for node in reductions(statement.node):
            yield Failing(statement._replace(node=node), contents)
    else:
        for node in reductions(statement):
            yield Failing(node, contents)
    for fewer in with_fewer_columns(contents, text):
        yield Failing(statement, fewer)


def with_fewer_rows(contents: tuple[Contents, ...]) -> Iterator[tuple[Contents, ...]]:
    for place, content in enumerate(contents):
        size = max(len(content.rows) // 2, 1)
        while size >= 1:
            for first in range(0, len(content.rows), size):
                rows = content.rows[:first] + content.rows[first + size :]
                yield replaced(contents, place, content._replace(rows=rows))
            size //= 2


def with_fewer_columns(contents: tuple[Contents, ...], text: str) -> Iterator[tuple[Contents, ...]]:
    for place, content in enumerate(contents):
        table = content.table
        kept = [at for at, column in enumerate(table.columns) if column.name in text or column.name in table.key]
        if len(kept) < len(table.columns):
            fewer = table._replace(columns=tuple(table.columns[at] for at in kept))
            yield replaced(contents, place, Contents(fewer, [tuple(row[at] for at in kept) for row in content.rows]))


def replaced(contents: tuple[Contents, ...], place: int, content: Contents) -> tuple[Contents, ...]:
    return (*contents[:place], content, *contents[place + 1 :])


def load_of(content: Contents) -> Load:
    half = (len(content.rows) + 1) // 2
    first, second = content.rows[:half], content.rows[half:]
    return Load(content.table, insert(content.table, first) if first else "", insert(content.table, second) if second else "")


def script(failing: Failing, layout: Layout, zone: str, found: Finding | None) -> str:
    """All that repeats it: for Partita, and as comments what PostgreSQL takes instead."""
    lines = [f"SET run_at_data = {layout.run_at_data};"]
    if zone != "UTC":
        lines.append(f"SET TIME ZONE '{zone}';")
    for content in failing.contents:
        lines.append(f"-- PostgreSQL: {content.table.theirs()};")
        lines += [f"{step};" for step in steps(layout, load_of(content))]
    ours, theirs = texts(failing.statement)
    lines.append(f"{ours};")
    if theirs != ours:
        lines.append(f"-- PostgreSQL:{theirs[len(ours) :]};")
    if found:
        lines.append(f"-- {found.verdict.kind}: {found.verdict.text}")
        for name, answer in (("ours", found.ours), ("theirs", found.theirs)):
            shown = f"{answer.code} {answer.message}" if answer.failed else f"{answer.count} {answer.rows[:6]}"
            lines.append(f"-- {name}: {shown[:600]}")
    return "\n".join(lines)
