"""Turns comparisons into text: an aligned table, a Markdown table, and a JSON document."""

from collections.abc import Sequence
from typing import Any

from benchmarks.figures import format_ratio, format_value
from benchmarks.measure import METRICS
from benchmarks.runner import OURS, PEER, Comparison, Side

COLUMNS = ("workload", "figure", "ours", "nats-server", "ratio", "spread")
GENERATOR_SHARE_MAX = 0.9
NOISE_WALL_S_MIN = 0.3  # the machine counts in ticks of 10 ms: a shorter run shows no noise


def _value(side: Side, key: str) -> str:
    median = side.median(key)
    return "n/a" if median is None else format_value(median)


def _spread(comparison: Comparison, key: str) -> str:
    values = [comparison.sides[name].spread(key) for name in (OURS, PEER)]
    return " / ".join("n/a" if value is None else f"{value:.0%}" for value in values)


def generator_bound(comparison: Comparison) -> bool:
    """True if the load generator worked all the time on one side, so that it limits wall rates."""
    shares = (side.note("generator_cpu_share") for side in comparison.sides.values())
    return any(share is not None and share > GENERATOR_SHARE_MAX for share in shares)


def rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """One row per figure, the workload's name in the first. A * marks generator-bound rates."""
    name = comparison.workload.name
    keys = comparison.metric_keys()
    if not keys:
        return [(name, "", "n/a", "n/a", "n/a", "")]
    table: list[tuple[str, ...]] = []
    for index, key in enumerate(keys):
        mark = "*" if key == "wall" and generator_bound(comparison) else ""
        table.append(
            (
                name if index == 0 else "",
                METRICS[key].unit + mark,
                _value(comparison.sides[OURS], key),
                _value(comparison.sides[PEER], key),
                format_ratio(comparison.ratio(key)),
                _spread(comparison, key),
            )
        )
    return table


def noise(comparisons: Sequence[Comparison]) -> float | None:
    """The largest share of a core that anyone but server and generator took during a workload."""
    shares = [
        share
        for comparison in comparisons
        for side in comparison.sides.values()
        if (share := side.note("other_cpu_share")) is not None
        and (side.note("wall_s") or 0) >= NOISE_WALL_S_MIN
    ]
    return max(shares) if shares else None


def text_table(table: Sequence[Sequence[str]], widths: Sequence[int]) -> str:
    """Left-aligned names, right-aligned values, in columns of at least these widths."""
    lines = []
    for row in table:
        cells = [
            cell.ljust(width) if index < 2 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown_table(comparisons: Sequence[Comparison]) -> str:
    """The table as it stands in the documentation."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|---|---:|---:|---:|---:|"]
    for comparison in comparisons:
        lines += ["| " + " | ".join(row) + " |" for row in rows(comparison)]
    return "\n".join(lines)


def _side_document(side: Side) -> dict[str, Any]:
    return {
        "version": side.version,
        "failure": side.failure or None,
        "median": {key: side.median(key) for key in METRICS if side.values(key)},
        "rounds": [{**result.figures, "notes": result.notes} for result in side.rounds],
    }


def document(
    comparisons: Sequence[Comparison], facts: dict[str, Any], settings: dict[str, Any]
) -> dict[str, Any]:
    """Everything that was measured, with the machine and the settings, for a JSON file."""
    return {
        "machine": facts,
        "settings": settings,
        "noise_other_cpu_share_max": noise(comparisons),
        "workloads": {
            comparison.workload.name: {
                "summary": comparison.workload.summary,
                **{name: _side_document(side) for name, side in comparison.sides.items()},
                "ratio": {key: comparison.ratio(key) for key in comparison.metric_keys()},
            }
            for comparison in comparisons
        },
    }
