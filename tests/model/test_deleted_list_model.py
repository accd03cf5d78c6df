"""The list of deleted sequences in JSON is the one that the store gives, however it is cut."""

from __future__ import annotations

import json
from random import Random

from sweeps import sweep

from tradewind.store.table.deleted_list import DeletedList
from tradewind.store.table.message_store import MessageStore


@sweep("seed", range(100))
def test_steps_give_the_whole_list(seed: int) -> None:
    random = Random(seed)
    store = MessageStore("S", block_bytes_max=random.choice((250, 1000, 100_000)))
    for number in range(random.randint(0, 120)):
        store.store(b"a", b"", b"", number + 1)
        if random.random() < 0.05:
            store.skip(store.last_seq + random.randint(1, 40), number + 1)
    live = [message.seq for message in store.messages()]
    for seq in random.sample(live, int(len(live) * random.random())):
        store.remove(seq)
    limit = random.choice((0, 1, 10, 10_000))
    found, step, calls = DeletedList(store, limit), random.choice((1, 3, 50, 10_000)), 1
    while found.collect(step):
        calls += 1
    expected = store.deleted_sequences(limit)
    assert (json.loads(found.text), found.count) == (expected, len(expected))
    assert calls <= len(expected) // step + 1
