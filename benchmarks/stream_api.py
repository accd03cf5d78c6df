"""A plain client of the JetStream API, for what a workload prepares: streams and consumers.

One blocking connection, a bounded number of requests outstanding. Never carries measured messages:
the compiled load generator does.
"""

import itertools
import json
import socket
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

from benchmarks.servers import Server

TIMEOUT_S = 60.0
OUTSTANDING_MAX = 64
READ_BYTES = 1 << 16
RETRY_PAUSE_S = 0.02
NO_RESPONDERS = b"NATS/1.0 503"
GREETING = b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"protocol":1}\r\n'

Request = tuple[str, dict[str, Any]]
"""An endpoint without its prefix, such as `STREAM.CREATE.ORDERS`, and the body of the request."""

_numbers = itertools.count(1)


class StreamApi:
    """`with StreamApi(server) as api` gives answers to requests; an error answer is a LoadError."""

    def __init__(self, server: Server, greeting: bytes = GREETING) -> None:
        self._socket = socket.create_connection((server.host, server.port), TIMEOUT_S)
        self._input = b""
        # Of its own: several may be open, and each would get the answers of all.
        self._inbox = f"_INBOX.api{next(_numbers)}"
        self._socket.sendall(greeting + f"SUB {self._inbox}.* 1\r\n".encode())

    def __enter__(self) -> "StreamApi":
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()

    def request(self, endpoint: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One request and its answer."""
        return self.request_all([(endpoint, body or {})])[0]

    def request_all(self, requests: Iterable[Request]) -> list[dict[str, Any]]:
        """All requests, some of them outstanding at a time; the answers in order."""
        waiting = list(requests)
        answers: dict[int, dict[str, Any]] = {}
        sent = 0
        while len(answers) < len(waiting):
            room = OUTSTANDING_MAX - (sent - len(answers))
            batch = waiting[sent : sent + room]
            self._send(sent, batch)
            sent += len(batch)
            number, answer = self._read_answer()
            answers[number] = answer
        return [answers[number] for number in range(len(waiting))]

    def _send(self, first: int, batch: Sequence[Request]) -> None:
        parts = []
        for number, (endpoint, body) in enumerate(batch, first):
            text = json.dumps(body).encode() if body else b""
            line = f"PUB $JS.API.{endpoint} {self._inbox}.{number} {len(text)}\r\n"
            parts.append(line.encode() + text + b"\r\n")
        self._socket.sendall(b"".join(parts))

    def wait_until_heard(self, subject: str, header: str = "", payload: str = "") -> None:
        """Send a probe until anybody answers it, whatever the answer says.

        A cluster answers the creation of a stream or consumer before every node knows its leader's
        subscriptions; until then nobody answers what is sent to their subjects.
        """
        from benchmarks.loadgen.link import LoadError

        head = f"NATS/1.0\r\n{header}\r\n\r\n" if header else "NATS/1.0\r\n\r\n"
        body = f"{head}{payload}"
        line = f"HPUB {subject} {self._inbox}.0 {len(head)} {len(body)}\r\n{body}\r\n".encode()
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            self._socket.sendall(line)
            if not self._read_message()[1].startswith(NO_RESPONDERS):
                return
            time.sleep(RETRY_PAUSE_S)
        raise LoadError(f"nobody has answered on {subject} for {TIMEOUT_S:.0f} s")

    def _read_answer(self) -> tuple[int, dict[str, Any]]:
        from benchmarks.loadgen.link import LoadError

        words, payload = self._read_message()
        if words[0] == b"HMSG":
            raise LoadError(f"no answer of the API: {payload[:80]!r}")
        answer: dict[str, Any] = json.loads(payload)
        if "error" in answer:
            raise LoadError(f"the API answered {answer['error']}")
        return int(words[1].rsplit(b".", 1)[1]), answer

    def _read_message(self) -> tuple[list[bytes], bytes]:
        """The words of the next message's line, and its headers and payload."""
        while True:
            words = self._read_line().split(b" ")
            if words[0] == b"PING":
                self._socket.sendall(b"PONG\r\n")
            if words[0] in (b"MSG", b"HMSG"):
                return words, self._read_exactly(int(words[-1]) + 2)

    def _read_line(self) -> bytes:
        while b"\r\n" not in self._input:
            self._receive()
        line, _, self._input = self._input.partition(b"\r\n")
        if line.startswith(b"-ERR"):
            from benchmarks.loadgen.link import LoadError

            raise LoadError(f"the server answered {line.decode()}")
        return line

    def _read_exactly(self, size: int) -> bytes:
        while len(self._input) < size:
            self._receive()
        data, self._input = self._input[:size], self._input[size:]
        return data

    def _receive(self) -> None:
        from benchmarks.loadgen.link import LoadError

        try:
            data = self._socket.recv(READ_BYTES)
        except TimeoutError:
            raise LoadError(f"no answer of the API within {TIMEOUT_S:.0f} s") from None
        if not data:
            raise LoadError("the server closed the connection of the API")
        self._input += data
