"""`--signal`: send a command to a server that runs on this machine.

Owns the names of the commands, and how a running server is found.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tradewind.errors import ConfigError
from tradewind.platform_calls import PROC

PROGRAM = "tradewind-server"
MODULE = "tradewind.server.server_main"

SIGNALS = {
    "stop": signal.SIGKILL,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP,
    "ldm": signal.SIGUSR2,
}


def send_signal(expression: str, proc: Path = Path(PROC)) -> None:
    """Send the signal of `--signal command[=pid]` to a running server. Raises ConfigError.

    Without a pid the only running server is meant; it is an error if there are several. A pid that
    ends with `*` means all servers whose pid has this prefix.
    """
    command, *rest = expression.split("=")
    if len(rest) > 1:
        raise ConfigError(f"invalid signal parameters: {rest[1:]}")
    number = SIGNALS.get(command)
    if number is None:
        raise ConfigError(f'unknown signal "{command}"; known are {", ".join(SIGNALS)}')
    failures = []
    for pid in _wanted_pids(rest[0] if rest else "", proc):
        try:
            os.kill(pid, number)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or "no such process"
            failures.append(f'signal "{command}" {pid}: {reason.lower()}')
    if failures:
        raise ConfigError("; ".join(failures))


def _wanted_pids(expression: str, proc: Path) -> list[int]:
    expression = _from_pid_file(expression)
    if expression.isdecimal() and int(expression) > 0:
        return [int(expression)]
    if expression and not (expression[:-1].isdecimal() or expression == "*"):
        raise ConfigError(f"invalid pid: {expression}")
    running = running_servers(proc)
    if expression:
        running = [pid for pid in running if str(pid).startswith(expression[:-1])]
        if not running:
            raise ConfigError(f"no running server has a pid like {expression}")
        return running
    if not running:
        raise ConfigError("no tradewind-server processes running")
    if len(running) > 1:
        pids = "\n".join(map(str, running))
        raise ConfigError(f"multiple tradewind-server processes running:\n{pids}")
    return running


def _from_pid_file(expression: str) -> str:
    """The content of the file with that name, else the expression itself."""
    if not expression:
        return ""
    try:
        with Path(expression).open(encoding="ascii", errors="replace") as file:
            return file.read(100).strip()
    except (OSError, ValueError):
        return expression


def running_servers(proc: Path = Path(PROC)) -> list[int]:
    """The process ids of running Tradewind servers, without this process itself."""
    found = []
    for entry in proc.iterdir() if proc.is_dir() else ():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it ended meanwhile, or belongs to someone else
        if _is_server(words):
            found.append(int(entry.name))
    return sorted(found)


def _is_server(words: list[str]) -> bool:
    """Whether a command line is "tradewind-server", or Python with that script or module."""
    program = Path(words[0]).name
    if not program.startswith("python"):
        return program == PROGRAM
    script = Path(words[1]).name if len(words) > 1 else ""
    return script == PROGRAM or words[1:3] == ["-m", MODULE]
