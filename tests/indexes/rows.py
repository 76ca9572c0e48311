"""The rows that are measured: lines of a log, made by DuckDB from their numbers alone.

```text
  number ── hash ──> a row ──> rows.parquet ──> Partita, ClickHouse, DuckDB
                                          └──> bodies of line protocol
```

| column | values | index |
|---|---|---|
| host, ts | the key: 100 hosts, each with a row a second | |
| code | 1,000 values, as frequent as each other | inverted |
| request_id | 16 hexadecimal digits, others in each row | skipping |
| size | a number | |
| message | eight words, whose frequencies differ as in a language; some rows have a ninth one, which is asked for | fulltext |
"""

import hashlib
import pathlib

import report

HOSTS = 100
CODES = 1_000
VOCABULARY = 30_000
WORDS_OF_MESSAGE = 8
# 2026-01-01, in milliseconds since 1970.
FIRST_MS = 1_767_225_600_000
# Words that are asked for: so many rows, about, have each word of a group.
TERM_ROWS = (5, 50, 500)
TERMS = 21
LINES_PER_BODY = 5_000

SYLLABLES = [consonant + vowel for consonant in "bcdfghjklmnpqrstvwxz" for vowel in "aeiou"]


def word(number):
    """The word of a number below a million. All have six letters, so no word is a part of another one."""
    scattered = number * 7919 % len(SYLLABLES) ** 3
    return "".join(SYLLABLES[scattered // len(SYLLABLES) ** place % len(SYLLABLES)] for place in range(3))


def terms(rows_each):
    """The words of a group. They are not in the vocabulary."""
    first = VOCABULARY + TERM_ROWS.index(rows_each) * TERMS
    return [word(number) for number in range(first, first + TERMS)]


def codes(count):
    return [f"c{number * 37 % CODES:04}" for number in range(count)]


def request_ids(rows, count):
    """Ids of rows that are spread over all of them."""
    return [hashlib.md5(str(rows * number // count).encode()).hexdigest()[:16] for number in range(count)]


def literals(texts):
    return "[" + ", ".join(f"'{text}'" for text in texts) + "]"


def select(rows, burst):
    """The query that makes the rows; `burst` rows of a host have the same code, one after the other."""
    # The logarithm of a word's rank is evenly distributed.
    words = ", ".join(
        f"getvariable('vocabulary')[floor({VOCABULARY} ** ((hash(n, {place}) >> 11)::DOUBLE / {2**53}))::BIGINT]"
        for place in range(WORDS_OF_MESSAGE))
    # Each group takes as many places as its words have rows.
    cases, first = [], 0
    for rows_each in TERM_ROWS:
        end = first + rows_each * TERMS
        cases.append(f"WHEN place < {end} THEN ' ' || {literals(terms(rows_each))}[1 + (place - {first}) // {rows_each}]")
        first = end
    return f"""
        SELECT printf('host_%02d', n % {HOSTS}) AS host,
            make_timestamp_ms({FIRST_MS} + n // {HOSTS} * 1000)::TIMESTAMP_MS AS ts,
            printf('c%04d', (hash(n % {HOSTS}, n // {HOSTS} // {burst}, 'code') % {CODES})::BIGINT) AS code,
            md5(n::VARCHAR)[:16] AS request_id,
            (hash(n, 'size') % 100000)::BIGINT AS size,
            concat_ws(' ', {words}) || CASE {" ".join(cases)} ELSE '' END AS message
        FROM (SELECT range AS n, (hash(range, 'term') % {rows})::BIGINT AS place FROM range({rows}))"""


def connect():
    # What only makes lines of text needs no DuckDB.
    import duckdb
    connection = duckdb.connect()
    connection.execute(f"SET VARIABLE vocabulary = {literals(map(word, range(VOCABULARY)))}")
    return connection


def parquet(folder, rows, burst):
    """The Parquet file of the rows in a folder, made if it is missing."""
    query = select(rows, burst)
    path = pathlib.Path(folder) / f"rows-{hashlib.sha256(query.encode()).hexdigest()[:12]}.parquet"
    if not path.exists():
        report.progress(f"making {rows:,} rows")
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        with connect() as connection:
            connection.execute(f"COPY ({query}) TO '{part}' (FORMAT parquet)")
        part.rename(path)
    return path


def bodies(path, rows):
    """The first rows of a Parquet file as bodies of line protocol, with times in milliseconds."""
    with connect() as connection:
        lines = connection.execute(f"""
            SELECT 'logs,host=' || host || ' code="' || code || '",request_id="' || request_id || '",size=' || size
                || 'i,message="' || message || '" ' || epoch_ms(ts)
            FROM '{path}' LIMIT {rows}""")
        made = []
        while some := lines.fetchmany(LINES_PER_BODY):
            made.append("\n".join(line for (line,) in some).encode())
    return made
