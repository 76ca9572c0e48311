"""Random statements over the SQL that is claimed to work: a grammar with bounded depth, driven by a random source.

Expressions are made for a type, so that most statements get past the planner; now and then one of another type is
put in, so that its checks are tried as well.
"""

CHANGING = ("t0", "t1", "t2")
TABLES = ("t0", "hostile_rows", "hostile_small", "hostile_small", "hostile_small", "hostile_sink")
VIEWS = (
    "information_schema.tables", "information_schema.columns", "pg_catalog.pg_class", "pg_catalog.pg_type",
    "sys.partitions", "sys.query_log", "sys.partition_load", "sys.hot_partitions", "sys.nodes", "sys.table_balance",
)  # fmt: skip
TYPES = (
    "BIGINT", "INT", "SMALLINT", "DOUBLE", "REAL", "TEXT", "STRING", "BOOLEAN", "TIMESTAMP(3)", "TIMESTAMPTZ", "DATE",
    "DECIMAL(10, 3)", "DECIMAL(38, 10)", "BYTEA", "INTERVAL", "UINT64", "BIGINT[]", "TEXT[][]", "TIME", "JSON",
)  # fmt: skip
NUMBER, WHOLE, TEXT, TRUTH, TIME, LIST = "number", "whole", "text", "truth", "time", "list"
KINDS = (NUMBER, WHOLE, TEXT, TRUTH, TIME, LIST)
# Columns that the tables have, literals, and how a query's output stands for a column in a derived table.
LEAVES = {
    NUMBER: (
        "k", "n", "v", "k", "n", "0", "1", "-1", "7", "1000", "0.1", "1e308", "'NaN'::DOUBLE", "9223372036854775807", "NULL::BIGINT",
        "-9223372036854775808", "18446744073709551615", "1.5::DECIMAL(10, 3)", "random()",
    ),
    WHOLE: ("k", "n", "k", "n", "0", "1", "-1", "7", "1000", "NULL::BIGINT", "9223372036854775807"),
    TEXT: ("s", "s", "''", "'abc'", "'row 7'", "'%'", "'é\U0001f600'", "NULL::TEXT", "version()", "uuid()", "'1970-01-01'"),
    TRUTH: ("true", "false", "k > 5", "s < 'row 5'", "NULL::BOOLEAN", "v <> n"),
    TIME: (
        "ts", "ts", "ts", "now()", "now()", "TIMESTAMP '2026-01-01 00:00:00'", "TIMESTAMP '1970-01-01'", "TIMESTAMP '2262-04-11'",
        "TIMESTAMP '9999-12-31 23:59:59'", "NULL::TIMESTAMP",
    ),
    LIST: ("[1, 2, 3]", "ARRAY[k, n]", "range(0, 10)", "[]", "array_repeat(n, 3)", "generate_series(1, 5)", "[NULL, 1]"),
}  # fmt: skip
# Functions of a type, with the types of their arguments.
CALLS = {
    NUMBER: (
        ("abs", NUMBER), ("round", NUMBER), ("trunc", NUMBER), ("ceil", NUMBER), ("sqrt", NUMBER), ("ln", NUMBER), ("exp", NUMBER),
        ("signum", NUMBER), ("cbrt", NUMBER), ("power", NUMBER, NUMBER), ("gcd", WHOLE, WHOLE), ("lcm", WHOLE, WHOLE),
        ("atan2", NUMBER, NUMBER), ("log", NUMBER, NUMBER), ("factorial", WHOLE), ("length", TEXT), ("ascii", TEXT),
        ("bit_length", TEXT), ("strpos", TEXT, TEXT), ("levenshtein", TEXT, TEXT), ("regexp_count", TEXT, TEXT), ("hash64", TEXT),
        ("xxh3", TEXT), ("find_in_set", TEXT, TEXT), ("array_length", LIST), ("cardinality", LIST), ("array_position", LIST, NUMBER),
        ("coalesce", NUMBER, NUMBER, NUMBER), ("nullif", NUMBER, NUMBER), ("greatest", NUMBER, NUMBER), ("least", NUMBER, NUMBER),
        ("to_unixtime", TIME), ("array_max", LIST), ("unnest", LIST),
    ),
    WHOLE: (
        ("abs", WHOLE), ("gcd", WHOLE, WHOLE), ("lcm", WHOLE, WHOLE), ("length", TEXT), ("ascii", TEXT), ("strpos", TEXT, TEXT),
        ("nullif", WHOLE, WHOLE), ("coalesce", WHOLE, WHOLE), ("greatest", WHOLE, WHOLE), ("bit_length", TEXT),
    ),
    TEXT: (
        ("concat", TEXT, NUMBER), ("upper", TEXT), ("lower", TEXT), ("reverse", TEXT), ("md5", TEXT), ("initcap", TEXT), ("btrim", TEXT),
        ("repeat", TEXT, WHOLE), ("left", TEXT, WHOLE), ("right", TEXT, WHOLE), ("lpad", TEXT, WHOLE, TEXT), ("chr", WHOLE),
        ("rpad", TEXT, WHOLE, TEXT), ("replace", TEXT, TEXT, TEXT), ("substr", TEXT, WHOLE, WHOLE), ("to_hex", WHOLE),
        ("split_part", TEXT, TEXT, WHOLE), ("translate", TEXT, TEXT, TEXT), ("regexp_replace", TEXT, TEXT, TEXT),
        ("concat_ws", TEXT, TEXT, TEXT), ("array_to_string", LIST, TEXT), ("to_char", TIME, TEXT), ("arrow_typeof", LIST),
        ("json_build_object", TEXT, NUMBER), ("coalesce", TEXT, TEXT), ("nullif", TEXT, TEXT), ("greatest", TEXT, TEXT),
    ),
    TRUTH: (
        ("starts_with", TEXT, TEXT), ("regexp_like", TEXT, TEXT), ("isnan", NUMBER), ("array_has", LIST, NUMBER), ("contains", TEXT, TEXT),
        ("array_has_any", LIST, LIST), ("coalesce", TRUTH, TRUTH),
    ),
    TIME: (("to_timestamp", NUMBER), ("coalesce", TIME, TIME), ("greatest", TIME, TIME), ("to_timestamp_millis", WHOLE)),
    LIST: (
        ("array_append", LIST, NUMBER), ("array_concat", LIST, LIST), ("array_repeat", WHOLE, WHOLE), ("array_sort", LIST),
        ("array_reverse", LIST), ("array_distinct", LIST), ("array_union", LIST, LIST), ("array_except", LIST, LIST),
        ("array_slice", LIST, WHOLE, WHOLE), ("array_resize", LIST, WHOLE, WHOLE), ("range", WHOLE, WHOLE), ("make_array", NUMBER),
        ("array_remove", LIST, NUMBER), ("array_replace", LIST, NUMBER, NUMBER), ("generate_series", WHOLE, WHOLE, WHOLE),
    ),
}  # fmt: skip
OPERATORS = {
    NUMBER: (("+", NUMBER), ("-", NUMBER), ("*", NUMBER), ("/", NUMBER), ("%", NUMBER)),
    WHOLE: (("+", WHOLE), ("-", WHOLE), ("*", WHOLE), ("/", WHOLE), ("%", WHOLE), ("&", WHOLE), ("<<", WHOLE)),
    TEXT: (("||", TEXT),),
    TRUTH: (
        ("AND", TRUTH), ("OR", TRUTH), ("=", NUMBER), ("<", NUMBER), (">=", TIME), ("<>", TEXT), ("LIKE", TEXT), ("ILIKE", TEXT), ("~", TEXT),
        ("IS DISTINCT FROM", NUMBER), ("@>", LIST), ("=", LIST),
    ),
    LIST: (("||", LIST),),
}  # fmt: skip
AGGREGATES = {
    NUMBER: (
        ("count", NUMBER), ("sum", NUMBER), ("avg", NUMBER), ("min", NUMBER), ("max", NUMBER), ("median", NUMBER), ("stddev", NUMBER),
        ("var_pop", NUMBER), ("approx_distinct", TEXT), ("count", TEXT), ("bit_xor", WHOLE), ("corr", NUMBER, NUMBER),
        ("first_value", NUMBER), ("last_value", NUMBER), ("covar_samp", NUMBER, NUMBER), ("approx_median", NUMBER),
    ),
    WHOLE: (("count", TEXT), ("sum", WHOLE), ("max", WHOLE), ("bit_xor", WHOLE), ("count", WHOLE), ("min", WHOLE)),
    TEXT: (("min", TEXT), ("max", TEXT), ("string_agg", TEXT, TEXT), ("first_value", TEXT)),
    TRUTH: (("bool_and", TRUTH), ("bool_or", TRUTH)),
    TIME: (("min", TIME), ("max", TIME), ("last_value", TIME)),
    LIST: (("array_agg", NUMBER), ("array_agg", TEXT)),
}  # fmt: skip
WINDOWS = ("row_number()", "rank()", "dense_rank()", "lag(k)", "lead(n, 3)", "ntile(4)", "first_value(v)", "sum(n)", "count(*)",
           "nth_value(k, 2)", "cume_dist()", "avg(v)", "max(k)")  # fmt: skip
CASTS = {NUMBER: ("DOUBLE", "REAL", "DECIMAL(20, 5)"), WHOLE: ("BIGINT", "INT"), TEXT: ("TEXT",), TIME: ("TIMESTAMP", "DATE"), TRUTH: ("BOOLEAN",)}


class Grammar:
    """Texts of one random source; `depth` bounds how far expressions and queries nest."""

    def __init__(self, dice, depth=4):
        self.dice = dice
        self.depth = depth

    def several(self, function, most=3, between=", "):
        return between.join(function() for _ in range(self.dice.randint(1, most)))

    def leaf(self, kind=None):
        return self.dice.choice(LEAVES[kind or self.dice.choice(KINDS)])

    def expression(self, kind=None):
        if kind is None or self.dice.random() < 0.01:
            kind = self.dice.choice(KINDS)
        if self.depth <= 0:
            return self.leaf(kind)
        self.depth -= 1
        makers = (self.leaf, self.leaf, self.operator, self.operator, self.call, self.call, self.call, self.cast, self.case, self.subquery)
        if kind == TRUTH:
            makers = (*makers, self.predicate, self.predicate)
        if kind == TIME:
            makers = (*makers, self.moment, self.moment)
        text = self.dice.choice(makers)(kind)
        self.depth += 1
        return text

    def operator(self, kind):
        if kind not in OPERATORS:
            return self.call(kind)
        sign, inner = self.dice.choice(OPERATORS[kind])
        if kind == TRUTH and self.dice.random() < 0.1:
            return f"NOT {self.expression(kind)}"
        return f"({self.expression(inner)} {sign} {self.expression(inner)})"

    def call(self, kind):
        name, *arguments = self.dice.choice(CALLS[kind])
        return f"{name}({', '.join(self.expression(argument) for argument in arguments)})"

    def cast(self, kind):
        if kind not in CASTS:
            return self.leaf(kind)
        inner = self.expression(self.dice.choice((kind, kind, NUMBER, TEXT)))
        return f"{self.dice.choice(('CAST', *['TRY_CAST'] * 9))}({inner} AS {self.dice.choice(CASTS[kind])})"

    def case(self, kind):
        arms = self.several(lambda: f"WHEN {self.expression(TRUTH)} THEN {self.expression(kind)}", 3, " ")
        return f"CASE {arms} ELSE {self.expression(kind)} END"

    def moment(self, _):
        unit = self.dice.choice(("second", "minute", "hour", "day", "week", "month", "quarter", "year"))
        return self.dice.choice((
            f"date_trunc('{unit}', {self.expression(TIME)})",
            f"date_bin(INTERVAL '{self.dice.randint(-1, 90)} {self.dice.choice(('seconds', 'days', 'months'))}', {self.expression(TIME)})",
            f"({self.expression(TIME)} {self.dice.choice('+-')} INTERVAL '{self.dice.randint(-9, 99999)} {unit}')",
        ))  # fmt: skip

    def predicate(self, _):
        kind = self.dice.choice((NUMBER, TEXT, TIME))
        first = self.expression(kind)
        return self.dice.choice((
            lambda: f"{first} IN ({self.several(lambda: self.expression(kind), 5)})",
            lambda: f"{first} BETWEEN {self.expression(kind)} AND {self.expression(kind)}",
            lambda: f"{first} IS {self.dice.choice(('', 'NOT '))}NULL",
            lambda: f"EXISTS ({self.select(1)})",
            lambda: f"k {self.dice.choice(('', 'NOT '))}IN ({self.select(1)})",
        ))()  # fmt: skip

    def aggregate(self, kind):
        name, *arguments = self.dice.choice(AGGREGATES[kind])
        distinct = self.dice.choice(("", "", "", "DISTINCT "))
        tail = self.dice.choice(("", "", "", f" FILTER (WHERE {self.leaf(TRUTH)})"))
        inner = ", ".join(self.expression(argument) for argument in arguments)
        return f"{name}({distinct}{inner}){tail}"

    def window(self):
        frame = self.dice.choice(("", "", " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", " RANGE UNBOUNDED PRECEDING"))
        partition = self.dice.choice(("", f"PARTITION BY {self.leaf(TEXT)} "))
        return f"{self.dice.choice(WINDOWS)} OVER ({partition}ORDER BY {self.expression(NUMBER)}{frame})"

    def subquery(self, kind):
        return f"(SELECT {self.aggregate(kind)} FROM {self.dice.choice(TABLES)} WHERE {self.expression(TRUTH)})"

    def source(self):
        """A table with the columns that all expressions use."""
        self.depth -= 1
        text = self.dice.choice((
            lambda: self.dice.choice(TABLES), lambda: self.dice.choice(TABLES), lambda: self.dice.choice(TABLES),
            lambda: f"(SELECT value AS k, value AS n, value AS v, value::TEXT AS s, now() AS ts FROM generate_series(1, {self.many()}))",
            lambda: f"({self.columns()})",
        ))()  # fmt: skip
        self.depth += 1
        return text

    def many(self):
        return self.dice.choice(("10", "1000", "1000", "100000", "100000000"))

    def columns(self):
        """A query with the columns that all expressions use."""
        if self.depth <= 0:
            return "SELECT k, n, v, s, ts FROM hostile_small"
        number, text = self.expression(NUMBER), self.expression(TEXT)
        return f"SELECT {number} AS k, n, v, {text} AS s, ts FROM {self.source()} AS d WHERE {self.expression(TRUTH)}"

    def tables(self):
        if self.dice.random() < 0.7:
            return f"{self.source()} AS a"
        join = self.dice.choice(("JOIN", "LEFT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"))
        on = self.dice.choice(("a.k = b.x", "a.n = b.x", "a.v > b.x", "a.k = b.x AND a.n < b.x"))
        return f"{self.source()} AS a {join} (SELECT {self.expression(NUMBER)} AS x FROM {self.source()} AS c) AS b ON {on}"

    def grouped(self):
        keys = self.dice.sample(("k", "n", "v", "s", "ts"), self.dice.randint(1, 4))
        listed = ", ".join(keys)
        grouping = self.dice.choice((listed, listed, f"CUBE ({listed})", f"ROLLUP ({listed})", f"GROUPING SETS (({listed}), ({keys[0]}), ())"))
        shown = self.several(lambda: self.aggregate(self.dice.choice(KINDS)), 3)
        having = self.dice.choice(("", "", f" HAVING count(*) > {self.dice.randint(0, 3)}"))
        return f"SELECT {listed}, {shown} FROM {self.tables()} WHERE {self.expression(TRUTH)} GROUP BY {grouping}{having}{self.tail()}"

    def tail(self, ordered=True):
        text = ""
        if ordered and self.dice.random() < 0.4:
            text += f" ORDER BY {self.dice.choice(('1', '1 DESC', '1 NULLS FIRST', '1 ASC NULLS LAST'))}"
        if self.dice.random() < 0.4:
            text += f" LIMIT {self.dice.choice(('0', '1', '10', '100000'))}"
        if self.dice.random() < 0.1:
            text += f" OFFSET {self.dice.choice(('1', '100000', '9223372036854775807'))}"
        return text

    def select(self, count=0):
        """A query of so many numbers, or of columns of any kind."""
        if not count and self.dice.random() < 0.25:
            return self.grouped()
        start = self.dice.choice(("SELECT", "SELECT", "SELECT", "SELECT DISTINCT"))
        if count:
            shown = ", ".join(self.expression(NUMBER) for _ in range(count))
        else:
            shown = self.dice.choice((
                "*", self.several(self.expression, 4), f"{self.window()}, {self.expression()}",
                self.several(lambda: self.aggregate(self.dice.choice(KINDS)), 4),
            ))  # fmt: skip
        return f"{start} {shown} FROM {self.tables()} WHERE {self.expression(TRUTH)}{self.tail(not count)}"

    def query(self):
        share = self.dice.random()
        if share < 0.7:
            return self.select()
        if share < 0.78:
            return f"SELECT * FROM {self.dice.choice(VIEWS)} AS a{self.tail()}"
        if share < 0.86:
            return f"SELECT DISTINCT ON (s) k, n, {self.expression()} FROM {self.source()} AS a ORDER BY s, ts DESC"
        if share < 0.93:
            word = self.dice.choice(("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL"))
            return f"({self.select(2)}) {word} ({self.select(2)})"
        step = self.dice.choice(("k + 1", "k * 2", "k", self.leaf(NUMBER)))
        bound = self.dice.choice(("k < 100", "k < 1000000", "true"))
        if self.dice.random() < 0.5:
            return f"WITH RECURSIVE c AS (SELECT 1 AS k UNION ALL SELECT {step} FROM c WHERE {bound}) SELECT count(*) FROM c"
        return f"WITH c AS ({self.columns()}), d AS ({self.select(1)}) SELECT c.* FROM c, c AS e WHERE c.k = e.n{self.tail(False)}"

    def row(self):
        leaves = ", ".join(self.leaf(kind) for kind in (NUMBER, NUMBER, TEXT))
        return f"({self.dice.randint(-9, 9999)}, {self.dice.randint(0, 10**12)}, {leaves})"

    def change(self):
        table = self.dice.choice(CHANGING)
        number = self.dice.randint(-5, 5000)
        kind = self.dice.choice(TYPES)
        key = self.dice.choice(("k", "k, s", "k, ts", "ts, k"))
        columns = "k BIGINT, ts TIMESTAMP(3) TIME INDEX, n BIGINT, v DOUBLE, s STRING"
        return self.dice.choice((
            f"INSERT INTO {table} VALUES {self.several(self.row, 20)}",
            f"INSERT INTO {table} (k, ts, n) VALUES ({number}, {number}, {self.leaf(NUMBER)})",
            f"INSERT INTO {table} (k, n, v, s, ts) {self.columns()}",
            f"DELETE FROM {table} WHERE {self.expression(TRUTH)}",
            f"DELETE FROM {table} WHERE k = {number}",
            f"CREATE TABLE {table} ({columns}, PRIMARY KEY ({key}))",
            f"CREATE TABLE {table} ({columns}, PRIMARY KEY ({key})) PARTITION BY HASH (k) PARTITIONS {self.dice.randint(0, 12)}",
            f"CREATE TABLE {table} ({columns}, c {kind} DEFAULT {self.leaf()}, PRIMARY KEY (k)) "
            f"PARTITION BY RANGE (k) SPLIT AT (({number}), ({number + 7}))",
            f"CREATE TABLE {table} ({columns}) WITH ('append_mode' = '{self.dice.choice(('true', 'false', 'x'))}')",
            f"DROP TABLE {table}",
            f"CREATE TABLE IF NOT EXISTS {table} ({columns}, PRIMARY KEY ({key}))",
            f"CREATE TABLE IF NOT EXISTS {table} ({columns}, PRIMARY KEY (k)) PARTITION BY HASH (k) PARTITIONS 3",
            f"ALTER TABLE {table} ADD COLUMN c{number} {kind}",
            f"ALTER TABLE {table} DROP COLUMN c{number}",
            f"ALTER TABLE {table} SPLIT AT (({number}))",
            f"ALTER TABLE {table} MERGE PARTITIONS ({number}, {number + 1})",
            f"ALTER TABLE {table} SET (KEEP_TOGETHER = {number})",
            f"ALTER TABLE {table} PARTITION BY HASH (k) PARTITIONS {self.dice.randint(1, 8)}",
        ))  # fmt: skip

    def other(self):
        query = self.query()
        return self.dice.choice((
            f"EXPLAIN {query}", f"EXPLAIN ANALYZE {query}", f"PREPARE p AS {query}; EXECUTE p; DEALLOCATE p", f"EXECUTE p({self.several(self.leaf)})",
            f"BEGIN; DECLARE c CURSOR FOR {query}; FETCH 100 FROM c; FETCH ALL FROM c; COMMIT", f"FETCH {self.dice.choice(('1', 'ALL', '-5', '100'))} FROM c", "CLOSE c", "DEALLOCATE ALL",
            f"COPY ({query}) TO STDOUT WITH (FORMAT {self.dice.choice(('csv', 'text', 'binary'))})", "COPY t0 FROM STDIN",
            f"SET {self.dice.choice(('timezone', 'run_at_data', 'a.b', 'search_path'))} = {self.leaf(TEXT)}",
            f"SHOW {self.dice.choice(('TABLES', 'ALL', 'timezone', 'DATABASES', 'CREATE TABLE t0', 'PARTITIONS FROM t0'))}",
            f"EXPLAIN HOTSPOT {self.dice.choice(TABLES)}", f"DESCRIBE {self.dice.choice(TABLES)}", "BEGIN", "COMMIT", "ROLLBACK",
            f"VALUES {self.several(lambda: f'({self.expression(NUMBER)})', 5)}", "DISCARD ALL", f"{query}; {self.query()}", ";",
        ))  # fmt: skip

    def statement(self):
        share = self.dice.random()
        if share < 0.65:
            return self.query()
        return self.change() if share < 0.85 else self.other()
