"""Reads an object in chunks, into memory or a file, and verifies its SHA-256 digest.

Owns the reading position. Chunks are requested in batches of a few MiB, so memory stays constant,
and reading continues after a server restart.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from tradewind.client.errors import DamagedObjectError
from tradewind.client.objects.object_types import ObjectInfo, is_same_digest
from tradewind.client.streams.direct import read_batch

if TYPE_CHECKING:
    from tradewind.client.jetstream import JetStream
    from tradewind.client.objects.object_upload import Progress


class ObjectReader:
    """The content of an object: an async iterator over its chunks. Made by `ObjectStore.get`.

    >>> reader = await store.get("film.mp4")
    >>> async for chunk in reader:
    ...     player.feed(chunk)

    `info` describes it. DamagedObjectError ends the iteration if the content is not what was put.
    """

    info: ObjectInfo

    def __init__(self, js: JetStream, stream: str, subject: str, info: ObjectInfo) -> None:
        self.info = info
        self._js = js
        self._stream = stream
        self._subject = subject
        self._next_sequence = 1
        self._hash = hashlib.sha256()
        self._size = 0
        self._chunks = 0
        self._ready: list[bytes] = []  # the next chunk is the last
        self._is_checked = False

    async def read(self) -> bytes:
        """Read the rest of the content at once; for objects that fit into memory."""
        parts = []
        while some := await self._take():
            parts += some
        return b"".join(parts)

    async def save(
        self, target: PathLike[str] | str | BinaryIO, *, progress: Progress | None = None
    ) -> ObjectInfo:
        """Write the rest of the content to a path or a binary file.

        A path gets its name when the content is complete and verified; until then the file is named
        `<name>.part`. `progress` is called with the bytes so far and the total.
        """
        if not isinstance(target, str | PathLike):
            await self._write(target, progress)
            return self.info
        path = Path(target)
        part = path.with_name(f"{path.name}.part")
        try:
            with await asyncio.to_thread(part.open, "wb") as file:
                await self._write(file, progress)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        return self.info

    async def take_some(self, count_max: int) -> list[bytes]:
        """Read up to `count_max` chunks; an empty list at the end."""
        chunks = await self._take()
        self._ready = chunks[count_max:][::-1]
        return chunks[:count_max]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if not self._ready:
            self._ready = (await self._take())[::-1]
            if not self._ready:
                raise StopAsyncIteration
        return self._ready.pop()

    def __repr__(self) -> str:
        return f"ObjectReader({self.info.name!r}, {self.info.size} bytes)"

    async def _write(self, file: Any, progress: Progress | None) -> None:
        asynchronous = inspect.iscoroutinefunction(file.write)
        done = 0
        while chunks := await self._take():
            data = b"".join(chunks)
            await (file.write(data) if asynchronous else asyncio.to_thread(file.write, data))
            done += len(data)
            if progress is not None:
                result = progress(done, self.info.size)
                if inspect.isawaitable(result):
                    await result

    async def _take(self) -> list[bytes]:
        """The chunks that are next; empty at the end, when all of it is checked."""
        if self._ready:
            chunks, self._ready = self._ready[::-1], []
            return chunks
        if self._chunks >= self.info.chunks:
            self._check()
            return []
        batch = await read_batch(
            self._js.api, self._stream, self._subject, start=self._next_sequence
        )
        chunks = [item.message.data for item in batch.messages]
        if not chunks:
            raise DamagedObjectError(
                f"object {self.info.name!r}: {self._chunks} of {self.info.chunks} chunks "
                "exist; it may have been replaced or deleted in the meantime"
            )
        self._next_sequence = batch.messages[-1].sequence + 1
        self._chunks += len(chunks)
        for chunk in chunks:
            self._hash.update(chunk)
            self._size += len(chunk)
        if self._chunks >= self.info.chunks:
            self._check()
        return chunks

    def _check(self) -> None:
        if self._is_checked:
            return
        info = self.info
        if self._size != info.size or self._chunks != info.chunks:
            raise DamagedObjectError(
                f"object {info.name!r}: {self._size} bytes in {self._chunks} chunks instead of "
                f"{info.size} in {info.chunks}"
            )
        if not is_same_digest(info.digest, self._hash.digest()):
            raise DamagedObjectError(
                f"object {info.name!r}: its SHA-256 sum is not {info.digest}; put it again"
            )
        self._is_checked = True
