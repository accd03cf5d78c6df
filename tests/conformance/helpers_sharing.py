"""Helpers for tests of accounts that share: members by name, and the messages they received."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from helpers_ops import login, next_message, publish, replies, request

from harness import RawClient, ServerProcess


class Crowd:
    """Connections of one test, all closed together. The password of everybody is pw."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self._open: dict[RawClient, int] = {}

    def join(self, user: str, *subscriptions: str, **options: Any) -> RawClient:
        """A member that subscribes: "subject" or "subject queue", with sids from 1 on."""
        headers = options.get("headers", True)
        client = login(self.server, user, "pw", no_responders=headers, **options)
        self._open[client] = len(subscriptions)
        lines = [f"SUB {what} {number}\r\n" for number, what in enumerate(subscriptions, 1)]
        assert replies(client, "".join(lines)) == []
        return client

    def leave(self, client: RawClient) -> None:
        del self._open[client]
        client.close()

    def close(self) -> None:
        for client, count in self._open.items():
            forget(client, *map(str, range(1, count + 1)))
            client.close()


def forget(client: RawClient, *sids: str) -> None:
    """End subscriptions, so that the next test does not meet them.

    A server that notices the end of a connection may take its time to remove them.
    """
    with contextlib.suppress(OSError):  # it may have closed the connection
        client.send("".join(f"UNSUB {sid}\r\n" for sid in sids) + "PING\r\n")
        while client.read_line() not in (b"PONG", b""):
            pass


@pytest.fixture
def crowd(server: ServerProcess) -> Iterator[Crowd]:
    crowd = Crowd(server)
    yield crowd
    crowd.close()


def told(client: RawClient, subject: str, payload: str = "", reply: str = "") -> None:
    """Publish; when this comes back the message is with all who get it."""
    assert replies(client, publish(subject, payload, reply)) == []


def asked(client: RawClient, subject: str, body: Any = "") -> dict[str, Any]:
    """The answer to a request whose body is text, or becomes JSON."""
    text = body if isinstance(body, str) else json.dumps(body)
    answer = json.loads(request(client, subject, text)[1])
    assert isinstance(answer, dict)
    return answer


def got(client: RawClient) -> tuple[str, str, bytes]:
    """The next message: subject, reply and payload."""
    words, _, payload = next_message(client)
    reply = words[3] if len(words) - (words[0] == "HMSG") == 5 else ""
    return words[1], reply, payload


def all_got(client: RawClient) -> list[tuple[str, bytes]]:
    """Subjects and payloads of everything that has come, in the order of subjects."""
    client.send("PING\r\n")
    messages = []
    while (line := client.read_line()) != b"PONG":
        words = line.decode().split()
        if words[0] == "PING":
            client.send("PONG\r\n")
        if words[0] not in ("MSG", "HMSG"):
            continue
        body = client.read_exact(int(words[-1]) + 2)
        header_size = int(words[-2]) if words[0] == "HMSG" else 0
        messages.append((words[1], body[header_size:-2]))
    return sorted(messages)
