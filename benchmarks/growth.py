"""Growth curves: what one operation costs while there is more and more of something.

    python -m benchmarks.growth --svg FOLDER --size-max 10000

Each point is a fresh server. Prints a table with the shape of every curve, and writes a chart per
axis. A server that fails a point, or takes too long to prepare it, has no further points on that
axis; the reason is on stderr.
"""

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.build import ensure_loadgen
from benchmarks.cli import check_command, installed, positive
from benchmarks.figures import format_value
from benchmarks.growth_axes import AXES, Axis, Point
from benchmarks.growth_chart import Panel, chart
from benchmarks.growth_shape import each_bytes, shape_of
from benchmarks.machine import facts, raise_file_limit
from benchmarks.runner import OURS, PEER
from benchmarks.servers import Server, ServerError

FIGURES = {
    "cpu_us": "CPU time of the operation, us",
    "p50_us": "one at a time, median, us",
    "memory_mib": "memory of the server, MiB",
}
POINT_S_MAX = 600.0
NAMES = {OURS: "Tradewind", PEER: "nats-server"}
Curves = dict[str, list[Point]]


def parser() -> argparse.ArgumentParser:
    """The flags."""
    flags = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    flags.add_argument("--ours", default=installed("tradewind-server"), metavar="'CMD {conf}'")
    flags.add_argument("--peer", default=installed("nats-server"), metavar="'CMD {conf}'")
    flags.add_argument("--only", metavar="NAME,NAME", help="axes to measure; default: all")
    flags.add_argument("--list", action="store_true", help="list the axes")
    flags.add_argument("--size-max", type=positive, metavar="N", help="leave larger sizes out")
    flags.add_argument("--svg", type=Path, metavar="FOLDER", help="write a chart per axis")
    flags.add_argument("--json", type=Path, metavar="FILE", help="write all points")
    return flags


def chosen(only: str | None) -> list[Axis]:
    """The named axes in their order; ValueError names one that does not exist."""
    known = {axis.name: axis for axis in AXES}
    names = only.split(",") if only else list(known)
    for name in names:
        if name not in known:
            raise ValueError(f"--only: no axis {name!r}; there are {', '.join(known)}")
    return [axis for axis in AXES if axis.name in names]


def sizes_of(axis: Axis, size_max: int | None) -> list[int]:
    """The sizes to measure, at least the first."""
    return [size for size in axis.sizes if size_max is None or size <= size_max] or [axis.sizes[0]]


def progress(words: str) -> None:
    """Say how far the run is."""
    print(words, file=sys.stderr, flush=True)


def measure(
    axis: Axis,
    templates: dict[str, str],
    size_max: int | None,
    say: Callable[[str], None] = progress,
) -> Curves:
    """All points of one axis; both servers in turn at each size."""
    from benchmarks.loadgen.link import LoadError

    curves: Curves = {name: [] for name in templates}
    ended: set[str] = set()
    for size in sizes_of(axis, size_max):
        for name, template in templates.items():
            if name in ended:
                continue
            started_s = time.monotonic()
            try:
                with Server(template, axis.config) as server:
                    point = axis.run(server, size)
            except (LoadError, ServerError, OSError) as error:
                say(f"{axis.name}: {NAMES[name]} failed with {size:,} {axis.things}: {error}")
                ended.add(name)
                continue
            curves[name].append(point)
            took_s = time.monotonic() - started_s
            say(
                f"{axis.name}: {NAMES[name]} with {point.size:,}: {point.cpu_us:.2f} us of CPU, "
                f"median {point.p50_us:.0f} us, {point.memory_mib:.0f} MiB ({took_s:.0f} s)"
            )
            if took_s > POINT_S_MAX:
                say(f"{axis.name}: {NAMES[name]} took {took_s:.0f} s, so no larger size is tried")
                ended.add(name)
    return curves


def pairs(points: Sequence[Point], figure: str) -> list[tuple[float, float]]:
    """The sizes with one figure."""
    return [(point.size, getattr(point, figure)) for point in points]


def rows(axis: Axis, curves: Curves) -> list[str]:
    """The rows of the table: first and last value and the shape of every curve."""
    result = []
    for figure, title in FIGURES.items():
        for name, points in curves.items():
            line = pairs(points, figure)
            ends = (
                [format_value(value) for _, value in (line[0], line[-1])] if line else ["n/a"] * 2
            )
            if figure == "memory_mib" and len(line) > 1:
                shape = f"{each_bytes(line):,.0f} bytes each"
            else:
                shape = str(shape_of(line))
            sizes = f"{line[0][0]:,.0f} to {line[-1][0]:,.0f}" if line else "none"
            what = f"{axis.name}, {sizes}"
            result.append(f"| {what} | {title} | {NAMES[name]} | {ends[0]} | {ends[1]} | {shape} |")
    return result


def svg_of(axis: Axis, curves: Curves) -> str:
    """The chart of one axis."""
    panels = [
        Panel(title, {NAMES[name]: pairs(points, figure) for name, points in curves.items()})
        for figure, title in FIGURES.items()
    ]
    return chart(f"{axis.operation}, beside {axis.things}", axis.things, panels)


def document(measured: dict[str, Curves]) -> str:
    """All points of the axes that are done, and what they were measured on."""
    points = {
        name: {who: [dataclasses.asdict(point) for point in line] for who, line in each.items()}
        for name, each in measured.items()
    }
    return json.dumps({"machine": facts(), "points": points}, indent=1)


def main(argv: list[str] | None = None) -> int:
    """Measure, print the table, and write the files; 1 if a server failed."""
    flags = parser()
    arguments = flags.parse_args(argv)
    if arguments.list:
        for axis in AXES:
            print(
                f"{axis.name:16} {axis.operation}, beside {axis.things}: up to {axis.sizes[-1]:,}"
            )
        return 0
    try:
        axes = chosen(arguments.only)
        for flag in (OURS, PEER):
            check_command(f"--{flag}", getattr(arguments, flag))
    except ValueError as error:
        flags.error(str(error))
    raise_file_limit()
    ensure_loadgen()
    templates = {OURS: arguments.ours, PEER: arguments.peer}
    measured: dict[str, Curves] = {}
    for axis in axes:
        measured[axis.name] = measure(axis, templates, arguments.size_max)
        if arguments.svg is not None:
            arguments.svg.mkdir(parents=True, exist_ok=True)
            target = arguments.svg / f"growth-{axis.name}.svg"
            target.write_text(svg_of(axis, measured[axis.name]))
        if arguments.json is not None:
            arguments.json.write_text(document(measured))
    print("| things | figure | server | first | last | shape |")
    print("|---|---|---|---:|---:|---|")
    for axis in axes:
        print("\n".join(rows(axis, measured[axis.name])))
    wanted = {axis.name: len(sizes_of(axis, arguments.size_max)) for axis in axes}
    complete = all(len(measured[name][OURS]) == count for name, count in wanted.items())
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
