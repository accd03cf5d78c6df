"""The header of the PROXY protocol, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import ProtocolError
from tradewind.server.links.proxy_header import (
    ADDRESSES_BYTES_MAX,
    LINE_BYTES_MAX,
    ProxyHeader,
    read_header,
)

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
LINE = b"PROXY TCP4 9.8.7.6 1.1.1.1 4000 4222\r\n"
BINARY = SIGNATURE + b"\x21\x11\x00\x0c" + bytes((9, 8, 7, 6, 1, 1, 1, 1, 15, 160, 16, 126))
BEGINNINGS = st.sampled_from([b"", b"PROXY ", b"PROXY TCP4 ", SIGNATURE, SIGNATURE + b"\x21\x11"])


def outcome(data: bytes) -> ProxyHeader | str | None:
    try:
        return read_header(data)
    except ProtocolError as error:
        return str(error)


@given(BEGINNINGS, st.binary(max_size=300))
def test_any_bytes_are_a_header_none_or_refused(beginning: bytes, rest: bytes) -> None:
    found = outcome(beginning + rest)
    if isinstance(found, ProxyHeader):
        assert found.size <= len(beginning + rest)
        assert found.remote is None or found.size > 0


@given(BEGINNINGS, st.binary(max_size=200))
def test_pieces_give_what_the_whole_gives(beginning: bytes, rest: bytes) -> None:
    """The first answer that is not "more" is the answer."""
    data = beginning + rest
    first = next((o for o in (outcome(data[:n]) for n in range(len(data))) if o is not None), None)
    if first is not None and data:
        whole = outcome(data)
        assert type(whole) is type(first)
        if isinstance(first, ProxyHeader):
            assert whole == first


@pytest.mark.parametrize("header", [LINE, BINARY])
def test_header_ends_where_it_ends(header: bytes) -> None:
    assert all(read_header(header[:size]) is None for size in range(len(header)))
    found = read_header(header + b"PING\r\n")
    assert found is not None
    assert found.remote is not None
    assert (found.size, found.remote.ip, found.remote.port) == (len(header), "9.8.7.6", 4000)


def test_no_more_is_kept_than_a_header_has() -> None:
    with pytest.raises(ProtocolError, match="too long"):
        read_header(b"PROXY " + b"a" * LINE_BYTES_MAX)
    size = (ADDRESSES_BYTES_MAX + 1).to_bytes(2, "big")
    with pytest.raises(ProtocolError, match="at most 4096"):
        read_header(SIGNATURE + b"\x20\x00" + size)
