"""The interfaces that the compiled JetStream inboxes call on their owners.

Has no behaviour. These methods are called inside the parser, so they must never block or raise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tradewind.client.core.connection_owners import InboxOwner

if TYPE_CHECKING:
    from tradewind.client.core.message import Msg
    from tradewind.client.streams.ack_inbox import PendingAck


class PullOwner(InboxOwner, Protocol):
    """The reader of a `PullInbox`."""

    def _refill(self) -> None:
        """Called when it is time to request more messages; only after `set_refill`."""
        raise AssertionError("asks for nothing by itself")

    def _on_status(self, message: Msg) -> None:
        """Called when the server sends a status in place of a message."""

    def _on_message(self, message: Msg) -> None:
        """Called when a message is about to be queued; only after `observe`."""
        raise AssertionError(f"does not observe messages: {message!r}")

    def _on_gap(self) -> None:
        """Called when a message is missing: later ones are dropped; only after
        `expect_from_start`.
        """
        raise AssertionError("does not expect an order")

    def _on_served(self) -> None:
        """Called when all messages of a batch have arrived; only after `set_batch`."""
        raise AssertionError("has no end")


class AckOwner(Protocol):
    """The sender of the messages whose acknowledgements an `AckInbox` gets."""

    def _on_acknowledged(self) -> None:
        """Called when the outcome of a message is known; only while the inbox is watched."""

    def _on_failed(self, pending: PendingAck) -> None:
        """Called when the stream refuses a message."""

    def _on_refused(self, pending: PendingAck, message: Msg) -> None:
        """Called for an answer without a body, whose status says why the message is not stored."""


class RowOwner(Protocol):
    """The sender of the rows whose acknowledgements a `RowInbox` gets."""

    def _on_low(self) -> None:
        """Called when no more rows wait than `wake_when` said."""

    def _on_failed(self, token: int, error: Exception) -> None:
        """Called when the stream refuses a row; the owner drops it."""

    def _on_refused(self, token: int, message: Msg) -> None:
        """Called for an answer without a body, whose status says why the row is not stored."""
