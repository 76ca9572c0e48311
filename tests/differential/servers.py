"""The sessions that a statement goes to: PostgreSQL's, and one for each layout of Partita."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cases import Load
from layouts import Layout
from partita import Partita
from postgres import Postgres
from schema import Table
from session import Answer, Refused, Session

# Rows of an answer beyond which Partita is not asked: a debug build joins them for a minute.
ROWS_MAX = 3000
# Longer than a statement needs on a debug build beside other work.
TIMEOUT = "SET statement_timeout = '60s'"


class Servers:
    """Databases of one name at both servers: in Partita one for each layout. `prefix` names them."""

    def __init__(self, partita: Partita, postgres: Postgres, layouts: Sequence[Layout], prefix: str = "d") -> None:
        self.layouts = tuple(layouts)
        with_admin(postgres.conninfo(), f"CREATE DATABASE {prefix}")
        self.theirs = Session("postgres", postgres.conninfo().replace("dbname=postgres", f"dbname={prefix}"))
        self.ours: dict[Layout, Session] = {}
        for layout in layouts:
            database = f"{prefix}_{layout.name}"
            with_admin(partita.conninfo(), f"CREATE DATABASE {database}")
            session = Session(layout.name, partita.conninfo(database))
            session.must(TIMEOUT)
            session.must(f"SET run_at_data = {layout.run_at_data}")
            self.ours[layout] = session

    def prepare(self, loads: Iterable[Load], zone: str) -> None:
        """Makes the tables anew, with their first rows."""
        for session in self.all():
            session.must(f"SET TIME ZONE '{zone}'")
        for load in loads:
            self.drop(load.table)
            self.theirs.must(load.table.theirs())
            for insert in (load.first, load.second):
                if insert:
                    self.theirs.must(insert + load.table.conflict())
            self.each(lambda layout, load=load: steps(layout, load))  # type: ignore[misc]

    def drop(self, table: Table) -> None:
        self.theirs.must(f"DROP TABLE IF EXISTS {table.name}")
        self.each(lambda _: [f"DROP TABLE IF EXISTS {table.name}"])

    def each(self, statements_of: Callable[[Layout], list[str]]) -> None:
        """Runs statements that have to succeed in every layout, side by side."""
        waiting = {layout: list(statements_of(layout)) for layout in self.layouts}
        while any(waiting.values()):
            sent = {layout: statements.pop(0) for layout, statements in waiting.items() if statements}
            for layout, statement in sent.items():
                self.ours[layout].begin(statement)
            answers = {layout: self.ours[layout].end() for layout in sent}
            for layout, answer in answers.items():
                if answer.failed:
                    raise Refused(f"{layout.name}: {answer.code} {answer.message}\n{sent[layout][:2000]}")

    def ask(self, ours: str, theirs: str) -> tuple[Answer, dict[Layout, Answer]]:
        """One statement to PostgreSQL, then to every layout at the same time, unless its answer is large."""
        answer = self.theirs.run(theirs)
        if len(answer.rows) > ROWS_MAX:
            return answer, {}
        for session in self.ours.values():
            session.begin(ours)
        return answer, {layout: session.end() for layout, session in self.ours.items()}

    def all(self) -> list[Session]:
        return [self.theirs, *self.ours.values()]

    def close(self) -> None:
        for session in self.all():
            session.close()


def steps(layout: Layout, load: Load) -> list[str]:
    """How a table comes to be in a layout."""
    statements = [layout.create(load.table), load.first, *layout.between(load.table), load.second, *layout.finish(load.table)]
    return [statement for statement in statements if statement]


def with_admin(conninfo: str, statement: str) -> None:
    session = Session("admin", conninfo)
    session.must(statement)
    session.close()
