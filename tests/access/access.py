"""Measures what security costs. See tests/access/run."""

import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

import psycopg

from server import SUPERUSER, Authority, Broken, Server, request, verifier

PARTS = ("ingest", "queries", "many")
PASSWORD = "a password of the measurement"
LINES_PER_BODY = 5_000
HOSTS = 100
# Time of the first line, in seconds since 1970.
FIRST_S = 1_700_000_000
TABLE_ROWS = 1_000
# Statements of one simple query: a failure costs few of them, and the way to and fro is nothing beside them.
BATCH = 200
# Sessions that make roles and tokens: changes of the catalog that arrive together share a sync of its log.
SESSIONS = 8


def arguments():
    parser = argparse.ArgumentParser(prog="tests/access/run", description="Measures what security costs.")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts to measure, with commas ({','.join(PARTS)})")
    parser.add_argument("--pairs", type=int, default=5, help="turns of each of the two that are compared (5)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="lines of a turn of ingest (1000000)")
    parser.add_argument("--connections", type=int, default=2, help="connections of ingest (2)")
    parser.add_argument("--queries", type=int, default=1_000, help="executions of each query in a turn (1000)")
    parser.add_argument("--logins", type=int, default=20, help="sign-ins in a turn (20)")
    parser.add_argument("--roles", type=int, default=10_000, help="roles of the server with many (10000)")
    parser.add_argument("--tokens", type=int, default=100_000, help="tokens of the server with many (100000)")
    parser.add_argument("--fill-s", type=int, default=900,
                        help="seconds after which no more roles and tokens are made (900)")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything works")
    parser.add_argument("--work", type=pathlib.Path, default=None, help="where data goes (the temporary directory)")
    parser.add_argument("--keep", action="store_true", help="keep the data directories and logs")
    # Sizes that are given count, also with --quick.
    if "--quick" in sys.argv:
        parser.set_defaults(pairs=2, rows=20_000, queries=20, logins=2, roles=100, tokens=200)
    options = parser.parse_args()
    options.only = options.only.split(",")
    if unknown := set(options.only) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    return options


def pairs(options, one, other, measure):
    """Measures both in turns, each of them first in every second pair; returns the medians of their figures.

    `measure(subject, turn)` returns figures by name.
    """
    figures = {subject: [] for subject in (one, other)}
    for turn in range(options.pairs):
        for subject in (one, other) if turn % 2 == 0 else (other, one):
            figures[subject].append(measure(subject, turn))
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return tuple(
        {name: statistics.median(turn[name] for turn in figures[subject]) for name in figures[subject][0]}
        for subject in (one, other))


def line(name, without, secured, goal=""):
    """A line of the table: two figures and their ratio."""
    return f"{name:<24} {without:>14,.2f} {secured:>14,.2f} {secured / without:>8.3f}   {goal}".rstrip()


def head(title, without, secured):
    return f"\n{title}\n{'':<24} {without:>14} {secured:>14} {'ratio':>8}   goal"


def expect(condition, message):
    if not condition:
        raise Broken(message)


def one_value(connection, statement):
    return connection.execute(statement).fetchone()[0]


def make_token(connection, items):
    return connection.execute(f"CREATE TOKEN 'measurement' WITH ({items})").fetchone()[1]


# Ingest.


def bodies(options, turn):
    """Bodies of line protocol; those of two turns have no row in common."""
    first = FIRST_S + turn * (options.rows // HOSTS + 1)
    made = []
    for begin in range(0, options.rows, LINES_PER_BODY):
        rows = range(begin, min(begin + LINES_PER_BODY, options.rows))
        lines = (f"cpu,host=host_{row % HOSTS},region=eu usage_user={row % 97}i,usage_system={row % 89}i,load={row % 83}.5 "
                 f"{first + row // HOSTS}" for row in rows)
        made.append("\n".join(lines).encode())
    return made


def send(server, token, some_bodies):
    connection = server.http()
    try:
        for body in some_bodies:
            status, text = request(connection, "POST", "/api/v2/write?bucket=public&precision=s", token, body)
            expect(status == 204, f"line protocol was answered with {status}: {text}")
    finally:
        connection.close()


def ingest(options, servers, tokens):
    def measure(server, turn):
        all_bodies = bodies(options, turn)
        shares = [all_bodies[i::options.connections] for i in range(options.connections)]
        with concurrent.futures.ThreadPoolExecutor(options.connections) as pool:
            began, used = time.monotonic(), server.cpu_s()
            for done in [pool.submit(send, server, tokens[server], share) for share in shares]:
                done.result()
            elapsed, used = time.monotonic() - began, server.cpu_s() - used
            return {"rows/s": options.rows / elapsed, "rows/CPU s": options.rows / used}

    without, secured = pairs(options, *servers, measure)
    for server in servers:
        with psycopg.connect(**server.postgres(), autocommit=True) as connection:
            rows = one_value(connection, "SELECT count(*) FROM cpu")
        expect(rows == options.pairs * options.rows, f"{rows} rows are there, not {options.pairs * options.rows}")
    print(head("line protocol", "without", "token, TLS"))
    print(line("rows/s", without["rows/s"], secured["rows/s"], "at least 0.9"))
    # The client encrypts too, on the same machine.
    print(line("rows/s of the server's CPU", without["rows/CPU s"], secured["rows/CPU s"]), flush=True)


def check_refusals(server):
    """Wrong secrets get nothing."""
    connection = server.http()
    for token in (None, "a wrong token"):
        status, _ = request(connection, "POST", "/api/v2/write?bucket=public", token, b"cpu f=1")
        expect(status == 401, f"a write with the token {token} was answered with {status}")
    connection.close()
    with contextlib.suppress(psycopg.OperationalError):
        psycopg.connect(**server.postgres(password="a wrong password")).close()
        raise Broken("a wrong password was accepted")
    with contextlib.suppress(psycopg.OperationalError):
        psycopg.connect(**(server.postgres() | {"sslmode": "disable"})).close()
        raise Broken("a connection without TLS was accepted")


# Queries.


def queries(options, servers):
    statements = {
        "SELECT 1, ms": ("SELECT 1", (), 1),
        "row by its key, ms": ("SELECT value FROM keyed WHERE id = %s", (TABLE_ROWS // 2,), TABLE_ROWS // 2 * 7),
    }
    with contextlib.ExitStack() as stack:
        sessions = {}
        for server in servers:
            session = stack.enter_context(psycopg.connect(**server.postgres(), autocommit=True))
            session.execute("CREATE TABLE keyed (id BIGINT PRIMARY KEY, value BIGINT)")
            values = ", ".join(f"({row}, {row * 7})" for row in range(TABLE_ROWS))
            session.execute(f"INSERT INTO keyed VALUES {values}")
            sessions[server] = session

        def measure(server, _):
            return {name: statistics.median(asked(sessions[server], *statement)) * 1_000
                    for name, statement in statements.items()}

        def asked(session, text, parameters, expected):
            times = []
            for _ in range(options.queries):
                began = time.perf_counter()
                found = session.execute(text, parameters).fetchone()
                times.append(time.perf_counter() - began)
                expect(found == (expected,), f"{text} answered {found}")
            return times

        without, secured = pairs(options, *servers, measure)
    print(head("queries in an open session", "without", "password, TLS"))
    for name in statements:
        print(line(name, without[name], secured[name]), flush=True)


# Many roles and tokens.


def fill(options, server):
    """Makes roles and tokens, at most until the time is up; returns how many there are of both."""
    # All roles have the password of the measurement: a verifier that is given costs the server no computation.
    secret = verifier(PASSWORD)
    roles = [f"CREATE ROLE many_{n} LOGIN PASSWORD '{secret}'" for n in range(1, options.roles)]
    tokens = ["CREATE TOKEN 'one of many' WITH (READ ON DATABASE public)"] * options.tokens
    statements = roles + tokens
    batches = iter([statements[i:i + BATCH] for i in range(0, len(statements), BATCH)])
    end = time.monotonic() + options.fill_s

    def work():
        with psycopg.connect(**server.postgres(), autocommit=True) as connection:
            # The iterator of a list gives each batch to one thread.
            for batch in batches:
                if time.monotonic() > end:
                    return
                connection.execute("; ".join(batch))

    with concurrent.futures.ThreadPoolExecutor(SESSIONS) as pool:
        for done in [pool.submit(work) for _ in range(SESSIONS)]:
            done.result()
    with psycopg.connect(**server.postgres(), autocommit=True) as connection:
        return tuple(one_value(connection, f"SELECT count(*) FROM sys.{table}") for table in ("roles", "tokens"))


def sign_in(server, token):
    """Signs in once by each way, and returns the seconds that the password took."""
    began = time.perf_counter()
    with psycopg.connect(**server.postgres("somebody", PASSWORD), autocommit=True) as connection:
        seconds = time.perf_counter() - began
        user = one_value(connection, "SELECT current_user")
    expect(user == "somebody", f"the current user is {user}")
    connection = server.http()
    status, text = request(connection, "GET", "/api/v3/query_sql?db=public&q=SELECT%201", token)
    connection.close()
    expect(status == 200, f"a query with a token was answered with {status}: {text}")
    return seconds


def many(options, binary, work, authority):
    few = Server(binary, work / "few", authority, PASSWORD)
    crowded = Server(binary, work / "many", authority, PASSWORD)
    tokens = {}
    for server in (few, crowded):
        with server.running():
            began = time.monotonic()
            if server is crowded:
                roles, count = fill(options, server)
                print(f"made {roles} roles and {count} tokens in {time.monotonic() - began:.0f} s", file=sys.stderr)
            with psycopg.connect(**server.postgres(), autocommit=True) as connection:
                connection.execute(f"CREATE ROLE somebody LOGIN PASSWORD '{verifier(PASSWORD)}'")
                tokens[server] = make_token(connection, "READ ON DATABASE public")

    def measure(server, _):
        with server.running() as seconds:
            # The first sign-in also reads what later ones find in memory.
            sign_in(server, tokens[server])
            logins = [sign_in(server, tokens[server]) for _ in range(options.logins)]
        return {"start, ms": seconds * 1_000, "sign-in, ms": statistics.median(logins) * 1_000}

    without, crowd = pairs(options, few, crowded, measure)
    print(head(f"{roles:,} roles and {count:,} tokens", "few", "many"))
    for name in without:
        print(line(name, without[name], crowd[name], "at most 1.2"))
    if (roles, count) < (options.roles, options.tokens):
        print(f"not {options.roles:,} and {options.tokens:,}: --fill-s {options.fill_s} was not enough")


def run(options, binary, work):
    authority = Authority(binary, work / "certs")
    if {"ingest", "queries"} & set(options.only):
        servers = Server(binary, work / "open"), Server(binary, work / "secured", authority, PASSWORD)
        with servers[0].running(), servers[1].running():
            check_refusals(servers[1])
            with psycopg.connect(**servers[1].postgres(), autocommit=True) as connection:
                expect(one_value(connection, "SELECT current_user") == SUPERUSER, "somebody else signed in")
                tokens = {servers[0]: None, servers[1]: make_token(connection, "WRITE ON DATABASE public")}
            if "ingest" in options.only:
                ingest(options, servers, tokens)
            if "queries" in options.only:
                queries(options, servers)
    if "many" in options.only:
        many(options, binary, work, authority)


def main():
    options = arguments()
    binary = pathlib.Path(os.environ["PARTITA_BIN"]).resolve()
    work = pathlib.Path(tempfile.mkdtemp(prefix="partita-access.", dir=options.work))
    try:
        run(options, binary, work)
    except (Broken, OSError, psycopg.Error) as error:
        options.keep = True
        print(f"\nFAILED: {error}", file=sys.stderr)
        return 1
    finally:
        if options.keep:
            print(f"data and logs: {work}", file=sys.stderr)
        else:
            shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
