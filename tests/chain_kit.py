"""A chain made by the reference implementation: messages and removals in, folder and pages out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import strategies as st

from tradewind import nkeys
from tradewind.chain import chain_folder, checkpoints, merkle
from tradewind.chain.chain_entries import (
    BLAKE3,
    DELETED,
    MESSAGE,
    REMOVAL,
    RETURN,
    SHA256,
    ChainRecord,
    Digest,
    digest_of,
    first_link,
    link_of,
    message_body,
    message_record,
    other_record,
    removal_body,
)
from tradewind.chain.checkpoints import Checkpoint, CheckpointStatement

CREATED = "2026-01-31T12:00:00.5Z"
KEY = nkeys.KeyPair(nkeys.SERVER, bytes(range(32)))
OTHER_KEY = nkeys.KeyPair(nkeys.SERVER, bytes(range(1, 33)))


def root_of(digest: Digest, links: Iterable[bytes]) -> bytes:
    """The root over all links."""
    frontier = merkle.Frontier(digest)
    for link in links:
        frontier.append(link)
    return frontier.root()


def encode_records(records: Iterable[ChainRecord]) -> bytes:
    """Records as they stand in a file and in the pages of the API."""
    return b"".join(
        message_record(record.sequence, record.link)
        if record.kind == MESSAGE
        else other_record(record.kind, record.body, record.link)
        for record in records
    )


@dataclass(frozen=True)
class Stored:
    """A message as it is in a store."""

    sequence: int
    time_ns: int
    subject: bytes
    header: bytes
    payload: bytes

    def body(self) -> bytes:
        return message_body(self.sequence, self.time_ns, self.subject, self.header, self.payload)


def stored(sequence: int, **changes: object) -> Stored:
    """A message that differs from its neighbours in every part."""
    fields = {
        "sequence": sequence,
        "time_ns": 1_700_000_000_000_000_000 + sequence,
        "subject": b"orders.%d" % sequence,
        "header": b"NATS/1.0\r\nNumber: %d\r\n\r\n" % sequence if sequence % 2 else b"",
        "payload": b"payload %d" % sequence,
    }
    return Stored(**{**fields, **changes})  # type: ignore[arg-type]


@dataclass
class ReferenceChain:
    """Entries and checkpoints as a server would make them."""

    stream: str = "ORDERS"
    created: str = CREATED
    algorithm: str = SHA256
    key: nkeys.KeyPair = KEY
    records: list[ChainRecord] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    live: dict[int, Stored] = field(default_factory=dict)
    gone: dict[int, Stored] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.digest = digest_of(self.algorithm)
        self.before = first_link(self.digest, self.stream, self.created)

    @property
    def link(self) -> bytes:
        return self.records[-1].link if self.records else self.before

    @property
    def last_sequence(self) -> int:
        return max((record.sequence for record in self.records), default=0)

    def add(self, message: Stored) -> None:
        link = link_of(self.digest, self.link, MESSAGE, message.body())
        self.records.append(ChainRecord(MESSAGE, message.sequence, b"", link))
        self.live[message.sequence] = message

    def remove(self, *ranges: tuple[int, int], reason: int = DELETED) -> None:
        self._other(REMOVAL, ranges, reason)
        for first, last in ranges:
            for sequence in range(first, last + 1):
                if sequence in self.live:
                    self.gone[sequence] = self.live.pop(sequence)

    def give_back(self, *ranges: tuple[int, int]) -> None:
        self._other(RETURN, ranges, DELETED)
        for first, last in ranges:
            for sequence in range(first, last + 1):
                self.live[sequence] = self.gone.pop(sequence)

    def _other(self, kind: int, ranges: tuple[tuple[int, int], ...], reason: int) -> None:
        body = removal_body(1_700_000_001_000_000_000, reason, ranges)
        link = link_of(self.digest, self.link, kind, body)
        self.records.append(ChainRecord(kind, 0, body, link))

    def checkpoint(self, **changes: object) -> Checkpoint:
        """Signs the head as it is; `changes` are lies that are signed too."""
        links = [record.link for record in self.records]
        fields = {
            "stream": self.stream,
            "created": self.created,
            "algorithm": self.algorithm,
            "size": len(links),
            "first_seq": min(self.live, default=self.last_sequence + 1),
            "last_seq": self.last_sequence,
            "messages": len(self.live),
            "time": "2026-01-31T12:00:01.123456789Z",
            "link": self.link.hex(),
            "root": root_of(self.digest, links).hex(),
            "previous": checkpoints.digest(self.lines[-1]) if self.lines else "",
            "key": "",
        }
        unsigned = CheckpointStatement(**{**fields, **changes})  # type: ignore[arg-type]
        signed = checkpoints.sign(unsigned, self.key)
        self.lines.append(checkpoints.encode(signed))
        return signed

    def write(self, folder: Path, segment_entries: int = chain_folder.SEGMENT_ENTRIES_MAX) -> Path:
        """The folder `chain` of a stream, in segments of this many entries."""
        folder.mkdir(parents=True, exist_ok=True)
        for start in range(0, max(len(self.records), 1), segment_entries):
            part = self.records[start : start + segment_entries]
            before = self.records[start - 1].link if start else self.before
            header = chain_folder.encode_header(
                chain_folder.LinksHeader(self.algorithm, start, before)
            )
            (folder / chain_folder.segment_name(start)).write_bytes(header + encode_records(part))
        if self.lines:
            (folder / chain_folder.CHECKPOINTS).write_bytes(
                b"".join(line + b"\n" for line in self.lines)
            )
        return folder


def chain_of(messages: int, every: int = 4, algorithm: str = SHA256) -> ReferenceChain:
    """Messages from 1 on, a checkpoint after every so many."""
    chain = ReferenceChain(algorithm=algorithm)
    for sequence in range(1, messages + 1):
        chain.add(stored(sequence))
        if every and sequence % every == 0:
            chain.checkpoint()
    return chain


@st.composite
def histories(draw: st.DrawFn) -> ReferenceChain:
    """Any history: gaps, removals, returns, checkpoints at any place."""
    chain = ReferenceChain(algorithm=draw(st.sampled_from([SHA256, BLAKE3])))
    sequence = 0
    for step in draw(st.lists(st.sampled_from("mmmmmmgrruc"), min_size=3, max_size=40)):
        if step in "mg" or not chain.live:
            sequence += 1 if step != "g" else draw(st.integers(2, 5000))
            chain.add(stored(sequence))
        elif step == "r":
            gone = draw(st.sampled_from(sorted(chain.live)))
            chain.remove((gone, gone), reason=draw(st.integers(1, 5)))
        elif step == "u" and chain.gone:
            back = draw(st.sampled_from(sorted(chain.gone)))
            chain.give_back((back, back))
        elif step == "c":
            chain.checkpoint()
    return chain
