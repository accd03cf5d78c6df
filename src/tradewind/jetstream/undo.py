"""Truncations that can be taken back: how long, and how.

Owns the companion of a stream that removes a shelf at the end of its time, and the steps in which a
stream is closed, recreated with the removed messages, and opened again. The files are handled by
`store.folder.shelf`. While it is recreated the stream takes and gives no messages; all other
streams continue.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import count
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from tradewind.api import errors
from tradewind.consumer.consumer import SHUTDOWN, ServerConsumer
from tradewind.errors import StoreError
from tradewind.jetstream.consumer_catalog import consumer_context, is_stored
from tradewind.jetstream.store_opening import recover_stream
from tradewind.jetstream.usage import Usage
from tradewind.store.folder.shelf import (
    ShelfName,
    bytes_on_shelf,
    put_back,
    remove_shelf,
    shelf_names,
)

if TYPE_CHECKING:
    from tradewind.api.consumer_types import ConsumerConfig
    from tradewind.jetstream.companions import Wanted
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.hosted import HostedStream
    from tradewind.jetstream.lanes import Steps
    from tradewind.store.format.consumer_file import ConsumerState
    from tradewind.stream.closed_subjects import ClosedSubjects

# A shelf whose removal has failed is tried again.
AGAIN_NS: Final = 60_000_000_000
# How long a worker waits in one go for a commit that is under way.
COMMIT_SECONDS: Final = 30.0
# How often it is looked whether a transaction has ended.
FENCE_SECONDS: Final = 0.002
# The error that publishers get meanwhile.
CLOSED: Final = "the stream is closed while an undo brings messages back; publish again"
# Beside those of restores, which count from 1.
_STAGING_NUMBERS: Final = count(1_000_000)
Carried = list[tuple[str, "ConsumerConfig", int, "ConsumerState"]]


def shelves_of(hosted: HostedStream) -> Wanted:
    """A companion for each shelf of a stream, which ends at its own time."""
    folder = hosted.stream.folder
    if folder is None:
        return {}
    return {
        ("shelf", name): partial(ShelfEnd, hosted, name)
        for name in shelf_names(folder.disk, folder.path)
    }


class ShelfEnd:
    """Removes one shelf at the end of its time. A `Companion`."""

    def __init__(self, hosted: HostedStream, name: ShelfName) -> None:
        self._hosted = hosted
        self._name = name
        self._again_ns = 0
        self._is_over = False

    def attach(self) -> None:
        """See `Companion`."""

    def changed(self) -> None:
        """See `Companion`."""

    def kept(self) -> None:
        """See `Companion`."""

    @property
    def next_deadline_ns(self) -> int:
        """See `Companion`."""
        if self._is_over:
            return self._again_ns
        turn = self._hosted.engine.turn
        return max(turn.monotonic_ns + self._name.until_ns - turn.steady_ns(), 1)

    def tick(self) -> None:
        """See `Companion`."""
        folder = self._hosted.stream.folder
        assert folder is not None
        if not self._is_over and self._name.until_ns > self._hosted.engine.turn.steady_ns():
            return  # the clock went back meanwhile
        self._is_over, self._again_ns = True, 0
        work = partial(remove_shelf, folder.disk, folder.path, self._name)
        self._hosted.engine.workers.submit(work, self._removed)

    def _removed(self, error: Exception | None) -> None:
        engine = self._hosted.engine
        engine.set_time()
        if error is None:
            # Meanwhile it may have been made anew, by an undo of another shelf.
            current = self._hosted.tenant.streams.get(self._hosted.name, self._hosted)
            current.keep(self._name, 0)
            self._hosted.companions.set()
            return
        engine.log.error(f"JetStream stream {self._hosted.place}: {error}")
        self._again_ns = engine.turn.monotonic_ns + AGAIN_NS
        self._hosted.companions.set_timer(self)

    def close(self, *, for_good: bool) -> None:
        """See `Companion`."""

    def describe(self) -> Mapping[str, Any]:
        """See `Companion`: the information about a stream keeps its shape."""
        return {}


def bring_back(
    engine: JetStreamEngine, hosted: HostedStream, name: ShelfName
) -> Steps[HostedStream]:
    """Bring back all messages of a shelf; ApiError leaves the stream as it was.

    The bytes that it uses stay counted while it is closed, so that they are not given to others.
    """
    yield from _check_room(hosted, name)
    held = HeldRoom(engine, hosted)
    closed = hosted.stream.refuse_all(CLOSED)
    try:
        carried = yield from _close(engine, hosted, held)
        fresh = yield from _rebuild(engine, hosted, name, carried, held, closed)
    finally:
        closed.end()
        held.give_back()
    folder = fresh.stream.folder
    assert folder is not None
    try:
        yield partial(remove_shelf, folder.disk, folder.path, name)
        fresh.keep(name, 0)
    except StoreError as error:
        engine.log.error(f"JetStream stream {fresh.place}: {error}")
    fresh.companions.set()
    return fresh


class HeldRoom:
    """The bytes that a stream uses, counted for its account while the stream is closed."""

    def __init__(self, engine: JetStreamEngine, hosted: HostedStream) -> None:
        self._usage = hosted.usage
        self._sums = (hosted.tenant.usage, engine.usage)
        self._held = Usage()

    def hold(self) -> None:
        """Count the bytes in place of the stream."""
        self._replace(self._usage)

    def give_back(self) -> None:
        """Stop counting: the stream counts again, or was deleted."""
        self._replace(Usage())

    def _replace(self, usage: Usage) -> None:
        for total in self._sums:
            total.replace(self._held, usage)
        self._held = usage


def _check_room(hosted: HostedStream, name: ShelfName) -> Steps[None]:
    """ApiError if the messages of a shelf, which may be compressed there, need more room than is
    left.
    """
    folder = hosted.stream.folder
    assert folder is not None
    sizes: list[int] = []
    try:
        yield lambda: sizes.append(bytes_on_shelf(folder, name))
    except StoreError as error:
        raise errors.STREAM_RESTORE(err=f"the messages are not restored: {error}") from None
    more = sizes[0] - hosted.kept_bytes.get(name, 0)
    if more > 0 and (problem := hosted.room_problem(more)) is not None:
        raise problem


def _rebuild(
    engine: JetStreamEngine,
    hosted: HostedStream,
    name: ShelfName,
    carried: Carried,
    held: HeldRoom,
    closed: ClosedSubjects,
) -> Steps[HostedStream]:
    """Recreate the messages of a closed stream, and open it, even after a failure."""
    assert engine.root is not None
    tenant, stream = hosted.tenant, hosted.name
    problem = ""
    try:
        yield partial(
            put_back,
            engine.root.stream(tenant.name, stream),
            name,
            engine.root.staging(tenant.name, stream, next(_STAGING_NUMBERS)),
            engine.turn.now_ns,
        )
    except StoreError as error:
        problem = str(error)
    held.give_back()
    closed.end()  # in one step with what follows: each message has one answer
    fresh = _open(engine, hosted, carried)
    if problem:
        raise errors.STREAM_RESTORE(err=f"the messages are not restored: {problem}")
    return fresh


def _take_nothing(hosted: HostedStream) -> Steps[None]:
    """Wait for a transaction that changes the stream: while fenced nothing can be written."""
    files = hosted.stream.files
    assert files is not None
    while files.is_fenced and files.failure is None:
        yield partial(Event().wait, FENCE_SECONDS)
        if not hosted.is_attached:
            raise errors.STREAM_NOT_FOUND()
    if files.failure is not None:
        hosted.stream.activate()
        raise errors.STREAM_RESTORE(err=f"the messages are not restored: {files.failure}")


def _close(engine: JetStreamEngine, hosted: HostedStream, held: HeldRoom) -> Steps[Carried]:
    """Close a stream so that its files are closed and durable. Returns the consumers that are not
    on disk.
    """
    yield from _take_nothing(hosted)
    carried = [
        (consumer.name, consumer.config, consumer.created_ns, consumer.state())
        for consumer in hosted.consumers.values()
        if not is_stored(hosted, consumer.config)
    ]
    hosted.companions.close(for_good=False)
    for consumer in list(hosted.consumers.values()):
        hosted.remove_consumer(consumer, SHUTDOWN)
    hosted.detach()
    held.hold()
    states, stream = Event(), Event()
    assert hosted.files is not None
    engine.syncer.detach(hosted.files, states.set)
    hosted.commits.detach(stream.set)
    for event in (states, stream):
        while not event.is_set():  # a file is never closed while a sync of it runs
            yield partial(event.wait, COMMIT_SECONDS)
    finish = hosted.stream.begin_close()
    yield partial(hosted.files.states.close, engine.broker.now_ns())
    for work in (finish, hosted.companions.save):
        if work is not None:
            try:
                yield work
            except StoreError as error:  # the next opening takes longer
                engine.log.error(f"JetStream stream {hosted.place}: {error}")
    return carried


def _open(engine: JetStreamEngine, old: HostedStream, carried: Carried) -> HostedStream:
    assert engine.root is not None
    tenant, stream = old.tenant, old.name
    folder = engine.root.stream(tenant.name, stream)
    try:
        there = shelf_names(folder.disk, folder.path)
        kept = {name: size for name, size in old.kept_bytes.items() if name in there}
        hosted = recover_stream(engine, tenant, folder, old.stream.ids, kept=kept)
    except (StoreError, ValueError) as error:
        tenant.problems[stream] = str(error)
        engine.log.error(f"JetStream cannot open stream '{tenant.name} > {stream}': {error}")
        raise errors.STREAM_OFFLINE_REASON(err=str(error)) from None
    for name, config, created_ns, state in carried:
        context = consumer_context(engine, hosted, name)
        hosted.add_consumer(ServerConsumer(context, name, config, created_ns, state))
    hosted.recovered()
    return hosted
