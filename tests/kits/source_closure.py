"""Finds every source that a test module depends on, as far as its text tells.

That is the module, the conftests of its folders, what these import, here and in `src`, at the top
or within functions, the programs and files of cases that their strings name, and what programs
within strings import. What only our server runs does not count: it is not asked about here.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

# The first starts our server only, the others decide which tests run: no answer depends on them.
LEFT_OUT = frozenset({"fork_server.py", "official_records.py", "source_closure.py"})
# Folders that a test reads as a whole, when a string of it names them.
READ_FOLDERS = frozenset({"docs", "examples", "deploy"})
COMPILED = (".pyx", ".pxd")
# Imports in these are found by lines; a page has programs that a test may run.
TEXTS = (*COMPILED, ".md")
IMPORT_LINE = re.compile(
    r"^\s*(?:from\s+(?P<module>[.\w]+)\s+c?import\s+(?P<names>[^\n#]+)|c?import\s+(?P<plain>[^\n#]+))",
    re.MULTILINE,
)
FILE_NAME = re.compile(r"(?:[\w.-]+/)*[\w-]+\.\w+")


class SourceClosure:
    """The files behind test modules of one copy of the project; each is read once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        tests = root / "tests"
        self._roots = [tests / "kits", tests, tests / "faults", root / "src"]
        self._named = {
            path.name: path
            for path in sorted(tests.rglob("*"))
            if path.is_file() and not path.name.startswith(("test_", "conftest"))
            if path.suffix in (".py", ".json", ".jsonl", ".cjs")
            if "__pycache__" not in path.parts
        }

    def files(self, module: Path) -> list[Path]:
        """All of them, the module first."""
        waiting = [module, *self._conftests(module)]
        found = dict.fromkeys(waiting)
        while waiting:
            for path in self._needs(waiting.pop()):
                if path not in found and path.name not in LEFT_OUT:
                    found[path] = None
                    waiting.append(path)
        return list(found)

    def _conftests(self, module: Path) -> Iterator[Path]:
        for folder in module.parents:
            if (conftest := folder / "conftest.py").exists():
                yield conftest
            if folder == self.root:
                return

    @functools.cache  # noqa: B019 - lives as long as the run
    def _needs(self, path: Path) -> tuple[Path, ...]:
        if path.suffix == ".py":
            return tuple(self._needs_of_python(path))
        if path.suffix in TEXTS:
            return tuple(self._imported_by_lines(path.read_text(), path))
        return ()

    def _needs_of_python(self, path: Path) -> Iterator[Path]:
        is_test = path.is_relative_to(self.root / "tests")
        yield from self._beside(path)
        tree = ast.parse(path.read_bytes())
        used = attributes_of_names(tree)
        for node in nodes_of(tree):
            if isinstance(node, ast.ImportFrom):
                names = [name.name for name in node.names]
                yield from self._imported("." * node.level + (node.module or ""), names, path)
            elif isinstance(node, ast.Import):
                for name in node.names:
                    yield from self._imported(name.name, used.get(name.name, []), path)
            elif is_test and isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from self._in_text(node.value, path)

    def _in_text(self, text: str, path: Path) -> Iterator[Path]:
        """What a string names: a folder, files of the tests, or imports of a program."""
        if text in READ_FOLDERS:
            for found in sorted((self.root / text).rglob("*")):
                if found.is_file() and "__pycache__" not in found.parts:
                    yield found
        if len(text) < 200 and FILE_NAME.fullmatch(text):
            if (named := self._named.get(text.rpartition("/")[2])) is not None:
                yield named
            elif (other := self.root / text).is_file():
                yield other
        if "\n" in text:
            yield from self._imported_by_lines(text, path)

    def _imported_by_lines(self, text: str, path: Path) -> Iterator[Path]:
        if path.suffix in COMPILED:
            yield from self._beside(path)
        for match in IMPORT_LINE.finditer(text):
            if match["plain"]:
                for name in match["plain"].split(","):
                    yield from self._imported(name.split(" as ")[0].strip(), [], path)
            else:
                names = re.findall(r"\w+", match["names"])
                yield from self._imported(match["module"], names, path)

    def _beside(self, path: Path) -> Iterator[Path]:
        """The packages that a module of `src` lies in, and the other half of a compiled one."""
        if path.is_relative_to(self.root / "src"):
            for suffix in (".py", *COMPILED):
                if (other := path.with_suffix(suffix)) != path and other.exists():
                    yield other
            for folder in path.parents:
                if not (package := folder / "__init__.py").exists():
                    return
                yield package

    def _imported(self, module: str, names: list[str], path: Path) -> Iterator[Path]:
        """The files of `from module import names`, as this file says it."""
        if module.startswith("."):
            folder = path.parent
            for _ in range(len(module) - len(module.lstrip(".")) - 1):
                folder = folder.parent
            places = [folder / module.lstrip(".").replace(".", "/")]
        else:
            places = [root / module.replace(".", "/") for root in [path.parent, *self._roots]]
        for place in places:
            found = list(sources_at(place))
            inner = {name: list(sources_at(place / name)) for name in names}
            yield from found
            for files in inner.values():
                yield from files
            homes = self._homes(place / "__init__.py")
            for name, files in inner.items():
                if not files:
                    yield from homes.get(name, ())
            if found or any(inner.values()):
                return

    @functools.cache  # noqa: B019 - lives as long as the run
    def _homes(self, package: Path) -> dict[str, list[Path]]:
        """Where a package finds the names that it imports when they are used: it shows them to type
        checkers.
        """
        homes: dict[str, list[Path]] = {}
        for node in ast.parse(package.read_bytes()).body if package.exists() else ():
            if isinstance(node, ast.If) and is_for_type_checkers(node):
                for inner in ast.walk(node):
                    if isinstance(inner, ast.ImportFrom) and inner.module:
                        place = self.root / "src" / inner.module.replace(".", "/")
                        for name in inner.names:
                            files = [*sources_at(place), *sources_at(place / name.name)]
                            homes[name.asname or name.name] = files
        return homes


def attributes_of_names(tree: ast.AST) -> dict[str, list[str]]:
    """What is used of each plain name: connect of tradewind in `tradewind.connect()`."""
    used: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used.setdefault(node.value.id, []).append(node.attr)
    return used


def nodes_of(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node but those under `if TYPE_CHECKING`."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and is_for_type_checkers(node):
            waiting += node.orelse
        else:
            waiting += ast.iter_child_nodes(node)


def is_for_type_checkers(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def sources_at(place: Path) -> Iterator[Path]:
    """The sources of the module or package with this path, without a suffix."""
    if (package := place / "__init__.py").exists():
        yield package
    for suffix in (".py", *COMPILED):
        path = place.parent / (place.name + suffix)
        if path.is_file():
            yield path
