"""Calls that only Linux has, and what stands in for them elsewhere: each test runs on both."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tradewind import platform_calls
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.sql import new_lakes


@pytest.fixture(params=[False, True], ids=["linux", "elsewhere"])
def elsewhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the calls are those of a system that lacks what Linux has."""
    is_elsewhere: bool = request.param
    monkeypatch.setattr(platform_calls, "_IS_PORTABLE", is_elsewhere)
    return is_elsewhere


def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders, each with a file of its own name."""
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / folder.name).touch()
    return one, other


def test_data_is_synced(elsewhere: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda _: synced.append("fdatasync"))
    monkeypatch.setattr(os, "fsync", lambda _: synced.append("fsync"))
    with (tmp_path / "file").open("wb") as file:
        platform_calls.sync_data(file.fileno())
    assert synced == ["fsync" if elsewhere else "fdatasync"]


def test_an_error_of_a_sync_is_not_lost(elsewhere: bool, tmp_path: Path) -> None:
    file = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    os.close(file)
    with pytest.raises(OSError, match="Bad file descriptor"):
        platform_calls.sync_data(file)


def test_usable_processors_are_counted(elsewhere: bool) -> None:
    allowed = os.cpu_count() if elsewhere else len(os.sched_getaffinity(0))
    assert platform_calls.usable_processors() == allowed


def test_the_peer_of_a_socket_is_known_or_said_to_be_unknown(elsewhere: bool) -> None:
    one, other = socket.socketpair()
    with one, other:
        if elsewhere:
            with pytest.raises(OSError, match="no SO_PEERCRED"):
                platform_calls.peer_of(one)
        else:
            assert platform_calls.peer_of(one) == (os.getpid(), os.getuid())


def test_a_process_is_signalled_by_its_handle_or_not_at_all(elsewhere: bool) -> None:
    code = "import sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        if elsewhere:
            for call in (
                lambda: platform_calls.process_handle(process.pid),
                lambda: platform_calls.signal_handle(0, signal.SIGTERM),
            ):
                with pytest.raises(OSError, match="this system has no pidfd") as caught:
                    call()
                assert caught.value.errno == errno.ENOSYS
            process.kill()
        else:
            handle = platform_calls.process_handle(process.pid)
            platform_calls.signal_handle(handle, signal.SIGTERM)
            os.close(handle)
            assert process.wait(60) == -signal.SIGTERM


def test_folders_change_places_or_the_error_says_what_to_do(
    elsewhere: bool, tmp_path: Path
) -> None:
    one, other = folders(tmp_path)
    if elsewhere:
        with pytest.raises(PipelineError, match="cannot exchange two folders; remove it first"):
            new_lakes._exchange(one, other)
        assert [path.name for path in one.iterdir()] == ["one"]
    else:
        new_lakes._exchange(one, other)
        assert [path.name for path in one.iterdir()] == ["other"]
        assert [path.name for path in other.iterdir()] == ["one"]


def test_the_environment_forces_what_other_systems_get() -> None:
    code = "from tradewind import platform_calls as p; print(p.PROC, p.O_DIRECTORY)"
    printed = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"TRADEWIND_PORTABLE": value},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for value in ("0", "1")
    ]
    assert printed == [f"/proc {os.O_DIRECTORY}\n", "/nonexistent/proc 0\n"]
