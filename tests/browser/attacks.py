"""What a page of another origin may try against a server on loopback: a pure list, and the verdict on what came of it."""

import dataclasses
import re
import urllib.parse

# The row that nobody may read, the table that nobody may change, and what every statement of a page bears.
SECRET = "rowan-8472"
TABLE = "kept"
MARK = "from_a_page"

READS = f"SELECT word, '{MARK}' FROM {TABLE}"
CHANGES = (
    f"DROP TABLE {TABLE} -- {MARK}",
    f"INSERT INTO {TABLE} VALUES (2, '{MARK}')",
    f"ALTER TABLE {TABLE} ADD COLUMN {MARK} BIGINT",
    f"CREATE TABLE {MARK} (id BIGINT, PRIMARY KEY (id))",
    f"ADMIN flush_table('{TABLE}') -- {MARK}",
    f"ADMIN drain_node(1) -- {MARK}",
)
LINE = f"{MARK},host=a v=1 1767268800"
# Paths of gRPC, as a page can name them too.
GRPC = (
    "/arrow.flight.protocol.FlightService/DoGet",
    "/arrow.flight.protocol.FlightService/DoAction",
    "/google.bigtable.v2.Bigtable/MutateRow",
    "/google.bigtable.admin.v2.BigtableTableAdmin/CreateTable",
    "/partita.v1.Meta/Change",
    "/partita.v1.Meta/Administer",
    "/partita.v1.Data/DropPartition",
    "/partita.v1.Raft/Link",
)
# Forms send no other encodings.
PLAIN, FORM = "text/plain", "application/x-www-form-urlencoded"
# Ways to load something into a page that tell the page whether it was loaded.
ELEMENTS = ("img", "script", "style", "object", "module", "worker")


@dataclasses.dataclass(frozen=True)
class Attack:
    """One request of a page. `way` is a function of page.js; the rest is what that function takes."""

    way: str
    url: str
    method: str = "GET"
    mode: str = "cors"
    headers: tuple = ()
    body: str = ""
    credentials: str = "omit"

    def as_json(self):
        return {**dataclasses.asdict(self), "headers": dict(self.headers)}


def routes_of(source):
    """The paths that a router's source names."""
    return sorted(set(re.findall(r'\broute\("([^"]+)"', source)))


def query(statement):
    """Every name under which some route takes a statement, a database or a table."""
    names = {"sql": statement, "q": statement, "db": "public", "bucket": "public", "table": TABLE, "precision": "s"}
    return urllib.parse.urlencode(names)


def body_of(path, statement):
    return LINE if "write" in path else query(statement)


def of_route(base, path):
    """All ways of asking one path for something."""
    plain, reading = base + path, f"{base}{path}?{query(READS)}"
    found = [Attack("fetch", reading), Attack("fetch", reading, credentials="include")]
    found += [Attack("fetch", reading, mode=mode) for mode in ("no-cors", "same-origin")]
    found += [Attack("fetch", reading, method=method) for method in ("HEAD", "OPTIONS", "PUT", "DELETE")]
    found += [Attack(way, reading) for way in ("xhr", "frame", "window", "events", "socket", *ELEMENTS)]
    for statement in CHANGES:
        body, changing = body_of(path, statement), f"{base}{path}?{query(statement)}"
        found += [Attack("fetch", changing), Attack("fetch", changing, mode="no-cors"), Attack("img", changing)]
        for kind in (PLAIN, FORM):
            headers = (("content-type", kind),)
            found += [Attack("fetch", plain, "POST", mode, headers, body) for mode in ("cors", "no-cors")]
    statement = CHANGES[0]
    body, changing = body_of(path, statement), f"{base}{path}?{query(statement)}"
    found += [Attack(way, changing) for way in ("frame", "window", "script")]
    found += [
        Attack("fetch", plain, "POST", "cors", (("content-type", "application/json"),), f'{{"sql": "{statement}", "q": "{statement}"}}'),
        Attack("fetch", plain, "POST", "cors", (("content-type", PLAIN), ("x-own", "1")), body, "include"),
        Attack("fetch", plain, "POST", "cors", (("authorization", "Token any"), ("content-type", PLAIN)), body),
        Attack("xhr", plain, "POST", "cors", (("content-type", PLAIN),), body),
        Attack("beacon", plain, "POST", body=body),
        Attack("form", plain, "POST", headers=(("enctype", FORM),), body=body),
        Attack("form", plain, "POST", headers=(("enctype", PLAIN),), body=body),
        Attack("form", changing, "POST", headers=(("enctype", "multipart/form-data"),), body=body),
        Attack("form", plain, "POST", headers=(("enctype", FORM), ("target", "_blank")), body=body),
    ]
    return found


def of_port(base):
    """Ways of talking to a port that speaks something else than HTTP/1.1."""
    startup = "\x00\x00\x00\x08\x04\xd2\x16/Q\x00\x00\x00\x20" + CHANGES[0] + "\x00"
    plain = (("content-type", PLAIN),)
    found = [Attack(way, base + "/") for way in ("fetch", "img", "script", "frame", "socket", "events")]
    for path in ("/", *GRPC[4:]):
        found += [Attack("fetch", base + path, "POST", mode, plain, startup) for mode in ("cors", "no-cors")]
        found += [Attack("fetch", base + path, "POST", "cors", (("content-type", "application/grpc-web"),), "\0\0\0\0\0")]
    return found + [Attack("form", base + "/", "POST", headers=(("enctype", PLAIN),), body=startup)]


def of_server(http, routes, ports):
    """The whole list for one server: every route of its HTTP port, and its other ports."""
    found = [attack for path in (*routes, *GRPC[:4], "/", "/nothing") for attack in of_route(http, path)]
    return found + [attack for port in ports for attack in of_port(port)]


def faults(results, rebound):
    """What a page got that it must not have, a line each.

    A page of another origin reads nothing at all; one whose name was rebound reads refusals. What an element has loaded
    counts as read: its size or its effect can be seen.
    """
    found = []
    for result in results:
        got = f"{result['attack']['way']} {result['attack']['method']} {result['attack']['url'][:120]}"
        if SECRET in result["text"]:
            found.append(f"the row was read: {got}")
        elif result["outcome"] == "loaded":
            found.append(f"it was loaded: {got}")
        elif result["outcome"] == "read" and not (rebound and is_refusal(result)):
            found.append(f"it was read, {result['status']} {result['text'][:80]!r}: {got}")
    return found


def is_refusal(result):
    """Whether an answer is the one for another server's name; a frame has no status that can be read."""
    return result["status"] == 421 or (result["status"] == 0 and "unknown host name" in result["text"])
