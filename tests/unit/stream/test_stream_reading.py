"""What a stream answers: state, single messages, direct gets, deletes and purges."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace
from stream_kit import SECOND_NS, StreamKit, frame, purge, update

from tradewind.api.base import encode
from tradewind.api.errors import ApiError
from tradewind.api.request_types import MsgGetRequest
from tradewind.stream import stream_queries
from tradewind.stream.direct_gets import PENDING_MAX
from tradewind.stream.stream import Stream


def six_messages(**config: Any) -> tuple[StreamKit, Stream]:
    """Messages 1 to 6 on s.1, s.2, s.0, s.1, ..., one second apart; 2 is deleted."""
    kit = StreamKit()
    stream = kit.create(allow_direct=True, **config)
    for number in range(1, 7):
        header = b"H: v" if number % 2 else b""
        kit.publish(f"s.{number % 3}", b"m%d" % number, header)
        kit.clock.advance_ns(SECOND_NS)
    stream.delete_message(2)
    kit.server.run_until_idle()
    return kit, stream


def time_of(stream: Stream, seq: int) -> str:
    return stream.get(MsgGetRequest(seq=seq)).time


def found(stream: Stream, **request: Any) -> int:
    """The sequence that is found, or the negative error code."""
    try:
        return stream.get(MsgGetRequest(**request)).seq
    except ApiError as error:
        return -error.err_code


def test_message_is_found_in_every_way_to_name_it() -> None:
    _, stream = six_messages()
    third = time_of(stream, 3)
    assert found(stream, seq=1) == 1
    assert found(stream, last_by_subj="s.1") == 4
    assert found(stream, last_by_subj="s.*") == 6
    assert found(stream, next_by_subj="s.0") == 3
    assert found(stream, seq=4, next_by_subj="s.0") == 6
    assert found(stream, seq=2, next_by_subj=">") == 3
    assert found(stream, start_time=third) == 3
    assert found(stream, start_time=third, next_by_subj="s.2") == 5
    assert found(stream, start_time="1990-01-01T00:00:00Z") == 1


@pytest.mark.parametrize(
    "request_",
    [
        {"seq": 2},
        {"seq": 99},
        {"last_by_subj": "zz"},
        {"last_by_subj": "s..b"},
        {"next_by_subj": "s..b"},
        {"seq": 7, "next_by_subj": "s.*"},
        {"start_time": "2040-01-01T00:00:00Z"},
    ],
)
def test_missing_message_is_10037(request_: dict[str, Any]) -> None:
    assert found(six_messages()[1], **request_) == -10037


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"multi_last": ["s.1"]},
        {"seq": 1, "last_by_subj": "s.1"},
        {"next_by_subj": "s.1", "last_by_subj": "s.1"},
        {"seq": 1, "start_time": "1990-01-01T00:00:00Z"},
        {"last_by_subj": "s.1", "start_time": "1990-01-01T00:00:00Z"},
        {"seq": 1, "batch": 1},
        {"seq": 1, "max_bytes": 1},
    ],
)
def test_contradiction_is_10003(request_: dict[str, Any]) -> None:
    assert found(six_messages()[1], **request_) == -10003


def test_state_tells_totals_and_details_are_asked_for() -> None:
    _, stream = six_messages()
    plain = stream.state(3)
    assert (plain.messages, plain.first_seq, plain.last_seq) == (5, 1, 6)
    assert (plain.num_subjects, plain.num_deleted, plain.consumer_count) == (3, 1, 3)
    assert plain.subjects == {}
    assert plain.deleted == []
    page = stream_queries.subject_page(stream.store, "s.*")
    assert not page.collect(10)
    page.write(0, 10)
    deleted = stream_queries.deleted_list(stream.store)
    assert not deleted.collect(10)
    assert (page.count, deleted.count) == (3, 1)
    full = stream_queries.with_details(plain, {"subjects": page.text, "deleted": deleted.text})
    document = json.loads(encode(full))
    assert document["subjects"] == {"s.1": 2, "s.0": 2, "s.2": 1}
    assert document["deleted"] == [2]
    assert document["messages"] == 5
    assert not stream_queries.subject_page(stream.store, "a..b").collect(10)


def test_new_stream_has_no_times() -> None:
    state = StreamKit().create().state()
    assert (state.first_seq, state.last_seq) == (0, 0)
    assert state.first_ts == state.last_ts == "0001-01-01T00:00:00Z"


def test_first_sequence_can_be_configured() -> None:
    for storage in ("memory", "file"):
        kit = StreamKit()
        stream = kit.create(first_seq=100, storage=storage)
        state = stream.state()
        assert (state.first_seq, state.last_seq) == (100, 99)
        assert kit.publish("s.1") == b'{"stream":"S","seq":100}'


def direct(
    kit: StreamKit, body: object = b"", subject: str = "S", header: bytes = b""
) -> list[str]:
    """What a direct get is answered, shortened to `seq:pending:last:payload` or a status."""
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    kit.peer.send(frame(f"$JS.API.DIRECT.GET.{subject}", payload, header))
    return [_short(block, content) for _, block, content in kit.messages()]


def _short(block: bytes, payload: bytes) -> str:
    if not block:
        return payload.decode()
    first, *lines = block.decode().split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines if line)
    numbers = [
        fields.get(f"Nats-{name}", "-")
        for name in ("Sequence", "Num-Pending", "Last-Sequence", "UpTo-Sequence")
    ]
    return f"{first[9:]} " * bool(first[9:]) + ":".join(numbers) + f":{payload.decode()}"


def test_direct_get_reply_is_the_message_with_its_origin() -> None:
    kit, _ = six_messages()
    kit.peer.send(frame("$JS.API.DIRECT.GET.S", b'{"seq":1}'))
    ((_, header, payload),) = kit.messages()
    assert payload == b"m1"
    assert header == (
        b"NATS/1.0\r\nH: v\r\nNats-Stream: S\r\nNats-Subject: s.1\r\nNats-Sequence: 1\r\n"
        b"Nats-Time-Stamp: 2023-11-14T22:13:20Z\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b"", ["408 Empty Request -:-:-:-:"]),
        (b"{}", ["408 Empty Request -:-:-:-:"]),
        (b"null", ["408 Empty Request -:-:-:-:"]),
        ({"batch": 2}, ["408 Empty Request -:-:-:-:"]),
        (b"{bad", ["408 Malformed Request -:-:-:-:"]),
        ({"seq": "x"}, ["408 Malformed Request -:-:-:-:"]),
        ({"seq": 1, "last_by_subj": "s.1"}, ["408 Bad Request -:-:-:-:"]),
        ({"last_by_subj": "s.1", "batch": 2}, ["408 Bad Request -:-:-:-:"]),
        ({"next_by_subj": "s.1", "multi_last": ["s.1"]}, ["408 Bad Request -:-:-:-:"]),
        ({"seq": 2}, ["404 Message Not Found -:-:-:-:"]),
        ({"seq": 99, "batch": 2}, ["404 Message Not Found -:-:-:-:"]),
        ({"last_by_subj": "s..1"}, ["404 Message Not Found -:-:-:-:"]),
        ({"seq": 1, "unknown": 1}, ["1:-:-:-:m1"]),
        ({"seq": 1, "no_hdr": True}, ["m1"]),
        ({"seq": 1, "batch": 2}, ["1:4:0:-:m1", "3:3:1:-:m3", "204 EOB -:3:3:-:"]),
        ({"seq": 2, "batch": 1}, ["3:3:0:-:m3", "204 EOB -:3:3:-:"]),
        ({"seq": 1, "batch": -1}, ["204 EOB -:5:0:-:"]),
        ({"next_by_subj": "s.1", "batch": 5}, ["1:1:0:-:m1", "4:0:1:-:m4", "204 EOB -:0:4:-:"]),
        ({"seq": 1, "batch": 9, "max_bytes": 23}, ["1:4:0:-:m1", "204 EOB -:4:1:-:"]),
        (
            {"seq": 1, "batch": 9, "max_bytes": 24},
            ["1:4:0:-:m1", "3:3:1:-:m3", "204 EOB -:3:3:-:"],
        ),
        (
            {"multi_last": ["s.*"]},
            ["4:2:0:-:m4", "5:1:4:-:m5", "6:0:5:-:m6", "204 EOB -:0:6:6:"],
        ),
        ({"multi_last": ["s.*"], "batch": 1}, ["4:2:0:-:m4", "204 EOB -:2:4:6:"]),
        ({"multi_last": ["s.*"], "seq": 6}, ["6:0:0:-:m6", "204 EOB -:0:6:6:"]),
        ({"multi_last": ["s.*"], "seq": 7}, ["204 EOB -:0:0:6:"]),
        ({"multi_last": ["s.*"], "up_to_seq": 2}, ["1:0:0:-:m1", "204 EOB -:0:1:2:"]),
        (
            {"multi_last": ["s.*"], "up_to_seq": 7},
            ["4:2:0:-:m4", "5:1:4:-:m5", "6:0:5:-:m6", "204 EOB -:0:6:7:"],
        ),
        ({"multi_last": ["zz"]}, ["404 No Results -:-:-:-:"]),
        ({"multi_last": ["s..1"]}, ["404 No Results -:-:-:-:"]),
        (
            {"multi_last": ["s.*"], "up_to_time": "1999-01-01T00:00:00Z"},
            ["404 No Results -:-:-:-:"],
        ),
    ],
)
def test_direct_get(body: object, answer: list[str]) -> None:
    assert direct(six_messages()[0], body) == answer


def test_direct_get_by_subject() -> None:
    kit, _ = six_messages()
    assert direct(kit, b"", "S.s.1") == ["4:-:-:-:m4"]
    assert direct(kit, b"{}", "S.s.1") == ["4:-:-:-:m4"]
    assert direct(kit, {"no_hdr": True}, "S.s.1") == ["m4"]
    assert direct(kit, {"seq": 1}, "S.s.1") == ["408 Bad Request -:-:-:-:"]
    assert direct(kit, b"", "S.zz") == ["404 Message Not Found -:-:-:-:"]


def test_direct_get_of_a_higher_api_level_is_refused() -> None:
    kit, _ = six_messages()
    refused = ["412 Required Api Level -:-:-:-:"]
    assert direct(kit, {"seq": 1}, header=b"Nats-Required-Api-Level: 99") == refused
    assert direct(kit, {"seq": 1}, header=b"Nats-Required-Api-Level: x") == refused
    assert direct(kit, {"seq": 1}, header=b"Nats-Required-Api-Level: 1") == ["1:-:-:-:m1"]


def test_direct_get_of_a_stream_without_it_has_no_responders() -> None:
    kit, stream = six_messages()
    update(stream, replace(stream.config, allow_direct=False))
    assert direct(kit, {"seq": 1})[0].startswith("503 ")


def test_large_batch_waits_for_a_requester_that_does_not_read() -> None:
    kit = StreamKit()
    stream = kit.create(allow_direct=True)
    kit.peer.send(frame("s.1", b"x" * 10_000, reply="") * 500)
    kit.peer.stop_reading()
    kit.peer.send(frame("$JS.API.DIRECT.GET.S", b'{"seq":1,"batch":500}'))
    assert stream.next_deadline_ns > 0
    assert kit.peer.session.pending_bytes < 2 * PENDING_MAX
    kit.peer.resume_reading()
    received = len(kit.messages())
    while stream.next_deadline_ns:
        kit.clock.advance_ns(SECOND_NS)
        kit.turn.monotonic_ns = kit.clock.monotonic_ns()
        stream.tick()
        kit.server.run_until_idle()
        received += len(kit.messages())
    assert received == 501


def test_too_many_last_messages_are_refused() -> None:
    kit = StreamKit()
    kit.create(allow_direct=True)
    kit.peer.send(b"".join(frame(f"s.{number}", reply="") for number in range(1025)))
    assert direct(kit, {"multi_last": ["s.*"]}) == ["413 Too Many Results -:-:-:-:"]
    assert len(direct(kit, {"multi_last": ["s.*"], "up_to_seq": 1024})) == 1025


@pytest.mark.parametrize(
    ("request_", "purged", "left"),
    [
        ({}, 5, []),
        ({"seq": 3}, 1, [3, 4, 5, 6]),
        ({"keep": 2}, 3, [5, 6]),
        ({"pattern": "s.1"}, 2, [3, 5, 6]),
        ({"pattern": "s.1", "seq": 3}, 1, [3, 4, 5, 6]),
        ({"pattern": "s.*", "keep": 1}, 4, [6]),
        ({"pattern": "s..1"}, 0, [1, 3, 4, 5, 6]),
        ({"seq": 100}, 5, []),
    ],
)
def test_purge(request_: dict[str, Any], purged: int, left: list[int]) -> None:
    kit, stream = six_messages()
    assert purge(stream, **request_) == purged
    assert [message.seq for message in stream.store.messages()] == left
    expected = max(request_.get("seq", 0), 7)
    assert kit.publish("s.1") == b'{"stream":"S","seq":%d}' % expected


def error_of(call: Any, *arguments: Any, **named: Any) -> tuple[int, str]:
    with pytest.raises(ApiError) as caught:
        call(*arguments, **named)
    return caught.value.err_code, caught.value.description


def test_deleting_what_is_not_there_is_worded_as_the_official_server_does() -> None:
    _, stream = six_messages()
    assert error_of(stream.delete_message, 9) == (10043, "sequence 9 not found")
    _, stream = six_messages(storage="file")
    assert error_of(stream.delete_message, 2) == (10043, "sequence 2 not found")
    purge(stream, seq=3)
    assert error_of(stream.delete_message, 1) == (10057, "no message found")
    assert error_of(stream.delete_message, 9) == (10057, "stream store EOF")


def test_denied_and_sealed_streams_refuse_deletes_and_purges() -> None:
    stream = StreamKit().create(deny_delete=True, deny_purge=True)
    assert error_of(stream.delete_message, 1) == (10057, "message delete not permitted")
    assert error_of(purge, stream) == (10110, "stream purge not permitted")
    update(stream, replace(stream.config, sealed=True))
    assert error_of(stream.delete_message, 1)[0] == error_of(purge, stream)[0] == 10109


def test_new_limits_apply_at_once() -> None:
    kit, stream = six_messages()
    update(stream, replace(stream.config, max_msgs=2))
    assert [message.seq for message in stream.store.messages()] == [5, 6]
    update(stream, replace(stream.config, subjects=["other"], no_ack=True))
    assert kit.publish("s.1").startswith(b"NATS/1.0 503")
    assert kit.publish("other") == b""
    assert stream.store.last_seq == 7


def test_messages_expire_by_age() -> None:
    kit, stream = six_messages(max_age=10 * SECOND_NS)
    wait_ns = stream.next_deadline_ns - kit.turn.monotonic_ns
    assert 0 < wait_ns <= 10 * SECOND_NS
    kit.pass_ns(6 * SECOND_NS)
    stream.tick()
    assert [message.seq for message in stream.store.messages()] == [4, 5, 6]


def test_unsynced_messages_are_not_seen() -> None:
    kit = StreamKit()
    stream = kit.create(storage="file", allow_direct=True)
    kit.publish("s.1", b"one")
    kit.engine.auto_sync = False
    kit.publish("s.1", b"two")
    assert found(stream, last_by_subj="s.1") == 1
    assert stream.visible_seq == 1
    assert direct(kit, {"seq": 1, "batch": 5}) == ["1:1:0:-:one", "204 EOB -:1:1:-:"]
    assert direct(kit, {"multi_last": ["s.1"]}) == ["1:0:0:-:one", "204 EOB -:0:1:1:"]
    assert direct(kit, {"seq": 2}) == []
    assert synced(kit)[-1] == "2:-:-:-:two"


def synced(kit: StreamKit) -> list[str]:
    """What arrives when the disk has everything."""
    kit.syncer.run_all()
    kit.server.run_until_idle()
    return [_short(block, content) for _, block, content in kit.messages()]


@pytest.mark.parametrize("rollup", [False, True])
@pytest.mark.parametrize(
    ("request_body", "answers"),
    [
        ({"last_by_subj": "s.1"}, ["3:-:-:-:new"]),
        ({"last_by_subj": "s.*"}, None),
        ({"seq": 1, "next_by_subj": "s.1"}, ["3:-:-:-:new"]),
        ({"seq": 3}, ["3:-:-:-:new"]),
        ({"seq": 3, "no_hdr": True}, ["new"]),
        ({"seq": 3, "batch": 9}, ["3:0:0:-:new", "204 EOB -:0:3:-:"]),
        ({"multi_last": ["s.1"]}, ["3:0:0:-:new", "204 EOB -:0:3:3:"]),
    ],
)
def test_a_replaced_message_leaves_no_gap_until_its_successor_is_synced(
    rollup: bool, request_body: dict[str, Any], answers: list[str] | None
) -> None:
    kit = StreamKit()
    limit = {"allow_rollup_hdrs": True} if rollup else {"max_msgs_per_subject": 1}
    stream = kit.create(storage="file", allow_direct=True, **limit)
    kit.publish("s.1", b"old")
    kit.publish("s.2", b"other")
    kit.engine.auto_sync = False
    kit.publish("s.1", b"new", b"Nats-Rollup: sub" if rollup else b"")
    if answers is None:
        assert direct(kit, request_body) == ["2:-:-:-:other"]
        return
    assert direct(kit, request_body) == []
    if "batch" not in request_body and "multi_last" not in request_body:
        assert found(stream, **request_body) == 3
    # What was read is what is answered, also if it is replaced before it is synced.
    kit.publish("s.1", b"newer", b"Nats-Rollup: sub" if rollup else b"")
    assert [text for text in synced(kit) if "stream" not in text] == answers


def test_many_last_messages_are_sent_as_far_as_they_are_visible() -> None:
    kit = StreamKit()
    kit.create(storage="file", allow_direct=True, max_msgs_per_subject=1)
    kit.publish("s.1", b"old")
    kit.publish("s.2", b"other")
    kit.engine.auto_sync = False
    kit.publish("s.1", b"new")
    assert direct(kit, {"multi_last": ["s.>"]}) == ["2:1:0:-:other"]
    assert direct(kit, {"seq": 1, "batch": 9}) == ["2:1:0:-:other", "204 EOB -:1:2:-:"]
    assert [text for text in synced(kit) if "stream" not in text] == [
        "3:0:2:-:new",
        "204 EOB -:0:3:3:",
    ]


def test_a_read_that_waits_is_told_if_the_message_is_not_stored() -> None:
    kit = StreamKit()
    kit.create(storage="file", allow_direct=True, max_msgs_per_subject=1)
    kit.publish("s.1", b"old")
    kit.engine.auto_sync = False
    kit.disk.fail("sync")
    kit.publish("s.1", b"new")
    assert direct(kit, {"last_by_subj": "s.1"}) == []
    assert [text for text in synced(kit) if "stream" not in text] == [
        "500 Message Not Stored -:-:-:-:"
    ]
    assert direct(kit, {"last_by_subj": "s.1"}) == ["500 Message Not Stored -:-:-:-:"]


def test_requests_wait_when_many_answers_wait_for_the_disk() -> None:
    kit = StreamKit()
    stream = kit.create(storage="file", allow_direct=True, max_msgs_per_subject=1)
    kit.publish("s.1", b"old")
    kit.engine.auto_sync = False
    kit.publish("s.1", bytes(1_000_000))
    for _ in range(20):
        assert direct(kit, {"last_by_subj": "s.1"}) == []
    assert stream.direct.under_way == 11
    kit.syncer.run_all()
    kit.server.run_until_idle()
    answers = kit.messages()
    while stream.direct.under_way:
        stream.direct.tick()
        kit.server.run_until_idle()
        answers += kit.messages()
    assert len([1 for _, block, _ in answers if block]) == 20


def test_message_expires_by_its_own_time_to_live() -> None:
    kit = StreamKit()
    stream = kit.create(allow_msg_ttl=True)
    for header in (b"Nats-TTL: 1", b"Nats-TTL: 1m", b"Nats-TTL: never"):
        kit.publish("s.1", b"x", header)
    assert b'"err_code":10165' in kit.publish("s.1", b"x", b"Nats-TTL: 500ms")
    assert stream.next_deadline_ns - kit.turn.monotonic_ns == SECOND_NS
    kit.pass_ns(2 * SECOND_NS)
    stream.tick()
    assert [message.seq for message in stream.store.messages()] == [2, 3]
