"""Random streams against the pages of their backups: what is read is what was there."""

from __future__ import annotations

import random

import pytest

from thoroughness import some
from tradewind.backups import message_ranges
from tradewind.backups.backup_documents import MessageRange, SavedStream
from tradewind.backups.backup_errors import BackupError
from tradewind.backups.backup_places import open_backup_place
from tradewind.backups.backup_repository import BackupRepository
from tradewind.backups.message_entries import EntrySelection
from tradewind.backups.message_ranges import (
    TIME_NS_MAX,
    TIME_NS_MIN,
    PagesUpdate,
    RangeWriter,
    read_range,
    removed_of,
)
from tradewind.backups.sequence_ranges import SequenceRanges
from tradewind.store.backup.archive import append_entry

Model = dict[int, bytes]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_ranges, "RANGE_BYTES", 200)
    monkeypatch.setattr(message_ranges, "PAGE_RANGES", 3)


def entries(model: Model) -> bytes:
    target = bytearray()
    for seq, payload in sorted(model.items()):
        append_entry(target, b"s", seq * 10, seq, b"", payload)
    return bytes(target)


class KnownStream:
    """A stream as its server knows it, and the last backup of it."""

    def __init__(self, seed: int, repository: BackupRepository) -> None:
        self.rng = random.Random(seed)
        self.model: Model = {}
        self.last_seq = 0
        self.first_seq = 1
        self.repository = repository
        self.saved = SavedStream(name="S", created="", config={}, state={}, pages=[])
        self.saved_seq = 0

    def change(self) -> None:
        rng = self.rng
        for _ in range(rng.choice((0, 1, 5, 60))):
            self.last_seq += 1
            self.model[self.last_seq] = rng.randbytes(rng.choice((0, 8, 60)))
        deed = rng.random()
        if deed < 0.4:
            for seq in rng.sample(sorted(self.model), rng.randrange(len(self.model) + 1)):
                del self.model[seq]
        elif deed < 0.6 and self.model:
            self.first_seq = rng.choice(sorted(self.model))
            self.model = {seq: v for seq, v in self.model.items() if seq >= self.first_seq}
        elif deed < 0.65:
            self.model.clear()
        self.first_seq = min(self.model, default=self.last_seq + 1)

    def save(self) -> None:
        writer = RangeWriter(self.repository, "S", self.saved_seq, self.last_seq)
        data = entries({seq: v for seq, v in self.model.items() if seq > self.saved_seq})
        while data:
            size = self.rng.choice((1, 7, 100, 1000))
            writer.feed(data[:size])
            data = data[size:]
        removed = SequenceRanges.of_sequences(
            seq for seq in range(self.first_seq, self.last_seq + 1) if seq not in self.model
        )
        update = PagesUpdate(self.repository, self.saved, self.first_seq, removed)
        pages = update.links(writer.finish())
        self.saved = SavedStream(name="S", created="", config={}, state={}, pages=pages)
        self.saved_seq = self.last_seq


def ranges_of(repository: BackupRepository, saved: SavedStream) -> list[MessageRange]:
    return [found for page in repository.pages(saved) for found in page.ranges]


def content(repository: BackupRepository, saved: SavedStream) -> bytes:
    found = b""
    for each in ranges_of(repository, saved):
        removed = removed_of("S", each).bounds
        selection = EntrySelection(removed, (), TIME_NS_MIN, TIME_NS_MAX)
        found += selection.select(read_range(repository, "S", each))
        assert selection.count == each.live
    return found


@pytest.mark.parametrize("seed", range(some(15, 500)))
def test_every_backup_has_the_messages_of_its_moment(seed: int) -> None:
    repository = BackupRepository(open_backup_place(f"memory://ranges-{seed}"))
    stream = KnownStream(seed, repository)
    moments = []
    for _ in range(12):
        stream.change()
        stream.save()
        moments.append((stream.saved, dict(stream.model)))
    for saved, model in moments:
        assert content(repository, saved) == entries(model)
        for found in ranges_of(repository, saved):
            assert found.live * message_ranges.LIVE_ONE_IN > found.messages
        assert sum(link.live for link in saved.pages) == len(model)


def test_a_page_without_a_change_is_neither_read_nor_written() -> None:
    repository = BackupRepository(open_backup_place("memory://unchanged"))
    stream = KnownStream(1, repository)
    for seq in range(1, 301):
        stream.model[seq] = bytes(20)
    stream.last_seq = 300
    stream.save()
    assert len(stream.saved.pages) > 5
    # Only the last page may be opened.
    for link in stream.saved.pages[:-1]:
        repository.place.remove(f"objects/{link.object[:2]}/{link.object}")
    before = stream.saved.pages
    stream.last_seq = 301
    stream.model[301] = b"new"
    stream.save()
    assert stream.saved.pages[: len(before) - 1] == before[:-1]
    del stream.model[1]
    stream.first_seq = 2
    with pytest.raises(BackupError, match="missing; it holds messages 1 to"):
        stream.save()


def test_messages_that_are_mostly_gone_are_written_again_and_no_others() -> None:
    repository = BackupRepository(open_backup_place("memory://mostly"))
    stream = KnownStream(1, repository)
    stream.model = {seq: bytes(50) for seq in range(1, 101)}
    stream.last_seq = 100
    stream.save()
    first = ranges_of(repository, stream.saved)
    assert len(first) > 10
    gone = range(first[2].first_seq + 1, first[4].last_seq + 1)
    for seq in gone:
        del stream.model[seq]
    repository.written.clear()
    stream.save()
    again = ranges_of(repository, stream.saved)
    kept = {each.object for each in first} & {each.object for each in again}
    assert kept == {each.object for each in first} - {each.object for each in first[2:5]}
    assert content(repository, stream.saved) == entries(stream.model)
    # One range for the message that was left, and the pages.
    assert len(repository.written) == 1 + len(
        {link.object for link in stream.saved.pages} & repository.written
    )


def test_messages_beyond_the_end_or_cut_off_are_refused() -> None:
    repository = BackupRepository(open_backup_place("memory://refused"))
    writer = RangeWriter(repository, "S", 0, 5)
    with pytest.raises(BackupError, match="message 6 is beyond the end, 5"):
        writer.feed(entries({6: b""}))
    writer = RangeWriter(repository, "S", 0, 5)
    writer.feed(entries({5: b"abc"})[:-1])
    with pytest.raises(BackupError, match="cut off"):
        writer.finish()
