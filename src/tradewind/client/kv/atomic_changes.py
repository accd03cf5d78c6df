"""Read-modify-write of one key: the new value is stored only if no other client changed the key.

Owns the loop that repeats a change after another client was faster, and the arithmetic of counters.
It never decides how a value is stored; that is in `kv.py`.

Each attempt has a message id, so that an attempt whose answer was lost in a reconnect is stored
only once.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from tradewind.client.core.replies import nuid
from tradewind.client.errors import (
    BadNumberError,
    KeyNotFoundError,
    OptionsError,
    WrongRevisionError,
)
from tradewind.client.kv.kv_types import KEEP_TTL

if TYPE_CHECKING:
    from tradewind.client.connection import Payload
    from tradewind.client.core.duration_input import DurationInput
    from tradewind.client.kv.entries import Entry
    from tradewind.client.kv.kv import KeyValue

ATTEMPTS_MAX: Final = 100
PAUSE_SECONDS_MAX: Final = 0.25
# Counters fit in 64 bits, so that programs in every language can read them.
NUMBER_MIN: Final = -(1 << 63)
NUMBER_MAX: Final = (1 << 63) - 1
_NUMBER = re.compile(rb"-?[0-9]{1,19}")

Change = Callable[[bytes | None], "Payload | Awaitable[Payload | None] | None"]


async def modify(
    bucket: KeyValue, key: str, change: Change, ttl: DurationInput | None
) -> int | None:
    """Replace the value of a key by what `change` makes of it, and return the new revision.

    `change` gets None if the key has no value, and returns None to leave the key as it is; then
    there is no new revision.
    """
    for attempt in range(ATTEMPTS_MAX):
        entry = await bucket._load(key, None)
        current = value_of(entry)
        wanted = change(current)
        if inspect.isawaitable(wanted):
            wanted = await wanted
        if wanted is None:
            return None
        last = 0 if entry is None else entry.revision
        try:
            lifetime = await bucket._remaining(entry) if ttl == KEEP_TTL else ttl
            return await bucket._write(key, wanted, last, lifetime, msg_id=nuid.next())
        except WrongRevisionError:
            await asyncio.sleep(_pause(attempt))
    raise WrongRevisionError(
        f"key {key!r} of bucket {bucket.bucket!r}: other clients changed it {ATTEMPTS_MAX} times "
        "between reading and writing; try again later, or write to it less often",
        None,
    )


async def compare_and_set(
    bucket: KeyValue,
    key: str,
    expected: bytes | None,
    value: Payload,
    ttl: DurationInput | None,
) -> bool:
    """Replace the value if it is the expected one (None: there is none); whether it was."""

    def change(current: bytes | None) -> Payload | None:
        return value if current == expected else None

    return await modify(bucket, key, change, ttl) is not None


async def increment(bucket: KeyValue, key: str, by: int, ttl: DurationInput | None) -> int:
    """Add to the whole number that a key holds, 0 if it has no value; the new number."""
    if isinstance(by, bool) or not isinstance(by, int):
        raise OptionsError(f"by must be a whole number, not {by!r}")
    place = f"key {key!r} of bucket {bucket.bucket!r}"
    number = 0

    def change(current: bytes | None) -> bytes:
        nonlocal number
        number = by + (0 if current is None else number_in(place, current))
        if not NUMBER_MIN <= number <= NUMBER_MAX:
            raise BadNumberError(f"{place}: {number} does not fit in 64 bits")
        return b"%d" % number

    await modify(bucket, key, change, ttl)
    return number


async def touch(bucket: KeyValue, key: str, ttl: DurationInput) -> int:
    """Give the value of a key a new time to live; the revision. KeyNotFoundError without one."""
    revision = await modify(bucket, key, lambda current: current, ttl)
    if revision is None:
        raise KeyNotFoundError(
            f"key {key!r} of bucket {bucket.bucket!r} has no value: it was never set, was deleted, "
            "or has expired"
        )
    return revision


def value_of(entry: Entry | None) -> bytes | None:
    """The value of an entry; None if there is none or it is a marker."""
    return None if entry is None or entry.is_deleted else entry.value


def number_in(place: str, value: bytes) -> int:
    """The whole number in the value at a place; BadNumberError for anything else."""
    if not _NUMBER.fullmatch(value):
        shown = value[:32].decode(errors="backslashreplace")
        raise BadNumberError(f"{place} must hold a whole number such as 17, not {shown!r}")
    return int(value)


def _pause(attempt: int) -> float:
    """The seconds before the next attempt: random, so that clients that collide move apart."""
    return random.uniform(0, min(0.001 * 2 ** min(attempt, 10), PAUSE_SECONDS_MAX))  # noqa: S311
