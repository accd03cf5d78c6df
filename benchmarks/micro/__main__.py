"""`python -m benchmarks.micro`: times the registered parts and prints ns per operation."""

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.build import ensure_micro
from benchmarks.figures import format_value
from benchmarks.micro.registry import REGISTRY, measure

MODULES = ("parser", "sublist", "store_codecs", "stream", "consumer", "frames")


def main(argv: list[str] | None = None) -> int:
    """Runs the command; 2 if it cannot start."""
    flags = argparse.ArgumentParser(prog="python -m benchmarks.micro", description=__doc__)
    flags.add_argument("--only", metavar="NAME,NAME", help="run these, see --list")
    flags.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    flags.add_argument("--list", action="store_true", help="name the benchmarks and end")
    arguments = flags.parse_args(argv)
    for module in MODULES:
        importlib.import_module(f"benchmarks.micro.{module}")
    if arguments.list:
        for entry in REGISTRY.values():
            print(f"{entry.name:24}{entry.summary}")
        return 0
    names = arguments.only.split(",") if arguments.only else list(REGISTRY)
    unknown = [name for name in names if name not in REGISTRY]
    if unknown:
        print(f"benchmarks: no micro benchmark named {unknown[0]!r}", file=sys.stderr)
        return 2
    try:
        importlib.import_module("tradewind.wire.parser")
    except ImportError:
        print("benchmarks: tradewind is not built here: run `make build` first", file=sys.stderr)
        return 2
    ensure_micro()
    results = run(names)
    if arguments.json:
        saved = {"machine": machine.facts(), "micro": results}
        arguments.json.write_text(json.dumps(saved, indent=1) + "\n")
    return 0


def run(names: list[str]) -> dict[str, Any]:
    """Times the named benchmarks, prints each at once, and returns the figures by name."""
    results: dict[str, Any] = {}
    print(f"{'benchmark':24}{'ns':>9}{'spread':>9}  what")
    for name in names:
        timing = measure(REGISTRY[name].prepare())
        results[name] = {"ns_per_operation": timing.ns_per_operation, "spread": timing.spread}
        value = format_value(timing.ns_per_operation)
        apart = "n/a" if timing.spread is None else f"{timing.spread:.0%}"
        print(f"{name:24}{value:>9}{apart:>9}  {REGISTRY[name].summary}", flush=True)
    return results


sys.exit(main())
