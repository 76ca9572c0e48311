"""Measures wide tables through Bigtable's API. See tests/wide/run."""

import argparse
import os
import pathlib
import shutil
import sys
import tempfile

import grpc
import psycopg

import measure
import readings
from server import Broken, Server

PARTS = ("write", "read", "sizes", "sets")


def arguments():
    parser = argparse.ArgumentParser(prog="tests/wide/run", description="Measures wide tables through Bigtable's API.")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts to measure, with commas ({','.join(PARTS)})")
    parser.add_argument("--values", type=int, default=1_000_000, help="values of a turn of writes (1000000)")
    parser.add_argument("--hosts", type=int, default=100, help="hosts that the readings are of (100)")
    parser.add_argument("--per-request", type=int, default=5_000, help="values of a request (5000)")
    parser.add_argument("--processes", type=int, default=4, help="processes that write at the same time (4)")
    parser.add_argument("--pairs", type=int, default=5, help="turns of writes (5)")
    parser.add_argument("--balloons", type=int, default=8, help="balloons that are read (8)")
    parser.add_argument("--minutes", type=int, default=readings.MINUTES, help="events of each, at most a week (10080)")
    parser.add_argument("--runs", type=int, default=20, help="reads of a question (20)")
    parser.add_argument("--lab-balloons", type=int, default=20, help="balloons of `partita lab patterns` (20)")
    parser.add_argument("--lab-span", default="7d", help="time of their measurements (7d)")
    parser.add_argument("--sets", type=int, default=200, help="requests of 100 values that are timed (200)")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything works")
    parser.add_argument("--work", type=pathlib.Path, default=None, help="where data goes (the temporary directory)")
    parser.add_argument("--keep", action="store_true", help="keep the data directories and logs")
    # Sizes that are given count, also with --quick.
    if "--quick" in sys.argv:
        parser.set_defaults(values=20_000, hosts=20, pairs=2, balloons=2, minutes=600, runs=3, lab_balloons=2, lab_span="1h",
                            sets=5)
    options = parser.parse_args()
    options.only = options.only.split(",")
    if unknown := set(options.only) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    if not 1 <= options.minutes <= readings.MINUTES:
        parser.error(f"--minutes is from 1 to {readings.MINUTES}")
    if not 1 <= options.processes <= options.hosts:
        parser.error("--processes is from 1 to the number of hosts")
    if options.values % (options.hosts * readings.SET) != 0:
        parser.error(f"--values is a multiple of {readings.SET} for each host")
    options.binary = os.environ.get("PARTITA_BIN")
    if not options.binary:
        parser.error("PARTITA_BIN is not set")
    return options


def run(options, work):
    parts = {"write": measure.write_readings, "read": measure.read, "sets": measure.sets}
    for name in options.only:
        if name == "sizes":
            # It has a server of its own.
            measure.sizes(options, work)
            continue
        server = Server(options.binary, work / name)
        with server.running():
            measure.create_database(server)
            parts[name](options, server)


def main():
    options = arguments()
    sys.stdout.reconfigure(line_buffering=True)
    work = pathlib.Path(tempfile.mkdtemp(prefix="partita-wide.", dir=options.work))
    try:
        run(options, work)
    except (Broken, OSError, psycopg.Error, grpc.RpcError) as error:
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
