"""A peer of an in-process server with JetStream, for tests about the engine."""

from __future__ import annotations

import itertools
import json
from typing import Any

from tradewind.testing import FakeConnection, InProcessServer


class Peer:
    """A connection that asks and publishes; everything is done when a call returns."""

    def __init__(
        self, server: InProcessServer, user: str = "", password: str = "", inbox: str = "inbox"
    ) -> None:
        options: dict[str, Any] = {"verbose": False, "headers": True, "no_responders": True}
        if user:
            options |= {"user": user, "pass": password}
        greeting = f"CONNECT {json.dumps(options)}\r\n".encode()
        self.connection: FakeConnection = server.connect(greeting)
        self._numbers = itertools.count(1)
        self._inbox = inbox
        self.connection.send(f"SUB {inbox}.> 1\r\n".encode())

    def ask(self, subject: str, body: Any = b"") -> list[tuple[str, bytes, bytes]]:
        """Publish with an inbox; gives (subject, header, payload) of all that has come back."""
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        reply = f"{self._inbox}.{next(self._numbers)}"
        self.connection.send(
            f"PUB {subject} {reply} {len(payload)}\r\n".encode() + payload + b"\r\n"
        )
        return self.take()

    def take(self) -> list[tuple[str, bytes, bytes]]:
        """The messages that have arrived."""
        data, found = self.connection.take(), []
        while data:
            line, _, data = data.partition(b"\r\n")
            words = line.split()
            if words[0] not in (b"MSG", b"HMSG"):
                continue
            size = int(words[-1])
            header_size = int(words[-2]) if words[0] == b"HMSG" else 0
            found.append((words[1].decode(), data[:header_size], data[header_size:size]))
            data = data[size + 2 :]
        return found

    def api(self, name: str, body: Any = b"") -> dict[str, Any]:
        """The answer to a request of the API, which must be there at once."""
        answers = self.ask(f"$JS.API.{name}", body)
        assert len(answers) == 1, answers
        document: dict[str, Any] = json.loads(answers[0][2])
        return document

    def create(self, stream: str, **config: Any) -> dict[str, Any]:
        """A stream on `<name>.>`."""
        body = {"name": stream, "subjects": [f"{stream}.>"], **config}
        return self.api(f"STREAM.CREATE.{stream}", body)

    def publish(self, subject: str, payload: bytes = b"x") -> dict[str, Any] | None:
        """The acknowledgement, None if there is none yet."""
        answers = self.ask(subject, payload)
        return json.loads(answers[0][2]) if answers else None
