"""The suites: where their sources are from, and how pytest runs them."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable

HOST = "127.0.0.1"
USER = "partita"
DATABASE = "public"


@dataclasses.dataclass(frozen=True)
class Suite:
    """One suite. `{port}` in its environment and arguments is the server's."""

    name: str
    version: str
    # A Git repository with a tag of the version, or empty: then it is the source distribution of the Python package.
    repository: str
    # Folders and files that are run; the rest of the package's source would hide the installed package.
    parts: tuple[str, ...]
    environment: dict[str, str]
    arguments: tuple[str, ...]
    slow: tuple[str, ...] = ()
    not_slow: tuple[str, ...] = ()
    # Databases (schemas in PostgreSQL) that have to be there.
    schemas: tuple[str, ...] = ()
    # Arguments where a server is not PostgreSQL.
    elsewhere: tuple[str, ...] = ()
    # Whether tables that a test leaves behind are dropped after it; others share tables between tests, and drop them.
    has_own_tables: bool = True


UNSUITED = "not subprocess and not timing and not gevent and not dns"
SUITES = (
    Suite(
        "psycopg", "3.3.4", "https://github.com/psycopg/psycopg", ("tests", "tools", "pyproject.toml"),
        {"PSYCOPG_TEST_DSN": f"host={HOST} port={{port}} user={USER} dbname={DATABASE}"},
        # Left out: type checks of the source, CockroachDB, and what depends on the machine's timing.
        ("tests", "--ignore=tests/test_typing.py", "--ignore=tests/crdb"),
        slow=("-m", UNSUITED), not_slow=("-m", f"not slow and {UNSUITED}"),
    ),
    Suite(
        "asyncpg", "0.32.0", "", ("tests",),
        {"PGHOST": HOST, "PGPORT": "{port}", "PGUSER": USER, "PGDATABASE": DATABASE},
        # Left out: checks of the source's style and of the versions that its CI has.
        ("--import-mode=importlib", "--ignore-glob=*/test__*.py", "tests"),
    ),
    Suite(
        "SQLAlchemy", "2.1.9", "", ("test", "lib/sqlalchemy/testing/plugin", "setup.cfg", "pyproject.toml"), {},
        # The suite of a dialect, with SQLAlchemy's own list of what the dialect of PostgreSQL can do.
        ("--maxfail=1000000", f"--dburi=postgresql+psycopg://{USER}@{HOST}:{{port}}/{DATABASE}", "test/dialect/test_suite.py"),
        schemas=("test_schema", "test_schema_2"), elsewhere=("-p", "without_extensions"), has_own_tables=False,
    ),
)


def prepare(suite: Suite, sources: pathlib.Path | None, cache: pathlib.Path) -> pathlib.Path:
    """The folder with the parts of a suite that are run.

    `sources` has a folder with the name of the suite, or is None: then the source comes from where it is published.
    """
    folder = cache / f"{suite.name}-{suite.version}"
    if sources is not None:
        found = [path for path in sources.iterdir() if path.is_dir() and path.name.lower() == suite.name.lower()]
        if not found:
            raise SystemExit(f"{sources} has no folder {suite.name}")
        shutil.rmtree(folder, ignore_errors=True)
        copy(suite, found[0], folder)
    elif not folder.exists():
        with tempfile.TemporaryDirectory() as temporary:
            fetch: Callable[[Suite, pathlib.Path], pathlib.Path] = cloned if suite.repository else downloaded
            copy(suite, fetch(suite, pathlib.Path(temporary)), folder)
    return folder


def copy(suite: Suite, source: pathlib.Path, folder: pathlib.Path) -> None:
    for part in suite.parts:
        target = folder / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if (source / part).is_dir():
            shutil.copytree(source / part, target)
        else:
            shutil.copyfile(source / part, target)


def cloned(suite: Suite, folder: pathlib.Path) -> pathlib.Path:
    command = ["git", "clone", "--quiet", "--depth", "1", "--branch", suite.version, suite.repository, str(folder / "source")]
    subprocess.run(command, check=True)
    return folder / "source"


def downloaded(suite: Suite, folder: pathlib.Path) -> pathlib.Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--no-binary", suite.name, "--dest", str(folder), f"{suite.name}=={suite.version}"]
    subprocess.run(command, check=True)
    [archive] = folder.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    [source] = [path for path in folder.iterdir() if path.is_dir()]
    return source
