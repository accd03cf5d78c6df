"""Runs the commands of docs/reference/CLI.md on a fresh server, writes what they print into it.

    .venv/bin/python tools/cli_screens.py

The tables of commands and flags are made of the source. A block of the language `console` has
commands behind `$ ` and what each printed below it. All of them run in one folder, in order.
`tests/cli/test_cli_page.py` runs them too and compares.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/reference/CLI.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND_SECONDS = 60
SHELL_SIGNS = "();<>|&"
CONFIG = """\
server_name: "one"
listen: "127.0.0.1:-1"
accounts {{
  USER {{ jetstream: enabled, users: [{{user: local, password: pass}}] }}
  SYSTEM {{ users: [{{user: system, password: pass}}] }}
}}
system_account: SYSTEM
no_auth_user: local
jetstream {{ store_dir: "{store}" }}
"""
# What differs from run to run.
MASKS = (
    (re.compile(r"^(NATS .* stats): .*$", re.MULTILINE), r"\1: <figures>"),
    (re.compile(r"^Latency: .*\n\n(?: +\S+ \u2502.*\n)+", re.MULTILINE), "<histogram>\n"),
    (re.compile(r"[\d.]+ [MG]iB +\u2502( \d+ )?"), "<memory> \u2502"),
    (re.compile(r"average \S+ \S+/s"), "average <rate>"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?"), "<time>"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "<clock>"),
    (re.compile(r"\b(\d+[ydhm])+\b|\b(\d+[ydhm])*\d+(\.\d+)?s\b"), "<duration>"),
    (re.compile(r"\b\d+(\.\d+)?(ms|\u00b5s)\b"), "<rtt>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:<port>"),
    (re.compile(r"\d+ B compressed"), "<size> compressed"),
    (re.compile(r"Client ID: \d+"), "Client ID: <number>"),
    (re.compile(r"\bN[A-Z2-7]{55}\b"), "<server id>"),
    (re.compile(r"[ \u2500]+"), " "),
)


@dataclass(frozen=True)
class Screen:
    """A command and what it printed."""

    command: str
    output: str

    def masked(self) -> str:
        """The output without what differs from run to run."""
        text = self.output
        for pattern, stand_in in MASKS:
            text = pattern.sub(stand_in, text)
        return text


def read_block(code: str) -> list[Screen]:
    """The screens of a block."""
    parts = re.split(r"^\$ (.*)\n", code, flags=re.MULTILINE)
    return [Screen(parts[at], parts[at + 1]) for at in range(1, len(parts), 2)]


def read_page() -> list[Screen]:
    """All screens of the page."""
    return [screen for code in BLOCK.findall(PAGE.read_text()) for screen in read_block(code)]


@contextmanager
def surroundings() -> Iterator[dict[str, str]]:
    """A server, a folder to work in, and the environment of the commands."""
    import tradewind

    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        work = Path(folder) / "work"
        programs = Path(folder) / "bin"
        for each in (work, programs):
            each.mkdir()
        program = programs / "tradewind"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tradewind.cli "$@"\n')
        program.chmod(0o755)
        config = Path(folder) / "server.conf"
        config.write_text(CONFIG.format(store=store))
        with tradewind.serve(str(config)) as server:
            yield {
                **{name: value for name, value in os.environ.items() if name[:5] != "NATS_"},
                "PATH": f"{programs}:{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT / "src"),
                "NATS_URL": server.url,
                "XDG_CONFIG_HOME": str(Path(folder) / "config"),
                "PWD": str(work),
                "TZ": "UTC",
                "COLUMNS": "80",
                "NATS_TIMEOUT": "30s",
            }


def run(command: str, environment: dict[str, str]) -> Screen:
    """Runs a command; in this process if it needs no shell, as that is much quicker."""
    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    program, *arguments = words
    needs_shell = "$" in command or any(set(word) <= set(SHELL_SIGNS) for word in arguments)
    if program != "tradewind" or needs_shell:
        return _run_in_shell(command, environment)
    return Screen(command, _run_here(arguments, environment))


def _run_here(arguments: list[str], environment: dict[str, str]) -> str:
    from tradewind.cli.main import run as run_command

    kept = (dict(os.environ), Path.cwd(), sys.stdin, sys.stdout, sys.stderr)
    written = io.BytesIO()
    output = io.TextIOWrapper(written, encoding="utf-8", write_through=True)
    with Path(os.devnull).open() as nothing:
        os.environ.update(environment)
        os.chdir(environment["PWD"])
        sys.stdin, sys.stdout, sys.stderr = nothing, output, output
        try:
            run_command(arguments)
        finally:
            os.environ.clear()
            os.environ.update(kept[0])
            os.chdir(kept[1])
            _, _, sys.stdin, sys.stdout, sys.stderr = kept
    return written.getvalue().decode()


def _run_in_shell(command: str, environment: dict[str, str]) -> Screen:
    done = subprocess.run(  # noqa: S602 - the commands of our own page
        command,
        shell=True,
        cwd=environment["PWD"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_SECONDS,
    )
    return Screen(command, done.stdout)


def with_tables(text: str) -> str:
    """The page with the tables of commands and of shared flags as the source has them."""
    from tradewind.cli.commands import COMMANDS
    from tradewind.cli.frame.settings import FLAGS

    def names(*each: str) -> str:
        return ", ".join(f"`{name}`" for name in each)

    commands = [f"| {names(each.name, *each.aliases)} | {each.help} |" for each in COMMANDS]
    flags = [
        f"| {names(*([each.short] if each.short else []), f'--{each.name}')} "
        f"| {names(each.env) if each.env else ''} | {each.help} |"
        for each in FLAGS
    ]
    for head, lines in (("| command | purpose |", commands), ("| flag | environment |", flags)):
        pattern = re.compile(rf"^({re.escape(head)}.*\n\|[-|]+\n)(?:\|.*\n)*", re.MULTILINE)
        table = "\n".join(lines) + "\n"
        # Only the first of its kind: groups of commands have tables of their own further down.
        if head_found := pattern.search(text):
            text = text[: head_found.end(1)] + table + text[head_found.end() :]
    return text


def main() -> None:
    """Writes the page anew."""
    with surroundings() as environment:

        def captured(match: re.Match[str]) -> str:
            screens = [run(each.command, environment) for each in read_block(match[1])]
            shown = "".join(f"$ {each.command}\n{each.output}" for each in screens)
            return f"```console\n{shown}```"

        PAGE.write_text(BLOCK.sub(captured, with_tables(PAGE.read_text())))


if __name__ == "__main__":
    main()
