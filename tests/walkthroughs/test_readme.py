"""README.md from top to bottom, as it is written, in one shell at a terminal.

Blocks without a language are command lines. In a `console` block `$ ` begins a command line, and
the lines after it are its output; times and the width of gaps are not compared. A block of Python
or YAML that begins with the comment `# NAME` is saved under that name, as a reader does.

The shell has a folder of its own that looks like a copy of the repository. Two things differ from
what a reader sees: `make` only tells what it would do, because a test neither builds nor installs
anything, and the server has a port of its own, because 4222 may be taken.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from walkthrough_kit import ROOT

from ports import free_port

README = ROOT / "README.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAVED_AS = re.compile(r"# (\S+\.\w+)\n")
# The exit code of the last command, where a shell has its prompt.
PROMPT = re.compile(r"<readme (\d+)> \Z")
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\d\d:\d\d:\d\d|\d+\.\d+s(?: \(\d:\d\d:\d\d\))?")
JOB = re.compile(r"^\[\d+\][-+]? .*\n", re.MULTILINE)
WAIT_SECONDS = 300
SERVER_LOG = "server.log"
READY = "Server is ready"


@dataclass(frozen=True)
class Command:
    """A line that a reader types, and what the page says that it prints, if it says anything."""

    text: str
    output: tuple[str, ...] | None = None


@dataclass(frozen=True)
class SavedFile:
    """A block that the reader saves."""

    name: str
    text: str


def steps_of_readme(page: str) -> Iterator[Command | SavedFile]:
    """What a reader does, in order."""
    for language, block in BLOCK.findall(page):
        if not language:
            yield from (Command(line) for line in block.splitlines())
        elif language == "console":
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, *output = part.splitlines()
                yield Command(command, tuple(output))
        else:
            name = SAVED_AS.match(block)
            assert name, f"this block does not begin with the name of its file:\n{block}"
            yield SavedFile(name[1], block)


@dataclass
class Shell:
    """A bash at a terminal, whose prompt tells the exit code."""

    folder: Path
    process: subprocess.Popen[bytes] = field(init=False)
    terminal: int = field(init=False)

    def __post_init__(self) -> None:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("NATS_", "PYTEST_", "MAKE", "VIRTUAL_ENV", "COV_"))
        }
        environment = kept | {
            "PS1": r"<readme $?> ",
            "TERM": "dumb",
            "NO_COLOR": "1",
            "MAKEFLAGS": "n",
            "NATS_TIMEOUT": f"{WAIT_SECONDS}s",
            "PIP_NO_INDEX": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "VIRTUAL_ENV_DISABLE_PROMPT": "1",
            "XDG_CONFIG_HOME": str(self.folder / ".config"),
        }
        self.terminal, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        settings = termios.tcgetattr(its)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(its, termios.TCSANOW, settings)
        self.process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "--noediting", "-i"],
            cwd=self.folder,
            env=environment,
            stdin=its,
            stdout=its,
            stderr=its,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(its)
        self._until_prompt()

    def run(self, command: str) -> tuple[int, list[str]]:
        """Type a line: the exit code, and the lines that it prints."""
        os.write(self.terminal, f"{command}\n".encode())
        code, shown = self._until_prompt()
        return code, JOB.sub("", shown).splitlines()

    def _until_prompt(self) -> tuple[int, str]:
        shown = b""
        while True:
            ready, _, _ = select.select([self.terminal], [], [], WAIT_SECONDS)
            assert ready, f"it hangs after printing:\n{shown.decode(errors='replace')}"
            shown += os.read(self.terminal, 65536)
            text = shown.decode(errors="ignore").replace("\r\n", "\n")
            if found := PROMPT.search(text):
                return int(found[1]), text[: found.start()]

    def close(self) -> None:
        """End the shell with all that it has started."""
        if self.process.poll() is None:
            os.write(self.terminal, b"kill $(jobs -p) 2> /dev/null; wait; exit 0\n")
            try:
                self.process.wait(WAIT_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        os.close(self.terminal)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A shell in a folder that looks like the repository, without its data."""
    for path in ROOT.iterdir():
        if path.name not in ("data", SERVER_LOG):
            (tmp_path / path.name).symlink_to(path)
    shell = Shell(tmp_path)
    try:
        yield shell
    finally:
        shell.close()


def comparable(lines: Iterable[str]) -> list[str]:
    """Lines without what differs from run to run."""
    return [re.sub(r" +", " ", TIME.sub("TIME", line)).rstrip() for line in lines]


def wait_for_server(log: Path, starts: int) -> None:
    """Wait until the log tells of so many starts, as a reader does who types the next line."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not log.exists() or log.read_text().count(READY) < starts:
        assert time.monotonic() < deadline, "the server does not start"
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.timeout(WAIT_SECONDS * 2)
@pytest.mark.xdist_group("readme")
def test_every_command_of_the_readme_works_and_prints_what_it_shows(shell: Shell) -> None:
    port, starts, compared = str(free_port()), 0, 0
    page = README.read_text().replace("127.0.0.1:4222", f"127.0.0.1:{port}")
    assert shell.run(f"export NATS_URL=nats://127.0.0.1:{port}") == (0, [])
    for step in steps_of_readme(page):
        if isinstance(step, SavedFile):
            (shell.folder / step.name).write_text(step.text)
            continue
        is_server = step.text.startswith("tradewind-server ")
        text = step.text.replace("tradewind-server ", f"tradewind-server -p {port} ")
        code, printed = shell.run(text)
        shown = "\n".join([step.text, "printed:", *printed])
        assert code == 0, shown
        if step.output is not None:
            assert comparable(printed) == comparable(step.output), shown
            compared += bool(step.output)
        if is_server:
            starts += 1
            wait_for_server(shell.folder / SERVER_LOG, starts)
    assert (starts, compared) >= (2, 6)


def test_the_readme_has_a_program_a_fixture_and_a_pipeline_of_their_sizes() -> None:
    steps = list(steps_of_readme(README.read_text()))
    files = {step.name: step.text for step in steps if isinstance(step, SavedFile)}
    assert set(files) == {"shop.py", "test_shop.py", "totals.yaml"}
    assert len([line for line in files["shop.py"].splitlines()[1:] if line]) == 12
    assert len(files["totals.yaml"].splitlines()[1:]) <= 10
    assert "@pytest.fixture" in files["test_shop.py"]
    typed = [step.text for step in steps if isinstance(step, Command)]
    assert typed[0] == "make run"
    assert any(" why " in line for line in typed)
    assert not any(line.startswith(("telnet", "curl")) for line in typed)
    assert "`make test`" in README.read_text()
