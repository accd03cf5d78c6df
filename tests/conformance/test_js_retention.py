"""What leaves a stream by itself: age, time to live, and what no consumer is interested in."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from conformance.helpers_consumer import MS, SECOND, WAIT_SECONDS, Peer, counts
from conformance.helpers_js import ApiClient
from harness import ServerProcess, wait_for


@pytest.fixture
def peer(js_server: ServerProcess, js: ApiClient) -> Iterator[Peer]:
    peer = Peer(js_server, js)
    peer.subscribe("inbox")
    yield peer
    peer.raw.close()


def sequences(js: ApiClient) -> list[int]:
    """The sequences of all messages of S."""
    state = js.done("STREAM.INFO.S", {"deleted_details": True})["state"]
    deleted = set(state.get("deleted", []))
    return [seq for seq in range(state["first_seq"], state["last_seq"] + 1) if seq not in deleted]


def wait_sequences(js: ApiClient, expected: list[int]) -> None:
    """Wait until exactly these messages are left."""
    wait_for(lambda: sequences(js) == expected, lambda: sequences(js))


def store_with(peer: Peer, subject: str, header: bytes) -> None:
    """Publish a message with a header line and wait until it is stored."""
    block = b"NATS/1.0\r\n" + header + b"\r\n\r\n"
    sizes = b"%d %d" % (len(block), len(block) + 1)
    peer.js.raw.send(b"HPUB s.%s answers %s\r\n%sx\r\n" % (subject.encode(), sizes, block))
    assert b'"seq"' in (answer := peer.js.raw.read_message()[2]), answer
    assert b'"error"' not in answer, answer


# ---------------------------------------------------------------- age


def test_messages_leave_at_their_age_and_not_before(peer: Peer, js: ApiClient) -> None:
    peer.stream(max_age=300 * MS, duplicate_window=100 * MS)
    peer.consumer()
    begin = time.monotonic()
    peer.store("a", "b")
    while (state := js.done("STREAM.INFO.S")["state"])["messages"] == 2:
        assert time.monotonic() - begin < WAIT_SECONDS
    assert time.monotonic() - begin >= 0.3
    peer.wait_messages(0)
    state = js.done("STREAM.INFO.S")["state"]
    assert (state["first_seq"], state["last_seq"]) == (3, 2)
    peer.wait_counts((0, 0, 0))


def test_a_new_age_counts_for_what_is_there(peer: Peer, js: ApiClient) -> None:
    peer.stream("a", "b")
    config = js.done("STREAM.INFO.S")["config"]
    del config["metadata"]
    js.done("STREAM.UPDATE.S", {**config, "max_age": 100 * MS, "duplicate_window": 100 * MS})
    peer.wait_messages(0)


def test_a_time_to_live_ends_by_itself(peer: Peer, js: ApiClient) -> None:
    peer.stream("a", allow_msg_ttl=True)
    begin = time.monotonic()
    store_with(peer, "b", b"Nats-TTL: 1s")
    peer.store("c")
    wait_sequences(js, [1, 3])
    assert time.monotonic() - begin >= 1


def test_a_message_that_never_expires_has_no_age(peer: Peer, js: ApiClient) -> None:
    peer.stream(allow_msg_ttl=True, max_age=200 * MS, duplicate_window=100 * MS)
    store_with(peer, "never", b"Nats-TTL: never")
    peer.store("aged")
    wait_sequences(js, [1])


# ---------------------------------------------------------------- interest


def test_interest_is_decided_by_filters_when_a_message_comes(peer: Peer, js: ApiClient) -> None:
    peer.stream(retention="interest")
    peer.consumer(filter_subject="s.a")
    peer.store("b", "a", "b", "a")
    assert sequences(js) == [2, 4]
    state = js.done("STREAM.INFO.S")["state"]
    assert (state["first_seq"], state["last_seq"]) == (2, 4)
    assert [frame.numbers[1] for frame in peer.fetch(2)] == [2, 4]


def test_messages_that_a_reset_passes_over_lose_interest(peer: Peer, js: ApiClient) -> None:
    peer.stream(retention="interest")
    peer.consumer()
    peer.consumer("OTHER", filter_subject="s.b")
    peer.store("a", "b", "a", "b", "a", "b")
    js.done("CONSUMER.RESET.S.C", {"seq": 4})
    wait_sequences(js, [2, 4, 5, 6])
    js.done("CONSUMER.RESET.S.C", {"seq": 7})
    wait_sequences(js, [2, 4, 6])
    js.done("CONSUMER.RESET.S.OTHER", {"seq": 5})
    wait_sequences(js, [6])


def test_reset_removes_nothing_from_a_work_queue(peer: Peer, js: ApiClient) -> None:
    peer.stream(retention="workqueue")
    peer.consumer()
    peer.store("a", "b", "a")
    js.done("CONSUMER.RESET.S.C", {"seq": 3})
    assert [frame.numbers[1] for frame in peer.fetch(1)] == [3]
    assert sequences(js) == [1, 2, 3]


def test_interest_of_a_consumer_without_acks_ends_with_delivery(peer: Peer) -> None:
    peer.stream(retention="interest")
    peer.consumer(ack_policy="none")
    peer.store("a", "b")
    peer.fetch(1)
    peer.wait_messages(1)
    peer.fetch(1)
    peer.wait_messages(0)


def test_ack_all_ends_interest_in_everything_before(peer: Peer, js: ApiClient) -> None:
    peer.stream(retention="interest")
    peer.consumer(ack_policy="all")
    peer.store("a", "b", "c")
    frames = peer.fetch(3)
    peer.ack(frames[1])
    wait_sequences(js, [3])


def test_a_deleted_consumer_takes_its_interest_with_it(peer: Peer, js: ApiClient) -> None:
    peer.stream(retention="interest")
    for name in ("C", "D"):
        peer.consumer(name)
    peer.store("a", "b")
    peer.ack(peer.fetch(1)[0])
    assert sequences(js) == [1, 2]
    js.done("CONSUMER.DELETE.S.D")
    wait_sequences(js, [2])
    js.done("CONSUMER.DELETE.S.C")
    peer.wait_messages(0)


def test_a_narrower_filter_ends_interest(peer: Peer, js: ApiClient) -> None:
    peer.stream(retention="interest")
    peer.consumer(filter_subjects=["s.a", "s.b"])
    peer.store("a", "b", "a")
    peer.consumer(filter_subjects=["s.a"])
    wait_sequences(js, [1, 3])


def test_what_was_delivered_too_often_stays(peer: Peer, js: ApiClient) -> None:
    peer.stream(retention="interest")
    peer.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.C", "advisory")
    peer.consumer(max_deliver=1, ack_wait=50 * MS)
    peer.store("a")
    peer.fetch(1)
    assert json.loads(peer.next().payload)["deliveries"] == 1
    peer.wait_info(lambda info: info["num_ack_pending"] == 0)
    assert sequences(js) == [1]


def test_limits_become_interest(peer: Peer, js: ApiClient) -> None:
    peer.stream("a", "b", "c")
    peer.consumer()
    peer.ack(peer.fetch(1)[0])
    config = js.done("STREAM.INFO.S")["config"]
    del config["metadata"]
    js.done("STREAM.UPDATE.S", {**config, "retention": "interest"})
    wait_sequences(js, [2, 3])
    peer.ack(peer.fetch(1)[0])
    wait_sequences(js, [3])


@pytest.mark.parametrize(
    ("before", "after"),
    [("limits", "workqueue"), ("interest", "workqueue"), ("workqueue", "limits")],
)
def test_a_work_queue_stays_one_and_nothing_becomes_one(
    peer: Peer, js: ApiClient, before: str, after: str
) -> None:
    peer.stream(retention=before)
    config = js.done("STREAM.INFO.S")["config"]
    del config["metadata"]
    text = "stream configuration update can not change retention policy to/from workqueue"
    assert js.error("STREAM.UPDATE.S", {**config, "retention": after}) == [500, 10052, text]


# ---------------------------------------------------------------- work queues


@pytest.mark.parametrize("payload", [b"", b"+ACK", b"+TERM", b"+NXT"])
def test_any_final_ack_removes_from_a_work_queue(peer: Peer, js: ApiClient, payload: bytes) -> None:
    peer.stream("a", "b", retention="workqueue")
    peer.consumer()
    (frame,) = peer.fetch(1)
    peer.publish(frame.reply, payload)
    wait_sequences(js, [2])


@pytest.mark.parametrize("payload", [b"-NAK", b"+WPI"])
def test_other_acks_remove_nothing_from_a_work_queue(
    peer: Peer, js: ApiClient, payload: bytes
) -> None:
    peer.stream("a", retention="workqueue")
    peer.consumer()
    (frame,) = peer.fetch(1)
    peer.ack(frame, payload)
    peer.ack(frame, b"+WPI")
    assert sequences(js) == [1]


def test_a_work_queue_keeps_what_nobody_wants_yet(peer: Peer, js: ApiClient) -> None:
    peer.stream("a", "b", retention="workqueue")
    peer.consumer(filter_subject="s.a")
    js.done("CONSUMER.DELETE.S.C")
    assert sequences(js) == [1, 2]
    peer.consumer("D")
    assert [frame.numbers[:3] for frame in peer.fetch(2, "D")] == [(1, 1, 1), (1, 2, 2)]


# ---------------------------------------------------------------- consumers of what has left


@pytest.mark.parametrize(
    ("call", "body"),
    [("MSG.DELETE.S", {"seq": 1}), ("PURGE.S", {"filter": "s.a"}), ("PURGE.S", {"seq": 2})],
)
def test_a_message_that_leaves_unacknowledged_is_terminated(
    peer: Peer, js: ApiClient, call: str, body: dict[str, object]
) -> None:
    peer.stream("a", "b")
    peer.consumer(ack_wait=SECOND * 60)
    peer.fetch(2)
    js.done(f"STREAM.{call}", body)
    info = peer.wait_info(lambda info: info["num_ack_pending"] == 1)
    assert counts(info) == (1, 0, 0)


def test_the_termination_of_a_deleted_message_has_a_reason(peer: Peer, js: ApiClient) -> None:
    peer.stream("a", "b")
    peer.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.C", "advisory")
    peer.consumer()
    peer.fetch(1)
    js.done("STREAM.MSG.DELETE.S", {"seq": 1})
    advisory = json.loads(peer.next().payload)
    assert advisory["reason"] == "Unacknowledged message was deleted"
    assert (advisory["consumer_seq"], advisory["stream_seq"], advisory["deliveries"]) == (1, 1, 1)


def test_the_termination_of_a_message_over_the_limit_has_a_reason(peer: Peer) -> None:
    peer.stream("a", max_msgs=1)
    peer.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.C", "advisory")
    peer.consumer()
    peer.fetch(1)
    peer.store("b")
    advisory = json.loads(peer.next().payload)
    assert advisory["reason"] == "Unacknowledged message was deleted"
    assert (advisory["consumer_seq"], advisory["stream_seq"], advisory["deliveries"]) == (1, 1, 1)


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_what_nobody_wants_still_says_when_it_came(peer: Peer, js: ApiClient, storage: str) -> None:
    begin = datetime.now(UTC)
    peer.stream("a", "b", storage=storage, retention="interest")
    state = js.done("STREAM.INFO.S")["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (0, 3, 2)
    assert state["first_ts"] == "0001-01-01T00:00:00Z"
    # The official server takes a time that may be some tenths of a second old.
    assert datetime.fromisoformat(state["last_ts"]) > begin - timedelta(seconds=10)
