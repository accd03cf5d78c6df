"""No regular expression that sees input of others can take more than linear time.

Every use of `re` in these packages is found in the sources; a pattern that is not written there is
refused, because nobody could say what it costs.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pattern_rules import has_shared_repeats, is_costly_to_search

SOURCES = Path(__file__).parent.parent.parent / "src" / "tradewind"
# They read what their own user has written: commands, and pipelines with their SQL.
LOCAL = ("cli", "pipelines", "spark", "testing")
MODULES = [
    path
    for path in sorted(SOURCES.rglob("*.py"))
    if path.relative_to(SOURCES).parts[0] not in LOCAL
]
SEARCHES = {"search", "sub", "subn", "findall", "finditer", "split"}
USES = {*SEARCHES, "match", "fullmatch"}
# Where a pattern is not one of the rules, and why it is harmless: (module, name or text).
ALLOWED: dict[tuple[str, str], str] = {
    ("client/services/services.py", "_VERSION"): "the version that a program gives its own service",
}


class Use(NamedTuple):
    """A pattern and the method that it is used by."""

    place: str
    name: str
    pattern: re.Pattern[Any]
    method: str


def module_of(path: Path) -> str:
    return ".".join(("tradewind", *path.relative_to(SOURCES).with_suffix("").parts))


def is_re(node: ast.expr, method: str = "") -> bool:
    """Whether a call is one of the module `re`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and (not method or node.func.attr == method)
    )


def compiled(call: ast.Call, place: str) -> re.Pattern[Any]:
    """The pattern of a call that has all that it needs in itself."""
    try:
        text = ast.literal_eval(call.args[0])
    except ValueError:
        raise AssertionError(f"{place}: the pattern is made while the program runs") from None
    words = re.findall(
        r"re\.([A-Z]+)", " ".join(map(ast.unparse, (*call.args[1:], *call.keywords)))
    )
    flags = 0
    for word in words:
        flags |= getattr(re, word)
    return re.compile(text, flags)


def uses_in(path: Path, constants: dict[str, re.Pattern[Any]]) -> Iterator[Use]:
    if not constants and "import re\n" not in path.read_text():
        return
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        place = f"{path.relative_to(SOURCES)}:{node.lineno}"
        if is_re(node):
            assert isinstance(node.func, ast.Attribute)
            if node.func.attr in USES:
                pattern = compiled(node, place)
                yield Use(place, str(pattern.pattern), pattern, node.func.attr)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in constants
            and node.attr in USES
        ):
            place = f"{path.relative_to(SOURCES)}:{node.lineno}"
            yield Use(place, node.value.id, constants[node.value.id], node.attr)


def constants_of(path: Path) -> dict[str, re.Pattern[Any]]:
    """The compiled patterns that a module holds, its own and those of others."""
    if not any(f".{method}" in path.read_text() for method in USES):
        return {}
    names = vars(importlib.import_module(module_of(path)))
    return {name: value for name, value in names.items() if isinstance(value, re.Pattern)}


def all_uses() -> list[Use]:
    return [use for path in MODULES for use in uses_in(path, constants_of(path))]


def test_no_pattern_takes_more_than_linear_time() -> None:
    uses = all_uses()
    assert len(uses) > 60, "the patterns are found"
    costly = {
        f"{use.place}: {use.name}.{use.method}"
        for use in uses
        if (use.place.partition(":")[0], use.name) not in ALLOWED
        and (
            is_costly_to_search(use.pattern)
            if use.method in SEARCHES
            else has_shared_repeats(use.pattern)
        )
    }
    assert sorted(costly) == []


def test_every_compiled_pattern_is_a_constant() -> None:
    """What is compiled in a function, or from other texts, is not among those above."""
    hidden: list[str] = []
    for path in MODULES:
        if "re.compile" not in path.read_text():
            continue
        tree = ast.parse(path.read_text())
        top = {
            id(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        }
        hidden += [
            f"{path.relative_to(SOURCES)}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and is_re(node, "compile") and id(node) not in top
        ]
    assert hidden == []


@pytest.mark.parametrize(
    ("pattern", "searched", "matched"),
    [
        (r"a{1,9}", False, False),
        (r"[^/?]*", True, False),
        (r"\{\{(.*)\}\}", True, False),
        (r"(?:a+)+", True, True),
        (r"(.*\S)\s+jitter", True, True),
        (r"\s*(\d+)\s*:", True, False),
        (r"\s*\s*", True, True),
        (r"[a-z]*-?[a-z]*", True, True),
        (r"[a-z]*-[a-z]*", True, False),
        (r"(?:a|b)*c[ab]*", True, False),
        (r".*?\n", True, False),
        (r"\{([^{}]*)\}", False, False),
        (r"\{\{([^}]*)\}\}", True, False),
        (r"x?\{[^{}]*", True, False),
        (r"(\{)[^{}]*", False, False),
        (r"\.(\d*?)0*Z", True, True),
    ],
)
def test_rules_tell_patterns_apart(pattern: str, searched: bool, matched: bool) -> None:
    assert is_costly_to_search(re.compile(pattern)) is searched
    assert has_shared_repeats(re.compile(pattern)) is matched
