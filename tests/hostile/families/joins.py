"""Work that grows with the product of its inputs, or never ends."""

from kinds import fixed

PAIR = "hostile_rows a, hostile_rows b"
SERIES = "generate_series(1, 1000000)"

JOINS = {
    # Joins without an equality: a nested loop over 3.6 thousand million pairs.
    "less": "SELECT count(*) FROM hostile_rows a JOIN hostile_rows b ON a.n < b.n",
    "between": "SELECT count(*) FROM hostile_rows a JOIN hostile_rows b ON a.v BETWEEN b.v AND b.v + 100",
    "absolute": "SELECT count(*) FROM hostile_rows a JOIN hostile_rows b ON abs(a.n - b.n) > 5",
    "differs": "SELECT count(*) FROM hostile_rows a JOIN hostile_rows b ON a.k <> b.k",
    "or": "SELECT count(*) FROM hostile_rows a JOIN hostile_rows b ON a.k = b.k OR a.n = b.n",
    "like": "SELECT count(*) FROM hostile_rows a JOIN hostile_rows b ON a.s LIKE '%' || b.s || '%'",
    "regex": "SELECT count(*) FROM hostile_rows a JOIN hostile_rows b ON regexp_like(a.s, b.s)",
    "levenshtein": "SELECT count(*) FROM hostile_rows a JOIN hostile_rows b ON levenshtein(a.s, b.s) < 2",
    "digest": "SELECT count(*) FROM hostile_rows a JOIN hostile_rows b ON md5(a.s) < md5(b.s || a.s)",
    "never": "SELECT count(*) FROM hostile_rows a JOIN hostile_rows b ON a.k + b.k < -1",
    "left": "SELECT count(*) FROM hostile_rows a LEFT JOIN hostile_rows b ON a.n > b.n + 5",
    "right": "SELECT count(*) FROM hostile_rows a RIGHT JOIN hostile_rows b ON a.n > b.n + 5",
    "full": "SELECT count(*) FROM hostile_rows a FULL JOIN hostile_rows b ON a.n > b.n + 5000",
    "semi": "SELECT count(*) FROM hostile_rows a LEFT SEMI JOIN hostile_rows b ON a.k + b.k < -1",
    "anti": "SELECT count(*) FROM hostile_rows a LEFT ANTI JOIN hostile_rows b ON a.k + b.k < -1",
    "exists": "SELECT count(*) FROM hostile_rows a WHERE EXISTS (SELECT 1 FROM hostile_rows b WHERE a.v > b.v + 1e9)",
    "not_exists": "SELECT count(*) FROM hostile_rows a WHERE NOT EXISTS (SELECT 1 FROM hostile_rows b WHERE a.v > b.v + 1e9)",
    "correlated": "SELECT sum((SELECT count(*) FROM hostile_rows b WHERE b.n < a.n)) FROM hostile_rows a",
    "in_subquery": f"SELECT count(*) FROM hostile_rows WHERE k IN (SELECT a.k + b.k FROM {PAIR})",
    "not_in": f"SELECT count(*) FROM hostile_rows WHERE k NOT IN (SELECT a.k * b.k FROM {PAIR})",
    "any": f"SELECT count(*) FROM hostile_rows WHERE k > ALL (SELECT a.k + b.k FROM {PAIR})",
    "asof_like": "SELECT a.k, max(b.ts) FROM hostile_rows a JOIN hostile_rows b ON b.ts <= a.ts GROUP BY a.k",
    # Crosses.
    "cross_count": f"SELECT count(*) FROM {PAIR}",
    "cross_three": "SELECT count(*) FROM hostile_rows a, hostile_rows b, hostile_rows c",
    "cross_series": f"SELECT count(*) FROM {SERIES} a, {SERIES} b",
    "cross_series_four": f"SELECT count(*) FROM {SERIES} a, {SERIES} b, {SERIES} c, {SERIES} d",
    "cross_filter": f"SELECT count(*) FROM {PAIR} WHERE sqrt(a.v * b.v) > sin(a.v) + 7",
    "cross_sorted": f"SELECT a.k FROM {PAIR} ORDER BY a.v * b.v",
    "cross_top": f"SELECT a.k FROM {PAIR} ORDER BY a.v * b.v DESC LIMIT 10",
    "cross_top_large": f"SELECT a.k, a.s, b.s FROM {PAIR} ORDER BY a.v * b.v DESC LIMIT 10000000",
    "cross_offset": f"SELECT a.k FROM {PAIR} OFFSET 3000000000 LIMIT 1",
    "cross_distinct": f"SELECT DISTINCT a.k * b.k FROM {PAIR}",
    "cross_count_distinct": f"SELECT count(DISTINCT a.k * 60000 + b.k) FROM {PAIR}",
    "cross_count_distinct_texts": f"SELECT count(DISTINCT a.s || b.s) FROM {PAIR}",
    "cross_group": f"SELECT a.n + b.k, count(*) FROM {PAIR} GROUP BY 1",
    "cross_group_texts": f"SELECT a.s || b.s, count(*), max(a.s) FROM {PAIR} GROUP BY 1",
    "cross_grouping_sets": f"SELECT a.k, b.k, count(*) FROM {PAIR} GROUP BY CUBE (a.k, b.k, a.n, b.n)",
    "cross_window": f"SELECT sum(a.v) OVER (PARTITION BY a.n ORDER BY b.v) FROM {PAIR}",
    "cross_rank": f"SELECT max(r) FROM (SELECT rank() OVER (ORDER BY a.v + b.v) r FROM {PAIR}) t",
    "cross_string_agg": f"SELECT length(string_agg(a.s, ',')) FROM {PAIR}",
    "cross_array_agg": f"SELECT array_length(array_agg(a.k)) FROM {PAIR}",
    "cross_median": f"SELECT median(a.v * b.v) FROM {PAIR}",
    "cross_random": f"SELECT sum(random() * a.v) FROM {PAIR}",
    "cross_sent": f"SELECT * FROM {PAIR}",
    "cross_sent_wide": f"SELECT a.*, b.*, repeat(a.s, 100) FROM {PAIR}",
    "cross_union": f"SELECT a.k FROM {PAIR} UNION SELECT b.k + a.n FROM {PAIR}",
    "cross_intersect": f"SELECT a.k, b.k FROM {PAIR} INTERSECT SELECT b.k, a.k FROM {PAIR}",
    "cross_except": f"SELECT a.k, b.k FROM {PAIR} EXCEPT SELECT b.k + 1, a.k FROM {PAIR}",
    "cross_self": "WITH c AS (SELECT a.k FROM hostile_small a, hostile_small b) SELECT count(*) FROM c x, c y WHERE x.k < y.k",
    "cross_case": f"SELECT sum(CASE WHEN a.s < b.s THEN length(a.s || b.s) ELSE 0 END) FROM {PAIR}",
    "cross_of_functions": f"SELECT max(upper(reverse(a.s || b.s))) FROM {PAIR}",
    # One key on all rows.
    "one_key": "SELECT count(*) FROM hostile_rows a JOIN hostile_rows b ON a.k % 1 = b.k % 1",
    "one_key_filter": "SELECT count(*) FROM hostile_rows a JOIN hostile_rows b ON a.k % 1 = b.k % 1 AND a.v + b.v < -1",
    "one_key_left": "SELECT count(*) FROM hostile_rows a LEFT JOIN hostile_rows b ON a.k % 1 = b.k % 1 AND a.v > b.v",
    "one_key_sorted": "SELECT a.k FROM hostile_rows a JOIN hostile_rows b ON a.k % 2 = b.k % 2 ORDER BY b.v, a.v",
    "one_key_thrice": "SELECT count(*) FROM hostile_rows a JOIN hostile_rows b ON a.n = b.n JOIN hostile_rows c ON b.n = c.n "
    "JOIN hostile_rows d ON c.n = d.n",
    "one_key_semi": "SELECT count(*) FROM hostile_rows a WHERE EXISTS "
    "(SELECT 1 FROM hostile_rows b WHERE a.k % 1 = b.k % 1 AND a.v + b.v < -1)",
    "series_join": f"SELECT count(*) FROM {SERIES} a JOIN {SERIES} b ON a.value % 10 = b.value % 10",
    "series_texts": f"SELECT count(*) FROM {SERIES} a JOIN {SERIES} b ON a.value::TEXT = b.value::TEXT || ''",
    "wide_build": f"SELECT count(*) FROM {SERIES} a JOIN (SELECT value, repeat('x', 5000) t FROM {SERIES}) b "
    "ON a.value = b.value WHERE b.t > 'a'",
    # Without an end.
    "recursive": "WITH RECURSIVE r AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM r WHERE a < 1000000000) SELECT count(*) FROM r",
    "recursive_for_ever": "WITH RECURSIVE r AS (SELECT 1 AS a UNION ALL SELECT a FROM r) SELECT count(*) FROM r",
    "recursive_doubling": "WITH RECURSIVE r AS (SELECT 1 AS a UNION ALL SELECT b.a FROM r b, (VALUES (1), (2)) x) SELECT count(*) FROM r",
    "recursive_texts": "WITH RECURSIVE r AS (SELECT 'x' AS a UNION ALL SELECT a || a FROM r) SELECT max(length(a)) FROM r",
    "recursive_distinct": "WITH RECURSIVE r AS (SELECT 1 AS a UNION SELECT a + 1 FROM r) SELECT max(a) FROM r",
    "recursive_empty": "WITH RECURSIVE r AS (SELECT 1 AS a UNION ALL SELECT a + b.k FROM r, hostile_rows b) SELECT count(*) FROM r",
    "recursive_sent": "WITH RECURSIVE r AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM r) SELECT a FROM r",
    "recursive_rows": "WITH RECURSIVE r AS (SELECT k, s FROM hostile_rows UNION ALL SELECT k, s || 'x' FROM r) SELECT count(*) FROM r",
    "recursive_arrays": "WITH RECURSIVE r AS (SELECT [1] AS a UNION ALL SELECT array_concat(a, a) FROM r) SELECT count(*) FROM r",
    # Rows from values.
    "lateral": "SELECT count(*) FROM hostile_rows a, LATERAL (SELECT b.k FROM hostile_rows b WHERE b.n > a.n) c",
    "unnest_cross": "SELECT count(*) FROM unnest(range(0, 100000)) a, unnest(range(0, 100000)) b",
    "order_random": f"SELECT value FROM {SERIES} ORDER BY random(), random()",
    "sort_rows": f"SELECT a.value, repeat('x', 200) t FROM {SERIES} a, generate_series(1, 100) b ORDER BY t, a.value DESC",
    "system_cross": "SELECT count(*) FROM information_schema.columns a, information_schema.columns b, "
    "information_schema.columns c, information_schema.columns d",
    "catalog_cross": "SELECT count(*) FROM pg_catalog.pg_type a, pg_catalog.pg_type b, pg_catalog.pg_type c, pg_catalog.pg_attribute d",
    "log_cross": "SELECT count(*) FROM sys.query_log a, sys.query_log b, sys.query_log c",
}


def kinds():
    return fixed("join", JOINS)
