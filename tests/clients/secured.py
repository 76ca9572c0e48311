"""A standalone server with a certificate, for scripts whose clients sign in, and the loop that runs their tests.

PARTITA_BIN is the server's binary.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
import traceback

import psycopg
import requests

BINARY = os.environ["PARTITA_BIN"]
HOST = "localhost"
# Longest time for which a change may be unknown to a server that is busy; usually it is known within a second.
PATIENCE_S = 60


class Server:
    """A standalone server with a certificate for HOST, that takes certificates of its clients and only TLS."""

    def __init__(self, folder, *options):
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
             "--tls-client-ca", self.authority, "--require-tls", *options],
            stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.port = self.http_port = None
        for line in self.process.stdout:
            found = re.search(r"psql .*-p (\d+)", line)
            if found:
                self.port = int(found.group(1))
            found = re.match(r" *http +https://[^ ]*:(\d+)", line)
            if found:
                self.http_port = int(found.group(1))
                break
        assert self.port and self.http_port, "the server did not start"
        self.url = f"https://{HOST}:{self.http_port}"
        self.grpc = f"grpc+tls://{HOST}:{self.http_port}"

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

    def roots(self):
        """The authority's certificate as PEM."""
        with open(self.authority, encoding="utf-8") as file:
            return file.read()

    def request(self, method, path, token=None, session=requests, **options):
        """A response of the HTTP port to a client with a token, or without any credential."""
        headers = {**({"Authorization": f"Token {token}"} if token else {}), **options.pop("headers", {})}
        return session.request(
            method, self.url + path, headers=headers, verify=self.authority, timeout=60, allow_redirects=False, **options
        )

    def rows(self, token, sql, database="public"):
        """The rows of a statement over HTTP, as objects."""
        response = self.request("POST", "/api/v3/query_sql", token, json={"db": database, "q": sql})
        assert response.status_code == 200, (response.status_code, response.text)
        return response.json()


def raises(error, function):
    """The exception that a function raises."""
    try:
        function()
    except error as raised:
        return raised
    raise AssertionError(f"{error.__name__} was not raised")


def eventually(condition):
    """Waits until a condition is true, which a change makes so in the background."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "the change is not seen"
        time.sleep(0.05)


def main(tests, prepare, *options):
    """Runs tests, or those that the command line names, against a server with these options that `prepare` was given first.

    Prints what failed, and 'N passed, M failed' at the end. Returns the exit code.
    """
    wanted = sys.argv[1:]
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        server = Server(folder, *options)
        try:
            prepare(server)
            for function in tests:
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
            server.stop()
            if failed:
                with open(server.log.name, encoding="utf-8") as log:
                    print("".join(log.readlines()[-20:]), file=sys.stderr)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
