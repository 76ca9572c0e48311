"""Measures what indexes give and cost. See tests/indexes/run."""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import psycopg

import report
import rows
import subject
from questions import CLICKHOUSE, DUCKDB, PARTITA, all_questions, differences
from server import Broken, Server

PARTS = ("questions", "ingest", "advice", "peers")
PEERS = (CLICKHOUSE, DUCKDB)
HERE = pathlib.Path(__file__).parent


def arguments():
    parser = argparse.ArgumentParser(prog="tests/indexes/run", description="Measures what indexes give and cost.")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts to measure, with commas ({','.join(PARTS)})")
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows that are asked about (5000000)")
    parser.add_argument("--runs", type=int, default=rows.TERMS - 1, help=f"statements of a question ({rows.TERMS - 1}, the most)")
    parser.add_argument("--burst", type=int, default=1, help="rows of a host in a row that have the same code (1)")
    parser.add_argument("--merge", choices=("append", "last_row", "last_non_null"), default="append",
                        help="append: every row is kept, as in the peers; else how rows of a key are merged (append)")
    parser.add_argument("--backend", choices=("bloom", "inverted"), default="bloom", help="of the fulltext index (bloom)")
    parser.add_argument("--ingest-rows", type=int, default=1_000_000, help="lines of a turn of ingest (1000000)")
    parser.add_argument("--pairs", type=int, default=5, help="turns of ingest without and with indexes (5)")
    parser.add_argument("--connections", type=int, default=2, help="connections of ingest (2)")
    parser.add_argument("--tables", type=int, default=500, help="tables of the advice (500)")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything works")
    parser.add_argument("--made", type=pathlib.Path, default=None, help="where files of rows are kept for the next time")
    parser.add_argument("--work", type=pathlib.Path, default=None, help="where data goes (the temporary directory)")
    parser.add_argument("--keep", action="store_true", help="keep the data directories and logs")
    # Sizes that are given count, also with --quick.
    if "--quick" in sys.argv:
        parser.set_defaults(rows=50_000, runs=5, ingest_rows=20_000, pairs=2, tables=20)
    options = parser.parse_args()
    options.only = options.only.split(",")
    if unknown := set(options.only) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    if not 1 <= options.runs < rows.TERMS:
        parser.error(f"--runs is from 1 to {rows.TERMS - 1}")
    options.binary = os.environ.get("PARTITA_BIN")
    if options.only != ["peers"] and not options.binary:
        parser.error("PARTITA_BIN is not set")
    return options


def peer(options, engine, path, work):
    """What an engine measured in a process of its own."""
    report.progress(f"{engine}: loading and asking")
    folder = work / engine.lower()
    folder.mkdir()
    command = [sys.executable, HERE / "peers.py", engine, path, str(options.rows), str(options.runs), folder]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Broken(f"{engine} ended with code {done.returncode}")
    return json.loads(done.stdout)


def compare(options, partita, path, work):
    """Prints part g: all engines, whose answers must be equal."""
    subjects = {PARTITA: partita} if partita else {}
    subjects |= {engine: peer(options, engine, path, work) for engine in PEERS}
    answers = {f"{subject['engine']} ({subject['title']})": subject["questions"]
               for some in subjects.values() for subject in some}
    if found := differences(answers):
        raise Broken("answers differ:\n" + "\n".join(found))
    common = [question for question in all_questions(options.rows) if all(engine in question.statements for engine in subjects)]
    print(f"\ng. the same {options.rows:,} rows; all answers are equal\n")
    print(report.beside(subjects, common), flush=True)


def run(options, work):
    made = (options.made or work).resolve()
    asks = {"questions", "peers"} & set(options.only)
    path = rows.parquet(made, options.rows, options.burst) if asks else None
    partita = None
    if "questions" in options.only:
        server = Server(options.binary, work / "questions")
        with server.running():
            partita = subject.ask_all(options, server, path)
    if "ingest" in options.only:
        bodies = rows.bodies(rows.parquet(made, options.ingest_rows, options.burst), options.ingest_rows)
        server = Server(options.binary, work / "ingest")
        with server.running():
            subject.ingest(options, server, bodies)
    if "advice" in options.only:
        server = Server(options.binary, work / "advice")
        with server.running():
            subject.advice(options, server)
    # No server runs beside them.
    if "peers" in options.only:
        compare(options, partita, path, work)


def main():
    options = arguments()
    sys.stdout.reconfigure(line_buffering=True)
    work = pathlib.Path(tempfile.mkdtemp(prefix="partita-indexes.", dir=options.work))
    try:
        run(options, work)
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
