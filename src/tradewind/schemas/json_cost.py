"""The most that checking one value against a JSON Schema can cost, known before any payload is.

Owns the bound that keeps a check linear in its payload. A value may have to be compared with
several parts of a schema, and values inside it with more: two references to itself for the same
value double the work with every level of a payload. Which parts meet at a value depends only on the
way that led there, so all ways are followed until nothing new comes; a schema whose parts grow on
the way is refused.

    parts at the root -> by each property name or place in an array -> parts at that value -> ...
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from tradewind.schemas.json_tree import (
    JsonTree,
    Node,
    first_items,
    other_items,
    pattern_properties,
    property_names,
)
from tradewind.schemas.schema_errors import SchemaError

# Units of one value; a unit is an entry of a list of the schema, or a part of it.
COST_MAX: Final = 5000
# Sets of parts that may meet, and steps to find them.
STATES_MAX: Final = 4000
STEPS_MAX: Final = 50_000
# An automaton may run through all its states for each byte of a text.
PATTERN_COST: Final = 20
# Comparing a value of an object in an enumeration, in comparison with a plain one.
LISTED_COST: Final = 10
_LISTS: Final = ("enum", "required", "properties", "patternProperties", "dependentRequired")
_TOO_INTRICATE: Final = (
    "the JSON Schema is too intricate: too many of its parts can apply to the same value"
)

# Parts by their identity, with how often each applies.
_Parts = Counter[int]


class JsonCost:
    """The search for the most expensive value of one schema."""

    def __init__(self, tree: JsonTree) -> None:
        self._tree = tree
        self._nodes: dict[int, Node] = {}
        self._closed: dict[int, _Parts] = {}
        self._steps = 0

    def most(self) -> int:
        """The units of the most expensive value; SchemaError if there is no bound."""
        start = self._closure(self._tree.root, ())
        seen = {frozenset(start.items())}
        waiting = [start]
        most = 0
        while waiting:
            parts = waiting.pop()
            cost = sum(count * _weight(self._nodes[key]) for key, count in parts.items())
            if cost > COST_MAX:
                raise SchemaError(_TOO_INTRICATE)
            most = max(most, cost)
            for inner in self._inner_values(parts):
                state = frozenset(inner.items())
                if state not in seen:
                    seen.add(state)
                    waiting.append(inner)
            if len(seen) > STATES_MAX:
                raise SchemaError(_TOO_INTRICATE)
        return most

    def _closure(self, node: Node, way: tuple[int, ...]) -> _Parts:
        """A part and all that apply to the same value because of it."""
        key = id(node)
        if key in way:
            raise SchemaError("the JSON Schema refers to itself for one and the same value")
        known = self._closed.get(key)
        if known is not None:
            return known
        self._nodes[key] = node
        found = Counter({key: 1})
        for part in self._tree.same_value(node):
            found += self._closure(part, (*way, key))
            self._count(len(found))
            if found.total() > COST_MAX:
                raise SchemaError(_TOO_INTRICATE)
        self._closed[key] = found
        return found

    def _inner_values(self, parts: _Parts) -> list[_Parts]:
        """The parts that apply to each kind of value inside, one entry for each kind."""
        nodes: list[tuple[Any, int]] = [
            (node, count)
            for key, count in parts.items()
            if isinstance(node := self._nodes[key], dict)
        ]
        names = {name for node, _ in nodes for name in property_names(node)}
        places = max((len(first_items(node)) for node, _ in nodes), default=0)
        found = [self._property(nodes, name) for name in (*names, None)]
        found += [self._item(nodes, place) for place in range(places + 1)]
        found.append(self._joined([(node.get("propertyNames"), count) for node, count in nodes]))
        return [one for one in found if one]

    def _property(self, nodes: list[tuple[Any, int]], name: str | None) -> _Parts:
        applied: list[tuple[Any, int]] = []
        for node, count in nodes:
            named = property_names(node)
            if name is not None and name in named:
                applied.append((named[name], count))
            else:
                applied.append((node.get("additionalProperties"), count))
            # Which names a pattern matches is not asked: all of them.
            applied += [(part, count) for part in pattern_properties(node).values()]
        return self._joined(applied)

    def _item(self, nodes: list[tuple[Any, int]], place: int) -> _Parts:
        applied: list[tuple[Any, int]] = []
        for node, count in nodes:
            first = first_items(node)
            applied.append((first[place] if place < len(first) else other_items(node), count))
            applied.append((node.get("contains"), count))
        return self._joined(applied)

    def _joined(self, applied: list[tuple[Any, int]]) -> _Parts:
        found: _Parts = Counter()
        self._count(len(applied))
        for part, count in applied:
            if not isinstance(part, dict | bool):
                continue
            for key, times in self._closure(part, ()).items():
                found[key] += times * count
                self._count(1)
        if found.total() > COST_MAX:
            raise SchemaError(_TOO_INTRICATE)
        return found

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > STEPS_MAX:
            raise SchemaError(_TOO_INTRICATE)


def _size(value: Any) -> int:
    """The values inside objects and arrays that a schema lists: each is compared one by one."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(_size(one) + (len(one) + 1 if isinstance(one, dict | list) else 0) for one in inner)


def _weight(node: Node) -> int:
    if isinstance(node, bool):
        return 1
    entries = sum(len(node[name]) for name in _LISTS if isinstance(node.get(name), list | dict))
    entries += LISTED_COST * sum(_size(node[name]) for name in ("const", "enum") if name in node)
    patterns = ("pattern" in node) + len(pattern_properties(node))
    return 2 + entries + PATTERN_COST * patterns
