"""Locks of a place of backups: any number of writers, or one process that prunes.

Owns the lock files. A lock says until when it is valid, and is renewed by its owner while it works;
one whose process is gone, on this machine, ends at once. A writer whose lock was taken away must
not finish: what it has stored may have been removed.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

import msgspec

from tradewind.api.times import format_time
from tradewind.backups.backup_documents import LOCKS
from tradewind.backups.backup_errors import BackupError
from tradewind.durations import SECOND_NS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tradewind.backups.backup_places import BackupPlace

LockKind = Literal["create", "prune"]
# A prune waits this long for a writer on another machine that has died.
VALID_SECONDS: Final = 900
RENEW_SECONDS: Final = 60


class _LockFile(msgspec.Struct):
    kind: LockKind
    host: str
    process: int
    until_ns: int


class RepositoryLock:
    """A lock of one process; used in a `with`, and renewed by `renew`."""

    def __init__(
        self, place: BackupPlace, kind: LockKind, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._place = place
        self._kind: LockKind = kind
        self._now_ns = now_ns
        self._name = f"{LOCKS}/{kind}-{secrets.token_hex(8)}.json"
        self._written_ns = 0

    def __enter__(self) -> Self:
        self._write()
        try:
            self._check_others()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        with suppress(BackupError):
            self._place.remove(self._name)

    def _write(self) -> None:
        now_ns = self._now_ns()
        until_ns = now_ns + VALID_SECONDS * SECOND_NS
        lock = _LockFile(self._kind, socket.gethostname(), os.getpid(), until_ns)
        self._place.write(self._name, msgspec.json.encode(lock))
        self._written_ns = now_ns

    def _check_others(self) -> None:
        for name in self._place.sizes(LOCKS):
            if name == self._name:
                continue
            other = self._read(name)
            if other is None:
                continue
            if self._kind == other.kind == "create":
                continue
            if self._is_over(other):
                self._place.remove(name)
                continue
            deed = "removing backups" if other.kind == "prune" else "making a backup"
            raise BackupError(
                f"{self._place.text}: process {other.process} on {other.host} is {deed}; try again"
                " when it is done",
                f"if it has died, its lock ends at {format_time(other.until_ns)}",
            )

    def _read(self, name: str) -> _LockFile | None:
        content = self._place.read(name)
        if content is None:
            return None
        try:
            return msgspec.json.decode(content, type=_LockFile)
        except (msgspec.DecodeError, UnicodeDecodeError):
            # Torn by a crash, where a write is not atomic; its owner did not get any further.
            self._place.remove(name)
            return None

    def _is_over(self, other: _LockFile) -> bool:
        if other.until_ns < self._now_ns():
            return True
        if other.host != socket.gethostname():
            return False
        try:
            os.kill(other.process, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False

    def renew(self) -> None:
        """Keep the lock valid; called again and again. BackupError if it was taken away."""
        if self._now_ns() - self._written_ns >= RENEW_SECONDS * SECOND_NS:
            self.check()
            self._write()

    def check(self) -> None:
        """BackupError if the lock was taken away: what was written may be gone."""
        if self._place.size(self._name) is None:
            raise BackupError(
                f"{self._place.text}: this process was thought dead, and its lock was removed;"
                " repeat the command"
            )
