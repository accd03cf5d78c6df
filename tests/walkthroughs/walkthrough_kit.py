"""Run the pages of docs/tutorials/walkthroughs: their commands in order, and compare the output.

A page is prose with code blocks without a language. In a block `$ ` begins a command line (which
may go on over lines that end with a backslash, or to the end of a here-document); what follows is
its output. In outputs `<text>` stands for anything on a line, and a line `...` for any lines.
Comments of HTML, which readers do not see, tell the rest:

    <!-- terminal NAME -->        the next block's command goes on running, in a terminal of its own
    <!-- more of NAME -->         the next block is what that terminal has shown since then
    <!-- stop NAME -->            Ctrl-C in that terminal; it has to end by itself
    <!-- types A | B | C -->      what the next block's command gets from a pipe
    <!-- answers A | B -->        what is typed at a terminal when the next command asks with `? `
    <!-- until -->                the next block's command is repeated until it prints this
    <!-- here A is B -->          from here on the test writes B where the page says A
    <!-- not run -->              the next block is only shown

A block with a language is only shown, except `python`, which is run. Everything happens in a folder
of the test's own, with the executables of pyproject.toml; the server listens on a port of its own.
"""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ports import free_port

ROOT = Path(__file__).parent.parent.parent
PAGES = ROOT / "docs" / "tutorials" / "walkthroughs"
WAIT_SECONDS = 60
# A whole page on a machine that is busy with other things.
SLOWEST_SECONDS = 600
DEFAULT_URL = "nats://127.0.0.1:4222"
LISTENING = re.compile(r"Listening for client connections on \S+:(\d+)")
FENCE = re.compile(r"^```(\w*)$")
COMMENT = re.compile(r"^<!-- (.+) -->$")
PROMPT = re.compile(r"^\? .* \Z", re.MULTILINE)
ANY = re.compile(r"<[a-z ]+>")


@dataclass(frozen=True)
class Step:
    """A command with what it prints, or a comment; `line` is where it is on the page."""

    line: int
    command: str = ""
    output: tuple[str, ...] = ()
    comment: str = ""


def steps_of(page: str) -> Iterator[Step]:
    """The steps of a page, in order."""
    lines = page.splitlines()
    number = 0
    while number < len(lines):
        if found := COMMENT.match(lines[number]):
            yield Step(number + 1, comment=found[1])
        elif found := FENCE.match(lines[number]):
            end = lines.index("```", number + 1)
            block = lines[number + 1 : end]
            if found[1] == "python":
                yield Step(number + 2, command="python", output=tuple(block))
            elif not found[1]:
                yield from _commands(block, number + 2)
            number = end
        number += 1


def _commands(block: list[str], first: int) -> Iterator[Step]:
    """The commands of a block; output in front of the first one belongs to a terminal."""
    at, begin = 0, [index for index, line in enumerate(block) if line.startswith("$ ")]
    if not begin or begin[0] > 0:
        end = begin[0] if begin else len(block)
        yield Step(first, output=tuple(block[:end]))
        at = end
    while at < len(block):
        start, words = at, [block[at].removeprefix("$ ")]
        ending = re.search(r"<< '?(\w+)'?", words[0])
        while words[-1].endswith("\\") or (ending and words[-1] != ending[1]):
            at += 1
            words.append(block[at])
        at += 1
        output = []
        while at < len(block) and not block[at].startswith("$ "):
            output.append(block[at])
            at += 1
        yield Step(first + start, "\n".join(words), tuple(output))


def matches(wanted: tuple[str, ...], printed: list[str]) -> bool:
    """Whether what was printed is what the page says."""
    parts = []
    for line in wanted:
        if line == "...":
            parts.append(r"(?:.*\n)*?")
            continue
        pieces = [re.escape(piece) for piece in ANY.split(line.rstrip())]
        parts.append(".+?".join(pieces) + r"[ ]*\n")
    text = "".join(f"{line.rstrip()}\n" for line in printed)
    return re.fullmatch("".join(parts), text) is not None


class Terminal:
    """A command that goes on running; its output is collected."""

    def __init__(self, command: str, folder: Path, env: dict[str, str]) -> None:
        self.lines: list[str] = []
        self.shown = 0
        self._changed = threading.Condition()
        self.process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._collect, daemon=True)
        self._reader.start()

    def _collect(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                with self._changed:
                    self.lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, wanted: tuple[str, ...]) -> None:
        """Wait until it has shown these lines since the last time; fails with what it shows."""
        deadline = time.monotonic() + WAIT_SECONDS
        with self._changed:
            while True:
                for end in range(self.shown, len(self.lines) + 1):
                    if matches(wanted, self.lines[self.shown : end]):
                        self.shown = end
                        return
                left = deadline - time.monotonic()
                assert left > 0, "\n".join(["it shows:", *self.lines[self.shown :]])
                self._changed.wait(min(left, 0.5))

    def stop(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(WAIT_SECONDS)
        self._reader.join(WAIT_SECONDS)

    def kill(self) -> None:
        """When a test is over."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(WAIT_SECONDS)


@dataclass
class Walk:
    """One page being followed in `folder`."""

    page: Path
    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    terminals: dict[str, Terminal] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    done: int = 0

    def __post_init__(self) -> None:
        programs = self.folder / ".programs"
        programs.mkdir()
        scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
        for name, place in scripts.items():
            self._add_program(programs / name, place)
        clean = {k: v for k, v in os.environ.items() if not k.startswith("NATS_")}
        self.env = clean | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "XDG_CONFIG_HOME": str(self.folder / ".config"),
            "COLUMNS": "100",
            "NATS_TIMEOUT": f"{WAIT_SECONDS}s",
        }

    def _add_program(self, path: Path, place: str) -> None:
        """An executable as pip installs it; servers get an address of their own."""
        module, function = place.split(":")
        more = f" -a 127.0.0.1 -p {self.port}" if path.name == "tradewind-server" else ""
        code = f"import sys; from {module} import {function}; sys.exit({function}())"
        path.write_text(f'#!/bin/bash\nexec {sys.executable} -c "{code}" "$@"{more}\n')
        path.chmod(0o755)

    def follow(self) -> None:
        """Do what the page says."""
        try:
            for step in steps_of(self.page.read_text()):
                try:
                    self._do(step)
                except (AssertionError, subprocess.TimeoutExpired) as error:
                    place = f"{self.page.name}:{step.line}: {step.command}"
                    raise AssertionError(f"{place}\n{error}") from None
        finally:
            for terminal in self.terminals.values():
                terminal.kill()
        assert self.done, "nothing was run"

    def _do(self, step: Step) -> None:
        if step.comment:
            self._comment(step.comment)
            return
        pending, self.pending = self.pending, {}
        command = self._here(step.command)
        output = tuple(self._here(line) for line in step.output)
        if "not run" in pending:
            return
        self.done += 1
        if "more of" in pending:
            self.terminals[pending["more of"]].wait_for(output)
        elif "terminal" in pending:
            terminal = Terminal(command, self.folder, self.env)
            self.terminals[pending["terminal"]] = terminal
            terminal.wait_for(output)
            self._find_server(terminal)
        elif step.command == "python":
            self._run([sys.executable, "-c", "\n".join(output)], "", ("...",))
        elif "answers" in pending:
            answers = [each.strip() for each in pending["answers"].split("|")]
            self._check(*_at_terminal(command, answers, self.folder, self.env), output)
        else:
            typed = "".join(f"{self._here(each.strip())}\n" for each in _typed(pending))
            self._run_until(command, typed, output, is_patient="until" in pending)

    def _comment(self, text: str) -> None:
        if found := re.fullmatch(r"here (.+) is (.+)", text):
            self.replaced[found[1]] = found[2]
        elif found := re.fullmatch(r"stop (\w+)", text):
            self.terminals[found[1]].stop()
        else:
            name = next(
                name
                for name in ("terminal", "more of", "types", "answers", "until", "not run")
                if text.startswith(name)
            )
            self.pending[name] = text.removeprefix(name).strip(" ")

    def _here(self, text: str) -> str:
        for written, meant in self.replaced.items():
            text = text.replace(written, meant)
        return text

    def _find_server(self, terminal: Terminal) -> None:
        if found := LISTENING.search("\n".join(terminal.lines)):
            self.env["NATS_URL"] = self.replaced[DEFAULT_URL] = f"nats://127.0.0.1:{found[1]}"

    def _run_until(
        self, command: str, typed: str, output: tuple[str, ...], *, is_patient: bool
    ) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                self._run(["bash", "-c", command], typed, output)
            except AssertionError:
                if not is_patient or time.monotonic() > deadline:
                    raise
            else:
                return

    def _run(self, words: list[str], typed: str, output: tuple[str, ...]) -> None:
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self.env,
            input=typed,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WAIT_SECONDS,
        )
        self._check(done.stdout, done.returncode, output)

    def _check(self, text: str, code: int, output: tuple[str, ...]) -> None:
        printed = text.splitlines()
        shown = "\n".join(["it should print:", *output, "", "it prints:", *printed])
        assert matches(output, printed), shown
        is_error = any(": error: " in line for line in output)
        assert is_error == bool(code), f"exit code {code}\n{shown}"


def _at_terminal(
    command: str, answers: list[str], folder: Path, env: dict[str, str]
) -> tuple[str, int]:
    """Run a command at a terminal: what the screen shows at the end, and the exit code."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        ["bash", "-c", command],
        cwd=folder,
        env={**env, "NO_COLOR": "1"},
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
    )
    os.close(its)
    shown, screen, answered = b"", "", 0
    while True:
        ready, _, _ = select.select([ours], [], [], WAIT_SECONDS)
        try:
            data = os.read(ours, 65536) if ready else b""
        except OSError:  # the last one has closed the terminal
            data = b""
        if not data:
            break
        # A read may end within a character or a line end.
        shown += data
        screen = shown.decode(errors="ignore").replace("\r\n", "\n")
        if answers and PROMPT.search(screen, answered):
            os.write(ours, f"{answers.pop(0)}\n".encode())
            answered = len(screen)
    os.close(ours)
    assert not answers, f"it did not ask:\n{screen}"
    return screen, process.wait(WAIT_SECONDS)


def _typed(pending: dict[str, str]) -> list[str]:
    return pending["types"].split("|") if "types" in pending else []


def follow(page: str, folder: Path) -> None:
    """Follow a page of docs/tutorials/walkthroughs in an empty folder."""
    Walk(PAGES / page, folder).follow()
