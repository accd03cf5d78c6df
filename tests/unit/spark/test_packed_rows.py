"""Messages that a consumer has delivered, packed by the client, become rows; no network."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tradewind.client.core.protocol import ClientWire
from tradewind.client.streams.packed import PackedMessages
from tradewind.client.streams.pull_inbox import PullInbox
from tradewind.spark.columnar.arrow import batches
from tradewind.spark.columnar.columns import MESSAGES
from tradewind.spark.columnar.rows import RowDecoder

NOBODY: Any = object()  # who is never called: nothing is sent and nobody reads
HEADER = b"NATS/1.0\r\nA: 1\r\n\r\n"
Message = tuple[int, bytes, bytes, bytes]  # sequence, subject, header block, payload


def packed_of(messages: list[Message]) -> PackedMessages:
    """What a queue has when a server sent these."""
    core = ClientWire(NOBODY)
    queue = PullInbox("inbox", "", pending_messages_max=0, pending_bytes_max=0, messages_max=0)
    sid = core.register(queue)
    queue.expect_from_start()
    queue.start_packing()
    for number, (seq, subject, header, payload) in enumerate(messages, 1):
        reply = b"$JS.ACK.S.c.1.%d.%d.%d.%d" % (seq, number, seq * 1000, len(messages) - number)
        sizes = b"%d" % len(payload)
        verb = b"MSG"
        if header:
            verb, sizes = b"HMSG", b"%d %d" % (len(header), len(header) + len(payload))
        line = b"%s %s %d %s %s\r\n" % (verb, subject, sid, reply, sizes)
        core.feed(line + header + payload + b"\r\n")
    packed = queue.take_packed()
    assert packed is not None
    return packed


@st.composite
def deliveries(draw: st.DrawFn) -> list[Message]:
    seqs = sorted(draw(st.sets(st.integers(1, 60), min_size=1, max_size=30)))
    subjects = st.sampled_from([b"a", b"orders.north", b"caf\xc3\xa9", b"\xff.x"])
    payloads = st.binary(max_size=40)
    headers = st.sampled_from([b"", HEADER])
    return [(seq, draw(subjects), draw(headers), draw(payloads)) for seq in seqs]


@given(messages=deliveries(), first_seq=st.integers(1, 40), span=st.integers(0, 40))
def test_rows_are_what_was_delivered(messages: list[Message], first_seq: int, span: int) -> None:
    decoder = RowDecoder(first_seq=first_seq, last_seq=first_seq + span)
    decoder.take_packed(packed_of(messages))
    found = [row for batch in batches(decoder, "S", tuple(MESSAGES)) for row in batch.to_pylist()]
    wanted = [message for message in messages if first_seq <= message[0] <= first_seq + span]
    assert [(row["seq"], row["subject"], row["data"]) for row in found] == [
        (seq, subject.decode(errors="replace"), payload) for seq, subject, _, payload in wanted
    ]
    assert [row["headers"] for row in found] == [
        [("A", ["1"])] if header else None for _, _, header, _ in wanted
    ]
    assert [row["time"].microsecond for row in found] == [seq for seq, *_ in wanted]


@given(messages=deliveries(), after_seq=st.integers(0, 40), last_seq=st.integers(1, 70))
def test_gaps_are_the_sequences_that_did_not_come(
    messages: list[Message], after_seq: int, last_seq: int
) -> None:
    after_seq = min(after_seq, last_seq - 1)
    decoder = RowDecoder(last_seq=last_seq)
    gaps, known = decoder.gaps_in(packed_of(messages), after_seq)
    came = {seq for seq, *_ in messages}
    newest = min(max(came), last_seq)
    assert known == max(newest, after_seq)
    missing = {seq for first, last in gaps for seq in range(first, last + 1)}
    assert missing == set(range(after_seq + 1, newest + 1)) - came
