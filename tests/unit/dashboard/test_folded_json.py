"""JSON with colours: the text stays, nothing in it becomes markup."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tradewind.dashboard.data.message_data import as_json
from tradewind.dashboard.look.folded_json import LINES_MAX, json_tree

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def read_back(html: str) -> Any:
    """The value in the text of a tree."""
    text = re.sub(r'<span class="folded">.*?</span>', "", html, flags=re.DOTALL)
    return json.loads(unescape(re.sub(r"<[^>]*>", "", text)))


@given(st.dictionaries(st.text(), VALUES, min_size=1, max_size=4))
def test_a_tree_has_the_value_that_was_written(value: Any) -> None:
    # Characters that HTML cannot hold are marked in all texts of the dashboard.
    text = json.dumps(value)
    made = as_json(text.encode())
    assert made is not None
    html = json_tree(made)
    assert html is not None
    shown = json.loads(text)
    if "\ufffd" not in html:
        assert read_back(html) == shown


def test_numbers_stay_as_written_and_characters_are_real() -> None:
    made = as_json(b'{"b": 1.50, "a": "\\u00e9 <b>\\n", "c": [], "e": 1E400}')
    assert made is not None
    html = json_tree(made)
    assert html is not None
    text = unescape(re.sub(r"<[^>]*>", "", html))
    assert '"a": "é <b>\\n"' in text
    assert "1.50" in text
    assert "1E400" in text
    assert text.index('"b"') < text.index('"a"')
    assert "<b>" not in html


def test_parts_fold_with_how_much_they_hold_and_long_ones_are_plain() -> None:
    made = as_json(json.dumps({"a": {"b": {"c": {"d": [1, 2]}}}}).encode())
    assert made is not None
    html = json_tree(made)
    assert html is not None
    assert html.count("<details open>") == 3
    assert html.count("<details>") == 2
    assert "2 items" in html
    assert "1 member " in html
    long = as_json(json.dumps(list(range(LINES_MAX))).encode())
    assert long is not None
    assert json_tree(long) is None
