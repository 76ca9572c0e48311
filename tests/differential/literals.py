"""Random literals: by the names that templates have for them, and of each kind."""

from __future__ import annotations

import random
from collections.abc import Callable

import known
from schema import NEGATIVE_ZERO, WORDS

def free(values: tuple[str, ...]) -> tuple[str, ...]:
    """Values that no known difference holds back."""
    return tuple(value for value in values if value not in known.HELD_BACK)


UNITS = free(("second", "minute", "hour", "day", "week", "month", "quarter", "year", "decade", "century", "milliseconds"))
FIELDS = free(("year", "month", "day", "hour", "minute", "dow", "doy", "week", "quarter", "isodow", "isoyear", "century", "decade"))
DATE_FIELDS = ("year", "month", "day", "dow", "doy", "week", "quarter", "isodow", "isoyear")
INTERVALS = free((
    "1 day", "1 hour", "90 minutes", "1 month", "1 year", "1 month -1 day", "3 days 04:05:06", "-2 hours", "36 hours", "1 week", "0.5 seconds", "1 year 2 months 3 days", "1.5 days", "-1 mon", "24 hours", "30 days",
))  # fmt: skip
STRIDES = free(("1 hour", "15 minutes", "1 day", "7 days", "10 seconds", "90 minutes", "0.5 seconds"))
PATTERNS = ("a%", "%b%", "_", "__", "%", "", "A_c", "%\\%%", "x!%%", "%é%", "日%", "% %", "abc", "%\n%", "_%_", "%!!%", "\\_")
REGEXES = ("a", "^a", "b$", "[a-c]+", "^$", ".", "\\d+", "(a|b)c?", "^[A-Z]", "\\s", "é", "a.c", "[^a-z]", "l{2}", "\\w+")
# How they come depends on time zone, digits and words, as far as Partita has them.
FORMATS = ("YYYY-MM-DD", "HH24:MI:SS", "YYYY", "DD.MM.YYYY HH24:MI", "MM/DD/YY", "HH12:MI AM", "Mon DD", "Day", "DDD", "Q", "IYYY-IW", "MS", "US")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Auckland")

LITERALS: dict[str, Callable[[random.Random], str]] = {
    "Small": lambda dice: str(n) if (n := dice.randint(-3, 9)) >= 0 else f"({n})",
    "Small1": lambda dice: str(dice.randint(1, 5)) if dice.random() < 0.8 else dice.choice(("0", "(-1)", "(-2)")),
    "Digit": lambda dice: str(dice.randint(0, 6)),
    "Digit1": lambda dice: str(dice.randint(1, 6)),
    "Quarter": lambda dice: str(dice.randint(-20, 20) / 4) if dice.random() < 0.7 else f"'{dice.randint(-20, 20) / 4}'",
    "Number": lambda dice: dice.choice(("'12'", "'-7'", "' 5 '", "'0'", "2.5", "3.5", "-2.5", "1.49", "'x'", "''", "1e2")),
    "Decimal": lambda dice: dice.choice(("'1.005'", "1.005", "2.5", "-0.0005", "'12.3456'", "'1e2'", "' 7.25 '", "0.1", "100")),
    "Word": lambda dice: text_literal(dice.choice(WORDS)),
    "Word2": lambda dice: dice.choice(free(("'x'", "''", "'[\\&]'", "'<\\1>'", "'é'"))),
    "Chars": lambda dice: dice.choice(("' '", "'a'", "'ab'", "'x '", "','", "''", "'é'", "'abc'")),
    "Chars1": lambda dice: dice.choice(("' '", "'a'", "','", "'b'", "'é'")),
    "Code": lambda dice: dice.choice(("65", "97", "233", "26085", "128512", "32")),
    "Pattern": lambda dice: text_literal(dice.choice(PATTERNS)),
    "Regex": lambda dice: text_literal(dice.choice(REGEXES)),
    "Unit": lambda dice: f"'{dice.choice(UNITS)}'",
    "Field": lambda dice: dice.choice(FIELDS),
    "FieldText": lambda dice: f"'{dice.choice(FIELDS)}'",
    "DateField": lambda dice: dice.choice(DATE_FIELDS),
    "Format": lambda dice: f"'{dice.choice(FORMATS)}'",
    "Zone": lambda dice: f"'{dice.choice(ZONES)}'",
    "Bool": lambda dice: dice.choice(("'t'", "'false'", "'yes'", "'0'", "'on'", "'x'", "NULL")),
    "Interval": lambda dice: f"INTERVAL '{dice.choice(INTERVALS)}'",
    "IntervalText": lambda dice: f"'{dice.choice(INTERVALS)}'",
    "Stride": lambda dice: f"INTERVAL '{dice.choice(STRIDES)}'",
    "Moment": lambda dice: f"TIMESTAMP {moment(dice)}",
    "MomentText": lambda dice: moment(dice),
    "DateText": lambda dice: f"'2024-{dice.randint(1, 12):02}-{dice.randint(1, 28):02}'",
}  # fmt: skip


def moment(dice: random.Random) -> str:
    """A moment; a third has digits finer than milliseconds."""
    fraction = dice.choice(("", "", "", ".5", ".1239", ".999999"))
    return f"'2024-{dice.randint(1, 12):02}-{dice.randint(1, 28):02} {dice.randint(0, 23):02}:{dice.choice((0, 30, 59)):02}:00{fraction}'"


def text_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def literal_of(dice: random.Random, kind: str) -> str:
    """A literal of a kind, typed where its text alone is not."""
    if dice.random() < 0.08:
        return f"CAST(NULL AS {NULL_TYPES[kind]})"
    choices: dict[str, Callable[[], str]] = {
        "bool": lambda: dice.choice(("true", "false")),
        "int": lambda: LITERALS["Small"](dice),
        "big": lambda: dice.choice(("9223372036854775807", "(-9223372036854775807)", "2147483648", "16777217", "0")),
        "dec": lambda: dice.choice(("1.25", "0.5", "(-1.25)", "2.5", "100.0", "0.01", "3.14159")),
        "float": lambda: f"CAST({LITERALS['Quarter'](dice)} AS DOUBLE PRECISION)",
        "inexact": lambda: f"CAST({dice.randint(1, 99)} AS DOUBLE PRECISION)",
        "wild": lambda: f"'{dice.choice(('NaN', 'Infinity', '-Infinity', '0', NEGATIVE_ZERO, '1e300', '0.1'))}'::DOUBLE PRECISION",
        "text": lambda: f"CAST({LITERALS['Word'](dice)} AS TEXT)",
        "bytes": lambda: f"'\\x{dice.choice(('', '00', 'ff', '00ff', '61'))}'::BYTEA",
        "date": lambda: f"DATE {LITERALS['DateText'](dice)}",
        "time": lambda: LITERALS["Moment"](dice),
        "zoned": lambda: f"TIMESTAMPTZ {moment(dice)[:-1]}{dice.choice(('+00', '+02', '-05:30', 'Z'))}'",
        "interval": lambda: LITERALS["Interval"](dice),
    }
    return choices[kind]()


NULL_TYPES = {
    "bool": "BOOLEAN", "int": "INT", "big": "BIGINT", "dec": "NUMERIC(10, 2)", "float": "DOUBLE PRECISION", "inexact": "DOUBLE PRECISION", "wild": "DOUBLE PRECISION",
    "text": "TEXT", "bytes": "BYTEA", "date": "DATE", "time": "TIMESTAMP", "zoned": "TIMESTAMPTZ", "interval": "INTERVAL",
}  # fmt: skip
