"""The style sheet hides nothing by accident: each class that it hides belongs to one place."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import tradewind.dashboard

PACKAGE = Path(tradewind.dashboard.__file__).parent
STYLES = PACKAGE / "look/static"
HIDING = re.compile(r"([^{}]+)\{[^{}]*display: none[^{}]*\}")
CLASS = re.compile(r"\.([a-z][\w-]*)(?=[^\w-]|\Z)")
GIVEN = re.compile(r"class_=f?\"([^\"]*)\"")


def hidden_classes() -> set[str]:
    """Classes that are hidden wherever they occur: the only part of a selector, or its last."""
    found = set()
    for path in STYLES.glob("*.css"):
        for rule in HIDING.finditer(path.read_text()):
            for selector in rule[1].split(","):
                parts = selector.split()
                if parts and len(parts) == 1 and (name := CLASS.fullmatch(parts[0])):
                    found.add(name[1])
    return found


def test_a_hidden_class_has_one_meaning() -> None:
    hidden = hidden_classes()
    assert "menu-lines" in hidden, "the pattern finds rules"
    users: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        names = {name for found in GIVEN.findall(path.read_text()) for name in found.split()}
        users.update(names & hidden)
    assert {name for name, count in users.items() if count > 1} == set()


def test_bar_charts_are_not_hidden() -> None:
    assert not {"chart", "bars", "figure"} & hidden_classes()
