"""A stream with messages and a client that pulls, receives and acknowledges."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from client_frames import Frame
from conformance.helpers_js import ApiClient
from harness import RawClient, ServerProcess, wait_for

MS = 1_000_000
SECOND = 1_000_000_000
WAIT_SECONDS = 20


class Peer:
    """Messages come to this connection, API answers to that of `js`."""

    def __init__(self, server: ServerProcess, js: ApiClient) -> None:
        self.raw = RawClient(server.port).connect(no_responders=True)
        self.js = js

    def stream(self, *subjects: str, **config: object) -> None:
        """A stream S on all subjects below s, with a message on each of these.

        In memory: with files, the official server gives a stream that is made at once after one of
        its name was removed some of the old messages.
        """
        fields = {"name": "S", "subjects": ["s.>"], "storage": "memory", **config}
        self.js.done("STREAM.CREATE.S", fields)
        self.store(*subjects)

    def store(self, *subjects: str, payload: bytes = b"x") -> None:
        """Publish and wait until all is stored."""
        for subject in subjects:
            self.js.raw.send(
                b"PUB s.%s answers %d\r\n%s\r\n" % (subject.encode(), len(payload), payload)
            )
            assert b"seq" in self.js.raw.read_message()[2]

    def consumer(self, name: str = "C", **config: object) -> dict[str, Any]:
        """Create or update a durable consumer, with explicit acks unless it says something else."""
        body = {"durable_name": name, "name": name, "ack_policy": "explicit", **config}
        if "inactive_threshold" in body:
            del body["durable_name"]
        return self.js.done(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": body})

    def info(self, name: str = "C") -> dict[str, Any]:
        return self.js.done(f"CONSUMER.INFO.S.{name}")

    def wait_info(
        self, condition: Callable[[dict[str, Any]], bool], name: str = "C"
    ) -> dict[str, Any]:
        """The information once it is as expected."""
        found: dict[str, Any] = wait_for(
            lambda: info if condition(info := self.info(name)) else None, lambda: self.info(name)
        )
        return found

    def wait_counts(self, expected: tuple[int, int, int], name: str = "C") -> dict[str, Any]:
        """The information once its `counts` are these.

        The official server counts what is stored or removed a little after it has answered.
        """
        return self.wait_info(lambda info: counts(info) == expected, name)

    def wait_messages(self, count: int) -> None:
        """Wait until the stream holds so many messages: acks remove some time after the answer."""
        wait_for(lambda: self.js.done("STREAM.INFO.S")["state"]["messages"] == count)

    def subscribe(self, subject: str, sid: str = "1", queue: str = "") -> None:
        self.raw.send(f"SUB {subject} {queue} {sid}\r\n".replace("  ", " "))

    def unsubscribe(self, sid: str) -> None:
        self.raw.send(f"UNSUB {sid}\r\n")

    def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", header: bytes = b""
    ) -> None:
        sizes = f"{len(header)} {len(header + payload)}" if header else str(len(payload))
        line = f"{'HPUB' if header else 'PUB'} {subject} {reply} {sizes}\r\n"
        self.raw.send(line.replace("  ", " ").encode() + header + payload + b"\r\n")

    def pull(
        self, inbox: str, /, name: str = "C", body: bytes | None = None, **request: object
    ) -> None:
        data = body if body is not None else json.dumps(request).encode() if request else b""
        self.publish(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", data, inbox)

    def next(self) -> Frame:
        line = self._line()
        words = line.decode().split(" ")
        assert words[0] in ("MSG", "HMSG"), line
        numbers = [int(word) for word in words[-2 if words[0] == "HMSG" else -1 :]]
        body = self.raw.read_exact(numbers[-1] + 2)[:-2]
        words = words[1 : -len(numbers)]
        header_size = numbers[0] if len(numbers) == 2 else 0
        reply = words[2] if len(words) == 3 else ""
        return Frame(words[0], words[1], reply, body[:header_size], body[header_size:])

    def _line(self) -> bytes:
        """The next line that is about messages, or a PONG."""
        while True:
            line = self.raw.read_line()
            if line == b"PING":
                self.raw.send("PONG\r\n")
            elif not line.startswith(b"INFO "):
                return line

    def take(self, count: int) -> list[Frame]:
        return [self.next() for _ in range(count)]

    def fetch(self, count: int, name: str = "C") -> list[Frame]:
        """So many messages, which must be there; through the subscription of `inbox`."""
        self.pull("inbox", name, batch=count)
        return self.take(count)

    def ack(self, frame: Frame, payload: bytes = b"") -> None:
        """Acknowledge and wait until that was processed."""
        self.publish(frame.reply, payload, "inbox")
        answer = self.next()
        assert (answer.header, answer.payload) == (b"", b"")

    def nothing_came(self) -> bool:
        """Whether nothing arrives before the answer to a ping that follows another request."""
        self.js.request("INFO")
        self.raw.send("PING\r\n")
        return self._line() == b"PONG"


def floors(info: dict[str, Any]) -> tuple[tuple[int, int], tuple[int, int]]:
    """(delivered, ack floor), each as (consumer sequence, stream sequence)."""
    delivered, floor = info["delivered"], info["ack_floor"]
    return (
        (delivered["consumer_seq"], delivered["stream_seq"]),
        (floor["consumer_seq"], floor["stream_seq"]),
    )


def counts(info: dict[str, Any]) -> tuple[int, int, int]:
    """(ack pending, redelivered, pending)."""
    return info["num_ack_pending"], info["num_redelivered"], info["num_pending"]


def wait_gone(js: ApiClient, begin: float, seconds: float) -> None:
    """Wait until the consumer is removed, which must not be before `seconds` after `begin`."""
    error = wait_for(lambda: js.error("CONSUMER.INFO.S.C"))
    assert error == [404, 10014, "consumer not found"]
    assert time.monotonic() - begin >= seconds
