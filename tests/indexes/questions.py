"""The questions, in the words of each engine, and how they are asked."""

import statistics
import time
from dataclasses import dataclass
from decimal import Decimal

import rows

AGGREGATES = "count(*), coalesce(sum(size), 0)"
PARTITA, CLICKHOUSE, DUCKDB = "Partita", "ClickHouse", "DuckDB"
# DuckDB has no search for words without an extension that is not in the package.
TERM = {PARTITA: "matches_term(message, '{}')", CLICKHOUSE: "hasToken(message, '{}')", DUCKDB: "message LIKE '%{}%'"}
LIKE = "message LIKE '%{}%'"


@dataclass(frozen=True)
class Question:
    name: str
    title: str
    statements: dict
    values: tuple

    def texts(self, engine, runs):
        """The statements of all runs; the first one, before them, is to warm up."""
        return [self.statements[engine].replace("{}", value) for value in self.values[:runs + 1]]


def ask_for(what, test):
    """The same question for every engine; `test` is a text, or one for each engine."""
    tests = test if isinstance(test, dict) else dict.fromkeys((PARTITA, CLICKHOUSE, DUCKDB), test)
    return {engine: f"SELECT {what} FROM logs WHERE {condition}" for engine, condition in tests.items()}


def all_questions(count):
    """The questions about a table of so many rows."""
    ids, codes = tuple(rows.request_ids(count, rows.TERMS)), tuple(rows.codes(rows.TERMS))
    asked = [
        Question("id", "`request_id = ..`", ask_for("host, code, size, message", "request_id = '{}'"), ids),
        Question("code", "`code = ..`", ask_for(AGGREGATES, "code = '{}'"), codes),
        Question("code_text", "`code = ..`, reads messages",
                 ask_for(f"{AGGREGATES}, coalesce(sum(length(message)), 0)", "code = '{}'"), codes),
    ]
    for each in rows.TERM_ROWS:
        terms = tuple(rows.terms(each))
        asked.append(Question(f"term_{each}", f"word in {each} rows", ask_for(AGGREGATES, TERM), terms))
        asked.append(Question(f"like_{each}", f"`LIKE '%word%'`, {each} rows", ask_for(AGGREGATES, LIKE), terms))
    first = rows.TERM_ROWS[0]
    operator = {PARTITA: "message @@ '{}'"}
    asked.append(Question(f"at_{first}", f"`@@`, {first} rows", ask_for(AGGREGATES, operator), tuple(rows.terms(first))))
    return asked


def cell(value):
    """A value as text, the same for all engines."""
    return str(int(value)) if isinstance(value, Decimal) else str(value)


def answer(rows_of_answer):
    return sorted([cell(value) for value in row] for row in rows_of_answer)


def ask(question, engine, tables, runs):
    """Asks all tables in turns; `tables` are functions that run a statement and return rows, by name.

    Returns by name of the table the median latency in milliseconds and the answers.
    """
    times, answers = {name: [] for name in tables}, {name: [] for name in tables}
    for turn, text in enumerate(question.texts(engine, runs)):
        names = list(tables) if turn % 2 == 0 else list(reversed(tables))
        for name in names:
            began = time.perf_counter()
            found = tables[name](text)
            elapsed = time.perf_counter() - began
            if turn > 0:
                times[name].append(elapsed * 1_000)
            answers[name].append(answer(found))
    return {name: {"ms": statistics.median(times[name]), "answers": answers[name]} for name in tables}


def differences(some):
    """Questions that two subjects answered differently; `some` are questions with answers, by the name of a subject."""
    found = []
    first = next(iter(some))
    for subject, asked in some.items():
        for name, result in asked.items():
            expected = some[first].get(name)
            if expected is not None and expected["answers"] != result["answers"]:
                turn = next(turn for turn, pair in enumerate(zip(expected["answers"], result["answers"], strict=True))
                            if pair[0] != pair[1])
                found.append(f"{name}: {first} answered {expected['answers'][turn]}, {subject} {result['answers'][turn]}")
    return found
