"""Two customers that must not see each other: in one bucket by tokens with a row predicate, in two buckets, and in two
organisations. Each tries to read, write, list, count, explain and guess what is the other's, over PostgreSQL, HTTP, Arrow
Flight and Flight SQL. Whole answers are compared with those about what does not exist: any difference shows that it does.

PARTITA_BIN is the server's binary. Prints what failed, and 'N passed, M failed' at the end.
"""

import json
import re
import sys

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import psycopg
import pyarrow as pa
import pyarrow.flight
import requests
from adbc_driver_flightsql import DatabaseOptions

import secured

TESTS = []
SERVER = None
ROOT = None
PASSWORD = "a good password"
# What is in each row of the other customer, and in no answer. Names of the customers have the same length as names of
# nothing: positions in errors are equal then.
SECRET = "umbr-secret"
NUMBER = 773109317
OTHER, NOTHING = "umbr", "qqqq"


def test(function):
    TESTS.append(function)
    return function


class Tenant:
    """A client at every port: by a token, or by a role with a token of all its rights."""

    def __init__(self, user, password, token, database):
        self.user, self.password, self.token, self.database = user, password, token, database
        self.http = requests.Session()
        self.flight = pyarrow.flight.connect(SERVER.grpc, tls_root_certs=SERVER.roots())
        self.call = pyarrow.flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
        self.session = SERVER.connect(user=user, password=password, dbname=database)
        self.notices = []
        self.session.add_notice_handler(lambda notice: self.notices.append(fields(notice)))
        self.adbc = adbc.connect(SERVER.grpc, autocommit=True, db_kwargs={
            DatabaseOptions.TLS_ROOT_CERTS.value: SERVER.roots(),
            DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {token}",
            DatabaseOptions.RPC_CALL_HEADER_PREFIX.value + "database": database})

    def close(self):
        self.session.close()
        self.adbc.close()
        self.flight.close()
        self.http.close()

    # --- a statement at each port; the answer as a text

    def postgres(self, sql, prepare=False):
        self.notices.clear()
        try:
            if copied := re.match(r"COPY .* TO STDOUT", sql):
                with self.session.cursor().copy(copied[0]) as copy:
                    answer = b"".join(copy).decode()
            else:
                cursor = self.session.execute(sql, prepare=prepare or None)
                answer = [cursor.statusmessage, cursor.fetchall() if cursor.description else None]
        except psycopg.Error as error:
            answer = fields(error.diag)
            if self.session.closed:
                raise
        return str((answer, self.notices))

    def prepared(self, sql):
        return self.postgres(sql, prepare=True)

    def query_sql(self, sql):
        return self.request("POST", "/api/v3/query_sql", json={"db": self.database, "q": sql})

    def v1_sql(self, sql):
        return self.request("POST", "/v1/sql", data={"db": self.database, "sql": sql})

    def ticket(self, sql, database=None):
        text = json.dumps({"database": database or self.database, "sql_query": sql, "query_type": "sql"})
        try:
            return str(self.flight.do_get(pyarrow.flight.Ticket(text), self.call).read_all().to_pylist())
        except pa.ArrowException as error:
            return steady(f"{type(error).__name__} {error} {error.__dict__}")
        except KeyError as error:
            # Of NOT_FOUND.
            return steady(f"{type(error).__name__} {error}")

    def flight_sql(self, sql):
        with self.adbc.cursor() as cursor:
            try:
                cursor.execute(sql)
                return str(cursor.fetchall())
            except adbc_driver_manager.Error as error:
                details = sorted(detail for detail in error.details if detail[0] != b"date")
                return steady(f"{error} {error.status_code} {error.sqlstate} {details}")

    STATEMENTS = (postgres, prepared, query_sql, v1_sql, ticket, flight_sql)

    # --- other calls

    def request(self, method, path, **options):
        response = SERVER.request(method, path, self.token, session=self.http, **options)
        headers = {name: value for name, value in response.headers.items()
                   if name.lower() not in ("date", "x-greptime-execution-time")}
        if response.headers.get("content-type", "").startswith("image/"):
            return str((response.status_code, headers))
        headers.pop("content-length", None)
        text = re.sub(r'"execution_time_ms":\d+', "", response.text)
        return str((response.status_code, headers, text))

    def connect(self, database):
        try:
            with SERVER.connect(user=self.user, password=self.password, dbname=database):
                return "connected"
        except psycopg.OperationalError as error:
            return str(error)

    def put(self, *path):
        schema = pa.schema([("n", pa.int64())])
        descriptor = pyarrow.flight.FlightDescriptor.for_path(*path)
        try:
            writer, reader = self.flight.do_put(descriptor, schema, self.call)
            with writer:
                writer.write_batch(pa.record_batch([[1]], schema=schema))
                writer.done_writing()
                return str(reader.read())
        except (pa.ArrowException, KeyError) as error:
            return steady(f"{type(error).__name__} {error}")

    def ingest(self, database, table):
        with self.adbc.cursor() as cursor:
            try:
                rows = pa.table({"n": [1]})
                return str(cursor.adbc_ingest(table, rows, mode="append", db_schema_name=database))
            except adbc_driver_manager.Error as error:
                return steady(f"{error} {error.status_code} {error.sqlstate}")

    def objects(self, database, table):
        found = self.adbc.adbc_get_objects(depth="all", db_schema_filter=database, table_name_filter=table)
        try:
            schema = str(self.adbc.adbc_get_table_schema(table, db_schema_filter=database))
        except adbc_driver_manager.Error as error:
            schema = str(error)
        return str((found.read_all().to_pylist(), schema))


def fields(diagnostic):
    """What a client of PostgreSQL is told in an error or a notice."""
    names = ("severity", "sqlstate", "message_primary", "message_detail", "message_hint", "statement_position", "context",
             "schema_name", "table_name", "column_name", "datatype_name", "constraint_name")
    return {name: value for name in names if (value := getattr(diagnostic, name))}


def steady(text):
    """A gRPC error without what differs from call to call."""
    return re.sub(r"created_time:\"[^\"]*\"|ipv[46]:[^ ,\"]*|execution time: [^ ]*", "", text)


def renamed(text, names):
    """An answer about what does not exist, as if it had been about what is hidden."""
    for hidden, missing in names.items():
        text = text.replace(missing, hidden)
    return text


def same(call, names, *arguments, forbidden=(SECRET, str(NUMBER))):
    """Compares the answer about hidden names with that about missing ones, which `names` has for each."""
    swapped = []
    for argument in arguments:
        for hidden, missing in names.items():
            argument = argument.replace(hidden, missing)
        swapped.append(argument)
    hidden, missing = call(*arguments), call(*swapped)
    assert hidden == renamed(missing, names), (
        f"{call.__name__} {arguments} differs:\n  hidden:  {hidden}\n  missing: {missing}")
    for word in forbidden:
        assert word not in hidden, f"{call.__name__} {arguments} tells {word}: {hidden}"
    return hidden


# Statements about {0}.{1}, where {2} is a table of the client.
READS = """
SELECT * FROM {0}.{1}
SELECT count(*) FROM {0}.{1}
SELECT max(n), min(time) FROM {0}.{1}
SELECT nope FROM {0}.{1}
SELECT {0}.{1}.n FROM {2}
SELECT * FROM partita.{0}.{1}
TABLE {0}.{1}
SELECT (SELECT count(*) FROM {0}.{1})
SELECT 1 WHERE EXISTS (SELECT 1 FROM {0}.{1} WHERE n > 0)
WITH w AS (SELECT * FROM {0}.{1}) SELECT 1
SELECT customer FROM {2} UNION ALL SELECT customer FROM {0}.{1}
SELECT * FROM {2} a JOIN {0}.{1} b ON a.customer = b.customer
EXPLAIN SELECT * FROM {0}.{1}
EXPLAIN ANALYZE SELECT count(*) FROM {0}.{1}
EXPLAIN VERBOSE SELECT count(*) FROM {0}.{1}
EXPLAIN DELETE FROM {0}.{1} WHERE customer = 'x'
EXPLAIN HOTSPOT {0}.{1}
SHOW TABLES FROM {0}
SHOW FULL TABLES FROM {0} LIKE '%'
SHOW DATABASES LIKE '{0}'
SHOW COLUMNS FROM {0}.{1}
SHOW CREATE TABLE {0}.{1}
SHOW PARTITIONS FROM {0}.{1}
SHOW TAG KEYS FROM {0}.{1}
SHOW FIELD KEYS FROM {0}.{1}
SHOW MEASUREMENTS ON {0}
SHOW SERIES CARDINALITY FROM {0}.{1}
SHOW SERIES CARDINALITY ON {0}
SHOW SERIES CARDINALITY EXACT ON {0}
SHOW SERIES CARDINALITY EXACT FROM {0}.{1}
DESCRIBE TABLE {0}.{1}
USE {0}
PREPARE p{0} AS SELECT n FROM {0}.{1}
DECLARE c{0} CURSOR WITH HOLD FOR SELECT n FROM {0}.{1}
COPY {0}.{1} TO STDOUT
COPY (SELECT * FROM {0}.{1}) TO STDOUT
SELECT to_regclass('{0}.{1}')
SELECT '{0}.{1}'::regclass
SELECT '{0}'::regnamespace
SELECT has_table_privilege('{0}.{1}', 'SELECT')
SELECT has_schema_privilege('{0}', 'USAGE')
SELECT has_column_privilege('{0}.{1}', 'n', 'SELECT')
SELECT * FROM information_schema.tables WHERE table_schema = '{0}'
SELECT * FROM information_schema.columns WHERE table_schema = '{0}'
SELECT * FROM information_schema.schemata WHERE schema_name = '{0}'
SELECT nspname FROM pg_catalog.pg_namespace WHERE nspname = '{0}'
SELECT * FROM sys.tables WHERE "database" = '{0}'
SELECT * FROM sys.series WHERE "database" = '{0}'
SHOW TASKS
""".strip().splitlines()
WRITES = """
INSERT INTO {0}.{1} (n) VALUES (1)
INSERT INTO {0}.{1} SELECT * FROM {0}.{1}
INSERT INTO {2} SELECT * FROM {0}.{1}
UPSERT INTO {0}.{1} (n) VALUES (1)
DELETE FROM {0}.{1}
DELETE FROM {0}.{1} WHERE customer = 'x'
DELETE FROM {2} WHERE n IN (SELECT n FROM {0}.{1})
TRUNCATE {0}.{1}
DROP TABLE {0}.{1}
DROP TABLE IF EXISTS {0}.{1}
ALTER TABLE {0}.{1} ADD COLUMN more BIGINT
ALTER TABLE IF EXISTS {0}.{1} ADD COLUMN more BIGINT
ALTER TABLE {0}.{1} OWNER TO CURRENT_USER
ALTER TABLE {0}.{1} SET 'ttl' = '1s'
ALTER TABLE {0}.{1} SPLIT AT ('a')
CREATE TABLE {0}.{1} (id BIGINT PRIMARY KEY)
CREATE TABLE IF NOT EXISTS {0}.{1} (id BIGINT PRIMARY KEY)
CREATE TABLE {0}.fresh (id BIGINT PRIMARY KEY)
DROP DATABASE {0}
DROP DATABASE IF EXISTS {0}
ALTER DATABASE {0} SET 'ttl' = '1s'
ALTER DATABASE {0} OWNER TO CURRENT_USER
GRANT SELECT ON {0}.{1} TO PUBLIC
GRANT SELECT ON DATABASE {0} TO PUBLIC
REVOKE SELECT ON {0}.{1} FROM PUBLIC
GRANT SELECT ON ALL TABLES IN DATABASE {0} TO CURRENT_USER
CREATE TOKEN WITH (READ ON DATABASE {0})
CREATE TOKEN WITH (READ ON DATABASE {0} WHERE customer = 'x')
CREATE TASK {0}.job SCHEDULE 'every 1h' AS INSERT INTO {2} SELECT * FROM {0}.{1}
CREATE TASK {0}job SCHEDULE 'every 1h' AS INSERT INTO {2} SELECT * FROM {0}.{1}
DROP TASK {0}.job
ALTER TASK {0}.job DISABLE
ADMIN flush_table('{0}.{1}')
ADMIN compact_table('{0}.{1}')
""".strip().splitlines()

# Requests about bucket {0}, its id {1} and table {2}.
REQUESTS = [(method, path, {}) for method, path in (
    ("GET", "/api/v3/query_sql?db={0}&q=SELECT+1"),
    ("GET", "/api/v3/query_sql?db={0}&q=SELECT+*+FROM+{2}"),
    ("GET", "/v1/sql?db={0}&sql=SELECT+*+FROM+{2}"),
    ("GET", "/v1/sql?db={0}&sql=SHOW+TABLES&format=csv"),
    ("GET", "/query?db={0}&q=SELECT+*+FROM+{2}"),
    ("GET", "/api/v2/buckets?name={0}"),
    ("GET", "/api/v2/buckets?id={1}"),
    ("GET", "/api/v2/buckets/{1}"),
    ("DELETE", "/api/v2/buckets/{1}"),
    ("GET", "/api/v2/buckets/{1}/schema/measurements"),
    ("GET", "/api/v2/buckets/{1}/schema/measurements/0000000000000001"),
    ("DELETE", "/api/v3/configure/database?db={0}"),
    ("DELETE", "/api/v3/configure/table?db={0}&table={2}"),
    ("GET", "/v1/heatmap.json?table={0}.{2}"),
    ("GET", "/v1/heatmap.svg?table={0}.{2}"),
    ("GET", "/v1/heatmap.png?table={0}.{2}"),
    ("GET", "/v1/heatmap.json?table={0}.{2}&metric=read_rows&from_key=00&to_key=ff"),
)] + [(method, path, {"data": data}) for method, path, data in (
    ("POST", "/api/v2/write?bucket={0}", "{2},customer=x n=1i 1"),
    ("POST", "/api/v2/write?bucket={1}", "{2},customer=x n=1i 1"),
    ("POST", "/api/v2/write?bucket={0}", "{2},customer=x n=\"other type\" 1"),
    ("POST", "/api/v2/write?bucket={0}", "wrong"),
    ("POST", "/write?db={0}", "{2},customer=x n=1i 1"),
    ("POST", "/api/v3/write_lp?db={0}&accept_partial=false", "{2},customer=x n=1i 1"),
)] + [(method, path, {"json": body}) for method, path, body in (
    ("PATCH", "/api/v2/buckets/{1}", {"retentionRules": []}),
    ("POST", "/api/v2/buckets/{1}/schema/measurements", {"name": "m", "columns": []}),
    ("PATCH", "/api/v2/buckets/{1}/schema/measurements/0000000000000001", {"columns": []}),
    ("POST", "/api/v2/delete?bucket={0}", {"start": "1970-01-01T00:00:00Z", "stop": "2100-01-01T00:00:00Z"}),
    ("POST", "/api/v2/delete?bucketID={1}", {"start": "1970-01-01T00:00:00Z", "stop": "2100-01-01T00:00:00Z"}),
    ("PUT", "/api/v3/configure/database", {"db": "{0}", "retention_period": "1h"}),
    ("POST", "/api/v3/configure/table", {"db": "{0}", "table": "{2}", "fields": [{"name": "n", "type": "int64"}]}),
    ("POST", "/api/v3/configure/token", {"token_name": "t", "permissions": [
        {"resource_type": "db", "resource_names": ["{0}"], "actions": ["read"]}]}),
    ("POST", "/api/v2/authorizations", {"permissions": [
        {"action": "read", "resource": {"type": "buckets", "id": "{1}"}}]}),
    ("POST", "/api/v2/authorizations", {"permissions": [
        {"action": "write", "resource": {"type": "buckets", "name": "{0}"}}]}),
)]


def filled(value, *names):
    """A template with names in place of {0}, {1}, {2}, inside of objects too."""
    if isinstance(value, dict):
        return {key: filled(inner, *names) for key, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, *names) for inner in value]
    if not isinstance(value, str):
        return value
    for position, text in enumerate(names):
        value = value.replace(f"{{{position}}}", text)
    return value


def guess_objects(tenant, database, bucket_id, table, own):
    """Tries everything with a table, its database and bucket, which the client must not see. Returns the differences."""
    names = {database: database.replace(OTHER, NOTHING), bucket_id: "00000000fffffff0"}
    problems = Problems()
    for statement in READS + WRITES:
        sql = statement.format(database, table, own)
        for call in Tenant.STATEMENTS:
            problems.collect(same, call.__get__(tenant), names, sql)
    for method, path, options in REQUESTS:
        def ask(path, options, method=method):
            return tenant.request(method, path, **json.loads(options))
        texts = filled(path, database, bucket_id, table), json.dumps(filled(options, database, bucket_id, table))
        ask.__name__ = method
        problems.collect(same, ask, names, *texts)
    problems.collect(same, tenant.connect, names, database)
    problems.collect(same, tenant.put, names, database, table)
    problems.collect(same, tenant.ingest, names, database, table)
    problems.collect(same, tenant.objects, names, database, table)
    problems.collect(same, lambda database: tenant.ticket("SELECT 1", database), names, database)
    problems.end()


class Problems:
    """Differences, which are told together."""

    def __init__(self):
        self.texts = []

    def collect(self, function, *arguments, **options):
        try:
            return function(*arguments, **options)
        except AssertionError as error:
            self.texts.append(str(error))
            return None

    def end(self):
        assert not self.texts, "\n".join([f"{len(self.texts)} differences", *self.texts])


def look_everywhere(tenant, forbidden):
    """Reads every list and every table of the system, and searches them for what is the other customer's."""
    problems = Problems()

    def clean(answer, where):
        for word in forbidden:
            assert word not in answer, f"{where} tells {word}: {answer[:2000]}"

    lists = ["SHOW DATABASES", "SHOW TABLES", "SHOW FULL TABLES", "SHOW MEASUREMENTS", "SHOW TAG KEYS", "SHOW FIELD KEYS",
             "SHOW SERIES CARDINALITY", "SHOW SERIES CARDINALITY EXACT", "SHOW GRANTS", "SHOW TOKENS", "SHOW TASKS", "SHOW ALL"]
    for schema in ("sys", "information_schema", "pg_catalog"):
        shown = json.loads(SERVER.request(
            "POST", "/api/v3/query_sql", tenant.token, json={"db": tenant.database, "q": f"SHOW TABLES FROM {schema}"}).text)
        for row in shown:
            lists += [f"SELECT * FROM {schema}.{found}" for found in row.values()]
    assert len(lists) > 50, lists
    for sql in lists:
        for call in (tenant.postgres, tenant.query_sql, tenant.ticket):
            problems.collect(lambda: clean(call(sql), sql))
    for path in ("/api/v2/buckets", "/api/v2/orgs", "/api/v2/authorizations", "/api/v3/configure/database",
                 "/v1/tables.json", "/status", "/metrics", "/health", "/heatmap"):
        problems.collect(lambda: clean(tenant.request("GET", path), path))
    objects = tenant.adbc.adbc_get_objects(depth="all").read_all().to_pylist()
    problems.collect(lambda: clean(str(objects), "get_objects"))
    problems.end()


def made_token(items):
    """Id and text of a token."""
    with SERVER.connect(user="partita", password=PASSWORD) as c:
        return c.execute(f"CREATE TOKEN WITH ({items})").fetchone()


def write(database, lines, token=None, status=204):
    response = SERVER.request("POST", "/api/v2/write", token or ROOT, params={"bucket": database}, data=lines)
    assert response.status_code == status, (response.status_code, response.text)


def bucket_id(database):
    return SERVER.request("GET", f"/api/v2/buckets?name={database}", ROOT).json()["buckets"][0]["id"]


def rows_of(customer, number, count=3):
    return [f"readings,customer={customer},device={customer}{at} n={number + at}i,s=\"{customer}-secret\" {at + 1}"
            for at in range(count)]


def work_as(customer, database, token):
    """Leaves what a customer's work leaves in lists: rejected lines, statements, refusals."""
    write(database, f"readings,customer={customer} n=\"{customer}-secret\" 9", token, 400)
    for sql in (f"SELECT count(*) FROM readings WHERE s = '{customer}-secret'", f"SELECT '{customer}-secret' FROM nowhere"):
        SERVER.request("POST", "/v1/sql", token, data={"db": database, "sql": sql})


# --- one bucket, by tokens with a row predicate


def fleet():
    """A client that may read the rows of one of the two customers of a bucket."""
    number, text = made_token("READ ON DATABASE fleet WHERE customer = 'acme', OWNER viewer")
    return Tenant(number, text, text, "fleet")


def on_rows(tenant, sql, forbidden=(SECRET, str(NUMBER))):
    """The answers of all ports to a statement about the other customer, and about one that does not exist."""
    problems = Problems()
    for call in Tenant.STATEMENTS:
        problems.collect(same, call.__get__(tenant), {OTHER: NOTHING}, sql, forbidden=forbidden)
    problems.end()


@test
def a_row_predicate_hides_rows_from_every_statement():
    tenant = fleet()
    for sql in (
        "SELECT * FROM readings WHERE customer = 'umbr'",
        "SELECT count(*) FROM readings WHERE customer IN ('umbr')",
        "SELECT count(*), max(n), min(s) FROM readings WHERE customer <> 'acme' OR customer = 'umbr'",
        "SELECT n FROM readings WHERE customer = 'umbr' ORDER BY time DESC LIMIT 1",
        "SELECT * FROM readings WHERE device LIKE 'umbr%' OR customer = 'umbr'",
        "SELECT a.n FROM readings a FULL JOIN readings b ON a.customer = 'umbr' AND b.customer <> 'acme' WHERE b.n > 100",
        "SELECT EXISTS (SELECT 1 FROM readings WHERE customer = 'umbr')",
        "SELECT (SELECT max(n) FROM readings WHERE customer = 'umbr')",
        "WITH w AS (SELECT customer, rank() OVER (ORDER BY n DESC) AS r FROM readings) SELECT * FROM w WHERE customer = 'umbr'",
        "SELECT DISTINCT customer FROM readings WHERE customer = 'umbr'",
        "SELECT DISTINCT ON (customer) customer, n FROM readings WHERE customer >= 'umbr' ORDER BY customer, time DESC",
        "SELECT max(time), last_value(n ORDER BY time) FROM readings WHERE customer = 'umbr'",
        "SELECT approx_distinct(customer), median(n) FROM readings WHERE customer > 'acme' AND customer <= 'umbr'",
        "SELECT * FROM \"readings$former\" WHERE customer = 'umbr'",
        "EXPLAIN SELECT * FROM readings WHERE customer = 'umbr'",
        "EXPLAIN VERBOSE SELECT count(*) FROM readings WHERE customer = 'umbr' AND n > 5",
        "COPY (SELECT * FROM readings WHERE customer = 'umbr') TO STDOUT",
        "SHOW PARTITIONS FROM readings WHERE customer = 'umbr'",
        # Errors that only a row which is read can cause.
        "SELECT 1 / (n - 773109317) FROM readings WHERE customer = 'umbr'",
        "SELECT 1 / (n - 773109317) FROM readings WHERE customer <> 'umbr' OR true",
        "SELECT CAST(s AS BIGINT) FROM readings WHERE customer = 'umbr'",
        "SELECT sum(n * 9223372036854775807) FROM readings WHERE customer = 'umbr' OR n > 773000000",
        "DELETE FROM readings WHERE customer = 'umbr'",
        "DELETE FROM readings WHERE customer = 'umbr' AND 1 / (n - 773109317) = 1",
        "INSERT INTO readings (customer, time) VALUES ('umbr', 1)",
        "INSERT INTO readings SELECT * FROM readings WHERE customer = 'umbr'",
    ):
        # The number is in the text of some, and so in the plans and errors that repeat it.
        on_rows(tenant, sql, forbidden=(SECRET,) if str(NUMBER) in sql else (SECRET, str(NUMBER)))
    tenant.close()


@test
def an_analyzed_plan_has_no_figures_of_hidden_rows():
    tenant = fleet()

    def analyzed(sql):
        # Without durations, moments and what was not measured.
        times = r"\d+(\.\d+)?(ns|µs|ms|s)\b|\d{19}|\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]+ UTC|NOT RECORDED"
        return re.sub(times, "T", tenant.postgres(sql))

    for sql in ("EXPLAIN ANALYZE SELECT count(*) FROM readings WHERE customer = 'umbr'",
                "EXPLAIN ANALYZE VERBOSE SELECT * FROM readings WHERE device = 'umbr1' ORDER BY time DESC LIMIT 1",
                "EXPLAIN (ANALYZE, FORMAT TREE) SELECT max(n) FROM readings WHERE device > 'umbr'"):
        answer = same(analyzed, {OTHER: NOTHING}, sql)
        assert "EXPLAIN" in answer, answer
    tenant.close()


@test
def aggregates_over_all_rows_are_those_of_the_customer():
    tenant = fleet()
    for sql, expected in (
        ("SELECT count(*) AS n, sum(n) AS s, max(n) AS m, min(time) AS f FROM readings", [(3, 33, 12)]),
        ("SELECT count(DISTINCT customer) AS n, count(DISTINCT device) AS s, max(s) AS m FROM readings", [(1, 3, "acme-secret")]),
        ("SELECT customer, count(*) AS n, 0 AS o FROM readings GROUP BY customer", [("acme", 3, 0)]),
        ("SELECT 0 AS z, approx_distinct(device) AS n, max(n) AS m FROM readings", [(0, 3, 12)]),
        ("SELECT 1 / (n - 773109317) AS a, 0 AS b, 0 AS c FROM readings LIMIT 1", [(0, 0, 0)]),
    ):
        for rows in (
            tenant.session.execute(sql).fetchall(),
            [tuple(row.values()) for row in json.loads(SERVER.request(
                "POST", "/api/v3/query_sql", tenant.token, json={"db": "fleet", "q": sql}).text)],
            [tuple(row.values()) for row in tenant.flight.do_get(pyarrow.flight.Ticket(json.dumps(
                {"database": "fleet", "sql_query": sql, "query_type": "sql"})), tenant.call).read_all().to_pylist()],
        ):
            assert [row[:3] for row in rows] == expected, (sql, rows)
    with tenant.adbc.cursor() as cursor:
        cursor.execute("SELECT n FROM readings WHERE customer = $1", (OTHER,))
        assert cursor.fetchall() == []
        cursor.execute("SELECT n FROM readings WHERE customer = $1 ORDER BY n", ("acme",))
        assert cursor.fetchall() == [(10,), (11,), (12,)]
    cardinality = tenant.postgres("SHOW SERIES CARDINALITY EXACT FROM readings")
    assert "6" in cardinality and "12" not in cardinality, cardinality
    tenant.close()


@test
def a_token_of_some_rows_sees_no_figures_and_writes_nothing():
    tenant = fleet()
    work_as(OTHER, "fleet", ROOT)
    look_everywhere(tenant, (SECRET, str(NUMBER), "umbr"))
    for path in ("/v1/heatmap.json", "/v1/heatmap.svg", "/v1/heatmap.png"):
        assert tenant.request("GET", f"{path}?table=fleet.readings").startswith("(403"), path
    for table in ("partitions", "partition_load", "series", "series_tags", "table_balance", "hot_partitions", "replicas"):
        rows = tenant.session.execute(f"SELECT * FROM sys.{table}").fetchall()
        assert rows == [], (table, rows)
    for sql in ("SHOW PARTITIONS FROM readings", "EXPLAIN HOTSPOT readings", "TRUNCATE readings", "DELETE FROM readings",
                "INSERT INTO readings (customer, time, n) VALUES ('acme', 1, 1)", "ADMIN flush_table('readings')"):
        for call in Tenant.STATEMENTS:
            answer = call(tenant, sql)
            assert "denied" in answer or "42501" in answer or "must be owner" in answer, (call.__name__, sql, answer)
    write("fleet", "readings,customer=acme n=1i 1", tenant.token, 403)
    for customer in (OTHER, NOTHING, "acme"):
        body = {"start": "1970-01-01T00:00:00Z", "stop": "2100-01-01T00:00:00Z", "predicate": f"customer={customer}"}
        assert tenant.request("POST", "/api/v2/delete?bucket=fleet", json=body).startswith("(403"), customer
    # Statements of the log have no figures of what they read.
    for customer in (OTHER, NOTHING):
        tenant.session.execute(f"SELECT count(*) FROM readings WHERE customer = '{customer}'")
    entries = tenant.session.execute(
        "SELECT partitions_total, partitions_touched, rows_scanned, bytes_scanned, files_read, files_pruned "
        "FROM sys.query_log WHERE text LIKE 'SELECT count(*) FROM readings WHERE customer =%'").fetchall()
    assert len(entries) >= 2 and len(set(entries)) == 1, entries
    # A table whose key lacks the column has no row that the predicate allows.
    problems = Problems()
    for statement in READS + WRITES:
        sql = statement.format("fleet", "umbr_plans", "readings")
        for call in Tenant.STATEMENTS:
            problems.collect(same, call.__get__(tenant), {"umbr_plans": "qqqq_plans"}, sql)
    problems.collect(same, tenant.put, {"umbr_plans": "qqqq_plans"}, "fleet", "umbr_plans")
    problems.collect(same, tenant.ingest, {"umbr_plans": "qqqq_plans"}, "fleet", "umbr_plans")
    problems.collect(same, tenant.objects, {"umbr_plans": "qqqq_plans"}, "fleet", "umbr_plans")
    problems.end()
    assert SERVER.rows(ROOT, "SELECT count(*) AS n FROM fleet.readings") == [{"n": 6}]
    tenant.close()


# --- two buckets


@test
def the_questions_tell_those_who_may_see():
    # Otherwise equal answers would say nothing.
    tenant = Tenant("partita", PASSWORD, ROOT, "acme_bucket")
    names = {OTHER: NOTHING}
    differences = Problems()
    for statement in READS:
        differences.collect(same, tenant.postgres, names, statement.format("umbr_bucket", "readings", "readings"))
    # All but those without a name of the other bucket or its columns.
    assert len(differences.texts) >= len(READS) - 3, len(differences.texts)
    problems = Problems()
    for path in ("/v1/heatmap.json?table=umbr_bucket.readings", "/api/v2/buckets?name=umbr_bucket",
                 "/v1/sql?db=umbr_bucket&sql=SELECT+*+FROM+readings"):
        answers = [tenant.request("GET", path.replace(OTHER, word)) for word in (OTHER, NOTHING)]
        problems.collect(lambda: unequal(*answers))
    problems.end()
    tenant.close()


def unequal(answer, other):
    assert answer != renamed(other, {OTHER: NOTHING}), answer


@test
def a_token_of_one_bucket_sees_no_other():
    number, text = made_token("READ WRITE ON DATABASE acme_bucket, OWNER apps")
    _, other = made_token("READ WRITE ON DATABASE umbr_bucket, OWNER apps")
    work_as(OTHER, "umbr_bucket", other)
    tenant = Tenant(number, text, text, "acme_bucket")
    work_as("acme", "acme_bucket", text)
    look_everywhere(tenant, (SECRET, str(NUMBER), "umbr"))
    guess_objects(tenant, "umbr_bucket", bucket_id("umbr_bucket"), "readings", "readings")
    tenant.close()
    everything_is_there("umbr_bucket")


def everything_is_there(database):
    """The other customer's rows, after all that was tried."""
    rows = SERVER.rows(ROOT, f"SELECT count(*) AS n, max(n) AS m FROM {database}.readings")
    assert rows == [{"n": 3, "m": NUMBER + 2}], rows
    tables = SERVER.rows(ROOT, f"SHOW TABLES FROM {database}")
    assert len(tables) == 1, tables


@test
def a_token_of_another_bucket_may_not_use_what_the_first_prepared():
    number, text = made_token("READ WRITE ON DATABASE umbr_bucket, OWNER apps")
    first = Tenant(number, text, text, "umbr_bucket")
    number, text = made_token("READ WRITE ON DATABASE acme_bucket, OWNER apps")
    second = Tenant(number, text, text, "acme_bucket")
    with first.adbc.cursor() as cursor:
        partitions, _ = cursor.adbc_execute_partitions("SELECT s FROM readings")
    with second.adbc.cursor() as cursor:
        try:
            cursor.adbc_read_partition(partitions[0])
            answer = str(cursor.fetchall())
        except adbc_driver_manager.Error as error:
            answer = str(error)
    assert SECRET not in answer and ("does not exist" in answer or "no longer exists" in answer), answer
    # Cursors and prepared statements are of their session.
    first.postgres("DECLARE mine CURSOR WITH HOLD FOR SELECT s FROM readings")
    first.postgres("PREPARE theirs AS SELECT s FROM readings")
    for sql in ("FETCH ALL FROM mine", "EXECUTE theirs"):
        assert "does not exist" in second.postgres(sql), sql
    first.close()
    second.close()


# --- two organisations


# Statements about the role, the organisation and the token of another one; {3} is the client's own table.
PEOPLE = """
SET ROLE {0}
ALTER ROLE {0} PASSWORD 'guessed'
ALTER ROLE {0} NOLOGIN
ALTER ROLE {0} SET timezone = 'UTC'
ALTER ROLE {0} RENAME TO mine
DROP ROLE {0}
DROP ROLE IF EXISTS {0}
GRANT {0} TO CURRENT_USER
GRANT SELECT ON {3} TO {0}
REVOKE SELECT ON {3} FROM {0}
ALTER TABLE {3} OWNER TO {0}
REASSIGN OWNED BY {0} TO CURRENT_USER
DROP OWNED BY {0}
SHOW GRANTS FOR {0}
CREATE TOKEN WITH (ALL, OWNER {0})
CREATE TOKEN WITH (ALL, ORGANISATION {1})
CREATE ROLE fresh ORGANISATION {1}
ALTER ORGANISATION {1} PROFILE FREE
ALTER ORGANISATION {1} RENAME TO mine
DROP ORGANISATION {1}
DROP ORGANISATION IF EXISTS {1}
DROP TOKEN '{2}'
DROP TOKEN IF EXISTS '{2}'
ALTER TOKEN '{2}' WITH (DISABLED)
SELECT has_table_privilege('{0}', 'readings', 'SELECT')
SELECT pg_has_role('{0}', 'USAGE')
SELECT '{0}'::regrole
SELECT rolname FROM pg_catalog.pg_roles WHERE rolname = '{0}'
SELECT * FROM sys.roles WHERE role = '{0}'
""".strip().splitlines()
# Requests about the same.
ORG_REQUESTS = [(method, path, {}) for method, path in (
    ("GET", "/api/v2/orgs?org={1}"),
    ("GET", "/api/v2/orgs?orgID={3}"),
    ("GET", "/api/v2/orgs/{3}"),
    ("DELETE", "/api/v2/orgs/{3}"),
    ("GET", "/api/v2/buckets?org={1}"),
    ("GET", "/api/v2/buckets?orgID={3}"),
    ("GET", "/api/v2/authorizations?org={1}"),
    ("GET", "/api/v2/authorizations?orgID={3}"),
    ("GET", "/api/v2/authorizations?user={0}"),
    ("GET", "/api/v2/authorizations?userID={4}"),
    ("GET", "/api/v2/authorizations/{2}"),
    ("DELETE", "/api/v2/authorizations/{2}"),
    ("DELETE", "/api/v3/configure/token?token_name=umbr_token"),
)] + [(method, path, {"json": body}) for method, path, body in (
    ("PATCH", "/api/v2/orgs/{3}", {"name": "mine"}),
    ("PATCH", "/api/v2/authorizations/{2}", {"status": "inactive"}),
    ("POST", "/api/v2/buckets", {"name": "fresh", "orgID": "{3}"}),
    ("POST", "/api/v2/authorizations", {"orgID": "{3}", "permissions": [{"action": "read", "resource": {"type": "buckets"}}]}),
    ("POST", "/api/v2/authorizations", {"userID": "{4}", "permissions": [{"action": "read", "resource": {"type": "buckets"}}]}),
)]


def organisation(customer):
    """An organisation with an operator, who has a bucket with rows, a task and a token. Returns their names and ids."""
    with SERVER.connect(user="partita", password=PASSWORD) as c:
        c.execute(f"CREATE ORGANISATION {customer}_org")
        c.execute(f"CREATE ROLE {customer}_boss LOGIN CREATEDB PASSWORD '{PASSWORD}' ORGANISATION {customer}_org")
        c.execute(f"GRANT TASK ON CLUSTER TO {customer}_boss")
        role = c.execute(f"SELECT role_id FROM sys.roles WHERE role = '{customer}_boss'").fetchone()[0]
    with SERVER.connect(user=f"{customer}_boss", password=PASSWORD) as c:
        c.execute(f"CREATE DATABASE {customer}_data")
        token_id, token = c.execute(f"CREATE TOKEN '{customer}_token' WITH (ALL)").fetchone()
    # Who may make databases learns which names are taken: names are global.
    with SERVER.connect(user="partita", password=PASSWORD) as c:
        c.execute(f"ALTER ROLE {customer}_boss NOCREATEDB")
    write(f"{customer}_data", "\n".join(rows_of(customer, NUMBER if customer == OTHER else 10)), token)
    with SERVER.connect(user=f"{customer}_boss", password=PASSWORD, dbname=f"{customer}_data") as c:
        c.execute(f"CREATE TASK {customer}_task SCHEDULE 'every 1h' DISABLED AS INSERT INTO readings SELECT * FROM readings")
    work_as(customer, f"{customer}_data", token)
    org = SERVER.request("GET", f"/api/v2/orgs?org={customer}_org", ROOT).json()["orgs"][0]["id"]
    return {"token_id": token_id, "token": token, "org": org, "user_id": f"{(1 << 32) + int(role):016x}"}


@test
def organisations_do_not_see_each_other():
    ours, theirs = organisation("acme"), organisation(OTHER)
    # One by a password and a token with all rights, which has more statements than a token with a part.
    tenant = Tenant("acme_boss", PASSWORD, ours["token"], "acme_data")
    others = ("umbr_org", "umbr_boss", "umbr_data", "umbr_token", "umbr_task", SECRET, str(NUMBER), theirs["org"],
              theirs["token_id"])
    look_everywhere(tenant, others)
    names = {"umbr": NOTHING, theirs["org"]: "f" * 16, theirs["token_id"]: "e" * 16, theirs["user_id"]: "00000001fffffff0"}
    problems = Problems()
    for statement in PEOPLE:
        sql = statement.format("umbr_boss", "umbr_org", theirs["token_id"], "readings")
        for call in Tenant.STATEMENTS:
            problems.collect(same, call.__get__(tenant), names, sql)
    parts = ("umbr_boss", "umbr_org", theirs["token_id"], theirs["org"], theirs["user_id"])
    for method, path, options in ORG_REQUESTS:
        def ask(path, options, method=method):
            return tenant.request(method, path, **json.loads(options))
        ask.__name__ = method
        problems.collect(same, ask, names, filled(path, *parts), json.dumps(filled(options, *parts)))
    problems.collect(guess_objects, tenant, "umbr_data", bucket_id("umbr_data"), "readings", "readings")
    problems.end()
    everything_is_there("umbr_data")
    with SERVER.connect(user="umbr_boss", password=PASSWORD, dbname="umbr_data") as c:
        assert c.execute("SELECT count(*) FROM readings").fetchone() == (3,)
        assert len(c.execute("SHOW TASKS").fetchall()) == 1
    assert SERVER.rows(theirs["token"], "SELECT count(*) AS n FROM readings", "umbr_data") == [{"n": 3}]
    tenant.close()


@test
def an_organisation_lists_what_it_has_itself():
    ours = SERVER.request("GET", "/api/v2/orgs?org=acme_org", ROOT).json()["orgs"][0]
    with SERVER.connect(user="acme_boss", password=PASSWORD, dbname="acme_data") as c:
        text = c.execute("CREATE TOKEN WITH (ALL)").fetchone()[1]
        databases = {row[0] for row in c.execute("SHOW DATABASES").fetchall()}
    assert "acme_data" in databases and "umbr_data" not in databases, databases
    listed = lambda path, field: [
        found["name"] for found in SERVER.request("GET", path, text).json()[field]]
    assert listed("/api/v2/orgs", "orgs") == ["acme_org"]
    assert "acme_data" in listed(f"/api/v2/buckets?orgID={ours['id']}", "buckets")
    assert SERVER.rows(text, "SELECT count(*) AS n FROM readings", "acme_data") == [{"n": 3}]


def prepare(server):
    global SERVER, ROOT
    SERVER = server
    with server.connect(user="partita", password=None) as c:
        ROOT = c.execute("CREATE TOKEN WITH (ALL)").fetchone()[1]
        for name in ("viewer", "apps"):
            c.execute(f"CREATE ROLE {name} LOGIN")
        for name in ("fleet", "acme_bucket", "umbr_bucket"):
            c.execute(f"CREATE DATABASE {name}")
        c.execute("GRANT SELECT ON DATABASE fleet TO viewer")
        for name in ("acme_bucket", "umbr_bucket"):
            c.execute(f"ALTER DATABASE {name} OWNER TO apps")
        c.execute(f"ALTER ROLE partita PASSWORD '{PASSWORD}'")
    acme, other = rows_of("acme", 10), rows_of(OTHER, NUMBER)
    write("fleet", "\n".join(acme + other))
    write("fleet", f"umbr_plans,plan=p n={NUMBER}i,s=\"{SECRET}\" 1")
    with server.connect(user="partita", password=PASSWORD, dbname="fleet") as c:
        # The rows lie in files with statistics, those of each customer in a partition, and some in memory as well.
        c.execute("ADMIN flush_table('readings')")
        c.execute("ALTER TABLE readings SPLIT AT ('b')")
        assert c.execute("SELECT count(*) FROM sys.partitions WHERE \"table\" = 'readings' AND \"database\" = 'fleet'"
                         ).fetchone() == (2,)
    write("fleet", "\n".join(acme[:1] + other[:1]))
    write("acme_bucket", "\n".join(acme))
    write("umbr_bucket", "\n".join(other))


if __name__ == "__main__":
    sys.exit(secured.main(TESTS, prepare))
