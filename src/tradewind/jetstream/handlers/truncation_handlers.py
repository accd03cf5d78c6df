"""Requests of Tradewind's own API to truncate a stream and to undo that.

Owns one function per request. Loaded with the first of them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from tradewind.api import errors
from tradewind.api.stream_types import RetentionPolicy
from tradewind.api.times import format_time
from tradewind.api.truncation_types import (
    WINDOWS_MAX,
    RemovedMessages,
    StreamTruncateRequest,
    StreamTruncateResponse,
    StreamUndoRequest,
    StreamUndoResponse,
    UndoWindow,
    criteria_of,
)
from tradewind.chain.chain_entries import PURGED
from tradewind.errors import StoreError
from tradewind.jetstream.api_request import Answer, ApiRequest, DurableAnswer
from tradewind.jetstream.lanes import Steps, let_others_go_first
from tradewind.jetstream.undo import bring_back
from tradewind.store.folder.shelf import (
    SHELF_OVERHEAD_BYTES,
    Shelf,
    ShelfName,
    needed_bytes,
    read_shelf,
    remove_shelf,
    shelf_bytes,
    shelf_names,
)
from tradewind.stream.truncation import Selection, Tally

if TYPE_CHECKING:
    from tradewind.jetstream.hosted import HostedStream
    from tradewind.store.contract import MessageCopy
    from tradewind.store.folder.stream_folder import StreamFolder


def truncate(request: ApiRequest) -> Steps[Answer]:
    """STREAM.TRUNCATE."""
    content: StreamTruncateRequest = request.content
    criteria = criteria_of(content)
    hosted = request.hosted()
    _check_allowed(hosted)
    shelf = _new_shelf(request, hosted) if content.keep_for else None
    tally = Tally()
    try:
        for found in Selection(hosted.stream.store, criteria).steps():
            if content.dry_run:
                _count(tally, hosted, found)
                yield let_others_go_first
                continue
            if shelf is not None and found:
                _make_room(hosted, shelf, found)
                yield partial(shelf.add, found)
            else:
                yield let_others_go_first
            _remove(tally, hosted, found)
        if shelf is not None:
            yield shelf.close
            yield from _weigh(hosted, shelf)
    except StoreError as error:
        text = str(error)
        if shelf is not None:
            text += yield from _break_off(hosted, shelf, tally.messages)
        raise errors.STREAM_PURGE_FAILED(err=text) from None
    members = msgspec.structs.asdict(tally.members())
    if content.dry_run:
        return StreamTruncateResponse(**members, success=True, dry_run=True)
    if shelf is not None and tally.messages:
        members["undo_id"] = str(shelf.name.number)
        members["undo_until"] = format_time(shelf.name.until_ns)
        hosted.companions.set()
    response = StreamTruncateResponse(**members, success=True)
    return DurableAnswer(hosted, response, errors.STREAM_PURGE_FAILED)


def _make_room(hosted: HostedStream, shelf: Shelf, found: list[MessageCopy]) -> None:
    """Reserve the bytes of the shelf; StoreError if the account has no room for them.

    The messages leave the stream after they are on the shelf, so the bytes they use there count as
    free.
    """
    size = needed_bytes(found, hosted.stream.store.counted_size)
    kept = hosted.kept_bytes.get(shelf.name, 0)
    if not kept:
        size += SHELF_OVERHEAD_BYTES
    freed = sum(hosted.stream.store.counted_size(message) for message in found)
    if hosted.room_problem(size - freed) is not None:
        raise StoreError(
            "keep_for: the account or the server has no storage left for kept messages; remove"
            " them without it, or in smaller parts"
        )
    hosted.keep(shelf.name, kept + size)


def _weigh(hosted: HostedStream, shelf: Shelf) -> Steps[None]:
    """Measure the shelf on disk, as the next start will find it."""
    folder = hosted.stream.folder
    assert folder is not None
    sizes: list[int] = []
    yield lambda: sizes.append(shelf_bytes(folder.disk, folder.path, shelf.name))
    hosted.keep(shelf.name, sizes[0])


def _break_off(hosted: HostedStream, shelf: Shelf, removed: int) -> Steps[str]:
    """End a truncation that failed. The messages removed so far can be brought back; a shelf with
    none of them is deleted.
    """
    folder = hosted.stream.folder
    assert folder is not None
    shelf.abandon()
    if removed:
        yield from _weigh(hosted, shelf)
        hosted.companions.set()
        return f"; {removed} messages were removed; undo {shelf.name.number} restores them"
    try:
        yield partial(remove_shelf, folder.disk, folder.path, shelf.name)
        hosted.keep(shelf.name, 0)
    except StoreError:
        hosted.companions.set()  # the shelf is removed later
    return ""


def _check_allowed(hosted: HostedStream) -> None:
    if hosted.config.sealed:
        raise errors.STREAM_SEALED()
    for name in ("deny_purge", "deny_delete"):
        if getattr(hosted.config, name):
            raise errors.STREAM_PURGE_FAILED(err=f"the configuration of the stream has {name}")


def _new_shelf(request: ApiRequest, hosted: HostedStream) -> Shelf | None:
    """The shelf for messages that can be brought back; ApiError if there cannot be one."""
    content: StreamTruncateRequest = request.content
    folder = hosted.stream.folder
    if folder is None:
        raise errors.STREAM_PURGE_FAILED(err="keep_for requires a stream with file storage")
    if hosted.config.retention is not RetentionPolicy.LIMITS:
        raise errors.STREAM_PURGE_FAILED(
            err="keep_for: only with limits retention; consumers of a work queue, or by interest,"
            " do not return to purged messages"
        )
    names = shelf_names(folder.disk, folder.path)
    if len(names) >= WINDOWS_MAX:
        raise errors.STREAM_PURGE_FAILED(
            err=f"keep_for: at most {WINDOWS_MAX} truncations can be undone at a time"
        )
    if content.dry_run:
        return None
    now_ns = request.engine.turn.now_ns
    number = max([now_ns, *(name.number + 1 for name in names)])
    return Shelf(folder, ShelfName(now_ns + content.keep_for, number), hosted.stream.meta)


def _count(tally: Tally, hosted: HostedStream, found: list[MessageCopy]) -> None:
    for message in found:
        tally.add(message, hosted.stream.store.counted_size(message))


def _remove(tally: Tally, hosted: HostedStream, found: list[MessageCopy]) -> None:
    """Remove messages and count them, except those that a limit has removed meanwhile."""
    store, turn = hosted.stream.store, hosted.engine.turn
    for message in found:
        size = store.counted_size(message)
        if store.remove(message.seq, reason=PURGED):
            tally.add(message, size)
    if found:
        turn.mark_dirty(hosted.stream.ingest)


def undo(request: ApiRequest) -> Steps[Answer]:
    """STREAM.UNDO."""
    content: StreamUndoRequest = request.content
    hosted = request.hosted()
    folder = hosted.stream.folder
    names = shelf_names(folder.disk, folder.path) if folder is not None else []
    if content.id:
        names = [name for name in names if str(name.number) == content.id]
    if folder is None or (not names and (content.id or not content.dry_run)):
        what = f"there is no truncation {content.id!r}" if content.id else "there is nothing"
        raise errors.STREAM_RESTORE(err=f"id: {what} that can be undone")
    if content.dry_run:
        windows = []
        for name in names:
            found: list[UndoWindow] = []
            yield partial(_look_at, folder, name, found)
            windows += found
        return StreamUndoResponse(success=True, dry_run=True, windows=windows)
    if hosted.config.sealed:
        raise errors.STREAM_SEALED()
    before = hosted.stream.store.state
    fresh = yield from bring_back(request.engine, hosted, names[-1])
    after = fresh.stream.store.state
    return StreamUndoResponse(
        success=True,
        messages=max(after.msgs - before.msgs, 0),
        bytes=max(after.bytes - before.bytes, 0),
    )


def _look_at(folder: StreamFolder, name: ShelfName, found: list[UndoWindow]) -> None:
    """Read the content of a shelf; runs in a worker."""
    store = read_shelf(folder, name)
    removed = RemovedMessages()
    if store is not None:
        state = store.table.state
        store.close()
        if state.msgs:
            removed = RemovedMessages(
                messages=state.msgs,
                bytes=state.bytes,
                first_seq=state.first_seq,
                first_time=format_time(state.first_timestamp_ns),
                last_seq=state.last_seq,
                last_time=format_time(state.last_timestamp_ns),
            )
    members = msgspec.structs.asdict(removed)
    found.append(UndoWindow(**members, id=str(name.number), until=format_time(name.until_ns)))
