"""Changes on disk that are made together with others of their kind, and share their waiting.

Owns what those who make changes must know of them. A failure affects only its own change, except
for a folder that several have in common.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from tradewind.errors import StoreError

if TYPE_CHECKING:
    from tradewind.store.files.disk import Disk

# The most changes that are made together; each has up to three files open.
TOGETHER_MAX: Final = 64

Calls = list[Callable[[], None]]


class JointStep(ABC):
    """A change on disk; `error` is the reason of a failure once it was tried."""

    error: StoreError | None = None

    @classmethod
    @abstractmethod
    def together(cls, steps: Sequence[Self]) -> Iterator[Calls]:
        """The steps that make one or more changes of this kind: each is a list of calls that may
        run in parallel, in any thread.
        """

    def attempt(self, part: Callable[[], None]) -> None:
        """Run a part of the change, unless it has failed."""
        if self.error is not None:
            return
        try:
            part()
        except StoreError as error:
            self.fail(error)

    def fail(self, error: StoreError) -> None:
        """Record that the change has failed."""
        self.error = error


def make_together(steps: Sequence[JointStep]) -> Iterator[Calls]:
    """The calls that make all changes, kind by kind; each has its `error` afterwards."""
    for kind in dict.fromkeys(type(step) for step in steps):
        yield from kind.together([step for step in steps if type(step) is kind])


def make(step: JointStep) -> None:
    """Make one change in this thread; raises its error."""
    for calls in make_together([step]):
        for call in calls:
            call()
    if step.error is not None:
        raise step.error


def sync_shared(disk: Disk, steps: Sequence[tuple[str, JointStep]]) -> None:
    """Sync the folders of changes, each folder once and all side by side. A failure is one of all
    changes in that folder.
    """
    owners: dict[str, list[JointStep]] = {}
    for folder, step in steps:
        if step.error is None:
            owners.setdefault(folder, []).append(step)

    def sync(folder: str) -> None:
        try:
            disk.sync_directory(folder)
        except StoreError as error:
            for step in owners[folder]:
                step.fail(error)

    disk.together([partial(sync, folder) for folder in owners])


class DiskCheck(JointStep):
    """The check that a disk takes changes, before something is closed that is to be removed."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check

    @classmethod
    def together(cls, steps: Sequence[Self]) -> Iterator[Calls]:
        """See `JointStep`: all are on the same disk, which is asked once."""

        def check_once() -> None:
            first = steps[0]
            first.attempt(first._check)
            for step in steps:
                step.error = first.error

        yield [check_once]
