"""The import contracts of pyproject.toml hold for compiled modules too.

import-linter reads Python sources only: what a .pyx or .pxd file imports or cimports is checked
here against the same contracts.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
IMPORT = re.compile(
    r"^\s*(?:from\s+(?P<package>tradewind[\w.]*)\s+c?import\s+\(?(?P<names>[\w, ]*)"
    r"|c?import\s+(?P<module>tradewind[\w.]*))",
    re.MULTILINE,
)


@cache
def contracts() -> list[dict[str, Any]]:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found: list[dict[str, Any]] = document["tool"]["importlinter"]["contracts"]
    return found


def layers_of(contract: dict[str, Any]) -> dict[str, int]:
    """Each name with the number of its layer; "(name)" is one that only compiled modules have."""
    return {
        name.strip("() "): number
        for number, layer in enumerate(contract["layers"])
        for name in re.split(r"[|:]", layer)
    }


def imports_of(text: str) -> set[str]:
    """Every module that a source names, and every name it takes from a package."""
    found: set[str] = set()
    for match in IMPORT.finditer(text):
        package = match["package"] or match["module"]
        found.add(package)
        for name in re.findall(r"\w+", match["names"] or ""):
            if (SOURCE / package.replace(".", "/") / f"{name}.pxd").exists():
                found.add(f"{package}.{name}")
    return found


@cache
def compiled_imports() -> list[tuple[str, str]]:
    """(importing module, imported module) of all compiled sources."""
    return [
        (".".join(path.relative_to(SOURCE).with_suffix("").parts), imported)
        for suffix in ("*.pyx", "*.pxd")
        for path in sorted(SOURCE.rglob(suffix))
        for imported in sorted(imports_of(path.read_text()))
    ]


def below(container: str, module: str) -> str | None:
    """The name of what holds a module, directly below a container."""
    if not module.startswith(f"{container}."):
        return None
    return module.removeprefix(f"{container}.").split(".")[0]


def layer_faults(contract: dict[str, Any], edges: list[tuple[str, str]]) -> set[str]:
    faults = set()
    layers = layers_of(contract)
    for container in contract["containers"]:
        for importer, imported in edges:
            upper, lower = below(container, importer), below(container, imported)
            if upper is None or lower is None or upper == lower:
                continue
            unknown = [name for name in (upper, lower) if name not in layers]
            faults |= {f"{container}.{name} is in no layer" for name in unknown}
            if not unknown and layers[upper] >= layers[lower]:
                faults.add(f"{importer} imports {imported}")
    return faults


def forbidden_faults(contract: dict[str, Any], edges: list[tuple[str, str]]) -> set[str]:
    return {
        f"{importer} imports {imported}"
        for importer, imported in edges
        for source in contract["source_modules"]
        for forbidden in contract["forbidden_modules"]
        if f"{importer}.".startswith(f"{source}.") and f"{imported}.".startswith(f"{forbidden}.")
    }


def faults_of(contract: dict[str, Any], edges: list[tuple[str, str]]) -> set[str]:
    kinds = {"layers": layer_faults, "forbidden": forbidden_faults}
    return kinds[contract["type"]](contract, edges)


@pytest.mark.parametrize("contract", contracts(), ids=lambda contract: str(contract["name"]))
def test_compiled_modules_keep_the_contract(contract: dict[str, Any]) -> None:
    assert faults_of(contract, compiled_imports()) == set()


def test_a_broken_contract_is_found() -> None:
    layers = {"type": "layers", "containers": ["a"], "layers": ["top", "(left) | right", "low"]}
    edges = [("a.top", "a.low.x"), ("a.left.b", "a.low"), ("a.low.y", "a.low.x")]
    assert faults_of(layers, edges) == set()
    assert faults_of(layers, [("a.low", "a.top"), ("a.left", "a.right"), ("a.b", "a.top")]) == {
        "a.low imports a.top",
        "a.left imports a.right",
        "a.b is in no layer",
    }
    forbidden = {"type": "forbidden", "source_modules": ["a.x"], "forbidden_modules": ["a.y"]}
    assert faults_of(forbidden, [("a.x.b", "a.y"), ("a.xx", "a.y"), ("a.x", "a.yy")]) == {
        "a.x.b imports a.y"
    }


def test_imports_of_compiled_sources_are_read() -> None:
    text = "from tradewind.store cimport nothing\ncimport tradewind.saturated as s\n    import os\n"
    text += "from tradewind cimport invariants\nfrom tradewind.wire.parser import x, y\n"
    assert imports_of(text) == {
        "tradewind",
        "tradewind.invariants",
        "tradewind.saturated",
        "tradewind.store",
        "tradewind.wire.parser",
    }
    assert ("tradewind.stream.commit_path", "tradewind.store.commits.syncer") in compiled_imports()
