"""Every module that reads input of others is fed by the harness, or says why not.

A module reads input if it uses something that takes texts or bytes apart. The names of these are
looked for in the sources, so a new reader cannot be forgotten.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from entry_points import EntryPoint, all_entry_points
from foreign_modules import ELSEWHERE, LISTED

from sweeps import sweep

SOURCES = Path(__file__).parent.parent.parent / "src" / "tradewind"
PACKAGES = (
    *(
        "api",
        "backups",
        "broker",
        "client",
        "consumer",
        "dashboard",
        "decoding",
        "jetstream",
        "jwt",
    ),
    *("monitor", "otel", "route", "server", "stream", "wire"),
)
# What takes input apart.
READERS = {"re", "json", "struct", "tarfile", "zipfile", "csv", "ipaddress", "zlib", "binascii"}
FUNCTIONS = {"urlsplit", "urlparse", "parse_qsl", "parse_qs", "b64decode", "urlsafe_b64decode"}


def reads_input(path: Path) -> bool:
    text = path.read_text()
    if not any(
        word in text
        for word in (*(f"import {name}" for name in READERS), *FUNCTIONS, "json.dec", "Decoder")
    ):
        return False
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import) and {each.name for each in node.names} & READERS:
            return True
        if isinstance(node, ast.ImportFrom) and {each.name for each in node.names} & FUNCTIONS:
            return True
        if isinstance(node, ast.Attribute) and node.attr in (*FUNCTIONS, "Decoder"):
            return True
        # msgspec.json.decode
        if isinstance(node, ast.Attribute) and node.attr == "decode":
            value = node.value
            if isinstance(value, ast.Attribute) and value.attr == "json":
                return True
    return False


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(SOURCES).with_suffix("").parts)


@cache
def readers() -> set[str]:
    paths = [path for name in PACKAGES for path in (SOURCES / name).rglob("*.py")]
    paths += SOURCES.glob("*.py")
    return {dotted(path) for path in paths if reads_input(path)}


def fed() -> set[str]:
    return {module for entry in all_entry_points() for module in entry.modules}


def test_every_listed_module_is_fed() -> None:
    assert sorted(LISTED - fed()) == []


def test_every_module_that_takes_input_apart_is_listed_or_says_why_not() -> None:
    found = readers()
    assert len(found) > 60, "the readers are found"
    assert sorted(found - fed() - set(ELSEWHERE)) == []


def test_no_reason_is_left_of_a_module_that_is_gone_or_fed() -> None:
    assert sorted(set(ELSEWHERE) - readers()) == []
    assert sorted(set(ELSEWHERE) & fed()) == []


@sweep("entry", all_entry_points(), ids=str)
def test_modules_of_an_entry_point_exist(entry: EntryPoint) -> None:
    for module in entry.modules:
        path = SOURCES.joinpath(*module.split("."))
        assert path.with_suffix(".py").exists() or path.with_suffix(".pyx").exists(), module
