"""Pages of other origins against a server on loopback, in a real browser. See tests/browser/run."""

import argparse
import contextlib
import os
import pathlib
import queue
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import psycopg

import attacks
from hosts import Pages, Rebound, page_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROUTES = ROOT / "frontend" / "http" / "src" / "routes.rs"
START_S = 120
# One page with all its attacks.
PAGE_S = 300
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
NO_BROWSER = f"none of {', '.join(PROGRAMS)} is installed"
# Names of the pages' origins. Both mean this machine, and neither is a name that browsers take for it by themselves.
FOREIGN, REBOUND = "other.test", "rebound.test"
# What the browser itself would keep from happening: this looks at what the server refuses.
RELAXED = "LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests,PrivateNetworkAccessForWorkers"
# For how long the server's own page runs before it is looked at.
OWN_PAGE_WAIT_MS = 8000


class Broken(Exception):
    """A process did not start, or the browser did not report."""


def arguments():
    parser = argparse.ArgumentParser(prog="tests/browser/run")
    parser.add_argument("--only", default="", metavar="ORIGIN", help="plain, foreign, sandboxed or rebound (all)")
    parser.add_argument("--screenshot", type=pathlib.Path, default=None, help="a picture of the server's own page")
    parser.add_argument("--ci", action="store_true", help="each attack from one kind of page only, and no control")
    return parser.parse_args()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def browser_program():
    """The path of a browser; None where there is none."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Server:
    """A process with every role, with one table that has one row, and a meta beside it."""

    def __init__(self, binary, work, *more):
        self.work = pathlib.Path(work)
        self.http, self.postgres, self.meta = free_port(), free_port(), free_port()
        doors = ["--http", f"127.0.0.1:{self.http}", "--postgres", f"127.0.0.1:{self.postgres}"]
        peers = ["--node", "1", "--peers", f"1=127.0.0.1:{self.meta}", "--listen", f"127.0.0.1:{self.meta}"]
        self.processes = {
            "server": self.launch(binary, "server", "standalone", *doors, *more),
            "meta": self.launch(binary, "meta", "meta", *peers),
        }

    def launch(self, binary, name, *command):
        with open(self.work / f"{name}.ready", "wb") as ready, open(self.work / f"{name}.log", "wb") as log:
            data = ["--data-dir", self.work / f"{name}.data"]
            return subprocess.Popen([binary, *command, *data], stdout=ready, stderr=log, stdin=subprocess.DEVNULL)

    def wait_ready(self):
        until = time.monotonic() + START_S
        for name, process in self.processes.items():
            while "is ready" not in (self.work / f"{name}.ready").read_text():
                if process.poll() is not None or time.monotonic() > until:
                    raise Broken(f"the {name} did not start: {(self.work / f'{name}.log').read_text()[-2000:]}")
                time.sleep(0.02)

    def base(self):
        return f"http://127.0.0.1:{self.http}"

    def rows(self, sql):
        where = f"host=127.0.0.1 port={self.postgres} user=partita dbname=public"
        with psycopg.connect(where, autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

    def make_table(self):
        self.rows(f"CREATE TABLE {attacks.TABLE} (id BIGINT, word STRING, PRIMARY KEY (id))")
        self.rows(f"INSERT INTO {attacks.TABLE} VALUES (1, '{attacks.SECRET}')")

    def state(self):
        """All that a page may have changed."""
        return {
            "tables": sorted(self.rows('SELECT "table" FROM sys.tables')),
            "rows": self.rows(f"SELECT * FROM {attacks.TABLE}"),
            "files": self.rows(f"SELECT partition, files FROM sys.partitions WHERE \"table\" = '{attacks.TABLE}'"),
            "nodes": self.rows("SELECT node, live, draining FROM sys.nodes"),
            "settings": self.rows("SHOW ALL"),
        }

    def statements_of_pages(self):
        text = "SELECT text FROM sys.query_log"
        return [row[0] for row in self.rows(text) if attacks.MARK in row[0] and "query_log" not in row[0]]

    def requests(self):
        """How many requests the HTTP port has counted."""
        text = urllib.request.urlopen(self.base() + "/metrics").read().decode()
        return sum(int(float(count)) for count in re.findall(r"^\w*http_requests(?:_total)?\{[^}]*\} (\S+)$", text, re.M))

    def troubles(self):
        """Processes that have ended, and panics in their logs."""
        found = [f"the {name} ended with {process.poll()}" for name, process in self.processes.items() if process.poll() is not None]
        for name in self.processes:
            log = (self.work / f"{name}.log").read_text(errors="replace")
            found += [f"the {name} {line}" for line in log.splitlines() if "panicked at" in line]
        return found

    def stop(self):
        for process in self.processes.values():
            process.kill()
            process.wait()


class Browser:
    """A headless browser with a profile of its own, which knows the names of the pages' origins."""

    def __init__(self, work):
        program = browser_program()
        if not program:
            raise Broken(NO_BROWSER)
        rules = f"MAP {FOREIGN} 127.0.0.1, MAP {REBOUND} {Rebound.ADDRESS}"
        self.command = [
            program, "--headless=new", "--disable-gpu", "--no-first-run", "--disable-popup-blocking",
            "--disable-dev-shm-usage", "--disable-background-timer-throttling", "--disable-renderer-backgrounding",
            "--disable-backgrounding-occluded-windows", f"--disable-features={RELAXED}", f"--host-resolver-rules={rules}",
            f"--user-data-dir={work}",
        ]  # fmt: skip
        if os.geteuid() == 0:
            self.command.append("--no-sandbox")

    @contextlib.contextmanager
    def open(self, url):
        process = subprocess.Popen([*self.command, url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()

    def print(self, url, *more):
        """The document as it is after its scripts had time."""
        wait = [f"--virtual-time-budget={OWN_PAGE_WAIT_MS}", "--window-size=1400,900"]
        done = subprocess.run([*self.command, *wait, *more, url], capture_output=True, text=True, timeout=PAGE_S)
        return done.stdout


def plans(server):
    """(name of the origin, base of the attacks, URL of the page) for each kind of page."""
    routes = attacks.routes_of(ROUTES.read_text())
    assert len(routes) > 15, "the routes are not found in the router's source"
    ports = [f"http://127.0.0.1:{port}" for port in (server.postgres, server.meta)]
    direct = attacks.of_server(server.base(), routes, ports)
    by_name = attacks.of_server(f"http://{REBOUND}:{server.http}", routes, [])
    return {"plain": direct, "foreign": direct, "sandboxed": direct, "rebound": by_name}


def run_page(browser, pages, server, name, plan):
    """Has the browser open one page; returns what it reports."""
    page = page_of(plan, pages.report_url(), rebinds=name == "rebound")
    rebound = Rebound(server.http, page) if name == "rebound" else None
    pages.pages[f"/{name}"] = page
    host = {"plain": "127.0.0.1", "foreign": FOREIGN, "sandboxed": FOREIGN}.get(name)
    url = f"http://{host}:{pages.port}/{name}" if host else f"http://{REBOUND}:{server.http}/"
    try:
        with browser.open(url):
            return pages.reports.get(timeout=PAGE_S)
    except queue.Empty:
        raise Broken(f"the page {name} did not report within {PAGE_S} s") from None
    finally:
        if rebound:
            rebound.close()


def check_own_page(browser, server, screenshot):
    """The server's own page works from its own origin; what does not, a line each."""
    more = [f"--screenshot={screenshot}"] if screenshot else []
    text = browser.print(f"{server.base()}/heatmap?table={attacks.TABLE}", "--dump-dom", *more)
    named = browser.print(f"http://localhost:{server.http}/heatmap", "--dump-dom")
    metrics = browser.print(f"{server.base()}/heatmap#table={attacks.TABLE}&metric=all", "--dump-dom")
    wanted = [
        ("its address", text, attacks.TABLE),
        ("localhost", named, attacks.TABLE),
        # Four pictures of the table, one above the other.
        ("its address with all metrics", metrics, "partitions: bytes written/s"),
        ("its address with all metrics", metrics, "Brightness"),
    ]
    return [
        f"the server's own page at {where} does not show {part!r}: {page[:200]!r}"
        for where, page, part in wanted
        if part not in page
    ]


def shared_out(plans):
    """Each attack is left to one of the pages."""
    return {name: plan[at :: len(plans)] for at, (name, plan) in enumerate(plans.items())}


def attack(browser, server, options):
    """Everything against a server that lets nobody in; what went wrong, a line each."""
    found, pages, before = [], Pages(), server.state()
    chosen = shared_out(plans(server)) if options.ci else plans(server)
    try:
        for name, plan in chosen.items():
            if options.only and name != options.only:
                continue
            began, asked = time.monotonic(), server.requests()
            report = run_page(browser, pages, server, name, plan)
            asked = server.requests() - asked
            ends = {}
            for result in report["results"]:
                ends[result["outcome"]] = ends.get(result["outcome"], 0) + 1
            text = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
            print(f"{name:10} {len(plan)} attacks from {report['origin']}: {text}; {asked} requests came; {time.monotonic() - began:.1f} s")
            found += [f"{name}: {fault}" for fault in attacks.faults(report["results"], name == "rebound")]
            if asked < len(plan) / 2:
                found.append(f"{name}: only {asked} requests reached the server, so this shows nothing")
            found += [f"{name}: {trouble}" for trouble in server.troubles()]
            after = server.state()
            found += [f"{name}: {part} changed: {before[part]}, then {after[part]}" for part in before if before[part] != after[part]]
            found += [f"{name}: a statement was run: {text}" for text in server.statements_of_pages()]
    finally:
        pages.close()
    return found


def control(browser, binary, work):
    """A server that lets these pages in: the same attacks must then read and change, or they show nothing."""
    pages = Pages()
    origin = f"http://{FOREIGN}:{pages.port}"
    server = Server(binary, work, "--http-origin", origin, "--http-host", REBOUND)
    found = []
    try:
        server.wait_ready()
        server.make_table()
        for name in ("foreign", "rebound"):
            plan = [one for one in plans(server)[name] if one.way in ("fetch", "xhr", "img", "form") and "/v1/sql" in one.url]
            report = run_page(browser, pages, server, name, plan)
            if not any("was read" in fault for fault in attacks.faults(report["results"], False)):
                found.append(f"control: a page that is let in ({name}) reads nothing")
            if not server.rows(f"SELECT 1 FROM sys.tables WHERE \"table\" = '{attacks.MARK}'"):
                found.append(f"control: a page that is let in ({name}) changes nothing")
            server.rows(f"DROP TABLE IF EXISTS {attacks.MARK}")
            server.rows(f"DROP TABLE IF EXISTS {attacks.TABLE}")
            server.make_table()
    finally:
        server.stop()
        pages.close()
    return found


def main():
    options = arguments()
    if options.ci and not browser_program():
        print("not tried: " + NO_BROWSER)
        return
    binary = os.environ.get("PARTITA_BIN", "")
    if not pathlib.Path(binary).is_file():
        sys.exit(f"'{binary}' is not there; say with PARTITA_BIN where the binary is")
    work = pathlib.Path(tempfile.mkdtemp(prefix="partita-browser-"))
    for folder in ("profile", "server", "control"):
        (work / folder).mkdir()
    server, found = Server(binary, work / "server"), []
    try:
        browser = Browser(work / "profile")
        server.wait_ready()
        server.make_table()
        found += attack(browser, server, options)
        found += check_own_page(browser, server, options.screenshot)
        if not options.ci:
            found += control(browser, binary, work / "control")
    except Broken as broken:
        found.append(str(broken))
    finally:
        server.stop()
        shutil.rmtree(work, ignore_errors=True)
    for line in found[:40]:
        print(f"WRONG {line}")
    print(f"{len(found)} wrong" if found else "no page of another origin read or changed anything")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
