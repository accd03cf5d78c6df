"""The house rules that a machine can check: sizes, pure packages, no unfinished work, no dead
modules.
"""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py")) + sorted((ROOT / "src").rglob("*.pyx"))
ALL_CODE = [
    path
    for folder in ("src", "tests", "benchmarks", "examples", "tools")
    for suffix in ("*.py", "*.pyx", "*.pxd", "*.pyi")
    for path in sorted((ROOT / folder).rglob(suffix))
]
DOCSTRING = '"' * 3
MODULE_LINES_MAX = 800
# For compiled modules whose one idea does not split.
CYTHON_MODULE_LINES_MAX = 1000
FUNCTION_LINES_MAX = 70
LINE_CHARACTERS_MAX = 100
# Packages that take time, randomness and I/O as arguments.
PURE = ("broker", "route", "wire")
IMPURE_CALLS = re.compile(r"\b(time\.(time|monotonic)(_ns)?|time\.sleep|open|print|socket\.)\(")
CYTHON_FUNCTION = re.compile(r"^(?P<indent> *)(?!cdef class)(?:cdef|cpdef|def)\b[^=]*\(.*$")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", ALL_CODE, ids=relative)
def test_modules_and_lines_fit_a_head(path: Path) -> None:
    lines = path.read_text().splitlines()
    is_compiled = path.suffix == ".pyx"
    assert len(lines) <= (CYTHON_MODULE_LINES_MAX if is_compiled else MODULE_LINES_MAX)
    too_long = [number for number, line in enumerate(lines, 1) if len(line) > LINE_CHARACTERS_MAX]
    assert not too_long


@pytest.mark.parametrize("path", [path for path in ALL_CODE if path.suffix == ".py"], ids=relative)
def test_python_functions_are_short(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            assert length <= FUNCTION_LINES_MAX, f"{node.name} has {length} lines"


@pytest.mark.parametrize("path", [path for path in ALL_CODE if path.suffix == ".pyx"], ids=relative)
def test_cython_functions_are_short(path: Path) -> None:
    lines = path.read_text().splitlines()
    start, indent, name = 0, -1, ""
    for number, line in enumerate([*lines, "end"], 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        depth = len(line) - len(line.lstrip())
        if indent >= 0 and depth <= indent and not line.lstrip().startswith(")"):
            assert number - start <= FUNCTION_LINES_MAX + 1, f"{name} has {number - start} lines"
            indent = -1
        if (match := CYTHON_FUNCTION.match(line)) and indent < 0:
            start, indent, name = number, len(match["indent"]), line.strip()


@pytest.mark.parametrize("package", PURE)
def test_pure_packages_read_no_clock_and_do_no_io(package: str) -> None:
    for path in (ROOT / "src/tradewind" / package).glob("*.py*"):
        found = IMPURE_CALLS.search(path.read_text())
        assert not found, f"{relative(path)}: {found and found[0]}"


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_every_module_says_what_it_owns(path: Path) -> None:
    assert path.read_text().lstrip().startswith(DOCSTRING)


def test_no_unfinished_work_is_left_in_the_sources() -> None:
    words = re.compile(r"\b(TO" + "DO|FIX" + "ME|XX" + r"X|NotImplemented" + r"Error)\b")
    left = [relative(path) for path in SOURCES if words.search(path.read_text())]
    assert not left


def imported_names(text: str) -> set[str]:
    """Every module or name that some line imports, with all packages on the way to it."""
    found = set(re.findall(r"(?:from|import) ([\w.]+)", text))
    for parent, names in re.findall(r"from ([\w.]+) c?import (\([^)]*|.*)", text):
        found |= {f"{parent}.{name}" for name in re.findall(r"\w+", names)}
    return found | {name[:end] for name in found for end in range(len(name)) if name[end] == "."}


def test_no_module_is_dead() -> None:
    text = "\n".join(path.read_text() for path in ALL_CODE if path.suffix != ".pyi")
    text += (ROOT / "pyproject.toml").read_text()
    used = imported_names(text)
    dead = []
    for path in SOURCES:
        if path.name in ("__init__.py", "__main__.py"):
            continue
        dotted = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        if dotted not in used and f"{dotted}:" not in text:
            dead.append(dotted)
    assert not dead


def test_no_source_is_hidden_by_the_ignore_file() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    command = ["git", "ls-files", "--others", "--ignored", "--exclude-standard", "src", "tests"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    kinds = (".py", ".pyx", ".pxd", ".pyi", ".css", ".js", ".svg", ".yaml", ".properties")
    assert [name for name in listed.splitlines() if name.endswith(kinds)] == []
