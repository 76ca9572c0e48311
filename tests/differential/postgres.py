"""A PostgreSQL server of the fuzzer's own: a fresh cluster in a folder, reached by a socket there."""

from __future__ import annotations

import os
import pathlib
import pwd
import shutil
import subprocess

# PostgreSQL does not run as root; these users may own its cluster then.
OWNERS = ("postgres", "nobody")
# Nothing has to survive: syncing would cost most of the time.
OPTIONS = "-c listen_addresses='' -c fsync=off -c statement_timeout=20s -c jit=off -c max_parallel_workers_per_gather=0"


class Postgres:
    """A cluster under `folder`. Its collation compares bytes, as Partita does, and its case mapping knows Unicode."""

    def __init__(self, folder: pathlib.Path, options: str = OPTIONS) -> None:
        self.folder = folder
        self.options = options
        self.programs = programs()
        self.owner = next((name for name in OWNERS if known(name)), "") if os.getuid() == 0 else ""

    def start(self) -> None:
        self.folder.mkdir(parents=True)
        if self.owner:
            shutil.chown(self.folder, self.owner)
            # The folders above may be closed to others.
            for parent in self.folder.parents:
                if not parent.stat().st_mode & 0o001:
                    parent.chmod(parent.stat().st_mode | 0o011)
        data = self.folder / "data"
        self.run("initdb", "-D", data, "-A", "trust", "-U", "partita", "-N", "--locale=C.UTF-8", "--encoding=UTF8")
        options = f"{self.options} -c unix_socket_directories={self.folder}"
        self.run("pg_ctl", "-D", data, "-w", "-l", self.folder / "log", "-o", options, "start")

    def stop(self) -> None:
        if (self.folder / "data" / "postmaster.pid").exists():
            self.run("pg_ctl", "-D", self.folder / "data", "-m", "immediate", "stop")

    def conninfo(self) -> str:
        return f"host={self.folder} user=partita dbname=postgres"

    def run(self, program: str, *arguments: object) -> None:
        command = [str(self.programs / program), *map(str, arguments)]
        if self.owner:
            command = ["setpriv", f"--reuid={self.owner}", f"--regid={group(self.owner)}", "--clear-groups", *command]
        # Its output goes to a file: the server would keep a pipe open.
        with open(self.folder / "programs", "ab") as output:
            done = subprocess.run(command, stdout=output, stderr=output, cwd="/")
        if done.returncode:
            raise SystemExit(f"{program} failed:\n{(self.folder / 'programs').read_text()}")


def programs() -> pathlib.Path:
    """The folder of PostgreSQL's server programs."""
    told = os.environ.get("POSTGRES_BIN")
    found = [pathlib.Path(told)] if told else sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
    if not found or not (found[-1] / "initdb").exists():
        raise SystemExit("PostgreSQL's server is not installed; deploy/setup.sh does it")
    return found[-1]


def known(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def group(user: str) -> int:
    return pwd.getpwnam(user).pw_gid
