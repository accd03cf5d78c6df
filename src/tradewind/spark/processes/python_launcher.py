"""Starts Spark's Python processes quickly: writes the program that stands for Python.

Owns the private folder with that program, and `launcher_parent`, the process that forks. Spark
starts four to five Python processes before the first row of a query, imports the same modules in
each, and reads its own ones from an archive without compiled files: 0.8 s of processor time each.
A process of a streaming source that needs more than ten seconds ends its query.

Without the folder or the parent, everything works as before, only slower.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tradewind.spark.processes import launcher_script

SWITCH: Final = "TRADEWIND_SPARK_LAUNCHER"
OFF: Final = "off"
SCRIPT_NAME: Final = "python"
SOCKET_NAME: Final = "socket"
WAITING_MAX: Final = 128
PARENT_MODULE: Final = "tradewind.spark.processes.launcher_parent"
# The kernel reads so much of the first line of a program, and so much of the name of a socket.
FIRST_LINE_BYTES_MAX: Final = 250
SOCKET_PATH_BYTES_MAX: Final = 100
# Children show their own arguments in the place of these.
SPARE_ARGUMENT: Final = "-" * 200


class PythonLauncher:
    """A folder with the program and the socket, and the process that forks; see `close`."""

    def __init__(self, folder: Path, python: str, archives: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.script = folder / SCRIPT_NAME
        self._owner = os.getpid()
        self._parent: subprocess.Popen[bytes] | None = None
        self._address = str(folder / SOCKET_NAME)
        source = Path(launcher_script.__file__).read_text()
        call = f"launch({self._address!r}, {python!r}, {archives!r})"
        self.script.write_text(f"#!{python} -IS\n{source}\n{call}\n")
        self.script.chmod(0o700)

    def is_usable(self) -> bool:
        """Whether this is the process that made it, and the program can be started."""
        return self._owner == os.getpid() and os.access(self.script, os.X_OK)

    def ensure_parent(self) -> None:
        """Start the process that forks, unless it runs; it needs a moment to import everything."""
        if self._parent is not None:
            if self._parent.poll() is None:
                return
            self._let_go(self._parent)
        variables = dict(os.environ)
        # As Spark sets them; where it sets none, these do no harm.
        variables.setdefault("PYTHONHASHSEED", "0")
        variables.setdefault("OMP_NUM_THREADS", "1")
        variables["PYTHONUNBUFFERED"] = "YES"
        Path(self._address).unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            # Who asks before everything is imported waits for less time than importing takes.
            listener.bind(self._address)
            listener.listen(WAITING_MAX)
            number = listener.fileno()
            self._parent = subprocess.Popen(  # noqa: S603 - the Python of this process
                [
                    sys.executable,
                    *("-m", PARENT_MODULE, str(self.folder), str(number), SPARE_ARGUMENT),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=variables,
                pass_fds=[number],
            )

    def close(self) -> None:
        """Let the process end, with the children that still run; it removes the folder."""
        if self._owner != os.getpid() or self._parent is None:
            return
        self._let_go(self._parent)
        if self._parent.poll() is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _let_go(self, parent: subprocess.Popen[bytes]) -> None:
        assert parent.stdin is not None
        with suppress(OSError):
            parent.stdin.close()


_launchers: list[PythonLauncher] = []


def launcher_program() -> str:
    """The program to start in place of Python; empty if there is none, or it is switched off."""
    if sys.platform != "linux" or os.environ.get(SWITCH) == OFF:
        return ""
    if not _launchers or not _launchers[0].is_usable():
        _launchers.clear()
        with suppress(OSError):
            _launchers.extend(_made())
    if not _launchers:
        return ""
    with suppress(OSError):  # no memory, or no processes left; the program helps itself
        _launchers[0].ensure_parent()
    return str(_launchers[0].script)


def _made() -> list[PythonLauncher]:
    folder = Path(tempfile.mkdtemp(prefix="tradewind-spark-"))
    python = sys.executable
    is_fit = (
        len(os.fsencode(python)) <= FIRST_LINE_BYTES_MAX
        and not any(letter.isspace() for letter in python)
        and len(os.fsencode(folder / SOCKET_NAME)) <= SOCKET_PATH_BYTES_MAX
    )
    made = PythonLauncher(folder, python, spark_archives()) if is_fit else None
    if made is None or not made.is_usable():  # the folder may be one without programs
        shutil.rmtree(folder, ignore_errors=True)
        return []
    atexit.register(made.close)
    return [made]


def spark_archives() -> tuple[str, ...]:
    """The archives with the Python modules that are installed as files, too."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return ()
    folder = Path(found.origin).parent / "python" / "lib"
    return tuple(str(path) for path in sorted(folder.glob("*.zip")))
