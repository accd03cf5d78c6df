"""Order per key under random failures, delays and lost acknowledgements: a model of one process.

Whatever handlers do, the messages of a key are handled one after the other in the order of the
stream, the next one only when the one before is settled, and each message ends exactly once.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from run_kit import FakeConsumer, run_to_end, run_virtually
from tradewind import GiveUp, Retry, RetryLater

KEYS = st.sampled_from("abcd")
# What the handler does with the attempts of a message: the last one repeats.
DEEDS = st.lists(
    st.sampled_from(["return", "raise", "later", "give up", "hang"]), min_size=1, max_size=4
)
SECONDS = st.sampled_from([0.0, 0.3, 2.0, 40.0])


@given(
    messages=st.lists(st.tuples(KEYS, DEEDS, SECONDS), min_size=1, max_size=25),
    concurrency=st.integers(1, 5),
    buffer=st.integers(0, 8),
    attempts=st.integers(1, 4),
    delay=st.sampled_from([0.0, 1.0, 90.0]),
)
def test_keys_keep_their_order(
    messages: list[tuple[str, list[str], float]],
    concurrency: int,
    buffer: int,
    attempts: int,
    delay: float,
) -> None:
    consumer = FakeConsumer([key for key, _, _ in messages], ack_wait=5.0)
    tries = [0] * (len(messages) + 1)
    busy: dict[str, int] = {}
    last: dict[str, int] = {}
    faults: list[str] = []
    running = 0

    async def handle(message: Any) -> None:
        nonlocal running
        sequence, key = message.metadata.stream_sequence, message.subject
        previous = last.get(key, 0)
        # Noted, not raised: to a run an exception of a handler is only a failed message.
        if key in busy:
            faults.append(f"{sequence} and {busy[key]} of {key} at the same time")
        if sequence < previous:
            faults.append(f"{sequence} of {key} after {previous}")
        if 0 < previous < sequence and consumer.ends().get(previous, "nak").startswith("nak"):
            faults.append(f"{sequence} of {key} while {previous} is not settled")
        last[key] = sequence
        busy[key] = sequence
        running += 1
        if running > concurrency:
            faults.append(f"{running} handlers")
        _, deeds, seconds = messages[sequence - 1]
        deed = deeds[min(tries[sequence], len(deeds) - 1)]
        tries[sequence] += 1
        try:
            await asyncio.sleep(10_000 if deed == "hang" else seconds)
            if deed == "raise":
                raise ValueError(key)
            if deed == "later" and tries[sequence] < 6:
                raise RetryLater(delay)
            if deed == "give up":
                raise GiveUp(key)
        finally:
            running -= 1
            busy.pop(key, None)

    runner = consumer.run(
        handle,
        concurrency=concurrency,
        buffer=buffer,
        order_by="subject",
        timeout=60,
        retry=Retry(attempts, delay, jitter=0),
    )
    run_virtually(run_to_end(consumer, runner))
    assert faults == []
    assert sorted(sequence for sequence, _ in consumer.log) == list(range(1, len(messages) + 1))
    assert consumer.expired == []
    assert consumer.held_max <= concurrency + buffer
    assert runner.stats.held == 0
