"""Opens a stream that is on disk.

Owns the order: the files are read, which takes long and may be done by a worker, and then the
stream is made of them, by the event loop. The stream itself is in `stream`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tradewind.store.files.open_files import OpenFiles, open_files
from tradewind.stream.half_batch import BATCHES, remove_half_batch
from tradewind.stream.stream import Stream

if TYPE_CHECKING:
    from tradewind.store.folder.filestore import FileStore
    from tradewind.store.folder.recover import RecoveryReport
    from tradewind.store.folder.stream_folder import StreamFolder
    from tradewind.store.format.meta import StreamMeta
    from tradewind.stream.message_ids import MessageIds
    from tradewind.stream.stream_context import StreamContext


class StreamOpening:
    """The opening of one stream; `settings` are those of its store."""

    def __init__(
        self, context: StreamContext, folder: StreamFolder, now_ns: int, **settings: Any
    ) -> None:
        self._context = context
        self._folder = folder
        self._now_ns = now_ns
        # A worker does not share the descriptors of the loop.
        self._files = OpenFiles(folder.disk)
        seed = context.chance.getrandbits(64)
        self._settings = {"seed": seed, "units": BATCHES, "files": self._files, **settings}
        self._read: tuple[StreamMeta, FileStore, RecoveryReport] | None = None

    def read(self) -> None:
        """Read the files; StoreError if that is not possible. May be called by a worker."""
        self._read = self._folder.open(self._now_ns, **self._settings)

    def finish(self, ids: MessageIds | None = None) -> tuple[Stream, RecoveryReport]:
        """Create the stream, not active yet, and the report. `ids` are those it knew a moment ago.

        The caller has it load the rest: ids, if none are given, and times.
        """
        assert self._read is not None, "the files are read first"
        meta, files, report = self._read
        self._files.join(open_files(self._folder.disk))
        stream = Stream(self._context, meta, files.table, files, self._folder, ids)
        if batches := self._folder.staged_batches():
            remove_half_batch(files.table, batches)
            files.commit()
            self._folder.drop_staged_batches()
        return stream, report


def open_stream(
    context: StreamContext,
    folder: StreamFolder,
    now_ns: int,
    ids: MessageIds | None = None,
    **settings: Any,
) -> tuple[Stream, RecoveryReport]:
    """Open a stream in one call; for callers that may block."""
    opening = StreamOpening(context, folder, now_ns, **settings)
    opening.read()
    stream, report = opening.finish(ids)
    if ids is None:
        stream.load_ids(now_ns)
    stream.load_times(now_ns)
    return stream, report
