"""A start waits a moment for a folder that another server is leaving, and no longer."""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path

import pytest

from harness import RawClient, ServerProcess
from tradewind.server.jetstream.store_wait import PAUSE_SECONDS, WAIT_NS_MAX, when_free
from tradewind.store.files.disk import FolderInUse, OsDisk
from tradewind.store.folder.stream_folder import StoreRoot
from tradewind.testing.fake_clock import FakeClock
from tradewind.testing.log import MemoryLog

FLAGS = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd"]


class Folder:
    """A folder whose owners leave one after the other; pauses move the clock."""

    def __init__(self, owners: list[int]) -> None:
        self.owners = owners
        self.clock = FakeClock()
        self.log = MemoryLog()
        self.pauses: list[float] = []

    def take(self) -> str:
        if self.owners:
            raise FolderInUse("/data/jetstream", self.owners[0])
        return "taken"

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.advance_ns(int(seconds * 1e9))
        if len(self.owners) > 1 or self.owners == [1]:
            self.owners.pop(0)

    async def wait(self) -> str:
        return await when_free(self.take, self.log, self.clock, self.pause)


async def test_a_free_folder_is_taken_without_a_pause_or_a_line() -> None:
    folder = Folder([])
    assert await folder.wait() == "taken"
    assert not folder.pauses
    assert not folder.log.lines


async def test_a_folder_is_taken_as_soon_as_its_owner_has_gone() -> None:
    folder = Folder([7, 7, 7, 1])
    assert await folder.wait() == "taken"
    assert folder.pauses == [PAUSE_SECONDS] * 4
    assert folder.log.texts("warn") == [
        "Waiting up to 5s for /data/jetstream, which process 7 is using",
        "Waiting up to 4.85s for /data/jetstream, which process 1 is using",
    ]


async def test_an_owner_that_stays_is_named_at_the_end_of_a_bounded_wait() -> None:
    folder = Folder([4711])
    began_ns = folder.clock.monotonic_ns()
    with pytest.raises(FolderInUse, match="in use by process 4711; stop that server or"):
        await folder.wait()
    waited_ns = folder.clock.monotonic_ns() - began_ns
    assert WAIT_NS_MAX <= waited_ns < WAIT_NS_MAX + 2 * PAUSE_SECONDS * 1e9
    assert len(folder.log.lines) == 1


async def test_an_owner_that_nobody_knows_is_waited_for_as_well() -> None:
    folder = Folder([0])
    with pytest.raises(FolderInUse, match="in use by another process;"):
        await folder.wait()
    assert folder.log.texts("warn") == [
        "Waiting up to 5s for /data/jetstream, which another process is using"
    ]


async def test_another_failure_is_told_at_once() -> None:
    folder = Folder([])

    def take() -> str:
        raise PermissionError("no")

    with pytest.raises(PermissionError):
        await when_free(take, folder.log, folder.clock, folder.pause)
    assert not folder.pauses


# ---------------------------------------------------------------- who the owner is


def test_a_note_of_a_process_that_is_gone_is_not_believed(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path))
    path = f"{disk.root}/tradewind.lock"
    lock = disk.lock(path)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    Path(path).write_bytes(b"%d\n" % child)
    with pytest.raises(FolderInUse, match="in use by another process;"):
        disk.lock(path)
    lock.release()


def test_readers_are_not_taken_for_the_server_that_was_there_before(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path))
    path = f"{disk.root}/tradewind.lock"
    Path(path).write_bytes(b"%d\n" % os.getpid())  # left by one that was killed
    reader = os.open(path, os.O_RDONLY)
    fcntl.flock(reader, fcntl.LOCK_SH)
    with pytest.raises(FolderInUse, match="in use by another process;"):
        disk.lock(path)
    os.close(reader)
    disk.lock(path).release()


# ---------------------------------------------------------------- processes


def test_a_server_starts_when_the_one_before_it_has_stopped(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path))
    root = StoreRoot(disk, disk.root)  # one that is still stopping
    server = ServerProcess("tradewind", [*FLAGS, str(tmp_path)])
    try:
        server.wait_for_log(rf"Waiting up to \S+ for \S+/jetstream, which process {os.getpid()} is")
        assert not any("Listening for client connections" in line for line in server.lines)
        root.close()
        server.wait_ready()
        with RawClient(server.port) as client:
            client.connect()
    finally:
        root.close()
        server.stop()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_follows_one_that_was_just_told_to_end(
    tmp_path: Path, how: signal.Signals
) -> None:
    first = ServerProcess("tradewind", [*FLAGS, str(tmp_path)]).wait_ready()
    first.signal(how)
    second = ServerProcess("tradewind", [*FLAGS, str(tmp_path)])
    try:
        second.wait_ready()
        with RawClient(second.port) as client:
            client.connect()
    finally:
        second.stop()
        first.stop()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_waits_ends_at_once_when_it_is_told_to(
    tmp_path: Path, how: signal.Signals
) -> None:
    disk = OsDisk(str(tmp_path))
    root = StoreRoot(disk, disk.root)
    server = ServerProcess("tradewind", [*FLAGS, str(tmp_path)])
    try:
        server.wait_for_log(r"Waiting up to")
        server.signal(how)
        assert server.wait() == 0
        assert not any("[FTL]" in line for line in server.lines)
    finally:
        server.stop()
        root.close()
