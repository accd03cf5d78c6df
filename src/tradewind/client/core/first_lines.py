"""The first text that a peer sends, up to a mark, collected from the pieces in which it arrives.

Owns the search for the mark and the largest size before it. It never interprets a line.
"""

from __future__ import annotations

from tradewind.errors import ProtocolError

END_OF_HEAD = b"\r\n\r\n"
END_OF_LINE = b"\n"


class FirstLines:
    """Collects one such text. `source` names it in errors, such as "the answer of the proxy"."""

    def __init__(self, source: str, end: bytes, bytes_max: int) -> None:
        self._source = source
        self._end = end
        self._bytes_max = bytes_max
        self._bytes = bytearray()

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Take bytes; returns the text without the mark, and the bytes after it.

        Returns None while the mark has not arrived. Raises ProtocolError if the text has more bytes
        than allowed. Each byte is searched once, however small the pieces are.
        """
        known = len(self._bytes)
        self._bytes += data
        end = self._bytes.find(self._end, max(known - len(self._end) + 1, 0))
        if (end if end >= 0 else len(self._bytes)) > self._bytes_max:
            raise ProtocolError(f"{self._source} does not end within {self._bytes_max} bytes")
        if end < 0:
            return None
        text, rest = bytes(self._bytes[:end]), bytes(self._bytes[end + len(self._end) :])
        self._bytes.clear()
        return text, rest
