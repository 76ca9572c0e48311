"""A case of a seed: tables, their first rows, and the statements that follow.

Case 0 is no random one: it has every form of an expression, an aggregate and a window once, over columns of every type.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from changes import Change, Changes
from expressions import Column as Named
from expressions import Expressions
from forms import ALLOWED, ALLOWED_AGGREGATES, ALLOWED_ORDERED, ALLOWED_PEERS
from queries import Queries, over
from query_tree import Select
from schema import GROUP, KEY, ROWS_MAX, TYPES, Column, Table, insert, random_rows, random_table
from tree import Node, Text

# Statements of a case. Making its tables in every layout costs as much as several of them.
STATEMENTS = 50
CHANGE_SHARE = 0.12
ZONES = ("UTC", "UTC", "UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata")


class Load(NamedTuple):
    """The first rows of a table, in two parts that are stored differently."""

    table: Table
    first: str
    second: str


class Case:
    """`number` of `seed`; the same two give the same statements."""

    def __init__(self, seed: int, number: int) -> None:
        self.dice = random.Random(f"{seed}:{number}")
        self.tables = [random_table(self.dice, place) for place in range(self.dice.choice((2, 2, 3)))]
        self.zone = self.dice.choice(ZONES)

    def loads(self) -> list[Load]:
        """Rows for each table. Some of the second part write keys of the first one again."""
        loads = []
        for table in self.tables:
            rows = random_rows(self.dice, table, self.dice.randint(2, ROWS_MAX))
            half = len(rows) // 2
            again = []
            if table.mode != "append":
                places = [place for place, column in enumerate(table.columns) if column.name in table.key]
                for old, new in zip(rows[:half], random_rows(self.dice, table, half), strict=False):
                    if self.dice.random() < 0.3:
                        again.append(tuple(old[place] if place in places else value for place, value in enumerate(new)))
            loads.append(Load(table, insert(table, rows[: max(half, 1)]), insert(table, rows[max(half, 1) :] + again)))
        return loads

    def statements(self) -> Iterator[Node | Change]:
        queries, changes = Queries(self.dice, self.tables), Changes(self.dice, self.tables)
        for _ in range(STATEMENTS):
            if self.dice.random() < CHANGE_SHARE:
                change = changes.statement()
                yield change
                changes.made(change)
            else:
                yield queries.statement()


class Forms(Case):
    """Case 0: each form alone."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"{seed}:forms")
        columns = [Column("k", KEY), Column("g", GROUP), *(Column(f"a{place}_{type.kind}", type) for place, type in enumerate(TYPES))]
        self.tables = [Table("t0", tuple(columns), ("k",), "", "last_row")]
        self.zone = "UTC"

    def statements(self) -> Iterator[Node | Change]:
        columns = [Named(column.name, column.kind) for column in self.tables[0].columns]
        made = Expressions(self.dice, Queries(self.dice, self.tables).expressions(columns, nested=False).leaf)
        source = Text(" FROM t0")
        for kind, forms in ALLOWED.items():
            for form in forms:
                yield Select([Text("k"), made.form(kind, form, 1)], [source])
        for kind, forms in ALLOWED_AGGREGATES.items():
            for form in forms:
                yield Select([Text("g"), made.form(kind, form, 1)], [source, Text(" GROUP BY g")])
        for windows in (ALLOWED_PEERS, ALLOWED_ORDERED):
            for kind, forms in windows.items():
                for form in forms:
                    yield Select([Text("k"), over(made.form(kind, form, 1), ["PARTITION BY g ORDER BY k"])], [source])


def case_of(seed: int, number: int) -> Case:
    return Case(seed, number) if number else Forms(seed)
