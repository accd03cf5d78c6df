"""Verifies a chain in independent parts, and joins their findings.

Owns the findings of a part and how they become one report. A part begins with the link before its
first entry, so its checks need no other part; its index is a multiple of a power of two, so the
root of its subtree is a node of the whole tree. Removals, checkpoints and missing messages concern
all parts: they are decided when the parts are joined, in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

from tradewind.chain.chain_entries import (
    MESSAGE,
    REASONS,
    RETURN,
    ChainError,
    ChainRecord,
    Digest,
    decode_removal,
    digest_of,
    first_link,
)
from tradewind.chain.merkle import Frontier
from tradewind.chain.passes import ChainPass
from tradewind.chain.report import (
    CHECKPOINT,
    ENTRY,
    INSERTED,
    REMOVED,
    RETURNED,
    ChainFault,
    ChainReport,
    sequences_text,
)
from tradewind.chain.sequence_bits import SequenceBits
from tradewind.chain.signed_heads import SignedHead, SignedHeads
from tradewind.chain.verifier import ChainedMessage, ChainVerifier

BATCH: Final = 1000
Ranges = list[tuple[int, int]]


class SegmentFound(msgspec.Struct):
    """The findings of one part; all of them can be sent to another process.

    `entered`, `stored` and `extra` are sequences: of its entries, of the existing messages, and of
    those that have no entry. `peaks` and `heads` are nodes of the tree with their levels: of the
    whole part, and of its beginning up to the sizes of checkpoints; `links` are the last links
    there. `others` are the entries that are not messages: kind and body.
    """

    first_index: int
    count: int = 0
    messages: int = 0
    last_link: bytes = b""
    last_sequence: int = 0
    entered: Ranges = []
    stored: Ranges = []
    extra: Ranges = []
    others: list[tuple[int, bytes]] = []
    peaks: list[tuple[int, bytes]] = []
    heads: dict[int, list[tuple[int, bytes]]] = {}
    links: dict[int, bytes] = {}
    faults: list[ChainFault] = []
    fault_count: int = 0


def verify_segment(
    stream: str,
    algorithm: str,
    first_index: int,
    before: bytes,
    records: Iterable[ChainRecord],
    messages: Iterable[ChainedMessage],
    sizes: Iterable[int] = (),
) -> SegmentFound:
    """Verify some entries with the messages of their sequences, on their own.

    `before` is the link of the entry before; `sizes` are those of checkpoints.
    """
    digest = digest_of(algorithm)
    verifier = ChainVerifier(stream, "", algorithm, first_index=first_index, before=before)
    found = SegmentFound(first_index)
    entered, tree, wanted = SequenceBits(), Frontier(digest), set(sizes)
    joined = ChainPass(verifier, covers_all=False)
    entries, stored = iter(records), iter(messages)
    while needs := joined.needs:
        if needs == "messages":
            batch = list(islice(stored, BATCH))
            joined.take_messages(batch, is_last=len(batch) < BATCH)
            continue
        page = list(islice(entries, BATCH))
        for record in page:
            tree.append(record.link)
            size = first_index + tree.size
            if size in wanted:
                found.heads[size], found.links[size] = tree.peaks(), record.link
            if record.kind == MESSAGE:
                entered.add(record.sequence)
            else:
                found.others.append((record.kind, record.body))
            found.last_link = record.link
        joined.take_entries(page)
    verifier.finish(is_part=True)
    report = verifier.conclude()
    found.count, found.peaks = tree.size, tree.peaks()
    found.messages, found.last_sequence = report.messages, report.last_sequence
    found.entered = list(entered.ranges())
    found.stored = list(verifier.stored.ranges())
    found.extra = list(verifier.extras.ranges())
    found.faults, found.fault_count = report.faults, report.fault_count
    return found


class SegmentJoin:
    """Joins parts in order; `finish` returns the report."""

    def __init__(
        self,
        stream: str,
        created: str,
        algorithm: str,
        before: bytes,
        signed_heads: Iterator[SignedHead],
        keys: Sequence[str] = (),
    ) -> None:
        self._digest: Digest = digest_of(algorithm)
        self.report = ChainReport(stream=stream, created=created, algorithm=algorithm)
        self._tree = Frontier(self._digest)
        self._live = SequenceBits()
        self._gone = SequenceBits()
        self._stored = SequenceBits()
        self._extra = SequenceBits()
        self._signed_heads = SignedHeads(self.report, signed_heads, (), keys, is_whole=True)
        self._covered_sequence = 0
        if created and first_link(self._digest, stream, created) != before:
            self._add(ENTRY, f"the chain does not begin as that of {stream} created {created}", 0)

    def add(self, part: SegmentFound) -> None:
        """Add the next part."""
        report = self.report
        self._compare(part)
        for level, node in part.peaks:
            self._tree.append(node, level)
        for bits, ranges in (
            (self._live, part.entered),
            (self._stored, part.stored),
            (self._extra, part.extra),
        ):
            for first, last in ranges:
                bits.add_range(first, last)
        for kind, body in part.others:
            self._apply(kind, body)
        report.messages += part.messages
        report.last_sequence = max(report.last_sequence, part.last_sequence)
        for fault in part.faults:
            report.add(fault)
        report.fault_count += part.fault_count - len(part.faults)
        report.size = self._tree.size

    def late(self, record: ChainRecord) -> None:
        """Take an entry that was made since: messages that it removes may be missing."""
        if record.kind != MESSAGE:
            self._apply(record.kind, record.body)

    def _apply(self, kind: int, body: bytes) -> None:
        try:
            removal = decode_removal(body)
        except ChainError as error:
            self._add(ENTRY, f"an entry that is not a message: {error}", self._tree.size)
            return
        source, target = self._live, self._gone
        if kind == RETURN:
            source, target = target, source
        name = "undone" if kind == RETURN else REASONS[removal.reason]
        for first, last in removal.ranges:
            taken = source.take(first, last)
            target.merge(taken)
            self.report.removed[name] = self.report.removed.get(name, 0) + taken.count

    def _compare(self, part: SegmentFound) -> None:
        """Compare the checkpoints whose sizes are in this part with the tree."""
        end = part.first_index + part.count
        while (found := self._signed_heads.due(end)) is not None:
            place, head = found
            tree = self._tree.copy()
            for level, node in part.heads.get(head.size, ()):
                tree.append(node, level)
            link = part.links.get(head.size, b"")
            if (tree.size, tree.root().hex(), link.hex()) == (head.size, head.root, head.link):
                self.report.checkpoints += 1
                self.report.covered_size = head.size
                self._covered_sequence = head.last_seq
                if head.key not in self.report.signers:
                    self.report.signers.append(head.key)
            else:
                text = f"{place} (of {head.size} entries) does not match the chain"
                self._add(CHECKPOINT, text, head.size)

    def _add(self, kind: str, text: str, index: int = -1) -> None:
        self.report.add(ChainFault(kind, text, index=index))

    def finish(self) -> ChainReport:
        """The report of all parts together."""
        report = self.report
        for place, size in self._signed_heads.rest():
            self._add(
                CHECKPOINT,
                f"{place} covers {size} entries, and the chain has {report.size}: its end was cut "
                "off",
                report.size,
            )
        known = self._stored.without(self._extra)
        for kind, bits, text in (
            (REMOVED, self._live.without(self._stored), "missing, and the chain does not say why"),
            (INSERTED, self._extra, "stored, and not in the chain"),
            (RETURNED, known.without(self._live), "stored, though removed by an entry"),
        ):
            for first, last in bits.ranges():
                fault = f"{sequences_text(first, last)}: {text}"
                report.add(ChainFault(kind, fault, sequence=first, last_sequence=last))
        # A part does not say which message an entry follows, so nothing is claimed then.
        wrong = [
            fault.sequence
            for fault in report.faults
            if fault.sequence or (fault.kind == ENTRY and fault.index < report.covered_size)
        ]
        proved = min([self._covered_sequence, *(one - 1 for one in wrong)])
        report.proved_sequence = max(proved, 0)
        return report
