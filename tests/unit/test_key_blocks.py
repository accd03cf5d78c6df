"""The blocks of key files, as a pattern finds them that may take longer."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tradewind.key_blocks import key_blocks

BLOCK = re.compile(r"-{3,}BEGIN ([A-Z ]+)-{3,}\s+(\S+)\s+-{3,}END \1-{3,}")
PIECES = st.sampled_from(
    ["---", "-", "BEGIN ", "END ", "A JWT", "A", "\n", " ", "eyJ", "-----BEGIN A-----\n"]
)


@given(st.lists(PIECES, max_size=24).map("".join))
def test_blocks_are_those_of_the_pattern(text: str) -> None:
    assert list(key_blocks(text)) == [(found[1], found[2]) for found in BLOCK.finditer(text)]


def test_block_among_other_lines_is_found() -> None:
    text = (
        "x\n-----BEGIN A JWT-----\neyJ\n------END A JWT------\ny -----BEGIN B-----\ns\n---END B---"
    )
    assert list(key_blocks(text)) == [("A JWT", "eyJ"), ("B", "s")]
