"""Reads an account up to a moment: cut, read what is much, cut again.

Owns the rounds and their end. The rest of a cut is read while the server goes on; the next cut
then leaves out less. If a stream grows faster than it can be read, the last cut is taken as it is,
and messages that are removed before they are read are missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tradewind.api.request_types import KnownPart
from tradewind.backups.account_cut_reading import CutPart, TakenCut, take_account_cut
from tradewind.backups.backup_documents import BackedUpStream, MessageRange, SavedStream
from tradewind.backups.backup_errors import StreamReadError
from tradewind.backups.message_ranges import PagesUpdate, RangeWriter
from tradewind.backups.stream_saving import is_as_saved, kept_state
from tradewind.client.api_errors import StreamNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tradewind.backups.account_api import StreamFacts
    from tradewind.backups.stream_saving import StreamSaving

CUTS_MAX: Final = 20
# So many cuts may bring what is left of streams with little; then these are read one by one.
CUTS_FOR_SMALL: Final = 10
SMALL_BYTES: Final = 32 << 10


class CutReading:
    """One backup's way to its cut, from what the server has told of its streams before."""

    def __init__(self, saving: StreamSaving, facts: Iterable[StreamFacts]) -> None:
        self._saving = saving
        # Told to the server of streams that have changed; of others, that they have not.
        self._known: dict[str, KnownPart] = {}
        # Streams that begin with the messages of the last backup.
        self._continued: set[str] = set()
        self._new: dict[str, list[MessageRange]] = {}
        self._unreadable: dict[str, StreamReadError] = {}
        self.has_own_moments = False  # a stream was saved as it was after the cut
        for each in facts:
            self._name(each)

    def _name(self, facts: StreamFacts) -> bool:
        """Tell the server about a stream from now on, if it has changed since the last backup."""
        link = self._saving.before.get(facts.name)
        if link is None or not self._saving.is_continued(facts):
            self._continued.discard(facts.name)
            self._known[facts.name] = KnownPart(created=facts.created)
            return True
        self._continued.add(facts.name)
        if is_as_saved(facts, link):
            return False
        self._known[facts.name] = KnownPart(
            created=link.created,
            first_seq=link.first_seq,
            last_seq=link.last_seq,
            messages=link.messages,
        )
        return True

    def last_cut(self) -> TakenCut:
        """The cut of the backup; what is after it, and what it brings itself, is not stored yet."""
        for number in range(1, CUTS_MAX + 1):
            is_last = number == CUTS_MAX
            cut = take_account_cut(self._saving.api, self._known, named_only=True, is_final=is_last)
            is_complete = cut.is_complete
            for name, part in cut.parts.items():
                if name in self._known:
                    self._note(part)
                elif self._name(part.facts):
                    is_complete = False  # it has changed just now
            if is_complete:
                break
            if not is_last:
                for name, part in cut.parts.items():
                    if name in self._known:
                        self._go_on(part, number)
        return cut

    def _note(self, part: CutPart) -> None:
        """Forget what was read of a stream that was created anew meanwhile."""
        name = part.facts.name
        if not part.after:
            self._continued.discard(name)
            self._new.pop(name, None)

    def _go_on(self, part: CutPart, number: int) -> None:
        """Store what a cut has brought of a stream; read what it has not, if that is much, or if
        several cuts had no time for it.
        """
        facts = part.facts
        last_seq = facts.number("last_seq")
        if part.has_all:
            if part.messages:
                ranges = self._brought(part)
                self._new.setdefault(facts.name, []).extend(ranges)
                self._known[facts.name] = KnownPart(created=facts.created, last_seq=last_seq)
            return
        each = facts.number("bytes") // max(facts.number("messages"), 1)
        if number > CUTS_FOR_SMALL or each * (last_seq - part.after) > SMALL_BYTES:
            self._read(part)

    def _brought(self, part: CutPart) -> list[MessageRange]:
        facts = part.facts
        writer = RangeWriter(
            self._saving.repository, facts.name, part.after, facts.number("last_seq")
        )
        writer.feed(part.messages)
        return writer.finish()

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
        before = SavedStream(name=name, created="", config={}, state={}, pages=[])
        if name in self._continued:
            before = saving.repository.stream(saving.before[name])
            if before.state == kept_state(facts.state) and name not in self._new:
                return saving.link(saving.new_record(facts, before.pages, part.consumers))
        if part.removed is None:
            self.has_own_moments = True
            return saving.saved(facts)  # it has too many blocks for one turn of the server
        update = PagesUpdate(
            saving.repository, before, max(facts.number("first_seq"), 1), part.removed
        )
        new = update.updated(self._new.pop(name, []))
        if part.has_all:
            new += self._brought(part)
        else:
            new += saving.new_ranges(facts, part.after, part.removed)
        return saving.link(saving.new_record(facts, update.links(new), part.consumers))
