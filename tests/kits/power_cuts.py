"""Power failures at every step of some work on a simulated disk, found by doing the work once.

Owns the disk that tells of its steps, and the walk over all that a power failure at any of them may
leave. It knows nothing of stores: what has to be true of such a disk is up to the tests.

    for step, disk in cut_off(before, repair):
        assert content(disk) == expected, step

A disk that is copied in front of a step is the one of a run that really stops there; that is tested
in test_store_crash.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tradewind.store.files.disk import Operation
from tradewind.testing.fake_disk import Fault, SimulatedDisk

# What a disk holds, as a key for dictionaries: equal for equal disks, and for no others.
Holdings = tuple[tuple[str, bytes | None], ...]
Crashes = Callable[[SimulatedDisk, int], Iterable[SimulatedDisk]]


class WatchedDisk(SimulatedDisk):
    """Calls `on_step` in front of every step: there the power may fail."""

    on_step: Callable[[], None] | None = None

    def begin(self, operation: Operation, path: str, *, is_step: bool = False) -> Fault | None:
        """See SimulatedDisk."""
        if is_step and self.on_step is not None:
            self.on_step()
        return SimulatedDisk.begin(self, operation, path, is_step=is_step)


def holdings_of(disk: SimulatedDisk) -> Holdings:
    """All names and bytes of a disk; disks that came out of one share most of them."""
    return tuple(disk.snapshot_tree().items())


def both_and_one(disk: SimulatedDisk, step: int) -> list[SimulatedDisk]:
    """Nothing unsynced survives, all of it does, or what chance leaves."""
    return [disk.crash_losing_unsynced(), disk.crash_keeping_unsynced(), disk.crash(step)]


def cut_off(
    before: SimulatedDisk,
    work: Callable[[SimulatedDisk], object],
    crashes: Crashes = both_and_one,
) -> list[tuple[int, SimulatedDisk]]:
    """The disks that may remain if the power fails while `work` is done on a copy of a disk.

    Each result is the first step that does not happen, and the disk; equal disks are returned once.
    Nothing is checked during the work, which might take a failed assertion for an error of its own.
    """
    disk = WatchedDisk(root=before.root, sync_persists_names=before.sync_persists_names)
    disk.tree = before.crash_keeping_unsynced().tree
    found: dict[Holdings, tuple[int, SimulatedDisk]] = {}

    def crash() -> None:
        step = disk.steps + 1
        for after in crashes(disk, step):
            found.setdefault(holdings_of(after), (step, after))

    disk.on_step = crash
    work(disk)
    return list(found.values())
