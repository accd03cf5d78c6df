"""Every exception that Tradewind raises on purpose.

Owns the class hierarchy only: the texts are created where the error is found, because only that
place can name the field, the byte or the file. It is never used for internal bugs; those are
assertions.
"""

from __future__ import annotations

from typing import Final

# What reading JSON of others can raise: it is none, not UTF-8, not of the wanted type, or too deep.
JSON_ERRORS: Final = (ValueError, RecursionError)


class TradewindError(Exception):
    """Base of all errors that a user may see; `str(error)` is one readable line."""


class ConfigError(TradewindError):
    """A configuration file, flag or option is wrong.

    `path` and `line` locate it (line is 1-based, 0 when the fault has no line, as for a flag).
    """

    def __init__(self, text: str, path: str = "", line: int = 0) -> None:
        self.text = text
        self.path = path
        self.line = line
        place = f"{path}:{line}: " if path and line else f"{path}: " if path else ""
        super().__init__(place + text)


class ProtocolError(TradewindError):
    """The peer broke the wire protocol; `wire_text` is what it is told (empty: nothing is sent)."""

    def __init__(self, text: str, wire_text: str = "") -> None:
        self.wire_text = wire_text
        super().__init__(text)


class ServerStartError(TradewindError):
    """The server cannot start: an address in use, a file that cannot be read or written."""


class StoreError(TradewindError):
    """A store cannot do what it was asked: no space, a failed write, a folder that is in use."""


class CorruptRecord(StoreError):  # noqa: N818 - it names what was found, not what happened to us
    """Bytes on disk are not what was written there: where, and how it shows."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        self.path = path
        self.offset = offset
        self.reason = reason
        super().__init__(f"{path}: byte {offset}: {reason}")
