"""Power failures at every I/O step of many workloads: what was promised is there, what was removed
stays away, nothing is invented and nothing is reported as lost.

`tools/crash.py` does the same for as long as one likes.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from store_verdict import Count, Examiner, Explorer, content_of, judge

from power_cuts import WatchedDisk
from store_workloads import (
    Run,
    Workload,
    open_workload,
    random_workload,
    scripted_workloads,
    with_limits_in_steps,
    with_rewrites,
    with_short_commits,
)
from thoroughness import some, some_of
from tradewind.store.format.sequence_set import SequenceSet
from tradewind.testing.fake_disk import PowerLoss, SimulatedDisk, SimulatedFile

SCRIPTED = list(scripted_workloads())
scripted = pytest.mark.parametrize("workload", SCRIPTED, ids=lambda workload: workload.name)


def explored(workload: Workload, *, seeds: int, seed: int = 1, cut_share: int = 12) -> Count:
    count = Count()
    Explorer(workload, seeds=seeds, cut_share=cut_share, count=count).run(seed)
    return count


@scripted
def test_every_power_failure_of_a_story_is_survived(workload: Workload) -> None:
    count = explored(workload, seeds=some(4, 8))
    assert not count.failures, count.failures[:3]
    assert count.states > 50


@pytest.mark.parametrize("seed", some_of(range(24), [0, 1, 3, 5, 7, 11, 14, 18, 19, 21]))
def test_every_power_failure_of_a_random_workload_is_survived(seed: int) -> None:
    count = explored(random_workload(seed), seeds=3, seed=seed)
    assert not count.failures, count.failures[:3]
    assert count.states > 50


@pytest.mark.parametrize("seed", some_of(range(220, 226), [221, 222, 225]))
def test_power_failures_while_limits_are_applied_in_steps_are_survived(seed: int) -> None:
    workload = with_limits_in_steps(random_workload(seed, changes_limits=True), 1 + seed % 3)
    assert any(name == "limits_in_steps" for name, *_ in workload.steps)
    count = explored(workload, seeds=3, seed=seed)
    assert not count.failures, count.failures[:3]


@pytest.mark.parametrize("seed", [67, *some_of(range(200, 207), [200, 201, 202, 205])])
def test_power_failures_around_a_change_of_the_limits_are_survived(seed: int) -> None:
    workload = random_workload(seed, changes_limits=True)
    assert any(name == "limits" for name, *_ in workload.steps)
    count = explored(workload, seeds=3, seed=seed)
    assert not count.failures, count.failures[:3]


@pytest.mark.parametrize("seed", some_of(range(300, 308), [301, 302, 304, 306]))
def test_power_failures_while_blocks_are_rewritten_are_survived(seed: int) -> None:
    count = explored(with_rewrites(random_workload(seed), seed), seeds=3, seed=seed)
    assert not count.failures, count.failures[:3]


@pytest.mark.parametrize("seed", some_of(range(400, 406), [400, 403, 404]))
def test_power_failures_around_short_commits_are_survived(seed: int) -> None:
    workload = with_short_commits(random_workload(seed))
    assert any(name == "alone" for name, *_ in workload.steps)
    count = explored(workload, seeds=3, seed=seed)
    assert not count.failures, count.failures[:3]


@pytest.mark.parametrize("seed", [203])
def test_power_failures_among_short_commits_and_changes_of_the_limits_are_survived(
    seed: int,
) -> None:
    """203: the last message, too large for the limits, is said to be gone as its block goes."""
    workload = random_workload(seed, changes_limits=True, short_commits=True)
    count = explored(workload, seeds=3, seed=seed)
    assert not count.failures, count.failures[:3]


@pytest.mark.parametrize("seed", some_of(range(100, 112), [100, 101, 103, 105, 107, 110]))
def test_store_that_survived_a_power_failure_survives_the_next(seed: int) -> None:
    before = random_workload(seed)
    after = random_workload(seed + 1000, length=20)
    after = replace(after, limits=before.limits, block_bytes_max=before.block_bytes_max)
    count = Count()
    Explorer(after, seeds=3, cut_share=6, count=count).run_after_crash(before, seed)
    assert not count.failures, count.failures[:3]


@scripted
def test_file_systems_that_persist_new_names_with_the_data_are_no_worse(
    workload: Workload,
) -> None:
    count = Count()
    explorer = Explorer(workload, seeds=3, cut_share=0, count=count)
    explorer.run(2, sync_persists_names=True)
    assert not count.failures, count.failures[:3]


@scripted
def test_writes_that_arrive_in_small_parts_are_survived(workload: Workload) -> None:
    count = Count()
    explorer = Explorer(workload, seeds=2, cut_share=0, count=count)
    explorer.run(3, short_write_bytes=70)
    assert not count.failures, count.failures[:3]


class Killed(BaseException):
    """The process is gone; the disk keeps its power."""


@scripted
def test_killed_process_promises_nothing_that_a_power_failure_could_take(
    workload: Workload,
) -> None:
    """After a restart the store shows what the page cache holds; from then on that is promised."""
    examiner = Examiner()
    for last_step in range(1, 1000):
        disk = WatchedDisk()
        run = Run(workload, disk)

        def end(disk: WatchedDisk = disk, last_step: int = last_step) -> None:
            if disk.steps + 1 >= last_step:
                disk.on_step = None
                raise Killed

        disk.on_step = end
        try:
            run.run()
        except Killed:
            pass
        else:
            return
        store, report = open_workload(disk, workload, run.ledger.now_ns)
        shown, last_seq = content_of(store), store.table.last_seq
        assert report.is_clean
        assert store.table.synced_seq == last_seq
        outcome = examiner.outcome(disk.crash_losing_unsynced(), workload, run.ledger.now_ns)
        assert not judge(run.ledger, outcome)
        assert outcome.messages == shown
        assert outcome.last_seq == last_seq


def test_watched_run_sees_the_disks_of_runs_that_really_stop() -> None:
    """Crashing copies in front of each step is the same as stopping there for good."""
    workload = SCRIPTED[0]
    watched: list[dict[str, bytes | None]] = []
    disk = WatchedDisk()
    run = Run(workload, disk)
    disk.on_step = lambda: watched.append(disk.crash(len(watched)).snapshot_tree())
    run.run()
    stopped = []
    for step in range(1, disk.steps + 1):
        victim = SimulatedDisk()
        victim.stop_at = step
        with pytest.raises(PowerLoss):
            Run(workload, victim).run()
        stopped.append(victim.crash(step - 1).snapshot_tree())
    assert stopped == watched


# --- the harness itself: a store that lies is caught ---------------------------------------------


def test_store_whose_data_is_never_synced_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedFile, "sync", lambda self, **_: None)
    failures = explored(SCRIPTED[0], seeds=2, cut_share=0).failures
    assert any("is lost" in problem for failure in failures for problem in failure.problems)


def test_store_whose_names_are_never_synced_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedDisk, "sync_directory", lambda self, path: None)
    failures = explored(SCRIPTED[0], seeds=2, cut_share=0).failures
    assert any("is lost" in problem for failure in failures for problem in failure.problems)


def test_store_that_forgets_its_tombstones_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = next(w for w in SCRIPTED if w.name == "removals from every place")
    monkeypatch.setattr("tradewind.store.folder.recover.deletions", lambda found: SequenceSet())
    failures = explored(workload, seeds=1, cut_share=0).failures
    assert any("is back" in problem for failure in failures for problem in failure.problems)


@pytest.mark.parametrize("story", ["then a trim by subject", "by what has gone before"])
def test_store_that_does_not_say_what_limits_removed_is_caught(
    monkeypatch: pytest.MonkeyPatch, story: str
) -> None:
    workload = next(w for w in SCRIPTED if w.name.endswith(story))
    monkeypatch.setattr("tradewind.store.folder.recover.MARK_FLOOR_KIND", -1)
    failures = explored(workload, seeds=20, cut_share=0).failures
    assert any("is back" in problem for failure in failures for problem in failure.problems)


def test_store_that_does_not_erase_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = next(w for w in SCRIPTED if w.name == "messages of plain blocks are erased")
    monkeypatch.setattr(
        "tradewind.store.folder.rewrite.erased_copy", lambda block, plain, erased: bytes(plain)
    )
    failures = explored(workload, seeds=1, cut_share=0).failures
    assert any("is not erased" in problem for failure in failures for problem in failure.problems)
