"""Length: lists and chains that are short to repeat, and long to parse, to plan or to optimise."""

from kinds import kind, sized


def chain(part, between, count):
    return between.join([part] * count)


def numbered(form, count, between=", "):
    return between.join(form.format(i=i) for i in range(count))


def set_operations():
    found = []
    for shape in ("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "UNION BY NAME"):
        name = shape.lower().replace(" ", "_")
        found += sized("breadth", name, (100, 600, 5000), lambda n, shape=shape: chain("SELECT 1", f" {shape} ", n))
    found += sized(
        "breadth", "mixed_set_operations", (1000,),
        lambda n: "SELECT 1" + " UNION SELECT 2 INTERSECT SELECT 1 EXCEPT ALL SELECT 3" * (n // 3),
    )  # fmt: skip
    found += sized(
        "breadth", "union_of_tables", (50, 400), lambda n: chain("SELECT * FROM hostile_small", " UNION ALL ", n)
    )
    return found


def with_chain(count, step):
    links = ", ".join(f"c{i} AS ({step.format(a=f'c{i - 1}')})" for i in range(1, count))
    return f"WITH c0 AS (SELECT 1 AS a), {links} SELECT count(*) FROM c{count - 1}"


def common_tables():
    steps = {
        "with_chain": ("SELECT a FROM {a}", (100, 1000)),
        "with_plus": ("SELECT a + a AS a FROM {a}", (30, 300)),
        "with_self_join": ("SELECT x.a FROM {a} x JOIN {a} y ON x.a = y.a", (12, 30)),
        "with_self_cross": ("SELECT x.a FROM {a} x, {a} y", (12, 30)),
        "with_self_union": ("SELECT a FROM {a} UNION ALL SELECT a FROM {a}", (16, 30)),
        "with_self_in": ("SELECT a FROM {a} WHERE a IN (SELECT a FROM {a})", (12, 30)),
        "with_grouped": ("SELECT sum(a) AS a FROM {a} GROUP BY a", (100, 600)),
        "with_windows": ("SELECT sum(a) OVER (ORDER BY a) AS a FROM {a}", (100, 600)),
        "with_filters": ("SELECT a FROM {a} WHERE a > 0", (100, 1000)),
    }
    found = []
    for shape, (step, sizes) in steps.items():
        found += sized("breadth", shape, sizes, lambda n, step=step: with_chain(n, step))
    found += sized(
        "breadth", "with_unused", (1000, 5000),
        lambda n: f"WITH {numbered('c{i} AS (SELECT {i})', n)} SELECT 1",
    )  # fmt: skip
    return found


def from_lists():
    def joined(n, form, first="hostile_small j0"):
        return f"SELECT count(*) FROM {first} " + " ".join(form.format(i=i, b=i - 1) for i in range(1, n))

    found = sized("breadth", "comma_join", (30, 300, 5000), lambda n: "SELECT 1 FROM " + numbered("hostile_sink a{i}", n))
    forms = {
        "inner_join": "JOIN hostile_small j{i} ON j{i}.k = j{b}.k",
        "left_join": "LEFT JOIN hostile_small j{i} ON j{i}.k = j{b}.k",
        "full_join": "FULL JOIN hostile_small j{i} ON j{i}.k = j{b}.k",
        "natural_join": "NATURAL JOIN hostile_small j{i}",
        "join_using": "JOIN hostile_small j{i} USING (k)",
        "cross_join": "CROSS JOIN hostile_sink j{i}",
        "derived_join": "JOIN (SELECT k FROM hostile_small) j{i} ON j{i}.k = j0.k",
        "semi_join": "LEFT SEMI JOIN hostile_small j{i} ON j{i}.k = j0.k",
    }
    for shape, form in forms.items():
        found += sized("breadth", shape, (12, 60, 1000), lambda n, form=form: joined(n, form))
    found += sized(
        "breadth", "comma_join_of_one", (8, 30),
        lambda n: "SELECT count(*) FROM " + numbered("(SELECT 1) a{i}", n),
    )  # fmt: skip
    found += sized(
        "breadth", "comma_join_connected", (12, 60),
        lambda n: f"SELECT count(*) FROM {numbered('hostile_small a{i}', n)} WHERE "
        + " AND ".join(f"a{i}.k = a{i + 1}.k" for i in range(n - 1)),
    )  # fmt: skip
    return found


def operators():
    tail = " FROM hostile_small"
    chains = {
        "plus_columns": ("k", " + "),
        "plus_numbers": ("1", " + "),
        "minus_mixed": ("n", " - v - "),
        "times": ("v", " * "),
        "concat": ("s", " || "),
        "and": ("v > 1", " AND "),
        "or": ("v = 1", " OR "),
        "and_or": ("v = 1", " AND n = 2 OR k = 3 AND "),
        "comparisons": ("true", " = "),
        "like": ("s", " LIKE "),
        "is_null": ("k", " IS NULL IS NOT NULL IS NULL "),
        "casts": ("k", "::TEXT::BIGINT::DOUBLE::"),
        "subscripts": ("[1]", "[1]"),
        "fields": ("a", "."),
        "between": ("k", " BETWEEN 1 AND "),
        "collate": ("s", ' COLLATE "C" '),
        "at_time_zone": ("ts", " AT TIME ZONE 'UTC' "),
        "bits": ("k", " # "),
        "regex": ("s", " ~ "),
        "modulo": ("k", " % "),
    }
    found = []
    for shape, (part, between) in chains.items():
        found += sized(
            "breadth", f"chain_{shape}", (1000, 20_000),
            lambda n, part=part, between=between: f"SELECT {chain(part, between, n)}{tail} LIMIT 1",
        )  # fmt: skip
    found += sized(
        "breadth", "where_plus", (1000,), lambda n: f"SELECT 1 FROM hostile_small WHERE {chain('k', ' + ', n)} > 5"
    )
    found += sized(
        "breadth", "where_or_of_columns", (1000, 10_000),
        lambda n: "SELECT count(*) FROM hostile_small WHERE " + numbered("(k = {i} AND n > {i})", n, " OR "),
    )  # fmt: skip
    found += sized(
        "breadth", "where_and_of_ors", (20, 200),
        lambda n: "SELECT count(*) FROM hostile_small WHERE " + numbered("(k = {i} OR n = {i} OR v = {i})", n, " AND "),
    )  # fmt: skip
    found += sized(
        "breadth", "where_not_equals", (5000,),
        lambda n: "SELECT count(*) FROM hostile_small WHERE " + numbered("k <> {i}", n, " AND "),
    )  # fmt: skip
    return found


def lists():
    lists_of = {
        "in_numbers": ("SELECT count(*) FROM hostile_small WHERE k IN ({})", "{i}", (1000, 100_000)),
        "not_in_numbers": ("SELECT count(*) FROM hostile_small WHERE k NOT IN ({})", "{i}", (100_000,)),
        "in_texts": ("SELECT count(*) FROM hostile_small WHERE s IN ({})", "'row {i}'", (100_000,)),
        "in_expressions": ("SELECT count(*) FROM hostile_small WHERE k IN ({})", "n + {i}", (1000, 20_000)),
        "in_rows": ("SELECT count(*) FROM hostile_small WHERE (k, n) IN ({})", "({i}, {i})", (5000,)),
        "in_times": ("SELECT count(*) FROM hostile_small WHERE ts IN ({})", "TIMESTAMP '2026-01-01' + {i}", (5000,)),
        "select_numbers": ("SELECT {}", "{i}", (10_000,)),
        "select_columns": ("SELECT {} FROM hostile_small", "k AS c{i}", (2000, 10_000)),
        "select_same_name": ("SELECT {} FROM hostile_small", "k", (10_000,)),
        "select_stars": ("SELECT {} FROM hostile_small", "*", (200, 5000)),
        "select_subqueries": ("SELECT {}", "(SELECT max(k) FROM hostile_small WHERE n > {i})", (30, 300)),
        "select_aggregates": ("SELECT {} FROM hostile_small", "sum(k + {i})", (500, 5000)),
        "select_distinct_aggregates": ("SELECT {} FROM hostile_small", "count(DISTINCT k + {i})", (30, 500)),
        "select_windows": ("SELECT {} FROM hostile_small", "sum(k) OVER (ORDER BY n + {i})", (50, 500)),
        "select_same_window": ("SELECT {} FROM hostile_small", "sum(k + {i}) OVER (ORDER BY n)", (500,)),
        "select_case": ("SELECT CASE k {} END FROM hostile_small", "WHEN {i} THEN {i} ", (5000,)),
        "select_case_when": ("SELECT CASE {} END FROM hostile_small", "WHEN k = {i} THEN s ", (5000,)),
        "values_rows": ("VALUES {}", "({i})", (10_000, 100_000)),
        "values_columns": ("VALUES ({})", "{i}", (10_000,)),
        "values_joined": ("SELECT count(*) FROM (VALUES {}) a(x), (VALUES (1), (2)) b(y)", "({i})", (20_000,)),
        "order_by": ("SELECT * FROM hostile_small ORDER BY {}", "k + {i}", (1000,)),
        "order_by_numbers": ("SELECT k FROM hostile_small ORDER BY {}", "1", (20_000,)),
        "group_by": ("SELECT count(*) FROM hostile_small GROUP BY {}", "k + {i}", (200, 1000)),
        "partition_by": ("SELECT sum(k) OVER (PARTITION BY {}) FROM hostile_small", "k + {i}", (1000,)),
        "distinct_on": ("SELECT DISTINCT ON ({}) * FROM hostile_small", "k + {i}", (500,)),
        "cube": ("SELECT count(*) FROM hostile_small GROUP BY CUBE ({})", "k + {i}", (10, 16, 28, 60)),
        "rollup": ("SELECT count(*) FROM hostile_small GROUP BY ROLLUP ({})", "k + {i}", (28, 500)),
        "grouping_sets": ("SELECT count(*) FROM hostile_small GROUP BY GROUPING SETS ({})", "(k + {i}, n)", (28, 2000)),
        "cubes": ("SELECT count(*) FROM hostile_small GROUP BY {}", "CUBE (k, n, v, s, k + {i})", (3, 8)),
        "coalesce": ("SELECT coalesce({}) FROM hostile_small", "nullif(k, {i})", (5000,)),
        "concat": ("SELECT concat({}) FROM hostile_small", "s", (20_000,)),
        "greatest": ("SELECT greatest({}) FROM hostile_small", "k + {i}", (5000,)),
        "make_array": ("SELECT make_array({})", "{i}", (100_000,)),
        "array_literal": ("SELECT ARRAY[{}]", "{i}", (100_000,)),
        "struct": ("SELECT struct({})", "{i}", (10_000,)),
        "json": ("SELECT json_build_object({})", "'a{i}', {i}", (10_000,)),
        "named_windows": ("SELECT sum(k) OVER w0 FROM hostile_small WINDOW {}", "w{i} AS (ORDER BY n)", (2000,)),
        "exists": ("SELECT 1 WHERE {} true", "EXISTS (SELECT 1 FROM hostile_small WHERE k = {i}) AND", (30, 300)),
        "any_array": ("SELECT count(*) FROM hostile_small WHERE k = ANY(ARRAY[{}])", "{i}", (50_000,)),
        "statements": ("{}", "SELECT {i};", (1000,)),
    }
    found = []
    for shape, (frame, form, sizes) in lists_of.items():
        between = " " if form.endswith((" ", "AND", ";")) else ", "
        found += sized(
            "breadth", f"list_{shape}", sizes,
            lambda n, frame=frame, form=form, between=between: frame.format(numbered(form, n, between)),
            ("simple",) if shape == "statements" else kind("", "", "", str).doors,
        )  # fmt: skip
    return found


def texts():
    long = {
        "identifier": (lambda n: f"SELECT {'a' * n}", (100_000, 5_000_000)),
        "quoted_identifier": (lambda n: f'SELECT 1 AS "{"é" * n}"', (100_000, 5_000_000)),
        "table_name": (lambda n: f"SELECT * FROM {'t' * n}", (1_000_000,)),
        "literal": (lambda n: f"SELECT length('{'x' * n}')", (1_000_000, 14_000_000)),
        "quotes": (lambda n: f"SELECT length('{chr(39) * 2 * n}')", (1_000_000,)),
        "dollar_quotes": (lambda n: f"SELECT $tag${'$tag' * n}$tag$", (100_000,)),
        "escapes": (lambda n: "SELECT E'" + "\\u0041" * n + "'", (500_000,)),
        "number": (lambda n: f"SELECT {'9' * n}", (400, 100_000)),
        "fraction": (lambda n: f"SELECT 0.{'3' * n}", (400, 100_000)),
        "exponent": (lambda n: f"SELECT 1e{'9' * n}", (3, 1000)),
        "comment": (lambda n: f"SELECT 1 /*{'x' * n}*/", (5_000_000,)),
        "line_comments": (lambda n: "--\n" * n + "SELECT 1", (500_000,)),
        "blanks": (lambda n: "SELECT" + " " * n + "1", (5_000_000,)),
        "semicolons": (lambda n: ";" * n, (100_000,)),
        "commas": (lambda n: "SELECT " + "," * n, (100_000,)),
        "type_suffixes": (lambda n: "SELECT NULL::BIGINT" + "[]" * n, (50, 5000, 100_000)),
        "declared_type_suffixes": (lambda n: f"SELECT CAST(NULL AS TEXT{'[]' * n})", (5000,)),
        "parameters": (lambda n: "SELECT " + numbered("${i}", n + 1, " + ").replace("$0 + ", ""), (1000, 70_000)),
        "hex_literal": (lambda n: f"SELECT X'{'ab' * n}'", (1_000_000,)),
        "dotted_name": (lambda n: "SELECT * FROM " + ".".join(["a"] * n), (5, 20_000)),
        "function_name": (lambda n: f"SELECT {'f' * n}(1)", (1_000_000,)),
        "like_pattern": (lambda n: f"SELECT count(*) FROM hostile_rows WHERE s LIKE '{'%r' * n}'", (500, 100_000)),
        "operators": (lambda n: "SELECT 1 " + "<->" * n + " 2", (50_000,)),
        "similar_names": (lambda n: f"SELECT {'k' * n} FROM hostile_small", (2_000_000,)),
        "limit": (lambda n: f"SELECT * FROM hostile_small LIMIT {'9' * n}", (18, 30, 10_000)),
        "offset": (lambda n: f"SELECT * FROM hostile_rows OFFSET {'9' * n}", (18, 30)),
    }
    found = []
    for shape, (build, sizes) in long.items():
        found += sized("text", shape, sizes, build)
    return found


def kinds():
    return [*set_operations(), *common_tables(), *from_lists(), *operators(), *lists(), *texts()]
