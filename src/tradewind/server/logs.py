"""Log lines in the shape of nats-server, on standard error, in a file, or to syslog.

Owns the shape, the levels that are switched on, and the rotation of a log file. It never decides
what is worth a line, and a line that cannot be written is lost: logging never stops a server.

    [pid] 2026/01/02 15:04:05.123456 [INF] text
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tradewind.errors import ServerStartError
from tradewind.options import ServerOptions

_FILE_MODE = 0o640
_COLOURS = {"INF": "32", "DBG": "36", "WRN": "0;93", "ERR": "31", "FTL": "31", "TRC": "33"}
# What a client chose (a name, a subject) can end up in a line; it must not look like another line.
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {9: "\t"}
_BACKUP_SUFFIX = re.compile(r"\.\d{4}(?:\.\d\d){5}\.\d{9}\Z")


class Sink(Protocol):
    """Where lines go."""

    def write(self, level: str, prefix: str, text: str) -> None:
        """Write one line; may raise OSError, which `Log` swallows."""

    def reopen(self) -> bool:
        """Start a fresh file under the same name; False when this is not a file."""

    def close(self) -> None:
        """Release what is held."""


class Log:
    """The server's log; look at `debug_enabled` or `trace_enabled` before making a costly text."""

    def __init__(
        self, options: ServerOptions, sink: Sink, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._sink = sink
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._destination = _destination(options)
        self._set_levels(options)

    def _set_levels(self, options: ServerOptions) -> None:
        self.debug_enabled = options.debug
        self.trace_enabled = options.trace
        self._with_time = options.logtime
        self._utc = options.logtime_utc

    def notice(self, text: str) -> None:
        """Something a user may like to know ([INF])."""
        self._write("INF", text)

    def warn(self, text: str) -> None:
        """Something that is probably not meant so."""
        self._write("WRN", text)

    def error(self, text: str) -> None:
        """Something that failed."""
        self._write("ERR", text)

    def fatal(self, text: str) -> None:
        """Why the server cannot go on; the caller ends it."""
        self._write("FTL", text)

    def debug(self, text: str) -> None:
        """A detail, only with `debug_enabled`."""
        if self.debug_enabled:
            self._write("DBG", text)

    def trace(self, text: str) -> None:
        """A protocol line, only with `trace_enabled`."""
        if self.trace_enabled:
            self._write("TRC", text)

    def reopen(self) -> None:
        """Write to a fresh file of the same name, after another program moved it away."""
        with self._lock:
            try:
                reopened = self._sink.reopen()
            except OSError:
                reopened = False
        if reopened:
            self.notice("File log re-opened")
        else:
            self.warn("File log re-open ignored, not a file logger")

    def reconfigure(self, options: ServerOptions) -> None:
        """Take over new settings. Raises ServerStartError, changing nothing, for a bad file."""
        if _destination(options) != self._destination:
            sink = open_sink(options)
            with self._lock:
                self._sink, old = sink, self._sink
            old.close()
            self._destination = _destination(options)
        self._set_levels(options)

    def close(self) -> None:
        """Release the file; later lines are lost."""
        with self._lock:
            self._sink.close()

    def _write(self, level: str, text: str) -> None:
        if not text.isprintable():
            text = text.translate(_CONTROL)
        prefix = f"[{self._pid}] "
        if self._with_time:
            seconds, rest_ns = divmod(self._now_ns(), 1_000_000_000)
            moment = time.gmtime(seconds) if self._utc else time.localtime(seconds)
            stamp = time.strftime("%Y/%m/%d %H:%M:%S", moment)
            prefix += f"{stamp}.{rest_ns // 1000:06d} "
        try:
            with self._lock:
                self._sink.write(level, prefix, text)
        except (OSError, ValueError):
            pass  # nowhere left to say it


def open_log(options: ServerOptions) -> Log:
    """The log that the options ask for. Raises ServerStartError if it cannot be opened."""
    return Log(options, open_sink(options))


def open_sink(options: ServerOptions) -> Sink:
    """A file, syslog or standard error, in this order, as nats-server chooses."""
    try:
        if options.log_file:
            return FileSink(options.log_file, options.log_size_limit_bytes, options.log_files_max)
        if options.remote_syslog or options.syslog:
            return SyslogSink(options.remote_syslog)
    except (OSError, ValueError) as error:
        where = options.log_file or options.remote_syslog or "syslog"
        reason = getattr(error, "strerror", None) or error
        raise ServerStartError(f"cannot open the log {where!r}: {reason}") from None
    return StderrSink()


def _destination(options: ServerOptions) -> tuple[object, ...]:
    return (
        options.log_file,
        options.log_size_limit_bytes,
        options.log_files_max,
        options.remote_syslog,
        options.syslog,
    )


def _line(level: str, prefix: str, text: str) -> bytes:
    return f"{prefix}[{level}] {text}\n".encode(errors="backslashreplace")


class StderrSink:
    """Standard error; levels are coloured when it is a terminal."""

    def __init__(self) -> None:
        self._coloured = sys.stderr is not None and sys.stderr.isatty()

    def write(self, level: str, prefix: str, text: str) -> None:
        """One line, in one write so that lines of several processes do not mix."""
        if self._coloured:
            level = f"\x1b[{_COLOURS[level]}m{level}\x1b[0m"
        os.write(2, _line(level, prefix, text))

    def reopen(self) -> bool:
        """There is nothing to reopen."""
        return False

    def close(self) -> None:
        """Standard error stays open."""


class FileSink:
    """A file that is moved aside when it grows past `size_limit_bytes` (0: never).

    Backups are named after the moment of rotation. With `files_max` above 0 the oldest are
    removed so that the log and its backups together are at most that many files.
    """

    def __init__(self, path: str, size_limit_bytes: int = 0, files_max: int = 0) -> None:
        self._path = Path(path)
        self._size_limit_bytes = size_limit_bytes
        self._files_max = files_max
        self._size_bytes = 0
        self._descriptor = -1
        self._open()

    def write(self, level: str, prefix: str, text: str) -> None:
        """One line; the one that passes the limit still goes to the old file."""
        if self._descriptor < 0:
            return
        self._append(_line(level, prefix, text))
        if 0 < self._size_limit_bytes < self._size_bytes:
            backup = self._rotate()
            self._append(_line("INF", prefix, f'Rotated log, backup saved as "{backup}"'))

    def reopen(self) -> bool:
        """Open the path again; the old file is kept if that fails."""
        old = self._descriptor
        self._open()
        if old >= 0:
            os.close(old)
        return True

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, _FILE_MODE)
        self._size_bytes = os.fstat(self._descriptor).st_size

    def _append(self, line: bytes) -> None:
        self._size_bytes += os.write(self._descriptor, line)

    def _rotate(self) -> Path:
        seconds, rest_ns = divmod(time.time_ns(), 1_000_000_000)
        stamp = time.strftime("%Y.%m.%d.%H.%M.%S", time.localtime(seconds))
        backup = self._path.with_name(f"{self._path.name}.{stamp}.{rest_ns:09d}")
        try:
            self._path.rename(backup)
            self.reopen()
        except OSError:
            # Try again only after as much again, or every line would try.
            self._size_bytes = 0
            raise
        self._remove_old_backups()
        return backup

    def _remove_old_backups(self) -> None:
        if self._files_max <= 0:
            return
        name = self._path.name
        backups = sorted(
            path
            for path in self._path.parent.iterdir()
            if path.name.startswith(name) and _BACKUP_SUFFIX.fullmatch(path.name[len(name) :])
        )
        for path in backups[: max(0, len(backups) - (self._files_max - 1))]:
            path.unlink(missing_ok=True)


class SyslogSink:
    """The syslog of this machine, or one at "udp://host:port" or "tcp://host:port"."""

    def __init__(self, address: str = "") -> None:
        # Slow to import, and most servers do not use syslog.
        import logging
        import socket
        from logging.handlers import SYSLOG_UDP_PORT, SysLogHandler

        target: str | tuple[str, int] = "/dev/log"
        kind = socket.SOCK_DGRAM
        if address:
            match = re.fullmatch(r"(udp|tcp)://\[?([^\]/]+?)\]?(?::(\d{1,5}))?", address)
            if not match:
                raise ValueError("it must be udp://host:port or tcp://host:port")
            target = (match[2], int(match[3] or SYSLOG_UDP_PORT))
            kind = socket.SOCK_STREAM if match[1] == "tcp" else socket.SOCK_DGRAM
        self._record = logging.LogRecord
        self._levels = {
            "INF": logging.INFO,
            "WRN": logging.WARNING,
            "ERR": logging.ERROR,
            "FTL": logging.CRITICAL,
            "DBG": logging.DEBUG,
            "TRC": logging.DEBUG,
        }

        class Handler(SysLogHandler):
            def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
                """The default prints a traceback; a line that cannot be sent is lost."""

        self._handler = Handler(target, SysLogHandler.LOG_DAEMON, kind)
        self._handler.ident = f"nats-server[{os.getpid()}]: "
        self._handler.append_nul = False

    def write(self, level: str, _prefix: str, text: str) -> None:
        """One message; syslog has its own time and process id."""
        self._handler.emit(self._record("", self._levels[level], "", 0, text, None, None))

    def reopen(self) -> bool:
        """There is no file."""
        return False

    def close(self) -> None:
        """Close the socket."""
        self._handler.close()
