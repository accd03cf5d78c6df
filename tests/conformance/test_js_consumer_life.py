"""The life of consumers: pauses, inactivity, what requests meet, pinned clients, restarts."""

from __future__ import annotations

import datetime
import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_frames import Frame
from conformance.helpers_consumer import MS, SECOND, Peer, counts, floors, wait_gone
from conformance.helpers_js import ApiClient
from harness import ServerProcess, StartServer, wait_for

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@pytest.fixture
def peer(js_server: ServerProcess, js: ApiClient) -> Iterator[Peer]:
    peer = Peer(js_server, js)
    peer.subscribe("inbox")
    yield peer
    peer.raw.close()


def in_future(seconds: float) -> str:
    """A time so many seconds from now, as the API writes it."""
    moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return moment.isoformat().replace("+00:00", "Z")


# ---------------------------------------------------------------- pauses


def pause(js: ApiClient, seconds: float) -> tuple[float, str]:
    """Pause C for a moment: when that was asked for, and its end. It must not be over already."""
    while True:
        begin = time.time()
        until = in_future(seconds)
        answer = js.done("CONSUMER.PAUSE.S.C", {"pause_until": until})
        if answer["paused"]:
            assert 0 < answer["pause_remaining"] <= seconds * SECOND
            return begin, until


def test_a_pause_ends_at_its_time(peer: Peer, js: ApiClient) -> None:
    peer.stream("a")
    peer.consumer()
    begin, _ = pause(js, 0.5)
    peer.pull("inbox", batch=1)
    assert peer.next().subject == "s.a"
    assert time.time() - begin >= 0.5
    assert "paused" not in peer.info()


def test_a_pause_is_announced_and_its_end_too(peer: Peer, js: ApiClient) -> None:
    peer.stream()
    peer.subscribe("$JS.EVENT.ADVISORY.CONSUMER.PAUSE.S.C", "advisory")
    peer.consumer()
    _, until = pause(js, 0.2)
    begun = json.loads(peer.next().payload)
    while not begun["paused"] or begun["pause_until"].rstrip("Z0") != until.rstrip("Z0"):
        begun = json.loads(peer.next().payload)
    ended = json.loads(peer.next().payload)
    assert begun["type"] == ended["type"] == "io.nats.jetstream.advisory.v1.consumer_pause"
    assert (begun["stream"], begun["consumer"], begun["paused"]) == ("S", "C", True)
    assert ended["paused"] is False


def test_a_paused_push_consumer_still_beats(peer: Peer) -> None:
    peer.stream("a")
    peer.consumer(deliver_subject="out", idle_heartbeat=100 * MS, pause_until=in_future(3600))
    peer.subscribe("out", "out")
    for frame in peer.take(2):
        assert frame.header == (
            b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 0\r\nNats-Last-Stream: 0\r\n\r\n"
        )
    assert counts(peer.info()) == (0, 0, 1)


# ---------------------------------------------------------------- inactivity


def durable(js: ApiClient, **config: object) -> None:
    body = {"durable_name": "C", "ack_policy": "explicit", **config}
    js.done("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": body})


def use(peer: Peer, js: ApiClient, **request: object) -> tuple[float, Frame]:
    """Make a consumer that soon goes and pull from it: when that was, and the answer.

    If it has gone before the request came, there is nobody to answer, and it is made again.
    """
    while True:
        durable(js, inactive_threshold=100 * MS, ack_wait=600 * MS)
        begin = time.monotonic()
        peer.pull("inbox", batch=1, **request)
        if (frame := peer.next()).status != "503":
            return begin, frame


@pytest.mark.parametrize("push", [False, True])
def test_a_durable_consumer_with_a_threshold_goes_too(
    peer: Peer, js: ApiClient, push: bool
) -> None:
    peer.stream()
    begin = time.monotonic()
    durable(js, inactive_threshold=150 * MS, **({"deliver_subject": "out"} if push else {}))
    wait_gone(js, begin, 0.15)


def test_an_ephemeral_has_five_seconds_unless_it_says_otherwise(peer: Peer, js: ApiClient) -> None:
    peer.stream()
    body = {"stream_name": "S", "config": {"ack_policy": "explicit"}}
    assert js.done("CONSUMER.CREATE.S", body)["config"]["inactive_threshold"] == 5 * SECOND


def test_a_waiting_request_keeps_a_consumer(peer: Peer, js: ApiClient) -> None:
    peer.stream()
    begin, frame = use(peer, js, expires=500 * MS)
    assert frame.status == "408 Request Timeout"
    wait_gone(js, begin, 0.5)


def test_a_message_that_waits_for_its_ack_keeps_a_consumer(peer: Peer, js: ApiClient) -> None:
    peer.stream("a")
    begin, frame = use(peer, js)
    assert frame.subject == "s.a"
    wait_gone(js, begin, 0.6)


def test_a_receiver_keeps_a_push_consumer(peer: Peer, js: ApiClient) -> None:
    peer.stream()
    peer.subscribe("out", "out")
    assert peer.nothing_came()
    durable(js, inactive_threshold=100 * MS, deliver_subject="out", idle_heartbeat=100 * MS)
    for _ in range(4):
        assert peer.next().status == "100 Idle Heartbeat"
    begin = time.monotonic()
    peer.unsubscribe("out")
    wait_gone(js, begin, 0.1)


# ---------------------------------------------------------------- requests


def test_a_batch_of_zero_is_one(peer: Peer) -> None:
    peer.stream("a", "b")
    peer.consumer()
    peer.pull("inbox", batch=0)
    assert peer.next().numbers == (1, 1, 1, 1)
    peer.pull("inbox", batch=0, no_wait=True)
    assert peer.next().numbers == (1, 2, 2, 0)
    assert peer.nothing_came()


def test_a_request_with_heartbeats_is_not_told_that_too_many_wait(peer: Peer) -> None:
    peer.stream()
    peer.consumer(max_waiting=1)
    peer.pull("inbox", batch=1)
    peer.pull("inbox", batch=1, expires=60 * SECOND, idle_heartbeat=20 * SECOND)
    peer.pull("inbox", batch=1)
    assert peer.next().header == b"NATS/1.0 409 Exceeded MaxWaiting\r\n\r\n"
    assert peer.nothing_came()


def test_a_request_of_a_higher_api_level(peer: Peer) -> None:
    peer.stream("a")
    peer.consumer()
    header = b"NATS/1.0\r\nNats-Required-Api-Level: 99\r\n\r\n"
    peer.raw.send(
        b"HPUB $JS.API.CONSUMER.MSG.NEXT.S.C inbox %d %d\r\n%s\r\n"
        % (len(header), len(header), header)
    )
    assert peer.next().header == b"NATS/1.0 412 Required Api Level\r\n\r\n"


def test_a_request_that_does_not_wait_is_kept_while_acks_are_awaited(peer: Peer) -> None:
    peer.stream("a", "b")
    peer.consumer(max_ack_pending=1)
    (first,) = peer.fetch(1)
    peer.pull("inbox", batch=1, no_wait=True, expires=60 * SECOND)
    assert peer.nothing_came()
    peer.publish(first.reply)
    assert peer.next().numbers == (1, 2, 2, 0)


def test_requests_are_told_of_a_shutdown(start: StartServer, tmp_path: Path) -> None:
    server = start("", "-js", "-sd", str(tmp_path / "store"))
    with ApiClient(server) as js:
        peer = Peer(server, js)
        peer.subscribe("inbox")
        peer.stream()
        peer.consumer()
        peer.pull("inbox", batch=3, max_bytes=1000, expires=60 * SECOND)
        peer.wait_info(lambda info: info["num_waiting"] == 1)
        server.stop()
        assert peer.next().header == (
            b"NATS/1.0 409 Server Shutdown\r\nNats-Pending-Messages: 3\r\n"
            b"Nats-Pending-Bytes: 1000\r\n\r\n"
        )
        peer.raw.close()


# ---------------------------------------------------------------- acknowledgements


def account_hash(name: str) -> str:
    return "".join(DIGITS[byte % 62] for byte in hashlib.sha256(name.encode()).digest()[:8])


@pytest.mark.parametrize("extra", ["", ".random"])
def test_acks_with_domain_and_account_are_understood(peer: Peer, extra: str) -> None:
    peer.stream("a", "b")
    peer.consumer()
    first, second = peer.fetch(2)
    for frame in (first, second):
        words = frame.reply.split(".")
        words[2:2] = ["_", account_hash("$G")]
        peer.publish(".".join(words) + extra, b"", "inbox")
        answer = peer.next()
        assert (answer.header, answer.payload) == (b"", b"")
    assert counts(peer.info()) == (0, 0, 0)


def test_an_ack_for_another_account_is_for_nobody(peer: Peer) -> None:
    peer.stream("a")
    peer.consumer()
    (frame,) = peer.fetch(1)
    words = frame.reply.split(".")
    words[2:2] = ["_", account_hash("OTHER")]
    peer.publish(".".join(words), b"", "inbox")
    assert peer.next().status == "503"
    assert counts(peer.info()) == (1, 0, 0)


def test_a_message_delivered_too_often_is_announced_once(peer: Peer) -> None:
    peer.stream("a", "b")
    peer.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.C", "advisory")
    peer.consumer(max_deliver=2, filter_subject="s.a")
    (first,) = peer.fetch(1)
    peer.publish(first.reply, b"-NAK")
    (second,) = peer.fetch(1)
    peer.publish(second.reply, b"-NAK")
    peer.pull("inbox", batch=1)
    assert json.loads(peer.next().payload)["stream_seq"] == 1
    peer.publish(second.reply, b"-NAK")
    assert peer.nothing_came()
    assert counts(peer.info()) == (0, 1, 0)
    assert peer.js.done("STREAM.INFO.S")["state"]["messages"] == 2


# ---------------------------------------------------------------- pinned clients


def test_a_pin_is_lost_when_its_client_does_not_come_back(peer: Peer) -> None:
    peer.stream()
    peer.consumer(priority_policy="pinned_client", priority_groups=["g"], priority_timeout=300 * MS)
    peer.subscribe("$JS.EVENT.ADVISORY.CONSUMER.*.S.C", "advisory")
    for inbox in ("one", "two"):
        peer.subscribe(inbox, inbox)
        peer.pull(inbox, batch=1, expires=60 * SECOND, group="g")
    peer.wait_info(lambda info: info["num_waiting"] == 2)
    begin = time.monotonic()
    peer.store("a", "b")
    messages: list[Frame] = []
    advisories: list[Frame] = []
    while len(messages) < 2 or len(advisories) < 3:
        frame = peer.next()
        (advisories if frame.sid == "advisory" else messages).append(frame)
    assert time.monotonic() - begin >= 0.3
    assert [(frame.sid, frame.subject) for frame in messages] == [("one", "s.a"), ("two", "s.b")]
    pins = [frame.lines["Nats-Pin-Id"] for frame in messages]
    found = []
    for frame in advisories:
        fields = json.loads(frame.payload)
        assert (fields["account"], fields["stream"], fields["consumer"]) == ("$G", "S", "C")
        assert fields["group"] == "g"
        kind = fields["type"].removeprefix("io.nats.jetstream.advisory.v1.")
        detail = fields.get("pinned_id") or fields["reason"]
        found.append((frame.subject.split(".")[4], kind, detail))
    assert sorted(found) == sorted(
        [
            ("PINNED", "consumer_group_pinned", pins[0]),
            ("UNPINNED", "consumer_group_unpinned", "timeout"),
            ("PINNED", "consumer_group_pinned", pins[1]),
        ]
    )


def test_overflow_by_messages_that_wait_for_acks(peer: Peer) -> None:
    peer.stream("a", "b", "c")
    peer.consumer(priority_policy="overflow", priority_groups=["g"])
    peer.pull("inbox", batch=1, group="g", min_ack_pending=1)
    peer.wait_info(lambda info: info["num_waiting"] == 1)
    assert peer.nothing_came()
    peer.pull("inbox", batch=1, group="g")
    assert [frame.numbers[:3] for frame in peer.take(2)] == [(1, 1, 1), (1, 2, 2)]


# ---------------------------------------------------------------- restarts


def test_a_restart_keeps_ids_and_the_state_of_acks(start: StartServer, tmp_path: Path) -> None:
    flags = ("-js", "-sd", str(tmp_path / "store"))
    server = start("", *flags)
    header = b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n"
    publish = b"HPUB s.a answers %d %d\r\n%s\r\n" % (len(header), len(header), header)
    with ApiClient(server) as js:
        peer = Peer(server, js)
        peer.subscribe("inbox")
        peer.stream("a", "b", "c", "d", storage="file")
        js.raw.send(publish)
        assert b'"seq":5}' in js.raw.read_message()[2]
        peer.consumer(ack_wait=60 * SECOND)
        frames = peer.fetch(4)
        peer.ack(frames[0])
        peer.ack(frames[2])
        peer.ack(frames[1], b"-NAK")
        assert peer.fetch(1)[0].numbers == (2, 2, 5, 1)
        before = peer.info()
        peer.raw.close()
    server.stop()
    server = start("", *flags)
    with ApiClient(server) as js:
        peer = Peer(server, js)
        peer.subscribe("inbox")
        after = peer.info()
        assert floors(after) == floors(before) == ((5, 4), (1, 1))
        assert counts(after) == counts(before) == (2, 1, 1)
        js.raw.send(publish)
        assert b'"seq":5,"duplicate": true}' in js.raw.read_message()[2]
        assert peer.fetch(1)[0].numbers[:3] == (1, 5, 6)
        peer.raw.close()


# ---------------------------------------------------------------- long filters


@pytest.mark.parametrize("token", ["a", "*"])
def test_filters_and_subjects_of_a_stream_may_have_very_many_tokens(
    peer: Peer, js: ApiClient, token: str
) -> None:
    subject = "long." + ".".join([token] * 1500)
    js.done("STREAM.CREATE.LONG", {"name": "LONG", "subjects": [subject, "other"]})
    config = {"name": "C", "filter_subjects": [subject, "other"], "ack_policy": "explicit"}
    made = js.done("CONSUMER.CREATE.LONG.C", {"stream_name": "LONG", "config": config})
    assert made["config"]["filter_subjects"] == [subject, "other"]
    answer = js.request("STREAM.CREATE.TWICE", {"name": "TWICE", "subjects": [subject]})
    assert answer["error"]["err_code"] == 10065
    peer.publish(subject.replace("*", "b"), b"x")
    wait_for(lambda: js.done("CONSUMER.INFO.LONG.C")["num_pending"] == 1)
