"""The history of a day in one file, for `tradewind dashboard --history`.

Owns the file: an SQLite database with one row per series and minute. It never reads a clock.
Reading and writing block, so that the caller uses a thread; a failure is returned as text and never
stops the dashboard.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tradewind.errors import ConfigError

VERSION: Final = "1"
MINUTE: Final = 60
ROWS_READ_MAX: Final = 5000
BUSY_SECONDS: Final = 2.0
_TABLES: Final = """
create table if not exists about (name text primary key, value text not null);
create table if not exists samples (
  series text not null, minute integer not null, data blob not null,
  primary key (series, minute)
) without rowid;
create index if not exists samples_by_minute on samples (minute);
"""


class HistoryFile:
    """One open file with the history of one server.

    ConfigError if it cannot be used: it is another kind of file, or has the history of another
    server.
    """

    def __init__(self, path: Path | str, server: str) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        try:
            self._database = self._open()
            self._check(server)
            self._began = self._oldest()
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(f"--history {self.path}: {_words(error)}") from None

    def _open(self) -> sqlite3.Connection:
        # For its owner alone: it has the names of streams and consumers.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        database = sqlite3.connect(self.path, timeout=BUSY_SECONDS, check_same_thread=False)
        database.execute("pragma journal_mode = wal")
        database.execute("pragma synchronous = normal")
        database.executescript(_TABLES)
        return database

    def _check(self, server: str) -> None:
        about = dict(self._database.execute("select name, value from about"))
        if not about:
            rows = (("version", VERSION), ("server", server))
            self._database.executemany("insert into about values (?, ?)", rows)
            self._database.commit()
            return
        if about.get("version") != VERSION:
            raise ConfigError(f"--history {self.path}: it is of another version of the dashboard")
        if about.get("server") != server:
            raise ConfigError(
                f"--history {self.path}: it has the history of {about.get('server')}, "
                f"not of {server}; name another file"
            )

    def began(self) -> float:
        """The time of the oldest sample in seconds since 1970 as of the last write; infinity if
        there is none. It never waits for the disk.
        """
        return self._began

    def _oldest(self) -> float:
        found = self._database.execute("select min(minute) from samples").fetchone()
        return float("inf") if found is None or found[0] is None else found[0] * float(MINUTE)

    def write(self, rows: Sequence[tuple[str, int, bytes]], oldest: int) -> str:
        """Save samples and remove those before the minute `oldest`; an error as text, or ""."""
        with self._lock:
            try:
                with self._database:
                    self._database.executemany(
                        "insert or ignore into samples values (?, ?, ?)", rows
                    )
                    self._database.execute("delete from samples where minute < ?", (oldest,))
                self._began = self._oldest()
            except sqlite3.Error as error:
                return _words(error)
        return ""

    def read(self, series: str, first: int, last: int) -> list[tuple[int, bytes]]:
        """The samples of a series from a minute to another one, oldest first."""
        query = (
            "select minute, data from samples where series = ? and minute between ? and ? "
            "order by minute limit ?"
        )
        with self._lock:
            try:
                rows = self._database.execute(query, (series, first, last, ROWS_READ_MAX))
                return [(int(minute), bytes(data)) for minute, data in rows]
            except (sqlite3.Error, TypeError, ValueError):
                return []

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()


def _words(error: OSError | sqlite3.Error) -> str:
    if isinstance(error, OSError):
        return str(error.strerror or error)
    if isinstance(error, sqlite3.DatabaseError) and "not a database" in str(error):
        return "it is not a file of the dashboard's history"
    return str(error)
