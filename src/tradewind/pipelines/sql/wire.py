"""The protocol between the SQL service and its clients.

Owns the socket, the lock and the frames. The folder belongs to the user (`private_folder`), and the
peer must be a process of the same user, so that no other user can send, answer or read queries. A
frame is four bytes with the length of the JSON that follows.

    caller                         service
    Hello                    ->
                             <-    Welcome
    Ask                      ->
    Cancel (or nothing)      ->
                             <-    Progress, if it is wanted, any number of them
                             <-    Text, any number of them
                             <-    StatementDone or StatementFailure

The first frame of each side is understood by all versions.
"""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.machine.private_folder import private_folder, private_path
from tradewind.platform_calls import peer_of

FRAME_BYTES_MAX: Final = 16 << 20
# A text of the service is cut into such pieces.
TEXT_CHARACTERS_MAX: Final = 64 << 10
SOCKET_NAME: Final = "sql.sock"
# The socket until it listens; not longer, so that it fits wherever the other one does.
SOCKET_NAME_BEFORE: Final = "sql.new"
LOCK_NAME: Final = "sql.lock"
LOG_NAME: Final = "sql.log"
# Bytes that the kernel takes for the name of a socket.
SOCKET_PATH_BYTES_MAX: Final = 107
# Where Spark and contexts are looked for; a service with other values gives other answers.
_ENVIRONMENT: Final = ("HOME", "XDG_CONFIG_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "TZ")
_LENGTH: Final = struct.Struct(">I")


class Hello(msgspec.Struct, tag=True):
    """The greeting of a caller; `wants` is `ask`, `state` or `stop`."""

    version: str
    wants: str = "ask"


class Welcome(msgspec.Struct, tag=True):
    """The service's reply: its version, surroundings, master, folder, and whether Spark is up."""

    version: str
    place: str = ""
    master: str = ""
    folder: str = ""
    is_ready: bool = False
    idle_seconds: float = 0


class Ask(msgspec.Struct, tag=True):
    """A question and how its answer is to look; `login` as `spark.logins.JobLogin` has it.

    Statements that write are refused unless `may_write`. `statement` is an id: if it is sent again
    because no answer came, its rows are not written twice. `directory` is where the caller is.
    """

    text: str
    server: str = ""
    context: str = ""
    login: dict[str, str] = {}
    folders: dict[str, str] = {}
    store: str = ""
    rows_max: int = 1000
    format: str = "table"
    width: int = 100
    wants_progress: bool = False
    may_write: bool = False
    statement: str = ""
    directory: str = ""


class Cancel(msgspec.Struct, tag=True):
    """The caller no longer wants the answer."""


class Text(msgspec.Struct, tag=True):
    """A piece of the answer."""

    text: str


class Progress(msgspec.Struct, tag=True):
    """How many of the tasks that Spark knows of so far are done."""

    done: int
    whole: int


class StatementDone(msgspec.Struct, tag=True):
    """The answer is complete."""

    has_more: bool = False


class StatementFailure(msgspec.Struct, tag="Failed"):  # the name in earlier versions
    """There is no answer, and why; `is_retryable` if asking elsewhere may give one.

    `line` and `column` say where in the statement, both from 1; 0 if that is not known.
    """

    reason: str
    is_retryable: bool = False
    line: int = 0
    column: int = 0


Message = TypeVar("Message")
ToService = Hello | Ask | Cancel
ToCaller = Welcome | Text | Progress | StatementDone | StatementFailure
_TO_SERVICE: Final[msgspec.json.Decoder[ToService]] = msgspec.json.Decoder(ToService)
_TO_CALLER: Final[msgspec.json.Decoder[ToCaller]] = msgspec.json.Decoder(ToCaller)


class WireError(PipelineError):
    """The other side is gone, or has sent something that is not a valid frame."""


class StatementError(PipelineError):
    """A statement that cannot be answered; the place in it is from 1, 0 if it is not known."""

    def __init__(self, text: str, line: int = 0, column: int = 0) -> None:
        self.line = line
        self.column = column
        super().__init__(text)


class Channel:
    """A socket with frames. One thread reads, one writes."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    @property
    def peer(self) -> tuple[int, int]:
        """Process and user of the other side, as the kernel knows them."""
        return peer_of(self._socket)

    def check_user(self) -> None:
        """WireError if the other side belongs to another user."""
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
                raise WireError("the other side closed the connection")
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
        raise WireError(f"an unknown frame: {error}") from None


def pieces(text: str) -> list[str]:
    """A text in parts that fit a frame."""
    size = TEXT_CHARACTERS_MAX
    return [text[begin : begin + size] for begin in range(0, len(text), size)]


def place_of_process() -> str:
    """The properties that must be the same for a service to answer in this process's stead."""
    known = [sys.prefix, *(os.environ.get(name, "") for name in _ENVIRONMENT)]
    return hashlib.sha256("\0".join(known).encode(errors="surrogateescape")).hexdigest()


def meeting_folder(*, create: bool = False) -> Path | None:
    """The private folder of the socket; None if it is not there. PipelineError if it cannot be."""
    socket_path = private_path() / SOCKET_NAME
    if len(os.fsencode(socket_path)) > SOCKET_PATH_BYTES_MAX:
        raise PipelineError(
            f"{socket_path.parent}: too long for the name of a socket; set XDG_RUNTIME_DIR to a"
            " shorter folder"
        )
    return private_folder(create=create)
