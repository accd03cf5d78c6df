"""Locks by key: a key that expires is the lock, its value names the holder.

Owns acquiring, renewing and releasing, and notifying the holder that it has lost the lock. It never
trusts a wall clock: a holder counts as such until its time to live has passed on its own monotonic
clock, measured from before the last successful write was sent, so that it stops no later than the
server frees the key.

A process that stalls may believe for a moment that it still holds a lock. The token is for that: it
grows with each holder, and whatever the lock protects refuses a smaller token than it has seen.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from tradewind.client.core.duration_input import DurationInput, duration_ns
from tradewind.client.core.replies import nuid
from tradewind.client.errors import (
    ClientError,
    KeyExistsError,
    LockLostError,
    LockTimeoutError,
    OperationTimeoutError,
    OptionsError,
    WrongRevisionError,
)
from tradewind.client.kv.entries import check_key
from tradewind.durations import SECOND_NS

if TYPE_CHECKING:
    from tradewind.client.kv.entries import Entry
    from tradewind.client.kv.kv import KeyValue
    from tradewind.client.kv.watch import Watcher

LOCK_SECONDS: Final = 30.0
# An expired key without a marker is not announced, so that waiting clients also look by themselves.
LOOK_SECONDS: Final = 1.0
# Clients that wait see the marker of a release in this time; then the server removes it.
MARKER_SECONDS: Final = 60
RENEWALS_PER_TTL: Final = 3
OWNER_LENGTH_MAX: Final = 200


class KeyLock:
    """A lock that one client of a bucket holds at a time. Made by `KeyValue.lock`.

    >>> async with bucket.lock("nightly-report", ttl=30) as lock:
    ...     await store_report(fencing_token=lock.token)

    `token` is larger for each holder than for all before; 0 before the lock was acquired. If the
    lock is lost in the block, the block is cancelled and ends with LockLostError; a blocking
    program looks at `is_held`, and gets the error at the end of its block. A lock object can be
    used again after it was released.
    """

    key: str
    token: int

    def __init__(
        self,
        bucket: KeyValue,
        key: str,
        *,
        ttl: DurationInput,
        timeout: float | None,
        owner: str,
    ) -> None:
        check_key(bucket._stored_key(key))
        ttl_ns = duration_ns("ttl", ttl)
        if ttl_ns < SECOND_NS:
            raise OptionsError(f"ttl must be at least 1 second, not {ttl!r}; numbers are seconds")
        if timeout is not None and not timeout >= 0:
            raise OptionsError(f"timeout must be seconds, 0 or more, not {timeout!r}")
        if len(owner) > OWNER_LENGTH_MAX:
            raise OptionsError(f"owner must have at most {OWNER_LENGTH_MAX} characters")
        self.key = key
        self.token = 0
        self._bucket = bucket
        self._ttl_seconds = -(-ttl_ns // SECOND_NS)
        self._timeout = timeout
        # Unique, so that a client whose answer was lost knows its own lock again.
        name = owner or f"{socket.gethostname()} process {os.getpid()}"
        self._owner = f"{name} {nuid.next()}".encode()
        self._revision = 0
        self._held_until = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._block: asyncio.Task[object] | None = None
        self._has_cancelled_block = False
        self._loss = ""

    @property
    def is_held(self) -> bool:
        """Whether this client holds the lock now, as far as it can know."""
        return self._loop is not None and self._loop.time() < self._held_until

    async def acquire(self) -> int:
        """Wait until the lock is free and take it; its token. `release` frees it."""
        if self._renewing is not None:
            raise OptionsError(f"lock {self.key!r} must be released before it is acquired again")
        self._loss = ""
        self._loop = loop = asyncio.get_running_loop()
        deadline = None if self._timeout is None else loop.time() + self._timeout
        holder = await self._take()
        if holder is not None:
            async with self._bucket.watch(self.key) as watcher:
                while holder is not None:
                    await self._wait(watcher, deadline, holder)
                    holder = await self._take()
        self.token = self._revision
        self._renewing = asyncio.create_task(self._renew(), name=f"lock {self.key}")
        return self.token

    async def release(self) -> None:
        """Free the lock. LockLostError if it was lost before."""
        await self._stop_renewing()
        if self._loss:
            raise LockLostError(self._loss)
        if not self._revision:
            return
        revision, self._revision = self._revision, 0
        self._held_until = 0.0
        try:
            await self._bucket.purge(self.key, revision=revision, ttl=MARKER_SECONDS)
        except WrongRevisionError:
            raise LockLostError(self._lost_text("its key was changed by another client")) from None

    async def __aenter__(self) -> Self:
        await self.acquire()
        self._block = asyncio.current_task()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        block, self._block = self._block, None
        if self._has_cancelled_block:
            self._has_cancelled_block = False
            await self._stop_renewing()
            # Another cancellation may have come as well, and goes on then.
            if block is not None and not block.uncancel():
                raise LockLostError(self._loss) from None
            return
        try:
            await self.release()
        except LockLostError:
            if kind is None:
                raise
        except ClientError:
            pass  # the work is done, and the key expires by itself

    def __repr__(self) -> str:
        state = f"held, token {self.token}" if self.is_held else "not held"
        return f"KeyLock({self._bucket.bucket!r}, {self.key!r}, {state})"

    # ------------------------------------------------------------------ inside

    async def _take(self) -> Entry | None:
        """Try to become the holder; the entry of another holder if there is one."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                self._revision = await self._bucket.create(
                    self.key, self._owner, ttl=self._ttl_seconds
                )
            except (KeyExistsError, WrongRevisionError, OperationTimeoutError):
                entry = await self._bucket.get(self.key)
                if entry is None:
                    continue  # freed in between
                if entry.value != self._owner:
                    return entry
                # Stored by our own request, whose answer was lost.
                self._revision = entry.revision
            self._held_until = began + self._ttl_seconds
            return None

    async def _wait(self, watcher: Watcher[Entry], deadline: float | None, holder: Entry) -> None:
        """Wait until the key of another holder is gone; LockTimeoutError after the deadline."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            if deadline is not None and now >= deadline:
                raise LockTimeoutError(
                    f"lock {self.key!r} of bucket {self._bucket.bucket!r} is held by "
                    f"{holder.value[:OWNER_LENGTH_MAX].decode(errors='backslashreplace')!r}"
                )
            look = now + LOOK_SECONDS if deadline is None else min(deadline, now + LOOK_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(look):
                    entries = await watcher.take_some(1)
                    if entries and entries[-1].is_deleted:
                        return
                    continue
            if await self._bucket.get(self.key) is None:
                return

    async def _renew(self) -> None:
        """Renew the key until the lock is released or lost, whatever happens."""
        try:
            self._lose(await self._renew_until_lost())
        except Exception as error:
            self._lose(f"renewing it failed: {error}")

    async def _renew_until_lost(self) -> str:
        """Renew the key in time, again and again; why the lock was lost."""
        loop = asyncio.get_running_loop()
        pause = self._ttl_seconds / RENEWALS_PER_TTL
        while True:
            await asyncio.sleep(min(pause, max(self._held_until - loop.time(), 0)))
            began = loop.time()
            if began >= self._held_until:
                return "it could not be renewed in time"
            try:
                async with asyncio.timeout_at(self._held_until):
                    self._revision = await self._bucket.update(
                        self.key, self._owner, self._revision, ttl=self._ttl_seconds
                    )
                self._held_until = began + self._ttl_seconds
                pause = self._ttl_seconds / RENEWALS_PER_TTL
            except WrongRevisionError:
                if not await self._is_still_ours():
                    return "its key was removed, or taken by another client"
            except (ClientError, TimeoutError):
                pause = self._ttl_seconds / RENEWALS_PER_TTL / RENEWALS_PER_TTL

    async def _is_still_ours(self) -> bool:
        """Whether the key has our value, stored by a renewal whose answer was lost."""
        try:
            async with asyncio.timeout_at(self._held_until):
                entry = await self._bucket.get(self.key)
        except (ClientError, TimeoutError):
            return True  # unknown: the loop tries again until the time is over
        if entry is None or entry.value != self._owner:
            return False
        self._revision = entry.revision
        return True

    def _lose(self, why: str) -> None:
        """Called when the lock is lost; cancels the block that it protects."""
        self._loss = self._lost_text(why)
        self._revision = 0
        self._held_until = 0.0
        if self._block is not None and not self._block.done():
            self._has_cancelled_block = True
            self._block.cancel()

    def _lost_text(self, why: str) -> str:
        return f"lock {self.key!r} of bucket {self._bucket.bucket!r} was lost: {why}"

    async def _stop_renewing(self) -> None:
        task, self._renewing = self._renewing, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
