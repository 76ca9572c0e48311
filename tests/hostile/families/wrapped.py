"""Hostile queries inside other statements: each way around another share of the queries."""

from doors import EVERY, SESSIONS
from kinds import kind

# What goes around a query, and the doors that can send it.
WRAPPERS = {
    "explain": (lambda query: f"EXPLAIN {query}", EVERY),
    "explain_analyze": (lambda query: f"EXPLAIN ANALYZE {query}", EVERY),
    "explain_verbose": (lambda query: f"EXPLAIN VERBOSE {query}", EVERY),
    "prepare": (lambda query: [f"PREPARE p AS {query}", "EXECUTE p", "DEALLOCATE p"], SESSIONS),
    "declare": (lambda query: ["BEGIN", f"DECLARE c CURSOR FOR {query}", "FETCH 100 FROM c", "FETCH ALL FROM c", "COMMIT"], SESSIONS),
    "copy": (lambda query: f"COPY ({query}) TO STDOUT", SESSIONS),
    "derived": (lambda query: f"SELECT count(*) FROM ({query}) AS around", EVERY),
    "in": (lambda query: f"SELECT count(*) FROM hostile_small WHERE s IN ({query})", EVERY),
    "exists": (lambda query: f"SELECT count(*) FROM hostile_small WHERE EXISTS ({query})", EVERY),
    "limit": (lambda query: f"SELECT * FROM ({query}) AS around LIMIT 1", EVERY),
    "insert": (lambda query: f"INSERT INTO hostile_sink {query}", EVERY),
}
# Each wrapper takes one query of so many, beginning with another one.
EVERY_NTH = 41


def kinds(plain):
    queries = [kind for kind in plain if kind.family != "change" and "list_statements" not in kind.shape]
    found = []
    for place, (wrapper, (wrap, doors)) in enumerate(WRAPPERS.items()):
        for query in queries[place * 3 :: EVERY_NTH]:
            name = f"{query.shape}_{query.size}".rstrip("_")

            def build(wrap=wrap, query=query):
                return wrap(query.build()[0])

            found.append(kind(f"wrapped_{wrapper}", name, "", build, doors))
    return found
