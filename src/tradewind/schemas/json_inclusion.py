"""Whether everything that one JSON Schema allows is allowed by another one as well.

Owns the proof, which errs on one side only: without a proof the change is refused. The
first schema is the one that payloads were written with, the second one reads them. An object has
the properties that its schema names; others only if `additionalProperties` or a pattern says so, or
if the schema says nothing about properties. Otherwise no version could ever add a property, as old
payloads might hold anything under its name.

    facts     all parts of the writer's schema that hold for a value
    classes   names of properties that the same facts hold for: one name, one pattern, all others
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from tradewind.schemas.json_check import JsonCheck, open_validator
from tradewind.schemas.json_tree import (
    JsonTree,
    Node,
    first_items,
    other_items,
    pattern_properties,
    property_names,
)
from tradewind.schemas.schema_errors import SchemaError

STEPS_MAX: Final = 20_000
# Integers and other numbers apart, so that either can be left out.
_TYPES: Final = {
    "null": {"null"},
    "boolean": {"boolean"},
    "integer": {"integer"},
    "number": {"integer", "fraction"},
    "string": {"string"},
    "array": {"array"},
    "object": {"object"},
}
_ALL: Final = frozenset().union(*_TYPES.values())
_NUMBERS: Final = frozenset(("integer", "fraction"))
# Keywords that are only taken if the writer's schema has them in the same words.
_SAME_WORDS: Final = (
    ("not", _ALL, ("not",)),
    ("pattern", {"string"}, ("pattern",)),
    ("if", _ALL, ("if", "then", "else")),
    ("contains", {"array"}, ("contains", "minContains", "maxContains")),
    ("propertyNames", {"object"}, ("propertyNames",)),
    ("dependentSchemas", {"object"}, ("dependentSchemas",)),
    ("dependentRequired", {"object"}, ("dependentRequired",)),
    ("dependencies", {"object"}, ("dependencies",)),
)
_LEAST: Final = (
    ("minLength", "string", "characters"),
    ("minItems", "array", "items"),
    ("minProperties", "object", "properties"),
)
_MOST: Final = (
    ("maxLength", "string", "characters"),
    ("maxItems", "array", "items"),
    ("maxProperties", "object", "properties"),
)

_Facts = tuple[Node, ...]
_encode = msgspec.json.Encoder(order="sorted").encode


def inclusion_problem(writer: Any, reader: Any) -> str:
    """Why a payload that obeys the writer's schema might not obey the reader's; "" if it does."""
    for schema in (writer, reader):
        JsonCheck(schema)  # refuses what is no schema, or has no end
    return _Inclusion(JsonTree(writer), JsonTree(reader)).problem()


class _Inclusion:
    """One proof."""

    def __init__(self, writer: JsonTree, reader: JsonTree) -> None:
        self._writer = writer
        self._reader = reader
        # What is being proven, by how deep in the value that began.
        self._open: dict[tuple[frozenset[int], int], int] = {}
        self._depth = 0
        self._steps = 0
        self._matchers: dict[str, Any] = {}

    def problem(self) -> str:
        """Why a payload might not be allowed."""
        return self._prove((self._writer.root,), self._reader.root, "", frozenset())

    # ---------------------------------------------------------------- one value

    def _prove(self, given: _Facts, reader: Node, path: str, split: frozenset[int]) -> str:
        """Why a value for which the facts hold might not be allowed; empty if it is."""
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise SchemaError("the JSON Schemas are too intricate to be compared")
        facts = self._flat(given)
        types = self._types(facts)
        if reader is True or reader == {} or not types:
            return ""
        if reader is False:
            return f"{path or '/'}: no value is allowed here any more"
        key = (frozenset(map(id, facts)), id(reader))
        began = self._open.get(key)
        if began is not None and began < self._depth:
            return ""  # what is proven for all smaller values holds for this one
        self._open.setdefault(key, self._depth)
        try:
            problem = self._direct(facts, types, reader, path, split)
            return problem and self._split(facts, reader, path, split, problem)
        finally:
            if began is None:
                del self._open[key]

    def _inside(self, facts: _Facts, reader: Node, path: str) -> str:
        """The same for a value inside the present one."""
        self._depth += 1
        try:
            return self._prove(facts, reader, path, frozenset())
        finally:
            self._depth -= 1

    def _split(
        self, facts: _Facts, reader: Node, path: str, split: frozenset[int], problem: str
    ) -> str:
        """Try each alternative of the writer; the problem stays if there are none."""
        for fact in facts:
            if isinstance(fact, bool) or id(fact) in split:
                continue
            branches = [*fact.get("anyOf", ()), *fact.get("oneOf", ())]
            if "anyOf" in fact and "oneOf" in fact:
                branches = fact["anyOf"]
            if branches:
                now = split | {id(fact)}
                found = (self._prove((*facts, one), reader, path, now) for one in branches)
                return next(filter(None, found), "")
        return problem

    def _direct(
        self, facts: _Facts, types: set[str], reader: Node, path: str, split: frozenset[int]
    ) -> str:
        assert isinstance(reader, dict)
        if "$ref" in reader:
            problem = self._prove(facts, self._reader.target(reader["$ref"]), path, split)
            if problem or self._reader.ignores_siblings(reader):
                return problem
        values = self._values(facts)
        if values is not None and (answer := self._by_values(values, reader, path)) is not None:
            return answer
        checks = (
            self._joined(facts, reader, path, split),
            self._kinds(types, reader, path),
            self._same_words(facts, types, reader, path),
            self._bounds(facts, types, reader, path),
            self._items(facts, reader, path) if "array" in types else iter(()),
            self._properties(facts, reader, path) if "object" in types else iter(()),
        )
        return next((problem for check in checks for problem in check if problem), "")

    def _flat(self, given: _Facts) -> _Facts:
        """The facts with all that they refer to, each once."""
        found: dict[int, Node] = {}
        waiting = list(given)
        for fact in waiting:  # grows meanwhile
            if id(fact) in found:
                continue
            found[id(fact)] = fact
            if isinstance(fact, dict):
                if "$ref" in fact:
                    waiting.append(self._writer.target(fact["$ref"]))
                    if self._writer.ignores_siblings(fact):
                        del found[id(fact)]
                        continue
                waiting += fact.get("allOf", ())
        return tuple(found.values())

    def _closure(self, facts: _Facts) -> Iterator[dict[str, Any]]:
        """All parts of the writer's schema that may apply to a value."""
        found: set[int] = set()
        waiting = list(facts)
        while waiting:
            fact = waiting.pop()
            if isinstance(fact, dict) and id(fact) not in found:
                found.add(id(fact))
                yield fact
                waiting += self._writer.same_value(fact)

    def _types(self, facts: _Facts) -> set[str]:
        """The types that a value may have."""
        types = set(_ALL)
        for fact in facts:
            if fact is False:
                return set()
            if isinstance(fact, dict):
                types &= named_types(fact.get("type"))
                if (listed := listed_values(fact)) is not None:
                    types &= {type_of(value) for value in listed}
        return types

    # ---------------------------------------------------------------- finitely many values

    def _values(self, facts: _Facts) -> list[Any] | None:
        """The values that the facts list, None if they list none."""
        listed = [listed_values(fact) for fact in facts if isinstance(fact, dict)]
        return min((one for one in listed if one is not None), key=len, default=None)

    def _by_values(self, values: list[Any], reader: dict[str, Any], path: str) -> str | None:
        """Check each value itself; None if the part cannot be taken out of its schema."""
        text = _encode(reader).decode()
        root = self._reader.root
        if text.count('"$ref"') != text.count('"#/$defs/') + text.count('"#/definitions/'):
            return None
        part: dict[str, Any] = {"allOf": [reader]}
        if isinstance(root, dict):
            held = ("$schema", "$defs", "definitions")
            part |= {name: root[name] for name in held if name in root}
        validator = open_validator(part)
        for value in values:
            if not validator.is_valid(value):
                return f"{path or '/'}: {_encode(value).decode():.80} is not allowed any more"
        return ""

    # ---------------------------------------------------------------- keywords

    def _joined(
        self, facts: _Facts, reader: dict[str, Any], path: str, split: frozenset[int]
    ) -> Iterator[str]:
        for part in reader.get("allOf", ()):
            yield self._prove(facts, part, path, split)
        for keyword in ("anyOf", "oneOf"):
            parts = reader.get(keyword)
            if not parts or self._is_same(facts, reader, (keyword,)):
                continue
            if keyword == "oneOf" and not self._are_apart(parts):
                yield f"{path or '/'}: oneOf has changed, and its alternatives may overlap"
                continue
            problems = [self._prove(facts, part, path, split) for part in parts]
            if all(problems):
                yield (
                    problems[0]
                    if len(problems) == 1
                    else (f"{path or '/'}: no alternative of {keyword} allows every value")
                )

    def _are_apart(self, parts: list[Any]) -> bool:
        """Whether no value obeys two alternatives, by their types."""
        seen: set[str] = set()
        for part in parts:
            types = named_types(part.get("type")) if isinstance(part, dict) else set(_ALL)
            if types & seen:
                return False
            seen |= types
        return True

    def _kinds(self, types: set[str], reader: dict[str, Any], path: str) -> Iterator[str]:
        if lost := types - named_types(reader.get("type")):
            name = "number" if "fraction" in lost else min(lost)
            yield f"{path or '/'}: type {name} is not allowed any more"
        listed = listed_values(reader)
        if listed is not None:
            has_all = all(
                (kind == "null" and None in listed)
                or (
                    kind == "boolean"
                    and any(v is True for v in listed)
                    and any(v is False for v in listed)
                )
                for kind in types
            )
            if not has_all:
                yield f"{path or '/'}: only listed values are allowed now"

    def _same_words(
        self, facts: _Facts, types: set[str], reader: dict[str, Any], path: str
    ) -> Iterator[str]:
        for keyword, kinds, group in _SAME_WORDS:
            if keyword in reader and types & set(kinds) and not self._is_same(facts, reader, group):
                yield f"{path or '/'}: {keyword} was added or changed"
        if "array" in types and reader.get("uniqueItems") is True:
            is_short = least(facts, "maxItems") is not None and least(facts, "maxItems") <= 1
            if not is_short and not self._is_same(facts, reader, ("uniqueItems",)):
                yield f"{path or '/'}: uniqueItems was added"

    def _is_same(self, facts: _Facts, reader: dict[str, Any], group: tuple[str, ...]) -> bool:
        """Whether a fact has these keywords in the same words, without references."""
        wanted = _encode([reader.get(keyword) for keyword in group])
        if b'"$ref"' in wanted or self._reader.draft != self._writer.draft:
            return False
        return any(
            isinstance(fact, dict) and _encode([fact.get(word) for word in group]) == wanted
            for fact in facts
        )

    def _bounds(
        self, facts: _Facts, types: set[str], reader: dict[str, Any], path: str
    ) -> Iterator[str]:
        if types & _NUMBERS:
            yield from self._numbers(facts, types, reader, path)
        for keyword, kind, unit in _LEAST:
            wanted = reader.get(keyword, 0)
            if kind in types and (most(facts, keyword) or 0) < wanted:
                if keyword == "minProperties" and len(required_names(facts)) >= wanted:
                    continue
                yield f"{path or '/'}: fewer than {wanted} {unit} are not allowed any more"
        for keyword, kind, unit in _MOST:
            wanted = reader.get(keyword)
            if kind in types and wanted is not None:
                known = least(facts, keyword)
                if known is None or known > wanted:
                    yield f"{path or '/'}: more than {wanted} {unit} are not allowed any more"

    def _numbers(
        self, facts: _Facts, types: set[str], reader: dict[str, Any], path: str
    ) -> Iterator[str]:
        low, high = most(facts, "minimum"), least(facts, "maximum")
        above, below = most(facts, "exclusiveMinimum"), least(facts, "exclusiveMaximum")
        holds: dict[str, Callable[[Any], bool]] = {
            "minimum": lambda at: is_most(low, at) or is_most(above, at),
            "exclusiveMinimum": lambda at: is_beyond(low, at) or is_most(above, at),
            "maximum": lambda at: is_least(high, at) or is_least(below, at),
            "exclusiveMaximum": lambda at: is_short_of(high, at) or is_least(below, at),
        }
        for keyword, is_kept in holds.items():
            if keyword in reader and not is_kept(reader[keyword]):
                yield f"{path or '/'}: {keyword} {reader[keyword]} was not required before"
        step = reader.get("multipleOf")
        if step is not None:
            known = [f["multipleOf"] for f in facts if isinstance(f, dict) and "multipleOf" in f]
            known += [1] if "fraction" not in types else []
            is_exact = isinstance(step, int) or (isinstance(step, float) and step.is_integer())
            if step not in known and not (
                is_exact and any(float(one).is_integer() and one % step == 0 for one in known)
            ):
                yield f"{path or '/'}: multipleOf {step} was not required before"

    # ---------------------------------------------------------------- values inside

    def _items(self, facts: _Facts, reader: dict[str, Any], path: str) -> Iterator[str]:
        places = max(len(first_items(one)) for one in (*facts, reader))
        limit = least(facts, "maxItems")
        for place in range(places + 1):
            if limit is not None and place >= limit:
                return
            wanted = _item_of(reader, place)
            if wanted is not None:
                inner = tuple(x for x in (_item_of(one, place) for one in facts) if x is not None)
                where = "*" if place == places else str(place)
                yield self._inside(inner, wanted, f"{path}/{where}")

    def _properties(self, facts: _Facts, reader: dict[str, Any], path: str) -> Iterator[str]:
        required = required_names(facts)
        for name in reader.get("required", ()):
            if name not in required:
                yield f"{path}/{name}: is required now, and was not before"
        parts = list(self._closure(facts))
        named = {n for part in parts for n in (*property_names(part), *part.get("required", ()))}
        patterns = {text for part in parts for text in pattern_properties(part)}
        is_silent = not named and not patterns
        sends_others = is_silent and not any(p.get("additionalProperties") is False for p in parts)
        sends_others = sends_others or any(
            part.get("additionalProperties", False) is not False for part in parts
        )
        for name in (*named, *(set(property_names(reader)) - named)):
            if name in named or sends_others or self._matches_any(patterns, name):
                inner = self._property_facts(facts, name)
                for wanted in self._wanted(reader, name):
                    yield self._inside(inner, wanted, f"{path}/{name}")
        yield from self._open_names(facts, patterns, reader, path, sends_others=sends_others)

    def _open_names(
        self,
        facts: _Facts,
        patterns: set[str],
        reader: dict[str, Any],
        path: str,
        *,
        sends_others: bool,
    ) -> Iterator[str]:
        """Check the names that match a pattern of the writer, and all others."""
        read = pattern_properties(reader)
        rest = reader.get("additionalProperties", True)
        for text in patterns:
            inner = tuple(
                pattern_properties(fact)[text] for fact in facts if text in pattern_properties(fact)
            )
            for wanted in (*read.values(), *(() if text in read else (rest,))):
                yield self._inside(inner, wanted, f"{path}/{text}")
        if sends_others:
            inner = tuple(
                fact["additionalProperties"]
                for fact in facts
                if isinstance(fact, dict) and "additionalProperties" in fact
            )
            others = (part for text, part in read.items() if text not in patterns)
            for wanted in (*others, rest):
                yield self._inside(inner, wanted, f"{path}/*")

    def _property_facts(self, facts: _Facts, name: str) -> _Facts:
        return tuple(
            part for fact in facts if isinstance(fact, dict) for part in self._wanted(fact, name)
        )

    def _wanted(self, node: dict[str, Any], name: str) -> list[Node]:
        """The parts of one schema that apply to a property."""
        found = [property_names(node)[name]] if name in property_names(node) else []
        found += [
            part for text, part in pattern_properties(node).items() if self._matches(text, name)
        ]
        if not found and "additionalProperties" in node:
            found.append(node["additionalProperties"])
        return found

    def _matches_any(self, patterns: Iterable[str], name: str) -> bool:
        return any(self._matches(text, name) for text in patterns)

    def _matches(self, pattern: str, name: str) -> bool:
        if pattern not in self._matchers:
            self._matchers[pattern] = open_validator({"pattern": pattern}).is_valid
        return bool(self._matchers[pattern](name))


def _item_of(node: Node, place: int) -> Any:
    """The part that applies to an item; None if there is none."""
    first = first_items(node)
    return first[place] if place < len(first) else other_items(node)


def named_types(named: Any) -> set[str]:
    """The types that `type` names; all if there is none."""
    if named is None:
        return set(_ALL)
    names = [named] if isinstance(named, str) else named
    return set().union(*(_TYPES[name] for name in names))


def listed_values(node: dict[str, Any]) -> list[Any] | None:
    """The values that `const` or `enum` lists."""
    if "const" in node:
        return [node["const"]]
    return node.get("enum")


def type_of(value: Any) -> str:
    """The type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if float(value).is_integer() else "fraction"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def required_names(facts: _Facts) -> set[str]:
    """The properties that the facts require."""
    return {name for fact in facts if isinstance(fact, dict) for name in fact.get("required", ())}


def most(facts: _Facts, keyword: str) -> Any:
    """The largest number that a fact has for a keyword; None without one."""
    return max((f[keyword] for f in facts if isinstance(f, dict) and keyword in f), default=None)


def least(facts: _Facts, keyword: str) -> Any:
    """The smallest number that a fact has for a keyword; None without one."""
    return min((f[keyword] for f in facts if isinstance(f, dict) and keyword in f), default=None)


def is_most(known: Any, at: Any) -> bool:
    """Whether a known bound is at least this."""
    return bool(known is not None and known >= at)


def is_beyond(known: Any, at: Any) -> bool:
    """Whether a known bound is above this."""
    return bool(known is not None and known > at)


def is_least(known: Any, at: Any) -> bool:
    """Whether a known bound is at most this."""
    return bool(known is not None and known <= at)


def is_short_of(known: Any, at: Any) -> bool:
    """Whether a known bound is below this."""
    return bool(known is not None and known < at)
