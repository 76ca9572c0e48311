"""A standalone server under measurement: open, or with a password and TLS; started, asked, stopped, and started again."""

import base64
import contextlib
import hashlib
import hmac
import http.client
import os
import pathlib
import re
import ssl
import subprocess
import threading
import time

HOST = "localhost"
SUPERUSER = "partita"
START_S = 300
STOP_S = 120
# Iterations of SCRAM-SHA-256 in PostgreSQL and in Partita.
ITERATIONS = 4096


class Broken(Exception):
    """Something did not work."""


def verifier(password, salt=None):
    """The SCRAM-SHA-256 verifier of a password in ASCII: a server that is given one computes none."""
    salt = salt or os.urandom(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, ITERATIONS)
    stored_key = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    salt, stored_key, server_key = (base64.b64encode(part).decode() for part in (salt, stored_key, server_key))
    return f"SCRAM-SHA-256${ITERATIONS}:{salt}${stored_key}:{server_key}"


class Authority:
    """Certificates that the binary makes: of a server that clients call by HOST."""

    def __init__(self, binary, folder):
        for arguments in (["init"], ["issue", "frontend", "server", "--host", f"{HOST},127.0.0.1"]):
            command = [binary, "certs", "--dir", folder, *arguments]
            done = subprocess.run(command, capture_output=True, text=True, timeout=START_S)
            if done.returncode != 0:
                raise Broken(f"partita certs {arguments[0]}: {done.stderr.strip()}")
        self.bundle = folder / "ca.pem"
        self.server = folder / "server"


class Server:
    """The process and how to reach it.

    `password`: that of the superuser; without one the server is open and speaks no TLS.
    """

    def __init__(self, binary, folder, authority=None, password=None):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.bundle = authority.bundle if authority else None
        self.password = password
        self.process = None
        self.http_port = None
        self.postgres_port = None
        self.command = [binary, "standalone", "--data-dir", self.folder / "data",
                        "--http", "127.0.0.1:0", "--postgres", "127.0.0.1:0"]
        if authority:
            file = self.folder / "password"
            file.touch(mode=0o600)
            file.write_text(password)
            self.command += ["--certs", authority.server, "--require-tls", "--initial-password-file", file]

    def start(self):
        """Starts it, and returns the seconds until it serves."""
        with open(self.folder / "log", "a", encoding="utf-8") as log:
            began = time.monotonic()
            self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=log, text=True)
        # A server that hangs is killed, and its output ends.
        watchdog = threading.Timer(START_S, self.process.kill)
        watchdog.start()
        self.http_port = None
        for line in self.process.stdout:
            if found := re.search(r"psql .*-p (\d+)", line):
                self.postgres_port = int(found.group(1))
            if found := re.match(r" +http +https?://\S+:(\d+)", line):
                self.http_port = int(found.group(1))
                break
        seconds = time.monotonic() - began
        watchdog.cancel()
        if not self.http_port or not self.postgres_port:
            self.kill()
            lines = (self.folder / "log").read_text(encoding="utf-8", errors="replace").splitlines()[-20:]
            raise Broken("the server did not start:\n" + "\n".join(lines))
        return seconds

    def stop(self):
        """Stops it cleanly."""
        self.process.terminate()
        try:
            code = self.process.wait(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            raise Broken(f"the server did not stop within {STOP_S} s") from None
        finally:
            self.kill()
        if code != 0:
            raise Broken(f"the server ended with code {code}; see its log")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def cpu_s(self):
        """CPU time that the server has used, in seconds."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @contextlib.contextmanager
    def running(self):
        """Runs it, and yields the seconds until it served."""
        seconds = self.start()
        try:
            yield seconds
        except BaseException:
            # What went wrong first is told, not how the server ends after it.
            self.kill()
            raise
        self.stop()

    def postgres(self, user=SUPERUSER, password=None):
        """Parameters of a PostgreSQL connection, which verifies the server if that has TLS."""
        parameters = {"host": HOST, "hostaddr": "127.0.0.1", "port": self.postgres_port, "dbname": "public",
                      "user": user, "connect_timeout": 60, "sslmode": "disable"}
        if self.bundle:
            parameters |= {"sslmode": "verify-full", "sslrootcert": str(self.bundle), "sslcert": "none.pem",
                           "sslkey": "none.key", "password": password or self.password}
        return parameters

    def http(self):
        """A new HTTP connection, which verifies the server if that has TLS."""
        if not self.bundle:
            return http.client.HTTPConnection(HOST, self.http_port, timeout=START_S)
        context = ssl.create_default_context(cafile=self.bundle)
        return http.client.HTTPSConnection(HOST, self.http_port, timeout=START_S, context=context)


def request(connection, method, path, token=None, body=None):
    """Sends a request, reads the answer, and returns its status and text."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection.request(method, path, body=body, headers=headers)
    response = connection.getresponse()
    return response.status, response.read().decode(errors="replace")
