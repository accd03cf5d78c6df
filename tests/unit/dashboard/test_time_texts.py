"""Times on pages are short, and the full one is under the pointer."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.api.times import ZERO_TIME, format_time
from tradewind.dashboard.look.elements import render
from tradewind.dashboard.look.time_texts import ago, at, short_span
from tradewind.durations import SECOND_NS

NOW_NS = 1_800_000_000 * SECOND_NS


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (-5, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (86_400, "1 day"),
        (86_400 * 1234, "1,234 days"),
    ],
)
def test_a_time_span_is_short(seconds: float, text: str) -> None:
    assert short_span(seconds) == text


def test_a_time_has_its_full_text_and_its_zone() -> None:
    html = render(ago(format_time(NOW_NS - 90 * SECOND_NS), NOW_NS))
    assert ">1 min ago</time>" in html
    assert 'datetime="2027-01-15T07:58:30.000Z"' in html
    assert 'title="2027-01-15 07:58:30.000 UTC"' in html
    assert ">2027-01-15 08:00:00.000 UTC</time>" in render(at(NOW_NS))
    assert render(ago(NOW_NS, NOW_NS)).endswith(">now</time>")


def test_no_time_and_no_sense_are_text() -> None:
    assert ago(ZERO_TIME) == ago("") == ago(None) == at(None) == "never"
    assert render(at("soon <b>")) == "soon &lt;b&gt;"


@given(st.integers(-(2**70), 2**70) | st.text())
def test_any_time_can_be_shown(when: int | str) -> None:
    for html in (render(ago(when, NOW_NS)), render(at(when))):
        assert "<script" not in html
        assert re.fullmatch(r"<time[^<>]*>[^<>]*</time>|[^<>]*", html)
