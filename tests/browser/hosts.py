"""The servers of a page that somebody else wrote: one for its own origin, and one whose name is rebound to another server.

A name is rebound when its owner lets it mean another address after the page came: what the page then asks of its own
origin goes to that other server. Here the name keeps its address, and what listens there passes connections on.
"""

import contextlib
import http.server
import json
import pathlib
import queue
import socket
import threading

PAGE = pathlib.Path(__file__).with_name("page.html").read_text()
# For how long one request of a page may be without an answer.
PATIENCE_MS = 4000
# A page without an origin of its own: what it asks says "null".
SANDBOX = "sandbox allow-scripts allow-forms allow-popups"


def page_of(attacks, report, rebinds=False):
    """The page with its plan. What ends a script must not occur within one."""
    plan = {"attacks": [attack.as_json() for attack in attacks], "report": report, "rebinds": rebinds, "patience_ms": PATIENCE_MS}
    return PAGE.replace("/*PLAN*/", json.dumps(plan).replace("<", "\\u003c")).encode()


class Pages:
    """An HTTP server of pages by path, to which they also report. `reports` is a queue of what they found."""

    def __init__(self):
        self.pages, self.reports = {}, queue.Queue()
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                page = owner.pages.get(self.path)
                self.send_response(200 if page else 404)
                self.send_header("content-type", "text/html; charset=utf-8")
                if self.path.startswith("/sandboxed"):
                    self.send_header("content-security-policy", SANDBOX)
                self.end_headers()
                self.wfile.write(page or b"")

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                self.send_response(204)
                self.end_headers()
                owner.reports.put(json.loads(body))

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def report_url(self):
        return f"http://127.0.0.1:{self.port}/report"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Rebound:
    """Listens on an address of its own, on the port of another server: serves one page, then is that other server."""

    ADDRESS = "127.0.0.2"

    def __init__(self, port, page):
        self.port, self.page, self.rebound = port, page, threading.Event()
        self.listener = socket.create_server((self.ADDRESS, port))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client, contextlib.suppress(OSError):
            if self.rebound.is_set():
                self.pass_on(client)
                return
            # Browsers also open connections that they then do not need.
            first_line = client.recv(65536).split(b"\r\n")[0]
            asked_to = b"/rebind" in first_line
            body = b"" if asked_to else self.page
            head = f"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
            if asked_to:
                self.rebound.set()
            client.sendall(head.encode() + body)

    def pass_on(self, client):
        with socket.create_connection(("127.0.0.1", self.port)) as server:
            back = threading.Thread(target=copy, args=(server, client), daemon=True)
            back.start()
            copy(client, server)
            back.join()

    def close(self):
        self.listener.close()


def copy(source, sink):
    """Passes bytes on until one end has no more."""
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    try:
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass
