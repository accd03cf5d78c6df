"""A publisher without message ids that trusts its answers stores nothing twice and loses nothing.

Every call to the disk fails once. What is acknowledged is there, also after a power failure. What
is answered with an error is not there, then or ever, unless the answer says that it may be.
"""

from __future__ import annotations

import base64
import errno
import json
from typing import Any

import pytest

from tradewind.store.files.disk import Operation
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

MESSAGES = 30
MAY_BE = "may be stored"
API = "$JS.API.STREAM"


class Publisher:
    """Publishes to the stream S of a server, and asks what is in it."""

    def __init__(self, server: InProcessServer) -> None:
        options = {"verbose": False, "headers": True, "no_responders": True}
        self._connection = server.connect(f"CONNECT {json.dumps(options)}\r\n".encode())
        self._connection.send(b"SUB inbox.> 1\r\n")

    def ask(self, subject: str, payload: bytes) -> dict[str, Any]:
        head = f"PUB {subject} inbox.a {len(payload)}\r\n".encode()
        self._connection.send(head + payload + b"\r\n")
        answers = [line for line in self._connection.take().split(b"\r\n") if line[:1] == b"{"]
        assert len(answers) == 1, answers
        answer: dict[str, Any] = json.loads(answers[0])
        return answer

    def create(self, **config: Any) -> None:
        body = {"name": "S", "subjects": ["S.*"], **config}
        assert "error" not in self.ask(f"{API}.CREATE.S", json.dumps(body).encode())

    def found(self) -> set[bytes]:
        state = self.ask(f"{API}.INFO.S", b"")["state"]
        payloads = set()
        for seq in range(max(state["first_seq"], 1), state["last_seq"] + 1):
            answer = self.ask(f"{API}.MSG.GET.S", b'{"seq":%d}' % seq)
            if "message" in answer:
                payloads.add(base64.b64decode(answer["message"]["data"]))
        return payloads


def judge(found: set[bytes], answers: dict[bytes, str], kept: int) -> None:
    """`answers`: the text of the error for each payload, empty if it was acknowledged."""
    stored = [payload for payload, text in answers.items() if not text]
    assert set(stored[len(stored) - kept :] if kept else stored) <= found
    refused = {payload for payload, text in answers.items() if text and MAY_BE not in text}
    assert not refused & found


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("operation", ["write", "sync", "create", "remove", "sync_directory"])
@pytest.mark.parametrize("config", [{}, {"max_msgs": 3, "max_bytes": 40_000}])
def test_answers_hold_whatever_call_to_the_disk_fails(
    operation: Operation, number: int, config: dict[str, int]
) -> None:
    for nth in range(1, 12, 2):
        disk = SimulatedDisk()
        server = InProcessServer(disk=disk)
        publisher = Publisher(server)
        publisher.create(**config)
        # A full disk has room again after a while; all else stays as it is.
        times = 2 if number == errno.ENOSPC else 10_000
        fault = disk.fail(operation, "*/S/*", nth, number, times=times, after_bytes=100)
        answers = {}
        for index in range(MESSAGES):
            payload = b"%03d" % index + b"x" * 3000
            answer = publisher.ask("S.a", payload)
            answers[payload] = answer.get("error", {}).get("description", "")
            if fault.hits:
                server.advance(0.4)
        # Older ones may have given way to one whose publisher knows that it may be there.
        uncertain = sum(MAY_BE in text for text in answers.values())
        kept = max(config["max_msgs"] - uncertain, 0) if config else 0
        if not config or kept:
            judge(publisher.found(), answers, kept)
        disk.clear_faults()
        server.advance(5.0)
        if not config or kept:
            judge(publisher.found(), answers, kept)
        crashed = InProcessServer(disk=disk.crash_losing_unsynced())
        if not config or kept:
            judge(Publisher(crashed).found(), answers, kept)
