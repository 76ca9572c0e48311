"""SQL as a tree that can be written as text and made smaller.

A statement is made as a tree, so that a failing one shrinks by its meaning: a part is left out, or replaced by a part of
itself of the same kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

# The simplest expression of each kind; shrinking tries it in place of any other.
SIMPLEST: dict[str, str] = {
    "bool": "true",
    "int": "1",
    "big": "1::BIGINT",
    "dec": "1.5",
    "float": "1.5::DOUBLE PRECISION",
    "inexact": "1.5::DOUBLE PRECISION",
    "wild": "1.5::DOUBLE PRECISION",
    "text": "'a'::TEXT",
    "bytes": "'\\x01'::BYTEA",
    "date": "DATE '2024-01-01'",
    "time": "TIMESTAMP '2024-01-01 00:00:00'",
    "zoned": "TIMESTAMPTZ '2024-01-01 00:00:00+00'",
    "interval": "INTERVAL '1 hour'",
}


class Node:
    """A part of a statement. `kind` is the kind of its value, or '' for what is no expression."""

    kind: str = ""

    def sql(self) -> str:
        raise NotImplementedError

    def children(self) -> Sequence[Node]:
        return ()

    def rebuild(self, children: Sequence[Node]) -> Node:
        """The same node over other children."""
        raise NotImplementedError

    def smaller(self) -> Iterator[Node]:
        """Nodes that may stand in this one's place, smallest first."""
        yield from ()


class Text(Node):
    """A text that stands as it is: a column, a literal, a keyword."""

    def __init__(self, text: str, kind: str = "") -> None:
        self.text = text
        self.kind = kind

    def sql(self) -> str:
        return self.text

    def rebuild(self, children: Sequence[Node]) -> Node:
        return self

    def smaller(self) -> Iterator[Node]:
        simplest = SIMPLEST.get(self.kind)
        if simplest and simplest != self.text and len(simplest) < len(self.text):
            yield Text(simplest, self.kind)


class Same(Node):
    """Another part of the same form once more; it shrinks with that part."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def sql(self) -> str:
        return self.node.sql()


class Form(Node):
    """An expression by a template: `pieces` are texts and expressions in turn."""

    def __init__(self, kind: str, pieces: Sequence[str | Node]) -> None:
        self.kind = kind
        self.pieces = tuple(pieces)

    def sql(self) -> str:
        return "".join(piece if isinstance(piece, str) else piece.sql() for piece in self.pieces)

    def children(self) -> Sequence[Node]:
        return [piece for piece in self.pieces if isinstance(piece, Node) and not isinstance(piece, Same)]

    def rebuild(self, children: Sequence[Node]) -> Node:
        remaining, before = iter(children), list(self.children())
        pieces: list[str | Node] = []
        for piece in self.pieces:
            if isinstance(piece, Same):
                pieces.append(Same(children[before.index(piece.node)]))
            else:
                pieces.append(piece if isinstance(piece, str) else next(remaining))
        return Form(self.kind, pieces)

    def smaller(self) -> Iterator[Node]:
        if self.kind in SIMPLEST:
            yield Text(SIMPLEST[self.kind], self.kind)
        if self.kind:
            yield from inner(self, self.kind)


class Series(Node):
    """Nodes in a row, of which `least` have to stay."""

    def __init__(self, nodes: Sequence[Node], between: str = ", ", least: int = 1, before: str = "", after: str = "") -> None:
        self.nodes = tuple(nodes)
        self.between = between
        self.least = least
        self.before = before
        self.after = after

    def sql(self) -> str:
        if not self.nodes:
            return ""
        return self.before + self.between.join(node.sql() for node in self.nodes) + self.after

    def children(self) -> Sequence[Node]:
        return self.nodes

    def rebuild(self, children: Sequence[Node]) -> Node:
        return Series(children, self.between, self.least, self.before, self.after)

    def smaller(self) -> Iterator[Node]:
        if self.least == 0 and self.nodes:
            yield self.rebuild(())
        if len(self.nodes) > self.least:
            for place in range(len(self.nodes)):
                yield self.rebuild(self.nodes[:place] + self.nodes[place + 1 :])


class Optional(Node):
    """A clause that may be left out."""

    def __init__(self, node: Node | None) -> None:
        self.node = node

    def sql(self) -> str:
        return self.node.sql() if self.node else ""

    def children(self) -> Sequence[Node]:
        return [self.node] if self.node else []

    def rebuild(self, children: Sequence[Node]) -> Node:
        return Optional(children[0] if children else None)

    def smaller(self) -> Iterator[Node]:
        if self.node:
            yield Optional(None)


def inner(node: Node, kind: str) -> Iterator[Node]:
    """Descendants of a kind, nearest last: the smallest are tried first."""
    found = []
    level = list(node.children())
    while level:
        found += [child for child in level if child.kind == kind]
        level = [grandchild for child in level for grandchild in child.children()]
    yield from reversed(found)


def reductions(tree: Node) -> Iterator[Node]:
    """Trees with one node made smaller; nodes near the root come first."""
    level: list[tuple[Node, tuple[int, ...]]] = [(tree, ())]
    while level:
        following = []
        for node, path in level:
            for replacement in node.smaller():
                yield replaced(tree, path, replacement)
            following += [(child, (*path, place)) for place, child in enumerate(node.children())]
        level = following


def replaced(tree: Node, path: Sequence[int], replacement: Node) -> Node:
    """The tree with another node at a path of child numbers."""
    if not path:
        return replacement
    children = list(tree.children())
    children[path[0]] = replaced(children[path[0]], path[1:], replacement)
    return tree.rebuild(children)
