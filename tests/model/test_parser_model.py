"""The compiled parser against the readable grammar: whole, byte by byte, and in any chunks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from parser_model import Grammar, Parsed
from sweeps import sweep

from tradewind.errors import ProtocolError
from tradewind.wire.parser import Parser

SMALL = Grammar(control_line_max=40, payload_max=16)


def parser_for(grammar: Grammar) -> Parser:
    return Parser(grammar.control_line_max, grammar.payload_max, grammar.headers)


def run(parser: Parser, chunks: list[bytes]) -> Parsed:
    """What the parser makes of these chunks."""
    result = Parsed()
    try:
        for chunk in chunks:
            result.operations += parser.feed(chunk)
    except ProtocolError:
        result.operations += parser.before_fault
    result.fault = parser.fault
    result.position = parser.position
    return result


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(edges)]


tokens = st.text("ab.*>0_\x00\xff", min_size=1, max_size=8).map(lambda text: text.encode("latin-1"))
blanks = st.sampled_from([b" ", b"  ", b"\t", b" \t "])
ends = st.sampled_from([b"\r\n", b"\r\n", b"\n"])
numbers = st.one_of(
    st.integers(0, 20).map(lambda value: b"%d" % value),
    st.sampled_from(
        [b"007", b"000000016", b"999999999", b"1000000000", b"-1", b"+1", b"x", b"1.0"]
    ),
)


@st.composite
def cased(draw: st.DrawFn, verb: bytes) -> bytes:
    return draw(st.sampled_from([verb, verb.lower(), verb.capitalize()]))


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """A line of any verb with any number of arguments: most are valid."""
    verb = draw(
        st.sampled_from([b"SUB", b"UNSUB", b"PING", b"PONG", b"CONNECT", b"INFO", b"+OK", b"-ERR"])
    )
    count = draw(st.integers(2, 3) if verb == b"SUB" else st.integers(0, 3))
    arguments = draw(st.lists(st.one_of(tokens, numbers), min_size=count, max_size=count))
    blank = draw(blanks)
    return draw(cased(verb)) + blank + blank.join(arguments) + draw(ends)


@st.composite
def publishes(draw: st.DrawFn) -> bytes:
    """A PUB or HPUB whose sizes are right most of the time."""
    header, payload = draw(st.binary(max_size=6)), draw(st.binary(max_size=10))
    with_header = draw(st.booleans())
    body = header + payload if with_header else payload
    sizes = [b"%d" % len(header), b"%d" % len(body)] if with_header else [b"%d" % len(body)]
    if draw(st.integers(0, 9)) == 0:
        sizes[-1] = draw(numbers)
    arguments = [*draw(st.lists(tokens, min_size=1, max_size=2)), *sizes]
    verb = draw(cased(b"HPUB" if with_header else b"PUB"))
    return verb + draw(blanks) + draw(blanks).join(arguments) + draw(ends) + body + b"\r\n"


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Operations one after the other, sometimes with a few bytes changed."""
    stream = b"".join(draw(st.lists(st.one_of(lines(), publishes()), max_size=6)))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(stream)))
        removed = draw(st.integers(0, 2))
        stream = stream[:at] + draw(st.binary(max_size=2)) + stream[at + removed :]
    return stream


anything = st.one_of(
    streams(),
    st.binary(max_size=40),
    st.text("PUBSHINGOK +-\t\r\n09a", max_size=60).map(str.encode),
)
places = st.lists(st.integers(0, 300), max_size=8)


@given(anything, places, st.booleans())
@example(b"PUB a 1\r\nx\r\r", [], True)
@example(b"PING" + b"x" * 100, [50], True)
def test_every_chunking_gives_the_operations_and_the_fault_of_the_grammar(
    stream: bytes, where: list[int], headers: bool
) -> None:
    grammar = Grammar(SMALL.control_line_max, SMALL.payload_max, headers)
    expected = grammar.parse(stream)
    assert run(parser_for(grammar), [stream]) == expected
    assert run(parser_for(grammar), cut(stream, where)) == expected


@given(anything)
def test_byte_by_byte_nothing_is_noticed_a_byte_too_late_or_too_early(stream: bytes) -> None:
    parser = parser_for(SMALL)
    operations = []
    for size in range(1, len(stream) + 1):
        expected = SMALL.parse(stream[:size])
        try:
            operations += parser.feed(stream[size - 1 : size])
        except ProtocolError:
            operations += parser.before_fault
        assert (operations, parser.fault, parser.position) == (
            expected.operations,
            expected.fault,
            expected.position,
        )
        if parser.fault:
            break
        # Nothing is kept but the unfinished operation, and nothing of it is forgotten.
        assert parser.pending_bytes == size - expected.position


@sweep("line", [b"PUB ", b"SUB ", b"UNSUB ", b"CONNECT ", b"INFO ", b"-ERR "])
@sweep("excess", [0, 1])
@sweep("newline", [b"", b"\n", b"\r\n", b"\rx"])
def test_the_line_limit_is_exact_for_every_verb(line: bytes, excess: int, newline: bytes) -> None:
    stream = line + b"   " + b"a" * (SMALL.control_line_max + excess) + newline
    expected = SMALL.parse(stream)
    assert (expected.fault == "control line") == (excess == 1 or newline == b"\rx")
    assert run(parser_for(SMALL), [stream]) == expected
    assert run(parser_for(SMALL), cut(stream, list(range(len(stream))))) == expected


@pytest.mark.parametrize("blanks", [8000, 16384 + 40 - 3, 16384 + 40 - 2])
def test_blanks_in_front_of_the_arguments_are_free_up_to_a_bound(blanks: int) -> None:
    stream = b"PUB" + b" " * blanks + b"a 0\r\n\r\n"
    expected = SMALL.parse(stream)
    assert (expected.fault is None) == (blanks + 3 <= 16384 + 40)
    assert run(parser_for(SMALL), [stream]) == expected
    assert run(parser_for(SMALL), cut(stream, list(range(len(stream))))) == expected


@pytest.mark.timeout(20)
def test_work_is_linear_however_small_the_chunks() -> None:
    """Looking at everything again for each byte would take minutes here."""
    size = 400_000
    parser = Parser(control_line_max=size)
    stream = b"SUB  %b 1\r\nPUB a %d\r\n%b\r\n" % (b"a" * (size - 2), size, b"x" * size)
    operations = []
    for index in range(len(stream)):
        operations += parser.feed(stream[index : index + 1])
    assert [operation[0] for operation in operations] == ["SUB", "PUB"]


@pytest.mark.timeout(20)
def test_a_long_ignored_line_is_not_kept() -> None:
    parser = Parser()
    parser.feed(b"PING")
    for _ in range(1000):
        assert parser.feed(b"x" * 10_000) == []
        assert parser.pending_bytes == 0
    assert parser.feed(b"\n") == [("PING",)]


def test_after_a_fault_nothing_more_is_parsed() -> None:
    parser = Parser()
    for data in (b"X", b"PING\r\n"):
        with pytest.raises(ProtocolError):
            parser.feed(data)
