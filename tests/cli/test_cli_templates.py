"""`{{Count}}` and the other functions of a body, a subject or a header."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.cli.frame.message_templates import (
    CommandTemplate,
    Moment,
    Template,
    TemplateError,
)

# 2026-01-02 15:04:05.000000006 UTC
MOMENT = Moment(7, 1_767_366_245_000_000_006, b"ask")


def fill(text: str, moment: Moment = MOMENT) -> str:
    return Template(text, chance=random.Random(1)).fill(moment)


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("US Order #  {{Count}} at {{TimeStamp}}", "US Order #  7 at 2026-01-02T15:04:05Z"),
        ("{{ Count }}-{{.Count}}-{{Cnt}}", "7-7-7"),
        ("{{Unix}} {{UnixNano}}", "1767366245 1767366245000000006"),
        ("{{Time}}", "3:04PM"),
        ("{{Request}}", "ask"),
        ('{"a":{"b":1}}', '{"a":{"b":1}}'),
        ("", ""),
    ],
)
def test_functions_are_filled_in(text: str, filled: str) -> None:
    assert fill(text) == filled


def test_ids_differ_from_message_to_message() -> None:
    template = Template("{{ID}} {{UUID}}")
    first, second = template.fill(MOMENT), template.fill(MOMENT)
    assert len({*first.split(), *second.split()}) == 4


@given(st.integers(0, 40), st.integers(0, 40))
def test_random_text_has_a_length_in_its_range(low: int, more: int) -> None:
    made = fill(f"{{{{Random {low} {low + more}}}}}")
    assert low <= len(made) <= low + more
    assert re.fullmatch("[a-zA-Z0-9]*", made)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("{{Cuont}}", "{{Count}}"),
        ("{{Random}}", "MIN MAX"),
        ("{{Random 5 1}}", "MIN must be at most MAX"),
        ("{{Random 1 99999999999}}", "at most"),
        ("{{Count 3}}", "{{Count}}"),
        ("{{}}", "--no-templates"),
        ("{{ if true }}", "--no-templates"),
    ],
)
def test_unknown_function_is_named_with_what_would_be_right(text: str, hint: str) -> None:
    with pytest.raises(TemplateError) as caught:
        Template(text)
    assert text in str(caught.value)
    assert hint in str(caught.value)


@given(st.binary(max_size=200))
def test_bytes_come_out_as_they_went_in_without_functions(data: bytes) -> None:
    assert Template(data, functions=False).fill_bytes(MOMENT) == data


@given(st.binary(max_size=20).filter(lambda data: b"{" not in data and b"}" not in data))
def test_bytes_around_a_function_stay(data: bytes) -> None:
    assert Template(data + b"{{Count}}" + data).fill_bytes(MOMENT) == data + b"7" + data


# ------------------------------------------------------------------ command lines

HOSTILE = [
    "{{Request}}",
    "{{0}}",
    "{{.Request}}",
    "a b",
    "'",
    '"',
    "\\",
    "$(id)",
    "; id",
    "{{Random 1 9}}",
    "{{",
]


@pytest.mark.parametrize("token", HOSTILE)
def test_values_in_a_command_are_never_filled_in_again(token: str) -> None:
    """Neither is a token of the subject a template, nor the request another word."""
    moment = Moment(1, 0, token.encode(), ("weather", token))
    words = CommandTemplate("show {{1}} --of={{Request}} '{{0}} {{1}}' {{2}}").fill(moment)
    assert words == ["show", token, f"--of={token}", f"weather {token}", ""]


@given(st.lists(st.text(max_size=8), max_size=4), st.binary(max_size=12))
def test_command_has_as_many_words_as_its_template(tokens: list[str], request: bytes) -> None:
    template = CommandTemplate('run {{0}} x{{1}}y "{{2}} {{Request}}" {{ Random 1 3 }}')
    words = template.fill(Moment(1, 0, request, tuple(tokens)))
    assert len(words) == 5
    assert words[0] == "run"
    assert not any("\0" in word for word in words)


@pytest.mark.parametrize(
    ("line", "reason"), [("echo 'x", "No closing quotation"), (" ", "no words"), ("", "no words")]
)
def test_wrong_command_lines_are_named(line: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        CommandTemplate(line)


def test_many_open_braces_are_read_in_one_pass() -> None:
    """Formerly the square of their number: minutes for this one."""
    text = "{{" * 500_000
    assert fill(text) == text
