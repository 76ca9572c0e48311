"""Random changes of tables: rows that come, rows that are written again, rows that go, columns that are added."""

from __future__ import annotations

import random
from typing import NamedTuple

from expressions import Column, Expressions
from queries import DEPTH, Queries
from query_tree import Select
from schema import TYPES, Table, insert, literal, random_rows, value_of
from schema import Column as TableColumn
from tree import Form, Node, Text

# Keys of rows that INSERT ... SELECT makes are those of its source, moved by so much.
STEP = 100
COLUMN_SHARE = 0.12
DEFAULT_SHARE = 0.85


class Change(NamedTuple):
    """A change of `table`. `theirs` has to stand behind it for PostgreSQL. `counted`: both say how many rows it changed.

    `altered`: the table as it is afterwards, where its columns change.
    """

    node: Node
    table: Table
    theirs: str
    counted: bool
    altered: Table | None = None


class Changes:
    def __init__(self, dice: random.Random, tables: list[Table]) -> None:
        self.dice = dice
        self.tables = tables
        self.inserts = 0

    def statement(self) -> Change:
        table = self.dice.choice(self.tables)
        if self.dice.random() < COLUMN_SHARE:
            return self.column(table)
        share = self.dice.random()
        # Append-mode tables take no DELETE: that it is refused is seen often enough.
        if share < (0.35 if table.mode != "append" else 0.02):
            return self.delete(table)
        if share < 0.7:
            return self.values(table)
        return self.select(table)

    def made(self, change: Change) -> None:
        """Has later statements see what a change has made of its table."""
        if change.altered:
            self.tables[self.tables.index(change.table)] = change.altered

    def column(self, table: Table) -> Change:
        """ALTER TABLE ... ADD COLUMN, mostly with a default, which rows from before have then."""
        type = self.dice.choice(TYPES)
        default = literal(value_of(self.dice, type)) if self.dice.random() < DEFAULT_SHARE else ""
        # No other column of the table has a number as high.
        column = TableColumn(f"{'abc'[int(table.name[1:])]}{len(table.columns)}_{type.kind}", type, default)
        text = f"ALTER TABLE {table.name} ADD COLUMN {column.name} {type.theirs}{column.default_clause}"
        return Change(Text(text), table, "", False, table._replace(columns=(*table.columns, column)))

    def values(self, table: Table) -> Change:
        """INSERT ... VALUES, at times without some fields, which have their defaults then."""
        rows = random_rows(self.dice, table, self.dice.randint(1, 6))
        if table.mode == "append":
            self.inserts += 1
            rows = [(str(int(row[0] or 0) + 1000 * self.inserts), *row[1:]) for row in rows]
        names = tuple(column.name for column in table.columns)
        if self.dice.random() < 0.3:
            dropped = {name for name in table.fields if self.dice.random() < 0.4}
            kept = [place for place, name in enumerate(names) if name not in dropped]
            rows = [tuple(row[place] for place in kept) for row in rows]
            return Change(Text(insert(table, rows, tuple(names[place] for place in kept))), table, table.conflict(), True)
        return Change(Text(insert(table, rows)), table, table.conflict(), True)

    def select(self, table: Table) -> Change:
        """INSERT ... SELECT of rows of any table, whose keys are made new, and values of the right kinds."""
        queries = Queries(self.dice, self.tables)
        source = self.dice.choice(self.tables)
        self.inserts += 1
        step = STEP * self.inserts if table.mode != "append" else 100_000 * self.inserts
        scope = [Column(column.name, column.kind) for column in source.columns]
        made = Expressions(self.dice, queries.expressions(scope).leaf)
        # One row of a key: the one that comes first in the source's own order.
        others = [name for name in source.key if name != "k"]
        chosen = f"SELECT DISTINCT ON (k) * FROM {source.name} ORDER BY {', '.join(['k', *others])}"
        items: list[Node] = []
        names = []
        for column in table.columns:
            if column.name == "k":
                items.append(Text(f"k + {step}"))
            elif column.name == table.time_index:
                items.append(Text("TIMESTAMP '2024-05-01 00:00:00'"))
            elif column.name in table.key and column.kind == "int":
                items.append(Text("g"))
            elif column.name in table.key:
                items.append(Text("'made'"))
            else:
                items.append(Form("", ["CAST(", made.make(column.kind, 2), f" AS {column.type.theirs})"]))
            names.append(column.name)
        before = Text(f"INSERT INTO {table.name} ({', '.join(names)}) ")
        clauses = [Text(f" FROM ({chosen}) AS s"), Form("", [" WHERE ", made.make("bool", 2)])]
        return Change(Select(items, clauses, before=before), table, table.conflict(), True)

    def delete(self, table: Table) -> Change:
        scope = [Column(column.name, column.kind) for column in table.columns]
        made = Expressions(self.dice, Queries(self.dice, self.tables).expressions(scope, nested=False).leaf)
        predicate = made.make("bool", DEPTH)
        # Most predicates take a few rows, so that later statements find some.
        if self.dice.random() < 0.7:
            narrow = self.dice.choice((f"k < {self.dice.randint(0, 20)}", f"g = {self.dice.randint(0, 5)}", f"k BETWEEN {(low := self.dice.randint(0, 60))} AND {low + 9}"))
            predicate = Form("bool", [narrow, " AND ", predicate])
        return Change(Form("", [f"DELETE FROM {table.name} WHERE ", predicate]), table, "", True)
