"""The condition of a purge: the header that names the stream that is meant.

Owns the header `Tradewind-Expected-Created` of STREAM.PURGE and its check. A name is all that a
request says about its stream, and a stream that is deleted and created again has the same name;
with the header, the purge is refused unless the stream was created at that time. nats-server
ignores the header.
"""

from __future__ import annotations

from typing import Final

from tradewind.api.own_errors import EXPECTED_CREATED_INVALID, STREAM_RECREATED
from tradewind.api.times import format_time, parse_time

EXPECTED_CREATED_HEADER: Final = "Tradewind-Expected-Created"
_FIELD_START: Final = f"\r\n{EXPECTED_CREATED_HEADER}:".lower().encode()


def check_created(header: bytes, stream: str, created_ns: int) -> None:
    """ApiError if the header of a request means a stream that was created at another time."""
    start = header.lower().find(_FIELD_START)
    if start < 0:
        return
    start += len(_FIELD_START)
    end = header.find(b"\r\n", start)
    value = header[start : end if end >= 0 else len(header)].strip().decode("utf-8", "replace")
    try:
        expected_ns = parse_time(value)
    except ValueError:
        raise EXPECTED_CREATED_INVALID(name=EXPECTED_CREATED_HEADER, value=value[:64]) from None
    if expected_ns != created_ns:
        raise STREAM_RECREATED(
            stream=stream, created=format_time(created_ns), expected=format_time(expected_ns)
        )
