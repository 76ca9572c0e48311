"""Random statements to Partita in several layouts and to PostgreSQL. See tests/differential/run."""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import signal
import sys
import tempfile

import known


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/differential/run")
    parser.add_argument("--seed", type=int, default=1, help="decides every random choice (1)")
    parser.add_argument("--only", default="", metavar="CASE[.STATEMENT]", help="this case of the seed, up to a statement of it")
    parser.add_argument("--first", type=int, default=0, metavar="CASE", help="begin with this case (0, which has each form of an expression once)")
    parser.add_argument("--statements", type=int, default=1000, help="how many to compare (1000)")
    parser.add_argument("--layouts", type=int, default=0, metavar="N", help="the first so many layouts (all)")
    parser.add_argument("--ci", action="store_true", help="1,000 statements of seed 1 over few layouts")
    parser.add_argument("--all", action="store_true", help="leave nothing out that is known to differ")
    parser.add_argument("--differences", type=int, default=20, metavar="N", help="end after so many (20)")
    parser.add_argument("--no-shrink", action="store_true", help="print differences as they are found")
    parser.add_argument("--show", action="store_true", help="print the statements, send nothing")
    parser.add_argument("--port", type=int, default=0, help="PostgreSQL's port of the server; the next one is HTTP's (free ones)")
    parser.add_argument("--out", type=pathlib.Path, default=None, help="differences are appended to this file as well")
    parser.add_argument("--keep", type=pathlib.Path, default=None, metavar="DIR", help="data and logs go into this new directory and stay")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if options.all:
        known.HELD_BACK.clear()
    # These read what is held back when they are imported.
    from cases import case_of
    from campaign import Campaign, statements_of

    if options.show:
        number = int(options.only.split(".")[0]) if options.only else options.first
        print("\n".join(f"{text};" for text in statements_of(case_of(options.seed, number))))
        return 0
    binary = pathlib.Path(os.environ.get("PARTITA_BIN", ""))
    if not binary.is_file():
        sys.exit(f"'{binary}' is not there; say with PARTITA_BIN where the binary is")
    work = options.keep or pathlib.Path(tempfile.mkdtemp(prefix="differential-"))
    work.mkdir(parents=True, exist_ok=True)
    # Whoever stops it wants to know what it has found.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    campaign = Campaign(binary.resolve(), work.resolve(), options)
    try:
        campaign.start()
        campaign.run()
    except KeyboardInterrupt:
        print("interrupted")
    finally:
        campaign.stop()
        if not options.keep:
            shutil.rmtree(work, ignore_errors=True)
    return campaign.report()


if __name__ == "__main__":
    sys.exit(main())
