"""Checks backups by reading them: every object, every message, every link.

Owns the walk and its findings. An object is read once, however many backups share it. It never
changes anything, and goes on after damage.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from tradewind.api.template_types import StreamTemplate
from tradewind.backups.backup_documents import (
    BackedUpStream,
    BackupRecord,
    MessageRange,
    RangePage,
    SavedStream,
)
from tradewind.backups.backup_errors import BackupError
from tradewind.backups.message_ranges import read_range, removed_of

if TYPE_CHECKING:
    from tradewind.backups.backup_repository import BackupRepository

# Called with the stream at work, and the bytes that were read.
CheckProgress = Callable[[str, int], None]


class CheckReport(msgspec.Struct):
    """The findings of a check. `problems` are lines that name backup, stream and object."""

    backups: int = 0
    streams: int = 0
    messages: int = 0
    objects: int = 0
    bytes: int = 0
    problems: list[str] = msgspec.field(default_factory=list)


class BackupCheck:
    """A check of backups of one place. With `only`, objects besides these are not read."""

    def __init__(
        self,
        repository: BackupRepository,
        progress: CheckProgress = lambda _stream, _bytes: None,
        only: Collection[str] | None = None,
    ) -> None:
        self._repository = repository
        self._progress = progress
        self._only = only
        self._seen: dict[str, str] = {}  # objects, with the problem of each
        self.report = CheckReport()

    def check(self, backup_id: str) -> None:
        """Check one backup."""
        try:
            record = self._repository.load(backup_id)
        except BackupError as error:
            self.report.problems.append(str(error))
            return
        self.check_record(record)

    def check_record(self, record: BackupRecord) -> None:
        """Check what a backup names."""
        self.report.backups += 1
        for link in record.streams:
            self._guarded(record.id, link.name, partial(self._check_stream, record, link))
        if record.templates:
            self._guarded(
                record.id,
                "templates",
                lambda: self._repository.get_document(
                    record.templates, list[StreamTemplate], "the templates"
                ),
            )

    def _guarded(self, backup_id: str, name: str, step: Callable[[], object]) -> None:
        try:
            step()
        except BackupError as error:
            self.report.problems.append(f"backup {backup_id}, {name}: {error}")

    def _check_stream(self, record: BackupRecord, link: BackedUpStream) -> None:
        stream = self._repository.stream(link)
        self.report.streams += 1
        self._guarded(record.id, link.name, lambda: self._repository.consumers(stream))
        after = live = 0
        for number, page in enumerate(stream.pages):
            what = f"messages {page.first_seq} to {page.last_seq} of stream {stream.name}"
            content: RangePage
            try:
                content = self._repository.get_document(page.object, RangePage, what)
            except BackupError as error:
                self.report.problems.append(f"backup {record.id}, {link.name}: {error}")
                after, live = page.last_seq, live + page.live
                continue
            _check_page(stream, number, content, after)
            for found in content.ranges:
                self._guarded(record.id, link.name, partial(self._check_range, stream, found))
                after, live = found.last_seq, live + found.live
        if live + stream.missing != stream.number("messages"):
            raise BackupError(
                f"{live} messages are there and {stream.missing} known to be missing, of"
                f" {stream.number('messages')}"
            )

    def _check_range(self, stream: SavedStream, found: MessageRange) -> None:
        removed_of(stream.name, found)
        if self._only is not None and found.object not in self._only:
            return
        problem = self._seen.get(found.object)
        if problem is None:
            try:
                read_range(self._repository, stream.name, found)
                problem = ""
            except BackupError as error:
                problem = str(error)
            self._seen[found.object] = problem
            self.report.objects += 1
            self.report.bytes += found.stored
            self.report.messages += found.messages
            self._progress(stream.name, self.report.bytes)
        if problem:
            raise BackupError(problem)


def _check_page(stream: SavedStream, number: int, page: RangePage, after: int) -> None:
    """BackupError unless the ranges of a page rise, and have the sums of its link."""
    link = stream.pages[number]
    for found in page.ranges:
        if not after < found.first_seq <= found.last_seq:
            raise BackupError(f"message {found.first_seq} does not follow {after}")
        after = found.last_seq
    sums = (sum(each.live for each in page.ranges), sum(each.size for each in page.ranges))
    if sums != (link.live, link.size) or after != link.last_seq:
        raise BackupError(f"page {link.object} is not the one that stream {stream.name} names")
