"""An object store: files of any size in a stream, stored in chunks, each with a description.

Owns names, descriptions and links, with the conventions of all NATS clients; the chunks are written
by `object_upload.py` and read by `object_download.py`.

    $O.<bucket>.C.<nuid>          the chunks of one object, in order
    $O.<bucket>.M.<base64 name>   its description, always the last message only

An object appears when its description is stored, after its last chunk. It is never visible in part.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.api.names import OBJECT_STREAM, OBJECT_SUBJECTS
from tradewind.api.stream_types import StreamInfo
from tradewind.api.times import format_time
from tradewind.client.api_errors import (
    NoMessageFoundError,
    StreamNotFoundError,
    StreamWrongLastSequenceError,
)
from tradewind.client.core.message import Msg
from tradewind.client.core.openings import opening
from tradewind.client.core.replies import nuid
from tradewind.client.errors import (
    BucketNotFoundError,
    JetStreamUnavailableError,
    ObjectExistsError,
    ObjectLinkError,
    ObjectNotFoundError,
    OptionsError,
)
from tradewind.client.kv.watch import Watcher, open_messages
from tradewind.client.objects.object_download import ObjectReader
from tradewind.client.objects.object_types import (
    CHUNK_BYTES,
    ObjectInfo,
    ObjectLink,
    ObjectOptions,
    ObjectStoreStatus,
    decode_info,
    encode_digest,
    encode_info,
    encode_name,
)
from tradewind.client.objects.object_upload import ObjectSource, Progress, Upload
from tradewind.client.streams.direct import read_messages

if TYPE_CHECKING:
    from tradewind.client.jetstream import JetStream

CLEANUP_SECONDS: Final = 5.0
STORE_ATTEMPTS: Final = 10

HeaderLists = Mapping[str, str | list[str]]


class ObjectStore:
    """A store of objects; made by `js.objects.create` or `js.objects.open`.

    >>> store = await js.objects.create("films")
    >>> await store.put("film.mp4", Path("film.mp4"))
    >>> reader = await store.get("film.mp4")
    >>> await reader.save("copy.mp4")
    """

    bucket: str
    stream: str

    def __init__(self, js: JetStream, info: StreamInfo) -> None:
        self.stream = info.config.name
        self.bucket = info.config.name.removeprefix(OBJECT_STREAM)
        self._js = js

    def __repr__(self) -> str:
        return f"ObjectStore({self.bucket!r})"

    # ------------------------------------------------------------------ reading

    async def get(self, name: str) -> ObjectReader | None:
        """Open an object for reading; None if there is none. Links are followed."""
        info = await self.info(name)
        if info is None:
            return None
        if info.link is not None:
            return await self._follow(name, info.link)
        subject = self._chunk_subject(info.nuid)
        return ObjectReader(self._js, self.stream, subject, info)

    async def info(self, name: str, *, deleted: bool = False) -> ObjectInfo | None:
        """Describe an object, or a link itself; None if there is none. A deleted object is
        described only with `deleted`.
        """
        found = await self._load(name)
        if found is None or (found[0].deleted and not deleted):
            return None
        return found[0]

    async def list(self, *, deleted: bool = False) -> AsyncIterator[ObjectInfo]:
        """Describe all objects; deleted ones only with `deleted`."""
        async for item in read_messages(
            self._js.api, self.stream, f"{OBJECT_SUBJECTS}{self.bucket}.M.>"
        ):
            info = decode_info(item.message.data, item.time)
            if deleted or not info.deleted:
                yield info

    @opening
    async def watch(
        self, *, updates_only: bool = False, ignore_deletes: bool = False
    ) -> Watcher[ObjectInfo]:
        """Follow the objects: first the descriptions of all objects, then changes.

        With `updates_only`, only changes; `ignore_deletes` omits deleted objects.
        """
        try:
            messages = await open_messages(
                self._js,
                self.stream,
                [f"{OBJECT_SUBJECTS}{self.bucket}.M.>"],
                history=False,
                updates_only=updates_only,
                from_revision=0,
                headers_only=False,
            )
        except StreamNotFoundError:
            raise self._gone() from None

        def decode(message: Msg) -> ObjectInfo | None:
            info = decode_info(message.data, format_time(message.metadata.timestamp_ns))
            return None if ignore_deletes and info.deleted else info

        return Watcher(messages, decode, has_initial=not updates_only)

    async def status(self) -> ObjectStoreStatus:
        """The size, settings and state of the store."""
        return ObjectStoreStatus(await self._stream_info())

    # ------------------------------------------------------------------ writing

    async def put(
        self,
        name: str,
        source: ObjectSource,
        *,
        description: str = "",
        headers: HeaderLists | None = None,
        metadata: Mapping[str, str] | None = None,
        chunk_size: int = CHUNK_BYTES,
        progress: Progress | None = None,
    ) -> ObjectInfo:
        """Store an object, replacing one of the same name; returns its description.

        `source` is bytes, text, a `Path`, an open binary file, or an iterator of bytes, which may
        be async. `progress` is called after each chunk with the bytes so far and the total (None if
        unknown). If the upload fails or is cancelled, nothing is left behind.
        """
        _check_name(name)
        if chunk_size < 1:
            raise OptionsError(f"chunk_size: at least 1 byte, not {chunk_size}")
        object_id = nuid.next()
        subject = self._chunk_subject(object_id)
        upload = Upload(self._js, self.stream, subject, chunk_size)
        try:
            await upload.write(source, progress)
            info = ObjectInfo(
                name=name,
                description=description,
                headers=_header_lists(headers),
                metadata=dict(metadata or {}),
                options=ObjectOptions(max_chunk_size=chunk_size),
                bucket=self.bucket,
                nuid=object_id,
                size=upload.size,
                chunks=upload.chunks,
                digest=encode_digest(upload.digest),
            )
            old = await self._replace(info)
        except StreamNotFoundError:
            raise self._gone() from None
        except BaseException:
            await upload.abandon(CLEANUP_SECONDS)
            raise
        if old is not None and old.nuid and not old.deleted:
            await self._purge(self._chunk_subject(old.nuid))
        return _stored_now(info)

    async def put_file(
        self,
        path: PathLike[str] | str,
        name: str = "",
        *,
        chunk_size: int = CHUNK_BYTES,
        progress: Progress | None = None,
    ) -> ObjectInfo:
        """Store a file under a name, by default its own without the folder."""
        file = Path(path)
        return await self.put(name or file.name, file, chunk_size=chunk_size, progress=progress)

    async def delete(self, name: str) -> None:
        """Delete an object; ObjectNotFoundError if there is none."""
        info = await self._must_exist(name)
        gone = msgspec.structs.replace(info, deleted=True, size=0, chunks=0, digest="")
        old = await self._replace(gone)
        for nuids in {info.nuid, old.nuid if old else ""} - {""}:
            await self._purge(self._chunk_subject(nuids))

    async def update(
        self,
        name: str,
        *,
        new_name: str = "",
        description: str | None = None,
        headers: HeaderLists | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        """Change the description of an object or link; arguments that are not given leave it as it
        is. ObjectExistsError if there is an object with the new name.
        """
        info = await self._must_exist(name)
        changed = msgspec.structs.replace(
            info,
            name=new_name or name,
            description=info.description if description is None else description,
            headers=info.headers if headers is None else _header_lists(headers),
            metadata=info.metadata if metadata is None else dict(metadata),
        )
        if changed.name == name:
            await self._replace(changed)
            return _stored_now(changed)
        _check_name(changed.name)
        await self._check_free(changed.name)
        await self._replace(changed)
        await self._purge(self._info_subject(name))
        return _stored_now(changed)

    async def link(self, name: str, target: ObjectInfo) -> ObjectInfo:
        """Create a link to an object of this or another store; `get` follows it."""
        if target.deleted:
            raise ObjectLinkError(f"link {name!r}: object {target.name!r} is deleted")
        if target.link is not None:
            raise ObjectLinkError(f"link {name!r}: {target.name!r} is a link itself")
        return await self._link(name, ObjectLink(bucket=target.bucket, name=target.name))

    async def link_bucket(self, name: str, bucket: ObjectStore | str) -> ObjectInfo:
        """Create a link to a whole store."""
        return await self._link(
            name, ObjectLink(bucket=bucket if isinstance(bucket, str) else bucket.bucket)
        )

    async def seal(self) -> ObjectStoreStatus:
        """Make the store read-only, permanently."""
        try:
            info = await self._js.manager.streams.update(self.stream, sealed=True)
        except StreamNotFoundError:
            raise self._gone() from None
        return ObjectStoreStatus(info)

    async def destroy(self) -> None:
        """Delete the store with all its objects."""
        try:
            await self._js.manager.streams.delete(self.stream)
        except StreamNotFoundError:
            raise self._gone() from None

    # ------------------------------------------------------------------ inside

    def _chunk_subject(self, object_id: str) -> str:
        return f"{OBJECT_SUBJECTS}{self.bucket}.C.{object_id}"

    def _info_subject(self, name: str) -> str:
        return f"{OBJECT_SUBJECTS}{self.bucket}.M.{encode_name(name)}"

    async def _load(self, name: str) -> tuple[ObjectInfo, int] | None:
        """The last description under a name, and its sequence."""
        _check_name(name)
        try:
            found = await self._js.manager.streams.get_message(
                self.stream, last_by_subject=self._info_subject(name)
            )
        except NoMessageFoundError:
            return None
        except StreamNotFoundError:
            raise self._gone() from None
        return decode_info(found.data, format_time(found.time_ns)), found.seq

    async def _replace(self, info: ObjectInfo) -> ObjectInfo | None:
        """Store a description and give the one that it replaced.

        It names the sequence of that one: of two who replace it at once, one sees the other.
        """
        for _ in range(STORE_ATTEMPTS):
            found = await self._load(info.name)
            old, sequence = found or (None, 0)
            try:
                await self._js.publish(
                    self._info_subject(info.name),
                    encode_info(info),
                    rollup="sub",
                    expect_last_subject_sequence=sequence,
                )
            except StreamWrongLastSequenceError:
                continue
            except JetStreamUnavailableError:
                raise self._gone() from None
            return old
        raise ObjectExistsError(
            f"object {info.name!r}: other clients keep replacing it; gave up after"
            f" {STORE_ATTEMPTS} attempts"
        )

    async def _must_exist(self, name: str) -> ObjectInfo:
        info = await self.info(name)
        if info is None:
            raise ObjectNotFoundError(f"store {self.bucket!r} has no object {name!r}")
        return info

    async def _check_free(self, name: str) -> None:
        if await self.info(name) is not None:
            raise ObjectExistsError(f"store {self.bucket!r} already has an object {name!r}")

    async def _link(self, name: str, link: ObjectLink) -> ObjectInfo:
        old = await self.info(name)
        if old is not None and old.link is None:
            raise ObjectExistsError(
                f"store {self.bucket!r} has an object {name!r}: a link would hide it"
            )
        options = ObjectOptions(link=link)
        info = ObjectInfo(name=name, options=options, bucket=self.bucket, nuid=nuid.next())
        await self._replace(info)
        return _stored_now(info)

    async def _follow(self, name: str, link: ObjectLink) -> ObjectReader | None:
        if not link.name:
            raise ObjectLinkError(
                f"{name!r} is a link to the store {link.bucket!r}: open that store to get it"
            )
        store = self if link.bucket == self.bucket else await self._js.objects.open(link.bucket)
        target = await store.info(link.name)
        if target is not None and target.link is not None:
            raise ObjectLinkError(f"link {name!r} leads to {link.name!r}, which is a link itself")
        return await store.get(link.name)

    async def _purge(self, subject: str) -> None:
        await self._js.manager.streams.purge(self.stream, filter=subject)

    async def _stream_info(self) -> StreamInfo:
        try:
            return await self._js.manager.streams.info(self.stream)
        except StreamNotFoundError:
            raise self._gone() from None

    def _gone(self) -> BucketNotFoundError:
        return BucketNotFoundError(
            f"store {self.bucket!r}: its stream {self.stream} does not answer; it was removed, or "
            "the account or domain is wrong"
        )


def _check_name(name: str) -> None:
    if not name:
        raise OptionsError("an object needs a name")


def _stored_now(info: ObjectInfo) -> ObjectInfo:
    """The description with a time; the server's own is in what `info` returns later."""
    return msgspec.structs.replace(info, mtime=format_time(time.time_ns()))


def _header_lists(headers: HeaderLists | None) -> dict[str, list[str]]:
    return {
        name: [value] if isinstance(value, str) else [*value]
        for name, value in (headers or {}).items()
    }
