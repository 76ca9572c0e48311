"""Ways to send statements: simple and extended PostgreSQL protocol, HTTP, Flight and Flight SQL.

A door sends the statements of a kind in one session and throws the rows away. It never raises: how it went is in
the outcome.
"""

import http.client
import json
import re
import socket
import time
from typing import NamedTuple

import pyarrow
import pyarrow.flight as flight

import pgwire

READ_BYTES = 1 << 18


class Outcome(NamedTuple):
    """Of the slowest of the statements: seconds (of its longest request), how it ended, SQLSTATE or status, message.

    `end`: answered, refused (with an error), lost (the connection), unended (the patience was over first).
    """

    seconds: float
    end: str
    code: str
    text: str


def timed(function, *arguments):
    """Runs one statement; what it raises becomes the outcome."""
    began = time.monotonic()
    try:
        code, text = function(*arguments) or ("", "")
        end = "refused" if code else "answered"
    except pgwire.Refused as error:
        end, code, text = "refused", error.code, error.message
    except (pgwire.Lost, http.client.HTTPException, ConnectionError) as error:
        end, code, text = "lost", "", f"{type(error).__name__}: {error}"
    except (TimeoutError, socket.timeout):
        end, code, text = "unended", "", ""
    except OSError as error:
        end, code, text = "lost", "", f"{type(error).__name__}: {error}"
    return Outcome(time.monotonic() - began, end, code, " ".join(text.split())[:200])


def worst(outcomes):
    """The outcome that tells most: the first that was lost or did not end, else the slowest."""
    bad = [outcome for outcome in outcomes if outcome.end in ("lost", "unended")]
    return bad[0] if bad else max(outcomes, key=lambda outcome: outcome.seconds)


def run_each(statements, function):
    outcomes = []
    for statement in statements:
        outcomes.append(timed(function, statement))
        if outcomes[-1].end in ("lost", "unended"):
            break
    return worst(outcomes)


def postgres(server, statements, patience, extended):
    try:
        connection = pgwire.Connection(server.postgres, patience)
    except (OSError, pgwire.Lost, pgwire.Refused) as error:
        return Outcome(0.0, "lost", "", f"cannot connect: {error}")
    with connection:
        run = connection.run_extended if extended else connection.run
        return run_each(statements, lambda statement: run(statement) and None)


def simple(server, statements, patience):
    return postgres(server, statements, patience, extended=False)


def extended(server, statements, patience):
    return postgres(server, statements, patience, extended=True)


def read_http(response, until):
    """Reads an answer to its end; returns its status and beginning when it is an error.

    An answer that has begun can tell of an error only by breaking off.
    """
    first = b""
    try:
        while data := response.read1(READ_BYTES):
            if len(first) < 2000:
                first += data[:2000]
            if time.monotonic() > until:
                raise TimeoutError
    except (http.client.IncompleteRead, ConnectionError) as error:
        return "broken off", str(error)
    if response.status >= 400:
        return str(response.status), first.decode("utf-8", "replace")
    return None


def web(server, statements, patience):
    def run(statement):
        until = time.monotonic() + patience
        connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=patience)
        body = json.dumps({"db": "public", "q": statement, "format": "jsonl"})
        try:
            connection.request("POST", "/api/v3/query_sql", body, {"Content-Type": "application/json"})
            return read_http(connection.getresponse(), until)
        finally:
            connection.close()

    return run_each(statements, run)


def varint(number):
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def field(number, data):
    """A field of a protobuf message that bears bytes."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def flight_sql(name, body):
    """A command of Flight SQL, packed as protobuf's Any."""
    return field(1, f"type.googleapis.com/arrow.flight.protocol.sql.{name}".encode()) + field(2, body)


def fields(message):
    """The fields of a protobuf message that bear bytes, by their numbers."""
    found, place = {}, 0

    def number():
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while place < len(message):
        key = number()
        if key & 7 != 2:
            raise pgwire.Refused("?????", f"no bytes in field {key >> 3}")
        length = number()
        found[key >> 3] = message[place : place + length]
        place += length
    return found


def statement_query(text):
    return flight_sql("CommandStatementQuery", field(1, pgwire.as_bytes(text)))


# What gRPC says of a connection, and no server of a statement.
BROKEN_CONNECTION = re.compile("failed to connect|socket closed|connection reset|broken pipe|goaway|recvmsg|sendmsg|refused", re.I)


def explained(error):
    """An error of Flight as the other doors would have it.

    A server that tells of a time-out or of being busy uses the codes that gRPC has for itself, too.
    """
    text = str(error)
    if isinstance(error, flight.FlightTimedOutError) and "statement timeout" not in text:
        return TimeoutError(text)
    if isinstance(error, flight.FlightUnavailableError) and BROKEN_CONNECTION.search(text):
        return pgwire.Lost(text)
    return pgwire.Refused(type(error).__name__, text)


def arrow_errors(function):
    """Runs a call of Flight; what it raises becomes an error of the other doors."""
    try:
        function()
    except (pyarrow.ArrowException, flight.FlightError, KeyError) as error:
        raise explained(error) from error


class Requests:
    """The requests of one statement. Each is planned or run by itself, and each has the time-out."""

    def __init__(self):
        self.longest_s = 0.0

    def run(self, function):
        began = time.monotonic()
        try:
            return function()
        finally:
            self.longest_s = max(self.longest_s, time.monotonic() - began)


def drain(client, ticket, options):
    for _ in client.do_get(ticket, options):
        pass


def arrow(server, statements, patience, ask):
    client = flight.FlightClient(f"grpc://127.0.0.1:{server.http}")
    options = flight.FlightCallOptions(timeout=patience)
    try:
        return run_each(statements, lambda statement: arrow_errors(lambda: ask(client, statement, options)))
    finally:
        client.close()


def arrow_in_requests(server, statements, patience, ask):
    """As arrow, of a statement that takes several requests."""
    client = flight.FlightClient(f"grpc://127.0.0.1:{server.http}")
    options = flight.FlightCallOptions(timeout=patience)
    outcomes = []
    try:
        for statement in statements:
            requests = Requests()
            outcome = timed(lambda: arrow_errors(lambda: ask(client, statement, options, requests.run)))
            outcomes.append(outcome._replace(seconds=requests.longest_s))
            if outcome.end in ("lost", "unended"):
                break
    finally:
        client.close()
    return worst(outcomes)


def ticket(server, statements, patience):
    """Flight as InfluxDB 3's clients speak it: the statement in the ticket."""

    def ask(client, statement, options):
        text = json.dumps({"database": "public", "sql_query": statement, "query_type": "sql"})
        drain(client, flight.Ticket(text.encode()), options)

    return arrow(server, statements, patience, ask)


def adbc(server, statements, patience):
    """Flight SQL as ADBC and JDBC speak it: the statement in a command, then the tickets of its endpoints."""

    def ask(client, statement, options, request):
        descriptor = flight.FlightDescriptor.for_command(statement_query(statement))
        for endpoint in request(lambda: client.get_flight_info(descriptor, options)).endpoints:
            request(lambda: drain(client, endpoint.ticket, options))

    return arrow_in_requests(server, statements, patience, ask)


def prepared(server, statements, patience):
    """Flight SQL with a prepared statement."""

    def ask(client, statement, options, request):
        create = flight_sql("ActionCreatePreparedStatementRequest", field(1, pgwire.as_bytes(statement)))
        action = flight.Action("CreatePreparedStatement", create)
        (result,) = request(lambda: list(client.do_action(action, options)))
        handle = fields(fields(result.body.to_pybytes())[2])[1]
        descriptor = flight.FlightDescriptor.for_command(flight_sql("CommandPreparedStatementQuery", field(1, handle)))
        for endpoint in request(lambda: client.get_flight_info(descriptor, options)).endpoints:
            request(lambda: drain(client, endpoint.ticket, options))
        close = flight.Action("ClosePreparedStatement", flight_sql("ActionClosePreparedStatementRequest", field(1, handle)))
        request(lambda: list(client.do_action(close, options)))

    return arrow_in_requests(server, statements, patience, ask)


DOORS = {
    "simple": simple, "extended": extended, "http": web, "flight": ticket, "flight_sql": adbc, "flight_prepared": prepared,
}  # fmt: skip
SESSIONS = ("simple", "extended")
EVERY = tuple(DOORS)
