"""Hostile statements and random bytes against a server of its own. See tests/hostile/run."""

import argparse
import os
import pathlib
import signal
import sys
import tempfile

import fuzz
import statements
from server import Broken, Server

# Bounds that hold whatever else the machine does: for CI, with a debug build beside compilers on two cores, where an honest
# answer may take ten seconds. What hangs, takes memory without end or kills the process is found all the same; how long
# everybody waits is for runs on a machine of their own. Probes come so seldom that no queue of them grows where each takes a second.
WIDE = {
    "probe_p99": 20.0, "stall": 30.0, "late": 30.0, "patience": 60.0, "answer": 30.0, "stop": 60.0, "period": 2.0,
    "probe_failures": 0,
}  # fmt: skip
CI = {
    "statements": {**WIDE, "sample": 60, "at_once": "4"},
    # One after another: together they may reach the bound of memory, by chance.
    "fuzz": {**WIDE, "seconds": 60.0, "at_once": 1},
}


def common(parser):
    parser.add_argument("--seed", type=int, default=1, help="decides the order, the doors and every random choice (1)")
    parser.add_argument("--ci", action="store_true", help="a short run with wide bounds")
    parser.add_argument("--timeout", type=int, default=2, metavar="S", help="statement_timeout (2)")
    parser.add_argument("--patience", type=float, default=10, metavar="S", help="beyond the time-out until the server is killed (10)")
    parser.add_argument("--answer", type=float, default=5, metavar="S", help="wait of a new connection after which the server is killed (5)")
    parser.add_argument("--period", type=float, default=0.1, metavar="S", help="between two turns of each probe (0.1)")
    parser.add_argument("--stop", type=float, default=20, metavar="S", help="wait for its end after SIGTERM (20)")
    parser.add_argument("--memory-mb", type=int, default=1024, help="limit of the process, as far as the server has one (1024)")
    parser.add_argument("--query-memory-mb", type=int, default=256, help="the server's memory for queries (256)")
    parser.add_argument("--guard-mb", type=int, default=6000, help="resident memory at which the harness kills the server (6000)")
    parser.add_argument("--port", type=int, default=0, help="PostgreSQL's port; the next one is HTTP's (free ones)")
    parser.add_argument("--server-argument", action="append", default=[], metavar="ARGUMENT", help="one more for the server")
    parser.add_argument("--keep", type=pathlib.Path, default=None, metavar="DIR", help="data and log go into this empty directory and stay")
    bounds = parser.add_argument_group("bounds; seconds")
    bounds.add_argument("--probe-p99", type=float, default=0.5, help="of each probe (0.5)")
    bounds.add_argument("--stall", type=float, default=1.0, help="wait of a probe that names the statements beside it (1)")
    bounds.add_argument("--late", type=float, default=1.0, help="after its time-out until a statement has ended (1)")
    bounds.add_argument("--probe-failures", type=int, default=0, help="answers of a probe that are errors (0)")


def arguments():
    parser = argparse.ArgumentParser(prog="tests/hostile/run")
    modes = parser.add_subparsers(dest="mode", required=True)
    catalogue = modes.add_parser("statements", help="the catalogue of hostile statements")
    common(catalogue)
    catalogue.add_argument("--only", action="append", default=[], metavar="NAME", help="kinds whose names begin so")
    catalogue.add_argument("--sample", type=int, default=0, help="so many of the kinds, by the seed (all)")
    catalogue.add_argument("--every-door", action="store_true", help="each kind through all its doors")
    catalogue.add_argument("--door", default="", help="this door only")
    catalogue.add_argument("--at-once", default="1,4", help="so many at once, one phase after another (1,4)")
    catalogue.add_argument("--show", action="store_true", help="print the statements, send nothing")
    catalogue.add_argument("--out", type=pathlib.Path, default=None, help="every run as a line of JSON")
    random = modes.add_parser("fuzz", help="random statements and messages")
    common(random)
    random.add_argument("--seconds", type=float, default=600, help="how long (600)")
    random.add_argument("--only", type=int, default=None, metavar="NUMBER", help="this case of the seed, and no other")
    random.add_argument("--form", action="append", default=[], help="cases of this form only; may be said again")
    random.add_argument("--at-once", type=int, default=4, help="senders (4)")
    random.add_argument("--keep-going", type=int, default=1, metavar="FAULTS", help="end after so many faults (1)")
    options = parser.parse_args()
    if options.ci:
        parser.set_defaults(**CI[options.mode])
        for mode in modes.choices.values():
            mode.set_defaults(**CI[options.mode])
        options = parser.parse_args()
    return options


def main():
    options = arguments()
    if options.mode == "statements" and options.show:
        return statements.show(options)
    binary = os.environ.get("PARTITA_BIN", "")
    if not pathlib.Path(binary).is_file():
        sys.exit(f"'{binary}' is not there; say with PARTITA_BIN where the binary is")
    work = options.keep or pathlib.Path(tempfile.mkdtemp(prefix="hostile-"))
    work.mkdir(parents=True, exist_ok=True)
    if any(work.iterdir()):
        sys.exit(f"{work} is not empty")
    # Whoever stops it wants to know what it has found.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    server = Server(binary, work, options)
    try:
        server.start()
        server.make_tables()
        return {"statements": statements.run, "fuzz": fuzz.run}[options.mode](server, options)
    except Broken as broken:
        print(f"the server is broken: {broken}")
        return 1
    except KeyboardInterrupt:
        print("interrupted")
        return 1
    finally:
        if server.alive():
            server.process.kill()
            server.process.wait()
        if not options.keep:
            server.remove()


if __name__ == "__main__":
    sys.exit(main())
