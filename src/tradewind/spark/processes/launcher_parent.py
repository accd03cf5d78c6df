"""The parent of Spark's Python processes: has everything imported, and forks for each request.

Owns what is imported in advance, and the life of the children. Only processes of the same user can
ask; the folder with the socket is private besides. The module ends with its owner, whose end of a
pipe it reads, and removes the folder then. A request that it cannot do exactly as a new Python
would, it refuses.

`launcher_script` says what a request looks like.
"""

from __future__ import annotations

import contextlib
import gc
import os
import runpy
import selectors
import shutil
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Final

import msgspec

from tradewind.platform_calls import PROC, peer_of
from tradewind.spark.processes.launcher_script import (
    ENDED,
    LOST_CODE,
    REFUSED,
    STARTED,
    receive,
)

REQUEST_BYTES_MAX: Final = 4 << 20
REQUEST_SECONDS: Final = 1.0
CHILDREN_MAX: Final = 1000
# How long children may go on: one whose request was given up, and all when the owner is gone.
TERMINATE_SECONDS: Final = 5.0
ORPHAN_SECONDS: Final = 15.0
POLL_SECONDS: Final = 1.0
# How often the files get a new time: systems remove old ones from the temporary folder.
TOUCH_SECONDS: Final = 3600.0
OWNER: Final = 0
# The modules that Spark runs, and those that they import. Not all versions have all of them.
MODULES: Final = (
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyarrow",
    "tradewind.spark.source",
    "tradewind.spark.reads.streaming",
    "tradewind.spark.writes.sink",
    "pyspark_jetstream",
)
# Threads that survive a fork: the allocator of Arrow starts its own, and forks with care.
HARMLESS_THREADS: Final = ("jemalloc_bg_thd",)
# Variables that are read when Python or a library starts; absent ones may have any value.
_EARLY_PREFIXES: Final = ("PYTHON", "LC_", "LD_", "MALLOC_")
_EARLY_NAMES: Final = ("LANG", "LANGUAGE", "TZ", "ARROW_DEFAULT_MEMORY_POOL")
_FREE_NAMES: Final = ("PYTHONPATH",)
_OPTIONAL_NAMES: Final = ("PYTHONHASHSEED", "OMP_NUM_THREADS")


class LaunchRequest(msgspec.Struct):
    """The arguments and settings that a process was started with."""

    arguments: list[str]
    folder: bytes
    variables: dict[bytes, bytes]

    @property
    def module(self) -> str:
        """The name of the module to run."""
        return self.arguments[1]


class _Child(msgspec.Struct):
    """A process and the connection of the one that stands for it; None if that has gone."""

    connection: socket.socket | None
    end_at: float = float("inf")
    is_told: bool = False


class _ChildBegins(BaseException):
    """How a child leaves the loop of its parent."""

    def __init__(self, request: LaunchRequest) -> None:
        self.request = request
        super().__init__()


def parse_request(body: bytes) -> LaunchRequest:
    """The parts of a request; ValueError if it is none."""
    parts = body.split(b"\0")
    count = int(parts[0])
    if count < 2 or len(parts) < count + 2 or parts[1] != b"-m":
        raise ValueError("not a request")
    variables = dict(part.split(b"=", 1) for part in parts[count + 2 :])
    arguments = [os.fsdecode(part) for part in parts[1 : count + 1]]
    return LaunchRequest(arguments, parts[count + 1], variables)


def archive_folder(package: Path) -> Path:
    """Where an installed PySpark has the archives with the same modules."""
    return package / "python" / "lib"


def refusal(variables: Mapping[str, str], own: Mapping[str, str], package: Path) -> str:
    """The variable with which a process would not be like this one; empty if it would.

    `package` is the PySpark that is imported here.
    """
    for name in {*variables, *own}:
        asked, have = variables.get(name), own.get(name)
        is_early = name in _EARLY_NAMES or (
            name.startswith(_EARLY_PREFIXES)
            and not name.startswith("PYTHON_")
            and name not in _FREE_NAMES
        )
        if name in _OPTIONAL_NAMES:
            if asked is not None and asked != have:
                return name
        elif is_early and asked != have:
            return name
    for place in map(Path, variables.get("PYTHONPATH", "").split(":")):
        is_archive = place.suffix == ".zip" and place.name.startswith("pyspark")
        is_own = (place.parent if is_archive else place / "pyspark").resolve() in (
            package.resolve(),
            archive_folder(package).resolve(),
        )
        shadow = place if is_archive else place / "pyspark" / "__init__.py"
        if not is_own and shadow.is_file():
            return "PYTHONPATH"
    return ""


def search_path(
    folder: Path, wanted: str, base: list[str], archives: Path, *, is_safe: bool
) -> list[str]:
    """`sys.path` of a process: its folder, PYTHONPATH, and the places of this installation.

    `archives` is the folder of Spark's own archives. Their content is imported already.
    """
    found = [] if is_safe else [str(folder)]
    for place in wanted.split(":"):
        path = folder / place
        is_archive = path.suffix == ".zip" and path.parent.resolve() == archives.resolve()
        if place and not is_archive:
            found.append(str(path))
    return found + [place for place in base if place not in found]


class LauncherParent:
    """The socket and the children. Nothing else runs in this process."""

    def __init__(self, folder: Path, listener: socket.socket) -> None:
        self._folder = folder
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, _Child] = {}
        self._package = Path()
        self._base: list[str] = []
        self._own = dict(os.environ)
        self._owned_until = float("inf")
        # Who ends all processes of a group ends the owner, and that is what ends this one: else the
        # folder would stay.
        self._signals = {
            number: signal.signal(number, signal.SIG_IGN)
            for number in (signal.SIGTERM, signal.SIGHUP)
        }
        self._listener = listener
        self._listener.setblocking(False)
        self._wake, self._waking = socket.socketpair()
        for end in (self._wake, self._waking):
            end.setblocking(False)

    def prepare(self) -> str:
        """Import what children need; why they cannot be forked, or an empty text."""
        own_places = os.environ.get("PYTHONPATH", "").split(":")
        own_places = [str(Path(place).absolute()) for place in own_places if place]
        is_safe = sys.flags.safe_path
        self._base = [place for place in sys.path[0 if is_safe else 1 :] if place not in own_places]
        os.environ["SPARK_PYTHON_RUNTIME"] = "PYTHON_WORKER"
        for name in MODULES:
            with contextlib.suppress(ImportError):
                import_module(name)
        self._package = Path(sys.modules["pyspark"].__file__ or "").parent
        if names := unsafe_threads():
            return f"threads: {', '.join(names)}"
        gc.collect()
        gc.freeze()
        return ""

    def serve(self, *, may_fork: bool) -> None:
        """Fork until the owner has gone, and wait for the children; or only keep the folder."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waking.fileno(), warn_on_full_buffer=False)
        self._watch(OWNER, self._owner_spoke)
        if may_fork:
            self._watch(self._listener, self._accept)
        else:
            self._listener.close()
        self._watch(self._wake, self._reap)
        touch_at = time.monotonic() + TOUCH_SECONDS
        while self._owned_until == float("inf") or self._children:
            is_ending = any(child.end_at < float("inf") for child in self._children.values())
            pause = POLL_SECONDS if is_ending else touch_at - time.monotonic()
            for key, _ in self._selector.select(max(pause, 0.0)):
                key.data()
            self._end_overdue()
            if time.monotonic() >= touch_at:
                touch_at = time.monotonic() + TOUCH_SECONDS
                touch_folder(self._folder)
            if time.monotonic() >= self._owned_until + 2 * TERMINATE_SECONDS:
                return

    def close(self) -> None:
        """Remove the folder; children that are left are ended."""
        for pid in self._children:
            end_process(pid, signal.SIGKILL)
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _watch(self, source: int | socket.socket, act: Callable[[], None]) -> None:
        self._selector.register(source, selectors.EVENT_READ, act)

    def _owner_spoke(self) -> None:
        """Note that the owner has gone: it never says anything."""
        if os.read(OWNER, 1):
            return
        self._selector.unregister(OWNER)
        self._owned_until = time.monotonic() + ORPHAN_SECONDS
        for child in self._children.values():
            child.end_at = min(child.end_at, self._owned_until)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        descriptors: list[int] = []
        is_kept = False
        try:
            is_kept = self._answer(connection, descriptors)
        except (OSError, ValueError):
            pass  # The asker has gone or sent no valid request; without a reply it starts its own.
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
            if not is_kept:
                connection.close()

    def _answer(self, connection: socket.socket, descriptors: list[int]) -> bool:
        """Whether the connection is now that of a child."""
        connection.settimeout(REQUEST_SECONDS)
        if peer_of(connection)[1] != os.getuid():
            return False
        head, received, _, _ = socket.recv_fds(connection, 4, 3)
        descriptors += received
        size = int.from_bytes(head)
        if len(head) != 4 or len(received) != 3 or size > REQUEST_BYTES_MAX:
            return False
        request = parse_request(receive(connection, size))
        variables = {os.fsdecode(n): os.fsdecode(v) for n, v in request.variables.items()}
        if "numpy" not in sys.modules:
            variables.pop("OMP_NUM_THREADS", None)
        why = refusal(variables, self._own, self._package)
        if why or len(self._children) >= CHILDREN_MAX or self._owned_until != float("inf"):
            connection.sendall(REFUSED + bytes(4))
            return False
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            connection.recv(1, socket.MSG_PEEK)
            return False  # it has given up, and has ended or become a Python of its own
        pid = os.fork()
        if pid == 0:
            try:
                self._leave(connection, descriptors)
            except BaseException:  # never a second parent
                os._exit(LOST_CODE)
            raise _ChildBegins(request)
        self._children[pid] = _Child(connection)
        self._watch(connection, lambda: self._asker_gone(pid))
        with contextlib.suppress(OSError):  # that it has gone is seen later
            connection.sendall(STARTED + pid.to_bytes(4))
        return True

    def _leave(self, connection: socket.socket, descriptors: list[int]) -> None:
        """In a child: keep nothing of the parent, and take over the descriptors."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for kind, action in self._signals.items():
            signal.signal(kind, action)
        self._selector.close()
        held = [child.connection for child in self._children.values()]
        for each in (self._listener, self._wake, self._waking, connection, *held):
            if each is not None:
                each.close()
        self._children.clear()
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)

    def _asker_gone(self, pid: int) -> None:
        """Have a child end whose process, as Java sees it, was ended."""
        child = self._children[pid]
        assert child.connection is not None
        self._selector.unregister(child.connection)
        child.connection.close()
        child.connection = None
        child.end_at = 0.0

    def _reap(self) -> None:
        """Report how children ended."""
        with contextlib.suppress(BlockingIOError):
            while self._wake.recv(1 << 10):
                pass
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                child = self._children.pop(pid)
                if child.connection is not None:
                    self._selector.unregister(child.connection)
                    with contextlib.suppress(OSError):
                        code = exit_code(status)
                        child.connection.sendall(ENDED + code.to_bytes(4))
                    child.connection.close()

    def _end_overdue(self) -> None:
        now = time.monotonic()
        for pid, child in self._children.items():
            if child.end_at > now:
                continue
            end_process(pid, signal.SIGKILL if child.is_told else signal.SIGTERM)
            child.is_told = True
            child.end_at = now + TERMINATE_SECONDS

    def become(self, request: LaunchRequest) -> None:
        """In a child: run the module, as `python -m` does."""
        os.environb.clear()
        os.environb.update(request.variables)
        time.tzset()
        os.chdir(request.folder)
        sys.path[:] = search_path(
            Path(os.fsdecode(request.folder)),
            os.environ.get("PYTHONPATH", ""),
            self._base,
            archive_folder(self._package),
            is_safe=sys.flags.safe_path,
        )
        sys.argv = request.arguments[1:]
        show_arguments([sys.executable, *request.arguments])
        sys.modules.pop(request.module, None)
        runpy.run_module(request.module, run_name="__main__", alter_sys=True)


def exit_code(status: int) -> int:
    """The exit code that Java would have seen, also of a process that a signal ended."""
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def end_process(pid: int, number: int) -> None:
    """Send a signal to a child; one that kills goes to its group, if it leads one."""
    with contextlib.suppress(OSError):
        if number == signal.SIGKILL and os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)


def touch_folder(folder: Path) -> None:
    """Give a folder and its files the present time."""
    with contextlib.suppress(OSError):
        for path in (*folder.iterdir(), folder):
            os.utime(path)


def unsafe_threads() -> list[str]:
    """The names of threads that a fork would lose."""
    found = []
    for task in Path(PROC, "self/task").iterdir():
        name = (task / "comm").read_text().strip()
        if int(task.name) != os.getpid() and name not in HARMLESS_THREADS:
            found.append(name)
    return found


def show_arguments(arguments: list[str]) -> None:
    """Let `ps` show what a child does, as far as the space of the old arguments allows."""
    with contextlib.suppress(OSError, ValueError):
        fields = Path(PROC, "self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        text = b"\0".join(map(os.fsencode, arguments))[: end - start - 1]
        with Path(PROC, "self/mem").open("r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(text.ljust(end - start, b"\0"))


def main() -> None:
    """Serve the folder, and the socket in it, that the command line names."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Python 3.12 warns of the thread that is harmless.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    parent = LauncherParent(Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])))
    try:
        parent.serve(may_fork=not parent.prepare())
    except _ChildBegins as begin:
        request = begin.request
    else:
        parent.close()
        return
    parent.become(request)


if __name__ == "__main__":
    main()
