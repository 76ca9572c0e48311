"""Constructs that random statements leave out because a difference is known, each with its reason.

A construct is a template of `forms.py`, or a feature of `queries.py` or `cases.py` by its name. Whoever mends one takes it
out of the list. The summary of each run says how many there are, and `--all` leaves nothing out.
"""

from __future__ import annotations

KNOWN: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "there is no such function",
        (
            "sign({int})::INT", "sign({dec})", "sign({float})", "mod({int}, NULLIF({int}, 0))", "mod({dec}, {Digit1})", "div({int}, NULLIF({int}, 0))::INT",
            "width_bucket({float}, -10, 10, 5)", "make_timestamp(2024, {Digit1}, {Digit1}, 12, 30, 15.5)", "make_interval(days => {int})", "justify_hours({interval})",
            "justify_days({interval})", "age({time}, {time})", "quote_literal({text})", "format('%s-%s', {text}, {int})", "regexp_substr({text}, {Regex})", "every({bool})",
            "variance({float})", "date_trunc({Unit}, {zoned}, {Zone})", "to_date({DateText}, 'YYYY-MM-DD')", "to_char({dec}, '999.99')", "to_char({interval}, 'HH24:MI:SS')",
        ),
    ),
    ("there is no such syntax", ("({int} BETWEEN SYMMETRIC {int} AND {int})", "({text} LIKE {Pattern} ESCAPE '!')", "trim(BOTH FROM {text})")),
    ("a unit that date_trunc and extract do not know", ("century", "decade", "milliseconds")),
    ("a text of an interval with a clock in it cannot be read", ("3 days 04:05:06",)),
    (
        "a cast to an integer or to fewer digits cuts where PostgreSQL rounds",
        ("CAST({dec} AS INT)", "CAST({float} AS INT)", "CAST({Number} AS INT)", "CAST({Number} AS SMALLINT)", "CAST({time} AS TIMESTAMP(0))", "round({float})"),
    ),
    ("the remainder of a numeric literal goes through a float", ("({dec} % NULLIF({dec}, 0))",)),
    ("text of a number with an exponent is no decimal", ("CAST({Decimal} AS NUMERIC(10, 3))",)),
    ("-0 and 0 are two values in NULLIF", ("NULLIF({wild}, {float})",)),
    ("\\& in what regexp_replace puts in is no match", ("'[\\&]'", "'<\\1>'")),
    (
        "a text is bytes only in VALUES, and functions of texts do not take bytes",
        ("encode({bytes}, 'hex')", "encode({bytes}, 'base64')", "octet_length({bytes})", "length({bytes})", "COALESCE({bytes}, {bytes})", "substring({bytes} FROM {Digit1} FOR {Digit})", "sha256({bytes})", "GREATEST({bytes}, {bytes})", "'\\x..'::BYTEA", "decode(encode({bytes}, 'hex'), 'hex')"),
    ),
    ("extract cuts the fraction of a second", ("extract(second FROM {time})",)),
    ("a year of an interval has 360 days", ("extract(epoch FROM {interval})",)),
    ("a date and an interval are a date", ("({date} + {Interval})", "({date} - {Interval})")),
    ("the difference of two times has no days", ("({time} - {time})", "({zoned} - {zoned})")),
    (
        "times are cut to the unit of one of them",
        ("0.5 seconds", "date_bin({Stride}, {time}, {Moment})"),
    ),
    (
        "the time zone is lost from literals and casts",
        ("TIMESTAMPTZ '..'", "CAST({time} AS TIMESTAMPTZ)", "CAST({date} AS TIMESTAMPTZ)", "to_timestamp({int})", "({time} AT TIME ZONE {Zone})", "({zoned} AT TIME ZONE {Zone})", "date_bin({Stride}, {zoned}, TIMESTAMPTZ '2001-01-01 00:00:00+00')", "time zone"),
    ),
    ("-0 comes before 0 where PostgreSQL takes them for equal", ("DISTINCT ON with -0", "-0")),
    ("a panic", ("DISTINCT ON with a column twice in ORDER BY",)),
    ("ORDER BY takes a constant or an expression over aggregates for a column", ("ORDER BY in a grouped query",)),
    ("GROUP BY takes a column and a cast of it for one", ("CAST({time} AS DATE)", "CAST({zoned} AS DATE)")),
    ("HAVING takes constants for columns", ("HAVING without a group",)),
    ("windows are not ordered by bytes", ("bytes in the order of a window",)),
    ("subqueries are refused with the code of a syntax error", ("subquery beside DISTINCT ON", "subquery in the condition of a join")),
    ("a subquery at the beginning of a list is parsed as a query", ("({date} IN ({date}, {date}))", "({dec} IN ({dec}, {Small}))", "({wild} IN ({wild}, {wild}))")),
    ("an unsigned number beside an array of integers", ("cardinality(ARRAY[{text}])", "array_length(ARRAY[{int}, {int}], 1)")),
    ("a predicate with ANY or ALL cannot be a value", ("ANY and ALL as a value",)),
    (
        "a decimal overflows where PostgreSQL has more digits",
        ("CAST({big} AS NUMERIC(20, 0))", "floor({dec})", "ceil({dec})", "ceil({dec})::INT", "trunc({dec})::INT", "round({dec})::INT", "({dec} * {dec})"),
    ),
    ("round of a decimal has another type when it runs than when it was planned", ("round({dec}, {Digit})", "round({dec})", "trunc({dec}, {Digit})", "trunc({dec})")),
    ("functions of REAL are computed in single precision", ("REAL in arithmetic",)),
    ("the negative of NaN is another value than NaN", ("(- {wild})", "abs({wild})")),
    ("names of columns meet where two sides of a set operation cross over", ("a column twice in a set operation",)),
    ("a filter above GROUPING SETS takes no row away", ("grouping sets in a derived table",)),
    ("merged columns of NATURAL are ambiguous", ("natural",)),
    ("intervals in a FILTER panic", ("max({interval})", "min({interval})")),
    ("the largest and the smallest of NaN depend on the order of rows", ("min({wild})", "max({wild})")),
)  # fmt: skip

HELD_BACK: dict[str, str] = {construct: reason for reason, constructs in KNOWN for construct in constructs}
