"""One connection to a server of PostgreSQL's protocol: a text in, an answer out."""

from __future__ import annotations

from typing import NamedTuple

from psycopg import pq


class Broken(Exception):
    """The connection is gone: the server has ended, or could not be reached."""


class Answer(NamedTuple):
    """What a statement gave: rows as texts under the type oids of their columns, or the code of an error.

    `count`: rows that a statement says it has changed.
    """

    types: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    rows: tuple[tuple[str | None, ...], ...] = ()
    count: int = 0
    code: str = ""
    message: str = ""

    @property
    def failed(self) -> bool:
        return bool(self.code)


class Session:
    """A connection that answers one statement at a time, by the simple protocol."""

    def __init__(self, name: str, conninfo: str) -> None:
        self.name = name
        self.connection = pq.PGconn.connect(conninfo.encode())
        if self.connection.status != pq.ConnStatus.OK:
            raise Broken(f"{name}: {self.connection.get_error_message()}")
        self.connection.notice_handler = None

    def begin(self, text: str) -> None:
        """Sends a statement; `end` waits for its answer, so that several servers work at once."""
        try:
            self.connection.send_query(text.encode())
        except Exception as error:
            raise Broken(f"{self.name}: {error}") from error

    def end(self) -> Answer:
        answer = None
        while True:
            try:
                result = self.connection.get_result()
            except Exception as error:
                raise Broken(f"{self.name}: {error}") from error
            if result is None:
                break
            if answer is None or not answer.failed:
                answer = read(result)
        if self.connection.status != pq.ConnStatus.OK or answer is None:
            raise Broken(f"{self.name}: {self.connection.get_error_message()}")
        return answer

    def run(self, text: str) -> Answer:
        self.begin(text)
        return self.end()

    def must(self, text: str) -> Answer:
        """Runs a statement that the fuzzer itself needs."""
        answer = self.run(text)
        if answer.failed:
            raise Refused(f"{self.name}: {answer.code} {answer.message}\n{text[:2000]}")
        return answer

    def close(self) -> None:
        self.connection.finish()


class Refused(Exception):
    """A statement that the fuzzer itself needs failed."""


def read(result: pq.PGresult) -> Answer:
    if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY):
        code = result.error_field(pq.DiagnosticField.SQLSTATE) or b"08006"
        message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message
        return Answer(code=code.decode(), message=(message or b"").decode("utf-8", "replace"))
    columns = range(result.nfields)
    rows = tuple(tuple(text_of(result.get_value(row, column)) for column in columns) for row in range(result.ntuples))
    return Answer(
        types=tuple(result.ftype(column) for column in columns),
        names=tuple((result.fname(column) or b"").decode() for column in columns),
        rows=rows,
        count=result.command_tuples or 0,
    )


def text_of(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")
