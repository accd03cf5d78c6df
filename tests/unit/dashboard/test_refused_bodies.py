"""A request is answered after its body was read, so that the browser hears why it is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from tradewind.dashboard.web import guard
from tradewind.dashboard.web.guard import Guard, Policy

FOREIGN = ((b"host", b"localhost"), (b"origin", b"http://evil.example"))


def answered(
    parts: Iterable[bytes], headers: Iterable[tuple[bytes, bytes]], *, ends: bool = True
) -> tuple[int, int]:
    """The status, and how many bytes of the body were read before it was sent."""
    left = list(parts)
    said: list[tuple[int, int]] = []
    read = 0

    async def receive() -> dict[str, Any]:
        nonlocal read
        if not left and not ends:
            await asyncio.Event().wait()
        part = left.pop(0) if left else b""
        read += len(part)
        return {"type": "http.request", "body": part, "more_body": bool(left) or not ends}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            said.append((message["status"], read))

    async def refusing(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 400, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    scope = {"type": "http", "method": "PUT", "headers": list(headers)}
    asyncio.run(Guard(refusing, Policy())(scope, receive, send))
    [only] = said
    return only


def test_the_body_of_a_forged_request_is_read_before_it_is_refused() -> None:
    assert answered([b"x" * 10, b"y" * 10], FOREIGN) == (403, 20)


def test_the_body_that_a_page_does_not_read_is_read_before_its_answer() -> None:
    assert answered([b"x" * 10, b"y" * 10], FOREIGN[:1]) == (400, 20)


def test_a_long_body_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "UNWANTED_BYTES_MAX", 15)
    assert answered([b"x" * 10] * 5, FOREIGN) == (403, 20)


def test_a_body_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "UNWANTED_SECONDS_MAX", 0.01)
    assert answered([b"x"], FOREIGN, ends=False) == (403, 1)


def test_a_client_that_waits_to_be_asked_is_not_asked() -> None:
    assert answered([b"x"], [*FOREIGN, (b"expect", b"100-continue")]) == (403, 0)
