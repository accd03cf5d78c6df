"""The house rules that a machine can check: sizes, pure packages, no unfinished work, no dead
modules.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from english import allowed_counts, packages, stumbles, stumbling_texts, texts

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py")) + sorted((ROOT / "src").rglob("*.pyx"))
ALL_CODE = [
    path
    for folder in ("src", "tests", "benchmarks", "examples", "tools")
    for suffix in ("*.py", "*.pyx", "*.pxd", "*.pyi")
    for path in sorted((ROOT / folder).rglob(suffix))
]
# Tools write these, and nobody reads them from top to bottom.
WRITTEN_BY_TOOLS = {ROOT / "src/tradewind/sync.pyi"}
DOCSTRING = '"' * 3
MODULE_LINES_MAX = 800
# For compiled modules whose one idea does not split.
CYTHON_MODULE_LINES_MAX = 1000
FUNCTION_LINES_MAX = 70
LINE_CHARACTERS_MAX = 100
# Packages that take time, randomness and I/O as arguments.
PURE = ("broker", "route", "wire")
IMPURE_CALLS = re.compile(r"\b(time\.(time|monotonic)(_ns)?|time\.sleep|open|print|socket\.)\(")
UNALIGNED_LOAD = re.compile(r"<(?:const )?u?int(?:16|32|64)_t ?\*>\([^()]*\+[^()]*\)\)\[")
CLASS = re.compile(r"^(?:cdef )?class (\w+)", re.MULTILINE)
# A class is a thing, and its name a noun: one word that is a participle or an adjective is none.
BARE_WORD = re.compile(
    r"_?(?:[A-Z]?[a-z]+(?:ed|ing|able|ible)|Beside|Begun|Broken|Built|Busy|Chosen|Done|Found|Given"
    r"|Gone|Held|Hidden|Kept|Known|Left|Lent|Lost|Made|Met|Open|Ready|Said|Seen|Sent|Several|Shown"
    r"|Spoken|Taken|Told|Unsigned|Written)"
)
NOUNS = (
    "Feed Finding Framing Greeting Grouping Happening Keyring Listing Opening Staging Thing Timing"
    " Tracing _Mapping _Nothing _Opening"
)
# Events say what has happened; users import them from `tradewind`.
EVENTS = "Closed Connected Disconnected Reconnected Recreated Resumed Terminated"
CYTHON_FUNCTION = re.compile(r"^(?P<indent> *)(?!cdef class)(?:cdef|cpdef|def)\b[^=]*\(.*$")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_modules_and_lines_fit_a_head() -> None:
    too_long: list[str] = []
    for path in ALL_CODE:
        lines = path.read_text().splitlines()
        lines_max = CYTHON_MODULE_LINES_MAX if path.suffix == ".pyx" else MODULE_LINES_MAX
        if path not in WRITTEN_BY_TOOLS and len(lines) > lines_max:
            too_long.append(f"{relative(path)} has {len(lines)} lines")
        too_long += [
            f"{relative(path)}:{number} has {len(line)} characters"
            for number, line in enumerate(lines, 1)
            if len(line) > LINE_CHARACTERS_MAX
        ]
    assert too_long == []


def python_functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All of them, found by a walk through statements only: expressions are most of a tree."""
    blocks: list[ast.AST] = [tree]
    while blocks:
        block = blocks.pop()
        if isinstance(block, ast.FunctionDef | ast.AsyncFunctionDef):
            yield block
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(block, name, ())
            blocks += inner if isinstance(inner, list) else ()


def test_python_functions_are_short() -> None:
    too_long: list[str] = []
    for path in ALL_CODE:
        if path.suffix != ".py":
            continue
        for node in python_functions(ast.parse(path.read_text())):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                too_long.append(f"{relative(path)}: {node.name} has {length} lines")
    assert too_long == []


def cython_functions(text: str) -> Iterator[tuple[str, int]]:
    """The first line of each function, and how many lines it has."""
    start, indent, name = 0, -1, ""
    for number, line in enumerate([*text.splitlines(), "end"], 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        depth = len(line) - len(line.lstrip())
        if indent >= 0 and depth <= indent and not line.lstrip().startswith(")"):
            yield name, number - start
            indent = -1
        if (match := CYTHON_FUNCTION.match(line)) and indent < 0:
            start, indent, name = number, len(match["indent"]), line.strip()


def test_cython_functions_are_short() -> None:
    functions = [
        (f"{relative(path)}: {name}", length)
        for path in ALL_CODE
        if path.suffix == ".pyx"
        for name, length in cython_functions(path.read_text())
    ]
    assert len(functions) > 1000, "the pattern finds functions"
    assert [found for found in functions if found[1] > FUNCTION_LINES_MAX + 1] == []


@pytest.mark.parametrize("package", PURE)
def test_pure_packages_read_no_clock_and_do_no_io(package: str) -> None:
    for path in (ROOT / "src/tradewind" / package).glob("*.py*"):
        found = IMPURE_CALLS.search(path.read_text())
        assert not found, f"{relative(path)}: {found and found[0]}"


def test_every_module_says_what_it_owns() -> None:
    silent = [
        relative(path) for path in SOURCES if not path.read_text().lstrip().startswith(DOCSTRING)
    ]
    assert silent == []


def test_numbers_at_any_byte_are_copied_out() -> None:
    """A load by a cast pointer is undefined where the number is not aligned."""
    found = [
        f"{relative(path)}: {line.strip()}"
        for path in ALL_CODE
        if path.suffix in (".pyx", ".pxd")
        for line in path.read_text().splitlines()
        if UNALIGNED_LOAD.search(line)
    ]
    assert not found


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


def test_a_class_name_is_defined_once() -> None:
    places: dict[str, list[str]] = {}
    for path in SOURCES:
        for name in CLASS.findall(path.read_text()):
            places.setdefault(name, []).append(relative(path))
    assert len(places) > 500, "the pattern finds classes"
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def bare_class_names() -> Iterator[str]:
    """Each with its package."""
    nouns = {*NOUNS.split(), *EVENTS.split()}
    for path in SOURCES:
        package = path.relative_to(ROOT / "src").parts[1]
        for name in CLASS.findall(path.read_text()):
            if BARE_WORD.fullmatch(name) and name not in nouns:
                yield f"{package} {name}"


def test_names_of_classes_are_nouns() -> None:
    assert sorted(bare_class_names()) == []


@pytest.mark.parametrize("name", ["Said", "Headed", "_Waiting", "Missing", "Restartable"])
def test_a_bare_participle_is_no_name_of_a_class(name: str) -> None:
    assert BARE_WORD.fullmatch(name)
    assert not BARE_WORD.fullmatch(f"{name}Answer")


def test_a_module_name_exists_once() -> None:
    """A name alone finds the file. `errors` means the same everywhere: those of its package."""
    places: dict[str, set[str]] = {}
    for path in SOURCES:
        if path.suffix in (".py", ".pyx") and path.stem not in ("__init__", "__main__", "errors"):
            places.setdefault(path.stem, set()).add(relative(path))
    assert len(places) > 500, "there are modules"
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_a_test_module_name_exists_once() -> None:
    """Else only one of them is run: pytest tells them apart by their names alone."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert {name for name, count in names.items() if count > 1} == set()


def test_a_module_of_helpers_exists_once_and_is_no_test() -> None:
    """Pytest puts the folders of all tests on one path. What tests share is in a kit: a test module
    that another one imports is run for both, and can be changed for neither.
    """
    paths = [path for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py"]
    names = Counter(path.name for path in paths)
    assert {name for name, count in names.items() if count > 1} == set()
    imported = re.compile(r"^ *(?:from|import) ((?:[\w.]+\.)?test_\w+)", re.MULTILINE)
    found = [
        f"{relative(path)} imports {name}"
        for path in paths
        for name in imported.findall(path.read_text())
        if f"{name.rpartition('.')[2]}.py" in names
    ]
    assert found == []


def test_no_source_is_hidden_by_the_ignore_file() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    command = ["git", "ls-files", "--others", "--ignored", "--exclude-standard", "src", "tests"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    kinds = (".py", ".pyx", ".pxd", ".pyi", ".css", ".js", ".svg", ".yaml", ".properties")
    assert [name for name in listed.splitlines() if name.endswith(kinds)] == []


@pytest.mark.parametrize("package", packages(), ids=lambda path: path.name)
def test_texts_in_which_a_reader_stumbles_only_become_fewer(package: Path) -> None:
    """A lower count is entered in `english_counts.txt` too, so that it never rises again."""
    found = [
        f"{relative(path)}:{text.line}: {text.words}" for path, text in stumbling_texts(package)
    ]
    allowed = allowed_counts()[package.name]
    assert len(found) <= allowed, "\n".join(found)
    assert len(found) == allowed, f"enter `{package.name} {len(found)}` in english_counts.txt"


def test_texts_are_found_in_python_and_in_cython(tmp_path: Path) -> None:
    python = tmp_path / "some.py"
    python.write_text(f'{DOCSTRING}Of it.{DOCSTRING}\nx = "# no"  # whoever asks\n')
    cython = tmp_path / "some.pyx"
    cython.write_text(
        f"# cython: x=1\n{DOCSTRING}Owns it.\n\nOf all.\n{DOCSTRING}\n"
        f"cdef class A:\n    {DOCSTRING}Those of B.{DOCSTRING}\n"
        f"    cdef int b(\n        self\n    ) noexcept:  # why\n"
        f"        {DOCSTRING}Return the count.{DOCSTRING}\n"
    )
    assert [(text.line, text.words, stumbles(text)) for text in texts(python)] == [
        (1, "Of it.", True),
        (2, "whoever asks", True),
    ]
    assert [(text.line, text.words, stumbles(text)) for text in texts(cython)] == [
        (2, "Owns it. Of all.", True),
        (7, "Those of B.", True),
        (11, "Return the count.", False),
        (1, "cython: x=1", False),
        (10, "why", False),
    ]
