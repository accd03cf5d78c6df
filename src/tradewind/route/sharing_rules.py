"""Match imports with exports: permissions, subjects, and cycles.

Owns the decisions, in the order and with the texts of nats-server, over the `route.sharing` data of
all accounts. The module knows neither the configuration nor a running server: both call it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

import msgspec

from tradewind.route.mapping import MappingError
from tradewind.route.sharing import (
    SINGLETON,
    Export,
    Import,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
)
from tradewind.route.sublist import Sublist
from tradewind.route.translation import SubjectTemplate, template, untokenized
from tradewind.subjects import collide, is_literal, is_subset, is_valid_literal, is_valid_subject

CYCLE_DEPTH_MAX: Final = 1024
_Export = TypeVar("_Export", StreamExport, ServiceExport)
# The imports of an account that carry on its messages on a subject, by local subject.
_Near = Callable[[str, str], list[tuple[str, Import]]]


class Shares(msgspec.Struct, frozen=True):
    """The exports and imports of one account."""

    exports: tuple[Export, ...] = ()
    imports: tuple[Import, ...] = ()


class SharingProblem(msgspec.Struct, frozen=True):
    """An impossible export or import: its account, the item, and the reason."""

    account: str
    item: Export | Import
    text: str


class ExportIndex(Generic[_Export]):
    """The exports of one kind of an account; the last of several with the same subject counts."""

    def __init__(self, exports: Iterable[_Export]) -> None:
        self._exact: dict[str, _Export] = {export.subject: export for export in exports}
        self._order: dict[str, int] = {subject: index for index, subject in enumerate(self._exact)}
        self._patterns = Sublist(0, cache=False)
        self._by_handle: dict[int, str] = {}
        for subject in self._exact:
            if is_valid_subject(subject):
                self._by_handle[self._patterns.add(subject.encode())] = subject

    def __del__(self) -> None:
        for handle in self._by_handle:
            self._patterns.discard(handle)

    def covering(self, subject: str) -> _Export | None:
        """The export with this subject, or else the first one that covers all of it."""
        exact = self._exact.get(subject)
        if exact is not None:
            return exact
        # Wildcards of `subject` are tokens like others to the trie: it may find too much.
        handles, _ = self._patterns.find(subject.encode())
        found = list(map(self._by_handle.__getitem__, handles))
        covering = [name for name in found if is_subset(subject, name)]
        return self._exact[min(covering, key=self._order.__getitem__)] if covering else None


def may_import(export: Export | None, importer: str, wanted: Import) -> bool:
    """Whether the properties of an export permit an account to import it."""
    if export is None:
        return False
    if export.account_token_position:
        tokens = wanted.subject.split(".")
        position = export.account_token_position - 1
        return position < len(tokens) and tokens[position] == importer
    if export.token_required:
        return wanted.is_activated
    return export.accounts is None or importer in export.accounts


def local_subject(wanted: Import) -> str:
    """The subjects of an import for members of the importing account, as a pattern."""
    if isinstance(wanted, ServiceImport):
        return untokenized(wanted.local)
    if wanted.prefix:
        return f"{wanted.prefix.removesuffix('.')}.{wanted.subject}"
    return untokenized(wanted.to) or wanted.subject


def local_template(wanted: Import) -> SubjectTemplate | None:
    """The translation of remote subjects; None if they stay unchanged. Raises MappingError."""
    local = wanted.local if isinstance(wanted, ServiceImport) else wanted.to
    if isinstance(wanted, StreamImport) and wanted.prefix:
        local = local_subject(wanted)
    if not local or local == wanted.subject:
        return None
    return template(wanted.subject, local)


def remote_template(wanted: Import) -> SubjectTemplate | None:
    """The translation of local subjects; None if they stay unchanged. Raises MappingError."""
    if is_literal(wanted.subject):
        local = local_subject(wanted)
        same = local == wanted.subject
        return None if same else SubjectTemplate(local, (wanted.subject.encode(),), None)
    forward = local_template(wanted)
    return None if forward is None else forward.reversed()


def check_sharing(accounts: Mapping[str, Shares]) -> list[SharingProblem]:
    """All problems of the exports and imports. Entries without a problem can be used as they
    are.
    """
    return list(_SharingChecker(accounts).problems())


class _SharingChecker:
    """One pass over all accounts. Valid imports are remembered: later ones may form cycles with
    them.
    """

    def __init__(self, accounts: Mapping[str, Shares]) -> None:
        self._accounts = accounts
        self._streams = {
            name: ExportIndex(e for e in shares.exports if isinstance(e, StreamExport))
            for name, shares in accounts.items()
        }
        self._services = {
            name: ExportIndex(e for e in shares.exports if isinstance(e, ServiceExport))
            for name, shares in accounts.items()
        }
        self._stream_imports: dict[str, _Imports] = {name: _Imports() for name in accounts}
        self._service_imports: dict[str, _Imports] = {name: _Imports() for name in accounts}

    def problems(self) -> Iterator[SharingProblem]:
        for kind in (StreamExport, ServiceExport):
            for name, shares in self._accounts.items():
                for export in shares.exports:
                    if isinstance(export, kind) and (text := self._export_fault(export)):
                        yield SharingProblem(name, export, text)
        for name, shares in self._accounts.items():
            for wanted in shares.imports:
                if isinstance(wanted, StreamImport):
                    yield from self._told(name, wanted, self._stream_fault(name, wanted))
        for name, shares in self._accounts.items():
            used: dict[tuple[str, str], ServiceImport] = {}
            for wanted in shares.imports:
                if isinstance(wanted, ServiceImport):
                    yield from self._told(name, wanted, self._service_fault(name, wanted, used))

    def _told(self, name: str, wanted: Import, text: str | None) -> Iterator[SharingProblem]:
        if text is None:
            return
        if not text.startswith(('"', "Duplicate")):
            kind = "stream" if isinstance(wanted, StreamImport) else "service"
            text = f'Error adding {kind} import "{wanted.subject}": {text}'
        yield SharingProblem(name, wanted, text)

    # ---------------------------------------------------------------- exports

    def _export_fault(self, export: Export) -> str | None:
        kind = "stream" if isinstance(export, StreamExport) else "service"
        for name in sorted(export.accounts or ()):
            if name not in self._accounts:
                return f'"{name}" account not defined for {kind} export'
        position = export.account_token_position
        tokens = export.subject.split(".")
        if not is_valid_subject(export.subject) or (
            position and (not 0 < position <= len(tokens) or tokens[position - 1] != "*")
        ):
            return f'Error adding {kind} export "{export.subject}": sublist: invalid subject'
        if isinstance(export, ServiceExport) and export.latency is not None:
            subject = export.latency.subject
            where = f'"{export.subject}" on subject "{subject}"'
            if not is_valid_literal(subject) or is_subset(subject, export.subject):
                return f"Error adding service latency sampling for {where}: invalid publish subject"
            if export.response_type != SINGLETON:
                return (
                    f"Error adding service latency sampling for {where}: bad service response type"
                )
        return None

    # ---------------------------------------------------------------- imports

    def _stream_fault(self, name: str, wanted: StreamImport) -> str | None:
        if wanted.account not in self._accounts:
            return f'"{wanted.account}" account not defined for stream import'
        if not is_valid_subject(wanted.subject):
            return "stream import not authorized"
        if not may_import(self._streams[wanted.account].covering(wanted.subject), name, wanted):
            return "stream import not authorized"
        imports = self._stream_imports[name]
        if wanted.prefix and not is_literal(wanted.prefix.removesuffix(".")):
            return "stream import prefix can not contain wildcard tokens"
        local = local_subject(wanted)
        if not is_valid_subject(local):
            return f'"{local}" is not a valid subject'
        try:
            local_template(wanted)
        except MappingError as error:
            return (
                f"failed to create mapping transform for stream import subject from "
                f'"{wanted.subject}" to "{wanted.to}": {error}'
            )
        for subject in dict.fromkeys((wanted.subject, local)):
            if cycle := self._stream_cycle(wanted.account, subject, name):
                return cycle
        if not imports.add(wanted, local):
            return "stream import already exists"
        return None

    def _service_fault(
        self, name: str, wanted: ServiceImport, used: dict[tuple[str, str], ServiceImport]
    ) -> str | None:
        before = used.setdefault((wanted.local, wanted.account), wanted)
        if before is not wanted:
            return (
                f'Duplicate service import subject "{wanted.local}", previously used in import '
                f'for account "{before.account}", subject "{before.subject}"'
            )
        if wanted.account not in self._accounts:
            return f'"{wanted.account}" account not defined for service import'
        if not is_valid_subject(wanted.subject):
            return "service import not authorized"
        if not may_import(self._services[wanted.account].covering(wanted.subject), name, wanted):
            return "service import not authorized"
        local = local_subject(wanted)
        if cycle := self._service_cycle(wanted.account, local, name):
            return cycle
        try:
            if not is_literal(wanted.subject):
                local_template(wanted)
        except MappingError as error:
            return (
                f"failed to create mapping transform for service import subject from "
                f'"{wanted.local}" to "{wanted.subject}": {error}'
            )
        if not is_valid_subject(local):
            return "sublist: invalid subject"
        self._service_imports[name].add(wanted, local)
        return None

    # ---------------------------------------------------------------- cycles

    def _service_cycle(self, name: str, subject: str, importer: str) -> str | None:
        """Why requests to `subject` could come back, over the imports of account `name`."""
        return self._cycle(name, subject, importer, self._near_services)

    def _stream_cycle(self, name: str, subject: str, importer: str) -> str | None:
        return self._cycle(name, subject, importer, self._near_streams)

    def _near_services(self, name: str, subject: str) -> list[tuple[str, Import]]:
        return self._service_imports[name].colliding(subject, by_local=False)

    def _near_streams(self, name: str, subject: str) -> list[tuple[str, Import]]:
        if self._streams[name].covering(subject) is None:
            return []
        return self._stream_imports[name].colliding(subject, by_local=True)

    def _cycle(self, name: str, subject: str, importer: str, near: _Near) -> str | None:
        """Walk from account to account; reaching a visited account means that there is a cycle."""
        visited = {importer}
        ways = [(name, subject, iter(near(name, subject)))]
        while ways:
            name, subject, imports = ways[-1]
            local, wanted = next(imports, (None, None))
            if local is None or wanted is None:
                ways.pop()
                continue
            if wanted.account in visited:
                return "import forms a cycle"
            visited.add(name)
            if len(visited) >= CYCLE_DEPTH_MAX:
                return "search cycle depth exhausted"
            narrow = local if is_subset(local, subject) else subject
            ways.append((wanted.account, narrow, iter(near(wanted.account, narrow))))
        return None


class _Imports:
    """The imports of one kind that an account has so far: found by a literal subject without
    looking at all of them.
    """

    def __init__(self) -> None:
        self._all: dict[tuple[str, str, str], tuple[str, Import]] = {}
        self._literal: dict[str, list[tuple[str, Import]]] = {}
        self._wild: list[tuple[str, Import]] = []

    def add(self, wanted: Import, local: str) -> bool:
        """Add an import; False if the account already has an import of the same stream."""
        is_stream = isinstance(wanted, StreamImport)
        key = (wanted.account, wanted.subject, "" if is_stream else local)
        if key in self._all:
            return False
        self._all[key] = (local, wanted)
        name = local if is_stream else wanted.subject
        if is_literal(name):
            self._literal.setdefault(name, []).append((local, wanted))
        else:
            self._wild.append((local, wanted))
        return True

    def colliding(self, subject: str, *, by_local: bool) -> list[tuple[str, Import]]:
        if is_literal(subject):
            near = self._literal.get(subject, []) + self._wild
        else:
            near = list(self._all.values())
        return [
            (local, wanted)
            for local, wanted in near
            if collide(subject, local if by_local else wanted.subject)
        ]
