"""Statements that change something: rows of hostile origin, predicates, definitions."""

from doors import SESSIONS
from kinds import fixed, sized

PAIR = "hostile_rows a, hostile_rows b"
INSERTS = {
    "insert_cross": f"INSERT INTO hostile_sink SELECT a.k * 60000 + b.k, a.ts, b.n, b.v, a.s FROM {PAIR}",
    "insert_cross_none": f"INSERT INTO hostile_sink SELECT a.k, a.ts, b.n, b.v, a.s FROM {PAIR} WHERE a.v + b.v < -1",
    "insert_texts": "INSERT INTO hostile_sink SELECT k, ts, n, v, repeat(s, 1000000) FROM hostile_rows",
    "insert_text": "INSERT INTO hostile_sink VALUES (1, 1, 1, 1, repeat('x', 2000000000))",
    "insert_series": "INSERT INTO hostile_sink SELECT value, to_timestamp(value), value, value, 'x' FROM generate_series(1, 10000000000)",
    "insert_recursive": "INSERT INTO hostile_sink WITH RECURSIVE r AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM r) "
    "SELECT a, to_timestamp(a), a, a, 'x' FROM r",
    "insert_itself": "INSERT INTO hostile_sink SELECT k + 1, ts, n, v, s || s FROM hostile_sink",
    "delete_cross": f"DELETE FROM hostile_sink WHERE k IN (SELECT a.k + b.k FROM {PAIR})",
    "delete_function": "DELETE FROM hostile_sink WHERE regexp_like(repeat(s, 10000), '(a{100}){100}')",
    "delete_subquery": "DELETE FROM hostile_sink WHERE v > (SELECT max(a.v * b.v) FROM hostile_rows a, hostile_rows b)",
    "copy_cross": f"COPY (SELECT a.*, b.* FROM {PAIR}) TO STDOUT",
    "copy_cross_csv": f"COPY (SELECT a.s, b.s FROM {PAIR}) TO STDOUT WITH (FORMAT csv, HEADER)",
    "copy_cross_binary": f"COPY (SELECT a.k, b.s FROM {PAIR}) TO STDOUT WITH (FORMAT binary)",
    "copy_text": "COPY (SELECT repeat('x', 2000000000)) TO STDOUT",
    "copy_series": "COPY (SELECT value, repeat('x', 10000) FROM generate_series(1, 10000000000)) TO STDOUT",
    "explain_hotspot": "EXPLAIN HOTSPOT hostile_rows",
}
LONG = {
    "insert_rows": (lambda n: "INSERT INTO hostile_sink VALUES " + ", ".join(f"({i}, {i}, 1, 1, 'x')" for i in range(n)), (50_000,)),
    "insert_nested": (lambda n: f"INSERT INTO hostile_sink VALUES ({'(' * n}1{')' * n}, 1, 1, 1, 'x')", (64, 5000)),
    "insert_chain": (lambda n: f"INSERT INTO hostile_sink VALUES ({' + '.join(['1'] * n)}, 1, 1, 1, 'x')", (5000,)),
    "insert_minus": (lambda n: f"INSERT INTO hostile_sink VALUES ({'- ' * n}1, 1, 1, 1, 'x')", (5000,)),
    "insert_columns": (lambda n: f"INSERT INTO hostile_sink ({', '.join(['k'] * n)}) VALUES ({', '.join(['1'] * n)})", (20_000,)),
    "insert_unions": (lambda n: "INSERT INTO hostile_sink " + " UNION ALL ".join(["SELECT 1, now(), 1, 1, 'x'"] * n), (600, 3000)),
    "delete_or": (lambda n: "DELETE FROM hostile_sink WHERE " + " OR ".join(f"k = {i}" for i in range(n)), (2000, 20_000)),
    "delete_in": (lambda n: f"DELETE FROM hostile_sink WHERE k IN ({', '.join(map(str, range(n)))})", (100_000,)),
    "delete_nested": (lambda n: f"DELETE FROM hostile_sink WHERE {'(' * n}k = 1{')' * n}", (64, 5000)),
    "create_columns": (
        lambda n: f"CREATE TABLE hostile_wide (ts TIMESTAMP TIME INDEX, {', '.join(f'c{i} BIGINT' for i in range(n))})",
        (20_000,),
    ),
    "create_partitions": (
        lambda n: "CREATE TABLE hostile_parts (k BIGINT, ts TIMESTAMP TIME INDEX, PRIMARY KEY (k)) "
        f"PARTITION BY HASH (k) PARTITIONS {n}",
        (100_000, 4_294_967_295),
    ),
    "create_splits": (
        lambda n: "CREATE TABLE hostile_splits (k BIGINT, ts TIMESTAMP TIME INDEX, PRIMARY KEY (k)) "
        f"PARTITION BY RANGE (k) SPLIT AT ({', '.join(f'({i})' for i in range(n))})",
        (20_000,),
    ),
    "create_rules": (
        lambda n: "CREATE TABLE hostile_rules (k BIGINT, ts TIMESTAMP TIME INDEX, PRIMARY KEY (k)) PARTITION ON COLUMNS (k) "
        f"({', '.join(f'k >= {i} AND k < {i + 1}' for i in range(n))})",
        (2000,),
    ),
    "create_type": (lambda n: f"CREATE TABLE hostile_type (ts TIMESTAMP TIME INDEX, a BIGINT{'[]' * n})", (5000,)),
    "create_default": (lambda n: f"CREATE TABLE hostile_default (ts TIMESTAMP TIME INDEX, a BIGINT DEFAULT {'(' * n}1{')' * n})", (64, 5000)),
    "create_options": (
        lambda n: f"CREATE TABLE hostile_options (ts TIMESTAMP TIME INDEX) WITH ({', '.join(f'o{i} = {i}' for i in range(n))})",
        (20_000,),
    ),
    "alter_columns": (lambda n: "ALTER TABLE hostile_sink " + ", ".join(f"ADD COLUMN c{i} INTEGERX" for i in range(n)), (5000,)),
    "drop_tables": (lambda n: "DROP TABLE IF EXISTS " + ", ".join(f"none{i}" for i in range(n)), (20_000,)),
    "set_long": (lambda n: f"SET application_name = '{'x' * n}'", (5_000_000,)),
    "set_search_path": (lambda n: "SET search_path = " + ", ".join(["a"] * n), (100_000,)),
    "show_like": (lambda n: f"SHOW TABLES LIKE '{'%a' * n}'", (20_000,)),
}  # fmt: skip
SESSION = {
    "prepare_many": lambda: [f"PREPARE p{i} AS SELECT {i}, '{'x' * 20_000}'" for i in range(300)],
    "declare_many": lambda: ["BEGIN", *(f"DECLARE c{i} CURSOR FOR SELECT * FROM hostile_rows" for i in range(300)), "COMMIT"],
    "set_many": lambda: [f"SET custom.name{i} = '{'x' * 1000}'" for i in range(300)],
}


def kinds():
    found = fixed("change", INSERTS)
    found = [kind if not kind.shape.startswith("copy") else kind._replace(doors=SESSIONS) for kind in found]
    for shape, (build, sizes) in LONG.items():
        found += sized("change", shape, sizes, build)
    for shape, build in SESSION.items():
        found += sized("change", shape, ("",), lambda _, build=build: build(), SESSIONS)
    return found
