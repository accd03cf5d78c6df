"""What a cursor gives and counts, against a recount of a plain list after every operation."""

from __future__ import annotations

import random

import pytest

from thoroughness import some
from tradewind.consumer.cursor import Cursor
from tradewind.store.contract import StoreLimits
from tradewind.store.table.message_store import MessageStore

SUBJECTS = [b"a", b"b", b"c.d", b"c.e", b"c.f.g"]
FILTERS: list[tuple[bytes, ...]] = [(), (b"a",), (b"c.*",), (b"a", b"c.>"), (b">",), (b"none",)]


def matches(patterns: tuple[bytes, ...], subject: bytes) -> bool:
    def one(pattern: bytes) -> bool:
        wanted, tokens = pattern.split(b"."), subject.split(b".")
        for index, token in enumerate(wanted):
            if token == b">":
                return len(tokens) > index
            if index >= len(tokens) or token not in (b"*", tokens[index]):
                return False
        return len(wanted) == len(tokens)

    return not patterns or any(one(pattern) for pattern in patterns)


class World:
    """A store with a cursor, and the same as a dictionary with a position."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        limits = StoreLimits(
            msgs_max=self.random.choice([0, 20, 40]),
            subject_msgs_max=self.random.choice([0, 0, 5]),
        )
        self.store = MessageStore("S", limits, block_bytes_max=self.random.choice([200, 1000]))
        self.live: dict[int, bytes] = {}
        self.patterns = self.random.choice(FILTERS)
        self.skip: list[int] = []
        self.next_seq = 1
        self.open()

    def open(self) -> None:
        self.cursor = Cursor(self.store, self.patterns, self.next_seq, self.skip)
        self.store.listener = self.cursor

    def step(self) -> None:
        choice = self.random.choices(
            [
                "append",
                "give",
                "remove",
                "purge",
                "compact",
                "filter",
                "reopen",
                "seek",
                "last_each",
            ],
            [40, 40, 8, 2, 2, 2, 2, 1, 1],
        )[0]
        getattr(self, choice)()
        self.live = {
            seq: subject for seq, subject in self.live.items() if seq >= self.store.first_seq
        }
        if self.store.limits.subject_msgs_max:
            self.trim()
        self.skip = [seq for seq in self.skip if seq in self.live]
        left = len(self.skip) + sum(
            seq >= self.next_seq and matches(self.patterns, subject)
            for seq, subject in self.live.items()
        )
        assert len(self.live) == self.store.msgs
        assert self.cursor.pending() == left

    def trim(self) -> None:
        for subject in SUBJECTS:
            seqs = [seq for seq, other in self.live.items() if other == subject]
            for seq in seqs[: -self.store.limits.subject_msgs_max]:
                del self.live[seq]

    def append(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            subject = self.random.choice(SUBJECTS)
            self.live[self.store.store(subject, b"", b"x", 1)] = subject
            if self.store.limits.subject_msgs_max:
                self.trim()

    def give(self) -> None:
        visible = self.random.randint(self.store.first_seq, self.store.last_seq + 1)
        for _ in range(self.random.randint(1, 6)):
            given = self.cursor.peek(visible)
            if self.skip:
                expected = self.skip[0] if self.skip[0] <= visible else 0
            else:
                expected = min(
                    (
                        seq
                        for seq, subject in self.live.items()
                        if self.next_seq <= seq <= visible and matches(self.patterns, subject)
                    ),
                    default=0,
                )
            assert given == expected
            if not given:
                # It may have passed over what does not match, for good.
                assert self.next_seq <= self.cursor.next_seq <= max(visible + 1, self.next_seq)
                self.next_seq = self.cursor.next_seq
                return
            self.cursor.advance(given)
            if self.skip:
                del self.skip[0]
            else:
                self.next_seq = given + 1

    def remove(self) -> None:
        if self.live:
            seq = self.random.choice(list(self.live))
            assert self.store.remove(seq)
            del self.live[seq]

    def purge(self) -> None:
        subject = self.random.choice([b"", *SUBJECTS])
        self.store.purge(subject)
        self.live = {seq: other for seq, other in self.live.items() if subject and other != subject}

    def compact(self) -> None:
        self.store.compact(self.store.first_seq + self.random.randint(0, 10))

    def filter(self) -> None:
        if not self.skip:
            self.patterns = self.random.choice(FILTERS)
            self.cursor.set_filter(self.patterns)

    def reopen(self) -> None:
        self.open()

    def seek(self) -> None:
        self.next_seq = max(1, self.store.last_seq - self.random.randint(-2, 30))
        self.skip = []
        self.cursor.seek(self.next_seq)

    def last_each(self) -> None:
        last = {subject: seq for seq, subject in sorted(self.live.items())}
        self.skip = sorted(seq for subject, seq in last.items() if matches(self.patterns, subject))
        assert list(self.store.last_sequences(self.patterns)) == self.skip
        self.next_seq = self.store.last_seq + 1
        self.open()


# 100,000 operations when there is time for them.
WORLDS = some(8, 20)
STEPS = 5000


@pytest.mark.parametrize("seed", range(WORLDS))
def test_num_pending_is_what_a_recount_gives_after_every_operation(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
