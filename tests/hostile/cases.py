"""A case of the fuzzer: bytes for a door, made from a seed and a number, so that the two repeat it."""

import http.client
import random
import socket
import time
import urllib.parse
from typing import NamedTuple

import pyarrow
import pyarrow.flight as flight

import frames
import ipc
import mutate
import pgwire
from doors import DOORS, arrow_errors, drain, flight_sql, read_http, timed
from families import catalogue
from grammar import Grammar

# Without an answer for so long a raw connection is done: what was sent may have been half a message.
QUIET_S = 0.2
# Bytes of a catalogue's statement that the fuzzer starts from.
SEED_BYTES = 20_000
ACTIONS = (
    "CreatePreparedStatement", "ClosePreparedStatement", "BeginTransaction", "EndTransaction", "CancelFlightInfo", "CancelQuery", "x",
)  # fmt: skip


class Case(NamedTuple):
    """What is sent. `form`: a key of FORMS; `data`: the bytes that shrinking makes fewer."""

    number: int
    form: str
    data: bytes

    def send(self, server, patience, data=None):
        """Sends it, or other bytes in its place; returns how it went."""
        return timed(FORMS[self.form], server, self.data if data is None else data, patience)


def text_of(data):
    return data.decode("utf-8", "replace")


def through(door):
    """A form that sends a statement through a door of statements."""

    def send(server, data, patience):
        given = data if door in ("simple", "extended") else text_of(data)
        outcome = DOORS[door](server, [given], patience)
        if outcome.end == "lost":
            raise pgwire.Lost(outcome.text)
        if outcome.end == "unended":
            raise TimeoutError
        return (outcome.code, outcome.text) if outcome.code else None

    return send


def read_until_quiet(connection, patience):
    """Reads what comes, until the other end closes or says nothing more."""
    until = time.monotonic() + patience
    connection.settimeout(QUIET_S)
    try:
        while time.monotonic() < until and connection.recv(1 << 16):
            pass
    except (TimeoutError, ConnectionError):
        pass


def raw(server, port, data, patience):
    with socket.create_connection(("127.0.0.1", port), patience) as connection:
        try:
            connection.sendall(data)
        except ConnectionError:
            # Closed in the middle of what is malformed: as it should be.
            return
        read_until_quiet(connection, patience)


def postgres_messages(server, data, patience):
    with pgwire.Connection(server.postgres, patience) as connection:
        try:
            connection.socket.sendall(data)
        except ConnectionError:
            return
        read_until_quiet(connection.socket, patience)


def gone(server, data, patience):
    """A statement whose client does not wait for the answer."""
    with pgwire.Connection(server.postgres, patience) as connection:
        connection.send(pgwire.query(data))


def post(server, path, data, patience, kind):
    connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=patience)
    try:
        connection.request("POST", path, data, {"Content-Type": kind})
        return read_http(connection.getresponse(), time.monotonic() + patience)
    finally:
        connection.close()


def form_sql(server, data, patience):
    body = b"db=public&sql=" + urllib.parse.quote_from_bytes(data).encode()
    return post(server, "/v1/sql", body, patience, "application/x-www-form-urlencoded")


def get_sql(server, data, patience):
    path = "/api/v3/query_sql?db=public&format=csv&q=" + urllib.parse.quote_from_bytes(data[:SEED_BYTES])
    connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=patience)
    try:
        connection.request("GET", path)
        return read_http(connection.getresponse(), time.monotonic() + patience)
    finally:
        connection.close()


def with_flight(server, patience, function):
    client = flight.FlightClient(f"grpc://127.0.0.1:{server.http}")
    try:
        arrow_errors(lambda: function(client, flight.FlightCallOptions(timeout=patience)))
    finally:
        client.close()


def flight_ticket(server, data, patience):
    with_flight(server, patience, lambda client, options: drain(client, flight.Ticket(data), options))


def flight_command(server, data, patience):
    def ask(client, options):
        for endpoint in client.get_flight_info(flight.FlightDescriptor.for_command(data), options).endpoints:
            drain(client, endpoint.ticket, options)

    with_flight(server, patience, ask)


def flight_action(server, data, patience):
    kind = ACTIONS[len(data) % len(ACTIONS)]
    body = flight_sql(f"Action{kind}Request", data)
    with_flight(server, patience, lambda client, options: list(client.do_action(flight.Action(kind, body), options)))


def flight_put(server, data, patience):
    """Rows under a command or a path that is malformed; the columns follow from the bytes."""
    count = len(data) % 7
    columns = {f"c{place}": pyarrow.array([data[place : place + 3]] * 3) for place in range(count)}
    batch = pyarrow.record_batch({"k": pyarrow.array([1, 2, 3]), **columns})
    path = flight.FlightDescriptor.for_path(data[:20], b"t0") if count % 2 else flight.FlightDescriptor.for_command(data)

    def put(client, options):
        writer, _ = client.do_put(path, batch.schema, options)
        with writer:
            writer.write_batch(batch)

    with_flight(server, patience, put)


FORMS = {
    **{door: through(door) for door in DOORS},
    "gone": gone,
    "form_sql": form_sql,
    "get_sql": get_sql,
    "postgres_messages": postgres_messages,
    "postgres_start": lambda server, data, patience: raw(server, server.postgres, data, patience),
    "http_request": lambda server, data, patience: raw(server, server.http, data, patience),
    "http_json": lambda server, data, patience: post(server, "/api/v3/query_sql", data, patience, "application/json"),
    "v1_json": lambda server, data, patience: post(server, "/v1/sql", data, patience, "application/json"),
    "line_protocol": lambda server, data, patience: post(server, "/api/v2/write?bucket=lp&precision=ns", data, patience, "text/plain"),
    "line_protocol_v3": lambda server, data, patience: post(server, "/api/v3/write_lp?db=lp", data, patience, "text/plain"),
    "flight_ticket": flight_ticket,
    "flight_command": flight_command,
    "flight_action": flight_action,
    "flight_put": flight_put,
    "flight_rows": lambda server, data, patience: raw(server, server.http, ipc.call(data), patience),
}
# Forms whose bytes are a statement, and how often each is chosen among all.
STATEMENTS = (
    "simple", "simple", "simple", "extended", "extended", "http", "flight", "flight_sql", "flight_prepared", "form_sql", "get_sql", "gone",
)  # fmt: skip
MADE = {
    "postgres_messages": frames.postgres,
    "postgres_start": lambda dice, _: frames.postgres_start(dice),
    "http_request": frames.http_request,
    "http_json": frames.http_json,
    "v1_json": frames.http_json,
    "line_protocol": lambda dice, _: frames.line_protocol(dice),
    "line_protocol_v3": lambda dice, _: frames.line_protocol(dice),
    "flight_ticket": frames.flight_bytes,
    "flight_command": frames.flight_bytes,
    "flight_action": frames.flight_bytes,
    "flight_put": frames.flight_bytes,
    "flight_rows": ipc.do_put,
}


class Maker:
    """Makes the cases of a seed."""

    def __init__(self, seed):
        self.seed = seed
        self.kinds = catalogue()

    def statement(self, dice):
        """A text: of the grammar, or of the catalogue; mutated half the time."""
        text = ""
        if dice.random() < 0.2:
            text = dice.choice(self.kinds).build()[0]
        if not 0 < len(text) <= SEED_BYTES:
            text = Grammar(dice, dice.choice((1, 2, 3, 4, 6))).statement()
        return mutate.text(dice, text) if dice.random() < 0.5 else text

    def case(self, number):
        dice = random.Random(f"{self.seed}:{number}")
        statement = self.statement(dice)
        if dice.random() < 0.65:
            data = statement.encode("utf-8", "surrogatepass")
            if dice.random() < 0.15:
                data = mutate.spoil(dice, data)
            return Case(number, dice.choice(STATEMENTS), data)
        form = dice.choice(list(MADE))
        return Case(number, form, MADE[form](dice, statement))
