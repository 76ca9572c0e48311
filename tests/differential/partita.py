"""The Partita server under test: one process, in which each layout has a database of its own."""

from __future__ import annotations

import pathlib
import re
import subprocess
import time

START_S = 120
STOP_S = 20


class Partita:
    """`partita standalone` on free ports, or on `port` and the next one."""

    def __init__(self, binary: pathlib.Path, folder: pathlib.Path, port: int = 0) -> None:
        self.binary = binary
        self.folder = folder
        self.port = port
        self.http = port + 1 if port else 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [self.binary, "standalone", "--data-dir", self.folder / "data"]
        command += ["--postgres", f"127.0.0.1:{self.port}", "--http", f"127.0.0.1:{self.http}"]
        with open(self.folder / "log", "wb") as log, open(self.folder / "ready", "wb") as ready:
            self.process = subprocess.Popen([str(part) for part in command], stdout=ready, stderr=log)
        until = time.monotonic() + START_S
        while not (found := re.search(r"psql .*-p (\d+)", (self.folder / "ready").read_text())):
            if self.process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"the server did not start:\n{self.log_tail()}")
            time.sleep(0.05)
        self.port = int(found[1])

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def conninfo(self, database: str = "public") -> str:
        return f"host=127.0.0.1 port={self.port} user=partita dbname={database}"

    def log_tail(self, lines: int = 20) -> str:
        return "\n".join((self.folder / "log").read_text("utf-8", "replace").splitlines()[-lines:])
