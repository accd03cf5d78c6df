"""Nothing that a stranger has written becomes markup."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.dashboard.look.elements import address, is_own_address, join, render, tag

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "&lt;b&gt;",
    "]]><svg/onload=alert(1)>",
)


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    return reader


@given(st.one_of(st.sampled_from(HOSTILE), st.text()))
def test_any_text_comes_out_as_that_text_and_makes_no_element(text: str) -> None:
    printable = "".join(each for each in text if each.isprintable())
    reader = read(tag("p", printable, title=printable))
    assert reader.tags == [("p", {"title": printable})]
    assert reader.text == printable


@pytest.mark.parametrize("character", ["\x00", "\x1b", "\x85", "\udcff", "\u202e", "\u2066"])
def test_characters_that_hide_or_turn_text_are_marked(character: str) -> None:
    assert render(f"a{character}b") == "a\N{REPLACEMENT CHARACTER}b"
    render(tag("p", f"a{character}b")).encode()


def test_line_ends_and_tabs_stay() -> None:
    assert render("a\n\tb") == "a\n\tb"


@pytest.mark.parametrize(
    "target",
    ["javascript:alert(1)", "//evil.example", "/\\evil.example", "https://evil.example", "x", ""],
)
@pytest.mark.parametrize("name", ["href", "src", "action", "formaction"])
def test_addresses_outside_the_dashboard_are_refused(name: str, target: str) -> None:
    assert not is_own_address(target)
    with pytest.raises(ValueError, match=name):
        tag("a", "x", **{name: target})


@pytest.mark.parametrize("name", ["onclick", "onload", "style", "srcdoc"])
def test_attributes_that_hold_code_do_not_exist(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        tag("p", **{name: "alert(1)"})


@given(st.text(min_size=1))
def test_an_address_with_any_name_stays_in_the_dashboard(name: str) -> None:
    made = address("streams", name, search=name)
    assert is_own_address(made)
    path = made.partition("?")[0]
    assert path.count("/") == 2
    assert path.isascii()


def test_children_are_joined_and_nothing_is_left_of_none() -> None:
    assert tag("p", ["a", None, 1], class_="x", hidden=False) == '<p class="x">a1</p>'
    assert join("<", tag("br")) == "&lt;<br>"
