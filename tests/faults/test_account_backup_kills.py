"""Backups that are killed at any moment: what was there before is there, and the next one works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tradewind.sync
from harness import ServerProcess, wait_for
from tradewind.backups import AccountBackups, KeepRules, RestoreChoice
from tradewind.backups.backup_places import BackupPlace, FolderPlace
from tradewind.sync import connect

TRADEWIND = (sys.executable, "-m", "tradewind.cli")


class ProcessKilled(BaseException):
    """The process is gone: nothing of it runs any more."""


class KilledPlace(FolderPlace):
    """A folder whose user is killed before its `after`-th change; later ones have no effect."""

    def __init__(self, root: Path, after: int) -> None:
        super().__init__(root)
        self.left = after

    def _change(self) -> None:
        if self.left <= 0:
            raise ProcessKilled
        self.left -= 1

    def write(self, name: str, content: bytes) -> None:
        self._change()
        super().write(name, content)

    def write_later(self, name: str, content: bytes) -> None:
        self._change()
        super().write_later(name, content)

    def settle(self) -> None:
        self._change()
        super().settle()

    def remove(self, name: str) -> None:
        self._change()
        super().remove(name)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    flags = ["-js", "-sd", str(folder), "-a", "127.0.0.1", "-p", "-1"]
    process = ServerProcess("tradewind", flags)
    try:
        yield process.wait_ready().url
    finally:
        process.stop()


@pytest.fixture
def connection(server: str) -> Iterator[tradewind.sync.Connection]:
    with connect(server, timeout=60) as connection:
        yield connection
        streams = connection.jetstream_manager().streams
        for name in streams.names().all():
            streams.delete(name)


def fill(connection: tradewind.sync.Connection, count: int, size: int = 10) -> None:
    js = connection.jetstream()
    js.manager.streams.add(name="S", subjects=["s"])
    for _ in range(count):
        js.publish_async("s", os.urandom(size))
    js.publish_async_completed()


def restored_messages(
    connection: tradewind.sync.Connection, backups: AccountBackups, backup_id: str
) -> int:
    choice = RestoreChoice(renames={"S": "COPY"})
    report = backups.restore(connection, backups.find(backup_id), choice)
    connection.jetstream_manager().streams.delete("COPY")
    return report.streams[0].messages


def forget_locks(place: BackupPlace) -> None:
    """As after 15 minutes: the process that holds them is this one, which lives."""
    for name in place.sizes("locks"):
        place.remove(name)


def test_a_backup_killed_before_any_of_its_changes_never_counts(
    connection: tradewind.sync.Connection, tmp_path: Path
) -> None:
    sound = AccountBackups(FolderPlace(tmp_path))
    fill(connection, 5)
    known = [sound.create(connection).id]
    kills = 0
    for number in range(100):
        connection.jetstream().publish("s", b"%d" % number)
        try:
            AccountBackups(KilledPlace(tmp_path, number)).create(connection)
        except ProcessKilled:
            kills += 1
        else:
            break
        records, problems = sound.list()
        assert (problems, sound.verify().problems) == ([], [])
        # Killed only when its lock was to be removed, it counts.
        assert [each.id for each in records][: len(known)] == known
        known = [each.id for each in records]
        assert restored_messages(connection, sound, known[0]) == 5
        forget_locks(sound.place)
    assert kills > 4
    assert restored_messages(connection, sound, sound.create(connection).id) == 5 + kills + 1
    rules = KeepRules(last=1)
    assert sound.prune(rules).objects > 0
    assert sound.verify().problems == []


def test_a_prune_killed_before_any_of_its_changes_leaves_whole_backups(
    connection: tradewind.sync.Connection, tmp_path: Path
) -> None:
    sound = AccountBackups(FolderPlace(tmp_path))
    fill(connection, 1)
    for number in range(4):
        sound.create(connection)
        connection.jetstream().publish("s", b"%d" % number)
        if number == 1:
            connection.jetstream_manager().streams.purge("S")
    kills = 0
    for number in range(100):
        try:
            AccountBackups(KilledPlace(tmp_path, number)).prune(KeepRules(last=2))
        except ProcessKilled:
            kills += 1
        else:
            break
        assert sound.verify().problems == []
        assert len(sound.list()[0]) >= 2
        forget_locks(sound.place)
    assert kills > 4
    assert len(sound.list()[0]) == 2
    # Nothing is left over.
    assert sound.prune(KeepRules(last=2)).objects == 0
    assert sound.verify().problems == []


@pytest.mark.parametrize("moment", ["locks", "objects"])
def test_a_killed_command_leaves_a_place_that_the_next_one_uses(
    connection: tradewind.sync.Connection, server: str, tmp_path: Path, moment: str
) -> None:
    place = tmp_path / "place"
    fill(connection, 300, size=100_000)
    command = [*TRADEWIND, "backup", "create", str(place), "--server", server]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wait_for(lambda: any((place / moment).rglob("*")) or process.poll() is not None)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL, "it was done before it was killed"
    backups = AccountBackups(str(place))
    assert backups.list() == ([], [])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    backups.prune(KeepRules(last=1))  # the lock of the dead process is no obstacle
    assert backups.verify().problems == []
    assert restored_messages(connection, backups, "") == 300
    assert not list(place.rglob(".*"))
