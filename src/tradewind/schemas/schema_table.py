"""All schemas of a bucket in memory, and which of them a subject has.

Owns the choice: the pattern that is more specific from the left, token by token; of its versions
the one that a message names, otherwise the newest. A schema that cannot be used is reported as
broken, and never makes a payload wrong. Schemas are opened when a payload first needs them.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from typing import Final

import msgspec

from tradewind.schemas.payload_checks import PayloadCheck, open_check
from tradewind.schemas.schema_documents import (
    BUCKET_BYTES_MAX,
    HEADER,
    VERSIONS_MAX,
    SchemaVersion,
    key_of,
    read_document,
    read_head,
    split_key,
)
from tradewind.schemas.schema_errors import SchemaError, shortened

# Schemas that are kept ready.
OPEN_MAX: Final = 1024
# Subjects whose schema is remembered.
SUBJECTS_MAX: Final = 4096


class Outcome(Enum):
    """The outcome of a check. FREE: the subject has no schema. BROKEN: its schema is unusable."""

    FREE = "free"
    VALID = "valid"
    INVALID = "invalid"
    BROKEN = "broken"


class SchemaVerdict(msgspec.Struct, frozen=True):
    """The verdict on one payload: `schema` is the key of the version, `problem` says more."""

    outcome: Outcome
    schema: str = ""
    problem: str = ""


FREE: Final = SchemaVerdict(Outcome.FREE)


class _PatternNode:
    """One token of patterns: the names of schemas that end here, and what follows."""

    __slots__ = ("inner", "names")

    def __init__(self) -> None:
        self.names: list[str] = []
        self.inner: dict[str, _PatternNode] = {}


class _StoredVersion(msgspec.Struct, frozen=True):
    """A version as the bucket has it; it is read when it is first needed."""

    subject: str
    value: bytes


class SchemaTable:
    """The versions of all schemas."""

    def __init__(self) -> None:
        self._versions: dict[str, dict[int, _StoredVersion]] = {}
        self._unreadable: dict[str, str] = {}
        self._count = self._bytes = 0
        self._tree: _PatternNode | None = None
        self._found: dict[str, str] = {}
        self._checks: OrderedDict[str, PayloadCheck | SchemaError] = OrderedDict()

    def __len__(self) -> int:
        return self._count

    @property
    def names(self) -> list[str]:
        """The names of all schemas."""
        return sorted(self._versions)

    @property
    def unreadable(self) -> dict[str, str]:
        """The entries of the bucket that are no schemas, with the reason."""
        return dict(self._unreadable)

    def versions(self, name: str) -> dict[int, SchemaVersion]:
        """The versions of a schema by their numbers, in order."""
        known = self._versions.get(name, {})
        return {number: read_document(known[number].value) for number in sorted(known)}

    def newest(self, name: str) -> SchemaVersion | None:
        """The newest version of a schema."""
        known = self._versions.get(name)
        return read_document(known[max(known)].value) if known else None

    def apply(self, key: str, value: bytes | None) -> None:
        """Take an entry of the bucket; None: it is gone."""
        self._remove(key)
        if value is None:
            return
        is_full = self._count + len(self._unreadable) >= VERSIONS_MAX
        if is_full or self._bytes + len(value) > BUCKET_BYTES_MAX:
            most = f"{VERSIONS_MAX} entries or {BUCKET_BYTES_MAX} bytes"
            self._unreadable[""] = f"more than {most}; others are ignored"
            return
        try:
            name, head = read_head(key, value)
        except SchemaError as error:
            self._unreadable[key] = str(error)
            # A subject whose newest version is unreadable is checked with the one before.
            return
        known = self._versions.setdefault(name, {})
        before = known[max(known)].subject if known else ""
        known[head.version] = _StoredVersion(head.subject, value)
        self._count += 1
        self._bytes += len(value)
        if known[max(known)].subject != before:
            self._forget_places()

    def _remove(self, key: str) -> None:
        self._unreadable.pop(key, None)
        self._checks.pop(key, None)
        named = split_key(key)
        known = self._versions.get(named[0]) if named is not None else None
        if named is None or known is None or named[1] not in known:
            return
        self._bytes -= len(known.pop(named[1]).value)
        self._count -= 1
        if not known:
            del self._versions[named[0]]
        self._forget_places()

    def clear(self) -> None:
        """Forget all schemas."""
        self._versions.clear()
        self._unreadable.clear()
        self._checks.clear()
        self._count = self._bytes = 0
        self._forget_places()

    def _forget_places(self) -> None:
        self._tree = None
        self._found.clear()

    # ---------------------------------------------------------------- by subject

    def name_for(self, subject: str) -> str:
        """The schema of a subject; empty if it has none."""
        found = self._found.get(subject)
        if found is None:
            if self._tree is None:
                self._tree = self._grown()
            if len(self._found) >= SUBJECTS_MAX:
                self._found.clear()
            found = self._found[subject] = _best(self._tree, subject.split("."), 0)
        return found

    def _grown(self) -> _PatternNode:
        root = _PatternNode()
        for name, known in sorted(self._versions.items()):
            node = root
            for token in known[max(known)].subject.split("."):
                node = node.inner.setdefault(token, _PatternNode())
            node.names.append(name)
        return root

    def document_for(self, subject: str, named: str = "") -> SchemaVersion | None:
        """The version that a payload was written with, None: its subject has no schema.

        SchemaError if the version that it names is not there.
        """
        name = self.name_for(subject)
        if not name:
            return None
        asked = split_key(named) if named else (name, max(self._versions[name]))
        if asked is None or asked[0] != name or asked[1] not in self._versions[name]:
            raise SchemaError(f"header {HEADER} names {shortened(named)!r}, no version of {name}")
        return read_document(self._versions[name][asked[1]].value)

    def check(self, subject: str, payload: bytes, named: str = "") -> SchemaVerdict:
        """The verdict on a payload. `named` is the version that the message names."""
        name = self.name_for(subject)
        if not name:
            return FREE
        key = named or key_of(name, max(self._versions[name]))
        if named:
            asked = split_key(named)
            if asked is None or asked[0] != name or asked[1] not in self._versions[name]:
                problem = f"header {HEADER} names {shortened(named)!r}, no version of {name}"
                return SchemaVerdict(Outcome.INVALID, name, problem)
        opened = self.opened(key)
        if isinstance(opened, SchemaError):
            return SchemaVerdict(Outcome.BROKEN, key, str(opened))
        try:
            problem = opened.problem(payload)
        except Exception as error:  # a library must not decide whether a stream works
            return SchemaVerdict(Outcome.BROKEN, key, shortened(f"{type(error).__name__}: {error}"))
        return SchemaVerdict(Outcome.INVALID if problem else Outcome.VALID, key, problem)

    def opened(self, key: str) -> PayloadCheck | SchemaError:
        """The check of a version that is there, or why it cannot be used."""
        known = self._checks.get(key)
        if known is None:
            named = split_key(key)
            assert named is not None
            try:
                stored = self._versions[named[0]][named[1]]
                known = open_check(read_document(stored.value))
            except SchemaError as error:
                known = error
            except Exception as error:  # a library that raises what it should not
                known = SchemaError(shortened(f"{type(error).__name__}: {error}"))
            self._checks[key] = known
            if len(self._checks) > OPEN_MAX:
                self._checks.popitem(last=False)
        return known


def _best(node: _PatternNode, tokens: list[str], place: int) -> str:
    """The schema of the most specific pattern below a node; each node is visited once at most."""
    if place == len(tokens):
        return node.names[0] if node.names else ""
    for token in (tokens[place], "*"):
        inner = node.inner.get(token)
        if inner is not None and (found := _best(inner, tokens, place + 1)):
            return found
    rest = node.inner.get(">")
    return rest.names[0] if rest is not None and rest.names else ""
