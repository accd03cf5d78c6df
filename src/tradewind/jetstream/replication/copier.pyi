from typing import Protocol

from tradewind.consumer.done_listener import DoneListener
from tradewind.consumer.taker import TakerPart
from tradewind.jetstream.replication.inbox import Inbox
from tradewind.stream.ingest import Ingest

RETRY_NS: int

class CopierOwner(Protocol):
    """The owner of a copier, which handles the unusual cases."""

    def copy_slowly(
        self, seq: int, timestamp: int, subject: bytes, header: bytes, payload: bytes
    ) -> bool:
        """Store a copy that is not handled by the fast path; false if it has to be retried
        later.
        """
    def map_subject(self, subject: bytes) -> bytes:
        """The subject of the copy of a message with this subject."""
    def hold(self, reason: str) -> bool:
        """Report why the next copy cannot be stored: call `try_later`. Returns false."""

class Copier(TakerPart):
    keeps_place: bool
    is_plain: bool
    maps: bool
    expires: bool
    rolls_up: bool
    head: bytes
    middle: bytes
    tail: bytes
    def __init__(
        self,
        owner: CopierOwner,
        target: Ingest,
        patterns: tuple[bytes, ...],
        *,
        keeps_place: bool,
    ) -> None: ...
    @property
    def target(self) -> Ingest: ...
    @property
    def origin(self) -> Ingest | None: ...
    @property
    def inbox(self) -> Inbox | None: ...
    @property
    def patterns(self) -> tuple[bytes, ...]: ...
    @property
    def next_seq(self) -> int: ...
    @property
    def copied_seq(self) -> int: ...
    @property
    def confirmed_seq(self) -> int: ...
    @property
    def is_crowded(self) -> bool: ...
    @property
    def due_ns(self) -> int: ...
    @property
    def has_unreleased(self) -> bool: ...
    def connect(
        self,
        origin: Ingest,
        next_seq: int,
        first_seq: int,
        done_listener: DoneListener | None = None,
    ) -> None: ...
    def connect_inbox(self, inbox: Inbox, next_seq: int) -> None: ...
    def set_done_listener(self, done_listener: DoneListener | None = None) -> None: ...
    def disconnect(self) -> None: ...
    def forget_copied(self, seq: int = 0) -> None: ...
    def forget_mapped(self) -> None: ...
    def fill(self, visible_seq: int) -> bool: ...
    def try_later(self) -> None: ...
    def confirm(self) -> None: ...
