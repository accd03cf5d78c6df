"""How much each way of reading requests, and what follows the end of a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from tradewind.client.streams.pull_inbox import PullInbox
from tradewind.client.streams.pull_policies import (
    ConsumePolicy,
    FetchPolicy,
    PullOptions,
    PullPolicy,
    PullStep,
    RequestEnd,
    WindowPolicy,
)

OPTIONS = PullOptions(expires=10.0, idle_heartbeat=0.0)


@dataclass
class Counts:
    """The counts of an inbox, as a policy reads them; it asks for more below `low`."""

    wanted_messages: int = 0
    wanted_bytes: int = 0
    pending_messages: int = 0
    pending_bytes: int = 0
    received_messages: int = 0
    low: tuple[int, int] = (0, 0)
    is_batch: bool = False

    def set_refill(self, messages: int, size: int) -> None:
        self.low = (messages, size)

    def set_batch(self) -> None:
        self.is_batch = True

    def wants_more(self) -> bool:
        messages, size = self.low
        few = self.wanted_messages + self.pending_messages <= messages
        return few or bool(size and self.wanted_bytes + self.pending_bytes <= size)


def inbox(**counts: Any) -> PullInbox:
    return cast(PullInbox, Counts(**counts))


class Watch:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_fetch_requests_what_is_left_until_its_time_is_over() -> None:
    watch = Watch()
    policy = FetchPolicy(OPTIONS, 5, watch)
    assert policy.wanted(inbox()) == (5, 0)
    assert policy.wanted(inbox(received_messages=3)) == (2, 0)
    assert policy.wanted(inbox(received_messages=5)) is None
    watch.now = 104.0
    assert policy.expires() == 6.0
    watch.now = 110.0
    assert policy.wanted(inbox()) is None
    assert policy.expires() == 0.001


@pytest.mark.parametrize("end", [RequestEnd.EXPIRED, RequestEnd.COMPLETED])
def test_a_fetch_ends_with_its_request(end: RequestEnd) -> None:
    assert FetchPolicy(OPTIONS, 5, Watch()).after(end, inbox()) is PullStep.FINISH


def test_a_fetch_fails_only_if_the_first_message_is_too_large() -> None:
    policy = FetchPolicy(OPTIONS, 5, Watch())
    assert policy.after(RequestEnd.TOO_LARGE, inbox()) is PullStep.FAIL
    assert policy.after(RequestEnd.TOO_LARGE, inbox(received_messages=1)) is PullStep.FINISH


def test_a_consumption_fills_up_once_it_runs_low() -> None:
    policy = ConsumePolicy(PullOptions(10.0, 5.0, max_bytes=1000), 100, 0.5)
    counts = Counts(wanted_messages=40, pending_messages=20, wanted_bytes=600)
    policy.begin(cast(PullInbox, counts))
    assert counts.low == (50, 500)
    assert policy.wanted(cast(PullInbox, counts)) is None
    counts.pending_messages = 10
    assert policy.wanted(cast(PullInbox, counts)) == (50, 400)


def test_a_consumption_of_one_message_runs_low_only_without_it() -> None:
    counts = Counts()
    ConsumePolicy(OPTIONS, 1, 1.0).begin(cast(PullInbox, counts))
    assert counts.low == (0, 0)


def test_a_consumption_always_requests_something_when_bytes_run_low() -> None:
    policy = ConsumePolicy(PullOptions(10.0, 5.0, max_bytes=10), 2, 1.0)
    counts = Counts(pending_messages=5, low=(1, 10))
    counts.pending_bytes = 10
    assert policy.wanted(cast(PullInbox, counts)) == (1, 1)


@pytest.mark.parametrize(
    "policy", [ConsumePolicy(OPTIONS, 9, 0.5), WindowPolicy(OPTIONS, 9, 3)], ids=["consume", "run"]
)
def test_an_endless_stream_fails_when_nothing_comes_twice_in_a_row(policy: PullPolicy) -> None:
    assert policy.after(RequestEnd.EXPIRED, inbox()) is PullStep.PULL
    assert policy.after(RequestEnd.COMPLETED, inbox()) is PullStep.PULL
    assert policy.after(RequestEnd.TOO_LARGE, inbox(pending_messages=1)) is PullStep.WAIT
    assert policy.after(RequestEnd.TOO_LARGE, inbox(received_messages=4)) is PullStep.PULL
    assert policy.after(RequestEnd.TOO_LARGE, inbox(received_messages=5)) is PullStep.PULL
    assert policy.after(RequestEnd.TOO_LARGE, inbox(received_messages=5)) is PullStep.FAIL


def test_messages_of_a_run_take_room_until_they_are_released() -> None:
    policy = WindowPolicy(OPTIONS, 10, 3)
    counts = Counts()
    policy.begin(cast(PullInbox, counts))
    assert counts.low == (-1, 0), "an inbox of a run never asks by itself"
    policy.held = 4
    assert policy.wanted(inbox(wanted_messages=2, pending_messages=1)) == (3, 0)
    assert policy.wanted(inbox(wanted_messages=2, pending_messages=2)) is None
    policy.held = 3
    assert policy.wanted(inbox(wanted_messages=2, pending_messages=2)) == (3, 0)
