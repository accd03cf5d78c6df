"""The command line of the side-by-side benchmarks: choose, run, print, save."""

import argparse
import json
import shlex
import shutil
import sys
from pathlib import Path

from benchmarks import machine, report
from benchmarks.build import ensure_loadgen
from benchmarks.measure import Scale, Workload
from benchmarks.runner import OURS, PEER, Comparison, compare
from benchmarks.workloads import WORKLOADS

WIDTHS = (17, 31, 12, 12, 7, 12)
EXIT_FAILED = 1
EXIT_USAGE = 2


def installed(name: str) -> str:
    """The command of a server installed beside this interpreter."""
    return f"{shlex.quote(str(Path(sys.executable).parent / name))} -c {{conf}}"


def program(template: str) -> str:
    """The name of the program a command starts: both servers may report the same version."""
    return Path(shlex.split(template)[0]).name


def positive(text: str) -> int:
    """The type of a count on the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, not {text!r}")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """All flags, with the defaults that `make bench` uses."""
    flags = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measures tradewind-server side by side with the official nats-server. "
        "A ratio above 1 is always in favour of tradewind-server.",
    )
    flags.add_argument("--ours", default=installed("tradewind-server"), metavar="'CMD {conf}'")
    flags.add_argument("--peer", default=installed("nats-server"), metavar="'CMD {conf}'")
    flags.add_argument(
        "--rounds", type=positive, metavar="N", help="runs per server (default 3, 1 with --quick)"
    )
    flags.add_argument("--only", metavar="NAME,NAME", help="run these workloads, see --list")
    flags.add_argument("--quick", action="store_true", help="a tenth of the load: a smoke test")
    flags.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    flags.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    flags.add_argument("--list", action="store_true", help="name the workloads and end")
    return flags


def choose(only: str | None) -> list[Workload]:
    """The named workloads in their own order, or all. ValueError names one that does not exist."""
    if only is None:
        return list(WORKLOADS)
    names = [name.strip() for name in only.split(",")]
    known = {workload.name for workload in WORKLOADS}
    for name in names:
        if name not in known:
            raise ValueError(f"no workload named {name!r}; --list names them")
    return [workload for workload in WORKLOADS if workload.name in names]


def check_command(flag: str, template: str) -> None:
    """ValueError if a server command cannot work, before anything is compiled or started."""
    words = shlex.split(template)
    if not words or "{conf}" not in template:
        raise ValueError(f"{flag} must be a command with {{conf}} in it, not {template!r}")
    if shutil.which(words[0]) is None:
        raise ValueError(f"{flag}: no executable {words[0]!r}")


def run(arguments: argparse.Namespace, workloads: list[Workload]) -> list[Comparison]:
    """Runs all chosen workloads and prints each one's rows as soon as they are known."""
    templates = {OURS: arguments.ours, PEER: arguments.peer}
    rounds = arguments.rounds or (1 if arguments.quick else 3)
    ensure_loadgen()
    machine.raise_file_limit()
    comparisons = []
    if not arguments.markdown:
        print(report.text_table([report.COLUMNS], WIDTHS))
    for workload in workloads:
        comparison = compare(workload, templates, rounds, Scale(arguments.quick))
        comparisons.append(comparison)
        if not arguments.markdown:
            print(report.text_table(report.rows(comparison), WIDTHS), flush=True)
    if arguments.markdown:
        print(report.markdown_table(comparisons))
    if arguments.json:
        settings = {
            "rounds": rounds,
            "quick": arguments.quick,
            "commands": {name: program(template) for name, template in templates.items()},
        }
        saved = report.document(comparisons, machine.facts(), settings)
        arguments.json.write_text(json.dumps(saved, indent=1) + "\n")
    return comparisons


def print_summary(comparisons: list[Comparison], templates: dict[str, str]) -> None:
    """What a reader must know to judge the table, on stderr so that the table can be piped."""
    versions = {
        name: next((c.sides[name].version for c in comparisons if c.sides[name].version), "n/a")
        for name in templates
    }
    for name, template in templates.items():
        print(f"{name}: {program(template)}, INFO version {versions[name]}", file=sys.stderr)
    noise = report.noise(comparisons)
    print(
        "medians; spread = (max - min) / median, ours / nats-server; "
        f"others used at most {'n/a' if noise is None else f'{noise:.0%}'} of a core",
        file=sys.stderr,
    )
    if any(report.generator_bound(comparison) for comparison in comparisons):
        print("* the load generator was the limit: compare per CPU s", file=sys.stderr)


def main(argv: list[str] | None = None) -> int:
    """Runs the command; 1 if our server failed a workload, 2 for flags that make no sense."""
    arguments = parser().parse_args(argv)
    if arguments.list:
        for workload in WORKLOADS:
            print(f"{workload.name:20}{workload.summary}")
        return 0
    try:
        workloads = choose(arguments.only)
        check_command("--ours", arguments.ours)
        check_command("--peer", arguments.peer)
    except ValueError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return EXIT_USAGE
    try:
        comparisons = run(arguments, workloads)
    except KeyboardInterrupt:
        print("benchmarks: interrupted", file=sys.stderr)
        return 130
    print_summary(comparisons, {OURS: arguments.ours, PEER: arguments.peer})
    failed = any(comparison.sides[OURS].failure for comparison in comparisons)
    return EXIT_FAILED if failed else 0
