"""Size: values and rows that a few bytes of SQL ask for, and functions that work for long on little."""

from kinds import fixed, sized

MILLION = 1_000_000
BILLION = 1_000_000_000
SERIES = "FROM generate_series(1, {n})"


def grown(step, levels, seed="'xxxxxxxx'", shown="length(a)"):
    """A value that grows by each level of nested queries."""
    text = f"SELECT {seed} AS a"
    for _ in range(levels):
        text = f"SELECT {step} AS a FROM ({text}) t"
    return f"SELECT {shown} FROM ({text}) t"


def large():
    forms = {
        "repeat": "SELECT length(repeat('x', {n}))",
        "repeat_sent": "SELECT repeat('x', {n})",
        "lpad": "SELECT length(lpad('x', {n}, 'yz'))",
        "rpad": "SELECT length(rpad('x', {n}, 'yz'))",
        "array_repeat": "SELECT array_length(array_repeat(1, {n}))",
        "array_resize": "SELECT array_length(array_resize([1], {n}, 0))",
        "range_array": "SELECT array_length(range(0, {n}))",
        "series_array": "SELECT array_length(generate_series(1, {n}))",
        "array_to_string": "SELECT length(array_to_string(range(0, {n}), ','))",
        "string_to_array": "SELECT array_length(string_to_array(repeat('a,', {n}), ','))",
        "encode_hex": "SELECT length(encode(repeat('x', {n})::BYTEA, 'hex'))",
        "encode_base64": "SELECT length(encode(repeat('x', {n})::BYTEA, 'base64'))",
        "decode": "SELECT length(decode(repeat('00', {n}), 'hex'))",
        "md5": "SELECT md5(repeat('x', {n}))",
        "sha512": "SELECT sha512(repeat('x', {n}))",
        "reverse": "SELECT length(reverse(repeat('x', {n})))",
        "upper": "SELECT length(upper(repeat('ß', {n})))",
        "initcap": "SELECT length(initcap(repeat('a b', {n})))",
        "translate": "SELECT length(translate(repeat('x', {n}), 'x', 'é'))",
        "overlay": "SELECT length(overlay(repeat('x', {n}) PLACING repeat('y', {n}) FROM 2))",
        "replace": "SELECT length(replace(repeat('x', {n}), 'x', 'yyyyyyyyyy'))",
        "replace_nothing": "SELECT length(replace(repeat('x', {n}), '', repeat('y', 1000)))",
        "regexp_replace": "SELECT length(regexp_replace(repeat('x', {n}), 'x', 'yyyyyyyyyy', 'g'))",
        "concat": "SELECT length(concat(repeat('x', {n}), repeat('y', {n})))",
        "concat_ws": "SELECT length(concat_ws(repeat(',', {n}), 'a', 'b', 'c', 'd', 'e'))",
        "concat_operator": "SELECT length(repeat('x', {n}) || repeat('y', {n}))",
        "split_part": "SELECT split_part(repeat('a,', {n}), ',', 5)",
        "btrim": "SELECT length(btrim(repeat('x', {n}), 'y'))",
        "json": "SELECT length(json_build_object('a', repeat('x', {n}))::TEXT)",
        "json_escapes": "SELECT length(json_build_object('a', repeat(chr(1), {n}))::TEXT)",
        "to_char": "SELECT length(to_char(now(), repeat('YYYY', {n})))",
        "to_char_text": "SELECT length(to_char(now(), repeat('\"x\" Month', {n})))",
        "to_timestamp": "SELECT to_timestamp('2026', repeat('%Y', {n}))",
        "struct": "SELECT struct(repeat('x', {n}), repeat('x', {n}))",
        "cast_bytea": "SELECT length(repeat('x', {n})::BYTEA::TEXT)",
        "cast_number": "SELECT repeat('9', {n})::DOUBLE",
        "cast_time": "SELECT repeat('2', {n})::TIMESTAMP",
        "flatten": "SELECT array_length(flatten(array_repeat(range(0, 1000), {n})))",
        "array_of_texts": "SELECT array_length(array_repeat(repeat('x', 1000), {n}))",
        "array_sort": "SELECT array_length(array_sort(range({n}, 0, -1)))",
        "array_distinct": "SELECT array_length(array_distinct(range(0, {n})))",
        "array_reverse": "SELECT array_length(array_reverse(range(0, {n})))",
        "array_union": "SELECT array_length(array_union(range(0, {n}), range(5, {n})))",
        "array_concat": "SELECT array_length(array_concat(range(0, {n}), range(0, {n})))",
        "array_position": "SELECT array_position(range(0, {n}), -1)",
        "array_replace": "SELECT array_length(array_replace_all(array_repeat(1, {n}), 1, 2))",
        "array_has": "SELECT array_has_all(range(0, {n}), range(0, {n}))",
        "unnest_range": "SELECT count(*) FROM unnest(range(0, {n}))",
        "unnest_select": "SELECT count(*) FROM (SELECT unnest(range(0, {n})) a) t",
        "ascii_of": "SELECT to_hex({n}), chr(65), bit_length(repeat('x', {n}))",
        "uuid": "SELECT count(uuid()) " + SERIES,
        "random": "SELECT sum(random()) " + SERIES,
        "count_series": "SELECT count(*) " + SERIES,
        "sort_series": "SELECT value " + SERIES + " ORDER BY value DESC OFFSET 1000000 LIMIT 1",
        "send_series": "SELECT value " + SERIES,
        "send_wide": "SELECT value, repeat('x', 100000) " + SERIES,
        "count_distinct": "SELECT count(DISTINCT value) " + SERIES,
        "group_series": "SELECT max(c) FROM (SELECT value, count(*) c " + SERIES + " GROUP BY value) t",
        "string_agg": "SELECT length(string_agg(repeat('x', 1000), ',')) " + SERIES,
        "string_agg_distinct": "SELECT length(string_agg(DISTINCT value::TEXT, ',')) " + SERIES,
        "array_agg": "SELECT array_length(array_agg(value)) " + SERIES,
        "array_agg_ordered": "SELECT array_length(array_agg(value ORDER BY -value)) " + SERIES,
        "array_agg_texts": "SELECT array_length(array_agg(repeat('x', 10000))) " + SERIES,
        "array_agg_distinct": "SELECT array_length(array_agg(DISTINCT value)) " + SERIES,
        "median": "SELECT median(value) " + SERIES,
        "percentile": "SELECT approx_percentile_cont(value, 0.5) " + SERIES,
        "first_value": "SELECT first_value(repeat('x', 1000) ORDER BY -value) " + SERIES,
        "max_of_texts": "SELECT max(repeat(value::TEXT, 10000)) " + SERIES,
        "lengths_of_texts": "SELECT max(length(repeat('x', 1000000))) " + SERIES,
        "group_by_texts": "SELECT count(*) FROM (SELECT repeat(value::TEXT, 1000) a " + SERIES + ") t GROUP BY a",
        "distinct_texts": "SELECT DISTINCT repeat(value::TEXT, 100) " + SERIES,
        "sort_texts": "SELECT repeat(value::TEXT, 1000) a " + SERIES + " ORDER BY a DESC LIMIT 1000000",
        "window_sum": "SELECT max(c) FROM (SELECT sum(value) OVER (ORDER BY value) c " + SERIES + ") t",
        "window_texts": "SELECT max(c) FROM (SELECT lag(repeat('x', 1000)) OVER (ORDER BY value) c " + SERIES + ") t",
        "power": "SELECT power(10, {n}), power(1.0000001, {n})",
        "factorial": "SELECT factorial({n})",
        "round_digits": "SELECT round(1.5::DOUBLE, {n}), trunc(1.5::DOUBLE, {n})",
        "levenshtein": "SELECT levenshtein(repeat('a', {n}), repeat('b', {n}))",
        "strpos": "SELECT strpos(repeat('a', {n}), repeat('a', {n} / 2) || 'b')",
        "like": "SELECT repeat('a', {n}) LIKE '%a%a%a%a%a%b'",
        "find_in_set": "SELECT find_in_set('b', repeat('a,', {n}))",
        "substr_index": "SELECT length(substr_index(repeat('a,', {n}), ',', -5))",
        "starts_with": "SELECT starts_with(repeat('a', {n}), repeat('a', {n}) || 'b')",
        "interval_series": "SELECT count(*) FROM generate_series(TIMESTAMP '2026-01-01', TIMESTAMP '2026-01-01' + "
        "INTERVAL '{n} seconds', INTERVAL '1 second')",
        "map": "SELECT cardinality(map(range(0, {n}), range(0, {n})))",
    }
    # Too large for a limit of memory by a little, by much, and for every counter of 32 bits.
    sizes = {"levenshtein": (100_000,), "power": (MILLION,), "factorial": (MILLION, BILLION)}
    found = []
    for shape, form in forms.items():
        default = (100 * MILLION, 10 * BILLION) if SERIES in form else (20 * MILLION, 2 * BILLION, 9 * 10**18)
        found += sized("large", shape, sizes.get(shape, default), lambda n, form=form: form.replace("{n}", str(n)))
    return found


def doubling():
    steps = {
        "concat": ("concat(a, a)", "'xxxxxxxx'", "length(a)"),
        "concat_operator": ("a || a", "'xxxxxxxx'", "length(a)"),
        "concat_ws": ("concat_ws(',', a, a)", "'xxxxxxxx'", "length(a)"),
        "replace": ("replace(a, 'x', 'xx')", "'xxxxxxxx'", "length(a)"),
        "regexp_replace": ("regexp_replace(a, 'x', 'xx', 'g')", "'xxxxxxxx'", "length(a)"),
        "repeat": ("repeat(a, 4)", "'xxxxxxxx'", "length(a)"),
        "encode": ("encode(a::BYTEA, 'hex')", "'xxxxxxxx'", "length(a)"),
        "translate": ("translate(concat(a, a), 'x', 'y')", "'xxxxxxxx'", "length(a)"),
        "overlay": ("overlay(a PLACING a FROM 2 FOR 0)", "'xxxxxxxx'", "length(a)"),
        "lpad": ("lpad(a, length(a)::INT * 3, a)", "'xxxxxxxx'", "length(a)"),
        "json": ("json_build_object('a', a, 'b', a)::TEXT", "'x'", "length(a)"),
        "array_concat": ("array_concat(a, a)", "[1, 2]", "array_length(a)"),
        "arrays": ("[a, a]", "[1]", "a"),
        "array_repeat": ("array_repeat(a, 3)", "1", "a"),
        "struct": ("struct(a, a)", "1", "a"),
        "plus": ("a + a", "1", "a"),
        "case": ("CASE WHEN a > 1 THEN a ELSE a END", "k", "a"),
        "and": ("a AND a OR a", "true", "a"),
        "coalesce": ("coalesce(a, a)", "1", "a"),
        "column_plus": ("a * a + a", "random()", "a"),
    }
    found = []
    for shape, (step, seed, shown) in steps.items():
        seed = "(SELECT max(k) FROM hostile_small)" if seed == "k" else seed
        found += sized(
            "doubling", shape, (12, 34),
            lambda n, step=step, seed=seed, shown=shown: grown(step, n, seed, shown),
        )  # fmt: skip
    found += sized(
        "doubling", "unnest", (8, 30),
        lambda n: grown("unnest([a, a])", n, "1", "count(*)"),
    )  # fmt: skip
    found += sized(
        "doubling", "calls", (12, 30), lambda n: "SELECT length(" + "repeat(" * n + "'x'" + ", 10)" * n + ")"
    )
    return found


PATTERNS = {
    "counted_twice": "(a{1000}){1000}",
    "counted_thrice": "((a{100}){100}){100}",
    "counted_class": "\\w{1000}x",
    "counted_unicode": "\\pL{1000}",
    "counted_range": "(a{0,1000}){0,1000}",
    "stars": "(a*)*b",
    "pluses": "(x+x+)+y",
    "optional": "(a?){200}a{200}",
    "nested_groups": "(" * 200 + "a" + ")" * 200,
    "nested_stars": "(" * 90 + "a" + "*)" * 90,
    "deep_groups": "(" * 20_000 + "a" + ")" * 20_000,
    "words": "|".join(f"word{i}" for i in range(20_000)),
    "dots": ".*" * 1000 + "b",
    "case_insensitive": "(?i)(straße|ı|K){500}",
    "back_reference": "(a)\\1",
    "look_ahead": "(?=a)a",
    "classes": "[\\p{Greek}\\w\\d[:alpha:]]" * 3000,
    "long": "a" * 5_000_000,
    "empty_choices": "(|){1000}",
}


def patterns():
    found = []
    forms = {
        "like": "SELECT count(*) FROM hostile_rows WHERE regexp_like(s, '{p}')",
        "operator": "SELECT count(*) FROM hostile_rows WHERE s ~ '{p}'",
        "match": "SELECT regexp_match(repeat('a', 100000), '{p}')",
        "count": "SELECT regexp_count(repeat('a', 1000000), '{p}')",
        "replace": "SELECT length(regexp_replace(repeat('a', 1000000), '{p}', 'b', 'g'))",
        "by_row": "SELECT count(*) FROM hostile_rows WHERE regexp_like('aaaa', '{p}' || s)",
        "similar": "SELECT count(*) FROM hostile_rows WHERE s SIMILAR TO '{p}'",
    }
    names = list(forms)
    for place, (shape, pattern) in enumerate(PATTERNS.items()):
        for form in {names[place % len(names)], names[(place + 3) % len(names)], "by_row"}:
            text = forms[form].replace("{p}", pattern)
            found += fixed("pattern", {f"{shape}_{form}": text})
    return sorted(found, key=lambda kind: kind.name)


EXTREMES = {
    "decimal_times": f"SELECT CAST('{'9' * 76}' AS DECIMAL(76, 0)) * CAST('{'9' * 76}' AS DECIMAL(76, 0))",
    "decimal_38": f"SELECT sum(CAST('{'9' * 38}' AS DECIMAL(38, 0))) FROM hostile_small",
    "decimal_scale": "SELECT CAST(1 AS DECIMAL(38, 38)) / CAST('0." + "0" * 37 + "1' AS DECIMAL(38, 38))",
    "decimal_negative_scale": "SELECT CAST(1 AS DECIMAL(38, -128))",
    "interval_days": "SELECT now() + INTERVAL '2147483647 days'",
    "interval_months": "SELECT now() + INTERVAL '2147483647 months'",
    "interval_times": "SELECT INTERVAL '9223372036854775807 nanoseconds' * 1e300",
    "interval_long": "SELECT INTERVAL '" + "1 day " * 20_000 + "'",
    "interval_negated": "SELECT - INTERVAL '-2147483648 months -2147483648 days'",
    "time_last": "SELECT TIMESTAMP '294276-12-31 23:59:59' + INTERVAL '1 day', TIMESTAMP '9999-12-31'",
    "time_first": "SELECT TIMESTAMP '-290308-12-21' - INTERVAL '1 year'",
    "time_of_number": "SELECT to_timestamp(9223372036854775807), to_timestamp_millis(-9223372036854775808)",
    "time_of_double": "SELECT to_timestamp(1e300), to_timestamp('NaN'::DOUBLE)",
    "date_bin_tiny": "SELECT date_bin(INTERVAL '1 nanosecond', ts, TIMESTAMP '1677-09-21') FROM hostile_rows",
    "date_bin_zero": "SELECT date_bin(INTERVAL '0 seconds', ts) FROM hostile_rows",
    "date_bin_negative": "SELECT date_bin(INTERVAL '-1 month', ts, TIMESTAMP '0001-01-01') FROM hostile_rows",
    "date_trunc_extreme": "SELECT date_trunc('millennium', TIMESTAMP '-290308-12-21')",
    "make_date": "SELECT make_date(2147483647, 12, 31), make_date(-2147483648, 1, 1)",
    "range_zero_step": "SELECT range(1, 10, 0)",
    "range_wrong_way": "SELECT array_length(range(9223372036854775807, -9223372036854775808, -1))",
    "series_zero_step": "SELECT count(*) FROM generate_series(1, 1000000, 0)",
    "series_ends": "SELECT count(*) FROM generate_series(-9223372036854775808, 9223372036854775807)",
    "series_last": "SELECT count(*) FROM generate_series(9223372036854775806, 9223372036854775807)",
    "series_times": "SELECT count(*) FROM generate_series(TIMESTAMP '1700-01-01', TIMESTAMP '2200-01-01', INTERVAL '1 microsecond')",
    "series_no_step": "SELECT count(*) FROM generate_series(TIMESTAMP '1700-01-01', TIMESTAMP '2200-01-01', INTERVAL '0 days')",
    "range_times": "SELECT array_length(range(DATE '0001-01-01', DATE '9999-12-31', INTERVAL '1 second'))",
    "chr": "SELECT chr(0), chr(-1), chr(1114112), chr(2147483647)",
    "gcd": "SELECT gcd(-9223372036854775808, 0), lcm(9223372036854775807, 9223372036854775806)",
    "abs": "SELECT abs(-9223372036854775808), -(-9223372036854775808)",
    "modulo": "SELECT -9223372036854775808 % -1, -9223372036854775808 / -1",
    "shift": "SELECT 1 << 64, 1 << -1, 1 >> 9223372036854775807",
    "substr_ends": "SELECT substr('abc', -9223372036854775808, 9223372036854775807)",
    "substr_far": "SELECT substr('abc', 9223372036854775807, 9223372036854775807)",
    "left_right": "SELECT left('abc', -9223372036854775808), right('abc', -9223372036854775808)",
    "overlay_far": "SELECT overlay('abc' PLACING 'x' FROM 9223372036854775807 FOR -9223372036854775808)",
    "repeat_negative": "SELECT repeat('x', -9223372036854775808), lpad('x', -1), split_part('a', 'a', -9223372036854775808)",
    "nth_value_far": "SELECT nth_value(k, 9223372036854775807) OVER (ORDER BY k) FROM hostile_rows",
    "lag_far": "SELECT lag(k, 9223372036854775807) OVER (ORDER BY k), lead(k, -9223372036854775808) OVER (ORDER BY k) FROM hostile_rows",
    "ntile_zero": "SELECT ntile(0) OVER (ORDER BY k) FROM hostile_rows",
    "ntile_far": "SELECT ntile(9223372036854775807) OVER (ORDER BY k) FROM hostile_rows",
    "rows_far": "SELECT sum(k) OVER (ORDER BY k ROWS BETWEEN 9223372036854775807 PRECEDING AND 9223372036854775807 FOLLOWING) FROM hostile_rows",
    "range_far": "SELECT sum(k) OVER (ORDER BY k RANGE BETWEEN 9223372036854775807 PRECEDING AND CURRENT ROW) FROM hostile_rows",
    "sliding_max": "SELECT max(c) FROM (SELECT max(s) OVER (ORDER BY k ROWS BETWEEN 30000 PRECEDING AND CURRENT ROW) c FROM hostile_rows) t",
    "sliding_median": "SELECT max(c) FROM (SELECT median(k) OVER (ORDER BY k ROWS BETWEEN 30000 PRECEDING AND CURRENT ROW) c FROM hostile_rows) t",
    "sliding_arrays": "SELECT max(array_length(c)) FROM (SELECT array_agg(k) OVER (ORDER BY k) c FROM hostile_rows) t",
    "sliding_texts": "SELECT max(length(c)) FROM (SELECT string_agg(s, ',') OVER (ORDER BY k) c FROM hostile_rows) t",
    "sliding_distinct": "SELECT max(c) FROM (SELECT count(DISTINCT n) OVER (ORDER BY k) c FROM hostile_rows) t",
    "percentile_outside": "SELECT approx_percentile_cont(k, 7), approx_percentile_cont(k, 'NaN'::DOUBLE) FROM hostile_rows",
    "percentile_centroids": "SELECT approx_percentile_cont(k, 0.5, 2000000000) FROM hostile_rows",
    "fixed_binary": "SELECT arrow_cast('x', 'FixedSizeBinary(2147483647)')",
    "fixed_list": "SELECT arrow_cast(NULL, 'FixedSizeList(2147483647, Int64)')",
    "arrow_type_depth": "SELECT arrow_cast(NULL, '" + "List(" * 3000 + "Int64" + ")" * 3000 + "')",
    "arrow_type_garbage": "SELECT arrow_cast(1, '" + "Struct(a " * 200 + "')",
    "arrow_dictionary": "SELECT arrow_cast('x', 'Dictionary(Int8, Dictionary(Int8, Utf8))')",
    "arrow_union": "SELECT arrow_cast(repeat('x', 1000), 'RunEndEncoded(Int16, Utf8)')",
    "char_length": "SELECT CAST('x' AS CHAR(2147483647)), CAST('x' AS VARCHAR(99999999999))",
    "array_slice_far": "SELECT array_slice([1, 2, 3], -9223372036854775808, 9223372036854775807, -9223372036854775808)",
    "array_element_far": "SELECT [1, 2][9223372036854775807], [1, 2][-9223372036854775808], [1, 2][1:9223372036854775807:0]",
    "array_repeat_negative": "SELECT array_repeat(1, -5), array_resize([1], -9223372036854775808)",
    "array_dimensions": "SELECT array_dims(array_repeat(array_repeat(array_repeat(1, 1000), 1000), 1000))",
    "cardinality_cross": "SELECT array_length(array_repeat(array_repeat(repeat('x', 1000), 1000), 10000))",
    "nan_sort": "SELECT count(*) FROM (SELECT k / 0.0 - k / 0.0 a FROM hostile_rows ORDER BY a) t",
    "float_text": "SELECT 1.7976931348623157e308::TEXT, 4.9e-324::TEXT, 1e400",
    "number_of_text": "SELECT '" + "9" * 100_000 + "'::BIGINT",
    "extract_epoch": "SELECT extract(epoch FROM TIMESTAMP '9999-12-31') * 1000000000000000000",
    "to_hex": "SELECT to_hex(-9223372036854775808), to_char(9223372036854775807, '" + "9" * 5000 + "')",
    "to_char_every_row": "SELECT max(length(to_char(ts, '" + "Month Day " * 2000 + "'))) FROM hostile_rows",
    "xxh3": "SELECT xxh3(repeat('x', 1000000000)), hash64(repeat('x', 1000000000))",
    "unnest_two": "SELECT count(*) FROM (SELECT unnest(range(0, 100000)) a, unnest(range(0, 100000000)) b) t",
    "unnest_nested": "SELECT count(*) FROM (SELECT unnest(unnest(array_repeat(range(0, 100000), 100000))) a) t",
    "unnest_by_row": "SELECT count(*) FROM (SELECT unnest(range(0, 1000000)) a FROM hostile_rows) t",
    "repeat_by_row": "SELECT sum(length(repeat(s, 100000))) FROM hostile_rows",
    "digest_by_row": "SELECT count(sha512(repeat(s, 10000))) FROM hostile_rows",
    "levenshtein_by_row": "SELECT sum(levenshtein(repeat(s, 1000), repeat(s, 1001))) FROM hostile_rows",
    "json_by_row": "SELECT max(length(json_build_object('a', repeat(s, 10000), s, v)::TEXT)) FROM hostile_rows",
    "time_zone": "SELECT now() AT TIME ZONE '" + "Europe/" * 10_000 + "Berlin'",
    "sleep": "SELECT pg_sleep(1000000)",
}


def kinds():
    return [*large(), *doubling(), *patterns(), *fixed("extreme", EXTREMES)]
