"""The stubs of compiled modules say what is there: mypy believes them and cannot check them.

Compared are public names, the names, kinds and defaults of parameters, and what may be assigned.
Types are not: a compiled module does not know them.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sweeps import sweep

SOURCES = Path(__file__).parent.parent.parent / "src"
STUBS = [path for path in sorted(SOURCES.rglob("*.pyi")) if path.with_suffix(".pyx").exists()]
# What Cython and classes have by themselves.
OWN = re.compile(r"__\w+__|__\w+_cython__")
CONSTANT = re.compile(r"^([A-Za-z]\w*)(?:: [^=]+)? = ", re.MULTILINE)
READ_ONLY = re.compile(r"^    cdef readonly \S.*?(\w+) *(?:#.*)?$")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(SOURCES).with_suffix("").parts)


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of a stub, without imports and docstrings."""
    for statement in body:
        if not isinstance(statement, ast.Import | ast.ImportFrom | ast.Expr | ast.Pass):
            yield statement


def names_of(statement: ast.stmt) -> list[str]:
    if isinstance(statement, Function | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.AnnAssign):
        return [ast.unparse(statement.target)]
    if isinstance(statement, ast.TypeAlias if hasattr(ast, "TypeAlias") else ()):
        return [ast.unparse(statement.name)]
    assert isinstance(statement, ast.Assign), ast.dump(statement)
    return [ast.unparse(target) for target in statement.targets]


def is_type_only(statement: ast.stmt) -> bool:
    """A type variable or alias, which a compiled module need not have."""
    return isinstance(statement, ast.Assign) and not ast.unparse(statement.targets[0]).isupper()


def is_decorated(function: ast.stmt, *names: str) -> bool:
    return isinstance(function, Function) and any(
        ast.unparse(one) in names for one in function.decorator_list
    )


def stub_parameters(function: Function) -> list[tuple[str, str, bool]]:
    """Name, kind and whether it has a default, of each but `self`."""
    found: list[tuple[str, str, bool]] = []
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    first_default = len(positional) - len(arguments.defaults)
    for index, one in enumerate(positional):
        found.append((one.arg, "positional", index >= first_default))
    if arguments.vararg is not None:
        found.append((arguments.vararg.arg, "rest", False))
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found.append((one.arg, "keyword", default is not None))
    if arguments.kwarg is not None:
        found.append((arguments.kwarg.arg, "keywords", False))
    return [one for one in found if one[0] not in ("self", "cls")]


def real_parameters(function: object) -> list[tuple[str, str, bool]]:
    kinds = {
        inspect.Parameter.POSITIONAL_ONLY: "positional",
        inspect.Parameter.POSITIONAL_OR_KEYWORD: "positional",
        inspect.Parameter.VAR_POSITIONAL: "rest",
        inspect.Parameter.KEYWORD_ONLY: "keyword",
        inspect.Parameter.VAR_KEYWORD: "keywords",
    }
    return [
        (one.name, kinds[one.kind], one.default is not inspect.Parameter.empty)
        for one in inspect.signature(function).parameters.values()  # type: ignore[arg-type]
        if one.name not in ("self", "cls")
    ]


def constructor_names(found: type) -> set[str] | None:
    """The parameters that the first line of the documentation of a compiled class names."""
    line = (found.__doc__ or "").partition("\n")[0]
    if not (match := re.match(rf"{found.__name__}\((.*)\)$", line)):
        return None
    names = [re.sub(r" *=.*", "", part).split(" ")[-1] for part in match[1].split(", ")]
    return {name.lstrip("*") for name in names if name.lstrip("*") and name.lstrip("*") != "self"}


def has_fields_of_its_own(owner: object) -> bool:
    return isinstance(owner, type) and owner.__dictoffset__ != 0


def is_internal(found: object) -> bool:
    """A compiled class that shows nothing to Python."""
    return isinstance(found, type) and all(name.startswith("_") for name in vars(found))


def read_only_fields(path: Path, name: str) -> set[str]:
    """The fields of a compiled class that may be read and not assigned."""
    found: set[str] = set()
    for suffix in (".pxd", ".pyx"):
        if not path.with_suffix(suffix).exists():
            continue
        is_inside = False
        for line in path.with_suffix(suffix).read_text().splitlines():
            if line and not line.startswith((" ", "#")):
                is_inside = re.match(rf"cdef class {name}\b", line) is not None
            elif is_inside and (match := READ_ONLY.match(line)):
                found.add(match[1])
    return found


def contract_names(found: type) -> set[str]:
    """The fields and methods of a contract that a compiled module declares."""
    names = {*vars(found).get("__annotations__", {}), *vars(found)}
    return {name for name in names if not name.startswith("_")}


class Comparison:
    """A stub and its module, and what differs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.module: ModuleType = importlib.import_module(dotted(path))
        self.differences: list[str] = []

    def run(self) -> list[str]:
        stub = list(statements(ast.parse(self.path.read_text()).body))
        said = {name for statement in stub for name in names_of(statement)}
        for statement in stub:
            for name in names_of(statement):
                self._compare(self.module, name, statement, "")
        constants = set(CONSTANT.findall(self.path.with_suffix(".pyx").read_text()))
        there = {
            name
            for name, value in vars(self.module).items()
            if name in constants or getattr(value, "__module__", "") == self.module.__name__
        }
        self._missing(there - said, "")
        return self.differences

    def _missing(self, names: set[str], place: str) -> None:
        for name in sorted(names):
            if not name.startswith("_") and not is_internal(getattr(self.module, name, None)):
                self.differences.append(f"{place}{name} is not in the stub")

    def _compare(self, owner: object, name: str, statement: ast.stmt, place: str) -> None:
        found: Any = getattr(owner, name, None)
        if not hasattr(owner, name):
            # Fields of a class that is not compiled are there with its objects only, and private
            # functions are what a compiled class expects of its subclass.
            is_field = isinstance(statement, ast.AnnAssign) and has_fields_of_its_own(owner)
            if not is_type_only(statement) and not is_field and not name.startswith("_"):
                self.differences.append(f"{place}{name} is in the stub only")
        elif isinstance(statement, ast.ClassDef):
            self._compare_class(found, statement)
        elif isinstance(statement, Function) and not is_decorated(
            statement, "property", f"{name}.setter", "overload"
        ):
            self._compare_function(owner, found, statement, place)

    def _compare_class(self, found: type, stub: ast.ClassDef) -> None:
        place = f"{stub.name}."
        if any(re.match(r"Protocol\b", ast.unparse(base)) for base in stub.bases):
            self._compare_contract(found, stub)
            return
        fixed = read_only_fields(self.path, stub.name)
        said: set[str] = set()
        for statement in statements(stub.body):
            for name in names_of(statement):
                said.add(name)
                self._compare(found, name, statement, place)
                is_final = isinstance(statement, ast.AnnAssign) and "Final" in ast.unparse(
                    statement.annotation
                )
                if isinstance(statement, ast.AnnAssign) and name in fixed and not is_final:
                    self.differences.append(f"{place}{name} cannot be assigned")
        self._missing({name for name in vars(found) if not OWN.fullmatch(name)} - said, place)

    def _compare_contract(self, found: type, stub: ast.ClassDef) -> None:
        """What a compiled class asks of its owner: the methods with their meaning are in the
        source, their types in the stub.
        """
        place = f"{stub.name}."
        there = contract_names(found)
        said: set[str] = set()
        for statement in statements(stub.body):
            said.update(names_of(statement))
            if not isinstance(statement, Function) or is_decorated(statement, "property"):
                continue
            if statement.name in there:
                self._compare(found, statement.name, statement, place)
                if not getattr(found, statement.name).__doc__:
                    self.differences.append(f"{place}{statement.name} has no meaning")
        self.differences += [f"{place}{name} is in the stub only" for name in sorted(said - there)]
        self._missing(there - said, place)

    def _compare_function(self, owner: object, found: Any, stub: Function, place: str) -> None:
        said = stub_parameters(stub)
        if stub.name == "__init__" and isinstance(owner, type):
            names = constructor_names(owner)
            if names is not None and names != {name for name, *_ in said}:
                self.differences.append(f"{place}__init__ takes {sorted(names)}")
            return
        if OWN.fullmatch(stub.name):
            return
        there = real_parameters(found)
        if said != there:
            self.differences.append(f"{place}{stub.name} takes {there}, the stub says {said}")


# Each contract, with the modules that ask something of such an owner, and how they name it there.
CONTRACTS = {
    "consumer.delivery.DeliveryOwner": (
        r"self\._?owner\.(\w+)",
        "consumer/delivery consumer/pulls consumer/ack_replies",
    ),
    "stream.ingest.IngestOwner": (
        r"(?:self|ingest)\.stream\.(\w+)",
        "stream/ingest stream/message_recorder",
    ),
    "stream.ingest.CloserLook": (r"\.slow_path\.(\w+)", "stream/ingest"),
    "jetstream.replication.copier.CopierOwner": (
        r"self\.owner\.(\w+)",
        "jetstream/replication/copier",
    ),
    "jetstream.turn_work.TurnWorkOwner": (r"\b_?owner\.(\w+)", "jetstream/turn_work"),
    "broker.turn_end.TurnOwner": (r"\b_?owner\.(\w+)", "broker/turn_end"),
}


def asked_of_owner(pattern: str, modules: str) -> set[str]:
    return {
        name
        for module in modules.split()
        for name in re.findall(pattern, (SOURCES / f"tradewind/{module}.pyx").read_text())
    }


@sweep("name", sorted(CONTRACTS))
def test_a_contract_is_exactly_what_its_modules_ask_of_an_owner(name: str) -> None:
    module, _, contract = name.rpartition(".")
    found = getattr(importlib.import_module(f"tradewind.{module}"), contract)
    assert contract_names(found) == asked_of_owner(*CONTRACTS[name])
    # An owner has its own methods: those of the contract are never called.
    with pytest.raises(TypeError, match="Protocols cannot be instantiated"):
        found()


def test_every_contract_of_a_compiled_module_is_listed() -> None:
    found = {
        f"{dotted(path).removeprefix('tradewind.')}.{name}"
        for path in STUBS
        for name in re.findall(
            r"^class (\w+)\(Protocol\)", path.with_suffix(".pyx").read_text(), re.MULTILINE
        )
    }
    assert found == set(CONTRACTS)


@sweep("path", STUBS, ids=dotted)
def test_the_stub_says_what_the_compiled_module_has(path: Path) -> None:
    assert Comparison(path).run() == []


def test_differences_are_found(tmp_path: Path) -> None:
    """A stub that is wrong in every way that the comparison knows."""
    source = SOURCES / "tradewind/store/commits/syncer"
    wrong = source.with_suffix(".pyi").read_text()
    for right, other in (
        ("RETRY_NS: Final[int]\n", ""),
        ("def changed(self, entry: SyncEntry, now_ns: int)", "def changed(self, entry: SyncEntry)"),
        ("    def begin_drain(self, now_ns: int) -> None: ...\n", ""),
        ("    waiters: int\n", "    waiters: int\n    losers: int\n"),
        ("    @property\n    def kept(self) -> int: ...\n", "    kept: int\n"),
        (", *, interval_ns: int = ...", ""),
    ):
        assert right in wrong, right
        wrong = wrong.replace(right, other, 1)

    comparison = Comparison(source.with_suffix(".pyi"))
    (tmp_path / "syncer.pyi").write_text(wrong)
    for suffix in (".pyx", ".pxd"):
        (tmp_path / f"syncer{suffix}").write_text(source.with_suffix(suffix).read_text())
    comparison.path = tmp_path / "syncer.pyi"
    assert [line.split(" ")[0] for line in comparison.run()] == [
        "SyncEntry.losers",
        "SyncEntry.kept",
        "Syncer.__init__",
        "Syncer.changed",
        "Syncer.begin_drain",
        "RETRY_NS",
    ]


def test_a_contract_that_differs_is_found(tmp_path: Path) -> None:
    source = SOURCES / "tradewind/stream/ingest"
    wrong = source.with_suffix(".pyi").read_text()
    for right, other in (
        ("    def publish_failed(self, reply: bytes) -> None: ...\n", ""),
        ("def clock_went_back(self, distance_ns: int)", "def clock_went_back(self)"),
        ("    def is_wanted(", "    has_leader: bool\n    def is_wanted("),
    ):
        assert right in wrong, right
        wrong = wrong.replace(right, other, 1)
    comparison = Comparison(source.with_suffix(".pyi"))
    (tmp_path / "ingest.pyi").write_text(wrong)
    for suffix in (".pyx", ".pxd"):
        (tmp_path / f"ingest{suffix}").write_text(source.with_suffix(suffix).read_text())
    comparison.path = tmp_path / "ingest.pyi"
    assert [line.split(" ")[0] for line in comparison.run()] == [
        "IngestOwner.clock_went_back",
        "IngestOwner.has_leader",
        "CloserLook.publish_failed",
    ]
