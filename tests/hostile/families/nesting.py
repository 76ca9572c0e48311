"""Depth: everything that may stand in itself, with and without a typo in the middle."""

from kinds import kind

# Exponential parsers fall at the first, quadratic ones and small stacks at the second, all stacks at the third.
DEPTHS = (14, 64, 3000)

# Of an expression: what opens, what stands in the middle, what closes.
EXPRESSIONS = {
    "parentheses": ("(", "1", ")"),
    "abs": ("abs(", "1", ")"),
    "coalesce_round": ("coalesce(round(", "1", "))"),
    "cast": ("CAST(", "1", " AS BIGINT)"),
    "try_cast": ("TRY_CAST(", "1", " AS BIGINT)"),
    "double_colon": ("(", "1", ")::BIGINT"),
    "not_parentheses": ("NOT (", "true", ")"),
    "not": ("NOT ", "true", ""),
    "minus": ("- ", "1", ""),
    "minus_parentheses": ("-(", "1", ")"),
    "plus_sign": ("+ ", "1", ""),
    "tilde": ("~ ", "1", ""),
    "substring": ("SUBSTRING(", "'abc'", " FROM 1 FOR 2)"),
    "replace": ("replace(", "'abc'", ", 'b', 'c')"),
    "concat": ("concat('a', ", "'b'", ")"),
    "trim": ("TRIM(BOTH 'x' FROM ", "'abc'", ")"),
    "position": ("POSITION('a' IN ", "'abc'", ")::TEXT"),
    "overlay": ("OVERLAY(", "'abc'", " PLACING 'x' FROM 1)"),
    "extract": ("EXTRACT(DAY FROM ", "now()", ")"),
    "ceil": ("CEIL(", "1.5", ")"),
    "array": ("ARRAY[", "1", "]"),
    "brackets": ("[", "1", "]"),
    "make_array": ("make_array(", "1", ")"),
    "array_concat_right": ("array_append(", "[1]", ", 1)"),
    "struct": ("struct(", "1", ")"),
    "row": ("ROW(", "1", ", 2)"),
    "named_struct": ("named_struct('a', ", "1", ")"),
    "braces": ("{'a': ", "1", "}"),
    "map": ("map(['a'], [", "1", "])"),
    "json": ("json_build_object('a', ", "1", ")"),
    "index": ("(", "[1]", ")[1]"),
    "case_when": ("CASE WHEN ", "true", " THEN true ELSE false END"),
    "case_else": ("CASE WHEN v < 0 THEN 1 ELSE ", "1", " END"),
    "case_operand": ("CASE ", "1", " WHEN 1 THEN 1 END"),
    "nullif": ("nullif(", "1", ", 2)"),
    "greatest": ("greatest(1, ", "1", ")"),
    "plus_left": ("(", "n", " + 1)"),
    "plus_right": ("(1 + ", "n", ")"),
    "concat_operator": ("(", "s", " || 'b')"),
    "between": ("(true BETWEEN false AND ", "true", ")"),
    "is_null": ("(", "n", " IS NULL)"),
    "is_distinct": ("(true IS DISTINCT FROM ", "true", ")"),
    "like": ("('a' LIKE ", "'a'", ")::TEXT"),
    "similar": ("('a' SIMILAR TO ", "'a'", ")::TEXT"),
    "in_list": ("true IN (", "true", ")"),
    "and_or": ("(v > 1 AND (v < 2 OR ", "true", "))"),
    "at_time_zone": ("(", "now()", " AT TIME ZONE 'UTC')"),
    "interval": ("(INTERVAL '1 day' + ", "INTERVAL '1 day'", ")"),
    "scalar_subquery": ("(SELECT ", "1", ")"),
    "subquery_with_table": ("(SELECT max(n) FROM hostile_small WHERE n < ", "1", ")"),
    "exists": ("EXISTS (SELECT 1 WHERE ", "true", ")"),
    "not_exists_correlated": ("NOT EXISTS (SELECT 1 FROM hostile_small i WHERE i.n = t.n AND ", "true", ")"),
    "in_subquery": ("1 IN (SELECT 1 WHERE ", "true", ")"),
    "any_subquery": ("1 = ANY (SELECT 1 WHERE ", "true", ")"),
    "array_subquery": ("ARRAY(SELECT ", "1", ")"),
    "filter": ("count(*) FILTER (WHERE ", "true", ") > 0"),
    "window": ("sum(", "1", ") OVER ()"),
}
# Of a query.
QUERIES = {
    "derived": ("SELECT * FROM (", "SELECT 1 AS a", ") t"),
    "derived_filtered": ("SELECT a + 1 AS a FROM (", "SELECT 1 AS a", ") t WHERE a > 0"),
    "derived_ordered": ("SELECT * FROM (", "SELECT 1 AS a", ") t ORDER BY a LIMIT 5"),
    "derived_distinct": ("SELECT DISTINCT * FROM (", "SELECT 1 AS a", ") t"),
    "derived_grouped": ("SELECT a, count(*) FROM (SELECT a FROM (", "SELECT 1 AS a", ") t) u GROUP BY a"),
    "query_parentheses": ("(", "SELECT 1", ")"),
    "union_left": ("(", "SELECT 1", " UNION ALL SELECT 1)"),
    "union_right": ("SELECT 1 UNION ALL (", "SELECT 1", ")"),
    "intersect_right": ("SELECT 1 INTERSECT (", "SELECT 1", ")"),
    "with": ("WITH a AS (", "SELECT 1", ") SELECT * FROM a"),
    "explain": ("EXPLAIN ", "SELECT 1", ""),
    "prepare": ("PREPARE p AS ", "SELECT 1", ""),
    "comment": ("/* ", "", " */"),
    "lateral": ("SELECT * FROM hostile_small t, LATERAL (", "SELECT 1", ") l LIMIT 1"),
}
# Of a FROM clause.
TABLES = {
    "table_parentheses": ("(", "hostile_small", ")"),
    "join_left": ("(", "hostile_small", " CROSS JOIN hostile_sink)"),
    "join_right": ("(hostile_sink JOIN ", "hostile_small", " ON true)"),
}
# Of a type.
TYPES = {
    "array_type": ("ARRAY<", "BIGINT", ">"),
    "struct_type": ("STRUCT<a ", "BIGINT", ">"),
    "map_type": ("MAP<BIGINT, ", "BIGINT", ">"),
}
FRAMES = {
    "expression": "SELECT {} FROM hostile_small t LIMIT 1",
    "query": "{}",
    "table": "SELECT 1 FROM {} LIMIT 1",
    "type": "SELECT CAST(NULL AS {})",
}
TYPO = " 1 1 $ "


def nested(frame, parts, depth, typo):
    opening, middle, closing = parts
    return frame.format(opening * depth + middle + (TYPO if typo else "") + closing * depth)


def unclosed(frame, parts, depth):
    """Only the openings: a parser learns at the end that it was all in vain."""
    return frame.format(parts[0] * depth + parts[1])


def mixed(depth):
    """All expressions in each other, in turn."""
    turns = [parts for parts in EXPRESSIONS.values() if "SELECT" not in parts[0]]
    opening = "".join(turns[i % len(turns)][0] for i in range(depth))
    closing = "".join(turns[i % len(turns)][2] for i in reversed(range(depth)))
    return f"SELECT {opening}1{closing}"


def kinds():
    found = []
    groups = (("expression", EXPRESSIONS), ("query", QUERIES), ("table", TABLES), ("type", TYPES))
    for group, shapes in groups:
        frame = FRAMES[group]
        for shape, parts in shapes.items():
            for depth in DEPTHS:
                for typo in (False, True):
                    size = f"{depth}_typo" if typo else depth
                    found.append(kind(
                        "nest", shape, size,
                        lambda frame=frame, parts=parts, depth=depth, typo=typo: nested(frame, parts, depth, typo),
                    ))  # fmt: skip
            if shape in ("abs", "cast", "parentheses", "array", "case_when", "scalar_subquery", "derived", "comment"):
                found.append(kind("nest", f"{shape}_unclosed", 30, lambda frame=frame, parts=parts: unclosed(frame, parts, 30)))
    found += [kind("nest", "mixed", depth, lambda depth=depth: mixed(depth)) for depth in DEPTHS]
    return found
