"""When two answers are the same, and the name of the difference when they are not. Each rule says why it is there."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from session import Answer

INTEGERS = {20, 21, 23, 26}
FLOATS = {700: 2e-5, 701: 1e-9}
NUMERIC = 1700
CHARACTER = 1042
ZERO = Decimal(0)
# A sum of floats that should be zero may be this.
TINY = Decimal("1e-12")
TEXTS = {18, 19, 25, 705, 1042, 1043, 1560, 1562}
# Divisions and averages of decimals are cut somewhere: PostgreSQL has 16 significant digits at least, Partita four digits
# more than its operands. With fewer digits than these nothing was cut.
CUT_DIGITS_MIN = 4
# Rows up to which each is looked for among all the others.
MATCHED_MAX = 400

# Codes that say the same though their classes differ.
SAME_CODES = {
    # An overflow of a time is a datetime error in one and a number's in the other.
    frozenset(("22003", "22008")),
    # A value that cannot be read.
    frozenset(("22007", "22P02")),
    frozenset(("22008", "22007")),
    # A subquery with two rows where one is wanted, and operators that do not exist, are found while planning.
    frozenset(("42883", "42804")),
}


class Verdict(NamedTuple):
    """`kind`: '' when the answers are the same; `text` says what differs. `accepted`: a difference that is documented.

    `ends`: the tables differ from here on, because only one side took a change.
    """

    kind: str
    text: str = ""
    accepted: bool = False
    ends: bool = False


SAME = Verdict("")


def with_postgres(ours: Answer, theirs: Answer, ordered: bool) -> Verdict:
    """Compares Partita's answer with PostgreSQL's."""
    if ours.failed and (ours.code == "0A000" or ours.code == "22023" and "is not supported" in ours.message):
        # A refusal by name is an answer of its own: README and error text say what is not there. They are counted.
        return Verdict("refused", refusal(ours.message), accepted=True)
    if theirs.failed and theirs.code == "0A000":
        # PostgreSQL cannot do it (FULL JOIN on inequalities); the layouts are still compared with each other.
        return Verdict("postgres refuses", refusal(theirs.message), accepted=True)
    if theirs.failed and not ours.failed:
        if theirs.code[:2] == "22":
            # Which rows an expression is evaluated for is the planner's choice; who skips a row sees no error.
            return Verdict("not evaluated", theirs.code, accepted=True)
        if theirs.code[:2] == "42":
            # Types and names that PostgreSQL does not take: more than it is no wrong answer.
            return Verdict("beyond", f"an answer, where PostgreSQL says {theirs.code} {refusal(theirs.message)}", accepted=True)
        return Verdict("accepted", f"an answer, where PostgreSQL says {theirs.code} {theirs.message}")
    if ours.failed and not theirs.failed:
        return Verdict("error", f"{ours.code} {ours.message}")
    if ours.failed:
        same = ours.code[:2] == theirs.code[:2] or frozenset((ours.code, theirs.code)) in SAME_CODES
        if same or {ours.code[:2], theirs.code[:2]} <= {"42", "22"}:
            # Whether a mistake is found while planning or while running is no matter of right answers.
            return SAME
        return Verdict("error code", f"{ours.code} {ours.message}, where PostgreSQL says {theirs.code} {theirs.message}")
    return rows_differ(ours, theirs, ordered)


def between_layouts(one: Answer, other: Answer, ordered: bool) -> Verdict:
    """Compares answers of two layouts: these have to be the same in all but the order of sums."""
    if one.failed and other.failed:
        return SAME if one.code == other.code else Verdict("error code", f"{one.code} or {other.code} by layout")
    if one.failed or other.failed:
        failed = one if one.failed else other
        return Verdict("error", f"by layout: {failed.code} {failed.message}")
    return rows_differ(one, other, ordered)


def rows_differ(one: Answer, other: Answer, ordered: bool) -> Verdict:
    if len(one.types) != len(other.types):
        return Verdict("columns", f"{len(one.types)} columns in place of {len(other.types)}")
    for place, (mine, yours) in enumerate(zip(one.types, other.types, strict=True)):
        if family(mine) != family(yours):
            return Verdict("type", f"column {place + 1} has type {mine} in place of {yours}")
    if one.count != other.count and not one.types:
        return Verdict("count", f"{one.count} rows changed in place of {other.count}")
    if len(one.rows) != len(other.rows):
        return Verdict("rows", f"{len(one.rows)} rows in place of {len(other.rows)}")
    columns = [Values(mine, yours) for mine, yours in zip(one.types, other.types, strict=True)]
    mine, yours = read_rows(one, columns), read_rows(other, columns)
    if ordered and all_equal(mine, yours, columns):
        return SAME
    # The order counts only where ORDER BY is total; among numbers that are equal within the tolerance it is not.
    if ordered and all(column.exact for column in columns):
        unordered = all_equal(sorted(mine, key=sort_key), sorted(yours, key=sort_key), columns)
        return Verdict("order" if unordered else "values", first_difference(one, other, mine, yours, columns))
    exact = [place for place, column in enumerate(columns) if column.exact]
    for rows in (mine, yours):
        # Exact columns first, so that rows that belong together stand together.
        rows.sort(key=lambda row: (sort_key([row[place] for place in exact]), sort_key(row)))
    if all_equal(mine, yours, columns) or matched(mine, yours, columns):
        return SAME
    return Verdict("values", first_difference(one, other, mine, yours, columns))


class Values:
    """How the values of a column are read and compared, by the types that both sides give it."""

    def __init__(self, mine: int, yours: int) -> None:
        self.family = family(mine)
        # Sums of floats depend on the order of rows, functions of them on the library.
        self.tolerance = max(FLOATS.get(mine, 0.0), FLOATS.get(yours, 0.0))
        self.decimals = mine == yours == NUMERIC
        # The blanks at the end of a CHAR(n) say nothing. In Partita what is made of one is a text, which has none.
        self.blanks = (mine == CHARACTER) != (yours == CHARACTER)

    def read(self, text: str | None) -> object:
        if text is None:
            return None
        if self.family == "number":
            return number(text)
        if self.family == "interval":
            return interval(text)
        return text.rstrip(" ") if self.blanks else text

    def equal(self, one: object, other: object) -> bool:
        if one == other:
            return True
        if not isinstance(one, Decimal) or not isinstance(other, Decimal):
            return False
        if self.decimals:
            return equal_when_cut(one, other)
        return abs(one - other) <= Decimal(self.tolerance) * max(abs(one), abs(other)) + (TINY if self.tolerance else 0)

    @property
    def exact(self) -> bool:
        return not self.tolerance and not self.decimals


def equal_when_cut(one: Decimal, other: Decimal) -> bool:
    """Whether two decimals of different lengths are equal as far as the shorter one has digits."""
    short, long = sorted((places(one), places(other)))
    return CUT_DIGITS_MIN <= short < long and abs(one - other) <= Decimal(1).scaleb(-short)


def places(value: Decimal) -> int:
    """Digits behind the point."""
    return -int(value.as_tuple().exponent)


def number(text: str) -> object:
    """A number by its value: how many zeros stand behind a point says nothing. The sign of zero is no part of it, because
    equal values are one group, and which of them is shown is nobody's promise.
    """
    if text in ("NaN", "Infinity", "-Infinity"):
        return text
    try:
        value = Decimal(text)
    except InvalidOperation:
        return f"no number: {text}"
    return abs(value) if value == 0 else value


def interval(text: str) -> object:
    """An interval by its months, days and microseconds, however it is written."""
    months = days = micros = 0
    for count, unit in re.findall(r"([+-]?\d+(?:\.\d+)?) (year|mon|day)", text):
        if unit == "day":
            days += int(count)
        else:
            months += int(count) * (12 if unit == "year" else 1)
    clock = re.search(r"([+-]?)(\d+):(\d\d)(?::(\d\d)(?:\.(\d+))?)?", text)
    if clock:
        sign = -1 if clock[1] == "-" else 1
        seconds = int(clock[2]) * 3600 + int(clock[3]) * 60 + int(clock[4] or 0)
        micros = sign * (seconds * 1_000_000 + int((clock[5] or "0")[:6].ljust(6, "0")))
    return (months, days, micros)


def family(oid: int) -> str:
    """Types whose values clients read alike: an integer of another width, an average as a decimal or as a float."""
    if oid in INTEGERS or oid in FLOATS or oid == NUMERIC:
        return "number"
    if oid in TEXTS:
        return "text"
    return {1186: "interval"}.get(oid, str(oid))


def read_rows(answer: Answer, columns: list[Values]) -> list[list[object]]:
    return [[column.read(value) for column, value in zip(columns, row, strict=True)] for row in answer.rows]


def all_equal(mine: list[list[object]], yours: list[list[object]], columns: list[Values]) -> bool:
    return all(row_equal(one, other, columns) for one, other in zip(mine, yours, strict=True))


def row_equal(one: list[object], other: list[object], columns: list[Values]) -> bool:
    return all(column.equal(a, b) for column, a, b in zip(columns, one, other, strict=True))


def matched(mine: list[list[object]], yours: list[list[object]], columns: list[Values]) -> bool:
    """Whether each row has a counterpart, where the tolerance has put neighbours into another order."""
    if all(column.exact for column in columns) or len(mine) > MATCHED_MAX:
        return False
    remaining = list(yours)
    for row in mine:
        place = next((place for place, other in enumerate(remaining) if row_equal(row, other, columns)), None)
        if place is None:
            return False
        del remaining[place]
    return True


def sort_key(row: list[object]) -> tuple[tuple[int, Decimal, str], ...]:
    return tuple(sort_value(value) for value in row)


def sort_value(value: object) -> tuple[int, Decimal, str]:
    if value is None:
        return (0, ZERO, "")
    return (1, value, "") if isinstance(value, Decimal) else (2, ZERO, str(value))


def first_difference(one: Answer, other: Answer, mine: list[list[object]], yours: list[list[object]], columns: list[Values]) -> str:
    for place, (left, right) in enumerate(zip(mine, yours, strict=True)):
        if not row_equal(left, right, columns):
            return f"row {place + 1}: {shown(left)} in place of {shown(right)}"
    return "the order of rows"


def shown(row: list[object]) -> str:
    return "(" + ", ".join("NULL" if value is None else str(value) for value in row) + ")"


def refusal(message: str) -> str:
    """What is refused, without the names and numbers of one statement."""
    return re.sub(r'"[^"]*"|\'[^\']*\'', "..", re.sub(r"\b[a-z]?\d+\b", "N", message))[:100]
