"""Writes the chunks of an object from bytes, files and iterators, in constant memory.

Owns the window of unacknowledged chunks, and the recovery if the server disconnects during an
upload. The chunks are invisible until `objects.py` stores the description.

Chunks must be in the stream in order, each once. Acknowledgements arrive in order, so the
acknowledged chunks are always the beginning of the object. If an acknowledgement is missing, the
unacknowledged chunks are stored again one at a time. Each states the expected last sequence of the
subject, so that the server refuses it if a lost chunk has arrived after all; that chunk is then
removed.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import io
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from tradewind.api.responses import PubAck
from tradewind.client.api_errors import (
    NoMessageFoundError,
    SequenceNotFoundError,
    StreamWrongLastSequenceError,
)
from tradewind.client.errors import (
    ClientError,
    DisconnectedError,
    JetStreamUnavailableError,
    OperationTimeoutError,
    UploadError,
)
from tradewind.client.streams.api_requests import decode_answer
from tradewind.status_codes import NO_RESPONDERS

if TYPE_CHECKING:
    from tradewind.client.core.replies import PendingRequest
    from tradewind.client.jetstream import JetStream

ObjectSource = (
    bytes | bytearray | memoryview | str | PathLike[str] | BinaryIO
    | Iterable[bytes] | AsyncIterable[bytes]
)  # fmt: skip
Progress = Callable[[int, int | None], Awaitable[None] | None]

WINDOW_BYTES: Final = 4 << 20
WINDOW_CHUNKS: Final = 256
READ_BYTES: Final = 1 << 20
# This much of an iterator is awaited before anything of it is sent.
GATHERED_BYTES: Final = 64 << 10
# How long an upload waits for a server that went away before it gives up.
PATIENCE_SECONDS: Final = 60.0
RETRY_WAIT: Final = 0.25
_LOST = (OperationTimeoutError, DisconnectedError)


class Upload:
    """The chunks of one object. `size`, `chunks` and `digest` describe what was written."""

    def __init__(self, js: JetStream, stream: str, subject: str, chunk_size: int) -> None:
        self.size = 0
        self.chunks = 0
        self._js = js
        self._stream = stream
        self._subject = subject
        self._chunk_size = chunk_size
        self._window = max(1, min(WINDOW_CHUNKS, WINDOW_BYTES // chunk_size))
        self._hash = hashlib.sha256()
        self._last_sequence = 0
        self._was_resumed = False
        self._unacked: deque[tuple[bytes, PendingRequest]] = deque()

    @property
    def digest(self) -> bytes:
        """The SHA-256 sum of everything that was written."""
        return self._hash.digest()

    async def write(self, source: ObjectSource, progress: Progress | None) -> None:
        """Write everything that the source gives, and wait until it is stored."""
        total = _size_of(source)
        watchers = self._js.connection._link_watchers
        watchers.add(self._on_link)
        try:
            async for chunk in _chunks(source, self._chunk_size):
                await self._send(chunk)
                if progress is not None:
                    result = progress(self.size, total)
                    if inspect.isawaitable(result):
                        await result
            while self._unacked:
                await self._wait_oldest()
        finally:
            watchers.discard(self._on_link)
        if self._was_resumed:
            await self._check_count()

    async def abandon(self, seconds: float) -> None:
        """Remove what was written. Chunks on their way are waited for: they would come later."""
        connection = self._js.connection
        try:
            async with asyncio.timeout(seconds):
                if self._unacked:
                    await asyncio.wait({question.future for _, question in self._unacked})
                await self._js.manager.streams.purge(self._stream, filter=self._subject)
        except (ClientError, TimeoutError):
            return  # no object has these chunks; the caller raises why they were given up
        finally:
            for _, question in self._unacked:
                connection.replies.forget(question)

    async def _send(self, chunk: bytes) -> None:
        while len(self._unacked) >= self._window:
            await self._wait_oldest()
        self._hash.update(chunk)
        self.size += len(chunk)
        self.chunks += 1
        connection = self._js.connection
        question = connection.replies.ask(self._subject, chunk, None, self._js.api.timeout)
        self._unacked.append((chunk, question))
        if connection.is_crowded:
            await connection.wait_for_room()

    def _on_link(self) -> None:
        """The connection was lost: acknowledgements that were on their way will not come."""
        if not self._js.connection.is_connected:
            for _, question in self._unacked:
                if not question.future.done():
                    question.future.set_exception(DisconnectedError("the connection was lost"))
                    question.future.exception()  # no warning if the upload was cancelled

    async def _wait_oldest(self) -> None:
        """Wait until the oldest chunk is stored."""
        future = self._unacked[0][1].future
        await asyncio.wait((future,))  # which, unlike awaiting it, never cancels it
        try:
            message = future.result()
        except (OperationTimeoutError, DisconnectedError):
            await self._resume()
            return
        if message.status == NO_RESPONDERS:
            await self._resume()
            return
        self._last_sequence = decode_answer(message.data, PubAck).seq
        self._unacked.popleft()

    async def _resume(self) -> None:
        """Store all chunks again that are not known to be stored."""
        self._was_resumed = True
        for _, question in self._unacked:
            self._js.connection.replies.forget(question)
        loop = asyncio.get_running_loop()
        while self._unacked:
            deadline = loop.time() + PATIENCE_SECONDS
            while not await self._store_again(self._unacked[0][0]):
                if loop.time() > deadline:
                    raise UploadError(
                        f"the server did not come back within {PATIENCE_SECONDS:g} s; nothing of "
                        "the object was kept"
                    )
                await asyncio.sleep(RETRY_WAIT)
            self._unacked.popleft()

    async def _store_again(self, chunk: bytes) -> bool:
        """Store one chunk after the last that is known; False if the server is not there."""
        try:
            await self._js.connection.wait_connected()
            while True:
                try:
                    ack = await self._js.publish(
                        self._subject, chunk, expect_last_subject_sequence=self._last_sequence
                    )
                except StreamWrongLastSequenceError as error:
                    await self._remove_late(int(error.description.rpartition(" ")[2]))
                else:
                    self._last_sequence = ack.seq
                    return True
        except JetStreamUnavailableError:
            await self._check_stream()
            return False
        except _LOST:
            return False

    async def _check_stream(self) -> None:
        """Called when no stream stores a chunk; StreamNotFoundError if waiting will not help."""
        try:
            await self._js.manager.streams.info(self._stream)
        except (JetStreamUnavailableError, *_LOST):
            return

    async def _remove_late(self, sequence: int) -> None:
        """Remove a chunk that was believed lost, and arrived."""
        if sequence < self._last_sequence:
            raise UploadError("the server has lost chunks that it had stored: put the object again")
        try:
            await self._js.manager.streams.delete_message(self._stream, sequence, erase=False)
        except (NoMessageFoundError, SequenceNotFoundError):
            return

    async def _check_count(self) -> None:
        """A chunk that arrived even later than that would be one too many."""
        info = await self._js.manager.streams.info(self._stream, subjects_filter=self._subject)
        stored = info.state.subjects.get(self._subject, 0)
        if stored != self.chunks:
            raise UploadError(
                f"the stream holds {stored} chunks instead of {self.chunks} after a lost "
                "connection: put the object again"
            )


async def _chunks(source: ObjectSource, size: int) -> AsyncIterator[bytes]:
    """The source in pieces of this size; the last may be smaller."""
    if isinstance(source, str):
        source = source.encode()
    if isinstance(source, bytes | bytearray | memoryview):
        view = memoryview(source).cast("B")
        for start in range(0, len(view), size):
            yield bytes(view[start : start + size])
        return
    rest = bytearray()
    async for piece in _pieces(source):
        rest += piece
        start = 0
        while len(rest) - start >= size:
            yield bytes(rest[start : start + size])
            start += size
        del rest[:start]
    if rest:
        yield bytes(rest)


async def _pieces(source: Any) -> AsyncIterator[bytes]:
    """The pieces of a file or iterator, as they come; reads that may block run in a thread."""
    if isinstance(source, PathLike):
        file = await asyncio.to_thread(open, source, "rb")
        try:
            async for piece in _pieces(file):
                yield piece
        finally:
            file.close()
    elif hasattr(source, "read"):
        asynchronous = inspect.iscoroutinefunction(source.read)
        # None, of a file that does not block, is not its end but an error.
        while piece := _bytes(
            await source.read(READ_BYTES)
            if asynchronous
            else await asyncio.to_thread(source.read, READ_BYTES)
        ):
            yield piece
    elif hasattr(source, "__aiter__"):
        async for piece in source:
            yield _bytes(piece)
    elif hasattr(source, "__iter__"):
        iterator = iter(source)
        while piece := await asyncio.to_thread(_gather, iterator):
            yield piece
    else:
        raise TypeError(
            f"an object is made of bytes, text, a Path, a binary file or an iterator of bytes, not "
            f"of {type(source).__name__}"
        )


def _gather(iterator: Iterator[bytes]) -> bytes:
    """The next items, many at a time if they are small: each change of threads has its price."""
    gathered = bytearray()
    for item in iterator:
        gathered += _bytes(item)
        if len(gathered) >= GATHERED_BYTES:
            break
    return bytes(gathered)


def _bytes(piece: Any) -> bytes:
    if not isinstance(piece, bytes | bytearray | memoryview):
        raise TypeError(f"an object is made of bytes, its source returned {type(piece).__name__}")
    return bytes(piece)


def _size_of(source: ObjectSource) -> int | None:
    """How many bytes a source will give, if that is known."""
    if isinstance(source, str):
        return len(source.encode())
    if isinstance(source, bytes | bytearray | memoryview):
        return memoryview(source).nbytes
    if isinstance(source, PathLike):
        return Path(source).stat().st_size
    if isinstance(source, io.BytesIO):
        return source.getbuffer().nbytes - source.tell()
    return None
