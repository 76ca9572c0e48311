"""Passwords, TLS and client certificates with psycopg 3, psycopg2, asyncpg, JDBC and psql, against a server of its own.

PARTITA_BIN is the server's binary. Prints what failed, and 'N passed, M failed' at the end.
"""

import asyncio
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import traceback

import psycopg
import psycopg2

HERE = os.path.dirname(os.path.abspath(__file__))
BINARY = os.environ["PARTITA_BIN"]
HOST = "localhost"
TESTS = []


def test(function):
    TESTS.append(function)
    return function


class Server:
    """A standalone server with a certificate for HOST, that takes certificates of its clients."""

    def __init__(self, folder):
        self.certs = os.path.join(folder, "certs")
        for arguments in (
            ["init"],
            ["issue", "frontend", "frontend1", "--host", f"{HOST},127.0.0.1"],
            ["issue", "admin", "ann"],
        ):
            command = [BINARY, "certs", "--dir", self.certs, *arguments]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
        self.authority = os.path.join(self.certs, "ca.pem")
        self.log = open(os.path.join(folder, "log"), "w", encoding="utf-8")
        self.process = subprocess.Popen(
            [BINARY, "standalone", "--data-dir", os.path.join(folder, "data"),
             "--http", "127.0.0.1:0", "--postgres", "127.0.0.1:0",
             "--tls-cert", os.path.join(self.certs, "frontend1", "cert.pem"),
             "--tls-key", os.path.join(self.certs, "frontend1", "key.pem"),
             "--tls-client-ca", self.authority, "--require-tls"],
            stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.port = None
        for line in self.process.stdout:
            found = re.search(r"psql .*-p (\d+)", line)
            if found:
                self.port = int(found.group(1))
            if line.startswith("  http "):
                break
        assert self.port, "the server did not start"

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=60)
        self.log.close()

    def options(self, user="ann", password="secret", **options):
        """Connection parameters of libpq that verify the server."""
        chosen = {"host": HOST, "hostaddr": "127.0.0.1", "port": self.port, "dbname": "public", "user": user,
                  "sslmode": "verify-full", "sslrootcert": self.authority, "sslcert": "none.pem",
                  "sslkey": "none.key", "connect_timeout": 10}
        if password is not None:
            chosen["password"] = password
        chosen.update(options)
        return chosen

    def connect(self, **options):
        return psycopg.connect(**self.options(**options), autocommit=True)


SERVER = None


def raises(error, function):
    try:
        function()
    except error as raised:
        return str(raised)
    raise AssertionError(f"{error.__name__} was not raised")


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
        text = raises(psycopg.OperationalError, lambda: SERVER.connect(user=user, password="wrong"))
        assert f'password authentication failed for user "{user}"' in text, text


@test
def psycopg_needs_tls_and_the_right_host():
    text = raises(psycopg.OperationalError, lambda: SERVER.connect(sslmode="disable"))
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


@test
def a_session_ends_with_its_password():
    with SERVER.connect(user="partita", password="first") as superuser:
        superuser.execute("CREATE ROLE bob LOGIN PASSWORD 'old'")
        session = SERVER.connect(user="bob", password="old")
        superuser.execute("ALTER ROLE bob PASSWORD 'new'")
        time.sleep(1)
        raises(psycopg.OperationalError, lambda: session.execute("SELECT 1"))
        raises(psycopg.OperationalError, lambda: SERVER.connect(user="bob", password="old"))
        with SERVER.connect(user="bob", password="new") as c:
            assert current_user(c) == "bob"


def main():
    global SERVER
    wanted = sys.argv[1:]
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        SERVER = Server(folder)
        try:
            # Nobody has a password yet. The session that sets that of the superuser goes on.
            with SERVER.connect(user="partita", password=None) as c:
                c.execute("CREATE ROLE ann LOGIN PASSWORD 'secret'")
                c.execute("ALTER ROLE partita PASSWORD 'first'")
                c.execute("SELECT 1")
            for function in TESTS:
                if wanted and function.__name__ not in wanted:
                    continue
                try:
                    function()
                    passed += 1
                except Exception:
                    failed += 1
                    print(f"-- {function.__name__} failed")
                    traceback.print_exc(limit=-4, file=sys.stdout)
        finally:
            SERVER.stop()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
