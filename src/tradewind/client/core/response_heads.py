"""The head of an HTTP response, collected from the pieces in which it arrives.

Owns the search for its end and its largest size. It never interprets a line.
"""

from __future__ import annotations

from tradewind.errors import ProtocolError

_END = b"\r\n\r\n"


class ResponseHead:
    """One response. `source` names it in the error, such as "the answer of the proxy"."""

    def __init__(self, source: str, bytes_max: int) -> None:
        self._source = source
        self._bytes_max = bytes_max
        self._bytes = bytearray()

    def feed(self, data: bytes) -> tuple[str, bytes] | None:
        """Take bytes; returns the head, without the empty line, and the bytes behind it.

        None: more is needed. Raises ProtocolError if the head has more bytes than allowed. Each
        byte is looked at once, however small the pieces are.
        """
        known = len(self._bytes)
        self._bytes += data
        end = self._bytes.find(_END, max(known - len(_END) + 1, 0))
        if (end if end >= 0 else len(self._bytes)) > self._bytes_max:
            raise ProtocolError(f"{self._source} does not end within {self._bytes_max} bytes")
        if end < 0:
            return None
        rest = bytes(self._bytes[end + len(_END) :])
        head = self._bytes[:end].decode("latin-1")
        self._bytes.clear()
        return head, rest
