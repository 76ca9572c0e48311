"""Queries as trees: a SELECT, and two queries with a set operation between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tree import Node


class Select(Node):
    """A query. `order` has a direction for each column; an order is by all of them, so that it is total."""

    def __init__(
        self,
        items: Sequence[Node],
        clauses: Sequence[Node],
        *,
        word: str = "SELECT",
        names: Sequence[str] = (),
        order: Sequence[str] = (),
        limit: str = "",
        before: Node | None = None,
    ) -> None:
        self.items = tuple(items)
        self.clauses = tuple(clauses)
        self.word = word
        self.names = tuple(names)
        self.order = tuple(order)
        self.limit = limit
        self.before = before

    @property
    def ordered(self) -> bool:
        return bool(self.order)

    def only(self, kept: Sequence[int]) -> Select:
        """The same with these columns only."""
        return self.changed(
            items=[self.items[place] for place in kept],
            names=[self.names[place] for place in kept] if self.names else (),
            order=[self.order[place] for place in kept] if self.order else (),
        )

    def changed(self, **changes: object) -> Select:
        values: dict[str, object] = dict(
            items=self.items, clauses=self.clauses, word=self.word, names=self.names, order=self.order, limit=self.limit, before=self.before
        )
        values.update(changes)
        return Select(**values)  # type: ignore[arg-type]

    def sql(self) -> str:
        names = self.names or [""] * len(self.items)
        items = [f"{item.sql()} AS {name}" if name else item.sql() for item, name in zip(self.items, names, strict=True)]
        text = (self.before.sql() if self.before else "") + f"{self.word} {', '.join(items)}"
        text += "".join(clause.sql() for clause in self.clauses)
        if self.order:
            text += " ORDER BY " + ", ".join(f"{place}{direction}" for place, direction in enumerate(self.order, 1))
        return text + self.limit

    def children(self) -> Sequence[Node]:
        return [*([self.before] if self.before else []), *self.clauses, *self.items]

    def rebuild(self, children: Sequence[Node]) -> Node:
        before = children[0] if self.before else None
        rest = list(children[1:] if self.before else children)
        count = len(self.clauses)
        return self.changed(before=before, clauses=tuple(rest[:count]), items=tuple(rest[count:]))

    def smaller(self) -> Iterator[Node]:
        if self.before:
            yield self.changed(before=None)
        if self.limit:
            yield self.changed(limit="")
        elif self.order:
            yield self.changed(order=())
        if self.word == "SELECT DISTINCT":
            yield self.changed(word="SELECT")
        if len(self.items) > 1:
            for place in range(len(self.items)):
                yield self.only([other for other in range(len(self.items)) if other != place])


class SetOperation(Node):
    """Two queries of the same kinds of columns, and a word between them."""

    def __init__(self, left: Node, word: str, right: Node, order: Sequence[str] = (), limit: str = "") -> None:
        self.left = left
        self.word = word
        self.right = right
        self.order = tuple(order)
        self.limit = limit

    @property
    def ordered(self) -> bool:
        return bool(self.order)

    def sql(self) -> str:
        text = f"({self.left.sql()}) {self.word} ({self.right.sql()})"
        if self.order:
            text += " ORDER BY " + ", ".join(f"{place}{direction}" for place, direction in enumerate(self.order, 1))
        return text + self.limit

    def children(self) -> Sequence[Node]:
        return (self.left, self.right)

    def rebuild(self, children: Sequence[Node]) -> Node:
        return SetOperation(children[0], self.word, children[1], self.order, self.limit)

    def smaller(self) -> Iterator[Node]:
        yield self.left
        yield self.right
        if self.limit:
            yield SetOperation(self.left, self.word, self.right, self.order)
        elif self.order:
            yield SetOperation(self.left, self.word, self.right)
        # The same column of both sides.
        if isinstance(self.left, Select) and isinstance(self.right, Select) and len(self.left.items) == len(self.right.items) > 1:
            count = len(self.left.items)
            for place in range(count):
                kept = [other for other in range(count) if other != place]
                left, right = self.left.only(kept), self.right.only(kept)
                yield SetOperation(left, self.word, right, [self.order[other] for other in kept] if self.order else ())


def is_ordered(query: Node) -> bool:
    """Whether the order of a query's rows is decided."""
    return bool(getattr(query, "ordered", False))
