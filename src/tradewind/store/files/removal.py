"""Takes folders out of the way, and removes what is in them later.

Owns the order in which a folder goes. It is renamed first, which is one change for any number of
files: a crash leaves all of it or nothing. The name is durable, with one sync for all folders that
go from the same place, before anybody hears of the removal, or if nobody waits for the disk, before
the first file in it is removed: a folder that is found under its old name again is complete.

The new names begin with a dot, below the folder of all streams. Both servers remove such folders at
their start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Self

from tradewind.store.files.disk import MissingFile
from tradewind.store.files.joint_step import Calls, JointStep, sync_shared

if TYPE_CHECKING:
    from tradewind.store.files.disk import Disk


class Removal(JointStep):
    """The removal of the folder at `path`. `find_place` gives its new path, and `moved` is called
    with that in the thread that renames. With `is_lazy` the new name is not durable.
    """

    def __init__(
        self,
        disk: Disk,
        path: str,
        find_place: Callable[[], str],
        moved: Callable[[str], None],
        *,
        is_lazy: bool,
    ) -> None:
        self._disk = disk
        self._path = path
        self._find_place = find_place
        self._moved = moved
        self._is_lazy = is_lazy

    @classmethod
    def together(cls, steps: Sequence[Self]) -> Iterator[Calls]:
        """See `JointStep`."""
        yield [partial(cls._remove_all, steps)]

    @classmethod
    def _remove_all(cls, steps: Sequence[Self]) -> None:
        for step in steps:
            step.attempt(step._move)
        waiting = [(step._path.rpartition("/")[0], step) for step in steps if not step._is_lazy]
        sync_shared(steps[0]._disk, waiting)

    def _move(self) -> None:
        place = self._find_place()
        self._disk.rename(self._path, place)
        self._moved(place)


class Trash:
    """Folders that were taken out of `folder`, and whose files are still to be removed.

    `clear` is for one worker at a time; `add` may be called by any other meanwhile.
    """

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._places: list[str] = []

    def add(self, place: str) -> None:
        """Add a folder by its new path."""
        self._places.append(place)

    def clear(self, *, is_lazy: bool) -> None:
        """Remove all files. With `is_lazy` the new names of the folders are not durable yet."""
        places, self._places = self._places, []
        if is_lazy and places:
            try:
                self._disk.sync_directory(self._folder)
            except MissingFile:
                # It is going too: then its own new name has to be durable.
                self._disk.sync_directory(places[0].rpartition("/")[0])
        for place in places:
            self._disk.remove_tree(place)
