"""With `sync_interval` an answer says that the system has the bytes: none leaves before the write,
whatever else ends in the same turn.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tradewind.errors import StoreError
from tradewind.stream import upkeep
from tradewind.stream.stream import Stream
from unit.stream.stream_kit import StreamKit, frame


def make() -> tuple[StreamKit, Stream]:
    kit = StreamKit(syncs=False)
    kit.engine.auto_sync = False
    return kit, kit.create(storage="file", allow_rollup_hdrs=True, allow_direct=True)


def in_the_turn(kit: StreamKit, step: Callable[[], None]) -> None:
    """Have a step run in the next turn, after its messages were stored and before they are written.

    A step that fails an assertion would only be logged: `kit.server.log` is not looked at.
    """
    kit.turn.defer(lambda *_: step(), b"", b"", b"", b"")


def unwritten_bytes(stream: Stream) -> int:
    assert stream.files is not None
    return stream.files.unwritten_bytes


def test_request_is_answered_when_its_change_is_written() -> None:
    kit, stream = make()
    kit.publish("s.1", b"first")
    seen: list[object] = []

    def delete() -> None:
        stream.delete_message(1)
        stream.commits.when_durable(lambda error: seen.append((error, unwritten_bytes(stream))))
        seen.append(("before", unwritten_bytes(stream) > 0, stream.visible_seq))

    in_the_turn(kit, delete)
    assert kit.publish("s.1", b"second") == b'{"stream":"S","seq":2}'
    assert seen == [("before", True, 1), (None, 0)]
    assert stream.visible_seq == 2


def test_request_whose_change_cannot_be_written_is_told_so() -> None:
    kit, stream = make()
    kit.publish("s.1", b"first")
    answers: list[StoreError | None] = []

    def delete() -> None:
        stream.delete_message(1)
        stream.commits.when_durable(answers.append)
        kit.disk.fail("write")

    in_the_turn(kit, delete)
    assert b'"err_code":10077' in kit.publish("s.1", b"second")
    stream.commits.when_durable(answers.append)
    assert len(answers) == 2
    assert all(isinstance(answer, StoreError) for answer in answers)


def test_end_of_a_roll_up_acknowledges_nobody_else_before_the_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upkeep, "REMOVED_PER_STEP", 2)
    kit, stream = make()
    for _ in range(5):
        kit.publish("s.1", b"old")
    kit.publish("s.1", b"newest", b"Nats-Rollup: sub")
    assert stream.upkeep.has_work

    def roll_up() -> None:
        while stream.upkeep.has_work:
            stream.upkeep.step(kit.clock.wall_ns())
        kit.disk.fail("write")

    in_the_turn(kit, roll_up)
    kit.peer.send(frame("s.2", b"together with the end of the roll-up"))
    replies = kit.replies()
    assert len(replies) == 2
    assert all(b'"err_code":10077' in reply for reply in replies)


def test_message_that_is_not_written_yet_is_read_after_its_write() -> None:
    """By a direct get in the turn that stored it, of a message and of the newest of a subject."""
    kit, stream = make()
    both = frame("s.1", b"first", reply="inbox.ack")
    for request in (b'{"seq":1}', b'{"last_by_subj":"s.1"}'):
        both += frame("$JS.API.DIRECT.GET.S", request, reply="inbox.get")
    kit.disk.fail("write")
    kit.peer.send(both)
    found = {(subject, header[:12]) for subject, header, _ in kit.messages()}
    assert ("inbox.get", b"NATS/1.0\r\nNa") not in found
    assert stream.visible_seq == 0


@pytest.mark.parametrize("storage", ["memory", "file"])
def test_a_stream_that_promises_memory_shows_messages_at_once(storage: str) -> None:
    kit = StreamKit(syncs=False)
    mode = {"persist_mode": "async"} if storage == "file" else {}
    stream = kit.create(storage=storage, **mode)
    seen: list[int] = []
    in_the_turn(kit, lambda: seen.append(stream.visible_seq))
    kit.publish("s.1")
    assert seen == [1]
