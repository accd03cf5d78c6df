"""Saves single streams: what a server has of them, as ranges and pages.

Owns what is the same for streams that have a moment of their own and for those in a cut of the
account: which backup they continue, reading what is new, and the record. For a stream of its own:
first the consumers, then the state with the sequences that have no message (its cut), then the
messages up to there that the last backup does not have. A message that is removed between the cut
and its reading cannot be in the backup; it is counted as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.backups.account_api import AccountApi, StreamFacts, StreamSnapshot
from tradewind.backups.backup_documents import (
    BackedUpStream,
    MessageRange,
    PageLink,
    SavedConsumer,
    SavedStream,
    digest_of,
    packed_document,
)
from tradewind.backups.message_ranges import END_MARK, PagesUpdate, PageWriter, RangeWriter
from tradewind.backups.sequence_ranges import SequenceRanges

if TYPE_CHECKING:
    from tradewind.backups.backup_repository import BackupRepository

# Called with the stream at work, and the bytes that were read.
Watch = Callable[[str, int], None]


class StreamSaving:
    """Saves the streams of one account. `before` is what the newest backup has, by name."""

    def __init__(
        self,
        repository: BackupRepository,
        api: AccountApi,
        before: Mapping[str, BackedUpStream],
        watch: Watch,
    ) -> None:
        self.repository = repository
        self.api = api
        self.before = before
        self._watch = watch

    def saved(self, facts: StreamFacts) -> BackedUpStream:
        """Save a stream as it is now."""
        return self.link(self._record(facts))

    def link(self, record: SavedStream) -> BackedUpStream:
        """Store the record of a stream."""
        return BackedUpStream(
            name=record.name,
            object=self.repository.put_document(record),
            messages=record.number("messages"),
            bytes=record.number("bytes"),
            first_seq=record.number("first_seq"),
            last_seq=record.number("last_seq"),
            last_ts=str(record.state.get("last_ts", "")),
            created=record.created,
            missing=record.missing,
            fingerprint=fingerprint(record.created, record.config, record.state, record.consumers),
        )

    def unchanged(
        self, facts: StreamFacts, consumers: list[SavedConsumer]
    ) -> BackedUpStream | None:
        """The stream of the last backup, if nothing of it has changed."""
        link = self.before.get(facts.name)
        if link is None:
            return None
        digest = digest_of(packed_document(consumers)) if consumers else ""
        config = without_server_metadata(facts.config)
        now = fingerprint(facts.created, config, kept_state(facts.state), digest)
        return link if link.fingerprint == now else None

    def is_continued(self, facts: StreamFacts) -> bool:
        """Whether the messages of the last backup are those that the stream began with."""
        link = self.before.get(facts.name)
        if link is None or link.created != facts.created:
            return False
        if link.last_seq > facts.number("last_seq") or link.first_seq > facts.number("first_seq"):
            return False  # messages were lost, or came back
        if not link.messages or link.last_seq == facts.number("last_seq"):
            return True
        # A server that has lost its newest messages gives their sequences to others.
        found = self.api.message_time(facts.name, link.last_seq)
        return not found or found == link.last_ts

    def _record(self, facts: StreamFacts) -> SavedStream:
        """The record of a stream, with its messages stored."""
        if not self.is_continued(facts):
            return self._full(facts)
        before = self.repository.stream(self.before[facts.name])
        consumers: list[SavedConsumer] = []
        if facts.number("consumer_count"):
            with StreamSnapshot(self.api, facts.name) as snapshot:
                consumers = snapshot.consumers()
        # The consumers may be a little older than the stream, never ahead of it.
        facts = self.api.info(facts.name)
        if kept_state(facts.state) == before.state:
            return self.new_record(facts, before.pages, consumers)
        removed = SequenceRanges()
        if facts.number("num_deleted"):
            facts = self.api.info(facts.name, deleted=True)
            deleted = facts.state.pop("deleted", None) or []
            if len(deleted) != facts.number("num_deleted"):
                return self._full(facts)  # it does not list so many
            removed = SequenceRanges.of_sequences(deleted)
        new = self.new_ranges(facts, before.number("last_seq"), removed)
        first_seq = max(facts.number("first_seq"), 1)
        update = PagesUpdate(self.repository, before, first_seq, removed)
        return self.new_record(facts, update.links(new), consumers)

    def _full(self, facts: StreamFacts) -> SavedStream:
        """All messages of a stream, from a snapshot."""
        with StreamSnapshot(self.api, facts.name) as snapshot:
            consumers = snapshot.consumers()
            taken = StreamFacts(snapshot.config, snapshot.state, facts.created)
            ranges = self._received(snapshot, facts.name, 0)
        pages = PageWriter(self.repository, facts.name)
        pages.add(ranges)
        return self.new_record(taken, pages.links, consumers)

    def following(self, stream: str, after: int) -> tuple[list[MessageRange], int]:
        """All messages after a sequence, and up to which one they go; of a tradewind-server."""
        with StreamSnapshot(self.api, stream, first_seq=after + 1) as snapshot:
            snapshot.consumers()
            return self._received(snapshot, stream, after), int(snapshot.state["last_seq"])

    def _received(self, snapshot: StreamSnapshot, stream: str, after: int) -> list[MessageRange]:
        last_seq = StreamFacts({"name": stream}, snapshot.state).number("last_seq")
        writer = RangeWriter(self.repository, stream, after, last_seq)
        for entries in self._watched(stream, snapshot.messages()):
            writer.feed(entries)
        return writer.finish(END_MARK)

    def new_ranges(
        self, facts: StreamFacts, after: int, removed: SequenceRanges
    ) -> list[MessageRange]:
        """The messages after a sequence, up to the end of the stream as it is known."""
        first, last = max(after + 1, facts.number("first_seq")), facts.number("last_seq")
        writer = RangeWriter(self.repository, facts.name, after, last)
        wanted = sequences_without(removed, first, last)
        for entries in self._watched(facts.name, self.api.messages(facts.name, wanted)):
            writer.feed(entries)
        return writer.finish()

    def _watched(self, stream: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._watch(stream, len(piece))
            yield piece

    def new_record(
        self, facts: StreamFacts, pages: list[PageLink], consumers: list[SavedConsumer]
    ) -> SavedStream:
        """The record of a stream with these pages."""
        return SavedStream(
            name=facts.name,
            created=facts.created,
            config=without_server_metadata(facts.config),
            state=kept_state(facts.state),
            pages=pages,
            consumers=self.repository.put_document(consumers) if consumers else "",
            consumer_count=len(consumers),
            missing=max(facts.number("messages") - sum(link.live for link in pages), 0),
        )


_KEPT: Final = ("messages", "bytes", "first_seq", "first_ts", "last_seq", "last_ts")


def kept_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a state that is saved; it changes whenever a message is stored or removed."""
    return {name: state[name] for name in _KEPT if name in state}


def is_as_saved(facts: StreamFacts, link: BackedUpStream) -> bool:
    """Whether a stream has the messages that it had in a backup."""
    now = [facts.state.get(name) for name in ("messages", "first_seq", "last_seq", "last_ts")]
    return facts.created == link.created and now == [
        link.messages,
        link.first_seq,
        link.last_seq,
        link.last_ts,
    ]


def fingerprint(
    created: str, config: Mapping[str, Any], state: Mapping[str, Any], consumers: str
) -> str:
    """The digest of everything that makes a stream what it is."""
    whole = [created, sorted(config.items()), sorted(state.items()), consumers]
    return digest_of(msgspec.json.encode(whole))


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
