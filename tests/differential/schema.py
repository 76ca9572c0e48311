"""Random tables: their columns, their keys, how rows of one key are merged, and random values for them."""

from __future__ import annotations

import random
from typing import NamedTuple

import known

# A NULL among the values of a column, one in so many.
NULL_SHARE = 0.15
# Rows of a table when it is made.
ROWS_MAX = 40


class Type(NamedTuple):
    """A column type under both names, and the kind of expression that its columns are."""

    kind: str
    ours: str
    theirs: str


# The kind `big` has values at the ends of its type, with which nobody calculates; `wild` has NaN, infinities and values
# whose sum depends on the order, which are never summed. Those of `float` are multiples of 1/4, so that sums are exact.
TYPES = (
    Type("bool", "BOOLEAN", "BOOLEAN"),
    Type("int", "SMALLINT", "SMALLINT"),
    Type("int", "INT", "INT"),
    Type("int", "BIGINT", "BIGINT"),
    Type("big", "BIGINT", "BIGINT"),
    Type("big", "INT", "INT"),
    Type("dec", "DECIMAL(10, 2)", "NUMERIC(10, 2)"),
    Type("dec", "DECIMAL(20, 5)", "NUMERIC(20, 5)"),
    Type("float", "DOUBLE", "DOUBLE PRECISION"),
    Type("float", "REAL", "REAL"),
    Type("wild", "DOUBLE", "DOUBLE PRECISION"),
    Type("wild", "REAL", "REAL"),
    Type("text", "STRING", "TEXT"),
    Type("bytes", "BYTEA", "BYTEA"),
    Type("date", "DATE", "DATE"),
    Type("time", "TIMESTAMP(3)", "TIMESTAMP(3)"),
    Type("time", "TIMESTAMP(6)", "TIMESTAMP(6)"),
    Type("time", "TIMESTAMP(0)", "TIMESTAMP(0)"),
    Type("zoned", "TIMESTAMPTZ(3)", "TIMESTAMPTZ(3)"),
    Type("zoned", "TIMESTAMPTZ(6)", "TIMESTAMPTZ(6)"),
)
KEY = Type("int", "BIGINT", "BIGINT")
GROUP = Type("int", "INT", "INT")
TAG = Type("text", "STRING", "TEXT")
INDEX = Type("time", "TIMESTAMP(3)", "TIMESTAMP(3)")

NEGATIVE_ZERO = "0" if "-0" in known.HELD_BACK else "-0"
WORDS = (
    "", "a", "A", "b", "ab", "abc", "Abc", "hello world", " padded ", "x%y_z", "it's", "back\\slash", '"quoted"', "tab\there",
    "line\nbreak", "é", "ÀÉ", "日本語", "😀 smile", "e\u0301", "0", "12", "-7", "1.5", "NULL", "true", "a,b,c", "zzz", "2024-02-29",
)  # fmt: skip
# Around the days on which clocks change in Berlin and New York, leap days, the turns of years, and far ends.
MOMENTS = (
    "1970-01-01 00:00:00", "1969-12-31 23:59:59", "2000-02-29 12:30:45", "2023-12-31 23:59:59", "2024-01-01 00:00:00",
    "2024-02-29 23:00:00", "2024-03-10 06:59:59", "2024-03-10 07:00:00", "2024-03-31 00:59:59", "2024-03-31 01:00:00",
    "2024-03-31 02:30:00", "2024-10-27 00:30:00", "2024-10-27 01:00:00", "2024-10-27 02:30:00", "2024-11-03 05:30:00",
    "2024-11-03 06:00:00", "2024-12-30 08:15:30", "1900-01-01 00:00:00", "2200-06-15 18:45:00", "1850-07-04 03:00:00",
)  # fmt: skip
FRACTIONS = {0: ("",), 3: ("", "", ".5", ".123", ".999"), 6: ("", ".5", ".123456", ".999999", ".000001")}


class Column(NamedTuple):
    """`default`: a literal, or nothing where there is none."""

    name: str
    type: Type
    default: str = ""

    @property
    def kind(self) -> str:
        return self.type.kind

    @property
    def default_clause(self) -> str:
        return f" DEFAULT {self.default}" if self.default else ""


class Table(NamedTuple):
    """`mode`: what becomes of rows with one key: the newest is seen (`last_row`), its fields that are not NULL are seen
    (`last_non_null`), all are kept (`append`). `key` names columns; no two rows of the rows that are seen have one key.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    time_index: str
    mode: str

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if column.name not in self.key)

    def theirs(self) -> str:
        """CREATE TABLE for PostgreSQL, in which NULL is a value of the key as in Partita."""
        lines = [
            f"{column.name} {column.type.theirs}{' NOT NULL' if column.name == self.time_index else ''}{column.default_clause}"
            for column in self.columns
        ]
        if self.mode != "append":
            lines.append(f"UNIQUE NULLS NOT DISTINCT ({', '.join(self.key)})")
        return f"CREATE TABLE {self.name} ({', '.join(lines)})"

    def ours(self, partitioning: str = "") -> str:
        """CREATE TABLE for Partita."""
        index = [f"TIME INDEX ({self.time_index})"] if self.time_index else []
        lines = [f"{column.name} {column.type.ours}{column.default_clause}" for column in self.columns]
        lines += [f"PRIMARY KEY ({', '.join(self.key)})", *index]
        option = {
            "append": " WITH ('append_mode' = 'true')",
            "last_non_null": " WITH ('merge_mode' = 'last_non_null')",
            "last_row": "",
        }
        return f"CREATE TABLE {self.name} ({', '.join(lines)}){partitioning}{option[self.mode]}"

    def conflict(self) -> str:
        """What PostgreSQL has to be told so that a row with a known key does what it does in Partita."""
        if self.mode == "append":
            return ""
        merged = "COALESCE(EXCLUDED.{0}, {1}.{0})" if self.mode == "last_non_null" else "EXCLUDED.{0}"
        changes = ", ".join(f"{name} = {merged.format(name, self.name)}" for name in self.fields)
        return f" ON CONFLICT ({', '.join(self.key)}) DO UPDATE SET {changes}" if changes else " ON CONFLICT DO NOTHING"


def random_table(dice: random.Random, number: int) -> Table:
    """A table with a key `k`, a column `g` of few values, and columns of any types, whose names no other table has."""
    prefix = "abc"[number]
    columns = [Column("k", KEY), Column("g", GROUP)]
    chosen = list(dice.sample(TYPES, dice.randint(4, 9)))
    columns += [Column(f"{prefix}{place}_{type.kind}", type) for place, type in enumerate(chosen)]
    mode = dice.choice(("last_row", "last_row", "last_row", "last_non_null", "append"))
    time_index = ""
    if mode == "append" or dice.random() < 0.4:
        time_index = f"{prefix}_ts"
        columns.append(Column(time_index, INDEX))
    if dice.random() < 0.3:
        columns.append(Column(f"{prefix}_tag", TAG))
    shapes = [("k",), ("k",), ("g", "k")]
    if columns[-1].type is TAG:
        shapes.append((columns[-1].name, "k"))
    key = dice.choice(shapes)
    if time_index:
        key = (*key, time_index)
    return Table(f"t{number}", tuple(columns), key, time_index, mode)


def random_value(dice: random.Random, column: Column) -> str | None:
    """A value as a text that both servers read; None is NULL."""
    if column.name == "k":
        return str(dice.randint(0, 60))
    if column.name.endswith("_ts"):
        return f"2024-{dice.randint(1, 3):02}-{dice.randint(1, 28):02} {dice.randint(0, 23):02}:00:00"
    if dice.random() < NULL_SHARE:
        return None
    if column.name == "g":
        return str(dice.randint(0, 5))
    return value_of(dice, column.type)


def value_of(dice: random.Random, type: Type) -> str:
    kind = type.kind
    if kind == "bool":
        return dice.choice(("true", "false"))
    if kind == "int":
        return str(dice.choice((0, 1, -1, 2, 7, dice.randint(-100, 100))))
    if kind == "big":
        top = 2**63 if type.theirs == "BIGINT" else 2**31
        return str(dice.choice((top - 1, -top, top - 2, 0, -1, 2**24 + 1, dice.randint(-top, top - 1))))
    if kind == "dec":
        return dice.choice(("0", "1.25", "-1.25", "0.01", "99999999.99", "-0.5", "2.5", "1000", f"{dice.randint(-10000, 10000) / 100}"))
    if kind == "float":
        return str(dice.choice((0, 1, -1.5, 0.25, 2.5, 3.5, -2.5, dice.randint(-400, 400) / 4)))
    if kind == "wild":
        tiny, huge = ("1e-300", "1.7e308") if type.ours == "DOUBLE" else ("1e-30", "3e38")
        return dice.choice(("NaN", "Infinity", "-Infinity", "0", NEGATIVE_ZERO, tiny, huge, f"-{huge}", "0.1", str(dice.uniform(-10, 10))[:8]))
    if kind == "text":
        return dice.choice(WORDS)
    if kind == "bytes":
        return "\\x" + bytes(dice.randrange(256) for _ in range(dice.choice((0, 1, 1, 2, 4)))).hex()
    if kind == "date":
        return dice.choice(MOMENTS)[:10]
    digits = int(type.theirs[-2])
    moment = dice.choice(MOMENTS) + dice.choice(FRACTIONS[digits])
    return moment + ("+00" if kind == "zoned" else "")


def literal(value: str | None) -> str:
    """A value as a literal in VALUES, where its column gives it its type."""
    if value is None:
        return "NULL"
    return "'" + value.replace("'", "''") + "'"


def random_rows(dice: random.Random, table: Table, count: int) -> list[tuple[str | None, ...]]:
    """Rows for one INSERT: no two of them have one key, and in an append table `k` never comes again."""
    rows = {}
    for place in range(count):
        values = [random_value(dice, column) for column in table.columns]
        if table.mode == "append":
            values[0] = str(place)
        named = dict(zip((column.name for column in table.columns), values, strict=True))
        rows[tuple(named[name] for name in table.key)] = tuple(values)
    return list(rows.values())


def insert(table: Table, rows: list[tuple[str | None, ...]], names: tuple[str, ...] = ()) -> str:
    listed = ", ".join(f"({', '.join(literal(value) for value in row)})" for row in rows)
    columns = f" ({', '.join(names)})" if names else ""
    return f"INSERT INTO {table.name}{columns} VALUES {listed}"
