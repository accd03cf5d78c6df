"""Numbers for people, payloads as text, and changes before they are made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.api.stream_types import StreamConfig
from tradewind.dashboard.data.changes import (
    BadConfigError,
    config_text,
    difference,
    fingerprint,
    in_words,
    line_differences,
    parse_config,
)
from tradewind.dashboard.data.message_data import ListedMessage, Search, as_hex, as_json, excerpt
from tradewind.dashboard.data.page_texts import limit, many, moment, short, since, size, span
from tradewind.dashboard.data.series import Point
from tradewind.dashboard.look.charts import Line, axis_step, line_chart
from tradewind.dashboard.views.call import BadFormError, number, time_ns


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (short(0), "0"),
        (short(999), "999"),
        (short(999.6), "1.0k"),
        (short(1234), "1.2k"),
        (short(2.5e6), "2.5M"),
        (size(1023), "1023 B"),
        (size(1024), "1.0 KiB"),
        (size(2**63), "8.0 EiB"),
        (span(0), "0 seconds"),
        (span(0.25), "250 ms"),
        (span(61), "1 minute 1 second"),
        (span(3600), "1 hour"),
        (span(90061), "1 day 1 hour"),
        (many(1, "message"), "1 message"),
        (limit(-1), "no limit"),
        (moment(10**9), "1970-01-01 00:00:01.000 UTC"),
        (moment(2**200), "an impossible time"),
        (since("0001-01-01T00:00:00Z", 0), "never"),
        (since("1970-01-01T00:00:00Z", 61 * 10**9), "1 minute 1 second ago"),
        (since("soon", 0), "soon"),
    ],
)
def test_numbers_are_written_for_people(made: str, text: str) -> None:
    assert made == text


@given(st.floats(0, 1e25), st.sampled_from([2, 10]))
def test_an_axis_has_a_few_lines_for_any_value(largest: float, base: int) -> None:
    step = axis_step(largest, base)
    assert step > 0
    assert largest < 1e-6 or 1.5 <= largest / step <= 4.01


@given(
    st.lists(st.tuples(st.floats(1e9, 2e9), st.none() | st.floats(0, 1e20)), max_size=30),
    st.booleans(),
    st.booleans(),
)
def test_any_points_make_a_chart(
    points: list[tuple[float, float | None]], from_zero: bool, whole: bool
) -> None:
    made = [Point(time, value) for time, value in sorted(points, key=lambda pair: pair[0])]
    html = line_chart("t", [Line("a", made)], now=1.5e9, from_zero=from_zero, whole=whole)
    assert html.count('class="grid"') < 12
    assert "nan" not in html
    assert "inf" not in html


def test_a_difference_shows_only_what_changes() -> None:
    before = {"name": "A", "max_msgs": 1, "metadata": {"_nats.ver": "x"}}
    after = {"name": "A", "max_msgs": 2}
    changed = [(line.kind, line.text.strip()) for line in difference(before, after)]
    assert ("removed", '-  "max_msgs": 1') in changed
    assert ("added", '+  "max_msgs": 2') in changed
    assert all("_nats" not in text for _, text in changed)
    assert difference(before, {**before, "metadata": {}}) == []
    assert fingerprint(before) != fingerprint(after)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "truncated"),
        ("[]", "object"),
        ('{"name": "B"}', "must stay"),
        ('{"name": "A", "max_msgs": "x"}', "max_msgs"),
        ('{"name": "A", "storage": "tape"}', "storage"),
    ],
)
def test_a_configuration_that_does_not_fit_says_where(text: str, reason: str) -> None:
    with pytest.raises(BadConfigError, match=reason):
        parse_config(text, "A")


def test_a_configuration_is_read_with_what_is_not_known_and_never_too_deep() -> None:
    with pytest.raises(BadConfigError):
        parse_config("[" * 100_000, "A")
    assert parse_config(config_text({"name": "A", "new": 1}), "A") == {"name": "A", "new": 1}


def test_a_stream_is_told_in_sentences() -> None:
    config = StreamConfig(name="S", subjects=["a", "b"], max_bytes=1024, sealed=True)
    assert in_words(config) == [
        "It stores what is published to a, b, on disk.",
        "Messages stay until a limit removes them, at most 1.0 KiB.",
        "It is sealed: nothing in it can be changed.",
    ]


@given(st.binary(max_size=400))
def test_any_payload_is_text(data: bytes) -> None:
    excerpt(data).encode()
    assert as_hex(data).count("\n") == max((len(data) + 15) // 16 - 1, 0)
    as_json(data)


def test_json_keeps_its_numbers_and_its_order() -> None:
    assert as_json(b'{"b":1.10,"a":[18446744073709551616,1e400]}') is not None
    made = as_json(b'{"b":1.10,"a":[18446744073709551616,1e400]}') or ""
    assert made.index('"b"') < made.index('"a"')
    assert "1.10" in made
    assert "18446744073709551616" in made
    assert as_json(b"[" * 100_000) is None
    assert as_json(b"plain") is None


def test_a_text_is_found_in_payload_subject_and_headers() -> None:
    message = ListedMessage(1, "orders.EU", 0, [("Trace", "Abc")], b"Two Pears")
    for text in ("two pears", "orders.eu", "trace: abc"):
        assert Search(text=text).takes(message)
    assert not Search(text="apple").takes(message)


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "\u0661", "9" * 30, str(2**64)])
def test_numbers_that_do_not_fit_name_their_field(text: str) -> None:
    with pytest.raises(BadFormError, match="start"):
        number({"start": text}, "start")


def test_times_are_taken_as_people_write_them() -> None:
    wanted = 1_769_860_800 * 10**9
    for text in (
        "2026-01-31 12:00",
        "2026-01-31T12:00:00",
        "2026-01-31 12:00:00.000 UTC",
        "2026-01-31T13:00:00+01:00",
        "2026-01-31T11:00:00-01:00",
    ):
        assert time_ns({"at": text}, "at") == wanted
    with pytest.raises(BadFormError, match="at"):
        time_ns({"at": "yesterday"}, "at")


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12))
def test_differences_of_lines_lead_from_one_text_to_the_other(
    old: list[str], new: list[str]
) -> None:
    lines = line_differences(old, new, 20)
    if old == new:
        assert lines == []
        return
    assert [line.text[1:] for line in lines if line.kind != "added"] == old
    assert [line.text[1:] for line in lines if line.kind != "removed"] == new


def test_many_lines_that_differ_are_replaced_without_comparing_them() -> None:
    old = ["same", *map(str, range(3000)), "end"]
    new = ["same", *map(str, reversed(range(3000))), "end"]
    lines = line_differences(old, new, 1)
    assert [line.kind for line in (lines[0], lines[-1])] == ["same", "same"]
    assert [line.text[1:] for line in lines if line.kind != "added"] == old
    assert [line.text[1:] for line in lines if line.kind != "removed"] == new
