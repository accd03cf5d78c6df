"""Fast batches: what is left of them after a rest, a restart, a full disk; how many may be open."""

from __future__ import annotations

import errno
import json

from hypothesis import given
from hypothesis import strategies as st

from tradewind.stream.fast_core import read_reply
from tradewind.stream.staging import BatchLimits
from unit.stream.stream_kit import SECOND_NS, StreamKit, close, frame


def send(kit: StreamKit, batch: str, number: int, operation: int = 1, subject: str = "s.1") -> None:
    if number == 1 and operation == 1:
        operation = 0
    kit.peer.send(frame(subject, b"x", b"", f"inbox.{batch}.3.ok.{number}.{operation}.$FI"))


def codes(kit: StreamKit) -> list[int]:
    answers = [json.loads(reply) for reply in kit.replies()]
    return [answer.get("error", {}).get("err_code", 0) for answer in answers]


def test_rest_ends_a_batch() -> None:
    kit = StreamKit()
    stream = kit.create(allow_batched=True)
    send(kit, "a", 1)
    kit.pass_ns(9 * SECOND_NS)
    send(kit, "b", 1)
    kit.replies()
    assert stream.next_deadline_ns == kit.turn.monotonic_ns + SECOND_NS
    kit.pass_ns(SECOND_NS)
    stream.tick()
    send(kit, "a", 2)
    send(kit, "b", 2)
    assert 10208 in codes(kit)
    assert stream.store.last_seq == 3
    assert kit.context.batches.fast_open_count == 1


def test_restart_forgets_batches_and_keeps_messages() -> None:
    kit = StreamKit()
    stream = kit.create(allow_batched=True, storage="file")
    for number in (1, 2, 3):
        send(kit, "a", number)
    kit.replies()
    close(stream)
    assert kit.context.batches.fast_open_count == 0
    stream = kit.reopen()
    assert stream.store.last_seq == 3
    send(kit, "a", 4)
    assert codes(kit) == [10208]


def test_number_of_open_batches_is_bounded() -> None:
    kit = StreamKit(batches=BatchLimits(fast_per_stream_max=2))
    kit.create(allow_batched=True)
    for batch in "abc":
        send(kit, batch, 1)
    assert codes(kit).count(10211) == 1


def test_acknowledgements_wait_for_the_disk() -> None:
    kit = StreamKit()
    kit.create(allow_batched=True, storage="file")
    kit.engine.auto_sync = False
    for number in (1, 2, 3):
        send(kit, "a", number)
    send(kit, "a", 4, 2)
    assert [json.loads(reply) for reply in kit.replies()] == [{"type": "ack", "seq": 0, "msgs": 3}]
    for _ in range(2):
        kit.syncer.run_all()
        kit.server.run_until_idle()
    assert [json.loads(reply) for reply in kit.replies()] == [
        {"type": "ack", "seq": 3, "msgs": 3},
        {"stream": "S", "seq": 4, "batch": "a", "count": 4},
    ]


def test_failing_disk_is_told_instead_of_acknowledgements() -> None:
    kit = StreamKit()
    kit.create(allow_batched=True, storage="file")
    send(kit, "a", 1)
    kit.replies()
    kit.disk.fail("*", nth=1, error=errno.EIO, times=1000)
    for number in (2, 3):
        send(kit, "a", number)
    answers = [json.loads(reply) for reply in kit.replies()]
    assert answers
    assert all("error" in answer for answer in answers)


def test_batches_that_alternate_keep_their_own_numbers() -> None:
    kit = StreamKit()
    stream = kit.create(allow_batched=True)
    for number in range(1, 50):
        for batch in "abc":
            send(kit, batch, number)
    kit.replies()
    for batch in "abc":
        send(kit, batch, 50, 2)
    counts = [json.loads(reply)["count"] for reply in kit.replies()]
    assert counts == [50, 50, 50]
    assert stream.store.last_seq == 150


@given(st.binary(max_size=60), st.booleans())
def test_any_reply_subject_is_read_or_not(text: bytes, is_marked: bool) -> None:
    reply = text + b".$FI" if is_marked else text
    found = read_reply(reply)
    tokens = reply.split(b".")
    if found is None:
        return
    assert tokens[-1] == b"$FI"
    batch_id, flow, takes_gaps, number, operation = found
    assert tokens[-6] == batch_id
    assert 1 <= flow <= 65535
    assert tokens[-4] == (b"ok" if takes_gaps else b"fail")
    assert (int(tokens[-3]), int(tokens[-2])) == (number, operation)


@given(
    st.text("abz-", min_size=1, max_size=8),
    st.integers(-5, 10**6),
    st.sampled_from(["ok", "fail"]),
    st.integers(0, 10**17),
    st.integers(0, 9),
)
def test_what_is_well_formed_is_read(
    batch: str, flow: int, gap: str, number: int, operation: int
) -> None:
    found = read_reply(f"in.box.{batch}.{flow}.{gap}.{number}.{operation}.$FI".encode())
    allowed = {0: number == 1, 1: number > 1, 2: number > 0, 3: number > 1, 4: number > 0}
    if not allowed.get(operation, False):
        assert found is None
        return
    expected_flow = 10 if flow <= 0 else min(flow, 65535)
    assert found == (batch.encode(), expected_flow, gap == "ok", number, operation)
