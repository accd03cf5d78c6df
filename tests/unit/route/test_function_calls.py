"""Calls in destinations: found as the patterns of nats-server find them, in one pass."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.route.function_calls import Functions, braced_parts, split_arguments

NAMES = ("Wildcard", "SplitFromLeft", "Split")
FUNCTIONS = Functions(NAMES)
BRACED = re.compile(r"\{\{([^}]*)\}\}")
MARKS = ["{{", "{", "}}", "}", "(", ")", " ", "\n", "\t", ",", "1", "x"]
WORDS = ["wildcard", "Wildcard", "wildCard", "splitFromLeft", "SplitfromLeft", "split", "Splitx"]
PIECES = st.sampled_from([*MARKS, *WORDS])
TEXTS = st.lists(PIECES, max_size=14).map("".join)


def naive_call(text: str) -> tuple[str, str] | None:
    """As nats-server: a pattern per function, one after the other."""
    for name in NAMES:
        words = re.sub(r"[A-Z]", lambda letter: f"[{letter[0]}{letter[0].lower()}]", name)
        pattern = rf"\{{\{{[\t\n\f\r ]*{words}[\t\n\f\r ]*\((.*)\)[\t\n\f\r ]*\}}\}}"
        if found := re.search(pattern, text):
            return name, found[1]
    return None


@given(TEXTS)
def test_a_call_is_found_where_the_patterns_of_the_official_server_find_it(text: str) -> None:
    assert FUNCTIONS.find(text) == naive_call(text)


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("{{wildcard(1)}}", ("Wildcard", "1")),
        ("{{ Wildcard ( 1 ) }}", ("Wildcard", " 1 ")),
        ("{{{wildcard(1)}}", ("Wildcard", "1")),
        ("{{x {{wildcard(1)}}", ("Wildcard", "1")),
        ("{{split({{wildcard(1)}}", ("Wildcard", "1")),
        ("{{wildcard({{wildcard(1)}}", ("Wildcard", "{{wildcard(1")),
        ("{{wildcard(\n{{wildcard(1)}}", ("Wildcard", "1")),
        ("{{wildcard(1)\n}}{{wildcard(2)}}", ("Wildcard", "1")),
        ("{{WILDCARD(1)}}", None),
        ("{{wildcard(1}}", None),
        ("{{wildcard\v(1)}}", None),
        ("wildcard(1)}}", None),
    ],
)
def test_call_in_a_text(text: str, call: tuple[str, str] | None) -> None:
    assert naive_call(text) == call
    assert FUNCTIONS.find(text) == call


@given(st.text("{}ab", max_size=24))
def test_braces_are_cut_where_a_pattern_cuts_them(text: str) -> None:
    assert braced_parts(text) == BRACED.split(text)


@given(st.text(", \n1", max_size=12))
def test_arguments_are_cut_at_commas_with_the_blanks_behind_them(text: str) -> None:
    assert split_arguments(text) == re.split(r",[\t\n\f\r ]*", text)
