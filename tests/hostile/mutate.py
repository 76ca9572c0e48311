"""Mutations of texts and bytes: tokens lost, doubled and swapped, nesting and lists amplified, numbers made extreme,
bytes flipped."""

import re

from families.nesting import EXPRESSIONS

TOKEN = re.compile(r"'[^']*'|\"[^\"]*\"|\w+|\s+|[^\w\s]", re.S)
NUMBER = re.compile(r"\b\d+\b")
EXTREMES = (
    "0", "-1", "255", "65536", "2147483647", "2147483648", "4294967296", "9223372036854775807", "18446744073709551616",
    "1e309", "1" * 400, "100000000", "0.000000000000000000000000000000001",
)  # fmt: skip
WORDS = (
    "SELECT", "FROM", "WHERE", "(", ")", "[", "]", "{", "}", ",", ";", "'", '"', "$", "$1", "::", "--", "/*", "*/", "NULL", "AS", "IN",
    "UNION", "OVER", "GROUP BY", "INTERVAL", "CASE", "END", "NOT", "EXISTS", "\\", "\0", "\ufeff", "\u202e", "E'", "X'", "->>", "=>", "..",
)  # fmt: skip
SPOILED = (b"\xff", b"\x00", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\r", b"\x1a")
# Bytes of a mutated text at most; what is larger is the catalogue's.
LARGEST = 200_000


def tokens_of(text):
    return TOKEN.findall(text)


def span(dice, tokens, most=12):
    first = dice.randrange(len(tokens))
    return first, min(len(tokens), first + dice.randint(1, most))


def lose(dice, tokens):
    first, last = span(dice, tokens, 4)
    return tokens[:first] + tokens[last:]


def double(dice, tokens):
    first, last = span(dice, tokens)
    return tokens[:last] + tokens[first:last] + tokens[last:]


def swap(dice, tokens):
    first, second = dice.randrange(len(tokens)), dice.randrange(len(tokens))
    changed = list(tokens)
    changed[first], changed[second] = changed[second], changed[first]
    return changed


def insert(dice, tokens):
    place = dice.randrange(len(tokens))
    return tokens[:place] + [" ", dice.choice(WORDS), " "] + tokens[place:]


def replace(dice, tokens):
    place = dice.randrange(len(tokens))
    return tokens[:place] + [dice.choice(WORDS)] + tokens[place + 1 :]


def extreme(dice, tokens):
    places = [place for place, token in enumerate(tokens) if NUMBER.fullmatch(token)]
    if not places:
        return tokens
    place = dice.choice(places)
    return tokens[:place] + [dice.choice(EXTREMES)] + tokens[place + 1 :]


def nest(dice, tokens):
    """Puts something around a part, many times."""
    first, last = span(dice, tokens)
    opening, _, closing = dice.choice(list(EXPRESSIONS.values()))
    depth = dice.choice((2, 10, 25, 60, 400, 4000))
    return tokens[:first] + [opening * depth] + tokens[first:last] + [closing * depth] + tokens[last:]


def amplify(dice, tokens):
    """Repeats a part, many times."""
    first, last = span(dice, tokens)
    count = dice.choice((3, 20, 300, 3000))
    between = dice.choice(("", " ", ", ", " AND ", " + ", " UNION ALL "))
    part = "".join(tokens[first:last]) + between
    return tokens[:first] + [part * min(count, LARGEST // max(1, len(part)))] + tokens[first:]


CHANGES = (lose, lose, double, swap, insert, replace, replace, extreme, extreme, nest, amplify)


def text(dice, given):
    """A text with a few mutations."""
    tokens = tokens_of(given) or [" "]
    for _ in range(dice.choice((1, 1, 2, 3, 6))):
        tokens = dice.choice(CHANGES)(dice, tokens) or [" "]
    return "".join(tokens)[:LARGEST]


def spoil(dice, given):
    """Bytes with a few mutations: flipped, cut off, put in, doubled."""
    data = bytearray(given)
    for _ in range(dice.choice((1, 1, 2, 4, 12))):
        place = dice.randrange(len(data) + 1)
        turn = dice.random()
        if turn < 0.35 and place < len(data):
            data[place] ^= 1 << dice.randrange(8)
        elif turn < 0.6:
            data[place:place] = dice.choice(SPOILED)
        elif turn < 0.75:
            del data[place : place + dice.choice((1, 1, 4, 40))]
        elif turn < 0.85:
            data[place:place] = data[place : place + 60] * dice.choice((1, 5, 100))
        elif turn < 0.95:
            data[place : place + 4] = dice.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1)).to_bytes(4, dice.choice(("big", "little")))
        else:
            del data[place:]
    return bytes(data[:LARGEST])
