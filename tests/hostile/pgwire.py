"""The PostgreSQL protocol over a plain socket: what the probes and the doors need, and bytes as they are.

No driver, so that nothing is checked or mended on the way, and a probe costs little.
"""

import socket
import struct
import time

# Larger than what servers send at once; results are read and thrown away.
READ_BYTES = 1 << 18
# Rows that are larger are thrown away as they come, without being kept until they are whole.
KEPT_BYTES = 1 << 20
PROTOCOL_3 = 196608


class Lost(Exception):
    """The server closed the connection, or refused it."""


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


def message(kind, body):
    """A message of the protocol: kind is one byte."""
    return kind + struct.pack("!i", len(body) + 4) + body


def startup(**options):
    pairs = b"".join(key.encode() + b"\0" + value.encode() + b"\0" for key, value in options.items())
    body = struct.pack("!i", PROTOCOL_3) + pairs + b"\0"
    return struct.pack("!i", len(body) + 4) + body


def query(text):
    return message(b"Q", as_bytes(text) + b"\0")


def parse(text, name=b"", types=()):
    body = name + b"\0" + as_bytes(text) + b"\0" + struct.pack("!h", len(types))
    return message(b"P", body + b"".join(struct.pack("!i", oid) for oid in types))


def bind(values=(), portal=b"", name=b""):
    """Binds texts; None is NULL."""
    body = portal + b"\0" + name + b"\0" + struct.pack("!hh", 0, len(values))
    for value in values:
        body += struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value
    return message(b"B", body + struct.pack("!h", 0))


def describe_portal():
    return message(b"D", b"P\0")


def execute(rows=0):
    return message(b"E", b"\0" + struct.pack("!i", rows))


def sync():
    return message(b"S", b"")


def as_bytes(text):
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


def error_of(body):
    """The SQLSTATE and the message of an ErrorResponse's body."""
    fields = {part[:1]: part[1:].decode("utf-8", "replace") for part in body.split(b"\0") if part}
    return fields.get(b"C", "?????"), fields.get(b"M", "")


class Connection:
    """One connection; every wait ends `patience` seconds after the request began, with TimeoutError."""

    def __init__(self, port, patience, database="public"):
        try:
            stream = socket.create_connection(("127.0.0.1", port), patience)
        except ConnectionError as error:
            raise Lost(str(error)) from error
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.begin(stream, patience)
        self.send(startup(user="partita", database=database, client_encoding="UTF8"))
        self.until_ready()

    @classmethod
    def over(cls, stream, patience):
        """A connection over a socket on which a session has begun."""
        connection = cls.__new__(cls)
        connection.begin(stream, patience)
        return connection

    def begin(self, stream, patience):
        self.socket = stream
        self.patience = patience
        self.until = time.monotonic() + patience
        self.buffer = bytearray()
        # Bytes of a large row that are still to come.
        self.skipped = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        """Begins a request: its patience counts from here."""
        self.until = time.monotonic() + self.patience
        try:
            self.socket.settimeout(self.patience)
            self.socket.sendall(data)
        except ConnectionError as error:
            raise Lost(str(error)) from error

    def fill(self):
        remaining = self.until - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("no answer")
        self.socket.settimeout(remaining)
        try:
            data = self.socket.recv(READ_BYTES)
        except ConnectionError as error:
            raise Lost(str(error)) from error
        if not data:
            raise Lost("the connection was closed")
        dropped = min(self.skipped, len(data))
        self.skipped -= dropped
        self.buffer += memoryview(data)[dropped:]

    def messages(self):
        """The next messages, as far as they have come: pairs of kind and body."""
        position = 0
        found = []
        while len(self.buffer) - position >= 5:
            length = struct.unpack_from("!i", self.buffer, position + 1)[0]
            if length < 4:
                raise Lost("the server sent a message without sense")
            kind = self.buffer[position : position + 1]
            missing = length + 1 - (len(self.buffer) - position)
            if missing > 0 and (length < KEPT_BYTES or kind not in (b"d", b"D")):
                break
            if missing > 0:
                self.skipped = missing
                found.append((bytes(kind), b""))
                position = len(self.buffer)
                break
            # Rows are many, and nobody looks at them.
            body = b"" if kind == b"d" else bytes(self.buffer[position + 5 : position + 1 + length])
            found.append((bytes(kind), body))
            position += length + 1
        del self.buffer[:position]
        return found

    def until_ready(self, extended=False):
        """Reads until the server is ready again; returns the rows. Raises the first error that was told.

        extended: the statement runs by the extended protocol, and its Sync was sent already.
        """
        refused, rows = None, []
        while True:
            for kind, body in self.messages():
                if kind == b"E" and refused is None:
                    refused = Refused(*error_of(body))
                elif kind == b"D" and len(rows) < 100:
                    rows.append(body)
                elif kind == b"G":
                    # COPY FROM STDIN has to be ended by the client. The server takes no notice of a Sync meanwhile, so
                    # that after an error it waits for another.
                    self.socket.sendall(message(b"f", b"nothing comes\0") + (sync() if extended else b""))
                elif kind == b"Z":
                    if refused:
                        raise refused
                    return rows
            self.fill()

    def run(self, text):
        """Runs a statement by the simple protocol."""
        self.send(query(text))
        return self.until_ready()

    def run_extended(self, text, values=()):
        """Runs a statement by the extended protocol."""
        self.send(parse(text) + bind(values) + describe_portal() + execute() + sync())
        return self.until_ready(extended=True)


def first_value(rows):
    """The first column of the first row, as text."""
    (length,) = struct.unpack_from("!i", rows[0], 2)
    return rows[0][6 : 6 + length].decode()
