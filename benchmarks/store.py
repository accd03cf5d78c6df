"""`python -m benchmarks.store`: measures the message store in process and prints the medians.

Every round runs in a new process, so that memory of one does not count for the next. The folders
need up to 4 GB of disk, and as much page cache if the figures are to be those of the store.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import machine
from benchmarks.build import ensure_micro
from benchmarks.figures import format_value, spread

QUICK_SHARE = 0.01


def parser() -> argparse.ArgumentParser:
    """All flags."""
    flags = argparse.ArgumentParser(prog="python -m benchmarks.store", description=__doc__)
    flags.add_argument("--only", metavar="NAME,NAME", help="run these, see --list")
    flags.add_argument("--rounds", type=int, default=3, metavar="N")
    flags.add_argument("--quick", action="store_true", help="a hundredth of the load, one round")
    flags.add_argument("--folder", metavar="DIR", help="where the stores lie (default: a new one)")
    flags.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    flags.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    flags.add_argument("--list", action="store_true", help="name the workloads and end")
    flags.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    return flags


def main(argv: list[str] | None = None) -> int:
    """Runs the command; 2 if it cannot start."""
    arguments = parser().parse_args(argv)
    ensure_micro()
    from benchmarks.store_rewriting import REWRITING_WORKLOADS
    from benchmarks.store_workloads import WORKLOADS

    by_name = {workload.name: workload for workload in (*WORKLOADS, *REWRITING_WORKLOADS)}
    if arguments.list:
        for workload in by_name.values():
            print(f"{workload.name:14}{workload.summary}")
        return 0
    if arguments.child:
        return child(*arguments.child)
    names = arguments.only.split(",") if arguments.only else list(by_name)
    unknown = [name for name in names if name not in by_name]
    if unknown:
        print(f"benchmarks: no store workload named {unknown[0]!r}", file=sys.stderr)
        return 2
    share, rounds = (QUICK_SHARE, 1) if arguments.quick else (1.0, arguments.rounds)
    results = {}
    if arguments.markdown:
        print("| workload | figure | median | spread |\n|---|---|---|---|")
    for name in names:
        folder = Path(tempfile.mkdtemp(prefix="tradewind-store-", dir=arguments.folder))
        try:
            results[name] = measure(name, folder, share, rounds, builds=bool(by_name[name].build))
        finally:
            shutil.rmtree(folder)
        show(by_name[name].summary, results[name], markdown=arguments.markdown)
    if arguments.json:
        saved = {"machine": machine.facts(), "store": results}
        arguments.json.write_text(json.dumps(saved, indent=1) + "\n")
    return 0


def measure(
    name: str, folder: Path, share: float, rounds: int, *, builds: bool
) -> dict[str, list[float]]:
    """All rounds of one workload: its figures, each with the values of the rounds."""
    figures: dict[str, list[float]] = {}
    if builds:
        in_child(name, "build", folder, share)
    for _ in range(rounds):
        for figure, value in in_child(name, "run", folder, share).items():
            figures.setdefault(figure, []).append(value)
        if not builds:
            shutil.rmtree(folder)
            folder.mkdir()
    return figures


def in_child(name: str, step: str, folder: Path, share: float) -> dict[str, float]:
    """One step in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.store", "--child", name, step]
    done = subprocess.run(
        [*command, str(folder), str(share)], check=True, stdout=subprocess.PIPE, text=True
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def child(name: str, step: str, folder: str, share: str) -> int:
    """What such a process does."""
    from benchmarks.store_rewriting import REWRITING_WORKLOADS
    from benchmarks.store_workloads import WORKLOADS, Task

    machine.raise_file_limit()
    known = (*WORKLOADS, *REWRITING_WORKLOADS)
    workload = next(workload for workload in known if workload.name == name)
    task = Task(folder, float(share))
    if step == "build":
        assert workload.build is not None
        workload.build(task)
        print("{}")
    else:
        print(json.dumps(workload.run(task)))
    return 0


def show(summary: str, figures: dict[str, list[float]], *, markdown: bool) -> None:
    """The medians of one workload."""
    for figure, values in figures.items():
        apart = spread(values)
        cells = (
            summary,
            figure,
            format_value(statistics.median(values)),
            "n/a" if apart is None else f"{apart:.0%}",
        )
        if markdown:
            print("| " + " | ".join(cells) + " |", flush=True)
        else:
            print(f"{cells[0]:44}{cells[1]:46}{cells[2]:>10}{cells[3]:>8}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
