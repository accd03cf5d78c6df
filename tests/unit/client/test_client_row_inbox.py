"""The rows that wait for their acknowledgement, against a naive list of them; no network."""

from __future__ import annotations

import pyarrow as pa
import pytest
from client_probe import Probe
from hypothesis import given
from hypothesis import strategies as st

from tradewind.client.api_errors import JetStreamApiError
from tradewind.client.core.message import Msg
from tradewind.client.errors import BadAnswerError, MaxPayloadError
from tradewind.client.streams.inbox_owners import RowOwner
from tradewind.client.streams.row_inbox import RowInbox
from tradewind.spark.writes.outgoing import OutgoingRows

ACK = b'{"stream":"S","seq":7}'
DUPLICATE = b'{"stream":"S","seq":7,"duplicate":true}'
# Right, but not written as the servers do.
SPACED = b'{ "stream": "S", "seq": 7 }'
ERROR = b'{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum"}}'
STRANGE = b"ok"


class Rows(RowOwner):
    """A window that notes what it is told."""

    def __init__(self, probe: Probe) -> None:
        self.inbox = RowInbox(self, probe.wire, "inbox.")
        self.failed: dict[int, Exception] = {}
        self.refused: list[tuple[int, int]] = []
        self.lows: list[int] = []

    def _on_low(self) -> None:
        self.lows.append(self.inbox.unacknowledged)

    def _on_failed(self, token: int, error: Exception) -> None:
        self.failed[token] = error
        assert self.inbox.drop(token)

    def _on_refused(self, token: int, message: Msg) -> None:
        self.refused.append((token, message.status))

    def tokens(self) -> list[int]:
        found, token = [], 0
        while token := self.inbox.waiting_from(token + 1):
            found.append(token)
        return found


def answer(sid: int, token: int | bytes, body: bytes) -> bytes:
    name = token if isinstance(token, bytes) else b"%d" % token
    return b"MSG inbox.%s %d %d\r\n%s\r\n" % (name, sid, len(body), body)


def no_responders(sid: int, token: int) -> bytes:
    return b"HMSG inbox.%d %d 16 16\r\nNATS/1.0 503\r\n\r\n\r\n" % (token, sid)


def send(rows: OutgoingRows, window: Rows, payloads: list[bytes]) -> None:
    rows.load(pa.array([f"s.{len(each)}" for each in payloads]), pa.array(payloads, pa.binary()))
    assert rows.send(window.inbox, 0, 1 << 30, 5.0, None, None) == len(payloads)


@pytest.mark.slow
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.lists(st.binary(max_size=600), max_size=40)),
            st.tuples(
                st.sampled_from([ACK, DUPLICATE, SPACED, ERROR, STRANGE]), st.integers(0, 60)
            ),
            st.tuples(st.sampled_from(["refuse", "again", "drop"]), st.integers(0, 60)),
        ),
        max_size=60,
    )
)
def test_each_row_waits_until_its_own_answer_comes(steps: list[tuple[object, object]]) -> None:
    probe = Probe()
    window = Rows(probe)
    sid = probe.wire.register(window.inbox)
    rows = OutgoingRows(b"x:", by_key=False)
    waiting: dict[int, bytes] = {}
    sizes: list[int] = []
    failed: set[int] = set()
    for what, value in steps:
        if what == "send":
            assert isinstance(value, list)
            for payload in value:
                send(rows, window, [payload])
                operation = probe.wire.take_output()
                sizes.append(len(operation))
                waiting[len(sizes)] = operation
                assert b" inbox.%d " % len(sizes) in operation
        else:
            assert isinstance(value, int)
            is_waiting = value in waiting
            if isinstance(what, bytes):
                probe.wire.feed(answer(sid, value, what))
                waiting.pop(value, None)
                if is_waiting and what in (ERROR, STRANGE):
                    failed.add(value)
                    kind = JetStreamApiError if what == ERROR else BadAnswerError
                    assert isinstance(window.failed[value], kind)
            elif what == "refuse":
                before = len(window.refused)
                probe.wire.feed(no_responders(sid, value))
                assert window.refused[before:] == ([(value, 503)] if is_waiting else [])
            elif what == "again":
                window.inbox.send_again(value)
                assert probe.wire.take_output() == waiting.get(value, b"")
            else:
                assert window.inbox.drop(value) == is_waiting
                waiting.pop(value, None)
        assert window.tokens() == sorted(waiting)
        assert window.inbox.unacknowledged == len(waiting)
        assert window.inbox.unacknowledged_bytes == (
            sum(sizes[min(waiting) - 1 :]) if waiting else 0
        )
    assert set(window.failed) == failed
    assert not probe.errors


def test_who_waits_is_woken_once_when_few_enough_are_left() -> None:
    probe = Probe()
    window = Rows(probe)
    sid = probe.wire.register(window.inbox)
    send(OutgoingRows(b"x:", by_key=False), window, [b"%d" % number for number in range(10)])
    window.inbox.wake_when(7)
    for token in range(1, 11):
        probe.wire.feed(answer(sid, token, ACK))
    assert window.lows == [7]
    window.inbox.wake_when(3)
    assert window.lows == [7]


def test_answers_that_belong_to_no_row_are_ignored() -> None:
    probe = Probe()
    window = Rows(probe)
    sid = probe.wire.register(window.inbox)
    send(OutgoingRows(b"x:", by_key=False), window, [b"one"])
    for token in (b"0", b"2", b"x", b"1x", b"1.1", b"9" * 40, b"18446744073709551617"):
        probe.wire.feed(answer(sid, token, ACK))
        probe.wire.feed(answer(sid, token, ERROR))
    assert window.tokens() == [1]
    assert (window.failed, window.refused, probe.errors) == ({}, [], [])


def test_a_row_that_cannot_be_encoded_leaves_nothing_behind() -> None:
    probe = Probe()
    window = Rows(probe)
    probe.wire.set_limits(100, 1 << 20)
    rows = OutgoingRows(b"x:", by_key=False)
    with pytest.raises(MaxPayloadError, match="max_payload"):
        send(rows, window, [b"x" * 200])
    assert (
        window.inbox.unacknowledged,
        window.inbox.unacknowledged_bytes,
        probe.wire.take_output(),
    ) == (0, 0, b"")
