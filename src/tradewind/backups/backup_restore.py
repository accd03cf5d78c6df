"""Restores the streams of a backup, through the server.

Owns the archive that a server is sent: state, consumers, and the messages that are chosen. An
object that is wanted as a whole is sent as it is stored; any other is taken apart in one step.
A server shows a stream when all of it has arrived, so an interrupted restore leaves whole streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.api.stream_types import StreamInfo
from tradewind.api.template_types import StreamTemplate, TemplatePutRequest
from tradewind.backups.account_api import decoded
from tradewind.backups.backup_documents import (
    BackupRecord,
    MessageRange,
    SavedConsumer,
    SavedStream,
)
from tradewind.backups.backup_errors import BackupError
from tradewind.backups.message_entries import EntrySelection
from tradewind.backups.message_ranges import END_MARK, read_range, removed_of
from tradewind.backups.restore_choice import RestoreChoice, renamed_config, renamed_consumer
from tradewind.client.api_errors import JetStreamApiError
from tradewind.client.errors import NotTradewindError, PermissionsError
from tradewind.client.streams.api_requests import check_answer, decode_answer
from tradewind.store.backup.archive import (
    CONSUMER_PREFIX,
    MAGIC,
    STATE_NAME,
    append_entry,
)
from tradewind.store.format.s2 import compress

if TYPE_CHECKING:
    from tradewind.backups.account_api import AccountApi
    from tradewind.backups.backup_repository import BackupRepository

# Called with the stream at work, the messages that were read, and how many there are.
RestoreProgress = Callable[[str, int, int], None]
CHUNK_BYTES: Final = 128 << 10
CHUNK_SECONDS: Final = 60.0


class RestoredStream(msgspec.Struct):
    """A stream that was restored, and what it has now."""

    name: str
    restored_as: str
    messages: int
    consumers: int


class RestoreReport(msgspec.Struct):
    """The result of a restore. `skipped` streams were there before; `failed` ones have a reason."""

    backup: str
    streams: list[RestoredStream] = msgspec.field(default_factory=list)
    skipped: list[str] = msgspec.field(default_factory=list)
    failed: dict[str, str] = msgspec.field(default_factory=dict)
    templates: int = 0


class AccountRestore:
    """A restore of one backup."""

    def __init__(
        self,
        repository: BackupRepository,
        api: AccountApi,
        choice: RestoreChoice,
        progress: RestoreProgress = lambda _stream, _done, _total: None,
    ) -> None:
        self._repository = repository
        self._api = api
        self._choice = choice
        self._progress = progress

    def run(self, record: BackupRecord) -> RestoreReport:
        """Restore what was chosen; BackupError before anything is changed if a name is taken."""
        choice = self._choice
        choice.check()
        report = RestoreReport(record.id)
        names = choice.names(link.name for link in record.streams)
        existing = {facts.name for facts in self._api.streams()}
        taken = [new for new in names.values() if new in existing]
        if taken and not choice.skips_existing:
            raise BackupError(
                f"these streams exist already: {', '.join(taken[:10])}",
                "give them other names: --rename OLD=NEW; or restore what is missing:"
                " --skip-existing",
            )
        report.skipped = taken
        for link in record.streams:
            if link.name not in names or names[link.name] in taken:
                continue
            try:
                stream = self._repository.stream(link)
                report.streams.append(self._restore(stream, names[link.name]))
            except BackupError as error:
                report.failed[link.name] = str(error)
            except JetStreamApiError as error:
                report.failed[link.name] = f"{error.description} ({error.err_code})"
            except PermissionsError as error:
                report.failed[link.name] = str(error)
        if choice.has_templates and not choice.streams and record.templates:
            report.templates = self._restore_templates(record, report)
        return report

    def _restore_templates(self, record: BackupRecord, report: RestoreReport) -> int:
        templates: list[StreamTemplate] = self._repository.get_document(
            record.templates, list[StreamTemplate], "the templates"
        )
        for template in templates:
            body = TemplatePutRequest(**msgspec.structs.asdict(template))
            try:
                self._api.ask("template_put", template.name, body)
            except (NotTradewindError, PermissionsError) as error:
                report.failed["templates"] = str(error)
                return 0
            except JetStreamApiError as error:
                report.failed[f"template {template.name}"] = error.description
        return len(templates)

    # ---------------------------------------------------------------- one stream

    def _restore(self, stream: SavedStream, new: str) -> RestoredStream:
        body = {"config": renamed_config(stream.config, new), "state": _state_of(stream, 0)}
        what = f"restore of stream {new}"
        answer = decoded(self._api.ask("stream_restore", new, body), dict[str, Any], what)
        subject = str(answer.get("deliver_subject", ""))
        info = self._send(subject, self._archive(stream, new))
        return RestoredStream(stream.name, new, info.state.messages, info.state.consumer_count)

    def _archive(self, stream: SavedStream, new: str) -> Iterator[bytes]:
        """The archive of a stream, compressed."""
        consumers = self._repository.consumers(stream) if self._choice.has_consumers else []
        head = bytearray(MAGIC)
        time_ns = 0
        state = msgspec.json.encode(_state_of(stream, len(consumers)))
        append_entry(head, STATE_NAME, time_ns, 0, b"", state)
        for consumer in consumers:
            changed = renamed_consumer(consumer, stream.name, new)
            name = CONSUMER_PREFIX + consumer.name.encode()
            append_entry(head, name, time_ns, 0, b"", _consumer_text(changed))
        yield compress(head)
        old_prefix, new_prefix = self._choice.subject_change(stream.name, new)
        done, total = 0, stream.number("messages")
        for page in self._repository.pages(stream):
            for found in page.ranges:
                if self._is_wanted(found):
                    yield self._entries(stream, found, old_prefix, new_prefix)
                done += found.live
                self._progress(new, done, total)
        yield compress(END_MARK)

    def _is_wanted(self, found: MessageRange) -> bool:
        """Whether a range may hold a chosen message."""
        choice = self._choice
        return found.last_ns >= choice.since_ns and found.first_ns < choice.until_ns

    def _entries(
        self, stream: SavedStream, found: MessageRange, old_prefix: bytes, new_prefix: bytes
    ) -> bytes:
        """The chosen messages of a range, compressed."""
        choice = self._choice
        data = read_range(self._repository, stream.name, found)
        if not found.removed and choice.takes_all and not old_prefix:
            return compress(data)
        selection = EntrySelection(
            removed_of(stream.name, found).bounds,
            tuple(subject.encode() for subject in choice.subjects),
            choice.since_ns,
            choice.until_ns,
            old_prefix,
            new_prefix,
        )
        return compress(selection.select(data))

    def _send(self, subject: str, archive: Iterator[bytes]) -> StreamInfo:
        connection = self._api.connection
        size = min(CHUNK_BYTES, connection.max_payload)
        ready = bytearray()
        for piece in archive:
            ready += piece
            sent = 0
            while len(ready) - sent >= size:
                self._send_chunk(subject, bytes(ready[sent : sent + size]))
                sent += size
            del ready[:sent]
        if ready:
            self._send_chunk(subject, bytes(ready))
        answer = connection.request(subject, timeout=CHUNK_SECONDS)
        return decode_answer(answer.data, StreamInfo)

    def _send_chunk(self, subject: str, chunk: bytes) -> None:
        answer = self._api.connection.request(subject, chunk, timeout=CHUNK_SECONDS)
        if answer.data:
            check_answer(answer.data)


def _state_of(stream: SavedStream, consumers: int) -> dict[str, Any]:
    return {**stream.state, "consumer_count": consumers}


def _consumer_text(consumer: SavedConsumer) -> bytes:
    return msgspec.json.encode({"config": consumer.config, "state": consumer.state})
