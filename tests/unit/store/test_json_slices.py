"""Large JSON objects in parts: the same as decoded at once, or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.store.backup.archive import ArchiveError
from tradewind.store.backup.archive_documents import DocumentPart, decode_document

values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


def in_slices(data: bytes, bytes_max: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for start, _, end in DocumentPart(data, 0, len(data)).slices(bytes_max, "it"):
        found |= decode_document(b"{" + data[start:end] + b"}", "it")
    return found


@given(
    st.dictionaries(st.text(max_size=4), values, max_size=12),
    st.sampled_from([None, 1, "\t"]),
    st.integers(0, 60),
)
def test_slices_together_are_the_object(
    document: dict[str, Any], indent: str | int | None, bytes_max: int
) -> None:
    data = json.dumps(document, indent=indent).encode()
    assert in_slices(data, bytes_max) == document
    fields = DocumentPart(data, 0, len(data)).fields("it")
    found = {name: json.loads(part.data[part.start : part.end]) for name, part in fields.items()}
    assert found == document


@given(st.text('{}[]",:\\ 1ax\n', max_size=30), st.integers(0, 20))
def test_what_is_no_object_is_refused(text: str, bytes_max: int) -> None:
    try:
        wanted = json.loads(text)
    except ValueError:
        wanted = None
    try:
        found = in_slices(text.encode(), bytes_max)
    except ArchiveError:
        assert not isinstance(wanted, dict)
    else:
        assert found == wanted


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}}", '{"a":1,}', '{"a":1]', '{"a"}', '{"a":1} x', '{,"a":1}', "{1:2}"]
)
def test_text_that_looks_like_an_object_is_refused(text: str) -> None:
    with pytest.raises(ArchiveError):
        in_slices(text.encode(), 0)


def test_object_with_many_fields_is_refused_where_few_are_expected() -> None:
    data = json.dumps(dict.fromkeys(map(str, range(17)), 0)).encode()
    with pytest.raises(ArchiveError, match="more than 16 fields"):
        DocumentPart(data, 0, len(data)).fields("it")
