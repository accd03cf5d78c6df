"""What tracing costs: processor time of the server per message, with spans off and with some.

    python -m benchmarks.tracing_cost
    python -m benchmarks.tracing_cost --before FOLDER     and the server of another source tree

Every figure is the processor time of the server process, so a busy machine disturbs it less than a
rate; rounds take turns, and the least of each kind counts. Only the ratios say something.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from benchmarks.procfs import process_cpu_s

MESSAGES: Final = 100_000
STREAM_MESSAGES: Final = 20_000
ROUNDS: Final = 3
PAYLOAD: Final = b"x" * 128
READ_BYTES: Final = 1 << 20
TRACE: Final = "0af7651916cd43dd8448eb211c80319c"


class _Sink(BaseHTTPRequestHandler):
    """A collector that forgets."""

    def do_POST(self) -> None:
        """Take spans."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """It says nothing."""


class _Server:
    """A server of a source tree as a process."""

    def __init__(self, source: str, endpoint: str, folder: str) -> None:
        config = Path(folder) / "server.conf"
        block = f'opentelemetry: "{endpoint}"\n' if endpoint else ""
        config.write_text(f'{block}jetstream {{ store_dir: "{folder}/js" }}\n')
        listen = ["-a", "127.0.0.1", "-p", "-1"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tradewind.server.server_main", *listen, "-c", str(config)],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(source) / "src")},
            cwd=folder,
        )
        self.port = 0
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r"client connections on .*:(\d+)", line):
                self.port = int(found[1])
            if "Server is ready" in line:
                break
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def client(self) -> socket.socket:
        """A connection that is logged in."""
        made = socket.create_connection(("127.0.0.1", self.port))
        made.sendall(b'CONNECT {"verbose":false,"headers":true}\r\nPING\r\n')
        data = b""
        while b"PONG\r\n" not in data:
            data += made.recv(READ_BYTES)
        return made

    def cost_of(self, messages: list[bytes], subscription: bytes, answer: bytes) -> float:
        """Seconds of processor time for these messages, until that many answers have come."""
        with self.client() as sender, self.client() as receiver:
            receiver.sendall(subscription + b"PING\r\n")
            rest = b""
            while b"PONG\r\n" not in rest:
                rest += receiver.recv(READ_BYTES)
            before = process_cpu_s(self.process.pid)
            thread = threading.Thread(target=sender.sendall, args=(b"".join(messages),))
            thread.start()
            count, rest = 0, b""
            while count < len(messages):
                data = rest + receiver.recv(READ_BYTES)
                count += data.count(answer)
                rest = data[-(len(answer) - 1) :]
            thread.join()
            return process_cpu_s(self.process.pid) - before

    def make_stream(self) -> None:
        """One in memory, so that the disk has no part in it."""
        config = json.dumps({"name": "S", "subjects": ["s"], "storage": "memory"}).encode()
        with self.client() as client:
            client.sendall(b"SUB made 1\r\nPUB $JS.API.STREAM.CREATE.S made ")
            client.sendall(b"%d\r\n%b\r\n" % (len(config), config))
            data = b""
            while b"created" not in data:
                data += client.recv(READ_BYTES)

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait()


def _messages(
    subject: bytes, reply: bytes, count: int, sampled: int, *, header: bool
) -> list[bytes]:
    """Messages of which `sampled` of a hundred carry a sampled traceparent."""
    made = []
    for number in range(count):
        flag = b"01" if number % 100 < sampled else b"00"
        line = b"traceparent: 00-%b-%016x-%b\r\n" % (TRACE.encode(), number + 1, flag)
        block = b"NATS/1.0\r\n" + line + b"\r\n" if header else b""
        sizes = b"%d" % (len(block) + len(PAYLOAD))
        if header:
            sizes = b"%d %b" % (len(block), sizes)
        verb = b"HPUB" if header else b"PUB"
        made.append(b"%b %b %b%b\r\n%b%b\r\n" % (verb, subject, reply, sizes, block, PAYLOAD))
    return made


def _measure(source: str, endpoint: str, *, header: bool, sampled: int) -> tuple[float, float]:
    """Microseconds per message of core publish and subscribe, and of a publish into a stream."""
    with tempfile.TemporaryDirectory() as folder:
        server = _Server(source, endpoint, folder)
        try:
            core = _messages(b"c", b"", MESSAGES, sampled, header=header)
            took = server.cost_of(core, b"SUB c 1\r\n", b"MSG c 1 ")
            server.make_stream()
            stored = _messages(b"s", b"acks ", STREAM_MESSAGES, sampled, header=header)
            kept = server.cost_of(stored, b"SUB acks 1\r\n", b"MSG acks 1 ")
        finally:
            server.stop()
    return took / MESSAGES * 1e6, kept / STREAM_MESSAGES * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", default="", help="source tree of a server to compare with")
    given = parser.parse_args().before
    before = str(Path(given).resolve()) if given else ""
    own = str(Path(__file__).resolve().parent.parent)
    collector = ThreadingHTTPServer(("127.0.0.1", 0), _Sink)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{collector.server_address[1]}"
    kinds: dict[str, tuple[str, str, bool, int]] = {}
    if before:
        kinds["before, no header"] = (before, "", False, 0)
        kinds["before, header"] = (before, "", True, 1)
    kinds["off, no header"] = (own, "", False, 0)
    kinds["off, header"] = (own, "", True, 1)
    kinds["on, no header"] = (own, url, False, 0)
    kinds["on, 1 % sampled"] = (own, url, True, 1)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        for name, (source, endpoint, header, sampled) in kinds.items():
            found[name].append(_measure(source, endpoint, header=header, sampled=sampled))
    print(f"{'server time per message':<24} {'core':>10} {'stream':>10}")
    for name, rounds in found.items():
        core, stream = (min(column) for column in zip(*rounds, strict=True))
        print(f"{name:<24} {core:>7.2f} µs {stream:>7.2f} µs")


if __name__ == "__main__":
    main()
