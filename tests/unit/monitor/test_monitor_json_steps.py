"""Long documents are encoded in steps, with the same text as at once."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, UnsetType

from tradewind.monitor.formats import compact_json, indented_json
from tradewind.monitor.json_steps import PIECE_VALUES_MAX, json_steps
from tradewind.monitor.stepping import at_once


class Leaf(msgspec.Struct):
    name: str
    size: int | UnsetType = UNSET


class Tree(msgspec.Struct):
    title: str
    leaves: list[Leaf] | UnsetType = UNSET
    more: dict[str, Any] | UnsetType = UNSET


class Tagged(msgspec.Struct, omit_defaults=True):
    name: str = ""
    numbers: list[int] = []


MANY = 3 * PIECE_VALUES_MAX
LEAVES = [Leaf(f"<leaf> {number}\n", number if number % 3 else UNSET) for number in range(MANY)]
DOCUMENTS = {
    "small": Tree("t", [Leaf("a")], {"x": [], "y": {}}),
    "empty": Tree("t", [], {}),
    "structs": Tree("t", LEAVES, {"after": 1}),
    "trees": [Tree(str(number), LEAVES[: number % 7]) for number in range(MANY)],
    "deep": {"a": {"b": [Tree("x", LEAVES), Tree("y"), [[list(LEAVES)]]]}},
    "texts": {"subjects": [f"a.{number}" for number in range(MANY)]},
    "others": [Tagged("a", list(range(MANY))), Tagged(), None, True, 1.5],
    "dicts": {str(number): {"n": [number], "e": []} for number in range(MANY)},
    "no text": {"subjects": [*(f"a.{number}" for number in range(MANY)), "\udcff"]},
    "tuples": tuple((number, "x") for number in range(MANY)),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_text_is_that_of_one_step(name: str) -> None:
    document = DOCUMENTS[name]
    for is_indented, encode in ((False, compact_json), (True, indented_json)):
        pieces = at_once(json_steps(deepcopy(document), indented=is_indented))
        assert b"".join(pieces) == encode(document)


@pytest.mark.parametrize("name", ["structs", "trees", "texts", "dicts", "tuples"])
def test_no_step_has_many_values(name: str) -> None:
    pieces = at_once(json_steps(deepcopy(DOCUMENTS[name]), indented=False))
    assert len(pieces) > 3
    assert max(piece.count(b",") for piece in pieces) <= 2 * PIECE_VALUES_MAX
