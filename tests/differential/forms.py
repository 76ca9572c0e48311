"""What expressions, aggregates and windows of each kind look like: the SQL surface that random statements cover."""

from __future__ import annotations

import known

# What an expression of a kind can be. {kind} is an expression of a kind, {Name} a literal of `literals.py`, {0} the first part
# once more.
FORMS: dict[str, tuple[str, ...]] = {
    "bool": (
        "({int} = {int})", "({int} <> {int})", "({int} < {int})", "({int} >= {int})", "({big} < {big})", "({big} = {big})", "({int} < {big})",
        "({dec} <= {dec})", "({dec} = {dec})", "({dec} > {int})", "({float} < {float})", "({float} = {int})", "({float} > {dec})", "({wild} < {wild})",
        "({wild} = {wild})", "({wild} <> {float})", "({text} = {text})", "({text} < {text})", "({text} >= {text})", "({text} = {Word})", "({bytes} = {bytes})",
        "({bytes} < {bytes})", "({date} = {date})", "({date} < {date})", "({date} <= {time})", "({time} = {time})", "({time} < {time})",
        "({time} >= {Moment})", "({zoned} > {zoned})", "({zoned} = {zoned})", "({interval} < {interval})", "({interval} = {interval})",
        "({bool} = {bool})", "({bool} AND {bool})", "({bool} AND {bool})", "({bool} OR {bool})", "({bool} OR {bool})", "(NOT {bool})",
        "({bool} IS TRUE)", "({bool} IS NOT FALSE)", "({bool} IS UNKNOWN)", "({int} IS NULL)", "({text} IS NOT NULL)", "({time} IS NULL)", "({wild} IS NULL)",
        "({int} IS DISTINCT FROM {int})", "({text} IS NOT DISTINCT FROM {text})", "({wild} IS DISTINCT FROM {wild})", "({bool} IS NOT DISTINCT FROM {bool})",
        "({int} BETWEEN {int} AND {int})", "({dec} NOT BETWEEN {dec} AND {int})", "({text} BETWEEN {Word} AND {text})", "({time} BETWEEN {Moment} AND {time})",
        "({int} BETWEEN SYMMETRIC {int} AND {int})", "({int} IN ({Small}, {int}, {Small}))", "({int} NOT IN ({Small}, {Small}))", "({text} IN ({Word}, {Word}, {text}))",
        "({text} NOT IN ({Word}, {Word}))", "({int} IN ({Small}, NULL))", "({int} NOT IN ({Small}, NULL))", "({date} IN ({date}, {date}))", "({dec} IN ({dec}, {Small}))",
        "({wild} IN ({wild}, {wild}))", "({text} LIKE {Pattern})", "({text} NOT LIKE {Pattern})", "({text} ILIKE {Pattern})", "({text} NOT ILIKE {Pattern})",
        "({text} LIKE {Pattern} ESCAPE '!')", "({text} ~ {Regex})", "({text} ~* {Regex})", "({text} !~ {Regex})", "({text} !~* {Regex})", "starts_with({text}, {Word})",
        "(({int}, {text}) = ({int}, {text}))", "(({int}, {int}) < ({int}, {int}))", "(({int}, {text}) IN (({Small}, {Word}), ({int}, {text})))",
        "({int} = ANY (ARRAY[{int}, {Small}]))", "({int} > ALL (ARRAY[{int}, {Small}]))", "({text} = ANY (ARRAY[{text}, {Word}]))",
        "CASE WHEN {bool} THEN {bool} ELSE {bool} END", "COALESCE({bool}, {bool})", "CAST(CAST({int} AS INT) AS BOOLEAN)", "({Bool}::BOOLEAN)",
        "(({time}, {time}) OVERLAPS ({time}, {time}))", "({int} = {dec})", "({big} > {float})", "({float} BETWEEN {float} AND {int})",
    ),
    "int": (
        "({int} + {int})", "({int} - {int})", "({int} * {Small})", "({int} / NULLIF({int}, 0))", "({int} % NULLIF({int}, 0))", "(- {int})", "abs({int})", "sign({int})::INT",
        "length({text})", "char_length({text})", "octet_length({text})", "bit_length({text})", "ascii({text})", "strpos({text}, {Word})", "position({Word} IN {text})",
        "octet_length({bytes})", "length({bytes})", "mod({int}, NULLIF({int}, 0))", "({int} & {int})", "({int} | {int})", "({int} # {int})", "(~ {int})", "({int} << {Digit})", "({int} >> {Digit})",
        "extract({Field} FROM {time})::INT", "extract({DateField} FROM {date})::INT", "date_part({FieldText}, {time})::INT", "extract({Field} FROM {zoned})::INT",
        "({date} - {date})", "CASE WHEN {bool} THEN {int} ELSE {int} END", "CASE {int} WHEN {Small} THEN {int} WHEN {int} THEN {Small} END", "CASE WHEN {bool} THEN {int} END",
        "COALESCE({int}, {int})", "COALESCE({int}, {int}, {Small})", "NULLIF({int}, {int})", "GREATEST({int}, {int}, {Small})", "LEAST({int}, {int})", "CAST({bool} AS INT)",
        "CAST({dec} AS INT)", "CAST({float} AS INT)", "round({dec})::INT", "floor({float})::INT", "ceil({dec})::INT", "trunc({dec})::INT", "gcd({int}, {int})", "lcm({Small}, {Digit})",
        "CAST({Number} AS INT)", "CAST({Number} AS SMALLINT)", "div({int}, NULLIF({int}, 0))::INT", "CAST({int} AS SMALLINT)", "array_length(ARRAY[{int}, {int}], 1)",
        "cardinality(ARRAY[{text}])", "(ARRAY[{int}, {int}])[{Digit}]", "width_bucket({float}, -10, 10, 5)", "extract(epoch FROM {date})::BIGINT / 86400", "regexp_count({text}, {Regex})",
    ),
    "big": (
        "CASE WHEN {bool} THEN {big} ELSE {big} END", "COALESCE({big}, {big})", "NULLIF({big}, {big})", "GREATEST({big}, {big})", "LEAST({big}, {int})", "CAST({int} AS BIGINT)",
        "({big} % {Digit1})", "({big} / {Digit1})", "({big} / {Digit1} + {int})",
    ),
    "dec": (
        "({dec} + {dec})", "({dec} - {dec})", "({dec} * {Small})", "({dec} * {dec})", "({dec} + {int})", "({dec} - {int})", "({int} * {dec})", "({dec} % NULLIF({dec}, 0))", "(- {dec})", "abs({dec})",
        "round({dec}, {Digit})", "round({dec})", "trunc({dec}, {Digit})", "trunc({dec})", "floor({dec})", "ceil({dec})", "sign({dec})", "CAST({int} AS NUMERIC(10, 2))", "CAST({dec} AS NUMERIC(12, 1))",
        "CAST({float} AS NUMERIC(12, 3))", "CAST({Decimal} AS NUMERIC(10, 3))", "CASE WHEN {bool} THEN {dec} ELSE {dec} END", "COALESCE({dec}, {dec})", "COALESCE({dec}, {int})",
        "NULLIF({dec}, {dec})", "GREATEST({dec}, {int})", "LEAST({dec}, {dec})", "CASE WHEN {bool} THEN {dec} ELSE {int} END", "mod({dec}, {Digit1})", "CAST({big} AS NUMERIC(20, 0))",
        "extract(second FROM {time})", "extract(epoch FROM {interval})",
    ),
    "float": (
        "({float} + {float})", "({float} - {float})", "({float} * {Small})", "({float} + {int})", "(- {float})", "abs({float})", "floor({float})", "ceil({float})", "round({float})", "trunc({float})",
        "sign({float})", "CAST({int} AS DOUBLE PRECISION)", "CAST({Quarter} AS DOUBLE PRECISION)", "CASE WHEN {bool} THEN {float} ELSE {float} END", "COALESCE({float}, {float})",
        "COALESCE({float}, {int})", "NULLIF({float}, {float})", "GREATEST({float}, {float})", "LEAST({float}, {int})",
    ),
    "inexact": (
        "({float} / NULLIF({float}, 0))", "sqrt(abs({float}))", "exp({Quarter}::DOUBLE PRECISION)", "ln(abs({float}) + 1)", "log(abs({float}) + 1)", "power({float}, 2)", "sin({float})", "cos({float})", "tan({float})",
        "atan({float})", "atan2({float}, {float})", "degrees({float})", "radians({float})", "cbrt({float})", "pi()", "extract(epoch FROM {time})", "extract(epoch FROM {zoned})", "({dec} / NULLIF({int}, 0))",
        "(CAST({int} AS DOUBLE PRECISION) / {Digit1})", "CAST({dec} AS DOUBLE PRECISION)", "tanh({float})", "asin({float} / 1000)", "log(2, abs({dec}) + 1)", "sqrt({Digit1})",
    ),
    "wild": ("CASE WHEN {bool} THEN {wild} ELSE {wild} END", "COALESCE({wild}, {wild})", "NULLIF({wild}, {float})", "GREATEST({wild}, {wild})", "LEAST({wild}, {wild})", "(- {wild})", "abs({wild})", "({wild} + {Digit})"),
    "text": (
        "({text} || {text})", "({text} || {Word})", "({text} || {int})", "upper({text})", "lower({text})", "initcap({text})", "substring({text} FROM {Small1} FOR {Digit})", "substr({text}, {Small1})", "left({text}, {Small})", "right({text}, {Small})",
        "trim({text})", "ltrim({text})", "rtrim({text}, {Chars})", "btrim({text}, {Chars})", "trim(LEADING {Chars} FROM {text})", "trim(BOTH FROM {text})", "replace({text}, {Word}, {Word})", "reverse({text})", "repeat({text}, {Digit})",
        "lpad({text}, {Digit}, {Chars})", "rpad({text}, {Digit})", "concat({text}, {int}, {text})", "concat_ws({Chars}, {text}, {text}, {Word})", "translate({text}, {Chars}, {Chars})", "split_part({text}, {Chars1}, {Digit1})", "md5({text})",
        "CAST({int} AS TEXT)", "CAST({big} AS TEXT)", "CAST({dec} AS TEXT)", "CAST({bool} AS TEXT)", "CAST({date} AS TEXT)", "CAST({time} AS TEXT)", "CAST({zoned} AS TEXT)", "CAST({float} AS TEXT)", "CAST({wild} AS TEXT)", "CAST({interval} AS TEXT)",
        "to_char({time}, {Format})", "to_char({date}, {Format})", "CASE WHEN {bool} THEN {text} ELSE {text} END", "CASE {text} WHEN {Word} THEN {text} ELSE {Word} END", "COALESCE({text}, {text})", "COALESCE({text}, {Word})",
        "NULLIF({text}, {Word})", "GREATEST({text}, {text})", "LEAST({text}, {text})", "regexp_replace({text}, {Regex}, {Word2})", "regexp_replace({text}, {Regex}, {Word2}, 'g')", "chr({Code})", "overlay({text} PLACING {Word} FROM {Digit1} FOR {Digit})",
        "to_hex(CAST({int} AS BIGINT))", "encode({bytes}, 'hex')", "encode({bytes}, 'base64')", "CAST({text} AS VARCHAR(3))", "CAST({bytes} AS TEXT)", "CAST({text} AS CHAR(3))", "to_char({dec}, '999.99')", "quote_literal({text})", "format('%s-%s', {text}, {int})",
        "regexp_substr({text}, {Regex})", "array_to_string(ARRAY[{text}, {text}], {Chars1})", "CAST(ARRAY[{int}, {int}] AS TEXT)", "(regexp_match({text}, {Regex}))[1]", "to_char({interval}, 'HH24:MI:SS')",
    ),
    "bytes": ("({bytes} || {bytes})", "CASE WHEN {bool} THEN {bytes} ELSE {bytes} END", "COALESCE({bytes}, {bytes})", "decode(encode({bytes}, 'hex'), 'hex')", "substring({bytes} FROM {Digit1} FOR {Digit})", "sha256({bytes})", "GREATEST({bytes}, {bytes})"),
    "date": (
        "({date} + {Small})", "({date} - {Small})", "CAST({time} AS DATE)", "CAST({zoned} AS DATE)", "CAST({DateText} AS DATE)", "CASE WHEN {bool} THEN {date} ELSE {date} END", "COALESCE({date}, {date})", "GREATEST({date}, {date})", "LEAST({date}, {date})",
        "NULLIF({date}, {date})", "make_date(2024, {Digit1}, {Digit1})", "to_date({DateText}, 'YYYY-MM-DD')",
    ),
    "time": (
        "({time} + {Interval})", "({time} - {Interval})", "({time} + {interval})", "({date} + {Interval})", "date_trunc({Unit}, {time})", "date_bin({Stride}, {time}, TIMESTAMP '2001-01-01')", "date_bin({Stride}, {time}, {Moment})", "CAST({date} AS TIMESTAMP)",
        "CAST({MomentText} AS TIMESTAMP)", "CASE WHEN {bool} THEN {time} ELSE {time} END", "COALESCE({time}, {time})", "COALESCE({time}, {date})", "GREATEST({time}, {time})", "LEAST({time}, {time})", "NULLIF({time}, {time})", "CAST({zoned} AS TIMESTAMP)",
        "({zoned} AT TIME ZONE {Zone})", "date_trunc({Unit}, {date})::TIMESTAMP", "CAST({time} AS TIMESTAMP(0))", "make_timestamp(2024, {Digit1}, {Digit1}, 12, 30, 15.5)", "({date} - {Interval})",
    ),
    "zoned": (
        "({zoned} + {Interval})", "({zoned} - {Interval})", "date_trunc({Unit}, {zoned})", "date_trunc({Unit}, {zoned}, {Zone})", "CAST({time} AS TIMESTAMPTZ)", "({time} AT TIME ZONE {Zone})", "CASE WHEN {bool} THEN {zoned} ELSE {zoned} END",
        "COALESCE({zoned}, {zoned})", "GREATEST({zoned}, {zoned})", "to_timestamp({int})", "date_bin({Stride}, {zoned}, TIMESTAMPTZ '2001-01-01 00:00:00+00')", "CAST({date} AS TIMESTAMPTZ)",
    ),
    "interval": (
        "({time} - {time})", "({zoned} - {zoned})", "({interval} + {Interval})", "({interval} * {Small})", "(- {interval})", "({Small} * {Interval})", "CAST({IntervalText} AS INTERVAL)", "COALESCE({interval}, {Interval})",
        "CASE WHEN {bool} THEN {interval} ELSE {Interval} END", "justify_hours({interval})", "justify_days({interval})", "age({time}, {time})", "GREATEST({interval}, {Interval})", "({interval} / {Digit1})", "make_interval(days => {int})",
    ),
}  # fmt: skip

AGGREGATES: dict[str, tuple[str, ...]] = {
    "bool": ("bool_and({bool})", "bool_or({bool})", "every({bool})"),
    "int": (
        "count(*)", "count({int})", "count({text})", "count({wild})", "count(DISTINCT {int})", "count(DISTINCT {text})", "count(DISTINCT {wild})", "count(DISTINCT {time})", "count(DISTINCT {dec})", "sum({int})::BIGINT", "sum(DISTINCT {int})::BIGINT",
        "min({int})", "max({int})", "bit_and({int})", "bit_or({int})", "bit_xor({int})", "count(DISTINCT {bytes})", "count(DISTINCT {bool})", "regr_count({float}, {float})::BIGINT",
    ),
    "big": ("min({big})", "max({big})"),
    "dec": ("sum({dec})", "min({dec})", "max({dec})", "sum(DISTINCT {dec})"),
    "float": ("sum({float})", "min({float})", "max({float})", "sum(DISTINCT {float})"),
    "inexact": (
        "avg({int})", "avg({float})", "avg({dec})", "avg(DISTINCT {int})", "stddev({float})", "stddev_pop({int})", "variance({float})", "var_pop({dec})", "corr({float}, {float})", "covar_pop({float}, {float})", "covar_samp({float}, {float})",
        "regr_slope({float}, {float})", "percentile_cont(0.5) WITHIN GROUP (ORDER BY {float})", "regr_avgx({float}, {float})", "var_samp({int})", "stddev_samp({dec})",
    ),
    "wild": ("min({wild})", "max({wild})"),
    "text": ("min({text})", "max({text})", "string_agg({text}, ',' ORDER BY {0})", "array_to_string(array_agg({int} ORDER BY {0}), ',')", "CAST(array_agg({int} ORDER BY {0}) AS TEXT)", "string_agg({text}, {Chars1} ORDER BY {0} DESC)", "string_agg(DISTINCT {text}, ',' ORDER BY {0})"),
    "bytes": (),
    "date": ("min({date})", "max({date})"),
    "time": ("min({time})", "max({time})"),
    "zoned": ("min({zoned})", "max({zoned})"),
    "interval": ("max({interval})", "min({interval})", "sum({Interval})"),
}  # fmt: skip

# Windows whose value does not depend on which of two peers comes first, and those that need a total order.
PEERS = {
    "int": ("rank()", "dense_rank()", "count({int})", "count(*)", "sum({int})::BIGINT", "min({int})", "max({int})"),
    "float": ("sum({float})", "min({float})", "max({float})"),
    "inexact": ("percent_rank()", "cume_dist()", "avg({float})", "avg({int})", "stddev({float})"),
    "dec": ("sum({dec})", "max({dec})", "min({dec})"),
    "text": ("min({text})", "max({text})"),
    "time": ("max({time})", "min({time})"),
    "wild": ("max({wild})", "min({wild})"),
    "bool": ("bool_or({bool})",),
    "big": ("max({big})",),
}
ORDERED = {
    "int": ("row_number()", "ntile({Digit1})::INT", "lag({int})", "lead({int}, {Digit1})", "lag({int}, 1, {Small})", "first_value({int})", "last_value({int})", "nth_value({int}, {Digit1})"),
    "text": ("lag({text})", "lead({text})", "first_value({text})", "last_value({text})", "nth_value({text}, 2)", "string_agg({text}, ',')"),
    "dec": ("lag({dec})", "first_value({dec})"),
    "time": ("lead({time})", "first_value({time})"),
    "float": ("lag({float})", "last_value({float})"),
    "wild": ("lead({wild})", "first_value({wild})"),
    "date": ("lag({date})",),
    "zoned": ("lag({zoned})",),
    "bool": ("lag({bool})",),
    "big": ("lag({big})", "last_value({big})"),
}  # fmt: skip


def allowed(table: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The templates of a table that no known difference holds back."""
    return {kind: tuple(form for form in forms if form not in known.HELD_BACK) for kind, forms in table.items()}


ALLOWED = allowed(FORMS)
ALLOWED_AGGREGATES = allowed(AGGREGATES)
ALLOWED_PEERS = allowed(PEERS)
ALLOWED_ORDERED = allowed(ORDERED)
