"""Messages that only a lost origin had, in a file, and publishing them again.

Owns the file: JSON lines, a first one that says what it is and then one per message, complete and
on disk or not there at all. It never decides which messages are saved.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import msgspec

from tradewind.api.times import format_time
from tradewind.private_files import sync_folder
from tradewind.recovery.recovery_errors import RecoveryError

if TYPE_CHECKING:
    from tradewind.client.core.headers import Headers
    from tradewind.sync import Connection

FORM: Final = "tradewind saved messages 1"
MESSAGE_ID: Final = "Nats-Msg-Id"
EXPECTED_STREAM: Final = "Nats-Expected-Stream"
# Conditions and effects of the first publish, which must not hold or happen again.
_ONLY_ONCE: Final = ("nats-expected-", "nats-batch-", "nats-rollup")


class SavedHead(msgspec.Struct, kw_only=True):
    """The first line of the file."""

    form: str
    stream: str
    change: str  # id of the failback that has saved them


class SavedMessage(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A message of the origin. `data` is base64 in the file. If the bytes of subject or headers are
    not UTF-8, each character stands for one of them, and `is_raw` is set.
    """

    seq: int
    time: str
    subject: str
    headers: list[tuple[str, str]] = []
    data: bytes = b""
    is_raw: bool = False

    @classmethod
    def of(cls, subject: str, seq: int, time_ns: int, headers: Headers, data: bytes) -> Self:
        """Create one from the common parts of a message and a stored message."""
        fields = list(headers.fields())
        texts = [subject, *(part for field in fields for part in field)]
        is_raw = not all(map(_is_plain, texts))
        if is_raw:
            subject, *flat = [_bytes(text).decode("latin-1") for text in texts]
            fields = list(zip(flat[::2], flat[1::2], strict=True))
        return cls(
            seq=seq,
            time=format_time(time_ns),
            subject=subject,
            headers=fields,
            data=data,
            is_raw=is_raw,
        )

    def texts(self) -> tuple[str, list[tuple[str, str]]]:
        """The subject and headers as the client writes them."""
        if not self.is_raw:
            return self.subject, self.headers
        return _unraw(self.subject), [(_unraw(name), _unraw(value)) for name, value in self.headers]


class SavedFile:
    """Writes a file beside its place and puts it there when it is complete.

    >>> with SavedFile(path, stream, change) as file:
    ...     file.add(message)
    """

    def __init__(self, path: Path, stream: str, change: str) -> None:
        self._path = path
        self._aside = path.with_name(f".{path.name}.part")
        self._head = SavedHead(form=FORM, stream=stream, change=change)
        self.messages = 0

    def __enter__(self) -> Self:
        # The file of an interrupted attempt is written again.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        self._file = os.fdopen(os.open(self._aside, flags, 0o600), "wb")
        self._write(self._head)
        return self

    def add(self, message: SavedMessage) -> None:
        """Add a message."""
        self._write(message)
        self.messages += 1

    def __exit__(self, kind: object, *exc: object) -> None:
        with self._file:
            if kind is None and self.messages:
                self._file.flush()
                os.fsync(self._file.fileno())
        if kind is None and self.messages:
            self._aside.replace(self._path)
            sync_folder(self._path.parent)
        else:
            with suppress(OSError):
                self._aside.unlink()

    def _write(self, value: msgspec.Struct) -> None:
        self._file.write(msgspec.json.encode(value) + b"\n")


def read_saved(path: Path) -> Iterator[SavedMessage]:
    """Read the messages of a file, one by one; RecoveryError if the file is invalid."""
    _head(path)
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if number == 1:
                continue
            try:
                yield msgspec.json.decode(line, type=SavedMessage)
            except msgspec.MsgspecError as error:
                raise RecoveryError(f"{path}:{number}: not a message: {error}") from None


def publish_saved(connection: Connection, path: Path, stream: str = "") -> int:
    """Store the messages of a file again, after those of the stream; returns how many are new.

    A message keeps its id, or gets one, so that a second run within the duplicate window of the
    stream stores nothing twice. Its time is the present one: the old one is in the file.
    """
    js = connection.jetstream()
    stored = 0
    change = _head(path).change
    for message in read_saved(path):
        subject, fields = message.texts()
        headers = [
            (name, value) for name, value in fields if not name.lower().startswith(_ONLY_ONCE)
        ]
        if not any(name.lower() == MESSAGE_ID.lower() for name, _value in headers):
            headers.append((MESSAGE_ID, f"tradewind.recovery.{change}.{message.seq}"))
        if stream:
            headers.append((EXPECTED_STREAM, stream))
        stored += not js.publish(subject, message.data, headers=headers).duplicate
    return stored


def _head(path: Path) -> SavedHead:
    """Read the first line; RecoveryError if it is invalid."""
    try:
        with path.open("rb") as file:
            head = msgspec.json.decode(file.readline(), type=SavedHead)
    except FileNotFoundError:
        raise RecoveryError(f"{path}: no such file") from None
    except msgspec.MsgspecError as error:
        raise RecoveryError(f"{path}: not a file of saved messages: {error}") from None
    if head.form != FORM:
        raise RecoveryError(f"{path}: {head.form!r} is not {FORM!r}")
    return head


def _is_plain(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= each <= "\udfff" for each in text)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _unraw(text: str) -> str:
    return text.encode("latin-1").decode("utf-8", "surrogateescape")
