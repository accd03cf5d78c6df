"""A client and configurations for tests about long turns."""

from __future__ import annotations

import json
from typing import Any

from harness import RawClient

BUDGET_MS = 500


class Client(RawClient):
    """Asks the API and publishes."""

    def api(self, endpoint: str, body: Any = None) -> dict[str, Any]:
        text = b"" if body is None else json.dumps(body).encode()
        self.send(f"PUB $JS.API.{endpoint} r {len(text)}\r\n".encode() + text + b"\r\n")
        answer: dict[str, Any] = json.loads(self.read_message()[2])
        return answer

    def get(self, body: bytes) -> bytes:
        """The first reply to a direct get."""
        self.send(b"PUB $JS.API.DIRECT.GET.S r %d\r\n" % len(body) + body + b"\r\n")
        return b"".join(self.read_message()[1:])

    def pull(self, name: str, body: bytes) -> bytes:
        self.send(f"PUB $JS.API.CONSUMER.MSG.NEXT.S.{name} r {len(body)}\r\n".encode() + body)
        self.send(b"\r\n")
        return b"".join(self.read_message()[1:])

    def publish_all(self, subjects: list[str]) -> None:
        for start in range(0, len(subjects), 1000):
            part = subjects[start : start + 1000]
            self.send("".join(f"PUB {subject} 1\r\nx\r\n" for subject in part))
            self.ping()


def memory_stream(client: Client, **config: Any) -> None:
    body = {"name": "S", "subjects": ["s.>"], "storage": "memory", **config}
    assert "error" not in client.api("STREAM.CREATE.S", body)


def consumer(client: Client, name: str, **config: Any) -> dict[str, Any]:
    body = {"stream_name": "S", "config": {"name": name, "durable_name": name, **config}}
    return client.api(f"CONSUMER.DURABLE.CREATE.S.{name}", body)
