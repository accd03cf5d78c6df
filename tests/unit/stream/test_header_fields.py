"""Fields are removed from a header as nats-server does it: one after the other, byte for byte."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tradewind.stream.header_fields import EMPTY, remove_field

PIECES = st.sampled_from([b"\r\n", b"\r", b"\n", b"A:", b"A: x", b"AB: y", b"B: z", b"NATS/1.0"])


def naive(header: bytes, name: bytes) -> bytes:
    mark = b"\r\n" + name + b":"
    if mark not in header:
        return header
    while (start := header.find(mark)) >= 0:
        end = header.find(b"\r\n", start + 2)
        header = header[:start] + header[end if end >= 0 else len(header) :]
    return b"" if header == EMPTY else header


@given(st.lists(PIECES, max_size=16).map(b"".join))
def test_a_field_is_removed_wherever_it_stands(header: bytes) -> None:
    assert remove_field(header, b"A") == naive(header, b"A")
