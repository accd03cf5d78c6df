"""Log lines in nats-server's shape, rotation, reopening, and that a broken log stops nothing."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tradewind.errors import ServerStartError
from tradewind.options import ServerOptions
from tradewind.server.monitoring.log_sinks import FileSink
from tradewind.server.monitoring.logs import Log, StderrSink, open_log

NOW_NS = 1_767_323_045_123_456_789  # 2026-01-02 03:04:05.123456789 UTC
PID = os.getpid()
UTC = ServerOptions(logtime_utc=True)


def log_to(path: Path, options: ServerOptions = UTC, **file: int) -> Log:
    return Log(options, FileSink(str(path), **file), now_ns=lambda: NOW_NS)


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def test_lines_have_the_shape_of_nats_server(path: Path) -> None:
    log = log_to(path, replace(UTC, debug=True, trace=True))
    log.notice("a")
    log.warn("b")
    log.error("c")
    log.fatal("d")
    log.debug("e")
    log.trace("f")
    stamp = f"[{PID}] 2026/01/02 03:04:05.123456"
    assert lines_of(path) == [
        f"{stamp} [{level}] {text}"
        for level, text in zip(("INF", "WRN", "ERR", "FTL", "DBG", "TRC"), "abcdef", strict=True)
    ]


def test_local_time_is_the_default(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "XYZ-5")
    time.tzset()
    try:
        log_to(path, ServerOptions()).notice("a")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert lines_of(path) == [f"[{PID}] 2026/01/02 08:04:05.123456 [INF] a"]


def test_the_time_can_be_left_out(path: Path) -> None:
    log_to(path, replace(UTC, logtime=False)).notice("a")
    assert lines_of(path) == [f"[{PID}] [INF] a"]


def test_debug_and_trace_are_off_by_default_and_change_with_a_reload(path: Path) -> None:
    log = log_to(path)
    assert not log.debug_enabled
    assert not log.trace_enabled
    log.debug("lost")
    log.trace("lost")
    log = open_log(replace(UTC, log_file=str(path)))
    log.reconfigure(replace(UTC, log_file=str(path), debug=True, trace=True))
    log.debug("kept")
    log.trace("kept")
    assert [line[-10:] for line in lines_of(path)] == ["[DBG] kept", "[TRC] kept"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\n[1] [INF] forged", r"a\x0a[1] [INF] forged"),
        ("\x1b[31mred\r", r"\x1b[31mred\x0d"),
        ("tab\tand é", "tab\tand é"),
        ("lone \ud800", r"lone \ud800"),
    ],
)
def test_a_text_cannot_forge_lines(path: Path, text: str, shown: str) -> None:
    log_to(path, replace(UTC, logtime=False)).notice(text)
    assert path.read_text() == f"[{PID}] [INF] {shown}\n"


def test_standard_error_is_the_default_and_has_no_colours_in_a_pipe(
    capfd: pytest.CaptureFixture[str],
) -> None:
    open_log(replace(UTC, logtime=False)).notice("hello")
    assert capfd.readouterr().err == f"[{PID}] [INF] hello\n"


def test_a_terminal_gets_colours(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    Log(replace(UTC, logtime=False), StderrSink()).error("hello")
    assert capfd.readouterr().err == f"[{PID}] [\x1b[31mERR\x1b[0m] hello\n"


def test_a_log_that_cannot_be_written_stops_nothing(path: Path) -> None:
    log = log_to(path)
    log.close()
    log.notice("lost")
    log.reopen()

    class Broken:
        def write(self, level: str, prefix: str, text: str) -> None:
            raise OSError("disk full")

        def reopen(self) -> bool:
            raise OSError("no such folder")

        def close(self) -> None:
            pass

    broken = Log(UTC, Broken())
    broken.notice("lost")
    broken.reopen()
    assert "lost" not in path.read_text()


def test_a_log_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    for options in (
        ServerOptions(log_file=str(tmp_path / "none" / "x.log")),
        ServerOptions(log_file="a\0b"),
        ServerOptions(remote_syslog="nonsense"),
    ):
        with pytest.raises(ServerStartError, match="cannot open the log"):
            open_log(options)


def test_reopen_continues_in_a_fresh_file(path: Path) -> None:
    log = log_to(path)
    log.notice("first")
    moved = path.rename(path.with_suffix(".moved"))
    log.notice("second")
    log.reopen()
    log.notice("third")
    assert [line[-6:] for line in lines_of(moved)] == [" first", "second"]
    assert [line.split("[INF] ")[1] for line in lines_of(path)] == ["File log re-opened", "third"]


def test_reopen_of_something_else_is_ignored(capfd: pytest.CaptureFixture[str]) -> None:
    open_log(UTC).reopen()
    assert "File log re-open ignored, not a file logger" in capfd.readouterr().err


def test_reload_can_move_the_log(path: Path, tmp_path: Path) -> None:
    log = open_log(replace(UTC, log_file=str(path)))
    log.notice("one")
    other = tmp_path / "other.log"
    log.reconfigure(replace(UTC, log_file=str(other)))
    log.notice("two")
    with pytest.raises(ServerStartError):
        log.reconfigure(replace(UTC, log_file=str(tmp_path), debug=True))
    assert not log.debug_enabled
    log.notice("three")
    assert len(lines_of(path)) == 1
    assert [line.split()[-1] for line in lines_of(other)] == ["two", "three"]


def test_log_file_is_not_readable_by_everyone(path: Path) -> None:
    log_to(path).notice("a")
    assert path.stat().st_mode & 0o007 == 0


def test_rotation_keeps_every_line_and_names_the_backup(path: Path) -> None:
    log = log_to(path, size_limit_bytes=300)
    for number in range(20):
        log.notice(f"line {number}")
    backups = sorted(entry for entry in path.parent.iterdir() if entry != path)
    assert backups
    for backup in backups:
        assert re.fullmatch(r"server\.log\.\d{4}(\.\d\d){5}\.\d{9}", backup.name)
        assert 300 < backup.stat().st_size < 400
    lines = [line for file in (*backups, path) for line in lines_of(file)]
    assert [line.split("line ")[1] for line in lines if "line " in line] == [
        str(number) for number in range(20)
    ]
    assert lines_of(backups[-1])[0].endswith(f'[INF] Rotated log, backup saved as "{backups[-2]}"')


def test_rotation_removes_the_oldest_backups_only(path: Path) -> None:
    bystanders = [path.with_name(name) for name in ("server.log.old", "other.log.2026.01.01")]
    for bystander in bystanders:
        bystander.touch()
    log = log_to(path, size_limit_bytes=200, files_max=3)
    for number in range(30):
        log.notice(f"line {number}")
    files = set(path.parent.iterdir()) - set(bystanders)
    assert len(files) == 3
    assert all(bystander.exists() for bystander in bystanders)
    assert "line 29" in "".join(file.read_text() for file in files)


def test_rotation_that_fails_keeps_writing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_to(path, size_limit_bytes=200)

    def refuse(self: Path, target: Path) -> Path:
        raise OSError("read-only folder")

    monkeypatch.setattr(Path, "rename", refuse)
    for number in range(20):
        log.notice(f"line {number}")
    assert len(lines_of(path)) == 20


def test_lines_of_several_threads_do_not_mix(path: Path) -> None:
    log = log_to(path, size_limit_bytes=20_000)
    threads = [
        threading.Thread(target=lambda: [log.notice("x" * 50) for _ in range(200)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = [line for file in path.parent.iterdir() for line in lines_of(file)]
    assert sum(line.endswith("[INF] " + "x" * 50) for line in lines) == 800


@pytest.fixture
def udp() -> Iterator[Any]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(5)
        yield receiver


def test_remote_syslog(udp: Any) -> None:
    log = open_log(replace(UTC, remote_syslog=f"udp://127.0.0.1:{udp.getsockname()[1]}"))
    log.error("é")
    # 3 * 8 (daemon) + 3 (error)
    assert udp.recv(1000) == f"<27>nats-server[{PID}]: é".encode()
    log.reopen()
    assert b"re-open ignored" in udp.recv(1000)
    log.close()


def test_syslog_that_went_away_stops_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        log = open_log(replace(UTC, remote_syslog=f"tcp://127.0.0.1:{server.getsockname()[1]}"))
        server.accept()[0].close()
    for _ in range(5):
        log.notice("lost")
    log.close()
    assert capfd.readouterr().err == ""
