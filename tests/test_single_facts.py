"""Facts that modules once had copies of are defined in one module, and imported from there."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

SOURCE: Final = Path(__file__).parents[1] / "src" / "tradewind"
PYTHON: Final = sorted(SOURCE.rglob("*.py"))
CYTHON: Final = sorted([*SOURCE.rglob("*.pyx"), *SOURCE.rglob("*.pxd")])

TIMES: Final = {"NS_PER_SECOND", "SECOND_NS", "MILLISECOND_NS", "MICROSECOND_NS", "MINUTE_NS"}
STATUS_CODES: Final = {
    *("HEARTBEAT", "NO_CONTENT", "END_OF_BATCH", "BAD_REQUEST", "NOT_FOUND", "REQUEST_TIMEOUT"),
    *("CONFLICT", "WRONG_PIN", "FAILED", "NO_RESPONDERS", "UNAVAILABLE", "SERVER_ERROR"),
}
BUCKET_NAMES: Final = ("KV_", "$KV.", "OBJ_", "$O.")
# What accounts and leaf nodes exchange; nats-server calls the subjects of object stores wrongly.
EXCHANGED: Final = {"$KV.>", "$OBJ.>"}
# Files that grow are synced when they are complete, because their data never lie in memory as a
# whole.
SYNC_FILES_THAT_GROW: Final = {
    "cli/streams/backup_folders.py",
    "cli/streams/chain_backup.py",
    "recovery/saved.py",
}

Finder = Callable[[ast.Module], Iterator[int]]


def constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr, int]]:
    """The constants of a module: their names without underscores before them, values and lines."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name):
                yield target.id.lstrip("_"), value, node.lineno


def is_number(value: ast.expr) -> bool:
    """Whether it is an integer or a product of some."""
    return all(
        isinstance(node, ast.BinOp | ast.operator | ast.Name | ast.expr_context)
        or (isinstance(node, ast.Constant) and type(node.value) is int)
        for node in ast.walk(value)
    )


def times(tree: ast.Module) -> Iterator[int]:
    """Lines that define the nanoseconds of a unit of time."""
    for name, value, line in constants(tree):
        if name in TIMES and is_number(value):
            yield line


def status_codes(tree: ast.Module) -> Iterator[int]:
    """Lines that define a status code, or compare a status with a number."""
    for name, value, line in constants(tree):
        if name in STATUS_CODES and isinstance(value, ast.Constant) and type(value.value) is int:
            yield line
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Compare)
            and isinstance(node.left, ast.Attribute)
            and node.left.attr == "status"
            and any(
                isinstance(each, ast.Constant) and type(each.value) is int and each.value >= 100
                for comparator in node.comparators
                for each in ast.walk(comparator)
            )
        ):
            yield node.lineno


def bucket_names(tree: ast.Module) -> Iterator[int]:
    """Lines with the beginning of the name of the stream or the subjects of a bucket."""
    texts = {
        id(text)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for text in (node.value,)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            is_named = text.startswith(BUCKET_NAMES) and text not in EXCHANGED
            if is_named and id(node) not in texts:
                yield node.lineno


def syncs(tree: ast.Module) -> Iterator[int]:
    """Lines that sync a file themselves."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("fsync", "fdatasync")
        ):
            yield node.lineno


# How a definition is found, the text without which there is none, and where it is. Parsing every
# module takes seconds.
FACTS: Final[dict[str, tuple[Finder, re.Pattern[str], set[str]]]] = {
    "times": (
        times,
        re.compile(rf"^_*(?:{'|'.join(sorted(TIMES))})\b", re.MULTILINE),
        {"durations.py"},
    ),
    "status_codes": (
        status_codes,
        re.compile(
            rf"^_*(?:{'|'.join(sorted(STATUS_CODES))})\b|\.status\b[^\n]*[\d(\[{{]$"
            r"|\.status\b[^\n]*\b\d{3}\b",
            re.MULTILINE,
        ),
        {"status_codes.py"},
    ),
    "bucket_names": (
        bucket_names,
        re.compile("|".join(re.escape(name) for name in BUCKET_NAMES)),
        {"api/names.py"},
    ),
    "syncs": (
        syncs,
        re.compile(r"\bf(?:data)?sync\b"),
        {"private_files.py", "platform_calls.py", *SYNC_FILES_THAT_GROW},
    ),
}


@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_is_defined_once(fact: str) -> None:
    find, text, homes = FACTS[fact]
    found = set()
    copies = []
    for path in PYTHON:
        name = path.relative_to(SOURCE).as_posix()
        source = path.read_text()
        if not text.search(source):
            continue
        for line in find(ast.parse(source)):
            found.add(name)
            if name not in homes:
                copies.append(f"{name}:{line}")
    assert copies == []
    assert found == homes


def test_compiled_modules_have_one_number_of_nanoseconds() -> None:
    definition = re.compile(r"\b(?:NS_PER_SECOND|SECOND_NS)\s*=|\b1_?000_?000_?000\s*[-+*/%]")
    homes = {path.name for path in CYTHON if definition.search(path.read_text())}
    assert homes == {"seconds.pxd"}


@pytest.mark.parametrize(
    ("find", "text"),
    [
        (times, "SECOND_NS = 1_000_000_000"),
        (times, "_NS_PER_SECOND: Final = 10**9"),
        (times, "MINUTE_NS = 60 * SECOND_NS"),
        (status_codes, "NO_RESPONDERS: Final = 503"),
        (status_codes, "if message.status == 503:\n    pass"),
        (
            status_codes,
            "def f(reply):\n    return reply.status in (404, 408) or reply.status >= 500",
        ),
        (bucket_names, "STREAM = 'KV_'"),
        (bucket_names, "def f(bucket):\n    return f'$KV.{bucket}.>'"),
        (bucket_names, "is_store = name.startswith(('OBJ_', 'x'))"),
        (syncs, "import os\nos.fsync(1)"),
    ],
)
def test_a_copy_of_a_fact_is_found(find: Finder, text: str) -> None:
    assert len(set(find(ast.parse(text)))) == 1
    assert next(needed for each, needed, _ in FACTS.values() if each is find).search(text)


@pytest.mark.parametrize(
    ("find", "text"),
    [
        (times, "RETRY_NS = 1_000_000_000"),
        (status_codes, "FAILED = 'failed'"),
        (status_codes, "is_long = message.status == NO_RESPONDERS"),
        (bucket_names, "'''KV_ is where names of streams begin.'''"),
        (bucket_names, "EXPORTS = ('$KV.>', '$OBJ.>')"),
        (syncs, "file.sync()"),
    ],
)
def test_other_code_is_no_copy(find: Finder, text: str) -> None:
    assert list(find(ast.parse(text))) == []
