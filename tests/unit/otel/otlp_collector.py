"""A collector of OTLP on loopback that can be slow, unwilling or rude."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WAIT_SECONDS = 30


class Collector:
    """Collects spans; `status` is what it answers, and it answers when `open` is set."""

    def __init__(self) -> None:
        self.status = 200
        self.open = threading.Event()
        self.open.set()
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self._came = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                with collector._came:
                    collector.requests.append((self.path, headers, json.loads(body)))
                    collector._came.notify_all()
                collector.open.wait(WAIT_SECONDS)
                self.send_response(collector.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self.open.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def spans(self) -> list[dict[str, Any]]:
        """All spans so far, each with its attributes as a plain dictionary."""
        found = []
        for _, _, document in list(self.requests):
            for resource in document["resourceSpans"]:
                for scope in resource["scopeSpans"]:
                    found += [_plain(span) for span in scope["spans"]]
        return found

    def wait_for(self, is_there: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """The spans as soon as they are what is waited for."""
        with self._came:
            assert self._came.wait_for(lambda: is_there(self.spans()), WAIT_SECONDS), self.spans()
        return self.spans()


def _plain(span: dict[str, Any]) -> dict[str, Any]:
    values = {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}
    return {**span, "attributes": values}
