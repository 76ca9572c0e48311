"""Clients of HTTP and Arrow Flight against a running server: influxdb3-python, influxdb-client, ADBC
Flight SQL, pyarrow.flight, and plain requests for the forms of answers.

PARTITA_HTTP is the server's URL. Prints what failed, and 'N passed, M failed' at the end.
"""

import gzip
import json
import os
import re
import socket
import sys
import threading
import time
import traceback
import urllib.parse
import uuid

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import influxdb_client
import influxdb_client_3
import pyarrow as pa
import pyarrow.flight
import pyarrow.parquet
import requests
from adbc_driver_flightsql import DatabaseOptions
from influxdb_client.client.write_api import SYNCHRONOUS, WriteOptions
from influxdb_client.rest import ApiException
from influxdb_client_3.exceptions.exceptions import InfluxDBPartialWriteError

URL = os.environ["PARTITA_HTTP"].rstrip("/")
ADDRESS = urllib.parse.urlparse(URL)
GRPC = f"grpc://{ADDRESS.netloc}"
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def name(prefix="t"):
    """A name nobody else has."""
    return f"{prefix}_{uuid.uuid4().hex[:10]}"


def raises(error, function):
    try:
        function()
    except error as raised:
        return raised
    raise AssertionError(f"{error.__name__} was not raised")


def write(lines, database, path="/api/v2/write", status=204, headers=None, **parameters):
    key = "bucket" if "v2" in path else "db"
    body = lines if isinstance(lines, bytes) else lines.encode()
    response = requests.post(
        URL + path, params={key: database, **parameters}, data=body, headers=headers, timeout=60
    )
    assert response.status_code == status, (response.status_code, response.text)
    return response


def query(sql, database="public", **parameters):
    response = requests.post(
        f"{URL}/api/v3/query_sql", json={"db": database, "q": sql, **parameters}, timeout=60
    )
    assert response.status_code == 200, (response.status_code, response.text)
    return response.json()


def v1_sql(sql, database="public", **parameters):
    data = {"sql": sql, "db": database, **parameters}
    return requests.post(f"{URL}/v1/sql", data=data, timeout=60)


def run(sql, database="public"):
    response = v1_sql(sql, database)
    assert response.status_code == 200, (response.status_code, response.text)
    return response.json()


# --- forms of answers


@test
def status_endpoints():
    ping = requests.get(f"{URL}/ping", timeout=10)
    assert ping.status_code == 204 and ping.headers["X-Influxdb-Version"]
    assert requests.head(f"{URL}/ping", timeout=10).status_code == 204
    assert requests.get(f"{URL}/health", timeout=10).json()["status"] == "pass"
    assert requests.get(f"{URL}/ready", timeout=10).json()["status"] == "ready"
    assert requests.get(f"{URL}/v1/health", timeout=10).status_code == 200
    assert requests.get(f"{URL}/v1/influxdb/ping", timeout=10).status_code == 204
    assert requests.get(f"{URL}/status", timeout=10).json()["name"] == "Partita"


@test
def unknown_paths_and_methods():
    missing = requests.get(f"{URL}/query?q=SHOW+DATABASES", timeout=10)
    assert missing.status_code == 404 and "/query" in missing.json()["error"]
    missing = requests.get(f"{URL}/api/v2/nope", timeout=10)
    assert missing.json()["code"] == "not found"
    wrong = requests.get(f"{URL}/api/v2/write", timeout=10)
    assert wrong.status_code == 405 and wrong.json()["code"] == "method not allowed"
    for path in ["/api/v2/write", "/nope"]:
        preflight = requests.options(URL + path, timeout=10)
        assert preflight.status_code == 204
        foreign = requests.options(URL + path, headers={"Origin": "http://example.org"}, timeout=10)
        assert foreign.status_code == 403
        for answer in (preflight, foreign):
            assert "Access-Control-Allow-Origin" not in answer.headers


@test
def line_protocol_makes_databases_tables_and_columns():
    database = name("db")
    write("home,room=k t=1,n=2i,u=3u,s=\"x\",b=t 1700000000000000000", database)
    write("home,room=k,floor=1 t=2,extra=1 1700000001000000000", database)
    rows = query("SELECT * FROM home ORDER BY time", database)
    assert rows[0]["time"] == "2023-11-14T22:13:20", rows
    assert (rows[0]["t"], rows[0]["n"], rows[0]["u"], rows[0]["s"], rows[0]["b"]) == (1.0, 2, 3, "x", True)
    assert rows[1]["floor"] == "1" and "n" not in rows[1]
    assert query(f"SELECT count(*) AS n FROM {database}.home") == [{"n": 2}]
    types = query(
        "SELECT column_name, data_type FROM information_schema.columns "
        f"WHERE table_schema = '{database}' AND table_name = 'home'"
    )
    assert len(types) == 9, types


@test
def the_same_point_again_updates_its_fields():
    database = name("db")
    write("w,h=a x=24,y=7 1", database)
    write("w,h=a x=15 1", database)
    rows = query("SELECT x, y FROM w", database)
    assert rows == [{"x": 15.0, "y": 7.0}], rows
    # Tags that are absent are an identity of their own.
    write("m v=1 5\nm v=1 5\nm,a=x v=1 5", database)
    assert query("SELECT count(*) AS n FROM m", database) == [{"n": 2}]


@test
def all_write_endpoints_and_precisions():
    database = name("db")
    for path in ["/api/v2/write", "/v1/influxdb/api/v2/write"]:
        write("a v=1 1700000000", database, path, precision="s")
    for path in ["/write", "/v1/influxdb/write"]:
        write("b v=1 1700000000000", database, path, precision="ms")
    write("c v=1 1700000000000", database, "/api/v3/write_lp")
    write("c v=1 1700000000", database, "/api/v3/write_lp", precision="auto", no_sync="true")
    for table in "abc":
        rows = query(f"SELECT time FROM {table}", database)
        assert rows == [{"time": "2023-11-14T22:13:20"}], (table, rows)
    write("d v=1 1", database, "/write", rp="autogen")
    assert query("SELECT count(*) AS n FROM d", database) == [{"n": 1}]
    write("d v=1 1", database, "/write", rp="week")
    assert query("SELECT count(*) AS n FROM d", f"{database}/week") == [{"n": 1}]
    bad = write("d v=1 1", database, status=400, precision="fortnight")
    assert "fortnight" in bad.json()["message"]


@test
def partial_writes_store_the_good_lines():
    database = name("db")
    lines = "m v=1 1\nm v=oops 2\nm v=3 3\nm v=4i 4\n"
    v2 = write(lines, database, status=400).json()
    assert v2["code"] == "invalid" and v2["line"] == 2, v2
    assert "2 of 4" in v2["message"] and "line 4" in v2["message"], v2
    assert query("SELECT count(*) AS n FROM m", database) == [{"n": 2}]
    v1 = write("m v=x 1\nm v=2 9", database, "/write", status=400).json()
    assert v1["error"].startswith("partial write") and "dropped=1" in v1["error"], v1
    v3 = write("m v=x 1\nm v=2 10", database, "/api/v3/write_lp", status=400).json()
    assert v3["error"] == "partial write of line protocol occurred", v3
    assert v3["data"][0]["line_number"] == 1 and v3["data"][0]["original_line"] == "m v=x 1", v3
    assert query("SELECT count(*) AS n FROM m", database) == [{"n": 4}]


@test
def all_or_nothing_stores_nothing():
    database = name("db")
    write("m v=1 1", database)
    failed = write(
        "m v=2 2\nm v=x 3", database, "/api/v3/write_lp", status=400, accept_partial="false"
    ).json()
    assert failed["error"] == "line protocol parsing error", failed
    assert failed["data"]["line_number"] == 2, failed
    write("m v=2 2\nm v=x 3", database, status=400, accept_partial="false")
    assert query("SELECT count(*) AS n FROM m", database) == [{"n": 1}]


@test
def conflicting_columns_are_refused():
    database = name("db")
    message = lambda lines: write(lines, database, status=400).json()["message"]
    assert "host" in message("m,host=a host=1")
    assert "host" in message("m,host=a,host=b v=1")
    assert "multiple instances of 'v' field found" in message("m v=1,v=2")
    assert "time" in message("m,time=x v=1")
    assert "no fields" in message("m,a=x")
    write("m,host=a v=1 1", database)
    conflict = message("m host=2 2")
    assert "invalid column type for column 'host'" in conflict, conflict
    assert "expected iox::column_type::field::float, got iox::column_type::field::integer" in message(
        "m v=1i 2"
    )


@test
def the_column_limit_is_told():
    database = name("db")
    fields = ",".join(f"f{i}=1" for i in range(199))
    write(f"wide {fields} 1", database)
    over = write("wide one_more=1 2", database, status=422).json()
    assert "limit of 200 columns" in over["message"], over
    assert query("SELECT count(*) AS n FROM wide", database) == [{"n": 1}]


@test
def bodies_are_bounded_and_checked():
    database = name("db")
    line = b"m,t=a v=1 1\n"
    write(gzip.compress(line * 1000), database, headers={"Content-Encoding": "gzip"})
    assert query("SELECT count(*) AS n FROM m", database) == [{"n": 1}]
    bad = write(b"not gzip", database, status=400, headers={"Content-Encoding": "gzip"})
    assert "gzip" in bad.json()["message"]
    write(line, database, status=415, headers={"Content-Encoding": "br"})
    large = write(b"#" * (32 * 1024 * 1024 + 1), database, status=413)
    assert large.json()["message"] == "request too large"
    bomb = gzip.compress(b"#" * (64 * 1024 * 1024 + 1))
    write(bomb, database, status=413, headers={"Content-Encoding": "gzip"})
    write(b"m v=\"\xff\" 1", database, status=400)
    write(b"", database)
    write(line, "bad name", status=400)
    assert requests.post(f"{URL}/api/v2/write", data=line, timeout=10).status_code == 400


@test
def chunked_bodies_and_credentials_are_taken():
    database = name("db")
    chunks = iter([b"m v=1 1\nm v", b"=2 2\n", b"m v=3 3"])
    response = requests.post(
        f"{URL}/api/v2/write?bucket={database}", data=chunks, timeout=30,
        headers={"Authorization": "Token anything"},
    )
    assert response.status_code == 204, response.text
    assert query("SELECT count(*) AS n FROM m", database) == [{"n": 3}]
    requests.post(f"{URL}/write?db={database}&u=a&p=b", data="m v=4 4", auth=("a", "b"), timeout=30)
    assert query("SELECT count(*) AS n FROM m", database) == [{"n": 4}]


@test
def rows_go_into_tables_that_sql_made():
    table = name()
    run(
        f"CREATE TABLE {table} (host STRING, ts TIMESTAMP(3) TIME INDEX, v DOUBLE, n INT, "
        "PRIMARY KEY (host)) PARTITION BY HASH (host) PARTITIONS 4"
    )
    lines = "".join(f"{table},host=h{i} v={i},n={i}i {1700000000000 + i}\n" for i in range(100))
    write(lines, "public", precision="ms")
    rows = query(f"SELECT count(*) AS n, sum(n) AS s FROM {table}")
    assert rows == [{"n": 100, "s": 4950}], rows
    refused = write(f"{table},host=a,rack=r v=1 1\n{table} n=3000000000i 1", "public", status=400)
    assert "ALTER TABLE" in refused.json()["message"]
    assert "out of range" in refused.json()["message"]


@test
def concurrent_writers_of_new_columns_lose_nothing():
    database = name("db")
    failures = []

    def writer(number):
        for at in range(5):
            response = requests.post(
                f"{URL}/api/v2/write", params={"bucket": database}, timeout=60,
                data=f"m,w=w{number},t{number}=x f{number}_{at}=1,shared={at} {at + 1}",
            )
            if response.status_code != 204:
                failures.append(response.text)

    threads = [threading.Thread(target=writer, args=(number,)) for number in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failures, failures[:3]
    rows = query("SELECT count(*) AS n, count(shared) AS s FROM m", database)
    assert rows == [{"n": 30, "s": 30}], rows


@test
def query_formats():
    database = name("db")
    write("m,t=a v=1 1000000000\nm,t=b v=2.5,s=\"q,\\\"\" 2500000000", database)
    ask = lambda headers=None, **more: requests.get(
        f"{URL}/api/v3/query_sql", timeout=30, headers=headers,
        params={"db": database, "q": "SELECT t, time, v, s FROM m ORDER BY time", **more},
    )
    assert ask().json()[0] == {"t": "a", "time": "1970-01-01T00:00:01", "v": 1.0}
    lines = ask(format="jsonl").text.splitlines()
    assert json.loads(lines[1])["time"] == "1970-01-01T00:00:02.500", lines
    csv = ask(format="csv")
    assert csv.text.splitlines()[0] == "t,time,v,s" and csv.headers["content-type"] == "text/csv"
    assert ask({"Accept": "text/csv"}).text == csv.text
    assert ask(format="pretty").text.startswith("+")
    table = pyarrow.parquet.read_table(pa.BufferReader(ask(format="parquet").content))
    assert table.column("v").to_pylist() == [1.0, 2.5]
    assert ask(format="xml").status_code == 400


@test
def query_errors_and_parameters():
    database = name("db")
    write("m,host=a v=1 1\nm,host=b v=2 2", database)
    ask = lambda **body: requests.post(f"{URL}/api/v3/query_sql", json=body, timeout=30)
    assert ask(db=name(), q="SELECT 1").status_code == 404
    bad = ask(db=database, q="SELECT nope FROM m")
    assert bad.status_code == 400 and "nope" in bad.json()["error"]
    assert ask(db=database, q="SELEC 1").status_code == 400
    assert ask(q="SELECT 1").status_code == 400
    rows = query("SELECT v FROM m WHERE host = $h", database, params={"h": "a"})
    assert rows == [{"v": 1.0}], rows
    rows = query("SELECT v FROM m WHERE host = $h", database, params={"h": "a' OR '1'='1"})
    assert rows == [], rows
    rows = query("SELECT v FROM m WHERE v > $low AND v < $high", database, params={"low": 1, "high": 3.5})
    assert rows == [{"v": 2.0}], rows
    assert ask(db=database, q="SELECT $x", params={}).status_code == 400
    reads_only = requests.get(
        f"{URL}/api/v3/query_sql", params={"db": database, "q": "DROP TABLE m"}, timeout=30
    )
    assert reads_only.status_code == 405 and reads_only.headers["Allow"] == "POST"
    assert query("SELECT count(*) AS n FROM m", database) == [{"n": 2}]


@test
def large_results_stream():
    table = name()
    rows = query("SELECT value AS n FROM generate_series(1, 200000)")
    assert len(rows) == 200000 and rows[-1] == {"n": 200000}, (table, len(rows))


@test
def greptime_sql_endpoint():
    database = name("db")
    done = run(f"CREATE DATABASE {database}")
    assert "affectedrows" in done["output"][0], done
    run("CREATE TABLE t (ts TIMESTAMP(3) TIME INDEX, host STRING PRIMARY KEY, v DOUBLE)", database)
    done = run("INSERT INTO t VALUES (1000, 'a', 1.5), (2000, 'b', NULL)", database)
    assert done["output"] == [{"affectedrows": 2}], done
    answer = run("SELECT ts, host, v FROM t ORDER BY ts; SELECT count(*) AS n FROM t", database)
    records = answer["output"][0]["records"]
    assert records["rows"] == [[1000, "a", 1.5], [2000, "b", None]], records
    assert records["schema"]["column_schemas"][0] == {"name": "ts", "data_type": "TimestampMillisecond"}
    assert records["total_rows"] == 2 and answer["output"][1]["records"]["rows"] == [[2]]
    assert isinstance(answer["execution_time_ms"], int)
    failed = v1_sql("SELECT * FROM nope", database)
    assert failed.status_code == 400 and failed.json()["code"] == 4001, failed.text
    assert failed.headers["x-greptime-err-code"] == "4001"
    assert v1_sql("SELECT * FROM t", name()).json()["code"] == 4004
    assert v1_sql("SELECT v FROM t ORDER BY ts", database, format="csv").text == '1.5\n""\n'
    assert v1_sql("SELECT v FROM t ORDER BY ts", database, format="table").text.startswith("+")
    form = v1_sql("SELECT host FROM t ORDER BY ts", database, format="influxdb_v1").json()
    assert form["results"][0]["series"][0]["values"] == [["a"], ["b"]], form
    body = requests.post(f"{URL}/v1/sql", json={"sql": "SELECT $x AS x", "params": {"x": 7}}, timeout=30)
    assert body.json()["output"][0]["records"]["rows"] == [[7]], body.text
    run(f"DROP DATABASE {database}")


@test
def hints_shape_new_tables():
    database = name("db")
    headers = {"x-greptime-hint-append_mode": "true", "x-partita-hint-time_column": "ts"}
    write("m v=1 1\nm v=1 1", database, headers=headers)
    assert query("SELECT count(ts) AS n FROM m", database) == [{"n": 2}]
    unknown = write("m v=1 1", database, status=400, headers={"x-greptime-hints": "nope=1"})
    assert "nope" in unknown.json()["message"]


@test
def metrics_are_prometheus_text():
    write("m v=1", name("db"))
    text = requests.get(f"{URL}/metrics", timeout=10).text
    stored = re.search(r'^partita_line_protocol_lines_total\{outcome="stored"\} (\d+)', text, re.M)
    assert stored and int(stored[1]) > 0, text[:2000]
    for wanted in ["partita_http_requests_total", "partita_partitions ", "partita_frontend_rows_written_total"]:
        assert wanted in text, wanted
    assert text.endswith("# EOF\n")


@test
def half_a_request_harms_nobody():
    with socket.create_connection((ADDRESS.hostname, ADDRESS.port)) as half:
        half.sendall(b"POST /api/v2/write?bucket=x HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nm v=1")
    with socket.create_connection((ADDRESS.hostname, ADDRESS.port)) as odd:
        odd.sendall(b"PRI * HTTP/2.0\r\n")
    with socket.create_connection((ADDRESS.hostname, ADDRESS.port)) as odd:
        odd.sendall(b"\x00\x01\x02garbage\r\n\r\n")
        odd.settimeout(10)
        odd.recv(1000)
    assert requests.get(f"{URL}/ping", timeout=10).status_code == 204


# --- InfluxDB's clients


def influx3(database, **options):
    return influxdb_client_3.InfluxDBClient3(
        host=URL, database=database, token="anything", org="default", **options
    )


@test
def influxdb3_python_writes_and_queries():
    database = name("db")
    with influx3(database) as client:
        assert client.get_server_version()
        client.write([f"home,room=r{i % 2} temp={i},n={i}i {1700000000 + i}000000000" for i in range(10)])
        point = influxdb_client_3.Point("home").tag("room", "r 9").field("temp", 1.5).time(1700000100, "s")
        client.write(point)
        table = client.query("SELECT * FROM home ORDER BY time", language="sql")
        assert table.num_rows == 11 and table.column("room").to_pylist()[-1] == "r 9"
        frame = client.query("SELECT avg(temp) AS a FROM home WHERE room = 'r1'", mode="pandas")
        assert frame["a"].tolist() == [5.0], frame
        table = client.query(
            "SELECT n FROM home WHERE room = $room AND n > $n ORDER BY n",
            query_parameters={"room": "r0", "n": 5},
        )
        assert table.column("n").to_pylist() == [6, 8]
        raises(Exception, lambda: client.query("SELECT nope FROM home"))
        refused = raises(Exception, lambda: client.query("SELECT 1", language="influxql"))
        assert "influxql" in str(refused), refused


@test
def influxdb3_python_sees_partial_writes():
    database = name("db")
    options = influxdb_client_3.WriteOptions(
        write_type=influxdb_client_3.WriteType.synchronous, use_v2_api=False
    )
    with influx3(database, write_client_options={"write_options": options}) as client:
        error = raises(InfluxDBPartialWriteError, lambda: client.write("m v=1 1\nm v=x 2\n"))
        assert "line" in str(error), error
        table = client.query("SELECT count(*) AS n FROM m")
        assert table.column("n").to_pylist() == [1]


@test
def influxdb3_python_gzips_and_takes_frames():
    import pandas

    database = name("db")
    with influx3(database, enable_gzip=True) as client:
        frame = pandas.DataFrame(
            {
                "time": pandas.date_range("2024-01-01", periods=1000, freq="s"),
                "host": ["a", "b"] * 500,
                "v": [float(i) for i in range(1000)],
            }
        )
        client.write(
            frame, data_frame_measurement_name="frame", data_frame_tag_columns=["host"],
            data_frame_timestamp_column="time",
        )
        assert client.query("SELECT sum(v) AS s FROM frame").column("s").to_pylist() == [499500.0]


@test
def influxdb_client_writes_at_once_and_in_batches():
    database = name("db")
    with influxdb_client.InfluxDBClient(URL, token="t", org="o", enable_gzip=True) as client:
        assert client.ping() and client.health().status == "pass"
        assert client.ready().status == "ready"
        with client.write_api(write_options=SYNCHRONOUS) as api:
            api.write(database, record=influxdb_client.Point("m").tag("t", "é,= ").field("s", 'a"b\\\n').time(1))
        failures = []
        with client.write_api(
            write_options=WriteOptions(batch_size=100, flush_interval=200),
            error_callback=lambda config, data, error: failures.append(error),
        ) as api:
            for i in range(1000):
                api.write(database, record=f"batched,host=h{i % 7} v={i} {i + 1}")
        assert not failures, failures
        rows = query("SELECT count(*) AS n, sum(v) AS s FROM batched", database)
        assert rows == [{"n": 1000, "s": 499500.0}], rows
        rows = query("SELECT t, s FROM m", database)
        assert rows == [{"t": "é,= ", "s": 'a"b\\\n'}], rows
        with client.write_api(write_options=SYNCHRONOUS) as api:
            error = raises(Exception, lambda: api.write(database, record="m,t=x s=1 1"))
            assert "invalid column type" in str(error), error


@test
def influxdb_client_manages_organisations_buckets_and_tokens():
    org_name, bucket_name = name("org"), name("bucket")
    with influxdb_client.InfluxDBClient(URL, token="t", org=org_name) as client:
        org = client.organizations_api().create_organization(org_name)
        assert len(org.id) == 16, org
        buckets = client.buckets_api()
        rule = influxdb_client.BucketRetentionRules(type="expire", every_seconds=3600)
        bucket = buckets.create_bucket(bucket_name=bucket_name, retention_rules=rule)
        assert bucket.org_id == org.id and bucket.retention_rules[0].every_seconds == 3600, bucket
        error = raises(ApiException, lambda: buckets.create_bucket(bucket_name=bucket_name))
        assert error.status == 422, error
        bucket.retention_rules = []
        assert buckets.update_bucket(bucket).retention_rules == []
        assert buckets.find_bucket_by_name(bucket_name).id == bucket.id
        assert buckets.find_bucket_by_name(name()) is None

        tokens = client.authorizations_api()
        resource = influxdb_client.PermissionResource(type="buckets", id=bucket.id, org_id=org.id)
        permission = influxdb_client.Permission(action="write", resource=resource)
        made = tokens.create_authorization(org_id=org.id, permissions=[permission])
        with influxdb_client.InfluxDBClient(URL, token=made.token, org=org_name) as writer:
            with writer.write_api(write_options=SYNCHRONOUS) as api:
                api.write(bucket_name, record=["home,room=a v=1 1", "home,room=b v=1 1"])
                error = raises(ApiException, lambda: api.write("public", record="home v=1 1"))
                assert error.status in (403, 404), error
        client.delete_api().delete(
            "1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z", '_measurement="home" AND room="a"', bucket_name, org_name
        )
        assert query("SELECT room FROM home", bucket_name) == [{"room": "b"}]
        assert [token.id for token in tokens.find_authorizations_by_org(org)] == [made.id]
        tokens.delete_authorization(made)
        assert tokens.find_authorizations_by_org(org) == []
        buckets.delete_bucket(bucket)
        client.organizations_api().delete_organization(org.id)


@test
def influxdb_client_makes_explicit_schemas():
    bucket_name = name("bucket")
    with influxdb_client.InfluxDBClient(URL, token="t", org="o") as client:
        org = client.organizations_api().create_organization(name("org"))
        wanted = influxdb_client.PostBucketRequest(
            org_id=org.id, name=bucket_name, retention_rules=[], schema_type="explicit"
        )
        bucket = client.buckets_api().create_bucket(bucket=wanted)
        assert bucket.schema_type == "explicit", bucket
        columns = [("time", "timestamp", None), ("sensor_id", "tag", None), ("co", "field", "float")]
        columns = [influxdb_client.MeasurementSchemaColumn(*column) for column in columns]
        wanted = influxdb_client.MeasurementSchemaCreateRequest(name="air", columns=columns)
        schemas = influxdb_client.BucketSchemasService(client.api_client)
        made = schemas.create_measurement_schema(bucket.id, wanted)
        listed = schemas.get_measurement_schemas(bucket.id).measurement_schemas
        assert [schema.id for schema in listed] == [made.id], listed
    write("air,sensor_id=T co=1 1", bucket_name)
    refused = write("other v=1 1\nair,sensor_id=T co=2 2", bucket_name, status=400).json()
    assert "not allowed by schema" in refused["message"], refused
    refused = write('air,sensor_id=T co="x" 3', bucket_name, status=400).json()
    assert "got String but expected Float" in refused["message"], refused
    assert query("SELECT count(*) AS n FROM air", bucket_name) == [{"n": 2}]


# --- ADBC Flight SQL


def flight_sql(database="public"):
    header = DatabaseOptions.RPC_CALL_HEADER_PREFIX.value + "database"
    return adbc.connect(GRPC, db_kwargs={header: database}, autocommit=True)


@test
def adbc_queries_and_updates():
    table = name()
    with flight_sql() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, s STRING, b BINARY)")
        cursor.execute(f"INSERT INTO {table} VALUES (1, 'a', X'00FF'), (2, NULL, NULL)")
        cursor.execute(f"SELECT * FROM {table} ORDER BY id")
        assert cursor.description[1][0] == "s"
        assert cursor.fetchall() == [(1, "a", b"\x00\xff"), (2, None, None)]
        cursor.execute(f"SELECT * FROM {table}")
        result = cursor.fetch_arrow_table()
        assert result.schema.field("s").type == pa.string(), result.schema
        error = raises(adbc_driver_manager.Error, lambda: cursor.execute("SELECT * FROM there_is_none"))
        assert "there_is_none" in str(error), error
        raises(adbc_driver_manager.Error, lambda: cursor.execute("SELEC 1"))
        assert cursor.adbc_execute_schema(f"SELECT id FROM {table}").names == ["id"]
        # The optimizer finds that these have no NULL; the driver compares their rows with the schema from before.
        for sql, row in (("SELECT current_user", ("partita",)), ("SELECT upper('a'), nullif(1, 2)", ("A", 1)),
                         (f"SELECT b.id FROM {table} a LEFT JOIN {table} b ON a.id = b.id WHERE b.id > 1", (2,))):
            cursor.execute(sql)
            assert cursor.fetchall() == [row], sql


@test
def adbc_prepares_and_binds():
    table = name()
    with flight_sql() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, s STRING)")
        cursor.executemany(f"INSERT INTO {table} VALUES ($1, $2)", [(i, f"s{i}") for i in range(100)])
        cursor.execute(f"SELECT s FROM {table} WHERE id = $1", (42,))
        assert cursor.fetchall() == [("s42",)]
        cursor.execute(f"SELECT count(*) FROM {table} WHERE id < $1 AND s <> $2", (50, "s7"))
        assert cursor.fetchone() == (49,)
        schema = cursor.adbc_prepare(f"SELECT s FROM {table} WHERE id = $1")
        assert len(schema) == 1, schema
        # Values that are NULL, for some rows and for all.
        cursor.executemany(f"INSERT INTO {table} VALUES ($1, $2)", [(200, None), (201, "x"), (202, None)])
        cursor.execute(f"INSERT INTO {table} VALUES ($1, $2)", (203, None))
        cursor.execute(f"SELECT id FROM {table} WHERE id >= $1 AND s IS NULL ORDER BY id", (200,))
        assert cursor.fetchall() == [(200,), (202,), (203,)]
        cursor.execute(f"SELECT count(*) FROM {table} WHERE s = $1", (None,))
        assert cursor.fetchone() == (0,)


@test
def adbc_ingests():
    table = name()
    rows = pa.table({"id": list(range(10000)), "s": [f"x{i}" for i in range(10000)]})
    with flight_sql() as connection, connection.cursor() as cursor:
        assert cursor.adbc_ingest(table, rows, mode="create") == 10000
        assert cursor.adbc_ingest(table, rows.slice(0, 5), mode="append") == 5
        cursor.execute(f"SELECT count(*), sum(id) FROM {table}")
        assert cursor.fetchone() == (10005, 49995000 + 10)
        raises(adbc_driver_manager.Error, lambda: cursor.adbc_ingest(table, rows, mode="create"))
        cursor.adbc_ingest(table, rows.slice(0, 3), mode="replace")
        cursor.execute(f"SELECT count(*) FROM {table}")
        assert cursor.fetchone() == (3,)


@test
def adbc_reads_the_catalog():
    database = name("db")
    write("home,room=k t=1 1", database)
    with flight_sql(database) as connection:
        info = connection.adbc_get_info()
        assert info["vendor_name"] == "Partita", info
        objects = connection.adbc_get_objects(db_schema_filter=database, depth="all").read_all().to_pylist()
        schemas = objects[0]["catalog_db_schemas"]
        table = schemas[0]["db_schema_tables"][0]
        assert table["table_name"] == "home", objects
        names = [column["column_name"] for column in table["table_columns"]]
        assert sorted(names) == ["room", "t", "time"], names
        assert connection.adbc_get_table_types() == ["TABLE"]
        assert connection.adbc_get_table_schema("home", db_schema_filter=database).names == names
        with connection.cursor() as cursor:
            cursor.execute("SELECT room FROM home")
            assert cursor.fetchall() == [("k",)]


# --- plain Flight


@test
def flight_takes_bulk_rows():
    table = name()
    run(f"CREATE TABLE {table} (host STRING, ts TIMESTAMP(3) TIME INDEX, v DOUBLE, PRIMARY KEY (host))")
    client = pyarrow.flight.connect(GRPC)
    schema = pa.schema([("host", pa.string()), ("ts", pa.timestamp("ms")), ("v", pa.float64())])
    writer, reader = client.do_put(pyarrow.flight.FlightDescriptor.for_path("public", table), schema)
    for start in range(0, 3000, 1000):
        ids = range(start, start + 1000)
        writer.write_batch(
            pa.record_batch([[f"h{i}" for i in ids], pa.array(ids, pa.timestamp("ms")), [float(i) for i in ids]], schema=schema)
        )
        assert reader.read().to_pybytes() == b"1000"
    writer.close()
    assert query(f"SELECT count(*) AS n, sum(v) AS s FROM {table}") == [{"n": 3000, "s": 4498500.0}]
    writer, _ = client.do_put(pyarrow.flight.FlightDescriptor.for_path(name()), schema)
    raises(pa.ArrowException, lambda: (writer.done_writing(), writer.close()))
    bad = pa.schema([("nope", pa.string())])
    writer, reader = client.do_put(pyarrow.flight.FlightDescriptor.for_path(table), bad)

    def put():
        writer.write_batch(pa.record_batch([["x"]], schema=bad))
        writer.done_writing()
        reader.read()
        writer.close()

    error = raises(pa.ArrowException, put)
    assert "nope" in str(error), error


@test
def flight_answers_json_tickets():
    client = pyarrow.flight.connect(GRPC)
    ticket = json.dumps({"database": "public", "sql_query": "SELECT 'x' AS s, 1 AS n", "query_type": "sql"})
    table = client.do_get(pyarrow.flight.Ticket(ticket)).read_all()
    assert table.to_pylist() == [{"s": "x", "n": 1}] and table.schema.field("s").type == pa.string()
    missing = json.dumps({"database": name(), "sql_query": "SELECT 1", "query_type": "sql"})
    raises(pa.ArrowKeyError, lambda: client.do_get(pyarrow.flight.Ticket(missing)).read_all())
    raises(pa.ArrowInvalid, lambda: client.do_get(pyarrow.flight.Ticket(b"{")).read_all())


def main():
    wanted = sys.argv[1:]
    passed = failed = 0
    for function in TESTS:
        if wanted and function.__name__ not in wanted:
            continue
        began = time.monotonic()
        try:
            function()
            passed += 1
        except Exception:
            failed += 1
            print(f"-- {function.__name__} failed after {time.monotonic() - began:.1f} s")
            traceback.print_exc(limit=-4, file=sys.stdout)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
