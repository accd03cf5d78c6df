"""Calls that depend on nothing of each other are with the disk at the same time."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest

from tradewind.errors import StoreError
from tradewind.store.files.disk import TOGETHER_MAX, Disk, OsDisk
from tradewind.testing.fake_disk import SimulatedDisk

WAIT_SECONDS = 60.0


def test_calls_are_made_side_by_side(tmp_path: Path) -> None:
    meeting = threading.Barrier(TOGETHER_MAX, timeout=WAIT_SECONDS)
    OsDisk(str(tmp_path)).together([meeting.wait] * TOGETHER_MAX)  # each waits for the others


def test_more_calls_than_threads_are_all_made(tmp_path: Path) -> None:
    done: list[int] = []
    count = 3 * TOGETHER_MAX + 1
    OsDisk(str(tmp_path)).together([partial(done.append, number) for number in range(count)])
    assert sorted(done) == list(range(count))


def test_calls_are_made_even_if_no_thread_can_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done: list[int] = []
    OsDisk(str(tmp_path)).together([partial(done.append, number) for number in range(20)])
    assert sorted(done) == list(range(20))


@pytest.mark.parametrize("kind", ["real", "simulated"])
def test_the_first_error_is_raised_when_all_have_ended(tmp_path: Path, kind: str) -> None:
    disk: Disk = OsDisk(str(tmp_path)) if kind == "real" else SimulatedDisk()
    done: list[str] = []

    def fail(text: str) -> None:
        done.append(text)
        raise StoreError(text)

    calls = [partial(done.append, "a"), partial(fail, "b"), partial(fail, "c")]
    with pytest.raises(StoreError, match="b"):
        disk.together([*calls, partial(done.append, "d")])
    assert sorted(done) == ["a", "b", "c", "d"]


def test_nothing_to_do_is_done(tmp_path: Path) -> None:
    OsDisk(str(tmp_path)).together([])
