"""Random queries over the tables of a case."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import known
from expressions import COLUMN_KINDS, Column, Expressions
from forms import ALLOWED, ALLOWED_AGGREGATES, ALLOWED_ORDERED, ALLOWED_PEERS
from literals import literal_of
from query_tree import Select, SetOperation
from schema import Table
from tree import Form, Node, Optional, Series, Text

DEPTH = 2
# The kind of what stands in FROM.
FROM = "from"
DIRECTIONS = ("", "", " DESC", " NULLS FIRST", " DESC NULLS LAST", " ASC")
OUTPUT_KINDS = ("int", "int", "text", "dec", "float", "bool", "time", "date", "zoned", "bytes", "big", "wild", "inexact", "interval")
LIMITS = (*(" LIMIT 1", " LIMIT 3", " LIMIT 10", " LIMIT 0", " OFFSET 2", " LIMIT 5 OFFSET 3") * 3, " LIMIT ALL", " FETCH FIRST 2 ROWS ONLY")
SET_OPERATIONS = ("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")


class Source(NamedTuple):
    """What a FROM clause gives: its text and the columns that expressions may name."""

    node: Node
    columns: tuple[Column, ...]


class Queries:
    """Makes queries over tables; `dice` decides everything."""

    def __init__(self, dice: random.Random, tables: Sequence[Table]) -> None:
        self.dice = dice
        self.tables = tables
        self.aliases = 0
        # Tables that the queries of a statement name; their product bounds what it may cost.
        self.budget = 0

    def statement(self) -> Node:
        """A query, and below it as much of SQL as its dice want."""
        self.aliases = 0
        self.budget = 3
        makers = ["plain"] * 8 + ["grouped"] * 5 + ["windows"] * 3 + ["sets"] * 2 + ["with"] * 2 + ["distinct_on", "distinct", "distinct", "values"]
        maker = self.dice.choice([name for name in makers if name not in known.HELD_BACK])
        return getattr(self, f"make_{maker}")()

    # What FROM gives.

    def alias(self) -> str:
        self.aliases += 1
        return f"r{self.aliases}"

    def table(self) -> Source:
        self.budget -= 1
        table, alias = self.dice.choice(self.tables), self.alias()
        columns = [Column(f"{alias}.{column.name}", column.kind, column.name in table.key) for column in table.columns]
        return Source(Text(f"{table.name} AS {alias}", FROM), tuple(columns))

    def source(self, joins: int = 2) -> Source:
        """A table, a derived table, a series, VALUES or a join of such."""
        share = self.dice.random()
        if joins and self.budget > 1 and share < 0.35:
            return self.join(joins)
        if self.budget > 1 and share < 0.45:
            return self.derived()
        if share < 0.48:
            alias = self.alias()
            return Source(Text(f"generate_series(-1, {self.dice.randint(0, 6)}) AS {alias}(n)", FROM), (Column(f"{alias}.n", "int", True),))
        if share < 0.51:
            return self.values_source()
        return self.table()

    def values_source(self) -> Source:
        alias = self.alias()
        kinds = self.dice.sample(("int", "text", "dec", "bool"), 2)
        rows = []
        for number in range(self.dice.randint(1, 4)):
            rows.append(f"({number}, {', '.join(literal_of(self.dice, kind) for kind in kinds)})")
        columns = [Column(f"{alias}.n", "int", True), *(Column(f"{alias}.v{place}", kind) for place, kind in enumerate(kinds))]
        return Source(Text(f"(VALUES {', '.join(rows)}) AS {alias}(n, v0, v1)", FROM), tuple(columns))

    def derived(self) -> Source:
        alias = self.alias()
        share = self.dice.random()
        if share < 0.5:
            query, columns = self.named_plain()
        elif share < 0.85:
            query, columns = self.named_grouped()
        else:
            query, columns = self.named_sets()
        return Source(Form(FROM, ["(", query, f") AS {alias}"]), tuple(column._replace(text=f"{alias}.{column.text}") for column in columns))

    def join(self, joins: int) -> Source:
        left, right = self.source(joins - 1), self.source(0)
        share = self.dice.random()
        if share < 0.08:
            return Source(Form(FROM, [left.node, self.dice.choice((", ", " CROSS JOIN ")), right.node]), left.columns + right.columns)
        if share < 0.3:
            merged = self.using(left, right)
            if merged:
                return merged
        word = self.dice.choice(("JOIN", "JOIN", "INNER JOIN", "LEFT JOIN", "LEFT OUTER JOIN", "RIGHT JOIN", "FULL JOIN", "FULL OUTER JOIN"))
        return Source(Form(FROM, [left.node, f" {word} ", right.node, " ON ", self.on(left, right, word)]), left.columns + right.columns)

    def on(self, left: Source, right: Source, word: str) -> Node:
        """A condition that ties both sides, mostly by columns that are equal."""
        pairs = [(one, other) for one in left.columns for other in right.columns if one.kind == other.kind]
        near = [(one, other) for one, other in pairs if one.text.split(".")[-1] in ("k", "g") and other.text.split(".")[-1] in ("k", "g")]
        one, other = self.dice.choice(near if near and self.dice.random() < 0.7 else pairs or [(left.columns[0], right.columns[0])])
        equal: Node = Text(f"{one.text} = {other.text}")
        if self.dice.random() < 0.3 and not word.startswith("FULL"):
            equal = Text(f"{one.text} {self.dice.choice(('<', '>=', '<>', 'IS NOT DISTINCT FROM'))} {other.text}")
        if self.dice.random() < 0.25:
            expression = self.expressions(left.columns + right.columns).make("bool", 2)
            return Series([equal, expression], self.dice.choice((" AND ", " AND ", " OR ")) if not word.startswith("FULL") else " AND ")
        return equal

    def using(self, left: Source, right: Source) -> Source | None:
        """A join of two tables by columns that both have, which are merged."""
        if not all(isinstance(side.node, Text) and " AS r" in side.node.text and side.node.text.startswith("t") for side in (left, right)):
            return None
        word = self.dice.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
        natural = self.dice.random() < 0.3
        names = ["k", "g"] if natural or self.dice.random() < 0.3 else [self.dice.choice(("k", "g"))]
        same_table = left.node.sql().split()[0] == right.node.sql().split()[0]
        if natural and same_table:
            return None
        if natural:
            node: Node = Form(FROM, [left.node, f" NATURAL {word} ", right.node])
        else:
            node = Form(FROM, [left.node, f" {word} ", right.node, f" USING ({', '.join(names)})"])
        merged = [Column(name, "int") for name in names for _ in range(3)]
        return Source(node, (*merged, *left.columns, *right.columns))

    # Expressions over a scope.

    def expressions(self, columns: Sequence[Column], nested: bool = True) -> Expressions:
        def leaf(kind: str) -> Node | None:
            found = [column for column in columns if column.kind == kind]
            return Text(self.dice.choice(found).text, kind) if found else None

        def subquery(kind: str, depth: int) -> Node | None:
            return self.subquery(kind, columns, depth) if nested and self.budget > 1 else None

        return Expressions(self.dice, leaf, subquery)

    def subquery(self, kind: str, outer: Sequence[Column], depth: int) -> Node | None:
        """A subquery as a value, or a predicate over one; a third of them look at the row outside."""
        inner = self.table()
        scope = inner.columns
        where: Node = Series((), before=" WHERE ", least=0)
        made = self.expressions(scope, nested=False)
        conditions: list[Node] = []
        if self.dice.random() < 0.35:
            pairs = [(one, other) for one in scope for other in outer if one.kind == other.kind and one.kind in COLUMN_KINDS]
            if pairs:
                one, other = self.dice.choice(pairs)
                conditions.append(Text(f"{one.text} {self.dice.choice(('=', '=', '=', '<', '>='))} {other.text}"))
        if self.dice.random() < 0.5:
            conditions.append(made.make("bool", 1))
        where = Series(conditions, " AND ", 0, " WHERE ")
        if kind != "bool":
            forms = ALLOWED_AGGREGATES.get(kind, ())
            if not forms:
                return None
            value = made.form(kind, self.dice.choice(forms), 2)
            return Form(kind, ["(", Select([value], [Text(" FROM "), inner.node, where]), ")"])
        share = self.dice.random()
        if share < 0.3:
            word = self.dice.choice(("EXISTS ", "NOT EXISTS "))
            return Form(kind, [word, "(", Select([Text("1")], [Text(" FROM "), inner.node, where]), ")"])
        column_kind = self.dice.choice(COLUMN_KINDS)
        value = made.make(column_kind, 1)
        tested = self.expressions(outer, nested=False).make(column_kind, 1)
        words = (" IN ", " IN ", " NOT IN ", " = ANY ", " > ALL ", " <= ANY ", " <> ALL ", " < ALL ")
        word = self.dice.choice(words)
        return Form(kind, ["(", tested, word, "(", Select([value], [Text(" FROM "), inner.node, where]), "))"])

    def where(self, columns: Sequence[Column]) -> Node:
        if self.dice.random() < 0.35:
            return Optional(None)
        made = self.expressions(columns)
        conditions = [made.make("bool", DEPTH) for _ in range(self.dice.choice((1, 1, 2)))]
        return Series(conditions, " AND ", 0, " WHERE ")

    def tail(self, count: int) -> dict[str, object]:
        """An order by all columns, and a limit above it."""
        if self.dice.random() < 0.5:
            return {}
        order = [self.dice.choice(DIRECTIONS) for _ in range(count)]
        limit = ""
        if self.dice.random() < 0.5:
            limit = self.dice.choice(LIMITS)
        return {"order": order, "limit": limit}

    def kinds(self, most: int = 4) -> list[str]:
        return [self.dice.choice(OUTPUT_KINDS) for _ in range(self.dice.randint(1, most))]

    # Whole queries.

    def make_plain(self, kinds: Sequence[str] = (), tail: bool = True, word: str = "SELECT") -> Select:
        source = self.source()
        made = self.expressions(source.columns)
        kinds = kinds or self.kinds()
        items = [made.make(kind, DEPTH) for kind in kinds]
        clauses = [Text(" FROM "), source.node, self.where(source.columns)]
        return Select(items, clauses, word=word, **(self.tail(len(items)) if tail else {}))  # type: ignore[arg-type]

    def make_distinct(self) -> Select:
        return self.make_plain(word="SELECT DISTINCT")

    def named_plain(self) -> tuple[Select, list[Column]]:
        kinds = [kind for kind in self.kinds(3)]
        query = self.make_plain(kinds, tail=self.dice.random() < 0.3)
        names = [f"c{place}" for place in range(len(kinds))]
        return query.changed(names=names), [Column(name, kind) for name, kind in zip(names, kinds, strict=True)]

    def named_grouped(self) -> tuple[Select, list[Column]]:
        query, kinds = self.grouped()
        names = [f"c{place}" for place in range(len(kinds))]
        return query.changed(names=names), [Column(name, kind) for name, kind in zip(names, kinds, strict=True)]

    def named_sets(self) -> tuple[Node, list[Column]]:
        kinds = self.kinds(3)
        names = [f"c{place}" for place in range(len(kinds))]
        left = self.side(kinds).changed(names=names)
        word = self.dice.choice(SET_OPERATIONS)
        query = SetOperation(left, word, self.side(kinds))
        return query, [Column(name, kind) for name, kind in zip(names, kinds, strict=True)]

    def make_grouped(self) -> Select:
        query, kinds = self.grouped()
        return query.changed(**self.tail(len(kinds)))

    def grouped(self) -> tuple[Select, list[str]]:
        source = self.source()
        made = self.expressions(source.columns, nested=False)
        plain = [column for column in source.columns]
        keys: list[Node] = []
        kinds: list[str] = []
        for _ in range(self.dice.choice((0, 1, 1, 1, 2, 2))):
            if self.dice.random() < 0.7:
                column = self.dice.choice(plain)
                keys.append(Text(column.text, column.kind))
            else:
                kind = self.dice.choice(("int", "text", "bool", "time", "date", "dec"))
                keys.append(made.form(kind, self.dice.choice(ALLOWED[kind]), 2))
            kinds.append(keys[-1].kind)
        texts = [key.sql() for key in keys]
        keys = [key for place, key in enumerate(keys) if texts.index(texts[place]) == place]
        kinds = [key.kind for key in keys]

        def aggregate(kind: str) -> Node | None:
            return self.aggregate(kind, made)

        above = Expressions(self.dice, lambda kind: self.dice.choice(found) if (found := [key for key in keys if key.kind == kind]) and self.dice.random() < 0.4 else aggregate(kind))
        items = list(keys)
        for _ in range(self.dice.randint(1, 3)):
            kind = self.dice.choice(("int", "int", "float", "dec", "text", "inexact", "bool", "time", "wild", "big", "date"))
            items.append(aggregate(kind) or Text("count(*)", "int") if self.dice.random() < 0.75 else above.make(kind, 1))
            kinds.append(items[-1].kind)
        clauses: list[Node] = [Text(" FROM "), source.node, self.where(source.columns)]
        if keys:
            clauses.append(self.group_by(keys, items, kinds))
        if self.dice.random() < 0.25:
            clauses.append(Optional(Form("", [" HAVING ", above.make("bool", 1)])))
        return Select(items, clauses), kinds

    def group_by(self, keys: list[Node], items: list[Node], kinds: list[str]) -> Node:
        """GROUP BY, or sets of groups when all keys are columns."""
        share = self.dice.random()
        texts = [key.sql() for key in keys]
        columns = all(isinstance(key, Text) for key in keys)
        if columns and share < 0.25:
            listed = ", ".join(texts)
            shapes = [f"ROLLUP ({listed})", f"CUBE ({listed})", f"GROUPING SETS (({listed}), ())", f"GROUPING SETS (({texts[0]}), ({texts[-1]}), ())"]
            if self.dice.random() < 0.4:
                items.append(Text(f"GROUPING({texts[0]})", "int"))
                kinds.append("int")
            return Text(f" GROUP BY {self.dice.choice(shapes)}")
        if share > 0.8:
            return Text(" GROUP BY " + ", ".join(str(place + 1) for place in range(len(keys))))
        return Series(keys, ", ", 1, " GROUP BY ")

    def aggregate(self, kind: str, made: Expressions) -> Node | None:
        forms = ALLOWED_AGGREGATES.get(kind, ())
        if not forms:
            return None
        template = self.dice.choice(forms)
        node = made.form(kind, template, 2)
        if self.dice.random() < 0.2 and not template.endswith("BIGINT") and not template.startswith("CAST"):
            return Form(kind, [node, " FILTER (WHERE ", made.make("bool", 1), ")"])
        return node

    def make_windows(self) -> Select:
        source = self.source(1)
        made = self.expressions(source.columns, nested=False)
        unique = [column.text for column in source.columns if column.unique]
        total = bool(unique) and not any(column.text.count(".") == 0 for column in source.columns)
        items: list[Node] = [made.make(kind, 1) for kind in self.kinds(2)]
        for _ in range(self.dice.randint(1, 3)):
            items.append(self.window(made, source, unique if total else []))
        return Select(items, [Text(" FROM "), source.node, self.where(source.columns)], **self.tail(len(items)))  # type: ignore[arg-type]

    def window(self, made: Expressions, source: Source, unique: Sequence[str]) -> Node:
        """A window function; those that depend on the order of peers only where the order is total."""
        parts: list[str | Node] = []
        if self.dice.random() < 0.6:
            column = self.dice.choice(source.columns)
            parts += ["PARTITION BY ", Text(column.text, column.kind) if self.dice.random() < 0.8 else made.make("int", 1)]
        pool = ALLOWED_ORDERED if unique and self.dice.random() < 0.6 else ALLOWED_PEERS
        kind = self.dice.choice([kind for kind in pool if pool[kind]])
        call = made.form(kind, self.dice.choice(pool[kind]), 2)
        ranking = any(call.sql().startswith(name) for name in ("rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "row_number", "lag", "lead"))
        if pool is ALLOWED_ORDERED or ranking or self.dice.random() < 0.7:
            parts.append(" ORDER BY ")
            column = self.dice.choice(source.columns)
            keys = [f"{column.text}{self.dice.choice(DIRECTIONS)}"]
            if pool is ALLOWED_ORDERED:
                keys += [f"{text}{self.dice.choice(DIRECTIONS)}" for text in unique]
            parts.append(", ".join(keys))
            if not ranking and self.dice.random() < 0.5:
                parts.append(self.frame(column, pool is ALLOWED_ORDERED))
        return over(call, parts)

    def frame(self, column: Column, total: bool) -> str:
        units = ["RANGE", "GROUPS"] + (["ROWS"] * 3 if total else [])
        unit = self.dice.choice([unit for unit in units if unit not in known.HELD_BACK])
        bounds = ["UNBOUNDED PRECEDING", "CURRENT ROW", "UNBOUNDED FOLLOWING"]
        if unit != "RANGE":
            bounds = ["UNBOUNDED PRECEDING", "2 PRECEDING", "1 PRECEDING", "CURRENT ROW", "1 FOLLOWING", "3 FOLLOWING", "UNBOUNDED FOLLOWING"]
        first, last = sorted((self.dice.randrange(len(bounds)), self.dice.randrange(len(bounds))))
        first, last = min(first, len(bounds) - 2), max(last, 1)
        return f" {unit} BETWEEN {bounds[first]} AND {bounds[last]}"

    def side(self, kinds: Sequence[str], tail: bool = False) -> Select:
        """A query that is one side of a set operation."""
        return self.make_plain(kinds, tail=tail)

    def make_sets(self) -> Node:
        kinds = self.kinds(3)
        node: Node = self.side(kinds)
        for _ in range(self.dice.choice((1, 1, 2))):
            right = self.side(kinds, tail=self.dice.random() < 0.2)
            node = SetOperation(node, self.dice.choice(SET_OPERATIONS), right)
        return SetOperation(node.left, node.word, node.right, **self.tail(len(kinds)))  # type: ignore[attr-defined, arg-type]

    def make_with(self) -> Select:
        """Common table expressions, of which one may read another."""
        query, columns = self.named_grouped() if self.dice.random() < 0.5 else self.named_plain()
        scope = tuple(column._replace(text=f"x.{column.text}") for column in columns)
        source = Source(Text("w AS x", FROM), scope)
        if self.dice.random() < 0.5:
            other = Source(Text("w AS y", FROM), tuple(column._replace(text=f"y.{column.text}") for column in columns)) if self.dice.random() < 0.4 else self.table()
            source = Source(Form(FROM, [source.node, " LEFT JOIN ", other.node, " ON ", self.on(source, other, "LEFT")]), scope + other.columns)
        made = self.expressions(source.columns)
        items = [made.make(kind, 2) for kind in self.kinds(3)]
        before = Form("", ["WITH w AS (", query, ") "])
        return Select(items, [Text(" FROM "), source.node, self.where(source.columns)], before=before, **self.tail(len(items)))  # type: ignore[arg-type]

    def make_distinct_on(self) -> Select:
        """The first row of each group in a total order."""
        source = self.table()
        made = self.expressions(source.columns)
        first = self.dice.choice(source.columns)
        unique = [column.text for column in source.columns if column.unique]
        items = [made.make(kind, 2) for kind in self.kinds(3)]
        order = ", ".join([f"{first.text}{self.dice.choice(DIRECTIONS)}", *(f"{text}{self.dice.choice(DIRECTIONS)}" for text in unique)])
        clauses = [Text(" FROM "), source.node, self.where(source.columns), Text(f" ORDER BY {order}")]
        return Select(items, clauses, word=f"SELECT DISTINCT ON ({first.text})")

    def make_values(self) -> Node:
        kinds = self.kinds(3)
        made = Expressions(self.dice, lambda kind: None)
        if self.dice.random() < 0.4:
            return Select([made.make(kind, DEPTH) for kind in kinds], [])
        rows = [Series([made.make(kind, 2) for kind in kinds], ", ", len(kinds), "(", ")") for _ in range(self.dice.randint(1, 4))]
        return Series(rows, ", ", 1, "VALUES ")


def over(call: Form, window: Sequence[str | Node]) -> Form:
    """A function over a window; a cast at its end stands behind the window."""
    pieces = list(call.pieces)
    last = pieces[-1] if isinstance(pieces[-1], str) else ""
    cast = last[last.rindex("::") :] if last.endswith(("::BIGINT", "::INT")) else ""
    if cast:
        pieces[-1] = last[: -len(cast)]
    return Form(call.kind, [Form(call.kind, pieces), " OVER (", *window, ")", cast])
