"""Increments and sums, by themselves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.api.errors import ApiError
from tradewind.store.contract import MessageCopy
from tradewind.stream import header_fields
from tradewind.stream.counters import Count, count

INTEGERS = st.integers(-(10**60), 10**60)


def added(increment: str, previous: MessageCopy | None, block: str = "") -> Count:
    header = f"NATS/1.0\r\nNats-Incr: {increment}\r\n{block}\r\n".encode()
    return count(header, header_fields.special_fields(header), previous)


def kept(result: Count) -> MessageCopy:
    return MessageCopy(1, 1, b"s", result.header, result.payload)


@given(st.lists(st.tuples(INTEGERS, st.booleans()), min_size=1, max_size=20))
def test_sum_is_that_of_the_integers(steps: list[tuple[int, bool]]) -> None:
    previous: MessageCopy | None = None
    total = 0
    for number, has_sign in steps:
        result = added(f"{number:+d}" if has_sign else str(number), previous)
        total += number
        assert result.value == str(total).encode()
        assert result.payload == b'{"val":"%d"}' % total
        previous = kept(result)


def test_sum_may_be_as_long_as_a_header() -> None:
    first = added("9" * 60_000, None)
    assert added("1", kept(first)).value == b"1" + b"0" * 60_000
    assert added("-" + "9" * 60_000, kept(first)).value == b"0"


@pytest.mark.parametrize(
    "payload",
    [b"", b"x", b"[]", b"{}", b'{"val":5}', b'{"val":""}', b'{"val":"x"}', b'{"val":"\xff"}'],
)
def test_last_message_that_is_no_sum_breaks_the_counter(payload: bytes) -> None:
    with pytest.raises(ApiError) as refusal:
        added("1", MessageCopy(1, 1, b"s", b"", payload))
    assert refusal.value.err_code == 10172


def test_members_that_are_not_known_are_passed_over() -> None:
    assert added("1", MessageCopy(1, 1, b"s", b"", b'{"more":1,"val":"5"}')).value == b"6"


def test_counts_of_other_streams_replace_those_that_were_sent() -> None:
    first = added("1", None, 'Nats-Counter-Sources: {"B":{"x":"1"},"A":{"y":"2"}}\r\n')
    second = added("1", kept(first), "Nats-Counter-Sources: {}\r\nA: b\r\n")
    assert second.header == (
        b"NATS/1.0\r\nNats-Incr: 1\r\n"
        b'Nats-Counter-Sources: {"A":{"y":"2"},"B":{"x":"1"}}\r\nA: b\r\n\r\n'
    )
