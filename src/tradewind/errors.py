"""All exceptions that Tradewind raises on purpose.

Owns the class hierarchy only: the texts are created where the error is found, because only that
place can name the field, the byte or the file. Internal bugs never use these classes; they are
assertions.
"""

from __future__ import annotations

from typing import Final

# The exceptions of decoding untrusted JSON: invalid, not UTF-8, of another type, or too deep.
JSON_ERRORS: Final = (ValueError, RecursionError)


class TradewindError(Exception):
    """Base of all errors that a user may see; `str(error)` is one readable line."""


class ConfigError(TradewindError):
    """A configuration file, flag or option is not valid.

    `path` and `line` locate the error (the line is 1-based, and 0 if there is none, as for a flag).
    """

    def __init__(self, text: str, path: str = "", line: int = 0) -> None:
        self.text = text
        self.path = path
        self.line = line
        place = f"{path}:{line}: " if path and line else f"{path}: " if path else ""
        super().__init__(place + text)


class ProtocolError(TradewindError):
    """The peer violated the wire protocol; `wire_text` is the error sent to it (empty: nothing is
    sent).
    """

    def __init__(self, text: str, wire_text: str = "") -> None:
        self.wire_text = wire_text
        super().__init__(text)


class ServerStartError(TradewindError):
    """The server cannot start: an address in use, a file that cannot be read or written."""


class StoreError(TradewindError):
    """A store cannot do what was requested: no space, a failed write, a folder that is in use."""


class CorruptRecord(StoreError):  # noqa: N818 - it names what was found, not what happened to us
    """Bytes on disk are not those that were written there: their place, and the evidence."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        self.path = path
        self.offset = offset
        self.reason = reason
        super().__init__(f"{path}: byte {offset}: {reason}")
