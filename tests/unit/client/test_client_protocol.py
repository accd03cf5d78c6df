"""Bytes of a server become messages, however they are cut; wrong bytes are an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from client_probe import Probe
from hypothesis import given
from hypothesis import strategies as st

from tradewind.client.core.message import Msg
from tradewind.client.core.protocol import ClientWire, MessageInbox
from tradewind.errors import ProtocolError

SUBJECT = st.text("abcä.*>", min_size=1, max_size=12)
MESSAGE = st.tuples(
    st.integers(1, 3),
    SUBJECT,
    st.none() | SUBJECT,
    st.none() | st.text("xyz", max_size=5),
    st.binary(max_size=300),
)
CONTROL = st.sampled_from([b"PING\r\n", b"PONG\r\n", b"+OK\r\n", b"INFO {}\r\n", b"-ERR 'x'\r\n"])


def encode(sid: int, subject: str, reply: str | None, header: str | None, body: bytes) -> bytes:
    middle = f"{subject} {sid} {reply + ' ' if reply else ''}".encode()
    if header is None:
        return b"MSG %s%d\r\n%s\r\n" % (middle, len(body), body)
    block = f"NATS/1.0\r\nH: {header}\r\n\r\n".encode()
    total = len(block) + len(body)
    return b"HMSG %s%d %d\r\n%s%s\r\n" % (middle, len(block), total, block, body)


def encode_item(item: Any) -> bytes:
    return item if isinstance(item, bytes) else encode(*item)


def seen(message: Msg) -> tuple[object, ...]:
    header = message.headers.get("H") if message.header_block else None
    return message.subject, message.reply or None, header, message.data


@pytest.mark.slow
@given(st.lists(MESSAGE | CONTROL, max_size=20), st.data())
def test_any_chunking_gives_the_same_messages(items: list[object], data: st.DataObject) -> None:
    stream = b"".join(encode_item(item) for item in items)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    in_place = data.draw(st.booleans())
    probe = Probe()
    queues = {number: probe.add() for number in (1, 2, 3)}
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        piece = stream[start:end]
        if in_place:
            probe.read_in_place(piece)
        else:
            probe.wire.feed(piece)
    messages = [item for item in items if not isinstance(item, bytes)]
    for sid, queue in queues.items():
        got = [seen(queue.take()) for _ in range(queue.pending_messages)]  # type: ignore[arg-type]
        assert got == [item[1:] for item in messages if item[0] == sid]  # type: ignore[index]
        assert queue.pending_bytes == 0
    verbs = [item[:4].decode() for item in items if isinstance(item, bytes)]
    assert [kind for kind, _ in probe.controls] == [verb for verb in verbs if verb != "+OK\r"]
    assert probe.wire.in_messages == len(messages)


@pytest.mark.parametrize(
    "wrong",
    [
        b"HELLO\r\n",
        b"MSG a 1\r\n",
        b"MSG a 1 b c 5\r\n",
        b"MSG a one 5\r\n",
        b"MSG a 1 -5\r\n",
        b"MSG a 1 1234567890\r\n",
        b"MSG a 1 999999999\r\n",
        b"MSG a 1 2\r\nabc\r\n",
        b"MSG a 1 2\r\nab\n\n",
        b"HMSG a 1 5 4\r\nabcd\r\n",
        b"HMSG a 1 5\r\n",
        b"a" * 1_100_000,
    ],
)
def test_wrong_bytes_are_a_protocol_error(wrong: bytes) -> None:
    probe = Probe()
    probe.add()
    with pytest.raises(ProtocolError):
        probe.wire.feed(wrong)


def test_large_message_is_read_in_place_and_the_memory_given_back() -> None:
    probe = Probe()
    queue = probe.add()
    body = bytes(5_000_000)
    probe.read_in_place(encode(1, "a", None, None, body))
    message = queue.take()
    assert message is not None
    assert message.data == body
    assert len(probe.wire.read_area()) < 1_000_000


def test_messages_of_unknown_subscriptions_are_dropped() -> None:
    probe = Probe()
    queue = probe.add()
    probe.wire.feed(encode(1, "a", None, None, b"1"))
    assert probe.wire.forget(queue)
    assert not probe.wire.forget(queue)
    probe.wire.feed(encode(1, "a", None, None, b"2") + encode(99, "a", None, None, b"3"))
    assert (queue.pending_messages, probe.wire.in_messages) == (1, 3)


def test_handler_gets_messages_and_its_failure_does_not_stop_the_parser() -> None:
    probe = Probe()
    got = []

    def handler(message: Msg) -> None:
        got.append(message.data)
        if message.data == b"bad":
            raise ValueError

    probe.add(handler=handler)
    probe.wire.feed(b"".join(encode(1, "a", None, None, body) for body in (b"1", b"bad", b"2")))
    assert got == [b"1", b"bad", b"2"]
    assert len(probe.errors) == 1


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(0, 5), st.integers(0, 60))
def test_queue_keeps_its_limits(actions: list[int], messages_max: int, bytes_max: int) -> None:
    """A number is a message of that size, 0 reads one; the model is a list."""
    probe = Probe()
    queue = probe.add(pending_messages_max=messages_max, pending_bytes_max=bytes_max)
    model: list[bytes] = []
    dropped = 0
    for index, size in enumerate(actions):
        if size == 0:
            message = queue.take()
            assert (message and message.data) == (model.pop(0) if model else None)
            continue
        body = b"%c" % (index % 256) * size
        probe.wire.feed(encode(1, "a", None, None, body))
        full = messages_max and len(model) >= messages_max
        heavy = bytes_max and model and sum(map(len, model)) + size > bytes_max
        if full or heavy:
            dropped += 1
        else:
            model.append(body)
        assert (queue.pending_messages, queue.pending_bytes, queue.dropped_count) == (
            len(model),
            sum(map(len, model)),
            dropped,
        )
    assert bool(probe.slow) == bool(dropped)


def test_unread_messages_die_with_their_queue() -> None:
    queue = MessageInbox("s", "", pending_messages_max=0, pending_bytes_max=0, messages_max=0)
    probe = Probe()
    probe.wire.register(queue)
    for _ in range(1000):
        probe.wire.feed(encode(1, "a", None, None, b"x"))
    probe.wire.forget(queue)
    assert queue.pending_messages == 1000
    del queue


# ---------------------------------------------------------------------- the outbox


def test_messages_are_encoded_once_and_the_owner_is_told_once() -> None:
    probe = Probe()
    probe.publish("a", b"1")
    probe.publish("b.c", "zwei", reply="r")
    probe.publish("d", bytearray(b"3"), headers={"H": "v"})
    assert probe.flushes == 1
    assert probe.wire.take_output() == (
        b"PUB a 1\r\n1\r\nPUB b.c r 4\r\nzwei\r\nHPUB d 18 19\r\nNATS/1.0\r\nH: v\r\n\r\n3\r\n"
    )
    assert probe.wire.take_output() == b""
    probe.publish("a")
    assert probe.flushes == 2


def test_only_messages_stay_in_the_outbox_of_a_lost_connection() -> None:
    probe = Probe()
    probe.wire.send_line(b"SUB a q 1\r\n")
    probe.publish("a", b"PING\r\nSUB x 1\r\n")
    probe.wire.send_line(b"PING\r\n")
    probe.wire.send_line(b"UNSUB 1\r\n")
    probe.publish("b", b"2", headers={"H": "v"})
    probe.wire.send_line(b"PONG\r\n")
    probe.wire.keep_messages()
    assert probe.wire.take_output() == (
        b"PUB a 15\r\nPING\r\nSUB x 1\r\n\r\nHPUB b 18 19\r\nNATS/1.0\r\nH: v\r\n\r\n2\r\n"
    )


def test_payload_without_bytes_is_a_type_error_and_sends_nothing() -> None:
    probe = Probe()
    with pytest.raises(TypeError):
        probe.publish("a", 5)  # type: ignore[arg-type]
    assert probe.wire.take_output() == b""


ENTRIES: dict[str, Callable[[ClientWire], object]] = {
    "feed": lambda wire: wire.feed(b"MSG a 1 1\r\nx\r\n"),
    "read": lambda wire: wire.read_area(),
    "received": lambda wire: wire.received(0),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_handler_cannot_enter_the_input_that_it_is_called_from(entry: str) -> None:
    probe = Probe()
    got: list[bytes] = []

    def handle(message: Msg) -> None:
        got.append(message.data)
        ENTRIES[entry](probe.wire)

    probe.add(handler=handle)
    probe.wire.feed(b"MSG a 1 1\r\nb\r\nMSG a 1 1\r\nc\r\n")
    assert got == [b"b", b"c"]
    assert [type(error) for error in probe.errors] == [RuntimeError, RuntimeError]
