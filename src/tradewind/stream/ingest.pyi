from typing import Protocol

from tradewind.broker.accounts import Account
from tradewind.broker.router import Router
from tradewind.errors import StoreError
from tradewind.store.folder.filestore import FileStore
from tradewind.store.table.message_store import MessageStore
from tradewind.stream.fast_batch_intake import FastBatches
from tradewind.stream.fast_core import OpenFastBatch
from tradewind.stream.message_ids import MessageIds
from tradewind.stream.message_recorder import MessageRecorder
from tradewind.stream.publish_replies import ReplyQueue, Rider
from tradewind.stream.schedule_intake import ScheduleIntake
from tradewind.stream.staging import OpenBatch, Staging
from tradewind.stream.upkeep import Upkeep

BUSY_HEADER: bytes

class IngestOwner(Protocol):
    """A stream, as its ingest sees it."""

    @property
    def name(self) -> str: ...
    @property
    def is_active(self) -> bool: ...
    @property
    def files(self) -> FileStore | None: ...
    @property
    def upkeep(self) -> Upkeep: ...
    def is_wanted(self, subject: bytes) -> bool:
        """Whether a message of this subject would have a consumer; called while `asks_interest`."""
    def clock_went_back(self, distance_ns: int) -> None:
        """Called when the next message gets a time this much before the last one."""

class CloserLook(Protocol):
    """The slow path of a stream, as its ingest sees it."""

    @property
    def fast_batches(self) -> FastBatches: ...
    def publish(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        """Take a message that needs a closer look."""
    def commit_batch(self, batch: OpenBatch, reply: bytes) -> None:
        """Store a batch that needs a closer look; StoreError."""
    def store_failed(self, error: StoreError, reply: bytes) -> None:
        """Called when a message could not be stored."""
    def publish_failed(self, reply: bytes) -> None:
        """Called after an internal error: the message may be stored or not."""

class Ingest(MessageRecorder):
    slow_path: CloserLook
    acknowledged_seq: int
    acknowledged_bytes: int
    scheduling: ScheduleIntake | None
    def __init__(
        self,
        router: Router,
        account: Account,
        store: MessageStore,
        ids: MessageIds,
        ack_prefix: bytes,
        busy_body: bytes,
        waiting_msgs_max: int,
        waiting_bytes_max: int,
    ) -> None: ...
    @property
    def router(self) -> Router: ...
    @property
    def waits(self) -> bool: ...
    @property
    def replies(self) -> ReplyQueue: ...
    @property
    def refusals(self) -> ReplyQueue: ...
    @property
    def waiting_msgs_max(self) -> int: ...
    @property
    def waiting_bytes_max(self) -> int: ...
    def configure(
        self,
        *,
        acks: bool,
        is_plain: bool,
        counts: bool,
        takes_batches: bool,
        waits: bool,
        writes: bool,
        asks_interest: bool,
        discards_new: bool,
        discards_new_per_subject: bool,
        message_bytes_max: int,
    ) -> None: ...
    def attach(self, subject: bytes) -> int: ...
    def submit(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None: ...
    def acknowledge(
        self, reply: bytes, seq: int, duplicate: bool = False, *, tail: bytes = b""
    ) -> None: ...
    def answer(self, reply: bytes, body: bytes) -> None: ...
    fast: OpenFastBatch | None
    staging: Staging
    def commit_batch(self, batch: OpenBatch, reply: bytes) -> None: ...
    def acknowledge_always(self, reply: bytes, seq: int, *, tail: bytes = b"") -> None: ...
    def answer_when_stored(self, reply: bytes, seq: int, body: bytes) -> None: ...
    def refuse(self, reply: bytes) -> None: ...
    def send_copy(
        self, seq: int, subject: bytes, reply: bytes, header: bytes, payload: bytes
    ) -> None: ...
    def deadline_changed(self) -> None: ...
    def end_turn(self) -> int: ...
    hidden_from: int
    discarded_from: int
    def visible(self) -> int: ...
    def readable(self) -> int: ...
    @property
    def unacknowledged_turns(self) -> int: ...
    def acknowledge_through(self, seq: int, failure: bytes | None = None) -> None: ...
    def submit_copy(
        self, rider: Rider, subject: bytes, reply: bytes, header: bytes, payload: bytes
    ) -> None: ...
