"""The errors of backups.

Owns the classes only. Each text is made where the error is found, and names the object or stream.
"""

from __future__ import annotations

from tradewind.errors import TradewindError


class BackupError(TradewindError):
    """A backup cannot be made, read or restored as asked. `hints` are lines with what to do."""

    def __init__(self, text: str, *hints: str) -> None:
        self.hints = hints
        super().__init__(text)


class StreamReadError(BackupError):
    """A server does not give a stream as it should; other streams are not affected."""


class DamagedMessagesError(BackupError):
    """Messages that cannot be read, from a byte of their object on."""

    def __init__(self, offset: int, reason: str) -> None:
        self.offset = offset
        self.reason = reason
        super().__init__(f"byte {offset}: {reason}")
