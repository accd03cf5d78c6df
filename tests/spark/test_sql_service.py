"""The SQL service and the shell as processes: warm answers, Ctrl-C, and what a kill leaves."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kill_kit import descendants

import tradewind
import tradewind.sync
from harness import wait_for

PROGRAM = [sys.executable, "-m", "tradewind.cli", "sql"]
# Whoever runs the tests in the background has Ctrl-C ignored, and so would what they start.
HEAR_SIGNALS = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
HEARING = [sys.executable, "-c", HEAR_SIGNALS]
# The terminal has to be the one that Ctrl-C is for.
TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
ON_TERMINAL = [*HEARING, sys.executable, "-c", TAKE_TERMINAL]
ENDLESS = "select count(*) from range(0, 1000000000000000) where id % 7 = hash(id) % 11"
LIMIT_SECONDS = 240
INTERRUPTED = 130


class Calls:
    """Calls of `tradewind sql` with one server and one folder for the service."""

    def __init__(self, url: str, folder: Path) -> None:
        self.environment = {
            **os.environ,
            "NATS_URL": url,
            "XDG_RUNTIME_DIR": str(folder),
            "XDG_STATE_HOME": str(folder),
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "TERM": "xterm",
        }

    def begin(self, *words: str, **settings: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*HEARING, *PROGRAM, *words],
            env=self.environment,
            stdin=settings.get("stdin", subprocess.DEVNULL),  # type: ignore[call-overload]
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        with self.begin(*words) as process:
            out, err = process.communicate(timeout=LIMIT_SECONDS)
        return process.returncode, out, err

    def answer(self, text: str) -> str:
        code, out, err = self.run(text, "--csv")
        assert (code, err) == (0, "")
        return out


@pytest.fixture
def calls(tmp_path: Path) -> Iterator[Calls]:
    with (
        tradewind.serve(port=0, jetstream=str(tmp_path / "store")) as server,
        tradewind.sync.connect(server.url) as connection,
    ):
        connection.jetstream_manager().streams.add(name="ORDERS", subjects=["orders"])
        for number in range(10):
            connection.jetstream().publish("orders", b'{"id": %d}' % number)
        made = Calls(server.url, tmp_path)
        try:
            yield made
        finally:
            made.run("--stop")


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.timeout(900)
def test_a_service_answers_warm_and_leaves_nothing_when_it_is_killed(calls: Calls) -> None:
    code, out, err = calls.run("--serve")
    assert code == 0, err
    (process,) = map(int, re.findall(r"process (\d+)", out))
    assert calls.answer("select sum(id) as s from ORDERS") == "s\n45\n"
    both = [calls.begin(f"select {n} + max(id) as m from ORDERS", "--csv") for n in (1, 2)]
    assert [each.communicate(timeout=LIMIT_SECONDS)[0] for each in both] == ["m\n10\n", "m\n11\n"]

    # What is published later is in the next answer.
    with tradewind.sync.connect(calls.environment["NATS_URL"]) as connection:
        connection.jetstream().publish("orders", b'{"id": 100}')
        assert calls.answer("select sum(id) as s from ORDERS") == "s\n145\n"
        connection.jetstream_manager().streams.delete("ORDERS")
    code, _, err = calls.run("select sum(id) from ORDERS")
    assert (code, err) == (1, "tradewind: error: table 'ORDERS' does not exist; there are none\n")

    # An interrupted caller ends at once, and its query does not hold up the next one.
    with calls.begin(stdin=subprocess.PIPE) as script:
        assert script.stdin is not None
        assert script.stdout is not None
        script.stdin.write(f"select 'begun' as b; {ENDLESS};\n")
        script.stdin.flush()
        assert [script.stdout.readline() for _ in range(3)][2] == "begun\n"
        script.send_signal(signal.SIGINT)
        script.stdin.close()
        assert script.wait(LIMIT_SECONDS) == INTERRUPTED
    assert calls.answer("select 1 as one") == "one\n1\n"

    in_shell(calls)

    javas = descendants(process)
    assert javas
    os.kill(process, signal.SIGKILL)
    wait_for(
        lambda: not any(is_alive(one) for one in javas),
        "Java outlives a service that was killed",
        LIMIT_SECONDS,
    )
    assert calls.run("--stop") == (0, "no SQL service is running\n", "")


class Terminal:
    """What a program shows on a terminal; what was waited for is taken away."""

    def __init__(self) -> None:
        self.handle, self.other = pty.openpty()
        fcntl.ioctl(self.handle, termios.TIOCSWINSZ, struct.pack("4H", 50, 250, 0, 0))
        self.seen = ""

    def read(self, seconds: float) -> str:
        ready, _, _ = select.select([self.handle], [], [], seconds)
        try:
            text = os.read(self.handle, 65536).decode(errors="replace") if ready else ""
        except OSError:
            text = ""  # the other end is closed
        self.seen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.seen + text)
        return text

    def type(self, text: str) -> None:
        os.write(self.handle, text.encode())

    def expect(self, wanted: str, again: str = "") -> None:
        """Wait for a text; `again` is typed every few seconds until it comes."""
        deadline = time.monotonic() + LIMIT_SECONDS
        next_s = 0.0
        while wanted not in self.seen:
            now_s = time.monotonic()
            assert now_s < deadline, f"{wanted!r} has not come; seen: {self.seen[-2000:]!r}"
            if again and now_s >= next_s:
                self.type(again)
                next_s = now_s + 5
            self.read(1)
        self.seen = self.seen.partition(wanted)[2]


def in_shell(calls: Calls) -> None:
    """Ctrl-C on a terminal cancels the query and not the shell; `\\q` leaves it."""
    terminal = Terminal()
    shell = subprocess.Popen(
        [*ON_TERMINAL, *PROGRAM],
        env=calls.environment,
        stdin=terminal.other,
        stdout=terminal.other,
        stderr=terminal.other,
        start_new_session=True,
    )
    os.close(terminal.other)
    try:
        terminal.expect("sql>")
        terminal.type("select 'it' || ' runs'\ras text;\r")
        terminal.expect("it runs")
        terminal.expect("sql>")
        terminal.type(f"{ENDLESS};\r")
        terminal.expect("% 11;")
        terminal.expect("(cancelled)", again="\x03")
        terminal.expect("sql>")
        terminal.type("selec;\r")
        terminal.expect("queries only read")
        terminal.expect("sql>")
        terminal.type("\\q\r")
        while shell.poll() is None:
            terminal.read(1)
        assert shell.returncode == 0
    finally:
        shell.kill()
        shell.wait()
        os.close(terminal.handle)
