"""Makes a backup of all streams of an account, from what the one before has on.

Owns the order of the work. For each stream: the consumers, then the state with the sequences that
have no message (the cut of the stream), then the messages up to there that the last backup does not
have. A message that is removed between the cut and its reading cannot be in the backup; it is
counted as missing. The backup itself is written last, so that one that was interrupted does not
exist; the objects that it has stored are used by the next one.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.api.template_types import StreamTemplate, TemplateListResponse
from tradewind.api.times import format_time
from tradewind.backups.account_api import AccountApi, StreamFacts, StreamSnapshot
from tradewind.backups.backup_check import BackupCheck
from tradewind.backups.backup_documents import (
    FORMAT,
    BackedUpStream,
    BackupRecord,
    MessageRange,
    PageLink,
    SavedConsumer,
    SavedStream,
)
from tradewind.backups.backup_errors import BackupError
from tradewind.backups.message_ranges import END_MARK, PagesUpdate, PageWriter, RangeWriter
from tradewind.backups.sequence_ranges import SequenceRanges
from tradewind.client.api_errors import JetStreamApiError, StreamNotFoundError
from tradewind.client.errors import NotTradewindError
from tradewind.durations import SECOND_NS

if TYPE_CHECKING:
    from tradewind.backups.backup_repository import BackupRepository
    from tradewind.backups.repository_locks import RepositoryLock

# Called with the stream at work, the bytes that were read, and about how many there will be.
Progress = Callable[[str, int, int], None]
_ID_RANDOM_BYTES: Final = 3


class BackupCreation:
    """One backup in the making. `before` is the newest one of the place."""

    def __init__(
        self,
        repository: BackupRepository,
        api: AccountApi,
        before: BackupRecord | None,
        lock: RepositoryLock,
        progress: Progress,
        *,
        checks: bool = True,
    ) -> None:
        self._checks = checks
        self._repository = repository
        self._api = api
        self._before = {link.name: link for link in before.streams} if before else {}
        self._lock = lock
        self._progress = progress
        self._read_bytes = 0
        self._total_bytes = 0

    def run(self, comment: str = "") -> BackupRecord:
        """Make the backup, and store it."""
        started_ns = time.time_ns()
        facts = self._api.streams()
        self._total_bytes = sum(map(self._expected_bytes, facts))
        links: list[BackedUpStream] = []
        failed: dict[str, str] = {}
        for each in facts:
            self._progress(each.name, self._read_bytes, self._total_bytes)
            try:
                links.append(self._link(self._record(each)))
            except StreamNotFoundError:
                continue  # it was deleted meanwhile
            except JetStreamApiError as error:
                failed[each.name] = f"{error.description} ({error.err_code})"
        templates = self._templates()
        started = format_time(started_ns)
        record = BackupRecord(
            format=FORMAT,
            id=new_backup_id(started_ns),
            started=started,
            cut_at=started,
            finished=format_time(time.time_ns()),
            cut="stream",
            server=self._api.server,
            streams=links,
            templates=self._repository.put_document(templates) if templates else "",
            template_count=len(templates),
            comment=comment,
            failed=failed,
        )
        record.added_bytes = self._repository.written_bytes
        record.added_objects = len(self._repository.written)
        if self._checks:
            self._check_written(record)
        self._lock.check()
        self._repository.save(record)
        return record

    def _check_written(self, record: BackupRecord) -> None:
        """Read back what was stored, and every link of the backup; BackupError about the first
        problem.
        """

        def progress(stream: str, _size: int) -> None:
            self._lock.renew()
            self._progress(f"check of {stream}", self._read_bytes, self._total_bytes)

        check = BackupCheck(self._repository, progress, self._repository.written)
        check.check_record(record)
        if check.report.problems:
            raise BackupError(
                f"the backup was not made, as it cannot be read back: {check.report.problems[0]}"
            )

    def _expected_bytes(self, facts: StreamFacts) -> int:
        """About how much is to be read of a stream."""
        link = self._before.get(facts.name)
        size, last_seq = facts.number("bytes"), facts.number("last_seq")
        if link is None or link.last_seq > last_seq:
            return size
        span = last_seq - max(facts.number("first_seq"), 1) + 1
        return size * (last_seq - link.last_seq) // max(span, last_seq - link.last_seq, 1)

    def _templates(self) -> list[StreamTemplate]:
        try:
            answer = self._api.ask("template_list")
        except NotTradewindError:
            return []
        found = msgspec.json.decode(answer, type=TemplateListResponse)
        return [each.template for each in found.templates]

    # ---------------------------------------------------------------- one stream

    def _link(self, record: SavedStream) -> BackedUpStream:
        return BackedUpStream(
            name=record.name,
            object=self._repository.put_document(record),
            messages=record.number("messages"),
            bytes=record.number("bytes"),
            last_seq=record.number("last_seq"),
            missing=record.missing,
        )

    def _record(self, facts: StreamFacts) -> SavedStream:
        """The record of a stream, with its messages stored."""
        before = self._continued(facts)
        if before is None:
            return self._full(facts)
        consumers: list[SavedConsumer] = []
        if facts.number("consumer_count"):
            with StreamSnapshot(self._api, facts.name) as snapshot:
                consumers = snapshot.consumers()
        # The consumers may be a little older than the stream, never ahead of it.
        facts = self._api.info(facts.name)
        if _contents(facts.state) == _contents(before.state):
            return self._new_record(facts, before.pages, consumers)
        removed = SequenceRanges()
        if facts.number("num_deleted"):
            facts = self._api.info(facts.name, deleted=True)
            deleted = facts.state.pop("deleted", None) or []
            if len(deleted) != facts.number("num_deleted"):
                return self._full(facts)  # it does not list so many
            removed = SequenceRanges.of_sequences(deleted)
        new = self._new_ranges(facts, before.number("last_seq"), removed)
        first_seq = max(facts.number("first_seq"), 1)
        update = PagesUpdate(self._repository, before, first_seq, removed)
        return self._new_record(facts, update.links(new), consumers)

    def _continued(self, facts: StreamFacts) -> SavedStream | None:
        """The record of the last backup, if this is the stream that it knows."""
        link = self._before.get(facts.name)
        if link is None:
            return None
        record = self._repository.stream(link)
        if record.created != facts.created or link.last_seq > facts.number("last_seq"):
            return None
        if record.state.get("first_seq", 0) > facts.number("first_seq"):
            return None  # messages came back
        if not record.pages:
            return record
        # A server that has lost its newest messages gives their sequences to others.
        found = self._api.message_time(facts.name, link.last_seq)
        same = not found or found == record.state.get("last_ts")
        return record if same else None

    def _full(self, facts: StreamFacts) -> SavedStream:
        """All messages of a stream, from a snapshot."""
        with StreamSnapshot(self._api, facts.name) as snapshot:
            consumers = snapshot.consumers()
            taken = StreamFacts(snapshot.config, snapshot.state, facts.created)
            writer = RangeWriter(self._repository, facts.name, 0, taken.number("last_seq"))
            for entries in self._watched(facts.name, snapshot.messages()):
                writer.feed(entries)
            ranges = writer.finish(END_MARK)
        pages = PageWriter(self._repository, facts.name)
        pages.add(ranges)
        return self._new_record(taken, pages.links, consumers)

    def _new_ranges(
        self, facts: StreamFacts, after: int, removed: SequenceRanges
    ) -> list[MessageRange]:
        """The messages since the last backup."""
        first, last = max(after + 1, facts.number("first_seq")), facts.number("last_seq")
        writer = RangeWriter(self._repository, facts.name, after, last)
        wanted = sequences_without(removed, first, last)
        for entries in self._watched(facts.name, self._api.messages(facts.name, wanted)):
            writer.feed(entries)
        return writer.finish()

    def _watched(self, stream: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._lock.renew()
            self._read_bytes += len(piece)
            self._progress(stream, self._read_bytes, self._total_bytes)
            yield piece

    def _new_record(
        self, facts: StreamFacts, pages: list[PageLink], consumers: list[SavedConsumer]
    ) -> SavedStream:
        state: dict[str, Any] = {name: facts.state[name] for name in _KEPT if name in facts.state}
        return SavedStream(
            name=facts.name,
            created=facts.created,
            config=without_server_metadata(facts.config),
            state=state,
            pages=pages,
            consumers=self._repository.put_document(consumers) if consumers else "",
            consumer_count=len(consumers),
            missing=max(facts.number("messages") - sum(link.live for link in pages), 0),
        )


_CONTENT: Final = ("messages", "bytes", "first_seq", "last_seq", "last_ts")
_KEPT: Final = (*_CONTENT, "first_ts")


def _contents(state: dict[str, object]) -> tuple[object, ...]:
    """The part of a state that changes whenever a message is stored or removed."""
    return tuple(state.get(name) for name in _CONTENT)


def without_server_metadata(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration without what a server adds to its answers: versions and levels."""
    metadata = config.get("metadata")
    if not isinstance(metadata, dict):
        return config
    own = {key: value for key, value in metadata.items() if not key.startswith("_nats.")}
    changed = {key: value for key, value in config.items() if key != "metadata"}
    return {**changed, "metadata": own} if own else changed


def sequences_without(removed: SequenceRanges, first: int, last: int) -> Iterator[int]:
    """The sequences from a first to a last that are not in a set."""
    for gone, end in removed.within(first, last):
        yield from range(first, gone)
        first = end + 1
    yield from range(first, last + 1)


def new_backup_id(time_ns: int) -> str:
    """The name of a new backup: its time, and something that no other has."""
    text = time.strftime("%Y%m%dT%H%M%S", time.gmtime(time_ns // SECOND_NS))
    fraction = time_ns // 1_000_000 % 1000
    return f"{text}.{fraction:03d}Z-{secrets.token_hex(_ID_RANDOM_BYTES)}"
