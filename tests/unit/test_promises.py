"""The promises of docs/DURABILITY.md against the tests that prove them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from sweeps import sweep

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/DURABILITY.md").read_text(encoding="utf-8")
TABLE_HEADING = "Every promise and its test"
# Sections that explain, require or list tests themselves, and promise nothing of their own.
WITHOUT_PROMISES = {
    "What the disk must do",
    "Transactions",
    "How it is tested",
    "The whole server",
    TABLE_HEADING,
}
HEADING = re.compile(r"^##+ (.+)$", re.MULTILINE)
ROW = re.compile(r"^\| (?P<promise>.+?) \| \[[^]]+\]\(\.\./(?P<file>[^)]+)\): (?P<tests>.+) \|$")


def table() -> str:
    return PAGE.partition(f"## {TABLE_HEADING}\n")[2]


def rows() -> list[tuple[str, str]]:
    """The file and the name of every test in the table."""
    found = []
    for line in table().splitlines():
        if line.startswith("| ") and not line.startswith("| promise |"):
            match = ROW.match(line)
            assert match is not None, f"not a promise with its tests: {line}"
            names = re.findall(r"`(\w+)`", match["tests"])
            assert names, f"a promise without a test: {line}"
            found += [(match["file"], name) for name in names]
    return found


@cache
def source(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


@sweep(("file", "name"), rows())
def test_every_named_test_exists(file: str, name: str) -> None:
    assert re.search(rf"^\s*(?:async )?def {name}\(|^{name} = ", source(file), re.MULTILINE)


def test_every_section_with_promises_has_a_row() -> None:
    sections = set(HEADING.findall(PAGE)) - WITHOUT_PROMISES
    listed = set(re.findall(r"^\*\*(.+)\*\*$", table(), re.MULTILINE))
    assert listed == sections
