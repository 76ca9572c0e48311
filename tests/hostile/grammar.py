"""Random statements over the SQL that is claimed to work: a grammar with bounded depth, driven by a random source."""

TABLES = ("t0", "t1", "t2", "hostile_rows", "hostile_small", "hostile_sink")
VIEWS = (
    "information_schema.tables", "information_schema.columns", "pg_catalog.pg_class", "pg_catalog.pg_type",
    "sys.partitions", "sys.query_log", "sys.partition_load", "sys.hot_partitions", "sys.nodes", "sys.table_balance",
)  # fmt: skip
COLUMNS = ("k", "ts", "n", "v", "s")
TYPES = (
    "BIGINT", "INT", "SMALLINT", "DOUBLE", "REAL", "TEXT", "STRING", "BOOLEAN", "TIMESTAMP(3)", "TIMESTAMPTZ", "DATE",
    "DECIMAL(10, 3)", "DECIMAL(38, 10)", "BYTEA", "INTERVAL", "UINT64", "BIGINT[]", "TEXT[][]", "TIME", "JSON",
)  # fmt: skip
LITERALS = (
    "0", "1", "-1", "7", "9223372036854775807", "-9223372036854775808", "18446744073709551616", "0.1", "1e308", "NULL",
    "'NaN'::DOUBLE", "true", "false", "''", "'abc'", "'row 7'", "'%'", "'é\U0001f600'", "now()", "TIMESTAMP '2026-01-01 00:00:00'",
    "DATE '0001-01-01'", "INTERVAL '1 day'", "INTERVAL '-3 months 2 seconds'", "[1, 2, 3]", "'\\xdead'::BYTEA",
    "'1970-01-01'", "ARRAY['a', NULL]", "$1", "$2",
)  # fmt: skip
FUNCTIONS = {
    0: ("now()", "random()", "version()", "current_database()", "uuid()", "pi()"),
    1: (
        "abs", "length", "upper", "lower", "reverse", "round", "trunc", "ceil", "sqrt", "ln", "exp", "md5", "sha256", "to_hex",
        "chr", "ascii", "initcap", "btrim", "to_timestamp", "array_length", "cardinality", "flatten", "array_sort", "factorial",
        "json_build_object", "hash64", "xxh3", "signum", "isnan", "array_distinct", "bit_length", "octet_length", "to_unixtime",
        "unnest", "array_reverse", "array_to_string", "arrow_typeof", "date", "degrees", "cbrt",
    ),
    2: (
        "concat", "repeat", "power", "nullif", "coalesce", "greatest", "least", "date_trunc", "date_bin", "to_char", "strpos",
        "starts_with", "left", "right", "mod", "gcd", "lcm", "log", "range", "array_append", "array_concat", "array_repeat",
        "array_has", "regexp_like", "regexp_match", "regexp_count", "levenshtein", "date_part", "string_to_array", "hash64",
        "array_position", "encode", "decode", "json_build_object", "arrow_cast", "atan2", "array_union", "find_in_set",
    ),
    3: (
        "replace", "substr", "lpad", "rpad", "split_part", "translate", "regexp_replace", "concat_ws", "date_bin", "make_date",
        "array_slice", "array_resize", "overlay", "array_replace", "range", "coalesce",
    ),
}  # fmt: skip
AGGREGATES = (
    "count", "sum", "avg", "min", "max", "median", "stddev", "var_pop", "string_agg", "array_agg", "first_value", "last_value",
    "approx_distinct", "approx_percentile_cont", "bool_and", "bit_xor", "corr", "nth_value", "regr_slope", "covar_samp",
)  # fmt: skip
WINDOWS = ("row_number", "rank", "dense_rank", "lag", "lead", "ntile", "first_value", "sum", "count", "nth_value", "cume_dist")
BINARY = ("+", "-", "*", "/", "%", "=", "<>", "<", ">=", "AND", "OR", "||", "LIKE", "~", "IS DISTINCT FROM", "&", "<<", "@>", "^")


class Grammar:
    """Texts of one random source; `depth` bounds how far expressions and queries nest."""

    def __init__(self, dice, depth=4):
        self.dice = dice
        self.depth = depth

    def pick(self, *choices):
        """One of these functions' results, chosen evenly."""
        return self.dice.choice(choices)()

    def several(self, function, most=3, between=", "):
        return between.join(function() for _ in range(self.dice.randint(1, most)))

    def deeper(self, function, otherwise):
        if self.depth <= 0:
            return otherwise()
        self.depth -= 1
        text = function()
        self.depth += 1
        return text

    def name(self):
        return self.dice.choice(COLUMNS)

    def literal(self):
        return self.dice.choice(LITERALS)

    def leaf(self):
        return self.pick(self.name, self.name, self.literal)

    def expression(self):
        return self.deeper(
            lambda: self.pick(
                self.leaf, self.leaf, self.binary, self.call, self.call, self.cast, self.case, self.predicate, self.aggregate,
                self.window, self.subquery, self.prefix,
            ),
            self.leaf,
        )  # fmt: skip

    def binary(self):
        return f"({self.expression()} {self.dice.choice(BINARY)} {self.expression()})"

    def prefix(self):
        return f"{self.dice.choice(('- ', 'NOT ', '+ ', '@ '))}{self.expression()}"

    def call(self):
        count = self.dice.choice((0, 1, 1, 1, 2, 2, 3))
        function = self.dice.choice(FUNCTIONS[count])
        return f"{function}({', '.join(self.expression() for _ in range(count))})" if count else function

    def cast(self):
        kind = self.dice.choice(TYPES)
        return self.pick(
            lambda: f"CAST({self.expression()} AS {kind})",
            lambda: f"({self.expression()})::{kind}",
            lambda: f"EXTRACT({self.dice.choice(('epoch', 'hour', 'dow', 'week'))} FROM {self.expression()})",
        )

    def case(self):
        arms = self.several(lambda: f"WHEN {self.expression()} THEN {self.expression()}", 3, " ")
        return f"CASE {self.dice.choice(('', self.leaf()))} {arms} ELSE {self.expression()} END"

    def predicate(self):
        return self.pick(
            lambda: f"{self.expression()} IN ({self.several(self.expression, 5)})",
            lambda: f"{self.expression()} BETWEEN {self.expression()} AND {self.expression()}",
            lambda: f"{self.expression()} IS {self.dice.choice(('', 'NOT '))}NULL",
            lambda: f"EXISTS ({self.query()})",
            lambda: f"{self.expression()} NOT IN ({self.query()})",
            lambda: f"{self.expression()} = ANY ({self.query()})",
        )

    def aggregate(self):
        distinct = self.dice.choice(("", "", "DISTINCT "))
        tail = self.dice.choice(("", "", f" FILTER (WHERE {self.leaf()} > 1)"))
        inner = self.dice.choice(("*", self.expression(), f"{self.expression()}, {self.leaf()}"))
        return f"{self.dice.choice(AGGREGATES)}({distinct}{inner}){tail}"

    def window(self):
        frame = self.dice.choice(("", " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", " RANGE UNBOUNDED PRECEDING", " ROWS 10 FOLLOWING"))
        over = f"{self.dice.choice(('', f'PARTITION BY {self.leaf()} '))}ORDER BY {self.leaf()}{frame}"
        return f"{self.dice.choice(WINDOWS)}({self.dice.choice(('', self.leaf()))}) OVER ({over})"

    def subquery(self):
        return f"({self.query()})"

    def source(self):
        return self.pick(
            lambda: self.dice.choice(TABLES),
            lambda: self.dice.choice(TABLES),
            lambda: self.dice.choice(VIEWS),
            lambda: f"generate_series({self.leaf()}, {self.dice.choice(('10', '1000', '100000000'))})",
            lambda: f"(VALUES ({self.leaf()}), ({self.leaf()}))",
            lambda: f"unnest({self.leaf()})",
            lambda: self.deeper(lambda: f"({self.query()})", lambda: "hostile_small"),
        )

    def tables(self):
        first = f"{self.source()} AS a"
        join = self.dice.choice(("JOIN", "LEFT JOIN", "FULL JOIN", "CROSS JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN", ","))
        if self.dice.random() < 0.6:
            return first
        on = "" if join in ("CROSS JOIN", ",") else self.dice.choice((" ON a.k = b.k", " USING (k)", f" ON {self.expression()}"))
        return f"{first} {join} {self.source()} AS b{on}"

    def grouping(self):
        return self.pick(
            lambda: self.several(self.leaf),
            lambda: "1",
            lambda: f"CUBE ({self.several(self.name, 4)})",
            lambda: f"ROLLUP ({self.several(self.name, 4)})",
            lambda: f"GROUPING SETS (({self.name()}), ({self.name()}, {self.name()}), ())",
        )

    def select(self):
        chance = self.dice.random
        parts = [self.dice.choice(("SELECT", "SELECT", "SELECT", "SELECT DISTINCT", f"SELECT DISTINCT ON ({self.name()})"))]
        parts.append(self.dice.choice(("*", self.several(self.expression, 4), f"{self.expression()} AS k, {self.expression()} AS n")))
        if chance() < 0.9:
            parts.append(f"FROM {self.tables()}")
        if chance() < 0.5:
            parts.append(f"WHERE {self.expression()}")
        if chance() < 0.3:
            parts.append(f"GROUP BY {self.grouping()}")
            if chance() < 0.3:
                parts.append(f"HAVING {self.expression()}")
        if chance() < 0.4:
            parts.append(f"ORDER BY {self.several(self.leaf)} {self.dice.choice(('', 'DESC', 'NULLS FIRST'))}")
        if chance() < 0.4:
            parts.append(f"LIMIT {self.dice.choice(('0', '1', '10', '100000', '$1', '-1'))}")
        if chance() < 0.1:
            parts.append(f"OFFSET {self.dice.choice(('1', '100000', '9223372036854775807'))}")
        return " ".join(parts)

    def query(self):
        def combined():
            word = self.dice.choice(("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL"))
            return f"({self.query()}) {word} ({self.query()})"

        def common():
            recursive = self.dice.random() < 0.3
            body = f"SELECT 1 AS k UNION ALL SELECT {self.leaf()} FROM c" if recursive else self.query()
            return f"WITH {'RECURSIVE ' if recursive else ''}c AS ({body}) SELECT * FROM c"

        if self.dice.random() < 0.75:
            return self.select()
        return self.deeper(lambda: self.pick(combined, common), self.select)

    def row(self):
        return f"({self.leaf()}, {self.dice.randint(0, 10**12)}, {self.leaf()}, {self.leaf()}, {self.leaf()})"

    def change(self):
        table = self.dice.choice(TABLES[:3])
        number = self.dice.randint(-5, 5000)
        kind = self.dice.choice(TYPES)
        key = self.dice.choice(("k", "k, s", "k, ts", "ts, k"))
        return self.dice.choice((
            f"INSERT INTO {table} VALUES {self.several(self.row, 20)}",
            f"INSERT INTO {table} (k, ts, n) VALUES ({self.leaf()}, {number}, {self.expression()})",
            f"INSERT INTO {table} {self.query()}",
            f"DELETE FROM {table} WHERE {self.expression()}",
            f"DELETE FROM {table} WHERE k = {number}",
            f"CREATE TABLE {table} (k BIGINT, ts TIMESTAMP(3) TIME INDEX, n BIGINT, v DOUBLE, s STRING, PRIMARY KEY ({key}))",
            f"CREATE TABLE {table} (k BIGINT, ts TIMESTAMP(3) TIME INDEX, n {kind}, v {kind} DEFAULT {self.leaf()}, s STRING, "
            f"PRIMARY KEY ({key})) PARTITION BY HASH (k) PARTITIONS {self.dice.randint(0, 12)}",
            f"CREATE TABLE {table} (k BIGINT, ts TIMESTAMP(3) TIME INDEX, n BIGINT, v DOUBLE, s STRING, PRIMARY KEY (k)) "
            f"PARTITION BY RANGE (k) SPLIT AT (({number}), ({number + 7}))",
            f"CREATE TABLE {table} (k BIGINT, ts TIMESTAMP(3) TIME INDEX, s STRING) WITH ('append_mode' = '{self.leaf()}')",
            f"DROP TABLE {table}",
            f"DROP TABLE IF EXISTS {table}",
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
            f"EXPLAIN {query}", f"EXPLAIN ANALYZE {query}", f"PREPARE p AS {query}", f"EXECUTE p({self.several(self.leaf)})",
            f"DECLARE c CURSOR FOR {query}", f"FETCH {self.dice.choice(('1', 'ALL', '-5', '100'))} FROM c", "CLOSE c", "DEALLOCATE ALL",
            f"COPY ({query}) TO STDOUT WITH (FORMAT {self.dice.choice(('csv', 'text', 'binary'))})", "COPY t0 FROM STDIN",
            f"SET {self.dice.choice(('timezone', 'run_at_data', 'statement_timeout', 'a.b', 'search_path'))} = {self.leaf()}",
            f"SHOW {self.dice.choice(('TABLES', 'ALL', 'timezone', 'DATABASES', 'CREATE TABLE t0', 'PARTITIONS FROM t0', 'COLUMNS FROM t0'))}",
            f"EXPLAIN HOTSPOT {self.dice.choice(TABLES)}", f"DESCRIBE {self.dice.choice(TABLES)}", "BEGIN", "COMMIT", "ROLLBACK",
            f"VALUES {self.several(lambda: f'({self.expression()})', 5)}", "DISCARD ALL", f"{query}; {self.query()}", ";",
        ))  # fmt: skip

    def statement(self):
        share = self.dice.random()
        if share < 0.65:
            return self.query()
        return self.change() if share < 0.85 else self.other()
