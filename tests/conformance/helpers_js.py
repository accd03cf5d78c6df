"""A client that speaks the JetStream API byte by byte."""

from __future__ import annotations

import json
import os
import shutil
import time
from typing import Any

from harness import RawClient, ServerProcess

# The servers that tests of JetStream run on.
JETSTREAM_KINDS = ["official", "tradewind"]
INBOX = "answers"
PREFIX = "$JS.API."
PASSWORD = "hush"
WAIT_SECONDS = 20


class ApiClient:
    """Sends requests and waits for their answers, one at a time."""

    def __init__(self, server: ServerProcess, **login: str) -> None:
        self.kind = server.kind
        self.server = server
        self.raw = RawClient(server.port).connect(no_responders=True, **login)
        self.raw.send(f"SUB {INBOX} 1\r\n")

    def __enter__(self) -> ApiClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.raw.close()

    def ask(self, subject: str, body: bytes | dict[str, Any] = b"") -> bytes:
        """The bytes of the answer to a request below $JS.API."""
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        self.raw.send(f"PUB {PREFIX}{subject} {INBOX} {len(data)}\r\n".encode() + data + b"\r\n")
        return self.raw.read_message()[2]

    def request(self, subject: str, body: bytes | dict[str, Any] = b"") -> dict[str, Any]:
        """The answer as a document."""
        answer: dict[str, Any] = json.loads(self.ask(subject, body))
        return answer

    def error(self, subject: str, body: bytes | dict[str, Any] = b"") -> list[Any] | None:
        """Code, err_code and description of a refusal, None if there was none."""
        error = self.request(subject, body).get("error")
        return [error["code"], error["err_code"], error["description"]] if error else None

    def done(self, subject: str, body: bytes | dict[str, Any] = b"") -> dict[str, Any]:
        """The answer to a request that must not be refused."""
        answer = self.request(subject, body)
        assert "error" not in answer, answer["error"]
        return answer

    def delete_streams(self) -> None:
        """Remove all streams of the account, so that others of their names can be made at once."""
        for name in self.request("STREAM.NAMES")["streams"] or []:
            if self.kind == "official":
                make_room_for_delete(self.server, name)
            self.done(f"STREAM.DELETE.{name}")


def make_room_for_delete(server: ServerProcess, name: str) -> None:
    """Let the official server move the folder of a stream away when it is deleted.

    It puts a dot before the name, and removes the folder later. Where the last one of that name is
    still there it cannot, and the next stream has the old messages. It removes the folder of all
    streams, too, when that is empty, and so may take it away from under the next one.
    """
    assert server.store is not None
    for streams in server.store.glob("jetstream/*/streams"):
        (streams / ".keep").touch()
        end = time.monotonic() + WAIT_SECONDS
        left = streams / f".{name}"
        while left.name in os.listdir(streams):  # the name may be too long for a file
            assert time.monotonic() < end, left
            shutil.rmtree(left, ignore_errors=True)


def api_login(server: ServerProcess, user: str) -> ApiClient:
    """A client of the account whose user this is; all users have the same password."""
    return ApiClient(server, **{"user": user, "pass": PASSWORD})
