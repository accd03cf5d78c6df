"""The fast path: what is published is stored and acknowledged, in the official bytes."""

from __future__ import annotations

import errno
from functools import partial

import pytest
from stream_kit import SECOND_NS, StreamKit, close, frame

from tradewind.stream.message_ids import MessageIds


@pytest.fixture(params=["memory", "file"])
def storage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_publish_is_stored_and_acknowledged(storage: str) -> None:
    kit = StreamKit()
    stream = kit.create(storage=storage)
    assert kit.publish("s.1", b"hello") == b'{"stream":"S","seq":1}'
    assert kit.publish("s.2", b"x", b"A: b") == b'{"stream":"S","seq":2}'
    message = stream.store.get(2)
    assert (message.subject, message.header, message.payload) == (
        b"s.2",
        b"NATS/1.0\r\nA: b\r\n\r\n",
        b"x",
    )
    assert stream.visible_seq == 2


def test_acknowledgement_names_the_domain() -> None:
    kit = StreamKit(domain="hub")
    kit.create()
    assert kit.publish("s.1") == b'{"stream":"S","domain":"hub","seq":1}'
    kit.publish("s.1", b"", b"Nats-Msg-Id: a")
    assert (
        kit.publish("s.1", b"", b"Nats-Msg-Id: a")
        == b'{"stream":"S","domain":"hub","seq":2,"duplicate": true}'
    )
    assert b"domain" not in kit.publish("s.1", b"", b"Nats-Expected-Stream: X")


def test_second_message_with_an_id_is_a_duplicate_until_the_window_has_passed(
    storage: str,
) -> None:
    kit = StreamKit()
    stream = kit.create(storage=storage, duplicate_window=10 * SECOND_NS)
    assert kit.publish("s.1", b"", b"Nats-Msg-Id: a") == b'{"stream":"S","seq":1}'
    kit.server.advance(9)
    duplicate = b'{"stream":"S","seq":1,"duplicate": true}'
    assert kit.publish("s.9", b"other", b"Nats-Msg-Id: a") == duplicate
    assert stream.store.msgs == 1
    kit.server.advance(1)
    assert kit.publish("s.1", b"", b"Nats-Msg-Id: a") == b'{"stream":"S","seq":2}'
    assert stream.ids.count == 1


def test_ids_are_known_again_after_a_restart() -> None:
    kit = StreamKit()
    stream = kit.create(storage="file", duplicate_window=10 * SECOND_NS)
    kit.publish("s.1", b"", b"Nats-Msg-Id: old")
    kit.server.advance(6)
    kit.publish("s.1", b"", b"Nats-Msg-Id: plain")
    kit.publish("s.1", b"", b"Nats-Expected-Stream: S\r\nNats-Msg-Id:  special")
    before = stream.ids.items()
    close(stream)
    kit.server.advance(5)
    assert stream.files is not None
    kit.syncer.detach(stream.files)
    again = kit.reopen()
    assert again.ids.items() == before[1:]
    assert again.ingest.last_id == b"special"
    assert kit.publish("s.1", b"", b"Nats-Msg-Id: old") == b'{"stream":"S","seq":4}'
    assert b"duplicate" in kit.publish("s.1", b"", b"Nats-Msg-Id: plain")
    assert b"duplicate" in kit.publish("s.1", b"", b"Nats-Msg-Id: special")


@pytest.mark.parametrize(
    "header",
    [
        b"Nats-Expected-Stream: S\r\nNats-Msg-Id:a",
        b"Nats-Msg-Id:   a\r\nNats-Expected-Stream: S",
        b"Nats-Expected-Stream: S\r\nX-Nats-Msg-Id: other\r\nNats-Msg-Id: a b",
        b"Nats-Expected-Stream: S\r\nNats-Msg-Id: a\r\nNats-Msg-Id: b",
        b"Nats-Expected-Stream: S\r\nNats-Msg-Id: a\rb",
        b"Nats-Expected-Stream: S\r\nNats-Msg-Id: ",
        b"Nats-Expected-Stream: S\r\nOther: Nats-Msg-Id: a",
    ],
)
def test_an_id_is_the_same_after_a_restart_wherever_it_stands_in_the_header(header: bytes) -> None:
    kit = StreamKit()
    stream = kit.create(storage="file", duplicate_window=10 * SECOND_NS)
    kit.publish("s.1", b"", header)
    before = stream.ids.items()
    close(stream)
    assert stream.files is not None
    kit.syncer.detach(stream.files)
    assert kit.reopen().ids.items() == before


def test_nothing_is_acknowledged_before_it_is_synced() -> None:
    kit = StreamKit()
    stream = kit.create(storage="file")
    kit.engine.auto_sync = False
    assert kit.publish("s.1", b"a", b"Nats-Msg-Id: a") == b""
    assert kit.publish("s.1", b"a", b"Nats-Msg-Id: a", reply="inbox.2") == b""
    assert kit.publish("s.1", b"", b"Nats-Expected-Stream: X", reply="inbox.3") == b""
    assert stream.visible_seq == 0
    kit.syncer.run_all()
    kit.server.run_until_idle()
    assert stream.visible_seq == 1
    assert [(subject, payload[:30]) for subject, _, payload in kit.messages()] == [
        ("inbox.1", b'{"stream":"S","seq":1}'),
        ("inbox.2", b'{"stream":"S","seq":1,"duplica'),
        ("inbox.3", b'{"error":{"code":400,"err_code'),
    ]


def test_without_sync_a_publish_is_acknowledged_in_the_same_turn() -> None:
    kit = StreamKit(syncs=False)
    stream = kit.create(storage="file")
    kit.engine.auto_sync = False
    assert kit.publish("s.1") == b'{"stream":"S","seq":1}'
    assert stream.visible_seq == 1
    assert kit.create("A", storage="file", persist_mode="async").waits_for_sync is False


def test_failed_sync_is_told_to_all_who_wait_and_reading_goes_on() -> None:
    kit = StreamKit()
    stream = kit.create(storage="file")
    kit.publish("s.1", b"kept")
    kit.engine.auto_sync = False
    kit.peer.send(frame("s.1", b"lost") + frame("s.1", b"lost", reply="inbox.2"))
    kit.disk.fail("sync")
    kit.syncer.run_all()
    kit.server.run_until_idle()
    replies = kit.replies()
    assert len(replies) == 2
    for reply in replies:
        assert reply.startswith(b'{"error":{"code":503,"err_code":10077,"description":"')
        assert reply.endswith(b'"},"stream":"S","seq":0}')
    assert b"10077" in kit.publish("s.1", b"later")
    assert stream.store.get(1).payload == b"kept"
    assert stream.visible_seq == 1


def test_sync_that_fails_during_the_close_is_not_acknowledged() -> None:
    kit = StreamKit()
    stream = kit.create(storage="file")
    kit.engine.auto_sync = False
    assert kit.publish("s.1", b"x") == b""
    kit.disk.fail("sync")
    stream.commits.detach(partial(close, stream))
    kit.syncer.run_all()
    kit.server.run_until_idle()
    assert b'"error":' in kit.reply()


def test_full_disk_is_told_and_publishing_goes_on_when_there_is_room() -> None:
    kit = StreamKit()
    stream = kit.create(storage="file")
    kit.publish("s.1", b"kept")
    kit.disk.fail("write", error=errno.ENOSPC, times=1000)
    for _ in range(3):
        assert b'"err_code":10077' in kit.publish("s.1", b"refused")
    assert stream.ingest.unacknowledged_turns == 1
    kit.disk.clear_faults()
    kit.clock.advance_ns(2 * SECOND_NS)
    kit.syncer.tick(kit.clock.monotonic_ns())
    kit.syncer.run_all()
    assert kit.publish("s.1", b"taken").startswith(b'{"stream":"S","seq":')
    assert stream.store.last_message(b"s.1").payload == b"taken"
    reports = [text for text in kit.server.log.texts("error") if "takes no messages" in text]
    assert len(reports) == 1


def test_no_ack_stream_says_nothing(storage: str) -> None:
    kit = StreamKit()
    stream = kit.create(storage=storage, no_ack=True)
    assert kit.publish("s.1", b"x") == b""
    assert kit.publish("s.1", b"x", b"Nats-Expected-Stream: X") == b""
    assert stream.store.msgs == 1


def test_publish_without_reply_is_stored(storage: str) -> None:
    kit = StreamKit()
    stream = kit.create(storage=storage)
    assert kit.publish("s.1", b"x", reply="") == b""
    assert stream.store.msgs == 1


def test_timestamps_strictly_increase_even_if_the_clock_stands_still_or_goes_back() -> None:
    kit = StreamKit()
    stream = kit.create()
    kit.peer.send(frame("s.1", b"x", reply="") * 3)
    kit.turn.now_ns -= SECOND_NS
    stream.ingest.submit(b"s.1", b"", b"", b"x")
    times = [message.timestamp_ns for message in stream.store.messages()]
    assert times == [times[0] + step for step in range(4)]


def test_too_much_that_waits_is_refused_with_429() -> None:
    kit = StreamKit(waiting_msgs_max=3)
    stream = kit.create(storage="file")
    kit.engine.auto_sync = False
    kit.peer.send(frame("s.1", b"x") * 5)
    busy = (
        b'NATS/1.0 429 Too Many Requests\r\n\r\n{"error":{"code":429,"err_code":10167,'
        b'"description":"too many requests"},"stream":"S","seq":0}'
    )
    assert kit.replies() == [busy, busy]
    kit.syncer.run_all()
    kit.server.run_until_idle()
    assert kit.replies() == [b'{"stream":"S","seq":%d}' % seq for seq in (1, 2, 3)]
    kit.engine.auto_sync = True
    assert kit.publish("s.1") == b'{"stream":"S","seq":4}'
    assert stream.store.msgs == 4


def test_bytes_that_wait_are_bounded_too() -> None:
    kit = StreamKit(waiting_bytes_max=1000)
    kit.create(storage="file")
    kit.engine.auto_sync = False
    kit.peer.send(frame("s.1", b"x" * 600) * 3)
    assert len(kit.replies()) == 1
    kit.syncer.run_all()
    kit.server.run_until_idle()
    assert len(kit.replies()) == 2
    kit.engine.auto_sync = True
    kit.peer.send(frame("s.1", b"x" * 600))
    assert kit.replies() == [b'{"stream":"S","seq":3}']


def test_publisher_that_wants_no_replies_waits_for_the_disk_and_loses_nothing() -> None:
    kit = StreamKit(waiting_msgs_max=8)
    stream = kit.create(storage="file")
    kit.engine.auto_sync = False
    kit.peer.send(frame("s.1", b"x", reply="") * 100 + b"PING\r\n")
    assert stream.store.msgs == 7, "six fill three quarters, the seventh finds that out"
    assert kit.peer.session.stalls == 1
    kit.server.advance(0.005)
    assert stream.store.msgs == 8, "one operation per moment as long as the disk is busy"
    kit.engine.auto_sync = True
    for _ in range(20):
        kit.syncer.run_all()
        kit.server.advance(0.005)
    assert stream.store.msgs == 100
    assert kit.peer.take() == b"PONG\r\n"


def test_nobody_is_held_back_for_a_disk_that_has_failed() -> None:
    kit = StreamKit(waiting_msgs_max=8)
    stream = kit.create(storage="file")
    kit.engine.auto_sync = False
    kit.peer.send(frame("s.1", b"x", reply="") * 7)
    kit.disk.fail("sync")
    kit.syncer.run_all()
    kit.server.run_until_idle()
    assert stream.files is not None
    assert stream.files.failure is not None
    kit.server.advance(0.005)
    stalls = kit.peer.session.stalls
    kit.peer.send(frame("s.1", b"x", reply="") * 50 + b"PING\r\n")
    assert kit.peer.take().endswith(b"PONG\r\n")
    assert kit.peer.session.stalls == stalls


def test_publisher_that_wants_replies_is_not_held_back() -> None:
    kit = StreamKit(waiting_msgs_max=8)
    kit.create(storage="file")
    kit.engine.auto_sync = False
    kit.peer.send(frame("s.1", b"x") * 9)
    assert kit.peer.session.stalls == 0
    assert len(kit.replies()) == 1, "the ninth is refused"


def test_ids_beyond_their_memory_are_refused_not_forgotten() -> None:
    taken = 0
    small = MessageIds(SECOND_NS, 1, bytes_max=2000)
    for number in range(100):
        if small.can_take(b"id-%02d" % number):
            small.remember(b"id-%02d" % number, number + 1, 1)
            taken += 1
    assert 10 < taken < 50
    assert small.lookup(b"id-00", 2) == 1


def test_reply_that_a_stream_listens_to_is_stored_there_later_in_the_turn() -> None:
    kit = StreamKit()
    kit.create()
    audit = kit.create("AUDIT", subjects=["audit.>"])
    kit.publish("s.1", b"x", reply="audit.s")
    assert audit.store.get(1).payload == b'{"stream":"S","seq":1}'


def test_stream_that_was_deactivated_takes_nothing() -> None:
    kit = StreamKit()
    stream = kit.create()
    stream.deactivate()
    assert kit.publish("s.1").startswith(b"NATS/1.0 503")
    stream.activate()
    assert kit.publish("s.1") == b'{"stream":"S","seq":1}'
