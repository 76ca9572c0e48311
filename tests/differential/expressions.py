"""Random expressions of each kind over the columns of a scope."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import NamedTuple

from forms import ALLOWED
from literals import LITERALS, literal_of
from tree import Form, Node, Same, Text

KINDS = ("bool", "int", "big", "dec", "float", "inexact", "wild", "text", "bytes", "date", "time", "zoned", "interval")
# Kinds that columns and so groups, keys of sets and results of subqueries have.
COLUMN_KINDS = ("bool", "int", "big", "dec", "float", "wild", "text", "bytes", "date", "time", "zoned")
# A literal in place of a column, one in so many.
LITERAL_SHARE = 0.2

class Column(NamedTuple):
    """A column that expressions may name, as text. `unique`: with the others of the scope it tells rows apart."""

    text: str
    kind: str
    unique: bool = False


class Expressions:
    """Makes expressions. `leaf` gives a column, or what stands for one, of a kind; None when there is none.

    `subquery` gives a scalar subquery of a kind, or a predicate with one.
    """

    def __init__(
        self,
        dice: random.Random,
        leaf: Callable[[str], Node | None],
        subquery: Callable[[str, int], Node | None] = lambda kind, depth: None,
    ) -> None:
        self.dice = dice
        self.leaf = leaf
        self.subquery = subquery

    def make(self, kind: str, depth: int) -> Node:
        if depth <= 0 or self.dice.random() < 0.25:
            return self.simple(kind)
        if self.dice.random() < 0.06:
            found = self.subquery(kind, depth - 1)
            if found:
                return found
        return self.form(kind, self.dice.choice(ALLOWED[kind]), depth) if ALLOWED[kind] else self.simple(kind)

    def simple(self, kind: str) -> Node:
        node = None if self.dice.random() < LITERAL_SHARE else self.leaf(kind)
        return node or Text(literal_of(self.dice, kind), kind)

    def form(self, kind: str, template: str, depth: int) -> Form:
        """An expression by a template; its parts nest less deeply."""
        pieces: list[str | Node] = []
        for text, name in split(template):
            pieces.append(text)
            if name.isdigit():
                made = [piece for piece in pieces if isinstance(piece, Node)]
                pieces.append(Same(made[int(name)]))
            elif name in LITERALS:
                pieces.append(Text(LITERALS[name](self.dice)))
            elif name:
                pieces.append(self.make(name, depth - 1))
        return Form(kind, pieces)


def split(template: str) -> list[tuple[str, str]]:
    """A template as texts, each with the name that follows it."""
    parts = re.split(r"\{(\w+)\}", template)
    return list(zip(parts[::2], [*parts[1::2], ""], strict=True))
