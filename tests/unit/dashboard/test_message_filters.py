"""Conditions of searches: what they take, and how those that cannot be read are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.dashboard.data.message_data import ListedMessage
from tradewind.dashboard.data.message_filters import (
    BadConditionError,
    make_filter,
    parse_header_conditions,
    parse_json_conditions,
)

ORDER = {
    "id": 7,
    "item": "Big Pear",
    "paid": True,
    "note": None,
    "total": 99.5,
    "order": {"lines": [{"sku": "a", "n": 1}, {"sku": "b 1", "n": 5}], "a.b": {"c d": 3}},
}


def message(
    data: bytes | dict[str, Any] = b"", headers: tuple[tuple[str, str], ...] = ()
) -> ListedMessage:
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    return ListedMessage(1, "orders.eu", 0, list(headers), body)


def takes(values: str, document: Any = ORDER) -> bool:
    data = json.dumps(document).encode()
    return make_filter("", "", values).takes(message(data))


@pytest.mark.parametrize(
    "values",
    [
        "id = 7",
        "id == 7.0",
        "$.id >= 7",
        "item ~ pear",
        'item = "big pear"',
        "item = Big Pear",
        "item > Big",
        "paid = true",
        "note = null",
        "note",
        "total > 99 and total < 100",
        "order.lines[1].n = 5",
        "order.lines[*].n > 4",
        'order.lines[*].sku = "b 1"',
        'order["a.b"]["c d"] = 3',
        "order.lines.*.sku = a",
        "*.lines",
        "id != 8",
        "order.lines[*].n != 3",
        "item !~ apple",
        'order.lines ~ "sku"',
        'item = "Big Pear" and paid',
    ],
)
def test_conditions_on_values_that_hold(values: str) -> None:
    assert takes(values)


@pytest.mark.parametrize(
    "values",
    [
        "id = 8",
        'id > "6"',
        "item > 5",
        "missing",
        "missing != 5",
        "order.lines[2]",
        "order.lines[*].n > 5",
        "order.lines[*].n != 5",
        "id.deeper",
        "item[0]",
        "paid = 1",
        "id = 7 and item = apple",
    ],
)
def test_conditions_on_values_that_do_not_hold(values: str) -> None:
    assert not takes(values)


def test_a_payload_that_is_no_json_has_no_values() -> None:
    wanted = make_filter("", "", "a = 1")
    deep = b"[" * 100_000
    for data in (b"", b"text", b"{", b"\xff\xfe", b'{"a": 1} x', deep, b"nul"):
        assert not wanted.takes(message(data))
    assert make_filter("", "", "$ = 5").takes(message(b"5"))


def test_conditions_on_headers() -> None:
    found = message(b"x", (("Trace", "T5"), ("Content-Type", "application/json"), ("Trace", "t6")))
    for text, wanted in (
        ("trace", True),
        ("Trace = t6", True),
        ("Trace = t7", False),
        ("Trace != t7", True),
        ("Trace != t6", False),
        ("Content-Type ~ JSON and Trace", True),
        ("Other", False),
        ("Other != x", True),
        ('Trace = "t5"', True),
    ):
        assert make_filter("", text, "").takes(found) is wanted, text
    assert make_filter("T6", "", "").takes(found)
    assert make_filter("orders", "", "").takes(found)
    assert not make_filter("nowhere", "", "").takes(found)
    assert make_filter("", "", "").takes(found)
    assert make_filter("", "", "").is_empty


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a = ", "a value after ="),
        ("= 5", "begin with a path"),
        ("a and", "before and after"),
        ("and a", "before and after"),
        ('a = "x', 'close each "'),
        ("a[x] = 1", "in brackets"),
        ("a[ = 1", "in brackets"),
        ("a b = 1", "begin with a path"),
        ("a..b = 1", "begin with a path"),
        ("x" * 1001, "at most 1000 characters"),
        (" and ".join(["a"] * 17), "at most 16 conditions"),
        (".".join(["a"] * 33), "at most 32 steps"),
    ],
)
def test_conditions_that_cannot_be_read_are_refused(text: str, reason: str) -> None:
    with pytest.raises(BadConditionError, match=reason):
        parse_json_conditions(text)


def test_header_conditions_that_cannot_be_read_are_refused() -> None:
    for text in ("A B = 1", "= x", 'A = "x" y', '"A" = x'):
        with pytest.raises(BadConditionError, match="must"):
            parse_header_conditions(text)


@given(st.text(max_size=60), st.binary(max_size=60))
def test_any_text_is_a_filter_or_refused_and_any_message_is_judged(text: str, data: bytes) -> None:
    for headers, values in ((text, ""), ("", text)):
        try:
            wanted = make_filter("", headers, values)
        except BadConditionError:
            continue
        assert wanted.takes(message(data, (("A", text),))) in (True, False)
