"""Runs workloads on both servers in turn and keeps every figure of every round.

A server that fails a workload once has failed it: its side becomes n/a, with the reason on stderr.
"""

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.figures import advantage, spread
from benchmarks.measure import METRICS, Result, Scale, Workload
from benchmarks.servers import Server, ServerError

OURS = "ours"
PEER = "peer"


@dataclass
class Side:
    """All rounds of one server on one workload."""

    rounds: list[Result] = field(default_factory=list)
    failure: str = ""
    version: str = ""

    def values(self, key: str) -> list[float]:
        """The figure of every round; empty if the server failed or a round lacks the figure."""
        if self.failure or not all(key in result.figures for result in self.rounds):
            return []
        return [result.figures[key] for result in self.rounds]

    def median(self, key: str) -> float | None:
        """The median over the rounds, None where there is no figure."""
        values = self.values(key)
        return statistics.median(values) if values else None

    def spread(self, key: str) -> float | None:
        """How far the rounds lie apart, None where there is no figure."""
        values = self.values(key)
        return spread(values) if values else None

    def note(self, key: str) -> float | None:
        """The median of a note over the rounds."""
        values = [result.notes[key] for result in self.rounds if key in result.notes]
        return statistics.median(values) if values else None


@dataclass
class Comparison:
    """One workload on both servers."""

    workload: Workload
    sides: dict[str, Side]

    def metric_keys(self) -> list[str]:
        """The figures that at least one server has, in the order of METRICS."""
        return [key for key in METRICS if any(side.values(key) for side in self.sides.values())]

    def ratio(self, key: str) -> float | None:
        """How many times better ours is in this figure; above 1 is always in our favour."""
        ours, peer = self.sides[OURS].median(key), self.sides[PEER].median(key)
        if ours is None or peer is None:
            return None
        return advantage(ours, peer, higher_is_better=METRICS[key].higher_is_better)


def run_once(workload: Workload, template: str, scale: Scale) -> tuple[Result, str]:
    """One fresh server, one workload: its figures and the server's version."""
    with Server(template, workload.config) as server:
        return workload.run(server, scale), str(server.info.get("version", "unknown"))


def compare(
    workload: Workload,
    templates: dict[str, str],
    rounds: int,
    scale: Scale,
    progress: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> Comparison:
    """Interleaves the servers round by round; who goes first alternates, to cancel slow drift."""
    from benchmarks.loadgen.link import LoadError

    comparison = Comparison(workload, {name: Side() for name in templates})
    for number in range(rounds):
        names = list(templates) if number % 2 == 0 else list(reversed(templates))
        for name in names:
            side = comparison.sides[name]
            if side.failure:
                continue
            try:
                result, side.version = run_once(workload, templates[name], scale)
                side.rounds.append(result)
            except (LoadError, ServerError) as error:
                side.failure = str(error)
                progress(f"{workload.name}: {name} failed in round {number + 1}: {error}")
    return comparison
