"""Which messages leave the fast path for a trace: the search in C against a reader line by line.

The reader is written as nats-server reads headers: a name reaches from the end of the line before
to the next colon, so lines without one become a part of the next name.
"""

from __future__ import annotations

import re
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from thoroughness import some
from tradewind.broker.message_trace import header_fields
from tradewind.testing import FakeConnection, InProcessServer

FIRST = b"NATS/1.0\r\n"
DESTINATION = b"Nats-Trace-Dest"
PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
# Behind every header, so that whoever reads too far finds it.
TRAP = b"Nats-Trace-Dest: trap\r\ntraceparent: " + PARENT + b"\r\n\r\n"
SAMPLED = re.compile(rb"[+0-7][0-9a-fA-F]")


def fields_of(header: bytes) -> list[tuple[bytes, bytes]]:
    fields = []
    rest = header[len(FIRST) :]
    while b":" in rest:
        name, rest = rest.split(b":", 1)
        value, end, rest = rest.partition(b"\r\n")
        if not end:
            break
        if value.strip(b" \t"):
            fields.append((name, value.strip(b" \t")))
    return fields


def is_sampled(value: bytes) -> bool:
    parts = value.split(b"-")
    return len(parts) == 4 and bool(SAMPLED.fullmatch(parts[3])) and int(parts[3], 16) % 2 == 1


def asks_for_trace(header: bytes, *, parents: bool) -> bool:
    if not header.startswith(FIRST):
        return False
    fields = fields_of(header)
    for name, value in fields:
        if name == DESTINATION:
            return value != b"trace disabled"
    return parents and any(
        name.lower() == b"traceparent" and is_sampled(value) for name, value in fields
    )


class Watched:
    """A server that only notes which messages are to be traced."""

    def __init__(self) -> None:
        self.server = InProcessServer()
        self.broker = self.server.broker
        self.traced: list[int] = []
        self.broker.publish_traced = (  # type: ignore[method-assign]
            lambda _session, handle: self.traced.append(handle)
        )
        self.client: FakeConnection = self.server.connect(
            b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'
        )

    def asks(self, header: bytes, *, parents: bool) -> bool:
        self.broker.accounts["$G"].traces_parents = parents
        body = header + TRAP
        self.client.send(b"HPUB a %d %d\r\n%b\r\n" % (len(header), len(body), body))
        assert self.client.session.close_reason == ""
        found, self.traced = bool(self.traced), []
        return found


NAMES = [
    DESTINATION, DESTINATION, b"traceparent", b"Traceparent", b"TRACEPARENT", b"tracepareNt",
    b"nats-trace-dest", b"X-Nats-Trace-Dest", b" Nats-Trace-Dest", b"Nats-Trace-Dest ",
    b"Nats-Trace-Destination", b"Nats-Trace-Only", b"xtraceparent", b"traceparent ", b"", b"A",
    b"A\r\nNats-Trace-Dest", b"Nats-Trace-Dest\r\nB", b"TRACE\x10ARENT",
]  # fmt: skip
ENDS = [b"01", b"00", b"+1", b"-1", b"7f", b"7F", b"3B", b"80", b"ff", b"1", b"001", b"0g", b"g1"]
VALUES = [
    b"traces", b"x", b"trace disabled", b"trace disabled2", b"Trace disabled", b"", b"a:b",
    *(PARENT[:-2] + end for end in ENDS), *(b"---" + end for end in ENDS),
    *(b"-" * count + b"-01" for count in range(5)),
]  # fmt: skip
BLANKS = [b"", b"", b" ", b"\t", b" \t "]
LINE_ENDS = [b"\r\n"] * 12 + [b"\n", b"\r", b"", b"\r\r\n", b"\n\r\n"]
FIRSTS = [FIRST] * 12 + [b"NATS/1.0 200 OK\r\n", b"NATS/1.1\r\n", b"NATS/1.0\n", b"N"]
LASTS = [b"\r\n"] * 8 + [b"", b"\r", b":", b"Nats-Trace-Dest:", b"Nats-Trace-Dest: x"]
CASES = some(3_000, 100_000)


def random_header(chance: Random) -> bytes:
    parts = [chance.choice(FIRSTS)]
    for _ in range(chance.randrange(5)):
        if chance.random() < 0.1:
            parts.append(chance.randbytes(chance.randrange(30)))
        else:
            parts += [chance.choice(NAMES), b":", chance.choice(BLANKS)]
            parts += [chance.choice(VALUES), chance.choice(BLANKS)]
        parts.append(chance.choice(LINE_ENDS))
    parts.append(chance.choice(LASTS))
    header = bytearray(b"".join(parts))
    if chance.random() < 0.2:
        header[chance.randrange(len(header))] = chance.randrange(256)
    if chance.random() < 0.1:
        del header[chance.randrange(1, len(header) + 1) :]
    return bytes(header)


def test_search_finds_what_a_reader_finds() -> None:
    watched = Watched()
    found = 0
    for number in range(CASES):
        chance = Random(number)
        header, parents = random_header(chance), chance.random() < 0.7
        expected = asks_for_trace(header, parents=parents)
        assert watched.asks(header, parents=parents) == expected, (header, parents)
        found += expected
        if header.startswith(FIRST):
            fields = [(name, value) for name, value in fields_of(header) if name]
            assert header_fields(header) == fields, header
    assert CASES * 0.1 < found < CASES * 0.9  # both happen, often


watched_by_all = Watched()


@given(st.binary(min_size=1, max_size=60), st.booleans())
def test_any_bytes_are_read_without_harm(rest: bytes, parents: bool) -> None:
    watched = watched_by_all
    for header in (rest, FIRST + rest, FIRST + DESTINATION + rest):
        expected = asks_for_trace(header, parents=parents)
        assert watched.asks(header, parents=parents) == expected
