"""Ensures that only one runner at a time uses a checkpoint.

Owns the lock. For a local folder it is a lock of the operating system, which ends with its process.
Elsewhere it is a file that names its owner and is renewed regularly: while it is fresh, others stay
away; when it is old, another runner takes it over. An owner that could not renew it in time must
stop, because another one may have started.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Final
from uuid import uuid4

import msgspec

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.machine.places import Place, RemoteFolder
from tradewind.pipelines.state.status import is_process, read_status

LOCK_FILE: Final = "lock"
LEASE_FILE: Final = "lease.json"
LEASE_SECONDS: Final = 60.0
RENEW_SECONDS: Final = 10.0
Clock = Callable[[], float]


class Owner(msgspec.Struct, frozen=True):
    """The owner of a lease, and when it last renewed the lease by its own clock."""

    token: str
    host: str
    pid: int
    renewed: float


class Lease:
    """A lease that is held; `problem` says why it no longer is.

    `now` gives the time that other runners read; the time since the last renewal is measured by
    `passed`, which does not go back when the clock is set.
    """

    def __init__(self, file: RemoteFolder, owner: Owner, now: Clock, passed: Clock) -> None:
        self._file = file
        self._owner = owner
        self._now = now
        self._passed = passed
        self._renewed = passed()
        self.problem = ""

    def renew(self) -> None:
        """Say that this runner continues, unless another one has taken over."""
        if self.problem:
            return
        try:
            found = _read(self._file)
            if found is None or found.token != self._owner.token:
                self.problem = "another runner has taken the checkpoint over"
                return
            began = self._passed()
            renewed = msgspec.structs.replace(self._owner, renewed=self._now())
            self._file.write(msgspec.json.encode(renewed))
            self._owner, self._renewed = renewed, began
        except (PipelineError, OSError) as error:
            if self._passed() - self._renewed > LEASE_SECONDS / 2:
                self.problem = f"the lock of the checkpoint could not be renewed: {error}"

    def release(self) -> None:
        """Let others have it."""
        found = _read(self._file)
        if found is not None and found.token == self._owner.token:
            self._file.remove()


def take_lease(
    checkpoint: RemoteFolder, now: Clock = time.time, passed: Clock = time.monotonic
) -> Lease:
    """Have the lease of a checkpoint; PipelineError if another runner has it."""
    file = checkpoint / LEASE_FILE
    host, pid = os.uname().nodename, os.getpid()
    found = _read(file)
    if found is not None:
        age = now() - found.renewed
        is_gone = found.host == host and not is_process(found.pid)
        if age < -LEASE_SECONDS and not is_gone:
            raise PipelineError(
                f"checkpoint {checkpoint} is in use by process {found.pid} of {found.host}, whose"
                f" clock was {-age:.0f} s ahead of this one; if that one is gone, remove {file}"
            )
        if age < LEASE_SECONDS and not is_gone:
            raise PipelineError(
                f"checkpoint {checkpoint} is in use by process {found.pid} of {found.host}; if that"
                f" one is gone, try again in {max(LEASE_SECONDS - age, 1):.0f} s"
            )
        file.remove()
    owner = Owner(uuid4().hex, host, pid, now())
    try:
        file.write(msgspec.json.encode(owner), is_new=True)
    except FileExistsError:
        raise PipelineError(
            f"checkpoint {checkpoint} is in use: another runner has just started"
        ) from None
    return Lease(file, owner, now, passed)


def _read(file: RemoteFolder) -> Owner | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Owner)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


@contextmanager
def locked(checkpoint: Place) -> Iterator[Lease | None]:
    """Hold the lock of a checkpoint; PipelineError if another process does."""
    if isinstance(checkpoint, RemoteFolder):
        with _renewed(take_lease(checkpoint)) as lease:
            yield lease
        return
    with _flocked(checkpoint):
        yield None


@contextmanager
def _renewed(lease: Lease) -> Iterator[Lease]:
    stop = Event()

    def renew() -> None:
        while not stop.wait(RENEW_SECONDS):
            lease.renew()

    thread = Thread(target=renew, name="tradewind-lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        stop.set()
        thread.join()
        lease.release()


@contextmanager
def _flocked(checkpoint: Path) -> Iterator[None]:
    try:
        checkpoint.mkdir(parents=True, exist_ok=True)
        file = os.open(checkpoint / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise PipelineError(f"checkpoint {checkpoint}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            status = read_status(checkpoint)
            who = f" by process {status.pid}" if status else ""
            raise PipelineError(
                f"checkpoint {checkpoint} is in use{who}: the pipeline is already running"
            ) from None
        yield
    finally:
        os.close(file)
