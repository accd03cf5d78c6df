"""First and last messages of subjects after a start: found by walks through the blocks, and the
walks are counted, for each takes as long as the block is large.
"""

from __future__ import annotations

from random import Random

import pytest
from sweeps import sweep

from model.store_model import ModelStore
from tradewind.store.contract import StoreLimits
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import open_store
from tradewind.store.format.layout import record_bytes
from tradewind.testing.fake_disk import SimulatedDisk

SUBJECTS = 600
ROUNDS = 3


def opened(disk: SimulatedDisk, block_bytes_max: int = 20_000) -> FileStore:
    disk.make_directory("/disk/S", sync=True)
    store, report = open_store(
        disk, "/disk/S", "S", StoreLimits(), now_ns=0, block_bytes_max=block_bytes_max
    )
    assert report.is_clean
    return store


def restarted() -> FileStore:
    """A store of which only the totals are known."""
    disk = SimulatedDisk()
    store = opened(disk)
    for number in range(SUBJECTS * ROUNDS):
        store.table.store(b"s.%d" % (number % SUBJECTS), b"", b"x" * 8, number + 1)
    store.close()
    store = opened(disk)
    assert len(store.table.blocks) >= ROUNDS
    return store


def test_last_messages_of_all_subjects_take_one_walk_back() -> None:
    store = restarted()
    found = list(store.table.last_sequences((b"s.*",)))
    first = SUBJECTS * (ROUNDS - 1) + 1
    assert found == list(range(first, first + SUBJECTS))
    assert store.table.end_walks <= len(store.table.blocks)
    assert list(store.table.last_sequences((b"s.*",))) == found
    assert store.table.end_walks <= len(store.table.blocks)


@pytest.mark.parametrize("seed", range(3))
def test_ends_that_are_asked_one_by_one_take_few_walks(seed: int) -> None:
    store = restarted()
    numbers = list(range(SUBJECTS))
    Random(seed).shuffle(numbers)
    for number in numbers:
        state = store.table.subject_state(b"s.%d" % number)
        assert state is not None
        last = SUBJECTS * (ROUNDS - 1) + number + 1
        assert (state.msgs, state.first_seq, state.last_seq) == (ROUNDS, number + 1, last)
    # Those within reach of an end of a block are looked for alone.
    assert store.table.end_walks <= SUBJECTS
    before = store.table.end_walks
    for number in numbers:
        store.table.subject_state(b"s.%d" % number)
    assert store.table.end_walks == before


def test_last_message_of_a_rare_pattern_takes_one_walk_back() -> None:
    store = restarted()
    assert store.table.last_message(b"s.*").seq == SUBJECTS * ROUNDS
    assert store.table.end_walks == 0


@sweep("seed", range(60))
def test_steps_find_the_last_messages_whatever_happens_between_them(seed: int) -> None:
    random = Random(seed)
    disk = SimulatedDisk()
    store = opened(disk, 500)
    model = ModelStore(StoreLimits(), record_bytes)
    subjects = [b"s.%d" % number for number in range(90)]

    def add() -> None:
        subject, now_ns = random.choice(subjects), store.table.last_seq + 1
        assert store.table.store(subject, b"", b"", now_ns) == model.store(
            subject, b"", b"", now_ns
        )

    for _ in range(400):
        add()
    store.close()
    store = opened(disk, 500)
    for left in store.table.find_lasts(random.choice((1, 20, 200))):
        assert left > 0
        for _ in range(random.choice((0, 0, 1, 5))):
            seq = random.choice(sorted(model.held))
            assert store.table.remove(seq)
            assert model.remove(seq)
            add()
    assert list(store.table.last_sequences(())) == model.last_sequences(())
    for subject in subjects:
        assert store.table.subject_state(subject) == model.subject_state(subject)
    store.verify()
