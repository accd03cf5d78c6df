"""Query parameters, and the texts for wrong ones as recorded from nats-server 2.15.1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.monitor.page_options import (
    PAGE_SIZE_DEFAULT,
    PAGE_SIZE_MAX,
    STATE_ANY,
    STATE_CLOSED,
    STATE_OPEN,
    ConnzOptions,
    connz_from_query,
    jsz_from_query,
    paged,
    subsz_from_query,
)
from tradewind.monitor.parameters import PageError, boolean, integer, unsigned


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_true_has_six_spellings(text: str) -> None:
    assert boolean({"subs": text}, "subs") is True


@pytest.mark.parametrize("query", [{}, {"subs": ""}, {"subs": "0"}, {"subs": "False"}])
def test_absent_empty_and_false_are_false(query: dict[str, str]) -> None:
    assert boolean(query, "subs") is False


@pytest.mark.parametrize(
    ("decode", "query", "text"),
    [
        (
            connz_from_query,
            {"subs": "foo"},
            "Error decoding boolean for 'subs': strconv.ParseBool: parsing \"foo\": invalid syntax",
        ),
        (
            connz_from_query,
            {"auth": "foo"},
            "Error decoding boolean for 'auth': strconv.ParseBool: parsing \"foo\": invalid syntax",
        ),
        (
            connz_from_query,
            {"limit": "x"},
            "Error decoding int for 'limit': strconv.Atoi: parsing \"x\": invalid syntax",
        ),
        (
            connz_from_query,
            {"cid": "zz"},
            "Error decoding uint64 for 'cid': strconv.ParseUint: parsing \"zz\": invalid syntax",
        ),
        (connz_from_query, {"state": "foo"}, "Error decoding state for foo"),
        (
            subsz_from_query,
            {"limit": "x"},
            "Error decoding int for 'limit': strconv.Atoi: parsing \"x\": invalid syntax",
        ),
        (
            jsz_from_query,
            {"raft": "z"},
            "Error decoding boolean for 'raft': strconv.ParseBool: parsing \"z\": invalid syntax",
        ),
    ],
)
def test_wrong_values_have_the_official_texts(
    decode: Callable[[dict[str, str]], Any], query: dict[str, str], text: str
) -> None:
    with pytest.raises(PageError) as caught:
        decode(query)
    assert str(caught.value) == text
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("text", "state"),
    [("", STATE_OPEN), ("open", STATE_OPEN), ("CLOSED", STATE_CLOSED), ("Any", STATE_ANY)],
)
def test_state_names_ignore_case(text: str, state: int) -> None:
    assert connz_from_query({"state": text}).state == state


def test_subs_detail_is_not_a_plain_list() -> None:
    options = connz_from_query({"subs": "detail"})
    assert (options.subscriptions, options.subscriptions_detail) == (False, True)


@given(st.text())
def test_any_text_is_a_number_or_a_page_error(text: str) -> None:
    for decode in (integer, unsigned):
        outcome = _outcome(decode, text)
        if isinstance(outcome, int):
            assert outcome == int(text or "0")
        else:
            assert len(outcome) < 400
            assert "\n" not in outcome


def _outcome(decode: Callable[[dict[str, str], str], int], text: str) -> int | str:
    try:
        return decode({"n": text}, "n")
    except PageError as error:
        return str(error)


def test_a_very_long_number_is_out_of_range() -> None:
    with pytest.raises(PageError, match="value out of range"):
        integer({"limit": "9" * 100_000}, "limit")
    with pytest.raises(PageError, match="value out of range"):
        unsigned({"cid": str(2**64)}, "cid")
    assert unsigned({"cid": str(2**64 - 1)}, "cid") == 2**64 - 1


@pytest.mark.parametrize(
    ("offset", "limit", "expected"),
    [
        (0, 0, (0, PAGE_SIZE_DEFAULT)),
        (-1, -1, (0, PAGE_SIZE_DEFAULT)),
        (5, 7, (5, 7)),
        (0, 10**9, (0, PAGE_SIZE_MAX)),
    ],
)
def test_pages_are_bounded(offset: int, limit: int, expected: tuple[int, int]) -> None:
    options = paged(ConnzOptions(offset=offset, limit=limit))
    assert (options.offset, options.limit) == expected
