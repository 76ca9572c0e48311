"""A kind of hostile statement, and the choices that follow from a seed: the door, and the order."""

import random
from typing import Callable, NamedTuple

from doors import EVERY


class Kind(NamedTuple):
    """A hostile statement by its family, shape and size; `build` makes the text, or several of one session."""

    family: str
    shape: str
    size: str
    build: Callable[[], list]
    doors: tuple = EVERY

    @property
    def name(self):
        return "/".join(part for part in (self.family, self.shape, self.size) if part)


def kind(family, shape, size, build, doors=EVERY):
    """A kind whose `build` may return a text or a list of them."""

    def texts():
        built = build()
        return built if isinstance(built, list) else [built]

    return Kind(family, shape, str(size), texts, doors)


def fixed(family, statements, doors=EVERY):
    """Kinds of one text each, by their shapes."""
    return [kind(family, shape, "", lambda text=text: text, doors) for shape, text in statements.items()]


def sized(family, shape, sizes, build, doors=EVERY):
    """Kinds of one shape in several sizes."""
    return [kind(family, shape, size, lambda size=size: build(size), doors) for size in sizes]


def door_of(kind, seed):
    """The door that a seed gives a kind: the same for every selection of kinds."""
    return random.Random(f"{seed}:{kind.name}").choice(kind.doors)


def chosen(kinds, seed, only=(), sample=0):
    """Kinds in the order that a seed gives them: those whose names begin as said, and so many of them."""
    picked = [kind for kind in kinds if not only or kind.name.startswith(tuple(only))]
    random.Random(seed).shuffle(picked)
    return picked[:sample] if sample else picked
