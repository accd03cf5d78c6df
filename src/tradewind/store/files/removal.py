"""Folders are taken out of the way at once, and the files in them are removed later.

Owns the order in which a folder goes. First it is renamed, which is one change for any number of
files: a crash leaves all of it or nothing. One sync makes the names of all folders durable that
leave the same place together. Only then are files removed, so that a folder that is found under its
old name again is complete.

The new names begin with a dot, below the folder of all streams. Both servers remove such folders at
their start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Self

from tradewind.store.files.joint_step import Calls, JointStep, sync_shared

if TYPE_CHECKING:
    from tradewind.store.files.disk import Disk


class FolderRemoval(JointStep):
    """The removal of the folder at `path`. `find_place` returns its new path, and `moved` is called
    with that in the thread that renames. The new name of a lazy one is not durable.
    """

    def __init__(
        self,
        disk: Disk,
        path: str,
        find_place: Callable[[], str],
        moved: Callable[[str], None],
        *,
        is_lazy: bool = False,
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
    """Folders of one stream whose new names are durable, and whose files are still to be removed.

    Both methods may be called by workers, `clear` by one at a time.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._places: list[str] = []

    def add(self, place: str) -> None:
        """Add a folder by its new path."""
        self._places.append(place)

    def clear(self) -> None:
        """Remove all files; what cannot be removed is left to the next start."""
        places, self._places = self._places, []
        for place in places:
            self._disk.remove_tree(place)
