"""Acknowledgements: every kind, what they do to floors and counts, and redelivery."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from conformance.helpers_consumer import MS, SECOND, Peer, counts, floors
from conformance.helpers_js import ApiClient
from harness import ServerProcess


@pytest.fixture
def peer(js_server: ServerProcess, js: ApiClient) -> Iterator[Peer]:
    peer = Peer(js_server, js)
    peer.subscribe("inbox")
    yield peer
    peer.raw.close()


@pytest.mark.parametrize("payload", [b"", b"+ACK", b"+OK"])
def test_a_plain_ack(peer: Peer, payload: bytes) -> None:
    peer.stream("a", "b")
    peer.consumer()
    first, _ = peer.fetch(2)
    peer.ack(first, payload)
    info = peer.info()
    assert floors(info) == ((2, 2), (1, 1))
    assert counts(info) == (1, 0, 0)


def test_the_floor_moves_over_what_was_acknowledged_before(peer: Peer) -> None:
    peer.stream("a", "b", "c", "d")
    peer.consumer()
    frames = peer.fetch(4)
    peer.ack(frames[1])
    peer.ack(frames[2])
    assert floors(peer.info())[1] == (0, 0)
    peer.ack(frames[0])
    assert floors(peer.info())[1] == (3, 3)
    peer.ack(frames[3])
    assert floors(peer.info())[1] == (4, 4)


def test_the_floor_of_a_filtered_consumer_passes_over_gaps(peer: Peer) -> None:
    peer.stream("a", "b", "a", "b", "a", "b")
    peer.consumer(filter_subject="s.a")
    frames = peer.fetch(3)
    peer.ack(frames[0])
    assert floors(peer.info()) == ((3, 5), (1, 2))
    peer.ack(frames[1])
    peer.ack(frames[2])
    assert floors(peer.info()) == ((3, 5), (3, 5))


def test_the_ack_of_a_redelivery_counts_for_its_first_delivery(peer: Peer) -> None:
    peer.stream("a", "b")
    peer.consumer()
    first, _ = peer.fetch(2)
    peer.publish(first.reply, b"-NAK")
    (again,) = peer.fetch(1)
    assert again.numbers == (2, 1, 3, 0)
    assert counts(peer.info()) == (2, 1, 0)
    peer.ack(again)
    info = peer.info()
    assert floors(info) == ((3, 2), (1, 1))
    assert counts(info) == (1, 0, 0)


def test_an_ack_may_be_repeated(peer: Peer) -> None:
    peer.stream("a")
    peer.consumer()
    (frame,) = peer.fetch(1)
    peer.ack(frame)
    peer.ack(frame)
    assert floors(peer.info()) == ((1, 1), (1, 1))


def test_an_ack_of_what_was_not_delivered_is_ignored(peer: Peer) -> None:
    peer.stream("a", "b")
    peer.consumer()
    (frame,) = peer.fetch(1)
    peer.publish(frame.reply.replace(".1.1.1.", ".1.2.2."), b"", "inbox")
    peer.ack(frame)
    assert counts(peer.info()) == (0, 0, 1)


def test_ack_all_acknowledges_everything_before(peer: Peer) -> None:
    peer.stream("a", "b", "c", "d")
    peer.consumer(ack_policy="all")
    frames = peer.fetch(4)
    peer.ack(frames[2])
    info = peer.info()
    assert floors(info) == ((4, 4), (3, 3))
    assert counts(info) == (1, 0, 0)
    peer.ack(frames[0])
    assert floors(peer.info())[1] == (3, 3)


def test_nothing_listens_to_acks_of_a_consumer_without_them(peer: Peer) -> None:
    peer.stream("a")
    peer.consumer(ack_policy="none")
    (frame,) = peer.fetch(1)
    peer.publish(frame.reply, b"", "inbox")
    assert peer.next().status == "503"


def test_a_message_comes_again_when_its_ack_wait_is_over(peer: Peer) -> None:
    peer.stream("a", "b")
    peer.consumer(ack_wait=200 * MS)
    begin = time.monotonic()
    peer.pull("inbox", batch=4)
    assert [frame.numbers for frame in peer.take(4)] == [
        (1, 1, 1, 1),
        (1, 2, 2, 0),
        (2, 1, 3, 0),
        (2, 2, 4, 0),
    ]
    assert time.monotonic() - begin >= 0.2
    assert counts(peer.info()) == (2, 2, 0)


def test_backoff_and_max_deliver(peer: Peer, js: ApiClient) -> None:
    peer.stream("a", "b")
    peer.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.C", "advisory")
    peer.consumer(backoff=[50 * MS, 100 * MS], max_deliver=3, filter_subject="s.a")
    begin = time.monotonic()
    peer.pull("inbox", batch=10)
    for deliveries, seconds in ((1, 0), (2, 0.05), (3, 0.15)):
        assert peer.next().numbers[0] == deliveries
        assert time.monotonic() - begin >= seconds
    advisory = json.loads(peer.next().payload)
    assert time.monotonic() - begin >= 0.25  # the last of the list counts again
    assert advisory["type"] == "io.nats.jetstream.advisory.v1.max_deliver"
    assert (advisory["stream"], advisory["consumer"]) == ("S", "C")
    assert (advisory["stream_seq"], advisory["deliveries"]) == (1, 3)
    info = peer.wait_info(lambda info: info["num_ack_pending"] == 0)
    assert counts(info) == (0, 1, 0)


@pytest.mark.parametrize("payload", [b"-NAK", b"-NAK soon", b"-NAK {bad"])
def test_nak_asks_for_the_message_at_once(peer: Peer, payload: bytes) -> None:
    peer.stream("a")
    peer.consumer()
    (frame,) = peer.fetch(1)
    peer.ack(frame, payload)
    (again,) = peer.fetch(1)
    assert again.numbers == (2, 1, 2, 0)


@pytest.mark.parametrize("payload", [b'-NAK {"delay": 300000000}', b"-NAK 300ms"])
def test_nak_with_a_delay(peer: Peer, payload: bytes) -> None:
    peer.stream("a")
    peer.consumer()
    (frame,) = peer.fetch(1)
    begin = time.monotonic()
    peer.ack(frame, payload)
    assert peer.fetch(1)[0].numbers == (2, 1, 2, 0)
    assert time.monotonic() - begin >= 0.3


def test_a_policy_for_refusals_is_kept_in_the_metadata_and_its_reason_in_a_header(
    peer: Peer,
) -> None:
    """A server that does not know it passes over both; here no delay is said for this reason."""
    policy = {"tradewind.nak.delay.busy": "1h"}
    peer.stream("a")
    created = peer.consumer(metadata=policy)
    assert created["config"]["metadata"].items() >= policy.items()
    (frame,) = peer.fetch(1)
    header = b"NATS/1.0\r\nTradewind-Nak-Reason: other\r\n\r\n"
    peer.publish(frame.reply, b"-NAK", header=header)
    assert peer.fetch(1)[0].numbers == (2, 1, 2, 0)


def test_work_in_progress_puts_redelivery_off(peer: Peer) -> None:
    peer.stream("a")
    peer.consumer(ack_wait=400 * MS)
    while True:
        begin = time.monotonic()
        (frame,) = peer.fetch(1)
        peer.pull("inbox", batch=1, expires=100 * MS)
        if not peer.next().status:
            continue
        progress = time.monotonic()
        peer.ack(frame, b"+WPI")
        if time.monotonic() - begin < 0.4:
            break
        # It took so long that the message may have been on its way again already.
    (again,) = peer.fetch(1)
    assert again.numbers[0] == frame.numbers[0] + 1
    assert time.monotonic() - progress >= 0.4


def test_term_ends_a_message_with_its_reason(peer: Peer) -> None:
    peer.stream("a")
    peer.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.C", "advisory")
    peer.consumer(ack_wait=100 * MS)
    (frame,) = peer.fetch(1)
    peer.publish(frame.reply, b"+TERM not for us")
    advisory = json.loads(peer.next().payload)
    assert advisory["type"] == "io.nats.jetstream.advisory.v1.terminated"
    assert (advisory["consumer_seq"], advisory["stream_seq"]) == (1, 1)
    assert (advisory["deliveries"], advisory["reason"]) == (1, "not for us")
    info = peer.info()
    assert floors(info) == ((1, 1), (1, 1))
    assert counts(info) == (0, 0, 0)


def test_nak_has_an_advisory(peer: Peer) -> None:
    peer.stream("a")
    peer.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED.S.C", "advisory")
    peer.consumer()
    (frame,) = peer.fetch(1)
    peer.publish(frame.reply, b"-NAK")
    advisory = json.loads(peer.next().payload)
    assert advisory["type"] == "io.nats.jetstream.advisory.v1.nak"
    assert (advisory["consumer_seq"], advisory["stream_seq"], advisory["deliveries"]) == (1, 1, 1)


def test_next_acknowledges_and_gets_the_next_message(peer: Peer) -> None:
    peer.stream("a", "b", "c", "d")
    peer.consumer()
    (frame,) = peer.fetch(1)
    peer.publish(frame.reply, b"+NXT", "inbox")
    second = peer.next()
    assert second.subject == "s.b"
    peer.publish(second.reply, b'+NXT {"batch": 2}', "inbox")
    assert [frame.subject for frame in peer.take(2)] == ["s.c", "s.d"]
    assert floors(peer.info()) == ((4, 4), (2, 2))


def test_the_ack_of_a_sampled_message_is_measured(peer: Peer) -> None:
    peer.stream("a")
    peer.subscribe("$JS.EVENT.METRIC.CONSUMER.ACK.S.C", "metric")
    peer.consumer(sample_freq="100%")
    (frame,) = peer.fetch(1)
    peer.publish(frame.reply)
    metric = json.loads(peer.next().payload)
    assert metric["type"] == "io.nats.jetstream.metric.v1.consumer_ack"
    assert (metric["consumer_seq"], metric["stream_seq"], metric["deliveries"]) == (1, 1, 1)
    assert 0 < metric["ack_time"] < 60 * SECOND


def test_a_deleted_message_is_not_awaited_any_more(peer: Peer, js: ApiClient) -> None:
    peer.stream("a", "b")
    peer.consumer()
    peer.fetch(2)
    js.done("STREAM.MSG.DELETE.S", {"seq": 1})
    info = peer.wait_info(lambda info: info["num_ack_pending"] == 1)
    assert floors(info) == ((2, 2), (1, 1))


def test_a_purge_moves_the_floors(peer: Peer, js: ApiClient) -> None:
    peer.stream("a", "b", "c")
    peer.consumer()
    peer.fetch(2)
    js.done("STREAM.PURGE.S")
    info = peer.info()
    assert floors(info) == ((2, 3), (2, 3))
    assert counts(info) == (0, 0, 0)


def test_a_work_queue_forgets_what_is_acknowledged(peer: Peer) -> None:
    peer.stream("a", "b", retention="workqueue")
    peer.consumer()
    first, second = peer.fetch(2)
    peer.ack(first)
    peer.wait_messages(1)
    peer.ack(second, b"+TERM")
    peer.wait_messages(0)


def test_interest_keeps_a_message_until_everybody_has_it(peer: Peer) -> None:
    peer.stream(retention="interest")
    for name in ("C", "D"):
        peer.consumer(name)
    peer.store("a")
    peer.ack(peer.fetch(1, "C")[0])
    peer.wait_messages(1)
    peer.ack(peer.fetch(1, "D")[0])
    peer.wait_messages(0)
