"""Progress bars are for terminals, and only there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cli_outcome import Cli

WAIT_SECONDS = 60


def on_a_terminal(*args: str) -> tuple[int, str, str]:
    """The exit code of a command, its output, and what a terminal shows of its error output."""
    primary, secondary = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tradewind.cli", *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=secondary,
        text=True,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(secondary)
    shown = b""
    try:
        while True:
            try:
                more = os.read(primary, 65536)
            except OSError:  # the terminal is closed
                break
            if not more:
                break
            shown += more
        out, _ = process.communicate(timeout=WAIT_SECONDS)
    finally:
        process.kill()
        process.communicate()
        os.close(primary)
    return process.returncode, out, shown.decode()


def test_publishing_many_messages_shows_a_bar(cli: Cli) -> None:
    code, out, shown = on_a_terminal("pub", "x", "y", "--count", "5000")
    assert (code, out) == (0, "")
    assert "Publishing" in shown
    assert "5000/5000" in shown
    assert 'Published 5,000 messages to "x"' in shown
    code, _, shown = on_a_terminal("pub", "x", "y", "--count", "5000", "--quiet")
    assert (code, shown) == (0, "")


def test_a_benchmark_shows_a_bar_unless_told_not_to(cli: Cli) -> None:
    code, out, shown = on_a_terminal("bench", "pub", "x", "--msgs", "2000")
    assert code == 0
    assert "2000/2000" in shown
    assert out.startswith("NATS Core NATS publisher stats")
    code, _, shown = on_a_terminal("bench", "pub", "x", "--msgs", "2000", "--no-progress")
    assert code == 0
    assert "2000/2000" not in shown


def test_a_large_object_shows_a_bar(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "film"
    file.write_bytes(bytes(200_000))
    cli("obj", "add", "FILES", "--storage", "memory").ok()
    code, out, shown = on_a_terminal("obj", "put", "FILES", str(file), "--name", "film")
    assert code == 0
    assert "film" in shown
    assert "195.3/195.3 KiB" in shown
    assert "Object information for FILES > film" in out
    target = str(tmp_path / "copy")
    code, _, shown = on_a_terminal("obj", "get", "FILES", "film", "-O", target)
    assert code == 0
    assert "195.3/195.3 KiB" in shown
