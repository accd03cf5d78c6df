"""What the SQL service and its callers say to each other, and where they meet.

Owns the folder, the socket, the lock and the frames. The folder is the user's own (0700) and the
other side must be a process of the same user, so that nobody else can ask, answer or listen. A
frame is four bytes with the length of the JSON behind them.

    caller                         service
    Hello                    ->
                             <-    Welcome
    Ask                      ->
    Cancel (or nothing)      ->
                             <-    Text, any number of them
                             <-    StatementDone or Failed

The first frame of each side is understood by all versions.
"""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import struct
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir
from typing import Final, TypeVar

import msgspec

from tradewind.pipelines.errors import PipelineError

FRAME_BYTES_MAX: Final = 16 << 20
# A text of the service is cut into such pieces.
TEXT_CHARACTERS_MAX: Final = 64 << 10
SOCKET_NAME: Final = "sql.sock"
LOCK_NAME: Final = "sql.lock"
LOG_NAME: Final = "sql.log"
# What the kernel takes for the name of a socket.
SOCKET_PATH_BYTES_MAX: Final = 107
# Where Spark and contexts are looked for; a service with other values gives other answers.
_ENVIRONMENT: Final = ("HOME", "XDG_CONFIG_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "TZ")
_LENGTH: Final = struct.Struct(">I")
_CREDENTIALS: Final = struct.Struct("3i")


class Hello(msgspec.Struct, tag=True):
    """Who calls; `wants` is `ask`, `state` or `stop`."""

    version: str
    wants: str = "ask"


class Welcome(msgspec.Struct, tag=True):
    """Who answers: its version, surroundings, master, folder, and whether Spark is up."""

    version: str
    place: str = ""
    master: str = ""
    folder: str = ""
    is_ready: bool = False
    idle_seconds: float = 0


class Ask(msgspec.Struct, tag=True):
    """A question and how its answer is to look; `login` as `spark.logins.Login` has it."""

    text: str
    server: str = ""
    context: str = ""
    login: dict[str, str] = {}
    folders: dict[str, str] = {}
    store: str = ""
    rows_max: int = 1000
    format: str = "table"
    width: int = 100


class Cancel(msgspec.Struct, tag=True):
    """The caller does not want the answer any more."""


class Text(msgspec.Struct, tag=True):
    """A piece of the answer."""

    text: str


class StatementDone(msgspec.Struct, tag=True):
    """The answer is complete."""

    has_more: bool = False


class Failed(msgspec.Struct, tag=True):
    """There is no answer, and why; `is_retryable` if asking elsewhere may give one."""

    reason: str
    is_retryable: bool = False


Message = TypeVar("Message")
ToService = Hello | Ask | Cancel
ToCaller = Welcome | Text | StatementDone | Failed
_TO_SERVICE: Final[msgspec.json.Decoder[ToService]] = msgspec.json.Decoder(ToService)
_TO_CALLER: Final[msgspec.json.Decoder[ToCaller]] = msgspec.json.Decoder(ToCaller)


class WireError(PipelineError):
    """The other side is gone, or says what nobody understands."""


class Channel:
    """A socket with frames. One thread reads, one writes."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    @property
    def peer(self) -> tuple[int, int]:
        """Process and user of the other side, as the kernel knows them."""
        data = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        process, user, _ = _CREDENTIALS.unpack(data)
        return process, user

    def check_user(self) -> None:
        """WireError if the other side belongs to somebody else."""
        if self.peer[1] != os.getuid():
            raise WireError("the other side is not of this user")

    def limit(self, seconds: float | None) -> None:
        """How long the other side may take; for ever if None."""
        self._socket.settimeout(seconds)

    def send(self, message: ToService | ToCaller) -> None:
        """Send one frame."""
        data = msgspec.json.encode(message)
        if len(data) > FRAME_BYTES_MAX:
            raise WireError(f"{len(data)} bytes are too many for one frame of {FRAME_BYTES_MAX}")
        try:
            self._socket.sendall(_LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise WireError(f"the other side is gone: {error}") from None

    def from_caller(self) -> ToService:
        """The next frame of a caller."""
        return _decoded(_TO_SERVICE, self._frame())

    def from_service(self) -> ToCaller:
        """The next frame of the service."""
        return _decoded(_TO_CALLER, self._frame())

    def _frame(self) -> bytes:
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length > FRAME_BYTES_MAX:
            raise WireError(f"a frame of {length} bytes; {FRAME_BYTES_MAX} are allowed")
        return self._exactly(length)

    def _exactly(self, size: int) -> bytes:
        parts, missing = [], size
        while missing:
            try:
                part = self._socket.recv(min(missing, 1 << 16))
            except OSError as error:
                raise WireError(f"no answer: {error}") from None
            if not part:
                raise WireError("the other side has hung up")
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Hang up; a thread that reads sees the end."""
        with suppress(OSError):  # the other side was faster
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _decoded(decoder: msgspec.json.Decoder[Message], data: bytes) -> Message:
    try:
        return decoder.decode(data)
    except msgspec.DecodeError as error:
        raise WireError(f"a frame that nobody understands: {error}") from None


def pieces(text: str) -> list[str]:
    """A text in parts that fit a frame."""
    size = TEXT_CHARACTERS_MAX
    return [text[begin : begin + size] for begin in range(0, len(text), size)]


def place_of_process() -> str:
    """What has to be the same for a service to answer in this process's stead."""
    known = [sys.prefix, *(os.environ.get(name, "") for name in _ENVIRONMENT)]
    return hashlib.sha256("\0".join(known).encode(errors="surrogateescape")).hexdigest()


def meeting_folder(*, create: bool = False) -> Path | None:
    """The private folder of the socket; None if it is not there.

    PipelineError if it is not private, as somebody else could answer in it.
    """
    base = os.environ.get("XDG_RUNTIME_DIR")
    own = f"tradewind-{os.getuid()}"
    folder = Path(base) / "tradewind" if base else Path(gettempdir()) / own
    if len(os.fsencode(folder / SOCKET_NAME)) > SOCKET_PATH_BYTES_MAX:
        raise PipelineError(
            f"{folder}: too long for the name of a socket; set XDG_RUNTIME_DIR to a shorter folder"
        )
    if create:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        found = os.lstat(folder)
    except FileNotFoundError:
        return None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PipelineError(
            f"{folder}: must be a folder of this user that nobody else may enter (mode 0700)"
        )
    return folder
