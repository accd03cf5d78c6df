"""The actual disk operations of a server process, and the times of its answers: read from strace.

Owns the command line of strace, the parser of what it writes, and the replay of the calls on a
simulated disk. It knows nothing of stores. A call that changes files and is not replayed here is an
error, so that nothing is missed.

    for moment in replay(read_trace(path), folder, disk):
        ...                             # the disk as it is at this moment, and what was sent

A sync counts when it has returned, and only for what was written before it was called. An answer
counts from the moment at which it is handed to the system.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from tradewind.testing.disk_state import DiskChange, FileNode, FolderNode
from tradewind.testing.fake_disk import SimulatedDisk

STRACE = "strace"
CALLS = (
    "open,openat,openat2,creat,close,dup,dup2,dup3,fcntl,lseek,"
    "write,pwrite64,writev,pwritev,pwritev2,truncate,ftruncate,fallocate,"
    "fsync,fdatasync,rename,renameat,renameat2,link,linkat,symlink,symlinkat,"
    "unlink,unlinkat,rmdir,mkdir,mkdirat,mmap,copy_file_range,sendfile,splice,"
    "sendto,sendmsg"
)
STRING_BYTES_MAX = 4 * 1024 * 1024
_WHOLE = re.compile(r"^(\d+) +(\w+)\((.*)\) += (-?\d+|0x[0-9a-f]+|\?)")
_BEGUN = re.compile(r"^(\d+) +(\w+)\((.*?)(?:, )? ?<unfinished \.\.\.>$")
_ENDED = re.compile(r"^(\d+) +<\.\.\. (\w+) resumed>(.*)\) += (-?\d+|0x[0-9a-f]+|\?)")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')


def refusal() -> str:
    """Why nothing can be traced here; empty if it can."""
    if shutil.which(STRACE) is None:
        return "strace is not installed"
    tried = subprocess.run(
        [STRACE, "-f", "-o", "/dev/null", "true"], capture_output=True, check=False
    )
    return "" if tried.returncode == 0 else f"strace is refused: {tried.stderr.decode()[:200]}"


def tracing(trace: Path) -> tuple[str, ...]:
    """The command that becomes the server, with a tracer beside it."""
    options = ("-D", "-f", "-q", "-xx", "-s", str(STRING_BYTES_MAX), "-o", str(trace))
    return (STRACE, *options, "-e", f"trace={CALLS}", "-e", "signal=none")


@dataclass
class Call:
    """One call of a thread; `result` is known when it has returned."""

    name: str
    text: str
    result: int = 0
    begun: Any = None  # what a sync found when it was called

    @property
    def strings(self) -> list[bytes]:
        """The bytes of its arguments."""
        found = []
        for match in _STRING.finditer(self.text):
            assert not match[2], f"{self.name}: strace has cut the bytes off"
            found.append(bytes.fromhex(match[1].replace("\\x", "")))
        return found

    @property
    def words(self) -> list[str]:
        """The arguments of a call as text, bytes as an empty string."""
        return [word.strip() for word in _STRING.sub('""', self.text).split(",")]

    def number(self, index: int) -> int:
        """An argument that is a number."""
        word = self.words[index]
        return -100 if word == "AT_FDCWD" else int(word, 0)


def read_trace(path: Path) -> Iterator[tuple[bool, Call]]:
    """The beginnings (true) and ends of all calls, in their order."""
    waiting: dict[str, Call] = {}
    with path.open(errors="strict") as lines:
        for line in lines:
            line = line.rstrip("\n")
            if match := _BEGUN.match(line):
                waiting[match[1]] = call = Call(match[2], match[3])
                yield True, call
            elif match := _ENDED.match(line):
                call = waiting.pop(match[1])
                assert call.name == match[2], line[:200]
                call.text += match[3]
                call.result = -1 if match[4] == "?" else int(match[4], 0)
                yield False, call
            elif match := _WHOLE.match(line):
                result = -1 if match[4] == "?" else int(match[4], 0)
                call = Call(match[2], match[3], result)
                yield True, call
                yield False, call
            else:
                is_end = "+++" in line or "---" in line or line.endswith("= ?")
                assert is_end or "resumed" in line, f"strace wrote: {line[:200]}"


@dataclass
class OpenFile:
    """The object behind a descriptor: a node of the simulated disk, under any name."""

    path: str
    node: FileNode | FolderNode
    position: int = 0
    appends: bool = False


@dataclass
class Moment:
    """After one beginning or end of a call."""

    call: Call
    sent: bytes = b""  # to anything that is not a file of the folder
    synced: str = ""  # what has become durable just now
    changed: bool = False


@dataclass
class _Replay:
    folder: str
    disk: SimulatedDisk
    ignores: Callable[[OpenFile], bool]
    files: dict[int, OpenFile] = field(default_factory=dict)

    # ---------------------------------------------------------------- names

    def place(self, call: Call, directory: int | None, name: bytes) -> str:
        """The path on the simulated disk; empty if it is elsewhere."""
        path = name.decode()
        if not path.startswith("/"):
            if directory is None or directory not in self.files:
                return ""
            return f"{self.files[directory].path}/{path}"
        pure = PurePosixPath(path)
        if not pure.is_relative_to(self.folder):
            return ""
        return str(PurePosixPath(self.disk.root) / pure.relative_to(self.folder))

    def names(self, call: Call) -> list[str]:
        """The places of all path arguments, each relative to the descriptor in front of it."""
        words, found = call.words, []
        strings = iter(call.strings)
        for index, word in enumerate(words):
            if word == '""':
                before = words[index - 1] if index else "AT_FDCWD"
                directory = int(before) if before.isdigit() else None
                found.append(self.place(call, directory, next(strings)))
        return found

    # ---------------------------------------------------------------- calls

    def begin(self, call: Call) -> Moment:
        """The effect of starting a call: it may send, and a sync covers the existing changes."""
        moment = Moment(call)
        if call.name in ("sendto", "sendmsg", "write", "writev"):
            if call.number(0) not in self.files:
                moment.sent = b"".join(call.strings)
        elif call.name in ("fsync", "fdatasync") and call.number(0) in self.files:
            node = self.files[call.number(0)].node
            if isinstance(node, FileNode):
                call.begun = len(node.pending)
            else:
                call.begun = set(self.disk.tree.changes)
        return moment

    def end(self, call: Call) -> Moment:
        """The effect of a finished call."""
        moment = Moment(call)
        if call.result < 0:
            return moment
        handler: Callable[[Call, Moment], None] | None = getattr(self, f"do_{call.name}", None)
        if handler is not None:
            handler(call, moment)
        elif call.name in ("copy_file_range", "sendfile", "splice", "truncate", "symlink"):
            assert not any(self.names(call)), f"{call.name} is not replayed"
            numbers = [int(word) for word in call.words if word.isdigit()]
            assert not set(numbers[:2]) & set(self.files), f"{call.name} is not replayed"
        return moment

    def do_openat(self, call: Call, moment: Moment) -> None:
        self.files.pop(call.result, None)
        place = self.names(call)[0]
        flags = call.words[2] if call.name == "openat" else call.words[1]
        if not place:
            return
        node = self.disk.tree.find(place)
        if node is None:
            assert "O_CREAT" in flags, call.text
            self.disk.create(place).close()
            moment.changed = True
        elif "O_TRUNC" in flags and isinstance(node, FileNode) and node.size:
            self.disk.create(place, replace=True).close()
            moment.changed = True
        node = self.disk.tree.find(place)
        assert node is not None
        self.files[call.result] = OpenFile(place, node, appends="O_APPEND" in flags)

    do_open = do_openat

    def do_close(self, call: Call, _: Moment) -> None:
        self.files.pop(call.number(0), None)

    def do_dup(self, call: Call, _: Moment) -> None:
        source = self.files.get(call.number(0))
        self.files.pop(call.result, None)
        if source is not None:
            self.files[call.result] = source

    do_dup2 = do_dup3 = do_dup

    def do_fcntl(self, call: Call, moment: Moment) -> None:
        if "F_DUPFD" in call.text:
            self.do_dup(call, moment)

    def do_lseek(self, call: Call, _: Moment) -> None:
        if (file := self.files.get(call.number(0))) is not None:
            file.position = call.result

    def write(self, file: OpenFile, data: bytes, offset: int, moment: Moment) -> None:
        """As much as the system has taken."""
        assert isinstance(file.node, FileNode)
        self.disk.steps += 1
        self.disk.tree.write(file.node, self.disk.steps, offset, data)
        moment.changed = True

    def do_write(self, call: Call, moment: Moment) -> None:
        file = self.files.get(call.number(0))
        if file is None:
            return
        assert isinstance(file.node, FileNode)
        offset = file.node.size if file.appends else file.position
        self.write(file, b"".join(call.strings)[: call.result], offset, moment)
        file.position = offset + call.result

    do_writev = do_write

    def do_pwrite64(self, call: Call, moment: Moment) -> None:
        file = self.files.get(call.number(0))
        if file is not None:
            offset = int(call.words[-1] if call.name != "pwritev2" else call.words[-2])
            self.write(file, b"".join(call.strings)[: call.result], offset, moment)

    do_pwritev = do_pwritev2 = do_pwrite64

    def do_ftruncate(self, call: Call, moment: Moment) -> None:
        if (file := self.files.get(call.number(0))) is not None:
            self.cut(file, call.number(1), moment)

    def do_fallocate(self, call: Call, moment: Moment) -> None:
        file = self.files.get(call.number(0))
        if file is not None and isinstance(file.node, FileNode):
            assert call.words[1] == "0", f"fallocate is not replayed: {call.text}"
            self.cut(file, max(file.node.size, call.number(2) + call.number(3)), moment)

    def cut(self, file: OpenFile, size: int, moment: Moment) -> None:
        """A new size."""
        assert isinstance(file.node, FileNode)
        self.disk.steps += 1
        self.disk.tree.cut(file.node, self.disk.steps, size)
        moment.changed = True

    def do_fsync(self, call: Call, moment: Moment) -> None:
        file = self.files.get(call.number(0))
        if file is None or call.begun is None or self.ignores(file):
            return
        moment.synced = file.path
        node = file.node
        if isinstance(node, FileNode):
            node.sync(call.begun)
            return

        def is_covered(change: DiskChange) -> bool:
            return change in call.begun and any(place is node for place, *_ in change.sets)

        self.disk.tree.persist(is_covered)

    do_fdatasync = do_fsync

    def do_rename(self, call: Call, moment: Moment) -> None:
        source, target = self.names(call)
        if source or target:
            assert source, "a file came from elsewhere"
            assert target, "a file went elsewhere"
            self.disk.rename(source, target)
            moment.changed = True

    do_renameat = do_renameat2 = do_rename

    def do_link(self, call: Call, moment: Moment) -> None:
        source, target = self.names(call)
        if source or target:
            self.disk.link(source, target)
            moment.changed = True

    do_linkat = do_link

    def do_unlink(self, call: Call, moment: Moment) -> None:
        if place := self.names(call)[0]:
            if "AT_REMOVEDIR" in call.text or call.name == "rmdir":
                self.disk.remove_tree(place)
            else:
                self.disk.remove(place)
            moment.changed = True

    do_unlinkat = do_rmdir = do_unlink

    def do_mkdir(self, call: Call, moment: Moment) -> None:
        if place := self.names(call)[0]:
            self.disk.make_directory(place)
            moment.changed = True

    do_mkdirat = do_mkdir

    def do_mmap(self, call: Call, _: Moment) -> None:
        words = call.words
        if words[4].isdigit() and int(words[4]) in self.files:
            is_written = "PROT_WRITE" in words[2] and "MAP_SHARED" in words[3]
            assert not is_written, f"a mapping that is written to: {call.text}"


def replay(
    calls: Iterable[tuple[bool, Call]],
    folder: Path,
    disk: SimulatedDisk,
    ignores: Callable[[OpenFile], bool] = lambda _: False,
) -> Iterator[Moment]:
    """Do what the calls did below a folder to the root of a disk that was like it before.

    A sync of what `ignores` says does nothing: so must a test see it that has to find that out.
    """
    run = _Replay(str(folder), disk, ignores)
    for is_begin, call in calls:
        yield run.begin(call) if is_begin else run.end(call)
