"""Run the command line of `tradewind-server`: print an answer, run a server, or report an error.

Owns the order of the startup steps and the exit codes. It imports as little as possible before it
knows what is requested, so that `--version`, `--help` and `-t` answer immediately.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tradewind._version import __version__
from tradewind.errors import ConfigError, ServerStartError
from tradewind.server.lifecycle.flags import (
    USAGE,
    USAGE_TLS,
    FlagError,
    Flags,
    load_options,
    parse_flags,
)
from tradewind.server.lifecycle.process_signals import ProcessSignals
from tradewind.wire.ops import NATS_VERSION

if TYPE_CHECKING:
    from tradewind.options import ServerOptions

NAME = "nats-server"  # tools look for it at the beginning of a line


def run_command(arguments: list[str], signals: ProcessSignals | None = None) -> int:
    """Execute the arguments of `tradewind-server`; returns the exit code.

    `signals` are given by a process that only runs the server, and are caught already.
    """
    try:
        flags = parse_flags(arguments)
    except FlagError as error:
        # The same behaviour as nats-server, however odd.
        print(error.text, file=sys.stderr)
        print(USAGE)
        return 0
    try:
        code = _answer(flags)
        return _run(flags, signals or ProcessSignals()) if code is None else code
    except (ConfigError, ServerStartError) as error:
        print(f"tradewind-server: {error}", file=sys.stderr)
        return 1


def _answer(flags: Flags) -> int | None:
    """The exit code if the command line only asks for information; None to run a server."""
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
        from tradewind.server.jetstream.check_store import check_store

        report = ["--json", flags.text("json")] if flags.text("json") else []
        ring = None
        if flags.text("config"):
            from tradewind.server.jetstream.jetstream_service import key_ring
            from tradewind.server.lifecycle.flags import load_options

            ring = key_ring(load_options(flags).options.jetstream)
        return check_store([flags.text("check_store"), *report], ring=ring)
    if flags.text("signal"):
        from tradewind.server.lifecycle.send_signal import send_signal

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


def _run(flags: Flags, signals: ProcessSignals) -> int:
    options = load_options(flags).options

    def reload_options() -> ServerOptions:
        return load_options(flags).options

    from tradewind.late_modules import import_event_loop

    import_event_loop()
    from tradewind.server.lifecycle.server_process import run_server
    from tradewind.server.monitoring.logs import open_log

    log = open_log(options)
    signals.log = log
    try:
        return run_server(options, log, reload_options, signals)
    except (ConfigError, ServerStartError) as error:
        log.fatal(str(error))
        return 1
    finally:
        log.close()
