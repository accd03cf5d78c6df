"""Stores in a process that is killed, or whose disk refuses: what it has promised is there."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from store_process_kit import PLANS, Child, Cycles, Plan, Promises, can_mount, problems_of
from thoroughness import some

CYCLES = some(8, 300)


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_promised_is_lost_by_a_kill(tmp_path: Path, seed: int) -> None:
    cycles = Cycles(tmp_path, seed)
    for _ in range(CYCLES):
        assert cycles.run_one() == []
    assert cycles.kills == CYCLES
    assert cycles.acks > CYCLES


def follow(child: Child, promises: dict[str, Promises], stop_at: tuple[str, ...]) -> list[str]:
    """Take in what a child says until it says this."""
    for line in child.lines():
        if tuple(line[: len(stop_at)]) == stop_at:
            return line
        if line[0] == "ack":
            promises.setdefault(line[1], Promises()).ack(int(line[2]), 1)
        elif line[0] == "gone":
            promises.setdefault(line[1], Promises()).gone.add(int(line[2]))
    code, complaint = child.end()
    pytest.fail(f"{stop_at} was never said; it ended with {code}: {complaint}")


def plan_of(name: str) -> Plan:
    return next(plan for plan in PLANS if plan.name == name)


def look(folder: Path, promises: dict[str, Promises]) -> None:
    for name, said in promises.items():
        store = plan_of(name).open(folder)
        assert problems_of(store, plan_of(name), said) == []
        store.close()


def test_failed_sync_ends_one_stream_and_no_other(tmp_path: Path) -> None:
    promises: dict[str, Promises] = {}
    with Child(tmp_path, 1, "--streams", "A,B", "--fail-sync", "B") as child:
        assert follow(child, promises, ("failed", "B"))[2] == "DiskFault"
        at_failure = promises["B"].last_acked
        for _ in range(20):
            promises["A"].ack(int(follow(child, promises, ("ack", "A"))[2]), 1)
        assert promises["B"].last_acked == at_failure
        child.kill()
        child.end()
    look(tmp_path, promises)


def test_file_size_limit_stops_a_stream_until_it_is_raised(tmp_path: Path) -> None:
    promises: dict[str, Promises] = {}
    with Child(tmp_path, 1, "--streams", "A", "--file-bytes", "5000") as child:
        assert follow(child, promises, ("failed", "A"))[2] == "DiskFull"
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.prlimit(child.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        follow(child, promises, ("resumed", "A"))
        follow(child, promises, ("ack", "A"))
        child.tell("stop")
        follow(child, promises, ("verified", "A"))
        assert child.end() == (0, "")
    look(tmp_path, promises)


@pytest.mark.skipif(not can_mount(), reason="no right to mount a small disk")
def test_full_disk_stops_streams_until_there_is_room(tmp_path: Path) -> None:
    promises: dict[str, Promises] = {}
    mount = f"mount -t tmpfs -o size=2m tmpfs '{tmp_path}'"
    arguments = ("--streams", "A,LIMITED", "--ballast", "1300000")
    with Child(tmp_path, 1, *arguments, wrap=mount) as child:
        assert follow(child, promises, ("failed", "A"))[2] == "DiskFull"
        child.tell("free")
        follow(child, promises, ("resumed", "A"))
        follow(child, promises, ("ack", "A"))
        child.tell("stop")
        follow(child, promises, ("verified", "A"))
        assert child.end() == (0, "")
