"""Makes a backup of all streams of an account, from what the one before has on.

Owns the order of the work. A tradewind-server is asked for cuts of the account: whatever is new and
much is read, then the next cut is taken, until the last one brings what is left itself. Then all
streams are as they were in one moment, and nothing is missing. With any other server, each stream
has a moment of its own. The backup itself is written last, so that one that was interrupted does
not exist; the objects that it has stored are used by the next one.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.api.template_types import StreamTemplate, TemplateListResponse
from tradewind.api.times import format_time
from tradewind.backups.account_api import AccountApi, StreamFacts
from tradewind.backups.account_cut_reading import CutTooLargeError
from tradewind.backups.backup_check import BackupCheck
from tradewind.backups.backup_documents import FORMAT, BackedUpStream, BackupRecord
from tradewind.backups.backup_errors import BackupError, StreamReadError
from tradewind.backups.cut_reading import CutReading
from tradewind.backups.stream_saving import StreamSaving
from tradewind.client.api_errors import (
    JetStreamApiError,
    NotAllowedError,
    StreamNotFoundError,
)
from tradewind.client.errors import NotTradewindError, PermissionsError
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
        self._links: list[BackedUpStream] = []
        self._failed: dict[str, str] = {}
        self._is_torn = False  # in spite of a cut, a stream has a moment of its own
        self._saving = StreamSaving(repository, api, self._before, self._watch)

    def run(self, comment: str = "") -> BackupRecord:
        """Make the backup, and store it."""
        started_ns = time.time_ns()
        facts = self._api.streams()
        self._total_bytes = sum(map(self._expected_bytes, facts))
        cut_at = self._cut(facts)
        if not cut_at:
            for each in facts:
                self._add(each.name, partial(self._saving.saved, each))
        templates = self._templates()
        started = format_time(started_ns)
        record = BackupRecord(
            format=FORMAT,
            id=new_backup_id(started_ns),
            started=started,
            cut_at=cut_at or started,
            finished=format_time(time.time_ns()),
            cut="account" if cut_at and not self._is_torn else "stream",
            server=self._api.server,
            streams=self._links,
            templates=self._repository.put_document(templates) if templates else "",
            template_count=len(templates),
            comment=comment,
            failed=self._failed,
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
        except PermissionsError as error:
            self._failed["templates"] = str(error)
            return []
        found = msgspec.json.decode(answer, type=TemplateListResponse)
        return [each.template for each in found.templates]

    def _watch(self, stream: str, size: int) -> None:
        self._lock.renew()
        self._read_bytes += size
        self._progress(stream, self._read_bytes, self._total_bytes)

    def _add(self, stream: str, save: Callable[[], BackedUpStream]) -> None:
        """Add a stream to the backup, or the reason why it cannot be read."""
        self._watch(stream, 0)
        try:
            self._links.append(save())
        except StreamNotFoundError:
            pass  # it was deleted meanwhile
        except JetStreamApiError as error:
            self._failed[stream] = f"{error.description} ({error.err_code})"
        except (PermissionsError, StreamReadError) as error:
            self._failed[stream] = str(error)

    # ---------------------------------------------------------------- one moment

    def _cut(self, facts: list[StreamFacts]) -> str:
        """Save all streams as they are in one moment; "" if this server cannot, or if the user may
        not read all streams.
        """
        reading = CutReading(self._saving, facts)
        try:
            cut = reading.last_cut()
        except (NotTradewindError, NotAllowedError, PermissionsError, CutTooLargeError):
            return ""
        for name, part in sorted(cut.parts.items()):
            self._add(name, partial(reading.saved, part))
        self._is_torn = reading.has_own_moments
        return cut.time


def new_backup_id(time_ns: int) -> str:
    """The name of a new backup: its time, and something that no other has."""
    text = time.strftime("%Y%m%dT%H%M%S", time.gmtime(time_ns // SECOND_NS))
    fraction = time_ns // 1_000_000 % 1000
    return f"{text}.{fraction:03d}Z-{secrets.token_hex(_ID_RANDOM_BYTES)}"
