"""A key-value bucket: a stream in which the last message of a subject is the value of a key.

Owns the operations on keys, with the conventions of all NATS clients; creating and listing buckets
is in `bucket_manager.py`, watching changes in `watch.py`. A call never returns before the server
has acknowledged the change.

    put        message on $KV.<bucket>.<key>; with a ttl also Nats-TTL and Nats-Rollup: sub, so that
               no older value comes back when this one expires
    delete     empty message with KV-Operation: DEL; the history stays
    purge      empty message with KV-Operation: PURGE and Nats-Rollup: sub; the history goes
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.api.errors import MESSAGE_TTL_DISABLED
from tradewind.api.names import KV_STREAM, KV_SUBJECTS
from tradewind.api.stream_types import StreamInfo
from tradewind.api.times import ZERO_TIME, parse_time
from tradewind.client.api_errors import (
    JetStreamApiError,
    MessageTtlDisabledError,
    NoMessageFoundError,
    StreamNotFoundError,
    StreamWrongLastSequenceConstantError,
    StreamWrongLastSequenceError,
)
from tradewind.client.core.duration_input import DurationInput, duration_ns
from tradewind.client.core.message import Msg
from tradewind.client.core.openings import opening
from tradewind.client.errors import (
    BadAnswerError,
    BucketNotFoundError,
    JetStreamUnavailableError,
    KeyExistsError,
    NoRespondersError,
    OperationTimeoutError,
    OptionsError,
    WrongRevisionError,
)
from tradewind.client.kv.atomic_changes import (
    Change,
    compare_and_set,
    increment,
    modify,
    touch,
    value_of,
)
from tradewind.client.kv.entries import (
    Entry,
    ack_sequence,
    check_key,
    entry_from_delivery,
    entry_from_direct,
)
from tradewind.client.kv.kv_types import (
    KEEP_TTL,
    OPERATION,
    TTL_HEADER,
    KvStatus,
    Operation,
    check_filter,
    operation_of,
)
from tradewind.client.kv.locks import LOCK_SECONDS, KeyLock
from tradewind.client.kv.renewals import Renewals
from tradewind.client.kv.watch import Watcher, open_messages
from tradewind.client.streams.api_requests import RESEND_SECONDS, LeaderWait
from tradewind.durations import SECOND_NS
from tradewind.status_codes import NO_RESPONDERS, NOT_FOUND

if TYPE_CHECKING:
    from tradewind.client.connection import Payload
    from tradewind.client.jetstream import JetStream, PublishOptions
    from tradewind.client.kv.codecs import KeyCodec, ValueCodec
    from tradewind.client.kv.coded import CodedKeyValue

API_PREFIX: Final = "$JS.API."
MARKER_SECONDS: Final = 30 * 60.0
# A server removes what has expired in rounds: the pause between looks at an expired value.
EXPIRING_SECONDS: Final = 0.1
_WRONG_REVISION = (StreamWrongLastSequenceError, StreamWrongLastSequenceConstantError)


class KeyValue:
    """A bucket of keys and values; made by `js.kv.create` or `js.kv.open`.

    >>> bucket = await js.kv.create("prices", history=5)
    >>> revision = await bucket.put("fruit.pear", b"0.40")
    >>> entry = await bucket.get("fruit.pear")

    Keys are letters, digits and `-/_=`, in parts joined by dots. Values are bytes or text.
    """

    bucket: str
    stream: str

    def __init__(self, js: JetStream, info: StreamInfo) -> None:
        config = info.config
        self.stream = config.name
        self.bucket = config.name.removeprefix(KV_STREAM)
        self._js = js
        self._direct = config.allow_direct
        api = js.api
        origin = self.bucket
        put_prefix = "" if api.prefix == API_PREFIX else api.prefix
        if (mirror := config.mirror) is not None:
            # A mirror keeps the subjects of its origin, and what is written goes there.
            origin = mirror.name.removeprefix(KV_STREAM)
            if mirror.external is not None and mirror.external.api:
                put_prefix = mirror.external.api.rstrip(".") + "."
        self._prefix = f"{KV_SUBJECTS}{origin}."
        self._put_prefix = put_prefix + self._prefix
        self._get_prefix = f"{api.prefix}DIRECT.GET.{self.stream}.{self._prefix}"
        self._seconds = api.timeout
        # A mirror does not know what its origin allows.
        self._allows_ttl = config.allow_msg_ttl or config.mirror is not None
        self._renewals = Renewals()

    def __repr__(self) -> str:
        return f"KeyValue({self.bucket!r})"

    # ------------------------------------------------------------------ reading

    async def get(
        self, key: str, *, revision: int | None = None, renew: DurationInput | None = None
    ) -> Entry | None:
        """The last value of a key, or that of a revision; None if there is none or it is deleted.

        A revision of another key counts as none. With `renew` a value that expires lives that long
        from now on, which is written at most once per tenth of this time.
        """
        if renew is not None and revision is not None:
            raise OptionsError("renew and revision: use only one of them")
        entry = await self._load(key, revision)
        if entry is None or entry.is_deleted:
            return None
        if renew is None or entry.ttl_ns is None:
            return entry
        return await self._renewed(entry, renew)

    async def keys(self, *filters: str) -> AsyncIterator[str]:
        """Iterate over the keys that have a value: all keys, or those that match one of the
        patterns.

        >>> fruit = [key async for key in bucket.keys("fruit.*")]
        """
        async with self.watch(*filters, ignore_deletes=True, meta_only=True) as watcher:
            async for entry in watcher.initial():
                yield entry.key

    async def history(self, *filters: str, meta_only: bool = False) -> AsyncIterator[Entry]:
        """Iterate over all entries stored for these keys, oldest first, deletions included."""
        async with self.watch(*filters, history=True, meta_only=meta_only) as watcher:
            async for entry in watcher.initial():
                yield entry

    @opening
    async def watch(
        self,
        *filters: str,
        history: bool = False,
        updates_only: bool = False,
        ignore_deletes: bool = False,
        meta_only: bool = False,
        from_revision: int = 0,
    ) -> Watcher[Entry]:
        """Follow all keys, or those that match one of the patterns.

        The watch begins with the last entry of each key; with `history`, with all stored entries;
        with `updates_only`, with none; with `from_revision`, with those from that revision on.
        `ignore_deletes` omits deletion markers, `meta_only` omits values.

        >>> async with bucket.watch("fruit.>") as watcher:
        ...     async for entry in watcher:
        ...         print(entry.key, entry.operation, entry.value)
        """
        stored = [self._stored_filter(text) for text in filters]
        for text in stored:
            check_filter(text)
        if history + updates_only + (from_revision > 0) > 1:
            raise OptionsError("history, updates_only and from_revision: use only one of them")
        try:
            messages = await open_messages(
                self._js,
                self.stream,
                [self._prefix + text for text in stored or (">",)],
                history=history,
                updates_only=updates_only,
                from_revision=from_revision,
                headers_only=meta_only,
            )
        except StreamNotFoundError:
            raise self._gone() from None
        entry_of = self._entry_decoder()

        def decode(message: Msg) -> Entry | None:
            entry = entry_of(message)
            return None if ignore_deletes and entry.is_deleted else entry

        return Watcher(messages, decode, has_initial=not updates_only)

    async def status(self) -> KvStatus:
        """The size, settings and state of the bucket."""
        try:
            return KvStatus(await self._js.manager.streams.info(self.stream))
        except StreamNotFoundError:
            raise self._gone() from None

    # ------------------------------------------------------------------ writing

    async def put(self, key: str, value: Payload, *, ttl: DurationInput | None = None) -> int:
        """Set the value of a key; returns its revision.

        After `ttl` (at least 1 second) the key expires; the bucket must `allow_ttl`. A value that
        expires replaces the history of the key, so that no older value reappears.
        """
        check_key(key)
        if ttl is not None:
            return await self._publish(key, value, {}, await self._expiring(ttl))
        pending = self._js._publish_now(self._put_prefix + key, value)
        if pending is None:
            pending = await self._js.publish_async(self._put_prefix + key, value)
        pending.is_claimed = True
        await pending.known()
        answer = pending.answer
        if answer is not None and (sequence := ack_sequence(answer)) > 0:
            return sequence
        try:
            return (await pending).seq
        except JetStreamUnavailableError:
            raise self._gone() from None

    async def create(self, key: str, value: Payload, *, ttl: DurationInput | None = None) -> int:
        """Set the value of a key that has none; KeyExistsError if it has one. `ttl` as in `put`."""
        try:
            return await self._write(key, value, 0, ttl)
        except WrongRevisionError:
            last = await self._load(key, None)
            if last is not None and not last.is_deleted:
                raise KeyExistsError(
                    f"key {key!r} of bucket {self.bucket!r} has a value already, revision "
                    f"{last.revision}: use put or update to change it",
                    last.revision,
                ) from None
            if last is None:  # it was there a moment ago: another client is changing it
                raise
        return await self._write(key, value, last.revision, ttl)

    async def update(
        self, key: str, value: Payload, revision: int, *, ttl: DurationInput | None = None
    ) -> int:
        """Set the value if `revision` is the last revision of the key; WrongRevisionError if it is
        not. Revision 0 means that the key was never written.

        Without `ttl` the new value does not expire; with "keep" it expires when the old one would
        have; otherwise as in `put`.
        """
        if ttl == KEEP_TTL:
            ttl = await self._remaining(await self._load(key, revision) if revision else None)
        return await self._write(key, value, revision, ttl)

    async def touch(self, key: str, ttl: DurationInput) -> int:
        """Let the value of a key expire after `ttl` from now; the new revision.

        The value stays the same. KeyNotFoundError if the key has none.
        """
        return await touch(self, key, ttl)

    async def modify(
        self, key: str, change: Change, *, ttl: DurationInput | None = KEEP_TTL
    ) -> int | None:
        """Replace the value of a key by `change(value)`, atomically; the new revision.

        `change` gets None if the key has no value. It is called again if another client was faster,
        and returns None to leave the key as it is; then there is no new revision. The new value
        expires when the old one would have, unless there is another `ttl`.

        >>> await bucket.modify("basket.7", lambda old: (old or b"") + b" apples")
        """
        return await modify(self, key, change, ttl)

    async def compare_and_set(
        self,
        key: str,
        expected: bytes | None,
        value: Payload,
        *,
        ttl: DurationInput | None = None,
    ) -> bool:
        """Set the value if the present one is the expected one; whether it was.

        None expects that the key has no value. `ttl` as in `update`.
        """
        return await compare_and_set(self, key, expected, value, ttl)

    async def increment(
        self, key: str, by: int = 1, *, ttl: DurationInput | None = KEEP_TTL
    ) -> int:
        """Add to the whole number that a key holds as text, and return the result.

        A key without a value counts as 0. It expires when it would have, unless there is a `ttl`.
        BadNumberError if the value is no number of 64 bits.
        """
        return await increment(self, key, by, ttl)

    def lock(
        self,
        key: str,
        *,
        ttl: DurationInput = LOCK_SECONDS,
        timeout: float | None = None,
        owner: str = "",
    ) -> KeyLock:
        """A lock with the name of this key, to be used with `async with`.

        It is renewed while it is held, and free `ttl` after its holder is gone. LockTimeoutError if
        others hold it for `timeout` seconds. `owner` is shown to them.

        >>> async with bucket.lock("nightly-report") as lock:
        ...     await store_report(fencing_token=lock.token)
        """
        return KeyLock(self, key, ttl=ttl, timeout=timeout, owner=owner)

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        """Delete a key but keep its history. With `revision`, only if that is the last one."""
        await self._mark(key, {OPERATION: Operation.DELETE}, revision, {})

    async def purge(
        self, key: str, *, revision: int | None = None, ttl: DurationInput | None = None
    ) -> None:
        """Delete a key with its history. With `revision`, only if that is the last one.

        The marker is removed too after `ttl`; the bucket must `allow_ttl`.
        """
        options: PublishOptions = {"rollup": "sub"}
        if ttl is not None:
            options |= await self._expiring(ttl)
        await self._mark(key, {OPERATION: Operation.PURGE}, revision, options)

    async def purge_deletes(self, older_than: DurationInput = MARKER_SECONDS) -> int:
        """Remove the markers of deleted keys and their remaining history; returns how many.

        Markers newer than `older_than` (seconds or a timedelta) are kept, for clients that watch.
        """
        least_ns = duration_ns("older_than", older_than)
        async with self.watch(meta_only=True) as watcher:
            markers = [entry async for entry in watcher.initial() if entry.is_deleted]
        if not markers:
            return 0
        streams = self._js.manager.streams
        now_ns = await self._server_time_ns()
        removed = 0
        for marker in markers:
            is_old = now_ns - marker.created_ns >= least_ns
            removed += is_old
            # Up to the marker only: the key may have a new value by now.
            await streams.purge(
                self.stream,
                filter=self._prefix + self._stored_key(marker.key),
                seq=marker.revision + is_old,
            )
        return removed

    def with_codecs(
        self,
        *,
        keys: KeyCodec | Sequence[KeyCodec] = (),
        values: ValueCodec | Sequence[ValueCodec] = (),
    ) -> CodedKeyValue:
        """The same bucket for keys and values that are encoded; several codecs are a chain.

        >>> paths = bucket.with_codecs(keys=PathKeys())
        >>> await paths.put("/config/database/timeout", b"30")
        """
        from tradewind.client.kv.coded import CodedKeyValue

        key_codecs = keys if isinstance(keys, Sequence) else (keys,)
        value_codecs = values if isinstance(values, Sequence) else (values,)
        return CodedKeyValue(self, key_codecs, value_codecs)

    async def destroy(self) -> None:
        """Delete the bucket with all its values."""
        try:
            await self._js.manager.streams.delete(self.stream)
        except StreamNotFoundError:
            raise self._gone() from None

    # ------------------------------------------------------------------ inside

    def _stored_key(self, key: str) -> str:
        """The key in the stream, where it is not on the way of every message."""
        return key

    def _stored_filter(self, pattern: str) -> str:
        """The pattern of keys in the stream."""
        return pattern

    def _entry_decoder(self) -> Callable[[Msg], Entry]:
        """The function that makes the entries of a watch."""
        return partial(entry_from_delivery, self.bucket, len(self._prefix))

    async def _load(self, key: str, revision: int | None) -> Entry | None:
        """The last entry of a key or that of a revision, be it a value or a marker."""
        check_key(key)
        if not self._direct:
            return await self._load_from_leader(key, revision)
        if revision is None:
            subject, body = self._get_prefix + key, b""
        else:
            subject = self._js.api.subject("direct_get", self.stream)
            body = msgspec.json.encode({"seq": revision})
        if self._js.connection.info.cluster:
            message = await self._ask_cluster(subject, body)
        else:
            # As `Connection.request`, with one coroutine less on the way.
            replies = self._js.connection.replies
            question = replies.ask(subject, body, None, self._seconds)
            try:
                message = await question.future
            except BaseException:
                replies.forget(question)
                raise
        if status := message.status:
            if status == NOT_FOUND:
                return None
            if status == NO_RESPONDERS:
                raise self._gone()
            raise BadAnswerError(f"get {key!r}: the server says {status} {message.description}")
        return entry_from_direct(self.bucket, key, len(self._prefix), message)

    async def _ask_cluster(self, subject: str, body: bytes) -> Msg:
        """Ask whichever replica answers, and again after a while without an answer: a killed
        replica never answers, and perhaps none does while a leader is elected. NoLeaderError when
        the time is over.
        """
        wait = LeaderWait(self._js.api, self.stream)
        seconds = min(self._seconds, RESEND_SECONDS)
        while True:
            with suppress(NoRespondersError, OperationTimeoutError):
                return await self._js.connection.request(subject, body, timeout=seconds)
            await wait.pause()

    async def _load_from_leader(self, key: str, revision: int | None) -> Entry | None:
        """The same in a bucket that allows no direct gets."""
        streams = self._js.manager.streams
        subject = self._prefix + key
        try:
            if revision is None:
                found = await streams.get_message(self.stream, last_by_subject=subject)
            else:
                found = await streams.get_message(self.stream, seq=revision)
        except NoMessageFoundError:
            return None
        except StreamNotFoundError:
            raise self._gone() from None
        if found.subject != subject:
            return None
        operation = operation_of(found.headers)
        size = len(found.data)
        ttl_text = found.headers.get(TTL_HEADER)
        return Entry(
            self.bucket, key, found.data, found.seq, found.time_ns, operation, 0, size, ttl_text
        )

    async def _write(
        self,
        key: str,
        value: Payload,
        last: int,
        ttl: DurationInput | None,
        *,
        msg_id: str = "",
    ) -> int:
        check_key(key)
        options: PublishOptions = {"expect_last_subject_sequence": last}
        if msg_id:
            options["msg_id"] = msg_id
        if ttl is not None:
            options |= await self._expiring(ttl)
        return await self._publish(key, value, {}, options)

    async def _expiring(self, ttl: DurationInput) -> PublishOptions:
        """The options of a value that expires; an error if the bucket keeps values for ever."""
        if not self._allows_ttl:
            # An old server would ignore the header, and keep the value.
            try:
                info = await self._js.manager.streams.info(self.stream)
            except StreamNotFoundError:
                raise self._gone() from None
            if not info.config.allow_msg_ttl:
                kind = MESSAGE_TTL_DISABLED
                raise MessageTtlDisabledError(kind.code, kind.err_code, kind.text)
            self._allows_ttl = True
        if ttl == "never":
            return {"ttl": ttl}
        if duration_ns("ttl", ttl) < SECOND_NS:
            raise OptionsError(f"ttl must be at least 1 second, not {ttl!r}; numbers are seconds")
        return {"ttl": ttl, "rollup": "sub"}

    async def _remaining(self, entry: Entry | None) -> float | None:
        """The seconds until an entry expires, at least 1; None if it does not.

        No server takes less than a second, and more would prolong its life with each change: an
        entry with less is left to expire, and counts as changed by then.
        """
        if entry is None or (ttl_ns := entry.ttl_ns) is None or value_of(entry) is None:
            return None
        left_ns = entry.created_ns + ttl_ns - await self._server_time_ns()
        if left_ns >= SECOND_NS:
            return left_ns / SECOND_NS
        await asyncio.sleep(max(left_ns / SECOND_NS, EXPIRING_SECONDS))
        raise WrongRevisionError(
            f"key {entry.key!r} of bucket {self.bucket!r}: revision {entry.revision} has expired",
            None,
        )

    async def _renewed(self, entry: Entry, ttl: DurationInput) -> Entry | None:
        """The entry after a read renewed its time to live, if that was due."""
        age_ns = time.time_ns() - entry.created_ns
        ttl_ns = duration_ns("renew", ttl)
        if not self._renewals.begin_if_due(entry.key, ttl_ns, age_ns, time.monotonic()):
            return entry
        with suppress(WrongRevisionError):  # a newer value has a time to live of its own
            await self._write(entry.key, entry.value, entry.revision, ttl)
        return await self.get(entry.key)

    async def _server_time_ns(self) -> int:
        """The clock of the server; ours if the server is too old to say."""
        try:
            info = await self._js.manager.streams.info(self.stream)
        except StreamNotFoundError:
            raise self._gone() from None
        return time.time_ns() if info.ts == ZERO_TIME else parse_time(info.ts)

    async def _mark(
        self, key: str, headers: dict[str, str], revision: int | None, options: PublishOptions
    ) -> None:
        check_key(key)
        if revision is not None:
            options["expect_last_subject_sequence"] = revision
        await self._publish(key, b"", headers, options)

    async def _publish(
        self, key: str, value: Payload, headers: dict[str, str], options: PublishOptions
    ) -> int:
        subject = self._put_prefix + key
        try:
            return (await self._js.publish(subject, value, headers=headers, **options)).seq
        except _WRONG_REVISION as error:
            raise self._wrong_revision(key, options, error) from None
        except JetStreamUnavailableError:
            raise self._gone() from None

    def _wrong_revision(
        self, key: str, options: PublishOptions, error: JetStreamApiError
    ) -> WrongRevisionError:
        wanted = options["expect_last_subject_sequence"]
        digits = error.description.rpartition(": ")[2]
        actual = int(digits) if digits.isdecimal() else None
        text = "another one" if actual is None else actual
        return WrongRevisionError(
            f"key {key!r} of bucket {self.bucket!r}: its last revision is {text}, not {wanted}; "
            "get it again, then decide",
            actual,
        )

    def _gone(self) -> BucketNotFoundError:
        return BucketNotFoundError(
            f"bucket {self.bucket!r}: its stream {self.stream} does not answer; it was removed, or "
            "the account or domain is wrong"
        )
