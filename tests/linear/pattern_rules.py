"""The cost of a regular expression, by its structure.

Owns two rules, for Python's backtracking. A pattern that is searched for must have no repeat
without a bound that passes over a possible beginning of another match: matching would be tried anew
from there. No pattern may have two such repeats that can share their bytes: nested, or one after
the other.
"""

from __future__ import annotations

import re
from re import _constants as c  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

# Characters by their codes; the last three stand for all others.
OTHERS, OTHER_DIGITS, OTHER_SPACES = 256, 257, 258
EVERYTHING = frozenset(range(OTHER_SPACES + 1))
# A category, what it is the opposite of, and which of the others belong to that.
_CATEGORIES = {
    c.CATEGORY_DIGIT: (r"\d", {OTHER_DIGITS}, False),
    c.CATEGORY_NOT_DIGIT: (r"\d", {OTHER_DIGITS}, True),
    c.CATEGORY_SPACE: (r"\s", {OTHER_SPACES}, False),
    c.CATEGORY_NOT_SPACE: (r"\s", {OTHER_SPACES}, True),
    c.CATEGORY_WORD: (r"\w", {OTHERS, OTHER_DIGITS}, False),
    c.CATEGORY_NOT_WORD: (r"\w", {OTHER_DIGITS}, True),
}
_REPEATS = (c.MAX_REPEAT, c.MIN_REPEAT)


def is_costly_to_search(pattern: re.Pattern[Any]) -> bool:
    """Whether looking for the pattern can read the same characters again from many places.

    A repeat without a bound is harmless if it stops at each character that a match can begin with.
    """
    items = _flattened(list(_parsed(pattern)))
    repeats = [item for item in _walk(items) if _is_unbounded(item)]
    if not repeats:
        return False
    first = _characters(items[:1]) if not _is_nullable(items[0]) else EVERYTHING
    return has_shared_repeats(pattern) or any(first & _characters(item[1][2]) for item in repeats)


def has_shared_repeats(pattern: re.Pattern[Any]) -> bool:
    """Whether two of its repeats without a bound can take the same characters in several ways."""
    return _is_ambiguous(list(_parsed(pattern)))


def _parsed(pattern: re.Pattern[Any]) -> Any:
    text = pattern.pattern
    return _parser.parse(text, pattern.flags)


def _walk(items: Any) -> Any:
    for item in items:
        yield item
        for inner in _inside(item):
            yield from _walk(inner)


def _inside(item: Any) -> list[Any]:
    """The sequences that a part of a pattern consists of."""
    code, value = item
    if code in _REPEATS or code is c.POSSESSIVE_REPEAT:
        return [value[2]]
    if code is c.SUBPATTERN:
        return [value[3]]
    if code is c.BRANCH:
        return list(value[1])
    if code in (c.ASSERT, c.ASSERT_NOT):
        return [value[1]]
    if code is c.ATOMIC_GROUP:
        return [value]
    return []


def _is_unbounded(item: Any) -> bool:
    return item[0] in _REPEATS and item[1][1] is c.MAXREPEAT


def _is_ambiguous(items: list[Any]) -> bool:
    flat = _flattened(items)
    for item in flat:
        if _is_unbounded(item) and any(_is_unbounded(inner) for inner in _walk(item[1][2])):
            return True
        if any(_is_ambiguous(list(inner)) for inner in _inside(item)):
            return True
    for first in range(len(flat)):
        if not _is_unbounded(flat[first]):
            continue
        taken = _characters(flat[first][1][2])
        for item in flat[first + 1 :]:
            if _is_unbounded(item) and taken & _characters(item[1][2]):
                return True
            if not _is_nullable(item) and not taken & _characters([item]):
                break
    return False


def _flattened(items: list[Any]) -> list[Any]:
    """Groups that are there once are a part of the sequence around them."""
    flat: list[Any] = []
    for item in items:
        if item[0] is c.SUBPATTERN:
            flat += _flattened(list(item[1][3]))
        else:
            flat.append(item)
    return flat


def _is_nullable(item: Any) -> bool:
    code, value = item
    if code in _REPEATS:
        return value[0] == 0 or all(map(_is_nullable, value[2]))
    if code is c.BRANCH:
        return any(all(map(_is_nullable, branch)) for branch in value[1])
    return code in (c.AT, c.ASSERT, c.ASSERT_NOT, c.GROUPREF)


def _characters(items: Any) -> frozenset[int]:
    """All characters that can occur in what a sequence matches."""
    found: frozenset[int] = frozenset()
    for code, value in items:
        if code is c.LITERAL:
            found |= _literal(value)
        elif code is c.NOT_LITERAL:
            found |= EVERYTHING - {value}
        elif code is c.ANY or code is c.GROUPREF:
            found |= EVERYTHING
        elif code is c.IN:
            found |= _members(value)
        else:
            for inner in _inside((code, value)):
                found |= _characters(inner)
    return found


def _literal(code: int) -> set[int]:
    return {code} if code < OTHERS else {OTHERS, OTHER_DIGITS, OTHER_SPACES}


def _members(members: Any) -> frozenset[int]:
    found: set[int] = set()
    for code, value in members:
        if code is c.LITERAL:
            found |= _literal(value)
        elif code is c.RANGE:
            found |= set(range(value[0], min(value[1], OTHERS - 1) + 1))
            found |= _literal(value[1])
        elif code is c.CATEGORY:
            text, others, is_opposite = _CATEGORIES[value]
            category = {each for each in range(OTHERS) if re.match(text, chr(each))} | others
            found |= EVERYTHING - category if is_opposite else category
    is_negated = bool(members) and members[0][0] is c.NEGATE
    return EVERYTHING - found if is_negated else frozenset(found)
