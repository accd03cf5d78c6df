"""Brings the entries of a chain and the stored messages together, in their common order.

Owns which of both is needed next, so that a reader of files, of a backup and of a server need no
order of their own. It never reads anything itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from tradewind.chain.chain_entries import MESSAGE, ChainRecord
from tradewind.chain.verifier import ChainedMessage, ChainVerifier


class ChainPass:
    """Feeds a verifier: give what `needs` names until it is empty.

    Messages come in order from `next_sequence` on. `covers_all`: messages after the last entry are
    counted.
    """

    def __init__(self, verifier: ChainVerifier, *, covers_all: bool) -> None:
        self.verifier = verifier
        self.next_sequence = 1
        self._covers_all = covers_all
        self._records: list[ChainRecord] = []
        self._messages: list[ChainedMessage] = []
        self._has_entries = True
        self._has_messages = True

    @property
    def next_index(self) -> int:
        """The index of the entry to give next."""
        return self.verifier.size

    @property
    def needs(self) -> str:
        """The kind of input to give next: "entries", "messages", or nothing at the end."""
        if not self._records and self._has_entries:
            return "entries"
        if self._records or (self._covers_all and self._has_messages):
            return "messages"
        return ""

    def take_entries(self, records: Sequence[ChainRecord]) -> None:
        """Take the next entries; empty at the end."""
        self._records = list(reversed(records))
        self._has_entries = bool(records)
        self._run()

    def take_messages(self, messages: Sequence[ChainedMessage], *, is_last: bool) -> None:
        """Take the next messages in order; `is_last`: no more follow."""
        self._messages = list(reversed(messages))
        self._has_messages = not is_last
        if messages:
            self.next_sequence = messages[-1].sequence + 1
        self._run()

    def _run(self) -> None:
        verifier, records, messages = self.verifier, self._records, self._messages
        while records:
            record = records[-1]
            found = None
            if record.kind == MESSAGE and record.sequence > verifier.last_sequence:
                while messages and messages[-1].sequence < record.sequence:
                    verifier.take_extra(messages.pop())
                if messages:
                    found = messages.pop() if messages[-1].sequence == record.sequence else None
                elif self._has_messages and self.next_sequence <= record.sequence:
                    return
            records.pop()
            verifier.entry(record, found)
        if not self._has_entries and self._covers_all:
            verifier.uncovered(len(messages))
            messages.clear()
