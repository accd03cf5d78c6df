"""`tradewind-server`: from the command line to a running server, or to one line that says why not.

Owns the order of things at the start, the exit codes, and `--signal`. It imports as little as it
can before it knows what is wanted, so that `--version`, `--help` and `-t` answer at once.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tradewind._version import __version__
from tradewind.errors import ConfigError, ServerStartError
from tradewind.options import ServerOptions
from tradewind.server.flags import (
    USAGE,
    USAGE_TLS,
    FlagError,
    Flags,
    load_options,
    parse_flags,
)
from tradewind.wire.ops import NATS_VERSION

NAME = "nats-server"  # tools look for it at the beginning of a line
PROGRAM = "tradewind-server"
MODULE = "tradewind.server.main"

SIGNALS = {
    "stop": signal.SIGKILL,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP,
    "ldm": signal.SIGUSR2,
}


def main(argv: list[str] | None = None) -> int:
    """Run the program; returns its exit code."""
    try:
        flags = parse_flags(sys.argv[1:] if argv is None else argv)
    except FlagError as error:
        # As nats-server, whatever one thinks of it.
        print(error.text, file=sys.stderr)
        print(USAGE)
        return 0
    try:
        code = _answer(flags)
        return _run(flags) if code is None else code
    except (ConfigError, ServerStartError) as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 1


def _answer(flags: Flags) -> int | None:
    """The exit code if the command line only asks something; None to go on and run a server."""
    if flags.is_on("version") or flags.word == "version":
        print(f"{NAME}: v{NATS_VERSION}\ntradewind-server: v{__version__}")
        return 0
    if flags.is_on("help") or flags.word == "help":
        print(USAGE)
        return 0
    if flags.is_on("help_tls"):
        print(USAGE_TLS)
        return 0
    if flags.word:
        raise ConfigError(f'unrecognized command: "{flags.word}"')
    if flags.text("check_store"):
        from tradewind.server.check_store import check_store

        report = ["--json", flags.text("json")] if flags.text("json") else []
        return check_store([flags.text("check_store"), *report])
    if flags.text("signal"):
        send_signal(flags.text("signal"))
        return 0
    return _test_config(flags) if flags.is_on("test_config") else None


def _test_config(flags: Flags) -> int:
    path = flags.text("config")
    if not path:
        raise ConfigError("must specify [-c, --config] option to check configuration file syntax")
    loaded = load_options(flags)
    if loaded.warnings:
        raise ConfigError("\n".join(map(str, loaded.warnings)))
    digest = loaded.options.config_digest
    print(f"{NAME}: configuration file {path} is valid ({digest})", file=sys.stderr)
    return 0


def _run(flags: Flags) -> int:
    options = load_options(flags).options

    def reload_options() -> ServerOptions:
        return load_options(flags).options

    from tradewind.server.app import run_server
    from tradewind.server.logs import open_log

    log = open_log(options)
    try:
        return run_server(options, log=log, reload_options=reload_options)
    except (ConfigError, ServerStartError) as error:
        log.fatal(str(error))
        return 1
    finally:
        log.close()


def send_signal(expression: str, proc: Path = Path("/proc")) -> None:
    """`--signal command[=pid]`: tell a running server something. Raises ConfigError.

    Without a pid the one running server is meant; it is an error if there are several. A pid that
    ends with `*` means all servers whose pid begins so.
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
    """The content of a file of that name, else the expression itself."""
    if not expression:
        return ""
    try:
        with Path(expression).open(encoding="ascii", errors="replace") as file:
            return file.read(100).strip()
    except (OSError, ValueError):
        return expression


def running_servers(proc: Path = Path("/proc")) -> list[int]:
    """Process ids of servers of this program, without this process itself."""
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


if __name__ == "__main__":
    sys.exit(main())
