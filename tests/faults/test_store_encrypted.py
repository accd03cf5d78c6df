"""Encrypted stores that lose power, and whose files rot: the rules are those of plain ones.

What never reached the disk is zeros there, and noise once it is decrypted; and a block has a second
file, without which it is nothing. `tools/crash.py --encrypted` does this for as long as one likes.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from power_cuts import WatchedDisk
from store_damage import damage_seed
from store_verdict import Count, Explorer, content_of
from store_workloads import (
    FOLDER,
    Run,
    Workload,
    encrypted,
    open_workload,
    random_workload,
    scripted_workloads,
    with_rewrites,
)
from thoroughness import some_of
from tradewind.errors import StoreError
from tradewind.testing.fake_disk import SimulatedDisk

SCRIPTED = [encrypted(workload, number) for number, workload in enumerate(scripted_workloads())]
scripted = pytest.mark.parametrize("workload", SCRIPTED, ids=lambda workload: workload.name)


def explored(workload: Workload, *, seeds: int, seed: int = 1, cut_share: int = 20) -> Count:
    count = Count()
    Explorer(workload, seeds=seeds, cut_share=cut_share, count=count).run(seed)
    return count


@scripted
def test_every_power_failure_of_a_story_is_survived(workload: Workload) -> None:
    count = explored(workload, seeds=2)
    assert not count.failures, count.failures[:3]
    assert count.states > 50


@pytest.mark.parametrize("seed", some_of(range(500, 506), [500, 504, 505]))
def test_every_power_failure_of_a_random_workload_is_survived(seed: int) -> None:
    workload = encrypted(random_workload(seed, 25), seed)
    count = explored(workload, seeds=2, seed=seed)
    assert not count.failures, count.failures[:3]


@pytest.mark.parametrize("seed", some_of(range(510, 514), [510, 511, 512]))
def test_power_failures_while_blocks_are_rewritten_are_survived(seed: int) -> None:
    workload = encrypted(with_rewrites(random_workload(seed, 25), seed), seed)
    count = explored(workload, seeds=2, seed=seed)
    assert not count.failures, count.failures[:3]


@pytest.mark.parametrize("seed", some_of(range(520, 524), [521, 522, 523]))
def test_store_that_survived_a_power_failure_survives_the_next(seed: int) -> None:
    before = encrypted(random_workload(seed, 20), seed)
    after = encrypted(random_workload(seed + 1000, 12), seed)
    after = replace(after, limits=before.limits, block_bytes_max=before.block_bytes_max)
    count = Count()
    Explorer(after, seeds=2, cut_share=20, count=count).run_after_crash(before, seed)
    assert not count.failures, count.failures[:3]


@pytest.mark.parametrize("seed", range(4))
def test_writes_that_arrive_in_small_parts_are_survived(seed: int) -> None:
    count = Count()
    explorer = Explorer(SCRIPTED[seed], seeds=2, cut_share=0, count=count)
    explorer.run(3, short_write_bytes=70)
    assert not count.failures, count.failures[:3]


@pytest.mark.parametrize("seed", range(6))
def test_only_what_damage_has_hit_is_lost_and_it_is_named(seed: int) -> None:
    assert damage_seed(seed, 18, is_encrypted=True) == []


# --- the harness itself: a store that lies is caught ---------------------------------------------


def test_store_whose_keys_reach_the_disk_too_late_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_sync(disk: SimulatedDisk, path: str, content: bytes, aside: str = "") -> None:
        with disk.create(path, replace=True) as file:
            file.write(content, 0)

    monkeypatch.setattr("tradewind.store.files.vault.write_key_file", without_sync)
    failures = explored(SCRIPTED[0], seeds=2, cut_share=0).failures
    assert any("key" in problem for failure in failures for problem in failure.problems)


def test_store_whose_records_are_not_encrypted_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tradewind.store.files.vault.StreamVault.seal_index", lambda self, content: content
    )
    failures = explored(SCRIPTED[0], seeds=1, cut_share=0).failures
    assert any("can be read" in problem for failure in failures for problem in failure.problems)


# --- keys -----------------------------------------------------------------------------------------


def filled(cipher: str = "chacha") -> tuple[WatchedDisk, Workload]:
    workload = replace(SCRIPTED[0], cipher=cipher)
    disk = WatchedDisk()
    run = Run(workload, disk)
    run.run()
    run.do_commit()
    return disk, workload


@pytest.mark.parametrize("cipher", ["chacha", "aes"])
@pytest.mark.parametrize("harm", ["missing", "cut", "another"])
def test_block_without_its_key_stops_the_start_and_nothing_is_changed(
    cipher: str, harm: str
) -> None:
    disk, workload = filled(cipher)
    path = f"{FOLDER}/msgs/2.key"
    key = disk.content_of(path)
    if harm == "missing":
        disk.remove(path)
        disk.sync_directory(f"{FOLDER}/msgs")
    else:
        disk.put_durable_file(path, key[:40] if harm == "cut" else bytes(len(key)))
    before = disk.snapshot_tree()
    with pytest.raises(StoreError, match=r"2\.key: .*put (it|the file)\s+back"):
        open_workload(disk, workload, 0)
    assert disk.snapshot_tree() == before
    disk.put_durable_file(path, key)
    store, report = open_workload(disk, workload, 0)
    assert report.is_clean
    assert content_of(store)


def test_keys_of_blocks_that_are_gone_go_too() -> None:
    workload = encrypted(next(w for w in scripted_workloads() if "purge" in w.name), 0)
    disk = WatchedDisk()
    run = Run(workload, disk)
    run.run()
    run.do_commit()
    run.store.table.purge()
    for _ in range(20):
        run.store.table.store(b"a", b"", b"x" * 100, 1)
        run.store.commit()
    run.store.close()
    store, _ = open_workload(disk, workload, 0)
    store.close()
    names = disk.list_directory(f"{FOLDER}/msgs")
    keys = {int(name[:-4]) for name in names if name.endswith(".key")}
    blocks = {int(name[:-4]) for name in names if name.endswith(".blk")}
    assert blocks <= keys
    assert all(number > max(blocks) for number in keys - blocks), (keys, blocks)
