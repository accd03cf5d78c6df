"""Recounts a store from its messages, to verify its totals.

Owns the invariants stated in `message_store.pyx`, as assertions. `verify_store` is deliberately
slow: it trusts nothing that it can count. `verify_totals` looks at blocks but not into them, and
runs at every commit if invariants are checked.
"""

from __future__ import annotations

from typing import Any


def verify_totals(store: Any) -> None:
    """Assert that the totals of a store are those of its blocks."""
    blocks = store.blocks
    live = [block for block in blocks if block.live_msgs]
    counted = sum(block.live_msgs for block in live), sum(block.live_bytes for block in live)
    assert counted == (store.msgs, store.bytes), (counted, store.msgs, store.bytes)
    assert not blocks or blocks[-1] is store.last, blocks[-1].number
    previous = None
    for block in blocks:
        assert block.written <= block.size, (block.number, block.written, block.size)
        if previous is not None:
            assert previous.number < block.number, (previous.number, block.number)
            assert previous.last_seq < block.first_seq, (previous.last_seq, block.first_seq)
        previous = block
    if live:
        assert store.first_seq == live[0].first_seq, (store.first_seq, live[0].first_seq)
        assert live[-1].last_seq <= store.last_seq, (live[-1].last_seq, store.last_seq)
    assert store.synced_seq <= store.last_seq, (store.synced_seq, store.last_seq)
    assert len(store.timers) <= store.msgs, (len(store.timers), store.msgs)
    assert len(store.schedules) <= store.msgs, (len(store.schedules), store.msgs)


def verify_store(store: Any) -> None:
    """Assert every invariant of a MessageStore or FileStore."""
    verify_totals(store)
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
