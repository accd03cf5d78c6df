"""The inputs of a restore, and the interface of each backup format.

Owns names and meanings only; `restore` distinguishes the formats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from tradewind.errors import StoreError

if TYPE_CHECKING:
    from tradewind.store.folder.stream_folder import StreamFolder
    from tradewind.store.format.consumer_file import ConsumerState
    from tradewind.store.format.meta import StreamMeta
    from tradewind.store.table.message_store import MessageStore


class NoRoomError(StoreError):
    """The account or the server has no room for the content of the backup."""


class RestoredConsumer(msgspec.Struct, frozen=True):
    """A consumer of a backup; its configuration is not checked yet."""

    name: str
    config: dict[str, Any]
    state: ConsumerState


class RestorePlan(msgspec.Struct, frozen=True):
    """The stream to be created, with its configuration.

    `staging` is the folder for it, None for a server without files. `message_bytes_max` limits
    header and payload of a message together.
    """

    meta: StreamMeta
    staging: StreamFolder | None
    is_in_memory: bool
    message_bytes_max: int
    now_ns: int


class Restore(Protocol):
    """The restore of one backup format."""

    claimed_bytes: int
    consumers: list[RestoredConsumer]

    @property
    def stored_bytes(self) -> int:
        """The bytes stored so far."""

    def take(self, plain: bytes, bytes_allowed: int) -> None:
        """Take a piece of the archive."""

    def finish(self, bytes_allowed: int) -> MessageStore | None:
        """The archive has ended: make everything durable; returns the messages if in memory."""

    def abandon(self) -> None:
        """Release everything; the caller removes the folder."""
