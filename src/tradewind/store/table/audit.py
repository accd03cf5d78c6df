"""Counting a store again from its messages, to see whether its totals are right.

Owns the invariants that `messages.pyx` states, as assertions. Slow on purpose: it believes nothing
that it can count.
"""

from __future__ import annotations

from typing import Any


def verify_store(store: Any) -> None:
    """Assert every invariant of a MessageStore or FileStore."""
    msgs, size, previous = 0, 0, 0
    totals: dict[bytes, tuple[int, int, int]] = {}
    first = store.blocks[0] if store.blocks else None
    for block in store.load_all():
        live = block.live_sequences()
        assert len(live) == block.live_msgs, (block.number, len(live), block.live_msgs)
        needed = block is store.last or (block.tombstones and block is not first)
        assert block.live_msgs or needed, block.number
        counted = 0
        for seq in live:
            assert seq > previous, (seq, previous)
            previous = seq
            message = store.get(seq)
            counted += store.counted_size(message)
            start, _, total = totals.get(message.subject, (seq, seq, 0))
            totals[message.subject] = start, seq, total + 1
        assert counted == block.live_bytes, (block.number, counted, block.live_bytes)
        msgs += len(live)
        size += counted
    assert (msgs, size) == (store.msgs, store.bytes), (msgs, size, store.msgs, store.bytes)
    assert {name: entry[2] for name, entry in totals.items()} == store.subjects(limit=2**31)
    for name, (start, last, total) in totals.items():
        state = store.subject_state(name)
        assert (state.msgs, state.first_seq, state.last_seq) == (total, start, last), name
    assert previous <= store.last_seq
    if not msgs:
        is_untouched = store.first_seq == store.last_seq == 0
        assert is_untouched or store.first_seq == store.last_seq + 1, store.first_seq
