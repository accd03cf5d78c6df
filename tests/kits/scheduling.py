"""Gives the tests to the processes of pytest-xdist: groups together, and neighbours of a file.

A module's servers are started once in each process that runs a test of it, so the tests of a file
are given out in runs of several. Groups come first, for they take longest and cannot be shared, and
then the largest units, so that the last ones are short.

The plugin's own scheduler looks through all that a process has ever been given, and through all
names, for each test that ends: with 25,000 tests that was 44 s of CPU. This one forgets what is
done and keeps the places of the names.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

from xdist.scheduler import LoadGroupScheduling

# More would save few starts, and leave a process with slow tests behind the others at the end.
NEIGHBOURS_MAX = 32
# Before the number of a run of neighbours.
RUN = ".py#"


class NeighbourScheduling(LoadGroupScheduling):
    """The scheduler of `--dist loadgroup`."""

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        assert self.collection is not None
        return {name: place for place, name in enumerate(self.collection)}

    @functools.cached_property
    def _units(self) -> dict[str, str]:
        """Test to unit; names of the tests of a group end with it."""
        names = next(iter(self.registered_collections.values()))
        units = {}
        counts: dict[str, Any] = {}
        for name in names:
            file = name.partition(".py::")[0]
            count = counts.setdefault(file, itertools.count())
            unit = super()._split_scope(name)
            units[name] = f"{file}{RUN}{next(count) // NEIGHBOURS_MAX}" if unit == name else unit
        return units

    def _split_scope(self, nodeid: str) -> str:
        return self._units[nodeid]

    def _assign_work_unit(self, node: Any) -> None:
        groups = (unit for unit in self.workqueue if RUN not in unit)
        unit = next(groups, None) or next(iter(self.workqueue))
        tests = self.workqueue.pop(unit)
        self.assigned_work.setdefault(node, {})[unit] = tests
        node.send_runtest_some([self._places[name] for name, done in tests.items() if not done])

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Called for each test that has ended."""
        name = self.registered_collections[node][item_index]
        units = self.assigned_work[node]
        unit = self._units[name]
        units[unit][name] = True
        if all(units[unit].values()):
            del units[unit]
        self._reschedule(node)
