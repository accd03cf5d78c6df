"""Reads the file of a pipeline together with the files that it includes.

Owns the order in which they are merged, and the limits. The tables of an included file come before
those of the file that includes it. A key or a table that two files have is an error that names both
places: no file silently overrides another one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tradewind.documents import Key
from tradewind.documents import Place as Where
from tradewind.pipelines.definition.document import PipelineDocument, read_document
from tradewind.pipelines.definition.pipeline_parameters import ParameterFiller, Parameters

INCLUDE: Final = "include"
TESTS: Final = "tests"
SECTIONS: Final = ("sources", "steps", "sinks", TESTS)
DEPTH_MAX: Final = 10
FILES_MAX: Final = 100


def read_whole(path: Path, parameters: Parameters, beside: Path | None = None) -> PipelineDocument:
    """The document of a file with all that it includes; `beside` is one more file of that kind."""
    return _FileInclusion(parameters).whole(path, beside)


class _FileInclusion:
    """One file and those that it includes."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        # Where each file was included; the first one is nowhere.
        self._seen: dict[Path, str] = {}

    def whole(self, path: Path, beside: Path | None) -> PipelineDocument:
        document = self._read(path, [])
        if beside is not None:
            more = self._read(beside, [])
            for key in more.value:
                if key != TESTS:
                    raise more.error((key,), f"{key!r} is not for a file of tests, only {TESTS!r}")
            merge(document, more)
        return document

    def _read(self, path: Path, around: list[Path]) -> PipelineDocument:
        document = read_document(path)
        filler = ParameterFiller(document, self._parameters)
        document.value = filler.fill(document.value)
        document.filled = filler.filled
        document.secrets = filler.secrets
        if not isinstance(document.value, dict):
            raise document.error((), "a pipeline is a mapping with sources and sinks")
        names = _names(document)
        own = {key: value for key, value in document.value.items() if key != INCLUDE}
        parts = [
            self._included(document, index, name, [*around, path.resolve()])
            for index, name in enumerate(names)
        ]
        document.value = own
        for part in reversed(parts):
            merge(document, part)
        return document

    def _included(
        self, document: PipelineDocument, index: int, name: str, around: list[Path]
    ) -> PipelineDocument:
        keys: tuple[Key, ...] = (INCLUDE, index)
        if keys not in document.places:
            keys = (INCLUDE,)
        path = document.path.parent / name
        real = path.resolve()
        if real in around:
            chain = " includes ".join(one.name for one in [*around[around.index(real) :], real])
            raise document.error(keys, f"files include each other: {chain}")
        if real in self._seen:
            raise document.error(keys, f"{name} is included twice, first by {self._seen[real]}")
        if len(around) > DEPTH_MAX:
            raise document.error(keys, f"files include each other more than {DEPTH_MAX} deep")
        if len(self._seen) >= FILES_MAX:
            raise document.error(keys, f"more than {FILES_MAX} files are included")
        self._seen[real] = f"{document.path}:{document.place(keys).key_line}"
        if not path.is_file():
            raise document.error(keys, f"there is no file {path}")
        return self._read(path, around)


def _names(document: PipelineDocument) -> list[str]:
    names = document.value.get(INCLUDE, [])
    if isinstance(names, str):
        names = [names]
    if not isinstance(names, list) or not all(isinstance(one, str) and one for one in names):
        raise document.error((INCLUDE,), "include is a file, or a list of files")
    return names


def merge(document: PipelineDocument, part: PipelineDocument) -> None:
    """Take over the keys and tables of an included document, before those that are there."""
    value: dict[str, Any] = document.value
    for key, inner in part.value.items():
        if key not in SECTIONS or not isinstance(inner, dict):
            if key in value:
                raise _twice(document, part, (key,))
            value[key] = inner
            continue
        ours = value.get(key) or {}
        if not isinstance(ours, dict):
            raise document.error((key,), f"{key} is a mapping of names to what they are")
        for name in inner:
            if name in ours:
                raise _twice(document, part, (key, name))
        value[key] = {**inner, **ours}
    for keys, place in part.places.items():
        if keys and keys not in document.places:
            document.places[keys] = place
            document.files[keys] = part.file_of(keys)
    document.filled |= part.filled
    document.secrets |= part.secrets


def _twice(document: PipelineDocument, part: PipelineDocument, keys: tuple[Key, ...]) -> Exception:
    first: Where = part.place(keys)
    text = f"{keys[-1]!r} is in {part.file_of(keys)}:{first.key_line} too"
    return document.error(keys, text)
