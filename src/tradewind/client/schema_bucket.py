"""The schemas of payloads in a bucket: `js.schemas`, and the check before a publish.

Owns adding versions so that two writers never make the same one, and a copy of the bucket that
follows its changes. Any NATS server can keep the bucket, since only clients and a Tradewind server
look at the documents. The rules of schemas and of their versions are in `tradewind.schemas`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tradewind.client.core.headers import Headers
from tradewind.client.core.payloads import payload_bytes
from tradewind.client.errors import (
    BucketNotFoundError,
    ClientError,
    KeyExistsError,
    SchemaExistsError,
    SchemaNotFoundError,
    SchemaViolationError,
)
from tradewind.schemas.compatibility import check_compatible
from tradewind.schemas.payload_checks import open_check
from tradewind.schemas.payload_values import decode_value, encode_value
from tradewind.schemas.schema_documents import (
    BACKWARD,
    BUCKET,
    HEADER,
    VERSION_NUMBER_MAX,
    SchemaVersion,
    check_document,
    check_name,
    document_bytes,
    key_of,
)
from tradewind.schemas.schema_errors import SchemaError
from tradewind.schemas.schema_table import Outcome, SchemaTable

if TYPE_CHECKING:
    from tradewind.client.connection import HeaderInput, Payload
    from tradewind.client.jetstream import JetStream
    from tradewind.client.kv.entries import Entry
    from tradewind.client.kv.kv import KeyValue
    from tradewind.client.kv.watch import Watcher

# Between attempts to follow the bucket again.
RETRY_SECONDS: Final = 1.0
_NAMED: Final = b"\r\n%s:" % HEADER.encode()


class Schemas:
    """The schemas of payloads in an account. Made by `JetStream.schemas`.

    >>> await js.schemas.add("order", {"type": "object"}, subject="orders.*")
    >>> await js.schemas.evolve("order", {"type": "object", "required": []})
    """

    def __init__(self, js: JetStream) -> None:
        self._js = js

    async def add(
        self,
        name: str,
        schema: Any,
        *,
        subject: str,
        format: str = "json",  # noqa: A002 - the word of the documents
        message: str = "",
        compatibility: str = BACKWARD,
        description: str = "",
    ) -> SchemaVersion:
        """Add the first version of a schema; the bucket is made if there is none.

        `format` is "json" (JSON Schema), "avro" or "protobuf"; a Protobuf schema is a descriptor
        set in base64, and `message` its type. `compatibility` is "backward", "forward", "full" or
        "none". SchemaExistsError if there is a schema of this name.
        """
        check_name(name)
        document = SchemaVersion(
            subject=subject,
            format=format,
            version=1,
            schema=_as_json(schema),
            message=message,
            compatibility=compatibility,
            description=description,
        )
        _check(name, document)
        bucket = await self._made_bucket()
        if (await _table_of(bucket, f"{name}.*")).names:
            raise SchemaExistsError(f"schema {name!r} exists: add a version with evolve")
        await self._store(bucket, name, document)
        return document

    async def evolve(
        self,
        name: str,
        schema: Any,
        *,
        subject: str | None = None,
        format: str | None = None,  # noqa: A002 - the word of the documents
        message: str | None = None,
        compatibility: str | None = None,
        description: str | None = None,
        dry_run: bool = False,
    ) -> SchemaVersion:
        """Add a version; SchemaError if the newest one does not allow it.

        All else stays as it was. The rule is `compatibility` if given, which also is that
        of the next version. With `dry_run` nothing is stored.
        """
        bucket = await self._bucket()
        table = await _table_of(bucket, f"{name}.*")
        old = table.newest(name)
        if old is None:
            raise _missing(name)
        if table.unreadable:
            raise SchemaError(next(iter(table.unreadable.values())))
        if old.version == VERSION_NUMBER_MAX:
            raise SchemaError(f"schema {name}: at most {VERSION_NUMBER_MAX} versions")
        new = SchemaVersion(
            subject=old.subject if subject is None else subject,
            format=old.format if format is None else format,
            version=old.version + 1,
            schema=_as_json(schema),
            message=old.message if message is None else message,
            compatibility=old.compatibility if compatibility is None else compatibility,
            description=old.description if description is None else description,
        )
        _check(name, new)
        check_compatible(name, old, new, new.compatibility)
        if not dry_run:
            await self._store(bucket, name, new)
        return new

    async def get(self, name: str, version: int | None = None) -> SchemaVersion:
        """A version of a schema, or the newest one; SchemaNotFoundError if there is none."""
        versions = (await _table_of(await self._bucket(), f"{name}.*")).versions(name)
        if not versions:
            raise _missing(name)
        if version is None:
            return versions[max(versions)]
        if version not in versions:
            known = ", ".join(map(str, versions))
            raise SchemaNotFoundError(f"schema {name!r} has no version {version}; it has {known}")
        return versions[version]

    async def list(self) -> dict[str, list[SchemaVersion]]:
        """All schemas by name, with their versions in order."""
        try:
            table = await _table_of(await self._bucket(), ">")
        except BucketNotFoundError:
            return {}
        return {name: [*table.versions(name).values()] for name in table.names}

    async def check(self, name: str, payload: Payload, *, version: int | None = None) -> None:
        """SchemaViolationError unless a payload obeys a version, or the newest one."""
        document = await self.get(name, version)
        problem = open_check(document).problem(payload_bytes(payload))
        if problem:
            raise SchemaViolationError(document.subject, key_of(name, document.version), problem)

    async def encode(self, name: str, value: Any, *, version: int | None = None) -> bytes:
        """The payload of a value, in the format of the schema and checked against it."""
        document = await self.get(name, version)
        payload = encode_value(document, value)
        if problem := open_check(document).problem(payload):
            raise SchemaViolationError(document.subject, key_of(name, document.version), problem)
        return payload

    async def decode(self, name: str, payload: bytes, *, version: int | None = None) -> Any:
        """The value of a payload: dicts, lists, texts and numbers."""
        return decode_value(await self.get(name, version), payload)

    async def remove(self, name: str, version: int | None = None) -> int:
        """Remove a schema, or one of its versions; returns how many versions are gone.

        The next version of a schema that is gone as a whole is 1 again.
        """
        bucket = await self._bucket()
        keys = [key async for key in bucket.keys(f"{name}.*")]
        chosen = keys if version is None else [key for key in keys if key == key_of(name, version)]
        if not chosen:
            raise _missing(name if version is None else key_of(name, version))
        for key in chosen:
            await bucket.purge(key)
        return len(chosen)

    async def follow(self) -> SchemaFollower:
        """A copy of all schemas that follows the bucket; see `JetStream.use_schemas`."""
        follower = SchemaFollower(self._js)
        await follower.start()
        return follower

    # ------------------------------------------------------------------ inside

    async def _bucket(self) -> KeyValue:
        try:
            return await self._js.kv.open(BUCKET)
        except BucketNotFoundError:
            raise BucketNotFoundError(
                f"bucket {BUCKET} does not exist: add a schema first (tradewind schema add)"
            ) from None

    async def _made_bucket(self) -> KeyValue:
        with suppress(BucketNotFoundError):
            return await self._js.kv.open(BUCKET)
        return await self._js.kv.create(BUCKET, description="Schemas of payloads", history=1)

    async def _store(self, bucket: KeyValue, name: str, document: SchemaVersion) -> None:
        key = key_of(name, document.version)
        try:
            await bucket.create(key, document_bytes(key, document))
        except KeyExistsError:
            raise SchemaExistsError(
                f"schema {name!r} got version {document.version} from another client meanwhile:"
                " look at it, and try again"
            ) from None


class SchemaFollower:
    """All schemas of an account in memory. Made by `JetStream.use_schemas`; `stop` ends it.

    `unchecked` counts payloads whose schema was unusable; they were published all the same.
    """

    def __init__(self, js: JetStream) -> None:
        self._js = js
        self.table = SchemaTable()
        self.unchecked = 0
        self.checked = 0
        self._task: asyncio.Task[None] | None = None
        self._watcher: Watcher[Entry] | None = None

    async def start(self) -> None:
        """Read all schemas, and follow the bucket from then on."""
        bucket = await self._js.schemas._bucket()
        self._watcher = await bucket.watch()
        async for entry in self._watcher.initial():
            self._take(entry)
        self._task = asyncio.create_task(self._follow(), name="tradewind schemas")

    @property
    def is_current(self) -> bool:
        """Whether the bucket is being followed; otherwise its last known state counts."""
        return self._task is not None and not self._task.done() and self._watcher is not None

    def check(self, subject: str, payload: bytes, headers: HeaderInput | None = None) -> None:
        """SchemaViolationError unless a payload obeys the schema of a subject, if it has one."""
        if not payload and headers is not None and _is_key_operation(headers):
            return  # the marker of a deleted key
        named = _named_schema(headers) if headers is not None else ""
        verdict = self.table.check(subject, payload, named)
        self.checked += 1
        if verdict.outcome is Outcome.INVALID:
            raise SchemaViolationError(subject, verdict.schema, verdict.problem)
        self.unchecked += verdict.outcome is Outcome.BROKEN

    async def stop(self) -> None:
        """Check no more payloads."""
        if self._js.api.schemas is self:
            self._js.api.schemas = None
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        if self._watcher is not None:
            await self._watcher.stop()
            self._watcher = None

    async def __aenter__(self) -> SchemaFollower:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def _take(self, entry: Entry) -> None:
        self.table.apply(entry.key, None if entry.is_deleted else bytes(entry.value))

    async def _follow(self) -> None:
        """Follow the bucket; if it is gone, wait for another one."""
        while True:
            try:
                if self._watcher is None:
                    bucket = await self._js.schemas._bucket()
                    self._watcher = await bucket.watch()
                    fresh = [entry async for entry in self._watcher.initial()]
                    self.table.clear()
                    for entry in fresh:
                        self._take(entry)
                async for entry in self._watcher:
                    self._take(entry)
            except BucketNotFoundError:
                self.table.clear()
            except ClientError:
                if self._js.connection.is_closed:
                    return
            self._watcher = None
            if self._js.connection.is_closed:
                return
            await asyncio.sleep(RETRY_SECONDS)


def _is_key_operation(headers: HeaderInput) -> bool:
    if isinstance(headers, bytes):
        return b"\r\nKV-Operation:" in headers
    return "KV-Operation" in Headers(headers)


def _named_schema(headers: HeaderInput) -> str:
    """The version that a message names."""
    if isinstance(headers, bytes):
        _, found, rest = headers.partition(_NAMED)
        return rest.partition(b"\r")[0].decode("utf-8", "replace").strip() if found else ""
    return Headers(headers).get(HEADER) or ""


async def _table_of(bucket: KeyValue, pattern: str) -> SchemaTable:
    table = SchemaTable()
    async with bucket.watch(pattern, ignore_deletes=True) as watcher:
        async for entry in watcher.initial():
            table.apply(entry.key, bytes(entry.value))
    return table


def _check(name: str, document: SchemaVersion) -> None:
    """SchemaError unless a document can be used."""
    check_document(name, document)
    try:
        open_check(document)
    except SchemaError as error:
        raise SchemaError(f"schema {name}: {error}") from None


def _as_json(schema: Any) -> Any:
    """A schema as it will be read again: nothing that JSON does not have."""
    try:
        return msgspec.json.decode(msgspec.json.encode(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise SchemaError(f"the schema cannot be written as JSON: {error}") from None


def _missing(name: str) -> SchemaNotFoundError:
    return SchemaNotFoundError(f"schema {name!r} does not exist: see `tradewind schema ls`")
