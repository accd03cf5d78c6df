"""The calls that only Linux has, or only some systems, and what stands in for each elsewhere.

No other module names them, so that the client and the command line load and run on a system that
lacks them. Compiled code has `system_calls.pxd` for this. TRADEWIND_PORTABLE=1 in the environment
takes what other systems would get, for tests. Where nothing can stand in for a call, it raises the
OSError of a system that does not know it.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_IS_PORTABLE: Final = os.environ.get("TRADEWIND_PORTABLE") == "1"
# Process, user and group of the other side of a Unix socket.
_CREDENTIAL_BYTES: Final = 4
# For renameat2: paths are relative to the working folder, and the two change places.
_WORKING_FOLDER: Final = -100
_EXCHANGE: Final = 2
# What the kernel says of processes and connections. Elsewhere the folder does not exist.
PROC: Final = "/nonexistent/proc" if _IS_PORTABLE else "/proc"
# A flag of `os.open` that refuses everything but folders.
O_DIRECTORY: Final[int] = 0 if _IS_PORTABLE else getattr(os, "O_DIRECTORY", 0)


def _has(module: object, name: str) -> bool:
    return not _IS_PORTABLE and hasattr(module, name)


def _missing(name: str) -> OSError:
    return OSError(errno.ENOSYS, f"this system has no {name}")


def sync_data(descriptor: int) -> None:
    """Have the content and the size of a file on disk; elsewhere with its times."""
    if _has(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def usable_processors() -> int:
    """How many processors this process may use; elsewhere all that there are."""
    if _has(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def after_fork_in_child(callback: Callable[[], None]) -> None:
    """Have a function called in each child of a fork; elsewhere nothing forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=callback)


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Process and user of the other side of a Unix socket, as the kernel knows them; OSError."""
    if not _has(socket, "SO_PEERCRED"):
        raise _missing("SO_PEERCRED")
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 3 * _CREDENTIAL_BYTES)
    process, user = data[:_CREDENTIAL_BYTES], data[_CREDENTIAL_BYTES : 2 * _CREDENTIAL_BYTES]
    return (
        int.from_bytes(process, sys.byteorder, signed=True),
        int.from_bytes(user, sys.byteorder, signed=True),
    )


def process_handle(pid: int) -> int:
    """A descriptor that can never refer to a later process of that number; OSError."""
    if not _has(os, "pidfd_open"):
        raise _missing("pidfd_open")
    return os.pidfd_open(pid)


def signal_handle(handle: int, number: signal.Signals) -> None:
    """Send a signal to the process of a handle; OSError."""
    if not _has(signal, "pidfd_send_signal"):
        raise _missing("pidfd_send_signal")
    signal.pidfd_send_signal(handle, number)


def exchange_folders(one: Path, other: Path) -> None:
    """Have two folders change places in one step; OSError, also if the file system cannot."""
    import ctypes  # rarely needed, and slow to load

    library = ctypes.CDLL(None, use_errno=True)
    if not _has(library, "renameat2"):
        raise _missing("renameat2")
    done = library.renameat2(
        _WORKING_FOLDER, os.fsencode(one), _WORKING_FOLDER, os.fsencode(other), _EXCHANGE
    )
    if done:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
