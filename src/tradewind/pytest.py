"""Fixtures for tests of programs that use NATS: a real server for each test, in its process.

    pytest_plugins = ["tradewind.pytest"]      # in conftest.py

A server starts within milliseconds, so every test has its own, with an empty JetStream. Nothing is
imported before a fixture is used. PYTEST_DONT_REWRITE: asserts of the product stay as they are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

try:
    from pytest_asyncio import fixture as async_fixture
except ImportError:  # the plugin of anyio runs plain ones
    async_fixture = pytest.fixture  # type: ignore[assignment]

if TYPE_CHECKING:
    from datetime import timedelta

    from tradewind.client.jetstream import JetStream
    from tradewind.server.embedded import ServerThread
    from tradewind.sync import JetStream as BlockingJetStream

__all__ = ["async_jetstream", "jetstream", "nats_clock", "nats_server", "nats_url"]
# A clock that jumps must not make the server believe that its clients have gone.
_NEVER_NS = 10 * 365 * 86_400 * 1_000_000_000


@pytest.fixture
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    """An empty server with JetStream on a free port, with its own store folder.

    Its clock can be set ahead: see `nats_clock`.
    """
    import tradewind
    from tradewind.clock import ShiftedClock

    store: Path = tmp_path_factory.mktemp("jetstream")
    with tradewind.serve(
        port=0, jetstream=store, clock=ShiftedClock(), ping_interval_ns=_NEVER_NS
    ) as server:
        yield server


@pytest.fixture
def nats_url(nats_server: ServerThread) -> str:
    """The address of the server, for `connect` of any NATS client."""
    return nats_server.url


@pytest.fixture
def jetstream(nats_url: str) -> Iterator[BlockingJetStream]:
    """JetStream without streams, for tests without an event loop."""
    import tradewind.sync

    with tradewind.sync.connect(nats_url) as connection:
        yield connection.jetstream()


@async_fixture
async def async_jetstream(nats_url: str) -> AsyncIterator[JetStream]:
    """JetStream without streams, for asynchronous tests."""
    import tradewind

    async with tradewind.connect(nats_url) as connection:
        yield connection.jetstream()


@pytest.fixture
def nats_clock(nats_server: ServerThread) -> Callable[[float | str | timedelta], None]:
    """`nats_clock("1h")` sets the clock of the server ahead: ages, ack waits and schedules pass.

    The duration is given in seconds, as a timedelta, or as a text such as "30s".
    """

    def advance(duration: Any) -> None:
        from tradewind.client.running.retries import seconds_of

        nats_server.advance(seconds_of("duration", duration))

    return advance
