"""What tools ask of the catalog: the shapes of DBeaver's and Grafana's queries, with the answers that PostgreSQL has.

PARTITA_PG is the server's DSN. Prints what failed, and 'N passed, M failed' at the end.
"""

import os
import sys
import traceback
import uuid

import psycopg

DSN = os.environ["PARTITA_PG"]
TABLE = f"Tools_{uuid.uuid4().hex[:10]}"
QUOTED = f'"{TABLE}"'
COLUMNS = "id INT PRIMARY KEY, ts TIMESTAMP(6), v DOUBLE PRECISION DEFAULT 1.5, n DECIMAL(10, 2), s TEXT NOT NULL"
# Whether a key takes NULL is ours to say.
ANY = object()
OID = f"(SELECT oid FROM pg_catalog.pg_class WHERE relname = '{TABLE}')"
# How Grafana tells the schemas of the search path.
IN_PATH = """quote_ident(table_schema) IN (
    SELECT CASE WHEN trim(part[n]) = '"$user"' THEN user ELSE trim(part[n]) END
    FROM generate_series(array_lower(string_to_array(current_setting('search_path'), ','), 1),
                         array_upper(string_to_array(current_setting('search_path'), ','), 1)) AS n,
         string_to_array(current_setting('search_path'), ',') part)"""
# A query, columns of its answer, and what they hold; None: any rows, without an error.
CASES = [
    # DBeaver: sessions, databases, schemas.
    ("SELECT current_schema(), session_user", ["current_schema"], [("public",)]),
    ("SELECT d.oid, d.* FROM pg_catalog.pg_database d WHERE datallowconn AND NOT datistemplate ORDER BY d.datname", [], None),
    ("SELECT n.oid, n.*, d.description FROM pg_catalog.pg_namespace n LEFT OUTER JOIN pg_catalog.pg_description d "
     "ON d.objoid = n.oid AND d.objsubid = 0 AND d.classoid = 'pg_namespace'::regclass WHERE nspname = 'public'",
     ["nspname"], [("public",)]),
    ("SELECT setting FROM pg_catalog.pg_settings WHERE name = 'standard_conforming_strings'", ["setting"], [("on",)]),
    ("SELECT string_agg(word, ',') FROM pg_catalog.pg_get_keywords() WHERE word <> ALL ('{a,abs}'::text[])", [], None),
    # Its types, tables, columns, keys and constraints.
    ("SELECT t.oid, t.*, c.relkind, format_type(nullif(t.typbasetype, 0), t.typtypmod) AS base, d.description "
     "FROM pg_catalog.pg_type t LEFT OUTER JOIN pg_catalog.pg_type e ON e.oid = t.typelem "
     "LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid = t.typrelid "
     "LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid = d.objoid "
     "WHERE t.typname = 'int4' AND (c.relkind IS NULL OR c.relkind = 'c') "
     "AND (e.typcategory IS NULL OR e.typcategory <> 'C')", ["typname", "base"], [("int4", None)]),
    ("SELECT c.oid, c.*, d.description, pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS part, "
     "pg_catalog.pg_get_partkeydef(c.oid) AS part_key FROM pg_catalog.pg_class c "
     "LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0 "
     "AND d.classoid = 'pg_class'::regclass "
     f"WHERE c.relnamespace = 2200 AND c.relkind NOT IN ('i', 'I', 'c') AND relname = '{TABLE}'",
     ["relname", "relkind", "part"], [(TABLE, "r", None)]),
    ("SELECT c.oid, pg_catalog.pg_total_relation_size(c.oid) AS total, pg_catalog.pg_relation_size(c.oid) AS own "
     "FROM pg_class c WHERE c.relnamespace = 2200", [], None),
    ("SELECT c.relname, a.*, pg_catalog.pg_get_expr(f.adbin, f.adrelid, true) AS def, d.description, p.objid "
     "FROM pg_catalog.pg_attribute a INNER JOIN pg_catalog.pg_class c ON (a.attrelid = c.oid) "
     "LEFT OUTER JOIN pg_catalog.pg_attrdef f ON (a.attrelid = f.adrelid AND a.attnum = f.adnum) "
     "LEFT OUTER JOIN pg_catalog.pg_description d ON (c.oid = d.objoid AND a.attnum = d.objsubid) "
     "LEFT OUTER JOIN pg_depend p ON p.refobjid = a.attrelid AND p.deptype = 'i' AND p.refobjsubid = a.attnum "
     f"AND p.classid = p.refclassid WHERE NOT a.attisdropped AND a.attnum > 0 AND c.oid = {OID} ORDER BY a.attnum",
     ["attname", "attnotnull"], [("id", ANY), ("ts", False), ("v", False), ("n", False), ("s", True)]),
    ("SELECT i.*, i.indkey AS keys, c.relname, t.relname AS of, d.description, "
     "pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS pred, pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) AS expr, "
     "pg_catalog.pg_relation_size(i.indexrelid) AS size, pg_catalog.pg_stat_get_numscans(i.indexrelid) AS scans "
     "FROM pg_catalog.pg_index i INNER JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid "
     "INNER JOIN pg_catalog.pg_class t ON t.oid = i.indrelid "
     "LEFT OUTER JOIN pg_catalog.pg_description d ON i.indexrelid = d.objoid "
     f"WHERE i.indrelid = {OID} ORDER BY of, c.relname", ["relname", "indisprimary"], [(f"{TABLE}_pkey", True)]),
    ("SELECT c.oid, c.*, t.relname AS of, r.relnamespace AS ref, d.description, "
     "CASE WHEN c.contype = 'c' THEN substring(pg_get_constraintdef(c.oid), 7) ELSE NULL END AS src "
     "FROM pg_catalog.pg_constraint c INNER JOIN pg_catalog.pg_class t ON t.oid = c.conrelid "
     "LEFT OUTER JOIN pg_catalog.pg_class r ON r.oid = c.confrelid "
     "LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0 "
     f"AND d.classoid = 'pg_constraint'::regclass WHERE c.conrelid = {OID} ORDER BY c.oid",
     ["contype", "conkey", "src"], [("p", [1], None)]),
    # Grafana: the version, the tables of the path, columns for times and for values, a series.
    ("SELECT current_setting('server_version_num')::int / 100 AS version", [], None),
    ("SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'", ["extversion"], []),
    (f"SELECT CASE WHEN {IN_PATH} THEN quote_ident(table_name) ELSE quote_ident(table_schema) || '.' || "
     "quote_ident(table_name) END AS name FROM information_schema.tables WHERE quote_ident(table_schema) NOT IN "
     f"('information_schema', 'pg_catalog') AND table_name = '{TABLE}' ORDER BY CASE WHEN {IN_PATH} THEN 0 ELSE 1 END, 1",
     ["name"], [(QUOTED,)]),
    ('SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns WHERE '
     f"CASE WHEN array_length(parse_ident('{QUOTED}'), 1) = 2 "
     f"THEN quote_ident(table_schema) = (parse_ident('{QUOTED}'))[1] "
     f"ELSE quote_ident(table_name) = '{QUOTED}' AND {IN_PATH} END ORDER BY ordinal_position",
     ["column", "type"], [("id", "integer"), ("ts", "timestamp without time zone"), ("v", "double precision"),
                          ("n", "numeric"), ("s", "text")]),
    (f"SELECT quote_ident(column_name) AS name FROM information_schema.columns WHERE {IN_PATH} AND table_name = '{TABLE}' "
     "AND data_type IN ('timestamp without time zone', 'timestamp with time zone') ORDER BY column_name",
     ["name"], [("ts",)]),
    (f"SELECT udt_name FROM information_schema.columns WHERE {IN_PATH} AND table_name = '{TABLE}' AND column_name = 'v'",
     ["udt_name"], [("float8",)]),
    (f'SELECT floor(extract(epoch from ts) / 300) * 300 AS "time", avg(v) AS v FROM {QUOTED} '
     "WHERE ts BETWEEN '2024-01-01T00:00:00Z' AND '2024-01-02T00:00:00Z' GROUP BY 1 ORDER BY 1",
     ["time", "v"], [(1704067200, 1), (1704067800, 3)]),
]


def check(connection, sql, columns, expected):
    cursor = connection.execute(sql)
    names = [column.name for column in cursor.description]
    rows = cursor.fetchall()
    if expected is None:
        assert rows, "no rows"
        return
    # The last of columns with one name, as tools read `x.oid, x.*`.
    places = [len(names) - 1 - names[::-1].index(name) for name in columns]
    found = [tuple(row[place] for place in places) for row in rows]
    same = len(found) == len(expected) and all(
        want is ANY or got == want for row, wanted in zip(found, expected) for got, want in zip(row, wanted))
    assert same, f"found {found}, expected {expected}"


def main():
    passed = failed = 0
    with psycopg.connect(DSN, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {QUOTED} ({COLUMNS})")
        connection.execute(f"INSERT INTO {QUOTED} VALUES (1, '2024-01-01 00:01:00', 1, 2, 'a'), "
                           "(2, '2024-01-01 00:11:00', 3, 4, 'b')")
        for sql, columns, expected in CASES:
            try:
                check(connection, sql, columns, expected)
                passed += 1
            except Exception:
                failed += 1
                print(f"-- failed: {sql}")
                traceback.print_exc(limit=-2, file=sys.stdout)
        connection.execute(f"DROP TABLE {QUOTED}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
