"""What users import: all in one place, imported on first use, and known to type checkers."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import tradewind
import tradewind.errors
from tradewind.client import api_errors
from tradewind.client import errors as client_errors

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "src/tradewind"
PACKAGES = ["tradewind", "chain", "cli", "decoding", "pipelines", "spark"]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = [
    *sorted((ROOT / "examples").rglob("*.py")),
    *sorted((ROOT / "examples").rglob("*.ipynb")),
]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
IMPORT = re.compile(r"^\s*(?:from|import) (tradewind[\w.]*)", re.MULTILINE)
# It forges a message in the files of a store, so it needs the checksum of their format.
INTERNAL = {("examples/integrity.py", "tradewind.store.format.hash")}


def package(name: str) -> tuple[Path, ModuleType]:
    if name == "tradewind":
        return SOURCES / "__init__.py", tradewind
    return SOURCES / name / "__init__.py", importlib.import_module(f"tradewind.{name}")


@pytest.mark.parametrize("name", PACKAGES)
def test_lazy_names_are_those_that_type_checkers_see(name: str) -> None:
    path, module = package(name)
    typed = {
        alias.name: node.module
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.col_offset
        for alias in node.names
    }
    assert set(typed) == set(module.__all__) - {"__version__"}
    assert set(module.__all__) <= set(dir(module))
    for each, home in typed.items():
        assert home is not None
        where = importlib.import_module(home)
        found = getattr(where, each, None) or importlib.import_module(f"{home}.{each}")
        assert getattr(module, each) is found
    with pytest.raises(AttributeError, match="has no attribute 'conect'"):
        _ = module.conect


def test_every_error_of_the_client_is_found_in_one_module() -> None:
    for module in (client_errors, api_errors):
        for name in dir(module):
            value = getattr(module, name)
            if isinstance(value, type) and issubclass(value, tradewind.errors.TradewindError):
                if name == "ApiError":
                    continue
                assert getattr(tradewind.errors, name) is value
                assert name in dir(tradewind.errors)
    for name in dir(tradewind.errors):
        assert issubclass(getattr(tradewind.errors, name), tradewind.errors.TradewindError), name
    with pytest.raises(AttributeError, match="has no attribute 'NoSuchError'"):
        _ = tradewind.errors.NoSuchError  # type: ignore[attr-defined]


def test_the_errors_that_are_typed_one_by_one_are_all() -> None:
    tree = ast.parse((SOURCES / "errors.py").read_text())
    typed = {
        alias.asname: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert typed == tradewind.errors._OTHERS


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, tradewind, tradewind.errors, tradewind.spark, tradewind.pipelines\n"
    code += "print([name for name in sys.modules if name.startswith('tradewind.')])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(ast.literal_eval(run.stdout)) == {
        "tradewind._version",
        "tradewind.errors",
        "tradewind.lazy_names",
        "tradewind.pipelines",
        "tradewind.spark",
    }


def test_help_lists_what_users_name() -> None:
    code = "import pydoc, tradewind; print(pydoc.plain(pydoc.render_doc(tradewind)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name in ("class Connection", "class Msg", "class StreamConfig", "class KeyValue"):
        assert name in run.stdout
    assert "connect(" in run.stdout


def sources_of(path: Path) -> str:
    """The Python code of a page, an example or a notebook."""
    text = path.read_text()
    if path.suffix == ".md":
        return "\n".join(BLOCK.findall(text))
    if path.suffix == ".ipynb":
        return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    return text


def test_pages_and_examples_import_from_the_front() -> None:
    imports = [
        (str(path.relative_to(ROOT)), module)
        for path in (*PAGES, *EXAMPLES)
        for module in IMPORT.findall(sources_of(path))
    ]
    assert len(imports) > 100, "the pattern finds imports"
    # The packages of `contrib` have the names of other libraries, one level below it.
    shown = [(path, module, module.removeprefix("tradewind.contrib.")) for path, module in imports]
    deep = {(path, module) for path, module, name in shown if name.count(".") > 1}
    assert deep == INTERNAL
