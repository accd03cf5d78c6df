"""The fixtures of `tradewind.pytest`, in test files as users write them."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

TESTS = """
from datetime import timedelta

import tradewind
import tradewind.sync


def test_one(jetstream, nats_url):
    jetstream.manager.streams.add(name="S", subjects=["s"])
    with tradewind.sync.connect(nats_url) as other:
        other.jetstream().publish("s", b"x")
    assert jetstream.manager.streams.info("S").state.messages == 1


def test_another_starts_empty(jetstream):
    assert jetstream.manager.streams.names().all() == []


async def test_asynchronous(async_jetstream):
    assert await async_jetstream.manager.streams.names().all() == []


def test_messages_grow_old(jetstream, nats_clock):
    jetstream.manager.streams.add(name="S", subjects=["s"], max_age=timedelta(hours=1))
    jetstream.publish("s", b"x")
    nats_clock("59m")
    assert jetstream.manager.streams.info("S").state.messages == 1
    nats_clock("2m")
    while jetstream.manager.streams.info("S").state.messages:
        pass


def test_ack_waits_pass(jetstream, nats_clock):
    jetstream.manager.streams.add(name="S", subjects=["s"])
    jetstream.manager.consumers.add("S", durable_name="c", ack_policy="explicit")
    jetstream.publish("s", b"x")
    consumer = jetstream.consumers.get("S", "c")
    assert consumer.next(timeout=60).metadata.delivered_count == 1
    nats_clock(31)
    assert consumer.next(timeout=60).metadata.delivered_count == 2
"""


def test_the_fixtures_work_in_a_project(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["tradewind.pytest"]')
    pytester.makeini("[pytest]\nasyncio_mode = auto\nfilterwarnings = error\n")
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess("-p", "no:xdist")
    result.assert_outcomes(passed=5)


def test_the_plugin_costs_nothing_before_it_is_used() -> None:
    program = (
        "import sys; import tradewind.pytest; "
        "print([n for n in sys.modules if n.startswith('tradewind.') and n != 'tradewind.pytest'])"
    )
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "tradewind.server" not in result.stdout
    assert "tradewind.client" not in result.stdout
