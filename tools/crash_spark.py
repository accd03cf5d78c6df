"""Kill Spark's jobs and everything they need, and count what became of the rows.

    python tools/crash_spark.py [--kills 300] [--seed 0]
                                [--jobs stream,parquet,delta,iceberg,upsert-delta,upsert-iceberg,
                                        table,shared,limits,recreated,view]
                                [--victims worker,server,executor,java,python,everything]
                                [--seconds 3600]

Kills come in rounds of a few, each with one job, one kind of victim and a server of its own; jobs
and victims take turns until there were as many kills as wanted, or the time is over. Victims are
the Python workers of tasks, the server, one of two executors, and of the driver its Java, its
Python, or all of it at once. Each kill comes at a step of a batch that the seed chooses, and up to
60 ms later; a job whose run has ended by it goes on from its checkpoint. Only the exact moment does
not follow from the seed. Beside upserts, the table is maintained all the time: small files are
joined and old versions forgotten. `limits` reads a stream that loses its oldest messages meanwhile,
and the stream of `recreated` is deleted and created again right before each kill. Prints a table of
the rounds that have come to their end, also if it is stopped. Exits with 1 if a row was lost or is
there twice, or if a reader could see that.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "kits"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "spark"))

from kill_jobs import Job
from kill_kit import DRIVER_VICTIMS, EXECUTOR, VICTIMS, DriverHost, Tally, campaign
from kill_reads import JOBS

ALL_VICTIMS = (*VICTIMS, EXECUTOR, *DRIVER_VICTIMS)
HEAD = ("job", "killed", "kills", "rows expected", "rows lost", "rows doubled")
# Small rounds keep folders small, and what is read after each kill.
KILLS_PER_ROUND = {"worker": 25, "server": 25, EXECUTOR: 10}
DRIVER_KILLS_PER_ROUND = 6
# Tasks are tried again, as on a cluster.
LOCAL = "local[2,100]"
CLUSTER = "local-cluster[2,1,512]"
NAMES = {
    "worker": "Python workers",
    "server": "server",
    EXECUTOR: "executors",
    "java": "the driver's Java",
    "python": "the driver's Python",
    "everything": "the whole driver",
}


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--jobs", type=_list_of(tuple(JOBS)), default=list(JOBS))
    parser.add_argument("--victims", type=_list_of(ALL_VICTIMS), default=list(ALL_VICTIMS))
    given = parser.parse_args()
    # That connections are lost is the point.
    logging.getLogger("tradewind").setLevel(logging.ERROR)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    tallies: dict[tuple[str, str], Tally] = {}
    try:
        has_failed = _rounds(given, tallies)
    except KeyboardInterrupt:
        has_failed = True
        sys.stdout.write("stopped; the round that was under way does not count\n")
    _print(tallies)
    return int(has_failed or any(one.lost or one.doubled for one in tallies.values()))


def _rounds(given: argparse.Namespace, tallies: dict[tuple[str, str], Tally]) -> bool:
    """Whether one of them failed; those that have come to their end are in the tallies."""
    pairs = [(job, victim) for job in given.jobs for victim in given.victims]
    chance = random.Random(given.seed)  # noqa: S311 - no secret
    chance.shuffle(pairs)
    left = given.kills
    deadline = time.monotonic() + given.seconds
    number = 0
    has_failed = False
    while left > 0 and time.monotonic() < deadline:
        job, victim = pairs[number % len(pairs)]
        number += 1
        kills = min(KILLS_PER_ROUND.get(victim, DRIVER_KILLS_PER_ROUND), left)
        tally = tallies.setdefault((job, victim), Tally())
        dice = random.Random(chance.random())  # noqa: S311 - kills need no secrets
        failure = _round(job, victim, kills, deadline, dice, tally)
        left -= kills
        if failure:
            has_failed = True
            sys.stdout.write(f"seed {given.seed}, round {number}: {job}, {victim}: {failure}\n")
    return has_failed


def _list_of(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        if unknown := set(text.split(",")) - set(known):
            raise argparse.ArgumentTypeError(
                f"{', '.join(sorted(unknown))}: only {', '.join(known)} will do"
            )
        return text.split(",")

    return parse


def _round(
    kind: str, victim: str, kills: int, deadline: float, chance: random.Random, tally: Tally
) -> str:
    """What went wrong; the folder is kept then, and named."""
    folder = Path(tempfile.mkdtemp(prefix="tradewind-kills-"))
    master = CLUSTER if victim == EXECUTOR else LOCAL

    def start(job: Job) -> DriverHost:
        return DriverHost(job, master, folder / "spark.log")

    with campaign(kind, folder, chance, start) as made:
        try:
            for _ in range(kills):
                made.kill(victim)
                if time.monotonic() > deadline:
                    break
            made.finish()
        except AssertionError as error:
            return f"{error}; see {folder}"
    _add(tally, made.tally)
    if not made.tally.lost and not made.tally.doubled:
        shutil.rmtree(folder)
        return ""
    return f"{made.tally.lost} rows are lost, {made.tally.doubled} there twice; see {folder}"


def _add(total: Tally, one: Tally) -> None:
    for name in ("kills", "expected", "lost", "doubled"):
        setattr(total, name, getattr(total, name) + getattr(one, name))
    total.steps.update(one.steps)


def _print(tallies: dict[tuple[str, str], Tally]) -> None:
    rows = [HEAD, ("---",) * len(HEAD)]
    steps: Counter[tuple[str, str]] = Counter()
    total = Tally()
    for (kind, victim), tally in sorted(tallies.items()):
        title = JOBS[kind].title
        counts = (tally.kills, tally.expected, tally.lost, tally.doubled)
        rows.append((title, NAMES[victim], *(f"{count:,}" for count in counts)))
        steps.update({(title, step): count for step, count in tally.steps.items()})
        _add(total, tally)
    counts = (total.kills, total.expected, total.lost, total.doubled)
    rows.append(("all", "", *(f"{count:,}" for count in counts)))
    rows += [("",), ("job", "killed after", "kills"), ("---",) * 3]
    rows += [(title, step, str(count)) for (title, step), count in sorted(steps.items())]
    for row in rows:
        sys.stdout.write(f"| {' | '.join(row)} |\n" if row[0] else "\n")


if __name__ == "__main__":
    sys.exit(main())
