"""Destinations of log lines other than standard error: a rotated file, or syslog.

Owns the file, its rotation and its backups. It never formats a line, which is up to `logs`.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from tradewind.server.monitoring.logs import log_line

_FILE_MODE = 0o640
_BACKUP_SUFFIX = re.compile(r"\.\d{4}(?:\.\d\d){5}\.\d{9}\Z")


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
        """Write one line; the line that passes the limit still goes to the old file."""
        if self._descriptor < 0:
            return
        self._append(log_line(level, prefix, text))
        if 0 < self._size_limit_bytes < self._size_bytes:
            backup = self._rotate()
            self._append(log_line("INF", prefix, f'Rotated log, backup saved as "{backup}"'))

    def reopen(self) -> bool:
        """Open the path again; the old file stays in use if that fails."""
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
            # Retry only after as much output again: otherwise every line would retry.
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
                raise ValueError("must be udp://host:port or tcp://host:port")
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
                """Drop a record that cannot be sent; the default would print a traceback."""

        self._handler = Handler(target, SysLogHandler.LOG_DAEMON, kind)
        self._handler.ident = f"nats-server[{os.getpid()}]: "
        self._handler.append_nul = False

    def write(self, level: str, _prefix: str, text: str) -> None:
        """Send one message; syslog adds its own time and process id."""
        self._handler.emit(self._record("", self._levels[level], "", 0, text, None, None))

    def reopen(self) -> bool:
        """Do nothing: there is no file."""
        return False

    def close(self) -> None:
        """Close the socket."""
        self._handler.close()
