"""Random work on a store gives what a naive dict gives: in memory, on disk, and after reopening.

Blocks of a few messages and a tiny budget for their indexes let rolling, dropping, eviction and
loading happen all the time. Every step ends with a recount of all totals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from store_model import ModelStore, Size, memory_bytes

from thoroughness import some
from tradewind.store.commits.commit import Commit
from tradewind.store.contract import NotFoundError, StoreLimits
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import open_store
from tradewind.store.format.layout import record_bytes
from tradewind.store.table.message_store import MessageStore
from tradewind.testing.fake_disk import SimulatedDisk

CASES = some(60, 2000)
STEPS = some(50, 80)

SUBJECTS = (b"a", b"b", b"a.a", b"a.b", b"b.a", b"a.b.c", b"c.%d" % 7, b"long." + b"x" * 60)
PATTERNS = (b">", b"*", b"a", b"a.*", b"*.a", b"a.>", b"*.*", b"c.7", b"a.*.c", b"none", b"long.>")
HEADERS = (b"", b"NATS/1.0\r\nA: b\r\n\r\n")

subjects = st.sampled_from(SUBJECTS)
patterns = st.sampled_from(PATTERNS)
filters = st.lists(patterns, max_size=3).map(tuple)
payloads = st.sampled_from((0, 1, 10, 40, 90, 250)).map(lambda size: b"p" * size)
# Sequences and times are given as distances from an end, so that most of them meet something.
distances = st.integers(-3, 40)
limits = st.builds(
    StoreLimits,
    msgs_max=st.sampled_from((0, 0, 1, 2, 5, 20)),
    bytes_max=st.sampled_from((0, 0, 40, 200, 1000, 3000)),
    age_max_ns=st.sampled_from((0, 0, 5, 30)),
    subject_msgs_max=st.sampled_from((0, 0, 1, 2, 4)),
)
layouts = st.fixed_dictionaries(
    {
        "block_bytes_max": st.sampled_from((128, 200, 500, 100_000)),
        "index_bytes_max": st.sampled_from((1, 2000, 1 << 20)),
    }
)
file_layouts = st.fixed_dictionaries(
    {"compresses": st.booleans(), "compact_bytes_min": st.sampled_from((60, 200, 8192))}
)


def outcome(question: Callable[[], object]) -> object:
    """What a store answers; absence is an answer too."""
    try:
        return question()
    except NotFoundError:
        return None


class StoreMachine(RuleBasedStateMachine):
    """The rules that all stores share; subclasses say how one is made."""

    store: MessageStore
    size: Size = staticmethod(memory_bytes)

    def verify(self) -> None:
        self.store.verify()

    def make(self, limits: StoreLimits, layout: dict[str, Any]) -> MessageStore:
        return MessageStore("S", limits, **layout)

    @initialize(limits=limits, layout=layouts, file_layout=file_layouts)
    def start(
        self, limits: StoreLimits, layout: dict[str, Any], file_layout: dict[str, Any]
    ) -> None:
        self.layout = layout
        self.file_layout = file_layout
        self.model = ModelStore(limits, self.size)
        self.store = self.make(limits, layout)
        self.now_ns = 1000
        self.kept = [self.store.filter((pattern,)) for pattern in PATTERNS]
        self.clock_went_back = False

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.compare_everything()

    # --- changes -----------------------------------------------------------------------------

    @rule(subject=subjects, header=st.sampled_from(HEADERS), payload=payloads, ns=st.integers(0, 4))
    def add(self, subject: bytes, header: bytes, payload: bytes, ns: int) -> None:
        self.now_ns += ns
        seq = self.store.store(subject, header, payload, self.now_ns)
        assert seq == self.model.store(subject, header, payload, self.now_ns)

    @rule(names=st.lists(subjects, max_size=12))
    def add_many(self, names: list[bytes]) -> None:
        for subject in names:
            self.add(subject, b"", b"x" * 20, 1)

    @rule(ns=st.integers(1, 50))
    def turn_the_clock_back(self, ns: int) -> None:
        self.now_ns -= ns
        self.clock_went_back = True

    @rule(gap=st.sampled_from((0, 1, 2, 10, 70_000, 10**9)), back=st.booleans())
    def skip(self, gap: int, back: bool) -> None:
        through = max(0, self.model.last_seq - gap if back else self.model.last_seq + gap)
        self.store.skip(through, self.now_ns)
        self.model.skip(through, self.now_ns)

    @rule(distance=distances, erase=st.booleans())
    def remove(self, distance: int, erase: bool) -> None:
        seq = max(0, self.model.first_seq + distance)
        assert self.store.remove(seq, erase=erase) == self.model.remove(seq)

    @rule(count=st.integers(1, 8), backwards=st.booleans())
    def remove_from_an_end(self, count: int, backwards: bool) -> None:
        for seq in sorted(self.model.held, reverse=backwards)[:count]:
            assert self.store.remove(seq) == self.model.remove(seq)

    @rule(subject=subjects, newest=st.booleans())
    def remove_end_of_subject(self, subject: bytes, newest: bool) -> None:
        state = self.model.subject_state(subject)
        if state is not None:
            seq = state.last_seq if newest else state.first_seq
            assert self.store.remove(seq) == self.model.remove(seq)

    @rule(pattern=patterns | st.just(b""), distance=distances)
    def purge_below(self, pattern: bytes, distance: int) -> None:
        below = max(1, self.model.first_seq + distance)
        assert self.store.purge(pattern, below=below) == self.model.purge(pattern, below=below)

    @rule(pattern=patterns | st.just(b""), keep=st.integers(1, 6))
    def purge_keeping(self, pattern: bytes, keep: int) -> None:
        assert self.store.purge(pattern, keep=keep) == self.model.purge(pattern, keep=keep)

    @rule(pattern=patterns | st.just(b""))
    def purge(self, pattern: bytes) -> None:
        assert self.store.purge(pattern) == self.model.purge(pattern)

    @rule(distance=distances)
    def compact(self, distance: int) -> None:
        seq = max(0, self.model.first_seq + distance)
        assert self.store.compact(seq) == self.model.compact(seq)

    @rule(ns=st.integers(0, 20))
    def expire(self, ns: int) -> None:
        self.now_ns += ns
        assert self.store.expire(self.now_ns) == self.model.expire(self.now_ns)

    @rule(limits=limits)
    def change_limits(self, limits: StoreLimits) -> None:
        self.store.set_limits(limits)
        self.model.limits = limits
        assert self.store.apply_limits(self.now_ns) == self.model.apply_limits(self.now_ns)

    @rule()
    def evict(self) -> None:
        self.store.evict()

    # --- questions ---------------------------------------------------------------------------

    @rule(distance=distances)
    def get(self, distance: int) -> None:
        seq = max(0, self.model.first_seq + distance)
        assert outcome(lambda: self.store.get(seq)) == self.model.held.get(seq)

    @rule(wanted=filters, distance=distances)
    def find_next(self, wanted: tuple[bytes, ...], distance: int) -> None:
        seq = max(0, self.model.first_seq + distance)
        expected = self.model.matching(wanted, seq)
        found = outcome(lambda: self.store.next_message(wanted, seq))
        assert found == (expected[0] if expected else None)
        assert self.store.count_matching(wanted, seq) == len(expected)

    @rule(number=st.integers(0, len(PATTERNS) - 1), distance=distances)
    def find_next_with_a_kept_filter(self, number: int, distance: int) -> None:
        seq = max(0, self.model.first_seq + distance)
        expected = self.model.matching((PATTERNS[number],), seq)
        found = outcome(lambda: self.store.next_message(self.kept[number], seq))
        assert found == (expected[0] if expected else None)
        assert self.store.count_matching(self.kept[number], seq) == len(expected)

    @rule(pattern=patterns, distance=distances)
    def find_last(self, pattern: bytes, distance: int) -> None:
        up_to = max(0, self.model.first_seq + distance)
        expected = self.model.matching((pattern,), 0, up_to)
        found = outcome(lambda: self.store.last_message(pattern, up_to))
        assert found == (expected[-1] if expected else None)

    @rule(wanted=filters, distance=distances)
    def find_last_of_all(self, wanted: tuple[bytes, ...], distance: int) -> None:
        up_to = max(0, self.model.first_seq + distance)
        expected = self.model.last_sequences(wanted, up_to)
        assert list(self.store.last_sequences(wanted, up_to)) == expected

    @rule(back_ns=st.integers(-5, 60))
    def find_by_time(self, back_ns: int) -> None:
        asked = self.now_ns - back_ns
        seq = self.store.sequence_at(asked)
        if self.clock_went_back:
            found = self.model.held.get(seq)
            assert found.timestamp_ns >= asked if found else seq == self.model.last_seq + 1
        else:
            assert seq == self.model.sequence_at(asked)

    @rule(pattern=patterns | st.just(b""))
    def list_subjects(self, pattern: bytes) -> None:
        expected = self.model.subjects(pattern)
        assert self.store.subjects(pattern) == expected
        pages = [self.store.subjects(pattern, offset, 2) for offset in range(0, len(SUBJECTS), 2)]
        assert sum(len(page) for page in pages) == len(expected)
        assert {name: total for page in pages for name, total in page.items()} == expected

    @rule(subject=subjects)
    def ask_for_subject(self, subject: bytes) -> None:
        assert self.store.subject_state(subject) == self.model.subject_state(subject)

    @rule(limit=st.sampled_from((1, 3, 50)))
    def list_deleted(self, limit: int) -> None:
        assert self.store.deleted_sequences(limit) == self.model.deleted_sequences(limit)

    @rule(distance=distances)
    def list_messages(self, distance: int) -> None:
        seq = max(0, self.model.first_seq + distance)
        assert list(self.store.messages(seq)) == self.model.matching((), seq)

    # --- always ------------------------------------------------------------------------------

    @invariant()
    def totals_are_right(self) -> None:
        if hasattr(self, "store"):
            assert self.store.state == self.model.state
            self.verify()

    def compare_everything(self) -> None:
        assert list(self.store.messages()) == self.model.matching()
        assert self.store.subjects() == self.model.subjects()
        for subject in SUBJECTS:
            assert self.store.subject_state(subject) == self.model.subject_state(subject)


class FileStoreMachine(StoreMachine):
    """The same on a disk, with group commits under way and reopening at any time."""

    files: FileStore
    size: Size = staticmethod(record_bytes)

    def make(self, limits: StoreLimits, layout: dict[str, Any]) -> MessageStore:
        self.disk = SimulatedDisk()
        self.disk.make_directory("/disk/S", sync=True)
        self.under_way: Commit | None = None
        return self.open(limits, layout)

    def verify(self) -> None:
        self.files.verify()

    def open(self, limits: StoreLimits, layout: dict[str, Any]) -> MessageStore:
        settings = {**layout, **self.file_layout}
        self.files, report = open_store(
            self.disk, "/disk/S", "S", limits, now_ns=self.time(), **settings
        )
        assert report.is_clean
        return self.files.table

    def time(self) -> int:
        return getattr(self, "now_ns", 0)

    def reopen(self) -> None:
        self.store = self.open(self.model.limits, self.layout)
        self.kept = [self.store.filter((pattern,)) for pattern in PATTERNS]
        self.model.apply_limits(self.time())
        assert self.store.synced_seq == self.store.last_seq
        self.compare_everything()

    @rule()
    def flush(self) -> None:
        self.files.flush()

    @precondition(lambda self: self.under_way is None)
    @rule()
    def begin_commit(self) -> None:
        self.under_way = self.files.begin_commit()

    @precondition(lambda self: self.under_way is not None)
    @rule()
    def finish_commit(self) -> None:
        assert self.under_way is not None
        commit, self.under_way = self.under_way, None
        commit.run()
        self.files.finish_commit(commit)
        assert self.store.synced_seq >= commit.last_seq

    @rule()
    def commit(self) -> None:
        if self.under_way is not None:
            self.finish_commit()
        self.files.commit()
        assert self.store.synced_seq == self.model.last_seq
        assert not self.files.has_changes()

    @rule(layout=layouts)
    def lose_power_after_a_commit(self, layout: dict[str, Any]) -> None:
        self.commit()
        self.layout = layout
        self.disk = self.disk.crash_losing_unsynced()
        self.reopen()

    @rule(layout=layouts, file_layout=file_layouts)
    def close_and_reopen(self, layout: dict[str, Any], file_layout: dict[str, Any]) -> None:
        if self.under_way is not None:
            self.finish_commit()
        self.files.close()
        assert self.disk.open_files == 0
        self.layout, self.file_layout = layout, file_layout
        self.reopen()

    @rule()
    def close_and_reopen_without_index(self) -> None:
        if self.under_way is not None:
            self.finish_commit()
        self.files.close()
        self.disk.remove("/disk/S/msgs/index.db")
        self.reopen()


def run(machine: type[StoreMachine]) -> None:
    run_state_machine_as_test(
        machine, settings=settings(max_examples=CASES, stateful_step_count=STEPS)
    )


@pytest.mark.slow
def test_memory_store_does_what_a_dict_does() -> None:
    run(StoreMachine)


@pytest.mark.slow
def test_file_store_does_what_a_dict_does() -> None:
    run(FileStoreMachine)
