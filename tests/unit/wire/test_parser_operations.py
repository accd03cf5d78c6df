"""The client protocol by example; the model in tests/model covers the rest."""

from __future__ import annotations

import pytest

from tradewind.errors import ProtocolError
from tradewind.wire.parser import Parser


@pytest.mark.parametrize(
    ("data", "operation"),
    [
        (b"PUB a 2\r\nhi\r\n", ("PUB", b"a", b"", b"", b"hi")),
        (b"pub a reply 2\nhi\r\n", ("PUB", b"a", b"reply", b"", b"hi")),
        (b"PUB\ta\t\t0 \r\n\r\n", ("PUB", b"a", b"", b"", b"")),
        (b"PUB a 000000002\r\n\r\n\r\n", ("PUB", b"a", b"", b"", b"\r\n")),
        (b"HPUB a 3 5\r\nH\r\nhi\r\n", ("HPUB", b"a", b"", b"H\r\n", b"hi")),
        (b"HPUB a r 0 0\r\n\r\n", ("HPUB", b"a", b"r", b"", b"")),
        (b"SUB a 1\r\n", ("SUB", b"a", b"", b"1")),
        (b"Sub a q\r1\r\n", ("SUB", b"a", b"q", b"1")),
        (b"UNSUB 1\r\n", ("UNSUB", b"1", 0)),
        (b"UNSUB 1 5\r\n", ("UNSUB", b"1", 5)),
        (b"UNSUB 1 x\r\n", ("UNSUB", b"1", 0)),
        (b"UNSUB 1 1000000000\r\n", ("UNSUB", b"1", 0)),
        (b"PING anything\x00\r\r\n", ("PING",)),
        (b"pong\n", ("PONG",)),
        (b"+OK\r\n", ("+OK",)),
        (b"-ERR 'x'\r\n", ("-ERR", b"'x'")),
        (b"CONNECT{}\r\n", ("CONNECT", b"{}")),
        (b"CONNECT \t {} \r\n", ("CONNECT", b"{} ")),
        (b"INFO\n", ("INFO", b"")),
    ],
)
def test_operations(data: bytes, operation: tuple[str | bytes | int, ...]) -> None:
    parser = Parser()
    assert parser.feed(data) == [operation]
    assert (parser.pending_bytes, parser.position) == (0, len(data))


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"\r", "unknown"),
        (b" ", "unknown"),
        (b"PX", "unknown"),
        (b"PIN\r", "unknown"),
        (b"M", "unknown"),
        (b"PUBa", "unknown"),
        (b"SUB\r", "unknown"),
        (b"-ERR\r", "unknown"),
        (b"PUB a 2\r\nhi\n", "unknown"),
        (b"PUB a 2\r\nhi\rx", "unknown"),
        (b"PUB \r\n", "arguments"),
        (b"PUB a\r\n", "arguments"),
        (b"PUB a b c 1\r\n", "arguments"),
        (b"PUB a -1\r\n", "arguments"),
        (b"PUB a +1\r\n", "arguments"),
        (b"PUB a 0x1\r\n", "arguments"),
        (b"PUB a 1\r\r\n", "arguments"),
        (b"PUB a 0000000001\r\n", "arguments"),
        (b"PUB a 18446744073709551617\r\n", "arguments"),
        (b"PUB a 999999999\r\n", "payload"),
        (b"PUB a 1048577\r\n", "payload"),
        (b"HPUB a 5\r\n", "arguments"),
        (b"HPUB a 5 4\r\n", "arguments"),
        (b"HPUB a -1 4\r\n", "arguments"),
        (b"HPUB a b c 1 2\r\n", "arguments"),
        (b"SUB a\r\n", "arguments"),
        (b"SUB a b c d\r\n", "arguments"),
        (b"UNSUB \r\n", "arguments"),
        (b"UNSUB 1 2 3\r\n", "arguments"),
        (b"SUB " + b"a" * 4097, "control line"),
        (b"CONNECT " + b"a" * 4097, "control line"),
    ],
)
def test_faults(data: bytes, fault: str) -> None:
    parser = Parser()
    with pytest.raises(ProtocolError, match=fault):
        parser.feed(b"PING\r\n" + data)
    assert (parser.fault, parser.before_fault, parser.position) == (fault, [("PING",)], 6)
    # Not a byte earlier.
    assert Parser().feed(data[:-1]) == []


def test_headers_that_were_not_agreed_on_are_a_fault() -> None:
    with pytest.raises(ProtocolError, match="arguments"):
        Parser(headers=False).feed(b"HPUB a 0 0\r\n")


def test_sizes_at_the_limits_are_accepted() -> None:
    parser = Parser(control_line_max=10, payload_max=3)
    operations = parser.feed(b"PUB     aaaaaaaa 3\r\nabc\r\nSUB aaaaaaaa 1\r\n")
    assert [operation[0] for operation in operations] == ["PUB", "SUB"]


@pytest.mark.parametrize("wrong", [None, "PING\r\n", bytearray(b"PING\r\n")])
def test_only_bytes_can_be_fed(wrong: object) -> None:
    with pytest.raises(TypeError):
        Parser().feed(wrong)  # type: ignore[arg-type]
