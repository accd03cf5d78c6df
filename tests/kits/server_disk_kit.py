"""A server whose disk is full, broken or damaged: how to start it, ask it and fill it."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import ServerProcess
from server_kill_streams import Wire

STREAMS = "jetstream/$G/streams"
STORE_FAILED = 10077
PUBLISHED_MAX = 20_000
WAIT_SECONDS = 20.0
HOUR_NS = 3600 * 1_000_000_000


@contextmanager
def running(folder: Path, *more: str, **surroundings: Any) -> Iterator[tuple[ServerProcess, Wire]]:
    """The server with a monitoring port, and a client of it."""
    flags = ["-a", "127.0.0.1", "-p", "-1", "-m", "-1", "-js", "-sd", str(folder), *more]
    server = ServerProcess("tradewind", flags, **surroundings)
    try:
        server.wait_ready()
        with Wire(server.port) as wire:
            yield server, wire
    finally:
        server.stop()


def page(server: ServerProcess, path: str) -> tuple[int, dict[str, Any]]:
    """A monitoring page with its status."""
    port = int(server.wait_for_log(r"http monitor on \S+:(\d+)")[1])
    url = f"http://127.0.0.1:{port}{path}"
    try:
        with urllib.request.urlopen(url, timeout=WAIT_SECONDS) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def publish(wire: Wire, subject: str, payload: bytes) -> dict[str, Any]:
    """The answer to one message."""
    head = f"PUB {subject} {wire.answer_to(0)} {len(payload)}\r\n"
    wire.send(head.encode() + payload + b"\r\n")
    answer: dict[str, Any] = json.loads(wire.next_message()[3])
    return answer


def payload_of(number: int, size: int = 500) -> bytes:
    """The payload of the message with a sequence."""
    return b"%08d " % number + b"x" * (size - 9)


def fill(wire: Wire, name: str, count: int, first: int = 1) -> None:
    """So many messages, all of which must be stored."""
    for seq in range(first, first + count):
        payload = payload_of(seq)
        head = f"PUB {name}.x {wire.answer_to(seq)} {len(payload)}\r\n"
        wire.send(head.encode() + payload + b"\r\n")
    for seq in range(first, first + count):
        assert json.loads(wire.next_message()[3]).get("seq") == seq


def fill_until_refused(wire: Wire, name: str, first: int) -> tuple[int, dict[str, Any]]:
    """The last sequence that was stored, and the error that came instead of the next one."""
    for seq in range(first, first + PUBLISHED_MAX):
        answer = publish(wire, f"{name}.x", payload_of(seq))
        if "error" in answer:
            return seq - 1, answer["error"]
        assert answer["seq"] == seq
    raise AssertionError(f"{name} takes everything")


def check_content(wire: Wire, name: str, last_seq: int, missing: Container[int] = ()) -> None:
    """All messages but the missing ones are what they were, and the others are not found."""
    sequences = range(1, last_seq + 1)
    answers = wire.api_all([(f"STREAM.MSG.GET.{name}", {"seq": seq}) for seq in sequences])
    for seq, answer in zip(sequences, answers, strict=True):
        if seq in missing:
            assert answer.get("error", {}).get("err_code") == 10037, f"{name}: {seq} is {answer}"
        else:
            assert "error" not in answer, f"{name}: {seq} is {answer}"
            assert base64.b64decode(answer["message"].get("data", "")) == payload_of(seq)


def consumer(wire: Wire, stream: str, name: str) -> None:
    """A durable consumer that gives a message once."""
    config = {"durable_name": name, "ack_policy": "explicit", "ack_wait": HOUR_NS}
    wire.api(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})


def take(wire: Wire, stream: str, name: str, count: int, *, is_confirmed: bool = True) -> list[int]:
    """Sequences of the next messages, each acknowledged and confirmed, with the right payload."""
    body = json.dumps({"batch": count, "expires": 20_000_000_000}).encode()
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
    wire.send(f"PUB {subject} {wire.inbox}.given.1 {len(body)}\r\n".encode() + body + b"\r\n")
    given: list[tuple[int, str]] = []
    while len(given) < count:
        _, reply, header, payload = wire.next_message()
        assert reply, f"{len(given)} of {count}, then {header!r}"
        seq = int(reply.split(".")[5])
        assert payload == payload_of(seq)
        given.append((seq, reply))
    for seq, reply in given:
        wire.send(f"PUB {reply} {wire.answer_to(seq)} 4\r\n+ACK\r\n")
        if is_confirmed:
            wire.next_message()
    return [seq for seq, _ in given]
