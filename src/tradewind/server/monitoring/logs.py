"""Log lines in the format of nats-server, on standard error, in a file, or to syslog.

Owns the format and the enabled levels; files and syslog are in `log_sinks`. It never decides what
is logged. A line that cannot be written is dropped: logging never stops a server.

    [pid] 2026/01/02 15:04:05.123456 [INF] text
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Protocol

from tradewind.errors import ServerStartError
from tradewind.options import ServerOptions

_COLOURS = {"INF": "32", "DBG": "36", "WRN": "0;93", "ERR": "31", "FTL": "31", "TRC": "33"}
# A text that a client chose (a name, a subject) can end up in a line; it must not look like another
# line.
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {9: "\t"}


class LogSink(Protocol):
    """A destination of log lines."""

    def write(self, level: str, prefix: str, text: str) -> None:
        """Write one line; may raise OSError, which `Log` swallows."""

    def reopen(self) -> bool:
        """Start a new file under the same name; False if the sink is not a file."""

    def close(self) -> None:
        """Release the sink's resources."""


class Log:
    """The server's log; check `debug_enabled` or `trace_enabled` before building a costly text."""

    def __init__(
        self, options: ServerOptions, sink: LogSink, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._sink = sink
        self._now_ns = now_ns
        # Reentrant: a signal handler may log a line in the middle of another one.
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._destination = _destination(options)
        # The last time to the second as text: a start with many streams logs thousands of lines.
        self._stamped = (-1, False, "")
        self._set_levels(options)

    def _set_levels(self, options: ServerOptions) -> None:
        self.debug_enabled = options.debug
        self.trace_enabled = options.trace
        self._with_time = options.logtime
        self._utc = options.logtime_utc

    def notice(self, text: str) -> None:
        """Log a fact of interest to users ([INF])."""
        self._write("INF", text)

    def warn(self, text: str) -> None:
        """Log something that is probably unintended ([WRN])."""
        self._write("WRN", text)

    def error(self, text: str) -> None:
        """Log a failure ([ERR])."""
        self._write("ERR", text)

    def fatal(self, text: str) -> None:
        """Log why the server cannot continue ([FTL]); the caller ends it."""
        self._write("FTL", text)

    def debug(self, text: str) -> None:
        """Log a detail ([DBG]), only with `debug_enabled`."""
        if self.debug_enabled:
            self._write("DBG", text)

    def trace(self, text: str) -> None:
        """Log a protocol line ([TRC]), only with `trace_enabled`."""
        if self.trace_enabled:
            self._write("TRC", text)

    def reopen(self) -> None:
        """Write to a new file of the same name, after another program has moved the old one."""
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
        """Apply new settings. Raises ServerStartError, changing nothing, for a bad file."""
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
            if (stamped := self._stamped)[:2] != (seconds, self._utc):
                moment = time.gmtime(seconds) if self._utc else time.localtime(seconds)
                stamp = time.strftime("%Y/%m/%d %H:%M:%S", moment)
                self._stamped = stamped = seconds, self._utc, stamp
            prefix += f"{stamped[2]}.{rest_ns // 1000:06d} "
        try:
            with self._lock:
                self._sink.write(level, prefix, text)
        except (OSError, ValueError):
            pass  # there is nowhere left to report it


def open_log(options: ServerOptions) -> Log:
    """The log that the options ask for. Raises ServerStartError if it cannot be opened."""
    return Log(options, open_sink(options))


def open_sink(options: ServerOptions) -> LogSink:
    """A file, syslog or standard error, in this order, as nats-server chooses."""
    try:
        if options.log_file:
            from tradewind.server.monitoring.log_sinks import FileSink

            return FileSink(options.log_file, options.log_size_limit_bytes, options.log_files_max)
        if options.remote_syslog or options.syslog:
            from tradewind.server.monitoring.log_sinks import SyslogSink

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


def log_line(level: str, prefix: str, text: str) -> bytes:
    """The bytes of one line."""
    return f"{prefix}[{level}] {text}\n".encode(errors="backslashreplace")


class StderrSink:
    """Standard error; levels are coloured if it is a terminal."""

    def __init__(self) -> None:
        self._coloured = sys.stderr is not None and sys.stderr.isatty()

    def write(self, level: str, prefix: str, text: str) -> None:
        """Write one line in a single call, so that lines of several processes do not mix."""
        if self._coloured:
            level = f"\x1b[{_COLOURS[level]}m{level}\x1b[0m"
        os.write(2, log_line(level, prefix, text))

    def reopen(self) -> bool:
        """Do nothing: there is nothing to reopen."""
        return False

    def close(self) -> None:
        """Do nothing: standard error stays open."""
