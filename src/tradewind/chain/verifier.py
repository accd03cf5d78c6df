"""Verifies a chain against the stored messages, entry by entry, in one pass and with bounded
memory.

Owns the decisions which entry follows which, which checkpoint fits, and what an entry that does not
fit means. It never reads anything: its caller passes entries and messages in order, through a
`ChainPass`, and takes the report. Which checkpoints count is decided in `signed_heads`.

A check of an entry computes its link from the link before and the content. A content that is gone
cannot be checked; its link is still covered by the next entry and by the next checkpoint. So three
cases reveal what was changed:

- the Merkle root of a signed checkpoint fits: all links below it are the right ones, and a check
  that fails is a content that was changed;
- it does not fit: links below it were changed, cut out or put in; the failed checks show where;
- there is no checkpoint after it yet: a link that its neighbours confirm is taken as right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tradewind.chain.chain_entries import (
    KINDS,
    MESSAGE,
    REASONS,
    RETURN,
    SEQUENCE_MAX,
    ChainError,
    ChainRecord,
    decode_removal,
    digest_of,
    first_link,
    link_of,
    message_body,
)
from tradewind.chain.checkpoints import Checkpoint
from tradewind.chain.merkle import Frontier
from tradewind.chain.report import (
    CHANGED,
    CHECKPOINT,
    ENTRY,
    FAULTS_MAX,
    FILE,
    INSERTED,
    REMOVED,
    REORDERED,
    RETURNED,
    ChainFault,
    ChainReport,
    sequences_text,
)
from tradewind.chain.sequence_bits import SequenceBits
from tradewind.chain.signed_heads import SignedHead, SignedHeads

# Contents that are kept to find out whether messages were exchanged.
SUSPECTS_MAX: Final = 64
SUSPECT_BYTES_MAX: Final = 16 << 20
# Messages without an entry that are tried as the content of an entry that was cut out.
EXTRAS_MAX: Final = 16


class ChainedMessage(NamedTuple):
    """A message as it is stored."""

    sequence: int
    time_ns: int
    subject: bytes
    header: bytes
    payload: bytes

    def body(self) -> bytes:
        """The hashed body of this message."""
        return message_body(*self)


@dataclass(slots=True)
class _Suspect:
    """An entry whose check failed. `message` is None for entries that are not messages."""

    index: int
    record: ChainRecord
    before: bytes
    message: ChainedMessage | None
    last_sequence: int  # of the entries before it
    explanation: str = ""
    explained_index: int = -1


class ChainVerifier:
    """One verification. Entries are passed to `entry`, in order; `finish` returns the report.

    `before` is the link before the first entry as it is stored, None if it is unknown. With
    `first_index` only the end of a chain is verified: its checkpoints are compared by their link,
    as their root needs all entries. `signed_heads` are the checkpoints of the chain itself, in
    order; `has_all_heads`: the first of them is the first that was made. `kept` are those that were
    kept elsewhere. With `keys`, only checkpoints of these public keys count. `is_copy`: the
    messages are a copy, which may begin later, end earlier and contain messages that the stream has
    removed; with `complete_to` it must have all up to that sequence.
    """

    def __init__(
        self,
        stream: str,
        created: str,
        algorithm: str,
        *,
        first_index: int = 0,
        before: bytes | None = None,
        signed_heads: Iterator[SignedHead] | None = None,
        has_all_heads: bool = False,
        kept: Sequence[SignedHead] = (),
        keys: Sequence[str] = (),
        is_copy: bool = False,
        complete_to: int = 0,
    ) -> None:
        self.report = ChainReport(stream=stream, created=created, algorithm=algorithm)
        self._digest = digest_of(algorithm)
        self._is_copy = is_copy
        self._complete_to = complete_to
        self._frontier = Frontier(self._digest)
        self._live = SequenceBits()
        self._gone = SequenceBits()  # removed by an entry
        self._stored = SequenceBits()
        self._extras = SequenceBits()
        self._near_extras: list[ChainedMessage] = []
        self._changed: list[_Suspect] = []
        self._suspects: list[_Suspect] = []
        self._suspect_bytes = 0
        self._other_link: bytes | None = None  # as it would be if stored links are wrong
        self._trusted_sequence = 0
        self._first_wrong = SEQUENCE_MAX  # the lowest sequence that anything is wrong with
        self._other_index = 0  # where that begins
        self._misfits = 0
        self._misfit: tuple[int, str] | None = None
        self._first_stored = 0
        self._last_stored = 0
        self._first_index = first_index
        is_known = created and not first_index
        own_first = first_link(self._digest, stream, created) if is_known else before
        if own_first is None:
            raise ChainError(f"the link before entry {first_index} of {stream} is not known")
        self._link = own_first if before is None else before
        self._link_before = self._link
        if own_first != self._link:
            self._wrong(
                ENTRY, 0, f"the chain does not begin as that of {stream} created {created}", index=0
            )
        self._signed_heads = SignedHeads(
            self.report, signed_heads or iter(()), kept, keys, is_whole=has_all_heads
        )

    # ------------------------------------------------------------------ what comes in

    @property
    def size(self) -> int:
        """The index of the next entry."""
        return self._first_index + self._frontier.size

    @property
    def stored(self) -> SequenceBits:
        """The sequences of all messages passed so far."""
        return self._stored

    @property
    def extras(self) -> SequenceBits:
        """The sequences of messages that had no entry."""
        return self._extras

    @property
    def last_sequence(self) -> int:
        """The highest sequence of an entry so far."""
        return self.report.last_sequence

    def take_extra(self, message: ChainedMessage) -> None:
        """Take a stored message without an entry, although a later one has or will have one."""
        self._store(message.sequence)
        self._extras.add(message.sequence)
        if len(self._near_extras) < EXTRAS_MAX:
            self._near_extras.append(message)

    def uncovered(self, count: int) -> None:
        """Count messages that are stored after the last entry."""
        self.report.uncovered += count

    def entry(self, record: ChainRecord, message: ChainedMessage | None) -> None:
        """Take the next entry, with the stored message of its sequence."""
        self._compare_checkpoints()
        index = self.size
        if record.kind == MESSAGE:
            body = self._take_message(index, record, message)
        else:
            body = record.body
            self._take_other(index, record)
        if body is None or link_of(self._digest, self._link, record.kind, body) == record.link:
            self._other_link = None
        else:
            self._take_unfit(index, record, message, body)
        self._link_before, self._link = self._link, record.link
        self._near_extras.clear()
        self._frontier.append(record.link)

    def _take_message(
        self, index: int, record: ChainRecord, message: ChainedMessage | None
    ) -> bytes | None:
        """Check a message and return its body, which the link must be the hash of; None if it is
        missing.
        """
        sequence = record.sequence
        report = self.report
        if sequence <= report.last_sequence:
            self._wrong(
                ENTRY,
                sequence,
                f"entry {index} is of sequence {sequence}, after one of {report.last_sequence}: "
                "the entries are not in their order",
                index=index,
            )
            self._extras.discard(sequence)
            self._stored.discard(sequence)
            return None
        report.last_sequence = sequence
        self._live.add(sequence)
        if message is None:
            return None
        self._store(sequence)
        report.messages += 1
        return message.body()

    def _take_other(self, index: int, record: ChainRecord) -> None:
        try:
            removal = decode_removal(record.body)
        except ChainError as error:
            after = self.report.last_sequence + 1
            self._wrong(ENTRY, after, f"entry {index}: {error}", index=index)
            return
        source, target = self._live, self._gone
        if record.kind == RETURN:
            source, target = target, source
        count = 0
        for first, last in removal.ranges:
            taken = source.take(first, last)
            target.merge(taken)
            count += taken.count
        name = REASONS[removal.reason] if record.kind != RETURN else "undone"
        self.report.removed[name] = self.report.removed.get(name, 0) + count

    def late(self, record: ChainRecord) -> None:
        """Take an entry that was made while the messages were read: messages that it removes may be
        missing.
        """
        if record.kind in KINDS and record.kind != MESSAGE:
            try:
                removal = decode_removal(record.body)
            except ChainError:
                return
            for first, last in removal.ranges:
                if record.kind == RETURN:
                    continue
                self._live.take(first, last)
                self._stored.take(first, last)
                self._changed = [
                    one for one in self._changed if not first <= one.record.sequence <= last
                ]
                self._suspects = [
                    one for one in self._suspects if not first <= one.record.sequence <= last
                ]

    def _store(self, sequence: int) -> None:
        self._stored.add(sequence)
        self._first_stored = self._first_stored or sequence
        self._last_stored = sequence

    # ------------------------------------------------------------------ checks that failed

    def _take_unfit(
        self, index: int, record: ChainRecord, message: ChainedMessage | None, body: bytes
    ) -> None:
        """Handle an entry whose link is not the hash of the link before and its content."""
        other, kind = self._other_link, record.kind
        if other is not None and link_of(self._digest, other, kind, body) == record.link:
            # The contents are right, up to here: it is the links between that were changed.
            self._other_link = None
            for suspect in self._suspects:
                if suspect.index >= self._other_index:
                    suspect.explanation = "its link was changed"
                    suspect.explained_index = suspect.index
            return
        if other is None:
            other, self._other_index = self._link, index
        self._other_link = link_of(self._digest, other, kind, body)
        suspect = _Suspect(index, record, self._link, message, self._last_before(record))
        self._explain(suspect, body)
        if len(self._suspects) >= FAULTS_MAX:  # of one stretch between two checkpoints
            self._wrong_content(suspect)
            return
        if message is not None:
            self._suspect_bytes += len(message.payload) + len(message.header)
            if self._suspect_bytes > SUSPECT_BYTES_MAX:
                suspect.message = message._replace(header=b"", payload=b"")
        self._suspects.append(suspect)

    def _last_before(self, record: ChainRecord) -> int:
        """The last sequence of the entries before this one."""
        last = self.report.last_sequence
        return last - 1 if record.kind == MESSAGE else last

    def _explain(self, suspect: _Suspect, body: bytes) -> None:
        """Explain why an entry does not follow, if one change of the chain does."""
        kind, wanted = suspect.record.kind, suspect.record.link
        if suspect.index and link_of(self._digest, self._link_before, kind, body) == wanted:
            suspect.explained_index = suspect.index - 1
            suspect.explanation = f"entry {suspect.index - 1} was inserted into the chain"
            return
        link = self._link
        for number, extra in enumerate(self._near_extras, 1):
            link = link_of(self._digest, link, MESSAGE, extra.body())
            if link_of(self._digest, link, kind, body) == wanted:
                first = self._near_extras[0].sequence
                text = sequences_text(first, extra.sequence)
                suspect.explained_index = suspect.index
                suspect.explanation = f"the entry of {text} was cut out of the chain"
                for one in self._near_extras[:number]:
                    self._extras.discard(one.sequence)
                    self._stored.discard(one.sequence)
                return

    def _explain_suspects(self, *, trusted: bool = False, is_misfit: bool = False) -> None:
        """Report the meaning of the failed checks; called at a checkpoint or the end."""
        suspects, self._suspects = self._suspects, []
        self._suspect_bytes = sum(
            len(one.message.payload) for one in self._changed if one.message is not None
        )
        explained = {one.explained_index for one in suspects if one.explanation}
        exchanged = {} if trusted else self._find_exchanged(suspects)
        for suspect in suspects:
            if trusted or suspect.record.sequence in exchanged:
                self._wrong_content(suspect)
            elif suspect.explanation:
                self._wrong_entry(suspect, suspect.explained_index, suspect.explanation)
            elif suspect.index in explained:
                continue
            elif is_misfit:
                self._wrong_entry(
                    suspect,
                    suspect.index,
                    f"it does not follow entry {suspect.index - 1}: entries were changed or cut out"
                    if suspect.index
                    else "it does not follow the beginning of the chain",
                )
            else:
                self._wrong_content(suspect)

    def _wrong_content(self, suspect: _Suspect) -> None:
        if suspect.record.kind != MESSAGE:
            self._wrong_entry(suspect, suspect.index, "its content was changed")
        elif len(self._changed) < FAULTS_MAX:
            self._changed.append(suspect)
        else:
            self._wrong_message(suspect)

    def _wrong_message(self, suspect: _Suspect, parts: tuple[str, ...] = ("content",)) -> None:
        sequence = suspect.record.sequence
        what = " and ".join(parts)
        self._wrong(
            CHANGED,
            sequence,
            f"sequence {sequence}: {what} changed",
            index=suspect.index,
            parts=parts,
        )

    def _wrong_entry(self, suspect: _Suspect, index: int, text: str) -> None:
        kind = KINDS[suspect.record.kind]
        what = f" (sequence {suspect.record.sequence})" if suspect.record.kind == MESSAGE else ""
        self._wrong(
            ENTRY,
            suspect.last_sequence + 1,
            f"entry {suspect.index}, a {kind}{what}: {text}",
            index=index,
        )

    def _wrong(
        self,
        kind: str,
        sequence: int,
        text: str,
        *,
        last_sequence: int = 0,
        index: int = -1,
        parts: tuple[str, ...] = (),
    ) -> None:
        """Report a fault: nothing from its first sequence on is proved."""
        self._first_wrong = min(self._first_wrong, sequence)
        is_message = kind in (CHANGED, REORDERED, REMOVED, INSERTED, RETURNED)
        self.report.add(
            ChainFault(
                kind,
                text,
                sequence=sequence if is_message else 0,
                last_sequence=(last_sequence or sequence) if is_message else 0,
                index=index,
                parts=parts,
            )
        )

    # ------------------------------------------------------------------ checkpoints

    def damage(self, text: str) -> None:
        """Report that the rest of a file of the chain cannot be read, so that it is not proved."""
        self.report.add(ChainFault(FILE, text))

    def note(self, text: str) -> None:
        """Add a note about something that is not a fault."""
        self.report.notes.append(text)

    def _compare_checkpoints(self) -> None:
        """Compare all checkpoints of this size with the tree."""
        while (found := self._signed_heads.due(self.size)) is not None:
            self._compare(*found)

    def _compare(self, place: str, checkpoint: Checkpoint) -> None:
        if checkpoint.size < self._first_index:
            self.note(f"{place} is of {checkpoint.size} entries, which were not checked")
            return
        fits = (
            checkpoint.size == self.size
            and (self._first_index or checkpoint.root == self._frontier.root().hex())
            and checkpoint.link == self._link.hex()
        )
        if fits:
            self._explain_suspects(trusted=True)
            self.report.checkpoints += 1
            if checkpoint.key not in self.report.signers:
                self.report.signers.append(checkpoint.key)
            self.report.covered_size = self.size
            self._trusted_sequence = self.report.last_sequence
            return
        self._misfits += 1
        if self._misfit is None:
            # The change is below it, and every later one shows the same.
            self._misfit = (checkpoint.size, place)
            self._explain_suspects(is_misfit=True)
            self._first_wrong = min(self._first_wrong, self._trusted_sequence + 1)

    # ------------------------------------------------------------------ the end

    def finish(self, *, is_part: bool = False) -> ChainReport:
        """The report; `suspicious` has the sequences for which another copy would reveal more.

        For a part of a chain, missing messages cannot be determined: other parts may have removed
        them.
        """
        self._compare_checkpoints()
        self._explain_suspects()
        self._end_checkpoints()
        if not is_part:
            self._end_sequences()
        self.report.size = self.size
        for suspect in self._changed:
            self._first_wrong = min(self._first_wrong, suspect.record.sequence)
        self.report.proved_sequence = max(min(self._trusted_sequence, self._first_wrong - 1), 0)
        return self.report

    @property
    def suspicious(self) -> list[int]:
        """The changed messages, until `conclude`."""
        return [suspect.record.sequence for suspect in self._changed]

    def conclude(self, copies: dict[int, ChainedMessage] | None = None) -> ChainReport:
        """Add the changed messages to the report, with the findings from other copies of them."""
        exchanged = self._find_exchanged(self._changed)
        for suspect in self._changed:
            sequence = suspect.record.sequence
            copy = (copies or {}).get(sequence)
            if (other := exchanged.get(sequence)) is not None:
                self._wrong(
                    REORDERED,
                    sequence,
                    f"sequence {sequence}: the message of sequence {sequence} is stored as "
                    f"sequence {other}",
                    index=suspect.index,
                )
            elif (
                copy is not None
                and suspect.message is not None
                and self._is_original(suspect, copy)
            ):
                self._wrong_message(suspect, different_parts(suspect.message, copy))
            else:
                self._wrong_message(suspect)
        self._changed = []
        return self.report

    def _is_original(self, suspect: _Suspect, copy: ChainedMessage) -> bool:
        link = link_of(self._digest, suspect.before, MESSAGE, copy.body())
        return link == suspect.record.link

    def _find_exchanged(self, suspects: Sequence[_Suspect]) -> dict[int, int]:
        """The sequences whose original content is stored under another sequence."""
        found: dict[int, int] = {}
        few = suspects[:SUSPECTS_MAX]
        for suspect in few:
            own = suspect.message
            for other in few:
                if other is suspect or other.message is None or own is None:
                    continue
                moved = other.message._replace(sequence=own.sequence)
                if self._is_original(suspect, moved) or self._is_original(
                    suspect, moved._replace(time_ns=own.time_ns)
                ):
                    found[own.sequence] = other.message.sequence
                    break
        return found

    def _end_checkpoints(self) -> None:
        left = max(self._signed_heads.rest(), key=lambda one: one[1], default=None)
        if left is not None:
            place, size = left
            self._first_wrong = min(self._first_wrong, self.report.last_sequence + 1)
            self.report.add(
                ChainFault(
                    CHECKPOINT,
                    f"{place} covers {size} entries, and the chain has {self.size}: "
                    "its end was cut off",
                    index=self.size,
                )
            )
        if self._misfit is not None:
            size, place = self._misfit
            more = f", nor do {self._misfits - 1} after it" if self._misfits > 1 else ""
            self.report.add(
                ChainFault(
                    CHECKPOINT,
                    f"{place} (of {size} entries) does not match the chain{more}: entries "
                    f"{self.report.covered_size} to {size - 1} are not those that were signed",
                    index=size,
                )
            )

    def _end_sequences(self) -> None:
        report = self.report
        missing = self._live.without(self._stored)
        if self._is_copy:
            end = self._complete_to or self._last_stored
            report.not_copied = missing.take(end + 1, SEQUENCE_MAX).count
            if not self._complete_to and self._first_stored:
                report.not_copied += missing.take(0, self._first_stored - 1).count
        for first, last in missing.ranges():
            self._wrong(
                REMOVED,
                first,
                f"{sequences_text(first, last)}: missing, and the chain does not say why",
                last_sequence=last,
            )
        for first, last in self._extras.ranges():
            self._wrong(
                INSERTED,
                first,
                f"{sequences_text(first, last)}: stored, and not in the chain",
                last_sequence=last,
            )
        returned = self._stored.without(self._live).without(self._extras)
        if self._is_copy:
            report.kept = returned.count
            return
        for first, last in returned.ranges():
            self._wrong(
                RETURNED,
                first,
                f"{sequences_text(first, last)}: stored, though removed by an entry of the chain",
                last_sequence=last,
            )


def different_parts(stored: ChainedMessage, original: ChainedMessage) -> tuple[str, ...]:
    """The parts in which two messages of one sequence differ."""
    names = {"time": "time_ns", "subject": "subject", "headers": "header", "payload": "payload"}
    return tuple(
        name for name, field in names.items() if getattr(stored, field) != getattr(original, field)
    )
