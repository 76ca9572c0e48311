"""What Partita refuses by name, and which tests need it."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Name of each feature, a pattern of the statements that use it, and a statement that the server must refuse as long as the feature
# is excused. Those without one are accepted with a notice, see docs/sql.md.
FEATURES: tuple[tuple[str, str, str], ...] = (
    ("two-phase commit", r"\b(prepare\s+transaction|(commit|rollback)\s+prepared)\b|pg_prepared_xacts", "ROLLBACK PREPARED 'x'"),
    ("LISTEN and NOTIFY", r"^\s*(listen|notify)\b|\bpg_notify\s*\(", ""),
    ("stored functions and procedures", r"\bcreate\s+(or\s+replace\s+)?(function|procedure|aggregate)\b|^\s*(do|call)\b",
     "CREATE FUNCTION suites_f() RETURNS INT LANGUAGE sql AS 'SELECT 1'"),
    ("triggers and rules", r"\bcreate\s+(or\s+replace\s+)?(constraint\s+)?(trigger|rule)\b",
     "CREATE RULE suites_r AS ON INSERT TO suites_t DO NOTHING"),
    ("extensions", r"\bcreate\s+extension\b", "CREATE EXTENSION hstore"),
    ("enums", r"\bcreate\s+type\b.*\bas\s+enum\b", "CREATE TYPE suites_e AS ENUM ('a')"),
    ("range types", r"\bas\s+range\b|\b(int[48]|num|ts|tstz|date)(multi)?range\b", "SELECT '[1,2)'::int4range"),
    ("composite types", r"\bcreate\s+type\s+\S+\s+as\s*\(|\brow\s*\(|::\s*record\b", "CREATE TYPE suites_c AS (a INT)"),
    ("domains", r"\bcreate\s+domain\b", "CREATE DOMAIN suites_d AS INT"),
    ("types of other kinds", r"\bcreate\s+type\s+\S+\s*(;|\(|$)", "CREATE TYPE suites_s"),
    ("large objects", r"\b(lo_\w+|loread|lowrite)\s*\(|pg_largeobject", "SELECT lo_create(0)"),
    ("collations", r"\bcreate\s+collation\b", "CREATE COLLATION suites_l FROM \"C\""),
    ("foreign keys", r"\breferences\b|\bforeign\s+key\b", "CREATE TABLE suites_t (a INT REFERENCES suites_u (a))"),
    ("UNIQUE constraints", r"^\s*(create|alter)\b.*\bunique\b", "CREATE TABLE suites_t (a INT UNIQUE)"),
    ("EXCLUDE constraints", r"\bexclude\s+using\b", "CREATE TABLE suites_t (a INT, EXCLUDE USING gist (a WITH =))"),
    ("materialized views", r"\bmaterialized\s+view\b", "CREATE MATERIALIZED VIEW suites_v AS SELECT 1 AS a"),
    ("other encodings", r"\bset\s+(local\s+|session\s+)?client_encoding\s*(=|to)\s*'?(?!utf|unicode|sql_ascii|'|\"|default)\w",
     "SET client_encoding = 'latin1'"),
    ("other date styles", r"\bset\s+(local\s+|session\s+)?datestyle\s*(=|to)\s*'?\s*(sql|german|postgres)", "SET datestyle = 'German'"),
    ("other interval styles", r"\bset\s+(local\s+|session\s+)?intervalstyle\s*(=|to)\s*'?\s*(sql_standard|postgres_verbose|iso_8601)",
     "SET intervalstyle = 'iso_8601'"),
    ("network types", r"\b(inet|cidr|macaddr8?)\b", "SELECT '10.0.0.1'::inet"),
    ("times with a zone", r"\btimetz\b|\btime\s*(\(\d\)\s*)?with\s+time\s+zone\b", "SELECT '12:00+01'::timetz"),
    ("bit strings, money, XML, geometry", r"\b(var)?bit\b|\bmoney\b|::\s*(xml|point|box|line|lseg|path|polygon|circle)\b",
     "SELECT B'101'::bit(3)"),
    ("inheritance", r"\binherits\s*\(", "CREATE TABLE suites_t (a INT) INHERITS (suites_u)"),
)
# What the server says of them, where a test does not send the statement as a text of its own.
MESSAGES = {
    "other encodings": re.compile(r"conversion between \S+ and UTF8 is not supported"),
    "types of other kinds": re.compile(r"(CREATE|ALTER|DROP) TYPE is not supported"),
}
PATTERNS = {name: re.compile(pattern, re.IGNORECASE | re.DOTALL) for name, pattern, _ in FEATURES}
ROLLBACK = "ROLLBACK"
BEGIN = re.compile(r"\s*(begin|start\s+transaction)\b", re.IGNORECASE)
COMMIT = re.compile(r"\s*(commit|end)\b", re.IGNORECASE)
UNDO = re.compile(r"\s*(rollback|abort)\b", re.IGNORECASE)
WRITE = re.compile(r"\s*(with\b.*\b)?(insert|update|delete|create|drop|alter|truncate|copy|merge|set)\b", re.IGNORECASE | re.DOTALL)
# What a test sees when a transaction was not taken back: a wrong answer, a table or row that is there already, no error.
OF_ROLLBACK = {None, "42P07", "23505"}
# What it sees after a savepoint to which the session did not go back.
OF_SAVEPOINT = {None, "25P02"}
UNDO_PART = re.compile(r"\s*rollback\b.*\bto\b", re.IGNORECASE)
SAVEPOINT = "ROLLBACK TO SAVEPOINT"


def takes_back(statements: Iterable[list]) -> bool:
    """Whether a session takes back a transaction, or a part of one, that wrote or changed a setting."""
    wrote: dict[int, bool] = {}
    for session, text in statements:
        if BEGIN.match(text):
            wrote[session] = False
        elif COMMIT.match(text):
            wrote.pop(session, None)
        elif UNDO.match(text):
            if wrote.get(session):
                return True
        elif session in wrote and WRITE.match(text):
            wrote[session] = True
    return False


def needs(statements: list[list], failure: dict, refused: Iterable[str]) -> list[str]:
    """Features without which a test fails.

    `statements` are those that it sends to PostgreSQL, each with its session, `failure` is its record on Partita, `refused` has the
    names of the features that Partita refuses.
    """
    message = failure.get("message", "")
    said = {name for name, pattern in MESSAGES.items() if pattern.search(message)}
    found = [name for name in refused if name in said or any(PATTERNS[name].search(text) for _, text in statements)]
    # A test that also rolls back fails for another reason when the server did not know something.
    code = failure.get("sqlstate")
    goes_back = any(UNDO_PART.match(text) for _, text in statements)
    if SAVEPOINT in message or (code in OF_ROLLBACK and takes_back(statements)) or (code in OF_SAVEPOINT and goes_back):
        found.append(ROLLBACK)
    return found
