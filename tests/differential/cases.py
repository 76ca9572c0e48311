"""A case of a seed: tables, their first rows, and the statements that follow."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

import known
from changes import Change, Changes
from queries import Queries
from schema import ROWS_MAX, Table, insert, random_rows, random_table
from tree import Node

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
        self.zone = self.dice.choice(ZONES) if "time zone" not in known.HELD_BACK else "UTC"

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
                yield changes.statement()
            else:
                yield queries.statement()
