"""Reads an account up to a moment: cut, read what is much, cut again.

Owns the rounds and their end. What a cut leaves out is read while the server goes on; the next cut
then leaves out less. If a stream grows faster than it can be read, the last cut is taken as it is,
and messages that are removed before they are read are missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tradewind.api.account_backup_types import KnownPart
from tradewind.backups.account_cut_reading import CutPart, TakenCut, take_account_cut
from tradewind.backups.backup_documents import BackedUpStream, MessageRange, SavedStream
from tradewind.backups.backup_errors import StreamReadError
from tradewind.backups.message_ranges import PagesUpdate, RangeWriter
from tradewind.backups.stream_saving import kept_state
from tradewind.client.api_errors import StreamNotFoundError

if TYPE_CHECKING:
    from tradewind.backups.stream_saving import StreamSaving

CUTS_MAX: Final = 10


class CutReading:
    """One backup's way to its cut. `known` is what the last backup has of streams that go on."""

    def __init__(self, saving: StreamSaving, known: dict[str, KnownPart]) -> None:
        self._saving = saving
        self._known = dict(known)
        # Streams that begin with the messages of the last backup.
        self._continued = set(known)
        self._new: dict[str, list[MessageRange]] = {}
        self._unreadable: dict[str, StreamReadError] = {}

    def last_cut(self) -> TakenCut:
        """The cut of the backup; what is after it, and what it brings itself, is not stored yet."""
        for number in range(1, CUTS_MAX + 1):
            cut = take_account_cut(self._saving.api, self._known, is_final=number == CUTS_MAX)
            for part in cut.parts.values():
                self._note(part)
            if cut.is_complete:
                break
            for part in cut.parts.values():
                if not part.has_all:
                    self._read(part)
        return cut

    def _note(self, part: CutPart) -> None:
        """Forget what was read of a stream that was created anew meanwhile."""
        name = part.facts.name
        if not part.after:
            self._continued.discard(name)
            self._new.pop(name, None)

    def _read(self, part: CutPart) -> None:
        name = part.facts.name
        try:
            ranges, last_seq = self._saving.following(name, part.after)
        except StreamNotFoundError:
            return  # the next cut is without it
        except StreamReadError as error:
            self._unreadable[name] = error
            ranges, last_seq = [], part.facts.number("last_seq")
        self._new.setdefault(name, []).extend(ranges)
        self._known[name] = KnownPart(created=part.facts.created, last_seq=last_seq)

    def saved(self, part: CutPart) -> BackedUpStream:
        """Save a stream of the last cut."""
        saving, facts, name = self._saving, part.facts, part.facts.name
        if name in self._unreadable:
            raise self._unreadable[name]
        if name in self._continued and name not in self._new:
            unchanged = saving.unchanged(facts, part.consumers)
            if unchanged is not None:
                return unchanged
        if part.removed is None:
            return saving.saved(facts)  # it has too many blocks for one turn of the server
        before = SavedStream(name=name, created="", config={}, state={}, pages=[])
        if name in self._continued:
            before = saving.repository.stream(saving.before[name])
            if before.state == kept_state(facts.state) and name not in self._new:
                return saving.link(saving.new_record(facts, before.pages, part.consumers))
        new = self._new.pop(name, [])
        last_seq = facts.number("last_seq")
        if part.has_all:
            writer = RangeWriter(saving.repository, name, part.after, last_seq)
            writer.feed(part.messages)
            new += writer.finish()
        else:
            new += saving.new_ranges(facts, part.after, part.removed)
        update = PagesUpdate(
            saving.repository, before, max(facts.number("first_seq"), 1), part.removed
        )
        return saving.link(
            saving.new_record(facts, update.links(update.updated(new)), part.consumers)
        )
