"""Passwords, tokens, TLS and client certificates with psycopg 3, psycopg2, asyncpg, JDBC, psql, influxdb3-python, ADBC
Flight SQL and pyarrow.flight, against a server of its own.

PARTITA_BIN is the server's binary. Prints what failed, and 'N passed, M failed' at the end.
"""

import asyncio
import json
import os
import shutil
import ssl
import subprocess
import sys

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import influxdb_client_3
import psycopg
import psycopg2
import pyarrow as pa
import pyarrow.flight
from adbc_driver_flightsql import DatabaseOptions
from influxdb_client_3.exceptions.exceptions import InfluxDB3ClientQueryError, InfluxDBError

import secured
from secured import HOST, eventually, raises

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = []
SERVER = None


def test(function):
    TESTS.append(function)
    return function


def current_user(connection):
    return connection.execute("SELECT current_user").fetchone()[0]


@test
def psycopg_binds_the_channel():
    with SERVER.connect(channel_binding="require") as c:
        assert current_user(c) == "ann"
        assert c.info.parameter_status("is_superuser") == "off"
        assert c.info.parameter_status("session_authorization") == "ann"
    with SERVER.connect(user="partita", password="first") as c:
        assert c.info.parameter_status("is_superuser") == "on"


@test
def psycopg_is_told_the_same_of_every_wrong_password():
    for user in ("ann", "nobody"):
        text = str(raises(psycopg.OperationalError, lambda: SERVER.connect(user=user, password="wrong")))
        assert f'password authentication failed for user "{user}"' in text, text


@test
def psycopg_needs_tls_and_the_right_host():
    text = str(raises(psycopg.OperationalError, lambda: SERVER.connect(sslmode="disable")))
    assert "no encryption" in text, text
    raises(psycopg.OperationalError, lambda: SERVER.connect(host="other.example.com"))
    if psycopg.pq.version() >= 170000:
        with SERVER.connect(sslnegotiation="direct") as c:
            assert current_user(c) == "ann"


@test
def psycopg_gives_a_certificate_in_place_of_a_password():
    folder = os.path.join(SERVER.certs, "ann")
    files = {"sslcert": os.path.join(folder, "cert.pem"), "sslkey": os.path.join(folder, "key.pem")}
    with SERVER.connect(password=None, **files) as c:
        assert current_user(c) == "ann"
    raises(psycopg.OperationalError, lambda: SERVER.connect(user="partita", password=None, **files))


@test
def psycopg2_signs_in():
    connection = psycopg2.connect(**SERVER.options())
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user")
        assert cursor.fetchone() == ("ann",)
    connection.close()


@test
def asyncpg_signs_in():
    import asyncpg

    context = ssl.create_default_context(cafile=SERVER.authority)

    async def connect(password):
        c = await asyncpg.connect(host=HOST, port=SERVER.port, user="ann", password=password,
                                  database="public", ssl=context, timeout=20)
        try:
            return await c.fetchval("SELECT current_user")
        finally:
            await c.close()

    assert asyncio.run(connect("secret")) == "ann"
    raises(asyncpg.InvalidPasswordError, lambda: asyncio.run(connect("wrong")))


@test
def jdbc_signs_in():
    jar = "/usr/share/java/postgresql.jar"
    if shutil.which("java") is None or not os.path.exists(jar):
        print("   SKIPPED Login.java: not on this machine: java, libpostgresql-jdbc-java")
        return
    classes = ":".join([jar, "/usr/share/java/scram-client.jar", "/usr/share/java/scram-common.jar",
                        "/usr/share/java/saslprep.jar", "/usr/share/java/stringprep.jar"])
    command = ["java", "-cp", classes, f"{HERE}/Login.java", HOST, str(SERVER.port), SERVER.authority]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@test
def psql_binds_the_channel():
    if shutil.which("psql") is None:
        print("   (no psql here)")
        return
    options = SERVER.options(channel_binding="require")
    words = " ".join(f"{name}={value}" for name, value in options.items())
    command = ["psql", "-X", "-At", "-d", words, "-c", "SELECT current_user"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "ann"), done.stderr


def has_ended(session):
    try:
        session.execute("SELECT 1")
    except psycopg.OperationalError:
        return True
    return False


@test
def a_session_ends_with_its_password():
    with SERVER.connect(user="partita", password="first") as superuser:
        superuser.execute("CREATE ROLE bob LOGIN PASSWORD 'old'")
        session = SERVER.connect(user="bob", password="old")
        superuser.execute("ALTER ROLE bob PASSWORD 'new'")
        eventually(lambda: has_ended(session))
        raises(psycopg.OperationalError, lambda: SERVER.connect(user="bob", password="old"))
        with SERVER.connect(user="bob", password="new") as c:
            assert current_user(c) == "bob"


# --- tokens, and the HTTP port


def token(permissions, owner="ann"):
    """Id and text of a new token."""
    with SERVER.connect(user="partita", password="first") as superuser:
        return superuser.execute(f"CREATE TOKEN WITH ({permissions}, OWNER {owner})").fetchone()


def drop_token(number):
    with SERVER.connect(user="partita", password="first") as superuser:
        superuser.execute(f"DROP TOKEN '{number}'")


def influx3(text, **options):
    chosen = {"host": SERVER.url, "database": "metrics", "token": text, "org": "", "ssl_ca_cert": SERVER.authority}
    return influxdb_client_3.InfluxDBClient3(**{**chosen, **options})


def flight_sql(text=None, **options):
    chosen = {DatabaseOptions.TLS_ROOT_CERTS.value: SERVER.roots(),
              DatabaseOptions.RPC_CALL_HEADER_PREFIX.value + "database": "metrics"}
    if text:
        chosen[DatabaseOptions.AUTHORIZATION_HEADER.value] = f"Bearer {text}"
    return adbc.connect(SERVER.grpc, db_kwargs={**chosen, **options}, autocommit=True)


@test
def postgres_clients_sign_in_by_a_token():
    number, text = token("READ ON DATABASE metrics")
    with SERVER.connect(user=number, password=text, dbname="metrics") as c:
        assert c.execute("SELECT v FROM base").fetchall() == [(1.0,)]
        raises(psycopg.errors.InsufficientPrivilege, lambda: c.execute("INSERT INTO base (time, v) VALUES (2, 2)"))
    raises(psycopg.OperationalError, lambda: SERVER.connect(user=number, password=text + "x"))
    # SCRAM never sends the text, so that the server could not find its token by it.
    raises(psycopg.OperationalError, lambda: SERVER.connect(user="ann", password=text))


@test
def a_postgres_session_ends_with_its_token():
    number, text = token("READ ON DATABASE metrics")
    session = SERVER.connect(user=number, password=text)
    assert session.execute("SELECT 1").fetchone() == (1,)
    drop_token(number)
    eventually(lambda: has_ended(session))
    raises(psycopg.OperationalError, lambda: SERVER.connect(user=number, password=text))


@test
def a_postgres_session_ends_when_its_token_expires_or_is_switched_off():
    for change in ("EXPIRES IN '1 second'", "DISABLED"):
        number, text = token("READ ON DATABASE metrics")
        session = SERVER.connect(user=number, password=text)
        assert session.execute("SELECT 1").fetchone() == (1,)
        with SERVER.connect(user="partita", password="first") as superuser:
            superuser.execute(f"ALTER TOKEN '{number}' WITH ({change})")
        eventually(lambda: has_ended(session))
        text = str(raises(psycopg.OperationalError, lambda: SERVER.connect(user=number, password=text)))
        assert "password authentication failed" in text, text


@test
def influxdb3_python_uses_a_token_over_tls():
    _, text = token("READ WRITE ON DATABASE metrics")
    for use_v2_api in (True, False):
        table = f"influx3_{use_v2_api}".lower()
        options = influxdb_client_3.WriteOptions(
            write_type=influxdb_client_3.WriteType.synchronous, use_v2_api=use_v2_api)
        with influx3(text, write_client_options={"write_options": options}) as client:
            client.write([f"{table},room=a v=1 1", f"{table},room=b v=2 2"])
            rows = client.query(f"SELECT room, v FROM {table} ORDER BY time").to_pylist()
            assert rows == [{"room": "a", "v": 1.0}, {"room": "b", "v": 2.0}], rows


@test
def influxdb3_python_is_refused_without_the_right():
    _, text = token("READ ON DATABASE metrics")
    options = {"write_client_options": {"write_options": influxdb_client_3.SYNCHRONOUS}}
    with influx3(text, **options) as client:
        assert client.query("SELECT v FROM base").column("v").to_pylist() == [1.0]
        error = raises(InfluxDBError, lambda: client.write("base v=2 2"))
        assert error.response.status == 403, error
    with influx3("wrong", **options) as client:
        error = raises(InfluxDBError, lambda: client.write("base v=2 2"))
        assert error.response.status == 401, error
        refused = raises(InfluxDB3ClientQueryError, lambda: client.query("SELECT v FROM base"))
        assert "UNAUTHENTICATED:authentication failed" in str(refused), refused


@test
def influxdb3_python_refuses_a_server_of_another_authority():
    _, text = token("READ ON DATABASE metrics")
    stranger = os.path.join(os.path.dirname(SERVER.certs), "strange")
    command = [secured.BINARY, "certs", "--dir", stranger, "init"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    options = {"write_client_options": {"write_options": influxdb_client_3.SYNCHRONOUS},
               "ssl_ca_cert": os.path.join(stranger, "ca.pem"), "query_timeout": 10_000}
    with influx3(text, **options) as client:
        error = raises(Exception, lambda: client.write("base v=2 2"))
        assert "certificate" in str(error).lower(), error
        raises(Exception, lambda: client.query("SELECT v FROM base"))


@test
def adbc_uses_a_token_over_tls():
    _, text = token("READ WRITE ON DATABASE metrics")
    with flight_sql(text) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT v FROM base")
        assert cursor.fetchall() == [(1.0,)]
        rows = pa.table({"id": [1, 2, 3]})
        assert cursor.adbc_ingest("adbc_rows", rows, mode="create") == 3
        cursor.execute("SELECT sum(id) FROM adbc_rows")
        assert cursor.fetchone() == (6,)
    _, text = token("READ ON DATABASE metrics")
    with flight_sql(text) as connection, connection.cursor() as cursor:
        error = raises(adbc_driver_manager.Error, lambda: cursor.execute("DELETE FROM base"))
        assert error.status_code == adbc_driver_manager.AdbcStatusCode.UNAUTHORIZED, error
        error = raises(adbc_driver_manager.Error, lambda: cursor.adbc_ingest("adbc_rows", rows, mode="append"))
        assert "permission denied" in str(error), error


def status_of_query(**options):
    """Status of a query with a connection of its own."""
    def query():
        with flight_sql(**options) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT v FROM base")

    return raises(adbc_driver_manager.Error, query).status_code


@test
def adbc_is_refused_without_a_valid_token_or_authority():
    unauthenticated = adbc_driver_manager.AdbcStatusCode.UNAUTHENTICATED
    assert status_of_query(text="wrong") == unauthenticated
    assert status_of_query() == unauthenticated
    _, text = token("READ ON DATABASE metrics")
    # The authorities of the system do not know the server.
    options = {DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {text}"}

    def connect_unknown():
        with adbc.connect(SERVER.grpc, db_kwargs=options) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT 1")

    error = raises(adbc_driver_manager.Error, connect_unknown)
    assert "certificate" in str(error), error


@test
def adbc_and_flight_sign_in_by_a_password():
    with flight_sql(username="ann", password="secret") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT current_user")
        assert cursor.fetchone() == ("ann",)
    client = pyarrow.flight.connect(SERVER.grpc, tls_root_certs=SERVER.roots())
    header = client.authenticate_basic_token(b"ann", b"secret")
    ticket = pyarrow.flight.Ticket(json.dumps(
        {"database": "public", "sql_query": "SELECT current_user AS u", "query_type": "sql"}))
    options = pyarrow.flight.FlightCallOptions(headers=[header])
    assert client.do_get(ticket, options).read_all().to_pylist() == [{"u": "ann"}]
    raises(pa.flight.FlightUnauthenticatedError, lambda: client.do_get(ticket).read_all())
    raises(pa.flight.FlightUnauthenticatedError, lambda: client.authenticate_basic_token(b"ann", b"wrong"))


@test
def an_adbc_session_ends_with_its_token():
    number, text = token("READ ON DATABASE metrics")
    with flight_sql(text) as connection:
        # A cursor would close what it has prepared, and fail then too.
        def query():
            with adbc_driver_manager.AdbcStatement(connection.adbc_connection) as statement:
                statement.set_sql_query("SELECT v FROM base")
                stream, _ = statement.execute_query()
                return pa.RecordBatchReader.from_stream(stream).read_all().to_pylist()

        assert query() == [{"v": 1.0}]
        drop_token(number)
        errors = []

        def has_ended():
            try:
                query()
            except adbc_driver_manager.Error as error:
                errors.append(error)
            return bool(errors)

        eventually(has_ended)
        assert errors[0].status_code == adbc_driver_manager.AdbcStatusCode.UNAUTHENTICATED, errors
    assert status_of_query(text=text) == adbc_driver_manager.AdbcStatusCode.UNAUTHENTICATED


def prepare(server):
    global SERVER
    SERVER = server
    # Nobody has a password yet. The session that sets that of the superuser goes on.
    with SERVER.connect(user="partita", password=None) as c:
        c.execute("CREATE ROLE ann LOGIN PASSWORD 'secret'")
        c.execute("CREATE DATABASE metrics")
        c.execute("GRANT SELECT, INSERT, DELETE, CREATE ON DATABASE metrics TO ann")
        c.execute("CREATE TABLE metrics.base (time TIMESTAMP(9) TIME INDEX, v DOUBLE)")
        c.execute("INSERT INTO metrics.base (time, v) VALUES (1, 1)")
        c.execute("ALTER ROLE partita PASSWORD 'first'")
        c.execute("SELECT 1")


if __name__ == "__main__":
    sys.exit(secured.main(TESTS, prepare))
