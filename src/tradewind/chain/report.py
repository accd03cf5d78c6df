"""The findings of a verification, as values that become JSON.

Owns the kinds of faults and their members. It never verifies anything.

- `changed`: a stored message is not the one whose hash is in the chain
- `reordered`: it is the message of another sequence
- `removed`: a message is missing, and no entry says that it was removed
- `inserted`: a message is stored, and the chain has no entry for it
- `returned`: a message is stored, though an entry says that it was removed
- `entry`: the chain itself was changed here: a link, a removal, entries cut out or put in
- `checkpoint`: one is forged, of another key or stream, or does not fit
- `file`: it cannot be read as what it should be
"""

from __future__ import annotations

from typing import Final

import msgspec

CHANGED: Final = "changed"
REORDERED: Final = "reordered"
REMOVED: Final = "removed"
INSERTED: Final = "inserted"
RETURNED: Final = "returned"
ENTRY: Final = "entry"
CHECKPOINT: Final = "checkpoint"
FILE: Final = "file"

# This many faults of a verification are listed; all are counted.
FAULTS_MAX: Final = 1000


class ChainFault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fault. `sequence` to `last_sequence` are messages, `index` is an entry.

    `parts` are the differing parts (time, subject, headers, payload), if there was a second copy;
    otherwise `content`.
    """

    kind: str
    text: str
    sequence: int = 0
    last_sequence: int = 0
    index: int = -1
    parts: tuple[str, ...] = ()


class ChainReport(msgspec.Struct, kw_only=True):
    """The result of a verification.

    Signed checkpoints that fit cover the first `covered_size` entries. Everything up to sequence
    `proved_sequence` is proved: it is covered, and nothing in it is wrong. Later entries are
    linked, but anyone who can write the files could have made them. `removed` counts the messages
    that entries record as removed, by reason.
    """

    stream: str
    created: str = ""
    algorithm: str = ""
    size: int = 0
    last_sequence: int = 0
    messages: int = 0
    removed: dict[str, int] = {}
    checkpoints: int = 0
    signers: list[str] = []
    covered_size: int = 0
    proved_sequence: int = 0
    # Stored after the last entry, so nothing is known about them.
    uncovered: int = 0
    # For a copy: messages that it lacks for reasons of its own; messages that only it still has.
    not_copied: int = 0
    kept: int = 0
    faults: list[ChainFault] = []
    fault_count: int = 0
    notes: list[str] = []

    @property
    def is_intact(self) -> bool:
        """Whether nothing is wrong."""
        return not self.fault_count

    def add(self, fault: ChainFault) -> None:
        """Count a fault, and list it if there is room."""
        self.fault_count += 1
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(fault)


def sequences_text(first: int, last: int) -> str:
    """One sequence or a range, for a sentence."""
    return f"sequence {first}" if first == last else f"sequences {first} to {last}"
