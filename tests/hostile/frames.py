"""Messages as no driver would send them: PostgreSQL's, HTTP's, line protocol, Flight's commands. All are bytes."""

import json
import struct
import urllib.parse

import mutate
import pgwire
from doors import field, flight_sql, statement_query

COUNTS = (-1, 0, 1, 2, 100, 32767, -32768)
LENGTHS = (-(2**31), -1, 0, 1, 3, 4, 5, 100, 65536, 2**30, 2**31 - 1)
KINDS = b"QPBDECHSFXdcfp\x00\xff?"


def framed(kind, length, body):
    return kind + struct.pack("!i", length) + body


def bind_wrong(dice):
    """A Bind whose counts, lengths and formats do not fit."""
    count = dice.choice(COUNTS)
    body = dice.choice((b"\0\0", b"portal\0\0", b"\0none\0", b"\0"))
    body += struct.pack("!h", dice.choice(COUNTS)) + b"".join(struct.pack("!h", dice.choice((0, 1, 2, -1))) for _ in range(2))
    body += struct.pack("!h", count)
    for _ in range(dice.randint(0, 3)):
        value = dice.choice((b"", b"1", b"\xff\xfe", b"\0" * 8, b"9" * 400, b"NaN", b"{1,2}"))
        body += struct.pack("!i", dice.choice((len(value), *LENGTHS))) + value
    return pgwire.message(b"B", body + struct.pack("!h", dice.choice(COUNTS)))


def pieces(dice, statement):
    """Functions that make one message each."""
    types = [dice.choice((0, 16, 20, 23, 25, 701, 1114, 1184, 1700, 2950, 3802, -1, 2**31 - 1)) for _ in range(dice.randint(0, 4))]
    return (
        lambda: pgwire.query(statement),
        lambda: pgwire.parse(statement, b"", types),
        lambda: pgwire.parse(statement, b"p1", types),
        lambda: pgwire.parse("SELECT $1, $2::BIGINT, $3::TIMESTAMP", b"", types),
        lambda: pgwire.bind([b"1", None, b"x"]),
        lambda: bind_wrong(dice),
        lambda: bind_wrong(dice),
        pgwire.describe_portal,
        lambda: pgwire.message(b"D", dice.choice((b"", b"S", b"P", b"X\0", b"Sp1\0", b"S\xff\0"))),
        lambda: pgwire.execute(dice.choice((0, 1, -1, 2**31 - 1))),
        lambda: pgwire.message(b"E", dice.choice((b"", b"\0", b"none\0\0\0\0\0", b"\0\0\0"))),
        lambda: pgwire.message(b"C", dice.choice((b"", b"S\0", b"Pnone\0", b"Z"))),
        pgwire.sync,
        pgwire.sync,
        lambda: pgwire.message(b"H", b""),
        lambda: pgwire.message(b"d", dice.choice((b"", b"1\t2\t3\n", b"\xff" * 20, b"PGCOPY\n\xff\r\n\0"))),
        lambda: pgwire.message(b"c", b""),
        lambda: pgwire.message(b"f", dice.choice((b"", b"why\0"))),
        lambda: pgwire.message(b"F", struct.pack("!ihhi", 1, 0, 1, -1)),
        lambda: pgwire.query("COPY t0 FROM STDIN" + dice.choice(("", " WITH (FORMAT csv)", " WITH (FORMAT binary)"))),
        lambda: framed(dice.choice((b"Q", b"P", b"B", b"E", b"d")), dice.choice(LENGTHS), dice.randbytes(dice.randint(0, 30))),
        lambda: framed(bytes([dice.choice(KINDS)]), 4 + 5, b"12345"),
        lambda: pgwire.message(b"Q", dice.choice((b"", b"SELECT 1", b"\0\0", b"SELECT '\xff'\0", b"SELECT 'a\0b'\0"))),
        lambda: pgwire.message(b"p", b"secret\0"),
        lambda: pgwire.message(b"X", b""),
    )


def postgres(dice, statement):
    """Messages of a session that has begun."""
    data = b"".join(dice.choice(pieces(dice, statement))() for _ in range(dice.randint(1, 8)))
    return mutate.spoil(dice, data) if dice.random() < 0.3 else data


def postgres_start(dice):
    """What comes first on a connection."""
    options = {"user": "partita", "database": dice.choice(("public", "none", "x" * 5000)), "options": "-c statement_timeout=1"}
    made = dice.choice((
        lambda: pgwire.startup(**options),
        lambda: struct.pack("!ii", 8, 80877103),
        lambda: struct.pack("!ii", 8, 80877104),
        lambda: struct.pack("!iiii", 16, 80877102, dice.randint(0, 2**31 - 1), dice.randint(0, 2**31 - 1)),
        lambda: struct.pack("!ii", dice.choice(LENGTHS), 196608) + dice.randbytes(20),
        lambda: struct.pack("!ii", 9, dice.choice((131072, 196609, 0, -1))) + b"\0",
        lambda: b"GET / HTTP/1.1\r\n\r\n",
        lambda: dice.randbytes(dice.randint(1, 200)),
    ))()  # fmt: skip
    return mutate.spoil(dice, made + pgwire.query("SELECT 1")) if dice.random() < 0.5 else made


def line_protocol(dice):
    def name():
        return dice.choice(("m0", "m1", "m2", "m\\ 3", "m\\,4", '"m5"', "ö", "m6"))

    def value():
        return dice.choice((
            "1", "-1.5e300", "1i", "9223372036854775808i", "18446744073709551616u", "t", "False", '"text"', '"a\\"b"', "NaN", "1e400",
            '""', "0x1", '"' + "y" * 70_000 + '"', "1" * 400,
        ))  # fmt: skip

    def tag():
        return "," + dice.choice(("a", "b", "time", "c d")) + "=" + dice.choice(("x", "", "y\\ z", "é"))

    def line():
        tags = "".join(tag() for _ in range(dice.randint(0, 3)))
        fields = ",".join(f"f{dice.randint(0, 12)}={value()}" for _ in range(dice.randint(0, 4)))
        return f"{name()}{tags} {fields} {dice.choice(('', '1', '-1', '9223372036854775807', '1e18', 'x', '99999999999999999999'))}"

    data = "\n".join(line() for _ in range(dice.choice((1, 3, 50)))).encode()
    return mutate.spoil(dice, data) if dice.random() < 0.7 else data


def http_request(dice, statement):
    """A whole request, as bytes on a socket."""
    quoted = urllib.parse.quote(statement)[:6000]
    body = dice.choice((b"", b"m v=1", json.dumps({"db": "public", "q": statement}).encode()[:5000], b"{" * 3000, b"[" * 3000))
    path = dice.choice((
        f"/api/v3/query_sql?db=public&q={quoted}&format={dice.choice(('json', 'csv', 'jsonl', 'pretty', 'parquet', 'x'))}",
        f"/api/v3/query_sql?q={quoted}", f"/v1/sql?sql={quoted}&db=public&limit=-1", "/api/v2/write?bucket=lp&precision=%ff",
        "/write?db=lp&precision=ns", "/health", "/metrics", "/v1/heatmap.json?table=t0&from=-1&to=9e99&rows=99999999&columns=0",
        "/v1/heatmap.png?table=t0&width=999999999&height=999999999", "/v1/heatmap.svg?table=%00", "/v1/tables.json", "/heatmap",
        "/" + "a" * 20_000, "/%2e%2e/%00", "*", "http://elsewhere/",
    ))  # fmt: skip
    headers = dice.choice((
        f"Content-Length: {len(body)}", "Content-Length: -1", "Content-Length: 99999999999999999999", "Transfer-Encoding: chunked",
        f"Content-Length: {len(body)}\r\nContent-Encoding: gzip", f"Content-Length: {len(body)}\r\nContent-Type: application/json",
        "Expect: 100-continue\r\nContent-Length: 5", "Upgrade: h2c\r\nConnection: Upgrade", "X: " + "y" * 70_000,
    ))  # fmt: skip
    method = dice.choice(("GET", "POST", "PUT", "HEAD", "OPTIONS", "CONNECT", "\xff"))
    data = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{headers}\r\n\r\n".encode("latin-1", "replace") + body
    return mutate.spoil(dice, data) if dice.random() < 0.5 else data


def http_json(dice, statement):
    """A body of SQL over HTTP."""
    deep = dice.choice((10, 200, 100_000))
    data = dice.choice((
        lambda: json.dumps({"db": "public", "q": statement, "params": {"1": dice.choice((1, None, "x", [1], 1e308))}}).encode(),
        lambda: b'{"db":"public","q":"SELECT 1","params":' + b"[" * deep + b"]" * deep + b"}",
        lambda: b'{"a":' * deep + b"1" + b"}" * deep,
        lambda: b'{"db":"public","q":"SELECT $x","params":{"x":' + b"9" * deep + b"}}",
        lambda: b'{"db":"public","q":"' + statement.encode("utf-8", "replace") + b'"}',
    ))()  # fmt: skip
    return mutate.spoil(dice, data) if dice.random() < 0.5 else data


def flight_bytes(dice, statement):
    """A ticket or a command."""
    text = statement.encode("utf-8", "replace")
    deep = dice.choice((10, 100, 5000))
    nested = field(2, b"x")
    for _ in range(deep):
        nested = field(2, nested)
    command = dice.choice((
        "CommandGetTables", "CommandGetDbSchemas", "CommandGetCatalogs", "CommandGetSqlInfo", "CommandPreparedStatementQuery",
        "CommandStatementUpdate", "CommandGetXdbcTypeInfo", "CommandGetPrimaryKeys", "TicketStatementQuery", "CommandStatementIngest",
        "CommandStatementSubstraitPlan", "CommandGetCrossReference", "Nothing",
    ))  # fmt: skip
    data = dice.choice((
        lambda: json.dumps({"database": "public", "sql_query": statement, "query_type": dice.choice(("sql", "influxql", 7))}).encode(),
        lambda: statement_query(text),
        lambda: flight_sql(command, field(dice.randint(1, 6), text)),
        lambda: flight_sql(command, dice.randbytes(dice.randint(0, 60))),
        lambda: flight_sql(command, nested),
        lambda: b'{"database":' + b"[" * deep,
        lambda: dice.randbytes(dice.randint(0, 200)),
    ))()  # fmt: skip
    return mutate.spoil(dice, data) if dice.random() < 0.5 else data
