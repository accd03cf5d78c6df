"""The behaviour of a store of messages, written for reading: one dict, no blocks, no caches.

Owns the answers that the real stores are compared with. Every question is answered by looking at
all messages, so there is nothing here that could be out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tradewind.store.contract import MessageCopy, StoreLimits, StoreState, SubjectState

# What a message counts for, from the sizes of its subject, header and payload.
Size = Callable[[int, int, int], int]


def memory_bytes(subject_bytes: int, header_bytes: int, payload_bytes: int) -> int:
    """The size that the official server counts for a message of a stream in memory."""
    return subject_bytes + header_bytes + payload_bytes + 16


def matches(pattern: bytes, subject: bytes) -> bool:
    """Whether a filter lets a subject through."""
    wanted, given = pattern.split(b"."), subject.split(b".")
    if wanted[-1] == b">":
        given = given[: len(wanted) - 1] if len(given) >= len(wanted) else [b""]
        wanted = wanted[:-1]
    return len(wanted) == len(given) and all(
        token in (b"*", other) for token, other in zip(wanted, given, strict=True)
    )


class ModelStore:
    """The messages by sequence."""

    def __init__(self, limits: StoreLimits | None, size: Size) -> None:
        self.limits = limits or StoreLimits()
        self.held: dict[int, MessageCopy] = {}
        self.last_seq = 0
        self.last_timestamp_ns = 0
        self.is_purged = False
        self._size = size

    # --- questions ---------------------------------------------------------------------------

    def bytes_of(self, message: MessageCopy) -> int:
        """The size that one message counts for."""
        return self._size(len(message.subject), len(message.header), len(message.payload))

    @property
    def bytes(self) -> int:
        """The size that all messages count for."""
        return sum(self.bytes_of(message) for message in self.held.values())

    @property
    def first_seq(self) -> int:
        """The lowest sequence with a message; the next one to come if there is none."""
        return min(self.held, default=self.last_seq + 1 if self.last_seq else int(self.is_purged))

    @property
    def state(self) -> StoreState:
        """The totals."""
        first = self.held.get(self.first_seq)
        return StoreState(
            len(self.held),
            self.bytes,
            self.first_seq,
            first.timestamp_ns if first else 0,
            self.last_seq,
            self.last_timestamp_ns,
            len({message.subject for message in self.held.values()}),
            self.last_seq - self.first_seq + 1 - len(self.held) if self.held else 0,
        )

    def matching(
        self, patterns: Iterable[bytes] = (), seq: int = 0, up_to: int = 0
    ) -> list[MessageCopy]:
        """The messages that pass, ascending; no patterns let everything through."""
        wanted = tuple(patterns)
        return [
            message
            for number, message in sorted(self.held.items())
            if number >= seq
            and (not up_to or number <= up_to)
            and (not wanted or any(matches(pattern, message.subject) for pattern in wanted))
        ]

    def last_sequences(self, patterns: Iterable[bytes], up_to: int = 0) -> list[int]:
        """The newest of every subject that passes."""
        newest = {message.subject: message.seq for message in self.matching(patterns, 0, up_to)}
        return sorted(newest.values())

    def sequence_at(self, timestamp_ns: int) -> int:
        """The first one at or after a time."""
        late = [m.seq for m in self.matching() if m.timestamp_ns >= timestamp_ns]
        return late[0] if late else self.last_seq + 1

    def subjects(self, pattern: bytes = b"") -> dict[bytes, int]:
        """Messages per subject."""
        totals: dict[bytes, int] = {}
        for message in self.matching((pattern,) if pattern else ()):
            totals[message.subject] = totals.get(message.subject, 0) + 1
        return totals

    def subject_state(self, subject: bytes) -> SubjectState | None:
        """One subject."""
        found = [m.seq for m in self.held.values() if m.subject == subject]
        return SubjectState(len(found), min(found), max(found)) if found else None

    def deleted_sequences(self, limit: int = 100_000) -> list[int]:
        """The gaps."""
        if not self.held:
            return []
        gaps = (seq for seq in range(self.first_seq, self.last_seq + 1) if seq not in self.held)
        return [seq for _, seq in zip(range(limit), gaps, strict=False)]

    # --- changes -----------------------------------------------------------------------------

    def store(self, subject: bytes, header: bytes, payload: bytes, timestamp_ns: int) -> int:
        """Append, then let the limits remove: of the subject, then by number, then by size."""
        self.last_seq += 1
        self.last_timestamp_ns = timestamp_ns
        message = MessageCopy(self.last_seq, timestamp_ns, subject, header, payload)
        self.held[self.last_seq] = message
        self._trim(subject)
        self._enforce_totals()
        return self.last_seq

    def skip(self, through: int, now_ns: int = 0) -> None:
        """Use sequences up."""
        if through > self.last_seq:
            self.last_timestamp_ns = max(self.last_timestamp_ns, now_ns)
        self.last_seq = max(self.last_seq, through)

    def remove(self, seq: int) -> bool:
        """Delete one."""
        return self.held.pop(seq, None) is not None

    def purge(self, pattern: bytes = b"", below: int = 0, keep: int = 0) -> int:
        """Delete what passes."""
        if pattern in (b"", b">") and below > 1:
            return self.compact(below)
        if pattern in (b"", b">") and not below and not keep:
            self.is_purged = True
        chosen = self.matching((pattern,) if pattern else ())
        if below:
            chosen = [message for message in chosen if message.seq < below]
        if keep:
            chosen = chosen[: max(0, len(chosen) - keep)]
        for message in chosen:
            del self.held[message.seq]
        return len(chosen)

    def compact(self, seq: int) -> int:
        """Delete what is below; the next message is never below it either."""
        gone = [number for number in self.held if number < seq]
        for number in gone:
            del self.held[number]
        self.is_purged = self.is_purged or seq > self.last_seq
        self.skip(seq - 1)
        return len(gone)

    def expire(self, now_ns: int) -> int:
        """Delete from the front while the first one is too old."""
        before = len(self.held)
        while self.limits.age_max_ns > 0 and self.held:
            if self.held[self.first_seq].timestamp_ns + self.limits.age_max_ns > now_ns:
                break
            del self.held[self.first_seq]
        return before - len(self.held)

    def apply_limits(self, now_ns: int) -> int:
        """All limits, in the order in which `store` applies them."""
        before = len(self.held)
        for subject in {message.subject for message in self.held.values()}:
            self._trim(subject)
        self._enforce_totals()
        self.expire(now_ns)
        return before - len(self.held)

    def _trim(self, subject: bytes) -> None:
        keep = self.limits.subject_msgs_max
        if keep > 0:
            of_subject = sorted(m.seq for m in self.held.values() if m.subject == subject)
            for seq in of_subject[:-keep]:
                del self.held[seq]

    def _enforce_totals(self) -> None:
        while 0 < self.limits.msgs_max < len(self.held):
            del self.held[self.first_seq]
        while self.held and 0 < self.limits.bytes_max < self.bytes:
            del self.held[self.first_seq]
