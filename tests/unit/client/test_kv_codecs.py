"""Codecs of keys and values store what other NATS clients store, and give back what was put in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind import Base64Keys, Base64Values, PathKeys
from tradewind.client.errors import BadKeyError
from tradewind.client.kv.entries import check_key
from tradewind.client.kv.kv_types import check_filter

PARTS = st.text(min_size=1).filter(lambda text: "." not in text)
SEGMENTS = st.from_regex(r"[-_=a-zA-Z0-9]+", fullmatch=True).filter(lambda one: one != "_root_")


@given(parts=st.lists(PARTS, min_size=1))
def test_any_characters_between_dots_make_a_valid_key(parts: list[str]) -> None:
    key = ".".join(parts)
    stored = Base64Keys().encode_key(key)
    check_key(stored)
    assert Base64Keys().decode_key(stored) == key


@given(segments=st.lists(SEGMENTS, min_size=1), is_absolute=st.booleans())
def test_paths_come_back(segments: list[str], is_absolute: bool) -> None:
    key = "/" * is_absolute + "/".join(segments)
    stored = PathKeys().encode_key(key)
    check_key(stored)
    assert PathKeys().decode_key(stored) == key


@given(value=st.binary())
def test_values_come_back(value: bytes) -> None:
    assert Base64Values().decode_value(Base64Values().encode_value(value)) == value


def test_stored_keys_are_those_of_other_clients() -> None:
    assert Base64Keys().encode_key("Acme Inc.contact") == "QWNtZSBJbmM.Y29udGFjdA"
    assert PathKeys().encode_key("user/profile/settings") == "user.profile.settings"
    assert PathKeys().encode_key("/config/database/") == "_root_.config.database"
    assert PathKeys().encode_key("/") == "_root_"


@pytest.mark.parametrize(
    ("pattern", "stored"),
    [(">", ">"), ("Acme Inc.*", "QWNtZSBJbmM.*"), ("*.b.>", "*.Yg.>")],
)
def test_wildcards_of_encoded_patterns_stay(pattern: str, stored: str) -> None:
    assert Base64Keys().encode_filter(pattern) == stored
    check_filter(stored)


def test_wildcards_of_paths_stay() -> None:
    assert PathKeys().encode_filter("/config/*/timeout") == "_root_.config.*.timeout"
    assert PathKeys().encode_filter(">") == ">"
    assert PathKeys().encode_filter("config/>") == "config.>"


@pytest.mark.parametrize("key", ["/etc/x.conf", "a.b", "_root_/a", "/_root_"])
def test_paths_that_would_come_back_as_others_are_refused(key: str) -> None:
    with pytest.raises(BadKeyError, match=r"a path has no dots|stands for a leading slash"):
        PathKeys().encode_key(key)


@pytest.mark.parametrize("stored", ["a", "YQ==", "Y\x00", "YR", "Y!Q", "/w", "_w"])
def test_what_is_no_base64_text_is_refused(stored: str) -> None:
    with pytest.raises(ValueError, match=r"Base64|codec"):
        Base64Keys().decode_key(stored)
