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
        """It is time to ask for more; only after `set_refill`."""
        raise AssertionError("asks for nothing by itself")

    def _on_status(self, message: Msg) -> None:
        """A status of the server in place of a message."""

    def _on_message(self, message: Msg) -> None:
        """A message is about to be queued; only after `observe`."""
        raise AssertionError(f"does not observe messages: {message!r}")

    def _on_gap(self) -> None:
        """A message is missing, what follows is dropped; only after `expect_from_start`."""
        raise AssertionError("does not expect an order")

    def _on_served(self) -> None:
        """All messages of a batch have arrived; only after `set_batch`."""
        raise AssertionError("has no end")


class AckOwner(Protocol):
    """The sender of the messages whose acknowledgements an `AckInbox` gets."""

    def _on_acknowledged(self) -> None:
        """The outcome of a message is known; only while the inbox is watched."""

    def _on_failed(self, pending: PendingAck) -> None:
        """The stream refused a message."""

    def _on_refused(self, pending: PendingAck, message: Msg) -> None:
        """An answer without a body: nobody listens, or the server says why not."""


class RowOwner(Protocol):
    """The sender of the rows whose acknowledgements a `RowInbox` gets."""

    def _on_low(self) -> None:
        """No more rows wait than `wake_when` said."""

    def _on_failed(self, token: int, error: Exception) -> None:
        """The stream refused a row; the owner drops it."""

    def _on_refused(self, token: int, message: Msg) -> None:
        """An answer without a body: nobody listens, or the server says why not."""
