"""Sends statements of a case to everybody and says what differs."""

from __future__ import annotations

from typing import NamedTuple

import compare
from changes import Change
from compare import SAME, Verdict
from layouts import Layout
from query_tree import is_ordered
from servers import Servers
from session import Answer
from tree import Node


class Finding(NamedTuple):
    """A difference, and the layout in which it was seen."""

    verdict: Verdict
    layout: Layout
    ours: Answer
    theirs: Answer


def texts(statement: Node | Change) -> tuple[str, str]:
    """A statement for Partita and for PostgreSQL."""
    if isinstance(statement, Change):
        text = statement.node.sql()
        return text, text + statement.theirs
    return statement.sql(), statement.sql()


def judge(servers: Servers, statement: Node | Change) -> Finding | Verdict:
    """Runs a statement everywhere. Returns what differs, or how the answers are the same."""
    ordered = not isinstance(statement, Change) and is_ordered(statement)
    theirs, ours = servers.ask(*texts(statement))
    found = weigh(theirs, ours, ordered)
    if isinstance(found, Finding) or not isinstance(statement, Change):
        return found
    if found.kind in ("refused", "beyond", "not evaluated"):
        return found._replace(ends=True)
    # What a change has left is compared as well.
    contents = f"SELECT * FROM {statement.table.name}"
    for layout in servers.layouts:
        for step in layout.after(statement.table):
            servers.ours[layout].must(step)
    left = weigh(*servers.ask(contents, contents), False)
    return left if isinstance(left, Finding) else found


def weigh(theirs: Answer, ours: dict[Layout, Answer], ordered: bool) -> Finding | Verdict:
    """The first difference from PostgreSQL, then the first one between layouts."""
    if not ours:
        return Verdict("large", "an answer of many rows", accepted=True)
    first = next(iter(ours.values()))
    accepted = SAME
    for layout, answer in ours.items():
        verdict = compare.with_postgres(answer, theirs, ordered)
        if verdict.kind and not verdict.accepted:
            return Finding(verdict, layout, answer, theirs)
        accepted = verdict if verdict.kind else accepted
    for layout, answer in ours.items():
        verdict = compare.between_layouts(answer, first, ordered)
        if verdict.kind and not only_refused(answer, first):
            return Finding(verdict._replace(kind=f"layouts: {verdict.kind}"), layout, answer, first)
    return accepted


def only_refused(one: Answer, other: Answer) -> bool:
    """Whether one layout refuses by name what another one answers rightly: fragments take less than frontends do."""
    return "0A000" in (one.code, other.code)
