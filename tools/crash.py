"""Crash stores on a simulated disk and damage their files, for as long as one likes.

    python tools/crash.py [--states 100000] [--damages 20000] [--kills 200] [--server-kills 100]
                          [--seconds 900] [--seed 0] [--encrypted]

Every workload is run once; in front of each of its I/O steps the power fails on many copies of the
disk, each losing, tearing and reordering other parts of what was not synced. Each distinct disk is
opened, examined, and its recovery is cut off at every step. Then files at rest are damaged and
the stores are opened again. Last, real processes are killed while they write, first bare stores and
then whole servers with their clients. The rules are in store_verdict.py, store_damage.py,
store_process_kit.py and server_kill_kit.py of tests/kits, docs/DURABILITY.md says what is
promised. Everything but the moment of a kill follows from the seeds: a failure is printed
with all that is needed to see it again. Exits with 1 if there was one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "kits"))

from server_kill_kit import Cycles as ServerCycles
from store_damage import damage_seed
from store_process_kit import Cycles
from store_verdict import Count, Explorer
from store_workloads import (
    Step,
    Workload,
    encrypted,
    random_workload,
    scripted_workloads,
    with_limits_in_steps,
    with_rewrites,
)

WORKLOAD_LENGTHS = (20, 40, 80)
SCRIPTED_SHARE = 10  # every tenth workload is a scripted one, under new chances
SECOND_LIFE_SHARE = 5  # every fifth runs in a store that has lost power before
DAMAGES_PER_SEED = 40
KILLS_PER_SEED = 10
FAILURES_SHOWN_MAX = 10
PROGRESS_SECONDS = 60.0
# Whether stores are encrypted, with one cipher or the other; processes that are forked see it.
IS_ENCRYPTED = "--encrypted" in sys.argv


@dataclass(slots=True)
class Result:
    """What one seed gave."""

    seed: int
    states: int = 0
    distinct: int = 0
    steps: int = 0
    recoveries_cut: int = 0
    damages: int = 0
    kills: int = 0
    acks: int = 0
    failures: list[str] = field(default_factory=list)


def workload_of(seed: int) -> Workload:
    """The workload of a seed, scripted or random, encrypted if that is asked for."""
    return encrypted(_workload_of(seed), seed) if IS_ENCRYPTED else _workload_of(seed)


def _workload_of(seed: int) -> Workload:
    scripted = list(scripted_workloads())
    if seed % SCRIPTED_SHARE == 0:
        return scripted[seed // SCRIPTED_SHARE % len(scripted)]
    length = WORKLOAD_LENGTHS[seed % len(WORKLOAD_LENGTHS)]
    workload = random_workload(seed, length, changes_limits=seed % 2 == 1)
    if seed % 6 == 1:
        workload = with_limits_in_steps(workload, 1 + seed % 3)
    return with_rewrites(workload, seed // 4) if seed % 4 < 2 else workload


def explored(workload: Workload, seed: int) -> Count:
    """All power failures of one workload; what stops the workload itself counts as a failure."""
    count = Count()
    explorer = Explorer(workload, seeds=6, cut_share=20, count=count)
    if seed % SECOND_LIFE_SHARE == 1:
        before = random_workload(seed + 1, WORKLOAD_LENGTHS[0])
        before = replace(
            before,
            limits=workload.limits,
            block_bytes_max=workload.block_bytes_max,
            cipher=workload.cipher,
        )
        explorer.run_after_crash(before, seed)
        return count
    explorer.run(
        seed,
        sync_persists_names=seed % 3 == 0,
        short_write_bytes=(0, 0, 90)[seed % 3],
    )
    return count


def crash_seed(seed: int) -> Result:
    """One workload with all its power failures."""
    workload = workload_of(seed)
    result = Result(seed)
    try:
        count = explored(workload, seed)
    except Exception as error:  # whatever it is, it is a finding
        result.failures.append(
            f"seed {seed} ({workload.name}): {error!r}\n{shrunk(workload, seed)}"
        )
        return result
    result.states, result.distinct = count.states, count.distinct
    result.steps, result.recoveries_cut = count.steps, count.recoveries_cut
    if count.failures:
        first = count.failures[0]
        result.failures.append(
            f"seed {seed} ({workload.name}), {len(count.failures)} states, first at step"
            f" {first.step}, {first.variant}: {first.problems}\n{shrunk(workload, seed)}"
        )
    return result


def fails(workload: Workload, seed: int) -> bool:
    """Whether there is anything wrong with a workload."""
    try:
        return bool(explored(workload, seed).failures)
    except Exception:  # see `crash_seed`
        return True


def shrunk(workload: Workload, seed: int, seconds: float = 20.0) -> str:
    """A smaller workload that fails too, found by leaving out steps one by one."""
    end = time.monotonic() + seconds
    changed = True
    while changed and time.monotonic() < end:
        changed = False
        for place in reversed(range(len(workload.steps))):
            fewer = workload.steps[:place] + workload.steps[place + 1 :]
            smaller = replace(workload, steps=fewer)
            if time.monotonic() < end and fails(smaller, seed):
                workload, changed = smaller, True
    lines = [f"  smaller: {workload.limits}, block_bytes_max={workload.block_bytes_max}"]
    return "\n".join(lines + [f"    {shown(step)}" for step in workload.steps])


def shown(step: Step) -> str:
    """An operation without its payload, of which only the size matters."""
    if step[0] == "store":
        step = (*step[:3], f"{len(step[3])} bytes", *step[4:])
    return repr(step)


def damages_of(seed: int) -> Result:
    """Many damages of one store."""
    failures = damage_seed(seed, DAMAGES_PER_SEED, is_encrypted=IS_ENCRYPTED)
    return Result(seed, damages=DAMAGES_PER_SEED, failures=failures)


def kills_of(seed: int) -> Result:
    """One folder with several processes that are killed one after the other."""
    result = Result(seed)
    with tempfile.TemporaryDirectory(prefix="tradewind-kill-") as folder:
        cycles = Cycles(Path(folder), seed)
        while result.kills < KILLS_PER_SEED and not result.failures:
            problems = cycles.run_one()
            result.kills += 1
            if problems:
                where = f"seed {seed}, generation {cycles.generation}"
                result.failures.append(f"{where}: {problems[:FAILURES_SHOWN_MAX]}")
    return result


def server_kills_of(seed: int) -> Result:
    """One folder with several servers that are killed while clients use them."""
    result = Result(seed)
    with tempfile.TemporaryDirectory(prefix="tradewind-kill-") as folder:
        cycles = ServerCycles(Path(folder), seed)
        problems: list[str] = []
        while result.kills < KILLS_PER_SEED and not problems:
            problems = cycles.run_one()
            result.kills += 1
        problems = problems or cycles.finish()
        result.acks = cycles.acks
        if problems:
            shown = "\n".join(problems[:FAILURES_SHOWN_MAX])
            result.failures.append(f"server seed {seed}: {shown}\n{cycles.log}")
    return result


def run_until(
    work: Callable[[int], Result],
    is_done: Callable[[Result], bool],
    arguments: argparse.Namespace,
    seconds: float,
    seeds_at_once: int = 16,
) -> Result:
    """Work on seed after seed until it is enough or the time is up; gives the sums."""
    begin = said = time.monotonic()
    end = begin + seconds
    total = Result(arguments.seed)
    with multiprocessing.Pool(arguments.processes) as pool:
        while not is_done(total) and time.monotonic() < end:
            batch = range(total.seed, total.seed + seeds_at_once * arguments.processes)
            for result in pool.imap_unordered(work, batch):
                add(total, result)
            total.seed = batch.stop
            if time.monotonic() > said + PROGRESS_SECONDS:
                said = time.monotonic()
                say(
                    f"after {said - begin:.0f} s: seeds up to {total.seed - 1},"
                    f" {total.distinct} distinct disks, {total.damages} damaged stores"
                )
    return total


def say(text: str) -> None:
    """At once, for a run takes long."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def add(total: Result, result: Result) -> None:
    """Sum up, and print what is wrong as soon as it is known."""
    for name in ("states", "distinct", "steps", "recoveries_cut", "damages", "kills", "acks"):
        setattr(total, name, getattr(total, name) + getattr(result, name))
    for text in result.failures:
        if len(total.failures) < FAILURES_SHOWN_MAX:
            say(text)
        total.failures.append(text)


def parsed_arguments() -> argparse.Namespace:
    """How much, for how long."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=int, default=100_000, help="distinct crashed disks")
    parser.add_argument("--damages", type=int, default=20_000, help="damaged stores")
    parser.add_argument("--kills", type=int, default=200, help="processes killed while they write")
    parser.add_argument("--server-kills", type=int, default=100, help="servers killed in use")
    parser.add_argument("--seconds", type=float, default=900.0, help="stop after this time")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--encrypted", action="store_true", help="stores are encrypted")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    return parser.parse_args()


def run_kills(
    what: str, work: Callable[[int], Result], enough: int, arguments: argparse.Namespace, end: float
) -> Result:
    """A part with real processes."""
    begin = time.monotonic()
    total = run_until(work, lambda total: total.kills >= enough, arguments, end - begin, 2)
    acks = f", {total.acks} acknowledgements" if total.acks else ""
    say(
        f"kills: {total.kills} {what}{acks}, seeds {arguments.seed}..{total.seed - 1},"
        f" {time.monotonic() - begin:.0f} s, {len(total.failures)} failures"
    )
    return total


def main() -> int:
    """Run all parts and say what was done."""
    arguments = parsed_arguments()
    begin = time.monotonic()
    crashes = run_until(
        crash_seed, lambda total: total.distinct >= arguments.states, arguments, arguments.seconds
    )
    middle = time.monotonic()
    say(
        f"power failures: {crashes.states} states, {crashes.distinct} distinct disks,"
        f" {crashes.steps} I/O steps, {crashes.recoveries_cut} recoveries cut off,"
        f" seeds {arguments.seed}..{crashes.seed - 1}, {middle - begin:.0f} s,"
        f" {len(crashes.failures)} failures"
    )
    damages = run_until(
        damages_of,
        lambda total: total.damages >= arguments.damages,
        arguments,
        arguments.seconds - (middle - begin),
    )
    say(
        f"damages: {damages.damages} stores, seeds {arguments.seed}..{damages.seed - 1},"
        f" {time.monotonic() - middle:.0f} s, {len(damages.failures)} failures"
    )
    end = begin + arguments.seconds
    kills = run_kills("processes", kills_of, arguments.kills, arguments, end)
    servers = run_kills("servers", server_kills_of, arguments.server_kills, arguments, end)
    parts = (crashes, damages, kills, servers)
    done = (crashes.distinct, damages.damages, kills.kills, servers.kills)
    wanted = (arguments.states, arguments.damages, arguments.kills, arguments.server_kills)
    if any(count < enough for count, enough in zip(done, wanted, strict=True)):
        say("the time was up before all was done")
    return 1 if any(part.failures for part in parts) else 0


if __name__ == "__main__":
    sys.exit(main())
