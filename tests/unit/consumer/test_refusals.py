"""What consumers refuse, and in which words: those that clients of nats-server compare."""

from __future__ import annotations

import pytest

from tradewind.api.consumer_types import ConsumerConfig, DeliverPolicy, PriorityPolicy
from tradewind.api.request_types import NextRequest
from tradewind.consumer.deliver_policies import ResetError, check_reset
from tradewind.consumer.pull_requests import RefusedRequestError, check_pull, decode_pull
from tradewind.store.folder.recover import open_store
from tradewind.testing.fake_disk import SimulatedDisk

MAX = 2**63 - 1
PINNED = ConsumerConfig(priority_policy=PriorityPolicy.PINNED_CLIENT, priority_groups=("a", "b"))


@pytest.mark.parametrize(
    ("header", "payload", "status"),
    [
        (b"NATS/1.0\r\nNats-Required-Api-Level: 99\r\n\r\n", b"1", "412 Required Api Level"),
        (b"", b'{"batch":"x"}', "400 Bad Request - "),
        (b"", b'{"batch":1,"expires":1,"idle_heartbeat":1}', "heartbeat value too large"),
        (b"", b'{"batch":1,"idle_heartbeat":%d}' % MAX, "heartbeat value too large"),
    ],
)
def test_a_pull_that_cannot_be_understood_gets_a_status(
    header: bytes, payload: bytes, status: str
) -> None:
    with pytest.raises(RefusedRequestError, match=status):
        decode_pull(header, payload)


@pytest.mark.parametrize(
    ("config", "request_", "status"),
    [
        (ConsumerConfig(max_batch=5), NextRequest(batch=MAX), "MaxRequestBatch of 5"),
        (ConsumerConfig(max_expires=10**9), NextRequest(expires=MAX), "MaxRequestExpires of 1s"),
        (ConsumerConfig(max_bytes=9), NextRequest(max_bytes=10), "MaxRequestMaxBytes of 9"),
        (ConsumerConfig(), NextRequest(min_pending=1), "Not a Overflow Priority consumer"),
        (ConsumerConfig(), NextRequest(id="x"), "Not a Pinned Client Priority consumer"),
        (ConsumerConfig(), NextRequest(priority=10), "Priority must be between 0 and 9"),
        (PINNED, NextRequest(), "Priority Group missing"),
        (PINNED, NextRequest(group="c"), "Invalid Priority Group"),
    ],
)
def test_a_pull_beyond_what_the_consumer_allows_gets_a_status(
    config: ConsumerConfig, request_: NextRequest, status: str
) -> None:
    with pytest.raises(RefusedRequestError, match=status):
        check_pull(request_, config, has_group=True)


@pytest.mark.parametrize(
    ("config", "seq", "reason"),
    [
        (
            ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=3),
            2,
            "below start seq",
        ),
        (
            ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_TIME,
                opt_start_time="1970-01-01T00:00:03Z",
            ),
            2,
            "below start time",
        ),
        (ConsumerConfig(deliver_policy=DeliverPolicy.NEW), MAX, "not allowed"),
        (ConsumerConfig(deliver_policy=DeliverPolicy.LAST), 1, "not allowed"),
    ],
)
def test_a_reset_that_the_deliver_policy_does_not_allow_is_refused(
    config: ConsumerConfig, seq: int, reason: str
) -> None:
    disk = SimulatedDisk()
    disk.make_directory("/disk/S")
    store, _ = open_store(disk, "/disk/S", "S", now_ns=1)
    for second in range(1, 5):
        store.table.store(b"a", b"", b"", second * 10**9)
    with pytest.raises(ResetError, match=reason):
        check_reset(store.table, config, seq)
