"""Helpers for tests of message tracing: publishes, and subscribers of the traces."""

from __future__ import annotations

import gzip
import json
import re
from typing import Any

from helpers_ops import login, next_message, replies
from helpers_sharing import forget

from harness import RawClient, ServerProcess
from tradewind.store.format import s2

DEST = "Nats-Trace-Dest: traces"
ONLY = "Nats-Trace-Only: true"
SAMPLED = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")


def traced(subject: str, *lines: str | bytes, body: str = "p", reply: str = "") -> bytes:
    """A publish with these lines of a header."""
    fields = [line.encode() if isinstance(line, str) else line for line in lines]
    header = b"NATS/1.0\r\n" + b"".join(field + b"\r\n" for field in fields) + b"\r\n"
    size = len(header)
    words = f"HPUB {subject} {reply + ' ' if reply else ''}{size} {size + len(body)}\r\n"
    return words.encode() + header + body.encode() + b"\r\n"


class Listener:
    """Hears the traces of one account."""

    def __init__(self, server: ServerProcess, user: str, subject: str = "traces") -> None:
        self.server = server
        self.client = login(server, user, "pw", no_responders=True)
        assert replies(self.client, f"SUB {subject} 1\r\n") == []

    def close(self) -> None:
        forget(self.client, "1")
        self.client.close()

    def next(self) -> dict[str, Any]:
        """The next trace, with its header checked and its body unpacked."""
        words, header, payload = next_message(self.client)
        assert len(words) - (words[0] == "HMSG") == 4, f"a trace has no reply: {words}"
        encoding = re.search(rb"Content-Encoding: (\w+)\r\n", header)
        if encoding is not None and encoding[1] == b"gzip":
            payload = gzip.decompress(payload)
        elif encoding is not None and encoding[1] == b"snappy":
            assert payload.startswith(b"\xff\x06\x00\x00sNaPpY")
            payload = s2.decompress(payload, 1_000_000)
        document: dict[str, Any] = json.loads(payload)
        document["encoding"] = encoding[1].decode() if encoding is not None else ""
        return document

    def events(self) -> list[dict[str, Any]]:
        """The events of the next trace, without times and ids of connections, which are checked."""
        return [plain(event) for event in self.next()["events"]]

    def nothing_came(self) -> bool:
        """Whether no trace is on its way; the caller must have waited for the publisher before."""
        return replies(self.client, "") == []


def plain(event: dict[str, Any]) -> dict[str, Any]:
    """An event without what differs from run to run."""
    event = dict(event)
    assert _TIME.fullmatch(event.pop("ts"))
    if "cid" in event:
        assert event["kind"] == 0
        assert event.pop("cid") > 0
    return event


def told(client: RawClient, data: bytes) -> list[bytes]:
    """Publish; gives the lines that the publisher got until the message was dealt with, of messages
    the first one.
    """
    client.send(data + b"PING\r\n")
    lines: list[bytes] = []
    while (line := client.read_line()) != b"PONG":
        assert line, f"closed after {lines}"
        if line == b"PING":
            client.send("PONG\r\n")
        elif not line.startswith(b"INFO "):
            lines.append(line)
        if line.startswith((b"MSG ", b"HMSG ")):
            client.read_exact(int(line.split()[-1]) + 2)
    return lines
